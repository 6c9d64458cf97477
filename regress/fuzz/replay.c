/*
 * replay.c
 *		Runs a fuzz target over its checked-in corpus, without a fuzzer.
 *
 * Speaks TAP, one line per input.  A broken invariant aborts the process.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An allocation of the input's exact size, so that the sanitizer sees its end. */
static uint8_t *
read_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data;
	long len;

	if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (len = ftell(file)) < 0)
	{
		perror(path);
		exit(1);
	}
	rewind(file);
	*size = (size_t) len;
	data = malloc(*size > 0 ? *size : 1);
	if (data == NULL || fread(data, 1, *size, file) != *size)
	{
		perror(path);
		exit(1);
	}
	fclose(file);
	return data;
}

int
main(void)
{
	struct dirent **entries;
	int count = scandir(CORPUS, &entries, NULL, alphasort);
	int inputs = 0;

	for (int i = 0; i < count; i++)
	{
		if (entries[i]->d_type == DT_REG)
		{
			char path[4096];
			size_t size;
			uint8_t *data;

			snprintf(path, sizeof(path), "%s/%s", CORPUS, entries[i]->d_name);
			data = read_file(path, &size);
			LLVMFuzzerTestOneInput(data, size);
			free(data);
			printf("ok %d - %s\n", ++inputs, entries[i]->d_name);
		}
		free(entries[i]);
	}
	if (inputs == 0)
	{
		fprintf(stderr, "no inputs in %s\n", CORPUS);
		return 1;
	}
	free(entries);
	printf("1..%d\n", inputs);
	return 0;
}

/*
 * file.c
 *		Small files, read whole.
 */
#include "file.h"

#include <stdio.h>

const char *
file_read(const char *path, Buf *out)
{
	FILE *file = fopen(path, "r");
	char block[8192];
	const char *error = NULL;
	size_t n;

	if (file == NULL)
		return "names a file that could not be opened";
	while (error == NULL && (n = fread(block, 1, sizeof(block), file)) > 0)
	{
		buf_append(out, block, n);
		if (out->len > FILE_MAX_BYTES)
			error = "names a file larger than 1 MiB";
	}
	if (ferror(file))
		error = "names a file that could not be read";
	fclose(file);
	buf_append_char(out, '\0');
	return out->failed ? "could not be read: out of memory" : error;
}

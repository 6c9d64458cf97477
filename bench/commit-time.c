/*
 * commit-time.c
 *		How long the machine takes to make 8 kB durable.
 *
 * Writes as PostgreSQL writes its log: blocks one after the other into a file
 * that has its size already, fdatasync after each.
 *
 * Back to back, or so many a second: between messages that come one by one the
 * disk and the processor fall asleep, and a commit takes twice as long.
 *
 * usage: commit-time FILE COUNT [RATE]
 *		the file is made, and removed again
 */
#include "histogram.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 8192
#define FILE_BLOCKS 2048 /* 16 MB, a segment of the log */

static int64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void
write_block(int fd, int number)
{
	static char block[BLOCK];

	memset(block, number & 0xff, sizeof(block));
	if (pwrite(fd, block, sizeof(block), (off_t) (number % FILE_BLOCKS) * BLOCK) != BLOCK)
	{
		perror("write");
		exit(1);
	}
}

static void
sync_file(int fd)
{
	if (fdatasync(fd) != 0)
	{
		perror("fdatasync");
		exit(1);
	}
}

static void
sleep_until(int64_t due_us)
{
	struct timespec due = {due_us / 1000000, due_us % 1000000 * 1000};

	(void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

int
main(int argc, char **argv)
{
	static Histogram histogram;
	int rate = argc == 4 ? atoi(argv[3]) : 0;
	int64_t began;
	int fd;

	if (argc < 3 || argc > 4 || (fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600)) < 0)
	{
		fprintf(stderr, "usage: commit-time FILE COUNT [RATE], where FILE can be made\n");
		return 2;
	}
	unlink(argv[1]);
	for (int i = 0; i < FILE_BLOCKS; i++)
		write_block(fd, i);
	sync_file(fd);
	began = now_us();
	for (int i = 0; i < atoi(argv[2]); i++)
	{
		int64_t start;

		if (rate > 0)
			sleep_until(began + (int64_t) i * 1000000 / rate);
		start = now_us();
		write_block(fd, i);
		sync_file(fd);
		histogram_add(&histogram, now_us() - start);
	}
	printf("{\"count\":%" PRId64 ",\"p50\":%" PRId64 ",\"p99\":%" PRId64 ",\"max\":%" PRId64 "}\n",
		   histogram.count, histogram_quantile(&histogram, 0.5),
		   histogram_quantile(&histogram, 0.99), histogram.max);
	close(fd);
	return 0;
}

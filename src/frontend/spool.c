/*
 * spool.c
 *		Pushed messages that wait on disk for the database.
 *
 * Files are written one after the other, and replayed in the order of their
 * names; the newest is written to, the others are complete.  One thread
 * writes: what gathers while it flushes goes into its next flush, so that many
 * messages share one.
 *
 * Everything below is protected by one mutex, which nobody holds while he
 * reads or writes a file, except to open the next one.
 */
#include "spool.h"

#include "clock.h"
#include "conf.h"
#include "crypt.h"
#include "log.h"
#include "worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#define FILE_MAX_BYTES (64 * 1024 * 1024)
#define FILE_NAME_FORMAT "%013lld-%08u.spool"
#define REFUSED_FILE "refused.spool"

/* Messages of one partition that are spooled. */
typedef struct SpooledPartition
{
	UT_hash_handle hh;
	long long n;
	char key[]; /* tenant, queue, separator, partition */
} SpooledPartition;

typedef struct SpoolFile
{
	struct SpoolFile *prev, *next; /* oldest first */
	size_t size;
	char name[SPOOL_NAME_SIZE];
} SpoolFile;

/* A message that waits for its flush. */
typedef struct Waiting
{
	struct Waiting *next;
	struct Worker *worker;
	PushItem *item;
} Waiting;

static struct
{
	int dir; /* -1: no spool */
	int lock_file;
	long long max_bytes;
	long long file_records;
	pthread_t writer;
	pthread_mutex_t lock;
	pthread_cond_t work;
	bool stop;

	/* what waits for the writer */
	Buf records;
	long long n_records;
	Waiting *waiting, *last_waiting;

	/* what is on disk */
	SpoolFile *files;
	int current;   /* the newest file when it is open for writing, else -1 */
	bool flushing; /* the writer is using it */
	bool rotate;   /* it is wanted for replay */
	long long current_records;
	unsigned sequence;
	long long bytes; /* of all files, and of what waits */
	SpooledPartition *partitions;
	SpoolState state;
} spool = {.dir = -1,
		   .lock_file = -1,
		   .current = -1,
		   .lock = PTHREAD_MUTEX_INITIALIZER,
		   .work = PTHREAD_COND_INITIALIZER};

static atomic_llong spooled; /* messages in the spool, or on their way into it */

/* --- partitions -------------------------------------------------------------- */

static SpooledPartition *
find_partition(const uint8_t *tenant, Span queue, Span partition, bool create)
{
	size_t len = 16 + queue.len + 1 + partition.len;
	SpooledPartition *fresh = calloc(1, sizeof(*fresh) + len);
	SpooledPartition *found;

	if (fresh == NULL)
		abort();
	memcpy(fresh->key, tenant, 16);
	memcpy(fresh->key + 16, queue.ptr, queue.len);
	fresh->key[16 + queue.len] = '\x1f';
	memcpy(fresh->key + 17 + queue.len, partition.ptr, partition.len);
	HASH_FIND(hh, spool.partitions, fresh->key, len, found);
	if (found || !create)
	{
		free(fresh);
		return found;
	}
	HASH_ADD_KEYPTR(hh, spool.partitions, fresh->key, len, fresh);
	return fresh;
}

static void
count_in(const uint8_t *tenant, Span queue, Span partition)
{
	find_partition(tenant, queue, partition, true)->n++;
	spool.state.pending++;
	atomic_fetch_add(&spooled, 1);
}

static void
count_out(const uint8_t *tenant, Span queue, Span partition)
{
	SpooledPartition *held = find_partition(tenant, queue, partition, false);

	if (held && --held->n == 0)
	{
		HASH_DEL(spool.partitions, held);
		free(held);
	}
	spool.state.pending--;
	atomic_fetch_sub(&spooled, 1);
}

bool
spool_available(void)
{
	return spool.dir >= 0;
}

long long
spool_count(const Uuid *tenant, Span queue, Span partition)
{
	const SpooledPartition *held;
	long long n;

	if (atomic_load_explicit(&spooled, memory_order_acquire) == 0)
		return 0;
	pthread_mutex_lock(&spool.lock);
	held = find_partition(tenant->bytes, queue, partition, false);
	n = held ? held->n : 0;
	pthread_mutex_unlock(&spool.lock);
	return n;
}

/* --- writing ------------------------------------------------------------------ */

/* A payload that can be encrypted is: which queues ask for it only the database knows. */
static bool
append_record(struct Worker *worker, const Uuid *tenant, Span queue, Span partition, PushItem *item)
{
	SpoolRecord record = {.tenant = tenant->bytes, .queue = queue, .partition = partition};
	size_t before = spool.records.len;

	if (worker->crypt && !push_item_seal(item, worker->crypt))
		return false;
	record.frame = push_item_frame(item);
	spool_record_append(&spool.records, &record);
	if (!spool.records.failed)
		return true;
	/* The memory is still there, with what was in it. */
	spool.records.failed = false;
	spool.records.len = before;
	return false;
}

bool
spool_add(struct Worker *worker, const Uuid *tenant, Span queue, Span partition, PushItem *item)
{
	Waiting *waiting;
	size_t before;
	bool ok = false;

	if (!spool_available() || (waiting = calloc(1, sizeof(*waiting))) == NULL)
		return false;
	waiting->worker = worker;
	waiting->item = item;
	pthread_mutex_lock(&spool.lock);
	before = spool.records.len;
	if (spool.bytes < spool.max_bytes && append_record(worker, tenant, queue, partition, item))
	{
		spool.bytes += (long long) (spool.records.len - before);
		spool.n_records++;
		count_in(tenant->bytes, queue, partition);
		if (spool.waiting)
			spool.last_waiting->next = waiting;
		else
			spool.waiting = waiting;
		spool.last_waiting = waiting;
		pthread_cond_signal(&spool.work);
		ok = true;
	}
	pthread_mutex_unlock(&spool.lock);
	if (!ok)
		free(waiting);
	worker->spooling += ok;
	return ok;
}

static bool
sync_directory(void)
{
	return fsync(spool.dir) == 0;
}

/* Starts the next file.  With the lock held. */
static bool
open_file(void)
{
	uint8_t header[SPOOL_HEADER_SIZE];
	SpoolFile *file = calloc(1, sizeof(*file));
	struct timespec now;
	int fd;

	if (file == NULL)
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(file->name, sizeof(file->name), FILE_NAME_FORMAT,
			 (long long) now.tv_sec * 1000 + now.tv_nsec / 1000000, spool.sequence++ % 100000000);
	/* Names ascend also when the clock steps back. */
	if (spool.files && strcmp(spool.files->prev->name, file->name) >= 0)
		snprintf(file->name, sizeof(file->name), FILE_NAME_FORMAT,
				 atoll(spool.files->prev->name) + 1, spool.sequence++ % 100000000);
	fd = openat(spool.dir, file->name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	spool_header_write(header, SPOOL_HEADER_SIZE);
	if (fd < 0 || write(fd, header, sizeof(header)) != sizeof(header) || !sync_directory())
	{
		if (fd >= 0)
		{
			close(fd);
			unlinkat(spool.dir, file->name, 0);
		}
		free(file);
		return false;
	}
	file->size = sizeof(header);
	spool.bytes += SPOOL_HEADER_SIZE;
	spool.current = fd;
	spool.current_records = 0;
	DL_APPEND(spool.files, file);
	return true;
}

/* The newest file is complete.  With the lock held. */
static void
finish_file(void)
{
	if (spool.current >= 0)
		close(spool.current);
	spool.current = -1;
	spool.rotate = false;
}

static bool
write_all(int fd, const char *data, size_t len)
{
	while (len > 0)
	{
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		len -= (size_t) n;
	}
	return fdatasync(fd) == 0;
}

/* Hands the messages back to their threads. */
static void
tell(Waiting *waiting, bool ok)
{
	while (waiting)
	{
		Waiting *next = waiting->next;

		if (ok)
			waiting->item->status = PUSH_BUFFERED;
		worker_spooled(waiting->worker, waiting->item);
		free(waiting);
		waiting = next;
	}
}

/* Takes back what was not written: with the lock held. */
static void
forget_records(const Buf *records)
{
	uint64_t offset = 0;
	SpoolRecord record;

	while (spool_record_read((const uint8_t *) records->data, records->len, &offset, &record) ==
		   SPOOL_RECORD)
		count_out(record.tenant, record.queue, record.partition);
	spool.bytes -= (long long) records->len;
}

/*
 * Ends the newest file, which took a part of the records at most: that must not be
 * taken for spooled, nor be written behind.  With the lock held.
 */
static void
abandon_file(SpoolFile *file)
{
	if (file && spool.current >= 0 && ftruncate(spool.current, (off_t) file->size) < 0)
		log_event(LOG_LEVEL_ERROR, "could not cut a spool file", "file", file->name, NULL);
	finish_file();
	if (file && file->size == SPOOL_HEADER_SIZE)
	{
		/* Nothing is in it, and the disk may be full. */
		unlinkat(spool.dir, file->name, 0);
		spool.bytes -= SPOOL_HEADER_SIZE;
		DL_DELETE(spool.files, file);
		free(file);
	}
}

/* Writes what waits; called and returns with the lock held. */
static void
flush_waiting(void)
{
	Buf records = spool.records;
	Waiting *waiting = spool.waiting;
	long long n = spool.n_records;
	SpoolFile *file;
	int error = 0;
	bool ok;

	memset(&spool.records, 0, sizeof(spool.records));
	spool.waiting = NULL;
	spool.n_records = 0;
	ok = spool.current >= 0 || open_file();
	file = spool.files ? spool.files->prev : NULL;
	if (ok && file)
	{
		int fd = spool.current;

		spool.flushing = true;
		pthread_mutex_unlock(&spool.lock);
		ok = write_all(fd, records.data, records.len);
		error = errno;
		pthread_mutex_lock(&spool.lock);
		spool.flushing = false;
	}
	else
		error = errno;
	if (ok && file)
	{
		file->size += records.len;
		spool.current_records += n;
		if (spool.rotate || file->size >= FILE_MAX_BYTES ||
			spool.current_records >= spool.file_records)
			finish_file();
	}
	else
	{
		abandon_file(file);
		forget_records(&records);
		if (spool.state.healthy)
			log_event(LOG_LEVEL_ERROR, "could not write the spool", "error", strerror(error), NULL);
	}
	spool.state.healthy = ok;
	pthread_mutex_unlock(&spool.lock);
	tell(waiting, ok);
	buf_free(&records);
	pthread_mutex_lock(&spool.lock);
}

static void *
writer_main(void *arg)
{
	(void) arg;
	pthread_mutex_lock(&spool.lock);
	while (!spool.stop || spool.waiting)
	{
		if (spool.waiting)
			flush_waiting();
		else
			pthread_cond_wait(&spool.work, &spool.lock);
	}
	pthread_mutex_unlock(&spool.lock);
	return NULL;
}

/* --- start and end ------------------------------------------------------------- */

/* NULL when it cannot be read, or is too short for its header: then *size tells, else it is
 * SIZE_MAX. */
static const uint8_t *
map_file(const char *name, int *fd, size_t *size)
{
	struct stat st;
	void *file;

	*size = SIZE_MAX;
	*fd = openat(spool.dir, name, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return NULL;
	if (fstat(*fd, &st) == 0)
	{
		*size = (size_t) st.st_size;
		if (*size >= SPOOL_HEADER_SIZE)
		{
			file = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, *fd, 0);
			if (file != MAP_FAILED)
				return file;
			*size = SIZE_MAX;
		}
	}
	close(*fd);
	return NULL;
}

static void
unmap_file(const uint8_t *file, size_t size, int fd)
{
	munmap((void *) file, size);
	close(fd);
}

/* Takes the torn end off a file, and keeps it for whoever wants to look into it. */
static void
cut_torn_end(const SpoolFile *file, const uint8_t *data, size_t size, uint64_t end, int fd)
{
	char name[SPOOL_NAME_SIZE + 8];
	int copy;

	snprintf(name, sizeof(name), "%s.torn", file->name);
	copy = openat(spool.dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	log_event(LOG_LEVEL_WARN, "the end of a spool file is torn and is set aside", "file", name,
			  NULL);
	if (copy < 0 || !write_all(copy, (const char *) data + end, size - end) ||
		ftruncate(fd, (off_t) end) < 0)
		log_event(LOG_LEVEL_ERROR, "could not cut a spool file", "file", file->name, NULL);
	if (copy >= 0)
		close(copy);
}

/* Whether a file is one of ours, or too short to hold anything: nobody was promised what is not
 * behind a header. */
static bool
file_is_sound(const SpoolFile *file)
{
	const uint8_t *data;
	uint64_t offset;
	size_t size;
	int fd;
	bool sound;

	data = map_file(file->name, &fd, &size);
	if (data == NULL)
		return size < SPOOL_HEADER_SIZE;
	sound = spool_header_read(data, size, &offset);
	unmap_file(data, size, fd);
	return sound;
}

/* Counts what is in a file of a process before; removes it, and returns false, when that is
 * nothing. */
static bool
adopt_file(SpoolFile *file)
{
	const uint8_t *data;
	uint64_t offset = 0;
	SpoolRecord record;
	SpoolRead read;
	size_t size;
	long long n = 0;
	int fd;

	data = map_file(file->name, &fd, &size);
	if (data && spool_header_read(data, size, &offset))
	{
		for (; (read = spool_record_read(data, size, &offset, &record)) == SPOOL_RECORD; n++)
			count_in(record.tenant, record.queue, record.partition);
		if (read == SPOOL_TORN)
			cut_torn_end(file, data, size, offset, fd);
	}
	if (data)
		unmap_file(data, size, fd);
	if (n == 0)
		unlinkat(spool.dir, file->name, 0);
	file->size = offset;
	spool.bytes += n > 0 ? (long long) offset : 0;
	return n > 0;
}

static int
by_name(const SpoolFile *a, const SpoolFile *b)
{
	return strcmp(a->name, b->name);
}

static void
count_refused(void)
{
	const uint8_t *data;
	uint64_t offset;
	SpoolRecord record;
	size_t size;
	int fd;

	data = map_file(REFUSED_FILE, &fd, &size);
	if (data == NULL)
		return;
	if (spool_header_read(data, size, &offset))
		while (spool_record_read(data, size, &offset, &record) == SPOOL_RECORD)
			spool.state.failed++;
	spool.state.failed_files = 1;
	spool.state.failed_bytes = (long long) size;
	unmap_file(data, size, fd);
}

/* Lists the files.  NULL, or why the spool cannot be used. */
static const char *
find_files(void)
{
	DIR *dir = fdopendir(dup(spool.dir));
	struct dirent *entry;
	SpoolFile *file;

	if (dir == NULL)
		return strerror(errno);
	while ((entry = readdir(dir)) != NULL)
	{
		long long stamp;
		unsigned sequence;
		char name[SPOOL_NAME_SIZE];

		if (sscanf(entry->d_name, "%13lld-%8u.spool", &stamp, &sequence) != 2)
			continue;
		snprintf(name, sizeof(name), FILE_NAME_FORMAT, stamp, sequence);
		if (strcmp(name, entry->d_name) != 0 || (file = calloc(1, sizeof(*file))) == NULL)
			continue;
		memcpy(file->name, name, sizeof(name));
		DL_APPEND(spool.files, file);
	}
	closedir(dir);
	DL_SORT(spool.files, by_name);
	DL_FOREACH (spool.files, file)
	{
		if (file_is_sound(file))
			continue;
		log_event(LOG_LEVEL_ERROR, "a spool file cannot be read", "file", file->name, NULL);
		return "a file in it cannot be read, and may hold messages";
	}
	return NULL;
}

static void
adopt_files(void)
{
	SpoolFile *file, *next;

	DL_FOREACH_SAFE (spool.files, file, next)
	{
		if (adopt_file(file))
			continue;
		DL_DELETE(spool.files, file);
		free(file);
	}
}

/* Creates what is missing of a path; only the last part is ours alone. */
static void
make_directory(const char *path)
{
	char *copy = strdup(path);

	for (char *slash = copy ? strchr(copy + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		(void) mkdir(copy, 0755);
		*slash = '/';
	}
	(void) mkdir(path, 0700);
	free(copy);
}

/* Why there is no spool; NULL when there is one. */
static const char *
open_directory(const char *path)
{
	make_directory(path);
	spool.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (spool.dir < 0)
		return strerror(errno);
	spool.lock_file = openat(spool.dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (spool.lock_file < 0)
		return strerror(errno);
	if (flock(spool.lock_file, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? "another process uses it" : strerror(errno);
	return NULL;
}

static void
close_directory(void)
{
	if (spool.lock_file >= 0)
		close(spool.lock_file);
	if (spool.dir >= 0)
		close(spool.dir);
	spool.lock_file = spool.dir = -1;
}

void
spool_open(const struct Conf *conf)
{
	const char *error;

	if (*conf->spool_dir == '\0')
		return;
	error = open_directory(conf->spool_dir);
	spool.max_bytes = conf->spool_max_bytes;
	spool.file_records = conf->spool_file_records;
	spool.state.healthy = true;
	if (error == NULL)
		error = find_files();
	if (error == NULL && pthread_create(&spool.writer, NULL, writer_main, NULL) != 0)
		error = "no thread for it";
	if (error)
	{
		log_event(LOG_LEVEL_WARN, "there is no spool: pushes fail while the database is down",
				  "directory", conf->spool_dir, "error", error, NULL);
		close_directory();
		return;
	}
	pthread_mutex_lock(&spool.lock);
	adopt_files();
	count_refused();
	pthread_mutex_unlock(&spool.lock);
	if (spool.state.pending > 0)
	{
		char n[24];

		snprintf(n, sizeof(n), "%lld", spool.state.pending);
		log_event(LOG_LEVEL_INFO, "spooled messages of a process before will be stored", "messages",
				  n, NULL);
	}
}

void
spool_close(void)
{
	if (!spool_available())
		return;
	pthread_mutex_lock(&spool.lock);
	spool.stop = true;
	pthread_cond_signal(&spool.work);
	pthread_mutex_unlock(&spool.lock);
	pthread_join(spool.writer, NULL);
	finish_file();
	close_directory();
}

SpoolState
spool_state(void)
{
	SpoolState state;

	pthread_mutex_lock(&spool.lock);
	state = spool.state;
	pthread_mutex_unlock(&spool.lock);
	return state;
}

/* --- replay -------------------------------------------------------------------- */

/* Whether the oldest file is complete; one that is still written to is ended when nothing else is
 * left. */
static bool
oldest_is_complete(void)
{
	if (spool.files == NULL)
		return false;
	if (spool.files->next == NULL && spool.current >= 0)
	{
		if (spool.flushing)
		{
			spool.rotate = true;
			return false;
		}
		finish_file();
	}
	return true;
}

bool
spool_source_open(SpoolSource *source)
{
	bool found = false;

	if (atomic_load_explicit(&spooled, memory_order_acquire) == 0)
		return false;
	pthread_mutex_lock(&spool.lock);
	if (oldest_is_complete())
	{
		memcpy(source->name, spool.files->name, sizeof(source->name));
		found = true;
	}
	pthread_mutex_unlock(&spool.lock);
	if (!found)
		return false;
	source->file = map_file(source->name, &source->fd, &source->size);
	if (source->file == NULL || !spool_header_read(source->file, source->size, &source->offset))
	{
		log_event(LOG_LEVEL_ERROR, "could not read a spool file", "file", source->name, NULL);
		return false;
	}
	return true;
}

void
spool_source_progress(SpoolSource *source, uint64_t offset)
{
	uint8_t header[SPOOL_HEADER_SIZE];

	/* It is no harm when this is lost: a message that comes again is known by its id. */
	spool_header_write(header, offset);
	if (pwrite(source->fd, header, sizeof(header), 0) != sizeof(header) ||
		fdatasync(source->fd) < 0)
		log_event(LOG_LEVEL_WARN, "could not write to a spool file", "file", source->name, NULL);
}

void
spool_source_close(SpoolSource *source)
{
	munmap((void *) source->file, source->size);
	close(source->fd);
}

void
spool_source_remove(SpoolSource *source)
{
	SpoolFile *file;

	if (unlinkat(spool.dir, source->name, 0) < 0)
		log_event(LOG_LEVEL_ERROR, "could not remove a spool file", "file", source->name, NULL);
	pthread_mutex_lock(&spool.lock);
	file = spool.files;
	spool.bytes -= (long long) file->size;
	DL_DELETE(spool.files, file);
	free(file);
	pthread_mutex_unlock(&spool.lock);
	spool_source_close(source);
}

/* Keeps a message that the database refused, for whoever looks into it. */
static void
keep_refused(const SpoolRecord *record)
{
	int fd = openat(spool.dir, REFUSED_FILE, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct stat st;
	Buf out = {0};

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 0 && buf_reserve(&out, SPOOL_HEADER_SIZE))
	{
		spool_header_write((uint8_t *) out.data, SPOOL_HEADER_SIZE);
		out.len = SPOOL_HEADER_SIZE;
	}
	spool_record_append(&out, record);
	if (fd < 0 || out.failed || !write_all(fd, out.data, out.len))
		log_event(LOG_LEVEL_ERROR, "could not keep a message that the database refused", NULL);
	if (fd >= 0)
		close(fd);
	buf_free(&out);
}

void
spool_record_done(const SpoolRecord *record, bool refused)
{
	if (refused)
		keep_refused(record);
	pthread_mutex_lock(&spool.lock);
	count_out(record->tenant, record->queue, record->partition);
	if (refused)
	{
		spool.state.failed++;
		spool.state.failed_files = 1;
		spool.state.failed_bytes += (long long) (SPOOL_RECORD_OVERHEAD + record->queue.len +
												 record->partition.len + record->frame.payload.len);
	}
	pthread_mutex_unlock(&spool.lock);
}

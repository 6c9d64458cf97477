/*
 * file.h
 *		Small files, read whole.
 */
#ifndef QUEEN_FILE_H
#define QUEEN_FILE_H

#include "buf.h"

#define FILE_MAX_BYTES (1024 * 1024)

/* Appends the file and a NUL.  NULL, or why it could not be read. */
extern const char *file_read(const char *path, Buf *out);

#endif

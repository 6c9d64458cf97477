/*
 * spoolfile.h
 *		A file of the front end's spool: messages that wait for the database.
 *
 * A header, then one record after the other, little-endian:
 *
 *	8	magic
 *	u64	offset of the first record that is not stored yet
 *
 *	u32	body length
 *	16	xxh3_128 of the body
 *	16	tenant
 *	16	message id
 *	u8	flags, as in a frame
 *	16	trace id			only with FRAME_TRACE
 *	u16	length, queue
 *	u16	length, partition
 *	u16	length, transaction id
 *	u16	length, producer subject	only with FRAME_PRODUCER
 *	...	payload
 *
 * Records are appended, and are good once they are flushed.  A crash can leave
 * a torn one at the end, which nobody was told about: the checksum shows it.
 */
#ifndef QUEEN_SPOOLFILE_H
#define QUEEN_SPOOLFILE_H

#include "buf.h"
#include "frame.h"

#define SPOOL_HEADER_SIZE 16
#define SPOOL_RECORD_OVERHEAD 20 /* length and checksum */

typedef struct SpoolRecord
{
	const uint8_t *tenant; /* 16 bytes */
	Span queue, partition;
	Frame frame;
} SpoolRecord;

typedef enum SpoolRead
{
	SPOOL_RECORD,
	SPOOL_END, /* nothing is left */
	SPOOL_TORN /* what is left is no record */
} SpoolRead;

extern void spool_header_write(uint8_t dst[SPOOL_HEADER_SIZE], uint64_t stored);

/* False when it is not the header of such a file, or points outside it. */
extern bool spool_header_read(const uint8_t *file, size_t size, uint64_t *stored);

/* Appends a record; buf->failed tells when memory ran out. */
extern void spool_record_append(Buf *out, const SpoolRecord *record);

/* Reads the record at *offset and moves *offset behind it.  Spans point into the file. */
extern SpoolRead spool_record_read(const uint8_t *file, size_t size, uint64_t *offset,
								   SpoolRecord *record);

#endif

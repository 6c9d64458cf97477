/*
 * pop_columns.h
 *		The columns of a row of log_pop(), which the extension writes and the
 *		front end reads by number.
 */
#ifndef QUEEN_POP_COLUMNS_H
#define QUEEN_POP_COLUMNS_H

typedef enum PopColumn
{
	POP_ENTRY,
	POP_STATUS,
	POP_PARTITION_ID,
	POP_PARTITION,
	POP_BASE_OFFSET,
	POP_END_OFFSET,
	POP_FIRST_OFFSET,
	POP_LAST_OFFSET,
	POP_CREATED_AT,
	POP_ATTEMPT,
	POP_BLOB,
	POP_RETRY_AT,
	POP_ERROR,
	POP_QUEUE_ID
} PopColumn;

#define POP_COLUMNS (POP_QUEUE_ID + 1)

#endif

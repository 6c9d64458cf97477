/*
 * names.h
 *		What a queue, a partition, a consumer group may be called.
 */
#ifndef QUEEN_NAMES_H
#define QUEEN_NAMES_H

#include "span.h"

/*
 * At most NAME_MAX_CHARS characters of valid UTF-8 without control characters.
 * Only a queue's name may be empty.  Returns NULL, or what is wrong with it.
 */
extern const char *queue_name_check(Span name);
extern const char *name_check(Span name);

/* A transaction id: the same, not empty, up to TRANSACTION_ID_MAX bytes. */
extern const char *transaction_id_check(Span id);

#endif

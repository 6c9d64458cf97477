/*
 * body.h
 *		What the readers of a JSON request body share.
 *
 * A text is a span of the body; one that holds escapes is unescaped into
 * "strings", which is reserved once and never moves.  After the first fault
 * every reader returns false up to the handler, which calls body_refuse().
 */
#ifndef QUEEN_BODY_H
#define QUEEN_BODY_H

#include "http.h"
#include "json.h"

typedef struct Body
{
	JsonReader reader;
	Buf *strings;
	const char *list; /* name of the array whose element is being read, for errors; NULL: none */
	size_t index;	  /* of the element */
	int status;		  /* of the answer, when a fault was found that the reader does not know */
	char error[160];
} Body;

/* False when there is no memory for "strings", which the caller frees in any case. */
extern bool body_begin(Body *body, const Request *req, Buf *strings);

/* All three return false.  "what" says what is wrong with the member. */
extern bool body_fail(Body *body, const char *member, const char *what);
extern bool body_too_many(Body *body, const char *member, int max);
extern bool body_out_of_memory(Body *body);

/*
 * Reads a string member.  "out" must be absent before: a repeated member is an
 * error.  It stays absent for a null, where that is allowed.
 */
extern bool body_text(Body *body, const char *member, bool nullable, Span *out);

/* Reads a boolean member; a null is false. */
extern bool body_bool(Body *body, const char *member, bool *out);
/* The fault: writes its text and returns the status of the answer. */
extern int body_fault(const Body *body, char *text, size_t size);

/* Answers with the fault. */
extern void body_refuse(const Body *body, Request *req);

#endif

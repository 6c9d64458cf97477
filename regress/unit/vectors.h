/*
 * vectors.h
 *		Two frames and their bytes, computed by hand from the layout in frame.h.
 */
#ifndef VECTORS_H
#define VECTORS_H

#include "frame.h"

static const uint8_t vector_plain[32] = {
	0x1c, 0,	0,	  0,	0,	  0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a,
	0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 2,	0,	  't',	'1',  '{',	'"',  'n',	'"',  ':',	'1',  '}'};

static const uint8_t vector_full[48] = {
	0x2c, 0,	0,	  0,	3,	  0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a,
	0x2b, 0x2c, 0x2d, 0x2e, 0x2f, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa,
	0xab, 0xac, 0xad, 0xae, 0xaf, 2,	0,	  't',	'2',  3,	0,	  's',	'v',  'c',	'[',  ']'};

#define VECTOR_PLAIN                                                                               \
	((Frame){.message_id = vector_plain + 5,                                                       \
			 .transaction_id = SPAN_LITERAL("t1"),                                                 \
			 .payload = SPAN_LITERAL("{\"n\":1}")})

#define VECTOR_FULL                                                                                \
	((Frame){.message_id = vector_full + 5,                                                        \
			 .trace_id = vector_full + 21,                                                         \
			 .transaction_id = SPAN_LITERAL("t2"),                                                 \
			 .producer_sub = SPAN_LITERAL("svc"),                                                  \
			 .payload = SPAN_LITERAL("[]")})

#endif

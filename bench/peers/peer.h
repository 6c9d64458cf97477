/*
 * peer.h
 *		What a driver of another queue must do; peer.c does the rest.
 *
 * usage of each driver: OPERATION QUEUE CONNECTIONS BATCH SECONDS MESSAGES
 *
 *		push	BATCH messages at a time for so many SECONDS; MESSAGES is 0
 *		consume	until MESSAGES have come, each acknowledged
 *		drain	the same, acknowledged by being delivered
 *
 * Connections belong to a thread each.  Errors end the program.
 */
#ifndef QUEEN_BENCH_PEER_H
#define QUEEN_BENCH_PEER_H

#include "../bench.h"

#define MAX_BATCH 1000

/* Once, before anything: makes the queue if it is not there. */
extern void peer_create(const char *queue);

/* A connection that will push, or, with "batch" > 0, consume so many at a time. */
extern void *peer_connect(const char *queue, int batch, bool acknowledge);

/* Returns when all the messages are durable. */
extern void peer_push(void *connection, const Span *messages, int n);

/* Takes what is there, waiting a short while at most, and acknowledges it; returns how many. */
extern int peer_consume(void *connection);

/* The part of the port or the host that the environment gives. */
extern const char *peer_environment(const char *name);

extern void peer_fail(const char *what, const char *why) __attribute__((noreturn));

#endif

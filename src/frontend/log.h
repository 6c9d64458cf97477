/*
 * log.h
 *		One line per event on stderr, as text or as JSON.
 *
 * Payloads and credentials are never logged.
 */
#ifndef QUEEN_LOG_H
#define QUEEN_LOG_H

#include <stdbool.h>

typedef enum LogLevel
{
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG
} LogLevel;

extern void log_setup(const char *level, bool json);

/* After the message: names and values (both const char *), ended by NULL. */
extern void log_event(LogLevel level, const char *message, ...) __attribute__((sentinel));

#endif

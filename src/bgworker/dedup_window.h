/*
 * dedup_window.h
 *		What a backend remembers of the deduplication windows it pushed into.
 */
#ifndef QUEEN_DEDUP_WINDOW_H
#define QUEEN_DEDUP_WINDOW_H

extern void dedup_window_init(void);

#endif

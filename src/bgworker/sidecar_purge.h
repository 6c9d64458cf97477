/*
 * sidecar_purge.h
 *		Deletes hashes of transaction ids that nothing needs any more.
 */
#ifndef QUEEN_SIDECAR_PURGE_H
#define QUEEN_SIDECAR_PURGE_H

extern long sidecar_purge_cycle(void);

#endif

/*
 * lease_expiry.h
 *		Releases leases that ran out.
 */
#ifndef QUEEN_LEASE_EXPIRY_H
#define QUEEN_LEASE_EXPIRY_H

extern void lease_expiry_start(void);
extern long lease_expiry_cycle(void);

#endif

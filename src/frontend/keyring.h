/*
 * keyring.h
 *		The keys that tokens are verified with, shared by all threads.
 *
 * A secret, a public key, or a set of keys from a file or a URL.  A set from a
 * URL is fetched by a thread of its own: at start, at its interval, and when a
 * token names a key that is not in it, but not more than once in five seconds.
 * What could not be fetched leaves the set as it was.
 */
#ifndef QUEEN_KEYRING_H
#define QUEEN_KEYRING_H

#include "conf.h"
#include "jwt.h"

typedef enum KeyVerdict
{
	KEY_GOOD,
	KEY_BAD_ALGORITHM, /* not one that the configuration allows */
	KEY_BAD_SIGNATURE,
	KEY_UNKNOWN,	 /* the token names a key that there is not */
	KEY_WAIT,		 /* a fetch is under way: ask again when keyring_fetches() changes */
	KEY_UNAVAILABLE, /* no set could be fetched since the start */
} KeyVerdict;

/* Loads the keys.  False, with the reason on stderr, when they do not fit the algorithm. */
extern bool keyring_load(const Conf *conf);

/* Starts fetching, where there is a URL; and ends it. */
extern bool keyring_start(void);
extern void keyring_stop(void);

/* Reads the file of keys again. */
extern void keyring_reload(void);

extern KeyVerdict keyring_verify(const Jwt *jwt);

/* Changes when keys were replaced: what was verified before is not verified any more. */
extern unsigned keyring_generation(void);

/* Changes when a fetch has ended. */
extern unsigned keyring_fetches(void);

#endif

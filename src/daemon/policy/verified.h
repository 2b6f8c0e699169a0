/* Objects that gbpfd has verified and compiled. The same bytes under the same name have the same
 * result, so they are verified once: an object is found by comparing all of its bytes, never by a
 * hash alone. Immutable, and used by several threads. */
#ifndef GBPF_DAEMON_POLICY_VERIFIED_H
#define GBPF_DAEMON_POLICY_VERIFIED_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/lock.h"
#include "bpf/load/policy.h"

#define DAEMON_VERIFIED_MAX 16u		  /* objects that are remembered */
#define DAEMON_VERIFIED_BYTES (64u << 20) /* of these objects and their images together */

struct daemon_verified {
	unsigned users;		 /* [atomic] */
	struct ebpf_built built; /* owned; its image_fd is -1 */
	void *image;		 /* owned: read-only mapping of the image of version 0 */
	size_t image_bytes;
	struct buf object; /* owned: from which it was built; empty for a tool */
	uint64_t hash;	   /* of the object: finds candidates */
	char name[EBPF_NAME_BYTES];
};

/* Takes the contents of built and object, which are empty then, and returns the first use; NULL: no
 * memory, and both stay the caller's. */
struct daemon_verified *daemon_verified_new(struct ebpf_built *built, struct buf *object,
					    const char *name);
/* Any thread. The last one to drop it frees it. NULL: nothing. */
struct daemon_verified *daemon_verified_use(struct daemon_verified *v);
void daemon_verified_drop(struct daemon_verified *v);
/* Returns the descriptor of its image with this version number, sealed; or -errno. */
int daemon_verified_image(const struct daemon_verified *v, uint64_t version);

/* The objects that were used last. */
struct daemon_verified_cache {
	struct lock lock; /* guards all fields; nothing is called with it held */
	struct daemon_verified *v[DAEMON_VERIFIED_MAX]; /* one use each is owned; the last one
							   used first */
	unsigned n;
	size_t bytes;
};

void daemon_verified_cache_init(struct daemon_verified_cache *c);
void daemon_verified_cache_finish(struct daemon_verified_cache *c);
/* Returns a use of the object that has these bytes and this name, or NULL. */
struct daemon_verified *daemon_verified_find(struct daemon_verified_cache *c, const char *name,
					     const struct buf *object);
/* Adds an object, and forgets those that were not used for longest if there are too many. */
void daemon_verified_add(struct daemon_verified_cache *c, struct daemon_verified *v);

#endif

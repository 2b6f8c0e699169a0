/* A set of handles of driver objects, which threads ask on every call and change rarely. It must
 * not call the driver. */
#ifndef GBPF_SHIM_OBJECT_HANDLE_SET_H
#define GBPF_SHIM_OBJECT_HANDLE_SET_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/lock.h"
#include "base/strmap.h"

/* A handle as the key of a strmap: its address in hexadecimal. */
struct shim_handle_key {
	char text[20];
};

static inline struct shim_handle_key shim_handle_key(const void *handle)
{
	struct shim_handle_key k;

	snprintf(k.text, sizeof(k.text), "%llx", (unsigned long long)(uintptr_t)handle);
	return k;
}

struct shim_handle_set {
	struct lock mutex;
	struct strmap map; /* mutex; handle in hexadecimal > handle */
	bool overflow;	   /* mutex: a handle could not be added, so that any may be a member */
	uint32_t n;	   /* [atomic] members, plus one after an overflow; changed under mutex */
};

#define SHIM_HANDLE_SET_INIT                                                                       \
	{                                                                                          \
		.mutex = LOCK_INITIALIZER(HANDLE_SET)                                              \
	}

/* Returns true if the handle is a member, or may be one because the set has overflowed. Takes no
 * lock while the set is empty. */
bool shim_handle_set_has(struct shim_handle_set *s, const void *handle);
/* Adds the handle; adding a member again changes nothing. */
void shim_handle_set_add(struct shim_handle_set *s, void *handle);
/* Removes the handle if it is a member. */
void shim_handle_set_remove(struct shim_handle_set *s, const void *handle);
/* In the child after fork: another thread of the parent may have held the lock. */
void shim_handle_set_after_fork(struct shim_handle_set *s);

#endif

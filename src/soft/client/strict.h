/* GBPF_SOFT_STRICT: as unforgiving as NVIDIA's driver, which follows what it is given, and as slow
 * to tell. GBPF_SOFT_QUEUE: as shallow. Both are read once; without them everything here is one
 * load. */
#ifndef GBPF_SOFT_CLIENT_STRICT_H
#define GBPF_SOFT_CLIENT_STRICT_H

#include "base/atomic.h"
#include "soft/client/process.h"

struct strict {
	int state;	/* atomic; 0: the environment was not read yet, 1: off, 2: on */
	uint32_t depth; /* operations of a channel that wait; 0: any number */
	uint32_t channels;
};
extern struct strict strict;

void strict_read(void);

static inline bool strict_on(void)
{
	if (__builtin_expect(load_acquire(&strict.state) == 0, 0)) {
		strict_read();
	}
	return load_relaxed(&strict.state) == 2;
}

/* object_is, of a handle that a program gives to a call. Strictly: ends the process where the
 * driver would follow it to nowhere. Null is left to the caller. */
bool handle_is(const void *handle, enum object_kind kind);
bool handle_refused(const void *handle, enum object_kind kind); /* it is not; false */
/* First in a call that destroys it: whoever uses it from now on is too late. */
void handle_ends(const void *handle);
/* Late in a call: nobody has destroyed it meanwhile. */
void handle_still(const void *handle, enum object_kind kind);

/* A green context becomes current to the thread, and is it no more: strictly, it may be so to one
 * thread at a time. NULL: it is none. */
void strict_enter(const void *green);
void strict_leave(const void *green);

/* Every object; strictly none comes again. */
void strict_born(const void *object, enum object_kind kind);
void strict_died(const void *object);

/* Before an operation is put on a stream: some time passes, and there is room in its channel. Who
 * waits for room holds the context, as in the driver: others that want it wait too. */
void strict_late(void); /* strictly: what a call answers may be old when it is read */
void strict_submit(CUstream s);
void strict_context(CUcontext ctx);
/* soft.ring_lock is held; it will be the stream's n-th. True: behind which of another stream it
 * begins at the earliest. */
bool strict_behind(CUstream s, uint32_t n, uint32_t *ret_slot, uint32_t *ret_target);

/* What a host that asks sees of an operation that has ended: strictly a little later than it is so,
 * but never back. Whoever has waited for something knows all that is so. */
bool strict_reached(uint32_t stream_slot, uint32_t target);
void strict_waited(void);

#endif

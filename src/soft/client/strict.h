/* GBPF_SOFT_STRICT: as unforgiving as NVIDIA's driver, which follows what it is given, and as slow
 * to tell. GBPF_SOFT_QUEUE: as shallow. Both are read once; without them everything here is one
 * load. */
#ifndef GBPF_SOFT_CLIENT_STRICT_H
#define GBPF_SOFT_CLIENT_STRICT_H

#include "base/atomic.h"
#include "soft/client/process.h"

struct soft_strict_mode {
	int state;	/* atomic; 0: the environment was not read yet, 1: off, 2: on */
	uint32_t depth; /* operations of a channel that wait; 0: any number */
	uint32_t channels;
};
extern struct soft_strict_mode strict;

void soft_strict_read(void);

static inline bool soft_strict_on(void)
{
	if (__builtin_expect(load_acquire(&strict.state) == 0, 0)) {
		soft_strict_read();
	}
	return load_relaxed(&strict.state) == 2;
}

/* object_is, of a handle that a program gives to a call. Strictly: ends the process where the
 * driver would follow it to nowhere. Null is left to the caller. */
bool soft_handle_is(const void *handle, enum soft_object_kind kind);
bool soft_handle_refuse(const void *handle, enum soft_object_kind kind); /* it is not; false */
/* First in a call that destroys it: whoever uses it from now on is too late. */
void soft_handle_destroying(const void *handle);
/* Late in a call: nobody has destroyed it meanwhile. */
void soft_handle_recheck(const void *handle, enum soft_object_kind kind);

/* A green context becomes current to the thread, and is it no more: strictly, it may be so to one
 * thread at a time. NULL: it is none. */
void soft_strict_enter(const void *green);
void soft_strict_leave(const void *green);

/* Every object; strictly none comes again. */
void soft_strict_object_created(const void *object, enum soft_object_kind kind);
void soft_strict_object_destroyed(const void *object);

/* Before an operation is put on a stream: some time passes, and there is room in its channel. Who
 * waits for room holds the context, as in the driver: others that want it wait too. */
void soft_strict_delay(void); /* strictly: what a call answers may be old when it is read */
void soft_strict_submit(CUstream s);
void soft_strict_context(CUcontext ctx);
/* soft.ring_lock is held; it will be the stream's n-th. True: behind which of another stream it
 * begins at the earliest. */
bool soft_strict_false_dependency(CUstream s, uint32_t n, uint32_t *ret_slot, uint32_t *ret_target);

/* What a host that asks sees of an operation that has ended: strictly a little later than it is so,
 * but never back. Whoever has waited for something knows all that is so. */
bool soft_strict_reached(uint32_t stream_slot, uint32_t target);
void soft_strict_waited(void);

#endif

/* Strict mode, for tests. With GBPF_SOFT_STRICT the library treats invalid handles as NVIDIA's
 * driver does, which follows them, and reports completion as late. GBPF_SOFT_QUEUE limits the queue
 * depth. Both are read once; if they are unset, every function here costs one load. */
#ifndef GBPF_SOFT_CLIENT_STRICT_H
#define GBPF_SOFT_CLIENT_STRICT_H

#include "base/atomic.h"
#include "soft/client/process.h"

struct soft_strict_mode {
	int state;	/* [atomic] 0: environment not read yet, 1: off, 2: on */
	uint32_t depth; /* maximum number of incomplete operations in a channel; 0: unlimited */
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

/* soft_object_is for a handle that the program passes to a call. In strict mode, aborts the process
 * where the driver would follow an invalid handle. The caller handles NULL. */
bool soft_handle_is(const void *handle, enum soft_object_kind kind);
bool soft_handle_refuse(const void *handle,
			enum soft_object_kind kind); /* for a handle known to be invalid; returns
							false if it does not abort */
/* First in a call that destroys the object: in strict mode, uses by other threads abort from now
 * on. */
void soft_handle_destroying(const void *handle);
/* Late in a call: in strict mode, aborts if another thread has destroyed the object meanwhile. */
void soft_handle_recheck(const void *handle, enum soft_object_kind kind);

/* A green context (or NULL) becomes current in this thread, or no longer is. In strict mode, aborts
 * if it is current in two threads at a time. */
void soft_strict_enter(const void *green);
void soft_strict_leave(const void *green);

/* Called for every object. In strict mode, destroyed objects are not recycled. */
void soft_strict_object_created(const void *object, enum soft_object_kind kind);
void soft_strict_object_destroyed(const void *object);

/* Before an operation is submitted to a stream: in strict mode, delays the call, then waits for
 * room in the channel. The waiting thread holds the context, as in the driver, so that other
 * threads that need it wait too. */
void soft_strict_delay(void); /* in strict mode, delays the call, so that its answer may be outdated
				 when the program reads it */
void soft_strict_submit(CUstream s);
void soft_strict_context(CUcontext ctx);
/* Returns whether the operation, which will be the stream's n-th, must wait for an operation of
 * another stream in its channel, and for which one. */
bool soft_strict_false_dependency(CUstream s, uint32_t n, uint32_t *ret_slot, uint32_t *ret_target)
	REQUIRES(soft.ring_lock);

/* Returns whether the program may see the operation as complete. In strict mode this may lag a
 * little behind, but never goes back; after waited, all completions are visible. */
bool soft_strict_reached(uint32_t stream_slot, uint32_t target);
void soft_strict_waited(void);

#endif

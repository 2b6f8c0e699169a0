/* State that the whole shim shares: the real library's functions, the process's scheduler, and the
 * counters by which a call decides with one load that it may go straight to the driver. */
#ifndef GBPF_SHIM_SHIM_H
#define GBPF_SHIM_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "cuabi/table.h"
#include "sched/sched.h"

/* The real library's functions, one pointer for each name of room cuabi. Until the library is
 * loaded each pointer leads to shim_resolve(), so that a call through it is valid at any time. A
 * name that the library lacks returns CUDA_ERROR_NOT_FOUND. A slot is stored while other threads
 * call through it; it is an atomic, so that a thread that calls what was stored sees what was
 * stored before. */
extern struct cuabi_slots shim_real;

/* A function in a slot that may be stored meanwhile, to be called: SHIM_REAL(cuLaunch)(f). gcc
 * compiles a call of an atomic member to one instruction, which ThreadSanitizer takes for a plain
 * read; under it the pointer is loaded first. */
#if defined(__SANITIZE_THREAD__)
#define SHIM_REAL(name) (*shim_real.name)
#else
#define SHIM_REAL(name) shim_real.name
#endif

/* The real library's functions without exception. Once patched machine code is loaded, shim_real
 * leads to the functions of shim/code for calls that name a kernel, other than launches, so that
 * all callers of shim_real see the program's kernels as they were before patching. */
extern struct cuabi_table shim_driver;

/* The shim's own entry points by index; NULL for names that are jumps that never change, for which
 * the real function serves as well. */
extern void *const shim_exports[CUABI_COUNT];

#define SHIM_FORMS 1u

struct shim_state {
	struct sched *sched; /* never NULL: an idle scheduler until the process attaches, then the
				session's until it exits */
	uint32_t attached;   /* [atomic] the process has a session and is not a forked child */
	uint32_t deferred; /* [atomic] deferred calls, plus queues with an unfinished resumable run;
			      0: the driver has everything */
	uint32_t captures; /* [atomic] open stream captures */
	uint32_t queue_generation; /* [atomic] incremented when a queue is closed, which invalidates
				      the threads' caches */
	uint32_t kernel_generation; /* [atomic] the same when what is known of a kernel's handle
				       may have changed: its record, code or probes */
	uint32_t probes_attached;   /* [atomic] tools ever attached */
	uint32_t forms; /* [atomic] SHIM_FORMS: kernels may have another form than the program's, so
			   launches go through shim_launch_issue() */
	int error; /* [atomic] first error of a deferred call, returned by the next synchronization;
		      0: none */
};
extern struct shim_state shim;

static inline bool shim_attached(void)
{
	return load_relaxed(&shim.attached) != 0;
}

/* Returns true if any call is deferred in the process, so that calls ordered behind it must not
 * overtake it. The acquire pairs with the increment of shim.deferred in shim_call_defer() and
 * shim_block_note_unfinished(). */
static inline bool shim_pending(void)
{
	return load_acquire(&shim.deferred) != 0;
}

/* Returns the real library's function of that index, after loading the library if necessary. Called
 * by the generated entry points. */
void *shim_resolve(unsigned index);

#endif

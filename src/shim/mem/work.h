/* Work sections around the driver calls that submit work which may use device memory, or that ask
 * about memory, in a process whose memory can leave the device (policy/read.h has the sections).
 * All calls of that kind are in one, the program's and the shim's own, since they are the functions
 * of shim_driver; except those that are made through shim_work_driver. */
#ifndef GBPF_SHIM_MEM_WORK_H
#define GBPF_SHIM_MEM_WORK_H

#include <stdbool.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "cuabi/table.h"

/* The driver's functions, none in a section. Constant after one of the following calls. */
extern struct cuabi_table shim_work_driver;

/* Generated: those functions of the driver, and what is called in their place. */
struct shim_work {
	unsigned index;
	void *entry;
};
extern const struct shim_work shim_work[];
extern const unsigned shim_work_count;

/* Called once, before cuInit returns, in a process whose memory can leave the device. */
void shim_work_install(void);
/* The same in any other process, before it uses the functions: none of its calls are in sections.
 */
void shim_work_prepare(void);

/* ---- launches that may name memory of the host: swap_fetch.c ---- */

/* A launch of a kernel, by the program or by gBPF. */
struct shim_swap_launch {
	CUfunction f; /* or a CUkernel */
	CUstream stream;
	void **params, **extra;
	bool per_thread;    /* the default stream is the per-thread one */
	CUcontext timed_in; /* NULL: it is not timed */
};

extern uint64_t shim_swap_on_host; /* [atomic] bytes of chunks that are not on the device */

/* Called before the driver has the launch: fetches the memory that it names, as the policy wants.
 * If l->timed_in is not NULL then, shim_swap_launched() follows. */
void shim_swap_launch(struct shim_swap_launch *l);
void shim_swap_launched(const struct shim_swap_launch *l, CUresult r);

static inline void shim_work_launch(struct shim_swap_launch *l)
{
	if (unlikely(load_relaxed(&shim_swap_on_host))) {
		shim_swap_launch(l);
	}
}

static inline void shim_work_launched(const struct shim_swap_launch *l, CUresult r)
{
	if (unlikely(l->timed_in)) {
		shim_swap_launched(l, r);
	}
}

#endif

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

/* ---- intervals: which work may be under way ---- */

/* Each pause ends an interval, with an event behind the work of that and all earlier ones. Work
 * that may use any memory notes its interval; a launch that uses certain regions alone notes it in
 * their slots instead. Both inside their work section, in which the interval does not change. The
 * words are read in pauses, where the closing of the sections orders them. Other reads only decide
 * whether a pause is worthwhile. */
#define SHIM_WORK_SLOTS 65536u
extern uint64_t shim_work_interval;		 /* [atomic] the present one */
extern uint64_t shim_work_opened;		 /* [atomic] of the latest work of the first kind */
extern uint64_t shim_work_used[SHIM_WORK_SLOTS]; /* [atomic] of the latest launch, by slot */

static inline void shim_work_note(uint64_t *word)
{
	uint64_t now = load_relaxed(&shim_work_interval);

	if (unlikely(load_relaxed(word) != now)) {
		store_relaxed(word, now);
	}
}

/* ---- launches that may name memory of the host: swap_fetch.c ---- */

#define SHIM_WORK_REGIONS 48u

/* A launch of a kernel, or of a graph, by the program or by gBPF. */
struct shim_swap_launch {
	CUfunction f;	   /* or a CUkernel; of a graph, its handle */
	CUgraphExec graph; /* NULL: it is one of a kernel */
	CUstream stream;
	void **params, **extra;
	bool per_thread;    /* the default stream is the per-thread one */
	CUcontext timed_in; /* NULL: it is not timed */
	bool closed;	    /* it accesses no other regions than those of the slots */
	uint32_t n_slots;
	uint32_t slot[SHIM_WORK_REGIONS];
};

extern uint64_t shim_swap_on_host; /* [atomic] bytes of chunks that are not on the device */

/* Called before the driver has the launch: fetches the memory that it names, as the policy wants.
 * If l->timed_in is not NULL then, shim_swap_launched() follows. */
void shim_swap_launch(struct shim_swap_launch *l);
void shim_swap_launched(const struct shim_swap_launch *l, CUresult r);

static inline void shim_work_launch(struct shim_swap_launch *l, CUfunction f, CUstream stream,
				    void **params, void **extra, bool per_thread)
{
	l->timed_in = NULL;
	l->closed = false;
	if (unlikely(load_relaxed(&shim_swap_on_host))) {
		l->f = f;
		l->graph = NULL;
		l->stream = stream;
		l->params = params;
		l->extra = extra;
		l->per_thread = per_thread;
		shim_swap_launch(l);
	}
}

/* The same of a graph: what it names is that which is known of it (swap_graphs.h). It may use any
 * memory, so it is never closed. */
static inline void shim_work_launch_graph(struct shim_swap_launch *l, CUgraphExec graph,
					  CUstream stream, bool per_thread)
{
	l->timed_in = NULL;
	l->closed = false;
	if (unlikely(load_relaxed(&shim_swap_on_host))) {
		l->f = (CUfunction)(void *)graph;
		l->graph = graph;
		l->stream = stream;
		l->params = l->extra = NULL;
		l->per_thread = per_thread;
		shim_swap_launch(l);
	}
}

/* Inside the work section. */
static inline void shim_work_note_launch(const struct shim_swap_launch *l)
{
	if (likely(!l->closed)) {
		shim_work_note(&shim_work_opened);
		return;
	}
	for (uint32_t i = 0; i < l->n_slots; i++) {
		shim_work_note(&shim_work_used[l->slot[i]]);
	}
}

static inline void shim_work_launched(const struct shim_swap_launch *l, CUresult r)
{
	if (unlikely(l->timed_in)) {
		shim_swap_launched(l, r);
	}
}

#endif

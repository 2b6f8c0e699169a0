/* Deferred calls that note when they are submitted. */
#ifndef GBPF_TESTS_SCHED_CALLS_H
#define GBPF_TESTS_SCHED_CALLS_H

#include <stdlib.h>

#include "run_device.h"

static struct {
	unsigned n, freed;
	uint64_t at_193; /* when the 193rd was submitted */
	unsigned tag[8192];
} done;
static bool may_go; /* answer of ready() */
static unsigned polled;

struct call {
	struct sched_call c;
	struct fake_queue *fq;
	unsigned tag;
	int error;
};

static inline int run(struct sched_call *sc)
{
	struct call *c = (struct call *)sc;

	fake_launch(c->fq, 1000);
	done.tag[done.n++ % ARRAY_SIZE(done.tag)] = c->tag;
	done.at_193 = done.n == 193 ? clocked_now : done.at_193;
	return c->error;
}

static inline void free_call(struct sched_call *c)
{
	done.freed++;
	free(c);
}

static inline bool ready(struct sched_call *c)
{
	polled++;
	return may_go;
}

static inline struct call *make(struct fake_queue *fq, const struct sched_launch *l, unsigned tag)
{
	struct call *c = calloc(1, sizeof(*c));

	c->c.run = run;
	c->c.free = free_call;
	c->c.is_launch = l != NULL;
	if (l) {
		c->c.launch = *l;
	}
	c->fq = fq;
	c->tag = tag;
	return c;
}

static inline void defer(struct clocked *c, const struct sched_launch *l, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		sched_defer(c->q, &make(&c->fq, l, i)->c);
	}
}

static inline void init(struct clocked *c)
{
	run_device_init(c);
	memset(&done, 0, sizeof(done));
	may_go = false;
	polled = 0;
	c->l.begin_ns = clocked_now;
}

static inline uint64_t ticking(void)
{
	return clocked_now += 1 * MS;
}

/* Own limits of launches are 10 s from now on: they starve, and cost 50 s of the minimum share. */
static inline void limits_far_away(struct clocked *c)
{
	c->l.est_ns = SECOND;
	c->r.s->share.until_ns = c->r.s->share.last_ns = clocked_now + 100 * SECOND;
}

/* submit: DEFER for 500 us */
static const struct ebpf_insn defers[] = {
	I_MOV(2, 500000),
	I_STX(EBPF_DW, 1, SUBMIT(hold_ns), 2),
	I_MOV(0, GBPF_DEFER),
	I_EXIT,
};

#endif

/* A process on a clock that the test moves: what is due at an exact moment can be asserted. */
#ifndef GBPF_TESTS_SCHED_CLOCKED_H
#define GBPF_TESTS_SCHED_CLOCKED_H

#include "fake.h"

#include <string.h>

#include "sched/sched_int.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static uint64_t clocked_now;

static inline uint64_t clocked_source(void)
{
	return clocked_now;
}

/* The rig with one queue and a kernel whose estimates the test sets. */
struct clocked {
	struct rig r;
	struct sched_device_ops ops; /* the scheduler's device */
	struct fake_queue fq;
	struct sched_queue *q;
	struct sched_kernel *k;
	struct sched_launch l; /* of k */
};

static inline void clocked_init(struct clocked *c, uint32_t class_id)
{
	memset(c, 0, sizeof(*c));
	clocked_now = 1000 * SECOND;
	clock_set_source(clocked_source);
	rig_init(&c->r, class_id, 0, 0);
	c->ops = fake_ops;
	c->r.s->cfg.device = &c->ops;
	c->q = sched_queue_open(c->r.s, &c->fq, 0, 0);
	c->k = sched_kernel_get(c->r.s, "k");
	c->l = kernel_launch(c->k);
}

static inline void clocked_finish(struct clocked *c)
{
	rig_finish(&c->r);
	clock_set_source(NULL);
}

/* Makes the kernel's launches known to take that long, and no sample due. */
static inline void clocked_know(struct clocked *c, uint64_t est_ns)
{
	struct sched_estimate *e = sched_estimate_of(c->r.s, &c->l);

	*e = (struct sched_estimate){
		.est_ns = est_ns, .interval = 256, .left = 1u << 30, .seen = 9
	};
}

static inline uint64_t clocked_step(struct clocked *c, uint64_t later_ns)
{
	clocked_now += later_ns;
	return sched_agent_step(c->r.s);
}

#endif

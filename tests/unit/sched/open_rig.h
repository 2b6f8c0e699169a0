/* A latency process whose request the test looks at step by step. */
#ifndef GBPF_TESTS_SCHED_OPEN_RIG_H
#define GBPF_TESTS_SCHED_OPEN_RIG_H

#include "clocked.h"

static unsigned asked; /* how often the device was asked whether a queue is idle */

static inline int count_asks(void *dev, void *dev_queue)
{
	asked++;
	return fake_ops.queue_idle(dev, dev_queue);
}

static inline void init(struct clocked *c)
{
	clocked_init(c, GBPF_CLASS_LATENCY);
	c->ops.queue_idle = count_asks;
	asked = 0;
}

static inline void open_now(struct clocked *c)
{
	assert_int_equal(go(c->q, &c->fq, &c->l), SCHED_GO);
	assert_int_equal(c->r.own.gpu[0].open, 1);
}

static inline uint64_t look(struct clocked *c, uint64_t later_ns)
{
	clocked_now += later_ns;
	return sched_requests_step(c->r.s, clocked_now);
}

static inline bool is_open(const struct clocked *c)
{
	assert_int_equal(c->r.own.gpu[0].open, c->r.s->req[0].open == SCHED_REQUEST_OPEN);
	return c->r.own.gpu[0].open;
}

#endif

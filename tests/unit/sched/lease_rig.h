/* A latency process on a clock that the test moves, with a device that records the leases. */
#ifndef GBPF_TESTS_SCHED_LEASE_RIG_H
#define GBPF_TESTS_SCHED_LEASE_RIG_H

#include "fake.h"

#include <string.h>

#include "sched/sched_int.h"

static uint64_t fake_now;

static inline uint64_t fake_clock(void)
{
	return fake_now;
}

static struct {
	uint64_t until_ns;   /* of the last call */
	uint32_t calls;	     /* calls of lease */
	uint32_t board_then; /* state of the board at the last call */
	uint32_t warms;	     /* calls of warm */
	uint64_t warm_ns;    /* time of the last call */
	struct proto_board *board;
} gpu;

static inline void note_lease(void *dev, uint32_t g, uint64_t until_ns)
{
	assert_int_equal(g, 0);
	store_seqcst(&gpu.until_ns, until_ns);
	(void)add_relaxed(&gpu.calls, 1u);
	if (gpu.board) {
		gpu.board_then = load_relaxed(&gpu.board->gpu[0].open);
	}
}

static inline void note_warm(void *dev, uint32_t g)
{
	gpu.warms++;
	gpu.warm_ns = fake_now;
}

/* retire: linger_ns = 0 */
static const struct ebpf_insn no_linger[] = {
	I_MOV(2, 0),
	I_STX(EBPF_DW, 1, RETIRE(linger_ns), 2),
	I_MOV(0, 0),
	I_EXIT,
};
static const struct ebpf_insn always_go[] = { I_MOV(0, GBPF_GO), I_EXIT };

struct one {
	struct rig r;
	struct sched_device_ops ops;
	struct fake_queue fq;
	struct sched_queue *q;
	struct sched_launch l;
};

static inline void one_init(struct one *o, bool policy)
{
	struct prog p[] = { PROG(submit, always_go), PROG(retire, no_linger) };

	memset(o, 0, sizeof(*o));
	memset(&gpu, 0, sizeof(gpu));
	fake_now = 1000000000;
	clock_set_source(fake_clock);
	rig_init(&o->r, GBPF_CLASS_LATENCY, 0, 0);
	o->ops = fake_ops;
	o->ops.lease = note_lease;
	o->ops.warm = note_warm;
	o->r.s->cfg.device = &o->ops;
	gpu.board = &o->r.own;
	assert_int_equal(rig_policy_prepare(&o->r, 1, p, 2, NULL), 0);
	o->r.dir.version[0] = policy ? 1 : 0;
	o->q = sched_queue_open(o->r.s, &o->fq, 0, 0);
	o->l = kernel_launch(NULL);
}

static inline void one_finish(struct one *o)
{
	rig_finish(&o->r);
	clock_set_source(NULL);
}

/* One step of the agent. */
static inline uint64_t step(struct one *o)
{
	return sched_agent_step(o->r.s);
}

/* Runs the agent until that time, sleeping as long as it asks for. */
static inline void live_until(struct one *o, uint64_t until)
{
	while (fake_now < until) {
		uint64_t ns = step(o);

		fake_now = ns < until - fake_now ? fake_now + (ns ? ns : 1) : until;
	}
	(void)step(o);
}

/* Makes a request of that length, starting now; a synchronization reports its end. */
static inline void request(struct one *o, uint64_t ns)
{
	go(o->q, &o->fq, &o->l);
	(void)step(o);
	fake_now += ns;
	fake_finish(&o->fq);
	sched_synced(o->r.s, o->q);
	(void)step(o);
}

#endif

#include "fake.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/shm.h"

uint64_t fake_live_markers, fake_live_timed;

struct fake_event {
	struct fake_queue *q;
	uint64_t seq, at_ns;
	bool timed;
};

void fake_launch(struct fake_queue *q, uint64_t ns)
{
	(void)add_acqrel(&q->clock_ns, ns);
	(void)add_acqrel(&q->seq, 1u);
}

void fake_finish(struct fake_queue *q)
{
	store_release(&q->done, load_acquire(&q->seq));
}

static int mark(void *dev, void *dev_queue, bool timed, struct sched_marker *m)
{
	struct fake_queue *q = dev_queue;
	struct fake_event *e;

	if (load_relaxed(&q->refuse_marks)) {
		return -EAGAIN;
	}
	e = malloc(sizeof(*e));
	e->q = q;
	e->timed = timed;
	e->at_ns = load_acquire(&q->clock_ns);
	e->seq = add_acqrel(&q->seq, 1u) + 1;
	m->event = e;
	(void)add_acqrel(&fake_live_markers, 1u);
	(void)add_acqrel(&fake_live_timed, (uint64_t)timed);
	return 0;
}

static int mark_done(void *dev, const struct sched_marker *m)
{
	const struct fake_event *e = m->event;

	return load_relaxed(&e->q->eager) || load_acquire(&e->q->done) >= e->seq;
}

static int64_t mark_span_ns(void *dev, const struct sched_marker *from,
			    const struct sched_marker *to)
{
	const struct fake_event *a = from->event, *b = to->event;

	return a->timed && b->timed ? (int64_t)(b->at_ns - a->at_ns) : -EIO;
}

static void mark_release(void *dev, struct sched_marker *m)
{
	(void)sub_acqrel(&fake_live_markers, 1u);
	(void)sub_acqrel(&fake_live_timed, (uint64_t)((struct fake_event *)m->event)->timed);
	free(m->event);
	m->event = NULL;
}

static int queue_idle(void *dev, void *dev_queue)
{
	struct fake_queue *q = dev_queue;

	if (load_relaxed(&q->mute)) {
		return -EAGAIN;
	}
	return load_relaxed(&q->eager) || load_acquire(&q->done) >= load_acquire(&q->seq);
}

const struct sched_device_ops fake_ops = { mark, mark_done, mark_span_ns, mark_release,
					   queue_idle };

/* ---- rig ---- */

void rig_wake_agent(void *rig)
{
	struct rig *r = rig;

	(void)add_acqrel(&r->wakes, 1u);
	futex_wake_shared(&r->wakes, 1);
}

static void on_note(void *arg, const char *what, const char *text)
{
	(void)add_acqrel(&((struct rig *)arg)->notes, 1u);
}

void rig_create(struct rig *r, const struct sched_config *cfg)
{
	uint32_t index[PROTO_MAX_GPUS] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

	assert_int_equal(sched_create(&r->s, cfg), 0);
	r->dir.magic = PROTO_DIRECTORY_MAGIC;
	r->dir.abi = PROTO_ABI;
	r->dir.generation = 1;
	sched_set_pages(r->s, &r->dir, &r->own, &r->stats, index);
	assert_int_equal(sched_board_add(r->s, SCHED_BOARD_LATENCY, 3, 2, &r->other), 0);
}

void rig_init(struct rig *r, uint32_t class_id, uint64_t limit_ns, uint32_t share_ppm)
{
	struct sched_config cfg = { .tenant = 1,
				    .class_id = class_id,
				    .weight = 100,
				    .hold_limit_ns = limit_ns,
				    .min_share_ppm = share_ppm,
				    .device = &fake_ops,
				    .wake_agent = rig_wake_agent,
				    .note = on_note,
				    .arg = r };

	memset(r, 0, sizeof(*r));
	rig_create(r, &cfg);
}

void rig_finish(struct rig *r)
{
	rig_stop_agent(r);
	sched_destroy(r->s);
}

static void *agent_main(void *arg)
{
	struct rig *r = arg;

	while (!load_acquire(&r->stop_agent)) {
		uint32_t seen = load_acquire(&r->wakes);
		uint64_t ns = sched_agent_step(r->s);

		(void)add_acqrel(&r->steps, 1u);
		(void)futex_wait_shared(&r->wakes, seen, ns < 10000000 ? ns : 10000000);
	}
	return NULL;
}

void rig_start_agent(struct rig *r)
{
	store_release(&r->stop_agent, 0u);
	assert_int_equal(pthread_create(&r->agent, NULL, agent_main, r), 0);
}

void rig_stop_agent(struct rig *r)
{
	if (r->agent) {
		store_release(&r->stop_agent, 1u);
		rig_wake_agent(r);
		pthread_join(r->agent, NULL);
		r->agent = 0;
	}
}

/* ---- policies ---- */

void regions_make(struct regions *m)
{
	*m = (struct regions){ .fd = { shm_create("g", 4096, SHM_NOEXEC),
				       shm_create("t", 4096, SHM_NOEXEC), -1, -1 } };
	m->global = shm_map(m->fd[0], 4096, 1);
	m->tenant = shm_map(m->fd[1], 4096, 1);
	assert_non_null(m->global);
	assert_non_null(m->tenant);
}

void regions_free(struct regions *m)
{
	shm_unmap(m->global, 4096);
	shm_unmap(m->tenant, 4096);
	close(m->fd[0]);
	close(m->fd[1]);
}

int rig_policy_prepare(struct rig *r, uint64_t version, const struct prog *progs, unsigned n,
		       struct regions *maps)
{
	static const struct ebpf_map_def defs[2] = {
		{ .name = "global",
		  .type = 2,
		  .key_bytes = 4,
		  .value_bytes = 4096,
		  .max_entries = 1 },
		{ .name = "tenant",
		  .type = 2,
		  .key_bytes = 4,
		  .value_bytes = 4096,
		  .max_entries = 1,
		  .flags = GBPF_F_TENANT },
	};
	struct ebpf_image_header h = { .version = version, .name = "test", .n_maps = maps ? 2 : 0 };
	static const int none[EBPF_REGIONS] = EBPF_NO_REGIONS;
	struct ebpf_insn all[512];
	int fd, ret;

	for (unsigned i = 0; i < n; i++) {
		assert_true(h.n_insns + progs[i].n <= 512);
		h.progs[progs[i].hook] = (struct ebpf_image_prog){ .insn_first = h.n_insns,
								   .n_insns = progs[i].n,
								   .code_offset = UINT32_MAX,
								   .cost = 1 };
		memcpy(all + h.n_insns, progs[i].insns, progs[i].n * sizeof(all[0]));
		h.n_insns += progs[i].n;
	}
	fd = ebpf_image_build(&h, defs, all, NULL, 0);
	assert_true(fd >= 0);
	ret = sched_policy_prepare(r->s, version, UINT32_MAX, fd, maps ? maps->fd : none);
	close(fd);
	return ret;
}

const struct ebpf_insn hold_while_open[5] = {
	I_LDX(EBPF_W, 2, 1, SUBMIT(lc_open)),
	I_MOV(0, GBPF_GO),
	I_J(EBPF_JEQ, 2, 0, 1),
	I_MOV(0, GBPF_HOLD),
	I_EXIT,
};

void rig_policy_use(struct rig *r, uint64_t version, const struct ebpf_insn *insns, uint32_t n)
{
	struct prog p = { .hook = POLICY_HOOK_submit, .insns = insns, .n = n };

	assert_int_equal(rig_policy_prepare(r, version, &p, 1, NULL), 0);
	store_release(&r->dir.version[0], version);
}

_Thread_local struct sched_ticket ticket;

enum sched_answer ticket_begin(struct sched_queue *q, struct sched_launch *l)
{
	return sched_ticket_begin(&ticket, q, l);
}

void ticket_end(bool ok)
{
	ok ? sched_ticket_commit(&ticket) : sched_ticket_abort(&ticket);
}

enum sched_answer go(struct sched_queue *q, struct fake_queue *fq, struct sched_launch *l)
{
	enum sched_answer a = ticket_begin(q, l);

	if (a == SCHED_GO) {
		fake_launch(fq, 1000);
		ticket_end(true);
	}
	return a;
}

struct sched_launch kernel_launch(struct sched_kernel *k)
{
	return (struct sched_launch){
		.kernel = k, .blocks = 100, .threads = 256, .may_hold = true
	};
}

void other_opens(struct rig *r)
{
	store_release(&r->other.gpu[0].opened_ns, clock_now_ns());
	store_seqcst(&r->other.gpu[0].open, 1u);
}

void other_closes(struct rig *r)
{
	store_relaxed(&r->other.gpu[0].last_end_ns, clock_now_ns());
	store_seqcst(&r->other.gpu[0].open, 0u);
	(void)add_acqrel(&r->other.gpu[0].seq, 1u);
	futex_wake_shared(&r->other.gpu[0].seq, INT_MAX);
}

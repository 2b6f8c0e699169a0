/* What the hooks of a process are given, field by field, and which of their answers count. The
 * programs copy the whole context into the tenant's map. */
#include "clocked.h"

#define WORDS_MAX 40u
#define COPY_AT 8 /* bytes; the map's first word counts the calls */

static struct regions maps; /* of the newest version; global NULL: none */
static struct rig r;
static struct fake_queue fq;

static void begin(uint32_t class_id)
{
	rig_init(&r, class_id, 0, 0);
	memset(&fq, 0, sizeof(fq));
}

static void free_maps(void)
{
	if (maps.global) {
		regions_free(&maps);
		maps.global = NULL;
	}
}

static void finish(void)
{
	rig_finish(&r);
	free_maps();
}

/* Writes a program that copies `bytes` of the context into the map and then stores 32-bit `set` at
 * offset `at` of the context (at < 0: nothing), and answers `verdict`. Returns its length. */
static unsigned copier(struct ebpf_insn *out, size_t bytes, int at, int set, int verdict)
{
	const struct ebpf_insn value[] = { I_VALUE(2, 1, 0) };
	const struct ebpf_insn count[] = { I_MOV(3, 1), I_ATOMIC_ADD(2, 0, 3) };
	const struct ebpf_insn store[] = { I_MOV(3, set), I_STX(EBPF_W, 1, at, 3) };
	const struct ebpf_insn end[] = { I_MOV(0, verdict), I_EXIT };
	unsigned n = 0;

	memcpy(out, value, sizeof(value));
	n += sizeof(value) / sizeof(value[0]);
	for (size_t i = 0; i < bytes; i += 8) {
		const struct ebpf_insn word[] = { I_LDX(EBPF_DW, 3, 1, i),
						  I_STX(EBPF_DW, 2, COPY_AT + (int)i, 3) };

		memcpy(out + n, word, sizeof(word));
		n += 2;
	}
	memcpy(out + n, count, sizeof(count));
	n += 2;
	if (at >= 0) {
		memcpy(out + n, store, sizeof(store));
		n += 2;
	}
	memcpy(out + n, end, sizeof(end));
	return n + 2;
}

static void use(uint64_t version, int hook, size_t bytes, int at, int set, int verdict)
{
	static struct ebpf_insn code[2 * WORDS_MAX + 16];
	struct prog p = { .hook = hook, .insns = code };

	p.n = copier(code, bytes, at, set, verdict);
	free_maps();
	regions_make(&maps);
	assert_int_equal(rig_policy_prepare(&r, version, &p, 1, &maps), 0);
	store_release(&r.dir.version[0], version);
}

static const void *seen(uint64_t calls)
{
	assert_int_equal(maps.tenant[0], calls);
	return (const char *)maps.tenant + COPY_AT;
}

static const struct proto_board peer;

/* Puts the process into a group of that number. */
static void join(uint32_t number)
{
	sched_set_group(r.s, number);
	assert_int_equal(sched_board_add(r.s, SCHED_BOARD_PEER, 3, 2, &peer), 0);
}

static void submit_is_told_of_launch_queue_and_tenant(void **state)
{
	const struct gbpf_submit_ctx *c;
	struct sched_kernel *k;
	struct sched_queue *q;
	struct sched_launch l, first;

	begin(GBPF_CLASS_BATCH);
	(void)sched_queue_open(r.s, &fq, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, -3);
	sched_set_class(r.s, GBPF_CLASS_BATCH, 250);
	store_relaxed(&r.s->uid, 4711u);
	sched_set_vgpu(r.s, 17);
	join(6);
	sched_set_lane(r.s, GBPF_LANE_SHARED);
	k = sched_kernel_get(r.s, "k");
	use(1, POLICY_HOOK_submit, sizeof(*c), -1, 0, GBPF_GO);
	first = kernel_launch(NULL);
	go(q, &fq, &first);
	l = kernel_launch(k);
	l.blocks = 77;
	l.bytes = 1234;
	l.flags = GBPF_F_MEASURED;
	l.threads = 96;
	l.smem_bytes = 512;
	l.block_ok = true;
	l.stop = GBPF_STOP_CLONE;
	l.resident = 33;
	go(q, &fq, &l);
	c = seen(2);
	assert_true(c->now_ns > 0);
	assert_int_equal(c->kernel, k->hash);
	assert_int_equal(c->bytes, 1234);
	assert_int_equal(c->blocks, 77);
	assert_int_equal(c->held_ns, 0);
	assert_int_equal(c->hold_ns, 0);
	assert_int_equal(c->tenant, 1);
	assert_int_equal(c->queue, 1);
	assert_int_equal(c->class_id, GBPF_CLASS_BATCH);
	assert_int_equal(c->weight, 250);
	assert_int_equal(c->priority, -3);
	assert_int_equal(c->kind, l.kind);
	assert_int_equal(c->flags & GBPF_F_MEASURED, GBPF_F_MEASURED);
	assert_int_equal(c->threads, 96);
	assert_int_equal(c->smem_bytes, 512);
	assert_int_equal(c->lc_open, 0);
	assert_true(c->lc_next_ns == UINT64_MAX);
	assert_int_equal(c->inflight, 1); /* the first one */
	assert_int_equal(c->asked, 0);
	assert_int_equal(c->level, GBPF_LEVEL_HOLD);
	assert_int_equal(c->split_blocks, 0);
	assert_int_equal(c->block_ok, 1);
	assert_int_equal(c->lane, GBPF_LANE_SHARED);
	assert_int_equal(c->uid, 4711);
	assert_int_equal(c->group, 6);
	assert_int_equal(c->vgpu, 17);
	assert_int_equal(c->stop, GBPF_STOP_CLONE);
	assert_int_equal(c->resident, 33);
	assert_int_equal(c->waves, 3);
	assert_int_equal(c->persistent, 0);
	assert_int_equal(c->gate, GBPF_GATE_DEFAULT);
	assert_int_equal(c->why, GBPF_WHY_NONE);
	other_opens(&r);
	go(q, &fq, &first);
	c = seen(3);
	assert_int_equal(c->lc_open, 1);
	assert_int_equal(c->lc_idle_ns, 0);
	assert_int_equal(c->kernel, 0);
	assert_int_equal(c->block_ok, 0);
	assert_int_equal(c->stop, GBPF_STOP_NONE);
	assert_int_equal(c->resident, 0);
	assert_int_equal(c->waves, 0);
	assert_int_equal(c->persistent, 0);
	assert_int_equal(c->inflight, 2);
	finish();
}

/* A launch whose blocks all run at once does not stop inside. How many do may be known of a launch
 * that cannot be stopped, too, and then its blocks' duration is learned. */
static void submit_is_told_of_waves_and_persistent_launches(void **state)
{
	static const struct {
		uint64_t blocks;
		uint32_t resident, waves, persistent;
		bool ok;
		uint64_t block_ns;
	} cases[] = {
		{ 100, 0, 0, 0, true, 0 },
		{ 100, 100, 1, 1, true, 400000 },
		{ 100, 132, 1, 1, true, 400000 },
		{ 101, 100, 2, 0, true, 396039 },
		{ 100, 50, 2, 0, false, 200000 },
		{ 200, 50, 4, 0, true, 100000 },
		{ UINT64_MAX, 1, UINT32_MAX, 0, true, 0 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct gbpf_submit_ctx *c;
		struct sched_kernel *k;
		struct sched_launch l;
		struct sched_queue *q;

		begin(GBPF_CLASS_BATCH);
		q = sched_queue_open(r.s, &fq, 0, 0);
		k = sched_kernel_get(r.s, "k");
		for (unsigned e = 0; e < SCHED_EST_CLASSES; e++) {
			store_relaxed(&k->est[e].est_ns, UINT64_C(400000));
		}
		use(1, POLICY_HOOK_submit, sizeof(*c), -1, 0, GBPF_GO);
		l = kernel_launch(k);
		l.blocks = cases[i].blocks;
		l.resident = cases[i].resident;
		l.block_ok = cases[i].ok;
		l.stop = GBPF_STOP_MACHINE_CODE;
		go(q, &fq, &l);
		c = seen(1);
		assert_int_equal(c->stop, cases[i].ok ? GBPF_STOP_MACHINE_CODE : GBPF_STOP_NONE);
		assert_int_equal(c->resident, cases[i].resident);
		assert_int_equal(c->waves, cases[i].waves);
		assert_int_equal(c->persistent, cases[i].persistent);
		assert_int_equal(c->block_ns, cases[i].block_ns);
		finish();
	}
}

/* The gate's mode is the policy's where it names one, and else follows from the learned duration of
 * a block. It means nothing for clones, and a value out of range is counted. */
static void gate_mode_is_the_policys_or_follows_from_the_block(void **state)
{
	static const struct {
		uint64_t est_ns, block_ns;
		int set;
		uint8_t stop, gate;
		uint32_t errors;
	} cases[] = {
		{ 0, 0, 0, GBPF_STOP_MACHINE_CODE, GBPF_GATE_TOGETHER, 0 },
		{ 499999, 3999, 0, GBPF_STOP_MACHINE_CODE, GBPF_GATE_OFF, 0 },
		{ 500000, 3999, 0, GBPF_STOP_MACHINE_CODE, GBPF_GATE_TOGETHER, 0 },
		{ 1000, 4000, 0, GBPF_STOP_MACHINE_CODE, GBPF_GATE_TOGETHER, 0 },
		{ 1000, 29999, 0, GBPF_STOP_MACHINE_CODE, GBPF_GATE_TOGETHER, 0 },
		{ 1000, 30000, 0, GBPF_STOP_MACHINE_CODE, GBPF_GATE_FLAG_FIRST, 0 },
		{ 1000, 3000, GBPF_GATE_FLAG_FIRST, GBPF_STOP_MACHINE_CODE, GBPF_GATE_FLAG_FIRST,
		  0 },
		{ 1000, 30000, GBPF_GATE_OFF, GBPF_STOP_MACHINE_CODE, GBPF_GATE_OFF, 0 },
		{ 1000, 30000, GBPF_GATE_TOGETHER, GBPF_STOP_MACHINE_CODE, GBPF_GATE_TOGETHER, 0 },
		{ 1000, 30000, GBPF_GATE_FLAG_FIRST + 1, GBPF_STOP_MACHINE_CODE,
		  GBPF_GATE_FLAG_FIRST, 1 },
		{ 1000, 3000, -1, GBPF_STOP_MACHINE_CODE, GBPF_GATE_OFF, 1 },
		{ 1000, 30000, GBPF_GATE_OFF, GBPF_STOP_CLONE, 0, 0 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sched_launch l = kernel_launch(NULL);
		struct sched_decision a = { 0 };
		struct sched_queue *q;

		begin(GBPF_CLASS_BATCH);
		q = sched_queue_open(r.s, &fq, 0, 0);
		use(1, POLICY_HOOK_submit, 8, SUBMIT(gate), cases[i].set, GBPF_SPLIT);
		l.block_ok = true;
		l.stop = cases[i].stop;
		l.est_ns = cases[i].est_ns;
		l.block_ns = cases[i].block_ns;
		sched_decide(q, &l, 1000000000, 0, 0, &a);
		assert_int_equal(a.verdict, GBPF_GO);
		assert_int_equal(a.level, GBPF_LEVEL_BLOCK);
		assert_int_equal(a.gate, cases[i].gate);
		assert_int_equal(r.stats.verdict_errors, cases[i].errors);
		finish();
	}
}

/* The level counts where the launch can be stopped between blocks, and only as BLOCK. */
static void block_level_needs_a_launch_that_can_stop(void **state)
{
	static const struct {
		bool ok;
		uint32_t level;
		enum sched_answer answer;
	} cases[] = {
		{ true, GBPF_LEVEL_BLOCK, SCHED_GO_BLOCK }, { false, GBPF_LEVEL_BLOCK, SCHED_GO },
		{ true, GBPF_LEVEL_DRAIN, SCHED_GO },	    { true, GBPF_LEVEL_HOLD, SCHED_GO },
		{ true, GBPF_LEVEL_SLICE, SCHED_GO },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sched_queue *q;
		struct sched_launch l = kernel_launch(NULL);
		struct sched_decision a = { 0 };

		begin(GBPF_CLASS_BATCH);
		q = sched_queue_open(r.s, &fq, 0, 0);
		use(1, POLICY_HOOK_submit, 8, SUBMIT(level), (int)cases[i].level, GBPF_GO);
		l.block_ok = cases[i].ok;
		sched_decide(q, &l, 1000000000, 0, 0, &a);
		assert_int_equal(a.verdict, GBPF_GO);
		assert_int_equal(a.level == GBPF_LEVEL_BLOCK, cases[i].answer == SCHED_GO_BLOCK);
		assert_int_equal(r.stats.verdict_errors, 0);
		finish();
	}
}

#define CREATE(field) ((int)offsetof(struct gbpf_queue_create_ctx, field))

static void queue_create_is_told_of_the_stream(void **state)
{
	const struct gbpf_queue_create_ctx *c;

	begin(GBPF_CLASS_NORMAL);
	r.s->cfg.sm_percent = 40;
	sched_set_lane(r.s, GBPF_LANE_PROCESS);
	use(1, POLICY_HOOK_queue_create, sizeof(*c), -1, 0, 0);
	(void)sched_queue_open(r.s, &fq, 0, 0);
	assert_non_null(sched_queue_open(r.s, &fq, 0, -2));
	c = seen(2);
	assert_true(c->now_ns > 0);
	assert_int_equal(c->tenant, 1);
	assert_int_equal(c->queue, 1);
	assert_int_equal(c->priority, -2);
	assert_int_equal(c->class_id, GBPF_CLASS_NORMAL);
	assert_int_equal(c->slice_us, 0);
	assert_int_equal(c->lane, GBPF_LANE_PROCESS);
	assert_int_equal(c->sm_percent, 40);
	assert_int_equal(c->gpu, 0);
	finish();
}

/* A class beyond batch, and a share that is neither the tenant's nor all, are errors of the policy:
 * the queue keeps what the tenant has. */
static void answers_of_queue_create_are_checked(void **state)
{
	static const struct {
		int at, set;
		bool valid;
		uint32_t class_id, sm_percent;
	} cases[] = {
		{ CREATE(class_id), GBPF_CLASS_LATENCY, true, GBPF_CLASS_LATENCY, 40 },
		{ CREATE(class_id), GBPF_CLASS_BATCH, true, GBPF_CLASS_BATCH, 40 },
		{ CREATE(class_id), GBPF_CLASS_BATCH + 1, false, GBPF_CLASS_NORMAL, 40 },
		{ CREATE(sm_percent), 40, true, GBPF_CLASS_NORMAL, 40 },
		{ CREATE(sm_percent), 100, true, GBPF_CLASS_NORMAL, 100 },
		{ CREATE(sm_percent), 39, false, GBPF_CLASS_NORMAL, 40 },
		{ CREATE(sm_percent), 41, false, GBPF_CLASS_NORMAL, 40 },
		{ CREATE(sm_percent), 0, false, GBPF_CLASS_NORMAL, 40 },
		{ CREATE(priority), -5, true, GBPF_CLASS_NORMAL, 40 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sched_queue *q;

		begin(GBPF_CLASS_NORMAL);
		r.s->cfg.sm_percent = 40;
		use(1, POLICY_HOOK_queue_create, 8, cases[i].at, cases[i].set, 0);
		q = sched_queue_open(r.s, &fq, 0, 0);
		assert_int_equal(q->class_id, cases[i].class_id);
		assert_int_equal(q->sm_percent, cases[i].sm_percent);
		assert_int_equal(q->priority, cases[i].at == CREATE(priority) ? -5 : 0);
		assert_int_equal(r.stats.verdict_errors, cases[i].valid ? 0 : 1);
		/* a class that the policy chose stays when the tenant's changes */
		sched_set_class(r.s, GBPF_CLASS_BATCH, 100);
		assert_int_equal(load_relaxed(&q->class_id), cases[i].class_id == GBPF_CLASS_NORMAL
								     ? GBPF_CLASS_BATCH
								     : cases[i].class_id);
		finish();
	}
}

static void queue_create_may_ask_for_a_slice(void **state)
{

	begin(GBPF_CLASS_NORMAL);
	use(1, POLICY_HOOK_queue_create, 8, CREATE(slice_us), 300, 0);
	(void)sched_queue_open(r.s, &fq, 0, 0);
	assert_int_equal(r.s->slice_wanted[0], 301); /* plus 1: 0 is none */
	assert_true(r.wakes > 0);
	finish();
}

/* gbpfd takes peers away one by one. */
static void a_process_without_peers_is_in_no_group(void **state)
{
	begin(GBPF_CLASS_BATCH);
	assert_int_equal(sched_group_number(r.s), 0);
	join(6);
	assert_int_equal(sched_board_add(r.s, SCHED_BOARD_PEER, 9, 5, &peer), 0);
	assert_true(sched_board_remove(r.s, SCHED_BOARD_PEER, 3));
	assert_int_equal(sched_group_number(r.s), 6);
	assert_true(sched_board_remove(r.s, SCHED_BOARD_PEER, 9));
	assert_int_equal(sched_group_number(r.s), 0);
	join(7); /* of a gbpfd that was started since */
	assert_int_equal(sched_group_number(r.s), 7);
	finish();
}

static void queue_destroy_and_dispatch_are_told_of_the_queue(void **state)
{
	const struct gbpf_queue_destroy_ctx *d;
	const struct gbpf_dispatch_ctx *c;
	struct sched_launch l;
	struct sched_queue *q;

	begin(GBPF_CLASS_BATCH);
	(void)sched_queue_open(r.s, &fq, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, -4);
	join(6);
	use(1, POLICY_HOOK_dispatch, sizeof(*c), -1, 0, 1000000);
	l = kernel_launch(NULL);
	l.begin_ns = 1000;
	l.est_ns = 55;
	assert_int_equal(sched_hook_dispatch(q, &l, 3000), 1000000);
	c = seen(1);
	assert_int_equal(c->now_ns, 3000);
	assert_int_equal(c->held_ns, 2000);
	assert_int_equal(c->est_ns, 55);
	assert_int_equal(c->tenant, 1);
	assert_int_equal(c->queue, 1);
	assert_int_equal(c->class_id, GBPF_CLASS_BATCH);
	assert_int_equal(c->priority, -4);
	assert_int_equal(c->group, 6);
	use(2, POLICY_HOOK_dispatch, 8, -1, 0, 1000001);
	assert_int_equal(sched_hook_dispatch(q, &l, 3000), 0); /* beyond the last rank */
	use(3, POLICY_HOOK_queue_destroy, sizeof(*d), -1, 0, 0);
	sched_hook_queue_destroy(q, 17);
	d = seen(1);
	assert_true(d->now_ns > 0);
	assert_int_equal(d->tenant, 1);
	assert_int_equal(d->queue, 1);
	assert_int_equal(d->launches, 17);
	finish();
}

static void retire_is_told_of_the_work_and_bounds_the_close_delay(void **state)
{
	const struct sched_retired done = { .hash = 5,
					    .duration_ns = 1000,
					    .held_ns = 30,
					    .version = 9,
					    .count = 3,
					    .flags = GBPF_F_MEASURED,
					    .level = GBPF_LEVEL_BLOCK,
					    .interrupted = 2 };
	const struct gbpf_retire_ctx *c;
	struct sched_queue *q;

	begin(GBPF_CLASS_BATCH);
	q = sched_queue_open(r.s, &fq, 0, 0);
	store_relaxed(&r.s->uid, 4711u);
	sched_set_vgpu(r.s, 17);
	join(6);
	store_relaxed(&r.s->req[0].gap_ns, UINT64_C(40000));
	use(1, POLICY_HOOK_retire, sizeof(*c), (int)RETIRE(linger_ns), 20000000, 0);
	assert_int_equal(sched_hook_retire(q, &done, 7000), 10000000); /* at most 10 ms */
	c = seen(1);
	assert_int_equal(c->now_ns, 7000);
	assert_int_equal(c->kernel, 5);
	assert_int_equal(c->duration_ns, 1000);
	assert_int_equal(c->held_ns, 30);
	assert_int_equal(c->submit_version, 9);
	assert_int_equal(c->tenant, 1);
	assert_int_equal(c->queue, 0);
	assert_int_equal(c->class_id, GBPF_CLASS_BATCH);
	assert_int_equal(c->weight, 100);
	assert_int_equal(c->uid, 4711);
	assert_int_equal(c->group, 6);
	assert_int_equal(c->vgpu, 17);
	assert_int_equal(c->count, 3);
	assert_int_equal(c->flags, GBPF_F_MEASURED);
	assert_int_equal(c->level, GBPF_LEVEL_BLOCK);
	assert_int_equal(c->interrupted, 2);
	assert_int_equal(c->gap_ns, 40000);
	assert_int_equal(r.stats.busy_ns, 1000);
	finish();
}

static void copy_enqueue_is_told_of_copy_queue_and_tenant(void **state)
{
	const struct gbpf_copy_enqueue_ctx *c;
	struct sched_copy copy = { .bytes = 64 << 20,
				   .left = 48 << 20,
				   .unfinished = 4 << 20,
				   .piece_bytes = 2 << 20,
				   .cut = true,
				   .pinned = true };
	uint64_t before = clock_now_ns();

	begin(GBPF_CLASS_BATCH);
	(void)sched_queue_open(r.s, &fq, 0, 0);
	copy.q = sched_queue_open(r.s, &fq, 0, -3);
	sched_set_class(r.s, GBPF_CLASS_BATCH, 250);
	store_relaxed(&r.s->uid, 4711u);
	sched_set_vgpu(r.s, 17);
	join(6);
	sched_set_lane(r.s, GBPF_LANE_SHARED);
	use(1, POLICY_HOOK_copy_enqueue, sizeof(*c), -1, 0, GBPF_COPY_HOLD);
	assert_false(sched_copy_may_go(&copy));
	c = seen(1);
	assert_true(c->now_ns >= before);
	assert_int_equal(c->bytes, 64 << 20);
	assert_int_equal(c->left, 48 << 20);
	assert_int_equal(c->unfinished, 4 << 20);
	assert_int_equal(c->held_ns, 0);
	assert_int_equal(c->piece_bytes, 2 << 20);
	assert_int_equal(c->cut, 1);
	assert_int_equal(c->direction, GBPF_COPY_DOWN);
	assert_int_equal(c->host, GBPF_HOST_PINNED);
	assert_int_equal(c->tenant, 1);
	assert_int_equal(c->queue, 1);
	assert_int_equal(c->class_id, GBPF_CLASS_BATCH);
	assert_int_equal(c->weight, 250);
	assert_int_equal(c->priority, -3);
	assert_int_equal(c->gpu, 0);
	assert_int_equal(c->lane, GBPF_LANE_SHARED);
	assert_int_equal(c->uid, 4711);
	assert_int_equal(c->group, 6);
	assert_int_equal(c->vgpu, 17);
	assert_int_equal(c->forced, 0);
	assert_int_equal(c->why, GBPF_WHY_NONE);
	finish();
}

static void collective_phase_is_told_of_kernel_queue_and_tenant(void **state)
{
	const struct gbpf_collective_phase_ctx *c;
	uint64_t before = clock_now_ns();
	struct sched_launch l;
	struct sched_queue *q;

	begin(GBPF_CLASS_BATCH);
	(void)sched_queue_open(r.s, &fq, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, -3);
	l = kernel_launch(sched_kernel_get(r.s, "ncclDevKernel_AllReduce"));
	sched_set_class(r.s, GBPF_CLASS_BATCH, 250);
	store_relaxed(&r.s->uid, 4711u);
	sched_set_vgpu(r.s, 17);
	join(6);
	sched_set_lane(r.s, GBPF_LANE_SHARED);
	use(1, POLICY_HOOK_collective_phase, sizeof(*c), -1, 0, GBPF_COLLECTIVE_GO);
	assert_int_equal(go(q, &fq, &l), SCHED_GO);
	c = seen(1);
	assert_true(c->now_ns >= before);
	assert_int_equal(c->number, 1);
	assert_int_equal(c->kernel, l.kernel->hash);
	assert_int_equal(c->waited_ns, 0);
	assert_int_equal(c->phase, GBPF_PHASE_BEGIN);
	assert_int_equal(c->ranks, 1);
	assert_int_equal(c->ready, 1);
	assert_int_equal(c->tenant, 1);
	assert_int_equal(c->queue, 1);
	assert_int_equal(c->class_id, GBPF_CLASS_BATCH);
	assert_int_equal(c->weight, 250);
	assert_int_equal(c->uid, 4711);
	assert_int_equal(c->vgpu, 17);
	assert_int_equal(c->lane, GBPF_LANE_SHARED);
	assert_int_equal(c->gpu, 0);
	assert_int_equal(c->group, 6);
	fake_finish(&fq);
	finish();
}

#define FAULT(field) ((int)offsetof(struct gbpf_mem_fault_ctx, field))

/* On the test's clock. */
static void begin_mem(void)
{
	clocked_now = 1000 * SECOND;
	clock_set_source(clocked_source);
	begin(GBPF_CLASS_BATCH);
}

static void finish_mem(void)
{
	finish();
	clock_set_source(NULL);
}

static void mem_fault_is_told_of_launch_memory_and_tenant(void **state)
{
	const struct gbpf_mem_fault_ctx *c;
	struct sched_mem_fault f = { .kernel = 77,
				     .bytes = 640 << 20,
				     .missing = 512 << 20,
				     .room = 48 << 20,
				     .in_place_ns = 1000,
				     .lost_ns = 5000,
				     .move_ns = 3000,
				     .ratio = UINT64_MAX };
	uint32_t verdict = GBPF_MEM_FETCH;

	begin_mem();
	sched_set_class(r.s, GBPF_CLASS_BATCH, 250);
	store_relaxed(&r.s->uid, 4711u);
	sched_set_vgpu(r.s, 17);
	sched_set_lane(r.s, GBPF_LANE_SHARED);
	use(1, POLICY_HOOK_mem_fault, sizeof(*c), -1, 0, GBPF_MEM_HOLD);
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(verdict, GBPF_MEM_HOLD);
	c = seen(1);
	assert_int_equal(c->now_ns, 1000 * SECOND);
	assert_int_equal(c->kernel, 77);
	assert_int_equal(c->bytes, 640 << 20);
	assert_int_equal(c->missing, 512 << 20);
	assert_int_equal(c->room, 48 << 20);
	assert_int_equal(c->in_place_ns, 1000);
	assert_int_equal(c->lost_ns, 5000);
	assert_int_equal(c->move_ns, 3000);
	assert_true(c->ratio == UINT64_MAX);
	assert_int_equal(c->held_ns, 0);
	assert_int_equal(c->drain_ns, SECOND);
	assert_int_equal(c->hold_ns, 0);
	assert_int_equal(c->asked, 0);
	assert_int_equal(c->tenant, 1);
	assert_int_equal(c->class_id, GBPF_CLASS_BATCH);
	assert_int_equal(c->weight, 250);
	assert_int_equal(c->gpu, 0);
	assert_int_equal(c->lane, GBPF_LANE_SHARED);
	assert_int_equal(c->uid, 4711);
	assert_int_equal(c->vgpu, 17);
	clocked_now += 7 * MS;
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	c = seen(2);
	assert_int_equal(c->now_ns, 1000 * SECOND + 7 * MS);
	assert_int_equal(c->held_ns, 7 * MS);
	assert_int_equal(c->asked, 1);
	assert_int_equal(c->drain_ns, SECOND);
	finish_mem();
}

/* The device's number is that of the GPU of the instance, and its version in force decides. */
static void mem_fault_is_asked_of_the_launchs_gpu(void **state)
{
	const struct gbpf_mem_fault_ctx *c;
	struct sched_mem_fault f = { .gpu = 2 };
	uint32_t index[PROTO_MAX_GPUS] = { 0, 1, 5 }, verdict = GBPF_MEM_IN_PLACE;

	begin_mem();
	sched_set_pages(r.s, &r.dir, &r.own, &r.stats, index);
	use(1, POLICY_HOOK_mem_fault, sizeof(*c), -1, 0, GBPF_MEM_FETCH);
	assert_false(sched_mem_decide(r.s, &f, &verdict)); /* of another GPU */
	store_release(&r.dir.version[5], 1u);
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	c = seen(1);
	assert_int_equal(verdict, GBPF_MEM_FETCH);
	assert_int_equal(c->gpu, 5);
	finish_mem();
}

/* A verdict out of range, and one after a helper has failed, are errors of the policy: the answer
 * is as it was. */
static void answers_of_mem_fault_are_checked(void **state)
{
	/* gbpf_note() has no counter of that number */
	static const struct ebpf_insn failing[] = {
		I_MOV(1, 1 << 30),
		I_MOV(2, 1),
		{ .code = EBPF_JMP | EBPF_CALL, .imm = 1003 },
		I_MOV(0, GBPF_MEM_FETCH),
		I_EXIT,
	};
	struct prog p = PROG(mem_fault, failing);
	struct sched_mem_fault f = { .drain_ns = 3, .hold_ns = 4 };
	uint32_t verdict = 99;

	begin_mem();
	assert_false(sched_mem_decide(r.s, &f, &verdict)); /* without a policy */
	assert_int_equal(r.notes, 0);
	use(1, POLICY_HOOK_mem_fault, 8, FAULT(drain_ns), 77, GBPF_MEM_HOLD + 1);
	assert_false(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(r.stats.verdict_errors, 1);
	assert_int_equal(r.stats.helper_errors, 0);
	use(2, POLICY_HOOK_mem_fault, 8, -1, 0, -1);
	assert_false(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(r.stats.verdict_errors, 2);
	assert_int_equal(rig_policy_prepare(&r, 3, &p, 1, NULL), 0);
	store_release(&r.dir.version[0], 3u);
	assert_false(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(r.stats.verdict_errors, 2);
	assert_int_equal(r.stats.helper_errors, 1);
	assert_int_equal(r.notes, 1); /* one for all in a while */
	assert_int_equal(verdict, 99);
	assert_int_equal(f.drain_ns, 3);
	assert_int_equal(f.hold_ns, 4);
	finish_mem();
}

/* No longer than the hold limit, of 100 ms, and not while gbpfd is absent. */
static void a_launch_is_not_held_for_memory_for_ever(void **state)
{
	struct sched_mem_fault f = { 0 };
	uint32_t verdict;

	begin_mem();
	use(1, POLICY_HOOK_mem_fault, 8, -1, 0, GBPF_MEM_HOLD);
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(verdict, GBPF_MEM_HOLD);
	clocked_now += 100 * MS - 1;
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(verdict, GBPF_MEM_HOLD);
	clocked_now += 1;
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(verdict, GBPF_MEM_IN_PLACE);
	f = (struct sched_mem_fault){ 0 }; /* another launch */
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(verdict, GBPF_MEM_HOLD);
	sched_set_pages(r.s, NULL, NULL, NULL, NULL);
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(verdict, GBPF_MEM_IN_PLACE);
	assert_int_equal(r.stats.verdict_errors, 0);
	finish_mem();
}

static void fetching_does_not_depend_on_gbpfd_or_the_hold_limit(void **state)
{
	struct sched_mem_fault f = { 0 };
	uint32_t verdict = GBPF_MEM_IN_PLACE;

	begin_mem();
	use(1, POLICY_HOOK_mem_fault, 8, -1, 0, GBPF_MEM_FETCH);
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(verdict, GBPF_MEM_FETCH);
	sched_set_pages(r.s, NULL, NULL, NULL, NULL);
	clocked_now += SECOND;
	verdict = GBPF_MEM_IN_PLACE;
	assert_true(sched_mem_decide(r.s, &f, &verdict));
	assert_int_equal(verdict, GBPF_MEM_FETCH);
	finish_mem();
}

/* The work is waited for for 10 s at most. A hold is as long as the policy says, or 1 ms, and not
 * longer than the hold limit. */
static void durations_of_mem_fault_have_limits(void **state)
{
	static const struct {
		int at, set;
		uint64_t limit_ns, drain_ns, hold_ns;
	} cases[] = {
		{ -1, 0, 0, SECOND, MS },
		{ -1, 0, 400 * US, SECOND, 400 * US },
		{ FAULT(drain_ns), 0, 0, 0, MS },
		{ FAULT(drain_ns), 77, 0, 77, MS },
		{ FAULT(drain_ns) + 4, 2, 0, SECOND + (UINT64_C(2) << 32), MS },
		{ FAULT(drain_ns) + 4, 3, 0, 10 * SECOND, MS },
		{ FAULT(hold_ns), 1, 0, SECOND, 1 },
		{ FAULT(hold_ns), 99999999, 0, SECOND, 99999999 },
		{ FAULT(hold_ns), 100000001, 0, SECOND, 100 * MS },
		{ FAULT(hold_ns) + 4, -1, 0, SECOND, 100 * MS },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sched_mem_fault f = { 0 };
		uint32_t verdict;

		begin_mem();
		if (cases[i].limit_ns) {
			sched_set_limits(r.s, cases[i].limit_ns, 0);
		}
		use(1, POLICY_HOOK_mem_fault, 8, cases[i].at, cases[i].set, GBPF_MEM_HOLD);
		assert_true(sched_mem_decide(r.s, &f, &verdict));
		assert_int_equal(verdict, GBPF_MEM_HOLD);
		assert_int_equal(f.drain_ns, cases[i].drain_ns);
		assert_int_equal(f.hold_ns, cases[i].hold_ns);
		finish_mem();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(submit_is_told_of_launch_queue_and_tenant),
		cmocka_unit_test(submit_is_told_of_waves_and_persistent_launches),
		cmocka_unit_test(gate_mode_is_the_policys_or_follows_from_the_block),
		cmocka_unit_test(block_level_needs_a_launch_that_can_stop),
		cmocka_unit_test(queue_create_is_told_of_the_stream),
		cmocka_unit_test(answers_of_queue_create_are_checked),
		cmocka_unit_test(queue_create_may_ask_for_a_slice),
		cmocka_unit_test(a_process_without_peers_is_in_no_group),
		cmocka_unit_test(queue_destroy_and_dispatch_are_told_of_the_queue),
		cmocka_unit_test(retire_is_told_of_the_work_and_bounds_the_close_delay),
		cmocka_unit_test(copy_enqueue_is_told_of_copy_queue_and_tenant),
		cmocka_unit_test(collective_phase_is_told_of_kernel_queue_and_tenant),
		cmocka_unit_test(mem_fault_is_told_of_launch_memory_and_tenant),
		cmocka_unit_test(mem_fault_is_asked_of_the_launchs_gpu),
		cmocka_unit_test(answers_of_mem_fault_are_checked),
		cmocka_unit_test(a_launch_is_not_held_for_memory_for_ever),
		cmocka_unit_test(fetching_does_not_depend_on_gbpfd_or_the_hold_limit),
		cmocka_unit_test(durations_of_mem_fault_have_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

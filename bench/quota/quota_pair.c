/* Part `pair`: two tenants, each in a virtual GPU with swap, which together need 1.5 times the
 * memory that they share. All of the device beyond that share is reserved for a third virtual GPU,
 * which has no programs; so other programs lose nothing, and the tenants take memory of each
 * other as on a full device. Conditions differ in what decides whose memory leaves; controls are
 * managed memory, of which never more is made than the device has free, and each tenant alone with
 * enough memory. The number of passes is the same in all conditions of a program: a trial, which is
 * not recorded, finds how many fit the times below. */
#include <jansson.h>
#include <stdio.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/quota/quota.h"

#define TENANTS 2u			 /* 0 is the important one */
#define SHARE_MAX (UINT64_C(4) << 30)	 /* so that memory of the host takes a second to make */
#define NEED(share) ((share) / 4 * 3)	 /* of each tenant */
#define SLACK (8 * (uint64_t)QUOTA_UNIT) /* small allocations */
#define SPARE(need) ((need) / 8)	 /* of the device, next to managed memory */
#define WARM_BYTES (4 * (uint64_t)QUOTA_UNIT)
#define SEED 12345u
#define SOFT_STRIDE 512u
#define TRIAL_PASSES 8u /* gBPF estimates launches in place by the latest four times */
#define PASSES_MAX 65536u
#define RUN_NS UINT64_C(60000000000) /* after which a program that has not ended has failed */

enum condition { HALVES, SHARED, KEEP, MANAGED, ALONE, CONDITIONS };
static const char *const names[CONDITIONS] = { "halves", "shared", "keep", "managed", "alone" };
static const char *const tenants[TENANTS] = { "important", "other" };
_Static_assert(CONDITIONS *TENANTS <= QUOTA_LOADS_MAX, "slots of the clients");

static const char *const programs[QUOTA_PROGRAMS] = {
	[QUOTA_STENCIL] = "stencil",
	[QUOTA_PRODUCT] = "product",
	[QUOTA_KMEANS] = "kmeans",
};

/* Times of the passes of a program. On an H200 a pass takes 20 to 100 times as long where its
 * memory is used in place, so `away` decides there. */
struct times {
	uint64_t trial;	 /* in each condition of the trial, and at most a pass more */
	uint64_t enough; /* with enough memory, at most */
	uint64_t away;	 /* without a policy, at most, unless passes_min take longer */
	uint32_t passes_min;
};
static const struct times device_times = { 800000000, 3000000000, 20000000000, 4 };
static const struct times soft_times = { 800000000, 250000000, 500000000, 6 };

struct pair {
	struct bench_quota *b;
	struct bench_testbed_daemon *daemon[CONDITIONS]; /* NULL: without gBPF */
	pid_t pid[CONDITIONS][TENANTS];
	uint64_t share, need;
	uint64_t held[TENANTS];			  /* before its program runs, in condition KEEP */
	uint64_t digest[QUOTA_PROGRAMS][TENANTS]; /* of the tenant alone; 0: not known */
	uint32_t passes[QUOTA_PROGRAMS];	  /* in all conditions; 0: not known, trial */
};

static const struct times *times_of(const struct pair *t)
{
	return t->b->testbed.soft ? &soft_times : &device_times;
}

static unsigned number_of(unsigned k, unsigned i)
{
	return k * TENANTS + i;
}

static unsigned slot_of(unsigned k, unsigned i)
{
	return QUOTA_LOADS + number_of(k, i);
}

static struct bench_quota_load *load_of(struct pair *t, unsigned k, unsigned i)
{
	return &t->b->page->slot[slot_of(k, i)].load;
}

static const char *vgpu_of(unsigned k, unsigned i)
{
	static char name[32];

	snprintf(name, sizeof(name), "%s-%s", names[k], tenants[i]);
	return name;
}

/* ---- conditions ---- */

static int start_client(struct pair *t, unsigned k, unsigned i)
{
	static const struct bench_testbed_place own = { .lane = LANE_OWN, .mps_priority = -1 };
	struct bench_quota *b = t->b;
	char name[16];
	int err;

	if (t->daemon[k]) { /* what contexts take is not known yet */
		err = bench_testbed_vgpu(&b->testbed, t->daemon[k], vgpu_of(k, i), b->device_bytes,
					 t->need, 0, 0);
		err = err ? err
			  : bench_quota_start_load(b, t->daemon[k], vgpu_of(k, i), number_of(k, i),
						   &t->pid[k][i]);
	} else {
		snprintf(name, sizeof(name), "load%u", number_of(k, i));
		store_release(&b->page->slot[slot_of(k, i)].state, (uint32_t)QUOTA_STARTING);
		err = bench_quota_start_client(b, &own, "load", name, slot_of(k, i), &t->pid[k][i]);
	}
	return err ? err : bench_quota_await_ready(b, t->pid[k][i], slot_of(k, i), false);
}

/* with: the tenant without whose memory its program does not begin to compute. */
static void send(struct pair *t, unsigned k, unsigned i, enum bench_quota_program program,
		 unsigned with, uint64_t bytes)
{
	struct bench_quota_load *m = load_of(t, k, i);

	m->op = QUOTA_LOAD_PROGRAM;
	m->program = program;
	m->passes = t->passes[program] ? t->passes[program] : TRIAL_PASSES;
	m->limit_ns = t->passes[program] ? 0 : times_of(t)->trial;
	m->bytes = bytes;
	m->managed = k == MANAGED;
	m->seed = SEED + i;
	m->partner = slot_of(k, with);
	m->stride = t->b->testbed.soft ? SOFT_STRIDE : 1;
	bench_quota_send(t->b, slot_of(k, i));
}

/* Waits for a tenant's program. Fails at once if that of the other one has ended: this one may wait
 * for it. */
static int await(struct pair *t, unsigned k, unsigned i)
{
	const struct bench_quota_load *m = load_of(t, k, i);
	uint64_t deadline = clock_now_ns() + clock_patience(RUN_NS);
	struct bench_quota *b = t->b;

	while (!bench_quota_wait_done(b, slot_of(k, i))) {
		for (unsigned j = 0; j < TENANTS; j++) {
			pid_t pid = t->pid[k][j];

			if (pid && bench_quota_check_clients(b, pid) < 0) {
				return bench_testbed_lives(&b->testbed, pid)
					       ? -1
					       : bench_quota_exited(b, slot_of(k, j));
			}
		}
		if (clock_now_ns() > deadline) {
			return bench_testbed_fail(
				&b->testbed,
				"pair: %s of the %s tenant, condition %s: no end after %.0f s, "
				"after %u of %u passes",
				programs[m->program], tenants[i], names[k],
				(double)clock_patience(RUN_NS) / 1e9, load_acquire(&m->passes_done),
				m->passes);
		}
	}
	return 0;
}

/* The first launch of a kernel makes the driver take memory, which limits are set beyond. */
static int warm_up(struct pair *t, unsigned k, unsigned i)
{
	int err = 0;

	for (unsigned p = 0; p < QUOTA_PROGRAMS && !err; p++) {
		store_release(&load_of(t, k, i)->made, 0u);
		send(t, k, i, p, i, WARM_BYTES);
		err = await(t, k, i);
	}
	return err;
}

/* Leaves the tenants their share of the device. */
static int reserve_rest(struct pair *t, unsigned k)
{
	struct bench_quota *b = t->b;
	uint64_t used = t->share + SLACK;

	for (unsigned i = 0; i < TENANTS; i++) {
		t->held[i] = bench_quota_vgpu(t->daemon[k], vgpu_of(k, i), "mem_used");
		used += t->held[i];
	}
	if (used >= b->device_bytes) {
		return bench_testbed_fail(&b->testbed,
					  "pair: %llu MiB do not fit on the GPU; lower --mem",
					  (unsigned long long)(used >> 20));
	}
	return bench_testbed_vgpu(&b->testbed, t->daemon[k], "rest", b->device_bytes, 0,
				  b->device_bytes - used, 0);
}

/* Reserves what the important tenant needs, or ends that, as the reservation of a program under
 * `gbpf run --reserve` ends with it. */
static int reserve(struct pair *t, bool on)
{
	struct bench_quota *b = t->b;
	uint64_t held = t->held[0], more = SLACK / TENANTS;

	return bench_testbed_vgpu(&b->testbed, t->daemon[KEEP], vgpu_of(KEEP, 0),
				  held + t->share + more, t->need, on ? held + t->need + more : 0,
				  1);
}

static int set_limits(struct pair *t, unsigned k)
{
	struct bench_quota *b = t->b;
	int err = 0;

	for (unsigned i = 0; i < TENANTS && !err; i++) {
		uint64_t limit = k == HALVES ? t->share / TENANTS : t->share;

		err = bench_quota_limit(b, t->daemon[k], vgpu_of(k, i), limit + SLACK / TENANTS,
					t->need, 0);
	}
	if (!err && (k == SHARED || k == KEEP)) {
		err = reserve_rest(t, k);
	}
	return err;
}

/* Managed memory beyond what a device has free is not safe on all machines. */
static int check_free(struct pair *t)
{
	struct bench_quota *b = t->b;
	uint64_t need = TENANTS * t->need + SPARE(t->need);
	int err;

	load_of(t, MANAGED, 0)->op = QUOTA_LOAD_FREE;
	err = bench_quota_command(b, t->pid[MANAGED][0], slot_of(MANAGED, 0));
	return err || load_of(t, MANAGED, 0)->free_bytes >= need
		       ? err
		       : bench_testbed_fail(
				 &b->testbed,
				 "pair: %llu MiB of the GPU are free, managed memory needs %llu; "
				 "lower --mem",
				 (unsigned long long)(load_of(t, MANAGED, 0)->free_bytes >> 20),
				 (unsigned long long)(need >> 20));
}

static int start(struct pair *t, unsigned k)
{
	struct bench_quota *b = t->b;
	int err = 0;

	bench_testbed_progress(&b->testbed, "quota: pair, start of %s", names[k]);
	if (k != MANAGED) { /* no policy that holds launches */
		t->daemon[k] = bench_testbed_gbpfd(&b->testbed, k == KEEP ? b->keep : NULL);
		err = t->daemon[k] ? 0 : -1;
	}
	for (unsigned i = 0; i < TENANTS && !err; i++) {
		err = start_client(t, k, i);
		err = err ? err : warm_up(t, k, i);
	}
	return err ? err : k == MANAGED ? check_free(t) : set_limits(t, k);
}

/* ---- measurement ---- */

/* Compares a result with that of the tenant alone, which is the first one. */
static int compare(struct pair *t, unsigned k, unsigned i, enum bench_quota_program p)
{
	uint64_t digest = load_of(t, k, i)->digest, *alone = &t->digest[p][i];

	*alone = *alone ? *alone : digest;
	return digest == *alone
		       ? 0
		       : bench_testbed_fail(&t->b->testbed,
					    "WRONG RESULTS: %s of the %s tenant has the digest "
					    "%#llx (%s), alone %#llx",
					    programs[p], tenants[i], (unsigned long long)digest,
					    names[k], (unsigned long long)*alone);
}

/* Runs the program of both tenants at once, alone one after the other. first: is sent first. */
static int run(struct pair *t, unsigned k, enum bench_quota_program p, unsigned first)
{
	int err = k == MANAGED ? check_free(t) : k == KEEP ? reserve(t, true) : 0;

	for (unsigned i = 0; i < TENANTS; i++) {
		store_release(&load_of(t, k, i)->made, 0u);
	}
	for (unsigned n = 0; n < TENANTS && !err; n++) {
		unsigned i = (first + n) % TENANTS;

		send(t, k, i, p, k == ALONE ? i : TENANTS - 1 - i, t->need);
		err = k == ALONE ? await(t, k, i) : 0;
	}
	for (unsigned i = 0; i < TENANTS && !err && k != ALONE; i++) {
		err = await(t, k, i);
		if (!err && k == KEEP && i == 0) {
			err = reserve(t, false);
		}
	}
	for (unsigned i = 0; i < TENANTS && !err && t->passes[p]; i++) {
		err = compare(t, k, i, p);
	}
	return err;
}

static struct bench_quota_moved moved(struct pair *t, unsigned k, unsigned i,
				      const struct bench_quota_moved *before)
{
	static const struct bench_quota_moved nothing;

	return t->daemon[k] ? bench_quota_moved(t->daemon[k], vgpu_of(k, i), before) : nothing;
}

static int record(struct pair *t, unsigned k, enum bench_quota_program p, unsigned round,
		  const struct bench_quota_moved m[TENANTS])
{
	const struct bench_quota_load *a = load_of(t, k, 0), *o = load_of(t, k, 1);
	uint64_t begin = MIN(a->begin_ns, o->begin_ns), end = MAX(a->end_ns, o->end_ns);

	return bench_testbed_record(
		&t->b->testbed, "pair",
		json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			  "s:I}",
			  "condition", names[k], "program", programs[p], "round", (int)round,
			  "passes", (int)a->passes, "ns", (json_int_t)(end - begin), "important_ns",
			  (json_int_t)(a->end_ns - a->begin_ns), "other_ns",
			  (json_int_t)(o->end_ns - o->begin_ns), "need_bytes", (json_int_t)t->need,
			  "share_bytes", (json_int_t)t->share, "important_out_bytes",
			  (json_int_t)m[0].out_bytes, "important_in_place",
			  (json_int_t)m[0].in_place, "other_out_bytes", (json_int_t)m[1].out_bytes,
			  "other_in_place", (json_int_t)m[1].in_place, "important_back_bytes",
			  (json_int_t)m[0].back_bytes, "other_back_bytes",
			  (json_int_t)m[1].back_bytes));
}

/* Returns the time of a pass of the slower tenant. */
static uint64_t pass_ns(struct pair *t, unsigned k)
{
	uint64_t ns = 1;

	for (unsigned i = 0; i < TENANTS; i++) {
		const struct bench_quota_load *m = load_of(t, k, i);

		ns = MAX(ns, m->passes_ns / MAX(load_acquire(&m->passes_done), 1u));
	}
	return ns;
}

/* Decides on the passes of a program by a trial in each condition, in which gBPF learns the kernels
 * as well. */
static int try(struct pair *t, enum bench_quota_program p)
{
	const struct times *times = times_of(t);
	struct bench_quota *b = t->b;
	uint64_t enough = 1, away = 1, passes;
	int err = 0;

	for (unsigned n = 0; n < CONDITIONS && !err; n++) {
		unsigned k = (ALONE + n) % CONDITIONS;

		bench_testbed_progress(&b->testbed, "quota: pair, %s, trial: %s", programs[p],
				       names[k]);
		err = run(t, k, p, 0);
		if (k == ALONE) {
			enough = pass_ns(t, k);
		} else if (k == HALVES || k == SHARED) {
			away = MAX(away, pass_ns(t, k));
		}
	}
	if (err) {
		return err;
	}
	passes = MIN(times->enough / enough, times->away / away);
	passes = MAX(MIN(passes, (uint64_t)PASSES_MAX), (uint64_t)times->passes_min);
	t->passes[p] = (uint32_t)passes;
	bench_testbed_progress(&b->testbed,
			       "quota: pair, %s: %u passes, %.3f ms each alone, at most %.3f ms "
			       "without a policy",
			       programs[p], t->passes[p], (double)enough / 1e6, (double)away / 1e6);
	return 0;
}

/* round: from 1 on. */
static int measure(struct pair *t, enum bench_quota_program p, unsigned round)
{
	struct bench_quota *b = t->b;
	int err = 0;

	for (unsigned n = 0; n < CONDITIONS && !err; n++) {
		/* The first round begins with ALONE, whose results are the right ones. */
		unsigned k = (ALONE + n + round - 1) % CONDITIONS;
		struct bench_quota_moved before[TENANTS], after[TENANTS];

		bench_testbed_progress(&b->testbed, "quota: pair, %s, round %u of %u: %s",
				       programs[p], round, b->rounds, names[k]);
		for (unsigned i = 0; i < TENANTS; i++) {
			before[i] = moved(t, k, i, NULL);
		}
		err = run(t, k, p, round % TENANTS);
		for (unsigned i = 0; i < TENANTS; i++) {
			after[i] = moved(t, k, i, &before[i]);
		}
		err = err ? err : record(t, k, p, round, after);
	}
	return err;
}

int bench_quota_pair(struct bench_quota *b)
{
	struct pair t = { .b = b, .share = MIN(b->page->limit, SHARE_MAX) };
	int err = 0;

	if (!b->parts || !bench_program_lists(b->parts, "pair")) {
		return 0;
	}
	t.need = NEED(t.share) - NEED(t.share) % QUOTA_UNIT;
	for (unsigned k = 0; k < CONDITIONS && !err; k++) {
		err = start(&t, k);
	}
	for (unsigned p = 0; p < QUOTA_PROGRAMS && !err; p++) {
		err = try(&t, p);
		for (unsigned round = 1; round <= b->rounds && !err; round++) {
			err = measure(&t, p, round);
		}
	}
	for (unsigned k = 0; k < CONDITIONS; k++) {
		for (unsigned i = 0; i < TENANTS; i++) {
			bench_testbed_end(&b->testbed, t.pid[k][i], 0);
		}
	}
	return err;
}

/* The cost of an empty hook above an indirect call, and of lookups above the loop around them. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "bench/policy/bench_policy.h"
#include "bpf/load/jit/jit.h"
#include "policy/read.h"

#define LOOKUPS 64u /* lookups per run of a program */
#define HOOK_NS 3.0
#define HOOK_FENCE_NS 10.0

static const struct {
	const char *file, *control, *what;
	double limit;
} kinds[] = {
	{ "lookup_array", "lookup_none", "lookup in an array", 1 },
	{ "lookup_hash", "lookup_none", "lookup in a hash, 4 -> 8 bytes, 4096", 12 },
	{ "lookup_tenant", "lookup_tenant_none", "lookup in the own tenant's array", 2 },
	{ "lookup_tenant_any", "lookup_none", "lookup in any tenant's array (gbpfd)", 12 },
};

static int open_file(const struct bench_policy_settings *s, const char *name,
		     struct bench_policy_place *pl)
{
	struct ebpf_built b;
	char path[PATH_MAX];
	struct report r;
	int err;

	memset(pl, 0, sizeof(*pl));
	report_init(&r);
	snprintf(path, sizeof(path), "%s/%s.bpf.o", s->set, name);
	err = bench_policy_build_file(&b, path, &r);
	if (!err) {
		err = bench_policy_place_open(pl, &b, 0);
		ebpf_built_finish(&b);
	} else {
		fprintf(stderr, "gbpf: bench dev policy: %s: %s\n", name, buf_text(&r.message));
	}
	report_finish(&r);
	return err;
}

static void fill(struct bench_policy_place *pl)
{
	for (uint32_t i = 0; i < pl->p.env.n_maps; i++) {
		const struct ebpf_map *m = &pl->p.env.maps[i];

		for (uint32_t k = 0; k < m->max_entries && !pl->p.defs[i].is_data; k++) {
			uint64_t value = k * 3 + 1;

			ebpf_map_update(m, &k, &value, 0);
		}
	}
}

static int bench_kind(const struct bench_policy_settings *s, unsigned k)
{
	static union bench_policy_ctx c[POLICY_CONTEXTS];
	struct bench_policy_place with, without;
	double v[1000];
	unsigned hook, calls;
	int err = open_file(s, kinds[k].file, &with);

	if (err) {
		return err;
	}
	err = open_file(s, kinds[k].control, &without);
	if (err) {
		bench_policy_place_close(&with);
		return err;
	}
	hook = with.p.insns[HOOK_submit] ? HOOK_submit : HOOK_tick;
	if (with.p.entry[hook] && without.p.entry[hook]) {
		fill(&with);
		bench_policy_fill_contexts(c, hook);
		calls = (unsigned)(s->budget_ms * 1e6 / 300) + 1;
		for (unsigned i = 0; i < s->repeat; i++) {
			double loop =
				bench_policy_time(without.p.entry[hook], &without.p.env, c, calls);

			v[i] = (bench_policy_time(with.p.entry[hook], &with.p.env, c, calls) -
				loop) /
			       LOOKUPS;
		}
		err = bench_policy_goal(s, kinds[k].what, v, "ns", kinds[k].limit);
	} else {
		err = -ENOTSUP;
	}
	bench_policy_place_close(&with);
	bench_policy_place_close(&without);
	return err;
}

/* ---- the empty hook ---- */

/* A session's handle of the active policy, and the sequence with which it calls a hook
 * (src/sched/hook.c). */
struct held {
	uint64_t word; /* the directory's version */
	uint64_t version;
	struct ebpf_policy *p;
};

static ALWAYS_INLINE uint64_t hook_call(struct held *h, void *ctx)
{
	struct policy_reader *pin = policy_read_enter();
	uint64_t verdict = 0;

	if (likely(load_acquire(&h->word) == load_acquire(&h->version)) &&
	    h->p->insns[HOOK_submit]) {
		verdict = ebpf_policy_run(h->p, HOOK_submit, ctx);
	}
	policy_read_leave(pin);
	return verdict;
}

static NOINLINE double time_hook(struct held *h, union bench_policy_ctx *c, unsigned calls)
{
	uint64_t begin = clock_cpu_ns(), now = begin;

	for (unsigned i = 0; i < calls; i++) {
		union bench_policy_ctx *x = &c[i % POLICY_CONTEXTS];

		x->now_ns = now += 1000;
		hook_call(h, x);
		compiler_barrier();
	}
	return (double)(clock_cpu_ns() - begin) / calls;
}

static NOINLINE uint64_t empty(void *ctx, struct ebpf_env *env)
{
	return 0;
}

static int bench_hook(const struct bench_policy_settings *s, struct held *h, int fenced)
{
	static union bench_policy_ctx c[POLICY_CONTEXTS];
	ebpf_entry volatile control = empty;
	unsigned calls = s->budget_ms * 200000;
	uint32_t was = policy_read_fenced;
	double v[1000];

	if (!fenced && was) {
		return 0; /* membarrier is not permitted here */
	}
	policy_read_fenced = (uint32_t)fenced;
	bench_policy_fill_contexts(c, HOOK_submit);
	for (unsigned i = 0; i < s->repeat; i++) {
		double call = bench_policy_time(control, NULL, c, calls);

		v[i] = time_hook(h, c, calls) - call;
	}
	policy_read_fenced = was;
	return bench_policy_goal(s,
				 fenced ? "empty hook above an indirect call, fence"
					: "empty hook above an indirect call, membarrier",
				 v, "ns", fenced ? HOOK_FENCE_NS : HOOK_NS);
}

static int bench_hooks(const struct bench_policy_settings *s)
{
	struct bench_policy_place pl;
	struct held h = { 7, 7, &pl.p };
	int err = open_file(s, "empty", &pl);

	if (!err) {
		policy_read_setup();
		err = bench_hook(s, &h, 0);
		err |= bench_hook(s, &h, 1);
		bench_policy_place_close(&pl);
	}
	return err;
}

int bench_policy_bench_lookups(const struct bench_policy_settings *s)
{
	int err = bench_hooks(s);

	for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
		err |= bench_kind(s, k);
	}
	return err;
}

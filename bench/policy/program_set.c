/* Compares the code generators: each program of the set is compiled by gBPF from the object, and by
 * clang from the same C file, with the same helpers and inputs. Both must decide the same before
 * anything is measured. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bench/policy/bench_policy.h"
#include "bpf/load/jit/jit.h"

#define CHECK_CALLS 2048u
#define FUEL 10000000u

/* Input of the native code; same layout as in bench/policy/native. */
struct native {
	const ebpf_helper_fn *helpers;
	void *env;
	uint64_t *notes, *errors;
};

static const struct {
	const char *file, *function;
	unsigned hook;
	int shipped;
} set[] = {
	{ "fair", "fair_submit", HOOK_submit, 1 },
	{ "fair", "fair_retire", HOOK_retire, 1 },
	{ "fair", "fair_tick", HOOK_tick, 1 },
	{ "lc_first", "lc_first_submit", HOOK_submit, 1 },
	{ "lc_first", "lc_first_dispatch", HOOK_dispatch, 1 },
	{ "fifo", "fifo_submit", HOOK_submit, 1 },
	{ "hash64", "hash64", HOOK_tick, 0 },
	{ "mix64", "mix64", HOOK_tick, 0 },
	{ "sort16", "sort16", HOOK_tick, 0 },
	{ "histogram", "histogram", HOOK_tick, 0 },
	{ "token_bucket", "token_bucket", HOOK_tick, 0 },
	{ "parse", "parse", HOOK_tick, 0 },
	{ "compare", "compare", HOOK_tick, 0 },
	{ "bits", "bits", HOOK_tick, 0 },
	{ "divmix", "divmix", HOOK_tick, 0 },
	{ "matrix", "matrix", HOOK_tick, 0 },
	{ "search", "search", HOOK_tick, 0 },
};

struct pair {
	const char *name;
	unsigned hook;
	struct bench_policy_place jit, native;
	void *library; /* owned */
	ebpf_entry native_fn;
	union bench_policy_ctx c[POLICY_CONTEXTS], c2[POLICY_CONTEXTS];
	double *call, *jit_ns, *native_ns, *interp_ns; /* one per repeat; call: owned, all */
	double insns;				       /* executed per call, on average */
};

static int bind_native(struct pair *p, const char *path, const char *function, struct report *r)
{
	struct native *native;

	p->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	native = p->library ? dlsym(p->library, "gbpf_native") : NULL;
	*(void **)&p->native_fn = native ? dlsym(p->library, function) : NULL;
	if (!p->native_fn) {
		return report_set(r, -ENOENT, "file", "%s: %s", path, dlerror());
	}
	native->helpers = p->native.p.env.helpers;
	native->env = &p->native.p.env;
	native->notes = p->native.p.env.notes;
	native->errors = &p->native.p.env.helper_errors;
	for (uint32_t i = 0; i < p->native.p.env.n_maps; i++) {
		void **map = p->native.p.defs[i].is_data
				     ? NULL
				     : dlsym(p->library, p->native.p.defs[i].name);

		if (map) {
			map[0] = &p->native.p.env.maps[i];
			map[1] = p->native.p.env.maps[i].data;
		}
	}
	return 0;
}

static void pair_close(struct pair *p)
{
	bench_policy_place_close(&p->jit);
	bench_policy_place_close(&p->native);
	if (p->library) {
		dlclose(p->library);
	}
	free(p->call);
	memset(p, 0, sizeof(*p));
}

static int pair_open(struct pair *p, const struct bench_policy_settings *s, unsigned k,
		     struct report *r)
{
	struct ebpf_built b;
	char path[PATH_MAX];
	int err;

	memset(p, 0, sizeof(*p));
	p->name = set[k].function;
	p->hook = set[k].hook;
	snprintf(path, sizeof(path), "%s/%s.bpf.o", set[k].shipped ? s->policies : s->set,
		 set[k].file);
	p->call = calloc(s->repeat * 4u, sizeof(double));
	if (!p->call) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	p->jit_ns = p->call + s->repeat;
	p->native_ns = p->jit_ns + s->repeat;
	p->interp_ns = p->native_ns + s->repeat;
	err = bench_policy_build_file(&b, path, r);
	if (err) {
		return err;
	}
	err = bench_policy_place_open(&p->jit, &b, 0);
	if (!err) {
		err = bench_policy_place_open(&p->native, &b, 0);
	}
	ebpf_built_finish(&b);
	if (err) {
		return report_set(r, err, "open", "%s: %s", path, strerror(-err));
	}
	if (!p->jit.p.entry[p->hook]) {
		return report_set(r, -ENOTSUP, "jit", "%s: no compiler for this machine", path);
	}
	bench_policy_fill_maps(&p->jit);
	bench_policy_fill_maps(&p->native);
	snprintf(path, sizeof(path), "%s/%s.so", s->set, set[k].file);
	return bind_native(p, path, set[k].function, r);
}

/* Verifies that both give the same verdicts, contexts and maps. */
static int same(struct pair *p, struct report *r)
{
	bench_policy_fill_contexts(p->c, p->hook);
	bench_policy_fill_contexts(p->c2, p->hook);
	for (unsigned i = 0; i < CHECK_CALLS; i++) {
		union bench_policy_ctx *a = &p->c[i % POLICY_CONTEXTS],
				       *b = &p->c2[i % POLICY_CONTEXTS];

		a->now_ns = b->now_ns = UINT64_C(1000000000) + i * UINT64_C(1000);
		if ((uint32_t)p->jit.p.entry[p->hook](a, &p->jit.p.env) !=
		    (uint32_t)p->native_fn(b, NULL)) {
			return report_set(r, -EINVAL, "differ", "%s: call %u: verdicts differ",
					  p->name, i);
		}
	}
	if (memcmp(p->c, p->c2, sizeof(p->c)) != 0) {
		return report_set(r, -EINVAL, "differ", "%s: contexts differ", p->name);
	}
	for (uint32_t i = 0; i < p->jit.p.env.n_maps; i++) {
		const struct ebpf_map *m = &p->jit.p.env.maps[i];

		if (!p->jit.p.defs[i].is_data && m->data && m->type == 2 &&
		    memcmp(m->data, p->native.p.env.maps[i].data,
			   (size_t)m->stride * m->max_entries) != 0) {
			return report_set(r, -EINVAL, "differ", "%s: map %s: values differ",
					  p->name, p->jit.p.defs[i].name);
		}
	}
	return 0;
}

static void count(void *arg, uint32_t pc, unsigned frame, const uint64_t regs[11])
{
	++*(uint64_t *)arg;
}

/* Counts the instructions that a call executes, on average over the contexts. */
static int count_insns(struct pair *p, struct report *r)
{
	struct ebpf_policy *policy = &p->jit.p;
	uint64_t n = 0, r0;

	for (unsigned i = 0; i < POLICY_CONTEXTS; i++) {
		struct ebpf_memory ctx = { (uintptr_t)&p->c[i], sizeof(p->c[i]), 1 };
		struct ebpf_checked_run run = { .regions = &ctx,
						.n_regions = 1,
						.r1 = (uintptr_t)&p->c[i],
						.fuel = FUEL,
						.observe = count,
						.observe_arg = &n,
						.env = &policy->env,
						.tails = policy->tails[p->hook],
						.n_tails = policy->n_tails[p->hook] };
		int err = ebpf_interp_checked(policy->insns[p->hook], policy->n_insns[p->hook],
					      &run, &r0, NULL);

		if (err) {
			return report_set(r, err, "check", "%s: the checked interpreter: %s",
					  p->name, strerror(-err));
		}
	}
	p->insns = (double)n / POLICY_CONTEXTS;
	return 0;
}

static NOINLINE uint64_t empty(void *ctx, struct ebpf_env *env)
{
	return 0;
}

static void measure(struct pair *p, const struct bench_policy_settings *s)
{
	struct ebpf_policy *j = &p->jit.p;
	struct ebpf_code code = { j->insns[p->hook], j->n_insns[p->hook], j->tails[p->hook],
				  j->n_tails[p->hook] };
	ebpf_entry volatile control = empty;
	double one = bench_policy_time(j->entry[p->hook], &j->env, p->c, 2000);
	unsigned calls = (unsigned)(s->budget_ms * 1e6 / (one + 1)) / POLICY_CONTEXTS;

	calls = MAX(calls, 8u) * POLICY_CONTEXTS;
	bench_policy_time(p->native_fn, &p->native.p.env, p->c2, 2000);
	for (unsigned k = 0; k < s->repeat; k++) {
		double loop = bench_policy_time(NULL, NULL, p->c, calls);

		p->call[k] = bench_policy_time(control, NULL, p->c, calls) - loop;
		p->native_ns[k] =
			bench_policy_time(p->native_fn, &p->native.p.env, p->c2, calls) - loop;
		p->jit_ns[k] = bench_policy_time(j->entry[p->hook], &j->env, p->c, calls) - loop;
		p->interp_ns[k] =
			bench_policy_time_interpreted(&code, &j->env, p->c, calls / 8) - loop;
	}
}

static int record(const struct pair *p, unsigned n)
{
	return bench_program_record(
		"program", json_pack("{s:s, s:f, s:o, s:o, s:o, s:o}", "name", p->name, "insns",
				     p->insns, "native_ns", bench_program_doubles(p->native_ns, n),
				     "compiled_ns", bench_program_doubles(p->jit_ns, n),
				     "interpreted_ns", bench_program_doubles(p->interp_ns, n),
				     "empty_call_ns", bench_program_doubles(p->call, n)));
}

static int bench_one(const struct bench_policy_settings *s, unsigned k)
{
	struct pair *p = malloc(sizeof(*p));
	struct report r;
	int err;

	report_init(&r);
	err = p ? pair_open(p, s, k, &r) : report_set(&r, -ENOMEM, "memory", "out of memory");
	if (!err) {
		err = same(p, &r);
	}
	if (!err) {
		err = count_insns(p, &r);
	}
	if (!err) {
		measure(p, s);
		err = record(p, s->repeat);
	} else {
		fprintf(stderr, "gbpf: bench dev policy: %s\n", buf_text(&r.message));
	}
	if (p) {
		pair_close(p);
	}
	free(p);
	report_finish(&r);
	return err;
}

int bench_policy_bench_set(const struct bench_policy_settings *s)
{
	int err = 0;

	for (unsigned k = 0; k < ARRAY_SIZE(set); k++) {
		err |= bench_one(s, k);
	}
	return err;
}

/* `gbpf bench dev hook`: nanoseconds of one call of a policy's program, compiled and interpreted,
 * above the same loop without a call. Contexts vary as in use, so that not all branches are
 * predicted. */
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "bench/common/program.h"
#include "bench/control/contexts.h"
#include "bench/policy/hook_policy.h"

#define CONTEXTS 16u
#define MAX_REPEAT 10000u
#define MAX_POLICIES 16u

/* Large enough for every context, and aligned as in sched. */
union context {
	struct gbpf_submit_ctx submit;
	struct gbpf_retire_ctx retire;
	struct gbpf_queue_create_ctx queue_create;
	struct gbpf_queue_destroy_ctx queue_destroy;
	struct gbpf_dispatch_ctx dispatch;
	uint64_t now_ns; /* first member of each */
};

struct settings {
	const char *policies;
	unsigned repeat, calls;
	const char *names[MAX_POLICIES];
	unsigned n_names;
};

struct result {
	double *loop, *compiled, *interpreted; /* ns a call, one a repeat */
};

static const struct {
	unsigned hook;
	const char *name;
} hooks[] = {
	{ HOOK_submit, "submit" },
	{ HOOK_retire, "retire" },
	{ HOOK_dispatch, "dispatch" },
	{ HOOK_queue_create, "queue_create" },
	{ HOOK_queue_destroy, "queue_destroy" },
};

static void fill_submit(struct gbpf_submit_ctx *c, unsigned i)
{
	c->kernel = 0x9e3779b97f4a7c15u * (i % 5 + 1);
	c->est_ns = 20000 + 7000 * (i % 7);
	c->blocks = 132;
	c->inflight = i % 4;
	c->inflight_ns = c->inflight * c->est_ns;
	c->lc_open = i % 8 == 0;
	c->lc_idle_ns = c->lc_open ? 0 : 100000 * (i % 6 + 1);
	c->tenant = HOOK_TENANT;
	c->queue = i % 3;
	c->class_id = i % 4 == 3 ? GBPF_CLASS_LATENCY : GBPF_CLASS_BATCH;
	c->weight = 100;
	c->threads = 256;
	c->lc_next_ns = UINT64_MAX;
	c->block_ok = i % 2;
	c->block_ns = c->block_ok ? 2000 : 0;
	c->stop = c->block_ok ? GBPF_STOP_CLONE : GBPF_STOP_NONE;
	c->resident = c->block_ok ? 528 : 0;
	c->waves = c->persistent = c->block_ok;
}

static void fill(union context *c, unsigned hook, unsigned i)
{
	memset(c, 0, sizeof(*c));
	switch (hook) {
	case HOOK_submit:
		fill_submit(&c->submit, i);
		break;
	case HOOK_retire:
		c->retire = (struct gbpf_retire_ctx){ .kernel = i,
						      .duration_ns = 20000 + 500 * i,
						      .submit_version = 1,
						      .tenant = HOOK_TENANT,
						      .queue = i % 3,
						      .class_id = GBPF_CLASS_BATCH,
						      .weight = 100,
						      .count = 1 + i % 4,
						      .linger_ns = 200000 };
		break;
	case HOOK_dispatch:
		c->dispatch = (struct gbpf_dispatch_ctx){ .held_ns = 1000 * i,
							  .est_ns = 20000,
							  .tenant = HOOK_TENANT,
							  .queue = i % 3,
							  .class_id = i % 3 };
		break;
	case HOOK_queue_create:
		c->queue_create = (struct gbpf_queue_create_ctx){ .tenant = HOOK_TENANT,
								  .queue = i,
								  .class_id = GBPF_CLASS_BATCH };
		break;
	default:
		c->queue_destroy = (struct gbpf_queue_destroy_ctx){ .tenant = HOOK_TENANT,
								    .queue = i,
								    .launches = i };
	}
}

/* Returns ns per iteration of the loop: with p NULL without a call, else with p's machine code or
 * interpreter. */
static double measure(struct ebpf_policy *p, unsigned hook, union context *c, unsigned calls)
{
	uint64_t now = clock_now_ns(), begin = now;

	for (unsigned i = 0; i < calls; i++) {
		union context *x = &c[i % CONTEXTS];

		x->now_ns = now += 1000;
		if (p) {
			ebpf_policy_run(p, hook, x);
		}
		compiler_barrier();
	}
	return (double)(clock_now_ns() - begin) / calls;
}

static int result_init(struct result *r, unsigned repeat)
{
	r->loop = calloc(repeat, sizeof(double));
	r->compiled = calloc(repeat, sizeof(double));
	r->interpreted = calloc(repeat, sizeof(double));
	return r->loop && r->compiled && r->interpreted ? 0 : -ENOMEM;
}

static void result_finish(struct result *r)
{
	free(r->loop);
	free(r->compiled);
	free(r->interpreted);
}

static void run(struct bench_hook_policy *p, unsigned hook, const struct settings *s,
		struct result *r)
{
	union context c[CONTEXTS];
	double loop = DBL_MAX;

	for (unsigned i = 0; i < CONTEXTS; i++) {
		fill(&c[i], hook, i);
	}
	measure(&p->compiled, hook, c, s->calls / 10 + 1); /* warm */
	for (unsigned k = 0; k < s->repeat; k++) {
		r->loop[k] = measure(NULL, hook, c, s->calls);
		r->compiled[k] = measure(&p->compiled, hook, c, s->calls);
		r->interpreted[k] = measure(&p->interpreted, hook, c, s->calls / 10 + 1);
		loop = MIN(loop, r->loop[k]);
	}
	/* The least is the loop's cost. A loop during which the processor ran something else would
	 * make a call's time too short, even negative. */
	for (unsigned k = 0; k < s->repeat; k++) {
		r->compiled[k] -= loop;
		r->interpreted[k] -= loop;
	}
}

static int record(const struct settings *s, const struct bench_hook_policy *p, unsigned k,
		  const struct result *r)
{
	unsigned hook = hooks[k].hook;

	return bench_program_record(
		"program",
		json_pack("{s:s, s:s, s:i, s:i, s:b, s:o, s:o, s:o}", "policy", p->name, "hook",
			  hooks[k].name, "insns", (int)p->n_insns[hook], "cost", (int)p->cost[hook],
			  "machine_code", p->compiled.entry[hook] != NULL, "compiled_ns",
			  bench_program_doubles(r->compiled, s->repeat), "interpreted_ns",
			  bench_program_doubles(r->interpreted, s->repeat), "loop_ns",
			  bench_program_doubles(r->loop, s->repeat)));
}

/* Finds the object of an installed policy, NAME or examples/NAME, or a file. */
static void find_object(const struct settings *s, const char *name, char path[PATH_MAX])
{
	const char *slash = strchr(name, '/');
	bool example =
		strncmp(name, "examples/", strlen("examples/")) == 0 && !strchr(slash + 1, '/');

	snprintf(path, PATH_MAX, "%s/%s.bpf.o", s->policies, name);
	if (slash && (!example || access(path, R_OK) < 0)) {
		snprintf(path, PATH_MAX, "%s", name);
	}
}

static int bench_policy(const struct settings *s, const char *name)
{
	struct bench_hook_policy *p = calloc(1, sizeof(*p));
	struct result r = { 0 };
	char path[PATH_MAX];
	struct report why;
	const char *slash = strrchr(name, '/');
	int err;

	report_init(&why);
	find_object(s, name, path);
	if (!p || result_init(&r, s->repeat) < 0) {
		err = report_set(&why, -ENOMEM, "memory", "out of memory");
	} else {
		err = strcmp(name, "empty") == 0
			      ? bench_hook_policy_empty(p, &why)
			      : bench_hook_policy_load(p, path, slash ? slash + 1 : name, &why);
	}
	if (!err) {
		for (unsigned k = 0; k < ARRAY_SIZE(hooks) && !err; k++) {
			if (p->compiled.insns[hooks[k].hook]) {
				run(p, hooks[k].hook, s, &r);
				err = record(s, p, k, &r);
			}
		}
		bench_hook_policy_close(p);
	} else {
		bench_program_record("refused",
				     json_pack("{s:s, s:s, s:o, s:o}", "policy", name, "code",
					       why.code, "place",
					       bench_program_text(buf_text(&why.place)), "message",
					       bench_program_text(buf_text(&why.message))));
	}
	result_finish(&r);
	report_finish(&why);
	free(p);
	return err;
}

static bool take_names(struct settings *s, int n, char **names)
{
	static const char *const defaults[] = { "empty", "fifo", "fair", "lc_first" };

	memcpy(s->names, defaults, sizeof(defaults));
	s->n_names = n ? (unsigned)n : ARRAY_SIZE(defaults);
	for (int i = 0; i < n && n <= (int)MAX_POLICIES; i++) {
		s->names[i] = names[i];
	}
	return s->n_names <= MAX_POLICIES;
}

int main(int argc, char **argv)
{
	struct settings s = { .repeat = 25, .calls = 200000 };
	const struct bench_program_option table[] = {
		{ "--policies", .text = &s.policies },
		{ "--repeat", .number = &s.repeat },
		{ "--calls", .number = &s.calls },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !take_names(&s, argc - 1, argv + 1) ||
	    !s.policies || s.repeat < 1 || s.repeat > MAX_REPEAT || s.calls < 100) {
		return bench_program_usage();
	}
	err = bench_program_record(
		"set_up", json_pack("{s:i, s:i}", "repeat", (int)s.repeat, "calls", (int)s.calls));
	for (unsigned i = 0; i < s.n_names; i++) {
		err |= bench_policy(&s, s.names[i]);
	}
	return bench_program_end(err != 0);
}

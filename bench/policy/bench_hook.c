/* `gbpf bench hook`: nanoseconds of one call of a policy's program, compiled and interpreted, above
 * the same loop without a call. Contexts vary as in use, so that not all branches are predicted. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/control/contexts.h"
#include "bench/policy/hook_policy.h"
#include "bench/common/statistics.h"

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
	int json;
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

	for (unsigned i = 0; i < CONTEXTS; i++) {
		fill(&c[i], hook, i);
	}
	measure(&p->compiled, hook, c, s->calls / 10 + 1); /* warm */
	for (unsigned k = 0; k < s->repeat; k++) {
		double loop = measure(NULL, hook, c, s->calls);

		r->loop[k] = loop;
		r->compiled[k] = measure(&p->compiled, hook, c, s->calls) - loop;
		r->interpreted[k] = measure(&p->interpreted, hook, c, s->calls / 10 + 1) - loop;
	}
	bench_stats_sort(r->loop, s->repeat);
	bench_stats_sort(r->compiled, s->repeat);
	bench_stats_sort(r->interpreted, s->repeat);
}

static json_t *quantiles(const double *v, unsigned n)
{
	return json_pack("{s:f, s:f, s:f}", "min", v[0], "median", bench_stats_quantile(v, n, 0.5),
			 "max", v[n - 1]);
}

static void report(const struct settings *s, const struct bench_hook_policy *p, unsigned k,
		   const struct result *r, json_t *all)
{
	const char *engine =
		p->compiled.entry[hooks[k].hook] ? "" : " (interpreted: no machine code here)";
	unsigned hook = hooks[k].hook, n = s->repeat;

	if (s->json) {
		json_array_append_new(all,
				      json_pack("{s:s, s:s, s:i, s:i, s:b, s:o, s:o, s:o}",
						"policy", p->name, "hook", hooks[k].name, "insns",
						(int)p->n_insns[hook], "cost", (int)p->cost[hook],
						"machine_code", p->compiled.entry[hook] != NULL,
						"compiled_ns", quantiles(r->compiled, n),
						"interpreted_ns", quantiles(r->interpreted, n),
						"loop_ns", quantiles(r->loop, n)));
		return;
	}
	printf("%-12s %-13s %6u %8.1f %8.1f %8.1f %12.1f %8.2f%s\n", p->name, hooks[k].name,
	       p->n_insns[hook], r->compiled[0], bench_stats_quantile(r->compiled, n, 0.5),
	       r->compiled[n - 1], bench_stats_quantile(r->interpreted, n, 0.5),
	       bench_stats_quantile(r->loop, n, 0.5), engine);
}

static void refuse(const struct settings *s, const char *name, const struct report *why,
		   json_t *errors)
{
	if (s->json) {
		json_array_append_new(errors,
				      json_pack("{s:s, s:s, s:s, s:s}", "policy", name, "code",
						why->code, "place", buf_text(&why->place),
						"message", buf_text(&why->message)));
	} else {
		fprintf(stderr, "gbpf: bench hook: %s%s%s\n", buf_text(&why->place),
			why->place.len ? ": " : "", buf_text(&why->message));
	}
}

static int bench_policy(const struct settings *s, const char *name, json_t *all, json_t *errors)
{
	struct bench_hook_policy *p = calloc(1, sizeof(*p));
	struct result r = { 0 };
	char path[PATH_MAX];
	struct report why;
	const char *slash = strrchr(name, '/');
	int err;

	report_init(&why);
	if (slash) {
		snprintf(path, sizeof(path), "%s", name);
	} else {
		snprintf(path, sizeof(path), "%s/%s.bpf.o", s->policies, name);
	}
	if (!p || result_init(&r, s->repeat) < 0) {
		err = report_set(&why, -ENOMEM, "memory", "out of memory");
	} else {
		err = strcmp(name, "empty") == 0
			      ? bench_hook_policy_empty(p, &why)
			      : bench_hook_policy_load(p, path, slash ? slash + 1 : name, &why);
	}
	if (!err) {
		for (unsigned k = 0; k < ARRAY_SIZE(hooks); k++) {
			if (p->compiled.insns[hooks[k].hook]) {
				run(p, hooks[k].hook, s, &r);
				report(s, p, k, &r, all);
			}
		}
		bench_hook_policy_close(p);
	} else {
		refuse(s, name, &why, errors);
	}
	result_finish(&r);
	report_finish(&why);
	free(p);
	return err;
}

static int parse(struct settings *s, int argc, char **argv)
{
	static const char *const defaults[] = { "empty", "fifo", "fair", "lc_first" };

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			s->json = 1;
		} else if (i + 1 < argc && strcmp(argv[i], "--policies") == 0) {
			s->policies = argv[++i];
		} else if (i + 1 < argc && strcmp(argv[i], "--repeat") == 0) {
			s->repeat = (unsigned)strtoul(argv[++i], NULL, 10);
		} else if (i + 1 < argc && strcmp(argv[i], "--calls") == 0) {
			s->calls = (unsigned)strtoul(argv[++i], NULL, 10);
		} else if (argv[i][0] != '-' && s->n_names < MAX_POLICIES) {
			s->names[s->n_names++] = argv[i];
		} else {
			return -EINVAL;
		}
	}
	if (s->n_names == 0) {
		memcpy(s->names, defaults, sizeof(defaults));
		s->n_names = ARRAY_SIZE(defaults);
	}
	return s->policies && s->repeat >= 1 && s->repeat <= MAX_REPEAT && s->calls >= 100
		       ? 0
		       : -EINVAL;
}

int main(int argc, char **argv)
{
	struct settings s = { .repeat = 25, .calls = 200000 };
	json_t *all, *errors, *document;
	int err = 0;

	if (parse(&s, argc, argv) < 0) {
		fputs("gbpf: bench hook: started with arguments that make no sense. Use: gbpf "
		      "bench hook\n",
		      stderr);
		return 2;
	}
	all = json_array();
	errors = json_array();
	if (!s.json) {
		printf("ns a call, above the empty loop\n%-12s %-13s %6s %8s %8s %8s %12s %8s\n",
		       "POLICY", "HOOK", "INSNS", "MIN", "MEDIAN", "MAX", "INTERPRETED", "LOOP");
	}
	for (unsigned i = 0; i < s.n_names; i++) {
		err |= bench_policy(&s, s.names[i], all, errors);
	}
	document =
		json_pack("{s:s, s:i, s:i, s:o, s:o}", "schema", "gbpf.bench.hook/1", "repeat",
			  (int)s.repeat, "calls", (int)s.calls, "programs", all, "errors", errors);
	if (s.json && document) {
		json_dumpf(document, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(document);
	return err || fflush(stdout) ? 1 : 0;
}

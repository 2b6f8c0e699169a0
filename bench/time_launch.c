/* `gbpf bench launch`: the same empty launch, alternately through the real library and through the
 * shim, in one process. Batches of 64 alternate, so that both see the same machine; each launch is
 * timed individually. */
#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "bench/common/statistics.h"
#include "cuabi/types.h"
#include "gbpf/gbpf.h"

#define BATCH 64u
#define ROUNDS 3u
#define MAX_N 10000000u
#define SESSION_NS UINT64_C(5000000000)

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n\tret;\n}\n";

typedef CUresult (*launch_fn)(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			      unsigned by, unsigned bz, unsigned smem, CUstream s, void **params,
			      void **extra);

/* Driver calls of the set-up. All go through the shim, so that it knows context and kernel. */
struct calls {
	CUresult (*init)(unsigned flags);
	CUresult (*retain)(CUcontext *c, CUdevice d);
	CUresult (*set)(CUcontext c);
	CUresult (*load)(CUmodule *m, const void *image);
	CUresult (*function)(CUfunction *f, CUmodule m, const char *name);
	CUresult (*sync)(void);
	launch_fn launch[2]; /* real, shim */
};

enum { REAL, SHIM };

struct settings {
	const char *real, *shim, *policy;
	unsigned n;
	int json;
};

struct round {
	double p10[2], p50[2], p90[2]; /* of single launches */
	double mean[2]; /* median of the batches' means: its resolution is finer than one tick of
			   the clock */
};

struct session {
	int found;
	unsigned long long policy_version;
};

static int as_json; /* --json: errors are documents, too */

static int fail(const char *what, const char *why)
{
	static const char hint[] = "See: gbpf doctor";
	char text[512];
	json_t *doc;

	snprintf(text, sizeof(text), "bench launch: %s: %s", what, why);
	if (!as_json) {
		fprintf(stderr, "gbpf: %s. %s\n", text, hint);
		return 1;
	}
	doc = json_pack("{s:s, s:{s:s, s:i, s:s, s:s}}", "schema", "gbpf.error/1", "error", "code",
			"bench", "exit", 1, "message", text, "hint", hint);
	if (doc) {
		json_dumpf(doc, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(doc);
	return 1;
}

static int find(void *lib, const char *name, void *slot)
{
	void *p = dlsym(lib, name);

	memcpy(slot, &p, sizeof(p));
	return p ? 0 : fail(name, "the library lacks it");
}

static int bind(const struct settings *s, struct calls *f)
{
	void *shim = dlopen(s->shim, RTLD_NOW | RTLD_LOCAL);
	void *real = shim ? dlopen(s->real, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!real) {
		return fail(shim ? s->real : s->shim, dlerror());
	}
	return find(shim, "cuInit", &f->init) ||
	       find(shim, "cuDevicePrimaryCtxRetain", &f->retain) ||
	       find(shim, "cuCtxSetCurrent", &f->set) || find(shim, "cuModuleLoadData", &f->load) ||
	       find(shim, "cuModuleGetFunction", &f->function) ||
	       find(shim, "cuCtxSynchronize", &f->sync) ||
	       find(shim, "cuLaunchKernel", &f->launch[SHIM]) ||
	       find(real, "cuLaunchKernel", &f->launch[REAL]);
}

static int set_up(const struct calls *f, CUfunction *ret)
{
	CUcontext c;
	CUmodule m;
	char number[32];
	CUresult e = f->init(0);
	const char *what = "cuInit";

	if (!e) {
		what = "cuDevicePrimaryCtxRetain";
		e = f->retain(&c, 0);
	}
	if (!e) {
		what = "cuCtxSetCurrent";
		e = f->set(c);
	}
	if (!e) {
		what = "cuModuleLoadData";
		e = f->load(&m, ptx);
	}
	if (!e) {
		what = "cuModuleGetFunction";
		e = f->function(ret, m, "empty");
	}
	snprintf(number, sizeof(number), "error %d", (int)e);
	return e ? fail(what, number) : 0;
}

/* Times of single launches in one[], and per launch of whole batches in all[]. */
struct samples {
	double *one[2], *all[2];
	unsigned n, n_all;
};

static int samples_init(struct samples *v, unsigned n)
{
	int bad = 0;

	v->n = n / BATCH * BATCH;
	v->n_all = n / BATCH;
	for (int w = 0; w < 2; w++) {
		v->one[w] = calloc(v->n, sizeof(double));
		v->all[w] = calloc(v->n_all, sizeof(double));
		bad |= !v->one[w] || !v->all[w];
	}
	return bad ? fail("memory", "there is not enough") : 0;
}

static void samples_finish(struct samples *v)
{
	for (int w = 0; w < 2; w++) {
		free(v->one[w]);
		free(v->all[w]);
	}
}

/* Measures one batch through one library, then synchronizes, which is not timed. */
static int measure_batch(const struct calls *f, CUfunction fn, int which, double *one, double *all)
{
	uint64_t first = clock_now_ns(), begin = first, end = first;

	for (unsigned i = 0; i < BATCH; i++) {
		CUresult e;

		begin = clock_now_ns();
		e = f->launch[which](fn, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
		end = clock_now_ns();
		if (e) {
			return fail("cuLaunchKernel", which == SHIM ? "error through the shim"
								    : "error of the real library");
		}
		one[i] = (double)(end - begin);
	}
	*all = (double)(end - first) / BATCH;
	return f->sync() ? fail("cuCtxSynchronize", "error") : 0;
}

static int measure(const struct calls *f, CUfunction fn, struct samples *v, unsigned batches)
{
	int err = 0;

	for (unsigned k = 0; k < batches && !err; k++) {
		err = measure_batch(f, fn, REAL, v->one[REAL] + k * BATCH, &v->all[REAL][k]) ||
		      measure_batch(f, fn, SHIM, v->one[SHIM] + k * BATCH, &v->all[SHIM][k]);
	}
	return err;
}

/* Reads this process's entry of gbpfd's list of programs: the proof that the shim works under the
 * intended policy. */
static int look(struct session *se, struct gbpf *g)
{
	char *text = NULL;
	json_t *doc = gbpf_ps(g, &text) < 0 ? NULL : json_loads(text, 0, NULL);
	json_t *t;
	size_t i;

	json_array_foreach(json_object_get(doc, "tenants"), i, t)
	{
		if (json_integer_value(json_object_get(t, "pid")) == getpid()) {
			se->found = 1;
			se->policy_version = (unsigned long long)json_integer_value(
				json_object_get(t, "policy_version"));
		}
	}
	json_decref(doc);
	free(text);
	return se->found;
}

/* Launches until gbpfd lists this process, with the policy in use if there is one: the shim
 * attaches while the process works. */
static int await_session(const struct settings *s, const struct calls *f, CUfunction fn,
			 struct gbpf *g, struct session *se)
{
	uint64_t end = clock_now_ns() + SESSION_NS;
	int policy = strcmp(s->policy, "none") != 0;

	do {
		for (unsigned i = 0; i < BATCH; i++) {
			f->launch[SHIM](fn, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
		}
		f->sync();
		if (look(se, g) && (!policy || se->policy_version)) {
			return 0;
		}
	} while (clock_now_ns() < end);
	return fail("no session", policy ? "the shim does not use the policy after 5 s"
					 : "gbpfd does not list the shim");
}

static void summarize(struct samples *v, struct round *r)
{
	for (int w = 0; w < 2; w++) {
		bench_stats_sort(v->one[w], v->n);
		bench_stats_sort(v->all[w], v->n_all);
		r->p10[w] = bench_stats_quantile(v->one[w], v->n, 0.1);
		r->p50[w] = bench_stats_quantile(v->one[w], v->n, 0.5);
		r->p90[w] = bench_stats_quantile(v->one[w], v->n, 0.9);
		r->mean[w] = bench_stats_quantile(v->all[w], v->n_all, 0.5);
	}
}

static json_t *figures(double p10, double p50, double p90, double mean)
{
	return json_pack("{s:f, s:f, s:f, s:f}", "p10", p10, "p50", p50, "p90", p90, "batch_mean",
			 mean);
}

static json_t *round_json(const struct round *r)
{
	return json_pack(
		"{s:o, s:o, s:o}", "real_ns",
		figures(r->p10[REAL], r->p50[REAL], r->p90[REAL], r->mean[REAL]), "shim_ns",
		figures(r->p10[SHIM], r->p50[SHIM], r->p90[SHIM], r->mean[SHIM]), "added_ns",
		figures(r->p10[SHIM] - r->p10[REAL], r->p50[SHIM] - r->p50[REAL],
			r->p90[SHIM] - r->p90[REAL], r->mean[SHIM] - r->mean[REAL]));
}

static void print_json(const struct settings *s, const struct round *r, const struct session *se)
{
	json_t *rounds = json_array(), *doc;

	for (unsigned i = 0; i < ROUNDS; i++) {
		json_array_append_new(rounds, round_json(&r[i]));
	}
	doc = json_pack("{s:s, s:s, s:i, s:b, s:I, s:o}", "schema", "gbpf.bench.launch/1", "policy",
			s->policy, "launches", (int)s->n, "session", se->found, "policy_version",
			(json_int_t)se->policy_version, "rounds", rounds);
	if (doc) {
		json_dumpf(doc, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(doc);
}

static void print(const struct settings *s, const struct round *r, const struct session *se)
{
	printf("ns a launch; policy %s%s; MEAN is that of a batch of %u, with the clock's own "
	       "cost\n",
	       s->policy, se->found ? "" : ", no session", BATCH);
	printf("%-6s %10s %10s %10s %10s\n", "", "P10", "P50", "P90", "MEAN");
	for (unsigned i = 0; i < ROUNDS; i++) {
		for (int w = 0; w < 2; w++) {
			printf("%-6s %10.0f %10.0f %10.0f %10.1f\n", w == REAL ? "real" : "shim",
			       r[i].p10[w], r[i].p50[w], r[i].p90[w], r[i].mean[w]);
		}
		printf("%-6s %+10.0f %+10.0f %+10.0f %+10.1f\n", "added",
		       r[i].p10[SHIM] - r[i].p10[REAL], r[i].p50[SHIM] - r[i].p50[REAL],
		       r[i].p90[SHIM] - r[i].p90[REAL], r[i].mean[SHIM] - r[i].mean[REAL]);
	}
}

static int parse(struct settings *s, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			s->json = 1;
		} else if (i + 1 < argc && strcmp(argv[i], "--real") == 0) {
			s->real = argv[++i];
		} else if (i + 1 < argc && strcmp(argv[i], "--shim") == 0) {
			s->shim = argv[++i];
		} else if (i + 1 < argc && strcmp(argv[i], "--policy") == 0) {
			s->policy = argv[++i];
		} else if (i + 1 < argc && strcmp(argv[i], "--n") == 0) {
			s->n = (unsigned)strtoul(argv[++i], NULL, 10);
		} else {
			return -EINVAL;
		}
	}
	return s->real && s->shim && s->policy && s->n >= BATCH && s->n <= MAX_N ? 0 : -EINVAL;
}

static int bench(const struct settings *s, struct gbpf *g)
{
	struct session se = { 0 };
	struct round r[ROUNDS];
	struct samples v = { 0 };
	struct calls f;
	CUfunction fn;
	int err = samples_init(&v, s->n) || bind(s, &f) || set_up(&f, &fn);

	if (!err && g) {
		err = await_session(s, &f, fn, g, &se);
	}
	if (!err) {
		err = measure(&f, fn, &v, MIN(v.n_all, 32u)); /* warm */
	}
	for (unsigned i = 0; i < ROUNDS && !err; i++) {
		err = measure(&f, fn, &v, v.n_all);
		summarize(&v, &r[i]);
	}
	if (!err && s->json) {
		print_json(s, r, &se);
	} else if (!err) {
		print(s, r, &se);
	}
	samples_finish(&v);
	return err || fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct settings s = { .policy = "none", .n = 60000 };
	struct gbpf *g = NULL;
	int code;

	if (parse(&s, argc, argv) < 0) {
		fputs("gbpf: bench launch: started with arguments that make no sense. Use: gbpf "
		      "bench launch\n",
		      stderr);
		return 2;
	}
	as_json = s.json;
	if (strcmp(s.policy, "off") != 0 && gbpf_open(&g, NULL, 0) < 0) {
		code = fail("gbpfd", gbpf_last_error(g)->message);
	} else {
		code = bench(&s, g);
	}
	gbpf_close(g);
	return code;
}

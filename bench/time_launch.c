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
#include "bench/common/program.h"
#include "bench/common/statistics.h"
#include "cuabi/types.h"
#include "gbpf/gbpf.h"

#define BATCH 64u /* also in report/launch.py */
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
};

struct session {
	int found;
	unsigned long long policy_version;
};

static int fail(const char *what, const char *why)
{
	return bench_program_fail("%s: %s", what, why);
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
	uint64_t end = clock_now_ns() + clock_patience(SESSION_NS);
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
	return fail("no session",
		    policy ? "the shim does not use the policy" : "gbpfd does not list the shim");
}

/* Quantiles of single launches, and the median of the batches' means, whose resolution is finer
 * than one tick of the clock. Sorts the samples. */
static json_t *figures(struct samples *v, int which)
{
	double *one = v->one[which], *all = v->all[which];

	bench_stats_sort(one, v->n);
	bench_stats_sort(all, v->n_all);
	return json_pack("{s:f, s:f, s:f, s:f}", "p10", bench_stats_quantile(one, v->n, 0.1), "p50",
			 bench_stats_quantile(one, v->n, 0.5), "p90",
			 bench_stats_quantile(one, v->n, 0.9), "batch_mean",
			 bench_stats_quantile(all, v->n_all, 0.5));
}

static int record_set_up(const struct settings *s, const struct session *se)
{
	return bench_program_record("set_up",
				    json_pack("{s:s, s:i, s:b, s:I}", "policy", s->policy,
					      "launches", (int)s->n, "session", se->found,
					      "policy_version", (json_int_t)se->policy_version));
}

static int bench(const struct settings *s, struct gbpf *g)
{
	struct session se = { 0 };
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
	err = err ? err : record_set_up(s, &se);
	for (unsigned i = 0; i < ROUNDS && !err; i++) {
		err = measure(&f, fn, &v, v.n_all);
		err = err ? err
			  : bench_program_record("round", json_pack("{s:o, s:o}", "real_ns",
								    figures(&v, REAL), "shim_ns",
								    figures(&v, SHIM)));
	}
	samples_finish(&v);
	return err;
}

int main(int argc, char **argv)
{
	struct settings s = { .policy = "none", .n = 60000 };
	const struct bench_program_option table[] = {
		{ "--real", .text = &s.real },
		{ "--shim", .text = &s.shim },
		{ "--policy", .text = &s.policy },
		{ "--n", .number = &s.n },
		{ NULL },
	};
	struct gbpf *g = NULL;
	int err;

	if (!bench_program_options(table, &argc, argv) || !s.real || !s.shim || s.n < BATCH ||
	    s.n > MAX_N) {
		return bench_program_usage("launch");
	}
	if (strcmp(s.policy, "off") != 0 && gbpf_open(&g, NULL, 0) < 0) {
		err = fail("gbpfd", gbpf_last_error(g)->message);
	} else {
		err = bench(&s, g);
	}
	gbpf_close(g);
	return err ? 1 : bench_program_end(false);
}

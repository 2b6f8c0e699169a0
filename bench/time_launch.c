/* `gbpf bench latency`: the same empty launch, alternately through the real library and through the
 * shim, in one process. Batches of 64 alternate, so that both see the same machine; each launch is
 * timed individually. */
#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "bench/common/program.h"
#include "bench/common/statistics.h"
#include "bench/common/testbed.h"
#include "cuabi/types.h"

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

struct bench {
	struct bench_testbed testbed;
	struct bench_testbed_daemon *daemon; /* NULL: off */
	const char *shim, *class_name;
	unsigned n;
	bool listed; /* by gbpfd: the shim works under the intended policy */
	json_int_t policy_version;
};

static int fail(struct bench *b, const char *what, const char *why)
{
	return bench_testbed_fail(&b->testbed, "%s: %s", what, why);
}

static int find(struct bench *b, void *lib, const char *name, void *slot)
{
	void *p = dlsym(lib, name);

	memcpy(slot, &p, sizeof(p));
	return p ? 0 : fail(b, name, "the library lacks it");
}

static int bind(struct bench *b, struct calls *f)
{
	void *shim = dlopen(b->shim, RTLD_NOW | RTLD_LOCAL);
	void *real = shim ? dlopen(b->testbed.libcuda, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!real) {
		return fail(b, shim ? b->testbed.libcuda : b->shim, dlerror());
	}
	return find(b, shim, "cuInit", &f->init) ||
	       find(b, shim, "cuDevicePrimaryCtxRetain", &f->retain) ||
	       find(b, shim, "cuCtxSetCurrent", &f->set) ||
	       find(b, shim, "cuModuleLoadData", &f->load) ||
	       find(b, shim, "cuModuleGetFunction", &f->function) ||
	       find(b, shim, "cuCtxSynchronize", &f->sync) ||
	       find(b, shim, "cuLaunchKernel", &f->launch[SHIM]) ||
	       find(b, real, "cuLaunchKernel", &f->launch[REAL]);
}

static int set_up(struct bench *b, const struct calls *f, CUfunction *ret)
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
	return e ? fail(b, what, number) : 0;
}

/* Times of single launches in one[], and per launch of whole batches in all[]. */
struct samples {
	double *one[2], *all[2];
	unsigned n, n_all;
};

static int samples_init(struct bench *b, struct samples *v)
{
	int bad = 0;

	v->n = b->n / BATCH * BATCH;
	v->n_all = b->n / BATCH;
	for (int w = 0; w < 2; w++) {
		v->one[w] = calloc(v->n, sizeof(double));
		v->all[w] = calloc(v->n_all, sizeof(double));
		bad |= !v->one[w] || !v->all[w];
	}
	return bad ? fail(b, "memory", "there is not enough") : 0;
}

static void samples_finish(struct samples *v)
{
	for (int w = 0; w < 2; w++) {
		free(v->one[w]);
		free(v->all[w]);
	}
}

/* Measures one batch through one library, then synchronizes, which is not timed. */
static int measure_batch(struct bench *b, const struct calls *f, CUfunction fn, int which,
			 double *one, double *all)
{
	uint64_t first = clock_now_ns(), begin = first, end = first;

	for (unsigned i = 0; i < BATCH; i++) {
		CUresult e;

		begin = clock_now_ns();
		e = f->launch[which](fn, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
		end = clock_now_ns();
		if (e) {
			return fail(b, "cuLaunchKernel",
				    which == SHIM ? "error through the shim"
						  : "error of the real library");
		}
		one[i] = (double)(end - begin);
	}
	*all = (double)(end - first) / BATCH;
	return f->sync() ? fail(b, "cuCtxSynchronize", "error") : 0;
}

static int measure(struct bench *b, const struct calls *f, CUfunction fn, struct samples *v,
		   unsigned batches)
{
	int err = 0;

	for (unsigned k = 0; k < batches && !err; k++) {
		err = measure_batch(b, f, fn, REAL, v->one[REAL] + k * BATCH, &v->all[REAL][k]) ||
		      measure_batch(b, f, fn, SHIM, v->one[SHIM] + k * BATCH, &v->all[SHIM][k]);
	}
	return err;
}

/* Reads this process's entry of gbpfd's list of programs: the proof that the shim works under the
 * intended policy. */
static bool look(struct bench *b)
{
	json_t *own = bench_testbed_own_tenant(b->daemon);

	b->listed = own != NULL;
	b->policy_version = json_integer_value(json_object_get(own, "policy_version"));
	json_decref(own);
	return b->listed && (!b->testbed.policy || b->policy_version);
}

/* Launches until gbpfd lists this process, with the policy in use if there is one: the shim
 * attaches while the process works. */
static int await_session(struct bench *b, const struct calls *f, CUfunction fn)
{
	uint64_t end = clock_now_ns() + clock_patience(SESSION_NS);

	do {
		for (unsigned i = 0; i < BATCH; i++) {
			f->launch[SHIM](fn, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
		}
		f->sync();
		if (look(b)) {
			return 0;
		}
	} while (clock_now_ns() < end);
	return fail(b, "no session",
		    b->listed ? "the shim does not use the policy"
			      : "gbpfd does not list the shim");
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

static int record_set_up(struct bench *b)
{
	return bench_testbed_record(
		&b->testbed, "set_up",
		json_pack("{s:s, s:i, s:b, s:I}", "policy", b->testbed.policy_name, "launches",
			  (int)b->n, "session", b->listed, "policy_version", b->policy_version));
}

static int record_round(struct bench *b, struct samples *v)
{
	return bench_testbed_record(
		&b->testbed, "round",
		json_pack("{s:o, s:o}", "real_ns", figures(v, REAL), "shim_ns", figures(v, SHIM)));
}

static int run_rounds(struct bench *b, const struct calls *f, CUfunction fn, struct samples *v)
{
	int err = b->daemon ? await_session(b, f, fn) : 0;

	err = err || measure(b, f, fn, v, MIN(v->n_all, 32u)) /* warm */ || record_set_up(b);
	for (unsigned i = 0; i < ROUNDS && !err; i++) {
		bench_testbed_progress(&b->testbed, "latency: round %u of %u", i + 1, ROUNDS);
		err = measure(b, f, fn, v, v->n_all) || record_round(b, v);
	}
	return err;
}

static int measure_all(void *arg)
{
	struct bench *b = arg;
	struct samples v = { 0 };
	struct calls f;
	CUfunction fn;
	int err = samples_init(b, &v) || bind(b, &f) || set_up(b, &f, &fn) ||
		  run_rounds(b, &f, fn, &v);

	samples_finish(&v);
	return err ? -1 : 0;
}

static int run(struct bench *b)
{
	if (bench_testbed_init(&b->testbed)) {
		return -1;
	}
	if (strcmp(b->testbed.policy_name, "off") != 0) {
		b->daemon = bench_testbed_gbpfd(&b->testbed, b->testbed.policy);
		if (!b->daemon) {
			return -1;
		}
	}
	return bench_testbed_enter(&b->testbed, b->daemon, b->class_name)
		       ? -1
		       : bench_testbed_apart(&b->testbed, measure_all, b);
}

int main(int argc, char **argv)
{
	static struct bench b = { .testbed.policy_name = "none",
				  .class_name = "normal",
				  .n = 60000 };
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--shim", .text = &b.shim },
		{ "--class", .text = &b.class_name },
		{ "--n", .number = &b.n },
		{ NULL },
	};

	if (!bench_program_options(table, &argc, argv) || !b.testbed.libcuda || !b.testbed.gbpfd ||
	    !b.shim || b.n < BATCH || b.n > MAX_N) {
		return bench_program_usage();
	}
	return bench_testbed_exit(&b.testbed, run(&b), false);
}

/* `gbpf bench latency`: the same empty launch, alternately through the real library and through the
 * shim, in one process. Batches of 64 alternate, so that both see the same machine; each launch is
 * timed individually. With --swap: in virtual GPUs without and with swap, in which all memory fits,
 * in turn, each time in a new process; each launch names memory then. */
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
#include "gbpf/gbpf.h"

#define BATCH 64u /* also in report/launch.py */
#define ROUNDS 3u
#define MAX_N 10000000u
#define SESSION_NS UINT64_C(5000000000)

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n\tret;\n}\n"
	".visible .entry names(.param .u64 a, .param .u64 b, .param .u64 c)\n{\n\tret;\n}\n";

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
	CUresult (*alloc)(CUdeviceptr *p, size_t bytes);
	launch_fn launch[2]; /* real, shim */
};

enum { REAL, SHIM };

/* Memory that launches name: buffers of a size that could leave the device. */
#define BUFFERS 3u
#define BUFFER_BYTES (UINT64_C(4) << 20)

enum { PLAIN, SWAP, CONDITIONS };
static const char *const conditions[CONDITIONS] = { "plain", "swap" };

struct bench {
	struct bench_testbed testbed;
	struct bench_testbed_daemon *daemon; /* NULL: off */
	const char *shim, *class_name, *swap;
	unsigned n, pairs;
	unsigned pair, condition; /* with --swap: of the process that measures */
	CUdeviceptr buffer[BUFFERS];
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
	       find(b, shim, "cuMemAlloc_v2", &f->alloc) ||
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
		e = f->function(ret, m, b->swap ? "names" : "empty");
	}
	for (unsigned i = 0; !e && b->swap && i < BUFFERS; i++) {
		what = "cuMemAlloc";
		e = f->alloc(&b->buffer[i], BUFFER_BYTES);
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
	void *names[] = { &b->buffer[0], &b->buffer[1], &b->buffer[2] };
	uint64_t first = clock_now_ns(), begin = first, end = first;

	for (unsigned i = 0; i < BATCH; i++) {
		CUresult e;

		begin = clock_now_ns();
		e = f->launch[which](fn, 1, 1, 1, 32, 1, 1, 0, NULL, names, NULL);
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
	void *names[] = { &b->buffer[0], &b->buffer[1], &b->buffer[2] };

	do {
		for (unsigned i = 0; i < BATCH; i++) {
			f->launch[SHIM](fn, 1, 1, 1, 32, 1, 1, 0, NULL, names, NULL);
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

/* Checks that the buffers could leave the device with swap, and only then. */
static int check_movable(struct bench *b)
{
	json_int_t movable = 0, want = b->condition == SWAP ? BUFFERS * BUFFER_BYTES : 0;
	char *text = NULL;
	json_t *doc = gbpf_call(b->daemon->g, "mem.list", "{}", -1, &text) < 0
			      ? NULL
			      : json_loads(text, 0, NULL);
	json_t *t, *gpu;
	size_t i, k;

	json_array_foreach(json_object_get(doc, "tenants"), i, t)
	{
		bool own = json_integer_value(json_object_get(t, "pid")) == (json_int_t)getpid();

		json_array_foreach(json_object_get(t, "gpus"), k, gpu)
		{
			movable += own ? json_integer_value(json_object_get(gpu, "movable")) : 0;
		}
	}
	json_decref(doc);
	free(text);
	return movable == want ? 0
			       : bench_testbed_fail(&b->testbed,
						    "%lld bytes of the buffers can leave the "
						    "device, not %lld",
						    (long long)movable, (long long)want);
}

/* The one round of a process in a virtual GPU. */
static int run_pair(struct bench *b, const struct calls *f, CUfunction fn, struct samples *v)
{
	int err = await_session(b, f, fn) || check_movable(b) ||
		  measure(b, f, fn, v, MIN(v->n_all, 32u)) /* warm */ ||
		  (!b->pair && !b->condition && record_set_up(b)) || measure(b, f, fn, v, v->n_all);

	return err ? -1
		   : bench_testbed_record(&b->testbed, "swap",
					  json_pack("{s:s, s:i, s:o, s:o}", "condition",
						    conditions[b->condition], "pair", (int)b->pair,
						    "real_ns", figures(v, REAL), "shim_ns",
						    figures(v, SHIM)));
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
		  (b->swap ? run_pair(b, &f, fn, &v) : run_rounds(b, &f, fn, &v));

	samples_finish(&v);
	return err ? -1 : 0;
}

/* A process that sees more than one device has no swap. */
static int see_one(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char one[64];

	visible = visible && visible[0] ? visible : "0";
	snprintf(one, sizeof(one), "%.*s", (int)strcspn(visible, ","), visible);
	return setenv("CUDA_VISIBLE_DEVICES", one, 1);
}

/* Measures in both virtual GPUs in turn. The one with swap has no more memory on the device. */
static int run_pairs(struct bench *b)
{
	uint64_t bytes = strtoull(b->swap, NULL, 10);
	int err = 0;

	for (unsigned i = 0; i < CONDITIONS && !err; i++) {
		err = bench_testbed_vgpu(&b->testbed, b->daemon, conditions[i], bytes,
					 i == SWAP ? bytes : 0, 0, 0);
	}
	for (b->pair = 0; b->pair < b->pairs && !err; b->pair++) {
		for (unsigned i = 0; i < CONDITIONS && !err; i++) {
			b->condition = (b->pair + i) % CONDITIONS;
			bench_testbed_progress(&b->testbed, "latency: pair %u of %u: %s",
					       b->pair + 1, b->pairs, conditions[b->condition]);
			err = setenv("GBPF_VGPU", conditions[b->condition], 1) || see_one() ||
			      bench_testbed_apart(&b->testbed, measure_all, b);
		}
	}
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
	if (bench_testbed_enter(&b->testbed, b->daemon, b->class_name)) {
		return -1;
	}
	return b->swap ? run_pairs(b) : bench_testbed_apart(&b->testbed, measure_all, b);
}

int main(int argc, char **argv)
{
	static struct bench b = {
		.testbed.policy_name = "none", .class_name = "normal", .pairs = 9, .n = 60000
	};
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--shim", .text = &b.shim },
		{ "--class", .text = &b.class_name },
		{ "--n", .number = &b.n },
		{ "--swap", .text = &b.swap },
		{ "--pairs", .number = &b.pairs },
		{ NULL },
	};

	if (!bench_program_options(table, &argc, argv) || !b.testbed.libcuda || !b.testbed.gbpfd ||
	    !b.shim || b.n < BATCH || b.n > MAX_N || !b.pairs) {
		return bench_program_usage();
	}
	return bench_testbed_exit(&b.testbed, run(&b), false);
}

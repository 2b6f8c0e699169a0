/* Samples as workloads; see bench_sample.h. */
#include "bench/probe/bench_sample.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"

#define CHAIN_TRIES 3u

/* Runs that are timed together, of each size; on the soft GPU. */
static const unsigned runs[2][BENCH_SAMPLE_SIZES] = { { 20, 100 }, { 2, 2 } };

/* ---- for kinds ---- */

static uint32_t scramble(unsigned seed, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (uint32_t)(x >> 32);
}

float bench_sample_float(unsigned seed, uint64_t i)
{
	return (float)(scramble(seed, i) >> 8) / 16777216.0f - 0.5f;
}

uint32_t bench_sample_number(unsigned seed, uint64_t i, uint32_t below)
{
	return scramble(seed, i) % below;
}

bool bench_sample_close(double got, double want, double relative)
{
	return fabs(got - want) <= relative * fmax(1.0, fabs(want));
}

int bench_sample_add(struct bench_probe *p, struct bench_sample *s, const void *data, size_t bytes,
		     bool fresh)
{
	struct bench_sample_buffer *b = &s->buffer[s->n_buffers++];
	size_t room = (bytes + 7) / 8 * 8;

	b->bytes = bytes;
	if (BENCH_PROBE_GPU(p, cuMemAlloc_v2(&b->at, room)) ||
	    (fresh && BENCH_PROBE_GPU(p, cuMemAlloc_v2(&b->first, room)))) {
		return -1;
	}
	if (!data) {
		return BENCH_PROBE_GPU(
			p, cuMemsetD32Async(fresh ? b->first : b->at, 0, room / 4, p->gpu.stream));
	}
	return BENCH_PROBE_GPU(p, cuMemcpyHtoD_v2(fresh ? b->first : b->at, data, bytes));
}

int bench_sample_add_floats(struct bench_probe *p, struct bench_sample *s, unsigned seed, size_t n,
			    bool fresh)
{
	float *v = calloc(n, sizeof(*v));
	int err;

	for (size_t i = 0; v && i < n; i++) {
		v[i] = bench_sample_float(seed, i);
	}
	err = v ? bench_sample_add(p, s, v, n * sizeof(*v), fresh)
		: bench_testbed_fail(&p->testbed, "out of memory");
	free(v);
	return err;
}

void bench_sample_launch(struct bench_sample *s, unsigned blocks_x, unsigned blocks_y,
			 unsigned threads_x, unsigned threads_y, ...)
{
	struct bench_sample_launch *l = &s->launch[s->n_launches++];
	uint64_t blocks = (uint64_t)blocks_x * blocks_y, threads = (uint64_t)threads_x * threads_y;
	struct bench_sample_launch zero = { .grid = { blocks_x, blocks_y },
					    .block = { threads_x, threads_y } };
	CUfunction f = l->f; /* that bench_sample_open has put there */
	unsigned n = 0;
	va_list args;
	void *param;

	*l = zero;
	l->f = f;
	va_start(args, threads_y);
	while (n < BENCH_SAMPLE_PARAMS && (param = va_arg(args, void *))) {
		l->params[n++] = param;
	}
	va_end(args);
	s->work.launches++;
	s->work.blocks += blocks;
	s->work.sampled += (blocks + 7) / 8;
	s->work.warps += blocks * ((threads + 31) / 32);
	s->work.lanes += blocks * threads;
}

/* ---- running ---- */

static int launch(struct bench_probe *p, enum bench_probe_by by, struct bench_sample *s,
		  struct bench_probe_work *done)
{
	for (unsigned i = 0; i < s->n_launches; i++) {
		struct bench_sample_launch *l = &s->launch[i];

		if (bench_probe_check(p,
				      p->gpu.by[by].cuLaunchKernel(l->f, l->grid[0], l->grid[1], 1,
								   l->block[0], l->block[1], 1, 0,
								   p->gpu.stream, l->params, NULL),
				      "cuLaunchKernel")) {
			return -1;
		}
	}
	done->launches += s->work.launches;
	done->blocks += s->work.blocks;
	done->sampled += s->work.sampled;
	done->warps += s->work.warps;
	done->lanes += s->work.lanes;
	return 0;
}

/* Gives the buffers that kernels write their first contents. */
static int refresh(struct bench_probe *p, struct bench_sample *s)
{
	int err = 0;

	for (unsigned i = 0; i < s->n_buffers && !err; i++) {
		struct bench_sample_buffer *b = &s->buffer[i];

		err = b->first ? BENCH_PROBE_GPU(p, cuMemcpyDtoDAsync_v2(b->at, b->first, b->bytes,
									 p->gpu.stream))
			       : 0;
	}
	return err;
}

int bench_sample_run(struct bench_probe *p, struct bench_sample *s, struct bench_probe_work *done)
{
	return refresh(p, s) || launch(p, BENCH_PROBE_SHIM, s, done) ||
			       BENCH_PROBE_GPU(p, cuStreamSynchronize(p->gpu.stream))
		       ? -1
		       : 0;
}

/* Caller frees. */
static void *result_of(struct bench_probe *p, const struct bench_sample *s)
{
	const struct bench_sample_buffer *b = &s->buffer[s->result];
	void *v = malloc(b->bytes);

	if (!v) {
		bench_testbed_fail(&p->testbed, "out of memory");
	} else if (BENCH_PROBE_GPU(p, cuMemcpyDtoH_v2(v, b->at, b->bytes))) {
		free(v);
		v = NULL;
	}
	return v;
}

static int check_hash(struct bench_probe *p, struct bench_sample *s)
{
	void *v = result_of(p, s);
	uint64_t hash = v ? hash_bytes(v, s->buffer[s->result].bytes) : 0;

	free(v);
	if (!v) {
		return -1;
	}
	s->hash = s->hash ? s->hash : hash;
	return hash == s->hash
		       ? 0
		       : bench_testbed_fail(&p->testbed,
					    "WRONG RESULT: %s computes something else than before",
					    s->kind->name);
}

/* Of one measurement. */
struct chain {
	struct bench_sample *s;
	struct bench_probe_work *done;
	unsigned runs;
};

static int run_in_chain(struct bench_probe *p, enum bench_probe_by by, void *arg)
{
	struct chain *c = arg;

	c->runs++;
	return launch(p, by, c->s, c->done);
}

/* The result depends on the number of runs, which a chain that had to begin again exceeds. */
int bench_sample_measure(struct bench_probe *p, struct bench_sample *s, enum bench_probe_by by,
			 struct bench_probe_work *done, struct bench_probe_time *ret)
{
	unsigned n = runs[p->testbed.soft][s->size];
	struct chain c = { s, done, 0 };
	int err = 0;

	if (bench_testbed_interrupted()) {
		return bench_testbed_fail(&p->testbed, "interrupted");
	}
	for (unsigned i = 0; i < CHAIN_TRIES && !err && c.runs != n; i++) {
		c.runs = 0;
		err = refresh(p, s) || launch(p, by, s, done) || refresh(p, s) ||
		      BENCH_PROBE_GPU(p, cuStreamSynchronize(p->gpu.stream)) ||
		      bench_probe_chain(p, by, n, run_in_chain, &c, ret);
	}
	if (!err && c.runs != n) {
		err = bench_testbed_fail(&p->testbed, "%s: runs are not queued in time",
					 s->kind->name);
	}
	return err || check_hash(p, s) ? -1 : 0;
}

/* ---- set-up ---- */

/* Compares one run with what the host computes. */
static int check_right(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_probe_work unused = { 0 };
	void *v = bench_sample_run(p, s, &unused) ? NULL : result_of(p, s);
	bool right = v && s->kind->is_right(s, v);

	free(v);
	if (!v) {
		return -1;
	}
	return right ? 0
		     : bench_testbed_fail(&p->testbed, "WRONG RESULT: %s of size %u", s->kind->name,
					  s->n);
}

int bench_sample_open(struct bench_probe *p, struct bench_sample *s,
		      const struct bench_sample_kind *kind, enum bench_sample_size size,
		      const CUfunction *kernels)
{
	struct bench_probe_work unused = { 0 };
	struct bench_probe_time time;

	s->kind = kind;
	s->size = size;
	s->n = size == BENCH_SAMPLE_FULL && p->testbed.soft ? kind->n_soft : kind->n[size];
	for (unsigned k = 0; k < BENCH_SAMPLE_KERNELS; k++) {
		s->launch[k].f = kernels[k];
	}
	return kind->set_up(p, s) || BENCH_PROBE_GPU(p, cuStreamSynchronize(p->gpu.stream)) ||
			       check_right(p, s) ||
			       bench_sample_measure(p, s, BENCH_PROBE_DRIVER, &unused, &time)
		       ? -1
		       : 0;
}

/* vecadd, saxpy, transpose as workloads: one element in, one element out. */
#include <math.h>

#include "bench/probe/bench_sample.h"

extern const char ptx_vecadd[], ptx_saxpy[], ptx_transpose[];

static int set_up_vecadd(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;

	s->number[0] = (int)s->n;
	s->result = 2;
	bench_sample_launch(s, s->n / 256, 1, 256, 1, &b[0].at, &b[1].at, &b[2].at, &s->number[0],
			    NULL);
	return bench_sample_add_floats(p, s, 1, s->n, false) ||
	       bench_sample_add_floats(p, s, 2, s->n, false) ||
	       bench_sample_add(p, s, NULL, (size_t)4 * s->n, true);
}

static bool is_right_vecadd(const struct bench_sample *s, const void *result)
{
	const float *c = result;
	bool right = true;

	for (unsigned i = 0; i < s->n; i++) {
		right = right && c[i] == bench_sample_float(1, i) + bench_sample_float(2, i);
	}
	return right;
}

/* Threads take several elements, as many as the grid has too few. */
static int set_up_saxpy(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;

	s->number[0] = (int)s->n;
	s->factor = 2.5f;
	s->result = 1;
	bench_sample_launch(s, MAX(s->n / 512, 1u), 1, 128, 1, &s->factor, &b[0].at, &b[1].at,
			    &s->number[0], NULL);
	return bench_sample_add_floats(p, s, 3, s->n, false) ||
	       bench_sample_add_floats(p, s, 4, s->n, true);
}

static bool is_right_saxpy(const struct bench_sample *s, const void *result)
{
	const float *y = result;
	bool right = true;

	for (unsigned i = 0; i < s->n; i++) {
		right = right &&
			y[i] == fmaf(s->factor, bench_sample_float(3, i), bench_sample_float(4, i));
	}
	return right;
}

/* n is the width, and the height. */
static int set_up_transpose(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;
	size_t count = (size_t)s->n * s->n;

	s->number[0] = s->number[1] = (int)s->n;
	s->result = 1;
	bench_sample_launch(s, s->n / 16, s->n / 16, 16, 16, &b[0].at, &b[1].at, &s->number[0],
			    &s->number[1], NULL);
	return bench_sample_add_floats(p, s, 5, count, false) ||
	       bench_sample_add(p, s, NULL, 4 * count, true);
}

static bool is_right_transpose(const struct bench_sample *s, const void *result)
{
	const float *out = result;
	bool right = true;

	for (size_t y = 0; y < s->n; y++) {
		for (size_t x = 0; x < s->n; x++) {
			right = right && out[x * s->n + y] == bench_sample_float(5, y * s->n + x);
		}
	}
	return right;
}

const struct bench_sample_kind bench_sample_vectors[] = {
	{ .name = "vecadd",
	  .pattern = "vecadd",
	  .ptx = ptx_vecadd,
	  .kernels = { "vecadd" },
	  .n = { 1u << 20, 256 },
	  .n_soft = 1024,
	  .set_up = set_up_vecadd,
	  .is_right = is_right_vecadd,
	  .is_sample = true,
	  .accesses = 3 },
	{ .name = "saxpy",
	  .pattern = "saxpy",
	  .ptx = ptx_saxpy,
	  .kernels = { "saxpy" },
	  .n = { 1u << 20, 128 },
	  .n_soft = 1024,
	  .set_up = set_up_saxpy,
	  .is_right = is_right_saxpy,
	  .is_sample = true },
	{ .name = "transpose",
	  .pattern = "transpose",
	  .ptx = ptx_transpose,
	  .kernels = { "transpose" },
	  .n = { 1024, 16 },
	  .n_soft = 32,
	  .set_up = set_up_transpose,
	  .is_right = is_right_transpose,
	  .is_sample = true,
	  .accesses = 4 },
	{ .name = NULL },
};

/* matmul, hotspot, nbody, softmax as workloads: floating point over dense data. Of large results a
 * part is compared with the host's. */
#include <math.h>

#include "bench/probe/bench_sample.h"

#define CHECKED 512u /* elements of a product, and others that take long to compute */
#define WIDTH 1024u  /* of a row of softmax */

extern const char ptx_matmul[], ptx_hotspot[], ptx_nbody[], ptx_softmax[];

/* Returns the i-th of the checked ones of n, the first and the last among them. */
static size_t checked(size_t i, size_t n)
{
	return n <= CHECKED ? i : (n - 1) * i / (CHECKED - 1);
}

/* ---- matmul: n x n ---- */

static int set_up_matmul(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;
	size_t count = (size_t)s->n * s->n;

	s->number[0] = (int)s->n;
	s->result = 2;
	bench_sample_launch(s, s->n / 16, s->n / 16, 16, 16, &b[0].at, &b[1].at, &b[2].at,
			    &s->number[0], NULL);
	return bench_sample_add_floats(p, s, 9, count, false) ||
	       bench_sample_add_floats(p, s, 10, count, false) ||
	       bench_sample_add(p, s, NULL, 4 * count, true);
}

static bool is_right_matmul(const struct bench_sample *s, const void *result)
{
	size_t n = s->n, count = n * n;
	const float *c = result;
	bool right = true;

	for (size_t i = 0; i < MIN(count, CHECKED); i++) {
		size_t at = checked(i, count), y = at / n, x = at % n;
		double sum = 0;

		for (size_t k = 0; k < n; k++) {
			sum += (double)bench_sample_float(9, y * n + k) *
			       (double)bench_sample_float(10, k * n + x);
		}
		right = right && bench_sample_close((double)c[at], sum, 1e-4);
	}
	return right;
}

/* ---- hotspot: n x n ---- */

static int set_up_hotspot(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;
	size_t count = (size_t)s->n * s->n;

	s->number[0] = s->number[1] = (int)s->n;
	s->result = 2;
	bench_sample_launch(s, s->n / 16, s->n / 16, 16, 16, &b[0].at, &b[1].at, &b[2].at,
			    &s->number[0], &s->number[1], NULL);
	return bench_sample_add_floats(p, s, 11, count, false) ||
	       bench_sample_add_floats(p, s, 12, count, false) ||
	       bench_sample_add(p, s, NULL, 4 * count, true);
}

static bool is_right_hotspot(const struct bench_sample *s, const void *result)
{
	const float *out = result;
	size_t n = s->n;
	bool right = true;

	for (size_t at = 0; at < n * n; at++) {
		size_t x = at % n, y = at / n;
		float here = bench_sample_float(11, at);
		float around = bench_sample_float(11, x > 0 ? at - 1 : at) +
			       bench_sample_float(11, x < n - 1 ? at + 1 : at) +
			       bench_sample_float(11, y > 0 ? at - n : at) +
			       bench_sample_float(11, y < n - 1 ? at + n : at);
		float want =
			here + 0.125f * (around - 4.0f * here) + 0.01f * bench_sample_float(12, at);

		right = right && bench_sample_close((double)out[at], (double)want, 1e-5);
	}
	return right;
}

/* ---- nbody: n bodies ---- */

static int set_up_nbody(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;

	s->number[0] = (int)s->n;
	s->result = 1;
	bench_sample_launch(s, s->n / 64, 1, 64, 1, &b[0].at, &b[1].at, &s->number[0], NULL);
	return bench_sample_add_floats(p, s, 13, (size_t)4 * s->n, false) ||
	       bench_sample_add(p, s, NULL, (size_t)12 * s->n, true);
}

static void acceleration(const struct bench_sample *s, size_t i, double a[3])
{
	for (size_t j = 0; j < s->n; j++) {
		double d[3], r2 = 0.01, w;

		for (unsigned k = 0; k < 3; k++) {
			d[k] = (double)bench_sample_float(13, j * 4 + k) -
			       (double)bench_sample_float(13, i * 4 + k);
			r2 += d[k] * d[k];
		}
		w = (double)bench_sample_float(13, j * 4 + 3) / (r2 * sqrt(r2));
		for (unsigned k = 0; k < 3; k++) {
			a[k] += w * d[k];
		}
	}
}

static bool is_right_nbody(const struct bench_sample *s, const void *result)
{
	const float *acc = result;
	bool right = true;

	for (size_t i = 0; i < MIN(s->n, CHECKED); i++) {
		size_t at = checked(i, s->n);
		double a[3] = { 0 };

		acceleration(s, at, a);
		for (unsigned k = 0; k < 3; k++) {
			right = right &&
				fabs((double)acc[at * 3 + k] - a[k]) <= 1e-2 * (1 + fabs(a[k]));
		}
	}
	return right;
}

/* ---- softmax: n rows ---- */

static int set_up_softmax(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;
	size_t count = (size_t)WIDTH * s->n;

	s->number[0] = WIDTH;
	s->result = 1;
	bench_sample_launch(s, s->n, 1, 128, 1, &b[0].at, &b[1].at, &s->number[0], NULL);
	return bench_sample_add_floats(p, s, 14, count, false) ||
	       bench_sample_add(p, s, NULL, 4 * count, true);
}

static bool is_right_softmax(const struct bench_sample *s, const void *result)
{
	const float *out = result;
	bool right = true;

	for (size_t i = 0; i < MIN(s->n, CHECKED); i++) {
		size_t row = checked(i, s->n) * WIDTH;
		double sum = 0;

		for (size_t x = 0; x < WIDTH; x++) {
			sum += exp((double)bench_sample_float(14, row + x));
		}
		for (size_t x = 0; x < WIDTH; x++) {
			double want = exp((double)bench_sample_float(14, row + x)) / sum;

			right = right && fabs((double)out[row + x] - want) < 1e-6;
		}
	}
	return right;
}

const struct bench_sample_kind bench_sample_dense[] = {
	{ .name = "matmul",
	  .pattern = "matmul",
	  .ptx = ptx_matmul,
	  .kernels = { "matmul" },
	  .n = { 256, 16 },
	  .n_soft = 32,
	  .set_up = set_up_matmul,
	  .is_right = is_right_matmul,
	  .is_sample = true },
	{ .name = "hotspot",
	  .pattern = "hotspot",
	  .ptx = ptx_hotspot,
	  .kernels = { "hotspot" },
	  .n = { 1024, 16 },
	  .n_soft = 32,
	  .set_up = set_up_hotspot,
	  .is_right = is_right_hotspot,
	  .is_sample = true },
	{ .name = "nbody",
	  .pattern = "nbody",
	  .ptx = ptx_nbody,
	  .kernels = { "nbody" },
	  .n = { 8192, 64 },
	  .n_soft = 128,
	  .set_up = set_up_nbody,
	  .is_right = is_right_nbody,
	  .is_sample = true },
	{ .name = "softmax",
	  .pattern = "softmax",
	  .ptx = ptx_softmax,
	  .kernels = { "softmax" },
	  .n = { 1024, 1 },
	  .n_soft = 4,
	  .set_up = set_up_softmax,
	  .is_right = is_right_softmax,
	  .is_sample = true },
	{ .name = "gemm-1024",
	  .pattern = "matmul",
	  .ptx = ptx_matmul,
	  .kernels = { "matmul" },
	  .n = { 1024, 16 },
	  .n_soft = 48,
	  .set_up = set_up_matmul,
	  .is_right = is_right_matmul },
	{ .name = "softmax-8192",
	  .pattern = "softmax",
	  .ptx = ptx_softmax,
	  .kernels = { "softmax" },
	  .n = { 8192, 1 },
	  .n_soft = 8,
	  .set_up = set_up_softmax,
	  .is_right = is_right_softmax },
	{ .name = NULL },
};

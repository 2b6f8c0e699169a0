/* reduction, scan, histogram as workloads: threads that cooperate through shared memory and
 * atomics.
 */
#include <stdlib.h>

#include "bench/probe/bench_sample.h"

extern const char ptx_reduction[], ptx_scan[], ptx_histogram[];

/* Integers from -100 to 100. */
static int number_at(unsigned seed, uint64_t i)
{
	return (int)bench_sample_number(seed, i, 201) - 100;
}

static int add_numbers(struct bench_probe *p, struct bench_sample *s, unsigned seed)
{
	int *v = calloc(s->n, sizeof(*v)), err;

	for (unsigned i = 0; v && i < s->n; i++) {
		v[i] = number_at(seed, i);
	}
	err = v ? bench_sample_add(p, s, v, (size_t)4 * s->n, false)
		: bench_testbed_fail(&p->testbed, "out of memory");
	free(v);
	return err;
}

static int set_up_reduction(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;

	s->number[0] = (int)s->n;
	s->result = 1;
	bench_sample_launch(s, s->n / 256, 1, 256, 1, &b[0].at, &b[1].at, &s->number[0], NULL);
	return add_numbers(p, s, 6) || bench_sample_add(p, s, NULL, 4, true);
}

static bool is_right_reduction(const struct bench_sample *s, const void *result)
{
	int sum = 0;

	for (unsigned i = 0; i < s->n; i++) {
		sum += number_at(6, i);
	}
	return *(const int *)result == sum;
}

static int set_up_scan(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;
	unsigned blocks = s->n / 256;

	s->number[0] = (int)s->n;
	s->result = 1;
	bench_sample_launch(s, blocks, 1, 256, 1, &b[0].at, &b[1].at, &b[2].at, &s->number[0],
			    NULL);
	bench_sample_launch(s, blocks, 1, 256, 1, &b[1].at, &b[2].at, &s->number[0], NULL);
	return add_numbers(p, s, 7) || bench_sample_add(p, s, NULL, (size_t)4 * s->n, true) ||
	       bench_sample_add(p, s, NULL, (size_t)4 * blocks, true);
}

static bool is_right_scan(const struct bench_sample *s, const void *result)
{
	const int *out = result;
	bool right = true;
	int sum = 0;

	for (unsigned i = 0; i < s->n; i++) {
		sum += number_at(7, i);
		right = right && out[i] == sum;
	}
	return right;
}

/* Half of the bytes have few values, so that some bins are sought after. */
static unsigned char byte_at(uint64_t i)
{
	return (unsigned char)(bench_sample_number(8, i, 256) & bench_sample_number(9, i, 256));
}

static int set_up_histogram(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;
	unsigned char *in = malloc(s->n);
	int err;

	for (unsigned i = 0; in && i < s->n; i++) {
		in[i] = byte_at(i);
	}
	s->number[0] = (int)s->n;
	s->result = 1;
	bench_sample_launch(s, MAX(s->n / 8192, 1u), 1, 256, 1, &b[0].at, &b[1].at, &s->number[0],
			    NULL);
	err = !in ? bench_testbed_fail(&p->testbed, "out of memory")
		  : bench_sample_add(p, s, in, s->n, false) ||
			      bench_sample_add(p, s, NULL, (size_t)4 * 256, true);
	free(in);
	return err;
}

static bool is_right_histogram(const struct bench_sample *s, const void *result)
{
	const int *bins = result;
	int want[256] = { 0 };
	bool right = true;

	for (unsigned i = 0; i < s->n; i++) {
		want[byte_at(i)]++;
	}
	for (unsigned i = 0; i < 256; i++) {
		right = right && bins[i] == want[i];
	}
	return right;
}

const struct bench_sample_kind bench_sample_sums[] = {
	{ .name = "reduction",
	  .pattern = "reduction",
	  .ptx = ptx_reduction,
	  .kernels = { "reduction" },
	  .n = { 1u << 20, 256 },
	  .n_soft = 1024,
	  .set_up = set_up_reduction,
	  .is_right = is_right_reduction,
	  .is_sample = true },
	{ .name = "scan",
	  .pattern = "scan_*",
	  .ptx = ptx_scan,
	  .kernels = { "scan_blocks", "scan_add" },
	  .n = { 1u << 17, 256 },
	  .n_soft = 1024,
	  .set_up = set_up_scan,
	  .is_right = is_right_scan,
	  .is_sample = true },
	{ .name = "histogram",
	  .pattern = "histogram",
	  .ptx = ptx_histogram,
	  .kernels = { "histogram" },
	  .n = { 1u << 22, 256 },
	  .n_soft = 16384,
	  .set_up = set_up_histogram,
	  .is_right = is_right_histogram,
	  .is_sample = true },
	{ .name = NULL },
};

/* Kernels compiled by clang, compared with the same computation on the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "engine.h"

static struct buf text;
static uint32_t seed;

static uint32_t next_random(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static int setup(void **state)
{
	struct engine *e = malloc(sizeof(*e));
	char message[512] = "";

	if (!e) {
		return -1;
	}
	seed = 1;
	engine_init(e);
	if (engine_load(e, text.data, text.len, "kernels.ptx", message, sizeof(message)) < 0) {
		print_error("%s\n", message);
		return -1;
	}
	*state = e;
	return 0;
}

static int teardown(void **state)
{
	engine_finish(*state);
	free(*state);
	return 0;
}

static void launch(struct engine *e, const char *kernel, uint32_t grid, uint32_t block,
		   uint32_t shared, const void *params)
{
	const struct engine_launch l = { .kernel = kernel,
					 .grid = { grid, 1, 1 },
					 .block = { block, 1, 1 },
					 .shared = shared,
					 .params = params,
					 .budget = 777,
					 .limit = 100000000 };
	enum exec_status s = engine_run(e, &l);

	if (s != EXEC_DONE) {
		fail_msg("%s ended with %d: %s, line %u", kernel, s, e->fault.what, e->fault.line);
	}
}

static void vecadd_adds(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, b, c;
		int n;
	} p = { .n = 1000 };
	float *a = engine_take(e, 4000, &p.a), *b = engine_take(e, 4000, &p.b),
	      *c = engine_take(e, 4000, &p.c);

	for (int i = 0; i < p.n; i++) {
		a[i] = (float)i * 0.5f;
		b[i] = (float)(p.n - i);
	}
	launch(e, "vecadd", 5, 224, 0, &p);
	for (int i = 0; i < p.n; i++) {
		assert_true(c[i] == a[i] + b[i]);
	}
}

static void reduce_sums(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, out;
		int n;
	} p = { .n = 10007 };
	int *a = engine_take(e, (size_t)p.n * 4, &p.a), *out = engine_take(e, 4, &p.out), want = 0;

	for (int i = 0; i < p.n; i++) {
		a[i] = (int)next_random();
		want = (int)((uint32_t)want + (uint32_t)a[i]);
	}
	launch(e, "reduce", 7, 256, 0, &p);
	assert_int_equal(*out, want);
}

static void scan_adds_up(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, out;
		int n;
	} p = { .n = 500 };
	int *a = engine_take(e, 2000, &p.a), *out = engine_take(e, 2000, &p.out), want = 0;

	for (int i = 0; i < p.n; i++) {
		a[i] = (int)(next_random() & 0xff);
	}
	launch(e, "scan", 1, 512, 512 * 2 * 4, &p);
	for (int i = 0; i < p.n; i++) {
		want += a[i];
		assert_int_equal(out[i], want);
	}
}

static void histogram_counts(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t data, bins;
		int n;
	} p = { .n = 20000 };
	uint8_t *data = engine_take(e, (size_t)p.n, &p.data);
	int *bins = engine_take(e, 1024, &p.bins), want[256] = { 0 };

	for (int i = 0; i < p.n; i++) {
		data[i] = (uint8_t)(next_random() & next_random());
		want[data[i]]++;
	}
	launch(e, "histogram", 4, 192, 0, &p);
	assert_memory_equal(bins, want, sizeof(want));
}

static void matmul_multiplies(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, b, c;
		int n;
	} p = { .n = 48 };
	size_t bytes = (size_t)p.n * (size_t)p.n * 4;
	float *a = engine_take(e, bytes, &p.a), *b = engine_take(e, bytes, &p.b),
	      *c = engine_take(e, bytes, &p.c);
	const struct engine_launch l = { .kernel = "matmul",
					 .grid = { 3, 3, 1 },
					 .block = { 16, 16, 1 },
					 .params = &p,
					 .budget = 1000 };

	for (int i = 0; i < p.n * p.n; i++) {
		a[i] = (float)(next_random() & 0xfff) / 64;
		b[i] = (float)(next_random() & 0xfff) / 64;
	}
	assert_int_equal(engine_run(e, &l), EXEC_DONE);
	for (int y = 0; y < p.n; y++) {
		for (int x = 0; x < p.n; x++) {
			float want = 0;

			for (int k = 0; k < p.n; k++) {
				want = fmaf(a[y * p.n + k], b[k * p.n + x], want);
			}
			assert_true(c[y * p.n + x] == want);
		}
	}
}

static void collatz_diverges(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, steps;
		int n;
	} p = { .n = 300 };
	unsigned *a = engine_take(e, 1200, &p.a);
	int *steps = engine_take(e, 1200, &p.steps);

	for (int i = 0; i < p.n; i++) {
		a[i] = 1 + next_random() % 100000;
	}
	launch(e, "collatz", 3, 128, 0, &p);
	for (int i = 0; i < p.n; i++) {
		unsigned long long v = a[i];
		int k = 0;

		for (; v != 1; k++) {
			v = v % 2 ? 3 * v + 1 : v / 2;
		}
		assert_int_equal(steps[i], k);
	}
}

static void warp_sum_shuffles(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, out;
	} p;
	int *a = engine_take(e, 256 * 4, &p.a), *out = engine_take(e, 32, &p.out);

	for (int i = 0; i < 256; i++) {
		a[i] = (int)next_random();
	}
	launch(e, "warp_sum", 2, 128, 0, &p);
	for (int k = 0; k < 8; k++) {
		uint32_t want = 0;

		for (int i = 0; i < 32; i++) {
			want += (uint32_t)a[k * 32 + i];
		}
		assert_int_equal((uint32_t)out[k], want);
	}
}

static void doubles_are_exact(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, b, out;
		int n;
	} p = { .n = 200 };
	double *a = engine_take(e, 1600, &p.a), *b = engine_take(e, 1600, &p.b),
	       *out = engine_take(e, 1600, &p.out);

	for (int i = 0; i < p.n; i++) {
		a[i] = (double)next_random() / 1000 - 5000;
		b[i] = (double)next_random() / 77 - 9;
	}
	launch(e, "doubles", 1, 256, 0, &p);
	for (int i = 0; i < p.n; i++) {
		double x = a[i], y = b[i];
		/* clang may contract the sum of products and the last difference: allow one
		 * rounding. */
		double want = sqrt(x * x + y * y) / (1.0 + fabs(x - y)) - (double)(long long)x +
			      (double)(float)y;

		assert_true(fabs(out[i] - want) <= 1e-12 * fabs(want) + 1e-9);
	}
}

struct box {
	int count;
	double scale;
	float values[4];
};

static void calls_pass_structures(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, out, count;
		struct box b;
		int n;
	} p = { .b = { 3, 2.5, { 1, 2, 3, 4 } }, .n = 100 };
	int *a = engine_take(e, 400, &p.a);
	double *out = engine_take(e, 800, &p.out);
	int *count = engine_take(e, 400, &p.count);

	for (int i = 0; i < p.n; i++) {
		a[i] = i % 40;
	}
	launch(e, "calls", 2, 64, 0, &p);
	for (int i = 0; i < p.n; i++) {
		double want = p.b.scale * (double)p.b.values[a[i] & 3];

		assert_true(out[i] == (a[i] > 20 ? want : want + 1));
		assert_int_equal(count[i], i + 3);
	}
}

static int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void recursion_returns(void **state)
{
	struct engine *e = *state;
	uint64_t p;
	int *out = engine_take(e, 64 * 4, &p);

	launch(e, "recursive", 1, 64, 0, &p);
	for (int i = 0; i < 64; i++) {
		assert_int_equal(out[i], fib(i % 12));
	}
}

static int switched(const int *a, int i, int n, int *ret_stored)
{
	static const int weights[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };
	int v = a[i];

	*ret_stored = 1;
	switch (v & 15) {
	case 0:
		return 100;
	case 1:
		return weights[a[(i + 1) % n] & 7];
	case 2:
		return v * 3;
	case 3:
		return a[(i + (a[(i + 2) % n] & 7)) % n] * 2 + 7;
	case 4:
		return v + 7;
	case 5:
		for (int k = 0; k < (a[i] >> 4); k++) {
			v += k ^ i;
		}
		return v;
	case 9:
		return -v;
	case 14:
		*ret_stored = 0;
		return 0;
	default:
		return (int)((uint32_t)v << 3) | v >> 29;
	}
}

static void switches_choose(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, out;
		int n;
	} p = { .n = 333 };
	int *a = engine_take(e, 1332, &p.a), *out = engine_take(e, 1332, &p.out), count = 0;
	uint64_t address, bytes;

	for (int i = 0; i < p.n; i++) {
		a[i] = (int)(next_random() & 0xff);
		out[i] = -12345;
	}
	launch(e, "switches", 3, 128, 0, &p);
	for (int i = 0; i < p.n; i++) {
		int stored, want = switched(a, i, p.n, &stored);

		assert_int_equal(out[i], stored ? want : -12345);
		count += stored;
	}
	assert_int_equal(exec_module_global(e->module, "total", &address, &bytes), 0);
	assert_int_equal(bytes, 4);
	assert_int_equal(*(int *)(e->host + (address - ENGINE_BASE)), count);
}

static void narrow_types_wrap(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, b, c;
		int n;
	} p = { .n = 256 };
	uint8_t *a = engine_take(e, 256, &p.a), wa[256];
	int16_t *b = engine_take(e, 512, &p.b), wb[256];
	int64_t *c = engine_take(e, 2048, &p.c), wc[256];

	for (int i = 0; i < p.n; i++) {
		wa[i] = a[i] = (uint8_t)next_random();
		wb[i] = b[i] = (int16_t)(next_random() - 32768);
		wc[i] = c[i] = ((int64_t)next_random() << 32 | next_random()) - ((int64_t)1 << 54);
		wb[i] = (int16_t)(wb[i] + wa[i]);
		wc[i] = wc[i] / (wb[i] | 1) + wc[i] % 7;
		wa[i] = (uint8_t)((wa[i] >> 3) + (wc[i] > 5));
	}
	launch(e, "narrow", 1, 256, 0, &p);
	assert_memory_equal(a, wa, sizeof(wa));
	assert_memory_equal(b, wb, sizeof(wb));
	assert_memory_equal(c, wc, sizeof(wc));
}

static u128 random_u128(void)
{
	u128 v = 0;

	for (int k = 0; k < 6; k++) {
		v = v << 24 | next_random();
	}
	return v >> (next_random() & 127);
}

static void flags_divide_128_bits(void **state)
{
	struct engine *e = *state;
	struct {
		uint64_t a, b, quotient, remainder;
	} p;
	enum { N = 256 };
	u128 *a = engine_take(e, N * sizeof(u128), &p.a),
	     *b = engine_take(e, N * sizeof(u128), &p.b);
	u128 *q = engine_take(e, N * sizeof(u128), &p.quotient);
	u128 *r = engine_take(e, N * sizeof(u128), &p.remainder);

	for (int i = 0; i < N; i++) {
		a[i] = random_u128();
		b[i] = random_u128() >> 1;
		b[i] += b[i] == 0;
	}
	a[0] = (u128)1 << 37;
	b[0] = 1;
	launch(e, "divide128", N / 64, 64, 0, &p);
	for (int i = 0; i < N; i++) {
		assert_true(q[i] == a[i] / b[i] && r[i] == a[i] % b[i]);
	}
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(vecadd_adds),		  T(reduce_sums),	T(scan_adds_up),
		T(histogram_counts),	  T(matmul_multiplies), T(collatz_diverges),
		T(warp_sum_shuffles),	  T(doubles_are_exact), T(calls_pass_structures),
		T(recursion_returns),	  T(switches_choose),	T(narrow_types_wrap),
		T(flags_divide_128_bits),
	};
	int failed;

	buf_init(&text);
	if (argc != 2 || buf_read_file(&text, argv[1], (size_t)16 << 20) < 0) {
		return 2;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	buf_finish(&text);
	return failed;
}

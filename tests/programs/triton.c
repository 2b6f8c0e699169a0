/* Kernels that Triton wrote: a sum, softmax, a layer's norm, a product of matrices, prefix sums.
 * Usage: triton ADD SOFTMAX LAYERNORM MATMUL CUMSUM (PTX). Each kernel takes two more addresses
 * behind its own arguments, of scratch memory that these do not need. */
#include "program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS 16
#define COLS 400
#define SIZE (ROWS * COLS)
#define M 64
#define K 96
#define WARPS 4

static float x[SIZE], y[SIZE], out[SIZE], weight[COLS], bias[COLS], product[M * M];
static uint16_t a[M * K], b[K * M];
static CUdeviceptr none;

static CUfunction kernel(struct program *p, int image, const char *name)
{
	CUmodule m;
	CUfunction f;

	if (p->argc <= image) {
		fprintf(stderr, "usage: %s ADD SOFTMAX LAYERNORM MATMUL CUMSUM\n", p->argv[0]);
		exit(2);
	}
	CU(cuModuleLoad(&m, p->argv[image]));
	CU(cuModuleGetFunction(&f, m, name));
	return f;
}

static void add(struct program *p, CUdeviceptr dx, CUdeviceptr dy, CUdeviceptr o)
{
	int n = SIZE - 7;
	bool right = true;

	LAUNCH(kernel(p, 1, "add_kernel"), (SIZE + 511) / 512, WARPS * 32, 0, &dx, &dy, &o, &n,
	       &none, &none);
	program_get(out, o, sizeof(out));
	for (int i = 0; i < SIZE; i++) {
		right = right && out[i] == (i < n ? x[i] + y[i] : 0);
	}
	program_check(p, right, "the sum");
	program_exact(p, "add", out, sizeof(out));
}

static void softmax(struct program *p, CUdeviceptr dx, CUdeviceptr o)
{
	int stride = COLS, n = COLS;
	double worst = 0, sum = 0;

	LAUNCH(kernel(p, 2, "softmax_kernel"), ROWS, WARPS * 32, 16, &o, &dx, &stride, &n, &none,
	       &none);
	program_get(out, o, sizeof(out));
	for (int r = 0; r < ROWS; r++) {
		double all = 0;

		for (int c = 0; c < COLS; c++) {
			all += exp((double)x[r * COLS + c]);
		}
		for (int c = 0; c < COLS; c++) {
			worst = fmax(
				worst,
				fabs(out[r * COLS + c] / (exp((double)x[r * COLS + c]) / all) - 1));
			sum += out[r * COLS + c] * (c + 1.0);
		}
	}
	program_check(p, worst < 2e-6, "softmax");
	program_about(p, "softmax", sum, 1e-6);
}

static void layernorm(struct program *p, CUdeviceptr dx, CUdeviceptr o)
{
	CUdeviceptr w = program_put(weight, sizeof(weight)), bb = program_put(bias, sizeof(bias));
	double worst = 0, sum = 0;
	float eps = 1e-5f;
	int n = COLS;

	LAUNCH(kernel(p, 3, "layernorm_kernel"), ROWS, WARPS * 32, 16, &dx, &w, &bb, &o, &n, &eps,
	       &none, &none);
	program_get(out, o, sizeof(out));
	for (int r = 0; r < ROWS; r++) {
		double mean = 0, var = 0;

		for (int c = 0; c < COLS; c++) {
			mean += x[r * COLS + c] / (double)COLS;
		}
		for (int c = 0; c < COLS; c++) {
			var += (x[r * COLS + c] - mean) * (x[r * COLS + c] - mean) / COLS;
		}
		for (int c = 0; c < COLS; c++) {
			double want =
				(x[r * COLS + c] - mean) / sqrt(var + (double)eps) * weight[c] +
				bias[c];

			worst = fmax(worst, fabs(out[r * COLS + c] - want));
			sum += fabs((double)out[r * COLS + c]);
		}
	}
	program_check(p, worst < 1e-5, "the norm");
	program_about(p, "layernorm", sum, 1e-6);
}

/* Whole numbers from -2 to 2 as halves. */
static uint16_t half(int v)
{
	return (uint16_t)((v < 0 ? 0x8000 : 0) | (v == 0 ? 0 : abs(v) == 1 ? 0x3c00 : 0x4000));
}

static void matmul(struct program *p)
{
	int m = M, k = K, va[M * K], vb[K * M];
	uint64_t seed = 24;
	bool right = true;
	CUdeviceptr da, db, o = program_zeros(sizeof(product));

	for (int i = 0; i < M * K; i++) {
		va[i] = (int)(program_random(&seed) % 5) - 2;
		vb[i] = (int)(program_random(&seed) % 5) - 2;
		a[i] = half(va[i]);
		b[i] = half(vb[i]);
	}
	da = program_put(a, sizeof(a));
	db = program_put(b, sizeof(b));
	LAUNCH3(kernel(p, 4, "matmul_kernel"), M / 32, M / 32, 1, WARPS * 32, 1, 1, 4096, NULL, &da,
		&db, &o, &m, &m, &k, &none, &none);
	program_get(product, o, sizeof(product));
	for (int r = 0; r < M; r++) {
		for (int c = 0; c < M; c++) {
			int want = 0;

			for (int i = 0; i < K; i++) {
				want += va[r * K + i] * vb[i * M + c];
			}
			right = right && product[r * M + c] == (float)want;
		}
	}
	program_check(p, right, "the product");
	program_exact(p, "matmul", product, sizeof(product));
}

static void cumsum(struct program *p)
{
	int v[256], sums[256 + 16], n = 250, sum = 0;
	CUdeviceptr d, o = program_zeros(sizeof(sums));
	uint64_t seed = 25;
	bool right = true;

	for (int i = 0; i < 256; i++) {
		v[i] = (int)(program_random(&seed) % 100);
	}
	d = program_put(v, sizeof(v));
	LAUNCH(kernel(p, 5, "histogram_kernel"), 1, WARPS * 32, 32, &d, &o, &n, &none, &none);
	program_get(sums, o, sizeof(sums));
	for (int i = 0; i < n; i++) {
		sum += v[i];
		right = right && sums[i] == sum;
		sums[n + (v[i] & 15)]--;
	}
	for (int i = 0; i < 16; i++) {
		right = right && sums[n + i] == 0;
	}
	program_check(p, right, "the prefix sums");
	program_exact(p, "cumsum", sums, sizeof(sums));
}

int main(int argc, char **argv)
{
	CUdeviceptr dx, dy, o;
	uint64_t seed = 23;
	struct program p;

	program_open(&p, "triton", argc, argv);
	for (int i = 0; i < SIZE; i++) {
		x[i] = program_uniform(&seed, -3, 3);
		y[i] = program_uniform(&seed, -3, 3);
	}
	for (int i = 0; i < COLS; i++) {
		weight[i] = program_uniform(&seed, 0, 2);
		bias[i] = program_uniform(&seed, -1, 1);
	}
	dx = program_put(x, sizeof(x));
	dy = program_put(y, sizeof(y));
	o = program_zeros(sizeof(out));
	none = program_zeros(16);
	add(&p, dx, dy, o);
	softmax(&p, dx, o);
	layernorm(&p, dx, o);
	matmul(&p);
	cumsum(&p);
	return program_close(&p);
}

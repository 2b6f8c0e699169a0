/* Two kernels that PyTorch's compiler wrote for 64 rows of 256: softmax, prefix sums and a choice
 * between sine and exponential as bfloat16; and a layer's norm with gelu, sums and the index of the
 * largest. Usage: inductor SOFTMAX NORM (PTX). */
#include "program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 64
#define COLS 256
#define SIZE (ROWS * COLS)

static float x[SIZE], first[SIZE], second[SIZE], w[COLS], b[COLS], sums[ROWS];
static uint16_t brains[SIZE];
static long long largest[ROWS];
static CUdeviceptr none;

static double from_brain(uint16_t v)
{
	uint32_t bits = (uint32_t)v << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static void softmax(struct program *p, CUfunction f, CUdeviceptr dx)
{
	CUdeviceptr o[3] = { program_zeros(sizeof(first)), program_zeros(sizeof(first)),
			     program_zeros(sizeof(brains)) };
	int rows = ROWS, cols = COLS;
	double worst[3] = { 0 }, total[3] = { 0 };

	LAUNCH(f, ROWS, 64, 8, &dx, &o[1], &o[0], &o[2], &rows, &cols, &none, &none);
	program_get(first, o[0], sizeof(first));
	program_get(second, o[1], sizeof(second));
	program_get(brains, o[2], sizeof(brains));
	for (int r = 0; r < ROWS; r++) {
		double all = 0, run = 0;

		for (int c = 0; c < COLS; c++) {
			all += exp((double)x[r * COLS + c]);
		}
		for (int c = 0; c < COLS; c++) {
			int i = r * COLS + c;
			double v = x[i], want = v > 0 ? sin(v) : exp(v);

			run += v;
			worst[0] = fmax(worst[0], fabs(first[i] / (exp(v) / all) - 1));
			worst[1] = fmax(worst[1], fabs(second[i] - run));
			worst[2] = fmax(worst[2],
					fabs(from_brain(brains[i]) - want) - fabs(want) / 256);
			total[0] += first[i] * (c + 1.0);
			total[1] += fabs((double)second[i]);
			total[2] += fabs(from_brain(brains[i]));
		}
	}
	program_check(p, worst[0] < 2e-6, "softmax");
	program_check(p, worst[1] < 2e-4, "the prefix sums");
	program_check(p, worst[2] < 1e-6, "sine and exponential");
	program_about(p, "softmax", total[0], 1e-6);
	program_about(p, "cumsum", total[1], 1e-6);
	program_about(p, "brains", total[2], 1e-5);
}

static void norm(struct program *p, CUfunction f, CUdeviceptr dx)
{
	CUdeviceptr dw = program_put(w, sizeof(w)), db = program_put(b, sizeof(b));
	CUdeviceptr o = program_zeros(sizeof(first)), s = program_zeros(sizeof(sums)),
		    l = program_zeros(sizeof(largest));
	int rows = ROWS, cols = COLS;
	double worst[2] = { 0 }, total = 0;
	bool right = true;

	LAUNCH(f, ROWS, 64, 16, &dx, &dw, &db, &o, &s, &l, &rows, &cols, &none, &none);
	program_get(first, o, sizeof(first));
	program_get(sums, s, sizeof(sums));
	program_get(largest, l, sizeof(largest));
	for (int r = 0; r < ROWS; r++) {
		double mean = 0, var = 0, sum = 0, top = -1e9;
		int at = 0;

		for (int c = 0; c < COLS; c++) {
			mean += x[r * COLS + c] / (double)COLS;
		}
		for (int c = 0; c < COLS; c++) {
			var += (x[r * COLS + c] - mean) * (x[r * COLS + c] - mean) / COLS;
		}
		for (int c = 0; c < COLS; c++) {
			double v = (x[r * COLS + c] - mean) / sqrt(var + 1e-5) * w[c] + b[c];
			double gelu = 0.5 * v * (1 + erf(v * 0.70710678118654752440));

			worst[0] = fmax(worst[0], fabs(first[r * COLS + c] - (gelu * 2 + 1)));
			sum += gelu;
			at = gelu > top ? c : at;
			top = fmax(top, gelu);
			total += fabs((double)first[r * COLS + c]);
		}
		worst[1] = fmax(worst[1], fabs(sums[r] - sum));
		right = right && largest[r] == at;
	}
	program_check(p, worst[0] < 2e-5, "gelu");
	program_check(p, worst[1] < 5e-4, "a sum");
	program_check(p, right, "the index of the largest");
	program_about(p, "gelu", total, 1e-6);
	program_exact(p, "largest", largest, sizeof(largest));
}

int main(int argc, char **argv)
{
	CUdeviceptr dx;
	uint64_t seed = 26;
	struct program p;
	CUfunction f;
	CUmodule m;

	program_open(&p, "inductor", argc, argv);
	if (argc < 3) {
		fprintf(stderr, "usage: %s SOFTMAX NORM\n", argv[0]);
		return 2;
	}
	for (int i = 0; i < SIZE; i++) {
		x[i] = program_uniform(&seed, -3, 3);
	}
	for (int i = 0; i < COLS; i++) {
		w[i] = program_uniform(&seed, 0, 1);
		b[i] = program_uniform(&seed, 0, 1);
	}
	dx = program_put(x, sizeof(x));
	none = program_zeros(16);
	f = program_kernel(
		&p, "triton_per_fused__softmax__to_copy_cumsum_exp_gt_prepare_softmax_online_sin_"
		    "sub_where_0");
	softmax(&p, f, dx);
	CU(cuModuleLoad(&m, argv[2]));
	CU(cuModuleGetFunction(&f, m,
			       "triton_per_fused_add_argmax_gelu_mul_native_layer_norm_sum_0"));
	norm(&p, f, dx);
	return program_close(&p);
}

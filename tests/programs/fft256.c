/* Transforms of 256 points by six kernels, exact where the image was compiled with -fmad=false, and
 * a reference in double precision. */
#include "program.h"

#include <math.h>
#include <string.h>

#define N 256
#define BLOCKS 16

static float in[BLOCKS][2 * N], out[BLOCKS][2 * N], table[2 * N];

/* The largest error of the transform of one block. */
static double error_of(const float *x, const float *y)
{
	double worst = 0;

	for (int k = 0; k < N; k++) {
		double re = 0, im = 0;

		for (int j = 0; j < N; j++) {
			double a = -2 * M_PI * (j * k % N) / N;

			re += (double)x[2 * j] * cos(a) - (double)x[2 * j + 1] * sin(a);
			im += (double)x[2 * j] * sin(a) + (double)x[2 * j + 1] * cos(a);
		}
		worst = fmax(worst,
			     fmax(fabs(re - (double)y[2 * k]), fabs(im - (double)y[2 * k + 1])));
	}
	return worst;
}

int main(int argc, char **argv)
{
	static const char *const kernels[] = { "radix2_table", "radix4_table", "radix2_pi",
					       "radix4_pi",    "radix2_angle", "radix4_angle" };
	CUdeviceptr from, to, factors;
	uint64_t seed = 11;
	struct program p;

	program_open(&p, "fft256", argc, argv);
	for (int i = 0; i < BLOCKS * 2 * N; i++) {
		in[i / (2 * N)][i % (2 * N)] = program_uniform(&seed, -1, 1);
	}
	for (int k = 0; k < N; k++) {
		table[2 * k] = (float)cos(2 * M_PI * k / N);
		table[2 * k + 1] = (float)-sin(2 * M_PI * k / N);
	}
	from = program_put(in, sizeof(in));
	factors = program_put(table, sizeof(table));
	to = program_zeros(sizeof(out));
	for (unsigned i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
		CU(cuMemsetD8(to, 0, sizeof(out)));
		LAUNCH(program_kernel(&p, kernels[i]), BLOCKS, i % 2 ? N / 4 : N / 2, 0, &from, &to,
		       &factors);
		program_get(out, to, sizeof(out));
		program_check(&p, error_of(in[3], out[3]) < 2e-5, kernels[i]);
		if (strstr(argv[1], "rn_")) {
			program_exact(&p, kernels[i], out, sizeof(out));
		}
	}
	return program_close(&p);
}

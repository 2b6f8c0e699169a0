/* Ten steps of 512 bodies; the reference in double precision. */
#include "program.h"

#include <math.h>

#define N 512
#define BLOCK 64
#define STEPS 4

static float at[4 * N], v[4 * N];
static double rat[4 * N], rv[4 * N], rnext[4 * N];

static void step(double h, double damping, double softening)
{
	for (int i = 0; i < N; i++) {
		double a[3] = { 0, 0, 0 };

		for (int k = 0; k < N; k++) {
			double d[3], r = softening, s;

			for (int c = 0; c < 3; c++) {
				d[c] = rat[4 * k + c] - rat[4 * i + c];
				r += d[c] * d[c];
			}
			s = rat[4 * k + 3] / (r * sqrt(r));
			for (int c = 0; c < 3; c++) {
				a[c] += d[c] * s;
			}
		}
		for (int c = 0; c < 3; c++) {
			rv[4 * i + c] = (rv[4 * i + c] + a[c] * h) * damping;
			rnext[4 * i + c] = rat[4 * i + c] + rv[4 * i + c] * h;
		}
	}
	for (int i = 0; i < N; i++) {
		for (int c = 0; c < 3; c++) {
			rat[4 * i + c] = rnext[4 * i + c];
		}
	}
}

int main(int argc, char **argv)
{
	float h = 0.016f, damping = 0.995f, softening = 0.01f;
	double worst = 0, sum = 0;
	int tiles = N / BLOCK;
	CUdeviceptr d[2], dv;
	uint64_t seed = 9;
	struct program p;

	program_open(&p, "nbody", argc, argv);
	for (int i = 0; i < 4 * N; i++) {
		rat[i] = at[i] = i % 4 == 3 ? 1.0f / N : program_uniform(&seed, -1, 1);
		rv[i] = v[i] = i % 4 == 3 ? 0 : program_uniform(&seed, -0.1f, 0.1f);
	}
	d[0] = program_put(at, sizeof(at));
	d[1] = program_zeros(sizeof(at));
	dv = program_put(v, sizeof(v));
	for (int s = 0; s < STEPS; s++) {
		LAUNCH(program_kernel(&p, "integrateBodies"), N / BLOCK, BLOCK, BLOCK * 16,
		       &d[(s + 1) % 2], &dv, &d[s % 2], &h, &damping, &softening, &tiles);
		step(h, damping, softening);
	}
	program_get(at, d[STEPS % 2], sizeof(at));
	for (int i = 0; i < 4 * N; i++) {
		worst = fmax(worst, fabs(at[i] - rat[i]));
		sum += fabs((double)at[i]);
	}
	program_check(&p, worst < 1e-5, "a position");
	program_about(&p, "places", sum, 1e-7);
	program_about(&p, "first", at[0], 1e-5);
	return program_close(&p);
}

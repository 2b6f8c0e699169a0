/* Prices of options, single precision with fast functions and double with accurate ones. */
#include "program.h"

#include <math.h>

#define N 4096 /* pairs */

static float price[2 * N], strike[2 * N], years[2 * N], call[2 * N], put[2 * N];
static double exact[N];

static double normal(double x)
{
	return 0.5 * erfc(-x * 0.70710678118654752440);
}

static double reference(double s, double x, double t, double r, double v, double *ret_put)
{
	double d1 = (log(s / x) + (r + 0.5 * v * v) * t) / (v * sqrt(t)), d2 = d1 - v * sqrt(t);
	double e = exp(-r * t);

	*ret_put = x * e * normal(-d2) - s * normal(-d1);
	return s * normal(d1) - x * e * normal(d2);
}

int main(int argc, char **argv)
{
	float rate = 0.02f, volatility = 0.30f;
	double rate64 = 0.02, volatility64 = 0.30, worst = 0, worst64 = 0, sum = 0, puts = 0,
	       sum64 = 0;
	CUdeviceptr c, q, s, x, t;
	uint64_t seed = 7;
	struct program p;
	int n = N;

	program_open(&p, "BlackScholes", argc, argv);
	for (int i = 0; i < 2 * N; i++) {
		price[i] = program_uniform(&seed, 5, 30);
		strike[i] = program_uniform(&seed, 1, 100);
		years[i] = program_uniform(&seed, 0.25f, 10);
	}
	s = program_put(price, sizeof(price));
	x = program_put(strike, sizeof(strike));
	t = program_put(years, sizeof(years));
	c = program_zeros(sizeof(call));
	q = program_zeros(sizeof(put));
	LAUNCH(program_kernel(&p, "blackScholes"), N / 128, 128, 0, &c, &q, &s, &x, &t, &rate,
	       &volatility, &n);
	program_get(call, c, sizeof(call));
	program_get(put, q, sizeof(put));
	LAUNCH(program_kernel(&p, "blackScholesExact"), N / 128, 128, 0, &c, &s, &x, &t, &rate64,
	       &volatility64, &n);
	program_get(exact, c, sizeof(exact));
	for (int i = 0; i < 2 * N; i++) {
		double want_put, want = reference(price[i], strike[i], years[i], rate64,
						  volatility64, &want_put);

		worst = fmax(worst, fmax(fabs(call[i] - want), fabs(put[i] - want_put)));
		sum += call[i];
		puts += put[i];
		if (i % 2 == 0) {
			worst64 = fmax(worst64, fabs(exact[i / 2] - want));
			sum64 += exact[i / 2];
		}
	}
	program_check(&p, worst < 5e-5, "a price");
	program_check(&p, worst64 < 1e-12, "a price in double precision");
	program_about(&p, "calls", sum, 1e-6);
	program_about(&p, "puts", puts, 1e-6);
	program_about(&p, "call1", call[1], 1e-5);
	program_about(&p, "exact", sum64, 1e-14);
	return program_close(&p);
}

/* The math library on the GPU. Single and double precision are compared with the host's library
 * within the bounds of its manual (in units of the last place, with a margin for the host's own
 * errors). */
#include "program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N 512
#define F 40
#define D 32

static float in[N], out[N * F], angles[N];
static double din[N], dout[N * D], wide[N];

static double float_reference(int k, float x, float y)
{
	double a = fabs((double)x), w = x, v = y;
	int e;

	switch (k) {
	case 0:
		return sin(w);
	case 1:
		return cos(w);
	case 2:
		return tan(w);
	case 3:
		return asin((double)(x / 100));
	case 4:
		return acos((double)(x / 100));
	case 5:
		return atan(w);
	case 6:
		return atan2(w, v);
	case 7:
		return sinh((double)(x / 10));
	case 8:
		return cosh((double)(x / 10));
	case 9:
		return tanh(w);
	case 10:
		return exp(w);
	case 11:
		return exp2(w);
	case 12:
		return pow(10, (double)(x / 4));
	case 13:
		return expm1(w);
	case 14:
		return log(a);
	case 15:
		return log2(a);
	case 16:
		return log10(a);
	case 17:
		return log1p(a);
	case 18:
		return pow(a, (double)(y / 20));
	case 19:
		return sqrt(a);
	case 20:
		return 1 / sqrt(a);
	case 21:
		return cbrt(w);
	case 22:
		return erf(w);
	case 23:
		return erfc((double)(x / 10));
	case 24:
		return tgamma((double)(x / 10));
	case 25:
		return lgamma(w);
	case 26:
		return w / v;
	case 27:
		return fmod(w, v);
	case 28:
		return remainder(w, v);
	case 29:
		return hypot(w, v);
	case 30:
		return floor(w) + ceil(v);
	case 31:
		return rint(w);
	case 32:
		return trunc(w);
	case 33:
		return round(w);
	case 34:
		return frexpf(x, &e) + (double)e;
	case 35:
		return w * 8;
	case 36:
		return j0(w);
	case 37:
		return 0.5 * erfc(-(double)(x / 10) * 0.70710678118654752440);
	case 38:
		return 1 / w;
	default:
		return fdim(w, v);
	}
}

static double double_reference(int k, double x, double y)
{
	double a = fabs(x);

	switch (k) {
	case 0:
		return sin(x);
	case 1:
		return cos(x);
	case 2:
		return tan(x);
	case 3:
		return asin(x / 100);
	case 4:
		return acos(x / 100);
	case 5:
		return atan(x);
	case 6:
		return atan2(x, y);
	case 7:
		return sinh(x / 10);
	case 8:
		return cosh(x / 10);
	case 9:
		return tanh(x);
	case 10:
		return exp(x);
	case 11:
		return exp2(x);
	case 12:
		return pow(10, x / 4);
	case 13:
		return expm1(x);
	case 14:
		return log(a);
	case 15:
		return log2(a);
	case 16:
		return log10(a);
	case 17:
		return log1p(a);
	case 18:
		return pow(a, y / 20);
	case 19:
		return sqrt(a);
	case 20:
		return 1 / sqrt(a);
	case 21:
		return cbrt(x);
	case 22:
		return erf(x);
	case 23:
		return tgamma(x / 10);
	case 24:
		return lgamma(x);
	case 25:
		return x / y;
	case 26:
		return fmod(x, y);
	case 27:
		return hypot(x, y);
	case 28:
		return floor(x) + ceil(y);
	case 29:
		return rint(x);
	case 30:
		return 0.5 * erfc(-(x / 10) * 0.70710678118654752440);
	default:
		return 1 / x;
	}
}

/* Units of the last place of a float (24 bits) or a double (53). */
static double ulps(double have, double want, int bits)
{
	int e;

	if (have == want || (isnan(have) && isnan(want))) {
		return 0;
	}
	frexp(want, &e);
	e = e < -125 && bits == 24 ? -125 : e;
	return fabs(have - want) / ldexp(1, e - bits);
}

/* Functions that the library builds from approximate instructions, whose last bits differ between
 * GPUs: compares sums instead of bits. */
static bool is_about(char kind, int k)
{
	static const char floats[F] = {
		[2] = 1,  [5] = 1,  [7] = 1,  [8] = 1,	[9] = 1,  [10] = 1, [11] = 1, [12] = 1,
		[20] = 1, [21] = 1, [22] = 1, [23] = 1, [24] = 1, [25] = 1, [36] = 1, [37] = 1
	};

	return kind == 'f' ? floats[k] : k == 20;
}

static void column(struct program *p, char kind, int k, double worst)
{
	char name[8];

	double sum = 0;

	snprintf(name, sizeof(name), "%c%02d", kind, k);
	if (kind == 'f') {
		float v[N];

		for (int i = 0; i < N; i++) {
			v[i] = out[i * F + k];
			sum += fabs((double)v[i]);
		}
		is_about(kind, k) ? program_about(p, name, sum, 1e-6)
				  : program_exact(p, name, v, sizeof(v));
	} else {
		double v[N];

		for (int i = 0; i < N; i++) {
			v[i] = dout[i * D + k];
			sum += fabs(v[i]);
		}
		is_about(kind, k) ? program_about(p, name, sum, 1e-15)
				  : program_exact(p, name, v, sizeof(v));
	}
	if (getenv("PROGRAM_ULPS")) {
		fprintf(stderr, "%s: %.2f ulp\n", name, worst);
	}
}

int main(int argc, char **argv)
{
	/* Bounds of the manual. Those of lgammaf and j0f are absolute near zeros, so they are wide
	 * here. */
	static const double float_bounds[F] = { 2, 2, 4, 2, 2, 2, 3, 3, 2,   2, 2, 2,	2, 1,
						1, 1, 2, 1, 4, 1, 2, 1, 2,   4, 5, 1e4, 1, 1,
						1, 3, 1, 1, 1, 1, 1, 1, 1e4, 5, 1, 1 };
	struct program p;
	CUdeviceptr d, o, w;
	uint64_t seed = 19;
	int n = N;

	program_open(&p, "mathFunctions", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = program_uniform(&seed, -20, 20);
		din[i] = in[i] + program_uniform(&seed, 0, 1) * 1e-7;
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	LAUNCH(program_kernel(&p, "mathFloat"), N / 128, 128, 0, &o, &d, &n);
	program_get(out, o, sizeof(out));
	d = program_put(din, sizeof(din));
	o = program_zeros(sizeof(dout));
	LAUNCH(program_kernel(&p, "mathDouble"), N / 128, 128, 0, &o, &d, &n);
	program_get(dout, o, sizeof(dout));
	for (int k = 0; k < F; k++) {
		double worst = 0;

		for (int i = 0; i < N; i++) {
			worst = fmax(worst, ulps(out[i * F + k],
						 float_reference(k, in[i], in[(i + 7) % N]), 24));
		}
		if (worst > float_bounds[k] + 0.5) {
			fprintf(stderr, "function %d of floats: %.2f ulp\n", k, worst);
			p.wrong = true;
		}
		column(&p, 'f', k, worst);
	}
	for (int k = 0; k < D; k++) {
		double worst = 0;

		for (int i = 0; i < N; i++) {
			worst = fmax(worst,
				     ulps(dout[i * D + k],
					  double_reference(k, din[i], din[(i + 7) % N]), 53));
		}
		if (worst > (k == 24 ? 1e5 : k == 23 ? 12 : 10)) {
			fprintf(stderr, "function %d of doubles: %.2f ulp\n", k, worst);
			p.wrong = true;
		}
		column(&p, 'd', k, worst);
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(angles));
	w = program_zeros(sizeof(wide));
	LAUNCH(program_kernel(&p, "largeAngles"), N / 128, 128, 0, &o, &w, &d, &n);
	program_get(angles, o, sizeof(angles));
	program_get(wide, w, sizeof(wide));
	for (int i = 0; i < N; i++) {
		if (ulps(angles[i], sin((double)(in[i] * 1e7f)), 24) > 2.5 ||
		    ulps(wide[i], cos((double)in[i] * 1e12), 53) > 3) {
			program_check(&p, false, "a large angle");
		}
	}
	program_exact(&p, "angles", angles, sizeof(angles));
	program_exact(&p, "wide", wide, sizeof(wide));
	return program_close(&p);
}

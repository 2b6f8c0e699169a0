/* Halves and bfloat16. The recorded results of a GPU are the reference; additions are also checked
 * here. */
#include "program.h"

#include <math.h>
#include <string.h>

#define N 512

static uint16_t in[N], out[N * 32];

static double half_value(uint16_t h)
{
	int exponent = h >> 10 & 31, fraction = h & 0x3ff;
	double v = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
		   : exponent	  ? ldexp(1024 + fraction, exponent - 25)
				  : ldexp(fraction, -24);

	return h & 0x8000 ? -v : v;
}

static bool sum_right(uint16_t a, uint16_t b, uint16_t sum)
{
	double want = half_value(a) + half_value(b), have = half_value(sum);

	if (isnan(want)) {
		return isnan(have);
	}
	return fabs(want) >= 65520 ? isinf(have) : fabs(want - have) <= fabs(want) * 0.000488281251;
}

int main(int argc, char **argv)
{
	static const uint16_t edges[] = { 0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400,
					  0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
					  0x7e00, 0x7c01, 0x3555, 0x4248 };
	CUdeviceptr d, o, one;
	uint32_t sums[2] = { 0, 0 };
	uint64_t seed = 18;
	bool right = true;
	struct program p;
	int n = N;

	program_open(&p, "halfMath", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = i < 16 ? edges[i] : (uint16_t)program_random(&seed);
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	LAUNCH(program_kernel(&p, "halves"), N / 128, 128, 0, &o, &d, &n);
	program_get(out, o, sizeof(out));
	for (int i = 0; i < N; i++) {
		right = right && sum_right(in[i], in[(i * 7 + 3) % N], out[i * 32]);
	}
	program_check(&p, right, "a sum of halves");
	for (int k = 0; k < 32; k++) {
		uint16_t column[N];
		char name[8] = { 'h', (char)('0' + k / 10), (char)('0' + k % 10) };

		for (int i = 0; i < N; i++) {
			column[i] = out[i * 32 + k];
		}
		program_exact(&p, name, column, sizeof(column));
	}
	LAUNCH(program_kernel(&p, "brains"), N / 128, 128, 0, &o, &d, &n);
	program_get(out, o, sizeof(out) / 2);
	for (int k = 0; k < 16; k++) {
		uint16_t column[N];
		char name[8] = { 'b', (char)('0' + k / 10), (char)('0' + k % 10) };

		for (int i = 0; i < N; i++) {
			column[i] = out[i * 16 + k];
		}
		program_exact(&p, name, column, sizeof(column));
	}
	one = program_zeros(8);
	o = one + 4;
	LAUNCH(program_kernel(&p, "halfAtomics"), 2, 64, 0, &one, &o);
	program_get(sums, one, sizeof(sums));
	program_check(&p, (sums[0] & 0xffff) == 0x5000 && sums[1] == 0x58005400,
		      "a sum by atomics");
	return program_close(&p);
}

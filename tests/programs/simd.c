/* Bytes and halves of a word: dot products and video instructions. Some are checked here; all are
 * compared with the recorded results of a GPU. */
#include "program.h"

#include <stdio.h>

#define N 256

static unsigned in[N], out[N * 32];

static unsigned abs_differences(unsigned a, unsigned b)
{
	unsigned r = 0;

	for (int k = 0; k < 32; k += 8) {
		int d = (int)(a >> k & 255) - (int)(b >> k & 255);

		r |= (unsigned)(d < 0 ? -d : d) << k;
	}
	return r;
}

static unsigned dot(unsigned a, unsigned b, unsigned c)
{
	for (int k = 0; k < 32; k += 8) {
		c += (unsigned)((signed char)(a >> k) * (signed char)(b >> k));
	}
	return c;
}

int main(int argc, char **argv)
{
	CUdeviceptr d, o;
	uint64_t seed = 20;
	bool right = true;
	struct program p;
	int n = N;

	program_open(&p, "simd", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = i < 4 ? (unsigned)-(i % 2) ^ (i > 1 ? 0x80808080u : 0)
			      : program_random(&seed);
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	LAUNCH(program_kernel(&p, "simd"), N / 128, 128, 0, &o, &d, &n);
	program_get(out, o, sizeof(out));
	for (int i = 0; i < N; i++) {
		unsigned a = in[i], b = in[(i + 1) % N], c = in[(i + 2) % N];

		right = right && out[i * 32] == dot(a, b, c) &&
			out[i * 32 + 7] == abs_differences(a, b) &&
			out[i * 32 + 30] == (uint32_t)((uint64_t)a * b % (c | 1));
	}
	program_check(&p, right, "a word");
	for (int k = 0; k < 32; k++) {
		unsigned column[N];
		char name[8];

		snprintf(name, sizeof(name), "s%02d", k);
		for (int i = 0; i < N; i++) {
			column[i] = out[i * 32 + k];
		}
		program_exact(&p, name, column, sizeof(column));
	}
	return program_close(&p);
}

/* Pointers to functions, objects, recursion, votes and a switch. */
#include "program.h"

#define N 256

static int in[N], out[N];

static int apply(int which, int a, int b)
{
	return which == 0 ? a + b : which == 1 ? a - b : a * b;
}

static int fibonacci(int n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static int many(int v)
{
	int r = 0;

	switch (v % 13) {
	case 0:
		return v + 1;
	case 1:
		return v * 3;
	case 2:
		return v ^ 0x55;
	case 3:
		return v << 3;
	case 4:
		return -v;
	case 5:
		return v % 7;
	case 6:
		return ~v;
	case 7:
		return (v / 3) & 0xf0;
	case 8:
		return v & 0xf0;
	case 9:
		for (; v > 1; r++) {
			v = v & 1 ? 3 * v + 1 : v / 2;
		}
		return r;
	case 10:
		return v | 0x80;
	default:
		return 1000 - v;
	}
}

static int reference(int k, int i, int chosen)
{
	unsigned ballot = 0, any = 0;

	switch (k) {
	case 0:
		return apply(i % 3, in[i], i) * 16 + apply(chosen, i, 3);
	case 1:
		return (in[i] & 1 ? in[i] * in[i] : in[i] * i) * 8 + (in[i] & 1 ? 4 : 0);
	case 2:
		return fibonacci(in[i] % 11);
	case 3:
		for (int l = 0; l < 32; l++) {
			int v = in[i / 32 * 32 + l];

			ballot |= (unsigned)(v > 40) << l;
			any |= v > 98;
		}
		return (int)(ballot ^ (any ? 0x10000u : 0) ^ 0x20000000u);
	default:
		return many(in[i]);
	}
}

int main(int argc, char **argv)
{
	static const char *const kernels[] = { "throughPointers", "throughObjects", "recursion",
					       "votes", "manyWays" };
	struct program p;
	CUdeviceptr d, o;
	uint64_t seed = 11;
	int which = 2;

	program_open(&p, "functions", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = (int)(program_random(&seed) % 100);
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	LAUNCH(program_kernel(&p, "choose"), 1, 1, 0, &which);
	for (int k = 0; k < 5; k++) {
		bool right = true;

		LAUNCH(program_kernel(&p, kernels[k]), N / 64, 64, 0, &o, &d);
		program_get(out, o, sizeof(out));
		for (int i = 0; i < N; i++) {
			right = right && out[i] == reference(k, i, which);
		}
		program_check(&p, right, kernels[k]);
		program_exact(&p, kernels[k], out, sizeof(out));
	}
	return program_close(&p);
}

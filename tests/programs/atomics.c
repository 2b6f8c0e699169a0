/* Every atomic operation by many threads at once; results that do not depend on the order. */
#include "program.h"

#define BLOCKS 24
#define THREADS 256
#define N (BLOCKS * THREADS)

static void reference(int *g)
{
	int s3 = -1;
	unsigned s2 = 0;

	for (int i = 0; i < N; i++) {
		g[0] += 10;
		g[1] -= 10;
		g[3] = i > g[3] ? i : g[3];
		g[4] = i - 5 < g[4] ? i - 5 : g[4];
		g[5] = g[5] >= 17 ? 0 : g[5] + 1;
		g[6] = g[6] == 0 || g[6] > 137 ? 137 : g[6] - 1;
		g[8] &= 2 * i + 7;
		g[9] |= (int)(1u << (i & 31));
		g[10] ^= i;
	}
	for (int t = 0; t < THREADS; t++) {
		s2 ^= (unsigned)t * 5;
		s3 &= ~(1 << (t & 15));
	}
	g[2] = 77;
	g[7] = 8;
	g[11] = (int)(0x80000000u + N - 1);
	g[12] = BLOCKS * (THREADS * (THREADS - 1) / 2);
	g[13] = BLOCKS * (THREADS - 1) * 3;
	g[14] = BLOCKS * (int)s2;
	g[15] = BLOCKS * s3;
}

int main(int argc, char **argv)
{
	int g[16] = { [7] = 7, [8] = 0xff }, want[16] = { [7] = 7, [8] = 0xff };
	unsigned long long w;
	struct program p;
	CUdeviceptr dg, dw, df, dd;
	bool right = true;
	double d;
	float f;

	program_open(&p, "atomics", argc, argv);
	reference(want);
	dg = program_put(g, sizeof(g));
	dw = program_zeros(8);
	df = program_zeros(4);
	dd = program_zeros(8);
	LAUNCH(program_kernel(&p, "atomics"), BLOCKS, THREADS, 0, &dg, &dw, &df, &dd);
	program_get(g, dg, sizeof(g));
	program_get(&w, dw, sizeof(w));
	program_get(&f, df, sizeof(f));
	program_get(&d, dd, sizeof(d));
	for (int i = 0; i < 16; i++) {
		right = right && g[i] == want[i];
	}
	program_check(&p, right, "a word");
	program_check(&p, w == N * 0x100000001ull, "the 64-bit sum");
	program_check(&p, f == N * 0.5f && d == N * 0.25, "a sum of floats");
	program_exact(&p, "words", g, sizeof(g));
	return program_close(&p);
}

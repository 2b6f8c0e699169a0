/* Seven kernels that sum the same numbers. */
#include "program.h"

#include <stdlib.h>

#define N 100003
#define BLOCKS_MAX 1024

static int in[N], out[BLOCKS_MAX + 1];
static float fin[N], fout[BLOCKS_MAX];

static long long total(int n)
{
	long long sum = 0;

	for (int i = 0; i < n; i++) {
		sum += out[i];
	}
	return sum;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		unsigned blocks, threads, shared;
	} ways[] = { { "reduceInterleaved", (N + 255) / 256, 256, 0 },
		     { "reduceSequential", (N + 511) / 512, 512, 2048 },
		     { "reduceUnrolled128", 16, 128, 0 },
		     { "reduceUnrolled512", 8, 512, 0 },
		     { "reduceShuffle", 16, 256, 0 } };
	CUdeviceptr d, o;
	uint64_t seed = 3;
	long long want = 0;
	unsigned n = N;
	double fsum = 0;
	struct program p;

	program_open(&p, "reduction", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = (int)(program_random(&seed) & 255) - 100;
		fin[i] = program_uniform(&seed, 0, 1);
		want += in[i];
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	for (int i = 0; i < 5; i++) {
		LAUNCH(program_kernel(&p, ways[i].name), ways[i].blocks, ways[i].threads,
		       ways[i].shared, &d, &o, &n);
		program_get(out, o, sizeof(out));
		program_check(&p, total((int)ways[i].blocks) == want, ways[i].name);
		program_exact(&p, ways[i].name, out, ways[i].blocks * sizeof(*out));
	}
	for (int round = 0; round < 2; round++) {
		LAUNCH(program_kernel(&p, "reduceLastBlock"), 24, 256, 0, &d, &o, &n);
		program_get(out, o, sizeof(out));
		program_check(&p, out[0] == want, "reduceLastBlock");
	}
	d = program_put(fin, sizeof(fin));
	LAUNCH(program_kernel(&p, "reduceShuffleFloat"), 16, 256, 0, &d, &o, &n);
	program_get(fout, o, sizeof(fout));
	for (int i = 0; i < 16; i++) {
		fsum += fout[i];
	}
	program_check(&p, fsum > N * 0.49 && fsum < N * 0.51, "reduceShuffleFloat");
	program_exact(&p, "float", fout, 16 * sizeof(*fout));
	return program_close(&p);
}

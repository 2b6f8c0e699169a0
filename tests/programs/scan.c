/* Exclusive prefix sums of more elements than a block holds, and inclusive ones of blocks. */
#include "program.h"

#include <stdlib.h>

#define N 30011
#define THREADS 128
#define BLOCKS ((N + 2 * THREADS - 1) / (2 * THREADS))
#define ROOM(threads) ((2 * (threads) + (2 * (threads)) / 32 + 1) * sizeof(int))

static int in[N], out[N], want[N];

int main(int argc, char **argv)
{
	CUdeviceptr d, o, sums, scanned, none = 0;
	int n = N, blocks = BLOCKS, sum = 0;
	uint64_t seed = 4;
	bool right = true;
	struct program p;
	CUfunction scan;

	program_open(&p, "scan", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = (int)(program_random(&seed) % 1000) - 300;
		want[i] = sum;
		sum += in[i];
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	sums = program_zeros(BLOCKS * sizeof(int));
	scanned = program_zeros(BLOCKS * sizeof(int));
	scan = program_kernel(&p, "scanBlocks");
	LAUNCH(scan, BLOCKS, THREADS, ROOM(THREADS), &o, &sums, &d, &n);
	LAUNCH(scan, 1, THREADS, ROOM(THREADS), &scanned, &none, &sums, &blocks);
	LAUNCH(program_kernel(&p, "addSums"), BLOCKS, THREADS, 0, &o, &scanned, &n);
	program_get(out, o, sizeof(out));
	for (int i = 0; i < N; i++) {
		right = right && out[i] == want[i];
	}
	program_check(&p, right, "the exclusive sum");
	program_exact(&p, "exclusive", out, sizeof(out));
	LAUNCH(program_kernel(&p, "scanShuffle"), (N + 255) / 256, 256, 0, &o, &d, &n);
	program_get(out, o, sizeof(out));
	for (int i = 0; i < N; i++) {
		right = right && out[i] == want[i] + in[i] - want[i / 256 * 256];
	}
	program_check(&p, right, "the inclusive sum");
	program_exact(&p, "inclusive", out, sizeof(out));
	return program_close(&p);
}

/* Block-wide primitives of CUB. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS 6
#define N (512 * BLOCKS)

static int in[N], out[N], want[N], sums[2 * BLOCKS];

static int compare(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	CUdeviceptr d, o, s;
	uint64_t seed = 17;
	bool right = true;
	struct program p;

	program_open(&p, "cubBlock", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = (int)program_random(&seed) >> (i % 7);
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	s = program_zeros(sizeof(sums));
	LAUNCH(program_kernel(&p, "cubSort"), BLOCKS, 128, 0, &o, &d);
	program_get(out, o, sizeof(out));
	memcpy(want, in, sizeof(in));
	for (int b = 0; b < BLOCKS; b++) {
		qsort(want + b * 512, 512, sizeof(int), compare);
	}
	program_check(&p, memcmp(out, want, sizeof(out)) == 0, "the order");
	program_exact(&p, "sorted", out, sizeof(out));
	LAUNCH(program_kernel(&p, "cubScan"), BLOCKS, 128, 0, &o, &s, &d);
	program_get(out, o, sizeof(out));
	program_get(sums, s, sizeof(sums));
	for (int b = 0; b < BLOCKS; b++) {
		unsigned sum = 0;
		int largest = in[b * 512];

		for (int i = b * 512; i < (b + 1) * 512; i++) {
			right = right && (unsigned)out[i] == sum;
			sum += (unsigned)in[i];
			largest = in[i] > largest ? in[i] : largest;
		}
		right = right && (unsigned)sums[2 * b] == sum && sums[2 * b + 1] == largest;
	}
	program_check(&p, right, "a prefix sum");
	program_exact(&p, "scanned", out, sizeof(out));
	return program_close(&p);
}

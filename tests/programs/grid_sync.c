/* A cooperative launch: barriers of the whole grid; then groups inside a block. */
#include "program.h"

#include <stdlib.h>

#define N 60000
#define BLOCKS 7
#define THREADS 128

static int in[N], out[THREADS];

int main(int argc, char **argv)
{
	long long sums[BLOCKS], want = 0;
	CUdeviceptr d, s, o, c;
	uint64_t seed = 10;
	int n = N, counter, threes = 0;
	struct program p;
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 };
	CUlaunchConfig config = { BLOCKS, 1, 1, THREADS, 1, 1, 64 * 8, NULL, &attr, 1 };

	program_open(&p, "gridSync", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = (int)(program_random(&seed) % 100000) - 40000;
		want += in[i];
	}
	d = program_put(in, sizeof(in));
	s = program_zeros(sizeof(sums));
	CU(cuLaunchCooperativeKernel(program_kernel(&p, "sumOfGrid"), BLOCKS, 1, 1, THREADS, 1, 1,
				     64 * 8, NULL, (void *[]){ &s, &d, &n }));
	program_get(sums, s, sizeof(sums));
	program_check(&p, sums[0] == want, "the sum of the grid");
	program_exact(&p, "sum", sums, sizeof(sums[0]));
	s = program_zeros(sizeof(sums));
	CU(cuLaunchKernelEx(&config, program_kernel(&p, "sumOfGrid"), (void *[]){ &s, &d, &n },
			    NULL));
	program_get(sums, s, sizeof(sums));
	program_check(&p, sums[0] == want, "the sum of the grid, by attribute");
	for (int i = 0; i < THREADS; i++) {
		in[i] = (int)(program_random(&seed) % 10);
		threes += in[i] % 3 == 0;
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	c = program_zeros(sizeof(counter));
	LAUNCH(program_kernel(&p, "groupsOfLanes"), 1, THREADS, 0, &o, &d, &c);
	program_get(out, o, sizeof(out));
	program_get(&counter, c, sizeof(counter));
	program_check(&p, counter == threes, "the counter of the lanes that were there");
	program_exact(&p, "groups", out, sizeof(out));
	return program_close(&p);
}

/* Keys with values through two sorting networks. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#define N 4096u
#define SHARED_SIZE 256u

static unsigned keys[N], values[N], sorted[N], moved[N];

static bool in_order(unsigned up)
{
	static unsigned char seen[N];

	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i < N; i++) {
		if (moved[i] >= N || seen[moved[i]]++ || keys[moved[i]] != sorted[i]) {
			return false;
		}
		if (i > 0 && (up ? sorted[i - 1] > sorted[i] : sorted[i - 1] < sorted[i])) {
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	unsigned n = N, dir = 1;
	CUfunction global;
	CUdeviceptr k, v;
	uint64_t seed = 6;
	struct program p;

	program_open(&p, "sortingNetworks", argc, argv);
	for (unsigned i = 0; i < N; i++) {
		keys[i] = program_random(&seed) % 3000;
		values[i] = i;
	}
	k = program_put(keys, sizeof(keys));
	v = program_put(values, sizeof(values));
	LAUNCH(program_kernel(&p, "bitonicShared"), N / SHARED_SIZE, SHARED_SIZE / 2, 0, &k, &v);
	global = program_kernel(&p, "bitonicGlobal");
	for (unsigned size = 2 * SHARED_SIZE; size <= N; size *= 2) {
		for (unsigned stride = size / 2; stride > 0; stride /= 2) {
			LAUNCH(global, N / 512, 256, 0, &k, &v, &n, &size, &stride, &dir);
		}
	}
	program_get(sorted, k, sizeof(sorted));
	program_get(moved, v, sizeof(moved));
	program_check(&p, in_order(1), "the bitonic order");
	program_exact(&p, "keys", sorted, sizeof(sorted));
	program_exact(&p, "values", moved, sizeof(moved));
	CU(cuMemcpyHtoD(k, keys, sizeof(keys)));
	CU(cuMemcpyHtoD(v, values, sizeof(values)));
	global = program_kernel(&p, "oddEvenGlobal");
	dir = 0;
	for (unsigned size = 2; size <= N; size *= 2) {
		for (unsigned stride = size / 2; stride > 0; stride /= 2) {
			LAUNCH(global, N / 512, 256, 0, &k, &v, &n, &size, &stride, &dir);
		}
	}
	program_get(sorted, k, sizeof(sorted));
	program_get(moved, v, sizeof(moved));
	program_check(&p, in_order(0), "the odd-even order");
	program_exact(&p, "down", sorted, sizeof(sorted));
	program_exact(&p, "places", moved, sizeof(moved));
	return program_close(&p);
}

/* Inclusive prefix sum: Hillis and Steele within each block, then the blocks' offsets are added. */
#include "cuda_words.h"

KERNEL scan_blocks(const int *in, int *out, int *totals, int n)
{
	__shared__ int line[2][256];
	int t = threadIdx_x, i = GLOBAL_INDEX, from = 0;

	line[0][t] = i < n ? in[i] : 0;
	syncthreads();
	for (int d = 1; d < 256; d *= 2) {
		int v = line[from][t];

		if (t >= d) {
			v += line[from][t - d];
		}
		line[1 - from][t] = v;
		from = 1 - from;
		syncthreads();
	}
	if (i < n) {
		out[i] = line[from][t];
	}
	if (t == 255) {
		totals[blockIdx_x] = line[from][255];
	}
}

KERNEL scan_add(int *out, const int *totals, int n)
{
	int i = GLOBAL_INDEX, sum = 0;

	for (int b = 0; b < (int)blockIdx_x; b++) {
		sum += totals[b];
	}
	if (i < n) {
		out[i] += sum;
	}
}

/* c = a b for n x n matrices, 16 x 16 tiles in shared memory */
#include "cuda_words.h"

KERNEL matmul(const float *a, const float *b, float *c, int n)
{
	__shared__ float ta[16][16], tb[16][16];
	int tx = threadIdx_x, ty = threadIdx_y;
	int x = blockIdx_x * 16 + tx, y = blockIdx_y * 16 + ty;
	float sum = 0;

	for (int k = 0; k < n; k += 16) {
		ta[ty][tx] = a[y * n + k + tx];
		tb[ty][tx] = b[(k + ty) * n + x];
		syncthreads();
		for (int i = 0; i < 16; i++) {
			sum = __builtin_fmaf(ta[ty][i], tb[i][tx], sum);
		}
		syncthreads();
	}
	c[y * n + x] = sum;
}

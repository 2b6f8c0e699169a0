// Dynamic shared memory of more than 48 KiB, used as several arrays of several types behind static
// ones.
#include "words.h"

extern __shared__ __attribute__((aligned(16))) unsigned char room[];

extern "C" __global__ void rearrange(int *out, double *sums, const int *in, int n)
{
	__shared__ int fixed[33];
	double *d = (double *)room;
	int *i = (int *)(room + blockDim.x * sizeof(double));
	short *h = (short *)(i + n);
	int t = threadIdx.x;

	fixed[t % 33] = 0;
	for (int k = t; k < n; k += blockDim.x) {
		i[n - 1 - k] = in[k];
		h[k] = (short)(in[k] * 3);
	}
	d[t] = t * 0.5;
	__syncthreads();
	if (t < 33) {
		fixed[t] = t;
	}
	__syncthreads();
	for (int k = t; k < n; k += blockDim.x) {
		out[k] = i[k] + h[n - 1 - k] + fixed[k % 33];
	}
	for (int step = blockDim.x / 2; step > 0; step /= 2) {
		if (t < step) {
			d[t] += d[t + step];
		}
		__syncthreads();
	}
	if (t == 0) {
		sums[blockIdx.x] = d[0];
	}
}

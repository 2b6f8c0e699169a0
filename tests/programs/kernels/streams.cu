// Small kernels for streams, events and graphs: each a step whose order shows in the result.
#include "words.h"

extern "C" __global__ void fill(int *out, int value, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		out[i] = value;
	}
}

extern "C" __global__ void affine(int *v, int factor, int add, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		v[i] = v[i] * factor + add;
	}
}

extern "C" __global__ void combine(int *out, const int *a, const int *b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		out[i] = a[i] * 31 + b[i];
	}
}

extern "C" __global__ void busy(int *out, int rounds)
{
	unsigned v = threadIdx.x + blockIdx.x * blockDim.x;

	for (int r = 0; r < rounds; r++) {
		v = v * 1664525u + 1013904223u;
	}
	out[blockIdx.x * blockDim.x + threadIdx.x] = (int)v;
}

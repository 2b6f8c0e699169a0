// Prefix sums: work-efficient tree in a block, sums of blocks scanned once more and added; and
// inclusive scans with shuffles.
#include "words.h"

#define SKEW(i) ((i) + ((i) >> 5))

extern "C" __global__ void scanBlocks(int *out, int *sums, const int *in, int n)
{
	extern __shared__ int tree[];
	int t = threadIdx.x, m = blockDim.x * 2, base = blockIdx.x * m, offset = 1;

	tree[SKEW(2 * t)] = base + 2 * t < n ? in[base + 2 * t] : 0;
	tree[SKEW(2 * t + 1)] = base + 2 * t + 1 < n ? in[base + 2 * t + 1] : 0;
	for (int d = m >> 1; d > 0; d >>= 1) {
		__syncthreads();
		if (t < d) {
			tree[SKEW(offset * (2 * t + 2) - 1)] += tree[SKEW(offset * (2 * t + 1) - 1)];
		}
		offset *= 2;
	}
	if (t == 0) {
		if (sums) {
			sums[blockIdx.x] = tree[SKEW(m - 1)];
		}
		tree[SKEW(m - 1)] = 0;
	}
	for (int d = 1; d < m; d *= 2) {
		offset >>= 1;
		__syncthreads();
		if (t < d) {
			int left = SKEW(offset * (2 * t + 1) - 1), right = SKEW(offset * (2 * t + 2) - 1);
			int v = tree[left];

			tree[left] = tree[right];
			tree[right] += v;
		}
	}
	__syncthreads();
	if (base + 2 * t < n) {
		out[base + 2 * t] = tree[SKEW(2 * t)];
	}
	if (base + 2 * t + 1 < n) {
		out[base + 2 * t + 1] = tree[SKEW(2 * t + 1)];
	}
}

extern "C" __global__ void addSums(int *out, const int *sums, int n)
{
	__shared__ int add;
	int m = blockDim.x * 2, i = blockIdx.x * m + threadIdx.x;

	if (threadIdx.x == 0) {
		add = sums[blockIdx.x];
	}
	__syncthreads();
	if (i < n) {
		out[i] += add;
	}
	if (i + (int)blockDim.x < n) {
		out[i + blockDim.x] += add;
	}
}

extern "C" __global__ void scanShuffle(int *out, const int *in, int n)
{
	__shared__ int sums[32];
	int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
	int v = i < n ? in[i] : 0;

	for (int d = 1; d < 32; d *= 2) {
		int w = __shfl_up_sync(0xffffffffu, v, d);

		if (lane >= d) {
			v += w;
		}
	}
	if (lane == 31) {
		sums[threadIdx.x / 32] = v;
	}
	__syncthreads();
	for (unsigned k = 0; k < threadIdx.x / 32; k++) {
		v += sums[k];
	}
	if (i < n) {
		out[i] = v;
	}
}

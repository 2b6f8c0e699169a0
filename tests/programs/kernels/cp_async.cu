// Tiles that come by asynchronous copies while the previous ones are used: cp.async in groups.
#include <cuda_pipeline.h>

#define TILE 128

extern "C" __global__ __launch_bounds__(TILE) void tiles(float *out, const float *in, int n_tiles)
{
	__shared__ __align__(16) float stage[2][TILE];
	int t = threadIdx.x;
	float sum = 0;

	if (t < TILE / 4) {
		__pipeline_memcpy_async(&stage[0][t * 4], &in[blockIdx.x * TILE + t * 4], 16);
	}
	__pipeline_commit();
	for (int i = 0; i < n_tiles; i++) {
		int next = (blockIdx.x + (i + 1) * gridDim.x) * TILE;

		if (i + 1 < n_tiles && t < TILE / 4) {
			__pipeline_memcpy_async(&stage[(i + 1) & 1][t * 4], &in[next + t * 4], 16);
		}
		__pipeline_commit();
		__pipeline_wait_prior(1);
		__syncthreads();
		sum = fmaf(stage[i & 1][TILE - 1 - t], 0.5f + i, sum);
		__syncthreads();
	}
	out[blockIdx.x * TILE + t] = sum;
}

// Parts of four and eight bytes, the rest filled with zeros.
extern "C" __global__ void zeroFill(int *out, const int *in, int n)
{
	__shared__ __align__(16) int stage[64];
	int t = threadIdx.x;

	__pipeline_memcpy_async(&stage[t * 2], &in[t * 2], 8, t * 2 < n ? 0 : 8);
	__pipeline_commit();
	__pipeline_wait_prior(0);
	__syncthreads();
	out[t * 2] = stage[t * 2 + 1];
	out[t * 2 + 1] = stage[t * 2];
}

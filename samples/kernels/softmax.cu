/* Row-wise softmax, one block per row: maximum, sum and division with warp shuffles. */
#include "cuda_words.h"

static __device__ float exp_of(float x)
{
	return __nvvm_ex2_approx_f(x * 1.4426950408889634f);
}

static __device__ float warp_max(float v)
{
	for (int d = 16; d > 0; d /= 2) {
		v = __builtin_fmaxf(v, __nvvm_shfl_sync_bfly_f32(-1, v, d, 31));
	}
	return v;
}

static __device__ float warp_sum(float v)
{
	for (int d = 16; d > 0; d /= 2) {
		v += __nvvm_shfl_sync_bfly_f32(-1, v, d, 31);
	}
	return v;
}

KERNEL softmax(const float *in, float *out, int width)
{
	__shared__ float part[4];
	const float *row = in + blockIdx_x * width;
	int t = threadIdx_x, warp = t / 32;
	float top = -3.4e38f, sum = 0;

	for (int i = t; i < width; i += 128) {
		top = __builtin_fmaxf(top, row[i]);
	}
	top = warp_max(top);
	if (t % 32 == 0) {
		part[warp] = top;
	}
	syncthreads();
	top = __builtin_fmaxf(__builtin_fmaxf(part[0], part[1]), __builtin_fmaxf(part[2], part[3]));
	syncthreads();
	for (int i = t; i < width; i += 128) {
		sum += exp_of(row[i] - top);
	}
	sum = warp_sum(sum);
	if (t % 32 == 0) {
		part[warp] = sum;
	}
	syncthreads();
	sum = part[0] + part[1] + part[2] + part[3];
	for (int i = t; i < width; i += 128) {
		out[blockIdx_x * width + i] = exp_of(row[i] - top) / sum;
	}
}

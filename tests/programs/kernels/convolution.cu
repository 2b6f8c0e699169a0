// Separable convolution with weights in constant memory, and a transpose without bank conflicts.
#include "words.h"

#define RADIUS 8
#define ROWS 8

__constant__ float taps[2 * RADIUS + 1];

extern "C" __global__ void convolveRows(float *out, const float *in, int w, int h)
{
	__shared__ float line[4][16 * (ROWS + 2)];
	int base = (blockIdx.x * ROWS - 1) * 16, y = blockIdx.y * 4 + threadIdx.y;

	for (int i = 0; i < ROWS + 2; i++) {
		int x = base + i * 16 + threadIdx.x;

		line[threadIdx.y][threadIdx.x + i * 16] = x >= 0 && x < w ? in[y * w + x] : 0;
	}
	__syncthreads();
	for (int i = 1; i <= ROWS; i++) {
		float sum = 0;

#pragma unroll
		for (int j = -RADIUS; j <= RADIUS; j++) {
			sum = fmaf(taps[RADIUS - j], line[threadIdx.y][threadIdx.x + i * 16 + j], sum);
		}
		out[y * w + base + i * 16 + threadIdx.x] = sum;
	}
}

extern "C" __global__ void transpose(float *out, const float *in, int w, int h)
{
	__shared__ float tile[16][17];
	int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;

	tile[threadIdx.y][threadIdx.x] = in[y * w + x];
	__syncthreads();
	out[(blockIdx.x * 16 + threadIdx.y) * h + blockIdx.y * 16 + threadIdx.x] =
		tile[threadIdx.x][threadIdx.y];
}

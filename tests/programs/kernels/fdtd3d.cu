// A star-shaped stencil of radius 4 in three dimensions: the plane in shared memory, the third
// dimension in registers that move along.
#include "words.h"

#define RADIUS 4
#define TILE_X 16
#define TILE_Y 8

__constant__ float weights[RADIUS + 1];

extern "C" __global__ __launch_bounds__(TILE_X *TILE_Y) void finiteDifferences(float *out,
									       const float *in,
									       int dimx, int dimy,
									       int dimz)
{
	__shared__ float tile[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
	int x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
	int tx = threadIdx.x + RADIUS, ty = threadIdx.y + RADIUS;
	int row = dimx + 2 * RADIUS, plane = row * (dimy + 2 * RADIUS);
	int at = (y + RADIUS) * row + x + RADIUS, to = at + RADIUS * plane;
	float front[RADIUS], behind[RADIUS], current;

	for (int i = RADIUS - 2; i >= 0; i--) {
		behind[i] = in[at];
		at += plane;
	}
	current = in[at];
	at += plane;
	for (int i = 0; i < RADIUS; i++) {
		front[i] = in[at];
		at += plane;
	}
	for (int z = 0; z < dimz; z++) {
		for (int i = RADIUS - 1; i > 0; i--) {
			behind[i] = behind[i - 1];
		}
		behind[0] = current;
		current = front[0];
		for (int i = 0; i < RADIUS - 1; i++) {
			front[i] = front[i + 1];
		}
		front[RADIUS - 1] = in[at];
		at += plane;
		__syncthreads();
		tile[ty][tx] = current;
		if (threadIdx.y < RADIUS) {
			tile[threadIdx.y][tx] = in[to - RADIUS * row];
			tile[threadIdx.y + TILE_Y + RADIUS][tx] = in[to + TILE_Y * row];
		}
		if (threadIdx.x < RADIUS) {
			tile[ty][threadIdx.x] = in[to - RADIUS];
			tile[ty][threadIdx.x + TILE_X + RADIUS] = in[to + TILE_X];
		}
		__syncthreads();
		float value = weights[0] * current;

#pragma unroll
		for (int i = 1; i <= RADIUS; i++) {
			value = fmaf(weights[i],
				     front[i - 1] + behind[i - 1] + tile[ty - i][tx] + tile[ty + i][tx] +
					     tile[ty][tx - i] + tile[ty][tx + i],
				     value);
		}
		out[to] = value;
		to += plane;
	}
}

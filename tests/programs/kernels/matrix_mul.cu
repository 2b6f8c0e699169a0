// C = A * B with tiles in shared memory: sizes of tiles as template arguments, and once with the
// tile in dynamic shared memory.
#include "words.h"

template <int TILE, typename T>
static __device__ void multiply(T *c, const T *a, const T *b, T (*ta)[TILE], T (*tb)[TILE], int wa,
				int wb)
{
	int tx = threadIdx.x, ty = threadIdx.y;
	int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
	T sum = 0;

	for (int k = 0; k < wa; k += TILE) {
		ta[ty][tx] = a[row * wa + k + tx];
		tb[ty][tx] = b[(k + ty) * wb + col];
		__syncthreads();
#pragma unroll
		for (int i = 0; i < TILE; i++) {
			sum += ta[ty][i] * tb[i][tx];
		}
		__syncthreads();
	}
	c[row * wb + col] = sum;
}

#define STATIC_TILE(name, TILE, T)                                                      \
	extern "C" __global__ void name(T *c, const T *a, const T *b, int wa, int wb)   \
	{                                                                               \
		__shared__ T ta[TILE][TILE], tb[TILE][TILE];                            \
		multiply<TILE, T>(c, a, b, ta, tb, wa, wb);                             \
	}
STATIC_TILE(matrixMul16, 16, float)
STATIC_TILE(matrixMul32, 32, float)
STATIC_TILE(matrixMul8d, 8, double)

extern __shared__ float tiles[];
extern "C" __global__ void matrixMulDynamic(float *c, const float *a, const float *b, int wa, int wb)
{
	float(*ta)[16] = (float(*)[16])tiles, (*tb)[16] = ta + 16;

	multiply<16, float>(c, a, b, ta, tb, wa, wb);
}

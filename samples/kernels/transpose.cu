/* out = transposed in, through 16 x 16 tiles of shared memory (17 wide: no bank conflicts) */
#include "cuda_words.h"

KERNEL transpose(const float *in, float *out, int width, int height)
{
	__shared__ float tile[16][17];
	int x = blockIdx_x * 16 + threadIdx_x, y = blockIdx_y * 16 + threadIdx_y;

	if (x < width && y < height) {
		tile[threadIdx_y][threadIdx_x] = in[y * width + x];
	}
	syncthreads();
	x = blockIdx_y * 16 + threadIdx_x;
	y = blockIdx_x * 16 + threadIdx_y;
	if (x < height && y < width) {
		out[y * height + x] = tile[threadIdx_x][threadIdx_y];
	}
}

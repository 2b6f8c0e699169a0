/* One time step of a heat stencil: each cell moves towards its neighbours and its power source. */
#include "cuda_words.h"

KERNEL hotspot(const float *temp, const float *power, float *out, int width, int height)
{
	int x = blockIdx_x * 16 + threadIdx_x, y = blockIdx_y * 16 + threadIdx_y;
	int at = y * width + x;
	float here, around;

	if (x >= width || y >= height) {
		return;
	}
	here = temp[at];
	around = (x > 0 ? temp[at - 1] : here) + (x < width - 1 ? temp[at + 1] : here) +
		 (y > 0 ? temp[at - width] : here) + (y < height - 1 ? temp[at + width] : here);
	out[at] = here + 0.125f * (around - 4.0f * here) + 0.01f * power[at];
}

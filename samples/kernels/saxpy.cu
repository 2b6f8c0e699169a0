/* y = a * x + y, with a stride loop over the grid */
#include "cuda_words.h"

KERNEL saxpy(float a, const float *x, float *y, int n)
{
	int step = blockDim_x * gridDim_x;

	for (int i = GLOBAL_INDEX; i < n; i += step) {
		y[i] = __builtin_fmaf(a, x[i], y[i]);
	}
}

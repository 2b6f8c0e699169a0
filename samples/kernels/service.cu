/* The kernels of lcserve and batch: work of adjustable duration whose result can be checked to the
 * bit. */
#include "cuda_words.h"

/* data[i] = f(f(... data[i])) with f(v) = v * a + b, iterations times */
KERNEL service_step(float *data, float a, float b, int iterations, int n)
{
	int i = GLOBAL_INDEX;
	float v;

	if (i >= n) {
		return;
	}
	v = data[i];
	for (int k = 0; k < iterations; k++) {
		v = __builtin_fmaf(v, a, b);
	}
	data[i] = v;
}

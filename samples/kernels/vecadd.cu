/* c = a + b */
#include "cuda_words.h"

KERNEL vecadd(const float *a, const float *b, float *c, int n)
{
	int i = GLOBAL_INDEX;

	if (i < n) {
		c[i] = a[i] + b[i];
	}
}

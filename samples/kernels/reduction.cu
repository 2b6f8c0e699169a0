/* Sum of integers: tree in shared memory, then one atomic per block. */
#include "cuda_words.h"

KERNEL reduction(const int *in, int *sum, int n)
{
	__shared__ int part[256];
	int t = threadIdx_x, i = GLOBAL_INDEX;

	part[t] = i < n ? in[i] : 0;
	syncthreads();
	for (int half = 128; half > 0; half /= 2) {
		if (t < half) {
			part[t] += part[t + half];
		}
		syncthreads();
	}
	if (t == 0) {
		__nvvm_atom_add_gen_i(sum, part[0]);
	}
}

/* 256 bins of bytes: atomics in shared memory, merged by atomics in global memory. */
#include "cuda_words.h"

KERNEL histogram(const unsigned char *in, int *bins, int n)
{
	__shared__ int local[256];
	int t = threadIdx_x, step = blockDim_x * gridDim_x;

	local[t] = 0;
	syncthreads();
	for (int i = GLOBAL_INDEX; i < n; i += step) {
		__nvvm_atom_add_gen_i(&local[in[i]], 1);
	}
	syncthreads();
	__nvvm_atom_add_gen_i(&bins[t], local[t]);
}

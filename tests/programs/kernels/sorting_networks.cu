// Bitonic sort and odd-even merge sort of key and value pairs: in shared memory while a pair of
// runs fits, in global memory beyond.
#include "words.h"

#define SHARED_SIZE 256u

static __device__ __forceinline__ void compare(unsigned &ka, unsigned &va, unsigned &kb, unsigned &vb,
					       unsigned up)
{
	if ((ka > kb) == up) {
		unsigned t = ka;

		ka = kb;
		kb = t;
		t = va;
		va = vb;
		vb = t;
	}
}

extern "C" __global__ void bitonicShared(unsigned *keys, unsigned *values)
{
	__shared__ unsigned k[SHARED_SIZE], v[SHARED_SIZE];
	unsigned t = threadIdx.x, base = blockIdx.x * SHARED_SIZE + t, half = SHARED_SIZE / 2;

	k[t] = keys[base];
	v[t] = values[base];
	k[t + half] = keys[base + half];
	v[t + half] = values[base + half];
	for (unsigned size = 2; size < SHARED_SIZE; size <<= 1) {
		unsigned up = (t & (size / 2)) != 0;

		for (unsigned stride = size / 2; stride > 0; stride >>= 1) {
			unsigned at = 2 * t - (t & (stride - 1));

			__syncthreads();
			compare(k[at], v[at], k[at + stride], v[at + stride], up);
		}
	}
	for (unsigned stride = half; stride > 0; stride >>= 1) {
		unsigned at = 2 * t - (t & (stride - 1));

		__syncthreads();
		compare(k[at], v[at], k[at + stride], v[at + stride], blockIdx.x & 1);
	}
	__syncthreads();
	keys[base] = k[t];
	values[base] = v[t];
	keys[base + half] = k[t + half];
	values[base + half] = v[t + half];
}

extern "C" __global__ void bitonicGlobal(unsigned *keys, unsigned *values, unsigned length,
					 unsigned size, unsigned stride, unsigned dir)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, c = i & (length / 2 - 1);
	unsigned up = dir ^ ((c & (size / 2)) != 0), at = 2 * i - (i & (stride - 1));
	unsigned ka = keys[at], va = values[at], kb = keys[at + stride], vb = values[at + stride];

	compare(ka, va, kb, vb, up);
	keys[at] = ka;
	values[at] = va;
	keys[at + stride] = kb;
	values[at + stride] = vb;
}

extern "C" __global__ void oddEvenGlobal(unsigned *keys, unsigned *values, unsigned length,
					 unsigned size, unsigned stride, unsigned dir)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, at = 2 * i - (i & (stride - 1));

	if (stride < size / 2) {
		unsigned offset = i & (size / 2 - 1);

		if (offset >= stride) {
			compare(keys[at - stride], values[at - stride], keys[at], values[at], dir);
		}
	} else {
		compare(keys[at], values[at], keys[at + stride], values[at + stride], dir);
	}
}

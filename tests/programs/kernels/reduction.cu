// Sums in seven ways, from neighbours in shared memory to shuffles, each with one word a block.
#include "words.h"

#define ENTRY(name, T) extern "C" __global__ void name(const T *in, T *out, unsigned n)

ENTRY(reduceInterleaved, int)
{
	__shared__ int s[1024];
	unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;

	s[t] = i < n ? in[i] : 0;
	__syncthreads();
	for (unsigned step = 1; step < blockDim.x; step *= 2) {
		if (t % (2 * step) == 0) {
			s[t] += s[t + step];
		}
		__syncthreads();
	}
	if (t == 0) {
		out[blockIdx.x] = s[0];
	}
}

extern __shared__ int words[];
ENTRY(reduceSequential, int)
{
	unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;

	words[t] = i < n ? in[i] : 0;
	__syncthreads();
	for (unsigned step = blockDim.x / 2; step > 0; step >>= 1) {
		if (t < step) {
			words[t] += words[t + step];
		}
		__syncthreads();
	}
	if (t == 0) {
		out[blockIdx.x] = words[0];
	}
}

// The last warp goes on without barriers, through volatile words.
template <unsigned BLOCK> static __device__ void unrolled(const int *in, int *out, unsigned n)
{
	__shared__ volatile int s[BLOCK + 32];
	unsigned t = threadIdx.x;
	int sum = 0;

	for (unsigned i = blockIdx.x * BLOCK + t; i < n; i += BLOCK * gridDim.x) {
		sum += in[i];
	}
	s[t] = sum;
	if (t < 32) {
		s[BLOCK + t] = 0;
	}
	__syncthreads();
	if (BLOCK >= 512) {
		if (t < 256) {
			s[t] += s[t + 256];
		}
		__syncthreads();
	}
	if (BLOCK >= 256) {
		if (t < 128) {
			s[t] += s[t + 128];
		}
		__syncthreads();
	}
	if (BLOCK >= 128) {
		if (t < 64) {
			s[t] += s[t + 64];
		}
		__syncthreads();
	}
	if (t < 32) {
		s[t] = s[t] + s[t + 32];
		for (int step = 16; step > 0; step >>= 1) {
			int v = s[t + step];

			__syncwarp();
			s[t] += v;
			__syncwarp();
		}
	}
	if (t == 0) {
		out[blockIdx.x] = s[0];
	}
}
ENTRY(reduceUnrolled128, int)
{
	unrolled<128>(in, out, n);
}
ENTRY(reduceUnrolled512, int)
{
	unrolled<512>(in, out, n);
}

template <typename T> static __device__ void shuffled(const T *in, T *out, unsigned n)
{
	__shared__ T s[32];
	unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	T sum = 0;

	for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
		sum += in[i];
	}
	for (int step = 16; step > 0; step >>= 1) {
		sum += __shfl_down_sync(0xffffffffu, sum, step);
	}
	if (lane == 0) {
		s[warp] = sum;
	}
	__syncthreads();
	if (warp == 0) {
		sum = threadIdx.x < blockDim.x / 32 ? s[lane] : T(0);
		for (int step = 16; step > 0; step >>= 1) {
			sum += __shfl_down_sync(0xffffffffu, sum, step);
		}
		if (lane == 0) {
			out[blockIdx.x] = sum;
		}
	}
}
ENTRY(reduceShuffle, int)
{
	shuffled<int>(in, out, n);
}
ENTRY(reduceShuffleFloat, float)
{
	shuffled<float>(in, out, n);
}

// The block that ends last adds what the others have left in memory.
__device__ unsigned blocks_done;
ENTRY(reduceLastBlock, int)
{
	__shared__ int s[32];
	__shared__ bool last;
	int sum = 0;

	for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
		sum += in[i];
	}
	for (int step = 16; step > 0; step >>= 1) {
		sum += __shfl_xor_sync(0xffffffffu, sum, step);
	}
	s[threadIdx.x / 32] = sum;
	__syncthreads();
	if (threadIdx.x == 0) {
		sum = 0;
		for (unsigned i = 0; i < blockDim.x / 32; i++) {
			sum += s[i];
		}
		out[1 + blockIdx.x] = sum;
		__threadfence();
		last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
	}
	__syncthreads();
	if (last && threadIdx.x == 0) {
		volatile int *v = out;

		sum = 0;
		for (unsigned i = 0; i < gridDim.x; i++) {
			sum += v[1 + i];
		}
		out[0] = sum;
	}
}

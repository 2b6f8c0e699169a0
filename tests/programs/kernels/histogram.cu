// Histograms of 64 bins (bytes of shared memory, one column a thread) and of 256 bins (one table a
// warp with shared atomics), merged by a second kernel.
#include "words.h"

#define BINS64_THREADS 64

extern "C" __global__ void histogram64(unsigned *partial, const unsigned *data, unsigned n)
{
	__shared__ unsigned char column[64 * BINS64_THREADS];
	unsigned t = threadIdx.x, rounds = 0;

	for (unsigned i = 0; i < 16; i++) {
		((unsigned *)column)[t + i * BINS64_THREADS] = 0;
	}
	__syncthreads();
	for (unsigned i = blockIdx.x * BINS64_THREADS + t; i < n && rounds < 63;
	     i += BINS64_THREADS * gridDim.x, rounds++) {
		unsigned v = data[i];

		column[t + ((v >> 2 & 63) * BINS64_THREADS)]++;
		column[t + ((v >> 10 & 63) * BINS64_THREADS)]++;
		column[t + ((v >> 18 & 63) * BINS64_THREADS)]++;
		column[t + ((v >> 26 & 63) * BINS64_THREADS)]++;
	}
	__syncthreads();
	if (t < 64) {
		unsigned sum = 0, at = t;

		for (unsigned i = 0; i < BINS64_THREADS; i++) {
			sum += column[t * BINS64_THREADS + at];
			at = (at + 1) & (BINS64_THREADS - 1);
		}
		partial[blockIdx.x * 64 + t] = sum;
	}
}

#define WARPS 6
extern "C" __global__ __launch_bounds__(WARPS * 32) void histogram256(unsigned *partial,
								     const unsigned *data, unsigned n)
{
	__shared__ unsigned bins[WARPS * 256];
	unsigned *mine = bins + (threadIdx.x >> 5) * 256;

	for (unsigned i = threadIdx.x; i < WARPS * 256; i += WARPS * 32) {
		bins[i] = 0;
	}
	__syncthreads();
	for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
		unsigned v = data[i];

		atomicAdd(mine + (v & 255), 1u);
		atomicAdd(mine + (v >> 8 & 255), 1u);
		atomicAdd(mine + (v >> 16 & 255), 1u);
		atomicAdd(mine + (v >> 24), 1u);
	}
	__syncthreads();
	for (unsigned b = threadIdx.x; b < 256; b += WARPS * 32) {
		unsigned sum = 0;

		for (unsigned w = 0; w < WARPS; w++) {
			sum += bins[b + w * 256];
		}
		partial[blockIdx.x * 256 + b] = sum;
	}
}

extern "C" __global__ void mergeHistograms(unsigned *out, const unsigned *partial, unsigned count)
{
	__shared__ unsigned sums[64];
	unsigned sum = 0;

	for (unsigned i = threadIdx.x; i < count; i += 64) {
		sum += partial[blockIdx.x + i * gridDim.x];
	}
	sums[threadIdx.x] = sum;
	for (unsigned step = 32; step > 0; step >>= 1) {
		__syncthreads();
		if (threadIdx.x < step) {
			sums[threadIdx.x] += sums[threadIdx.x + step];
		}
	}
	if (threadIdx.x == 0) {
		out[blockIdx.x] = sums[0];
	}
}

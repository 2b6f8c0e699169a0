// Every atomic operation, in global and in shared memory; the result does not depend on the order.
#include "words.h"

static __device__ double add_double(double *p, double v)
{
	unsigned long long *bits = (unsigned long long *)p, old = *bits, seen;

	do {
		union { unsigned long long u; double d; } x;
		seen = old;
		x.u = seen;
		x.d += v;
		old = atomicCAS(bits, seen, x.u);
	} while (old != seen);
	return v;
}

extern "C" __global__ void atomics(int *g, unsigned long long *w, float *f, double *d)
{
	__shared__ int s[4];
	unsigned tid = blockDim.x * blockIdx.x + threadIdx.x;
	int t = threadIdx.x;

	if (t < 4) {
		s[t] = t == 3 ? -1 : 0;
	}
	__syncthreads();
	atomicAdd(&g[0], 10);
	atomicSub(&g[1], 10);
	atomicExch(&g[2], 77);
	atomicMax(&g[3], (int)tid);
	atomicMin(&g[4], (int)tid - 5);
	atomicInc((unsigned *)&g[5], 17);
	atomicDec((unsigned *)&g[6], 137);
	atomicCAS(&g[7], 7, 8);
	atomicAnd(&g[8], 2 * (int)tid + 7);
	atomicOr(&g[9], 1 << (tid & 31));
	atomicXor(&g[10], (int)tid);
	atomicMax((unsigned *)&g[11], 0x80000000u + tid);
	atomicAdd(&w[0], 0x100000001ull);
	atomicAdd(f, 0.5f);
	add_double(d, 0.25);
	atomicAdd(&s[0], t);
	atomicMax(&s[1], t * 3);
	atomicXor(&s[2], t * 5);
	atomicAnd(&s[3], ~(1 << (t & 15)));
	__syncthreads();
	if (t < 4) {
		atomicAdd(&g[12 + t], s[t]);
	}
}

// Kernels of many forms, for the reader, patcher and checker of cubins. tests/data/cubins/make compiles
// them; they are never run.
#include <stdio.h>

extern "C" {
__device__ int words[64];
__device__ int initialized[4] = { 1, 2, 3, 4 };
__constant__ int table[16] = { 3, 1, 4, 1, 5, 9, 2, 6 };

__global__ void no_params()
{
	words[threadIdx.x] = blockIdx.z;
}

__global__ void two_params(int *to, int x)
{
	to[threadIdx.x + blockIdx.x * blockDim.x] = x + table[threadIdx.x % 16] + initialized[x & 3];
}

__global__ void odd_params(char a, short b, char c, long long *to, char d)
{
	*to = a + b + c + d;
}

struct large {
	int v[900];
};

__global__ void large_param(struct large l, int *to)
{
	to[threadIdx.x] = l.v[threadIdx.x];
}

#define FOUR(x) int x##0, int x##1, int x##2, int x##3
#define SUM(x) x##0 + x##1 + x##2 + x##3
__global__ void many_params(FOUR(a), FOUR(b), FOUR(c), FOUR(d), FOUR(e), FOUR(f), FOUR(g), FOUR(h), int *to)
{
	*to = SUM(a) * SUM(b) + SUM(c) * SUM(d) - SUM(e) * SUM(f) + SUM(g) * SUM(h);
}

__global__ void __launch_bounds__(128) many_registers(volatile float4 *p)
{
	float v[240];

#pragma unroll
	for (int i = 0; i < 60; i++) {
		asm volatile("ld.volatile.global.v4.f32 {%0, %1, %2, %3}, [%4];"
			     : "=f"(v[4 * i]), "=f"(v[4 * i + 1]), "=f"(v[4 * i + 2]), "=f"(v[4 * i + 3])
			     : "l"(p + i)
			     : "memory");
	}
#pragma unroll
	for (int i = 0; i < 60; i++) {
		asm volatile("st.volatile.global.v4.f32 [%4], {%0, %1, %2, %3};" ::"f"(v[239 - 4 * i]),
			     "f"(v[238 - 4 * i]), "f"(v[237 - 4 * i]), "f"(v[236 - 4 * i]), "l"(p + i)
			     : "memory");
	}
}

__global__ void shared_memory(int *p)
{
	extern __shared__ int dynamic[];
	__shared__ int fixed[32];

	fixed[threadIdx.x & 31] = p[threadIdx.x];
	dynamic[threadIdx.x] = p[threadIdx.x + 1];
	__syncthreads();
	p[threadIdx.x] = dynamic[threadIdx.x ^ 1] + fixed[(threadIdx.x ^ 2) & 31];
}

__global__ void named_barriers(int *p)
{
	asm volatile("barrier.sync 5, 64;" ::: "memory");
	p[threadIdx.x] = p[threadIdx.x + 64];
}

__device__ __noinline__ int recurse(int n)
{
	return n < 2 ? n : recurse(n - 1) + recurse(n - 2);
}

__global__ void recursion(int *p)
{
	*p = recurse(*p);
}

__device__ __noinline__ int add(int a, int b)
{
	return a + b;
}

__device__ __noinline__ int multiply(int a, int b)
{
	return a * b;
}

__device__ int (*volatile functions[2])(int, int) = { add, multiply };

__global__ void function_pointers(int *p, int which)
{
	*p = functions[which](p[1], p[2]);
}

__global__ void prints(int x)
{
	printf("%d\n", x);
}

__global__ void jump_table(int *p, int x)
{
	switch (x) {
	case 0:
		p[0] = p[9];
		break;
	case 1:
		p[1] = p[8] * 3;
		break;
	case 2:
		p[2] ^= p[7];
		break;
	case 3:
		p[3] /= p[6];
		break;
	case 4:
		p[4] %= p[5];
		break;
	case 5:
		p[5] = __popc(p[4]);
		break;
	case 6:
		p[6] = p[3] << p[4];
		break;
	case 7:
		p[7] = p[2] - p[3];
		break;
	}
}

__global__ void texture(unsigned long long tex, float *p)
{
	float x, y, z, w;

	asm volatile("tex.2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
		     : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
		     : "l"(tex), "f"(p[0]), "f"(p[1]));
	p[threadIdx.x] = x + y + z + w;
}

__global__ void loops(int *p)
{
	for (;;) {
		if (*(volatile int *)p) {
			break;
		}
	}
}

__global__ void for_ever(int *p)
{
	for (;;) {
		*(volatile int *)p += 1;
	}
}

__global__ void votes(int *p)
{
	p[threadIdx.x] = __shfl_xor_sync(0xffffffff, p[threadIdx.x], 3) + __ballot_sync(0xffffffff, p[0]);
}
}

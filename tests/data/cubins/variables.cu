// Kernels that use variables of their module by addresses in bank 4 (uses_*), call functions of the driver (prints, checks,
// allocates), functions by number (by_number), or what a copy cannot have (by_constant).
#include <cassert>
#include <cstdio>
#include <cstdlib>

__device__ int counter;
static __device__ int table[8] = { 1, 2, 3 };
__managed__ int shared_by_host;
__constant__ int factors[4];

__device__ __noinline__ int square(int x)
{
	return x * x + 1;
}

__device__ __noinline__ int cube(int x)
{
	return x * x * x - x;
}

__device__ int (*chosen[2])(int) = { square, cube };

extern "C" __global__ void uses_variables(int *p)
{
	atomicAdd(&counter, p[0]);
	p[0] = table[threadIdx.x & 7] + shared_by_host;
}

extern "C" __global__ void uses_static(int *p)
{
	static int n = 5;

	p[0] = n++;
}

extern "C" __global__ void uses_addresses(int **p)
{
	p[0] = &table[2];
	p[1] = &counter;
	p[2] = factors;
}

extern "C" __global__ void checks(int *p)
{
	assert(p[0] > 3);
	p[1] = 2;
}

extern "C" __global__ void prints(int *p)
{
	if (p[1]) {
		printf("%d\n", p[0]);
	}
	p[0] = counter;
}

extern "C" __global__ void allocates(int **p)
{
	p[0] = (int *)malloc(100);
	free(p[1]);
}

extern "C" __global__ void by_number(int *p)
{
	p[0] = chosen[p[2] & 1](p[1]);
}

extern "C" __global__ void by_constant(int *p)
{
	p[0] = factors[threadIdx.x] + counter;
}

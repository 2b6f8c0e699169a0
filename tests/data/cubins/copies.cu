// Kernels of one module: those named own_* compute the same from a second copy of the module, those named module_* use what a
// copy has of its own, but for module_pointer: numbers of functions are constants of the image.
#include <cstdio>

__device__ int counter;
__constant__ int factors[4];
static __device__ int table[8] = { 1, 2, 3 };

__device__ __noinline__ int square(int x)
{
	return x * x + 1;
}

__device__ __noinline__ int cube(int x)
{
	return x * x * x - x;
}

extern __shared__ int dynamic[];

extern "C" __global__ void own_plain(int *p)
{
	p[threadIdx.x] += 1;
}

extern "C" __global__ void own_shared(int *p)
{
	__shared__ int block[64];

	block[threadIdx.x] = p[threadIdx.x];
	dynamic[threadIdx.x] = 1;
	__syncthreads();
	p[threadIdx.x] = block[63 - threadIdx.x] + dynamic[3];
}

extern "C" __global__ void own_calls(int *p)
{
	p[threadIdx.x] = square(p[threadIdx.x]);
}

extern "C" __global__ void own_jumps(int *p, int s)
{
	switch (s) {
	case 0: p[0] = 3; break;
	case 1: p[1] = p[7] * 5; break;
	case 2: p[2] = s * p[9]; break;
	case 3: p[5] = p[4] / p[6]; break;
	case 4: p[8] = 9; break;
	case 5: p[3] = __clz(p[1]); break;
	case 6: p[0] = p[9] % p[1]; break;
	default: p[11] = 1;
	}
}

extern "C" __global__ void module_variable(int *p)
{
	atomicAdd(&counter, 1);
}

extern "C" __global__ void module_table(int *p)
{
	p[threadIdx.x] = table[threadIdx.x & 7];
}

extern "C" __global__ void module_constant(int *p)
{
	p[threadIdx.x] = factors[1];
}

extern "C" __global__ void module_constant_index(int *p)
{
	p[threadIdx.x] = factors[threadIdx.x & 3];
}

extern "C" __global__ void module_pointer(int *p, int s)
{
	int (*f)(int) = s ? square : cube;

	p[threadIdx.x] = f(p[threadIdx.x]);
}

extern "C" __global__ void module_print(int *p)
{
	printf("%d\n", p[0]);
}

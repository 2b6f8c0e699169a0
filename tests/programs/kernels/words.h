/* What the kernels here need of CUDA C when a clang without the CUDA SDK compiles them; nvcc brings
 * its own. */
#pragma once
#if defined(__clang__) && !defined(__NVCC__) && !defined(__CUDACC_RTC__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __restrict__ __restrict
struct uint3 {
	unsigned x, y, z;
};
struct dim3 {
	unsigned x, y, z;
	__host__ __device__ dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
	{
	}
};
struct float4 {
	float x, y, z, w;
} __attribute__((aligned(16)));
struct float2 {
	float x, y;
} __attribute__((aligned(8)));
struct int4 {
	int x, y, z, w;
} __attribute__((aligned(16)));
#include <__clang_cuda_builtin_vars.h>
#define warpSize 32
#define FN static __device__ __forceinline__
FN void __threadfence()
{
	__nvvm_membar_gl();
}
FN void __syncwarp()
{
	__nvvm_bar_warp_sync(0xffffffff);
}
FN int __shfl_down_sync(unsigned m, int v, int d)
{
	return __nvvm_shfl_sync_down_i32(m, v, d, 31);
}
FN int __shfl_up_sync(unsigned m, int v, int d)
{
	return __nvvm_shfl_sync_up_i32(m, v, d, 0);
}
FN int __shfl_xor_sync(unsigned m, int v, int d)
{
	return __nvvm_shfl_sync_bfly_i32(m, v, d, 31);
}
FN float __shfl_down_sync(unsigned m, float v, int d)
{
	return __nvvm_shfl_sync_down_f32(m, v, d, 31);
}
FN unsigned __ballot_sync(unsigned m, int p)
{
	return __nvvm_vote_ballot_sync(m, p);
}
FN int __all_sync(unsigned m, int p)
{
	return __nvvm_vote_all_sync(m, p);
}
FN int __any_sync(unsigned m, int p)
{
	return __nvvm_vote_any_sync(m, p);
}
FN int __popc(unsigned v)
{
	return __builtin_popcount(v);
}
FN int __clz(unsigned v)
{
	return v ? __builtin_clz(v) : 32;
}
FN float fmaf(float a, float b, float c)
{
	return __nvvm_fma_rn_f(a, b, c);
}
FN float rsqrtf(float a)
{
	return __nvvm_rsqrt_approx_f(a);
}
FN int min(int a, int b)
{
	return a < b ? a : b;
}
FN int max(int a, int b)
{
	return a > b ? a : b;
}
FN int atomicAdd(int *p, int v)
{
	return __nvvm_atom_add_gen_i(p, v);
}
FN unsigned atomicAdd(unsigned *p, unsigned v)
{
	return __nvvm_atom_add_gen_i((int *)p, v);
}
FN unsigned long long atomicAdd(unsigned long long *p, unsigned long long v)
{
	return __nvvm_atom_add_gen_ll((long long *)p, v);
}
FN float atomicAdd(float *p, float v)
{
	return __nvvm_atom_add_gen_f(p, v);
}
FN int atomicSub(int *p, int v)
{
	return __nvvm_atom_add_gen_i(p, -v);
}
FN int atomicExch(int *p, int v)
{
	return __nvvm_atom_xchg_gen_i(p, v);
}
FN int atomicMax(int *p, int v)
{
	return __nvvm_atom_max_gen_i(p, v);
}
FN int atomicMin(int *p, int v)
{
	return __nvvm_atom_min_gen_i(p, v);
}
FN unsigned atomicMax(unsigned *p, unsigned v)
{
	return __nvvm_atom_max_gen_ui(p, v);
}
FN unsigned atomicInc(unsigned *p, unsigned v)
{
	return __nvvm_atom_inc_gen_ui(p, v);
}
FN unsigned atomicDec(unsigned *p, unsigned v)
{
	return __nvvm_atom_dec_gen_ui(p, v);
}
FN int atomicCAS(int *p, int a, int b)
{
	return __nvvm_atom_cas_gen_i(p, a, b);
}
FN unsigned long long atomicCAS(unsigned long long *p, unsigned long long a, unsigned long long b)
{
	return __nvvm_atom_cas_gen_ll((long long *)p, a, b);
}
FN int atomicAnd(int *p, int v)
{
	return __nvvm_atom_and_gen_i(p, v);
}
FN int atomicOr(int *p, int v)
{
	return __nvvm_atom_or_gen_i(p, v);
}
FN int atomicXor(int *p, int v)
{
	return __nvvm_atom_xor_gen_i(p, v);
}
#undef FN
#endif

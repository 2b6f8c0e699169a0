// Halves and bfloat16: arithmetic, comparisons, conversions with their roundings, pairs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void halves(unsigned short *out, const unsigned short *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n) {
		return;
	}
	__half a = __ushort_as_half(in[i]), b = __ushort_as_half(in[(i * 7 + 3) % n]),
	       c = __ushort_as_half(in[(i * 5 + 1) % n]);
	__half r[16] = {
		__hadd(a, b), __hsub(a, b), __hmul(a, b), __hfma(a, b, c), __hneg(a), __habs(a),
		__hmin(a, b), __hmax(a, b), __hadd_sat(a, b), __hmul_sat(a, b), __hfma_sat(a, b, c),
		__hdiv(a, b), __float2half_rz(__half2float(a) * 1.0009765625f),
		__float2half_ru(__half2float(a) * 1.0009765625f),
		__float2half_rd(__half2float(a) * 1.0009765625f), __hfma_relu(a, b, c)
	};

	for (int k = 0; k < 16; k++) {
		out[i * 32 + k] = __half_as_ushort(r[k]);
	}
	out[i * 32 + 16] = __hlt(a, b) | __hle(a, b) << 1 | __heq(a, b) << 2 | __hne(a, b) << 3 |
			   __hgeu(a, b) << 4 | __hequ(a, b) << 5 | __hisnan(a) << 6;
	out[i * 32 + 17] = (unsigned short)__half2int_rn(a);
	out[i * 32 + 18] = (unsigned short)__half2int_rz(a);
	out[i * 32 + 19] = (unsigned short)__half2int_rd(b);
	out[i * 32 + 20] = __half_as_ushort(hfloor(a));
	out[i * 32 + 21] = __half_as_ushort(hrint(a));
	out[i * 32 + 22] = __half_as_ushort(__int2half_rn(in[i]));
	out[i * 32 + 23] = __half_as_ushort(__double2half((double)__half2float(a) / 3.0));
	__half2 p = __halves2half2(a, b), q = __halves2half2(c, a);
	__half2 s = __hfma2(p, q, __hadd2(p, q)), m = __hmul2(p, q), l = __hmax2(p, q);
	out[i * 32 + 24] = __half_as_ushort(__low2half(s));
	out[i * 32 + 25] = __half_as_ushort(__high2half(s));
	out[i * 32 + 26] = __half_as_ushort(__low2half(m));
	out[i * 32 + 27] = __half_as_ushort(__high2half(m));
	out[i * 32 + 28] = __half_as_ushort(__low2half(l));
	out[i * 32 + 29] = __half_as_ushort(__high2half(l));
	out[i * 32 + 30] = __hbeq2(p, q);
	out[i * 32 + 31] = __half_as_ushort(hsqrt(__habs(a)));
}

extern "C" __global__ void brains(unsigned short *out, const unsigned short *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n) {
		return;
	}
	__nv_bfloat16 a = __ushort_as_bfloat16(in[i]), b = __ushort_as_bfloat16(in[(i * 7 + 3) % n]),
		      c = __ushort_as_bfloat16(in[(i * 5 + 1) % n]);
	__nv_bfloat162 p = __halves2bfloat162(a, b), q = __halves2bfloat162(c, a),
		       s = __hfma2(p, q, p);
	__nv_bfloat16 r[16] = {
		__hadd(a, b), __hsub(a, b), __hmul(a, b), __hfma(a, b, c), __hneg(a), __habs(a),
		__hmin(a, b), __hmax(a, b), __float2bfloat16_rn(__bfloat162float(a) * 1.01f),
		__float2bfloat16_rz(__bfloat162float(a) * 1.01f), __hdiv(a, b), __low2bfloat16(s),
		__high2bfloat16(s), __int2bfloat16_rn(in[i] * 257), hfloor(a), __hmax_nan(a, b)
	};

	for (int k = 0; k < 16; k++) {
		out[i * 16 + k] = __bfloat16_as_ushort(r[k]);
	}
}

// Sums of halves by atomics; powers of two, so that the order does not matter.
extern "C" __global__ void halfAtomics(__half *one, __half2 *two)
{
	atomicAdd(one, __float2half(0.25f));
	atomicAdd(two, __floats2half2_rn(0.5f, 1.0f));
}

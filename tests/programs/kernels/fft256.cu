// Transforms of 256 points, one in each block: radix 2 in place and radix 4 between two buffers, with factors from a polynomial
// (sincospif, sincosf) and from a table. Compiled with -fmad=false the results are equal on every device: ptxas fuses nothing then.
template <int SOURCE> __device__ __forceinline__ float2 factor(int k, int n, const float2 *table)
{
	float s, c;

	if (SOURCE == 0) {
		return table[k * (256 / n)];
	}
	if (SOURCE == 1) {
		sincospif(-2.0f * k / n, &s, &c);
	} else {
		sincosf(-6.283185307179586f * k / n, &s, &c);
	}
	return make_float2(c, s);
}

__device__ __forceinline__ float2 product(float2 a, float2 b)
{
	return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

template <int SOURCE> __device__ __forceinline__ void radix2(const float2 *in, float2 *out, const float2 *table)
{
	__shared__ float2 d[256];
	int i = threadIdx.x;

	in += blockIdx.x * 256;
	out += blockIdx.x * 256;
	for (int j = i; j < 256; j += 128) {
		d[__brev(j) >> 24] = in[j];
	}
	__syncthreads();
	for (int half = 1; half < 256; half *= 2) {
		int k = i & (half - 1), a = (i - k) * 2 + k;
		float2 x = d[a], y = product(factor<SOURCE>(k, 2 * half, table), d[a + half]);

		d[a] = make_float2(x.x + y.x, x.y + y.y);
		d[a + half] = make_float2(x.x - y.x, x.y - y.y);
		__syncthreads();
	}
	for (int j = i; j < 256; j += 128) {
		out[j] = d[j];
	}
}

template <int SOURCE> __device__ __forceinline__ void radix4(const float2 *in, float2 *out, const float2 *table)
{
	__shared__ float2 d[2][256];
	int i = threadIdx.x, from = 0;

	in += blockIdx.x * 256;
	out += blockIdx.x * 256;
	for (int j = i; j < 256; j += 64) {
		d[0][j] = in[j];
	}
	__syncthreads();
	for (int n = 1; n < 256; n *= 4) {
		int k = i & (n - 1);
		float2 v[4], a, b, c, e, *to = d[from ^ 1] + (i - k) * 4 + k;

		v[0] = d[from][i];
		for (int r = 1; r < 4; r++) {
			v[r] = product(d[from][i + r * 64], factor<SOURCE>(k * r * (64 / n), 256, table));
		}
		a = make_float2(v[0].x + v[2].x, v[0].y + v[2].y);
		b = make_float2(v[0].x - v[2].x, v[0].y - v[2].y);
		c = make_float2(v[1].x + v[3].x, v[1].y + v[3].y);
		e = make_float2(v[1].y - v[3].y, v[3].x - v[1].x);
		to[0] = make_float2(a.x + c.x, a.y + c.y);
		to[n] = make_float2(b.x + e.x, b.y + e.y);
		to[2 * n] = make_float2(a.x - c.x, a.y - c.y);
		to[3 * n] = make_float2(b.x - e.x, b.y - e.y);
		from ^= 1;
		__syncthreads();
	}
	for (int j = i; j < 256; j += 64) {
		out[j] = d[from][j];
	}
}

#define KERNEL(RADIX, NAME, SOURCE) \
	extern "C" __global__ void RADIX##_##NAME(const float2 *in, float2 *out, const float2 *table) \
	{ \
		RADIX<SOURCE>(in, out, table); \
	}
KERNEL(radix2, table, 0)
KERNEL(radix4, table, 0)
KERNEL(radix2, pi, 1)
KERNEL(radix4, pi, 1)
KERNEL(radix2, angle, 2)
KERNEL(radix4, angle, 2)

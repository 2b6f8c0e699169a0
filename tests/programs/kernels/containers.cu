// C++ as people write it: structures by value, templates with functors, a small vector in local
// memory, 64-bit arithmetic, arrays of constants, bit fields.
#include "words.h"

struct Particle {
	double mass;
	int id;
	short kind;
	unsigned char tag[3];
	float place[3];
};

template <typename T, int N> struct Small {
	T items[N];
	int n;
	__device__ Small() : n(0) {}
	__device__ void push(T v)
	{
		if (n < N) {
			items[n++] = v;
		}
	}
	template <typename F> __device__ void sort(F less)
	{
		for (int i = 1; i < n; i++) {
			T v = items[i];
			int k = i;

			for (; k > 0 && less(v, items[k - 1]); k--) {
				items[k] = items[k - 1];
			}
			items[k] = v;
		}
	}
};

__constant__ long long primes[8] = { 2, 3, 5, 7, 11, 13, 1000000007LL, 4611686018427387847LL };

struct Big {
	int w[40];
};

extern "C" __global__ void structures(long long *out, Particle p, const int *in, int n, Big big)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	Small<int, 9> s;

	if (i >= n) {
		return;
	}
	for (int k = 0; k < 12; k++) {
		s.push(in[(i + k * k) % n]);
	}
	s.sort([=](int a, int b) { return (a ^ p.id) < (b ^ p.id); });
	out[i * 4] = s.items[in[i] % 9] + p.kind + p.tag[i % 3] + (long long)(p.mass * 2);
	out[i * 4 + 1] = (long long)((unsigned long long)in[i] * primes[7]) % primes[i % 8 == 7 ? 6 : i % 8];
	out[i * 4 + 2] = big.w[in[i] % 40] + (long long)(p.place[i % 3] * 8);
	out[i * 4 + 3] = (long long)((unsigned long long)primes[7] / (unsigned)(in[i] + 1)) >> (i % 5);
}

struct __attribute__((aligned(16))) Wide {
	double a, b;
};

extern "C" __global__ void wideCopies(Wide *out, const Wide *in, float4 *f, const float4 *g, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		Wide w = in[i];
		float4 v = g[i];

		out[n - 1 - i] = Wide{ w.b, w.a + 1 };
		f[n - 1 - i] = float4{ v.w, v.z, v.y, v.x };
	}
}

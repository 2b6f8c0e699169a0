// Asian options by simulation: a counter-based generator (four rounds of multiply and xor on a
// counter and a key, ten times), the normal distribution by Box and Muller, sums by shuffles.
struct Counter {
	unsigned v[4];
};

static __device__ Counter philox(Counter c, unsigned k0, unsigned k1)
{
#pragma unroll
	for (int i = 0; i < 10; i++) {
		unsigned h0 = __umulhi(0xD2511F53u, c.v[0]), l0 = 0xD2511F53u * c.v[0];
		unsigned h1 = __umulhi(0xCD9E8D57u, c.v[2]), l1 = 0xCD9E8D57u * c.v[2];

		c = Counter{ { h1 ^ c.v[1] ^ k0, l1, h0 ^ c.v[3] ^ k1, l0 } };
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return c;
}

static __device__ float unit(unsigned v)
{
	return ((v >> 8) + 0.5f) * (1.0f / 16777216.0f);
}

extern "C" __global__ void drawWords(unsigned *out, unsigned seed, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		Counter c = philox(Counter{ { (unsigned)i, 0, 0, 0 } }, seed, 0);

		for (int k = 0; k < 4; k++) {
			out[4 * i + k] = c.v[k];
		}
	}
}

extern "C" __global__ void countInCircle(unsigned long long *hits, unsigned seed, int rounds)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, count = 0;

	for (int r = 0; r < rounds; r++) {
		Counter c = philox(Counter{ { i, (unsigned)r, 0, 0 } }, seed, 1);

		for (int k = 0; k < 4; k += 2) {
			unsigned long long x = c.v[k] >> 1, y = c.v[k + 1] >> 1;

			count += x * x + y * y < (1ull << 62);
		}
	}
	for (int step = 16; step > 0; step >>= 1) {
		count += __shfl_down_sync(0xffffffffu, count, step);
	}
	if ((threadIdx.x & 31) == 0) {
		atomicAdd(hits, (unsigned long long)count);
	}
}

extern "C" __global__ void asianOption(double *sums, float spot, float strike, float drift,
				       float spread, int steps, unsigned seed)
{
	__shared__ double part[32];
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
	float price = spot, total = 0;

	for (int s = 0; s < steps; s += 4) {
		Counter c = philox(Counter{ { i, (unsigned)s, 0, 1 } }, seed, 2);

		for (int k = 0; k < 4; k += 2) {
			float r = sqrtf(-2.0f * logf(unit(c.v[k]))), sine, cosine;

			sincospif(2.0f * unit(c.v[k + 1]), &sine, &cosine);
			price *= expf(drift + spread * r * cosine);
			total += price;
			price *= expf(drift + spread * r * sine);
			total += price;
		}
	}
	double pay = fmaxf(total / steps - strike, 0.0f);

	for (int step = 16; step > 0; step >>= 1) {
		pay += __shfl_down_sync(0xffffffffu, pay, step);
	}
	if ((threadIdx.x & 31) == 0) {
		part[threadIdx.x / 32] = pay;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		for (unsigned k = 1; k < blockDim.x / 32; k++) {
			pay += part[k];
		}
		sums[blockIdx.x] = pay;
	}
}

/* A product through wmma fragments, with values whose sums are exact. */
#include "program.h"

#include <string.h>

#define M 32
#define N 48
#define K 64

static float a[M * K], b[N * K], d[M * N], want[M * N];
static uint16_t ha[M * K], hb[N * K];

static uint16_t half(int v) /* v quarters; |v| up to 16 */
{
	static const uint16_t quarters[17] = { 0,      0x3400, 0x3800, 0x3a00, 0x3c00, 0x3d00,
					       0x3e00, 0x3f00, 0x4000, 0x4080, 0x4100, 0x4180,
					       0x4200, 0x4280, 0x4300, 0x4380, 0x4400 };

	return (uint16_t)(quarters[v < 0 ? -v : v] | (v < 0 ? 0x8000 : 0));
}

int main(int argc, char **argv)
{
	int m = M, n = N, k = K;
	CUdeviceptr pa, pb, pd;
	uint64_t seed = 15;
	struct program p;

	program_open(&p, "wmma", argc, argv);
	for (int i = 0; i < M * K; i++) {
		int v = (int)(program_random(&seed) % 33) - 16;

		a[i] = (float)v / 4;
		ha[i] = half(v);
	}
	for (int i = 0; i < N * K; i++) {
		int v = (int)(program_random(&seed) % 33) - 16;

		b[i] = (float)v / 4;
		hb[i] = half(v);
	}
	for (int y = 0; y < M; y++) {
		for (int x = 0; x < N; x++) {
			for (int i = 0; i < K; i++) {
				want[y * N + x] += a[y * K + i] * b[x * K + i];
			}
		}
	}
	pa = program_put(ha, sizeof(ha));
	pb = program_put(hb, sizeof(hb));
	pd = program_zeros(sizeof(d));
	LAUNCH3(program_kernel(&p, "wmmaProduct"), N / 16, M / 16, 1, 32, 1, 1, 0, NULL, &pd, &pa,
		&pb, &m, &n, &k);
	program_get(d, pd, sizeof(d));
	program_check(&p, memcmp(d, want, sizeof(d)) == 0, "the product");
	program_exact(&p, "product", d, sizeof(d));
	return program_close(&p);
}

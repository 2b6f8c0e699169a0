/* Matrix instructions on small integers, so that sums are exact in every order of additions. */
#include "program.h"

#include <string.h>

static uint16_t half(float v) /* integers and quarters below 2048 */
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return v == 0 ? 0
		      : (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) |
				   (bits >> 13 & 0x3ff));
}

static float a[16 * 32], b[32 * 8], c[16 * 8], d[16 * 8], want[16 * 8];
static uint16_t ha[16 * 16], hb[16 * 8];
static signed char ba[16 * 32], bb[32 * 8];
static int di[16 * 8];

/* b: [column][k]. */
static void product(int k_max, bool add)
{
	for (int y = 0; y < 16; y++) {
		for (int x = 0; x < 8; x++) {
			want[y * 8 + x] = add ? c[y * 8 + x] : 0;
			for (int k = 0; k < k_max; k++) {
				want[y * 8 + x] += a[y * k_max + k] * b[x * k_max + k];
			}
		}
	}
}

static void fill(int k_max)
{
	uint64_t seed = 14 + (uint64_t)k_max;

	for (int i = 0; i < 16 * k_max; i++) {
		ba[i] = (signed char)(program_random(&seed) % 33 - 16);
		a[i] = k_max == 32 ? ba[i] : (float)ba[i] / 4;
		if (k_max == 16) {
			ha[i] = half(a[i]);
		}
	}
	for (int i = 0; i < 8 * k_max; i++) {
		bb[i] = (signed char)(program_random(&seed) % 33 - 16);
		b[i] = k_max == 32 ? bb[i] : (float)bb[i] / 4;
		if (k_max == 16) {
			hb[i] = half(b[i]);
		}
	}
	for (int i = 0; i < 16 * 8; i++) {
		c[i] = (float)(program_random(&seed) % 100);
	}
}

int main(int argc, char **argv)
{
	CUdeviceptr pa, pb, pc, pd;
	bool right = true;
	struct program p;
	uint16_t turned[16 * 8];

	program_open(&p, "mma", argc, argv);
	fill(16);
	pa = program_put(ha, sizeof(ha));
	pb = program_put(hb, sizeof(hb));
	pc = program_put(c, sizeof(c));
	pd = program_zeros(sizeof(d));
	LAUNCH(program_kernel(&p, "mmaHalf"), 1, 32, 0, &pd, &pa, &pb, &pc);
	program_get(d, pd, sizeof(d));
	product(16, true);
	program_check(&p, memcmp(d, want, sizeof(d)) == 0, "mmaHalf");
	program_exact(&p, "half", d, sizeof(d));
	for (int k = 0; k < 16; k++) { /* ldmatrix.trans expects rows of k */
		for (int x = 0; x < 8; x++) {
			turned[k * 8 + x] = hb[x * 16 + k];
		}
	}
	pb = program_put(turned, sizeof(turned));
	LAUNCH(program_kernel(&p, "mmaLdmatrix"), 1, 32, 0, &pd, &pa, &pb);
	program_get(d, pd, sizeof(d));
	product(16, false);
	program_check(&p, memcmp(d, want, sizeof(d)) == 0, "mmaLdmatrix");
	program_exact(&p, "ldmatrix", d, sizeof(d));
	fill(32);
	pa = program_put(ba, sizeof(ba));
	pb = program_put(bb, sizeof(bb));
	LAUNCH(program_kernel(&p, "mmaBytes"), 1, 32, 0, &pd, &pa, &pb);
	program_get(di, pd, sizeof(di));
	product(32, false);
	for (int i = 0; i < 16 * 8; i++) {
		right = right && di[i] == (int)want[i];
	}
	program_check(&p, right, "mmaBytes");
	program_exact(&p, "bytes", di, sizeof(di));
	fill(8);
	pa = program_put(a, sizeof(a));
	pb = program_put(b, sizeof(b));
	LAUNCH(program_kernel(&p, "mmaTf32"), 1, 32, 0, &pd, &pa, &pb);
	program_get(d, pd, sizeof(d));
	product(8, false);
	program_check(&p, memcmp(d, want, sizeof(d)) == 0, "mmaTf32");
	program_exact(&p, "tf32", d, sizeof(d));
	return program_close(&p);
}

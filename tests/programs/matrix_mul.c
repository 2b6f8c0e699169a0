/* Matrix products with tiles of three sizes. Values are small integers divided by eight, so that
 * sums are exact in every order of additions. */
#include "program.h"

#include <stdlib.h>

#define HA 96
#define WA 128
#define WB 64

static float a[HA * WA], b[WA * WB], c[HA * WB], want[HA * WB];
static double da64[HA * WA], db64[WA * WB], c64[HA * WB];

static void fill(void)
{
	uint64_t seed = 2;

	for (int i = 0; i < HA * WA; i++) {
		da64[i] = a[i] = (float)(program_random(&seed) % 17) / 8.0f - 1;
	}
	for (int i = 0; i < WA * WB; i++) {
		db64[i] = b[i] = (float)(program_random(&seed) % 17) / 8.0f - 1;
	}
	for (int y = 0; y < HA; y++) {
		for (int x = 0; x < WB; x++) {
			for (int k = 0; k < WA; k++) {
				want[y * WB + x] += a[y * WA + k] * b[k * WB + x];
			}
		}
	}
}

static bool same(void)
{
	for (int i = 0; i < HA * WB; i++) {
		if (c[i] != want[i]) {
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		unsigned tile, shared;
	} ways[] = { { "matrixMul16", 16, 0 },
		     { "matrixMul32", 32, 0 },
		     { "matrixMulDynamic", 16, 2048 } };
	struct program p;
	CUdeviceptr pa, pb, pc;
	int wa = WA, wb = WB;
	bool right = true;

	program_open(&p, "matrixMul", argc, argv);
	fill();
	pa = program_put(a, sizeof(a));
	pb = program_put(b, sizeof(b));
	for (int i = 0; i < 3; i++) {
		unsigned t = ways[i].tile;

		pc = program_zeros(sizeof(c));
		LAUNCH3(program_kernel(&p, ways[i].name), WB / t, HA / t, 1, t, t, 1,
			ways[i].shared, NULL, &pc, &pa, &pb, &wa, &wb);
		program_get(c, pc, sizeof(c));
		program_check(&p, same(), ways[i].name);
		program_exact(&p, ways[i].name, c, sizeof(c));
	}
	pa = program_put(da64, sizeof(da64));
	pb = program_put(db64, sizeof(db64));
	pc = program_zeros(sizeof(c64));
	LAUNCH3(program_kernel(&p, "matrixMul8d"), WB / 8, HA / 8, 1, 8, 8, 1, 0, NULL, &pc, &pa,
		&pb, &wa, &wb);
	program_get(c64, pc, sizeof(c64));
	for (int i = 0; i < HA * WB; i++) {
		right = right && c64[i] == want[i];
	}
	program_check(&p, right, "matrixMul8d");
	program_exact(&p, "double", c64, sizeof(c64));
	return program_close(&p);
}

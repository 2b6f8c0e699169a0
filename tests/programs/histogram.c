/* Histograms of the bytes of random words. */
#include "program.h"

#include <string.h>

#define WORDS 20000
#define BLOCKS64 16
#define BLOCKS256 10

static unsigned data[WORDS], out[256], want64[64], want256[256];

int main(int argc, char **argv)
{
	CUdeviceptr d, partial, o;
	uint64_t seed = 5;
	unsigned n = WORDS, count;
	struct program p;

	program_open(&p, "histogram", argc, argv);
	for (int i = 0; i < WORDS; i++) {
		data[i] = program_random(&seed) & program_random(&seed);
		for (int k = 0; k < 4; k++) {
			want256[data[i] >> 8 * k & 255]++;
			want64[data[i] >> (8 * k + 2) & 63]++;
		}
	}
	d = program_put(data, sizeof(data));
	o = program_zeros(sizeof(out));
	partial = program_zeros(256 * BLOCKS64 * 4);
	count = BLOCKS64;
	LAUNCH(program_kernel(&p, "histogram64"), BLOCKS64, 64, 0, &partial, &d, &n);
	LAUNCH(program_kernel(&p, "mergeHistograms"), 64, 64, 0, &o, &partial, &count);
	program_get(out, o, sizeof(want64));
	program_check(&p, memcmp(out, want64, sizeof(want64)) == 0, "histogram64");
	program_exact(&p, "bins64", out, sizeof(want64));
	count = BLOCKS256;
	LAUNCH(program_kernel(&p, "histogram256"), BLOCKS256, 192, 0, &partial, &d, &n);
	LAUNCH(program_kernel(&p, "mergeHistograms"), 256, 64, 0, &o, &partial, &count);
	program_get(out, o, sizeof(want256));
	program_check(&p, memcmp(out, want256, sizeof(want256)) == 0, "histogram256");
	program_exact(&p, "bins256", out, sizeof(want256));
	return program_close(&p);
}

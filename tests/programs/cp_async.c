/* Tiles by asynchronous copies. */
#include "program.h"

#include <math.h>
#include <string.h>

#define TILE 128
#define BLOCKS 6
#define TILES 9

static float in[TILE * BLOCKS * TILES], out[TILE * BLOCKS], want[TILE * BLOCKS];

int main(int argc, char **argv)
{
	int tiles = TILES, words[64], moved[64], n = 40;
	CUdeviceptr d, o;
	uint64_t seed = 16;
	bool right = true;
	struct program p;

	program_open(&p, "cpAsync", argc, argv);
	for (int i = 0; i < TILE * BLOCKS * TILES; i++) {
		in[i] = program_uniform(&seed, -1, 1);
	}
	for (int b = 0; b < BLOCKS; b++) {
		for (int t = 0; t < TILE; t++) {
			float sum = 0;

			for (int i = 0; i < TILES; i++) {
				sum = fmaf(in[(b + i * BLOCKS) * TILE + TILE - 1 - t],
					   0.5f + (float)i, sum);
			}
			want[b * TILE + t] = sum;
		}
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	LAUNCH(program_kernel(&p, "tiles"), BLOCKS, TILE, 0, &o, &d, &tiles);
	program_get(out, o, sizeof(out));
	program_check(&p, memcmp(out, want, sizeof(out)) == 0, "the sums of tiles");
	program_exact(&p, "tiles", out, sizeof(out));
	for (int i = 0; i < 64; i++) {
		words[i] = i + 100;
	}
	d = program_put(words, sizeof(words));
	LAUNCH(program_kernel(&p, "zeroFill"), 1, 32, 0, &o, &d, &n);
	program_get(moved, o, sizeof(moved));
	for (int i = 0; i < 64; i++) {
		right = right && moved[i] == ((i & ~1) < n ? words[i ^ 1] : 0);
	}
	program_check(&p, right, "what was filled with zeros");
	program_exact(&p, "zeros", moved, sizeof(moved));
	return program_close(&p);
}

/* Convolution of the rows of a picture, and its transpose. */
#include "program.h"

#include <math.h>
#include <string.h>

#define W 256
#define H 32
#define RADIUS 8

static float in[W * H], out[W * H], want[W * H];

int main(int argc, char **argv)
{
	float taps[2 * RADIUS + 1];
	CUdeviceptr d, o, t;
	uint64_t seed = 22;
	bool right = true;
	struct program p;
	int w = W, h = H;
	size_t bytes;

	program_open(&p, "convolution", argc, argv);
	for (int i = 0; i < W * H; i++) {
		in[i] = program_uniform(&seed, 0, 16);
	}
	for (int i = 0; i <= 2 * RADIUS; i++) {
		taps[i] = program_uniform(&seed, 0, 1);
	}
	for (int i = 0; i < W * H; i++) {
		float sum = 0;

		for (int j = -RADIUS; j <= RADIUS; j++) {
			int x = i % W + j;

			sum = fmaf(taps[RADIUS - j], x >= 0 && x < W ? in[i + j] : 0, sum);
		}
		want[i] = sum;
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	CU(cuModuleGetGlobal(&t, &bytes, p.module, "taps"));
	CU(cuMemcpyHtoD(t, taps, sizeof(taps)));
	LAUNCH3(program_kernel(&p, "convolveRows"), W / 128, H / 4, 1, 16, 4, 1, 0, NULL, &o, &d,
		&w, &h);
	program_get(out, o, sizeof(out));
	program_check(&p, memcmp(out, want, sizeof(out)) == 0, "the convolution");
	program_exact(&p, "rows", out, sizeof(out));
	LAUNCH3(program_kernel(&p, "transpose"), W / 16, H / 16, 1, 16, 16, 1, 0, NULL, &o, &d, &w,
		&h);
	program_get(out, o, sizeof(out));
	for (int i = 0; i < W * H; i++) {
		right = right && out[i % W * H + i / W] == in[i];
	}
	program_check(&p, right, "the transpose");
	program_exact(&p, "transpose", out, sizeof(out));
	return program_close(&p);
}

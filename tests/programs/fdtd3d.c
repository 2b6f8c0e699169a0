/* Two steps of a stencil in three dimensions; sums in the order of the kernel, so results are
 * exact. */
#include "program.h"

#include <math.h>
#include <string.h>

#define RADIUS 4
#define X 32
#define Y 32
#define Z 12
#define ROW (X + 2 * RADIUS)
#define PLANE (ROW * (Y + 2 * RADIUS))
#define VOLUME (PLANE * (Z + 2 * RADIUS))

static float in[VOLUME], out[VOLUME], want[VOLUME], next[VOLUME];

static void step(float *to, const float *from, const float *w)
{
	for (int z = 0; z < Z; z++) {
		for (int y = 0; y < Y; y++) {
			for (int x = 0; x < X; x++) {
				int at = (z + RADIUS) * PLANE + (y + RADIUS) * ROW + x + RADIUS;
				float v = w[0] * from[at];

				for (int i = 1; i <= RADIUS; i++) {
					float sum = from[at + i * PLANE] + from[at - i * PLANE];

					sum += from[at - i * ROW];
					sum += from[at + i * ROW];
					sum += from[at - i];
					sum += from[at + i];
					v = fmaf(w[i], sum, v);
				}
				to[at] = v;
			}
		}
	}
}

int main(int argc, char **argv)
{
	static const float weights[RADIUS + 1] = { 0.5f, 0.1f, 0.05f, 0.025f, 0.01f };
	int x = X, y = Y, z = Z;
	CUdeviceptr a, b, w;
	uint64_t seed = 8;
	struct program p;
	CUfunction f;
	size_t bytes;

	program_open(&p, "FDTD3d", argc, argv);
	for (int i = 0; i < VOLUME; i++) {
		in[i] = program_uniform(&seed, -1, 1);
	}
	memcpy(want, in, sizeof(in));
	memcpy(next, in, sizeof(in));
	step(next, want, weights);
	step(want, next, weights);
	a = program_put(in, sizeof(in));
	b = program_put(in, sizeof(in));
	CU(cuModuleGetGlobal(&w, &bytes, p.module, "weights"));
	program_check(&p, bytes == sizeof(weights), "the size of a global");
	CU(cuMemcpyHtoD(w, weights, sizeof(weights)));
	f = program_kernel(&p, "finiteDifferences");
	LAUNCH3(f, X / 16, Y / 8, 1, 16, 8, 1, 0, NULL, &b, &a, &x, &y, &z);
	LAUNCH3(f, X / 16, Y / 8, 1, 16, 8, 1, 0, NULL, &a, &b, &x, &y, &z);
	program_get(out, a, sizeof(out));
	program_check(&p, memcmp(out, want, sizeof(out)) == 0, "the volume");
	program_exact(&p, "volume", out, sizeof(out));
	return program_close(&p);
}

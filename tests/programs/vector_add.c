/* Sum of two vectors whose length is not a multiple of the block size. */
#include "program.h"

#include <stdlib.h>

#define N 50000

int main(int argc, char **argv)
{
	float *a = program_room(N * sizeof(*a)), *b = program_room(N * sizeof(*b)),
	      *c = program_room(N * sizeof(*c));
	CUdeviceptr da, db, dc;
	uint64_t seed = 1;
	struct program p;
	int n = N;
	bool right = true;

	program_open(&p, "vectorAdd", argc, argv);
	for (int i = 0; i < N; i++) {
		a[i] = program_uniform(&seed, 0, 1);
		b[i] = program_uniform(&seed, 0, 1);
	}
	da = program_put(a, N * sizeof(*a));
	db = program_put(b, N * sizeof(*b));
	dc = program_zeros(N * sizeof(*c));
	LAUNCH(program_kernel(&p, "vectorAdd"), (N + 255) / 256, 256, 0, &da, &db, &dc, &n);
	program_get(c, dc, N * sizeof(*c));
	for (int i = 0; i < N; i++) {
		right = right && c[i] == a[i] + b[i];
	}
	program_check(&p, right, "the sum");
	program_exact(&p, "sum", c, N * sizeof(*c));
	CU(cuMemFree(da));
	CU(cuMemFree(db));
	CU(cuMemFree(dc));
	free(a);
	free(b);
	free(c);
	return program_close(&p);
}

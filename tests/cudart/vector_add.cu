// The smallest program: allocate, copy, launch with <<<>>>, copy back.
#include "runtime.h"

__global__ void add(const float *a, const float *b, float *c, int n)
{
	if (THREAD < n) {
		c[THREAD] = a[THREAD] + b[THREAD];
	}
}

int main()
{
	static float a[1000], b[1000], c[1000];
	float *da, *db, *dc;

	for (int i = 0; i < 1000; i++) {
		a[i] = (float)i;
		b[i] = 2.0f * (float)i;
	}
	OK(cudaMalloc((void **)&da, sizeof(a)));
	OK(cudaMalloc((void **)&db, sizeof(b)));
	OK(cudaMalloc((void **)&dc, sizeof(c)));
	OK(cudaMemcpy(da, a, sizeof(a), cudaMemcpyHostToDevice));
	OK(cudaMemcpy(db, b, sizeof(b), cudaMemcpyHostToDevice));
	add<<<4, 256>>>(da, db, dc, 1000);
	OK(cudaGetLastError());
	OK(cudaMemcpy(c, dc, sizeof(c), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 1000; i++) {
		CHECK(c[i] == 3.0f * (float)i);
	}
	OK(cudaFree(da));
	OK(cudaFree(db));
	OK(cudaFree(dc));
	OK(cudaFree(nullptr));
	return 0;
}

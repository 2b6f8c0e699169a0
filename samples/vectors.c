/* vecadd, saxpy, transpose: one element in, one element out. */
#include <math.h>
#include <stdlib.h>

#include "sample.h"

static float *random_floats(size_t n, uint64_t seed)
{
	float *v = sample_alloc(n, sizeof(*v));

	for (size_t i = 0; i < n; i++) {
		v[i] = sample_random_float(&seed);
	}
	return v;
}

bool vecadd(int n)
{
	CUfunction f = sample_function(sample_module(ptx_vecadd), "vecadd");
	size_t bytes = (size_t)n * sizeof(float);
	float *a = random_floats((size_t)n, 1), *b = random_floats((size_t)n, 2),
	      *c = sample_alloc((size_t)n, 4);
	CUdeviceptr da = sample_upload(a, bytes), db = sample_upload(b, bytes),
		    dc = sample_zeros(bytes);
	bool ok = true;

	sample_launch(f, (unsigned)(n + 255) / 256, 256, ARGS(&da, &db, &dc, &n));
	sample_download(c, dc, bytes);
	for (int i = 0; i < n; i++) {
		ok = ok && c[i] == a[i] + b[i];
	}
	CHECK(cuMemFree(da));
	CHECK(cuMemFree(db));
	free(a);
	free(b);
	free(c);
	return ok;
}

bool saxpy(int n)
{
	CUfunction f = sample_function(sample_module(ptx_saxpy), "saxpy");
	size_t bytes = (size_t)n * sizeof(float);
	float *x = random_floats((size_t)n, 3), *y = random_floats((size_t)n, 4),
	      *got = sample_alloc((size_t)n, 4);
	float a = 2.5f;
	CUdeviceptr dx = sample_upload(x, bytes), dy = sample_upload(y, bytes);
	bool ok = true;

	sample_launch(f, 16, 128, ARGS(&a, &dx, &dy, &n));
	sample_download(got, dy, bytes);
	for (int i = 0; i < n; i++) {
		ok = ok && got[i] == fmaf(a, x[i], y[i]);
	}
	CHECK(cuMemFree(dx));
	free(x);
	free(y);
	free(got);
	return ok;
}

bool transpose(int n)
{
	CUfunction f = sample_function(sample_module(ptx_transpose), "transpose");
	int width = 250,
	    height = n / width > 0 ? n / width : 1; /* 250: edges that do not fill a tile */
	size_t count = (size_t)width * (size_t)height, bytes = count * sizeof(float);
	float *in = random_floats(count, 5), *out = sample_alloc(count, 4);
	CUdeviceptr din = sample_upload(in, bytes), dout = sample_zeros(bytes);
	bool ok = true;

	CHECK(cuLaunchKernel(f, (unsigned)(width + 15) / 16, (unsigned)(height + 15) / 16, 1, 16,
			     16, 1, 0, NULL, ARGS(&din, &dout, &width, &height), NULL));
	sample_download(out, dout, bytes);
	for (int y = 0; y < height; y++) {
		for (int x = 0; x < width; x++) {
			ok = ok && out[x * height + y] == in[y * width + x];
		}
	}
	CHECK(cuMemFree(din));
	free(in);
	free(out);
	return ok;
}

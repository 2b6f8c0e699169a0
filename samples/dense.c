/* matmul, hotspot, nbody, softmax: floating point over dense data. */
#include <math.h>
#include <stdlib.h>

#include "sample.h"

static float *random_floats(size_t n, uint64_t seed)
{
	float *v = sample_alloc(n, sizeof(*v));

	for (size_t i = 0; i < n; i++) {
		v[i] = sample_random_float(&seed) - 0.5f;
	}
	return v;
}

bool matmul(int n)
{
	CUfunction f = sample_function(sample_module(ptx_matmul), "matmul");
	int w = n >= 1 << 16 ? 128 : 64;
	size_t count = (size_t)w * (size_t)w, bytes = count * 4;
	float *a = random_floats(count, 9), *b = random_floats(count, 10),
	      *c = sample_alloc(count, 4);
	CUdeviceptr da = sample_upload(a, bytes), db = sample_upload(b, bytes),
		    dc = sample_zeros(bytes);
	unsigned tiles = (unsigned)w / 16;
	bool ok = true;

	CHECK(cuLaunchKernel(f, tiles, tiles, 1, 16, 16, 1, 0, NULL, ARGS(&da, &db, &dc, &w),
			     NULL));
	sample_download(c, dc, bytes);
	for (int y = 0; y < w; y++) {
		for (int x = 0; x < w; x++) {
			double sum = 0;

			for (int k = 0; k < w; k++) {
				sum += (double)a[y * w + k] * (double)b[k * w + x];
			}
			ok = ok && sample_close((double)c[y * w + x], sum, 1e-4);
		}
	}
	CHECK(cuMemFree(da));
	CHECK(cuMemFree(db));
	free(a);
	free(b);
	free(c);
	return ok;
}

static float hotspot_cell(const float *t, const float *p, int x, int y, int w, int h)
{
	float here = t[y * w + x];
	float around = (x > 0 ? t[y * w + x - 1] : here) + (x < w - 1 ? t[y * w + x + 1] : here) +
		       (y > 0 ? t[(y - 1) * w + x] : here) +
		       (y < h - 1 ? t[(y + 1) * w + x] : here);

	return here + 0.125f * (around - 4.0f * here) + 0.01f * p[y * w + x];
}

bool hotspot(int n)
{
	CUfunction f = sample_function(sample_module(ptx_hotspot), "hotspot");
	int w = 130, h = n / w > 0 ? n / w : 1, steps = 4;
	size_t count = (size_t)w * (size_t)h, bytes = count * 4;
	float *t = random_floats(count, 11), *p = random_floats(count, 12),
	      *next = sample_alloc(count, 4), *swap;
	float *got = sample_alloc(count, 4);
	CUdeviceptr dt = sample_upload(t, bytes), dp = sample_upload(p, bytes),
		    dn = sample_zeros(bytes), ds;
	bool ok = true;

	for (int s = 0; s < steps; s++) {
		CHECK(cuLaunchKernel(f, (unsigned)(w + 15) / 16, (unsigned)(h + 15) / 16, 1, 16, 16,
				     1, 0, NULL, ARGS(&dt, &dp, &dn, &w, &h), NULL));
		ds = dt;
		dt = dn;
		dn = ds;
		for (int i = 0; i < w * h; i++) {
			next[i] = hotspot_cell(t, p, i % w, i / w, w, h);
		}
		swap = t;
		t = next;
		next = swap;
	}
	sample_download(got, dt, bytes);
	for (int i = 0; i < w * h; i++) {
		ok = ok && sample_close((double)got[i], (double)t[i], 1e-5);
	}
	CHECK(cuMemFree(dp));
	CHECK(cuMemFree(dn));
	free(t);
	free(p);
	free(next);
	free(got);
	return ok;
}

bool nbody(int n)
{
	CUfunction f = sample_function(sample_module(ptx_nbody), "nbody");
	int bodies = n >= 1 << 16 ? 512 : 256;
	float *pos = random_floats((size_t)bodies * 4, 13),
	      *acc = sample_alloc((size_t)bodies * 3, 4);
	CUdeviceptr dpos = sample_upload(pos, (size_t)bodies * 16),
		    dacc = sample_zeros((size_t)bodies * 12);
	bool ok = true;

	sample_launch(f, (unsigned)bodies / 64, 64, ARGS(&dpos, &dacc, &bodies));
	sample_download(acc, dacc, (size_t)bodies * 12);
	for (int i = 0; i < bodies; i++) {
		double a[3] = { 0 };

		for (int j = 0; j < bodies; j++) {
			double d[3], r2 = 0.01, s;

			for (int k = 0; k < 3; k++) {
				d[k] = (double)pos[j * 4 + k] - (double)pos[i * 4 + k];
				r2 += d[k] * d[k];
			}
			s = (double)pos[j * 4 + 3] / (r2 * sqrt(r2));
			for (int k = 0; k < 3; k++) {
				a[k] += s * d[k];
			}
		}
		for (int k = 0; k < 3; k++) {
			ok = ok &&
			     fabs((double)acc[i * 3 + k] - a[k]) <= 1e-3 * (1 + fabs(a[k])) * 4;
		}
	}
	CHECK(cuMemFree(dpos));
	free(pos);
	free(acc);
	return ok;
}

bool softmax(int n)
{
	CUfunction f = sample_function(sample_module(ptx_softmax), "softmax");
	int width = 300, rows = n / width > 0 ? n / width : 1;
	size_t count = (size_t)width * (size_t)rows;
	float *in = random_floats(count, 14), *out = sample_alloc(count, 4);
	CUdeviceptr din = sample_upload(in, count * 4), dout = sample_zeros(count * 4);
	bool ok = true;

	sample_launch(f, (unsigned)rows, 128, ARGS(&din, &dout, &width));
	sample_download(out, dout, count * 4);
	for (int r = 0; r < rows; r++) {
		const float *row = in + r * width;
		double sum = 0;

		for (int i = 0; i < width; i++) {
			sum += exp((double)row[i]);
		}
		for (int i = 0; i < width; i++) {
			ok = ok &&
			     fabs((double)out[r * width + i] - exp((double)row[i]) / sum) < 1e-6;
		}
	}
	CHECK(cuMemFree(din));
	free(in);
	free(out);
	return ok;
}

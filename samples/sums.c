/* reduction, scan, histogram: threads that cooperate through shared memory and atomics. */
#include <stdlib.h>

#include "sample.h"

static int *random_ints(int n, uint64_t seed)
{
	int *v = sample_alloc((size_t)n, sizeof(*v));

	for (int i = 0; i < n; i++) {
		v[i] = (int)(sample_random(&seed) % 201) - 100;
	}
	return v;
}

bool reduction(int n)
{
	CUfunction f = sample_function(sample_module(ptx_reduction), "reduction");
	int *in = random_ints(n, 6), got = 0, want = 0;
	CUdeviceptr din = sample_upload(in, (size_t)n * 4), dsum = sample_zeros(4);

	sample_launch(f, (unsigned)(n + 255) / 256, 256, ARGS(&din, &dsum, &n));
	sample_download(&got, dsum, 4);
	for (int i = 0; i < n; i++) {
		want += in[i];
	}
	CHECK(cuMemFree(din));
	free(in);
	return got == want;
}

bool scan(int n)
{
	CUmodule m = sample_module(ptx_scan);
	unsigned blocks = (unsigned)(n + 255) / 256;
	int *in = random_ints(n, 7), *got = sample_alloc((size_t)n, 4), sum = 0;
	CUdeviceptr din = sample_upload(in, (size_t)n * 4), dout = sample_zeros((size_t)n * 4);
	CUdeviceptr dtotals = sample_zeros((size_t)blocks * 4);
	bool ok = true;

	sample_launch(sample_function(m, "scan_blocks"), blocks, 256,
		      ARGS(&din, &dout, &dtotals, &n));
	sample_launch(sample_function(m, "scan_add"), blocks, 256, ARGS(&dout, &dtotals, &n));
	sample_download(got, dout, (size_t)n * 4);
	for (int i = 0; i < n; i++) {
		sum += in[i];
		ok = ok && got[i] == sum;
	}
	CHECK(cuMemFree(din));
	CHECK(cuMemFree(dtotals));
	free(in);
	free(got);
	return ok;
}

bool histogram(int n)
{
	CUfunction f = sample_function(sample_module(ptx_histogram), "histogram");
	unsigned char *in = sample_alloc((size_t)n, 1);
	int want[256] = { 0 }, got[256];
	uint64_t seed = 8;
	CUdeviceptr din, dbins = sample_zeros(sizeof(got));
	bool ok = true;

	for (int i = 0; i < n; i++) {
		in[i] = (unsigned char)(sample_random(&seed) >> 32) &
			(unsigned char)(sample_random(&seed) >> 40);
		want[in[i]]++;
	}
	din = sample_upload(in, (size_t)n);
	sample_launch(f, 8, 256, ARGS(&din, &dbins, &n));
	sample_download(got, dbins, sizeof(got));
	for (int i = 0; i < 256; i++) {
		ok = ok && got[i] == want[i];
	}
	CHECK(cuMemFree(din));
	free(in);
	return ok;
}

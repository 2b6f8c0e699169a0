/* Common part of lcserve and batch; see service.h. */
#include "service.h"

#include <stdio.h>
#include <stdlib.h>

volatile sig_atomic_t service_stop;

static void on_signal(int sig)
{
	(void)sig;
	service_stop = 1;
}

void service_catch_signals(void)
{
	struct sigaction a = { .sa_handler = on_signal };

	sigaction(SIGTERM, &a, NULL);
	sigaction(SIGINT, &a, NULL);
}

void service_begin(struct service_kernel *k, int blocks, int threads)
{
	sample_begin();
	k->function = sample_function(sample_module(ptx_service), "service_step");
	k->blocks = blocks;
	k->threads = threads;
	k->n = blocks * threads;
	CHECK(cuStreamCreate(&k->stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&k->data, (size_t)k->n * 4));
	CHECK(cuMemAllocHost((void **)&k->host, (size_t)k->n * 4));
}

void service_end(struct service_kernel *k)
{
	CHECK(cuMemFreeHost(k->host));
	CHECK(cuMemFree(k->data));
	CHECK(cuStreamDestroy(k->stream));
	sample_end();
}

void service_launch(struct service_kernel *k, float a, float b, int iterations)
{
	CHECK(cuLaunchKernel(k->function, (unsigned)k->blocks, 1, 1, (unsigned)k->threads, 1, 1, 0,
			     k->stream, ARGS(&k->data, &a, &b, &iterations, &k->n), NULL));
}

void service_fill(struct service_kernel *k, float value)
{
	for (int i = 0; i < k->n; i++) {
		k->host[i] = value;
	}
	CHECK(cuMemcpyHtoDAsync(k->data, k->host, (size_t)k->n * 4, k->stream));
	CHECK(cuStreamSynchronize(k->stream)); /* the download reuses host */
}

void service_fetch(struct service_kernel *k)
{
	CHECK(cuMemcpyDtoHAsync(k->host, k->data, (size_t)k->n * 4, k->stream));
	CHECK(cuStreamSynchronize(k->stream));
}

static double time_launch(struct service_kernel *k, int iterations)
{
	double best = 1e9;

	for (int i = 0; i < 5; i++) {
		double begin = sample_now(), took;

		service_launch(k, 1.0f, 0.0f, iterations);
		CHECK(cuStreamSynchronize(k->stream));
		took = sample_now() - begin;
		best = took < best ? took : best;
	}
	return best;
}

int service_calibrate(struct service_kernel *k, double seconds)
{
	double iterations = 64, took;

	service_fill(k, 0.0f);
	for (int i = 0; i < 12; i++) {
		took = time_launch(k, (int)iterations);
		if (took > seconds * 0.9 && took < seconds * 1.1) {
			break;
		}
		iterations *= took * 8 < seconds ? 8 : seconds / took;
		iterations = iterations < 1 ? 1 : iterations > 1e8 ? 1e8 : iterations;
	}
	return (int)iterations;
}

double service_number(const char *option, const char *text, double min, double max)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !(v >= min && v <= max)) {
		fprintf(stderr, "%s %s: expected a number from %g to %g\n", option, text, min, max);
		exit(2);
	}
	return v;
}

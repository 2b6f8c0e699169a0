/* lcserve: a latency-critical service. Requests arrive by a Poisson process; each uploads its
 * input, runs eight kernels with a synchronization after each, downloads the result and checks it.
 * Prints its own latencies, from arrival to checked result. It has no knowledge of gBPF. Exit 0:
 * all right, 1: a wrong result, 2: usage, 3: a CUDA error. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "service.h"

#define VARIANTS 16

static struct {
	double rate;   /* requests per second */
	long requests; /* 0: run until a signal */
	int kernels, blocks, threads, iterations;
	double seed;
	const char *log;
} opt = { .rate = 50, .kernels = 8, .blocks = 2, .threads = 64, .iterations = 200, .seed = 1 };

struct latencies {
	double *us;
	size_t n, cap;
};

static int usage(void)
{
	fprintf(stderr, "usage: lcserve [--rate PER_S] [--requests N] [--kernels N] [--blocks N] "
			"[--threads N]\n"
			"               [--iterations N] [--seed N] [--log FILE]\n");
	return 2;
}

static int parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rate", 1, NULL, 'r' },
		{ "requests", 1, NULL, 'n' },
		{ "kernels", 1, NULL, 'k' },
		{ "blocks", 1, NULL, 'b' },
		{ "threads", 1, NULL, 't' },
		{ "iterations", 1, NULL, 'i' },
		{ "seed", 1, NULL, 's' },
		{ "log", 1, NULL, 'l' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 'r':
			opt.rate = service_number("--rate", optarg, 0.01, 1e6);
			break;
		case 'n':
			opt.requests = (long)service_number("--requests", optarg, 0, 1e9);
			break;
		case 'k':
			opt.kernels = (int)service_number("--kernels", optarg, 1, 10000);
			break;
		case 'b':
			opt.blocks = (int)service_number("--blocks", optarg, 1, 65535);
			break;
		case 't':
			opt.threads = (int)service_number("--threads", optarg, 1, 1024);
			break;
		case 'i':
			opt.iterations = (int)service_number("--iterations", optarg, 1, 1e8);
			break;
		case 's':
			opt.seed = service_number("--seed", optarg, 1, 1e9);
			break;
		case 'l':
			opt.log = optarg;
			break;
		default:
			return usage();
		}
	}
	return optind < argc ? usage() : 0;
}

/* Returns the expected value of every element after all kernels of a request of that variant: the
 * device rounds each step identically. */
static float expected(int variant)
{
	float v = 1.0f, b = 0.25f + (float)variant / VARIANTS;

	for (long i = 0; i < (long)opt.kernels * opt.iterations; i++) {
		v = fmaf(v, 0.75f, b);
	}
	return v;
}

static bool serve(struct service_kernel *k, int variant, float want)
{
	float b = 0.25f + (float)variant / VARIANTS;

	service_fill(k, 1.0f);
	for (int i = 0; i < opt.kernels; i++) {
		service_launch(k, 0.75f, b, opt.iterations);
		CHECK(cuStreamSynchronize(k->stream));
	}
	service_fetch(k);
	for (int i = 0; i < k->n; i++) {
		if (memcmp(&k->host[i], &want, sizeof(want)) != 0) {
			return false;
		}
	}
	return true;
}

static void wait_until(double when)
{
	while (!service_stop && sample_now() < when) {
		double left = when - sample_now();
		struct timespec t = { 0, (long)(fmin(left, 0.05) * 1e9) };

		if (left > 0) {
			nanosleep(&t, NULL);
		}
	}
}

static void note(struct latencies *l, double us)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 4096;
		l->us = realloc(l->us, l->cap * sizeof(*l->us));
		if (!l->us) {
			fprintf(stderr, "out of memory\n");
			exit(3);
		}
	}
	l->us[l->n++] = us;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double percentile(const struct latencies *l, double p)
{
	return l->n ? l->us[(size_t)(p * (double)(l->n - 1))] : 0;
}

static int finish(struct latencies *l, long wrong)
{
	qsort(l->us, l->n, sizeof(*l->us), by_value);
	printf("requests %zu  P50 %.0f us  P99 %.0f us  worst %.0f us  wrong %ld\n", l->n,
	       percentile(l, 0.5), percentile(l, 0.99), percentile(l, 1), wrong);
	free(l->us);
	return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct service_kernel k;
	struct latencies l = { 0 };
	uint64_t seed;
	float want[VARIANTS];
	double arrival;
	FILE *log = NULL;
	long wrong = 0;
	int status = parse(argc, argv);

	if (status) {
		return status;
	}
	if (opt.log && !(log = fopen(opt.log, "w"))) {
		perror(opt.log);
		return 2;
	}
	service_catch_signals();
	service_begin(&k, opt.blocks, opt.threads);
	for (int i = 0; i < VARIANTS; i++) {
		want[i] = expected(i);
	}
	for (int i = 0; i < 5; i++) {
		wrong += !serve(&k, i, want[i]);
	}
	seed = (uint64_t)opt.seed * 0x9e3779b97f4a7c15u;
	printf("ready\n");
	fflush(stdout);
	arrival = sample_now();
	for (long r = 0; (!opt.requests || r < opt.requests) && !service_stop; r++) {
		int variant = (int)(sample_random(&seed) % VARIANTS);
		double done;

		arrival += -log1p(-(double)sample_random_float(&seed)) / opt.rate;
		wait_until(arrival);
		if (service_stop) {
			break;
		}
		wrong += !serve(&k, variant, want[variant]);
		done = sample_now();
		note(&l, (done - arrival) * 1e6);
		if (log) {
			fprintf(log, "%.6f %.1f\n", done, (done - arrival) * 1e6);
			fflush(log);
		}
	}
	service_end(&k);
	return finish(&l, wrong);
}

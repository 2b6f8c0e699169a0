/* batch: saturates the device with kernels of one length and counts them. Every kernel adds to all
 * elements; a lost, repeated or torn launch changes the sum, which is checked every few kernels. It
 * has no knowledge of gBPF. Exit 0: all right, 1: a wrong result, 2: usage, 3: a CUDA error. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "service.h"

#define MAX_DEPTH 64

static struct {
	double kernel_us, seconds;
	int blocks, threads, depth, iterations;
	const char *log;
} opt = { .kernel_us = 1000, .blocks = 8, .threads = 128, .depth = 8 };

struct progress {
	CUevent done[MAX_DEPTH];
	long launched, finished, wrong;
	FILE *log;
};

static int usage(void)
{
	fprintf(stderr, "usage: batch [--kernel-us US | --iterations N] [--blocks N] [--threads N] "
			"[--depth N]\n"
			"             [--seconds S] [--log FILE]\n");
	return 2;
}

static int parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "kernel-us", 1, NULL, 'k' }, { "iterations", 1, NULL, 'i' },
		{ "blocks", 1, NULL, 'b' },    { "threads", 1, NULL, 't' },
		{ "depth", 1, NULL, 'd' },     { "seconds", 1, NULL, 's' },
		{ "log", 1, NULL, 'l' },       { 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 'k':
			opt.kernel_us = service_number("--kernel-us", optarg, 1, 1e6);
			break;
		case 'i':
			opt.iterations = (int)service_number("--iterations", optarg, 1, 1 << 24);
			break;
		case 'b':
			opt.blocks = (int)service_number("--blocks", optarg, 1, 65535);
			break;
		case 't':
			opt.threads = (int)service_number("--threads", optarg, 1, 1024);
			break;
		case 'd':
			opt.depth = (int)service_number("--depth", optarg, 1, MAX_DEPTH);
			break;
		case 's':
			opt.seconds = service_number("--seconds", optarg, 0.01, 1e6);
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

static void await(struct progress *p, long upto)
{
	while (p->finished < upto) {
		CHECK(cuEventSynchronize(p->done[p->finished % opt.depth]));
		p->finished++;
		if (p->log) {
			fprintf(p->log, "%.6f %ld\n", sample_now(), p->finished);
			fflush(p->log);
		}
	}
}

/* Launches count kernels with at most depth of them in flight, then checks that each ran exactly
 * once. */
static void round_of(struct service_kernel *k, struct progress *p, int count)
{
	float want = (float)count * (float)opt.iterations;

	service_fill(k, 0.0f);
	for (int i = 0; i < count; i++) {
		await(p, p->launched - opt.depth + 1);
		service_launch(k, 1.0f, 1.0f, opt.iterations);
		CHECK(cuEventRecord(p->done[p->launched % opt.depth], k->stream));
		p->launched++;
	}
	await(p, p->launched);
	service_fetch(k);
	for (int i = 0; i < k->n; i++) {
		if (k->host[i] != want) { /* sums of integers below 2^24 are exact */
			p->wrong++;
			break;
		}
	}
}

int main(int argc, char **argv)
{
	struct service_kernel k;
	struct progress p = { 0 };
	double begin, took;
	int status = parse(argc, argv), count;

	if (status) {
		return status;
	}
	if (opt.log && !(p.log = fopen(opt.log, "w"))) {
		perror(opt.log);
		return 2;
	}
	service_catch_signals();
	service_begin(&k, opt.blocks, opt.threads);
	for (int i = 0; i < opt.depth; i++) {
		CHECK(cuEventCreate(&p.done[i], CU_EVENT_DISABLE_TIMING));
	}
	if (!opt.iterations) {
		opt.iterations = service_calibrate(&k, opt.kernel_us * 1e-6);
	}
	count = (1 << 24) / opt.iterations;
	count = count < 1 ? 1 : count > 64 ? 64 : count;
	printf("ready iterations %d\n", opt.iterations);
	fflush(stdout);
	begin = sample_now();
	while (!service_stop && (opt.seconds == 0 || sample_now() - begin < opt.seconds)) {
		round_of(&k, &p, count);
	}
	took = sample_now() - begin;
	for (int i = 0; i < opt.depth; i++) {
		CHECK(cuEventDestroy(p.done[i]));
	}
	service_end(&k);
	printf("kernels %ld in %.2f s: %.1f/s  wrong %ld\n", p.finished, took,
	       (double)p.finished / took, p.wrong);
	return p.wrong ? 1 : 0;
}

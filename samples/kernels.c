/* kernels: twelve small known kernels, each checked against the CPU.
 *	kernels [--size N] [--repeat N] [NAME...]		exit 0: all right, 1: a wrong
 * result, 2: usage */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

static const struct {
	const char *name;
	sample_fn *run;
} table[] = {
	{ "vecadd", vecadd }, { "saxpy", saxpy },	  { "reduction", reduction },
	{ "scan", scan },     { "histogram", histogram }, { "transpose", transpose },
	{ "matmul", matmul }, { "hotspot", hotspot },	  { "bfs", bfs },
	{ "nbody", nbody },   { "softmax", softmax },	  { "spmv", spmv },
};

static int usage(void)
{
	fprintf(stderr, "usage: kernels [--size N] [--repeat N] [NAME...]\nnames:");
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		fprintf(stderr, " %s", table[i].name);
	}
	fprintf(stderr, "\n");
	return 2;
}

static int run_one(const char *name, sample_fn *run, int n, int repeat)
{
	double begin = sample_now();
	int right = 0;

	for (int i = 0; i < repeat; i++) {
		right += run(n);
	}
	printf("%-10s %s  %8.2f ms\n", name, right == repeat ? "ok   " : "WRONG",
	       (sample_now() - begin) * 1e3 / repeat);
	return right != repeat;
}

static int named(const char *name, int argc, char **argv)
{
	for (int i = optind; i < argc; i++) {
		if (!strcmp(argv[i], name)) {
			return 1;
		}
	}
	return optind == argc;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "size", 1, NULL, 's' },
						 { "repeat", 1, NULL, 'r' },
						 { 0 } };
	int n = 1 << 15, repeat = 1, wrong = 0, ran = 0, c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		long value = optarg ? strtol(optarg, NULL, 10) : 0;

		if (c == '?' || value < 1 || value > 1 << 26) {
			return usage();
		}
		*(c == 's' ? &n : &repeat) = (int)value;
	}
	sample_begin();
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (named(table[i].name, argc, argv)) {
			wrong += run_one(table[i].name, table[i].run, n, repeat);
			ran++;
		}
	}
	if (!ran) {
		return usage();
	}
	sample_end();
	return wrong ? 1 : 0;
}

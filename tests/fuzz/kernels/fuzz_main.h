/* Shared by the fuzzers in this folder: selection of kernels, counting, and the digest of results.
 */
#ifndef GBPF_FUZZ_MAIN_H
#define GBPF_FUZZ_MAIN_H

#include "kernel.h"

/* Runs a kernel, borrowing everything. Returns false after printing a message if it did not run. */
typedef bool (*fuzz_run)(void *arg, const struct kernel *k, const char *ptx, size_t bytes,
			 const uint8_t *in, uint8_t *out, uint8_t *sums);
struct fuzz_target {
	const char *name;
	fuzz_run run;
	void *arg;
};

/* FIRST COUNT SIZE [DIGEST] | --forms FIRST ROUNDS | --print SEED SIZE; the exit code. Every target
 * runs every kernel. */
int fuzz_main(int argc, char **argv, const struct fuzz_target *targets, unsigned n);

#endif

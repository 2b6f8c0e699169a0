/* Command line of the fuzzers in this folder. */
#include "fuzz_main.h"

#include <stdlib.h>
#include <string.h>

static uint8_t in[LANES_MAX * IN_BYTES], out[LANES_MAX * OUT_BYTES], sums[SUMS_BYTES],
	want[LANES_MAX * OUT_BYTES], want_sums[SUMS_BYTES];

/* Runs one kernel on all targets. Takes k. Returns 1 if the result of a target differs from the
 * reference. */
static unsigned one(struct kernel *k, const struct fuzz_target *targets, unsigned n,
		    uint64_t *digest)
{
	char *ptx = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&ptx, &bytes);
	unsigned bad = 0;

	if (!f) {
		abort();
	}
	kernel_print(k, f);
	fclose(f);
	kernel_inputs(k, in);
	memset(want, 0, sizeof(want));
	kernel_reference(k, in, want, want_sums);
	for (unsigned i = 0; i < n; i++) {
		memset(out, 0, sizeof(out));
		memset(sums, 0, sizeof(sums));
		if (!targets[i].run(targets[i].arg, k, ptx, bytes, in, out, sums) ||
		    kernel_compare(k, out, want, sums, want_sums)) {
			fprintf(stderr, "seed %llu, %s\n", (unsigned long long)kernel_seed(k),
				targets[i].name);
			bad = 1;
		}
	}
	*digest = kernel_digest(kernel_digest(*digest, out, sizeof(out)), sums, sizeof(sums));
	free(ptx);
	kernel_destroy(k);
	return bad;
}

static int run_forms(uint64_t first, uint64_t rounds, const struct fuzz_target *targets, unsigned n)
{
	unsigned wrong = 0, i = 0;
	uint64_t digest = 0;

	for (struct kernel *k; (k = kernel_of_form(i, 0)); i++) {
		unsigned bad = 0;

		kernel_destroy(k);
		for (uint64_t r = first; r < first + rounds; r++) {
			bad += one(kernel_of_form(i, r), targets, n, &digest);
		}
		wrong += bad != 0;
		if (bad) {
			fprintf(stderr, "wrong: %s\n", kernel_form(i));
		}
	}
	printf("%u instructions, %llu rounds from %llu: %u wrong, digest %016llx\n", i,
	       (unsigned long long)rounds, (unsigned long long)first, wrong,
	       (unsigned long long)digest);
	return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_kernels(uint64_t first, uint64_t count, unsigned size, const char *recorded,
		       const struct fuzz_target *targets, unsigned n)
{
	uint64_t digest = 0;
	unsigned wrong = 0;
	char text[32];

	for (uint64_t s = first; s < first + count; s++) {
		wrong += one(kernel_create(s, size), targets, n, &digest);
	}
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)digest);
	printf("%llu kernels from seed %llu, %u statements each: %u wrong, digest %s\n",
	       (unsigned long long)count, (unsigned long long)first, size, wrong, text);
	if (recorded && strcmp(recorded, text) != 0) {
		printf("the recorded digest is %s\n", recorded);
		return EXIT_FAILURE;
	}
	return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

int fuzz_main(int argc, char **argv, const struct fuzz_target *targets, unsigned n)
{
	if (argc < 4) {
		fprintf(stderr,
			"usage: %s FIRST COUNT SIZE [DIGEST] | --forms FIRST ROUNDS | --print SEED "
			"SIZE\n",
			argv[0]);
		return 2;
	}
	if (strcmp(argv[1], "--forms") == 0) {
		return run_forms(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), targets,
				 n);
	}
	if (strcmp(argv[1], "--print") == 0) {
		struct kernel *k = kernel_create(strtoull(argv[2], NULL, 10),
						 (unsigned)strtoul(argv[3], NULL, 10));

		kernel_print(k, stdout);
		kernel_destroy(k);
		return 0;
	}
	return run_kernels(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10),
			   (unsigned)strtoul(argv[3], NULL, 10), argc > 4 ? argv[4] : NULL, targets,
			   n);
}

/* A measuring program: its options and its records. A record is a JSON object with one member, on a
 * line of standard output; bench/report reads them and prints tables, documents and charts. */
#ifndef GBPF_BENCH_COMMON_PROGRAM_H
#define GBPF_BENCH_COMMON_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/* An option and the variable for its value, exactly one of the four; text is borrowed from argv. */
struct bench_program_option {
	const char *name; /* with dashes */
	const char **text;
	unsigned *number;
	double *real;
	bool *flag;
};

/* Sets the variables of the given options; table ends with a NULL name. Leaves the words that are
 * not options in argv[1] to argv[*argc - 1]. Returns false for an unknown option, or a value that
 * is missing or malformed. */
bool bench_program_options(const struct bench_program_option *table, int *argc, char **argv);
/* Says on standard error that `gbpf bench` starts the program; returns the exit code. */
int bench_program_usage(void);
/* Returns whether a comma-separated list contains that name. */
bool bench_program_lists(const char *list, const char *name);
/* Stores the numbers of a comma-separated list. Returns how many; 0 if it is malformed, has more
 * than n_max, or one that is not min to max. */
unsigned bench_program_numbers(const char *list, unsigned min, unsigned max, unsigned *v,
			       unsigned n_max);

/* Writes a record and releases its body. Returns 0, or -1 if it could not be written. */
int bench_program_record(const char *name, json_t *body);
/* Writes the record that ends the run as failed. Returns -1. */
int bench_program_fail(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Writes the record that ends a complete run. Returns the exit code. */
int bench_program_end(bool failed);
/* Returns a string, with question marks for bytes of a text that is not UTF-8. */
json_t *bench_program_text(const char *text);
/* Returns an array of n numbers. */
json_t *bench_program_floats(const float *v, unsigned n);
json_t *bench_program_doubles(const double *v, unsigned n);
json_t *bench_program_integers(const unsigned *v, unsigned n);
/* Returns an array of the n differences of counters between two moments. */
json_t *bench_program_differences(const uint64_t *now, const uint64_t *before, unsigned n);

#endif

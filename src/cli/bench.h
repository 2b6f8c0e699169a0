/* What the verbs of `gbpf bench` share. */
#ifndef GBPF_CLI_BENCH_H
#define GBPF_CLI_BENCH_H

#include "cli/cli.h"

#define BENCH_PATH 4096

/* Path of a program of bench; CLI_OK, or an exit code after a message. */
int cli_bench_program(struct cli *c, const char *name, char path[BENCH_PATH]);
/* Becomes bench's program bench-<verb>. Returns only an exit code, after a message. */
int cli_bench_exec(struct cli *c, const char *verb, char **argv);
/* Appends to an argument vector that is long enough, and ends it with NULL. */
void cli_bench_push(char **argv, int *n, const char *flag, const char *value);

/* bench_world.c: for programs that start clients on a GPU. */
#define BENCH_ARGS 96
/* Pushes where everything lies that they need; device and policy may be NULL. CLI_OK, or an exit
 * code after a message. */
int cli_bench_testbed(struct cli *c, const char *what, const char *device, const char *policy,
		      char **argv, int *n);
struct cli_bench_number {
	int option;
	uint64_t min, max;
};
int cli_bench_check_numbers(struct cli *c, const struct cli_bench_number *numbers, size_t n);
/* Every word of a list with commas must be one of the names, which end with NULL. */
int cli_bench_check_list(struct cli *c, const char *what, int option, const char *const *names);
/* Pushes the verb's options that were given, but not these (ends with -1). */
void cli_bench_push_options(struct cli *c, char **argv, int *n, const int *not_these);

#endif

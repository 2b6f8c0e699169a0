/* What the verbs of `gbpf bench` share. */
#ifndef GBPF_CLI_BENCH_H
#define GBPF_CLI_BENCH_H

#include "cli/cli.h"

#define CLI_BENCH_PATH 4096

/* Stores the path of a measuring program. Returns CLI_OK, or an exit code after a message. */
int cli_bench_program(struct cli *c, const char *name, char path[CLI_BENCH_PATH]);
/* Runs the measuring program argv[0] and the reader of its records. Returns the exit code, after a
 * message if one of them could not be started or was killed. */
int cli_bench_run(struct cli *c, char **argv);
/* Passes signals on to the measuring program, so that this process can clean up after it. */
void cli_bench_outlive_signals(void);
/* Returns the value of the verb's option of that name, or NULL. */
const char *cli_bench_option(struct cli *c, const char *name);
/* Appends to an argument vector, which the caller made long enough, and terminates it with NULL. */
void cli_bench_push(char **argv, int *n, const char *flag, const char *value);

/* bench_testbed.c: for programs that start clients on a GPU. */
#define CLI_BENCH_ARGS 96
/* Appends the paths that these programs need; device and policy may be NULL. Returns CLI_OK, or an
 * exit code after a message. */
int cli_bench_testbed(struct cli *c, const char *what, const char *device, const char *policy,
		      char **argv, int *n);
/* The same for a program whose clients are a program of its own, in place of bench-client. */
int cli_bench_testbed_client(struct cli *c, const char *what, const char *device,
			     const char *policy, const char *client, char **argv, int *n);
/* Appends --policy-dir and the folder of the installed policies. */
int cli_bench_push_policies(struct cli *c, const char *what, char **argv, int *n);
struct cli_bench_number {
	int option;
	uint64_t min, max;
};
int cli_bench_check_numbers(struct cli *c, const struct cli_bench_number *numbers, size_t n);
/* Stores the bytes of an option that is a size, or 0 if it is not given. hint: the valid values. */
int cli_bench_check_size(struct cli *c, const char *what, int option, uint64_t min, uint64_t max,
			 const char *hint, char bytes[24]);
/* Checks a list of 2 to 16 percents whose sum is at most 100; sets: several of them, separated by
 * '|'. */
int cli_bench_check_shares(struct cli *c, const char *what, int option, bool sets);
/* Checks that each word of a comma-separated list is one of names (NULL-terminated). */
int cli_bench_check_list(struct cli *c, const char *what, int option, const char *const *names);
/* Appends the given options of the verb, except those of the reader (--save, --svg) and not_these
 * (terminated by -1). */
void cli_bench_push_options(struct cli *c, char **argv, int *n, const int *not_these);

#endif

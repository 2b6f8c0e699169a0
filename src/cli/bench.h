/* What the verbs of `gbpf bench` share. */
#ifndef GBPF_CLI_BENCH_H
#define GBPF_CLI_BENCH_H

#include "cli/cli.h"

#define BENCH_PATH 4096

/* Path of a program of src/bench; CLI_OK, or an exit code after a message. */
int bench_program(struct cli *c, const char *name, char path[BENCH_PATH]);
/* Becomes src/bench's program bench-<verb>. Returns only an exit code, after a message. */
int bench_exec(struct cli *c, const char *verb, char **argv);
/* Appends to an argument vector that is long enough, and ends it with NULL. */
void bench_push(char **argv, int *n, const char *flag, const char *value);

#endif

/* `gbpf run --check`: a private soft GPU that checks the accesses of kernels. */
#ifndef GBPF_CLI_RUN_CHECK_H
#define GBPF_CLI_RUN_CHECK_H

#include "cli/cli.h"

struct cli_run_check {
	int pid; /* pid of the server; 0: none */
	char dir[64];
};

/* Starts the server in a private folder and sets its socket in the environment. Returns 0, or an
 * exit code after a message. */
int cli_run_check_start(struct cli *c, struct cli_run_check *k);
/* Ends the server, which prints its findings. Returns the exit code of `gbpf run`: the program's,
 * or CLI_FAILED if that is 0 and there were findings. */
int cli_run_check_end(struct cli_run_check *k, int code);

#endif

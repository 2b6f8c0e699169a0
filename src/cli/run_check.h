/* `gbpf run --check`: a soft GPU of its own that checks what kernels do. */
#ifndef GBPF_CLI_RUN_CHECK_H
#define GBPF_CLI_RUN_CHECK_H

#include "cli/cli.h"

struct cli_run_check {
	int pid; /* of the server; 0: none */
	char dir[64];
};

/* Starts the server in a folder of its own and lets the environment name its socket. 0, or an exit
 * code after a message. */
int cli_run_check_start(struct cli *c, struct cli_run_check *k);
/* Ends it, which prints what was found; the exit code of `gbpf run`: the program's, or CLI_FAILED
 * when that is 0 and something was found. */
int cli_run_check_end(struct cli_run_check *k, int code);

#endif

/* The program that `gbpf trace TOOL -- PROGRAM` starts: `gbpf run` as a child process, under a name
 * to which the tool is attached before. */
#ifndef GBPF_CLI_TRACE_PROGRAM_H
#define GBPF_CLI_TRACE_PROGRAM_H

#include <sys/types.h>

#include "cli/cli.h"

struct cli_trace_program_run {
	char **command; /* borrowed; terminated by NULL. NULL: there is no program to start */
	char name[32];	/* of its processes (GBPF_NAME) */
	pid_t pid;	/* of `gbpf run`; 0: not started */
	bool ended;
	int code; /* when it has ended: its exit code, 128 + the signal that has ended it */
};

/* Checks that the program is there, names its processes, and starts gbpfd unless one runs. Returns
 * CLI_OK, or an exit code after a message. */
int cli_trace_program_prepare(struct cli *c, struct cli_trace_program_run *p);
/* Starts it. Until it ends, signals that the terminal has not sent to it, too, are forwarded to it.
 * Returns CLI_OK, or an exit code after a message. */
int cli_trace_program_start(struct cli *c, struct cli_trace_program_run *p);
/* Returns whether it has ended; wait: waits until it has. */
bool cli_trace_program_ended(struct cli_trace_program_run *p, bool wait);
/* Asks it to end (SIGTERM). */
void cli_trace_program_stop(const struct cli_trace_program_run *p);

#endif

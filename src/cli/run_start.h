/* Before a program is started under the shim: its file, the socket, and gbpfd. what: the verb, for
 * messages. */
#ifndef GBPF_CLI_RUN_START_H
#define GBPF_CLI_RUN_START_H

#include <limits.h>

#include "cli/connect.h"
#include "cli/run_env.h"

/* Finds the file that exec would execute. Returns false if there certainly is none, so that gbpfd
 * is not started needlessly. full: its path, empty if it is not known. */
bool cli_run_find_command(const char *command, char full[PATH_MAX]);
/* Reports that a program could not be executed; err: errno. Returns the exit code. */
int cli_run_exec_failed(struct cli *c, const char *what, const char *program, int err);
/* Sets the variable by which the child, and a gbpfd started here, find the socket. What the program
 * starts, now or after a restart, thus finds the same gbpfd, whichever one of root starts or stops
 * meanwhile. Root's gbpfd may end before this verb has reached it: *ret_undecided: libgbpf chooses,
 * and cli_run_start_daemon() sets the variable after that. ret_undecided NULL: no gbpfd is started
 * or called. Returns 0, or an exit code after a message. */
int cli_run_use_socket(struct cli *c, const char *what, bool *ret_undecided);
/* Connects, starting gbpfd for that device if needed. undecided: as cli_run_use_socket() has found.
 * Returns CLI_OK, or an exit code after a message; the caller closes *ret in either case. */
int cli_run_start_daemon(struct cli *c, const char *what, const struct cli_run_device *d,
			 bool undecided, struct gbpf **ret);

#endif

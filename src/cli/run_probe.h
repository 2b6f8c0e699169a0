/* The tool of `gbpf run --probe`: attached before the program starts, read while its processes run,
 * and shown when the program has ended. */
#ifndef GBPF_CLI_RUN_PROBE_H
#define GBPF_CLI_RUN_PROBE_H

#include "cli/connect.h"

struct cli_run_probe {
	struct gbpf *g; /* owned; NULL: there is none */
	uint64_t id;
	char name[64];	  /* of the tool */
	bool started;	  /* the program has; set by the caller */
	bool ended;	  /* it was detached, or cannot be read any more */
	bool absent;	  /* the last reading has failed */
	json_t *tool;	  /* owned: as last listed; NULL: not yet */
	json_t *found;	  /* owned: processes that had it; their place here is their number there */
	json_t *maps;	  /* owned: the last values of all processes, by name of the map */
	json_t *kernels;  /* owned: the highest numbers that were listed */
	json_t *next;	  /* owned: positions in the lines that its programs print */
	json_t *unread;	  /* owned: names of maps that cannot be read */
	uint64_t missed;  /* lines that were overwritten before they were read */
	uint64_t read_ns; /* when the last reading ended */
	uint64_t took_ns; /* time of it */
};

/* Attaches the object of a file, or an installed tool, to all programs of that name. Returns
 * CLI_OK, or an exit code after a message. Call cli_run_probe_end() in either case. */
int cli_run_probe_begin(struct cli *c, struct cli_run_probe *p, const char *object, const char *to);
/* Returns the time until the next reading; 0: it is due, UINT64_MAX: there is none. */
uint64_t cli_run_probe_due(const struct cli_run_probe *p);
/* Reads its values, and prints new lines of its programs on standard error. A process that exits
 * waits until its last values were read (GBPF_PROBE_HOLD). */
void cli_run_probe_read(struct cli *c, struct cli_run_probe *p);
/* Reads it once more and detaches it. Prints what its maps had if the program has started. */
void cli_run_probe_end(struct cli *c, struct cli_run_probe *p);

#endif

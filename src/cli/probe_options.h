/* Arguments and values of options of `gbpf probe`. */
#ifndef GBPF_CLI_PROBE_OPTIONS_H
#define GBPF_CLI_PROBE_OPTIONS_H

#include "cli/cli.h"

/* Parse --sample, as 1/8, and --budget, as 3%; NULL gives 0. Return CLI_OK, or CLI_USAGE after a
 * message. */
int cli_probe_sample(struct cli *c, const char *text, uint32_t *ret_every);
int cli_probe_budget(struct cli *c, const char *text, uint32_t *ret_ppm);

/* Stores the number of the tool that text names, by number or by a name that one tool has, of those
 * that the user sees. what: for messages, such as "probe swap". Returns CLI_OK, or an exit code
 * after a message. */
int cli_probe_id(struct cli *c, const char *what, const char *text, uint64_t *ret);

/* Prints a line for each pattern of kernels that a tool, as probe.set and probe.list show it, is
 * set for. */
void cli_probe_print_scopes(const json_t *tool);

/* Prints notes about programs of a tool, as probe.attach and probe.list show it, that have no site
 * in kernels which run the tool. */
void cli_probe_note_gaps(struct cli *c, const json_t *tool);

#endif

/* Arguments and values of options of `gbpf probe`. */
#ifndef GBPF_CLI_PROBE_OPTIONS_H
#define GBPF_CLI_PROBE_OPTIONS_H

#include "cli/cli.h"
#include "gbpf/gbpf.h"

/* Parse --sample, as 1/8, and --budget, as 3%; NULL gives 0, and the budget "none"
 * GBPF_PROBE_NO_BUDGET. Return CLI_OK, or CLI_USAGE after a message. */
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

/* Prints a line of probe.log. */
void cli_probe_print_line(FILE *to, const json_t *line);
/* Calls show() with each line of an answer of probe.log, in the order of their times. page NULL:
 * none. Returns false if there is no memory. */
bool cli_probe_show_lines(const json_t *page, void (*show)(void *arg, json_t *line), void *arg);

/* Returns the parameters of probe.coverage for the program that text names, by number or name;
 * NULL: of all programs. NULL: no memory, or the name is not UTF-8. Caller decrefs. */
json_t *cli_probe_target(const char *text);

/* Returns the kernels that programs have launched, as probe.coverage has them; NULL: no answer.
 * With look the programs look at what can be probed, which takes a while; without it kernels of the
 * last second may be missing. Caller decrefs. */
json_t *cli_probe_coverage(struct gbpf *g, const char *to, bool look);

/* What a pattern of kernels' names finds. */
struct cli_probe_search {
	struct nearest near; /* to the pattern; its names are those of the coverage */
	size_t kernels;	     /* that were compared with it */
	size_t matches;	     /* of them */
	bool complete;	     /* all kernels are known, by their full names */
};

/* Compares a pattern with those kernels of a coverage that `within` matches. */
void cli_probe_search(struct cli_probe_search *s, const json_t *coverage, const char *within,
		      const char *pattern);

/* Prints a warning for each pattern of kernels' names, of the tool or of one of its programs, that
 * matches none of the kernels which the tool's target has launched so far, if all of these are
 * known. tool: as probe.list shows it. Returns whether there is one. */
bool cli_probe_note_unmatched(struct cli *c, struct gbpf *g, const json_t *tool);

#endif

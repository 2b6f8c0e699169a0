/* Shared by the verbs of `gbpf map`. */
#ifndef GBPF_CLI_MAP_PRINT_H
#define GBPF_CLI_MAP_PRINT_H

#include "cli/connect.h"

/* A map on the control socket: which tenant's instance, and the tenants' names. */
struct cli_map {
	struct gbpf *g; /* owned */
	struct gbpf_map map;
	json_t *tenants;      /* owned: tenants as in `gbpf ps`, or NULL */
	const char *variable; /* global variable of a data section that was named, or NULL */
	char *section;	      /* owned: the name of its section */
};

/* The options that select an instance of a map, first in the table of each verb. */
enum { CLI_MAP_VERSION, CLI_MAP_PROBE, CLI_MAP_TENANT, CLI_MAP_GPU, CLI_MAP_OPTIONS };
#define CLI_MAP_TABLE                                                                              \
	[CLI_MAP_VERSION] = { "version", 0, "VERSION",                                             \
			      "of that version (default: the active one)" },                       \
	[CLI_MAP_PROBE] = { "probe", 'p', "ID|NAME", "of that tool; `gbpf probe ls` lists them" }, \
	[CLI_MAP_TENANT] = { "tenant", 't', "PID",                                                 \
			     "instance of that program (its process or tenant number)" },          \
	[CLI_MAP_GPU] = { "gpu", 'g', "GPU", "on that GPU; `gbpf device` shows their numbers" }

/* Connects, and parses these options. name NULL: no map. Returns CLI_OK, or an exit code after a
 * message; call finish in either case. */
int cli_map_open(struct cli *c, struct cli_map *m, const char *name);
void cli_map_finish(struct cli_map *m);

/* Has programs copy the map from memory of the GPU if it is there, and finds the tool if only one
 * has a map of the name. A map that does not exist is left to the call that follows. Returns
 * CLI_OK, or an exit code after a message. */
int cli_map_drain(struct cli *c, struct cli_map *m, const char *what);

/* If no map has the name, looks for a global variable, sets m->variable and uses its section as the
 * map. Returns CLI_OK, or an exit code after a message. what: "map get". */
int cli_map_find_variable(struct cli *c, struct cli_map *m, const char *what);
/* Says which GPU's maps an answer shows, if the policy is active on several. */
void cli_map_note_gpu(struct cli *c, const json_t *result);
/* Reduces a section's entries to the variable. */
void cli_map_keep_variable(const struct cli_map *m, json_t *result);

/* Returns the process of a tenant number, or 0 if unknown. */
uint64_t cli_map_pid(const struct cli_map *m, uint64_t tenant);

/* Formats a JSON value on one line: {a=1, b=[1, 2]}. Longer than max: truncated with "...". */
void cli_map_text(struct buf *out, const json_t *v, size_t max);

/* Prints the entries of map.dump and map.get as a table, bars or lines. */
void cli_map_print(struct cli *c, const struct cli_map *m, const json_t *result);

#endif

/* What the verbs of `gbpf map` share. */
#ifndef GBPF_CLI_MAP_PRINT_H
#define GBPF_CLI_MAP_PRINT_H

#include "cli/connect.h"

/* Whose instance is meant, and who is who. */
struct cli_map {
	struct gbpf *g; /* owned */
	struct gbpf_map map;
	json_t *tenants;      /* owned: of ps, or NULL */
	const char *variable; /* a global variable was named: of the data section map; else NULL */
	char *section;	      /* owned: name of that section */
};

/* Connects, and reads --version and --tenant (NULL: not given). name NULL: no map. CLI_OK, or an
 * exit code after a message; finish in any case. */
int cli_map_open(struct cli *c, struct cli_map *m, const char *name, const char *version,
		 const char *tenant);
void cli_map_finish(struct cli_map *m);

/* When no map has the name, looks for a global variable: then m->variable is set and the map is its
 * section. CLI_OK, or an exit code after a message. what: "map get". */
int cli_map_find_variable(struct cli *c, struct cli_map *m, const char *what);
/* Leaves of a section's entries the variable alone. */
void cli_map_keep_variable(const struct cli_map *m, json_t *result);

/* Process of a tenant's number, 0: not known. */
uint64_t cli_map_pid(const struct cli_map *m, uint64_t tenant);

/* A JSON value on one line, as people write it: {a=1, b=[1, 2]}. Longer than max: cut with "...".
 */
void cli_map_text(struct buf *out, const json_t *v, size_t max);

/* Entries of map.dump and map.get as a table, bars or lines. */
void cli_map_print(struct cli *c, const struct cli_map *m, const json_t *result);

#endif

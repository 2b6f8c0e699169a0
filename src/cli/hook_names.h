/* Names and budgets of hooks, from hooks.def. */
#ifndef GBPF_CLI_HOOK_NAMES_H
#define GBPF_CLI_HOOK_NAMES_H

#include <stdint.h>

struct cli_hook_info {
	int id;
	const char *name;
	const char *side; /* "LOCAL": in the tenant's process; "DAEMON": in gbpfd */
	uint32_t budget;
};

extern const struct cli_hook_info hook_table[]; /* ends with a NULL name */

const struct cli_hook_info *cli_hook_by_id(int id);
/* "submit" or "gbpf/submit"; NULL when there is none. */
const struct cli_hook_info *cli_hook_by_name(const char *name);

#endif

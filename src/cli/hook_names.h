/* Names and budgets of hooks, from hooks.def. */
#ifndef GBPF_CLI_HOOK_NAMES_H
#define GBPF_CLI_HOOK_NAMES_H

#include <stdint.h>

struct cli_hook_info {
	int id;
	const char *name;
	const char *side; /* "LOCAL": in the tenant's process; "DAEMON": in gbpfd;
			     "DEVICE": inside kernels */
	uint32_t budget;
};

extern const struct cli_hook_info hook_table[]; /* terminated by a NULL name */

const struct cli_hook_info *cli_hook_by_id(int id);
/* Returns the hook named "submit" or "gbpf/submit", or NULL. */
const struct cli_hook_info *cli_hook_by_name(const char *name);

#endif

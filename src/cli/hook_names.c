/* The hooks by their names on the command line. */
#include "cli/hook_names.h"

#include <stddef.h>
#include <string.h>

const struct cli_hook_info hook_table[] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) { id, #name, #side, budget },
#include "gbpf/hooks.def"
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc)
#define GBPF_DEVICE_HOOK(id, name, budget, doc) { id, #name, "DEVICE", budget },
#include "gbpf/hooks.def"
	{ 0, NULL, NULL, 0 },
};

const struct cli_hook_info *cli_hook_by_id(int id)
{
	for (const struct cli_hook_info *h = hook_table; h->name; h++) {
		if (h->id == id) {
			return h;
		}
	}
	return NULL;
}

const struct cli_hook_info *cli_hook_by_name(const char *name)
{
	const char *bare = strncmp(name, "gbpf/", 5) == 0 ? name + 5 : name;

	for (const struct cli_hook_info *h = hook_table; h->name; h++) {
		if (strcmp(h->name, bare) == 0) {
			return h;
		}
	}
	return NULL;
}

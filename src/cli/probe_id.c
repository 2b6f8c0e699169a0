/* Which tool an argument names. */
#include <ctype.h>
#include <string.h>

#include "cli/connect.h"
#include "cli/probe_options.h"

/* Returns how many tools have the name, of all or of those that stay; *ret: the number of the last
 * one. A tool that is being replaced or detached does not stay. */
static size_t count_named(const json_t *list, const char *name, bool staying, uint64_t *ret)
{
	const json_t *p;
	size_t i, n = 0;

	json_array_foreach(list, i, p)
	{
		if (strcmp(cli_text(p, "name"), name) == 0 &&
		    (!staying || strcmp(cli_text(p, "state"), "attached") == 0)) {
			*ret = cli_u64(p, "id");
			n++;
		}
	}
	return n;
}

int cli_probe_id(struct cli *c, const char *what, const char *text, uint64_t *ret)
{
	json_t *result = NULL;
	size_t n;
	int code;

	if (isdigit((unsigned char)text[0])) {
		return cli_number(c, "ID", text, 1, UINT32_MAX, ret);
	}
	code = cli_call(c, what, "probe.list", NULL, &result);
	if (code) {
		return code;
	}
	n = count_named(json_object_get(result, "probes"), text, true, ret);
	if (n == 0) {
		n = count_named(json_object_get(result, "probes"), text, false, ret);
	}
	json_decref(result);
	if (n == 1) {
		return CLI_OK;
	}
	return cli_fail(c, n ? CLI_USAGE : CLI_NOT_FOUND, n ? "usage" : "not-found",
			"`gbpf probe ls` shows their numbers",
			n ? "%s: several tools are called '%.64s'"
			  : "%s: no tool is called '%.64s'",
			what, text);
}

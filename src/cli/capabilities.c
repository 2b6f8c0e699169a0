/* Programs detect capabilities when they have a context on the GPU; gbpfd stores the result of the
 * most recent one. */
#include "cli/capabilities.h"

#include <string.h>

#include "cli/connect.h"

static void add(struct buf *line, size_t i, const char *what, const char *state, const char *why)
{
	buf_printf(line, "%s%s %s%s%s%s", i ? ", " : "", what, state, why[0] ? " (" : "", why,
		   why[0] ? ")" : "");
}

bool cli_capabilities_of(struct buf *out, const json_t *device)
{
	struct buf line = { 0 };
	bool known = false;
	const json_t *k;
	size_t i;

	json_array_foreach(json_object_get(device, "controls"), i, k)
	{
		known |= strcmp(cli_text(k, "state"), "unknown") != 0;
		add(&line, i, cli_text(k, "control"), cli_text(k, "state"), cli_text(k, "why"));
	}
	cli_safe_text(out, known ? buf_text(&line)
				 : "not tried yet: programs find out when they use it");
	buf_finish(&line);
	return known;
}

bool cli_capabilities_lanes(struct buf *out, const json_t *result)
{
	struct buf line = { 0 };
	bool all = true;
	const json_t *l;
	size_t i;

	json_array_foreach(json_object_get(result, "lanes"), i, l)
	{
		bool there = json_is_true(json_object_get(l, "available"));

		all &= there;
		add(&line, i, cli_text(l, "lane"), there ? "yes" : "no", cli_text(l, "why"));
	}
	cli_safe_text(out, buf_text(&line));
	buf_finish(&line);
	return all;
}

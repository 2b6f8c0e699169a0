/* Notes about programs of a tool that see nothing, since they have no site. */
#include "cli/connect.h"
#include "cli/probe_options.h"

/* Writes the names, but those in `without`. Returns their number. */
static unsigned put_names(struct buf *to, const json_t *names, const json_t *without)
{
	const json_t *name, *other;
	unsigned n = 0;
	size_t i, k;

	json_array_foreach(names, i, name)
	{
		bool left_out = false;

		json_array_foreach(without, k, other)
		{
			left_out = left_out || json_equal(name, other);
		}
		if (!left_out) {
			buf_printf(to, "%s%s", n++ ? ", " : "", json_string_value(name));
		}
	}
	return n;
}

/* Programs that see nothing at all: most likely the site, or the choice of kernels, is wrong. */
static void note_nowhere(struct cli *c, const json_t *tool, const json_t *nowhere)
{
	uint64_t kernels = cli_u64(tool, "kernels");
	struct buf names;
	unsigned n;

	buf_init(&names);
	n = put_names(&names, nowhere, NULL);
	if (n) {
		cli_note(c,
			 "warning: tool %llu: program%s %s %s no site in any of the %llu kernel%s "
			 "that run%s the tool so far, and see%s nothing; `gbpf probe rewrite "
			 "--explain` shows the sites of a kernel",
			 (unsigned long long)cli_u64(tool, "id"), PLURAL(n), buf_text(&names),
			 n == 1 ? "has" : "have", (unsigned long long)kernels, PLURAL(kernels),
			 kernels == 1 ? "s" : "", n == 1 ? "s" : "");
	}
	buf_finish(&names);
}

static void note_kernel(struct cli *c, const json_t *tool, const json_t *gap, const json_t *nowhere)
{
	struct buf names;
	unsigned n;

	buf_init(&names);
	n = put_names(&names, json_object_get(gap, "programs"), nowhere);
	if (n) {
		cli_note(c, "tool %llu: no site in kernel %s: program%s %s",
			 (unsigned long long)cli_u64(tool, "id"), cli_text(gap, "kernel"),
			 PLURAL(n), buf_text(&names));
	}
	buf_finish(&names);
}

void cli_probe_note_gaps(struct cli *c, const json_t *tool)
{
	const json_t *siteless = json_object_get(tool, "siteless"), *gap;
	const json_t *nowhere = json_object_get(siteless, "programs");
	size_t i;

	note_nowhere(c, tool, nowhere);
	json_array_foreach(json_object_get(siteless, "list"), i, gap)
	{
		note_kernel(c, tool, gap, nowhere);
	}
}

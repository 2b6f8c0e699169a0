/* Rows of control words (bpf/run/ptx_env.h). A name of a kernel whose form runs a tool that can be
 * set has a row as long as there is such a form: the same one in all contexts, and in the memory of
 * each tool. What gbpfd has set for a pattern of names is found here, so the GPU knows no patterns.
 */
#include "shim/probe/shim_probe_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"

struct row {
	char *name; /* owned; NULL: free */
	uint32_t refs;
};

static struct row rows[SHIM_PROBE_ROWS] GUARDED_BY(shim_probe_build_mutex); /* row 0 has no name */
static struct strmap by_name GUARDED_BY(shim_probe_build_mutex);	    /* > struct row */

uint32_t shim_probe_row_take(const char *name)
{
	struct row *r = strmap_get(&by_name, name);
	uint32_t free_row = 1;

	if (r) {
		r->refs++;
		return (uint32_t)(r - rows);
	}
	while (free_row < SHIM_PROBE_ROWS && rows[free_row].name) {
		free_row++;
	}
	if (free_row == SHIM_PROBE_ROWS) {
		return 0;
	}
	r = &rows[free_row];
	r->name = strdup(name);
	if (!r->name || strmap_add(&by_name, name, r) < 0) {
		free(r->name);
		r->name = NULL;
		return 0;
	}
	r->refs = 1;
	return free_row;
}

void shim_probe_row_put(uint32_t row)
{
	struct row *r = &rows[row];

	if (row && --r->refs == 0) {
		(void)strmap_del(&by_name, r->name);
		free(r->name);
		r->name = NULL;
	}
}

bool shim_probe_row_is_used(uint32_t row)
{
	return !row || rows[row].name;
}

uint32_t shim_probe_row_interval(const struct proto_probe_control *c, uint32_t row)
{
	uint32_t every = c->every;
	bool off = c->off;

	for (uint32_t i = 0; i < c->n && rows[row].name; i++) {
		const struct proto_probe_scope *s = &c->scopes[i];

		if (!pattern_matches(s->kernel, rows[row].name)) {
			continue;
		}
		every = s->every ? s->every : every;
		off = s->on_off ? s->on_off == PROTO_PROBE_OFF : off;
	}
	return off ? 0 : every;
}

void shim_probe_rows_forget(void)
{
	memset(rows, 0, sizeof(rows));
	strmap_init(&by_name);
}

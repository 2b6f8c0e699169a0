/* Whether a program's filter lets it run at a site. */
#include <string.h>

#include "base/pattern.h"
#include "ptx/probe/site/probe_site.h"

/* Returns true if the .file of that number is file, or ends with "/file". */
static bool is_file(const struct ptx_probe_slice *p, const struct ptx_probe_filter *f, uint32_t n)
{
	size_t len;
	const char *name = ptx_probe_file_name(p, n, &len), *tail;

	if (!name || len < f->file_len) {
		return false;
	}
	tail = name + len - f->file_len;
	return memcmp(tail, f->file, f->file_len) == 0 && (tail == name || tail[-1] == '/');
}

static bool passes(uint32_t wanted, uint32_t value)
{
	return wanted == PTX_PROBE_ANY || wanted == value;
}

bool ptx_probe_matches(const struct ptx_probe_slice *p, const struct ptx_probe_program *g,
		       const struct ptx_probe_site *s)
{
	const struct ptx_probe_filter *f = &g->filter;

	return passes(f->number, s->number) && passes(f->op, s->op) && passes(f->space, s->space) &&
	       passes(f->bytes, s->bytes) && passes(f->scope, s->scope) &&
	       passes(f->after, s->after) && passes(f->kind, s->kind) &&
	       (!f->file || (f->line == s->line && is_file(p, f, s->file))) &&
	       (!f->function || pattern_matches(f->function, s->in->name));
}

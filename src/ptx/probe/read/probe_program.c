/* Checks the probes' functions against the contract in probe.h. They come from gBPF's compiler, so
 * a violation is a fault of gBPF and is reported as one. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/strmap.h"
#include "ptx/block_facts.h"
#include "ptx/probe/read/probe_read.h"
#include "ptx/probe_bracket.h"

#define HEADER ".version 6.0\n.target sm_70\n.address_size 64\n"

static int wrong(struct ptx_probe_read *p, const struct ptx_probe *probe, const char *what)
{
	report_place(p->report, "%s", probe->name ? probe->name : "probe");
	return report_set(p->report, -EINVAL, "probe", "%s", what);
}

static int parse(struct ptx_probe_read *p, struct ptx_probe_program *g)
{
	struct buf text;
	int err;

	buf_init(&text);
	buf_puts(&text, HEADER);
	buf_puts(&text, g->probe->text);
	err = text.failed ? -ENOMEM
			  : ptx_module_parse(&g->module, text.data, text.len, g->probe->name,
					     p->report);
	buf_finish(&text);
	return err;
}

/* ---- what its functions may contain ---- */

/* Warp-wide instructions name the lanes that are active at the site, so all of these must run the
 * program. */
static bool is_forbidden(const struct ptx_insn *insn, bool lanes)
{
	static const char *const opcodes[] = { "exit",	    "trap",	  "brkpt",
					       "bar",	    "barrier",	  "mbarrier",
					       "nanosleep", "activemask", NULL };
	static const char *const warp_wide[] = { "shfl", "vote", "match", "redux", "elect", NULL };

	return ptx_is_one_of(insn->opcode, opcodes) ||
	       (ptx_is_one_of(insn->opcode, warp_wide) && !(lanes && ptx_insn_has(insn, ".sync")));
}

static bool reads_block(const struct ptx_operand *o)
{
	if (o->name && ptx_block_sreg_of(o->name) != PTX_BLOCK_SREG_NONE) {
		return true;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		if (reads_block(&o->args[i])) {
			return true;
		}
	}
	return false;
}

/* Returns the reason why the list is refused; NULL: it is not. Recursion is bounded by the
 * parser. */
static const char *list_why(const struct ptx_list *list, bool lanes)
{
	const char *why = NULL;

	for (const struct ptx_item *it = list->first; it && !why; it = it->next) {
		const struct ptx_insn *insn = (const struct ptx_insn *)it;
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		if (it->kind == PTX_SCOPE) {
			why = list_why(&((const struct ptx_scope *)it)->body, lanes);
		} else if (it->kind == PTX_VARIABLE && v->space != PTX_REG &&
			   v->space != PTX_LOCAL && v->space != PTX_PARAM) {
			why = "a program declares memory other than local";
		} else if (it->kind == PTX_INSN && is_forbidden(insn, lanes)) {
			why = "a program may not end or wait";
		}
		for (unsigned i = 0; !why && it->kind == PTX_INSN && i < insn->n_operands; i++) {
			why = reads_block(&insn->operands[i])
				      ? "a program reads its block index or size itself"
				      : NULL;
		}
	}
	return why;
}

static int check_functions(struct ptx_probe_read *p, const struct ptx_probe_program *g)
{
	size_t len = strlen(g->probe->name);
	const char *why = NULL;
	unsigned head = 3; /* the directives of HEADER */

	for (const struct ptx_item *it = g->module->items.first; it && !why; it = it->next) {
		const struct ptx_function *f = (const struct ptx_function *)it;

		if (head && it->kind == PTX_DIRECTIVE) {
			head--;
		} else if (it->kind != PTX_FUNCTION || f->is_entry) {
			why = "a program consists of functions";
		} else if (strncmp(f->name, g->probe->name, len) != 0) {
			why = "a function's name lacks the program's prefix";
		} else {
			why = list_why(&f->body, g->probe->lanes);
		}
	}
	return why ? wrong(p, g->probe, why) : 0;
}

/* ---- its root ---- */

static bool is_param(const struct ptx_variable *v, uint32_t bytes)
{
	uint64_t size;

	return !v->n_dims && ptx_variable_bytes(v, &size) == 0 && size == bytes;
}

/* Notes the parameters from the first one on that are addresses of maps, by rising numbers, and
 * returns their number. */
static uint32_t map_params(struct ptx_probe_program *g, uint32_t first)
{
	const struct ptx_function *f = g->root;
	uint32_t n = 0;

	while (first + n < f->n_params) {
		const struct ptx_variable *v = &f->params[first + n];
		bool sums = strncmp(v->name, "sum", 3) == 0, own = strncmp(v->name, "own", 3) == 0;
		unsigned map;
		int end = 0;

		if ((!sums && !own && strncmp(v->name, "map", 3) != 0) ||
		    sscanf(v->name + 3, "%2u%n", &map, &end) != 1 || v->name[3 + end] ||
		    map >= PTX_PROBE_MAPS_MAX || g->maps >> map || !is_param(v, 8)) {
			break;
		}
		g->sums = sums && (g->sums || !n);
		g->maps |= UINT64_C(1) << map;
		g->owns |= own ? UINT64_C(1) << map : 0;
		n++;
	}
	return n;
}

static int check_root(struct ptx_probe_read *p, struct ptx_probe_program *g)
{
	const struct ptx_function *f;
	struct buf name;
	uint32_t at = 1;
	bool same;

	buf_init(&name);
	buf_printf(&name, "%s_f0", g->probe->name);
	f = name.failed ? NULL : ptx_module_function(g->module, buf_text(&name));
	buf_finish(&name);
	if (!f || !f->has_body || f->n_returns || !f->n_params || !is_param(&f->params[0], 8)) {
		return wrong(p, g->probe, "no root that takes an environment");
	}
	g->root = f;
	g->control = f->n_params > 1 && strcmp(f->params[1].name, "control") == 0 &&
		     is_param(&f->params[1], 8);
	at += g->control;
	at += map_params(g, at);
	same = true;
	for (uint32_t i = 0; i < g->n_fields && same; i++) {
		if (ptx_probe_reads(g, i)) {
			same = at < f->n_params && is_param(&f->params[at], g->fields[i].bytes);
			at++;
		}
	}
	return same && ptx_probe_read_args(g, f, at) == 0
		       ? 0
		       : wrong(p, g->probe,
			       "the root's parameters are not its fields and arguments");
}

static int check_hook(struct ptx_probe_read *p, struct ptx_probe_program *g)
{
	const struct ptx_probe *probe = g->probe;

	g->fields = ptx_probe_fields(probe->hook, &g->n_fields);
	if (!probe->name || !*probe->name || !probe->text) {
		return wrong(p, probe, "no name or text");
	}
	if (!g->fields) {
		return wrong(p, probe, "no hook inside kernels has this number");
	}
	if (g->n_fields < 64 && probe->fields >> g->n_fields) {
		return wrong(p, probe, "its hook has fewer fields");
	}
	if (probe->lanes &&
	    (probe->hook == PTX_PROBE_gdev_block_enter ||
	     probe->hook == PTX_PROBE_gdev_block_exit || ptx_probe_is_bracket(probe->hook))) {
		return wrong(p, probe, "a hook of blocks or launches has no lane mode");
	}
	return 0;
}

/* The names of kernel and programs must differ. */
static int check_names(struct ptx_probe_read *p, struct strmap *seen, struct ptx_probe_program *g)
{
	ptx_each (&g->module->items, it) {
		const struct ptx_function *f = (const struct ptx_function *)it;
		int err;

		if (it->kind != PTX_FUNCTION || !f->has_body) {
			continue;
		}
		err = strmap_add(seen, f->name, g);
		if (err < 0) {
			return err == -EEXIST ? wrong(p, g->probe, "a name is used twice") : err;
		}
	}
	return 0;
}

int ptx_probe_programs(struct ptx_probe_read *p, const struct ptx_probe *probes, uint32_t n)
{
	struct strmap seen;
	int err = 0;

	strmap_init(&seen);
	if (n == 0 || n > PTX_PROBES_MAX) {
		err = report_set(p->report, -EINVAL, "probe", "%u probes: expected 1 to %u", n,
				 PTX_PROBES_MAX);
	}
	for (uint32_t i = 0; i < n && err == 0; i++) {
		struct ptx_probe_program *g = &p->programs[i];

		g->probe = &probes[i];
		g->place = i;
		p->n_programs = i + 1;
		err = check_hook(p, g);
		err = err ? err : ptx_probe_filter(p, g);
		err = err ? err : parse(p, g);
		err = err ? err : check_functions(p, g);
		err = err ? err : check_root(p, g);
		err = err ? err : check_names(p, &seen, g);
		p->hooks |= err ? 0 : PTX_PROBE_HOOK_BIT(probes[i].hook);
	}
	strmap_finish(&seen);
	return err;
}

void ptx_probe_programs_finish(struct ptx_probe_read *p)
{
	ptx_probe_each (p, g) {
		ptx_module_free(g->module);
	}
}

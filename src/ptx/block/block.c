/* The block pass: collects functions, decides which entries get a preemptible clone, and runs the
 * steps in order. */
#include "ptx/block/block_int.h"

#include <errno.h>
#include <string.h>

#include "ptx/pass.h"
#include "ptx/stem.h"

#define STEM "gbpf"

static int add_function(struct ptx_block_work *p, struct ptx_function *f)
{
	struct ptx_block_function *b = strmap_get(&p->names, f->name);

	if (b) {
		if (b->f->has_body && f->has_body) {
			report_place(p->report, "%s:%u", p->m->name, f->item.line);
			return report_set(p->report, -EINVAL, "ptx", "%s is defined twice",
					  f->name);
		}
		p->n_entries += f->has_body && f->is_entry;
		b->f = f->has_body ? f : b->f;
		return 0;
	}
	b = &p->functions[p->n++];
	b->f = f;
	p->n_entries += f->has_body && f->is_entry;
	if (f->name[0] == '%') {
		p->why = PROTO_BLOCK_SOURCE; /* it would look like a register */
	}
	return strmap_add(&p->names, f->name, b);
}

/* Returns true if the item is a declaration of something in another module. */
static bool is_of_others(const struct ptx_item *it)
{
	const struct ptx_function *f = (const struct ptx_function *)it;
	const struct ptx_variable *v = (const struct ptx_variable *)it;

	if (it->kind == PTX_FUNCTION) {
		return strcmp(f->linkage, ".extern") == 0 && !ptx_block_is_harmless(f->name);
	}
	return it->kind == PTX_VARIABLE && strcmp(v->linkage, ".extern") == 0 &&
	       v->space != PTX_SHARED;
}

static int collect(struct ptx_block_work *p)
{
	size_t n = 0;
	int err = 0;

	ptx_each (&p->m->items, it) {
		n += it->kind == PTX_FUNCTION;
	}
	p->functions = ptx_arena_array(&p->m->arena, n + 1, sizeof(*p->functions));
	if (!p->functions || n > UINT32_MAX) {
		return -ENOMEM;
	}
	ptx_each (&p->m->items, it) {
		if (it->kind == PTX_FUNCTION) {
			err = add_function(p, (struct ptx_function *)it);
		} else if (it->kind == PTX_VARIABLE) {
			err = strmap_add(&p->variables, ((struct ptx_variable *)it)->name, it);
			err = err == -EEXIST ? 0 : err;
		}
		if (err < 0) {
			return err;
		}
		p->linked = p->linked || is_of_others(it);
	}
	ptx_each (&p->m->items, it) {
		const struct ptx_directive *d = (const struct ptx_directive *)it;

		if (it->kind == PTX_DIRECTIVE && strncmp(d->text, ".alias", 6) == 0) {
			ptx_block_alias(p, d);
		}
	}
	return 0;
}

static int choose_stem(struct ptx_block_work *p)
{
	uint32_t n = ptx_stem_number(&p->m->items, STEM);

	if (n > PTX_STEM_MAX) {
		p->why = PROTO_BLOCK_SOURCE;
		return 0;
	}
	p->stem = ptx_block_text(p, STEM "%u_", n);
	return p->stem ? 0 : -ENOMEM;
}

/* Checks what every entry needs of the module. */
static void check_module(struct ptx_block_work *p)
{
	const struct ptx_module *m = p->m;
	bool old = m->version_major < 4 || (m->version_major == 4 && m->version_minor < 1);

	if (m->address_size != 64 || old || m->version_major > 9) {
		p->why = PROTO_BLOCK_SOURCE;
	}
}

/* Returns true if name$gbpf is unused. */
static bool name_is_free(const struct ptx_block_work *p, const char *name)
{
	size_t len = strlen(name), suffix = strlen(PTX_BLOCK_SUFFIX);
	struct buf text;
	bool taken;

	if (len + suffix > PTX_NAME_MAX ||
	    (len >= suffix && strcmp(name + len - suffix, PTX_BLOCK_SUFFIX) == 0)) {
		return false;
	}
	buf_init(&text);
	buf_printf(&text, "%s" PTX_BLOCK_SUFFIX, name);
	taken = text.failed || strmap_get(&p->names, text.data) ||
		strmap_get(&p->variables, text.data);
	buf_finish(&text);
	return !taken;
}

/* Refuses functions whose clone's or copy's name is in use. */
static void check_names(struct ptx_block_work *p)
{
	for (uint32_t i = 0; i < p->n; i++) {
		struct ptx_block_function *b = &p->functions[i];

		if (b->why == PROTO_BLOCK_UNKNOWN && b->f->has_body &&
		    (strmap_get(&p->variables, b->f->name) || !name_is_free(p, b->f->name))) {
			b->why = PROTO_BLOCK_SOURCE;
			b->line = b->f->item.line;
		}
	}
}

static int choose_copies(struct ptx_block_work *p)
{
	for (uint32_t i = 0; i < p->n; i++) {
		struct ptx_block_function *b = &p->functions[i];

		if (!b->f->is_entry && b->f->has_body && b->knows &&
		    b->why == PROTO_BLOCK_UNKNOWN) {
			b->clone = ptx_block_text(p, "%s" PTX_BLOCK_SUFFIX, b->f->name);
			if (!b->clone) {
				return -ENOMEM;
			}
		}
	}
	return 0;
}

static uint32_t max_threads(const struct ptx_function *f)
{
	uint32_t v[3];
	uint64_t n;

	if (ptx_function_tuning(f, ".reqntid", v, 3) <= 0 &&
	    ptx_function_tuning(f, ".maxntid", v, 3) <= 0) {
		return 0;
	}
	n = (uint64_t)v[0] * v[1];
	return n > UINT32_MAX || n * v[2] > UINT32_MAX ? UINT32_MAX : (uint32_t)(n * v[2]);
}

static int judge(struct ptx_block_work *p, struct ptx_block_function *b, struct ptx_block_entry *e)
{
	int err;

	e->name = b->f->name;
	e->max_threads = max_threads(b->f);
	e->why = p->why ? p->why : b->why;
	e->line = p->why ? 0 : b->line;
	if (e->why != PROTO_BLOCK_UNKNOWN) {
		return 0;
	}
	err = ptx_block_params(p, b->f, e);
	if (err == 0 && e->why == PROTO_BLOCK_UNKNOWN) {
		e->why = PROTO_BLOCK_OK;
	}
	return err;
}

static int judge_all(struct ptx_block_work *p, struct ptx_block_entry *list, bool *any)
{
	uint32_t n = 0;
	int err = 0;

	*any = false;
	ptx_each (&p->m->items, it) {
		struct ptx_function *f = (struct ptx_function *)it;

		if (it->kind != PTX_FUNCTION || !f->is_entry || !f->has_body) {
			continue;
		}
		err = judge(p, strmap_get(&p->names, f->name), &list[n]);
		if (err < 0) {
			return err;
		}
		*any = *any || list[n].why == PROTO_BLOCK_OK;
		n++;
	}
	return 0;
}

static int add_clones(struct ptx_block_work *p, const struct ptx_block_entry *list)
{
	int err = choose_copies(p);

	err = err ? err : ptx_block_declare_shared(p);
	for (uint32_t i = 0; i < p->n_entries && err == 0; i++) {
		if (list[i].why == PROTO_BLOCK_OK) {
			err = ptx_block_clone(p, strmap_get(&p->names, list[i].name));
		}
	}
	return err ? err : ptx_block_copy_functions(p);
}

static int run(struct ptx_block_work *p, struct ptx_block_entry **ret)
{
	struct ptx_block_entry *list;
	bool any;
	int err = collect(p);

	if (err < 0) {
		return err;
	}
	check_module(p);
	list = ptx_arena_array(&p->m->arena, p->n_entries, sizeof(*list));
	err = !list ? -ENOMEM : choose_stem(p);
	if (err == 0 && p->why == PROTO_BLOCK_UNKNOWN) {
		check_names(p);
		err = ptx_block_scan(p);
		err = err ? err : ptx_block_graph(p);
	}
	err = err ? err : judge_all(p, list, &any);
	if (err == 0 && any) {
		err = add_clones(p, list);
	}
	*ret = list;
	return err;
}

int ptx_block_run(struct ptx_module *m, const struct ptx_block_entry **ret, uint32_t *ret_n,
		  struct report *r)
{
	struct ptx_block_work p = { .m = m, .report = r };
	struct ptx_block_entry *list = NULL;
	int err;

	strmap_init(&p.names);
	strmap_init(&p.variables);
	err = run(&p, &list);
	strmap_finish(&p.names);
	strmap_finish(&p.variables);
	if (err == 0) {
		*ret = list;
		*ret_n = p.n_entries;
	} else if (err == -ENOMEM) {
		report_set(r, err, "ptx", "no memory for the block level's pass");
	}
	return err;
}

static int run_pass(struct ptx_module *m, struct ptx_passes *p, struct report *r)
{
	return ptx_block_run(m, &p->block, &p->n_block, r);
}

const struct ptx_pass ptx_block_pass = { .run = run_pass };

/* The probe pass: runs its steps in order. */
#include "ptx/probe.h"

#include <errno.h>

#include "ptx/probe/emit/probe_emit.h"
#include "ptx/probe_bracket.h"

/* Checks what every probed form needs of the module. */
static int check_module(const struct ptx_probe_slice *p)
{
	const struct ptx_module *m = p->m;

	if (m->address_size != 64) {
		return ptx_probe_refuse(p, 0, "addresses of %u bits", m->address_size);
	}
	if (m->version_major < 4 || (m->version_major == 4 && m->version_minor < 1) ||
	    m->version_major > 9) {
		return ptx_probe_refuse(p, 0, "PTX %u.%u: expected 4.1 to 9", m->version_major,
					m->version_minor);
	}
	return 0;
}

/* Programs and kernel are in one module. */
static int check_collisions(const struct ptx_probe_slice *p)
{
	ptx_probe_each (p->read, g) {
		ptx_each (&g->module->items, it) {
			const struct ptx_function *f = (const struct ptx_function *)it;

			if (it->kind == PTX_FUNCTION && strmap_get(&p->names, f->name)) {
				return report_set(p->report, -EINVAL, "probe",
						  "%s is a name of the module, too", f->name);
			}
		}
	}
	return strmap_get(&p->names, PTX_PROBE_TABLE)
		       ? ptx_probe_refuse(p, 0, "it is a probed form already")
		       : 0;
}

static int find_entry(struct ptx_probe_slice *p, const char *entry)
{
	struct ptx_probe_name *n = strmap_get(&p->names, entry);

	if (!n || !n->f || !n->f->is_entry || !n->f->has_body) {
		report_place(p->report, "%s", p->m->name);
		return report_set(p->report, -ENOENT, "probe", "no kernel is named %s", entry);
	}
	p->entry = n;
	return 0;
}

/* Programs of launches run in kernels of their own (ptx/probe_bracket.h). */
static int check_hooks(const struct ptx_probe_read *p)
{
	ptx_probe_each (p, g) {
		if (ptx_probe_is_bracket(g->probe->hook)) {
			report_place(p->report, "%s", g->probe->name);
			return report_set(p->report, -EINVAL, "probe",
					  "it runs before or behind the launch, not in the kernel");
		}
	}
	return 0;
}

static int check_sites(const struct ptx_probe_work *p)
{
	for (uint32_t i = 0; i < p->read->n_programs; i++) {
		if (p->ret->sites[i]) {
			return 0;
		}
	}
	report_place(p->report, "%s", p->slice->m->name);
	return report_set(p->report, -ENOENT, "probe", "%s has no such site", p->kernel);
}

/* ---- stages ---- */

static int read_probes(struct ptx_probe_read *p, const struct ptx_probe *probes, uint32_t n)
{
	int err = ptx_probe_programs(p, probes, n);

	err = err ? err : check_hooks(p);
	return err ? err : ptx_probe_scratch_find(p);
}

static int slice(struct ptx_probe_slice *p, const char *entry)
{
	int err = ptx_probe_collect(p);

	err = err ? err : ptx_probe_via_open(p);
	err = err ? err : check_collisions(p);
	err = err ? err : find_entry(p, entry);
	err = err ? err : check_module(p);
	err = err ? err : ptx_probe_check_args(p);
	return err ? err : ptx_probe_slice(p);
}

static int emit(struct ptx_probe_work *p)
{
	int err = ptx_probe_number_open(p);

	p->ret->variables = p->slice->variables;
	p->ret->n_variables = p->slice->n_variables;
	p->ret->warp_bytes = p->read->warp_bytes;
	p->ret->needs_shared =
		p->ret->warp_bytes || ptx_probe_has_hook(p->read, PTX_PROBE_gdev_block_exit);
	err = err ? err : ptx_probe_print(p);
	err = err ? err : ptx_probe_refuse_args(p);
	err = err ? err : check_sites(p);
	return err == 0 && p->number.lacks ? -EAGAIN : err;
}

/* Returns -EAGAIN if the launch's number has to be passed on in calls. */
static int run(const struct ptx_module *m, const char *entry, const struct ptx_probe *probes,
	       uint32_t n_probes, bool passes_number, struct ptx_probed *ret, struct report *r)
{
	struct ptx_probe_read read = { .report = r };
	struct ptx_probe_slice sliced = {
		.read = &read, .m = m, .arena = &ret->arena, .report = r
	};
	int err;

	*ret = (struct ptx_probed){ 0 };
	ptx_arena_init(&ret->arena);
	buf_init(&ret->text);
	err = read_probes(&read, probes, n_probes);
	err = err ? err : slice(&sliced, entry);
	if (err == 0) {
		struct ptx_probe_work p = { .read = &read,
					    .slice = &sliced,
					    .ret = ret,
					    .report = r,
					    .out = &ret->text,
					    .stem = sliced.stem,
					    .kernel = sliced.entry->name,
					    .number.passes = passes_number };

		err = emit(&p);
	}
	ptx_probe_names_finish(&sliced);
	ptx_probe_programs_finish(&read);
	if (err < 0) {
		ptx_probed_finish(ret);
	}
	return err;
}

int ptx_probe_rewrite(const struct ptx_module *m, const char *entry, const struct ptx_probe *probes,
		      uint32_t n_probes, struct ptx_probed *ret, struct report *r)
{
	int err = run(m, entry, probes, n_probes, false, ret, r);

	err = err == -EAGAIN ? run(m, entry, probes, n_probes, true, ret, r) : err;
	if (err == -ENOMEM) {
		report_set(r, err, "probe", "no memory for the probed form");
	}
	return err;
}

void ptx_probed_finish(struct ptx_probed *p)
{
	ptx_arena_finish(&p->arena);
	buf_finish(&p->text);
	*p = (struct ptx_probed){ 0 };
}

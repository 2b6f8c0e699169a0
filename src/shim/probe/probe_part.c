/* Tools that may run in part (--partial): which of their programs are left out of a kernel whose
 * form lacks the places of some. Tried in turn: the PTX without the programs that cannot be placed
 * there, an entry stub with those of its hooks, and without those of block_exit, brackets alone. A
 * tool that would have no program left is refused. */
#include "shim/probe/shim_probe_int.h"

#include <stdlib.h>
#include <string.h>

#include "ptx/probe.h"
#include "shim/kernel/loaded_image.h"

enum step { ALL, PTX, STUB, STUB_ENTRIES, AROUND, STEPS };

enum {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};

static const char *const hook_names[EBPF_MAX_HOOKS] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) [id] = #name,
#include "gbpf/hooks.def"
};

/* Returns whether the program can be placed in the kernel's PTX. */
static bool fits_ptx(const struct ptx_module *m, const char *kernel,
		     const struct shim_probe_tool *t, const struct ebpf_image_device *d)
{
	char *text = strndup(t->p.device_text + d->text_offset, d->text_bytes);
	const struct ptx_probe probe = { .hook = d->hook,
					 .lanes = d->lane,
					 .fields = d->fields,
					 .sites = d->site,
					 .name = d->prefix,
					 .text = text,
					 .maps_in_table = true,
					 .scratch_at = t->scratch_at,
					 .scratch_bytes = t->scratch_bytes };
	struct ptx_probed probed = { 0 };
	struct report r;
	bool fits;

	report_init(&r);
	fits = text && ptx_probe_rewrite(m, kernel, &probe, 1, &probed, &r) == 0;
	ptx_probed_finish(&probed);
	report_finish(&r);
	free(text);
	return fits;
}

static struct ptx_module *parse(const struct shim_probe_kernel *k)
{
	struct shim_kept_reason why;
	struct ptx_module *m = NULL;
	size_t bytes = 0;
	char *text = shim_image_ptx(k->owner, k->name, &bytes, &why);
	struct report r;

	report_init(&r);
	if (text && ptx_module_parse(&m, text, bytes, "kernel", &r) < 0) {
		m = NULL;
	}
	report_finish(&r);
	free(text);
	return m;
}

static bool is_left_out(enum step step, const struct ptx_module *m, const char *kernel,
			const struct shim_probe_tool *t, const struct ebpf_image_device *d)
{
	if (ptx_probe_is_bracket(d->hook)) {
		return false;
	}
	if (step == PTX) {
		return !fits_ptx(m, kernel, t, d);
	}
	if (step == AROUND) {
		return true;
	}
	return d->hook != HOOK_gdev_enter && d->hook != HOOK_gdev_block_enter &&
	       (step == STUB_ENTRIES || !ptx_probe_is_late(d->hook));
}

/* Chooses for one tool. Returns false if it would have no program. */
static bool cut_tool(struct shim_probe_cut *c, uint32_t i, const struct ptx_module *m,
		     const struct shim_probe_kernel *k, const struct shim_probe_tool *t)
{
	bool any = false;

	c->programs[i] = 0;
	for (uint32_t j = 0; j < t->p.n_devices; j++) {
		if (!shim_probe_tool_matches(t, j, k->name)) {
			continue;
		}
		if (t->partial && is_left_out(c->step, m, k->name, t, &t->p.devices[j])) {
			c->programs[i] |= 1u << j;
			c->tools |= 1u << i;
		} else {
			any = true;
		}
	}
	return any;
}

static bool cut(struct shim_probe_cut *c, const struct shim_probe_kernel *k,
		struct shim_probe_tool *const *tools, uint32_t n)
{
	struct ptx_module *m = c->step == PTX ? parse(k) : NULL;
	bool good = c->step != PTX || m;

	c->tools = 0;
	for (uint32_t i = 0; i < n && good; i++) {
		good = cut_tool(c, i, m, k, tools[i]);
	}
	ptx_module_free(m);
	return good && c->tools;
}

bool shim_probe_cut_next(struct shim_probe_cut *c, const struct shim_probe_kernel *k,
			 struct shim_probe_tool *const *tools, uint32_t n)
{
	bool any = false;

	for (uint32_t i = 0; i < n; i++) {
		any = any || tools[i]->partial;
	}
	while (any && ++c->step < STEPS) {
		if (cut(c, k, tools, n)) {
			return true;
		}
	}
	return false;
}

/* Writes the hooks of the programs that are left out, each once. */
static void put_hooks(struct buf *to, const struct shim_probe_tool *t, uint32_t programs)
{
	uint64_t put = 0;

	for (uint32_t j = 0; j < t->p.n_devices; j++) {
		uint32_t hook = t->p.devices[j].hook;

		if (programs & 1u << j && hook < EBPF_MAX_HOOKS && hook_names[hook] &&
		    !(put & UINT64_C(1) << hook)) {
			buf_printf(to, "%s%s", put ? ", " : "", hook_names[hook] + strlen("gdev_"));
			put |= UINT64_C(1) << hook;
		}
	}
}

void shim_probe_cut_tell(const struct shim_probe_cut *c, const struct shim_probe_kernel *k,
			 struct shim_probe_tool *const *tools, uint32_t n, const struct report *why)
{
	struct buf text;

	for (uint32_t i = 0; i < n; i++) {
		if (!(c->tools & 1u << i)) {
			continue;
		}
		buf_init(&text);
		buf_puts(&text, "runs without ");
		put_hooks(&text, tools[i], c->programs[i]);
		buf_printf(&text, ": %s", buf_text(&why->message));
		lock_take(&shim_probe_mutex);
		shim_probe_tool_refused(tools[i], k->name, buf_text(&text));
		lock_release(&shim_probe_mutex);
		buf_finish(&text);
	}
}

bool shim_probe_cut_would_help(const struct shim_probe_kernel *k,
			       struct shim_probe_tool *const *tools, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		bool around = false, inside = false;

		for (uint32_t j = 0; j < tools[i]->p.n_devices && !tools[i]->partial; j++) {
			bool bracket = ptx_probe_is_bracket(tools[i]->p.devices[j].hook);
			bool matches = shim_probe_tool_matches(tools[i], j, k->name);

			around = around || (matches && bracket);
			inside = inside || (matches && !bracket);
		}
		if (around && inside) {
			return true;
		}
	}
	return false;
}

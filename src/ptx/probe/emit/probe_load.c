/* Loads of the kernel's arguments in its own body, from its parameters, which lie as the ABI says:
 * each at the next multiple of its alignment. */
#include <errno.h>

#include "ptx/probe/emit/probe_emit.h"

/* Returns the parameter of the entry that contains an argument, with its offset; NULL: none. */
static const struct ptx_variable *param_of(const struct ptx_function *f,
					   const struct ptx_probe_arg *a, uint32_t *ret_offset)
{
	uint64_t at = 0, size;

	for (uint32_t i = 0; i < f->n_params; i++) {
		const struct ptx_variable *v = &f->params[i];

		if (ptx_variable_bytes(v, &size) < 0) {
			return NULL;
		}
		at = ROUND_UP(at, (uint64_t)ptx_variable_align(v));
		if (a->offset >= at && (uint64_t)a->offset + a->bytes <= at + size) {
			*ret_offset = (uint32_t)(a->offset - at);
			return v;
		}
		at += size;
	}
	return NULL;
}

int ptx_probe_check_args(const struct ptx_probe_slice *p)
{
	ptx_probe_each (p->read, g) {
		for (uint32_t k = 0; k < g->n_args; k++) {
			uint32_t offset;

			if (g->args[k].kind == PTX_PROBE_ARG &&
			    !param_of(p->entry->f, &g->args[k], &offset)) {
				report_place(p->report, "%s", p->entry->name);
				(void)report_set(p->report, -ENOTSUP, "probe",
						 "%s: no parameter of the kernel contains the %u "
						 "bytes at offset %u",
						 g->probe->name, g->args[k].bytes,
						 g->args[k].offset);
				report_hint(p->report, "name kernels that have this argument: "
						       "gdev/HOOK/PATTERN, or --kernel");
				return -ENOTSUP;
			}
		}
	}
	return 0;
}

/* One load takes them, so they are aligned where they lie. The place decides and not the
 * declaration, since machine code states the place only. */
uint32_t ptx_probe_first_bytes(uint64_t offset, uint64_t size)
{
	uint32_t bytes = 8;

	while (bytes && (bytes > size || offset % bytes)) {
		bytes /= 2;
	}
	return bytes;
}

uint32_t ptx_probe_param_part(const struct ptx_kernel_params *params, const struct ptx_probe_arg *a,
			      struct ptx_kernel_param *ret)
{
	const struct ptx_kernel_param none = { 0, 0 };
	const struct ptx_kernel_param q = a->offset < params->n ? params->at[a->offset] : none;

	ret->offset = q.offset;
	ret->bytes = a->kind == PTX_PROBE_PARAM ? ptx_probe_first_bytes(q.offset, q.bytes) : 0;
	return a->kind == PTX_PROBE_PARAM_BYTES ? q.bytes : 0;
}

/* Returns a parameter by its number, with its place and size; NULL: none, or an empty one. */
static const struct ptx_variable *param_number(const struct ptx_function *f, uint32_t number,
					       uint64_t *ret_offset, uint64_t *ret_size)
{
	uint64_t at = 0, size = 0;

	for (uint32_t i = 0; i < f->n_params && i <= number; i++) {
		at = ROUND_UP(at + size, (uint64_t)ptx_variable_align(&f->params[i]));
		if (ptx_variable_bytes(&f->params[i], &size) < 0) {
			size = 0;
			break;
		}
	}
	*ret_offset = at;
	*ret_size = number < f->n_params ? size : 0;
	return *ret_size ? &f->params[number] : NULL;
}

/* Writes the load of a parameter by its number. Returns false if the body cannot load it. */
static bool load_param(struct ptx_probe_work *p, const struct ptx_probe_arg *a, uint32_t k)
{
	uint64_t offset, size;
	const struct ptx_variable *v = param_number(p->slice->entry->f, a->offset, &offset, &size);

	if (a->kind == PTX_PROBE_PARAM_BYTES || !size) {
		ptx_probe_text(p, "\t.reg .b%u %%~r%u;\n\tmov.b%u %%~r%u, %u;\n", 8 * a->bytes, k,
			       8 * a->bytes, k, (unsigned)size);
		return true;
	}
	if (ptx_probe_declared(&p->scopes, v->name) != v) {
		return false;
	}
	ptx_probe_text(p, "\t.reg .b64 %%~r%u;\n\tld.param.u%u %%~r%u, [%s];\n", k,
		       8 * ptx_probe_first_bytes(offset, size), k, v->name);
	return true;
}

static bool load_arg(struct ptx_probe_work *p, const struct ptx_probe_arg *a, uint32_t k)
{
	unsigned bits = 8 * PTX_PROBE_ARG_WIDTH(a->bytes);
	uint32_t offset = 0;
	const struct ptx_variable *v = param_of(p->slice->entry->f, a, &offset);

	if (!v || ptx_probe_declared(&p->scopes, v->name) != v) {
		return false;
	}
	ptx_probe_text(p, "\t.reg .b%u %%~r%u;\n\tld.param.u%u %%~r%u, [%s+%u];\n", bits, k,
		       8 * a->bytes, k, v->name, offset);
	return true;
}

void ptx_probe_args(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	for (uint32_t k = 0; k < g->n_args; k++) {
		const struct ptx_probe_arg *a = &g->args[k];
		bool own = p->at.in == p->slice->entry->f;

		if (!own || !(a->kind == PTX_PROBE_ARG ? load_arg(p, a, k) : load_param(p, a, k))) {
			p->without.g = g;
			p->without.why = !own ? "in a device function"
					      : "where its parameter's name is another variable's";
			return;
		}
	}
}

int ptx_probe_refuse_args(struct ptx_probe_work *p)
{
	if (!p->without.g) {
		return 0;
	}
	report_place(p->report, "%s", p->kernel);
	(void)report_set(p->report, -ENOTSUP, "probe",
			 "%s reads an argument of the kernel at a place %s",
			 p->without.g->probe->name, p->without.why);
	report_hint(p->report, "read arguments at enter, block_enter or exit");
	return -ENOTSUP;
}

/* Computes the offsets of an entry's parameters in the launch's buffer, by the rules of the ABI: in
 * order, each at a multiple of its alignment. */
#include "ptx/block/block_int.h"

#include <errno.h>
#include <string.h>

#define LIMIT_OLD 4352u
#define LIMIT_NEW 32764u /* since PTX 8.1, sm_70 */

static unsigned target_number(const struct ptx_module *m)
{
	const char *t = m->target;
	unsigned n = 0;

	while (*t && (*t < '0' || *t > '9')) {
		t++;
	}
	for (; *t >= '0' && *t <= '9' && n < 10000; t++) {
		n = n * 10 + (unsigned)(*t - '0');
	}
	return n;
}

uint32_t ptx_block_params_max(const struct ptx_module *m)
{
	bool is_new = m->version_major > 8 || (m->version_major == 8 && m->version_minor >= 1);

	return is_new && target_number(m) >= 70 ? LIMIT_NEW : LIMIT_OLD;
}

/* Returns true for a texture, surface or sampler, whose place among the parameters is not known. */
static bool is_reference(const struct ptx_variable *v)
{
	return strcmp(v->type, ".texref") == 0 || strcmp(v->type, ".surfref") == 0 ||
	       strcmp(v->type, ".samplerref") == 0;
}

int ptx_block_params(struct ptx_block_work *p, const struct ptx_function *f,
		     struct ptx_block_entry *e)
{
	uint32_t *offset, *bytes, at = 0, max = ptx_block_params_max(p->m);

	if (f->n_params > PTX_BLOCK_MAX_PARAMS) {
		e->why = PROTO_BLOCK_PARAMETERS;
		return 0;
	}
	offset = ptx_arena_array(&p->m->arena, (size_t)f->n_params * 2 + 1, sizeof(*offset));
	if (!offset) {
		return -ENOMEM;
	}
	bytes = offset + f->n_params;
	for (uint32_t i = 0; i < f->n_params; i++) {
		const struct ptx_variable *v = &f->params[i];
		uint32_t align = ptx_variable_align(v);
		uint64_t size;

		if (v->space != PTX_PARAM || v->open_array || is_reference(v) ||
		    ptx_variable_bytes(v, &size) < 0 || size == 0) {
			e->why = PROTO_BLOCK_SOURCE;
			e->line = v->item.line;
			return 0;
		}
		if (size > max || align > max || ROUND_UP(at, align) + size > max) {
			e->why = PROTO_BLOCK_PARAMETERS;
			return 0;
		}
		offset[i] = ROUND_UP(at, align);
		bytes[i] = (uint32_t)size;
		at = offset[i] + bytes[i];
	}
	e->n_params = f->n_params;
	e->param_offset = offset;
	e->param_bytes = bytes;
	e->arg_offset = ROUND_UP(at, 8u);
	if (e->arg_offset + PTX_BLOCK_ARG_BYTES > max) {
		e->why = PROTO_BLOCK_PARAMETERS;
	}
	return 0;
}

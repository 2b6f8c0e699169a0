/* Symbols of a kernel: registers, labels, variables, and the scopes in which they are visible. */
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int exec_dec_scope_open(struct exec_decoder *d)
{
	struct exec_scope *s = calloc(1, sizeof(*s));

	if (!s) {
		return exec_dec_no_memory(d);
	}
	strmap_init(&s->symbols);
	s->up = d->scope;
	d->scope = s;
	return 0;
}

void exec_dec_scope_close(struct exec_decoder *d)
{
	struct exec_scope *s = d->scope;

	d->scope = s->up;
	strmap_finish(&s->symbols);
	free(s);
}

struct exec_symbol *exec_dec_symbol_new(struct exec_decoder *d, const char *name,
					enum exec_symbol_kind kind)
{
	struct exec_symbol *s = calloc(1, sizeof(*s));
	int err;

	if (!s) {
		exec_dec_no_memory(d);
		return NULL;
	}
	s->kind = kind;
	s->next_owned = d->owned;
	d->owned = s;
	err = strmap_add(&d->scope->symbols, name, s);
	if (err == -EEXIST) {
		exec_dec_fail(d, "%s is declared twice", name);
		return NULL;
	}
	if (err < 0) {
		exec_dec_no_memory(d);
		return NULL;
	}
	return s;
}

int exec_dec_new_register(struct exec_decoder *d, enum exec_type type, uint32_t *ret)
{
	struct exec_function_shape *s = &d->shapes[d->current];
	bool wide = exec_dec_is_wide(type) || type == TY_B128;
	uint32_t *count = type == TY_PRED ? &s->n_pred : wide ? &s->n64 : &s->n32;

	uint32_t max = type == TY_PRED ? DECODE_PREDICATES_MAX : DECODE_SLOTS_MAX;

	if (*count + 1 >= max) {
		return exec_dec_fail(d, "a function uses more than %u registers", max);
	}
	*ret = type == TY_PRED ? *count
	       : wide	       ? REF_SLOT64(*count, REF_R64)
			       : REF_SLOT32(*count, REF_R32);
	*count += type == TY_B128 ? 2 : 1;
	return 0;
}

/* Allocates in the current function's frame. */
static int frame_take(struct exec_decoder *d, uint64_t bytes, uint32_t align, uint32_t *ret)
{
	struct exec_function_shape *s = &d->shapes[d->current];
	uint64_t at = ROUND_UP((uint64_t)s->local_bytes, align);

	if (bytes > DECODE_LOCAL_MAX || at + bytes > DECODE_LOCAL_MAX) {
		return exec_dec_fail(d, "a function uses more than %u bytes of local memory",
				     DECODE_LOCAL_MAX);
	}
	*ret = (uint32_t)at;
	s->local_bytes = (uint32_t)(at + bytes);
	return 0;
}

/* "%r12" in a range "%r<20>": the range is stored as "%r<". */
static struct exec_symbol *find_range(struct exec_scope *s, const char *name, size_t len,
				      uint32_t *ret_index)
{
	size_t digits = 0;
	unsigned long index;
	char key[128];
	struct exec_symbol *range;

	while (digits < len && name[len - 1 - digits] >= '0' && name[len - 1 - digits] <= '9') {
		digits++;
	}
	if (digits > 8 || len >= sizeof(key) - 1) {
		return NULL;
	}
	/* A range's own name may end in digits: try the longest index first. */
	for (; digits > 0; digits--) {
		size_t stem = len - digits;

		if (name[stem] == '0' && digits > 1) {
			continue;
		}
		memcpy(key, name, stem);
		key[stem] = '<';
		range = strmap_get_n(&s->symbols, key, stem + 1);
		index = strtoul(name + stem, NULL, 10);
		if (range && index < range->n) {
			*ret_index = (uint32_t)index;
			return range;
		}
	}
	return NULL;
}

/* The first use in this kernel places a module's shared variable. */
static struct exec_symbol *find_shared(struct exec_decoder *d, const char *name)
{
	const struct ptx_variable *v = strmap_get(d->module_shared, name);
	struct exec_scope *here = d->scope;
	int err;

	if (!v) {
		return NULL;
	}
	d->scope = d->root;
	err = exec_dec_declare(d, v);
	d->scope = here;
	return err < 0 ? NULL : strmap_get(&d->root->symbols, name);
}

struct exec_symbol *exec_dec_find(struct exec_decoder *d, const char *name)
{
	for (struct exec_scope *s = d->scope; s; s = s->up) {
		struct exec_symbol *found = strmap_get(&s->symbols, name);

		if (found) {
			return found;
		}
	}
	return find_shared(d, name);
}

static int range_register(struct exec_decoder *d, struct exec_symbol *range, uint32_t slot,
			  uint32_t *ret, enum exec_type *ret_type)
{
	*ret_type = range->type;
	if (range->slots[slot] == 0) {
		int err = exec_dec_new_register(d, range->type, ret);

		if (err < 0) {
			return err;
		}
		range->slots[slot] = *ret + 1;
	}
	*ret = range->slots[slot] - 1;
	return 0;
}

/* Returns the innermost vector register of this name, or NULL if the name is something else. */
static struct exec_symbol *find_vector(struct exec_decoder *d, const char *name, size_t len,
				       uint32_t *ret_index)
{
	*ret_index = 0;
	for (struct exec_scope *s = d->scope; s; s = s->up) {
		struct exec_symbol *found = strmap_get_n(&s->symbols, name, len);

		if (!found) {
			found = find_range(s, name, len, ret_index);
		}
		if (found) {
			return found->vector > 1 ? found : NULL;
		}
	}
	return NULL;
}

uint32_t exec_dec_vector_find(struct exec_decoder *d, const char *name)
{
	const struct exec_symbol *s;
	uint32_t index;

	s = d->has_vectors ? find_vector(d, name, strlen(name), &index) : NULL;
	return s ? s->vector : 0;
}

/* Looks up "%v.y". Returns as exec_dec_register. */
static int vector_register(struct exec_decoder *d, const char *name, uint32_t *ret,
			   enum exec_type *ret_type)
{
	size_t len;
	uint32_t index;
	int component = exec_dec_component(name, &len);
	struct exec_symbol *s = component < 0 ? NULL : find_vector(d, name, len, &index);

	if (!s) {
		return exec_dec_vector_find(d, name)
			       ? exec_dec_fail(d, "%s is a vector: a component is expected", name)
			       : 1;
	}
	if ((uint32_t)component >= s->vector) {
		return exec_dec_fail(d, "%s: the vector has %u components", name, s->vector);
	}
	return range_register(d, s, index * s->vector + (uint32_t)component, ret, ret_type);
}

int exec_dec_register(struct exec_decoder *d, const char *name, uint32_t *ret,
		      enum exec_type *ret_type)
{
	size_t len = strlen(name);
	int err = d->has_vectors ? vector_register(d, name, ret, ret_type) : 1;

	if (err <= 0) {
		return err;
	}
	for (struct exec_scope *s = d->scope; s; s = s->up) {
		struct exec_symbol *found = strmap_get_n(&s->symbols, name, len);
		uint32_t index;

		if (found && found->kind == SYM_REGISTER) {
			*ret = found->ref;
			*ret_type = found->type;
			return 0;
		}
		if (found) {
			return 1;
		}
		found = find_range(s, name, len, &index);
		if (found) {
			return range_register(d, found, index, ret, ret_type);
		}
	}
	return 1;
}

/* Declares n registers of v->vector components each under a key. */
static int declare_slots(struct exec_decoder *d, const struct ptx_variable *v, const char *key,
			 enum exec_type type, uint32_t n)
{
	struct exec_symbol *s = exec_dec_symbol_new(d, key, v->has_range ? SYM_RANGE : SYM_VECTOR);

	if (!s) {
		return -EINVAL;
	}
	s->type = type;
	s->n = n;
	s->vector = MAX(v->vector, 1u);
	s->slots = calloc(MAX((size_t)n * s->vector, (size_t)1), sizeof(*s->slots));
	return s->slots ? 0 : exec_dec_no_memory(d);
}

static int declare_range(struct exec_decoder *d, const struct ptx_variable *v, enum exec_type type)
{
	char key[128];

	d->ranges += MIN(v->range, DECODE_RANGES_MAX / 4) * MAX(v->vector, 1u);
	if (d->ranges > DECODE_RANGES_MAX || v->range > 1u << 20 ||
	    strlen(v->name) > sizeof(key) - 2) {
		return exec_dec_fail(d, "%s<%u> is too long", v->name, v->range);
	}
	memcpy(key, v->name, strlen(v->name));
	memcpy(key + strlen(v->name), "<", 2);
	return declare_slots(d, v, key, type, v->range);
}

static int declare_registers(struct exec_decoder *d, const struct ptx_variable *v)
{
	enum exec_type type = strcmp(v->type, ".b128") == 0 ? TY_B128 : exec_dec_type(v->type);
	struct exec_symbol *s;
	int err;

	if (v->n_dims) {
		return exec_dec_fail(d, "there are no arrays of registers: .reg %s %s", v->type,
				     v->name);
	}
	if (type == TY_COUNT) {
		return exec_dec_fail(d, "registers of type %s are not supported", v->type);
	}
	err = v->vector ? exec_dec_vector_check(d, v, type) : 0;
	if (err < 0) {
		return err;
	}
	if (v->has_range) {
		return declare_range(d, v, type);
	}
	if (v->vector) {
		return declare_slots(d, v, v->name, type, 1);
	}
	s = exec_dec_symbol_new(d, v->name, SYM_REGISTER);
	if (!s) {
		return -EINVAL;
	}
	s->type = type;
	return exec_dec_new_register(d, type, &s->ref);
}

static int declare_shared(struct exec_decoder *d, const struct ptx_variable *v)
{
	uint32_t align = ptx_variable_align(v);
	struct exec_symbol *s;
	uint64_t bytes;
	int err = ptx_variable_bytes(v, &bytes);

	if (err < 0) {
		return exec_dec_fail(d, "the size of %s is not known", v->name);
	}
	s = exec_dec_symbol_new(d, v->name, SYM_SHARED);
	if (!s) {
		return -EINVAL;
	}
	d->shared_align = MAX(d->shared_align, align);
	s->bytes = bytes;
	if (strcmp(v->linkage, ".extern") == 0) {
		s->extern_array = true;
		return 0;
	}
	d->shared_bytes = ROUND_UP(d->shared_bytes, align);
	s->offset = d->shared_bytes;
	if (bytes > DECODE_SHARED_MAX || d->shared_bytes + bytes > DECODE_SHARED_MAX) {
		return exec_dec_fail(d, "more than %u bytes of shared memory", DECODE_SHARED_MAX);
	}
	d->shared_bytes += (uint32_t)bytes;
	return 0;
}

static int declare_in_frame(struct exec_decoder *d, const struct ptx_variable *v)
{
	struct exec_symbol *s;
	uint64_t bytes;

	if (ptx_variable_bytes(v, &bytes) < 0 || v->open_array) {
		return exec_dec_fail(d, "the size of %s is not known", v->name);
	}
	s = exec_dec_symbol_new(d, v->name, v->space == PTX_LOCAL ? SYM_LOCAL : SYM_PARAM);
	if (!s) {
		return -EINVAL;
	}
	s->in_frame = true;
	s->bytes = bytes;
	return frame_take(d, bytes, ptx_variable_align(v), &s->ref);
}

int exec_dec_declare(struct exec_decoder *d, const struct ptx_variable *v)
{
	struct exec_symbol *s;
	const struct exec_variable *global;

	switch (v->space) {
	case PTX_REG:
		return declare_registers(d, v);
	case PTX_SHARED:
		return declare_shared(d, v);
	case PTX_LOCAL:
	case PTX_PARAM:
		return declare_in_frame(d, v);
	case PTX_GLOBAL:
	case PTX_CONST:
		/* laid out with the module's variables */
		global = strmap_get_n(d->inner, (const char *)&v, sizeof(v));
		s = global ? exec_dec_symbol_new(d, v->name, SYM_GLOBAL) : NULL;
		if (!s) {
			return exec_dec_fail(d, "%s is not defined", v->name);
		}
		s->offset = global->offset;
		return 0;
	default:
		return exec_dec_fail(d, "declarations in this space are not supported");
	}
}

static enum exec_symbol_kind label_kind(const struct ptx_item *next)
{
	const struct ptx_targets *t = (const struct ptx_targets *)next;

	if (next && next->kind == PTX_TARGETS) {
		return strcmp(t->directive, ".branchtargets") == 0 ? SYM_TABLE : SYM_CALL_TARGETS;
	}
	return next && next->kind == PTX_PROTOTYPE ? SYM_PROTOTYPE : SYM_LABEL;
}

/* Labels are visible in their whole scope, also before their definition. */
int exec_dec_declare_labels(struct exec_decoder *d, const struct ptx_list *list)
{
	const uint32_t unknown = UINT32_MAX;

	ptx_each (list, it) {
		struct exec_symbol *s;

		if (it->kind != PTX_LABEL) {
			continue;
		}
		d->line = it->line;
		s = exec_dec_symbol_new(d, ((struct ptx_label *)it)->name, label_kind(it->next));
		if (!s) {
			return -EINVAL;
		}
		s->item = it->next;
		if (s->kind == SYM_LABEL) {
			s->ref = (uint32_t)(d->labels.len / sizeof(uint32_t));
			if (buf_add(&d->labels, &unknown, sizeof(unknown)) < 0) {
				return exec_dec_no_memory(d);
			}
		}
	}
	return 0;
}

int exec_dec_formals(struct exec_decoder *d, const struct ptx_function *f, struct exec_formal *ret,
		     uint32_t *frame, uint32_t *n32, uint32_t *n64, uint32_t *n_pred)
{
	for (uint32_t i = 0; i < f->n_returns + f->n_params; i++) {
		const struct ptx_variable *v =
			i < f->n_returns ? &f->returns[i] : &f->params[i - f->n_returns];
		uint64_t bytes;

		ret[i] = (struct exec_formal){ .in_register = v->space == PTX_REG,
					       .type = exec_dec_type(v->type) };
		if (ptx_variable_bytes(v, &bytes) < 0 || bytes > DECODE_PARAMS_MAX ||
		    v->open_array ||
		    (ret[i].in_register && (ret[i].type == TY_COUNT || v->n_dims || v->vector))) {
			return exec_dec_fail(d, "parameter %s of %s is not supported", v->name,
					     f->name);
		}
		ret[i].bytes = (uint32_t)bytes;
		if (!ret[i].in_register) {
			*frame = ROUND_UP(*frame, ptx_variable_align(v));
			ret[i].offset = *frame;
			*frame += (uint32_t)bytes;
			if (*frame > DECODE_PARAMS_MAX) {
				return exec_dec_fail(d, "the parameters of %s are too large",
						     f->name);
			}
		} else if (ret[i].type == TY_PRED) {
			return exec_dec_fail(d, "predicates as parameters are not supported");
		} else if (exec_dec_is_wide(ret[i].type)) {
			ret[i].offset = REF_SLOT64((*n64)++, REF_R64);
		} else {
			ret[i].offset = REF_SLOT32((*n32)++, REF_R32);
		}
	}
	return 0;
}

/* The module's lists and the sizes of its declarations. */
#include "ptx/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

void ptx_module_free(struct ptx_module *m)
{
	if (!m) {
		return;
	}
	ptx_arena_finish(&m->arena);
	free(m->name);
	free(m);
}

void ptx_list_insert(struct ptx_list *l, struct ptx_item *after, struct ptx_item *it)
{
	it->prev = after;
	it->next = after ? after->next : l->first;
	if (it->next) {
		it->next->prev = it;
	} else {
		l->last = it;
	}
	if (after) {
		after->next = it;
	} else {
		l->first = it;
	}
	l->n++;
}

void ptx_list_append(struct ptx_list *l, struct ptx_item *it)
{
	ptx_list_insert(l, l->last, it);
}

void ptx_list_remove(struct ptx_list *l, struct ptx_item *it)
{
	if (it->prev) {
		it->prev->next = it->next;
	} else {
		l->first = it->next;
	}
	if (it->next) {
		it->next->prev = it->prev;
	} else {
		l->last = it->prev;
	}
	it->prev = it->next = NULL;
	l->n--;
}

struct ptx_function *ptx_module_function(const struct ptx_module *m, const char *name)
{
	struct ptx_function *declared = NULL;

	ptx_each (&m->items, it) {
		struct ptx_function *f = (struct ptx_function *)it;

		if (it->kind != PTX_FUNCTION || strcmp(f->name, name) != 0) {
			continue;
		}
		if (f->has_body) {
			return f;
		}
		declared = f;
	}
	return declared;
}

int ptx_function_tuning(const struct ptx_function *f, const char *directive, uint32_t *values,
			int n)
{
	size_t len = strlen(directive);

	ptx_each (&f->tuning, it) {
		const char *p = ((struct ptx_directive *)it)->text;
		int found = 0;

		if (strncmp(p, directive, len) != 0 || (p[len] != ' ' && p[len] != '\t')) {
			continue;
		}
		p += len;
		for (int i = 0; i < n; i++) {
			values[i] = 1;
		}
		while (found < n) {
			char *end;
			unsigned long v = strtoul(p, &end, 0);

			if (end == p) {
				break;
			}
			values[found++] = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
			p = end + strspn(end, ", \t\r\n");
		}
		return found;
	}
	return -ENOENT;
}

unsigned ptx_type_bytes(const char *type)
{
	static const struct {
		const char *name;
		unsigned bytes;
	} types[] = {
		{ ".pred", 1 },	  { ".b8", 1 },	     { ".u8", 1 },	   { ".s8", 1 },
		{ ".b16", 2 },	  { ".u16", 2 },     { ".s16", 2 },	   { ".f16", 2 },
		{ ".bf16", 2 },	  { ".b32", 4 },     { ".u32", 4 },	   { ".s32", 4 },
		{ ".f32", 4 },	  { ".f16x2", 4 },   { ".bf16x2", 4 },	   { ".b64", 8 },
		{ ".u64", 8 },	  { ".s64", 8 },     { ".f64", 8 },	   { ".b128", 16 },
		{ ".texref", 8 }, { ".surfref", 8 }, { ".samplerref", 8 }, { ".tf32", 4 },
		{ ".e4m3", 1 },	  { ".e5m2", 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (strcmp(types[i].name, type) == 0) {
			return types[i].bytes;
		}
	}
	return 0;
}

int ptx_variable_bytes(const struct ptx_variable *v, uint64_t *ret)
{
	uint64_t bytes = ptx_type_bytes(v->type);

	if (bytes == 0) {
		return -EINVAL;
	}
	bytes *= v->vector ? v->vector : 1;
	for (uint32_t i = 0; i < v->n_dims; i++) {
		if (checked_mul(bytes, v->dims[i], &bytes)) {
			return -EOVERFLOW;
		}
	}
	*ret = bytes;
	return 0;
}

uint32_t ptx_variable_align(const struct ptx_variable *v)
{
	unsigned element = ptx_type_bytes(v->type) * (v->vector ? v->vector : 1u);

	return MAX(MAX(v->align, element), 1u);
}

bool ptx_is_one_of(const char *word, const char *const *list)
{
	while (*list && strcmp(*list, word) != 0) {
		list++;
	}
	return *list != NULL;
}

bool ptx_begins_with(const char *text, const char *const *list)
{
	while (*list && strncmp(*list, text, strlen(*list)) != 0) {
		list++;
	}
	return *list != NULL;
}

bool ptx_insn_has(const struct ptx_insn *insn, const char *modifier)
{
	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		if (strcmp(insn->modifiers[i], modifier) == 0) {
			return true;
		}
	}
	return false;
}

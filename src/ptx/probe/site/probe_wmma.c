/* Accesses of wmma.load and wmma.store. A warp accesses a matrix: lines of adjacent bytes at a
 * distance that an operand gives in elements. Which lane has which element is not defined, so the
 * bytes are divided among the lanes in their order: each has the same number of adjacent bytes, 4
 * to 32 of them, and all together have each byte of the matrix once. */
#include <stdio.h>
#include <string.h>

#include "ptx/probe/site/probe_site.h"

#define DIM_MAX 256u

static unsigned bits_of(const char *type)
{
	static const struct {
		const char *type;
		unsigned bits;
	} types[] = {
		{ ".f16", 16 }, { ".bf16", 16 }, { ".tf32", 32 }, { ".f32", 32 },
		{ ".f64", 64 }, { ".s32", 32 },	 { ".s8", 8 },	  { ".u8", 8 },
		{ ".s4", 4 },	{ ".u4", 4 },	 { ".b1", 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (strcmp(types[i].type, type) == 0) {
			return types[i].bits;
		}
	}
	return 0;
}

static bool read_shape(const struct ptx_insn *insn, unsigned *m, unsigned *n, unsigned *k)
{
	char end;

	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		if (sscanf(insn->modifiers[i], ".m%un%uk%u%c", m, n, k, &end) == 3) {
			return *m <= DIM_MAX && *n <= DIM_MAX && *k <= DIM_MAX;
		}
	}
	return false;
}

static bool is_power(unsigned n)
{
	return n && !(n & (n - 1));
}

bool ptx_probe_wmma(const struct ptx_insn *insn, struct ptx_probe_site *s)
{
	bool a = ptx_insn_has(insn, ".a"), b = ptx_insn_has(insn, ".b");
	bool col = ptx_insn_has(insn, ".col");
	unsigned m = 0, n = 0, k = 0, rows, columns;

	if (!(ptx_insn_has(insn, ".load") || ptx_insn_has(insn, ".store")) || !insn->n_modifiers ||
	    !read_shape(insn, &m, &n, &k)) {
		return false;
	}
	rows = b ? k : m;
	columns = a ? k : n;
	s->matrix.bits = bits_of(insn->modifiers[insn->n_modifiers - 1]);
	s->matrix.elements = col ? rows : columns;
	s->matrix.line = s->matrix.elements * s->matrix.bits / 8;
	s->matrix.stride = insn->n_operands > 2 ? &insn->operands[2] : NULL;
	s->bytes = rows * columns * s->matrix.bits / 8 / 32;
	return is_power(s->bytes) && is_power(s->matrix.line) && s->bytes <= s->matrix.line;
}

bool ptx_probe_wmma_known(const struct ptx_probe_scopes *p, const struct ptx_probe_site *s)
{
	const struct ptx_operand *o = s->matrix.stride;
	const struct ptx_variable *v =
		o && o->kind == PTX_NAME && !o->offset ? ptx_probe_declared(p, o->name) : NULL;

	return !o || o->kind == PTX_INT ||
	       (v && v->space == PTX_REG && ptx_type_bytes(v->type) == 4);
}

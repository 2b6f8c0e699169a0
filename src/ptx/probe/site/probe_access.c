/* Which instructions access memory, and how: kind, space, width and the operand with the address.
 * Prefetches, and operations on barriers and tensor maps, are none. */
#include <string.h>

#include "ptx/probe/site/probe_site.h"

#define SPACE_PARAM 99

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Returns the state space that a modifier names; -1: none. */
static int space_of(const char *modifier)
{
	static const struct {
		const char *name;
		int space;
	} spaces[] = {
		{ ".global", GBPF_SPACE_GLOBAL }, { ".shared", GBPF_SPACE_SHARED },
		{ ".local", GBPF_SPACE_LOCAL },	  { ".const", GBPF_SPACE_CONSTANT },
		{ ".param", SPACE_PARAM },
	};

	for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
		size_t n = strlen(spaces[i].name);

		if (begins(modifier, spaces[i].name) &&
		    (modifier[n] == '\0' || modifier[n] == ':')) {
			return spaces[i].space;
		}
	}
	return -1;
}

/* Returns the n-th space that the modifiers name, in order; -1: fewer. */
static int nth_space(const struct ptx_insn *insn, unsigned n)
{
	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		int space = space_of(insn->modifiers[i]);

		if (space >= 0 && n-- == 0) {
			return space;
		}
	}
	return -1;
}

/* Returns the n-th operand that is an address; NULL: fewer. */
static const struct ptx_operand *nth_address(const struct ptx_insn *insn, unsigned n)
{
	for (unsigned i = 0; i < insn->n_operands; i++) {
		if (insn->operands[i].kind == PTX_ADDRESS && n-- == 0) {
			return &insn->operands[i];
		}
	}
	return NULL;
}

static uint32_t width(const struct ptx_insn *insn)
{
	uint32_t n = 1;

	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		const char *m = insn->modifiers[i];

		n = strcmp(m, ".v2") == 0   ? 2
		    : strcmp(m, ".v4") == 0 ? 4
		    : strcmp(m, ".v8") == 0 ? 8
					    : n;
	}
	return insn->n_modifiers ? n * ptx_type_bytes(insn->modifiers[insn->n_modifiers - 1]) : 0;
}

/* Returns the operand behind the last of two addresses, or of one for st.bulk: a size. */
static void find_size(const struct ptx_insn *insn, unsigned at, struct ptx_probe_site *s)
{
	const struct ptx_operand *o = at < insn->n_operands ? &insn->operands[at] : NULL;

	if (o && o->kind == PTX_INT) {
		s->bytes = (uint32_t)o->value;
	} else if (o && o->kind == PTX_NAME && !o->offset) {
		s->size = o->name;
	}
}

/* ---- copies ---- */

/* Of a bulk copy the global address; without one that in shared memory. A tensor's coordinates are
 * no addresses, so of these copies always the latter, and the size is not known. */
static bool bulk(const struct ptx_insn *insn, struct ptx_probe_site *s)
{
	bool tensor = ptx_insn_has(insn, ".tensor");
	unsigned at = 0;

	if (ptx_insn_has(insn, ".prefetch") || nth_space(insn, 1) < 0) {
		return false; /* or commit_group, wait_group */
	}
	s->op = GBPF_ACCESS_BULK;
	for (unsigned i = 0; i < 2; i++) {
		at = (nth_space(insn, i) == GBPF_SPACE_GLOBAL) != tensor ? i : at;
	}
	s->space = (uint32_t)nth_space(insn, at);
	s->address = nth_address(insn, at);
	if (!tensor) {
		find_size(insn, 2, s);
	}
	return s->address;
}

static bool copy(const struct ptx_insn *insn, struct ptx_probe_site *s)
{
	if (ptx_insn_has(insn, ".bulk")) {
		return bulk(insn, s);
	}
	s->op = GBPF_ACCESS_ASYNC;
	s->space = GBPF_SPACE_GLOBAL;
	s->address = nth_address(insn, 1);
	find_size(insn, 2, s);
	return s->address && nth_space(insn, 1) == GBPF_SPACE_GLOBAL;
}

/* ---- matrices ---- */

/* A lane has the address of a row of 16 bytes. A matrix has 8 rows, of .m16n16 16 rows, so with .x1
 * and .x2 only the first lanes have one. */
static bool matrix(const struct ptx_insn *insn, struct ptx_probe_site *s)
{
	s->op = GBPF_ACCESS_MATRIX;
	s->space = GBPF_SPACE_SHARED;
	s->bytes = 16;
	s->address = nth_address(insn, 0);
	s->lanes = ptx_insn_has(insn, ".x1")   ? 0xff
		   : ptx_insn_has(insn, ".x2") ? 0xffff
					       : UINT32_MAX;
	if (ptx_insn_has(insn, ".m16n16")) {
		s->lanes = s->lanes == 0xff ? 0xffff : UINT32_MAX;
	}
	return s->address;
}

static bool wmma(const struct ptx_insn *insn, struct ptx_probe_site *s)
{
	int space = nth_space(insn, 0);

	s->op = GBPF_ACCESS_MATRIX;
	s->space = space >= 0 ? (uint32_t)space : GBPF_SPACE_GENERIC;
	s->address = nth_address(insn, 0);
	return s->address && ptx_probe_wmma(insn, s);
}

/* ---- the rest ---- */

static bool is_of(const struct ptx_insn *insn, uint32_t *op)
{
	static const struct {
		const char *opcode, *modifier; /* NULL: any */
		uint32_t op;
	} table[] = {
		{ "ld", NULL, GBPF_ACCESS_LOAD },
		{ "ldu", NULL, GBPF_ACCESS_LOAD },
		{ "st", ".bulk", GBPF_ACCESS_BULK },
		{ "st", NULL, GBPF_ACCESS_STORE },
		{ "atom", NULL, GBPF_ACCESS_ATOMIC },
		{ "red", NULL, GBPF_ACCESS_ATOMIC },
		{ "multimem", ".ld_reduce", GBPF_ACCESS_LOAD },
		{ "multimem", ".st", GBPF_ACCESS_STORE },
		{ "multimem", ".red", GBPF_ACCESS_ATOMIC },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].opcode, insn->opcode) == 0 &&
		    (!table[i].modifier || ptx_insn_has(insn, table[i].modifier))) {
			*op = table[i].op;
			return true;
		}
	}
	return false;
}

static bool is_of_param(const struct ptx_insn *insn)
{
	uint32_t op;

	return is_of(insn, &op) && nth_space(insn, 0) == SPACE_PARAM;
}

static bool plain(const struct ptx_insn *insn, struct ptx_probe_site *s)
{
	int space = nth_space(insn, 0);

	if (!is_of(insn, &s->op) || space == SPACE_PARAM) {
		return false;
	}
	s->space = space >= 0				   ? (uint32_t)space
		   : strcmp(insn->opcode, "multimem") == 0 ? GBPF_SPACE_GLOBAL
							   : GBPF_SPACE_GENERIC;
	s->address = nth_address(insn, 0);
	if (s->op == GBPF_ACCESS_BULK) {
		find_size(insn, 1, s);
	} else {
		s->bytes = width(insn);
	}
	return s->address;
}

bool ptx_probe_access(const struct ptx_insn *insn, struct ptx_probe_site *s)
{
	s->insn = insn;
	s->lanes = UINT32_MAX;
	if (strcmp(insn->opcode, "cp") == 0) {
		return copy(insn, s);
	}
	if (strcmp(insn->opcode, "ldmatrix") == 0 || strcmp(insn->opcode, "stmatrix") == 0) {
		return matrix(insn, s);
	}
	if (strcmp(insn->opcode, "wmma") == 0) {
		return wmma(insn, s);
	}
	return plain(insn, s);
}

/* Returns true for instructions whose address is not of what they load or store. */
static bool is_no_access(const struct ptx_insn *insn)
{
	static const struct {
		const char *opcode, *modifier; /* NULL: any */
	} table[] = {
		{ "prefetch", NULL },  { "prefetchu", NULL },	 { "applypriority", NULL },
		{ "discard", NULL },   { "createpolicy", NULL }, { "fence", NULL },
		{ "mbarrier", NULL },  { "tensormap", NULL },	 { "cp", ".prefetch" },
		{ "cp", ".mbarrier" }, { "tcgen05", ".commit" }, { "txq", NULL },
		{ "suq", NULL },       { "call", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].opcode, insn->opcode) == 0 &&
		    (!table[i].modifier || ptx_insn_has(insn, table[i].modifier))) {
			return true;
		}
	}
	return is_of_param(insn);
}

/* Those of wgmma have their operands in descriptors, without an address. */
bool ptx_probe_accesses(const struct ptx_insn *insn)
{
	if (strcmp(insn->opcode, "wgmma") == 0) {
		return ptx_insn_has(insn, ".mma_async");
	}
	return !ptx_probe_is_known(insn) || (nth_address(insn, 0) && !is_no_access(insn));
}

bool ptx_probe_is_bulk(const struct ptx_probe_site *s)
{
	return s->hook == PTX_PROBE_gdev_access && s->op == GBPF_ACCESS_BULK;
}

bool ptx_probe_is_shared(const struct ptx_probe_site *s)
{
	return s->space == GBPF_SPACE_SHARED;
}

bool ptx_probe_is_narrow(const struct ptx_probe_site *s)
{
	return s->space == GBPF_SPACE_SHARED || s->space == GBPF_SPACE_LOCAL;
}

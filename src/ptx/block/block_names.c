/* Names that the block pass recognizes: special registers, functions, and what a body's own
 * declarations hide. */
#include "ptx/block/block_int.h"

#include <stdlib.h>
#include <string.h>

static const struct sreg {
	const char *name;
	bool prefix; /* matches any suffix */
	enum ptx_block_sreg what;
} sregs[] = {
	{ "%ctaid", false, PTX_BLOCK_SREG_CTAID },
	{ "%ctaid.x", false, PTX_BLOCK_SREG_CTAID_X },
	{ "%ctaid.y", false, PTX_BLOCK_SREG_CTAID_Y },
	{ "%ctaid.z", false, PTX_BLOCK_SREG_CTAID_Z },
	{ "%ctaid.w", false, PTX_BLOCK_SREG_ZERO },
	{ "%ctaid.r", false, PTX_BLOCK_SREG_CTAID_X },
	{ "%ctaid.g", false, PTX_BLOCK_SREG_CTAID_Y },
	{ "%ctaid.b", false, PTX_BLOCK_SREG_CTAID_Z },
	{ "%ctaid.a", false, PTX_BLOCK_SREG_ZERO },
	{ "%nctaid", false, PTX_BLOCK_SREG_NCTAID },
	{ "%nctaid.x", false, PTX_BLOCK_SREG_NCTAID_X },
	{ "%nctaid.y", false, PTX_BLOCK_SREG_NCTAID_Y },
	{ "%nctaid.z", false, PTX_BLOCK_SREG_NCTAID_Z },
	{ "%nctaid.w", false, PTX_BLOCK_SREG_ZERO },
	{ "%nctaid.r", false, PTX_BLOCK_SREG_NCTAID_X },
	{ "%nctaid.g", false, PTX_BLOCK_SREG_NCTAID_Y },
	{ "%nctaid.b", false, PTX_BLOCK_SREG_NCTAID_Z },
	{ "%nctaid.a", false, PTX_BLOCK_SREG_ZERO },
	{ "%gridid", true, PTX_BLOCK_SREG_GRID },
	{ "%envreg", true, PTX_BLOCK_SREG_GRID },
	{ "%current_graph_exec", true, PTX_BLOCK_SREG_GRID },
	{ "%cluster", true, PTX_BLOCK_SREG_CLUSTER },
	{ "%nclusterid", true, PTX_BLOCK_SREG_CLUSTER },
	{ "%is_explicit_cluster", true, PTX_BLOCK_SREG_CLUSTER },
	{ "%dynamic_smem_size", true, PTX_BLOCK_SREG_SHARED },
	{ "%total_smem_size", true, PTX_BLOCK_SREG_SHARED },
	{ "%aggr_smem_size", true, PTX_BLOCK_SREG_SHARED },
	{ "%reserved_smem_offset", true, PTX_BLOCK_SREG_SHARED },
};

enum ptx_block_sreg ptx_block_sreg_of(const char *name)
{
	/* Fast path: most names are %r12, %rd3, %p1, %f7. */
	if (name[0] != '%' || !name[1] || !strchr("acdegnirt", name[1]) || name[2] == 'd' ||
	    (name[2] >= '0' && name[2] <= '9')) {
		return PTX_BLOCK_SREG_NONE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(sregs); i++) {
		const struct sreg *s = &sregs[i];

		if (s->prefix ? strncmp(name, s->name, strlen(s->name)) == 0
			      : strcmp(name, s->name) == 0) {
			return s->what;
		}
	}
	/* %ctaid.xy and the like are no registers, and must not be taken for other names. */
	return strncmp(name, "%ctaid.", 7) == 0 || strncmp(name, "%nctaid.", 8) == 0
		       ? PTX_BLOCK_SREG_SHARED
		       : PTX_BLOCK_SREG_NONE;
}

enum ptx_block_sreg ptx_block_vector_move(const struct ptx_insn *insn)
{
	enum ptx_block_sreg what;

	if (strcmp(insn->opcode, "mov") != 0 || insn->n_operands != 2 || insn->n_modifiers != 2 ||
	    strcmp(insn->modifiers[0], ".v4") != 0 || insn->operands[0].kind != PTX_VECTOR ||
	    insn->operands[0].n_args != 4 || insn->operands[1].kind != PTX_NAME ||
	    insn->operands[1].offset) {
		return PTX_BLOCK_SREG_NONE;
	}
	if (ptx_type_bytes(insn->modifiers[1]) != 4) {
		return PTX_BLOCK_SREG_NONE;
	}
	what = ptx_block_sreg_of(insn->operands[1].name);
	return what == PTX_BLOCK_SREG_CTAID || what == PTX_BLOCK_SREG_NCTAID ? what
									     : PTX_BLOCK_SREG_NONE;
}

bool ptx_block_reads_bytes(const struct ptx_insn *insn)
{
	return strcmp(insn->opcode, "mov") == 0 && !insn->guard && insn->n_modifiers == 1 &&
	       strcmp(insn->modifiers[0], ".u32") == 0 && insn->n_operands == 2 &&
	       insn->operands[0].kind == PTX_NAME && insn->operands[1].kind == PTX_NAME &&
	       strcmp(insn->operands[0].name, PTX_BLOCK_BYTES_REG) == 0 &&
	       strcmp(insn->operands[1].name, "%dynamic_smem_size") == 0 &&
	       !insn->operands[1].offset;
}

struct ptx_block_function *ptx_block_find(const struct ptx_block_work *p, const char *name)
{
	/* Function names with a percent sign have been refused before. */
	struct ptx_block_function *f = name[0] == '%' ? NULL : strmap_get(&p->names, name);

	if (!f || f->hidden) {
		return NULL;
	}
	return f->alias ? f->alias : f;
}

void ptx_block_alias(struct ptx_block_work *p, const struct ptx_directive *d)
{
	static const char spaces[] = " \t\r\n";
	const char *at = d->text + strlen(".alias");
	struct ptx_block_function *f[2];

	for (unsigned i = 0; i < 2; i++) {
		size_t len;

		at += strspn(at, spaces);
		len = strcspn(at, " \t\r\n,;");
		f[i] = strmap_get_n(&p->names, at, len);
		at += len;
		at += strspn(at, spaces);
		if (!f[i] || *at++ != (i ? ';' : ',')) {
			return;
		}
	}
	if (!f[0]->f->has_body && f[1]->f->has_body && !f[1]->f->is_entry) {
		f[0]->alias = f[1];
	}
}

static void hide(struct ptx_block_work *p, const char *name, int by)
{
	struct ptx_block_function *f = name[0] == '%' ? NULL : strmap_get(&p->names, name);

	if (f) {
		f->hidden += (unsigned)by;
	}
}

void ptx_block_hide_list(struct ptx_block_work *p, const struct ptx_list *list, int by)
{
	ptx_each (list, it) {
		if (it->kind == PTX_VARIABLE) {
			hide(p, ((struct ptx_variable *)it)->name, by);
		} else if (it->kind == PTX_LABEL) {
			hide(p, ((struct ptx_label *)it)->name, by);
		}
	}
}

void ptx_block_hide_params(struct ptx_block_work *p, const struct ptx_function *f, int by)
{
	for (uint32_t i = 0; i < f->n_params; i++) {
		hide(p, f->params[i].name, by);
	}
	for (uint32_t i = 0; i < f->n_returns; i++) {
		hide(p, f->returns[i].name, by);
	}
}

struct ptx_operand *ptx_block_callee(const struct ptx_insn *insn)
{
	unsigned at;

	if (strcmp(insn->opcode, "call") != 0) {
		return NULL;
	}
	at = insn->n_operands && insn->operands[0].kind == PTX_TUPLE;
	return at < insn->n_operands && insn->operands[at].kind == PTX_NAME ? &insn->operands[at]
									    : NULL;
}

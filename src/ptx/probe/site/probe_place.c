/* The place of programs of the entry. f begins with instructions that only compute registers, from
 * its parameters and from special registers, whose reads take tens of cycles. Behind these
 * instructions the program's own reads overlap with f's, and f's first loads wait for less. Nothing
 * that a program observes has happened there: no memory was accessed, no thread has left or waits,
 * and control came straight from the beginning. A program that reads a time keeps the first place.
 */
#include <string.h>

#include "ptx/probe/site/probe_site.h"

/* Keeps the delay small. */
#define MOVES_MAX 32u

/* Returns true for a register that f and the program are to read in their order: times, and the
 * place of the thread. */
static bool is_ordered(const struct ptx_operand *o)
{
	static const char *const prefixes[] = { "%clock", "%globaltimer", "%pm",
						"%smid",  "%warpid",	  NULL };

	if (o->name && ptx_begins_with(o->name, prefixes)) {
		return true;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		if (is_ordered(&o->args[i])) {
			return true;
		}
	}
	return false;
}

/* Returns true if the instruction computes registers and nothing else. */
static bool is_plain(const struct ptx_insn *insn)
{
	static const char *const opcodes[] = { "mov", "cvta", "cvt", "add",  "sub", "mul", "mad",
					       "and", "or",   "xor", "not",  "shl", "shr", "setp",
					       "bfe", "min",  "max", "selp", NULL };
	bool of_param = strcmp(insn->opcode, "ld") == 0 && ptx_insn_has(insn, ".param");

	if (insn->guard || (!of_param && !ptx_is_one_of(insn->opcode, opcodes))) {
		return false;
	}
	for (unsigned i = 0; i < insn->n_operands; i++) {
		if (is_ordered(&insn->operands[i])) {
			return false;
		}
	}
	return true;
}

static bool reads_time(const struct ptx_probe_program *g)
{
	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (ptx_probe_reads(g, k) && ptx_probe_field_is_time(g->fields[k].name)) {
			return true;
		}
	}
	return strstr(g->probe->text, "%clock") || strstr(g->probe->text, "%globaltimer");
}

/* Returns true if a program of the hooks at the entry must run at the first instruction. */
static bool is_first(const struct ptx_probe_read *p)
{
	if (ptx_probe_has_hook(p, PTX_PROBE_gdev_line)) { /* a line may begin before it */
		return true;
	}
	ptx_probe_each (p, g) {
		uint32_t hook = g->probe->hook;

		if ((hook == PTX_PROBE_gdev_enter || hook == PTX_PROBE_gdev_block_enter) &&
		    reads_time(g)) {
			return true;
		}
	}
	return false;
}

const struct ptx_item *ptx_probe_entry_place(const struct ptx_probe_read *p,
					     const struct ptx_function *f)
{
	const struct ptx_item *it = f->body.first;
	unsigned n = 0;

	if (is_first(p)) {
		return NULL;
	}
	while (it && n < MOVES_MAX &&
	       (it->kind == PTX_VARIABLE || it->kind == PTX_DIRECTIVE ||
		(it->kind == PTX_INSN && is_plain((const struct ptx_insn *)it)))) {
		n += it->kind == PTX_INSN;
		it = it->next;
	}
	return n ? it : NULL;
}

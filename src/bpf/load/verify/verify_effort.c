/* Refusals because of effort: name the loop that was walked most often on the path, and the values
 * in which the states at its head differ. */
#include <errno.h>

#include "bpf/load/verify/verify_int.h"

enum { STATES = 16, NAMES = 4 }; /* most states compared, most values named */

/* Adds to *ret the registers in which n's state differs from first's. */
static void add_differing(const struct ebpf_state_node *first, const struct ebpf_state_node *n,
			  unsigned frame, unsigned *ret)
{
	for (unsigned i = 0; i < 10; i++) {
		const struct ebpf_reg *a = ebpf_verify_packed_reg(first->state, frame, i);
		const struct ebpf_reg *b = ebpf_verify_packed_reg(n->state, frame, i);

		if (a && b && (a->type != b->type || !ebpf_scalar_same(&a->v, &b->v))) {
			*ret |= 1u << i;
		}
	}
}

/* Returns the registers in which the states at the head differ, as bits. */
static unsigned differing(const struct ebpf_verifier *v, uint32_t head)
{
	const struct ebpf_state_node *lists[] = { v->open[head], v->closed[head] }, *first = NULL;
	unsigned ret = 0, seen = 0;

	for (size_t k = 0; k < ARRAY_SIZE(lists); k++) {
		for (const struct ebpf_state_node *n = lists[k]; n && seen < STATES; n = n->next) {
			if (!n->state || !ebpf_verify_same_calls(v, n->state)) {
				continue;
			}
			first = first ? first : n;
			add_differing(first, n, v->depth, &ret);
			seen++;
		}
	}
	return ret;
}

/* Returns the last instruction from head to end that writes the register, or UINT32_MAX. */
static uint32_t written_at(const struct ebpf_verifier *v, uint32_t head, uint32_t end, unsigned reg)
{
	uint32_t at = UINT32_MAX;

	for (uint32_t pc = head; pc <= end; pc++) {
		const struct ebpf_insn *in = &v->prog->insns[pc];
		unsigned class = EBPF_CLASS(in->code);

		if ((v->info[pc] & INSN_START) && in->dst == reg &&
		    (class == EBPF_ALU || class == EBPF_ALU64 || class == EBPF_LDX ||
		     class == EBPF_LD)) {
			at = pc;
		}
	}
	return at;
}

static void add_values(const struct ebpf_verifier *v, uint32_t head, uint32_t end, struct buf *out)
{
	const char *sep = ", where its rounds differ in ";
	unsigned regs = differing(v, head), named = 0;

	for (unsigned i = 0; i < 10 && named < NAMES; i++) {
		uint32_t at = regs >> i & 1 ? written_at(v, head, end, i) : UINT32_MAX;

		if (at != UINT32_MAX) {
			buf_printf(out, "%sr%u (set at %s)", sep, i, ebpf_verify_place_text(v, at));
			sep = ", ";
			named++;
		}
	}
}

int ebpf_verify_give_up(struct ebpf_verifier *v, const char *what)
{
	uint32_t rounds, head = ebpf_verify_hottest_loop(v, &rounds), end;
	struct buf text;
	int err;

	if (head == UINT32_MAX || v->open[head] == NULL || v->open[head]->head) {
		report_hint(
			v->r,
			"split the program into simpler parts, or bound its loops more tightly");
		return ebpf_verify_refuse_err(v, -E2BIG, v->pc, "effort", "%s", what);
	}
	end = ebpf_verify_loop_end(v, head);
	buf_init(&text);
	buf_printf(&text, "%s, on this path mainly in the loop at %s", what,
		   ebpf_verify_place_text(v, end));
	add_values(v, head, end, &text);
	report_hint(v->r,
		    "write that loop with bpf_for, which is proved for all rounds at once, or "
		    "bound it more tightly");
	err = ebpf_verify_refuse_err(v, -E2BIG, v->pc, "effort", "%s", buf_text(&text));
	buf_finish(&text);
	return err;
}

/* Liveness of registers. A register that is not read later need not converge before a loop does.
 * Computed per function, without regard to values. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/verify/verify_int.h"

#define BIT(reg) ((uint16_t)(1u << (reg)))
#define MAX_PASSES 64 /* one per loop nesting level, plus two */
#define ARGS 0x3eu    /* r1-r5 */

static uint16_t read_by_call(const struct ebpf_insn *in)
{
	const struct ebpf_verify_helper *h;
	unsigned n = 0;

	if (in->src == EBPF_CALL_LOCAL) {
		return ARGS;
	}
	h = ebpf_verify_helper(in->imm); /* not NULL: check_operand() has run */
	while (n < 5 && h->args[n] != ARG_NONE) {
		n++;
	}
	return (uint16_t)(((1u << n) - 1) << 1);
}

static uint16_t read_by_jump(const struct ebpf_insn *in)
{
	switch (EBPF_OP(in->code)) {
	case EBPF_JA:
		return 0;
	case EBPF_CALL:
		return read_by_call(in);
	case EBPF_EXIT:
		return BIT(0);
	default:
		return BIT(in->dst) | (EBPF_SRC(in->code) == EBPF_X ? BIT(in->src) : 0);
	}
}

static uint16_t read_by(const struct ebpf_insn *in)
{
	unsigned op = EBPF_OP(in->code);
	int by_reg = EBPF_SRC(in->code) == EBPF_X;

	switch (EBPF_CLASS(in->code)) {
	case EBPF_ALU:
	case EBPF_ALU64:
		return (op == EBPF_MOV ? 0 : BIT(in->dst)) |
		       (by_reg && op != EBPF_END ? BIT(in->src) : 0);
	case EBPF_LDX:
		return BIT(in->src);
	case EBPF_ST:
		return BIT(in->dst);
	case EBPF_STX: /* compare-and-exchange reads r0 */
		return BIT(in->dst) | BIT(in->src) |
		       (EBPF_MODE(in->code) == EBPF_ATOMIC ? BIT(0) : 0);
	case EBPF_LD:
		return 0;
	default:
		return read_by_jump(in);
	}
}

static uint16_t written_by(const struct ebpf_insn *in)
{
	switch (EBPF_CLASS(in->code)) {
	case EBPF_ALU:
	case EBPF_ALU64:
	case EBPF_LDX:
	case EBPF_LD:
		return BIT(in->dst);
	case EBPF_JMP:
		return EBPF_OP(in->code) == EBPF_CALL ? BIT(0) | ARGS : 0;
	default:
		return 0;
	}
}

static int is_jump(const struct ebpf_insn *in)
{
	unsigned class = EBPF_CLASS(in->code), op = EBPF_OP(in->code);

	return (class == EBPF_JMP || class == EBPF_JMP32) && op != EBPF_CALL && op != EBPF_EXIT;
}

/* Makes one pass from the end to the beginning. Returns whether anything has changed. */
static int pass(struct ebpf_verifier *v)
{
	int changed = 0;

	for (uint32_t pc = v->prog->n_insns; pc-- > 0;) {
		const struct ebpf_insn *in = &v->prog->insns[pc];
		uint32_t next = pc + (in->code == EBPF_LD_IMM64 ? 2 : 1);
		int jump = is_jump(in), always = jump && EBPF_OP(in->code) == EBPF_JA;
		uint16_t live = 0;

		if (!(v->info[pc] & INSN_START)) {
			continue;
		}
		if (jump) {
			live |= v->live[ebpf_verify_target(in, pc)];
		}
		if (!always && in->code != (EBPF_JMP | EBPF_EXIT)) {
			live |= v->live[next]; /* in range: no path runs off the end */
		}
		live = (uint16_t)((live & ~written_by(in)) | read_by(in));
		changed |= live != v->live[pc];
		v->live[pc] = live;
	}
	return changed;
}

int ebpf_verify_live(struct ebpf_verifier *v)
{
	v->live = calloc(v->prog->n_insns, sizeof(*v->live));
	if (!v->live) {
		return -ENOMEM;
	}
	for (int i = 0; pass(v); i++) {
		if (i ==
		    MAX_PASSES) { /* unusual control flow: assume that every register is read */
			memset(v->live, 0xff, v->prog->n_insns * sizeof(*v->live));
			break;
		}
	}
	return 0;
}

static void drop(struct ebpf_call_state *f, unsigned live)
{
	for (unsigned i = 0; i < 10; i++) {
		if (!(live >> i & 1)) {
			ebpf_reg_none(&f->regs[i]);
		}
	}
}

void ebpf_verify_drop_dead(struct ebpf_verifier *v)
{
	drop(ebpf_verify_frame(v), v->live[v->pc]);
	for (unsigned f = 0; f < v->depth; f++) {
		uint32_t ret = v->frames[f + 1]->ret;
		int hidden = v->prog->insns[ret - 1].src != EBPF_CALL_LOCAL;

		/* During a callback r1-r5 of the caller hold the state of the helper call. */
		drop(v->frames[f], (v->live[ret] & ~1u) | (hidden ? ARGS : 0));
	}
}

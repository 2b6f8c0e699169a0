/* Conditional jumps: determines which sides are possible and narrows the operands on each. */
#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/simt/simt_int.h"
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"

#include <errno.h>

enum side { SIDE_BOTH_POSSIBLE = -1 };

struct operands {
	struct ebpf_reg *dst;
	struct ebpf_reg *src; /* a register or the immediate */
	struct ebpf_reg imm;
	int is64;
	unsigned op;
};

static int read_operands(struct ebpf_verifier *v, const struct ebpf_insn *in, struct operands *o)
{
	int err = 0;

	o->is64 = EBPF_CLASS(in->code) == EBPF_JMP;
	o->op = EBPF_OP(in->code);
	o->dst = ebpf_verify_read(v, in->dst, &err);
	if (!o->dst) {
		return err;
	}
	o->src = &o->imm;
	if (EBPF_SRC(in->code) == EBPF_X) {
		o->src = ebpf_verify_read(v, in->src, &err);
		return o->src ? 0 : err;
	}
	ebpf_reg_const(&o->imm, (uint64_t)(int64_t)in->imm);
	return 0;
}

static int is_zero(const struct ebpf_reg *r)
{
	return r->type == REG_SCALAR && ebpf_scalar_is_const(&r->v) && r->v.t.value == 0;
}

static int is_equality(const struct operands *o)
{
	return o->is64 && (o->op == EBPF_JEQ || o->op == EBPF_JNE);
}

/* Returns whether both pointers refer to one object and lie so close to it that their offsets order
 * them. */
static int comparable(const struct ebpf_reg *a, const struct ebpf_reg *b)
{
	return ebpf_reg_same_base(a, b) && a->v.smin >= -4096 && b->v.smin >= -4096;
}

static unsigned signed_op(unsigned op)
{
	switch (op) {
	case EBPF_JGT:
		return EBPF_JSGT;
	case EBPF_JGE:
		return EBPF_JSGE;
	case EBPF_JLT:
		return EBPF_JSLT;
	case EBPF_JLE:
		return EBPF_JSLE;
	default:
		return op;
	}
}

static int is_signed_or_bits(unsigned op)
{
	return op == EBPF_JSGT || op == EBPF_JSGE || op == EBPF_JSLT || op == EBPF_JSLE ||
	       op == EBPF_JSET;
}

static int check_pointers(struct ebpf_verifier *v, const struct ebpf_insn *in,
			  const struct operands *o)
{
	const struct ebpf_reg *ptr = ebpf_reg_is_pointer(o->dst) ? o->dst : o->src;
	unsigned which = ebpf_reg_is_pointer(o->dst) ? in->dst : in->src;

	if (!ebpf_reg_is_pointer(ptr)) {
		return 0;
	}
	if (ptr->type == REG_CTX && ebpf_verify_on(v, SIDE_DEVICE)) {
		report_hint(v->r, "a program always has its context");
		return ebpf_verify_refuse(v, v->pc, "ctx",
					  "r%u is the context pointer, which has no value inside "
					  "a kernel",
					  which);
	}
	if (!o->is64) {
		return ebpf_verify_refuse(
			v, v->pc, "pointer",
			"r%u is %s: comparing its low half would reveal an address", which,
			ebpf_verify_reg_text(v, ptr));
	}
	if (is_equality(o) && (is_zero(o->src) || is_zero(o->dst))) {
		return 0;
	}
	if (ebpf_reg_is_nullable(o->dst) || ebpf_reg_is_nullable(o->src)) {
		report_hint(v->r, "compare it with NULL first");
		return ebpf_verify_refuse(v, v->pc, "null",
					  "r%u is %s: it can only be compared with NULL", which,
					  ebpf_verify_reg_text(v, ptr));
	}
	if (comparable(o->dst, o->src) && !is_signed_or_bits(o->op)) {
		return 0;
	}
	return ebpf_verify_refuse(v, v->pc, "leak",
				  "comparing r%u (%s) with %s would reveal an address", which,
				  ebpf_verify_reg_text(v, ptr),
				  ebpf_verify_reg_text(v, ptr == o->dst ? o->src : o->dst));
}

/* Returns whether both operands are known to be the same number. */
static int identical(const struct operands *o)
{
	return o->dst == o->src || (o->dst->type == REG_SCALAR && o->src->type == REG_SCALAR &&
				    o->dst->id != 0 && o->dst->id == o->src->id &&
				    o->dst->link == o->src->link && o->dst->add == o->src->add);
}

static int identical_side(unsigned op)
{
	switch (op) {
	case EBPF_JEQ:
	case EBPF_JGE:
	case EBPF_JLE:
	case EBPF_JSGE:
	case EBPF_JSLE:
		return 1;
	case EBPF_JSET:
		return SIDE_BOTH_POSSIBLE; /* true unless the number is zero */
	default:
		return 0;
	}
}

/* Narrows the operands to the values they have on one side. Returns 0 if that side is impossible.
 */
static int refine(const struct operands *o, int outcome, struct ebpf_scalar *a,
		  struct ebpf_scalar *b)
{
	unsigned op = ebpf_reg_is_pointer(o->dst) ? signed_op(o->op) : o->op;

	*a = o->dst->v;
	*b = o->src->v;
	return ebpf_scalar_refine(op, o->is64, outcome, a, b);
}

static int possible_sides(const struct operands *o)
{
	struct ebpf_scalar a, b;
	int yes, no;

	if (identical(o)) {
		return identical_side(o->op);
	}
	if (ebpf_reg_is_pointer(o->dst) != ebpf_reg_is_pointer(o->src)) { /* comparison with zero */
		const struct ebpf_reg *ptr = ebpf_reg_is_pointer(o->dst) ? o->dst : o->src;

		/* far below the start of an object, an address could be 0 */
		return ebpf_reg_is_nullable(ptr) || (ebpf_reg_is_place(ptr) && ptr->v.smin < -4096)
			       ? SIDE_BOTH_POSSIBLE
			       : o->op == EBPF_JNE;
	}
	yes = refine(o, 1, &a, &b);
	no = refine(o, 0, &a, &b);
	if (!yes && !no) {
		return SIDE_BOTH_POSSIBLE; /* cannot happen: one side is always possible */
	}
	return yes && no ? SIDE_BOTH_POSSIBLE : yes;
}

static void resolve_null(struct ebpf_verifier *v, struct ebpf_reg *r, void *arg)
{
	const int *is_null = arg;

	if (!ebpf_reg_is_nullable(r)) {
		return;
	}
	if (*is_null) {
		ebpf_reg_const(r, 0);
	} else {
		r->type = r->type == REG_VALUE_OR_NULL ? REG_VALUE
			  : r->type == REG_MAP_OR_NULL ? REG_MAP
						       : REG_RECORD;
	}
}

/* The result of a comparison of numbers, applied to all registers that are linked to the operand.
 */
struct lesson {
	struct ebpf_reg operand; /* with the values that are left */
	uint16_t from;		 /* registers at the last node on which the comparison depends */
	int elsewhere; /* also applied to a number on the stack or in a frame of a caller */
};

static void take_lesson(struct ebpf_verifier *v, struct ebpf_reg *r, void *arg)
{
	struct lesson *l = arg;
	struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;
	struct ebpf_scalar before = r->v, implied;

	if (r->type != REG_SCALAR) {
		return;
	}
	ebpf_link_implied(&l->operand, r, &implied);
	/* if no value is left, no run comes here, and any set holds them all */
	if (!ebpf_scalar_meet(&r->v, &implied) || ebpf_scalar_same(&before, &r->v)) {
		return;
	}
	if (r >= regs && r < regs + 10) {
		v->sources.of[v->depth][r - regs] |= l->from;
	} else {
		l->elsewhere = 1;
	}
}

/* Narrows r and all registers linked to it. The new range depends on both operands: if it decides
 * something later, both operands have decided it. */
static void learn(struct ebpf_verifier *v, struct ebpf_reg *r, const struct ebpf_scalar *value,
		  uint16_t from)
{
	struct lesson l = { .operand = *r, .from = from };

	l.operand.v = *value;
	if (ebpf_reg_is_pointer(r)) {
		r->v = *value; /* a pointer shares no range, and pointers are always compared */
		return;
	}
	take_lesson(v, r, &l);
	if (r->id) {
		ebpf_verify_each_id(v, r->id, take_lesson, &l);
	}
	if (l.elsewhere) {
		v->at->read.matter[v->depth] |= from;
	}
}

static uint16_t sources_of(const struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	uint16_t from = in->dst < 10 ? v->sources.of[v->depth][in->dst] : 0;

	if (EBPF_SRC(in->code) == EBPF_X && in->src < 10) {
		from |= v->sources.of[v->depth][in->src];
	}
	return from;
}

int ebpf_verify_branch_outcome(struct ebpf_verifier *v, int outcome)
{
	const struct ebpf_insn *in = &v->prog->insns[v->pc];
	struct operands o;
	struct ebpf_scalar a, b;
	int err = read_operands(v, in, &o);

	if (err) {
		return err;
	}
	if (v->simt) {
		ebpf_simt_side(v, outcome);
	}
	if (ebpf_reg_is_pointer(o.dst) != ebpf_reg_is_pointer(o.src)) {
		struct ebpf_reg *ptr = ebpf_reg_is_pointer(o.dst) ? o.dst : o.src;
		int is_null = outcome == (o.op == EBPF_JEQ);

		if (ebpf_reg_is_nullable(ptr)) {
			uint32_t id = ptr->id;
			int record = ptr->type == REG_RECORD_OR_NULL;

			ebpf_verify_each_id(v, id, resolve_null, &is_null);
			if (record && is_null) {
				ebpf_verify_release(
					v, id); /* the reservation failed: no reference is held */
			}
		}
	} else if (!identical(&o) && refine(&o, outcome, &a, &b)) {
		uint16_t from = sources_of(v, in);

		learn(v, o.dst, &a, from);
		if (o.src != &o.imm) {
			learn(v, o.src, &b, from);
		}
	}
	v->pc = outcome ? ebpf_verify_target(in, v->pc) : v->pc + 1;
	return 0;
}

int ebpf_verify_branch(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	struct operands o;
	int side, first, err = read_operands(v, in, &o);

	err = err ? err : check_pointers(v, in, &o);
	if (err) {
		return err;
	}
	side = possible_sides(&o);
	if (side != SIDE_BOTH_POSSIBLE || ebpf_reg_is_pointer(o.dst) ||
	    ebpf_reg_is_pointer(o.src)) {
		v->at->read.matter[v->depth] |=
			sources_of(v, in); /* the outcome depends on these numbers */
	}
	if (side == SIDE_BOTH_POSSIBLE) {
		first = (v->info[v->pc] & INSN_TAKEN_FIRST) != 0;
		err = ebpf_verify_push(v, !first);
		if (err) {
			return err;
		}
		side = first;
	}
	return ebpf_verify_branch_outcome(v, side);
}

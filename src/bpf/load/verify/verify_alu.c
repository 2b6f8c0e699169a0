/* Arithmetic on registers. Numbers are computed by ebpf_scalar_alu(); pointers allow only the
 * addition and subtraction of bounded numbers. */
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"

#include <errno.h>

/* Limit of offsets in pointers, in either direction: no sum of offsets can overflow. */
#define MAX_OFFSET (1 << 29)

static const char *op_name(unsigned op)
{
	static const char *const names[] = { "+",   "-",	 "*",	     "/", "|", "&",
					     "<<",  ">>",	 "negation", "%", "^", "=",
					     "s>>", "byte swap", "?",	     "?" };

	return names[op >> 4];
}

static int refuse_pointer(struct ebpf_verifier *v, const struct ebpf_reg *r, unsigned reg,
			  const char *why)
{
	if (ebpf_reg_is_nullable(r)) {
		report_hint(v->r, "compare it with NULL first");
		return ebpf_verify_refuse(v, v->pc, "null",
					  "r%u is %s: arithmetic needs the check for NULL before",
					  reg, ebpf_verify_reg_text(v, r));
	}
	return ebpf_verify_refuse(v, v->pc, "pointer", "r%u is %s: %s", reg,
				  ebpf_verify_reg_text(v, r), why);
}

/* The context is a structure: a pointer into it has a few places that are known. */
static int check_ctx_places(struct ebpf_verifier *v, const struct ebpf_reg *r, unsigned reg,
			    const struct ebpf_scalar *by)
{
	int64_t at[VERIFY_MAX_PLACES];

	if (ebpf_scalar_values(&r->v, at, VERIFY_MAX_PLACES)) {
		return 0;
	}
	report_hint(v->r, "name the fields (ctx->field), in a switch if an index selects one");
	return ebpf_verify_refuse(v, v->pc, "pointer",
				  "r%u: a number %s is added to the context pointer, which may "
				  "have %u known offsets at most",
				  reg, ebpf_verify_range_text(by), VERIFY_MAX_PLACES);
}

static int check_offset(struct ebpf_verifier *v, const struct ebpf_reg *r, unsigned reg,
			const struct ebpf_scalar *by)
{
	if (r->v.smin < -MAX_OFFSET || r->v.smax > MAX_OFFSET) {
		report_hint(v->r,
			    by->smin < 0 && by->smax < MAX_OFFSET
				    ? "it may be negative: declare it unsigned, or check that "
				      "it is >= 0 too"
				    : "bound the number first (if (i < N)), or mask it (i & (N - "
				      "1))");
		return ebpf_verify_refuse(
			v, v->pc, "pointer",
			"r%u: a number %s is added to %s: the result may lie anywhere", reg,
			ebpf_verify_range_text(by),
			r->type == REG_STACK   ? "a stack pointer"
			: r->type == REG_VALUE ? "a map value"
					       : "a pointer");
	}
	return r->type == REG_CTX ? check_ctx_places(v, r, reg, by) : 0;
}

/* Requires initialized dst and src of which at least one is a pointer. */
static int pointer_alu(struct ebpf_verifier *v, const struct ebpf_insn *in, struct ebpf_reg *dst,
		       const struct ebpf_reg *src)
{
	unsigned op = EBPF_OP(in->code), which = ebpf_reg_is_pointer(dst) ? in->dst : in->src;
	const struct ebpf_reg *ptr = ebpf_reg_is_pointer(dst) ? dst : src;
	struct ebpf_reg out;
	int err;

	if (EBPF_CLASS(in->code) != EBPF_ALU64) {
		return refuse_pointer(v, ptr, which,
				      "32-bit operations would cut a pointer in half");
	}
	if (op == EBPF_SUB && ebpf_reg_is_pointer(dst) && ebpf_reg_is_pointer(src)) {
		if (!ebpf_reg_same_base(dst, src)) {
			return ebpf_verify_refuse(
				v, v->pc, "leak", "difference of %s and %s would reveal an address",
				ebpf_verify_reg_text(v, dst), ebpf_verify_reg_text(v, src));
		}
		ebpf_reg_unknown(&out);
		out.v = dst->v;
		ebpf_scalar_alu(EBPF_SUB, 1, 0, &out.v, &src->v);
		*dst = out;
		return 0;
	}
	if (!(op == EBPF_ADD || (op == EBPF_SUB && ebpf_reg_is_pointer(dst))) ||
	    (ebpf_reg_is_pointer(dst) && ebpf_reg_is_pointer(src))) {
		struct buf why;

		buf_init(&why);
		buf_printf(&why,
			   "%s is not allowed on it; only numbers may be added and subtracted",
			   op_name(op));
		err = refuse_pointer(v, ptr, which, buf_text(&why));
		buf_finish(&why);
		return err;
	}
	if (!ebpf_reg_is_place(ptr)) {
		return refuse_pointer(v, ptr, which, "it may not be changed");
	}
	out = *ptr;
	ebpf_scalar_alu(op, 1, 0, &out.v, ebpf_reg_is_pointer(dst) ? &src->v : &dst->v);
	err = check_offset(v, &out, which, ebpf_reg_is_pointer(dst) ? &src->v : &dst->v);
	*dst = out;
	return err;
}

/* Copies a register, or a part of it. Source and copy of a number share an id, so that a later
 * comparison narrows both. */
static int move(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	int err = 0, is64 = EBPF_CLASS(in->code) == EBPF_ALU64;
	struct ebpf_reg *src, *dst, out;
	struct ebpf_scalar zero;
	uint16_t from;

	if (EBPF_SRC(in->code) == EBPF_K) {
		ebpf_reg_const(ebpf_verify_write(v, in->dst),
			       is64 ? (uint64_t)(int64_t)in->imm : (uint32_t)in->imm);
		return 0;
	}
	src = ebpf_verify_read(v, in->src, &err);
	if (!src) {
		return err;
	}
	from = in->src < 10 ? v->sources.of[v->depth][in->src] : 0;
	if (ebpf_reg_is_pointer(src) && (!is64 || in->off)) {
		return refuse_pointer(v, src, in->src,
				      "32-bit operations would cut a pointer in half");
	}
	if (!ebpf_reg_is_pointer(src)) {
		int whole = in->off == 0 && (is64 || src->v.umax <= UINT32_MAX);

		if (!whole) {
			ebpf_scalar_const(&zero, 0);
			ebpf_link_name(v, src);
			out = *src;
			if (is64) {
				ebpf_link_extend(&out, in->off);
			} else if (in->off) {
				ebpf_link_drop(&out);
			} else {
				ebpf_link_low(&out);
			}
			ebpf_scalar_alu(EBPF_MOV, is64, in->off, &zero, &src->v);
			out.v = zero;
			*ebpf_verify_write(v, in->dst) = out;
			v->sources.of[v->depth][in->dst] = from;
			return 0;
		}
		ebpf_link_name(v, src);
	}
	dst = ebpf_verify_write(v, in->dst);
	*dst = *src;
	v->sources.of[v->depth][in->dst] = from;
	return 0;
}

int ebpf_verify_alu(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	unsigned op = EBPF_OP(in->code);
	int err = 0, is64 = EBPF_CLASS(in->code) == EBPF_ALU64;
	struct ebpf_reg *dst, imm;
	const struct ebpf_reg *src = &imm;
	uint16_t from;

	if (op == EBPF_MOV) {
		return move(v, in);
	}
	dst = ebpf_verify_read(v, in->dst, &err);
	if (!dst) {
		return err;
	}
	if (op != EBPF_END && op != EBPF_NEG && EBPF_SRC(in->code) == EBPF_X) {
		src = ebpf_verify_read(v, in->src, &err);
		if (!src) {
			return err;
		}
	} else {
		ebpf_reg_const(&imm, (uint64_t)(int64_t)in->imm);
	}
	from = v->sources.of[v->depth][in->dst];
	if (src != &imm && in->src < 10) {
		from |= v->sources.of[v->depth][in->src];
	}
	if (ebpf_reg_is_pointer(dst) || ebpf_reg_is_pointer(src)) {
		v->at->read.matter[v->depth] |= from;
	}
	ebpf_verify_write(v, in->dst);
	v->sources.of[v->depth][in->dst] = from;
	if (ebpf_reg_is_pointer(dst) || ebpf_reg_is_pointer(src)) {
		if (op == EBPF_END) {
			return refuse_pointer(v, dst, in->dst, "its bytes may not be swapped");
		}
		return pointer_alu(v, in, dst, src);
	}
	if (op == EBPF_END || dst == src) {
		ebpf_link_drop(dst);
	} else {
		ebpf_link_alu(dst, op, is64, &src->v);
	}
	if (op == EBPF_END) {
		ebpf_scalar_end(in->code, in->imm, &dst->v);
	} else if (dst == src && (op == EBPF_SUB || op == EBPF_XOR)) {
		ebpf_scalar_const(&dst->v, 0);
	} else {
		ebpf_scalar_alu(op, is64, in->off, &dst->v, &src->v);
	}
	return 0;
}

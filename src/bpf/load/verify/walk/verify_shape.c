/* Whether two states can be joined without losing something that the program may still need. Ranges
 * of numbers always join; pointers join with pointers of their kind. This decides which states the
 * merging walk keeps apart: any join is sound. */
#include "bpf/load/verify/verify_int.h"

/* Returns whether the join of two registers is of their type. */
static int reg_fits(const struct ebpf_reg *a, const struct ebpf_reg *b)
{
	if (a->type != b->type) {
		return 0;
	}
	switch (a->type) {
	case REG_NONE:
	case REG_SCALAR:
	case REG_GONE:
		return 1;
	case REG_CTX:
		return ebpf_scalar_same(&a->v, &b->v);
	case REG_FUNC:
		return a->map == b->map;
	case REG_STACK: /* memory at a variable place in a frame is known less well */
		return a->frame == b->frame && ebpf_scalar_same(&a->v, &b->v);
	default:
		return a->map == b->map && (a->id == 0) == (b->id == 0);
	}
}

/* Returns the pointer that is stored in the slot, or NULL. */
static const struct ebpf_reg *pointer_in(const struct ebpf_stack_slot *s)
{
	return s->kind[7] == BYTE_SPILL && s->r.type != REG_SCALAR ? &s->r : NULL;
}

static int is_written(const struct ebpf_stack_slot *s)
{
	int any = 0;

	for (unsigned i = 0; i < 8; i++) {
		any |= s->kind[i] != BYTE_NONE;
	}
	return any;
}

static int slot_fits(const struct ebpf_stack_slot *a, const struct ebpf_stack_slot *b)
{
	const struct ebpf_reg *p = pointer_in(a), *q = pointer_in(b);

	if (p && q) {
		return reg_fits(p, q);
	}
	/* a slot that one path did not write is not read behind the place where both meet */
	return (!p && !q) || !is_written(p ? b : a);
}

static int refs_fit(const struct ebpf_ref *a, unsigned n, const struct ebpf_verifier *v)
{
	for (unsigned i = 0; n == v->n_refs && i < n; i++) {
		const struct ebpf_ref *b = &v->refs[i];

		if (a[i].kind != b->kind || a[i].bytes != b->bytes || a[i].map != b->map ||
		    (a[i].id == 0) != (b->id == 0)) {
			return 0;
		}
	}
	return n == v->n_refs;
}

static int frame_fits(struct ebpf_verifier *v, const struct ebpf_call_state *a,
		      const struct ebpf_call_state *b)
{
	for (unsigned i = 0; i < 10; i++) {
		if (!reg_fits(&a->regs[i], &b->regs[i])) {
			return 0;
		}
	}
	v->work += 2;
	for (uint64_t left = a->used & b->used; left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);

		v->work++;
		if (!slot_fits(&a->slots[i], &b->slots[i])) {
			return 0;
		}
	}
	return 1;
}

enum ebpf_fit ebpf_verify_fit(struct ebpf_verifier *v, const struct ebpf_packed_state *p)
{
	struct ebpf_ref refs[VERIFY_MAX_REFS];
	unsigned n_refs;

	if (!ebpf_verify_same_calls(v, p) || ebpf_verify_unpack_other(v, p, refs, &n_refs) ||
	    !refs_fit(refs, n_refs, v)) {
		return FIT_NEVER;
	}
	for (unsigned f = 0; f <= v->depth; f++) {
		if (!frame_fits(v, &v->other[f], v->frames[f])) {
			return FIT_LOSSY;
		}
	}
	return FIT_WHOLE;
}

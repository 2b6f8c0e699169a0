/* Open-coded iterators (bpf_iter_num) occupy eight bytes of stack that only the helpers touch.
 * Every path creates and destroys one exactly once. The maximum number of remaining rounds is part
 * of the state. */
#include <errno.h>
#include <string.h>

#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"

#define MAX_ROUNDS (1u << 23) /* bpf_iter_num_new makes an empty iterator if there are more */

static struct ebpf_stack_slot *slot_at(struct ebpf_verifier *v, const struct ebpf_reg *ptr)
{
	return &v->frames[ptr->frame]->slots[-ptr->v.smin / 8 - 1];
}

static int check_place(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
		       const struct ebpf_reg *ptr)
{
	if (ptr->type != REG_STACK || !ebpf_scalar_is_const(&ptr->v) || ptr->v.smin % 8 ||
	    ptr->v.smin < -(int64_t)EBPF_STACK_BYTES || ptr->v.smin > -8) {
		return ebpf_verify_refuse(
			v, v->pc, "iter",
			"%s: r1 must point to 8 aligned bytes at a fixed place of the "
			"stack, but is %s",
			c->what, ebpf_verify_reg_text(v, ptr));
	}
	return 0;
}

struct ebpf_stack_slot *ebpf_verify_iterator(struct ebpf_verifier *v,
					     const struct ebpf_helper_call *c,
					     const struct ebpf_reg *ptr, int *err)
{
	struct ebpf_stack_slot *s;

	*err = check_place(v, c, ptr);
	if (*err) {
		return NULL;
	}
	s = slot_at(v, ptr);
	if (s->kind[0] != BYTE_ITER) {
		report_hint(v->r, "make it with bpf_iter_num_new first (bpf_for does)");
		*err = ebpf_verify_refuse(v, v->pc, "iter", "%s: r1 does not point to an iterator",
					  c->what);
		return NULL;
	}
	ebpf_mark_slot_read(v, ptr->frame, (unsigned)(s - v->frames[ptr->frame]->slots));
	*err = ebpf_verify_own(v, c, s->r.id);
	return *err ? NULL : s;
}

/* Sets the range of the numbers that the iterator yields, and their maximum count. */
static void set_range(struct ebpf_reg *r, const struct ebpf_scalar *start,
		      const struct ebpf_scalar *end)
{
	int64_t rounds = (int64_t)end->s32max - start->s32min;

	ebpf_scalar_unknown(&r->v);
	r->v.umax = rounds < 0 ? 0 : MIN((uint64_t)rounds, MAX_ROUNDS);
	r->v.s32min = start->s32min;
	r->v.s32max = rounds > 0 ? end->s32max - 1 : start->s32min;
}

int ebpf_verify_iter_new(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;
	struct ebpf_reg it = { .type = REG_ITER, .id = ++v->next_id }, ptr = regs[1];
	struct ebpf_stack_slot *s;
	struct ebpf_ref *ref;
	int err = check_place(v, c, &ptr);

	ebpf_mark_matter(v, v->depth, 2);
	ebpf_mark_matter(v, v->depth, 3);
	err = err ? err : ebpf_verify_stack_write(v, &ptr, 0, 8, NULL);
	err = err ? err : ebpf_verify_acquire(v, REF_ITER, it.id, &ref);
	if (err) {
		return err;
	}
	set_range(&it, &regs[2].v, &regs[3].v);
	s = slot_at(v, &ptr);
	memset(s->kind, BYTE_ITER, sizeof(s->kind));
	s->r = it;
	ebpf_verify_clobber(v);
	ebpf_reg_unknown(ebpf_verify_write(v, 0));
	regs[0].v.smin = -4095;
	regs[0].v.smax = 0;
	ebpf_scalar_sync(&regs[0].v);
	v->pc++;
	return 0;
}

int ebpf_verify_iter_next(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	int err, more;
	const struct ebpf_stack_slot *s =
		ebpf_verify_iterator(v, c, &ebpf_verify_frame(v)->regs[1], &err);

	if (!s) {
		return err;
	}
	more = !s->r.map && s->r.v.umax > 0;
	if (more) {
		err = ebpf_verify_push(v, 0);
	}
	return err ? err : ebpf_verify_iter_outcome(v, more);
}

int ebpf_verify_iter_outcome(struct ebpf_verifier *v, int outcome)
{
	struct ebpf_stack_slot *s = slot_at(v, &ebpf_verify_frame(v)->regs[1]);
	struct ebpf_reg number = { .type = REG_NUMBER, .id = s->r.id }, *r0;
	struct ebpf_loop *l;
	uint32_t id;

	ebpf_verify_forget(v, s->r.id); /* invalidate the pointer to the previous number */
	ebpf_verify_clobber(v);
	r0 = ebpf_verify_write(v, 0);
	v->pc++;
	if (!outcome) {
		s->r.map = 1;
		s->r.v.umax = 0;
		ebpf_reg_const(r0, 0);
		return 0;
	}
	id = s->r.id;
	ebpf_scalar_loaded(&number.v, 4, 0);
	number.v.s32min = s->r.v.s32min;
	number.v.s32max = s->r.v.s32max;
	ebpf_scalar_sync(&number.v);
	*r0 = number;
	l = ebpf_verify_ref(v, id)->loop;
	return l && v->at->head == l ? ebpf_verify_begin_round(v, l) : 0;
}

int ebpf_verify_iter_destroy(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	int err;
	struct ebpf_stack_slot *s =
		ebpf_verify_iterator(v, c, &ebpf_verify_frame(v)->regs[1], &err);

	if (!s) {
		return err;
	}
	ebpf_verify_forget(v, s->r.id);
	ebpf_verify_release(v, s->r.id);
	memset(s->kind, BYTE_NONE, sizeof(s->kind));
	ebpf_verify_clobber(v);
	ebpf_reg_none(ebpf_verify_write(v, 0));
	v->pc++;
	return 0;
}

int ebpf_verify_no_iterators(struct ebpf_verifier *v)
{
	const struct ebpf_call_state *f = ebpf_verify_frame(v);

	for (uint64_t left = f->used; left; left &= left - 1) {
		const struct ebpf_stack_slot *s = &f->slots[__builtin_ctzll(left)];

		if (s->kind[0] == BYTE_ITER) {
			return ebpf_verify_held(v, ebpf_verify_ref(v, s->r.id),
						"when the function returns");
		}
	}
	return 0;
}

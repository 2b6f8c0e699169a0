/* Open-coded iterators (bpf_iter_num): eight bytes of stack that the helpers alone touch, made once
 * and destroyed once on every path. How many numbers it gives at most is part of the state. */
#include <errno.h>
#include <string.h>

#include "bpf/load/verify/verify_int.h"

#define MAX_ROUNDS (1u << 23) /* the helper makes an empty iterator of more */

static struct slot *slot_at(struct verifier *v, const struct reg *ptr)
{
	return &v->frames[ptr->frame]->slots[-ptr->v.smin / 8 - 1];
}

static int check_place(struct verifier *v, const struct call *c, const struct reg *ptr)
{
	if (ptr->type != REG_STACK || !scalar_is_const(&ptr->v) || ptr->v.smin % 8 ||
	    ptr->v.smin < -(int64_t)EBPF_STACK_BYTES || ptr->v.smin > -8) {
		return verify_refuse(v, v->pc, "iter",
				     "%s: r1 must point to 8 aligned bytes at a fixed place of the "
				     "stack, but is %s",
				     c->what, verify_reg_text(v, ptr));
	}
	return 0;
}

struct slot *verify_iterator(struct verifier *v, const struct call *c, const struct reg *ptr,
			     int *err)
{
	struct slot *s;

	*err = check_place(v, c, ptr);
	if (*err) {
		return NULL;
	}
	s = slot_at(v, ptr);
	if (s->kind[0] != BYTE_ITER) {
		report_hint(v->r, "make it with bpf_iter_num_new first (bpf_for does)");
		*err = verify_refuse(v, v->pc, "iter", "%s: r1 does not point to an iterator",
				     c->what);
		return NULL;
	}
	mark_slot_read(v, ptr->frame, (unsigned)(s - v->frames[ptr->frame]->slots));
	*err = verify_own(v, c, s->r.id);
	return *err ? NULL : s;
}

/* The numbers that it will give, and how many. */
static void set_range(struct reg *r, const struct scalar *start, const struct scalar *end)
{
	int64_t rounds = (int64_t)end->s32max - start->s32min;

	scalar_unknown(&r->v);
	r->v.umax = rounds < 0 ? 0 : MIN((uint64_t)rounds, MAX_ROUNDS);
	r->v.s32min = start->s32min;
	r->v.s32max = rounds > 0 ? end->s32max - 1 : start->s32min;
}

int verify_iter_new(struct verifier *v, const struct call *c)
{
	struct reg *regs = verify_frame(v)->regs;
	struct reg it = { .type = REG_ITER, .id = ++v->next_id }, ptr = regs[1];
	struct slot *s;
	struct ref *ref;
	int err = check_place(v, c, &ptr);

	mark_matter(v, v->depth, 2);
	mark_matter(v, v->depth, 3);
	err = err ? err : verify_stack_write(v, &ptr, 0, 8, NULL);
	err = err ? err : verify_acquire(v, REF_ITER, it.id, &ref);
	if (err) {
		return err;
	}
	set_range(&it, &regs[2].v, &regs[3].v);
	s = slot_at(v, &ptr);
	memset(s->kind, BYTE_ITER, sizeof(s->kind));
	s->r = it;
	verify_clobber(v);
	reg_unknown(verify_write(v, 0));
	regs[0].v.smin = -4095;
	regs[0].v.smax = 0;
	scalar_sync(&regs[0].v);
	v->pc++;
	return 0;
}

int verify_iter_next(struct verifier *v, const struct call *c)
{
	int err, more;
	const struct slot *s = verify_iterator(v, c, &verify_frame(v)->regs[1], &err);

	if (!s) {
		return err;
	}
	more = !s->r.map && s->r.v.umax > 0;
	if (more) {
		err = verify_push(v, 0);
	}
	return err ? err : verify_iter_outcome(v, more);
}

int verify_iter_outcome(struct verifier *v, int outcome)
{
	struct slot *s = slot_at(v, &verify_frame(v)->regs[1]);
	struct reg number = { .type = REG_NUMBER, .id = s->r.id }, *r0;
	struct loop *l;
	uint32_t id;

	verify_forget(v, s->r.id); /* it points to what changes now */
	verify_clobber(v);
	r0 = verify_write(v, 0);
	v->pc++;
	if (!outcome) {
		s->r.map = 1;
		s->r.v.umax = 0;
		reg_const(r0, 0);
		return 0;
	}
	id = s->r.id;
	scalar_loaded(&number.v, 4, 0);
	number.v.s32min = s->r.v.s32min;
	number.v.s32max = s->r.v.s32max;
	scalar_sync(&number.v);
	*r0 = number;
	l = verify_ref(v, id)->loop;
	return l && v->at->head == l ? verify_begin_round(v, l) : 0;
}

int verify_iter_destroy(struct verifier *v, const struct call *c)
{
	int err;
	struct slot *s = verify_iterator(v, c, &verify_frame(v)->regs[1], &err);

	if (!s) {
		return err;
	}
	verify_forget(v, s->r.id);
	verify_release(v, s->r.id);
	memset(s->kind, BYTE_NONE, sizeof(s->kind));
	verify_clobber(v);
	reg_none(verify_write(v, 0));
	v->pc++;
	return 0;
}

int verify_no_iterators(struct verifier *v)
{
	const struct frame *f = verify_frame(v);

	for (uint64_t left = f->used; left; left &= left - 1) {
		const struct slot *s = &f->slots[__builtin_ctzll(left)];

		if (s->kind[0] == BYTE_ITER) {
			return verify_held(v, verify_ref(v, s->r.id), "when the function returns");
		}
	}
	return 0;
}

/* Registers of the running state: reads, writes, and lookup by id. */
#include "bpf/load/verify/verify_int.h"

#include <errno.h>
#include <string.h>

void ebpf_reg_none(struct ebpf_reg *r)
{
	r->type = REG_NONE;
	r->id = 0;
}

void ebpf_reg_unknown(struct ebpf_reg *r)
{
	memset(r, 0, sizeof(*r));
	r->type = REG_SCALAR;
	ebpf_scalar_unknown(&r->v);
}

void ebpf_reg_const(struct ebpf_reg *r, uint64_t value)
{
	memset(r, 0, sizeof(*r));
	r->type = REG_SCALAR;
	ebpf_scalar_const(&r->v, value);
}

int ebpf_reg_is_pointer(const struct ebpf_reg *r)
{
	return r->type > REG_SCALAR;
}

int ebpf_reg_is_nullable(const struct ebpf_reg *r)
{
	return r->type == REG_VALUE_OR_NULL || r->type == REG_MAP_OR_NULL ||
	       r->type == REG_RECORD_OR_NULL;
}

int ebpf_reg_is_place(const struct ebpf_reg *r)
{
	return r->type == REG_CTX || r->type == REG_STACK || r->type == REG_VALUE ||
	       r->type == REG_RECORD || r->type == REG_KEY;
}

int ebpf_reg_same_base(const struct ebpf_reg *a, const struct ebpf_reg *b)
{
	if (a->type != b->type || !ebpf_reg_is_place(a)) {
		return 0;
	}
	switch (a->type) {
	case REG_CTX:
		return 1;
	case REG_STACK:
	case REG_KEY:
		return a->frame == b->frame;
	default:
		return a->map == b->map && a->id == b->id;
	}
}

struct ebpf_reg *ebpf_verify_read(struct ebpf_verifier *v, unsigned reg, int *err)
{
	struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[reg];

	if (r->type == REG_NONE) {
		if (reg >= 1 && reg <= 5) {
			report_hint(v->r, "r1-r5 are gone after a call; keep what is needed in "
					  "r6-r9 or on the stack");
		} else {
			report_hint(v->r, "give the variable a value on every path");
		}
		*err = ebpf_verify_refuse(v, v->pc, "init",
					  "r%u is read but was never written on this path", reg);
		return NULL;
	}
	ebpf_mark_read(v, v->depth, reg);
	if (r->type == REG_GONE) {
		report_hint(v->r, "use it before it is submitted, discarded or destroyed");
		*err = ebpf_verify_refuse(v, v->pc, "ref",
					  "r%u pointed to something that was given back", reg);
		return NULL;
	}
	return r;
}

struct ebpf_reg *ebpf_verify_write(struct ebpf_verifier *v, unsigned reg)
{
	ebpf_mark_written(v, v->depth, reg);
	v->sources.of[v->depth][reg] = 0;
	return &ebpf_verify_frame(v)->regs[reg];
}

static int has_spill(const struct ebpf_stack_slot *s)
{
	return s->kind[0] == BYTE_SPILL || s->kind[4] == BYTE_SPILL;
}

enum { LESSON_WORK = 4 }; /* of narrowing a linked number, in units of v->work */

void ebpf_verify_each_id(struct ebpf_verifier *v, uint32_t id,
			 void (*fn)(struct ebpf_verifier *v, struct ebpf_reg *r, void *arg),
			 void *arg)
{
	for (unsigned f = 0; f <= v->depth; f++) {
		struct ebpf_call_state *fr = v->frames[f];

		v->work += 2 + (unsigned)__builtin_popcountll(fr->used) / 4;
		for (unsigned i = 0; i < 10; i++) {
			if (fr->regs[i].type != REG_NONE && fr->regs[i].id == id) {
				v->work += LESSON_WORK;
				fn(v, &fr->regs[i], arg);
			}
		}
		for (uint64_t left = fr->used; left; left &= left - 1) {
			struct ebpf_stack_slot *s = &fr->slots[__builtin_ctzll(left)];

			if (has_spill(s) && s->r.id == id) {
				v->work += LESSON_WORK;
				fn(v, &s->r, arg);
			}
		}
	}
}

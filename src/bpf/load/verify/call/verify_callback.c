/* Functions that helpers call back: the calls of bpf_loop and bpf_for_each_map_elem are walked as
 * the rounds of a loop. During the call, r1-r3 of the caller hold the arguments of each round and
 * r5 the number of rounds; the program cannot read them. */
#include <errno.h>
#include <string.h>

#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"

#define MAX_ROUNDS (1u << 23) /* bpf_loop refuses more */
#define ROUND_COST 4u	      /* cost of the helper per call */

int ebpf_verify_is_callback(const struct ebpf_verifier *v)
{
	return v->depth > 0 &&
	       v->prog->insns[ebpf_verify_frame(v)->ret - 1].src == EBPF_CALL_HELPER;
}

int ebpf_verify_calls(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;
	struct ebpf_reg rounds = { .type = REG_ROUNDS, .id = ++v->next_id };
	int each = c->helper->id == HELPER_bpf_for_each_map_elem, err;
	uint64_t most = each ? c->map->max_entries : MIN(regs[1].v.u32max, MAX_ROUNDS);
	struct ebpf_ref *ref;

	for (unsigned i = 1; i <= 4; i++) {
		ebpf_mark_matter(v, v->depth, i);
	}
	err = ebpf_verify_acquire(v, REF_CALL, rounds.id, &ref);
	if (err) {
		return err;
	}
	ebpf_scalar_unknown(&rounds.v);
	rounds.v.umax = most;
	*ebpf_verify_write(v, 5) = rounds;
	ebpf_reg_none(ebpf_verify_write(v, 4));
	if (!each) {
		ebpf_reg_unknown(ebpf_verify_write(v, 1));
		ebpf_scalar_urange(&regs[1].v, 0, most ? most - 1 : 0);
	}
	if (most) {
		err = ebpf_verify_push(v, 0);
	}
	return err ? err : ebpf_verify_calls_outcome(v, most > 0);
}

static void end_calls(struct ebpf_verifier *v)
{
	struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;

	ebpf_verify_release(v, regs[5].id);
	ebpf_verify_clobber(v);
	ebpf_reg_unknown(ebpf_verify_write(v, 0));
	v->pc++;
}

/* Sets the arguments of a callback: a key, and a value of which only the map is known. */
static void give_element(struct ebpf_verifier *v, const struct ebpf_reg *map, struct ebpf_reg *regs)
{
	memset(&regs[2], 0, 2 * sizeof(regs[0]));
	regs[2].type = REG_KEY;
	regs[2].frame = (uint8_t)v->depth;
	regs[3].type = REG_VALUE;
	regs[3].id = ++v->next_id;
	regs[2].map = regs[3].map = map->map;
	ebpf_scalar_const(&regs[2].v, 0);
	ebpf_scalar_const(&regs[3].v, 0);
}

/* Applies one outcome of the helper call. 0: the helper returns; 1: it calls the function (again).
 */
int ebpf_verify_calls_outcome(struct ebpf_verifier *v, int outcome)
{
	struct ebpf_call_state *caller = ebpf_verify_frame(v);
	uint32_t ret = v->pc + 1;
	struct ebpf_reg *regs;
	int err;

	for (unsigned i = 1; i <= 5; i++) {
		if (caller->regs[i].type != REG_NONE) {
			ebpf_mark_read(v, v->depth, i);
			ebpf_mark_matter(v, v->depth, i);
		}
	}
	if (!outcome) {
		end_calls(v);
		return 0;
	}
	v->entering = caller->regs[5].id;
	ebpf_verify_charge(v, ROUND_COST);
	err = ebpf_verify_enter(v);
	if (err) {
		return err;
	}
	regs = ebpf_verify_frame(v)->regs;
	regs[1] = caller->regs[1];
	if (caller->regs[1].type == REG_MAP) {
		give_element(v, &caller->regs[1], regs);
		regs[4] = caller->regs[3];
	} else {
		regs[2] = caller->regs[3];
	}
	ebpf_verify_frame(v)->ret = ret;
	v->pc = v->prog->subprog[caller->regs[2].map];
	return 0;
}

int ebpf_verify_callback_exit(struct ebpf_verifier *v)
{
	const struct ebpf_reg *r0 = &ebpf_verify_frame(v)->regs[0];
	const struct ebpf_reg *rounds = &v->frames[v->depth - 1]->regs[5];
	const struct ebpf_ref *last = &v->refs[v->n_refs - 1];
	int err = 0, more;

	if (r0->type != REG_SCALAR) {
		report_hint(v->r, "return 0 to go on, 1 to stop");
		return ebpf_verify_refuse(
			v, v->pc, "callback",
			"a function that is called back must return a number, but r0 "
			"is %s",
			ebpf_verify_reg_text(v, r0));
	}
	ebpf_mark_read(v, v->depth, 0);
	if (v->n_refs == 0 || last->kind != REF_CALL || last->id != rounds->id) {
		return ebpf_verify_held(v, last, "when the function that is called back returns");
	}
	v->pc = ebpf_verify_frame(v)->ret - 1;
	v->depth--;
	more = rounds->v.umax > 1;
	ebpf_mark_read(v, v->depth, 5);
	if (more) {
		err = ebpf_verify_push(v, 0);
	}
	err = err ? err : ebpf_verify_calls_outcome(v, more);
	return err ? err : 1;
}

/* Tail calls end one program and start another. Each possible target is walked by itself with only
 * the context; the cost of a chain is the sum of the costs of its programs. */
#include <errno.h>
#include <string.h>

#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_int.h"

/* Returns the functions of the program array that the call may start, as a bit mask. */
static uint64_t targets(const struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			const struct ebpf_reg *index)
{
	const struct ebpf_prog *p = v->prog;
	uint64_t set = 0;

	for (uint32_t i = 0; i < p->n_tails; i++) {
		if (p->tails[i].map == c->map_index && index->v.u32min <= p->tails[i].index &&
		    p->tails[i].index <= index->v.u32max) {
			set |= 1ull << p->tails[i].subprog;
		}
	}
	return set;
}

/* Continues the path as if the call had failed. The targets do not depend on the caller, because
 * they get only the context; each is walked once. */
int ebpf_verify_tail_call(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;
	int err;

	if (v->depth > 0) {
		report_hint(v->r, "call it in the program itself");
		return ebpf_verify_refuse(
			v, v->pc, "tail",
			"%s: not from a function that was called, which would have "
			"to return",
			c->what);
	}
	if (c->map_id) {
		return ebpf_verify_refuse(v, v->pc, "tail",
					  "%s: which program array it is must be known", c->what);
	}
	err = ebpf_verify_no_refs(v, "when another program goes on");
	if (err) {
		return err;
	}
	ebpf_mark_matter(v, 0, 3);
	v->tails[v->entry] |= targets(v, c, &regs[3]);
	v->tail_at[v->entry] = v->pc;
	ebpf_verify_clobber(v);
	ebpf_reg_unknown(ebpf_verify_write(v, 0));
	v->pc++;
	return 0;
}

uint64_t ebpf_verify_tail_targets(const struct ebpf_verifier *v)
{
	uint64_t set = 1, before = 0;

	while (set != before) {
		before = set;
		for (uint64_t left = before; left; left &= left - 1) {
			set |= v->tails[__builtin_ctzll(left)];
		}
	}
	return set;
}

/* Computes the most expensive chain from each function; each step extends the chains by one
 * program. */
int ebpf_verify_chain_cost(struct ebpf_verifier *v, const uint64_t own[64], uint64_t *ret)
{
	uint64_t cost[64], longer[64];

	memcpy(cost, own, sizeof(cost));
	for (unsigned i = 0; i < EBPF_MAX_TAIL_CALLS; i++) {
		for (uint32_t k = 0; k < 64; k++) {
			uint64_t dearest = 0;

			for (uint64_t left = v->tails[k]; left; left &= left - 1) {
				dearest = MAX(dearest, cost[__builtin_ctzll(left)]);
			}
			longer[k] = own[k] + dearest;
		}
		memcpy(cost, longer, sizeof(cost));
	}
	*ret = cost[0];
	if (cost[0] <= v->budget) {
		return 0;
	}
	v->entry = 0;
	report_hint(v->r, "let fewer programs follow each other, or make them cheaper");
	return ebpf_verify_refuse(
		v, v->tail_at[0], "budget",
		"the dearest chain of tail calls costs up to %llu; %s may cost %u",
		(unsigned long long)cost[0], v->hook->name, v->budget);
}

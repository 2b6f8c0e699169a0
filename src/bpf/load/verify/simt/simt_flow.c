/* The levels of all values: the least solution of the equations of all instructions over the graph.
 * Levels only rise, so the order of computation does not matter.
 *
 * Registers and the running function's own frame are followed from instruction to instruction.
 * Frames of callers are summarized: for a called function they have the levels that they have at
 * any call (struct ebpf_simt_func), and what it writes there raises them behind every call of it
 * (struct ebpf_simt_foreign). A function has at most one frame at a time, because none calls
 * itself. */
#include <errno.h>
#include <string.h>

#include "bpf/load/verify/simt/simt_int.h"

#define WORK_EACH 400u /* computations of each instruction, on average */

/* ---- what changes is computed again ---- */

void ebpf_simt_dirty(struct ebpf_simt *s, uint32_t block)
{
	s->blocks[block].dirty = true;
	s->dirty = true;
}

/* If the summary of a function changes all functions are computed again, since it is not known
 * which depend on it. */
void ebpf_simt_all_dirty(struct ebpf_simt *s)
{
	for (uint32_t i = 0; i < s->n_blocks; i++) {
		ebpf_simt_dirty(s, i);
	}
}

void ebpf_simt_result(struct ebpf_simt *s, unsigned func, uint8_t level)
{
	if (s->funcs[func].result < level) {
		s->funcs[func].result = level;
		ebpf_simt_all_dirty(s);
	}
}

/* ---- the solution ---- */

static uint32_t next_insn(const struct ebpf_simt *s, uint32_t pc)
{
	return pc + (s->v->prog->insns[pc].code == EBPF_LD_IMM64 ? 2 : 1);
}

uint8_t ebpf_simt_condition(const struct ebpf_simt *s, uint32_t pc,
			    const struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];
	uint8_t a = ebpf_simt_reg(st, in->dst);
	uint8_t b = EBPF_SRC(in->code) == EBPF_X ? ebpf_simt_reg(st, in->src) : LEVEL_BLOCK;

	return MAX(a, b);
}

static void compute(struct ebpf_simt *s, uint32_t k)
{
	struct ebpf_simt_block *b = &s->blocks[k];
	struct ebpf_simt_state st = b->in;
	uint32_t last = b->first;
	uint8_t level;

	b->dirty = false;
	for (uint32_t pc = b->first; pc < b->end; pc = next_insn(s, pc)) {
		ebpf_simt_step(s, pc, &st);
		last = pc;
	}
	for (uint32_t i = 0; i < b->n_succ; i++) {
		if (ebpf_simt_join(&s->blocks[b->succ[i]].in, &st)) {
			ebpf_simt_dirty(s, b->succ[i]);
		}
	}
	level = b->n_succ == 2 ? ebpf_simt_condition(s, last, &st) : LEVEL_BLOCK;
	if (level > b->level) {
		ebpf_simt_raise(s, k, level);
	}
}

static void reset(struct ebpf_simt *s, uint32_t last_source)
{
	s->last_source = last_source;
	s->work = 0;
	memset(s->funcs, 0, s->n_funcs * sizeof(*s->funcs));
	for (uint32_t i = 0; i < s->n_funcs * s->n_funcs; i++) {
		memset(&s->foreign[i].levels, 0, sizeof(s->foreign[i].levels));
	}
	for (uint32_t i = 0; i < s->n_blocks; i++) {
		struct ebpf_simt_block *b = &s->blocks[i];

		b->level = b->control = LEVEL_BLOCK;
		memset(&b->in, 0, sizeof(b->in));
	}
	ebpf_simt_all_dirty(s);
}

int ebpf_simt_solve(struct ebpf_simt *s, uint32_t last_source)
{
	reset(s, last_source);
	while (s->dirty) {
		s->dirty = false;
		for (uint32_t i = 0; i < s->n_blocks; i++) {
			if (s->blocks[s->order[i]].dirty) {
				compute(s, s->order[i]);
			}
		}
		if (s->work > (uint64_t)WORK_EACH * s->n + 100000) {
			return -E2BIG;
		}
	}
	return 0;
}

uint8_t ebpf_simt_local_control(const struct ebpf_simt *s, uint32_t pc)
{
	return s->blocks[s->block_of[pc]].control;
}

uint8_t ebpf_simt_control(const struct ebpf_simt *s, uint32_t pc)
{
	return MAX(ebpf_simt_local_control(s, pc), s->funcs[ebpf_simt_func(s, pc)].control);
}

void ebpf_simt_at(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	const struct ebpf_simt_block *b = &s->blocks[s->block_of[pc]];

	*st = b->in;
	for (uint32_t at = b->first; at < pc; at = next_insn(s, at)) {
		ebpf_simt_step(s, at, st);
	}
}

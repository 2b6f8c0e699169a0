/* Basic blocks of the instructions that were walked, their order, and what each may write. Edges
 * that no walked state takes do not exist. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "bpf/load/verify/simt/simt_int.h"
#include "bpf/run/decode.h"

/* ---- blocks ---- */

static int is_jump(const struct ebpf_insn *in)
{
	unsigned class = EBPF_CLASS(in->code), op = EBPF_OP(in->code);

	return (class == EBPF_JMP || class == EBPF_JMP32) && op != EBPF_CALL && op != EBPF_EXIT;
}

static int is_exit(const struct ebpf_insn *in)
{
	return in->code == (EBPF_JMP | EBPF_EXIT);
}

static int is_call(const struct ebpf_insn *in)
{
	return in->code == (EBPF_JMP | EBPF_CALL);
}

static uint32_t next_of(const struct ebpf_insn *in, uint32_t pc)
{
	return pc + (in->code == EBPF_LD_IMM64 ? 2 : 1);
}

/* Sets ret[] to the instructions that may follow the last one of a block. */
static uint32_t successors(const struct ebpf_simt *s, uint32_t pc, uint32_t ret[2])
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];
	uint32_t n = 0, to;

	if (is_exit(in)) {
		return 0;
	}
	if (!is_jump(in)) {
		ret[0] = next_of(in, pc);
		return 1;
	}
	to = ebpf_verify_target(in, pc);
	if (EBPF_OP(in->code) == EBPF_JA || to == pc + 1) {
		ret[0] = to;
		return 1;
	}
	if (s->notes[pc] & SIMT_TAKEN) {
		ret[n++] = to;
	}
	if (s->notes[pc] & SIMT_NOT_TAKEN) {
		ret[n++] = pc + 1;
	}
	return n;
}

/* Marks the first instructions of blocks, except for the first of all. A function begins behind a
 * jump or exit, where the one before it ends. */
static void find_leaders(const struct ebpf_simt *s, uint8_t *leader)
{
	const struct ebpf_prog *p = s->v->prog;

	for (uint32_t pc = 0; pc < s->n; pc = next_of(&p->insns[pc], pc)) {
		const struct ebpf_insn *in = &p->insns[pc];

		if (is_jump(in)) {
			leader[ebpf_verify_target(in, pc)] = 1;
		}
		if ((is_jump(in) || is_exit(in)) && pc + 1 < s->n) {
			leader[pc + 1] = 1;
		}
	}
}

static void make_blocks(struct ebpf_simt *s, const uint8_t *leader)
{
	const struct ebpf_prog *p = s->v->prog;
	struct ebpf_simt_block *b = NULL;

	for (uint32_t pc = 0; pc < s->n; pc = next_of(&p->insns[pc], pc)) {
		if (leader[pc]) {
			b = NULL;
		}
		if (!b && (s->notes[pc] & SIMT_SEEN)) {
			b = &s->blocks[s->n_blocks++];
			b->first = pc;
			b->func = s->v->subprog_of[pc];
		}
		if (b) {
			s->block_of[pc] = (uint32_t)(b - s->blocks);
			b->end = next_of(&p->insns[pc], pc);
		}
	}
}

/* Returns the last instruction of a block. */
static uint32_t last_of(const struct ebpf_simt *s, const struct ebpf_simt_block *b)
{
	uint32_t pc = b->first, next;

	while ((next = next_of(&s->v->prog->insns[pc], pc)) < b->end) {
		pc = next;
	}
	return pc;
}

static void link_blocks(struct ebpf_simt *s)
{
	for (uint32_t i = 0; i < s->n_blocks; i++) {
		struct ebpf_simt_block *b = &s->blocks[i];
		uint32_t to[2], n = successors(s, last_of(s, b), to);

		for (uint32_t k = 0; k < n; k++) {
			if (s->notes[to[k]] & SIMT_SEEN) {
				b->succ[b->n_succ++] = s->block_of[to[k]];
			}
		}
	}
}

/* ---- order ---- */

/* Visits the blocks that can be reached from k, and puts each before those that it leads to, from
 * *at downwards. */
static void visit(struct ebpf_simt *s, uint32_t k, uint32_t *stack, uint32_t *at)
{
	uint32_t n = 0;

	stack[n++] = k;
	while (n > 0) {
		const struct ebpf_simt_block *b = &s->blocks[stack[n - 1]];
		uint8_t *done = &s->mark[stack[n - 1]]; /* 1 + successors that were looked at */

		if (*done == 0) {
			*done = 1;
		}
		if (*done > b->n_succ) {
			s->order[--*at] = stack[--n];
		} else {
			uint32_t to = b->succ[*done - 1];

			++*done;
			if (!s->mark[to]) {
				stack[n++] = to;
			}
		}
	}
}

/* Orders the blocks so that each is before its successors, except in loops. Each was walked, so it
 * can be reached from the first block of its function. */
static int order_blocks(struct ebpf_simt *s)
{
	uint32_t *stack = calloc(s->n_blocks + 1u, sizeof(*stack)), at = s->n_blocks;

	if (!stack) {
		return -ENOMEM;
	}
	for (uint32_t k = s->n_funcs; k-- > 0;) {
		uint32_t pc = s->v->prog->subprog[k];

		if (s->notes[pc] & SIMT_SEEN) {
			visit(s, s->block_of[pc], stack, &at);
		}
	}
	free(stack);
	assert(at == 0);
	for (uint32_t k = 0; k < s->n_blocks; k++) {
		s->blocks[s->order[k]].rank = k;
	}
	return 0;
}

/* ---- what instructions write ---- */

static void add_bytes(struct ebpf_simt_set *set, const struct ebpf_simt_place *p, unsigned bytes)
{
	int low = p->low + EBPF_STACK_BYTES;
	int high = MIN(p->high + (int)bytes, 0) + EBPF_STACK_BYTES;

	for (int i = low; i < high; i++) {
		set->bytes[i / 64] |= 1ull << i % 64;
	}
}

/* Adds the bytes that an instruction of function k writes, by the owner of the frame. */
static void add_stack(struct ebpf_simt *s, unsigned k, struct ebpf_simt_set *own,
		      const struct ebpf_simt_place *p, unsigned bytes)
{
	uint64_t funcs = p->kinds & SIMT_STACK ? p->funcs : 0;

	for (; funcs; funcs &= funcs - 1) {
		unsigned f = (unsigned)__builtin_ctzll(funcs);

		add_bytes(f == k ? own : &s->foreign[k * s->n_funcs + f].wrote, p, bytes);
	}
}

static void add_call(struct ebpf_simt *s, unsigned k, struct ebpf_simt_set *own, uint32_t pc)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];
	uint64_t callees = ebpf_simt_callees(s, pc);

	own->regs |= 0x3f; /* r0-r5 */
	for (; callees; callees &= callees - 1) {
		unsigned f = (unsigned)__builtin_ctzll(callees);

		ebpf_simt_unite(own, &s->foreign[f * s->n_funcs + k].wrote);
	}
	for (unsigned i = 0; in->src == EBPF_CALL_HELPER && i < 5; i++) {
		unsigned bytes = ebpf_simt_out_bytes(s, pc, i);

		if (bytes) {
			add_stack(s, k, own, ebpf_simt_place(s, pc, i), bytes);
		}
	}
}

static void add_writes(struct ebpf_simt *s, unsigned k, struct ebpf_simt_set *own, uint32_t pc)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];
	unsigned class = EBPF_CLASS(in->code);

	if (is_call(in)) {
		add_call(s, k, own, pc);
	} else if (class == EBPF_ST || class == EBPF_STX) {
		add_stack(s, k, own, ebpf_simt_place(s, pc, 0), ebpf_access_bytes(in));
		if (EBPF_MODE(in->code) == EBPF_ATOMIC && (in->imm & EBPF_FETCH)) {
			own->regs |= (uint16_t)(1u << (in->imm == EBPF_CMPXCHG ? 0 : in->src));
		}
	} else if (ebpf_insn_writes_dst(in)) {
		own->regs |= (uint16_t)(1u << in->dst);
	}
}

/* Adds to what each function writes into frames of others what those that it calls write. */
static void close_foreign(struct ebpf_simt *s, const uint64_t *calls)
{
	for (uint32_t round = 0; round < s->n_funcs; round++) {
		for (uint32_t k = 0; k < s->n_funcs; k++) {
			for (uint64_t left = calls[k]; left; left &= left - 1) {
				uint32_t g = (uint32_t)__builtin_ctzll(left);

				for (uint32_t f = 0; f < s->n_funcs; f++) {
					ebpf_simt_unite(&s->foreign[k * s->n_funcs + f].wrote,
							&s->foreign[g * s->n_funcs + f].wrote);
				}
			}
		}
	}
}

/* Finds what each block writes, calls included. The first round finds what functions write
 * themselves. */
static void find_writes(struct ebpf_simt *s)
{
	uint64_t calls[64] = { 0 };

	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < s->n_blocks; i++) {
			struct ebpf_simt_block *b = &s->blocks[i];

			for (uint32_t pc = b->first; pc < b->end;
			     pc = next_of(&s->v->prog->insns[pc], pc)) {
				add_writes(s, b->func, &b->wrote, pc);
				calls[b->func] |= is_call(&s->v->prog->insns[pc])
							  ? ebpf_simt_callees(s, pc)
							  : 0;
			}
		}
		close_foreign(s, calls);
	}
}

int ebpf_simt_graph(struct ebpf_simt *s)
{
	uint8_t *leader = calloc(s->n, 1);
	int err = leader ? 0 : -ENOMEM;

	s->blocks = calloc(s->n, sizeof(*s->blocks));
	s->block_of = calloc(s->n, sizeof(*s->block_of));
	s->order = calloc(s->n, sizeof(*s->order));
	s->label = calloc(s->n, sizeof(*s->label));
	s->inside = calloc(s->n, sizeof(*s->inside));
	s->mark = calloc(s->n, 1);
	s->funcs = calloc(s->n_funcs, sizeof(*s->funcs));
	s->foreign = calloc((size_t)s->n_funcs * s->n_funcs, sizeof(*s->foreign));
	if (err || !s->blocks || !s->block_of || !s->order || !s->label || !s->inside || !s->mark ||
	    !s->funcs || !s->foreign) {
		err = -ENOMEM;
	}
	if (err == 0) {
		find_leaders(s, leader);
		make_blocks(s, leader);
		link_blocks(s);
		find_writes(s);
		err = order_blocks(s);
	}
	free(leader);
	return err ? err : ebpf_simt_joins(s);
}

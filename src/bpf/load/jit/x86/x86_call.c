/* Calls of local functions, calls of helpers through the table of the environment, and inlined
 * helpers. Tail calls are comparisons and direct jumps: the table is part of the code, which is
 * read-only. */
#include <errno.h>

#include "bpf/load/jit/x86/x86_int.h"

#define JIT_MAX_ROUNDS (1 << 23) /* limit of an iterator, as in the helper */

/* Emits a lookup with a known index. If the region of the map may be absent, its address is NULL
 * and the result is NULL. */
static void lookup_constant(struct x86_jit *j, const struct ebpf_map *map, uint32_t index)
{
	struct x86_code *c = &j->code;
	uint64_t at = (uint64_t)index * map->stride; /* a region is no larger than 2^28 bytes */
	size_t absent = 0;

	if (index >= map->max_entries) {
		x86_mov_i(c, RAX, 0);
		return;
	}
	x86_load64(c, RAX, x86_env_reg(j), x86_map_data(map->index));
	if (!at) {
		return;
	}
	if (map->region != EBPF_REGION_GLOBAL) {
		x86_rr(c, 1, 0x85, RAX, RAX);
		absent = x86_skip(c, X86_E);
	}
	x86_alu_ri(c, 1, X86_ADD, RAX, (int32_t)at);
	if (map->region != EBPF_REGION_GLOBAL) {
		x86_land(c, absent);
	}
}

/* Emits rax = key < max_entries ? data + key * stride : NULL. Sizes are constants; data is that of
 * this process. */
static void lookup(struct x86_jit *j, const struct ebpf_map *map, const struct ebpf_jit_note *note)
{
	struct x86_code *c = &j->code;
	int may_be_absent = map->region != EBPF_REGION_GLOBAL;
	size_t out_of_range, absent = 0, done;

	if (note->key == KEY_CONSTANT) {
		lookup_constant(j, map, note->key_value);
		return;
	}
	if (note->key == KEY_IN_REGISTER) {
		x86_mov(c, 0, RAX, x86_reg_of[note->key_reg]);
	} else {
		x86_rm(c, 0, 0, 0x8b, RAX, RSI, 0, 0);
	}
	x86_alu_ri(c, 0, X86_CMP, RAX, (int32_t)map->max_entries);
	out_of_range = x86_skip(c, X86_AE);
	if (may_be_absent) {
		x86_load64(c, JIT_SCRATCH, x86_env_reg(j), x86_map_data(map->index));
		x86_rr(c, 1, 0x85, JIT_SCRATCH, JIT_SCRATCH);
		absent = x86_skip(c, X86_E);
	}
	if (map->stride & (map->stride - 1)) {
		x86_rr(c, 1, 0x69, RAX, RAX);
		x86_word32(c, map->stride);
	} else {
		x86_shift_i(c, 1, X86_SHL, RAX, (unsigned)__builtin_ctz(map->stride));
	}
	if (may_be_absent) {
		x86_rr(c, 1, 0x01, JIT_SCRATCH, RAX);
	} else {
		x86_rm(c, 0, 1, 0x03, RAX, x86_env_reg(j), x86_map_data(map->index), 0);
	}
	done = x86_skip(c, -1);
	x86_land(c, out_of_range);
	if (may_be_absent) {
		x86_land(c, absent);
	}
	x86_mov_i(c, RAX, 0);
	x86_land(c, done);
}

/* ---- small helpers ---- */

/* rax = a negative number */
static void set_error(struct x86_code *c, int error)
{
	x86_rr(c, 1, 0xc7, 0, RAX);
	x86_word32(c, (uint32_t)error);
}

/* *(u64 *)rdi = 0: an iterator that has ended */
static void end_iterator(struct x86_code *c)
{
	x86_rm(c, 0, 1, 0xc7, 0, RDI, 0, 0);
	x86_word32(c, 0);
}

/* Emits bpf_iter_num_new; the iterator is the two words at rdi. */
static void iter_new(struct x86_code *c)
{
	size_t backwards, too_many;

	end_iterator(c);
	set_error(c, -EINVAL);
	x86_rr(c, 0, 0x39, RDX, RSI);
	backwards = x86_skip(c, X86_G);
	set_error(c, -E2BIG);
	x86_rr(c, 1, 0x63, JIT_SCRATCH, RDX);
	x86_rr(c, 1, 0x63, JIT_SCRATCH2, RSI);
	x86_rr(c, 1, 0x29, JIT_SCRATCH2, JIT_SCRATCH);
	x86_alu_ri(c, 1, X86_CMP, JIT_SCRATCH, JIT_MAX_ROUNDS);
	too_many = x86_skip(c, X86_G);
	x86_alu_ri(c, 0, X86_SUB, JIT_SCRATCH2, 1);
	x86_rm(c, 0, 0, 0x89, JIT_SCRATCH2, RDI, 0, 0);
	x86_rm(c, 0, 0, 0x89, RDX, RDI, 4, 0);
	x86_mov_i(c, RAX, 0);
	x86_land(c, backwards);
	x86_land(c, too_many);
}

static void iter_next(struct x86_code *c)
{
	size_t end, done;

	x86_rm(c, 0, 0, 0x8b, RAX, RDI, 0, 0);
	x86_alu_ri(c, 0, X86_ADD, RAX, 1);
	x86_rm(c, 0, 0, 0x3b, RAX, RDI, 4, 0);
	end = x86_skip(c, X86_GE);
	x86_rm(c, 0, 0, 0x89, RAX, RDI, 0, 0);
	x86_mov(c, 1, RAX, RDI);
	done = x86_skip(c, -1);
	x86_land(c, end);
	end_iterator(c);
	x86_mov_i(c, RAX, 0);
	x86_land(c, done);
}

/* Emits the addition of rsi to counter rdi. An invalid counter index counts as a helper error. */
static void add_note(struct x86_jit *j)
{
	struct x86_code *c = &j->code;
	unsigned env = x86_env_reg(j);
	struct x86_mem counter = { (uint8_t)env, RDI, 3, offsetof(struct ebpf_env, notes) };
	size_t none, done;

	x86_mov_i(c, RAX, 0);
	x86_alu_ri(c, 1, X86_CMP, RDI, EBPF_NOTES);
	none = x86_skip(c, X86_AE);
	x86_rx(c, 0xf0, 1, 0x01, RSI, &counter, 0);
	done = x86_skip(c, -1);
	x86_land(c, none);
	set_error(c, -EINVAL);
	x86_rm(c, 0xf0, 1, 0x83, X86_ADD, env, offsetof(struct ebpf_env, helper_errors), 0);
	x86_byte(c, 1);
	x86_land(c, done);
}

/* Emits a loop that calls f with 0, 1 ... at most edi times, until f returns a value other than 0;
 * rdx is the second argument. On the stack from the top: padding, the round, edi, rdx. */
static void loop(struct x86_jit *j, const struct ebpf_jit_func *f)
{
	struct x86_code *c = &j->code;
	size_t flags, too_many, ended, top, done;

	set_error(c, -EINVAL);
	x86_rr(c, 1, 0x85, RCX, RCX);
	flags = x86_skip(c, X86_NE);
	set_error(c, -E2BIG);
	x86_alu_ri(c, 0, X86_CMP, RDI, JIT_MAX_ROUNDS);
	too_many = x86_skip(c, X86_A);
	x86_mov_i(c, RAX, 0);
	x86_push(c, RDX);
	x86_push(c, RDI);
	x86_push(c, RAX);
	x86_push(c, RAX);
	top = c->pos;
	x86_rm(c, 0, 0, 0x8b, RDI, RSP, 8, 0);
	x86_rm(c, 0, 0, 0x8b, RAX, RSP, 16, 0);
	x86_rr(c, 0, 0x39, RAX, RDI);
	ended = x86_skip(c, X86_AE);
	x86_load64(c, RSI, RSP, 24);
	if (x86_sets_env(j, f) && x86_env_reg(j) != R9) {
		x86_mov(c, 1, R9, x86_env_reg(j));
	}
	x86_byte(c, 0xe8);
	x86_word32(c, f->entry - (uint32_t)(c->pos + 4));
	x86_rm(c, 0, 0, 0x83, X86_ADD, RSP, 8, 0);
	x86_byte(c, 1);
	x86_rr(c, 1, 0x85, RAX, RAX);
	x86_byte(c, 0x70 | X86_E);
	x86_byte(c, (uint8_t)(top - (c->pos + 1)));
	x86_rm(c, 0, 0, 0x8b, RAX, RSP, 8, 0);
	x86_land(c, ended);
	x86_alu_ri(c, 1, X86_ADD, RSP, 32);
	done = x86_skip(c, -1);
	x86_land(c, flags);
	x86_land(c, too_many);
	x86_rm(c, 0xf0, 1, 0x83, X86_ADD, x86_env_reg(j), offsetof(struct ebpf_env, helper_errors),
	       0);
	x86_byte(c, 1);
	x86_land(c, done);
}

static void in_line(struct x86_jit *j, int slot, const struct ebpf_jit_note *note)
{
	switch (slot) {
	case EBPF_SLOT_bpf_loop:
		loop(j, &j->plan->funcs[j->plan->notes[note->callee].func]);
		break;
	case EBPF_SLOT_bpf_iter_num_new:
		iter_new(&j->code);
		break;
	case EBPF_SLOT_bpf_iter_num_next:
		iter_next(&j->code);
		break;
	case EBPF_SLOT_bpf_iter_num_destroy:
		end_iterator(&j->code);
		x86_mov_i(&j->code, RAX, 0);
		break;
	default:
		add_note(j);
	}
}

/* ---- tail calls ---- */

static uint32_t tail_target(const struct x86_jit *j, uint32_t k)
{
	return j->plan->funcs[j->plan->notes[j->plan->tails[k].insn].func].tail_entry;
}

/* Emits a jump to the target of entry k if edx is its index. The epilogue runs first, so the stack
 * is as the caller of the function left it. */
static void tail_entry(struct x86_jit *j, const struct ebpf_jit_func *f, uint32_t k)
{
	struct x86_code *c = &j->code;
	size_t other;

	x86_alu_ri(c, 0, X86_CMP, RDX, (int32_t)j->plan->tails[k].index);
	other = x86_skip(c, X86_NE);
	x86_rm(c, 0, 0, 0x8b, RAX, RSP, x86_tail_count(j, f), 0);
	x86_alu_ri(c, 0, X86_ADD, RAX, 1);
	x86_mov(c, 1, RSI, x86_env_reg(j));
	x86_epilogue(j, f);
	x86_byte(c, 0xe9);
	x86_word32(c, tail_target(j, k) - (uint32_t)(c->pos + 4));
	x86_land(c, other);
}

/* Emits a binary search in the entries from..to-1 of one map. An index without an entry matches no
 * comparison and falls through. */
static void tail_search(struct x86_jit *j, const struct ebpf_jit_func *f, uint32_t from,
			uint32_t to)
{
	uint32_t mid = from + (to - from) / 2;
	size_t upper;

	if (to - from <= 3) {
		for (; from < to; from++) {
			tail_entry(j, f, from);
		}
		return;
	}
	x86_alu_ri(&j->code, 0, X86_CMP, RDX, (int32_t)j->plan->tails[mid].index);
	upper = x86_skip_far(&j->code, X86_AE);
	tail_search(j, f, from, mid);
	x86_land_far(&j->code, upper);
	tail_search(j, f, mid, to);
}

/* Emits a tail call: r1 = ctx, r2 = the program array, r3 = the index. A failed one continues with
 * -ENOENT or -ELOOP. */
static void tail_call(struct x86_jit *j, const struct ebpf_jit_note *note)
{
	struct x86_code *c = &j->code;
	const struct ebpf_jit_func *f = &j->plan->funcs[note->func];
	size_t too_many;

	x86_rm(c, 0, 0, 0x83, X86_CMP, RSP, x86_tail_count(j, f), 0);
	x86_byte(c, EBPF_MAX_TAIL_CALLS);
	set_error(c, -ELOOP);
	too_many = x86_skip_far(c, X86_AE);
	for (uint32_t from = 0, to; from < j->plan->n_tails; from = to) {
		uint32_t map = j->plan->tails[from].map;
		size_t other = 0;

		for (to = from; to < j->plan->n_tails && j->plan->tails[to].map == map; to++) {
		}
		if (note->map != JIT_NO_MAP && note->map != map) {
			continue;
		}
		if (note->map == JIT_NO_MAP) {
			x86_lea(c, JIT_SCRATCH, x86_env_reg(j), x86_map_handle(map));
			x86_rr(c, 1, 0x39, JIT_SCRATCH, RSI);
			other = x86_skip_far(c, X86_NE);
		}
		tail_search(j, f, from, to);
		if (note->map == JIT_NO_MAP) {
			x86_land_far(c, other);
		}
	}
	set_error(c, -ENOENT);
	x86_land_far(c, too_many);
}

/* ---- calls ---- */

static void local_call(struct x86_jit *j, const struct ebpf_insn *i)
{
	const struct ebpf_jit_func *f = x86_func_at(j, i);
	struct x86_code *c = &j->code;

	if (x86_sets_env(j, f) && x86_env_reg(j) != R9) {
		x86_mov(c, 1, R9, x86_env_reg(j));
	}
	x86_byte(c, 0xe8);
	x86_word32(c, f->entry - (uint32_t)(c->pos + 4));
}

void x86_call(struct x86_jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note)
{
	struct x86_code *c = &j->code;
	int slot = ebpf_helper_slot(i->imm);

	if (i->src == EBPF_CALL_LOCAL) {
		local_call(j, i);
	} else if (slot == EBPF_SLOT_bpf_tail_call) {
		tail_call(j, note);
	} else if (note->flags & JIT_INLINE) {
		in_line(j, slot, note);
	} else if (note->map != JIT_NO_MAP) {
		lookup(j, &j->plan->maps[note->map], note);
	} else {
		x86_mov(c, 1, R9, R12);
		x86_rm(c, 0, 0, 0xff, 2, R12,
		       (int32_t)(offsetof(struct ebpf_env, helpers) +
				 (unsigned)slot * sizeof(ebpf_helper_fn)),
		       0);
	}
}

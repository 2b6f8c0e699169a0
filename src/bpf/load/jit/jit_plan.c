/* Analyses a program before code generation: functions and their registers, jump targets, and three
 * optimizations within basic blocks. Lookups of a known map are inlined; the load of a map handle
 * that only they would read is removed; a move followed by an addition becomes one instruction. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/jit/jit_int.h"
#include "bpf/run/decode.h"
#include "bpf/run/map/map_type.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#define R(n) (1u << (n))
#define CALL_ARGS (R(1) | R(2) | R(3) | R(4) | R(5))

static struct ebpf_jit_uses jump_uses(const struct ebpf_insn *i)
{
	switch (EBPF_OP(i->code)) {
	case EBPF_JA:
		return (struct ebpf_jit_uses){ 0, 0 };
	case EBPF_CALL:
		return (struct ebpf_jit_uses){ CALL_ARGS, CALL_ARGS | R(0) };
	case EBPF_EXIT:
		return (struct ebpf_jit_uses){ R(0), 0 };
	default:
		return (struct ebpf_jit_uses){
			R(i->dst) | (EBPF_SRC(i->code) == EBPF_X ? R(i->src) : 0), 0
		};
	}
}

static struct ebpf_jit_uses store_uses(const struct ebpf_insn *i)
{
	struct ebpf_jit_uses u = { R(i->dst) | R(i->src), 0 };

	if (EBPF_MODE(i->code) == EBPF_ATOMIC && i->imm == EBPF_CMPXCHG) {
		u.reads |= R(0);
		u.writes = R(0);
	} else if (EBPF_MODE(i->code) == EBPF_ATOMIC && (i->imm & EBPF_FETCH)) {
		u.writes = R(i->src);
	}
	return u;
}

struct ebpf_jit_uses ebpf_jit_uses_of(const struct ebpf_insn *i)
{
	unsigned by_reg = EBPF_SRC(i->code) == EBPF_X ? R(i->src) : 0;

	switch (EBPF_CLASS(i->code)) {
	case EBPF_LD:
		return (struct ebpf_jit_uses){ 0, R(i->dst) };
	case EBPF_LDX:
		return (struct ebpf_jit_uses){ R(i->src), R(i->dst) };
	case EBPF_ST:
		return (struct ebpf_jit_uses){ R(i->dst), 0 };
	case EBPF_STX:
		return store_uses(i);
	case EBPF_JMP:
	case EBPF_JMP32:
		return jump_uses(i);
	default:
		if (EBPF_OP(i->code) == EBPF_END) {
			by_reg = 0;
		}
		return (struct ebpf_jit_uses){ EBPF_OP(i->code) == EBPF_MOV ? by_reg
									    : by_reg | R(i->dst),
					       R(i->dst) };
	}
}

int ebpf_jit_is_jump(const struct ebpf_insn *i)
{
	unsigned class = EBPF_CLASS(i->code), op = EBPF_OP(i->code);

	return (class == EBPF_JMP || class == EBPF_JMP32) && op != EBPF_CALL && op != EBPF_EXIT;
}

static int is_call(const struct ebpf_insn *i)
{
	return i->code == (EBPF_JMP | EBPF_CALL);
}

static int names_function(const struct ebpf_insn *i)
{
	return is_call(i) ? i->src == EBPF_CALL_LOCAL
			  : i->code == EBPF_LD_IMM64 && i->src == EBPF_PSEUDO_FUNC;
}

uint32_t ebpf_jit_jump_target(const struct ebpf_insn *i, uint32_t pc)
{
	return (uint32_t)((int64_t)pc + 1 + (i->code == (EBPF_JMP32 | EBPF_JA) ? i->imm : i->off));
}

/* Marks the targets of tail calls. They are first instructions of functions that nothing else
 * enters. */
static int mark_tails(struct ebpf_jit *j)
{
	for (uint32_t k = 0; k < j->n_tails; k++) {
		const struct ebpf_tail_at *t = &j->tails[k];

		if (!t->insn || t->insn >= j->n || !j->insns[t->insn].code || t->map >= j->n_maps ||
		    t->index > INT32_MAX) {
			return -EINVAL;
		}
		if (j->notes[t->insn].flags & (JIT_FUNC | JIT_TARGET) &&
		    !(j->notes[t->insn].flags & JIT_TAIL)) {
			return -ENOTSUP;
		}
		j->notes[t->insn].flags |= JIT_FUNC | JIT_TAIL;
	}
	return 0;
}

static int mark_targets(struct ebpf_jit *j)
{
	j->notes[0].flags |= JIT_FUNC;
	for (uint32_t pc = 0; pc < j->n; pc++) {
		const struct ebpf_insn *i = &j->insns[pc];

		if (ebpf_jit_is_jump(i)) {
			uint32_t target = ebpf_jit_jump_target(i, pc);

			j->notes[target].flags |= target <= pc ? JIT_TARGET | JIT_LOOP : JIT_TARGET;
		} else if (names_function(i)) {
			uint32_t target = (uint32_t)((int64_t)pc + 1 + i->imm);

			if (!target && !j->options->checked) {
				return -ENOTSUP; /* the entry takes other arguments than a local
						    function, except in checked code */
			}
			j->notes[target].flags |= JIT_FUNC | (is_call(i) ? 0 : JIT_VALUE);
		}
	}
	return mark_tails(j);
}

/* Finds the functions. A function ends before the next one begins, and only calls and exits leave
 * it. */
static int find_funcs(struct ebpf_jit *j)
{
	for (uint32_t pc = 0; pc < j->n; pc++) {
		if (j->notes[pc].flags & JIT_FUNC) {
			unsigned last = pc ? j->insns[pc - 1].code : 0;

			if (j->n_funcs == JIT_MAX_FUNCS) {
				return -ENOTSUP;
			}
			if (pc && last != (EBPF_JMP | EBPF_EXIT) && last != (EBPF_JMP | EBPF_JA) &&
			    last != (EBPF_JMP32 | EBPF_JA)) {
				return -EINVAL;
			}
			j->funcs[j->n_funcs++] = (struct ebpf_jit_func){
				.first = pc,
				.value = !!(j->notes[pc].flags & JIT_VALUE),
				.root = !pc || (j->notes[pc].flags & JIT_TAIL),
			};
		}
		j->notes[pc].func = (uint8_t)(j->n_funcs - 1);
	}
	for (uint32_t pc = 0; pc < j->n; pc++) {
		const struct ebpf_insn *i = &j->insns[pc];

		if (ebpf_jit_is_jump(i) &&
		    j->notes[ebpf_jit_jump_target(i, pc)].func != j->notes[pc].func) {
			return -EINVAL;
		}
	}
	return 0;
}

/* Knowledge about map handles and keys at one point of a basic block. */
struct known {
	uint8_t map[11];   /* map whose handle the register holds, or JIT_NO_MAP */
	uint32_t func[11]; /* first instruction of the function whose address the register holds, or
			      0 */
	uint32_t unread;   /* bit mask of registers whose handle has not been read yet */
	uint32_t where[11]; /* instruction that loaded the handle */
	uint32_t constants; /* bit mask of registers whose lower half is constant */
	uint32_t value[11];
	/* r2 = r10 + frame_off, computed by the one or two instructions in made[]; not read yet */
	unsigned n_made;
	uint32_t made[2];
	int32_t frame_off;
	/* the 4-byte number that was last stored on the stack; in key_reg or key_value */
	uint8_t key, key_reg;
	int16_t key_off;
	uint32_t key_value;
};

static void track_constants(struct known *k, const struct ebpf_insn *i, struct ebpf_jit_uses u)
{
	k->constants &= ~u.writes;
	if (i->code == (EBPF_ALU64 | EBPF_MOV | EBPF_K) ||
	    i->code == (EBPF_ALU | EBPF_MOV | EBPF_K)) {
		k->constants |= R(i->dst);
		k->value[i->dst] = (uint32_t)i->imm;
	}
}

static void track_frame_pointer(struct known *k, const struct ebpf_insn *i, struct ebpf_jit_uses u,
				uint32_t pc)
{
	if (i->code == (EBPF_ALU64 | EBPF_MOV | EBPF_X) && i->dst == 2 && i->src == 10 && !i->off) {
		k->n_made = 1;
		k->made[0] = pc;
		k->frame_off = 0;
	} else if (k->n_made == 1 && i->code == (EBPF_ALU64 | EBPF_ADD | EBPF_K) && i->dst == 2) {
		k->n_made = 2;
		k->made[1] = pc;
		k->frame_off = i->imm;
	} else if (((u.reads | u.writes) & R(2)) || ebpf_jit_is_jump(i)) {
		k->n_made = 0;
	}
}

static void track_key(struct known *k, const struct ebpf_insn *i, struct ebpf_jit_uses u)
{
	unsigned class = EBPF_CLASS(i->code), size = EBPF_SIZE(i->code);

	if (k->key == KEY_IN_REGISTER && (u.writes & R(k->key_reg))) {
		k->key = KEY_IN_MEMORY;
	}
	if (is_call(i)) {
		k->key = KEY_IN_MEMORY;
	}
	if (class != EBPF_ST && class != EBPF_STX) {
		return;
	}
	if (i->dst != 10 || EBPF_MODE(i->code) != EBPF_MEM || (size != EBPF_W && size != EBPF_DW)) {
		k->key = KEY_IN_MEMORY; /* the store may have overwritten the key */
		return;
	}
	k->key_off = i->off;
	if (class == EBPF_ST || (k->constants & R(i->src))) {
		k->key = KEY_CONSTANT;
		k->key_value = class == EBPF_ST ? (uint32_t)i->imm : k->value[i->src];
	} else {
		k->key = KEY_IN_REGISTER;
		k->key_reg = i->src & 15;
	}
}

/* Uses the known key of a lookup: the key is not loaded, and the instructions that compute its
 * address are skipped. */
static void take_key(struct ebpf_jit *j, const struct known *k, struct ebpf_jit_note *note)
{
	if (!k->n_made || k->key == KEY_IN_MEMORY || k->key_off != k->frame_off) {
		return;
	}
	note->key = k->key;
	note->key_reg = k->key_reg;
	note->key_value = k->key_value;
	for (unsigned n = 0; n < k->n_made; n++) {
		j->notes[k->made[n]].flags |= JIT_SKIP;
	}
}

static void track(struct known *k, const struct ebpf_insn *i, uint32_t pc)
{
	struct ebpf_jit_uses u = ebpf_jit_uses_of(i);
	uint8_t copied = k->map[i->src > 10 ? 0 : i->src];
	uint32_t copied_func = k->func[i->src > 10 ? 0 : i->src];

	track_frame_pointer(k, i, u, pc);
	track_key(k, i, u);
	track_constants(k, i, u);
	k->unread &= ~(u.reads | u.writes);
	for (unsigned r = 0; r < 11; r++) {
		if (u.writes & R(r)) {
			k->map[r] = JIT_NO_MAP;
			k->func[r] = 0;
		}
	}
	if (i->code == EBPF_LD_IMM64 && i->src == EBPF_PSEUDO_FUNC) {
		k->func[i->dst] = (uint32_t)((int64_t)pc + 1 + i->imm);
		k->where[i->dst] = pc;
		k->unread |= R(i->dst);
	} else if (i->code == EBPF_LD_IMM64 && i->src == EBPF_PSEUDO_MAP) {
		k->map[i->dst] = (uint8_t)i->imm;
		k->where[i->dst] = pc;
		k->unread |= R(i->dst);
	} else if (i->code == (EBPF_ALU64 | EBPF_MOV | EBPF_X) && !i->off) {
		k->map[i->dst] = copied;
		k->func[i->dst] = copied_func;
	}
	if (ebpf_jit_is_jump(i)) {
		k->unread = 0; /* the other path may read the handle */
	}
}

/* Returns the map whose handle the register holds. Removes the load of the handle if nothing else
 * reads it. */
static uint8_t take_handle(struct ebpf_jit *j, const struct known *k, unsigned reg)
{
	if (k->map[reg] != JIT_NO_MAP && (k->unread & R(reg))) {
		j->notes[k->where[reg]].flags |= JIT_SKIP;
	}
	return k->map[reg];
}

/* Maximum number of entries in the code of all tail calls. Each tail call contains the entries of
 * its map; many calls through a large map would take seconds to compile and exceed the size of an
 * image. */
#define MAX_TAIL_ENTRIES (1u << 16)

static int plan_tail_call(struct ebpf_jit *j, const struct known *k, struct ebpf_jit_note *note)
{
	note->map = take_handle(j, k, 2);
	for (uint32_t i = 0; i < j->n_tails; i++) {
		j->tail_calls += note->map == JIT_NO_MAP || j->tails[i].map == note->map;
	}
	j->tail_calls += j->tail_calls == 0; /* also for a tail call without entries */
	return j->tail_calls > MAX_TAIL_ENTRIES ? -ENOTSUP : 0;
}

static int plan_call(struct ebpf_jit *j, const struct known *k, uint32_t pc)
{
	const struct ebpf_insn *i = &j->insns[pc];
	struct ebpf_jit_note *note = &j->notes[pc];
	struct ebpf_jit_func *f = &j->funcs[note->func];
	int slot = i->src == EBPF_CALL_HELPER ? ebpf_helper_slot(i->imm) : -1;

	f->env = 1;
	if (slot == EBPF_SLOT_bpf_tail_call) {
		return f->root ? plan_tail_call(j, k, note) : -EINVAL;
	}
	if (slot == EBPF_SLOT_bpf_map_lookup_elem && k->map[1] != JIT_NO_MAP &&
	    j->maps[k->map[1]].type == GBPF_MAP_ARRAY &&
	    !(j->maps[k->map[1]].flags & GBPF_F_EPOCH)) {
		note->map = take_handle(j, k, 1);
		take_key(j, k, note);
		return 0;
	}
	if (slot == EBPF_SLOT_bpf_iter_num_new || slot == EBPF_SLOT_bpf_iter_num_next ||
	    slot == EBPF_SLOT_bpf_iter_num_destroy || slot == EBPF_SLOT_gbpf_note) {
		note->flags |= JIT_INLINE;
		return 0;
	}
	f->calls = 1;
	if (slot == EBPF_SLOT_bpf_loop && k->func[2]) {
		note->flags |= JIT_INLINE;
		note->callee = k->func[2];
		if (k->unread & R(2)) {
			j->notes[k->where[2]].flags |= JIT_SKIP;
		}
		return 0;
	}
	j->helper_calls |= i->src == EBPF_CALL_HELPER;
	return 0;
}

static int plan_insns(struct ebpf_jit *j)
{
	struct known k;
	int err = 0;

	for (uint32_t pc = 0; pc < j->n && !err; pc++) {
		const struct ebpf_insn *i = &j->insns[pc];
		struct ebpf_jit_note *note = &j->notes[pc];
		struct ebpf_jit_uses u = ebpf_jit_uses_of(i);

		if (note->flags & (JIT_TARGET | JIT_FUNC)) {
			memset(&k, 0, sizeof(k));
			memset(k.map, JIT_NO_MAP, sizeof(k.map));
		}
		note->map = JIT_NO_MAP;
		j->funcs[note->func].used |= (uint16_t)(u.reads | u.writes);
		if (is_call(i)) {
			err = plan_call(j, &k, pc);
		}
		track(&k, i, pc);
		if (i->code == EBPF_LD_IMM64) {
			j->funcs[note->func].env |=
				i->src != EBPF_PSEUDO_CONST && i->src != EBPF_PSEUDO_FUNC;
			pc++;
			j->notes[pc].map = JIT_NO_MAP;
		}
	}
	return err;
}

int ebpf_jit_plan(struct ebpf_jit *j)
{
	int err;

	if (ebpf_program_check(j->insns, j->n, j->n_maps, NULL)) {
		return -EINVAL;
	}
	j->notes = calloc(j->n, sizeof(*j->notes));
	if (!j->notes) {
		return -ENOMEM;
	}
	err = mark_targets(j);
	if (!err) {
		err = find_funcs(j);
	}
	err = err ? err : plan_insns(j);
	if (!err && j->fuses) {
		ebpf_jit_fuse(j);
	}
	return err;
}

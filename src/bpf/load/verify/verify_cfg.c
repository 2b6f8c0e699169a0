/* Checks the shape of the program before any path is walked: every instruction exists and is well
 * formed; every jump and call leads to the start of a permitted instruction; no path falls off the
 * end; no instruction is unreachable; calls do not recurse. Also marks where paths meet and which
 * side of a branch leaves a loop. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/verify/helper_names.h"
#include "bpf/load/verify/verify_int.h"
#include "bpf/run/decode.h"
#include "bpf/run/map/map_type.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

#define MAX_LOOPS 1024u /* with more loops, the order of branches is not tuned */

static int is_jump(const struct ebpf_insn *in)
{
	unsigned class = EBPF_CLASS(in->code), op = EBPF_OP(in->code);

	return (class == EBPF_JMP || class == EBPF_JMP32) && op != EBPF_CALL && op != EBPF_EXIT;
}

static int is_goto(const struct ebpf_insn *in)
{
	return is_jump(in) && EBPF_OP(in->code) == EBPF_JA;
}

static int is_exit(const struct ebpf_insn *in)
{
	return in->code == (EBPF_JMP | EBPF_EXIT);
}

static int is_local_call(const struct ebpf_insn *in)
{
	return in->code == (EBPF_JMP | EBPF_CALL) && in->src == EBPF_CALL_LOCAL;
}

/* Returns whether the instruction loads the address of a function. */
static int is_function(const struct ebpf_insn *in)
{
	return in->code == EBPF_LD_IMM64 && in->src == EBPF_PSEUDO_FUNC;
}

/* Returns the jump target. It may lie outside the program until check_targets() has run. */
static int64_t wide_target(const struct ebpf_insn *in, uint32_t pc)
{
	int by_imm = in->code == (EBPF_JMP32 | EBPF_JA) || is_function(in) ||
		     EBPF_OP(in->code) == EBPF_CALL;

	return (int64_t)pc + 1 + (by_imm ? in->imm : in->off);
}

uint32_t ebpf_verify_target(const struct ebpf_insn *in, uint32_t pc)
{
	return (uint32_t)wide_target(in, pc);
}

static uint32_t next_of(const struct ebpf_insn *in, uint32_t pc)
{
	return pc + (in->code == EBPF_LD_IMM64 ? 2 : 1);
}

/* Refuses an encoding, with an explanation for those that users are likely to meet. */
static int refuse_encoding(struct ebpf_verifier *v, uint32_t pc)
{
	const struct ebpf_insn *in = &v->prog->insns[pc];
	unsigned class = EBPF_CLASS(in->code), mode = EBPF_MODE(in->code);

	if (in->code == (EBPF_JMP | EBPF_CALL | EBPF_X)) {
		report_hint(v->r,
			    "build with -O2, so that calls through pointers become direct ones");
		return ebpf_verify_refuse(v, pc, "opcode",
					  "calls through a register are not supported");
	}
	if (class == EBPF_LD && (mode == EBPF_ABS || mode == EBPF_IND)) {
		return ebpf_verify_refuse(v, pc, "opcode",
					  "packet loads (LD_ABS, LD_IND) are not supported");
	}
	if (in->code == (EBPF_JMP | 0xe0)) {
		return ebpf_verify_refuse(v, pc, "opcode", "may_goto is not supported");
	}
	if (in->code == (EBPF_ALU64 | EBPF_MOV | EBPF_X) && in->off == 1) {
		return ebpf_verify_refuse(v, pc, "opcode",
					  "address space casts (arena) are not supported");
	}
	if (in->code == (EBPF_JMP | EBPF_CALL) && in->src > EBPF_CALL_LOCAL) {
		return ebpf_verify_refuse(v, pc, "opcode",
					  "calls of kind %u (kfunc) are not supported", in->src);
	}
	if (in->code == EBPF_LD_IMM64 && in->src > EBPF_PSEUDO_FUNC) {
		return ebpf_verify_refuse(v, pc, "opcode",
					  "64-bit loads of kind %u are not supported", in->src);
	}
	if (in->code == EBPF_LD_IMM64) {
		return ebpf_verify_refuse(v, pc, "opcode",
					  "a 64-bit load of kind %u with its second half missing, "
					  "reserved fields set, or "
					  "of a kind that is not supported",
					  in->src);
	}
	if (in->dst > 10 || in->src > 10) {
		return ebpf_verify_refuse(v, pc, "opcode", "register r%u does not exist",
					  MAX(in->dst, in->src));
	}
	if (in->dst == 10 && ebpf_insn_writes_dst(in)) {
		return ebpf_verify_refuse(v, pc, "readonly",
					  "r10 is the frame pointer and cannot be written");
	}
	if (class == EBPF_STX && mode == EBPF_ATOMIC && (in->imm == 0x100 || in->imm == 0x110)) {
		report_hint(v->r,
			    "use __sync_fetch_and_add or another atomic that returns a value");
		return ebpf_verify_refuse(v, pc, "opcode", "%s instructions are not supported",
					  in->imm == 0x100 ? "load-acquire" : "store-release");
	}
	return ebpf_verify_refuse(
		v, pc, "opcode",
		"unknown instruction or reserved field set: opcode 0x%02x dst r%u src "
		"r%u off %d imm %d",
		in->code, in->dst, in->src, in->off, in->imm);
}

static int no_helper(struct ebpf_verifier *v, uint32_t pc, int32_t id)
{
	const char *instead, *name = ebpf_verify_foreign_helper(id, &instead);

	report_hint(v->r, "%s",
		    instead ? instead
			    : "gBPF's helpers are those that gbpf.bpf.h declares; gbpf-policy(7) "
			      "lists them");
	return ebpf_verify_refuse(v, pc, "helper", "there is no helper %d%s%s%s", id,
				  name ? " (" : "", name ? name : "", name ? ")" : "");
}

/* Checks that the object that an operand names exists. Unreachable instructions are checked too,
 * because ebpf_policy_open() checks all of them. */
static int check_operand(struct ebpf_verifier *v, uint32_t pc)
{
	const struct ebpf_insn *in = &v->prog->insns[pc];
	const struct ebpf_map_def *m;

	if (in->code == (EBPF_JMP | EBPF_CALL) && in->src != EBPF_CALL_LOCAL &&
	    !ebpf_verify_helper(in->imm)) {
		return no_helper(v, pc, in->imm);
	}
	if (in->code != EBPF_LD_IMM64 || in->src == EBPF_PSEUDO_CONST) {
		return 0;
	}
	if (in->src == EBPF_PSEUDO_FUNC) {
		return 0; /* check_targets */
	}
	if (in->imm < 0 || (uint32_t)in->imm >= v->n_maps) {
		return ebpf_verify_refuse(v, pc, "map", "map %d of %u", in->imm, v->n_maps);
	}
	m = &v->maps[in->imm];
	if (in->src == EBPF_PSEUDO_MAP_VALUE && (uint32_t)in[1].imm >= m->value_bytes) {
		return ebpf_verify_refuse(v, pc, "map",
					  "offset %u of %s, whose values have %u bytes",
					  (uint32_t)in[1].imm, m->name, m->value_bytes);
	}
	if (in->src == EBPF_PSEUDO_MAP_VALUE &&
	    (m->type != GBPF_MAP_ARRAY || (m->flags & GBPF_F_EPOCH))) {
		return ebpf_verify_refuse(v, pc, "map",
					  "%s is a %s: its values have no fixed address", m->name,
					  ebpf_verify_map_type(m->type));
	}
	return 0;
}

static int check_encodings(struct ebpf_verifier *v)
{
	uint32_t n = v->prog->n_insns;

	for (uint32_t pc = 0; pc < n;) {
		int slots = ebpf_insn_slots(v->prog->insns, n, pc), err;

		if (slots <= 0) {
			return refuse_encoding(v, pc);
		}
		err = check_operand(v, pc);
		if (err) {
			return err;
		}
		v->info[pc] |= INSN_START;
		pc += (uint32_t)slots;
	}
	return 0;
}

static int check_subprogs(struct ebpf_verifier *v)
{
	const struct ebpf_prog *p = v->prog;

	if (p->n_subprogs == 0 || p->n_subprogs > ARRAY_SIZE(p->subprog) || p->subprog[0] != 0) {
		return ebpf_verify_refuse(v, 0, "cfg", "the table of functions is broken");
	}
	for (uint32_t k = 0; k < p->n_subprogs; k++) {
		uint32_t start = p->subprog[k],
			 end = k + 1 < p->n_subprogs ? p->subprog[k + 1] : p->n_insns;

		if (start >= end || end > p->n_insns || !(v->info[start] & INSN_START)) {
			return ebpf_verify_refuse(v, 0, "cfg", "the table of functions is broken");
		}
		memset(v->subprog_of + start, (int)k, end - start);
	}
	return 0;
}

/* Checks the tables that accompany the instructions. */
static int check_tables(struct ebpf_verifier *v)
{
	const struct ebpf_prog *p = v->prog;

	for (uint32_t i = 0; i < p->n_tails; i++) {
		if (p->tails[i].map >= v->n_maps ||
		    v->maps[p->tails[i].map].type != GBPF_MAP_PROG_ARRAY ||
		    p->tails[i].subprog == 0 || p->tails[i].subprog >= p->n_subprogs) {
			return ebpf_verify_refuse(v, 0, "cfg", "the table of tail calls is broken");
		}
	}
	for (uint32_t i = 0; i < p->n_poisons; i++) {
		if (p->poisons[i].insn >= p->n_insns) {
			return ebpf_verify_refuse(v, 0, "cfg", "the table of poisons is broken");
		}
		v->info[p->poisons[i].insn] |= INSN_POISON;
	}
	return 0;
}

static int check_target(struct ebpf_verifier *v, uint32_t pc, const struct ebpf_insn *in)
{
	int64_t to = wide_target(in, pc);

	if (to < 0 || to >= v->prog->n_insns) {
		return ebpf_verify_refuse(v, pc, "cfg", "jump to instruction %lld of %u",
					  (long long)to, v->prog->n_insns);
	}
	if (!(v->info[to] & INSN_START)) {
		return ebpf_verify_refuse(v, pc, "cfg", "jump into the middle of instruction %lld",
					  (long long)to - 1);
	}
	if (is_local_call(in) || is_function(in)) {
		if (v->prog->subprog[v->subprog_of[to]] != to) {
			return ebpf_verify_refuse(
				v, pc, "cfg", "call of instruction %lld, where no function begins",
				(long long)to);
		}
	} else if (v->subprog_of[to] != v->subprog_of[pc]) {
		return ebpf_verify_refuse(v, pc, "cfg",
					  "jump out of the function to instruction %lld",
					  (long long)to);
	}
	return 0;
}

static int check_targets(struct ebpf_verifier *v)
{
	uint32_t n = v->prog->n_insns;

	for (uint32_t pc = 0; pc < n;) {
		const struct ebpf_insn *in = &v->prog->insns[pc];
		uint32_t next = next_of(in, pc);
		int err = is_jump(in) || is_local_call(in) || is_function(in)
				  ? check_target(v, pc, in)
				  : 0;

		if (err) {
			return err;
		}
		if (!is_exit(in) && !is_goto(in) &&
		    (next >= n || v->subprog_of[next] != v->subprog_of[pc])) {
			report_hint(v->r, "end each function with a return");
			return ebpf_verify_refuse(v, pc, "cfg", "the function runs off its end");
		}
		pc = next;
	}
	return 0;
}

static int calls_back(int32_t helper)
{
	return helper == HELPER_bpf_loop || helper == HELPER_bpf_for_each_map_elem;
}

static void mark_meets(struct ebpf_verifier *v)
{
	uint32_t n = v->prog->n_insns;

	for (uint32_t pc = 0; pc < n; pc = next_of(&v->prog->insns[pc], pc)) {
		const struct ebpf_insn *in = &v->prog->insns[pc];
		uint32_t to;

		if (is_function(in)) {
			v->info[ebpf_verify_target(in, pc)] |= INSN_MEET;
		}
		if (in->code == (EBPF_JMP | EBPF_CALL) && in->src == EBPF_CALL_HELPER) {
			int next = in->imm == HELPER_bpf_iter_num_next;

			v->info[pc] |= next ? INSN_MEET : 0;
			v->info[pc + 1] |= calls_back(in->imm) ? INSN_MEET : 0;
			v->converges |= next || calls_back(in->imm);
		}
		if (is_local_call(in)) {
			v->info[ebpf_verify_target(in, pc)] |= INSN_MEET;
			v->info[pc + 1] |=
				INSN_MEET; /* in range: the last instruction is not a call */
		}
		if (!is_jump(in)) {
			continue;
		}
		to = ebpf_verify_target(in, pc);
		v->plain_loops |= to <= pc;
		v->info[to] |= INSN_MEET;
		if (to <= pc) {
			v->info[to] |= INSN_LOOP;
			if (!is_goto(in)) {
				v->info[pc + 1] |= INSN_MEET;
			}
		}
	}
}

/* Checks that every instruction is reachable in the control flow graph of its function, regardless
 * of values. */
static int check_reachable(struct ebpf_verifier *v)
{
	uint32_t n = v->prog->n_insns, top = 0;
	uint32_t *todo = malloc(((size_t)n + 1) * sizeof(*todo));

	if (!todo) {
		return -ENOMEM;
	}
	todo[top++] = 0;
	v->info[0] |= INSN_SEEN;
	for (uint32_t i = 0; i < v->prog->n_tails; i++) {
		uint32_t to = v->prog->subprog[v->prog->tails[i].subprog];

		if (!(v->info[to] & INSN_SEEN)) {
			v->info[to] |= INSN_SEEN;
			todo[top++] = to;
		}
	}
	while (top > 0) {
		uint32_t pc = todo[--top], succ[2], n_succ = 0;
		const struct ebpf_insn *in = &v->prog->insns[pc];

		if (is_jump(in) || is_local_call(in) || is_function(in)) {
			succ[n_succ++] = ebpf_verify_target(in, pc);
		}
		if (!is_exit(in) && !is_goto(in)) {
			succ[n_succ++] = next_of(in, pc);
		}
		for (uint32_t i = 0; i < n_succ; i++) {
			if (!(v->info[succ[i]] & INSN_SEEN)) {
				v->info[succ[i]] |= INSN_SEEN;
				todo[top++] = succ[i];
			}
		}
	}
	free(todo);
	for (uint32_t pc = 0; pc < n; pc++) {
		if ((v->info[pc] & (INSN_START | INSN_SEEN)) == INSN_START) {
			report_hint(v->r, "remove the code that can never run");
			return ebpf_verify_refuse(v, pc, "cfg", "unreachable instruction");
		}
	}
	return 0;
}

/* Refuses functions that call themselves, directly or indirectly. */
static int check_recursion(struct ebpf_verifier *v)
{
	uint64_t calls[ARRAY_SIZE(v->prog->subprog)] = { 0 }, reach[ARRAY_SIZE(v->prog->subprog)];
	uint32_t n = v->prog->n_subprogs, at[ARRAY_SIZE(v->prog->subprog)] = { 0 };

	for (uint32_t pc = 0; pc < v->prog->n_insns; pc = next_of(&v->prog->insns[pc], pc)) {
		if (is_local_call(&v->prog->insns[pc]) || is_function(&v->prog->insns[pc])) {
			uint32_t from = v->subprog_of[pc],
				 to = v->subprog_of[ebpf_verify_target(&v->prog->insns[pc], pc)];

			calls[from] |= 1ull << to;
			at[from] = pc;
		}
	}
	memcpy(reach, calls, sizeof(reach));
	for (uint32_t via = 0; via < n; via++) {
		for (uint32_t k = 0; k < n; k++) {
			reach[k] |= reach[k] >> via & 1 ? reach[via] : 0;
		}
	}
	for (uint32_t k = 0; k < n; k++) {
		if (reach[k] >> k & 1) {
			return ebpf_verify_refuse(
				v, at[k], "recursion", "function %s %s", v->prog->subprog_name[k],
				calls[k] >> k & 1 ? "calls itself"
						  : "is part of a circle of calls");
		}
	}
	return 0;
}

struct span {
	uint32_t from, to;
};

static int longer_first(const void *a, const void *b)
{
	const struct span *x = a, *y = b;
	uint32_t lx = x->to - x->from, ly = y->to - y->from;

	return lx < ly ? 1 : lx > ly ? -1 : 0;
}

/* Selects the side of each branch that is walked first. Leaving a loop first keeps the number of
 * pending branches small. This affects speed only. */
static int order_branches(struct ebpf_verifier *v)
{
	uint32_t n = v->prog->n_insns, n_loops = 0;
	struct span *loops = malloc(MAX_LOOPS * sizeof(*loops));
	uint16_t *inner = calloc(n, sizeof(*inner)); /* innermost loop + 1 */

	for (uint32_t pc = 0; loops && inner && pc < n; pc = next_of(&v->prog->insns[pc], pc)) {
		const struct ebpf_insn *in = &v->prog->insns[pc];

		if (is_jump(in) && ebpf_verify_target(in, pc) <= pc && n_loops < MAX_LOOPS) {
			loops[n_loops++] = (struct span){ ebpf_verify_target(in, pc), pc };
		}
	}
	if (!loops || !inner) {
		free(loops);
		free(inner);
		return -ENOMEM;
	}
	qsort(loops, n_loops, sizeof(*loops), longer_first);
	for (uint32_t i = 0; i < n_loops; i++) {
		for (uint32_t pc = loops[i].from; pc <= loops[i].to; pc++) {
			inner[pc] = (uint16_t)(i + 1);
		}
	}
	for (uint32_t pc = 0; pc < n; pc = next_of(&v->prog->insns[pc], pc)) {
		const struct ebpf_insn *in = &v->prog->insns[pc];

		if (is_jump(in) && !is_goto(in) && inner[pc]) {
			const struct span *l = &loops[inner[pc] - 1];
			uint32_t to = ebpf_verify_target(in, pc);

			if (to < l->from || to > l->to) {
				v->info[pc] |= INSN_TAKEN_FIRST;
			}
		}
	}
	free(loops);
	free(inner);
	return 0;
}

int ebpf_verify_prints(const struct ebpf_prog *prog)
{
	int device = prog->hook >= (int)EBPF_FIRST_DEVICE_HOOK;

	for (uint32_t k = 0; k < prog->n_insns; k++) {
		const struct ebpf_insn *i = &prog->insns[k];

		if (i->code == (EBPF_JMP | EBPF_CALL) && i->src == EBPF_CALL_HELPER &&
		    (i->imm == HELPER_bpf_trace_printk || i->imm == HELPER_bpf_puts ||
		     (i->imm == HELPER_bpf_trace_vprintk && device))) {
			return 1;
		}
		k += i->code == EBPF_LD_IMM64;
	}
	return 0;
}

int ebpf_verify_cfg(struct ebpf_verifier *v)
{
	int err = check_encodings(v);

	err = err ? err : check_subprogs(v);
	err = err ? err : check_tables(v);
	err = err ? err : check_targets(v);
	err = err ? err : check_recursion(v);
	err = err ? err : check_reachable(v);
	if (err == 0) {
		mark_meets(v);
		v->prints = ebpf_verify_prints(v->prog);
		err = order_branches(v);
	}
	if (err == 0 && v->converges) {
		err = ebpf_verify_live(v);
	}
	return err;
}

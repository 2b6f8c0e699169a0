/* The rules for programs that each lane runs, and the report of a refusal. Lanes that a branch has
 * separated do not run together, so what they do to memory that they share depends on the rules:
 *
 * - uniform: all lanes of a warp update the same place, at the same time, and with the same value
 *   unless the update is an atomic; all of them call a warp-wide helper;
 * - collect: atomics are those whose operands can be combined first, and return nothing;
 * - loop: all lanes make the same number of rounds. */
#include <errno.h>
#include <stdio.h>

#include "bpf/load/verify/simt/simt_int.h"

enum finding {
	FINDS_NOTHING,
	FINDS_BRANCH,  /* an update that not all lanes come to */
	FINDS_ADDRESS, /* the place of an update varies */
	FINDS_VALUE,   /* the value of an update varies */
	FINDS_FLAGS,   /* the flags of an update vary */
	FINDS_ATOMIC,  /* an atomic that cannot be combined */
	FINDS_ROUNDS,  /* the number of rounds varies */
};

/* ---- rules ---- */

static enum finding check_store(const struct ebpf_simt *s, uint32_t pc,
				const struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];

	if (ebpf_simt_control(s, pc) == LEVEL_LANE) {
		return FINDS_BRANCH;
	}
	if (ebpf_simt_reg(st, in->dst) == LEVEL_LANE) {
		return FINDS_ADDRESS;
	}
	return EBPF_CLASS(in->code) == EBPF_STX && ebpf_simt_reg(st, in->src) == LEVEL_LANE
		       ? FINDS_VALUE
		       : FINDS_NOTHING;
}

static enum finding check_atomic(const struct ebpf_simt *s, uint32_t pc,
				 const struct ebpf_simt_state *st)
{
	enum finding found = check_store(s, pc, st);

	if (s->v->prog->insns[pc].imm & EBPF_FETCH) {
		return FINDS_ATOMIC;
	}
	return found == FINDS_VALUE ? FINDS_NOTHING : found;
}

static enum finding check_update(const struct ebpf_simt *s, uint32_t pc,
				 const struct ebpf_simt_state *st)
{
	const struct ebpf_simt_place *key = ebpf_simt_place(s, pc, 0), *value = key + 2;
	const struct ebpf_map_def *m = &s->v->maps[key->map];

	if (ebpf_simt_control(s, pc) == LEVEL_LANE) {
		return FINDS_BRANCH;
	}
	if (ebpf_simt_key(s, pc, st) == LEVEL_LANE) {
		return FINDS_ADDRESS;
	}
	if (ebpf_simt_reg(st, 4) == LEVEL_LANE) {
		return FINDS_FLAGS;
	}
	return ebpf_simt_memory(s, pc, st, value, m->value_bytes, ebpf_simt_reg(st, 3)) ==
			       LEVEL_LANE
		       ? FINDS_VALUE
		       : FINDS_NOTHING;
}

/* The key of an update by one lane for all. */
static enum finding check_key(const struct ebpf_simt *s, uint32_t pc,
			      const struct ebpf_simt_state *st)
{
	if (ebpf_simt_control(s, pc) == LEVEL_LANE) {
		return FINDS_BRANCH;
	}
	return ebpf_simt_key(s, pc, st) == LEVEL_LANE ? FINDS_ADDRESS : FINDS_NOTHING;
}

/* gbpf_note(counter, add), gbpf_hist_add(map, row, value), gbpf_atomic_add(map, index, add):
 * atomics on a counter, a row or an element. */
static enum finding check_counter(const struct ebpf_simt *s, uint32_t pc,
				  const struct ebpf_simt_state *st, unsigned last_place)
{
	if (ebpf_simt_control(s, pc) == LEVEL_LANE) {
		return FINDS_BRANCH;
	}
	for (unsigned i = 1; i <= last_place; i++) {
		if (ebpf_simt_reg(st, i) == LEVEL_LANE) {
			return FINDS_ADDRESS;
		}
	}
	return FINDS_NOTHING;
}

static enum finding check_call(const struct ebpf_simt *s, uint32_t pc,
			       const struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];

	if (in->src == EBPF_CALL_LOCAL) {
		return FINDS_NOTHING;
	}
	switch (in->imm) {
	case HELPER_bpf_map_update_elem:
		return check_update(s, pc, st);
	case HELPER_bpf_map_delete_elem:
	case HELPER_gbpf_key_add: /* each lane's number is added */
		return check_key(s, pc, st);
	case HELPER_gbpf_note:
	case HELPER_bpf_ringbuf_output:
	case HELPER_bpf_map_push_elem: /* each lane's value is kept */
	case HELPER_bpf_ringbuf_submit:
		return check_counter(s, pc, st, 1);
	case HELPER_gbpf_hist_add:
	case HELPER_gbpf_atomic_add:
	case HELPER_bpf_perf_event_output:
		return check_counter(s, pc, st, 2);
	case HELPER_bpf_loop:
		return ebpf_simt_rounds(s, pc, st) == LEVEL_LANE ? FINDS_ROUNDS : FINDS_NOTHING;
	case HELPER_bpf_puts:
	case HELPER_bpf_trace_printk:
	case HELPER_bpf_trace_vprintk:
		return check_counter(s, pc, st, 0);
	default:
		return ebpf_verify_warp_wide(in->imm) ? check_counter(s, pc, st, 0) : FINDS_NOTHING;
	}
}

static enum finding check_insn(const struct ebpf_simt *s, uint32_t pc,
			       const struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];
	const struct ebpf_simt_block *b = &s->blocks[s->block_of[pc]];
	unsigned class = EBPF_CLASS(in->code);

	if (in->code == (EBPF_JMP | EBPF_CALL)) {
		return check_call(s, pc, st);
	}
	if (class == EBPF_JMP || class == EBPF_JMP32) {
		return b->again && b->level == LEVEL_LANE ? FINDS_ROUNDS : FINDS_NOTHING;
	}
	if ((class != EBPF_ST && class != EBPF_STX) ||
	    !(ebpf_simt_place(s, pc, 0)->kinds & SIMT_SHARED)) {
		return FINDS_NOTHING;
	}
	return class == EBPF_STX && EBPF_MODE(in->code) == EBPF_ATOMIC ? check_atomic(s, pc, st)
								       : check_store(s, pc, st);
}

/* Returns the first finding in the order of the instructions, and its place. */
static enum finding check_all(struct ebpf_simt *s, uint32_t *ret_pc)
{
	enum finding found = FINDS_NOTHING;

	for (uint32_t i = 0; i < s->n_blocks && found == FINDS_NOTHING; i++) {
		const struct ebpf_simt_block *b = &s->blocks[i];
		struct ebpf_simt_state st = b->in;

		for (uint32_t pc = b->first; pc < b->end && found == FINDS_NOTHING;) {
			found = check_insn(s, pc, &st);
			*ret_pc = pc;
			ebpf_simt_step(s, pc, &st);
			pc += s->v->prog->insns[pc].code == EBPF_LD_IMM64 ? 2 : 1;
		}
	}
	return found;
}

/* ---- the source of a variation ---- */

static enum finding check_at(struct ebpf_simt *s, uint32_t pc)
{
	struct ebpf_simt_state st;

	ebpf_simt_at(s, pc, &st);
	return check_insn(s, pc, &st);
}

/* Finds the first instruction without which there would be no such finding: levels rise with the
 * set of sources, and each value that varies does so because of one of them alone. Leaves the
 * solution with the sources up to it. */
static uint32_t find_source(struct ebpf_simt *s, uint32_t pc, enum finding found)
{
	uint32_t low = 0, high = s->n - 1;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (ebpf_simt_solve(s, mid) == 0 && check_at(s, pc) == found) {
			high = mid;
		} else {
			low = mid + 1;
		}
	}
	(void)ebpf_simt_solve(s, high);
	return high;
}

static void source_text(const struct ebpf_simt *s, uint32_t pc, char *out, size_t n)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];
	const struct ebpf_simt_place *p;

	if (in->code == (EBPF_JMP | EBPF_CALL)) {
		snprintf(out, n, "%s()", ebpf_verify_helper(in->imm)->name);
		return;
	}
	p = ebpf_simt_place(s, pc, 0);
	if (p->kinds & SIMT_CTX) {
		snprintf(out, n, "ctx->%s", p->field ? p->field->name : "?");
	} else if (EBPF_CLASS(in->code) == EBPF_LDX) {
		snprintf(out, n, "the contents of %s", s->v->maps[p->map].name);
	} else {
		snprintf(out, n, "the result of an atomic");
	}
}

/* "varies because of ctx->lane at line 12" */
static void cause_text(const struct ebpf_simt *s, uint32_t source, char *out, size_t n)
{
	char what[EBPF_NAME_BYTES + 64];

	source_text(s, source, what, sizeof(what));
	snprintf(out, n, "varies because of %s at %s", what, ebpf_verify_place_text(s->v, source));
}

/* Returns the branch that separates the lanes before pc, in its function or around a call of it. */
static uint32_t separating_branch(const struct ebpf_simt *s, uint32_t pc)
{
	for (unsigned i = 0; i < EBPF_MAX_FRAMES; i++) {
		const struct ebpf_simt_block *b = &s->blocks[s->block_of[pc]];

		if (b->control == LEVEL_LANE) {
			const struct ebpf_simt_block *why = &s->blocks[b->why];

			return why->end - 1;
		}
		pc = s->funcs[b->func].called_at;
	}
	return pc;
}

/* ---- reports ---- */

static const char *update_text(const struct ebpf_simt *s, uint32_t pc, char *out, size_t n)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];

	if (in->code == (EBPF_JMP | EBPF_CALL)) {
		return ebpf_verify_helper(in->imm)->name;
	}
	snprintf(out, n, "%s to %s",
		 EBPF_MODE(in->code) == EBPF_ATOMIC && EBPF_CLASS(in->code) == EBPF_STX ? "atomic"
											: "store",
		 s->v->maps[ebpf_simt_place(s, pc, 0)->map].name);
	return out;
}

/* Returns what a program can do instead of an update that not all lanes come to. */
static const char *remedy_of(const struct ebpf_insn *in)
{
	switch (in->code == (EBPF_JMP | EBPF_CALL) ? in->imm : 0) {
	case HELPER_bpf_ringbuf_output:
	case HELPER_bpf_perf_event_output:
	case HELPER_bpf_map_push_elem:
	case HELPER_bpf_ringbuf_submit:
		return "move it to where all lanes come, with a member of the value that shows "
		       "whether it counts, since each lane's value is kept";
	case HELPER_gbpf_hist_add:
	case HELPER_bpf_map_update_elem:
	case HELPER_bpf_map_delete_elem:
	case HELPER_bpf_puts:
	case HELPER_bpf_trace_printk:
	case HELPER_bpf_trace_vprintk:
		return "move it to where all lanes come";
	case HELPER_gbpf_note:
	case HELPER_gbpf_atomic_add:
	case HELPER_gbpf_key_add:
		break;
	case 0:
		if (EBPF_CLASS(in->code) == EBPF_STX && EBPF_MODE(in->code) == EBPF_ATOMIC) {
			break;
		}
		return "move it to where all lanes come";
	default:
		return "call it where all lanes come, and use its result behind the condition";
	}
	return "move it to where all lanes come, with a number that is 0 for those that it does "
	       "not concern";
}

static int refuse_branch(struct ebpf_verifier *v, uint32_t pc, const char *update,
			 const char *cause)
{
	uint32_t branch = separating_branch(v->simt, pc);

	report_hint(v->r, "%s; or run the program once for each warp (gdev/ instead of gdev.lane/)",
		    remedy_of(&v->prog->insns[pc]));
	return ebpf_verify_refuse(v, pc, "uniform",
				  "%s, which not all lanes come to: the condition at %s %s", update,
				  ebpf_verify_place_text(v, branch), cause);
}

static int refuse_operand(struct ebpf_verifier *v, uint32_t pc, const char *update,
			  const char *operand, const char *cause)
{
	report_hint(v->r, "use a value that is the same for all lanes of the warp (ctx->warp, "
			  "ctx->sm), or run the program once for each warp (gdev/ instead of "
			  "gdev.lane/)");
	return ebpf_verify_refuse(v, pc, "uniform",
				  "%s: %s %s, but lanes share the map: all must store the same to "
				  "the same place, or add to it",
				  update, operand, cause);
}

static int refuse_atomic(struct ebpf_verifier *v, uint32_t pc, const char *update)
{
	report_hint(v->r, "do not use its result (then add, or, and, xor are allowed), or run the "
			  "program once for each warp (gdev/ instead of gdev.lane/)");
	return ebpf_verify_refuse(v, pc, "collect",
				  "%s: one that returns a value cannot be combined over the lanes "
				  "of a warp",
				  update);
}

static int refuse_rounds(struct ebpf_verifier *v, uint32_t pc, const char *cause)
{
	report_hint(v->r, "let all lanes make the same number of rounds, and skip the body where "
			  "it does not apply");
	return ebpf_verify_refuse(v, pc, "loop", "the number of rounds %s", cause);
}

static int refuse(struct ebpf_verifier *v, uint32_t pc, enum finding found)
{
	static const char *const operands[] = { [FINDS_ADDRESS] = "the place",
						[FINDS_VALUE] = "the value",
						[FINDS_FLAGS] = "the argument flags" };
	char update[EBPF_NAME_BYTES + 16], cause[EBPF_NAME_BYTES + 128] = "";
	const char *what;

	if (found != FINDS_ATOMIC) {
		cause_text(v->simt, find_source(v->simt, pc, found), cause, sizeof(cause));
	}
	if (found == FINDS_ROUNDS) {
		return refuse_rounds(v, pc, cause);
	}
	what = update_text(v->simt, pc, update, sizeof(update));
	if (found == FINDS_BRANCH) {
		return refuse_branch(v, pc, what, cause);
	}
	if (found == FINDS_ATOMIC) {
		return refuse_atomic(v, pc, what);
	}
	return refuse_operand(v, pc, what, operands[found], cause);
}

static int refuse_effort(struct ebpf_verifier *v)
{
	report_hint(v->r, "split the program into simpler parts");
	return ebpf_verify_refuse_err(v, -E2BIG, 0, "effort",
				      "too many branches and functions that depend on each other");
}

int ebpf_simt_check(struct ebpf_verifier *v)
{
	struct ebpf_simt *s = v->simt;
	enum finding found;
	uint32_t pc = 0;
	int err = ebpf_simt_graph(s);

	err = err ? err : ebpf_simt_solve(s, UINT32_MAX);
	if (err) {
		return err == -E2BIG ? refuse_effort(v) : err;
	}
	if (v->simt_probe) {
		v->simt_probe(v->probe_arg, s);
	}
	found = check_all(s, &pc);
	return found == FINDS_NOTHING ? 0 : refuse(v, pc, found);
}

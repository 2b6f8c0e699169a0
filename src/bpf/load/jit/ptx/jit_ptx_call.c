/* PTX back end: calls of functions, and the table of helpers that become instructions. A helper
 * without a line in the table cannot be called. */
#include <errno.h>
#include <stdio.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"

static unsigned func_index(const struct ebpf_ptx_jit *j, uint32_t first)
{
	return j->plan->notes[first].func;
}

/* Calls function n with a1 and a2 in the named registers, and the other arguments in r3-r5; the
 * result is stored in `to`. */
static void call_plain(struct ebpf_ptx_jit *j, unsigned n, const char *a1, const char *a2,
		       const char *to)
{
	const struct ebpf_ptx_field *f;
	int fields = j->hook && j->flow.takes_ctx[n];

	buf_puts(&j->out, "\t{\n");
	for (unsigned k = 0; k <= 6; k++) {
		ebpf_ptx_op(j, ".param .b64 q%u", k);
	}
	ebpf_ptx_op(j, "st.param.b64 [q1], %s", a1);
	ebpf_ptx_op(j, "st.param.b64 [q2], %s", a2);
	for (unsigned k = 3; k <= 5; k++) {
		ebpf_ptx_op(j, "st.param.b64 [q%u], %%r%u", k, k);
	}
	ebpf_ptx_op(j, "st.param.b64 [q6], %%env");
	for (unsigned i = 0; fields && (f = ebpf_ptx_next_field(j, &i));) {
		ebpf_ptx_op(j, ".param .b%u p_%s", 8 * f->bytes, f->name);
		ebpf_ptx_op(j, "st.param.b%u [p_%s], %%c_%s", 8 * f->bytes, f->name, f->name);
	}
	buf_printf(&j->out, "\tcall (q0), %s_f%u, (q1, q2, q3, q4, q5, q6", j->name, n);
	for (unsigned i = 0; fields && (f = ebpf_ptx_next_field(j, &i));) {
		buf_printf(&j->out, ", p_%s", f->name);
	}
	buf_puts(&j->out, ");\n");
	ebpf_ptx_op(j, "ld.param.b64 %s, [q0]", to);
	buf_puts(&j->out, "\t}\n");
}

/* Calls a function of a checked program. It sees all registers and may change r0-r5. */
static void call_checked(struct ebpf_ptx_jit *j, unsigned n)
{
	ebpf_ptx_spend(j, 1);
	ebpf_ptx_op(j, "setp.ge.u32 %%p0, %%frame, %u", EBPF_MAX_FRAMES - 1);
	ebpf_ptx_op(j, "@%%p0 bra $FRAMES");
	for (unsigned r = 0; r < 10; r++) {
		ebpf_ptx_op(j, "st.u64 [%%env+%u], %%r%u", PTX_ENV(regs) + 8 * r, r);
	}
	ebpf_ptx_op(j, "st.u64 [%%env+%u], %%fuel", PTX_ENV(fuel));
	ebpf_ptx_op(j, "add.s32 %%w0, %%frame, 1");
	ebpf_ptx_op(j, "st.u32 [%%env+%u], %%w0", PTX_ENV(frame));
	buf_puts(&j->out, "\t{\n");
	ebpf_ptx_op(j, ".param .b64 q");
	ebpf_ptx_op(j, "st.param.b64 [q], %%env");
	ebpf_ptx_op(j, "call %s_f%u, (q)", j->name, n);
	buf_puts(&j->out, "\t}\n");
	ebpf_ptx_op(j, "ld.u64 %%fuel, [%%env+%u]", PTX_ENV(fuel));
	for (unsigned r = 0; r < 6; r++) {
		ebpf_ptx_op(j, "ld.u64 %%r%u, [%%env+%u]", r, PTX_ENV(regs) + 8 * r);
	}
}

/* ---- helpers ---- */

#define MAX_ROUNDS (1u << 23) /* of loops and iterators, as in helpers_flow.c */

/* Adds `what` to the counter of the environment at %t0 + offset, in a program inside kernels at
 * %t0 as a global address. */
static void count(struct ebpf_ptx_jit *j, unsigned offset, const char *what)
{
	const char *where = j->hook ? "gpu.global" : "sys";

	ebpf_ptx_op(j, "red.relaxed.%s.add.u64 [%%t0+%u], %s", where, offset, what);
}

void ebpf_ptx_count_error(struct ebpf_ptx_jit *j)
{
	ebpf_ptx_op(j, "mov.b64 %%t0, %s", j->hook ? "%genv" : "%env");
	ebpf_ptx_op(j, "mov.b64 %%t1, 1");
	count(j, PTX_ENV(helper_errors), "%t1");
}

/* Returns the time of the GPU, which is not the clock of the CPU. */
static int ktime_get_ns(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	ebpf_ptx_op(j, "mov.u64 %%r0, %%globaltimer");
	return 0;
}

static int get_prandom(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	static const char *const steps[] = { "shr.u64 %t1, %t0, 12", "shl.b64 %t1, %t0, 25",
					     "shr.u64 %t1, %t0, 27" };

	if (j->hook) {
		ebpf_ptx_device_random(j);
		return 0;
	}
	ebpf_ptx_op(j, "ld.relaxed.sys.u64 %%t0, [%%env+%u]", PTX_ENV(random_state));
	for (unsigned k = 0; k < ARRAY_SIZE(steps); k++) {
		ebpf_ptx_op(j, "%s", steps[k]);
		ebpf_ptx_op(j, "xor.b64 %%t0, %%t0, %%t1");
	}
	ebpf_ptx_op(j, "st.relaxed.sys.u64 [%%env+%u], %%t0", PTX_ENV(random_state));
	ebpf_ptx_op(j, "mul.lo.s64 %%t0, %%t0, 0x2545f4914f6cdd1d");
	ebpf_ptx_op(j, "shr.u64 %%r0, %%t0, 32");
	return 0;
}

static int add_note(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	unsigned good = ++j->labels, end = ++j->labels;

	ebpf_ptx_op(j, "setp.lt.u64 %%p0, %%r1, %u", EBPF_NOTES);
	ebpf_ptx_op(j, "@%%p0 bra $M%u", good);
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -EINVAL);
	ebpf_ptx_count_error(j);
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, good);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	ebpf_ptx_op(j, "shl.b64 %%t0, %%r1, 3");
	ebpf_ptx_op(j, "add.s64 %%t0, %%t0, %s", j->hook ? "%genv" : "%env");
	count(j, PTX_ENV(notes), "%r2");
	ebpf_ptx_label(j, end);
	return 0;
}

/* ---- loops and iterators ---- */

/* A loop around calls of a known function: r1 = rounds, r3 = its second argument, r4 = flags. The
 * round is in %t2, the number of rounds in %t3. */
static int loop(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	unsigned top = ++j->labels, end = ++j->labels, bad = ++j->labels;

	if (!note->callee) {
		return ebpf_ptx_refuse(j, "bpf_loop with a function that is not known");
	}
	ebpf_ptx_op(j, "and.b64 %%t3, %%r1, 0xffffffff");
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -EINVAL);
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%r4, 0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", bad);
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -E2BIG);
	ebpf_ptx_op(j, "setp.gt.u64 %%p0, %%t3, %u", MAX_ROUNDS);
	ebpf_ptx_op(j, "@%%p0 bra $M%u", bad);
	ebpf_ptx_op(j, "mov.b64 %%t2, 0");
	ebpf_ptx_label(j, top);
	ebpf_ptx_op(j, "mov.b64 %%r0, %%t2");
	ebpf_ptx_op(j, "setp.ge.u64 %%p0, %%t2, %%t3");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", end);
	call_plain(j, func_index(j, note->callee), "%t2", "%r3", "%t0");
	ebpf_ptx_op(j, "add.s64 %%t2, %%t2, 1");
	ebpf_ptx_op(j, "mov.b64 %%r0, %%t2");
	ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%t0, 0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", top);
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, bad);
	ebpf_ptx_count_error(j);
	ebpf_ptx_label(j, end);
	return 0;
}

/* Stores %w0 and %w1, the number before the next one and the end, to the iterator at r1. It is
 * aligned as the verifier demands. */
static void store_iterator(struct ebpf_ptx_jit *j)
{
	int place;

	ebpf_ptx_op(j, "mov.b64 %%t0, {%%w0, %%w1}");
	if (ebpf_ptx_in_frame(j, 0, 8, &place)) {
		ebpf_ptx_frame_store(j, place, 8, "%t0");
	} else {
		ebpf_ptx_op(j, "st.u64 [%%r1], %%t0");
	}
}

static void load_iterator(struct ebpf_ptx_jit *j)
{
	int place;

	if (ebpf_ptx_in_frame(j, 0, 8, &place)) {
		ebpf_ptx_frame_load(j, place, 8, 0, "%t0");
	} else {
		ebpf_ptx_op(j, "ld.u64 %%t0, [%%r1]");
	}
	ebpf_ptx_op(j, "mov.b64 {%%w0, %%w1}, %%t0");
}

/* Makes the iterator one that has ended. */
static void end_iterator(struct ebpf_ptx_jit *j)
{
	ebpf_ptx_op(j, "mov.b32 %%w0, 0");
	ebpf_ptx_op(j, "mov.b32 %%w1, 0");
	store_iterator(j);
}

static int iter_new(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	unsigned bad = ++j->labels, end = ++j->labels;

	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%r2");
	ebpf_ptx_op(j, "cvt.u32.u64 %%w1, %%r3");
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -EINVAL);
	ebpf_ptx_op(j, "setp.gt.s32 %%p0, %%w0, %%w1");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", bad);
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -E2BIG);
	ebpf_ptx_op(j, "sub.s32 %%w2, %%w1, %%w0"); /* not negative as u32 */
	ebpf_ptx_op(j, "setp.gt.u32 %%p0, %%w2, %u", MAX_ROUNDS);
	ebpf_ptx_op(j, "@%%p0 bra $M%u", bad);
	ebpf_ptx_op(j, "sub.s32 %%w0, %%w0, 1");
	store_iterator(j);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, bad);
	end_iterator(j);
	ebpf_ptx_label(j, end);
	return 0;
}

static int iter_next(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	unsigned more = ++j->labels, end = ++j->labels;

	load_iterator(j);
	ebpf_ptx_op(j, "add.s32 %%w0, %%w0, 1");
	ebpf_ptx_op(j, "setp.lt.s32 %%p0, %%w0, %%w1");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", more);
	end_iterator(j);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, more);
	store_iterator(j);
	ebpf_ptx_op(j, "mov.b64 %%r0, %%r1");
	ebpf_ptx_label(j, end);
	return 0;
}

static int iter_destroy(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	end_iterator(j);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	return 0;
}

/* Helpers by slot. An emitter takes the arguments in r1-r5 and leaves the result in r0; it may use
 * the scratch registers and %env. Returns 0, or -ENOTSUP after ebpf_ptx_refuse(). */
static int (*const in_line[EBPF_HELPER_SLOTS])(struct ebpf_ptx_jit *j,
					       const struct ebpf_jit_note *note) = {
	[EBPF_SLOT_bpf_map_lookup_elem] = ebpf_ptx_map_lookup,
	[EBPF_SLOT_bpf_map_update_elem] = ebpf_ptx_map_update,
	[EBPF_SLOT_bpf_map_delete_elem] = ebpf_ptx_hash_delete,
	[EBPF_SLOT_bpf_map_push_elem] = ebpf_ptx_map_push,
	[EBPF_SLOT_bpf_ringbuf_output] = ebpf_ptx_ring_output,
	[EBPF_SLOT_bpf_perf_event_output] = ebpf_ptx_event_output,
	[EBPF_SLOT_bpf_ringbuf_reserve] = ebpf_ptx_ring_reserve,
	[EBPF_SLOT_bpf_ringbuf_submit] = ebpf_ptx_ring_submit,
	[EBPF_SLOT_bpf_ringbuf_discard] = ebpf_ptx_ring_discard,
	[EBPF_SLOT_bpf_puts] = ebpf_ptx_puts,
	[EBPF_SLOT_bpf_trace_printk] = ebpf_ptx_print_registers,
	[EBPF_SLOT_bpf_trace_vprintk] = ebpf_ptx_print,
	[EBPF_SLOT_bpf_ktime_get_ns] = ktime_get_ns,
	[EBPF_SLOT_bpf_get_globaltimer] = ktime_get_ns,
	[EBPF_SLOT_bpf_get_prandom_u32] = get_prandom,
	[EBPF_SLOT_bpf_loop] = loop,
	[EBPF_SLOT_bpf_iter_num_new] = iter_new,
	[EBPF_SLOT_bpf_iter_num_next] = iter_next,
	[EBPF_SLOT_bpf_iter_num_destroy] = iter_destroy,
	[EBPF_SLOT_gbpf_note] = add_note,
	[EBPF_SLOT_gbpf_hist_add] = ebpf_ptx_hist_add,
	[EBPF_SLOT_gbpf_atomic_add] = ebpf_ptx_atomic_add,
	[EBPF_SLOT_gbpf_key_add] = ebpf_ptx_key_add,
};

int ebpf_ptx_call(struct ebpf_ptx_jit *j, const struct ebpf_insn *i,
		  const struct ebpf_jit_note *note)
{
	int slot = i->src == EBPF_CALL_HELPER ? ebpf_helper_slot(i->imm) : -1;
	char to[] = "%r0";

	if (i->src == EBPF_CALL_LOCAL) {
		unsigned n = func_index(j, (uint32_t)((int64_t)j->pc + 1 + i->imm));

		if (j->checked) {
			call_checked(j, n);
		} else {
			call_plain(j, n, "%r1", "%r2", to);
		}
		return 0;
	}
	if (slot < 0 || (j->checked && slot != EBPF_SLOT_bpf_ktime_get_ns)) {
		return ebpf_ptx_refuse(j, "helper %d", i->imm);
	}
	if (!in_line[slot]) {
		return ebpf_ptx_device_helper(j, slot, i->imm);
	}
	return in_line[slot](j, note);
}

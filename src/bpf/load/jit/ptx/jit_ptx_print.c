/* PTX back end: bpf_printk. A line is pushed to the ring of the multiprocessor as numbers (struct
 * ebpf_print_record); no text is made on the GPU, and nothing waits. */
#include <errno.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"
#include "bpf/run/map/map_type.h"
#include "bpf/run/printk.h"

#define WORDS_BEFORE (offsetof(struct ebpf_print_record, args) / 8)

/* Sets %r2 to the word fmt: r1 points into the value of a constant map, or to a format on the stack
 * that the verifier knows, which then is the format of this call on every path. A call with a
 * format on the stack that it does not know is one that no path reaches. Returns 0, or -EINVAL
 * without emitting anything. */
static int format_word(struct ebpf_ptx_jit *j)
{
	const struct ebpf_ptx_value *at = &ebpf_ptx_known(j)->base;
	const struct ebpf_jit_options *o = j->plan->options;
	uint64_t word = (uint64_t)EBPF_PRINT_STACK << 32 | o->number << 16 | j->pc;

	if (o->texts && (at->kind == PTX_FRAME || ebpf_stack_text(o->texts, j->pc))) {
		ebpf_ptx_op(j, "mov.b64 %%r2, 0x%llx", (unsigned long long)word);
		return 0;
	}
	if (at->kind != PTX_VALUE || at->map >= j->plan->n_maps) {
		return -EINVAL;
	}
	ebpf_ptx_map_data(j, "%t0", at->map);
	ebpf_ptx_op(j, "sub.s64 %%r2, %%r1, %%t0");
	ebpf_ptx_op(j, "add.s64 %%r2, %%r2, 0x%llx", (unsigned long long)at->map << 32);
	return 0;
}

static void head(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	unsigned k = 0;

	ebpf_ptx_op(j, "mov.b64 %%t1, %%r2");
	ebpf_ptx_ring_word(j, m, k++);
	ebpf_ptx_op(j, "mov.u64 %%t1, %%globaltimer");
	ebpf_ptx_ring_word(j, m, k++);
	ebpf_ptx_op(j, "mov.b64 %%t1, %%c_kernel");
	ebpf_ptx_ring_word(j, m, k++);
	ebpf_ptx_op(j, "mov.b64 %%t1, %%c_block");
	ebpf_ptx_ring_word(j, m, k++);
	ebpf_ptx_op(j, "mov.b64 %%t1, {%%c_lane, %%c_warp}");
	ebpf_ptx_ring_word(j, m, k);
}

/* The arguments lie at r4; at: what is known of it. */
static void arguments(struct ebpf_ptx_jit *j, const struct ebpf_map *m,
		      const struct ebpf_ptx_value *at, unsigned bytes)
{
	int aligned = ebpf_ptx_aligned(at, 0, 8) == 1, place = 0;
	int in_frame = ebpf_ptx_frame_place(at, 0, bytes, 8, &place);

	for (unsigned k = 0; k < EBPF_PRINT_ARGS; k++) {
		if (8 * k >= bytes) {
			ebpf_ptx_op(j, "mov.b64 %%t1, 0");
		} else if (in_frame) {
			ebpf_ptx_frame_load(j, place + 8 * (int)k, 8, 0, "%t1");
		} else {
			ebpf_ptx_op(j, "add.s64 %%t0, %%r4, %u", 8 * k);
			ebpf_ptx_load(j, "%t1", 8, 0, aligned);
		}
		ebpf_ptx_ring_word(j, m, (unsigned)WORDS_BEFORE + k);
	}
}

/* Returns the ring for lines, or NULL. */
static const struct ebpf_map *ring_of(const struct ebpf_ptx_jit *j)
{
	uint32_t ring_1 = j->plan->options->print_map_1;
	const struct ebpf_map *m =
		ring_1 && ring_1 <= j->plan->n_maps ? &j->plan->maps[ring_1 - 1] : NULL;

	return j->hook && m && m->type == GBPF_MAP_SM_RING &&
			       m->value_bytes == sizeof(struct ebpf_print_record)
		       ? m
		       : NULL;
}

/* Pushes a line with the format at r1. The values are texts of operands: r1 and r0 hold what r3 and
 * r5 held before. */
static int push_line(struct ebpf_ptx_jit *j, const char *helper,
		     const char *const value[EBPF_PRINT_ARGS])
{
	const struct ebpf_map *m = ring_of(j);

	if (!m) {
		return ebpf_ptx_refuse(j, "%s without a ring for its lines", helper);
	}
	if (format_word(j) < 0) {
		return ebpf_ptx_refuse(j, "%s, unless its text is a constant", helper);
	}
	ebpf_ptx_op(j, "mov.b64 %%r1, %%r3"); /* r3 and r5 serve the ring */
	ebpf_ptx_op(j, "mov.b64 %%r0, %%r5");
	ebpf_ptx_ring_take(j, m);
	head(j, m);
	for (unsigned k = 0; k < EBPF_PRINT_ARGS; k++) {
		ebpf_ptx_op(j, "mov.b64 %%t1, %s", value[k]);
		ebpf_ptx_ring_word(j, m, (unsigned)WORDS_BEFORE + k);
	}
	ebpf_ptx_ring_commit(j, m);
	return 0;
}

/* r1 points to the format; r3 to r5 are arguments, as far as the format takes them. What a register
 * holds beyond these is stored, too, and not shown: it was computed from the tenant's own memory.
 */
int ebpf_ptx_print_registers(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	static const char *const kept[EBPF_PRINT_ARGS] = { "%r1", "%r4", "%r0", "0",
							   "0",	  "0",	 "0",	"0" };

	return push_line(j, "bpf_trace_printk", kept);
}

/* r1 points to a text without conversions. */
int ebpf_ptx_puts(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	static const char *const none[EBPF_PRINT_ARGS] = { "0", "0", "0", "0", "0", "0", "0", "0" };

	return push_line(j, "bpf_puts", none);
}

/* r1 points to the format, r3 to r4 bytes of arguments. */
int ebpf_ptx_print(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	const struct ebpf_ptx_fact *known = ebpf_ptx_known(j);
	const struct ebpf_map *m = ring_of(j);
	uint32_t bytes = 0;

	if (!m) {
		return ebpf_ptx_refuse(j, "bpf_trace_vprintk without a ring for its lines");
	}
	if (!ebpf_ptx_number_before(j->plan, j->pc, 4, &bytes) || format_word(j) < 0) {
		return ebpf_ptx_refuse(j, "bpf_trace_vprintk, unless its format is a constant and "
					  "the size of its arguments a number in the call");
	}
	ebpf_ptx_op(j, "mov.b64 %%r4, %%r3");
	ebpf_ptx_ring_take(j, m);
	head(j, m);
	arguments(j, m, &known->r3, bytes);
	ebpf_ptx_ring_commit(j, m);
	return 0;
}

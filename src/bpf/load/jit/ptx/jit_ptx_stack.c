/* Whether the stack of a function can be in registers: ptxas keeps local memory in memory even if
 * all places are constant. Loads, stores and the helpers that become instructions take words from
 * registers; any other use of an address needs memory. */
#include "base/compiler.h"
#include "bpf/load/jit/ptx/jit_ptx_flow_int.h"
#include "bpf/run/env.h"
#include "bpf/run/map/map_bucket.h"
#include "bpf/run/signature.h"

#define MAX_UNITS 64u /* of a value that is copied word by word */

unsigned ebpf_ptx_arity(int slot)
{
	static const uint8_t args[][5] = {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	{ ARG_##a1, ARG_##a2, ARG_##a3, ARG_##a4, ARG_##a5 },
#include "gbpf/hooks.def"
	};
	unsigned n = 0;

	while (n < 5 && (slot < 0 || args[slot][n] != ARG_NONE)) {
		n++;
	}
	return n;
}

/* Returns the number of bytes at argument k (1-5) that the helper's instructions can take from
 * registers, and the size of their accesses; 0: none. */
static unsigned memory_of(const struct ebpf_jit *plan, uint32_t pc, int slot, unsigned k,
			  const struct ebpf_ptx_value *handle, unsigned *ret_unit)
{
	const struct ebpf_map *m = handle->kind == PTX_HANDLE && handle->map < plan->n_maps
					   ? &plan->maps[handle->map]
					   : NULL;
	unsigned bytes = m ? m->value_bytes : 0;
	uint32_t args = 0;
	unsigned key = m && m->ops && ebpf_is_bucket_map(m) ? m->key_bytes : 4;

	*ret_unit = 8;
	switch (slot) {
	case EBPF_SLOT_bpf_map_lookup_elem:
	case EBPF_SLOT_bpf_map_delete_elem:
	case EBPF_SLOT_gbpf_key_add:
		*ret_unit = ebpf_ptx_value_unit(key);
		return k == 2 ? key : 0;
	case EBPF_SLOT_bpf_map_update_elem:
		*ret_unit = ebpf_ptx_value_unit(k == 2 ? key : bytes);
		return k == 2 ? key : k == 3 && bytes <= MAX_UNITS * *ret_unit ? bytes : 0;
	case EBPF_SLOT_bpf_map_push_elem:
	case EBPF_SLOT_bpf_ringbuf_output:
		return k == 2 ? bytes : 0;
	case EBPF_SLOT_bpf_ringbuf_submit:
		return k == 1 && handle->map < plan->n_maps ? plan->maps[handle->map].value_bytes
							    : 0;
	case EBPF_SLOT_bpf_ringbuf_discard:
		return 8;
	case EBPF_SLOT_bpf_trace_vprintk:
		return k == 3 && ebpf_ptx_number_before(plan, pc, 4, &args) ? args : 0;
	case EBPF_SLOT_bpf_get_block_idx:
	case EBPF_SLOT_bpf_get_block_dim:
	case EBPF_SLOT_bpf_get_thread_idx:
	case EBPF_SLOT_bpf_get_grid_dim:
		return 8;
	case EBPF_SLOT_bpf_iter_num_new:
	case EBPF_SLOT_bpf_iter_num_next:
	case EBPF_SLOT_bpf_iter_num_destroy:
		return k == 1 ? 8 : 0;
	default:
		return 0;
	}
}

/* Counts the words of an access, and returns whether its place is known. */
static int touch(const struct ebpf_ptx_value *at, int off, unsigned bytes, unsigned unit,
		 uint8_t *slots)
{
	int from;

	if (!ebpf_ptx_is_frame(at)) {
		return 1;
	}
	if (!bytes || !ebpf_ptx_frame_place(at, off, bytes, unit, &from)) {
		return 0;
	}
	*slots = (uint8_t)MAX(*slots, (unsigned)(7 - from) / 8);
	return 1;
}

static int prints(int slot)
{
	return slot == EBPF_SLOT_bpf_trace_printk || slot == EBPF_SLOT_bpf_trace_vprintk ||
	       slot == EBPF_SLOT_bpf_puts;
}

static int call_use(const struct ebpf_jit *plan, uint32_t pc, const struct ebpf_ptx_value *regs,
		    uint8_t *slots)
{
	const struct ebpf_insn *i = &plan->insns[pc];
	const struct ebpf_jit_note *note = &plan->notes[pc];
	int local = i->src == EBPF_CALL_LOCAL, slot = local ? -1 : ebpf_helper_slot(i->imm);
	uint32_t callee = local ? (uint32_t)((int64_t)pc + 1 + i->imm) : note->callee;

	for (unsigned k = 1; k <= ebpf_ptx_arity(slot); k++) {
		unsigned arg = local ? k : k - 1; /* of the function: r3 of bpf_loop is its r2 */
		unsigned unit = 8, bytes = memory_of(plan, pc, slot, k, &regs[1], &unit);

		if (slot == EBPF_SLOT_bpf_trace_printk && k >= 3) {
			continue; /* a number, or left over */
		}
		if (k == 1 && plan->options->texts && prints(slot)) {
			continue; /* the call names the format, and does not read it */
		}
		if (callee && (local || k == 3) &&
		    !(plan->funcs[plan->notes[callee].func].used >> arg & 1)) {
			continue; /* the function does not use it */
		}
		if (!touch(&regs[k], 0, bytes, unit, slots)) {
			return 0;
		}
	}
	return 1;
}

/* Arithmetic may move an address and add to it; a comparison with NULL needs none. */
static int is_harmless(const struct ebpf_insn *i)
{
	unsigned op = EBPF_OP(i->code);

	switch (EBPF_CLASS(i->code)) {
	case EBPF_ALU64:
		return op == EBPF_MOV ? !i->off : op == EBPF_ADD || op == EBPF_SUB;
	case EBPF_JMP:
		return (op == EBPF_JEQ || op == EBPF_JNE) && EBPF_SRC(i->code) == EBPF_K && !i->imm;
	default:
		return 0;
	}
}

int ebpf_ptx_stack_use(const struct ebpf_jit *plan, uint32_t pc, const struct ebpf_ptx_value *regs,
		       uint8_t *slots_of)
{
	const struct ebpf_insn *i = &plan->insns[pc];
	unsigned class = EBPF_CLASS(i->code), reads = ebpf_jit_uses_of(i).reads;
	uint8_t *slots = &slots_of[plan->notes[pc].func];

	if (i->code == (EBPF_JMP | EBPF_CALL)) {
		return call_use(plan, pc, regs, slots);
	}
	if (class == EBPF_LDX || class == EBPF_ST || class == EBPF_STX) {
		unsigned base = class == EBPF_LDX ? i->src : i->dst, size = ebpf_access_bytes(i);

		if (!touch(&regs[base], i->off, size, size, slots)) {
			return 0;
		}
		reads = class == EBPF_STX ? (reads & ~(1u << base)) | 1u << i->src : 0;
	}
	for (unsigned r = 0; r < 11 && !is_harmless(i); r++) {
		if ((reads >> r & 1) && ebpf_ptx_is_frame(&regs[r])) {
			return 0;
		}
	}
	return 1;
}

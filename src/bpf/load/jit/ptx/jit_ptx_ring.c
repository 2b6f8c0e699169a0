/* PTX back end: bpf_map_push_elem on the ring of the multiprocessor. See map_sm_ring.c for the
 * memory and why no barrier is needed. */
#include <errno.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"
#include "bpf/run/map/map_sm_ring.h"
#include "bpf/run/map/map_type.h"

/* Takes a number from the counter: it is in %t3 and 1 + it in %r3; %r1 is the slot. */
static void take_slot(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	ebpf_ptx_map_data(j, "%t0", m->index);
	ebpf_ptx_instance(j, m);
	ebpf_ptx_op(j, "cvta.to.global.u64 %%t0, %%t0");
	ebpf_ptx_op(j, "atom.relaxed.gpu.global.add.u64 %%t3, [%%t0], 1");
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%t3");
	ebpf_ptx_op(j, "and.b32 %%w0, %%w0, %u", m->max_entries - 1);
	ebpf_ptx_op(j, "mad.wide.u32 %%r1, %%w0, %u, %%t0", m->stride);
	ebpf_ptx_op(j, "add.s64 %%r3, %%t3, 1");
}

/* Copies the value at r2 and sums it up. */
static void copy_words(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	const struct ebpf_ptx_value *from = &ebpf_ptx_known(j)->r2;
	int aligned = ebpf_ptx_aligned(from, 0, 8) == 1, place = 0;
	int in_frame = ebpf_ptx_frame_place(from, 0, m->value_bytes, 8, &place);

	for (unsigned k = 0; k < m->value_bytes / 8; k++) {
		if (in_frame) {
			ebpf_ptx_frame_load(j, place + 8 * (int)k, 8, 0, "%t1");
		} else {
			ebpf_ptx_op(j, "add.s64 %%t0, %%r2, %u", 8 * k);
			ebpf_ptx_load(j, "%t1", 8, 0, aligned);
		}
		ebpf_ptx_op(j, "st.relaxed.gpu.global.u64 [%%r1+%u], %%t1",
			    m->elem_off + m->value_off + 8 * k);
		ebpf_ptx_op(j, "mad.lo.s64 %%r3, %%t1, 0x%llx, %%r3",
			    (unsigned long long)EBPF_SM_RING_FACTOR(k));
	}
}

/* r2 points to the value, r3 holds flags: 0, or BPF_EXIST, with which a QUEUE overwrites, too. */
int ebpf_ptx_map_push(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	const struct ebpf_ptx_value *handle = &ebpf_ptx_known(j)->base;
	unsigned bad = ++j->labels, end = ++j->labels;
	const struct ebpf_map *m;

	if (handle->kind != PTX_HANDLE || handle->map >= j->plan->n_maps ||
	    j->plan->maps[handle->map].type != GBPF_MAP_SM_RING) {
		return ebpf_ptx_refuse(j, "bpf_map_push_elem, except to a known SM_RING");
	}
	m = &j->plan->maps[handle->map];
	ebpf_ptx_op(j, "and.b64 %%t0, %%r3, -3");
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%t0, 0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", bad);
	take_slot(j, m);
	copy_words(j, m);
	ebpf_ptx_op(j, "st.relaxed.gpu.global.u64 [%%r1+%u], %%r3", m->elem_off);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, bad);
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -EINVAL);
	ebpf_ptx_count_error(j);
	ebpf_ptx_label(j, end);
	return 0;
}

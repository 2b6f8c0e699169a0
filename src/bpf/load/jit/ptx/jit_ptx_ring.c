/* PTX back end: bpf_map_push_elem, bpf_ringbuf_output and bpf_perf_event_output on the ring of the
 * multiprocessor, and records that are filled first. See map_sm_ring.c for the memory and why no
 * barrier is needed.
 *
 * A record that a program has reserved is memory of its thread, a part of the frame or registers,
 * until it is submitted: that is a push. So a record takes no number and no place in the ring
 * before it is whole, and a thread that ends between leaves nothing there. */
#include <errno.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"
#include "bpf/run/map/map_sm_ring.h"
#include "bpf/run/map/map_type.h"

void ebpf_ptx_ring_take(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	ebpf_ptx_map_data(j, "%t0", m->index);
	ebpf_ptx_instance(j, m);
	ebpf_ptx_op(j, "cvta.to.global.u64 %%t0, %%t0");
	ebpf_ptx_op(j, "atom.relaxed.gpu.global.add.u64 %%t3, [%%t0], 1");
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%t3");
	ebpf_ptx_op(j, "and.b32 %%w0, %%w0, %u", m->max_entries - 1);
	ebpf_ptx_op(j, "mad.wide.u32 %%r5, %%w0, %u, %%t0", m->stride);
	ebpf_ptx_op(j, "add.s64 %%r3, %%t3, 1");
}

void ebpf_ptx_ring_word(struct ebpf_ptx_jit *j, const struct ebpf_map *m, unsigned k)
{
	ebpf_ptx_op(j, "st.relaxed.gpu.global.u64 [%%r5+%u], %%t1",
		    m->elem_off + m->value_off + 8 * k);
	ebpf_ptx_op(j, "mad.lo.s64 %%r3, %%t1, 0x%llx, %%r3",
		    (unsigned long long)EBPF_SM_RING_FACTOR(k));
}

void ebpf_ptx_ring_commit(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	ebpf_ptx_op(j, "st.relaxed.gpu.global.u64 [%%r5+%u], %%r3", m->elem_off);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
}

/* Copies the value at a register and sums it up. at: what is known of the register. */
static void copy_words(struct ebpf_ptx_jit *j, const struct ebpf_map *m, unsigned reg,
		       const struct ebpf_ptx_value *at)
{
	int aligned = ebpf_ptx_aligned(at, 0, 8) == 1, place = 0;
	int in_frame = ebpf_ptx_frame_place(at, 0, m->value_bytes, 8, &place);

	for (unsigned k = 0; k < m->value_bytes / 8; k++) {
		if (in_frame) {
			ebpf_ptx_frame_load(j, place + 8 * (int)k, 8, 0, "%t1");
		} else {
			ebpf_ptx_op(j, "add.s64 %%t0, %%r%u, %u", reg, 8 * k);
			ebpf_ptx_load(j, "%t1", 8, 0, aligned);
		}
		ebpf_ptx_ring_word(j, m, k);
	}
}

static const struct ebpf_map *ring_of(const struct ebpf_ptx_jit *j,
				      const struct ebpf_ptx_value *handle)
{
	const struct ebpf_map *m = handle->kind == PTX_HANDLE && handle->map < j->plan->n_maps
					   ? &j->plan->maps[handle->map]
					   : NULL;

	return m && m->type == GBPF_MAP_SM_RING ? m : NULL;
}

/* Pushes the value at a register; %p0: the arguments are not valid. */
static int push(struct ebpf_ptx_jit *j, const struct ebpf_map *m, unsigned reg,
		const struct ebpf_ptx_value *at)
{
	unsigned bad = ++j->labels, end = ++j->labels;

	ebpf_ptx_op(j, "@%%p0 bra $M%u", bad);
	ebpf_ptx_ring_take(j, m);
	copy_words(j, m, reg, at);
	ebpf_ptx_ring_commit(j, m);
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, bad);
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -EINVAL);
	ebpf_ptx_count_error(j);
	ebpf_ptx_label(j, end);
	return 0;
}

/* r2 points to the value, r3 holds flags: 0, or BPF_EXIST, with which a QUEUE overwrites, too. */
int ebpf_ptx_map_push(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	const struct ebpf_ptx_fact *known = ebpf_ptx_known(j);
	const struct ebpf_map *m = ring_of(j, &known->base);

	if (!m) {
		return ebpf_ptx_refuse(j, "bpf_map_push_elem, except to a known SM_RING");
	}
	ebpf_ptx_op(j, "and.b64 %%t0, %%r3, -3");
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%t0, 0");
	return push(j, m, 2, &known->r2);
}

/* r2 points to r3 bytes, r4 holds flags. Values of a ring have one size. */
int ebpf_ptx_ring_output(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	const struct ebpf_ptx_fact *known = ebpf_ptx_known(j);
	const struct ebpf_map *m = ring_of(j, &known->base);

	if (!m) {
		return ebpf_ptx_refuse(j, "bpf_ringbuf_output, except to a known SM_RING");
	}
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%r4, 0");
	ebpf_ptx_op(j, "setp.ne.or.s64 %%p0, %%r3, %u, %%p0", m->value_bytes);
	return push(j, m, 2, &known->r2);
}

/* r1 is the context, r2 the map, r3 flags, r4 points to r5 bytes. */
int ebpf_ptx_event_output(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	static const struct ebpf_ptx_value anywhere = { .kind = PTX_ANY };
	const struct ebpf_map *m = ring_of(j, &ebpf_ptx_known(j)->r2);

	if (!m) {
		return ebpf_ptx_refuse(j, "bpf_perf_event_output, except to a known SM_RING");
	}
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%r5, %u", m->value_bytes);
	return push(j, m, 4, &anywhere);
}

/* ---- records ---- */

/* r2 is the size, which the verifier has compared with that of the values; r3 holds flags: 0. */
int ebpf_ptx_ring_reserve(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	const struct ebpf_map *m = ring_of(j, &ebpf_ptx_known(j)->base);
	int at = (int)ebpf_ptx_frame_bytes(j);
	unsigned bad = ++j->labels, end = ++j->labels;

	if (!m) {
		return ebpf_ptx_refuse(j, "bpf_ringbuf_reserve, except in a known SM_RING");
	}
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%r3, 0");
	ebpf_ptx_op(j, "setp.ne.or.s64 %%p0, %%r2, %u, %%p0", m->value_bytes);
	ebpf_ptx_op(j, "@%%p0 bra $M%u", bad);
	ebpf_ptx_op(j, "mov.b64 %%t1, 0");
	for (unsigned k = 0; k < m->value_bytes; k += 8) {
		ebpf_ptx_frame_store(j, (int)k - at, 8, "%t1");
	}
	ebpf_ptx_op(j, "add.s64 %%r0, %%r10, %d", -at);
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, bad);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	ebpf_ptx_count_error(j);
	ebpf_ptx_label(j, end);
	return 0;
}

/* r1 points to a record, r2 holds flags, which are ignored: the record must not stay. */
int ebpf_ptx_ring_submit(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	const struct ebpf_ptx_value *at = &ebpf_ptx_known(j)->base;
	const struct ebpf_map *m =
		at->kind == PTX_FRAME && at->map < j->plan->n_maps ? &j->plan->maps[at->map] : NULL;

	if (!m || m->type != GBPF_MAP_SM_RING) {
		return ebpf_ptx_refuse(j, "bpf_ringbuf_submit, unless the function reserved the "
					  "record, in a known SM_RING");
	}
	ebpf_ptx_ring_take(j, m);
	copy_words(j, m, 1, at);
	ebpf_ptx_ring_commit(j, m);
	return 0;
}

int ebpf_ptx_ring_discard(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	return 0;
}

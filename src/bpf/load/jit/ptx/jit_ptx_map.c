/* PTX back end: helpers on maps as instructions. The handle of a map is the address of its entry in
 * the environment; a call whose map the plan does not know compares the handle with those of all
 * maps of the program. */
#include <errno.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"
#include "bpf/run/map/map_type.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

enum { UPDATE_NOEXIST = 1, UPDATE_EXIST = 2 };

/* An operation on one map. It leaves its result in r0 and branches to fail after an error that the
 * program is to blame for; otherwise it falls through. */
typedef void (*map_operation)(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note,
			      unsigned index, unsigned fail);

/* Returns whether element i begins at data + i * stride, or there in an instance. */
static int is_indexed(const struct ebpf_map *m)
{
	return (m->type == GBPF_MAP_ARRAY && !(m->flags & GBPF_F_EPOCH)) ||
	       m->type == GBPF_MAP_HISTOGRAM || m->type == GBPF_MAP_SM_ARRAY ||
	       m->type == GBPF_MAP_WARP_ARRAY || m->type == GBPF_MAP_WARP_SCRATCH;
}

const char *ebpf_ptx_map_param(const struct ebpf_ptx_jit *j, unsigned map)
{
	const struct ebpf_map *m = &j->plan->maps[map];

	return m->type == GBPF_MAP_WARP_SCRATCH	   ? "own"
	       : m->flags & (uint32_t)GBPF_F_DEFER ? "sum"
						   : "map";
}

void ebpf_ptx_map_data(struct ebpf_ptx_jit *j, const char *to, unsigned map)
{
	const char *how = j->hook ? "ld.global.nc.u64" : "ld.u64";

	if (ebpf_ptx_has_map_params(j)) {
		j->uses |= UINT64_C(1) << map;
		ebpf_ptx_op(j, "ld.param.u64 %s, [%s%u]", to, ebpf_ptx_map_param(j, map), map);
		return;
	}
	if (j->plan->maps[map].type == GBPF_MAP_WARP_SCRATCH && !j->lost) {
		j->lost = j->pc + 1;
	}
	ebpf_ptx_op(j, "%s %s, [%s+%u]", how, to, j->hook ? "%genv" : "%env",
		    PTX_ENV(maps) + 8 * map);
}

/* Returns the map of the call, or JIT_NO_MAP. */
static unsigned map_of(const struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	const struct ebpf_ptx_value *handle = &ebpf_ptx_known(j)->base;

	return note->map == JIT_NO_MAP && handle->kind == PTX_HANDLE ? handle->map : note->map;
}

/* Emits the operation for the map of the call: the one that is known, or the one whose handle r1
 * is. A handle of none gives 0; the verifier lets no such program pass. */
static int on_map(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note, map_operation operation,
		  unsigned fail)
{
	unsigned end = ++j->labels, map = map_of(j, note);

	if (map < j->plan->n_maps) {
		if (!is_indexed(&j->plan->maps[map])) {
			return ebpf_ptx_refuse(j, "a map that is not a plain array");
		}
		operation(j, note, map, fail);
		return 0;
	}
	for (unsigned k = 0; k < j->plan->n_maps; k++) {
		unsigned other = ++j->labels;

		if (j->plan->maps[k].type == GBPF_MAP_WARP_SCRATCH && !ebpf_ptx_has_map_params(j)) {
			continue; /* the verifier lets no function look it up */
		}
		if (!is_indexed(&j->plan->maps[k])) {
			return ebpf_ptx_refuse(j, "a map that is not a plain array");
		}
		ebpf_ptx_op(j, "add.s64 %%t0, %%env, %u", PTX_ENV(maps) + 8 * k);
		ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%r1, %%t0");
		ebpf_ptx_op(j, "@%%p0 bra $M%u", other);
		operation(j, note, k, fail);
		ebpf_ptx_op(j, "bra $M%u", end);
		ebpf_ptx_label(j, other);
	}
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	ebpf_ptx_label(j, end);
	return 0;
}

/* Loads the index that is the key into %w0. */
static void load_key(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	const struct ebpf_ptx_value *at = &ebpf_ptx_known(j)->r2;
	int place;

	if (note->key == KEY_CONSTANT) {
		ebpf_ptx_op(j, "mov.b32 %%w0, 0x%x", note->key_value);
	} else if (note->key == KEY_IN_REGISTER) {
		ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%r%u", note->key_reg);
	} else {
		if (ebpf_ptx_frame_place(at, 0, 4, 4, &place)) {
			ebpf_ptx_frame_load(j, place, 4, 0, "%t1");
		} else {
			ebpf_ptx_op(j, "mov.b64 %%t0, %%r2");
			ebpf_ptx_load(j, "%t1", 4, 0, ebpf_ptx_aligned(at, 0, 4) == 1);
		}
		ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%t1");
	}
}

void ebpf_ptx_instance(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	ebpf_ptx_op(j, "mov.u32 %%w1, %%smid");
	ebpf_ptx_op(j, "and.b32 %%w1, %%w1, %u", EBPF_SM_SLOTS - 1);
	if (m->type == GBPF_MAP_WARP_ARRAY) {
		ebpf_ptx_op(j, "mov.u32 %%w2, %%warpid");
		ebpf_ptx_op(j, "and.b32 %%w2, %%w2, %u", EBPF_WARP_SLOTS - 1);
		ebpf_ptx_op(j, "mad.lo.u32 %%w1, %%w1, %u, %%w2", EBPF_WARP_SLOTS);
	}
	ebpf_ptx_op(j, "mad.wide.u32 %%t0, %%w1, %u, %%t0", m->copy_bytes);
}

/* Computes the address of the element %w0 into a register. */
static void element(struct ebpf_ptx_jit *j, unsigned index, const char *to)
{
	const struct ebpf_map *m = &j->plan->maps[index];

	ebpf_ptx_map_data(j, "%t0", index);
	/* The parameter of one in shared memory is the address of the warp's instance. */
	if (m->type == GBPF_MAP_SM_ARRAY || m->type == GBPF_MAP_WARP_ARRAY) {
		ebpf_ptx_instance(j, m);
	}
	ebpf_ptx_op(j, "mad.wide.u32 %s, %%w0, %u, %%t0", to, m->stride);
}

/* Returns a number that the key is less than; 0: not known. */
static uint32_t key_below(const struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	if (note->key == KEY_CONSTANT) {
		return note->key_value < UINT32_MAX ? note->key_value + 1 : 0;
	}
	return ebpf_ptx_known(j)->key_below;
}

/* Returns whether an index below this is surely one of the map. */
static int is_within(const struct ebpf_ptx_jit *j, uint32_t below, unsigned index)
{
	return below && below <= j->plan->maps[index].max_entries;
}

/* Branches to fail with -ENOENT if %w0 is no index of the map. */
static void test_index(struct ebpf_ptx_jit *j, uint32_t below, unsigned index, unsigned fail)
{
	if (!is_within(j, below, index)) {
		ebpf_ptx_op(j, "mov.b64 %%r0, %d", -ENOENT);
		ebpf_ptx_op(j, "setp.ge.u32 %%p0, %%w0, %u", j->plan->maps[index].max_entries);
		ebpf_ptx_op(j, "@%%p0 bra $M%u", fail);
	}
}

/* Returns the instruction behind a look-up of a known map if it compares the result with NULL and
 * no other path comes to it, else NULL. */
static const struct ebpf_insn *null_test(const struct ebpf_ptx_jit *j,
					 const struct ebpf_jit_note *note)
{
	const struct ebpf_insn *i = &j->plan->insns[j->pc + 1];
	unsigned op = EBPF_OP(i->code);

	if (map_of(j, note) >= j->plan->n_maps || note[1].flags & (JIT_TARGET | JIT_FUNC) ||
	    i->code != (EBPF_JMP | EBPF_K | op) || i->dst != 0 || i->imm != 0) {
		return NULL;
	}
	return op == EBPF_JEQ || op == EBPF_JNE ? i : NULL;
}

/* A look-up and the test of its result are one branch. */
static void lookup(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note, unsigned index,
		   UNUSED unsigned fail)
{
	const struct ebpf_insn *test = null_test(j, note);
	uint32_t target = test ? ebpf_jit_jump_target(test, j->pc + 1) : 0;
	unsigned end = ++j->labels;
	int to_end = !test || EBPF_OP(test->code) == EBPF_JNE;

	load_key(j, note);
	if (!is_within(j, key_below(j, note), index)) {
		ebpf_ptx_op(j, "mov.b64 %%r0, 0");
		ebpf_ptx_op(j, "setp.ge.u32 %%p0, %%w0, %u", j->plan->maps[index].max_entries);
		ebpf_ptx_op(j, "@%%p0 bra $%c%u", to_end ? 'M' : 'L', to_end ? end : target);
	}
	element(j, index, "%r0");
	if (test) {
		j->joined = j->pc + 1;
		if (to_end) {
			ebpf_ptx_op(j, "bra $L%u", target);
		}
	}
	ebpf_ptx_label(j, end);
}

/* ---- maps with a value for each block or thread ---- */

uint32_t ebpf_ptx_own_map(const struct ebpf_ptx_jit *j)
{
	const struct ebpf_ptx_value *handle = &ebpf_ptx_known(j)->base;
	const struct ebpf_map *m = handle->kind == PTX_HANDLE && handle->map < j->plan->n_maps
					   ? &j->plan->maps[handle->map]
					   : NULL;

	return m && (m->type == GBPF_MAP_BLOCK_ARRAY || m->type == GBPF_MAP_GPU_THREAD_ARRAY)
		       ? m->type
		       : 0;
}

/* Sets %t1 to the number of the thread in the grid. A grid has fewer than 2^63 threads. */
static void thread_number(struct ebpf_ptx_jit *j)
{
	ebpf_ptx_op(j, "mad.lo.u32 %%w1, %%c_thread_z, %%c_threads_y, %%c_thread_y");
	ebpf_ptx_op(j, "mad.lo.u32 %%w1, %%w1, %%c_threads_x, %%c_thread_x");
	ebpf_ptx_op(j, "mul.lo.u32 %%w2, %%c_threads_x, %%c_threads_y");
	ebpf_ptx_op(j, "mul.lo.u32 %%w2, %%w2, %%c_threads_z");
	ebpf_ptx_op(j, "cvt.u64.u32 %%t1, %%w2");
	ebpf_ptx_op(j, "mul.lo.u64 %%t1, %%t1, %%c_block");
	ebpf_ptx_op(j, "cvt.u64.u32 %%t2, %%w1");
	ebpf_ptx_op(j, "add.s64 %%t1, %%t1, %%t2");
}

/* Counts a look-up beyond the declared maximum, since what the program would have stored is
 * missing. */
static int own_lookup(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	unsigned index = ebpf_ptx_known(j)->base.map, good = ++j->labels, end = ++j->labels;
	const struct ebpf_map *m = &j->plan->maps[index];

	if (!j->hook) {
		return ebpf_ptx_refuse(j, "a map with values of blocks or threads");
	}
	load_key(j, note);
	if (m->type == GBPF_MAP_BLOCK_ARRAY) {
		ebpf_ptx_op(j, "mov.b64 %%t1, %%c_block");
	} else {
		thread_number(j);
	}
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	ebpf_ptx_op(j, "setp.ne.u32 %%p0, %%w0, 0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", end);
	ebpf_ptx_map_data(j, "%t0", index);
	ebpf_ptx_op(j, "setp.lt.u64 %%p0, %%t1, %u", m->max_entries);
	ebpf_ptx_op(j, "@%%p0 bra $M%u", good);
	ebpf_ptx_op(j, "cvta.to.global.u64 %%t0, %%t0");
	ebpf_ptx_op(j, "mov.b64 %%t1, 1");
	ebpf_ptx_op(j, "red.relaxed.gpu.global.add.u64 [%%t0+%u], %%t1", m->head_off);
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, good);
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%t1");
	ebpf_ptx_op(j, "mad.wide.u32 %%r0, %%w0, %u, %%t0", m->stride);
	ebpf_ptx_label(j, end);
	return 0;
}

int ebpf_ptx_map_lookup(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	if (ebpf_ptx_own_map(j)) {
		return own_lookup(j, note);
	}
	return ebpf_ptx_is_hash(j) ? ebpf_ptx_hash_lookup(j) : on_map(j, note, lookup, 0);
}

void ebpf_ptx_copy_value(struct ebpf_ptx_jit *j, unsigned bytes)
{
	unsigned size = ebpf_ptx_value_unit(bytes), top = ++j->labels;
	const struct ebpf_ptx_value *from = &ebpf_ptx_known(j)->r3;
	int aligned = ebpf_ptx_aligned(from, 0, size) == 1, place = 0;
	int in_frame = ebpf_ptx_frame_place(from, 0, bytes, size, &place);

	for (unsigned at = 0; at < bytes && (in_frame || (aligned && bytes <= 8 * size));
	     at += size) {
		if (in_frame) {
			ebpf_ptx_frame_load(j, place + (int)at, size, 0, "%t1");
		} else {
			ebpf_ptx_op(j, "ld.u%u %%t1, [%%r3+%u]", 8 * size, at);
		}
		ebpf_ptx_op(j, "st.u%u [%%r1+%u], %%t1", 8 * size, at);
	}
	if (in_frame || (aligned && bytes <= 8 * size)) {
		return;
	}
	ebpf_ptx_op(j, "mov.b64 %%r5, %u", bytes / size);
	ebpf_ptx_label(j, top);
	ebpf_ptx_op(j, "mov.b64 %%t0, %%r3");
	ebpf_ptx_load(j, "%t1", size, 0, aligned);
	ebpf_ptx_op(j, "st.u%u [%%r1], %%t1", 8 * size);
	ebpf_ptx_op(j, "add.s64 %%r1, %%r1, %u", size);
	ebpf_ptx_op(j, "add.s64 %%r3, %%r3, %u", size);
	ebpf_ptx_op(j, "sub.s64 %%r5, %%r5, 1");
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%r5, 0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", top);
}

/* As the update of the map's type. */
static void update(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note, unsigned index,
		   unsigned fail)
{
	const struct ebpf_map *m = &j->plan->maps[index];

	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -EINVAL);
	if (m->type == GBPF_MAP_HISTOGRAM) {
		ebpf_ptx_op(j, "bra $M%u", fail);
		return;
	}
	ebpf_ptx_op(j, "setp.gt.u64 %%p0, %%r4, %u", UPDATE_EXIST);
	ebpf_ptx_op(j, "@%%p0 bra $M%u", fail);
	if (m->flags & GBPF_F_RDONLY) {
		ebpf_ptx_op(j, "mov.b64 %%r0, %d", -EPERM);
		ebpf_ptx_op(j, "bra $M%u", fail);
		return;
	}
	load_key(j, note);
	test_index(j, key_below(j, note), index, fail);
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", -EEXIST);
	ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%r4, %u", UPDATE_NOEXIST);
	ebpf_ptx_op(j, "@%%p0 bra $M%u", fail);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
	element(j, index, "%r1");
	ebpf_ptx_copy_value(j, m->value_bytes);
}

/* Emits an operation whose errors count as helper errors. */
static int with_errors(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note,
		       map_operation operation)
{
	unsigned fail = ++j->labels, end = ++j->labels;
	int err = on_map(j, note, operation, fail);

	if (!err) {
		ebpf_ptx_op(j, "bra $M%u", end);
		ebpf_ptx_label(j, fail);
		ebpf_ptx_count_error(j);
		ebpf_ptx_label(j, end);
	}
	return err;
}

int ebpf_ptx_map_update(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	return ebpf_ptx_is_hash(j) ? ebpf_ptx_hash_update(j) : with_errors(j, note, update);
}

/* Adds %t1 to the u64 at %r1, which is in the map. */
static void add_to(struct ebpf_ptx_jit *j, unsigned index)
{
	const struct ebpf_ptx_value at = { .kind = PTX_VALUE, .map = (uint8_t)index };
	const char *space = ebpf_ptx_space(j, &at);

	if (*space) {
		ebpf_ptx_op(j, "cvta.to%s.u64 %%r1, %%r1", space);
	}
	ebpf_ptx_op(j, "red.relaxed%s%s.add.u64 [%%r1], %%t1", ebpf_ptx_scope(j, &at), space);
}

/* As ebpf_map_hist_add(): r2 is the row, r3 the value. */
static void hist_add(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note,
		     unsigned index, unsigned fail)
{
	const struct ebpf_map *m = &j->plan->maps[index];
	int error = m->type != GBPF_MAP_HISTOGRAM ? -EINVAL : m->flags & GBPF_F_RDONLY ? -EPERM : 0;

	if (error) {
		ebpf_ptx_op(j, "mov.b64 %%r0, %d", error);
		ebpf_ptx_op(j, "bra $M%u", fail);
		return;
	}
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%r2");
	test_index(j, ebpf_ptx_known(j)->r2.below, index, fail);
	element(j, index, "%r1");
	ebpf_ptx_op(j, "clz.b64 %%w1, %%r3");
	ebpf_ptx_op(j, "sub.s32 %%w1, 64, %%w1");
	ebpf_ptx_op(j, "min.u32 %%w1, %%w1, %u", EBPF_HIST_BUCKETS - 1);
	ebpf_ptx_op(j, "mad.wide.u32 %%r1, %%w1, 8, %%r1");
	ebpf_ptx_op(j, "mov.b64 %%t1, 1");
	add_to(j, index);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
}

/* r2 is the index, r3 what is added. */
static void atomic_add(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note,
		       unsigned index, unsigned fail)
{
	const struct ebpf_map *m = &j->plan->maps[index];
	int error = m->type == GBPF_MAP_HISTOGRAM || m->value_bytes < 8 ? -EINVAL
		    : m->flags & GBPF_F_RDONLY				? -EPERM
									: 0;

	if (error) {
		ebpf_ptx_op(j, "mov.b64 %%r0, %d", error);
		ebpf_ptx_op(j, "bra $M%u", fail);
		return;
	}
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%r2");
	test_index(j, ebpf_ptx_known(j)->r2.below, index, fail);
	element(j, index, "%r1");
	ebpf_ptx_op(j, "mov.b64 %%t1, %%r3");
	add_to(j, index);
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
}

int ebpf_ptx_hist_add(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	return with_errors(j, note, hist_add);
}

int ebpf_ptx_atomic_add(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note)
{
	return with_errors(j, note, atomic_add);
}

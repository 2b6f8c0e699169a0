/* PTX back end: helpers of programs inside kernels. Values that the kernel's body must compute
 * (indices of blocks, which a preemptible clone replaces, and the lanes of the site) come from
 * context fields; the rest is read where the helper is called. */
#include <stdio.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"
#include "bpf/run/map/map_type.h"

#define MAX_FIELDS 4

/* A helper: the fields that it reads, and its emitter. */
struct device_helper {
	void (*emit)(struct ebpf_ptx_jit *j, const struct device_helper *h);
	const char *fields[MAX_FIELDS];
	const char *op; /* of a reduction */
	int warp_wide;
};

/* ---- indices ---- */

static void one_field(struct ebpf_ptx_jit *j, const struct device_helper *h)
{
	ebpf_ptx_op(j, "cvt.u64.u32 %%r0, %%c_%s", h->fields[0]);
}

/* Stores the three fields to r1, r2 and r3. */
static void three_fields(struct ebpf_ptx_jit *j, const struct device_helper *h)
{
	const struct ebpf_ptx_fact *known = ebpf_ptx_known(j);
	const struct ebpf_ptx_value *at[] = { &known->base, &known->r2, &known->r3 };

	for (unsigned k = 0; k < 3; k++) {
		int place;

		ebpf_ptx_op(j, "cvt.u64.u32 %%t1, %%c_%s", h->fields[k]);
		if (ebpf_ptx_frame_place(at[k], 0, 8, 8, &place)) {
			ebpf_ptx_frame_store(j, place, 8, "%t1");
		} else {
			ebpf_ptx_op(j, "mov.b64 %%t0, %%r%u", k + 1);
			ebpf_ptx_store(j, 8, ebpf_ptx_aligned(at[k], 0, 8) == 1);
		}
	}
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
}

int ebpf_ptx_number_before(const struct ebpf_jit *plan, uint32_t pc, unsigned reg, uint32_t *ret)
{
	for (; pc-- > 0 && !(plan->notes[pc + 1].flags & (JIT_TARGET | JIT_FUNC));) {
		const struct ebpf_insn *i = &plan->insns[pc];
		unsigned class = EBPF_CLASS(i->code), op = EBPF_OP(i->code);

		if ((class == EBPF_JMP || class == EBPF_JMP32) &&
		    (op == EBPF_CALL || op == EBPF_EXIT || op == EBPF_JA)) {
			return 0;
		}
		if (ebpf_jit_uses_of(i).writes >> reg & 1) {
			*ret = (uint32_t)i->imm;
			return i->code == (EBPF_ALU64 | EBPF_MOV | EBPF_K) ||
			       i->code == (EBPF_ALU | EBPF_MOV | EBPF_K);
		}
	}
	return 0;
}

int ebpf_ptx_reads_arg(int slot)
{
	return slot == EBPF_SLOT_gbpf_arg || slot == EBPF_SLOT_gbpf_param ||
	       slot == EBPF_SLOT_gbpf_param_bytes;
}

/* Names the parameter of the program's functions that has the argument. */
static void name_arg(struct ebpf_ptx_arg *a)
{
	int wide = a->slot == EBPF_SLOT_gbpf_param || a->bytes == 8;

	if (a->slot == EBPF_SLOT_gbpf_arg) {
		snprintf(a->name, sizeof(a->name), "arg_%u_%u", a->offset, a->bytes);
	} else {
		snprintf(a->name, sizeof(a->name), wide ? "param_%u" : "param_bytes_%u", a->offset);
	}
	a->field = (struct ebpf_ptx_field){ a->name, 0, wide ? 8 : 4 };
}

int ebpf_ptx_need_arg(struct ebpf_ptx_jit *j, int slot)
{
	uint32_t offset = 0, bytes = 0;
	struct ebpf_ptx_arg *a;

	if (!ebpf_ptx_number_before(j->plan, j->pc, 1, &offset) ||
	    (slot == EBPF_SLOT_gbpf_arg && !ebpf_ptx_number_before(j->plan, j->pc, 2, &bytes))) {
		return ebpf_ptx_refuse(j, slot == EBPF_SLOT_gbpf_arg
						  ? "gbpf_arg, unless its offset and size are "
						    "numbers in the call"
						  : "gbpf_param, unless its index is a number in "
						    "the call");
	}
	for (unsigned k = 0; k < j->n_args; k++) {
		if (j->args[k].slot == slot && j->args[k].offset == offset &&
		    j->args[k].bytes == bytes) {
			return (int)k;
		}
	}
	if (j->n_args == EBPF_PTX_ARGS_MAX) {
		return ebpf_ptx_refuse(j, "more than %u arguments of the kernel",
				       EBPF_PTX_ARGS_MAX);
	}
	a = &j->args[j->n_args];
	a->slot = slot;
	a->offset = offset;
	a->bytes = bytes;
	name_arg(a);
	return (int)j->n_args++;
}

static void argument_of(struct ebpf_ptx_jit *j, int slot)
{
	int k = ebpf_ptx_need_arg(j, slot);

	if (k >= 0) {
		ebpf_ptx_op(j,
			    j->args[k].field.bytes < 8 ? "cvt.u64.u32 %%r0, %%c_%s"
						       : "mov.b64 %%r0, %%c_%s",
			    j->args[k].name);
	}
}

static void argument(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	argument_of(j, EBPF_SLOT_gbpf_arg);
}

static void parameter(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	argument_of(j, EBPF_SLOT_gbpf_param);
}

static void parameter_bytes(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	argument_of(j, EBPF_SLOT_gbpf_param_bytes);
}

/* ---- time, chance and memory ---- */

static void read_clock(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	ebpf_ptx_op(j, "mov.u64 %%r0, %%clock64");
}

/* No state is shared: the clock and the place of the thread differ between any two calls. The seed
 * makes them unpredictable; the steps are those of splitmix64. */
void ebpf_ptx_device_random(struct ebpf_ptx_jit *j)
{
	static const struct {
		unsigned shift;
		const char *factor;
	} steps[] = { { 30, "0xbf58476d1ce4e5b9" }, { 27, "0x94d049bb133111eb" } };

	ebpf_ptx_op(j, "mov.u32 %%w0, %%smid");
	ebpf_ptx_op(j, "mov.u32 %%w1, %%warpid");
	ebpf_ptx_op(j, "mad.lo.u32 %%w0, %%w0, 64, %%w1");
	ebpf_ptx_op(j, "mov.u32 %%w1, %%laneid");
	ebpf_ptx_op(j, "mad.lo.u32 %%w0, %%w0, 32, %%w1");
	ebpf_ptx_op(j, "cvt.u64.u32 %%t0, %%w0");
	ebpf_ptx_op(j, "mul.lo.s64 %%t0, %%t0, 0x9e3779b97f4a7c15");
	ebpf_ptx_op(j, "mov.u64 %%t1, %%clock64");
	ebpf_ptx_op(j, "add.s64 %%t0, %%t0, %%t1");
	ebpf_ptx_op(j, "ld.global.nc.u64 %%t1, [%%genv+%u]", PTX_ENV(random_state));
	ebpf_ptx_op(j, "xor.b64 %%t0, %%t0, %%t1");
	for (unsigned k = 0; k < ARRAY_SIZE(steps); k++) {
		ebpf_ptx_op(j, "shr.u64 %%t1, %%t0, %u", steps[k].shift);
		ebpf_ptx_op(j, "xor.b64 %%t0, %%t0, %%t1");
		ebpf_ptx_op(j, "mul.lo.s64 %%t0, %%t0, %s", steps[k].factor);
	}
	ebpf_ptx_op(j, "shr.u64 %%t1, %%t0, 31");
	ebpf_ptx_op(j, "xor.b64 %%t0, %%t0, %%t1");
	ebpf_ptx_op(j, "shr.u64 %%r0, %%t0, 32");
}

/* A hash of the block's index, scaled to the interval in %w2 and compared with 0. Sets %p0. */
static void sample_block(struct ebpf_ptx_jit *j)
{
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%c_block");
	ebpf_ptx_op(j, "mul.lo.u32 %%w0, %%w0, 0x%x", EBPF_PTX_SAMPLE_FACTOR);
	ebpf_ptx_op(j, "shr.u32 %%w1, %%w0, 16");
	ebpf_ptx_op(j, "xor.b32 %%w0, %%w0, %%w1");
	ebpf_ptx_op(j, "mul.lo.u32 %%w0, %%w0, 0x%x", EBPF_PTX_SAMPLE_FACTOR);
	ebpf_ptx_op(j, "mul.hi.u32 %%w0, %%w0, %%w2");
	ebpf_ptx_op(j, "setp.eq.u32 %%p0, %%w0, 0");
	ebpf_ptx_op(j, "setp.ne.and.u32 %%p0, %%w2, 0, %%p0");
}

static void sample(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	ebpf_ptx_op(j, "cvt.u32.u64 %%w2, %%r1");
	sample_block(j);
	ebpf_ptx_op(j, "selp.b64 %%r0, 1, 0, %%p0");
}

/* The host may change the word between the loads of two lanes, so lanes that run a program together
 * agree: all run it if one would. */
void ebpf_ptx_control(struct ebpf_ptx_jit *j)
{
	ebpf_ptx_op(j, "mov.u32 %%w0, %%smid");
	ebpf_ptx_op(j, "and.b32 %%w0, %%w0, %u", EBPF_PTX_CONTROL_WORDS - 1);
	ebpf_ptx_op(j, "ld.param.u64 %%t0, [control]");
	ebpf_ptx_op(j, "cvta.to.global.u64 %%t0, %%t0");
	ebpf_ptx_op(j, "mad.wide.u32 %%t0, %%w0, %u, %%t0", EBPF_PTX_CONTROL_STRIDE);
	ebpf_ptx_op(j, "ld.relaxed.sys.global.u32 %%w2, [%%t0+%u]", EBPF_PTX_CONTROL_AT);
	if (ebpf_ptx_reads_field(j, "block")) {
		sample_block(j);
	} else { /* a hook that no block calls */
		ebpf_ptx_op(j, "setp.ne.u32 %%p0, %%w2, 0");
	}
	if (j->plan->options->device_lane) {
		ebpf_ptx_op(j, "vote.sync.any.pred %%p0, %%p0, %%c_active");
	}
	ebpf_ptx_op(j, "@!%%p0 ret");
}

static void membar(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	ebpf_ptx_op(j, "membar.sys");
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
}

static void prefetch(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	ebpf_ptx_op(j, "prefetch.global.L2 [%%r1]");
	ebpf_ptx_op(j, "mov.b64 %%r0, 0");
}

/* ---- warp-wide: all lanes that are active at the site call them ---- */

static void ballot(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%r1, 0");
	ebpf_ptx_op(j, "vote.sync.ballot.b32 %%w0, %%p0, %%c_active");
	ebpf_ptx_op(j, "cvt.u64.u32 %%r0, %%w0");
}

/* Shuffles r1 into a register; `lane` is an operand of the mode. Changes %w2 and %w3. */
static void shuffle_to(struct ebpf_ptx_jit *j, const char *from, const char *to, const char *mode,
		       const char *lane)
{
	ebpf_ptx_op(j, "mov.b64 {%%w2, %%w3}, %s", from);
	ebpf_ptx_op(j, "shfl.sync.%s.b32 %%w2, %%w2, %s, 31, %%c_active", mode, lane);
	ebpf_ptx_op(j, "shfl.sync.%s.b32 %%w3, %%w3, %s, 31, %%c_active", mode, lane);
	ebpf_ptx_op(j, "mov.b64 %s, {%%w2, %%w3}", to);
}

static void shuffle(struct ebpf_ptx_jit *j, UNUSED const struct device_helper *h)
{
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%r2");
	ebpf_ptx_op(j, "and.b32 %%w0, %%w0, 31");
	shuffle_to(j, "%r1", "%t0", "idx", "%w0");
	ebpf_ptx_op(j, "shr.u32 %%w1, %%c_active, %%w0");
	ebpf_ptx_op(j, "and.b32 %%w1, %%w1, 1");
	ebpf_ptx_op(j, "setp.ne.u32 %%p0, %%w1, 0");
	ebpf_ptx_op(j, "selp.b64 %%r0, %%t0, %%r1, %%p0");
}

/* Combines the values of all active lanes: in five steps if all 32 are, else one by one. */
static void reduce(struct ebpf_ptx_jit *j, const struct device_helper *h)
{
	unsigned full = ++j->labels, next = ++j->labels, end = ++j->labels;

	ebpf_ptx_op(j, "mov.b64 %%r0, %%r1");
	ebpf_ptx_op(j, "setp.eq.u32 %%p0, %%c_active, 0xffffffff");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", full);
	ebpf_ptx_op(j, "mov.b64 %%r0, %s", h->op[1] == 'i' ? "-1" : "0"); /* min */
	ebpf_ptx_op(j, "mov.b32 %%w0, %%c_active");
	ebpf_ptx_label(j, next);
	ebpf_ptx_op(j, "brev.b32 %%w1, %%w0");
	ebpf_ptx_op(j, "clz.b32 %%w1, %%w1");
	shuffle_to(j, "%r1", "%t0", "idx", "%w1");
	ebpf_ptx_op(j, "%s.u64 %%r0, %%r0, %%t0", h->op);
	ebpf_ptx_op(j, "sub.s32 %%w1, %%w0, 1");
	ebpf_ptx_op(j, "and.b32 %%w0, %%w0, %%w1");
	ebpf_ptx_op(j, "setp.ne.u32 %%p0, %%w0, 0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", next);
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, full);
	for (unsigned step = 16; step; step /= 2) {
		static const char *const steps[] = { "1", "2", "4", "8", "16" };

		shuffle_to(j, "%r0", "%t0", "bfly", steps[__builtin_ctz(step)]);
		ebpf_ptx_op(j, "%s.u64 %%r0, %%r0, %%t0", h->op);
	}
	ebpf_ptx_label(j, end);
}

static const struct device_helper helpers[EBPF_HELPER_SLOTS] = {
	[EBPF_SLOT_bpf_get_block_idx] = { three_fields, { "block_x", "block_y", "block_z" } },
	[EBPF_SLOT_bpf_get_block_dim] = { three_fields, { "threads_x", "threads_y", "threads_z" } },
	[EBPF_SLOT_bpf_get_thread_idx] = { three_fields, { "thread_x", "thread_y", "thread_z" } },
	[EBPF_SLOT_bpf_get_grid_dim] = { three_fields, { "grid_x", "grid_y", "grid_z" } },
	[EBPF_SLOT_bpf_get_sm_id] = { one_field, { "sm" } },
	[EBPF_SLOT_bpf_get_warp_id] = { one_field, { "warp_slot" } },
	[EBPF_SLOT_bpf_get_lane_id] = { one_field, { "lane" } },
	[EBPF_SLOT_bpf_gpu_membar] = { membar },
	[EBPF_SLOT_gbpf_arg] = { argument },
	[EBPF_SLOT_gbpf_param] = { parameter },
	[EBPF_SLOT_gbpf_param_bytes] = { parameter_bytes },
	[EBPF_SLOT_gbpf_clock] = { read_clock },
	[EBPF_SLOT_bpf_puts] = { NULL, { "kernel", "block", "warp", "lane" } },
	[EBPF_SLOT_bpf_trace_printk] = { NULL, { "kernel", "block", "warp", "lane" } },
	[EBPF_SLOT_bpf_trace_vprintk] = { NULL, { "kernel", "block", "warp", "lane" } },
	[EBPF_SLOT_gbpf_sample] = { sample, { "block" } },
	[EBPF_SLOT_gbpf_prefetch] = { prefetch },
	[EBPF_SLOT_gbpf_ballot] = { ballot, { "active" }, .warp_wide = 1 },
	[EBPF_SLOT_gbpf_shuffle] = { shuffle, { "active" }, .warp_wide = 1 },
	[EBPF_SLOT_gbpf_warp_sum] = { reduce, { "active" }, "add", 1 },
	[EBPF_SLOT_gbpf_warp_min] = { reduce, { "active" }, "min", 1 },
	[EBPF_SLOT_gbpf_warp_max] = { reduce, { "active" }, "max", 1 },
};

/* What a look-up of the block's or the thread's own value reads. */
static int own_fields(struct ebpf_ptx_jit *j)
{
	static const char *const fields[] = { "block",	  "threads_x", "threads_y", "threads_z",
					      "thread_x", "thread_y",  "thread_z" };
	unsigned n = ebpf_ptx_own_map(j) == GBPF_MAP_BLOCK_ARRAY ? 1 : ARRAY_SIZE(fields);

	for (unsigned k = 0; k < n; k++) {
		ebpf_ptx_need_field(j, fields[k]);
	}
	return 1;
}

int ebpf_ptx_helper_fields(struct ebpf_ptx_jit *j, int slot)
{
	int changes_hash = slot == EBPF_SLOT_bpf_map_update_elem ||
			   slot == EBPF_SLOT_bpf_map_delete_elem || slot == EBPF_SLOT_gbpf_key_add;
	unsigned n = 0;

	if (changes_hash && ebpf_ptx_is_hash(j) && j->plan->options->device_lane) {
		ebpf_ptx_need_field(j, "active"); /* one of these lanes acts */
		return 1;
	}
	if (slot == EBPF_SLOT_bpf_map_lookup_elem && ebpf_ptx_own_map(j)) {
		return own_fields(j);
	}
	while (slot >= 0 && n < MAX_FIELDS && helpers[slot].fields[n]) {
		ebpf_ptx_need_field(j, helpers[slot].fields[n++]);
	}
	return n > 0;
}

int ebpf_ptx_device_helper(struct ebpf_ptx_jit *j, int slot, int32_t id)
{
	const struct device_helper *h = &helpers[slot];

	if (!h->emit || !j->hook) {
		return ebpf_ptx_refuse(j, "helper %d", id);
	}
	if (h->warp_wide && !j->plan->options->device_lane) {
		return ebpf_ptx_refuse(j, "a warp-wide helper: one lane runs the program");
	}
	h->emit(j, h);
	return 0;
}

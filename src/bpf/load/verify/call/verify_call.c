/* Calls: checks helper calls against their signatures, gives each called function a frame, and
 * handles returns. */
#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"
#include "bpf/run/map/map_type.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

enum {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};

#define DEVICE_PRINT_COST 64u /* no text is made there */

/* The address of a map in shared memory is that of the block and warp that run the program. It is
 * an argument of the compiled program, which its functions do not have. */
static int check_map_in_block(struct ebpf_verifier *v, const struct ebpf_map_def *m)
{
	if (v->hook->id == HOOK_gdev_begin || v->hook->id == HOOK_gdev_end) {
		report_hint(v->r, "use a WARP_ARRAY, or another map in memory of the GPU");
		return ebpf_verify_refuse(
			v, v->pc, "map",
			"%s lies in shared memory of the kernel's blocks; %s runs "
			"outside of them",
			m->name, v->hook->name);
	}
	if (v->depth) {
		report_hint(v->r, "make the function __always_inline, or pass it the value");
		return ebpf_verify_refuse(v, v->pc, "map",
					  "%s lies in shared memory, which only the program itself "
					  "can look up, not a function that it calls",
					  m->name);
	}
	return 0;
}

/* Checks that a program inside a kernel uses a map in the GPU's memory, or constants, which are
 * copied there; and that no other program uses the former. */
static int check_device_map(struct ebpf_verifier *v, const struct ebpf_map_def *m)
{
	int constant = m->is_data && (m->flags & GBPF_F_RDONLY);

	if (!ebpf_verify_on(v, SIDE_DEVICE)) {
		if (!(m->flags & GBPF_F_DEVICE)) {
			return 0;
		}
		report_hint(v->r, "`gbpf map` shows it; for programs on the host, use a map "
				  "without GBPF_F_DEVICE");
		return ebpf_verify_refuse(v, v->pc, "map",
					  "%s lies in memory of the GPU; %s runs on the host",
					  m->name, v->hook->name);
	}
	if (ebpf_map_type_has(m->type, EBPF_MAP_IN_BLOCK)) {
		return check_map_in_block(v, m);
	}
	if (constant || (m->flags & GBPF_F_DEVICE)) {
		return 0;
	}
	report_hint(v->r,
		    m->is_data ? "declare it GBPF_DEVICE, or const" : "give the map GBPF_F_DEVICE");
	return ebpf_verify_refuse(v, v->pc, "map",
				  "%s lies in memory of the host; %s runs inside a kernel", m->name,
				  v->hook->name);
}

int ebpf_verify_map_use(struct ebpf_verifier *v, const struct ebpf_map_def *m)
{
	int err = check_device_map(v, m);

	if (err == 0 && (m->flags & GBPF_F_DAEMON) && !ebpf_verify_on(v, SIDE_DAEMON)) {
		report_hint(v->r, "drop GBPF_F_DAEMON, or use the map in hooks that run in gbpfd "
				  "(admit, tick)");
		return ebpf_verify_refuse(v, v->pc, "map",
					  "map %s is gbpfd's own; %s runs in the tenant's process",
					  m->name, v->hook->name);
	}
	return err;
}

/* Checks how a loaded map address may be used. ebpf_verify_cfg() has checked that the map and the
 * offset exist. */
static int check_address(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	const struct ebpf_map_def *m = &v->maps[in->imm];
	int err = ebpf_verify_map_use(v, m);

	if (err == 0 && in->src == EBPF_PSEUDO_MAP_VALUE && (m->flags & GBPF_F_TENANT) &&
	    ebpf_verify_on(v, SIDE_DAEMON)) {
		report_hint(v->r, "make it a map with GBPF_F_TENANT and use "
				  "gbpf_tenant_lookup(&map, tenant, &key)");
		return ebpf_verify_refuse(
			v, v->pc, "map",
			"%s: each tenant has its own %s, and %s runs for none of them", m->name,
			m->name, v->hook->name);
	}
	return err;
}

int ebpf_verify_load_imm64(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	struct ebpf_reg *dst;
	int err;

	if (in->src == EBPF_PSEUDO_CONST) {
		ebpf_reg_const(ebpf_verify_write(v, in->dst),
			       (uint32_t)in[0].imm | (uint64_t)(uint32_t)in[1].imm << 32);
		return 0;
	}
	if (in->src == EBPF_PSEUDO_FUNC) {
		dst = ebpf_verify_write(v, in->dst);
		memset(dst, 0, sizeof(*dst));
		dst->type = REG_FUNC;
		dst->map = v->subprog_of[v->pc + 1 + (uint32_t)in->imm];
		ebpf_scalar_const(&dst->v, 0);
		return 0;
	}
	err = check_address(v, in);
	if (err) {
		return err;
	}
	dst = ebpf_verify_write(v, in->dst);
	memset(dst, 0, sizeof(*dst));
	dst->type = in->src == EBPF_PSEUDO_MAP ? REG_MAP : REG_VALUE;
	dst->map = (uint8_t)in->imm;
	ebpf_scalar_const(&dst->v, in->src == EBPF_PSEUDO_MAP ? 0 : (uint32_t)in[1].imm);
	return 0;
}

void ebpf_verify_clobber(struct ebpf_verifier *v)
{
	for (unsigned i = 1; i <= 5; i++) {
		ebpf_reg_none(ebpf_verify_write(v, i));
	}
}

static void forget(struct ebpf_verifier *v, struct ebpf_reg *r, void *arg)
{
	ebpf_reg_none(r);
	r->type = REG_GONE;
}

void ebpf_verify_forget(struct ebpf_verifier *v, uint32_t id)
{
	ebpf_verify_each_id(v, id, forget, NULL);
}

/* Releases the references that the helper consumes and invalidates everything that refers to them.
 */
static int give_back(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	uint32_t id = ebpf_verify_frame(v)->regs[1].id;
	int err;

	if (c->helper->args[0] != ARG_RECORD) {
		return 0;
	}
	err = ebpf_verify_own(v, c, id);
	if (err == 0) {
		ebpf_verify_forget(v, id);
		ebpf_verify_release(v, id);
	}
	return err;
}

static int is_array_of_maps(const struct ebpf_helper_call *c)
{
	return c->map && c->map->inner_1;
}

/* Sets r0 to the result of a helper call. */
static int result(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	struct ebpf_reg *r0 = ebpf_verify_write(v, 0);
	struct ebpf_ref *ref;
	int err;

	ebpf_reg_unknown(r0);
	if (c->helper->ret == RET_SCALAR) {
		return 0;
	}
	if (c->helper->ret == RET_VOID) {
		ebpf_reg_none(r0);
		return 0;
	}
	ebpf_scalar_const(&r0->v, 0);
	r0->id = ++v->next_id;
	r0->map = (uint8_t)c->map_index;
	if (c->helper->ret == RET_MAP_VALUE_OR_NULL) {
		r0->type = is_array_of_maps(c) ? REG_MAP_OR_NULL : REG_VALUE_OR_NULL;
		r0->map = (uint8_t)(is_array_of_maps(c) ? c->map->inner_1 - 1 : c->map_index);
		return 0;
	}
	r0->type = REG_RECORD_OR_NULL;
	err = ebpf_verify_acquire(v, REF_RECORD, r0->id, &ref);
	if (err == 0) {
		ref->bytes = c->constant;
		ref->map = (uint8_t)v->depth;
	}
	return err;
}

static int reads_argument(int32_t helper)
{
	return helper == HELPER_gbpf_arg || helper == HELPER_gbpf_param ||
	       helper == HELPER_gbpf_param_bytes;
}

static int check_callable(struct ebpf_verifier *v, const struct ebpf_verify_helper *h)
{
	int around = v->hook->id == HOOK_gdev_begin || v->hook->id == HOOK_gdev_end;

	if (around && reads_argument(h->id)) {
		report_hint(v->r, "read it at block_enter of block 0, and pass it on in a map");
		return ebpf_verify_refuse(v, v->pc, "helper",
					  "%s reads an argument of the kernel; programs of %s run "
					  "in a kernel of gBPF's own",
					  h->name, v->hook->name);
	}
	if (ebpf_verify_warp_wide(h->id) && (h->sides & v->hook->side) && !v->prog->lane) {
		report_hint(v->r, "write SEC(\"gdev.lane/...\") for a program that each lane runs; "
				  "ctx has values of the warp: active, lanes, addr");
		return ebpf_verify_refuse(v, v->pc, "helper",
					  "%s combines values of lanes, but one lane of the warp "
					  "runs this program",
					  h->name);
	}
	if (h->sides & v->hook->side) {
		return 0;
	}
	report_hint(v->r, "use it in hooks that run %s",
		    h->sides & SIDE_DAEMON  ? "in gbpfd (admit, tick)"
		    : h->sides & SIDE_LOCAL ? "in the tenant's process"
					    : "inside kernels (gdev)");
	return ebpf_verify_refuse(v, v->pc, "helper", "%s is not available in %s", h->name,
				  v->hook->name);
}

void ebpf_verify_charge(struct ebpf_verifier *v, uint32_t cost)
{
	v->cost += cost;
	v->path_cost += cost;
}

static int check_args(struct ebpf_verifier *v, struct ebpf_helper_call *c)
{
	int err = check_callable(v, c->helper);

	for (unsigned i = 0; err == 0 && i < 5 && c->helper->args[i] != ARG_NONE; i++) {
		err = ebpf_verify_arg(v, c, i);
	}
	if (err == 0 && c->helper->id == HELPER_bpf_trace_vprintk &&
	    ebpf_verify_on(v, SIDE_DEVICE)) {
		err = ebpf_verify_print(v, c);
	}
	if (err == 0 && c->helper->id == HELPER_bpf_trace_printk) {
		err = ebpf_verify_print_registers(v, c);
	}
	if (err == 0 && c->helper->id == HELPER_bpf_puts) {
		err = ebpf_verify_puts(v, c);
	}
	ebpf_verify_charge(v, c->cost);
	return err == 0 && v->path_cost > v->budget ? ebpf_verify_over_budget(v) : err;
}

static int call_helper(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	struct ebpf_helper_call c = { .helper = ebpf_verify_helper(
					      in->imm) }; /* not NULL: ebpf_verify_cfg() has run */
	int err;

	c.what = c.helper->name;
	c.cost = c.helper->cost;
	if ((in->imm == HELPER_bpf_trace_vprintk || in->imm == HELPER_bpf_trace_printk) &&
	    ebpf_verify_on(v, SIDE_DEVICE)) {
		c.cost = DEVICE_PRINT_COST;
	}
	err = in->imm == HELPER_bpf_spin_unlock ? 0 : ebpf_verify_no_lock(v, c.what);
	err = err ? err : check_args(v, &c);
	if (err) {
		return err;
	}
	switch (in->imm) {
	case HELPER_bpf_iter_num_new:
		return ebpf_verify_iter_new(v, &c);
	case HELPER_bpf_iter_num_next:
		return ebpf_verify_iter_next(v, &c);
	case HELPER_bpf_iter_num_destroy:
		return ebpf_verify_iter_destroy(v, &c);
	case HELPER_bpf_loop:
	case HELPER_bpf_for_each_map_elem:
		return ebpf_verify_calls(v, &c);
	case HELPER_bpf_tail_call:
		return ebpf_verify_tail_call(v, &c);
	case HELPER_bpf_spin_lock:
		err = ebpf_verify_lock(v, &c);
		break;
	case HELPER_bpf_spin_unlock:
		err = ebpf_verify_unlock(v, &c);
		break;
	default:
		err = give_back(v, &c);
	}
	if (err) {
		return err;
	}
	ebpf_verify_clobber(v);
	err = result(v, &c);
	v->pc += err == 0;
	return err;
}

int ebpf_verify_enter(struct ebpf_verifier *v)
{
	struct ebpf_call_state *f;

	if (v->depth + 1 >= EBPF_MAX_FRAMES) {
		return ebpf_verify_refuse(v, v->pc, "stack", "calls nest deeper than %u frames",
					  EBPF_MAX_FRAMES);
	}
	if (!v->frames[v->depth + 1]) {
		v->frames[v->depth + 1] = calloc(1, sizeof(*f));
		if (!v->frames[v->depth + 1]) {
			return -ENOMEM;
		}
	}
	v->depth++;
	f = ebpf_verify_frame(v);
	for (uint64_t left = f->used; left; left &= left - 1) {
		memset(f->slots[__builtin_ctzll(left)].kind, BYTE_NONE, 8);
	}
	f->used = 0;
	f->depth = 0;
	memset(f->regs, 0, sizeof(f->regs));
	f->regs[10].type = REG_STACK;
	f->regs[10].frame = (uint8_t)v->depth;
	ebpf_scalar_const(&f->regs[10].v, 0);
	/* No value in a new frame was read before the frame existed. */
	v->written.regs[v->depth] = UINT16_MAX;
	v->written.slots[v->depth] = UINT64_MAX;
	memset(v->sources.of[v->depth], 0, sizeof(v->sources.of[0]));
	return 0;
}

static int call_local(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	struct ebpf_call_state *caller = ebpf_verify_frame(v);
	int err = ebpf_verify_no_lock(v, "a function is called");

	err = err ? err : ebpf_verify_enter(v);
	if (err) {
		return err;
	}
	for (unsigned i = 1; i <= 5; i++) {
		if (caller->regs[i].type != REG_NONE) {
			ebpf_mark_read(v, v->depth - 1, i);
			ebpf_mark_matter(v, v->depth - 1, i);
		}
		v->sources.of[v->depth - 1][i] = 0;
		ebpf_verify_frame(v)->regs[i] = caller->regs[i];
		ebpf_mark_written(v, v->depth - 1, i);
		ebpf_reg_none(&caller->regs[i]);
	}
	ebpf_verify_frame(v)->ret = v->pc + 1;
	v->pc = ebpf_verify_target(in, v->pc);
	return 0;
}

int ebpf_verify_outcome(struct ebpf_verifier *v, int outcome)
{
	const struct ebpf_insn *in = &v->prog->insns[v->pc];

	if (EBPF_OP(in->code) != EBPF_CALL) {
		return ebpf_verify_branch_outcome(v, outcome);
	}
	return in->imm == HELPER_bpf_iter_num_next ? ebpf_verify_iter_outcome(v, outcome)
						   : ebpf_verify_calls_outcome(v, outcome);
}

int ebpf_verify_call(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	return in->src == EBPF_CALL_LOCAL ? call_local(v, in) : call_helper(v, in);
}

/* Returns whether r0 is a verdict of the hook. Programs return int: where a verdict may be
 * negative, only the lower half of r0 counts. */
static int verdict_fits(const struct ebpf_verify_hook *h, const struct ebpf_reg *r0)
{
	if (h->verdict_min < 0) {
		return r0->v.s32min >= h->verdict_min && r0->v.s32max <= h->verdict_max;
	}
	return r0->v.smin >= h->verdict_min && r0->v.smax <= h->verdict_max;
}

static int end_program(struct ebpf_verifier *v, const struct ebpf_reg *r0)
{
	const struct ebpf_verify_hook *h = v->hook;
	char as_int[32] = "";
	struct buf names;

	if (r0->type == REG_NONE) {
		report_hint(v->r, "return a value on every path");
		return ebpf_verify_refuse(v, v->pc, "verdict",
					  "the program ends without a verdict in r0");
	}
	ebpf_mark_read(v, 0, 0);
	ebpf_mark_matter(v, 0, 0);
	if (ebpf_reg_is_pointer(r0)) {
		report_hint(v->r, "return what it points to (*p), or a number");
		return ebpf_verify_refuse(v, v->pc, "leak", "the verdict would be %s",
					  ebpf_verify_reg_text(v, r0));
	}
	if (verdict_fits(h, r0)) {
		return ebpf_verify_no_refs(v, "when the program ends");
	}
	buf_init(&names);
	ebpf_verify_verdict_names(h, &names);
	report_hint(v->r, "return one of: %s", buf_text(&names));
	buf_finish(&names);
	if (ebpf_scalar_is_const(&r0->v) && r0->v.umax <= UINT32_MAX && r0->v.s32min < 0) {
		snprintf(as_int, sizeof(as_int), " (%d as an int)", r0->v.s32min);
	}
	return ebpf_verify_refuse(v, v->pc, "verdict",
				  "the verdict is %s%s, but %s allows %lld to %lld",
				  ebpf_verify_range_text(&r0->v), as_int, h->name,
				  (long long)h->verdict_min, (long long)h->verdict_max);
}

int ebpf_verify_exit(struct ebpf_verifier *v)
{
	const struct ebpf_reg *r0 = &ebpf_verify_frame(v)->regs[0];
	struct ebpf_call_state *caller;

	int err = ebpf_verify_no_lock(v, v->depth ? "the function returns" : "the program ends");

	err = err || !v->n_refs ? err : ebpf_verify_no_iterators(v);
	err = err || !v->n_refs || v->depth == 0
		      ? err
		      : ebpf_verify_no_record(v, "when the function returns");
	if (err || v->depth == 0) {
		return err ? err : end_program(v, r0);
	}
	if (ebpf_verify_is_callback(v)) {
		return ebpf_verify_callback_exit(v);
	}
	if ((r0->type == REG_STACK || r0->type == REG_KEY) && r0->frame == v->depth) {
		return ebpf_verify_refuse(v, v->pc, "stack",
					  "the function returns a pointer into its own frame");
	}
	if (r0->type == REG_CTX && ebpf_verify_on(v, SIDE_DEVICE)) {
		report_hint(v->r, "the caller has the context already");
		return ebpf_verify_refuse(v, v->pc, "ctx",
					  "the function returns the context pointer, which has no "
					  "value inside a kernel");
	}
	if (r0->type != REG_NONE) {
		ebpf_mark_read(v, v->depth, 0);
		ebpf_mark_matter(v, v->depth, 0);
	}
	v->pc = ebpf_verify_frame(v)->ret;
	caller = v->frames[v->depth - 1];
	caller->regs[0] = *r0;
	v->depth--;
	ebpf_mark_written(v, v->depth, 0);
	v->sources.of[v->depth][0] = 0;
	return 1;
}

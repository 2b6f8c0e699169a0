/* Calls: helpers against their signatures, functions of the program with a frame each, and the end
 * of both. */
#include "bpf/load/verify_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	HELPER_##name = id,
#include "gbpf/hooks.def"
};

/* verify_cfg has checked that the map and the place in it exist. */
static int check_map_use(struct verifier *v, const struct ebpf_insn *in)
{
	const struct ebpf_map_def *m = &v->maps[in->imm];

	if ((m->flags & GBPF_F_DAEMON) && !v->hook->daemon) {
		report_hint(v->r, "drop GBPF_F_DAEMON, or use the map in hooks that run in gbpfd "
				  "(admit, tick)");
		return verify_refuse(v, v->pc, "map",
				     "map %s is gbpfd's own; %s runs in the tenant's process",
				     m->name, v->hook->name);
	}
	if (in->src == EBPF_PSEUDO_MAP_VALUE && (m->flags & GBPF_F_TENANT) && v->hook->daemon) {
		report_hint(v->r, "make it a map with GBPF_F_TENANT and use "
				  "gbpf_tenant_lookup(&map, tenant, &key)");
		return verify_refuse(v, v->pc, "map",
				     "%s: each tenant has its own %s, and %s runs for none of them",
				     m->name, m->name, v->hook->name);
	}
	return 0;
}

int verify_load_imm64(struct verifier *v, const struct ebpf_insn *in)
{
	struct reg *dst;
	int err;

	if (in->src == EBPF_PSEUDO_CONST) {
		reg_const(verify_write(v, in->dst),
			  (uint32_t)in[0].imm | (uint64_t)(uint32_t)in[1].imm << 32);
		return 0;
	}
	err = check_map_use(v, in);
	if (err) {
		return err;
	}
	dst = verify_write(v, in->dst);
	memset(dst, 0, sizeof(*dst));
	dst->type = in->src == EBPF_PSEUDO_MAP ? REG_MAP : REG_VALUE;
	dst->map = (uint8_t)in->imm;
	scalar_const(&dst->v, in->src == EBPF_PSEUDO_MAP ? 0 : (uint32_t)in[1].imm);
	return 0;
}

/* What the arguments so far have established. */
struct call {
	const struct verify_helper *helper;
	const struct ebpf_map_def *map;
	unsigned map_index;
	uint32_t cost;
	const char *what; /* its name */
};

static int check_map_arg(struct verifier *v, struct call *c, const struct reg *r, unsigned reg)
{
	const struct ebpf_map_def *m;
	int by_tenant = c->helper->id == HELPER_gbpf_tenant_lookup;

	if (r->type != REG_MAP) {
		return verify_refuse(v, v->pc, "type", "%s: r%u must be a map (&map), but is %s",
				     c->what, reg, verify_reg_text(v, r));
	}
	m = &v->maps[r->map];
	c->map = m;
	c->map_index = r->map;
	if (by_tenant && !(m->flags & GBPF_F_TENANT)) {
		report_hint(v->r, "use bpf_map_lookup_elem for it");
		return verify_refuse(v, v->pc, "map", "%s: map %s is not a GBPF_F_TENANT map",
				     c->what, m->name);
	}
	if (!by_tenant && (m->flags & GBPF_F_TENANT) && v->hook->daemon) {
		report_hint(v->r, "use gbpf_tenant_lookup(&%s, tenant, &key)", m->name);
		return verify_refuse(v, v->pc, "map",
				     "%s: each tenant has its own %s, and %s runs for none of them",
				     c->what, m->name, v->hook->name);
	}
	if (c->helper->id == HELPER_bpf_map_update_elem) {
		struct reg value = { .type = REG_VALUE, .map = r->map };

		scalar_const(&value.v, 0);
		return verify_range(v, &value, 0, m->value_bytes, ACCESS_WRITE, c->what);
	}
	return 0;
}

/* Memory that the helper reads, or writes when uninit. */
static int check_memory(struct verifier *v, const struct call *c, const struct reg *r, unsigned reg,
			uint64_t least, uint64_t most, int uninit)
{
	int err;

	if (most == 0) {
		return 0;
	}
	if (r->type != REG_STACK && r->type != REG_VALUE && r->type != REG_VALUE_OR_NULL) {
		return verify_refuse(v, v->pc, "type",
				     "%s: r%u must point to the stack or a map value, but is %s",
				     c->what, reg, verify_reg_text(v, r));
	}
	err = verify_range(v, r, 0, most, uninit ? ACCESS_WRITE : ACCESS_READ, c->what);
	if (err || r->type != REG_STACK) {
		return err;
	}
	if (!uninit) {
		return verify_stack_read(v, r, 0, most, NULL);
	}
	if (most > least) { /* may be written: nothing becomes readable beyond least */
		struct reg anywhere = *r;

		scalar_urange(&anywhere.v, 0, most - 1);
		anywhere.v.smin += r->v.smin;
		anywhere.v.smax += r->v.smax;
		anywhere.v.t = TNUM_UNKNOWN;
		err = verify_stack_write(v, &anywhere, 0, 1, NULL);
	}
	return err || least == 0 ? err : verify_stack_write(v, r, 0, least, NULL);
}

static int check_size_arg(struct verifier *v, const struct call *c, const struct reg *r,
			  unsigned reg, int zero_ok)
{
	if (reg_is_pointer(r)) {
		return verify_refuse(v, v->pc, "type", "%s: r%u must be a size, but is %s", c->what,
				     reg, verify_reg_text(v, r));
	}
	if (r->v.umin == 0 && !zero_ok) {
		report_hint(v->r, "check that the size is not 0");
		return verify_refuse(v, v->pc, "bounds", "%s: size r%u (%s) may be 0", c->what, reg,
				     verify_range_text(&r->v));
	}
	if (r->v.umax > EBPF_MAX_VALUE_BYTES) {
		report_hint(v->r, "bound the size with an unsigned comparison or a mask");
		return verify_refuse(v, v->pc, "bounds", "%s: size r%u (%s) is not bounded",
				     c->what, reg, verify_range_text(&r->v));
	}
	return 0;
}

static int check_scalar_arg(struct verifier *v, const struct call *c, const struct reg *r,
			    unsigned reg)
{
	if (reg_is_pointer(r)) {
		return verify_refuse(v, v->pc, "leak", "%s: r%u must be a number, but is %s",
				     c->what, reg, verify_reg_text(v, r));
	}
	return 0;
}

static int check_mem_arg(struct verifier *v, const struct call *c, const struct reg *r, unsigned i)
{
	int err = 0, kind = c->helper->args[i],
	    zero_ok = i < 4 && c->helper->args[i + 1] == ARG_SIZE_OR_ZERO;
	const struct reg *size = i < 4 ? verify_read(v, i + 2, &err) : NULL;

	if (!size) {
		return err ? err
			   : verify_refuse(v, v->pc, "type", "%s: memory without a size", c->what);
	}
	mark_matter(v, v->depth, i + 2);
	err = check_size_arg(v, c, size, i + 2, zero_ok);
	return err ? err
		   : check_memory(v, c, r, i + 1, size->v.umin, size->v.umax,
				  kind == ARG_MEM_UNINIT);
}

/* A key or a value, which the helper copies: hooks.def says what that costs. */
static int check_map_memory(struct verifier *v, struct call *c, const struct reg *r, unsigned reg,
			    uint32_t bytes)
{
	c->cost += bytes / 16;
	return check_memory(v, c, r, reg, bytes, bytes, 0);
}

static int check_arg(struct verifier *v, struct call *c, unsigned i)
{
	unsigned reg = i + 1;
	int err = 0;
	const struct reg *r = verify_read(v, reg, &err);

	if (!r) {
		return err;
	}
	switch (c->helper->args[i]) {
	case ARG_SCALAR:
		return check_scalar_arg(v, c, r, reg);
	case ARG_CONST_MAP:
		return check_map_arg(v, c, r, reg);
	case ARG_MAP_KEY:
		return check_map_memory(v, c, r, reg, c->map->key_bytes);
	case ARG_MAP_VALUE:
		return check_map_memory(v, c, r, reg, c->map->value_bytes);
	case ARG_MEM:
	case ARG_MEM_UNINIT:
		return check_mem_arg(v, c, r, i);
	case ARG_SIZE:
	case ARG_SIZE_OR_ZERO:
		return 0; /* checked with its memory */
	case ARG_CTX:
		if (r->type != REG_CTX) {
			return verify_refuse(v, v->pc, "type",
					     "%s: r%u must be the context, but is %s", c->what, reg,
					     verify_reg_text(v, r));
		}
		return 0;
	default:
		return verify_refuse(v, v->pc, "helper", "%s is not supported yet", c->what);
	}
}

static void clobber(struct verifier *v)
{
	for (unsigned i = 1; i <= 5; i++) {
		reg_none(verify_write(v, i));
	}
}

static int call_helper(struct verifier *v, const struct ebpf_insn *in)
{
	struct call c = { .helper = verify_helper(in->imm) }; /* it exists: verify_cfg */
	struct reg *r0;

	c.what = c.helper->name;
	c.cost = c.helper->cost;
	if (!(c.helper->sides & (v->hook->daemon ? SIDE_DAEMON : SIDE_LOCAL))) {
		report_hint(v->r, "use it in hooks that run %s",
			    v->hook->daemon ? "in the tenant's process" : "in gbpfd (admit, tick)");
		return verify_refuse(v, v->pc, "helper", "%s is not available in %s",
				     c.helper->name, v->hook->name);
	}
	for (unsigned i = 0; i < 5 && c.helper->args[i] != ARG_NONE; i++) {
		int err = check_arg(v, &c, i);

		if (err) {
			return err;
		}
	}
	clobber(v);
	r0 = verify_write(v, 0);
	switch (c.helper->ret) {
	case RET_SCALAR:
		reg_unknown(r0);
		break;
	case RET_MAP_VALUE_OR_NULL:
		memset(r0, 0, sizeof(*r0));
		r0->type = REG_VALUE_OR_NULL;
		r0->map = (uint8_t)c.map_index;
		r0->id = ++v->next_id;
		scalar_const(&r0->v, 0);
		break;
	default:
		reg_none(r0);
	}
	v->cost += c.cost;
	v->path_cost += c.cost;
	v->pc++;
	return v->path_cost > v->hook->budget ? verify_over_budget(v) : 0;
}

static int enter_frame(struct verifier *v)
{
	struct frame *f;

	if (v->depth + 1 >= EBPF_MAX_FRAMES) {
		return verify_refuse(v, v->pc, "stack", "calls nest deeper than %u frames",
				     EBPF_MAX_FRAMES);
	}
	if (!v->frames[v->depth + 1]) {
		v->frames[v->depth + 1] = calloc(1, sizeof(*f));
		if (!v->frames[v->depth + 1]) {
			return -ENOMEM;
		}
	}
	v->depth++;
	f = verify_frame(v);
	for (uint64_t left = f->used; left; left &= left - 1) {
		memset(f->slots[__builtin_ctzll(left)].kind, BYTE_NONE, 8);
	}
	f->used = 0;
	f->depth = 0;
	memset(f->regs, 0, sizeof(f->regs));
	f->regs[10].type = REG_STACK;
	f->regs[10].frame = (uint8_t)v->depth;
	scalar_const(&f->regs[10].v, 0);
	/* nothing of a new frame comes from before it */
	v->written.regs[v->depth] = UINT16_MAX;
	v->written.slots[v->depth] = UINT64_MAX;
	memset(v->sources.of[v->depth], 0, sizeof(v->sources.of[0]));
	return 0;
}

static int call_local(struct verifier *v, const struct ebpf_insn *in)
{
	struct frame *caller = verify_frame(v);
	int err = enter_frame(v);

	if (err) {
		return err;
	}
	for (unsigned i = 1; i <= 5; i++) {
		if (caller->regs[i].type != REG_NONE) {
			mark_read(v, v->depth - 1, i);
			mark_matter(v, v->depth - 1, i);
		}
		v->sources.of[v->depth - 1][i] = 0;
		verify_frame(v)->regs[i] = caller->regs[i];
		mark_written(v, v->depth - 1, i);
		reg_none(&caller->regs[i]);
	}
	verify_frame(v)->ret = v->pc + 1;
	v->pc = verify_target(in, v->pc);
	return 0;
}

int verify_call(struct verifier *v, const struct ebpf_insn *in)
{
	return in->src == EBPF_CALL_LOCAL ? call_local(v, in) : call_helper(v, in);
}

static int end_program(struct verifier *v, const struct reg *r0)
{
	const struct verify_hook *h = v->hook;
	struct buf names;
	int err;

	if (r0->type == REG_NONE) {
		report_hint(v->r, "return a value on every path");
		return verify_refuse(v, v->pc, "verdict",
				     "the program ends without a verdict in r0");
	}
	mark_read(v, 0, 0);
	mark_matter(v, 0, 0);
	if (reg_is_pointer(r0)) {
		return verify_refuse(v, v->pc, "leak", "the verdict would be %s",
				     verify_reg_text(v, r0));
	}
	if (r0->v.smin >= h->verdict_min && r0->v.smax <= h->verdict_max) {
		return 0;
	}
	buf_init(&names);
	verify_verdict_names(h, &names);
	report_hint(v->r, "return one of: %s", buf_text(&names));
	buf_finish(&names);
	err = verify_refuse(v, v->pc, "verdict", "the verdict is %s, but %s allows %lld to %lld",
			    verify_range_text(&r0->v), h->name, (long long)h->verdict_min,
			    (long long)h->verdict_max);
	return err;
}

int verify_exit(struct verifier *v)
{
	const struct reg *r0 = &verify_frame(v)->regs[0];
	struct frame *caller;

	if (v->depth == 0) {
		return end_program(v, r0);
	}
	if (r0->type == REG_STACK && r0->frame == v->depth) {
		return verify_refuse(v, v->pc, "stack",
				     "the function returns a pointer into its own frame");
	}
	if (r0->type != REG_NONE) {
		mark_read(v, v->depth, 0);
		mark_matter(v, v->depth, 0);
	}
	v->pc = verify_frame(v)->ret;
	caller = v->frames[v->depth - 1];
	caller->regs[0] = *r0;
	v->depth--;
	mark_written(v, v->depth, 0);
	v->sources.of[v->depth][0] = 0;
	return 1;
}

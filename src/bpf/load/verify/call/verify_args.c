/* Checks a helper's arguments against its signature in hooks.def: types, memory, sizes, and which
 * side may use which map. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"
#include "bpf/run/map/map_type.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

static int writes_map(int32_t helper)
{
	switch (helper) {
	case HELPER_bpf_map_update_elem:
	case HELPER_bpf_map_delete_elem:
	case HELPER_bpf_map_push_elem:
	case HELPER_bpf_map_pop_elem:
	case HELPER_gbpf_hist_add:
	case HELPER_gbpf_atomic_add:
	case HELPER_gbpf_key_add:
	case HELPER_bpf_perf_event_output:
		return 1;
	default:
		return 0;
	}
}

static int by_tenant(int32_t helper)
{
	return helper == HELPER_gbpf_tenant_lookup || helper == HELPER_gbpf_thread_sum ||
	       helper == HELPER_gbpf_tenant_pop;
}

/* Checks access to a tenant's instance of a map. A gbpfd program reaches it only through the
 * helpers that take a tenant number. */
static int check_instance(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			  const struct ebpf_map_def *m)
{
	if (by_tenant(c->helper->id) && !(m->flags & GBPF_F_TENANT)) {
		report_hint(v->r, "use %s for it",
			    c->helper->id == HELPER_gbpf_tenant_pop ? "bpf_map_pop_elem"
								    : "bpf_map_lookup_elem");
		return ebpf_verify_refuse(v, v->pc, "map", "%s: map %s is not a GBPF_F_TENANT map",
					  c->what, m->name);
	}
	if (c->helper->id == HELPER_gbpf_tenant_lookup && m->type == GBPF_MAP_THREAD_ARRAY) {
		report_hint(v->r, "add its elements up with gbpf_thread_sum");
		return ebpf_verify_refuse(
			v, v->pc, "map",
			"%s: each thread of a tenant has its own instance of %s (%s)", c->what,
			m->name, ebpf_verify_map_type(m->type));
	}
	if (!by_tenant(c->helper->id) && (m->flags & GBPF_F_TENANT) &&
	    ebpf_verify_on(v, SIDE_DAEMON)) {
		if (ebpf_verify_map_can(m->type, HELPER_gbpf_tenant_lookup)) {
			report_hint(v->r, "use gbpf_tenant_lookup(&%s, tenant, &key)", m->name);
		} else if (ebpf_verify_map_can(m->type, HELPER_gbpf_tenant_pop)) {
			report_hint(v->r, "use gbpf_tenant_pop(&%s, tenant, &value)", m->name);
		} else {
			report_hint(v->r, "give gbpfd one of its own, with GBPF_F_DAEMON");
		}
		return ebpf_verify_refuse(
			v, v->pc, "map",
			"%s: each tenant has its own %s, and %s runs for none of them", c->what,
			m->name, v->hook->name);
	}
	return 0;
}

static int check_rights(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			const struct ebpf_map_def *m)
{
	int err = ebpf_verify_map_use(v, m);

	return err == 0 && writes_map(c->helper->id)
		       ? ebpf_verify_map_write(v, (unsigned)(m - v->maps), c->what)
		       : err;
}

/* Checks a number that the compiler must know. */
static int check_known(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
		       const struct ebpf_reg *r, unsigned reg)
{
	ebpf_mark_matter(v, v->depth, reg);
	if (r->type == REG_SCALAR && ebpf_scalar_is_const(&r->v)) {
		return 0;
	}
	report_hint(v->r, "write the number as a constant");
	return ebpf_verify_refuse(v, v->pc, "type", "%s: r%u must be a known number, but is %s",
				  c->what, reg, ebpf_verify_reg_text(v, r));
}

/* Checks the number of a parameter. */
static int check_param(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	uint64_t index = ebpf_verify_frame(v)->regs[1].v.umax;

	if (index < EBPF_MAX_PARAMS) {
		return 0;
	}
	report_hint(v->r, "parameters have numbers below %u", EBPF_MAX_PARAMS);
	return ebpf_verify_refuse(v, v->pc, "bounds", "%s: no kernel has a parameter %llu", c->what,
				  (unsigned long long)index);
}

/* Checks that an argument of the kernel, by offset and size, has a size that a load has, and is
 * aligned to it. */
static int check_argument(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *r = ebpf_verify_frame(v)->regs;
	uint64_t offset = r[1].v.umax, bytes = r[2].v.umax;

	if ((bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) && offset % bytes == 0 &&
	    offset + bytes <= EBPF_MAX_PARAM_BYTES) {
		return 0;
	}
	report_hint(v->r, "1, 2, 4 or 8 bytes, at a multiple of that below %u",
		    EBPF_MAX_PARAM_BYTES);
	return ebpf_verify_refuse(v, v->pc, "bounds", "%s: no argument has %llu bytes at %llu",
				  c->what, (unsigned long long)bytes, (unsigned long long)offset);
}

/* Checks the numbers that name an argument of the kernel when the last one is known. */
static int check_place(struct ebpf_verifier *v, const struct ebpf_helper_call *c, unsigned i)
{
	switch (c->helper->id) {
	case HELPER_gbpf_arg:
		return i == 1 ? check_argument(v, c) : 0;
	case HELPER_gbpf_param:
	case HELPER_gbpf_param_bytes:
		return check_param(v, c);
	default:
		return 0;
	}
}

/* Returns the cost of finding a key beyond that of an array access (see hooks.def). */
static uint32_t search_cost(const struct ebpf_map_def *m, int32_t helper)
{
	switch (helper) {
	case HELPER_bpf_map_lookup_elem:
	case HELPER_bpf_map_update_elem:
	case HELPER_bpf_map_delete_elem:
	case HELPER_gbpf_key_add:
	case HELPER_gbpf_tenant_lookup:
		break;
	default:
		return 0;
	}
	switch (m->type) {
	case GBPF_MAP_HASH:
	case GBPF_MAP_LRU_HASH: /* of the GPU: up to 16 keys of a bucket */
		return m->flags & GBPF_F_DEVICE ? 16 : 4;
	case GBPF_MAP_LPM_TRIE: /* one hash lookup per possible prefix length */
		return 8 * (8 * (m->key_bytes - 4) + 1);
	default:
		return 0;
	}
}

static int check_map_arg(struct ebpf_verifier *v, struct ebpf_helper_call *c,
			 const struct ebpf_reg *r, unsigned reg)
{
	const struct ebpf_map_def *m;
	int err;

	if (r->type != REG_MAP) {
		if (ebpf_reg_is_nullable(r)) {
			report_hint(v->r, "compare it with NULL first");
		}
		return ebpf_verify_refuse(v, v->pc, ebpf_reg_is_nullable(r) ? "null" : "type",
					  "%s: r%u must be a map (&map), but is %s", c->what, reg,
					  ebpf_verify_reg_text(v, r));
	}
	m = &v->maps[r->map];
	c->map = m;
	c->map_index = r->map;
	c->map_id = r->id;
	c->cost += search_cost(m, c->helper->id);
	if (!ebpf_verify_map_can(m->type, c->helper->id)) {
		report_hint(v->r, "see gbpf-policy(7) for what a map of type %s can do",
			    ebpf_verify_map_type(m->type));
		return ebpf_verify_refuse(v, v->pc, "map",
					  "%s does not work on map %s, which is of type %s",
					  c->what, m->name, ebpf_verify_map_type(m->type));
	}
	err = check_instance(v, c, m);
	return err ? err : check_rights(v, c, m);
}

/* Checks memory that the helper reads or, with uninit, writes. */
static int check_memory(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			const struct ebpf_reg *r, unsigned reg, uint64_t least, uint64_t most,
			int uninit)
{
	int err;

	if (most == 0) {
		return 0;
	}
	if (r->type == REG_CTX ||
	    (!ebpf_reg_is_place(r) && r->type != REG_NUMBER && !ebpf_reg_is_nullable(r))) {
		return ebpf_verify_refuse(
			v, v->pc, "type",
			"%s: r%u must point to the stack or a map value, but is %s", c->what, reg,
			ebpf_verify_reg_text(v, r));
	}
	err = ebpf_verify_range(v, r, 0, most, uninit ? ACCESS_WRITE : ACCESS_READ, c->what);
	if (err || r->type != REG_STACK) {
		return err;
	}
	if (!uninit) {
		return ebpf_verify_stack_read(v, r, 0, most, NULL);
	}
	if (most > least) { /* only least bytes are certainly written and become readable */
		struct ebpf_reg anywhere = *r;

		ebpf_scalar_unknown(&anywhere.v);
		anywhere.v.smin = r->v.smin;
		anywhere.v.smax = r->v.smax + (int64_t)most - 1;
		err = ebpf_verify_stack_write(v, &anywhere, 0, 1, NULL);
	}
	return err || least == 0 ? err : ebpf_verify_stack_write(v, r, 0, least, NULL);
}

static int check_size_arg(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			  const struct ebpf_reg *r, unsigned reg, int zero_ok)
{
	if (ebpf_reg_is_pointer(r)) {
		return ebpf_verify_refuse(v, v->pc, "type", "%s: r%u must be a size, but is %s",
					  c->what, reg, ebpf_verify_reg_text(v, r));
	}
	if (r->v.umin == 0 && !zero_ok) {
		report_hint(v->r, "check that the size is not 0");
		return ebpf_verify_refuse(v, v->pc, "bounds", "%s: size r%u (%s) may be 0", c->what,
					  reg, ebpf_verify_range_text(&r->v));
	}
	if (r->v.umax > EBPF_MAX_VALUE_BYTES) {
		report_hint(v->r, "bound the size with an unsigned comparison or a mask");
		return ebpf_verify_refuse(v, v->pc, "bounds", "%s: size r%u (%s) is not bounded",
					  c->what, reg, ebpf_verify_range_text(&r->v));
	}
	return 0;
}

static int check_scalar_arg(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			    const struct ebpf_reg *r, unsigned reg)
{
	if (ebpf_reg_is_pointer(r)) {
		return ebpf_verify_refuse(v, v->pc, "leak", "%s: r%u must be a number, but is %s",
					  c->what, reg, ebpf_verify_reg_text(v, r));
	}
	return 0;
}

/* Inside kernels a record is memory of the thread until it is submitted: it is as large as a value
 * of the ring, and each function has a place for one. */
static int check_device_record(struct ebpf_verifier *v, struct ebpf_helper_call *c)
{
	c->cost += c->constant / 16;
	if (c->constant != c->map->value_bytes) {
		report_hint(v->r, "reserve sizeof the value of %s", c->map->name);
		return ebpf_verify_refuse(v, v->pc, "bounds",
					  "%s: a record of %u bytes, but values of %s have %u",
					  c->what, c->constant, c->map->name, c->map->value_bytes);
	}
	return ebpf_verify_no_record(v, "when the function reserves another");
}

static int check_constant_arg(struct ebpf_verifier *v, struct ebpf_helper_call *c,
			      const struct ebpf_reg *r, unsigned reg)
{
	ebpf_mark_matter(v, v->depth, reg);
	if (r->type != REG_SCALAR || !ebpf_scalar_is_const(&r->v)) {
		report_hint(v->r, "write the size as a constant (sizeof)");
		return ebpf_verify_refuse(v, v->pc, "type",
					  "%s: r%u must be a known number of bytes, but is %s",
					  c->what, reg, ebpf_verify_reg_text(v, r));
	}
	if (r->v.umax == 0 || r->v.umax > EBPF_MAX_VALUE_BYTES) {
		return ebpf_verify_refuse(v, v->pc, "bounds", "%s: a record of %s bytes (1 to %u)",
					  c->what, ebpf_verify_range_text(&r->v),
					  EBPF_MAX_VALUE_BYTES);
	}
	c->constant = (uint32_t)r->v.umax;
	return ebpf_verify_on(v, SIDE_DEVICE) ? check_device_record(v, c) : 0;
}

/* Values of a ring inside kernels have one size; the helper refuses every other one. */
static int check_ring_size(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			   const struct ebpf_reg *size)
{
	if (!ebpf_verify_on(v, SIDE_DEVICE) || !c->map ||
	    ebpf_scalar_has(&size->v, c->map->value_bytes)) {
		return 0;
	}
	report_hint(v->r, "write sizeof the value of %s", c->map->name);
	return ebpf_verify_refuse(
		v, v->pc, "bounds", "%s: a record of %s bytes, but values of %s have %u", c->what,
		ebpf_verify_range_text(&size->v), c->map->name, c->map->value_bytes);
}

static int check_mem_arg(struct ebpf_verifier *v, struct ebpf_helper_call *c,
			 const struct ebpf_reg *r, unsigned i)
{
	int err = 0, kind = c->helper->args[i],
	    zero_ok = i < 4 && c->helper->args[i + 1] == ARG_SIZE_OR_ZERO;
	const struct ebpf_reg *size = i < 4 ? ebpf_verify_read(v, i + 2, &err) : NULL;

	if (!size) {
		return err ? err
			   : ebpf_verify_refuse(v, v->pc, "type", "%s: memory without a size",
						c->what);
	}
	ebpf_mark_matter(v, v->depth, i + 2);
	err = check_size_arg(v, c, size, i + 2, zero_ok);
	err = err ? err : check_ring_size(v, c, size);
	c->cost += err ? 0 : (uint32_t)(size->v.umax / 16);
	return err ? err
		   : check_memory(v, c, r, i + 1, size->v.umin, size->v.umax,
				  kind == ARG_MEM_UNINIT);
}

/* Checks a key or a value. The helper copies it; hooks.def states the cost of a copy. */
static int check_map_memory(struct ebpf_verifier *v, struct ebpf_helper_call *c,
			    const struct ebpf_reg *r, unsigned reg, uint32_t bytes, int uninit)
{
	int err;

	c->cost += bytes / 16;
	err = check_memory(v, c, r, reg, bytes, bytes, uninit);
	if (err && v->r) {
		buf_printf(&v->r->hint, "%s%ss of map %s have %u bytes", v->r->hint.len ? "; " : "",
			   c->helper->args[reg - 1] == ARG_MAP_KEY ? "key" : "value", c->map->name,
			   bytes);
	}
	return err;
}

/* Checks that the argument points to the start of a reserved record: the helper takes whole records
 * only. */
static int check_record(struct ebpf_verifier *v, struct ebpf_helper_call *c,
			const struct ebpf_reg *r, unsigned reg)
{
	const struct ebpf_ref *ref;

	if (r->type != REG_RECORD) {
		if (ebpf_reg_is_nullable(r)) {
			report_hint(v->r, "compare it with NULL first");
		}
		return ebpf_verify_refuse(v, v->pc, r->type == REG_RECORD_OR_NULL ? "null" : "ref",
					  "%s: r%u must be a reserved record, but is %s", c->what,
					  reg, ebpf_verify_reg_text(v, r));
	}
	if (!ebpf_scalar_is_const(&r->v) || r->v.t.value != 0) {
		return ebpf_verify_refuse(
			v, v->pc, "ref", "%s: r%u must point to the record's first byte, but is %s",
			c->what, reg, ebpf_verify_reg_text(v, r));
	}
	ref = ebpf_verify_on(v, SIDE_DEVICE) ? ebpf_verify_ref(v, r->id) : NULL;
	c->cost += ref ? ref->bytes / 16 : 0;
	if (ref && ref->map != v->depth) {
		report_hint(v->r, "do it in the function that reserved the record, or declare this "
				  "one static __always_inline");
		return ebpf_verify_refuse(v, v->pc, "ref",
					  "%s: the record was reserved in another function, at %s",
					  c->what, ebpf_verify_place_text(v, ref->pc));
	}
	return 0;
}

/* Returns whether a helper does not use its context and is given NULL instead, as programs for
 * bpftime do. */
static bool is_unused(int32_t helper, const struct ebpf_reg *r)
{
	return helper == HELPER_bpf_perf_event_output && r->type == REG_SCALAR &&
	       ebpf_scalar_is_const(&r->v) && !r->v.t.value;
}

int ebpf_verify_arg(struct ebpf_verifier *v, struct ebpf_helper_call *c, unsigned i)
{
	unsigned reg = i + 1;
	int err = 0;
	const struct ebpf_reg *r;

	if (c->helper->args[i] == ARG_PRINTED) {
		return 0; /* checked in verify_print.c, with the format */
	}
	r = ebpf_verify_read(v, reg, &err);
	if (!r) {
		return err;
	}
	switch (c->helper->args[i]) {
	case ARG_SCALAR:
		return check_scalar_arg(v, c, r, reg);
	case ARG_CONST_MAP:
		return check_map_arg(v, c, r, reg);
	case ARG_MAP_KEY:
		return check_map_memory(v, c, r, reg, c->map->key_bytes, 0);
	case ARG_MAP_VALUE:
		return check_map_memory(v, c, r, reg, c->map->value_bytes, 0);
	case ARG_MAP_OUT:
		return check_map_memory(v, c, r, reg, c->map->value_bytes, 1);
	case ARG_MEM:
	case ARG_MEM_UNINIT:
		return check_mem_arg(v, c, r, i);
	case ARG_OUT64:
		return check_memory(v, c, r, reg, 8, 8, 1);
	case ARG_SIZE:
	case ARG_SIZE_OR_ZERO:
		return 0; /* checked together with the memory argument */
	case ARG_CONST:
		err = check_known(v, c, r, reg);
		return err ? err : check_place(v, c, i);
	case ARG_CONST_SIZE:
		return check_constant_arg(v, c, r, reg);
	case ARG_RECORD:
		return check_record(v, c, r, reg);
	case ARG_FUNC:
		if (r->type != REG_FUNC) {
			return ebpf_verify_refuse(
				v, v->pc, "callback",
				"%s: r%u must be a function of the program, but is %s", c->what,
				reg, ebpf_verify_reg_text(v, r));
		}
		return 0;
	case ARG_TEXT: /* checked in verify_print.c */
	case ARG_LOCK: /* checked in verify_ref.c */
	case ARG_ANY:
	case ARG_ITER_NEW: /* checked in verify_iter.c */
	case ARG_ITER:
	case ARG_ITER_END:
		return 0;
	case ARG_CTX:
		if (is_unused(c->helper->id, r)) {
			return 0;
		}
		if (r->type != REG_CTX || !ebpf_scalar_is_const(&r->v) || r->v.t.value) {
			return ebpf_verify_refuse(v, v->pc, "type",
						  "%s: r%u must be the context, but is %s", c->what,
						  reg, ebpf_verify_reg_text(v, r));
		}
		return 0;
	default:
		return ebpf_verify_refuse(v, v->pc, "helper", "%s is not supported yet", c->what);
	}
}

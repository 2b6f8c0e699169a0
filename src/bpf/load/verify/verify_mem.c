/* Memory accesses: checks whether an address may be read or written, and models the result of a
 * load. */
#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

static void object_text(const struct ebpf_verifier *v, const struct ebpf_reg *ptr, char *out,
			size_t bytes)
{
	if (ptr->type == REG_STACK) {
		snprintf(out, bytes, "%s",
			 ptr->frame == v->depth ? "the stack" : "a caller's stack");
	} else if (ptr->type == REG_RECORD || ptr->type == REG_KEY) {
		snprintf(out, bytes, "%s of map %s", ptr->type == REG_KEY ? "a key" : "a record",
			 v->maps[ptr->map].name);
	} else if (ptr->type == REG_NUMBER) {
		snprintf(out, bytes, "the iterator's number");
	} else {
		snprintf(out, bytes, "%s %s",
			 v->maps[ptr->map].is_data ? "section" : "a value of map",
			 v->maps[ptr->map].name);
	}
}

static int refuse_bounds(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t low,
			 int64_t high, uint64_t bytes, int64_t first, int64_t end, const char *what)
{
	char object[EBPF_NAME_BYTES + 32];

	object_text(v, ptr, object, sizeof(object));
	if (low == high) {
		report_hint(v->r, "%s ends at offset %lld", object, (long long)end);
		return ebpf_verify_refuse(
			v, v->pc, "bounds",
			"%s: %llu bytes at offset %lld of %s, which has %lld to %lld", what,
			(unsigned long long)bytes, (long long)low, object, (long long)first,
			(long long)end);
	}
	report_hint(v->r, "bound the index first (if (i < N)), or mask it (i & (N - 1))");
	return ebpf_verify_refuse(
		v, v->pc, "bounds",
		"%s: %llu bytes at offset %lld to %lld of %s, which has %lld to %lld", what,
		(unsigned long long)bytes, (long long)low, (long long)high, object,
		(long long)first, (long long)end);
}

/* Checks that [off + offset of the pointer, + bytes) lies within [first, end). */
static int check_bounds(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			uint64_t bytes, int64_t first, int64_t end, const char *what)
{
	/* Cannot overflow: offsets of pointers are at most 2^29, and off is at most 2^15. */
	int64_t low = ptr->v.smin + off, high = ptr->v.smax + off;

	if (low < first || bytes > (uint64_t)(end - first) || high > end - (int64_t)bytes) {
		return refuse_bounds(v, ptr, low, high, bytes, first, end, what);
	}
	return 0;
}

static int check_alignment(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			   unsigned bytes, const char *what)
{
	struct ebpf_scalar at;

	ebpf_scalar_const(&at, (uint64_t)off);
	if (ptr->type != REG_NUMBER) { /* of which v is the number, not the offset */
		ebpf_scalar_alu(EBPF_ADD, 1, 0, &at, &ptr->v);
	}
	if ((at.t.value | at.t.mask) & (bytes - 1)) {
		report_hint(v->r, "use naturally aligned fields; packed structs do not work");
		return ebpf_verify_refuse(
			v, v->pc, "align",
			"%s: %u bytes at offset %s, which need not be a multiple of %u", what,
			bytes, ebpf_verify_range_text(&at), bytes);
	}
	return 0;
}

int ebpf_verify_map_write(struct ebpf_verifier *v, unsigned map, const char *what)
{
	const struct ebpf_map_def *m = &v->maps[map];

	if (m->flags & GBPF_F_RDONLY) {
		report_hint(v->r, m->is_data ? "what programs change must not be const"
					     : "drop GBPF_F_RDONLY to write it");
		return ebpf_verify_refuse(v, v->pc, "readonly", "%s: %s is constant after load",
					  what, m->name);
	}
	if (ebpf_verify_on(v, SIDE_LOCAL) && !(m->flags & GBPF_F_TENANT)) {
		report_hint(
			v->r,
			m->is_data ? "declare it GBPF_TENANT, so that each tenant has its own"
				   : "give the map GBPF_F_TENANT, so that each tenant has its own");
		return ebpf_verify_refuse(v, v->pc, "readonly",
					  "%s: %s is global, and %s, which runs in the tenant's "
					  "process, may only read it",
					  what, m->name, v->hook->name);
	}
	return 0;
}

/* Returns whether bytes at ptr + off may lie in [from, end). */
static int may_touch(const struct ebpf_reg *ptr, int64_t off, uint64_t bytes, int64_t from,
		     int64_t end)
{
	int64_t at[VERIFY_MAX_PLACES];
	unsigned n = ebpf_scalar_values(&ptr->v, at, VERIFY_MAX_PLACES);

	for (unsigned i = 0; i < n; i++) {
		if (at[i] + off < end && at[i] + off + (int64_t)bytes > from) {
			return 1;
		}
	}
	return !n && ptr->v.smin + off < end && ptr->v.smax + off + (int64_t)bytes > from;
}

/* Refuses accesses to the lock word of a value: only the lock helpers may touch it. */
static int check_lock(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
		      uint64_t bytes, const char *what)
{
	const struct ebpf_map_def *m = &v->maps[ptr->map];
	int64_t at = (int64_t)m->lock_1 - 1;

	if (m->lock_1 == 0 || !may_touch(ptr, off, bytes, at, at + 4)) {
		return 0;
	}
	report_hint(v->r, "read and write the fields beside it");
	return ebpf_verify_refuse(v, v->pc, "lock", "%s: bytes %lld to %lld of %s are its lock",
				  what, (long long)at, (long long)at + 3, m->name);
}

static int check_value(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
		       uint64_t bytes, int access, const char *what)
{
	const struct ebpf_map_def *m = &v->maps[ptr->map];
	int err = check_bounds(v, ptr, off, bytes, 0, m->value_bytes, what);

	if (err == 0 && (access & ACCESS_WRITE)) {
		err = ebpf_verify_map_write(v, ptr->map, what);
	}
	return err ? err : check_lock(v, ptr, off, bytes, what);
}

/* Checks an access to a key or to the number of an iterator; both are read-only. */
static int check_constant(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			  uint64_t bytes, int access, const char *what)
{
	static const struct ebpf_reg number = { .type = REG_NUMBER };

	if (access & ACCESS_WRITE) {
		return ebpf_verify_refuse(v, v->pc, "readonly", "%s: %s may only be read", what,
					  ebpf_verify_reg_text(v, ptr));
	}
	return ptr->type == REG_NUMBER
		       ? check_bounds(v, &number, off, bytes, 0, 4, what)
		       : check_bounds(v, ptr, off, bytes, 0, v->maps[ptr->map].key_bytes, what);
}

int ebpf_verify_range(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
		      uint64_t bytes, int access, const char *what)
{
	const struct ebpf_ref *ref;

	switch (ptr->type) {
	case REG_STACK:
		return check_bounds(v, ptr, off, bytes, -(int64_t)EBPF_STACK_BYTES, 0, what);
	case REG_VALUE:
		return check_value(v, ptr, off, bytes, access, what);
	case REG_RECORD:
		ref = ebpf_verify_ref(v, ptr->id);
		return check_bounds(v, ptr, off, bytes, 0, ref ? ref->bytes : 0, what);
	case REG_KEY:
	case REG_NUMBER:
		return check_constant(v, ptr, off, bytes, access, what);
	case REG_VALUE_OR_NULL:
	case REG_MAP_OR_NULL:
	case REG_RECORD_OR_NULL:
		report_hint(v->r, "write if (!p) return ...; after the lookup");
		return ebpf_verify_refuse(v, v->pc, "null", "%s: %s may be NULL here", what,
					  ebpf_verify_reg_text(v, ptr));
	case REG_CTX:
		return ebpf_verify_refuse(v, v->pc, "ctx",
					  "%s: the context cannot be used as memory", what);
	default:
		if (ptr->type == REG_SCALAR && ebpf_scalar_is_const(&ptr->v) &&
		    ptr->v.t.value == 0) {
			report_hint(v->r, "the pointer is NULL on this path: use it on the other "
					  "side of the comparison only");
		}
		return ebpf_verify_refuse(v, v->pc, "type", "%s: %s is not memory", what,
					  ebpf_verify_reg_text(v, ptr));
	}
}

/* Places of a table of constants that a load may reach, to know its range. */
#define TABLE_MAX 256u

static uint64_t constant_at(const void *init, int64_t at, unsigned bytes)
{
	uint64_t value = 0;

	memcpy(&value, (const char *)init + at, bytes);
	return value;
}

/* Bounds a load from one of several places by the numbers that these hold. It must read within the
 * constants. */
static void read_table(struct ebpf_verifier *v, const void *init, const struct ebpf_scalar *place,
		       int64_t off, unsigned bytes, struct ebpf_reg *out)
{
	uint64_t step = place->t.mask & -place->t.mask, min = UINT64_MAX, max = 0;
	/* The first place from smin on that the known low bits allow. */
	int64_t at = place->smin + (int64_t)((place->t.value - (uint64_t)place->smin) & (step - 1));

	ebpf_scalar_loaded(&out->v, bytes, 0);
	if (!step || (uint64_t)(place->smax - place->smin) / step >= TABLE_MAX) {
		return;
	}
	for (; at <= place->smax; at += (int64_t)step) {
		uint64_t value = constant_at(init, at + off, bytes);

		min = MIN(min, value);
		max = MAX(max, value);
		v->work++;
	}
	if (min <= max) {
		ebpf_scalar_urange(&out->v, min, max);
	}
}

/* Loads a constant of .rodata. Its value is known only if the caller has passed the contents of
 * .rodata. */
static int read_constant(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			 unsigned bytes, struct ebpf_reg *out)
{
	const struct ebpf_map_def *m = &v->maps[ptr->map];
	const void *init = v->prog->init ? v->prog->init[ptr->map] : NULL;

	if (!init || !m->is_data || !(m->flags & GBPF_F_RDONLY)) {
		return 0;
	}
	if (ebpf_scalar_is_const(&ptr->v)) {
		ebpf_reg_const(out, constant_at(init, ptr->v.smin + off, bytes));
	} else {
		read_table(v, init, &ptr->v, off, bytes, out);
	}
	return 1;
}

static void extend(struct ebpf_reg *out, unsigned bytes)
{
	struct ebpf_scalar wide;

	ebpf_link_extend(out, (int)bytes * 8);
	ebpf_scalar_const(&wide, 0);
	ebpf_scalar_alu(EBPF_MOV, 1, (int)bytes * 8, &wide, &out->v);
	out->v = wide;
}

/* Sets *out to the result of a load. sign_extend requires fewer than 8 bytes. */
static int load(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off, unsigned bytes,
		int sign_extend, struct ebpf_reg *out)
{
	const char *what = "load";
	int err;

	ebpf_reg_unknown(out);
	err = ebpf_verify_one_source(v, ptr);
	if (err) {
		return err;
	}
	if (ptr->type == REG_CTX) {
		return ebpf_verify_ctx_load(v, ptr, off, bytes, sign_extend, &out->v);
	}
	err = ebpf_verify_range(v, ptr, off, bytes, ACCESS_READ, what);
	err = err ? err : check_alignment(v, ptr, off, bytes, what);
	if (err) {
		return err;
	}
	if (ptr->type == REG_STACK) {
		err = ebpf_verify_stack_read(v, ptr, off, bytes, out);
	} else if (ptr->type == REG_NUMBER && bytes == 4) {
		out->v = ptr->v;
	} else if (ptr->type != REG_VALUE || !read_constant(v, ptr, off, bytes, out)) {
		ebpf_scalar_loaded(&out->v, bytes, sign_extend);
		return 0;
	}
	if (err == 0 && sign_extend) {
		extend(out, bytes); /* not a pointer: those have 8 bytes */
	}
	return err;
}

int ebpf_verify_load(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	unsigned bytes = ebpf_access_bytes(in);
	const struct ebpf_reg *ptr;
	struct ebpf_reg out;
	int err = 0;

	ptr = ebpf_verify_read(v, in->src, &err);
	if (!ptr) {
		return err;
	}
	err = load(v, ptr, in->off, bytes, EBPF_MODE(in->code) == EBPF_MEMSX, &out);
	if (err == 0) {
		*ebpf_verify_write(v, in->dst) = out;
	}
	return err;
}

/* Gives a stored number an id, so that later comparisons of the register also narrow its copy in
 * memory. */
static void link_copy(struct ebpf_verifier *v, struct ebpf_reg *src, unsigned bytes)
{
	if (bytes >= 4) {
		ebpf_link_name(v, src);
	}
}

static int store(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off, unsigned bytes,
		 struct ebpf_reg *value)
{
	const char *what = "store";
	int err;

	if (ptr->type != REG_STACK && ebpf_reg_is_pointer(value) && ebpf_reg_is_pointer(ptr)) {
		report_hint(v->r, "store an index instead of an address");
		return ebpf_verify_refuse(v, v->pc, "leak",
					  "a pointer (%s) would be stored where others can read it",
					  ebpf_verify_reg_text(v, value));
	}
	if (ptr->type == REG_CTX) {
		return ebpf_verify_ctx_store(v, ptr, off, bytes);
	}
	err = ebpf_verify_range(v, ptr, off, bytes, ACCESS_WRITE, what);
	err = err ? err : check_alignment(v, ptr, off, bytes, what);
	if (err || ptr->type != REG_STACK) {
		return err;
	}
	link_copy(v, value, bytes);
	return ebpf_verify_stack_write(v, ptr, off, bytes, value);
}

int ebpf_verify_store(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	struct ebpf_reg *ptr, *value, imm;
	int err = 0;

	ptr = ebpf_verify_read(v, in->dst, &err);
	if (!ptr) {
		return err;
	}
	if (EBPF_CLASS(in->code) == EBPF_ST) {
		ebpf_reg_const(&imm, (uint64_t)(int64_t)in->imm);
		value = &imm;
	} else {
		value = ebpf_verify_read(v, in->src, &err);
		if (!value) {
			return err;
		}
	}
	if (ptr->type == REG_STACK && value != &imm) {
		ebpf_mark_matter(v, v->depth,
				 in->src); /* states compare the numbers in stack slots */
	}
	return store(v, ptr, in->off, ebpf_access_bytes(in), value);
}

/* Sets the registers that an atomic operation writes. */
static void atomic_results(struct ebpf_verifier *v, const struct ebpf_insn *in, unsigned bytes)
{
	unsigned reg = in->imm == EBPF_CMPXCHG ? 0 : in->src;
	struct ebpf_reg *out;

	if (in->imm & EBPF_FETCH) {
		out = ebpf_verify_write(v, reg);
		ebpf_reg_unknown(out);
		ebpf_scalar_loaded(&out->v, bytes, 0);
	}
}

static int check_operand(struct ebpf_verifier *v, unsigned reg)
{
	int err = 0;
	const struct ebpf_reg *r = ebpf_verify_read(v, reg, &err);

	if (r && ebpf_reg_is_pointer(r)) {
		return ebpf_verify_refuse(
			v, v->pc, "leak",
			"atomic: r%u is %s; only numbers may be combined with memory", reg,
			ebpf_verify_reg_text(v, r));
	}
	return err;
}

int ebpf_verify_atomic(struct ebpf_verifier *v, const struct ebpf_insn *in)
{
	unsigned bytes = ebpf_access_bytes(in);
	const char *what = "atomic";
	struct ebpf_reg *ptr, old;
	int err = 0;

	ptr = ebpf_verify_read(v, in->dst, &err);
	err = err ? err : check_operand(v, in->src);
	if (err == 0 && in->imm == EBPF_CMPXCHG) {
		err = check_operand(v, 0);
	}
	if (err) {
		return err;
	}
	if (ptr->type != REG_STACK && ptr->type != REG_VALUE && !ebpf_reg_is_nullable(ptr)) {
		return ebpf_verify_refuse(
			v, v->pc, "atomic",
			"r%u is %s: atomics work on map values and the stack only", in->dst,
			ebpf_verify_reg_text(v, ptr));
	}
	err = ebpf_verify_range(v, ptr, in->off, bytes, ACCESS_READ | ACCESS_WRITE, what);
	err = err ? err : check_alignment(v, ptr, in->off, bytes, what);
	if (err == 0 && ptr->type == REG_STACK) {
		err = ebpf_verify_stack_read(v, ptr, in->off, bytes, &old);
		if (err == 0 && ebpf_reg_is_pointer(&old)) {
			err = ebpf_verify_refuse(v, v->pc, "leak", "atomic on a stored pointer");
		}
		ebpf_reg_unknown(&old);
		ebpf_scalar_loaded(&old.v, bytes, 0);
		err = err ? err : ebpf_verify_stack_write(v, ptr, in->off, bytes, &old);
	}
	if (err == 0) {
		atomic_results(v, in, bytes);
	}
	return err;
}

/* PTX back end: loads and stores. PTX faults on unaligned accesses, so an address that is not known
 * to be aligned is tested, and an unaligned one is accessed byte by byte. */
#include <stdio.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"
#include "bpf/run/map/map_type.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

void ebpf_ptx_check(struct ebpf_ptx_jit *j, unsigned bytes, int aligned)
{
	unsigned good = ++j->labels;

	ebpf_ptx_op(j, "mov.b32 %%place, %u", j->pc);
	if (aligned) {
		ebpf_ptx_op(j, "and.b64 %%t2, %%t0, %u", bytes - 1);
		ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%t2, 0");
		ebpf_ptx_op(j, "@%%p0 bra $FAULT");
	}
	ebpf_ptx_op(j, "sub.s64 %%t2, %%t0, %%mem");
	ebpf_ptx_op(j, "add.s64 %%t3, %%t2, %u", bytes);
	ebpf_ptx_op(j, "setp.lt.u64 %%p0, %%t2, %%size");
	ebpf_ptx_op(j, "setp.le.and.u64 %%p0, %%t3, %%size, %%p0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", good);
	ebpf_ptx_op(j, "sub.s64 %%t2, %%t0, %%frames");
	ebpf_ptx_op(j, "and.b64 %%t3, %%t2, %u", EBPF_STACK_BYTES - 1);
	ebpf_ptx_op(j, "setp.lt.u64 %%p0, %%t2, %%end");
	ebpf_ptx_op(j, "setp.le.and.u64 %%p0, %%t3, %u, %%p0", EBPF_STACK_BYTES - bytes);
	ebpf_ptx_op(j, "@!%%p0 bra $FAULT");
	ebpf_ptx_label(j, good);
}

/* Branches to the returned label if %t0 is aligned. */
static unsigned if_aligned(struct ebpf_ptx_jit *j, unsigned size)
{
	unsigned label = ++j->labels;

	ebpf_ptx_op(j, "and.b64 %%t2, %%t0, %u", size - 1);
	ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%t2, 0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", label);
	return label;
}

/* Ends the loop over the bytes of an unaligned access: %w0 counts bits. */
static void next_byte(struct ebpf_ptx_jit *j, unsigned size, unsigned top)
{
	ebpf_ptx_op(j, "add.s64 %%t0, %%t0, 1");
	ebpf_ptx_op(j, "add.s32 %%w0, %%w0, 8");
	ebpf_ptx_op(j, "setp.lt.u32 %%p0, %%w0, %u", 8 * size);
	ebpf_ptx_op(j, "@%%p0 bra $M%u", top);
}

void ebpf_ptx_load(struct ebpf_ptx_jit *j, const char *dst, unsigned size, int sign, int aligned)
{
	unsigned good = 0, end = 0, top;

	if (size > 1 && !aligned) {
		good = if_aligned(j, size);
		top = ++j->labels;
		end = ++j->labels;
		ebpf_ptx_op(j, "mov.b64 %%t1, 0");
		ebpf_ptx_op(j, "mov.b32 %%w0, 0");
		ebpf_ptx_label(j, top);
		ebpf_ptx_op(j, "ld.u8 %%t2, [%%t0]");
		ebpf_ptx_op(j, "shl.b64 %%t2, %%t2, %%w0");
		ebpf_ptx_op(j, "or.b64 %%t1, %%t1, %%t2");
		next_byte(j, size, top);
		if (sign) {
			ebpf_ptx_op(j, "cvt.s64.s%u %s, %%t1", 8 * size, dst);
		} else {
			ebpf_ptx_op(j, "mov.b64 %s, %%t1", dst);
		}
		ebpf_ptx_op(j, "bra $M%u", end);
		ebpf_ptx_label(j, good);
	}
	ebpf_ptx_op(j, "ld.%c%u %s, [%%t0]", sign ? 's' : 'u', 8 * size, dst);
	if (end) {
		ebpf_ptx_label(j, end);
	}
}

void ebpf_ptx_store(struct ebpf_ptx_jit *j, unsigned size, int aligned)
{
	unsigned good = 0, end = 0, top;

	if (size > 1 && !aligned) {
		good = if_aligned(j, size);
		top = ++j->labels;
		end = ++j->labels;
		ebpf_ptx_op(j, "mov.b32 %%w0, 0");
		ebpf_ptx_label(j, top);
		ebpf_ptx_op(j, "shr.u64 %%t2, %%t1, %%w0");
		ebpf_ptx_op(j, "st.u8 [%%t0], %%t2");
		next_byte(j, size, top);
		ebpf_ptx_op(j, "bra $M%u", end);
		ebpf_ptx_label(j, good);
	}
	ebpf_ptx_op(j, "st.u%u [%%t0], %%t1", 8 * size);
	if (end) {
		ebpf_ptx_label(j, end);
	}
}

int ebpf_ptx_in_frame(const struct ebpf_ptx_jit *j, int off, unsigned size, int *ret_off)
{
	return ebpf_ptx_frame_place(&ebpf_ptx_known(j)->base, off, size, size, ret_off);
}

unsigned ebpf_ptx_frame_bytes(const struct ebpf_ptx_jit *j)
{
	return EBPF_STACK_BYTES + j->flow.record_bytes[j->func - j->plan->funcs];
}

void ebpf_ptx_frame_load(struct ebpf_ptx_jit *j, int off, unsigned size, int sign, const char *dst)
{
	unsigned place = (unsigned)((int)ebpf_ptx_frame_bytes(j) + off);
	char type = sign ? 's' : 'u';

	if (!j->slots) {
		ebpf_ptx_op(j, "ld.local.%c%u %s, [stack+%u]", type, 8 * size, dst, place);
	} else if (size == 8) {
		ebpf_ptx_op(j, "mov.b64 %s, %%s%u", dst, (unsigned)(-off - 1) / 8);
	} else if (size == 4) { /* halves of a pair of registers */
		ebpf_ptx_op(j, "mov.b64 {%%h0, %%h1}, %%s%u", (unsigned)(-off - 1) / 8);
		ebpf_ptx_op(j, "cvt.%c64.%c32 %s, %%h%u", type, type, dst, place / 4 % 2);
	} else {
		ebpf_ptx_op(j, "bfe.%c64 %s, %%s%u, %u, %u", type, dst, (unsigned)(-off - 1) / 8,
			    place % 8 * 8, 8 * size);
	}
}

void ebpf_ptx_frame_store(struct ebpf_ptx_jit *j, int off, unsigned size, const char *src)
{
	unsigned place = (unsigned)((int)ebpf_ptx_frame_bytes(j) + off),
		 slot = (unsigned)(-off - 1) / 8;

	if (!j->slots) {
		ebpf_ptx_op(j, "st.local.u%u [stack+%u], %s", 8 * size, place, src);
	} else if (size == 8) {
		ebpf_ptx_op(j, "mov.b64 %%s%u, %s", slot, src);
	} else if (size == 4) {
		ebpf_ptx_op(j, "mov.b64 {%%h0, %%h1}, %%s%u", slot);
		ebpf_ptx_op(j, "cvt.u32.u64 %%h%u, %s", place / 4 % 2, src);
		ebpf_ptx_op(j, "mov.b64 %%s%u, {%%h0, %%h1}", slot);
	} else {
		ebpf_ptx_op(j, "bfi.b64 %%s%u, %s, %%s%u, %u, %u", slot, src, slot, place % 8 * 8,
			    8 * size);
	}
}

/* ---- accesses of known places ---- */

const char *ebpf_ptx_space(const struct ebpf_ptx_jit *j, const struct ebpf_ptx_value *at)
{
	const struct ebpf_map *m =
		at->kind == PTX_VALUE && at->map < j->plan->n_maps ? &j->plan->maps[at->map] : NULL;

	if (!m || !(m->flags & (uint32_t)GBPF_F_DEVICE)) {
		return "";
	}
	return m->type == GBPF_MAP_WARP_SCRATCH ? ".shared" : ".global";
}

const char *ebpf_ptx_scope(const struct ebpf_ptx_jit *j, const struct ebpf_ptx_value *at)
{
	const char *space = ebpf_ptx_space(j, at);

	return !*space ? ".sys" : space[1] == 's' ? ".cta" : ".gpu";
}

/* Loads or stores (verb) a value of a map at an aligned place, in a program inside kernels. It is a
 * relaxed access: it must see what other blocks and the host store while a kernel runs, and L1 does
 * not. */
static void access_value(struct ebpf_ptx_jit *j, const char *verb, unsigned base, int off,
			 const char *type, unsigned size, const char *reg)
{
	const struct ebpf_ptx_value *at = &ebpf_ptx_known(j)->base;
	const char *space = ebpf_ptx_space(j, at), *scope = ebpf_ptx_scope(j, at);
	int is_load = verb[0] == 'l';

	ebpf_ptx_op(j, "%s%s.u64 %%t0, %%r%u", *space ? "cvta.to" : "mov", space, base);
	if (is_load) {
		ebpf_ptx_op(j, "%s.relaxed%s%s.%s%u %s, [%%t0+%d]", verb, scope, space, type,
			    8 * size, reg, off);
	} else {
		ebpf_ptx_op(j, "%s.relaxed%s%s.%s%u [%%t0+%d], %s", verb, scope, space, type,
			    8 * size, off, reg);
	}
}

static int is_shared_value(const struct ebpf_ptx_jit *j, int off, unsigned size)
{
	const struct ebpf_ptx_value *at = &ebpf_ptx_known(j)->base;

	return j->hook && at->kind == PTX_VALUE && ebpf_ptx_aligned(at, off, size) == 1;
}

void ebpf_ptx_address(struct ebpf_ptx_jit *j, unsigned base, int off)
{
	ebpf_ptx_op(j, "add.s64 %%t0, %%r%u, %d", base, off);
}

static int is_aligned(const struct ebpf_ptx_jit *j, int off, unsigned size)
{
	return ebpf_ptx_aligned(&ebpf_ptx_known(j)->base, off, size) == 1;
}

static void load(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	unsigned size = ebpf_access_bytes(i);
	int sign = EBPF_MODE(i->code) == EBPF_MEMSX, place;
	char dst[8];

	if (j->hook && ebpf_ptx_known(j)->base.kind == PTX_CTX) {
		ebpf_ptx_load_field(j, i);
		return;
	}
	snprintf(dst, sizeof(dst), "%%r%u", i->dst);
	if (ebpf_ptx_in_frame(j, i->off, size, &place)) {
		ebpf_ptx_frame_load(j, place, size, sign, dst);
		return;
	}
	if (is_shared_value(j, i->off, size)) {
		access_value(j, "ld", i->src, i->off, sign ? "s" : "u", size, dst);
		return;
	}
	ebpf_ptx_address(j, i->src, i->off);
	if (j->checked) {
		ebpf_ptx_check(j, size, 0);
	}
	ebpf_ptx_load(j, dst, size, sign, is_aligned(j, i->off, size));
}

static void store(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	unsigned size = ebpf_access_bytes(i);
	int place;

	if (EBPF_CLASS(i->code) == EBPF_ST) {
		ebpf_ptx_op(j, "mov.b64 %%t1, %d", i->imm);
	} else {
		ebpf_ptx_op(j, "mov.b64 %%t1, %%r%u", i->src);
	}
	if (ebpf_ptx_in_frame(j, i->off, size, &place)) {
		ebpf_ptx_frame_store(j, place, size, "%t1");
		return;
	}
	if (is_shared_value(j, i->off, size)) {
		access_value(j, "st", i->dst, i->off, "u", size, "%t1");
		return;
	}
	ebpf_ptx_address(j, i->dst, i->off);
	if (j->checked) {
		ebpf_ptx_check(j, size, 0);
	}
	ebpf_ptx_store(j, size, is_aligned(j, i->off, size));
}

void ebpf_ptx_memory(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	if (EBPF_CLASS(i->code) == EBPF_LDX) {
		load(j, i);
	} else if (EBPF_MODE(i->code) == EBPF_ATOMIC) {
		ebpf_ptx_atomic(j, i);
	} else {
		store(j, i);
	}
}

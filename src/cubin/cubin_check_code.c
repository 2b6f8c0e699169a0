/* Checks the code of a patched kernel by decoding it: the branch at the entry, the stub, the
 * displaced instruction, the branch back, and that nothing else changed. */
#include "cubin/cubin_check_int.h"

#include <string.h>

#include "cubin/cubin_insn_int.h"

#define LOW(n) ((1ull << (n)) - 1)

/* Bits of an unconditional branch besides its target and its stall count: predicate and operand
 * "true", no scoreboards. */
#define BRANCH_LOW 0x7947ull
#define BRANCH_HIGH 0x000fc00003800000ull
#define STALL_BITS (15ull << 41)
#define REUSE_BITS (15ull << 58)
#define WAIT_BITS (0x3full << 52)

static int differs(const struct cubin_checking *c, const struct cubin_check_kernel *k,
		   const char *what)
{
	return cubin_refuse(c->r, "check: code of '%s': %s", k->name, what);
}

/* Splits a branch into its target, in bytes from the section's start, and the other bits. */
static int64_t split_branch(unsigned arch, const uint8_t *code, uint64_t at,
			    struct cubin_insn *rest)
{
	struct cubin_insn i = cubin_insn_at(code + at);
	u128 all = (u128)i.hi << 64 | i.lo;
	uint64_t words = (uint64_t)(all >> 34) & LOW(48);
	unsigned bits = 48;

	if (arch >= 90) {
		words = words << 8 | (i.lo >> 16 & 0xff);
		bits = 56;
		i.lo &= ~(0xffull << 16);
	}
	if (words >> (bits - 1)) {
		words |= ~LOW(bits);
	}
	i.lo &= LOW(34);
	i.hi &= ~LOW(18);
	*rest = i;
	return (int64_t)(at + 16 + words * 4);
}

static bool plain_branch(struct cubin_insn rest)
{
	uint64_t stall = (rest.hi & STALL_BITS) >> 41;

	return rest.lo == BRANCH_LOW && (rest.hi & ~STALL_BITS) == BRANCH_HIGH && stall >= 5;
}

/* The original must not come back to the instruction that moved. */
static int check_original(const struct cubin_checking *c, const struct cubin_check_kernel *k,
			  const uint8_t *code, uint64_t bytes)
{
	for (uint64_t at = 16; at < bytes; at += 16) {
		struct cubin_insn rest;
		unsigned op = code[at] | (code[at + 1] & 15u) << 8;

		if ((op == 0x947 || op == 0x547 || op == 0x944) &&
		    split_branch(c->old.arch, code, at, &rest) < 16) {
			return differs(c, k, "a branch to the first instruction");
		}
	}
	return 0;
}

static int check_stub(const struct cubin_checking *c, const struct cubin_check_kernel *k,
		      const uint8_t *code)
{
	const struct cubin_stub *s = c->stub;
	uint32_t moved = s->base + k->arg_offset - s->arg_at; /* modulo 2^32 */

	for (size_t at = 0; at < s->bytes; at += 16) {
		struct cubin_insn is = cubin_insn_at(code + at);
		struct cubin_insn was = cubin_insn_at(s->code + at);
		unsigned field = s->field[at / 16];

		if (field) {
			uint32_t a = (uint32_t)(is.lo >> field) & 0xffff;
			uint32_t b = (uint32_t)(was.lo >> field) & 0xffff;

			if (a != ((b + moved) & 0xffff) || a < s->base + k->arg_offset ||
			    a >= s->base + k->arg_offset + s->arg_bytes) {
				return differs(c, k, "an operand of the stub");
			}
			is.lo &= ~(0xffffull << field);
			was.lo &= ~(0xffffull << field);
		}
		if (is.lo != was.lo || is.hi != was.hi) {
			return differs(c, k, "the stub");
		}
	}
	return 0;
}

/* Behind the stub: wait for all scoreboards, the displaced instruction, the branch back, padding.
 */
static int check_tail(const struct cubin_checking *c, const struct cubin_check_kernel *k,
		      const uint8_t *code, uint64_t at, uint64_t bytes, struct cubin_insn first)
{
	struct cubin_insn wait, moved, rest;

	if (at + 48 > bytes || bytes - at >= 48 + 128 || bytes % 128) {
		return differs(c, k, "its size");
	}
	wait = cubin_insn_at(code + at);
	moved = cubin_insn_at(code + at + 16);
	if (wait.lo != 0x7918 || (wait.hi & WAIT_BITS) != WAIT_BITS ||
	    (wait.hi & ~(WAIT_BITS | STALL_BITS)) != 0x000fc00000000000ull ||
	    (wait.hi & STALL_BITS) != STALL_BITS) {
		return differs(c, k, "no waiting behind the stub");
	}
	if (moved.lo != first.lo ||
	    (moved.hi & ~STALL_BITS) != (first.hi & ~(STALL_BITS | REUSE_BITS)) ||
	    (moved.hi & STALL_BITS) < (first.hi & STALL_BITS) || !(moved.hi & STALL_BITS)) {
		return differs(c, k, "the displaced instruction");
	}
	if (split_branch(c->new.arch, code, at + 32, &rest) != 16 || !plain_branch(rest)) {
		return differs(c, k, "the branch back");
	}
	for (at += 48; at < bytes; at += 16) {
		struct cubin_insn pad = cubin_insn_at(code + at);

		if (pad.lo != 0x7918 || pad.hi != 0x000fc00000000000ull) {
			return differs(c, k, "its padding");
		}
	}
	return 0;
}

/* Register counts and barriers that stand in the header of the section. */
static int check_header(const struct cubin_checking *c, const struct cubin_check_kernel *k)
{
	const Elf64_Shdr *a = &c->old.sections[k->text], *b = &c->new.sections[k->text];
	unsigned registers = a->sh_info >> 24, barriers = (unsigned)(a->sh_flags >> 20) & 0x7f;

	if (registers) {
		registers = MAX(registers, c->stub->registers);
	}
	if (b->sh_info >> 24 != registers) {
		return differs(c, k, "its register count");
	}
	if (c->old.abi == CUBIN_ABI_OLD &&
	    (unsigned)(b->sh_flags >> 20 & 0x7f) != MAX(barriers, c->stub->barriers)) {
		return differs(c, k, "its barrier count");
	}
	return 0;
}

int cubin_check_code(const struct cubin_checking *c, const struct cubin_check_kernel *k)
{
	const uint8_t *a = cubin_elf_data(&c->old, k->text), *b = cubin_elf_data(&c->new, k->text);
	uint64_t old = c->old.sections[k->text].sh_size, new = c->new.sections[k->text].sh_size;
	struct cubin_insn rest, first;
	int err = check_header(c, k);

	if (err < 0) {
		return err;
	}
	if (old < 32 || old % 16 || new <= old || new - old < c->stub->bytes) {
		return differs(c, k, "its size");
	}
	if (!cubin_check_same_code(c, k->text)) {
		return differs(c, k, "an instruction behind the first");
	}
	if (split_branch(c->new.arch, b, 0, &rest) != (int64_t)old || !plain_branch(rest)) {
		return differs(c, k, "the branch to the stub");
	}
	first = cubin_insn_at(a);
	if (!cubin_insn_loads_stack(first)) {
		return differs(c, k, "the displaced instruction may not move");
	}
	err = check_original(c, k, a, old);
	if (!err) {
		err = check_stub(c, k, b + old);
	}
	return err ? err : check_tail(c, k, b, old + c->stub->bytes, new, first);
}

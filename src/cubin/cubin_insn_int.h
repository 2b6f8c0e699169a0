/* The little that is known of NVIDIA's machine code, sm_70 and later: instructions have 16 bytes;
 * the low 12 bits are the operation, bits 12-15 the predicate. Bits 105-125 control the issue:
 * stall count 4, yield 1, write barrier 3, read barrier 3, wait mask 6, reuse 4. */
#ifndef GBPF_CUBIN_CUBIN_INSN_INT_H
#define GBPF_CUBIN_CUBIN_INSN_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CUBIN_INSN_BYTES 16u
#define CUBIN_INSN_IMMEDIATE 4u /* first byte of a 32-bit operand */

struct cubin_insn {
	uint64_t lo, hi;
};

enum cubin_op {
	CUBIN_OP_NOP = 0x918,
	CUBIN_OP_EXIT = 0x94d,
	CUBIN_OP_BRA = 0x947,
	CUBIN_OP_BRA_UNIFORM = 0x547, /* taken on a uniform predicate */
	CUBIN_OP_PMTRIG = 0x801,      /* pmevent */
	CUBIN_OP_MOV_IMM = 0x802,     /* MOV R, 32 bits */
	CUBIN_OP_UMOV_IMM = 0x882,    /* UMOV UR, 32 bits */
	CUBIN_OP_MOV_CONST = 0xa02,   /* MOV R, c[][] */
	CUBIN_OP_IMAD_CONST = 0x624,  /* IMAD R, R, R, c[][]: the other form of MOV */
	CUBIN_OP_LDC = 0xb82,	      /* R = c[][R + offset] */
	CUBIN_OP_LDCU = 0x7ac,	      /* UR = c[][UR + offset], from sm_100 on */
	CUBIN_OP_SETMAXREG = 0x9c8,   /* setmaxnreg */
	CUBIN_OP_PREEXIT = 0x82d,     /* griddepcontrol.launch_dependents */
	CUBIN_OP_ACQBULK = 0x82e,     /* griddepcontrol.wait */
	CUBIN_OP_ST = 0x985,	      /* stores: generic, global, local, shared; without uniform */
	CUBIN_OP_STG = 0x986,	      /* registers 0x300 instead of 0x900 */
	CUBIN_OP_STL = 0x987,
	CUBIN_OP_STS = 0x988,
	CUBIN_OP_RED = 0x98e,	   /* atomic without a result */
	CUBIN_OP_CALL_ABS = 0x943, /* of an address in the instruction */
	CUBIN_OP_CALL_REL = 0x944, /* to a constant place of the same code */
	CUBIN_OP_NONE = 0xfff,	   /* of no GPU: the soft GPU's code consists of it */
};

/* An operation without the three bits that say which operands are registers, constants, uniform. */
enum cubin_base {
	CUBIN_BASE_VOTE = 0x006,
	CUBIN_BASE_ELECT = 0x02f,
	CUBIN_BASE_VOTEU = 0x086,
	CUBIN_BASE_BAR = 0x11d,
	CUBIN_BASE_BSYNC = 0x141,
	CUBIN_BASE_CALL_ABS = 0x143,
	CUBIN_BASE_CALL_REL = 0x144,
	CUBIN_BASE_BSSY = 0x145,
	CUBIN_BASE_BRA = 0x147,
	CUBIN_BASE_BRX = 0x149,
	CUBIN_BASE_JMX = 0x14c,
	CUBIN_BASE_RET = 0x150,
	CUBIN_BASE_BPT = 0x15c,
	CUBIN_BASE_LD = 0x180,
	CUBIN_BASE_LDC = 0x182,
	CUBIN_BASE_LDL = 0x183,
	CUBIN_BASE_LDS = 0x184,
	CUBIN_BASE_STL = 0x187,
	CUBIN_BASE_STS = 0x188,
	CUBIN_BASE_SHFL = 0x189,
	CUBIN_BASE_ATOMS = 0x18c,
	CUBIN_BASE_MATCH = 0x1a1,
	CUBIN_BASE_REDUX = 0x1c4,
};
#define CUBIN_ALWAYS 7u	       /* predicate "true" */
#define CUBIN_NEVER 15u	       /* its negation */
#define CUBIN_NO_BARRIER 7u    /* no scoreboard */
#define CUBIN_STORE_BARRIER 5u /* scoreboard given to stores that signal none */
#define CUBIN_STACK_REGISTER 1u
#define CUBIN_RZ 255u

static inline struct cubin_insn cubin_insn_at(const uint8_t *p)
{
	struct cubin_insn i;

	memcpy(&i.lo, p, 8);
	memcpy(&i.hi, p + 8, 8);
	return i;
}

static inline void cubin_insn_put(uint8_t *p, struct cubin_insn i)
{
	memcpy(p, &i.lo, 8);
	memcpy(p + 8, &i.hi, 8);
}

static inline unsigned cubin_insn_op(struct cubin_insn i)
{
	return (unsigned)(i.lo & 0xfff);
}

static inline unsigned cubin_insn_base(struct cubin_insn i)
{
	return (unsigned)(i.lo & 0x1ff);
}

static inline unsigned cubin_insn_predicate(struct cubin_insn i)
{
	return (unsigned)(i.lo >> 12) & 0xf;
}

/* n bits from bit `at` (64-127) on. */
static inline unsigned cubin_insn_bits(struct cubin_insn i, unsigned at, unsigned n)
{
	return (unsigned)(i.hi >> (at - 64)) & ((1u << n) - 1);
}

static inline struct cubin_insn cubin_insn_set(struct cubin_insn i, unsigned at, unsigned n,
					       unsigned v)
{
	uint64_t mask = ((1ull << n) - 1) << (at - 64);

	i.hi = (i.hi & ~mask) | ((uint64_t)v << (at - 64) & mask);
	return i;
}

enum { /* control fields: first bit */
       CUBIN_STALL = 105,
       CUBIN_WRITE_BARRIER = 110,
       CUBIN_READ_BARRIER = 113,
       CUBIN_WAIT = 116,
       CUBIN_REUSE = 122,
};

struct cubin_insn cubin_insn_nop(unsigned stall, unsigned wait);
/* An unconditional branch; offset is in bytes, from the next instruction. */
struct cubin_insn cubin_insn_bra(unsigned arch, int64_t offset);
/* Returns the target of a relative branch or call at `at`, in bytes from the section's start. */
int64_t cubin_insn_target(unsigned arch, struct cubin_insn i, size_t at);
/* The displaced instruction in its form behind the stub. */
struct cubin_insn cubin_insn_displaced(struct cubin_insn first);
/* Whether it loads the stack pointer from bank 0: the first instruction of all compiled kernels,
 * and one that does not depend on its place. */
bool cubin_insn_loads_stack(struct cubin_insn i);
/* Whether it reads registers late, so that it must signal a scoreboard before they are reused. */
bool cubin_insn_stores(struct cubin_insn i);

#endif

/* The compiler's own: what one compilation knows, shared by analysis (jit_plan.c), single
 * instructions (jit_alu.c, jit_div.c, jit_mem.c) and control (jit_x86.c). */
#ifndef GBPF_BPF_LOAD_JIT_INT_H
#define GBPF_BPF_LOAD_JIT_INT_H

#include "bpf/load/jit_emit.h"
#include "bpf/run/env.h"
#include "bpf/run/insn.h"
#include "bpf/run/map.h"

#define JIT_MAX_FUNCS 256u
#define JIT_NO_MAP 0xff

enum {
	JIT_TARGET = 1, /* a jump comes here */
	JIT_FUNC = 2,	/* a function begins here */
	JIT_SHORT = 4,	/* its jump has an 8-bit displacement */
	JIT_SKIP = 8,	/* no code: done by another instruction, or its result is not needed */
	JIT_LEA = 16,	/* a move that does the addition after it, too */
	JIT_VALUE = 32, /* a function whose address is a value: C calls it */
};

/* Per instruction. */
struct jit_note {
	uint8_t flags;
	uint8_t map;   /* a lookup of this map, to be done in line; or JIT_NO_MAP */
	uint8_t func;  /* index of the function that it belongs to */
	uint32_t addr; /* where its code begins, after the function's prologue */
};

struct jit_func {
	uint32_t first; /* instruction */
	uint32_t entry; /* where its prologue begins */
	uint16_t used;	/* eBPF registers, as bits */
	uint8_t calls;	/* the stack must be aligned */
	uint8_t env;	/* it, or what it calls, reaches for the environment */
	uint8_t value;	/* C calls it: its sixth argument is the environment */
};

struct jit {
	struct code code;
	const struct ebpf_insn *insns;
	uint32_t n;
	const struct ebpf_map *maps;
	uint32_t n_maps;
	struct jit_note *notes; /* owned, n */
	struct jit_func funcs[JIT_MAX_FUNCS];
	unsigned n_funcs;
	int helper_calls; /* real ones: the environment must survive them */
	int relax;	  /* short jumps may be chosen in this pass */
};

extern const uint8_t jit_reg[11]; /* eBPF register -> x86 register */

/* Scratch registers: no eBPF register lives there. */
enum { JIT_SCRATCH = R11, JIT_SCRATCH2 = R10 };

static inline unsigned jit_env_reg(const struct jit *j)
{
	return j->helper_calls ? R12 : R9; /* r9 costs no save, but does not survive a call */
}

/* The function that a local call or a function value names. */
static inline struct jit_func *jit_func_at(struct jit *j, const struct ebpf_insn *i)
{
	return &j->funcs[j->notes[i - j->insns + 1 + i->imm].func];
}

/* What a 32-bit operation that changes nothing still does. */
static inline void jit_zero_extend(struct code *c, int wide, unsigned reg)
{
	if (!wide) {
		x86_mov(c, 0, reg, reg);
	}
}

/* Fills notes and funcs. 0, -EINVAL (control would leave a function), -ENOTSUP, -ENOMEM. */
int jit_plan(struct jit *j);

void jit_alu(struct jit *j, const struct ebpf_insn *i, const struct jit_note *note);
void jit_division(struct code *c, const struct ebpf_insn *i);
void jit_ld_imm64(struct jit *j, const struct ebpf_insn *i);
void jit_memory(struct jit *j, const struct ebpf_insn *i);
void jit_lookup(struct jit *j, const struct ebpf_map *map);

#endif

/* The plan of one compilation, shared by all back ends. jit_plan.c finds functions, jump targets,
 * calls to inline and unused results; jit_fuse.c fuses instructions. Registers are those of eBPF; a
 * back end maps them to machine registers. */
#ifndef GBPF_BPF_LOAD_JIT_JIT_INT_H
#define GBPF_BPF_LOAD_JIT_JIT_INT_H

#include "bpf/load/jit/jit.h"
#include "bpf/run/env.h"
#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"

#define JIT_MAX_FUNCS 256u
#define JIT_NO_MAP 0xff

enum {
	JIT_TARGET = 1,	  /* target of a jump */
	JIT_FUNC = 2,	  /* first instruction of a function */
	JIT_SHORT = 4,	  /* jump with an 8-bit displacement */
	JIT_SKIP = 8,	  /* no code: fused into another instruction, or its result is unused */
	JIT_LEA = 16,	  /* a move that includes the addition after it */
	JIT_VALUE = 32,	  /* a function whose address is taken: called from C */
	JIT_TAIL = 64,	  /* target of tail calls */
	JIT_INLINE = 128, /* inlined helper call */
	JIT_LOOP = 256,	  /* target of a backward jump */
};

/* The operation of fused instructions, recorded at the last of them; the others have JIT_SKIP. */
enum {
	FUSE_NONE,
	FUSE_LEA,     /* an addition: the sum of base and index */
	FUSE_COMPARE, /* a conditional jump: one operand is the result of the load before it */
	FUSE_OPERAND, /* arithmetic: the source is the result of the load before it */
	FUSE_UPDATE,  /* a store of a value loaded two instructions before and then changed */
	FUSE_EXTEND,  /* an AND: zero-extends the source of the move before it */
};

/* Where a lookup finds its key. A key that was just stored need not be loaded again. */
enum { KEY_IN_MEMORY, KEY_IN_REGISTER, KEY_CONSTANT };

/* Per instruction. */
struct ebpf_jit_note {
	uint16_t flags;
	uint8_t fuse;
	uint8_t swapped;	    /* a jump that has exchanged targets with the next one */
	uint8_t fused_address;	    /* the address or sum is base + index * 2^scale */
	uint8_t base, index, scale; /* eBPF registers; exponent */
	uint16_t live;		    /* bit mask of eBPF registers that are read later */
	uint8_t map;		    /* map of an inlined call, or JIT_NO_MAP */
	uint8_t key;		    /* where a lookup finds its key: KEY_* */
	uint8_t key_reg;
	uint32_t key_value;
	uint32_t callee; /* inlined bpf_loop: first instruction of its function; else 0 */
	uint8_t func;	 /* index of its function */
	uint32_t addr;	 /* offset of its code, after the prologue of the function */
};

struct ebpf_jit_func {
	uint32_t first; /* first instruction */
	uint32_t entry; /* offset of its prologue */
	uint16_t used;	/* bit mask of used eBPF registers */
	uint8_t calls;	/* contains calls: the stack must be aligned */
	uint8_t env;	/* it or a callee uses the environment */
	uint8_t value;	/* called from C with the environment as sixth argument */
	uint8_t root;	/* the program or the target of a tail call: starts with ctx and environment
			 */
	uint32_t tail_entry; /* offset of the entry for tail calls, whose count is in eax */
};

struct ebpf_jit {
	const struct ebpf_jit_options *options; /* never NULL */
	int fuses;				/* as in struct ebpf_target */
	const struct ebpf_insn *insns;
	uint32_t n;
	const struct ebpf_map *maps;
	uint32_t n_maps;
	struct ebpf_jit_note *notes; /* owned, n */
	struct ebpf_jit_func funcs[JIT_MAX_FUNCS];
	unsigned n_funcs;
	int helper_calls; /* number of calls that are not inlined: the environment must survive them
			   */
	const struct ebpf_tail_at *tails;
	uint32_t n_tails;
	/* Number of entries in the code of all tail calls, at least 1 if there are tail calls. If
	 * not 0, roots count tail calls in a word of their stack. */
	uint32_t tail_calls;
};

struct ebpf_jit_uses {
	unsigned reads, writes; /* bit masks of eBPF registers */
};
struct ebpf_jit_uses ebpf_jit_uses_of(const struct ebpf_insn *i);
int ebpf_jit_is_jump(const struct ebpf_insn *i);
uint32_t ebpf_jit_jump_target(const struct ebpf_insn *i, uint32_t pc);

/* Fills notes and funcs. Returns 0, -EINVAL (control would leave a function), -ENOTSUP or -ENOMEM.
 */
int ebpf_jit_plan(struct ebpf_jit *j);
/* Fills the live registers of all notes (jit_fuse.c); part of fusing. */
void ebpf_jit_find_live(struct ebpf_jit *j);
/* Fuses instructions that the target encodes as one (jit_fuse.c); part of the plan. */
void ebpf_jit_fuse(struct ebpf_jit *j);

#endif

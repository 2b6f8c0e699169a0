/* The compiler's own: what one compilation knows, shared by analysis (jit_plan.c), single
 * instructions (jit_alu.c, jit_div.c, jit_mem.c), calls (jit_call.c) and control (jit_x86.c). */
#ifndef GBPF_BPF_LOAD_JIT_JIT_INT_H
#define GBPF_BPF_LOAD_JIT_JIT_INT_H

#include "bpf/load/jit/x86/x86_emit.h"
#include "bpf/run/env.h"
#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"

#define JIT_MAX_FUNCS 256u
#define JIT_NO_MAP 0xff

enum {
	JIT_TARGET = 1,	  /* a jump comes here */
	JIT_FUNC = 2,	  /* a function begins here */
	JIT_SHORT = 4,	  /* its jump has an 8-bit displacement */
	JIT_SKIP = 8,	  /* no code: done by another instruction, or its result is not needed */
	JIT_LEA = 16,	  /* a move that does the addition after it, too */
	JIT_VALUE = 32,	  /* a function whose address is a value: C calls it */
	JIT_TAIL = 64,	  /* a function that tail calls go to */
	JIT_INLINE = 128, /* a helper's call, done in line */
	JIT_LOOP = 256,	  /* a jump from below comes here */
};

/* What the last of several instructions that became one does; those before it have JIT_SKIP. */
enum {
	FUSE_NONE,
	FUSE_LEA,     /* an addition: the sum of base and index */
	FUSE_COMPARE, /* a conditional jump: one operand is what the load before it loads */
	FUSE_OPERAND, /* arithmetic: the source is what the load before it loads */
	FUSE_UPDATE,  /* a store: of the load two before it, changed by the arithmetic between */
	FUSE_EXTEND,  /* an AND: zero-extends what the move before it moves */
};

/* A key on the stack that has just been written there: it need not be read again. */
enum { KEY_IN_MEMORY, KEY_IN_REGISTER, KEY_CONSTANT };

/* Per instruction. */
struct ebpf_jit_note {
	uint16_t flags;
	uint8_t fuse;
	uint8_t swapped;	    /* a jump that has changed targets with the one beside it */
	uint8_t fused_address;	    /* its memory, or sum, lies at base + index * 2^scale */
	uint8_t base, index, scale; /* machine registers */
	uint16_t live;		    /* eBPF registers that are read after it, as bits */
	uint8_t map;		    /* a call with this map, to be done in line; or JIT_NO_MAP */
	uint8_t key;		    /* what is known of a lookup\'s key: KEY_* */
	uint8_t key_reg;
	uint32_t key_value;
	uint32_t callee; /* bpf_loop in line: the instruction where its function begins; else 0 */
	uint8_t func;	 /* index of the function that it belongs to */
	uint32_t addr;	 /* where its code begins, after the function's prologue */
};

struct ebpf_jit_func {
	uint32_t first; /* instruction */
	uint32_t entry; /* where its prologue begins */
	uint16_t used;	/* eBPF registers, as bits */
	uint8_t calls;	/* the stack must be aligned */
	uint8_t env;	/* it, or what it calls, reaches for the environment */
	uint8_t value;	/* C calls it: its sixth argument is the environment */
	uint8_t root;	/* the program, or a tail call's target: starts with ctx and environment */
	uint32_t tail_entry; /* where tail calls come in, with their number in eax */
};

struct jit {
	struct x86_code code;
	const struct ebpf_insn *insns;
	uint32_t n;
	const struct ebpf_map *maps;
	uint32_t n_maps;
	struct ebpf_jit_note *notes; /* owned, n */
	struct ebpf_jit_func funcs[JIT_MAX_FUNCS];
	unsigned n_funcs;
	int helper_calls; /* real ones: the environment must survive them */
	const struct ebpf_tail_at *tails;
	uint32_t n_tails;
	/* there are some: roots keep count of them in a word of their stack. The entries that
	 * their code spells out, or one */
	uint32_t tail_calls;
	int relax; /* short jumps may be chosen in this pass */
	int exact; /* loops are aligned; before that, as much room as it may take is left for it */
};

extern const uint8_t jit_reg[11]; /* eBPF register -> x86 register */

/* Scratch registers: no eBPF register lives there. */
enum { JIT_SCRATCH = R11, JIT_SCRATCH2 = R10 };

static inline unsigned x86_env_reg(const struct jit *j)
{
	return j->helper_calls ? R12 : R9; /* r9 costs no save, but does not survive a call */
}

static inline int32_t x86_map_handle(uint32_t map)
{
	return (int32_t)(offsetof(struct ebpf_env, maps) + map * sizeof(struct ebpf_map));
}

static inline int32_t x86_map_data(uint32_t map)
{
	return x86_map_handle(map) + (int32_t)offsetof(struct ebpf_map, data);
}

/* The function that a local call or a function value names. */
static inline struct ebpf_jit_func *x86_func_at(struct jit *j, const struct ebpf_insn *i)
{
	return &j->funcs[j->notes[i - j->insns + 1 + i->imm].func];
}

/* What a 32-bit operation that changes nothing still does. */
static inline void x86_zero_extend(struct x86_code *c, int wide, unsigned reg)
{
	if (!wide) {
		x86_mov(c, 0, reg, reg);
	}
}

/* Machine memory that a load or store reaches. */
struct x86_mem x86_mem_of(const struct ebpf_jit_note *note, const struct ebpf_insn *access);
void x86_load_mem(struct x86_code *c, const struct ebpf_insn *i, unsigned dst,
		  const struct x86_mem *m);

/* Several instructions in one (jit_fuse.c). */
void ebpf_jit_fuse(struct jit *j);
void x86_update(struct jit *j, const struct ebpf_insn *store, const struct x86_mem *m);
int x86_operand(struct jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note);
void x86_compare_memory(struct jit *j, const struct ebpf_insn *jump,
			const struct ebpf_jit_note *note);

struct ebpf_jit_uses {
	unsigned reads, writes; /* eBPF registers as bits */
};
struct ebpf_jit_uses ebpf_jit_uses_of(const struct ebpf_insn *i);
int ebpf_jit_is_jump(const struct ebpf_insn *i);
uint32_t ebpf_jit_jump_target(const struct ebpf_insn *i, uint32_t pc);
enum x86_alu x86_simple_op(unsigned op);

/* Fills notes and funcs. 0, -EINVAL (control would leave a function), -ENOTSUP, -ENOMEM. */
int ebpf_jit_plan(struct jit *j);

void x86_arithmetic(struct jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note);
void x86_division(struct x86_code *c, const struct ebpf_insn *i);
void x86_ld_imm64(struct jit *j, const struct ebpf_insn *i);
void x86_memory(struct jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note);
void x86_call(struct jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note);
void x86_epilogue(struct jit *j, const struct ebpf_jit_func *f);
/* Bytes from rsp to the number of tail calls, in a root. */
int32_t x86_tail_count(const struct jit *j, const struct ebpf_jit_func *f);
/* It is entered with an environment, and must keep its caller's r12. */
int x86_sets_env(const struct jit *j, const struct ebpf_jit_func *f);

#endif

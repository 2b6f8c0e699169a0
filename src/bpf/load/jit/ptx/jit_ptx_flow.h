/* What is known of registers and stack words before each instruction of a verified program. The
 * emitters use it to choose the memory space, the scope and the width of an access; a device
 * program has no context in memory, so it also shows which loads are loads of a context field. */
#ifndef GBPF_BPF_LOAD_JIT_PTX_JIT_PTX_FLOW_H
#define GBPF_BPF_LOAD_JIT_PTX_JIT_PTX_FLOW_H

#include <stdint.h>

#include "bpf/load/jit/jit_int.h"

enum ebpf_ptx_kind {
	PTX_NONE,	  /* no value: not reached, or not readable */
	PTX_ANY,	  /* any value or pointer, but not the context */
	PTX_SCALAR,	  /* no pointer */
	PTX_CTX,	  /* the context of a device program */
	PTX_CTX_OR_NOT,	  /* the context on some paths, another value on others */
	PTX_FRAME,	  /* a pointer into the function's own stack, or a record behind it */
	PTX_FRAME_OR_NOT, /* such a pointer on some paths, another value on others */
	PTX_HANDLE,	  /* the handle of a map */
	PTX_VALUE,	  /* a pointer into a value of a map, or NULL */
};

/* A value: its kind, its low bits as far as they are constant, and a bound. */
struct ebpf_ptx_value {
	uint8_t kind;
	uint8_t bits; /* number of known low bits, at most 3 */
	uint8_t low;  /* these bits */
	uint8_t map;  /* HANDLE, VALUE, record: the map, or JIT_NO_MAP */
	int16_t off;  /* FRAME: offset from r10, or PTX_NO_OFF */
	/* The unsigned value is less than this; 0: not known. Of a word of the stack: of its low
	 * half, and of its high half. */
	uint16_t below, high;
	/* CTX: possible offsets. SCALAR: possible values; none: not known. Bit i for 4 * i. */
	uint64_t set;
};

#define PTX_NO_OFF INT16_MIN
#define PTX_ANY_OFFSET UINT64_MAX /* CTX: the offset is not known, and may be no multiple of 4 */

/* The record of a ring that a function has reserved, at most one at a time, lies below its stack of
 * EBPF_STACK_BYTES. */
#define PTX_RECORD_BYTES 512
#define PTX_FRAME_BYTES (EBPF_STACK_BYTES + PTX_RECORD_BYTES)

/* What is known before an instruction. */
struct ebpf_ptx_fact {
	struct ebpf_ptx_value base;   /* of the base of a load or store, or r1 of a call */
	struct ebpf_ptx_value r2, r3; /* of a call */
	uint16_t key_below; /* of a call: the 32 bits in the stack at r2 are less; 0: not known */
};

struct ebpf_ptx_flow {
	struct ebpf_ptx_fact *facts; /* owned; one for each instruction */
	/* Words of the stack of each function if it can be in registers: each access is aligned, at
	 * a place that is known, and no instruction uses an address otherwise; else 0. */
	uint8_t slots[JIT_MAX_FUNCS];
	/* Size of the place for a record in each function: that of the largest, or 0. */
	uint16_t record_bytes[JIT_MAX_FUNCS];
	/* Whether a function receives the context. */
	uint8_t takes_ctx[JIT_MAX_FUNCS];
	/* The first instruction that uses the context other than as the base of a load, as an
	 * argument of a function of the program, or in a word of a stack; UINT32_MAX: none. */
	uint32_t misuse;
};

/* Analyses a plan. has_ctx: r1 of the program is the context. Returns 0 or -ENOMEM; the caller
 * calls finish in both cases. */
int ebpf_ptx_flow_init(struct ebpf_ptx_flow *flow, const struct ebpf_jit *plan, int has_ctx);
void ebpf_ptx_flow_finish(struct ebpf_ptx_flow *flow);

/* Returns 1 and the offset from r10 if the bytes lie in the function's own frame at a known place
 * that is a multiple of unit, else 0. */
int ebpf_ptx_frame_place(const struct ebpf_ptx_value *at, int off, unsigned bytes, unsigned unit,
			 int *ret_off);
/* Returns the size of the accesses that copy a value of a map. */
unsigned ebpf_ptx_value_unit(unsigned bytes);

/* Returns whether a pointer into the context may have this offset. */
int ebpf_ptx_may_be_at(const struct ebpf_ptx_value *ctx, int off);

/* Returns whether the low bits show that value + off is a multiple of bytes, a power of two up to
 * 8: 1, -1 if they show that it is none, or 0. */
int ebpf_ptx_aligned(const struct ebpf_ptx_value *v, int off, unsigned bytes);

#endif

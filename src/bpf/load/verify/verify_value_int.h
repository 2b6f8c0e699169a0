/* The abstract state at one point of a path: what the registers and stack slots of a frame hold,
 * and the objects that the program must release. */
#ifndef GBPF_BPF_LOAD_VERIFY_VERIFY_VALUE_INT_H
#define GBPF_BPF_LOAD_VERIFY_VERIFY_VALUE_INT_H

#include <stdint.h>

#include "bpf/load/scalar/scalar.h"
#include "bpf/run/insn.h"

enum ebpf_reg_type {
	REG_NONE, /* never written, or dead after a call */
	REG_SCALAR,
	REG_CTX,
	REG_STACK,	   /* points into a frame: -512 .. 0 from its end */
	REG_VALUE,	   /* points into a map value */
	REG_VALUE_OR_NULL, /* result of a lookup before the NULL check */
	REG_MAP,	   /* handle of a map; with an id: of an inner map of that shape */
	REG_MAP_OR_NULL,   /* result of a lookup in an array of maps */
	REG_RECORD,	   /* points into a reserved ring buffer record; id: the reference */
	REG_RECORD_OR_NULL,
	REG_GONE,   /* referred to a released object */
	REG_FUNC,   /* address of a function; map: number of the function */
	REG_NUMBER, /* result of bpf_iter_num_next; id: the iterator; v: the number it points to */
	REG_KEY,    /* map key that a callback received; invalid after its frame ends */
	REG_ITER, /* An iterator; only in stack slots. map: 1 if it has ended. umax: maximum number
		     of rounds left. s32min, s32max: range of its numbers. */
	REG_ROUNDS, /* A helper call with a callback, in r5 of the caller during the call. umax: as
		       above. */
};

/* How a number follows from X, the number that its id names (verify_link.c). low() is the low half
 * of a number. */
enum ebpf_link {
	LINK_WHOLE, /* X + add, in 64 bits */
	LINK_ZERO,  /* low(X + add), zero-extended */
	LINK_SIGN,  /* low(X + add), sign-extended */
	LINK_HIGH,  /* low(X + add) << 32 */
};

struct ebpf_reg {
	uint8_t type;
	uint8_t frame; /* REG_STACK, REG_KEY */
	uint8_t map;   /* index of the map that the register was derived from */
	uint8_t link;  /* Scalars with an id: enum ebpf_link; otherwise 0. */
	uint32_t id;   /* Scalars: those computed from one number share an id. Values: the lookup
			  that returned them. References: their own. 0: none, or value 0 of an
			  array. */
	uint64_t add;  /* Scalars with an id: as above; otherwise 0. Only LINK_WHOLE has high bits.
			*/
	struct ebpf_scalar v; /* the number, or the offset of the pointer in bytes */
};

/* Max number of places at which an access through a pointer is checked place by place. Above that,
 * an access to the context is refused, and one to other memory is checked as a range. */
#define VERIFY_MAX_PLACES 4u

/* BYTE_TEXT + c, with c below 0x80: a number that is known to be the character c. It is used as a
 * number of unknown value everywhere but in texts to print. */
enum ebpf_stack_byte {
	BYTE_NONE,
	BYTE_MISC,
	BYTE_ZERO,
	BYTE_SPILL,
	BYTE_ITER,
	BYTE_TEXT = 0x80,
};

/* Returns the kind of a byte without its character. */
static inline unsigned ebpf_stack_kind(unsigned kind)
{
	return kind >= BYTE_TEXT ? BYTE_MISC : kind;
}

#define STACK_SLOTS (EBPF_STACK_BYTES / 8)

/* Slot s holds the eight bytes from -8 * (s + 1). The spilled bytes of a slot come from exactly one
 * store of r. */
struct ebpf_stack_slot {
	uint8_t kind[8];
	struct ebpf_reg r; /* valid while a byte is BYTE_SPILL or BYTE_ITER */
};

/* A reference: an object that the program must release. */
enum ebpf_ref_kind { REF_RECORD, REF_ITER, REF_LOCK, REF_CALL };

struct ebpf_ref {
	uint32_t id;
	uint32_t bytes; /* REF_RECORD: its size */
	uint32_t pc;	/* instruction that acquired it */
	uint8_t kind;
	uint8_t map; /* REF_LOCK: map of the value that contains the lock; REF_RECORD: depth of the
			function */
	struct ebpf_loop *loop; /* REF_ITER, REF_CALL: its loop, set at the first head; borrowed */
};

#define VERIFY_MAX_REFS 16u
#define VERIFY_NULL_ID 0x80000000u /* id of NULL where ids of pointers are compared */

struct ebpf_call_state {
	struct ebpf_reg regs[11]; /* regs[10] is the frame pointer */
	struct ebpf_stack_slot slots[STACK_SLOTS];
	uint64_t used;	/* bit mask of slots with a byte other than BYTE_NONE */
	uint32_t ret;	/* return address in the caller */
	uint32_t depth; /* stack depth in bytes */
};

/* verify_reg.c */
void ebpf_reg_none(struct ebpf_reg *r);
void ebpf_reg_unknown(struct ebpf_reg *r);
void ebpf_reg_const(struct ebpf_reg *r, uint64_t value);
int ebpf_reg_is_pointer(const struct ebpf_reg *r);
/* Returns whether the register may be NULL and must be compared before use. */
int ebpf_reg_is_nullable(const struct ebpf_reg *r);
/* Returns whether numbers may be added to the offset of the register. */
int ebpf_reg_is_place(const struct ebpf_reg *r);
/* Returns whether both pointers refer to one object, so that their distance reveals no address. */
int ebpf_reg_same_base(const struct ebpf_reg *a, const struct ebpf_reg *b);

#endif

/* Instructions of 16 bytes, as ptxas 13.0 writes them for sm_86. Those that a patch of a kernel
 * consists of, or that it looks for, have NVIDIA's encodings. All others are carriers, of an opcode
 * that no GPU has: a few bytes of text, or a mention of a parameter. Internal to the room. */
#ifndef GBPF_SOFT_CODE_CODE_INSN_H
#define GBPF_SOFT_CODE_CODE_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define SOFT_INSN_BYTES 16u
#define SOFT_INSN_ALIGN 128u	    /* of a kernel's code and its length */
#define SOFT_INSN_PARAM_BASE 0x160u /* offset of the parameters in constant bank 0 */
#define SOFT_INSN_EVENT 13u	    /* of the pmevent that ends a stub */

struct soft_insn {
	uint64_t low, high;
};

enum soft_insn_kind {
	SOFT_INSN_OTHER,
	SOFT_INSN_FIRST, /* MOV R1, c[0x0][0x28]: the first of each kernel */
	SOFT_INSN_EXIT,
	SOFT_INSN_NOP,
	SOFT_INSN_BRANCH, /* unconditional */
	SOFT_INSN_MARK,	  /* PMTRIG of event 13 */
	SOFT_INSN_TEXT,	  /* carriers */
	SOFT_INSN_HASH,
	SOFT_INSN_PARAM,
};

/* What a carrier carries. */
struct soft_carrier {
	char text[7];
	unsigned bytes;	 /* of text */
	bool refers;	 /* a parameter is mentioned before the text */
	uint16_t offset; /* then: its place in constant bank 0 */
};

struct soft_insn soft_insn_read(const void *at);
int soft_insn_add(struct buf *code, struct soft_insn i);

/* Ignores the control bits, which schedule the instruction. */
enum soft_insn_kind soft_insn_kind(struct soft_insn i);
/* Returns true if both are equal, control bits aside. */
bool soft_insn_equal(struct soft_insn a, struct soft_insn b);

struct soft_insn soft_insn_first(void);
struct soft_insn soft_insn_exit(bool guarded);
struct soft_insn soft_insn_nop(void);
struct soft_insn soft_insn_mark(void);
struct soft_insn soft_insn_branch(int64_t distance); /* from the next instruction, in bytes */
int64_t soft_insn_distance(struct soft_insn branch);
bool soft_insn_waits(struct soft_insn i); /* for all six scoreboards */

struct soft_insn soft_insn_carrier(enum soft_insn_kind kind, const struct soft_carrier *c);
/* Returns false unless it is a well-formed carrier of that kind. */
bool soft_insn_carried(struct soft_insn i, enum soft_insn_kind kind, struct soft_carrier *ret);

#endif

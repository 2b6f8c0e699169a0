/* Text cases of PTX: what a file says, and running it on an engine. See tests/ptx/README.md for the
 * format. */
#ifndef GBPF_TESTS_EXEC_PTXT_H
#define GBPF_TESTS_EXEC_PTXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define PTXT_BUFFERS 8
#define PTXT_INPUTS 4

enum ptxt_kind {
	PTXT_U8,
	PTXT_S8,
	PTXT_U16,
	PTXT_S16,
	PTXT_U32,
	PTXT_S32,
	PTXT_U64,
	PTXT_S64,
	PTXT_F16,
	PTXT_F32,
	PTXT_F64,
	PTXT_PRED,
	PTXT_KINDS
};

/* Expected values that are not one pattern of bits. */
enum ptxt_match { MATCH_EXACT, MATCH_ANY_NAN, MATCH_NEAR };

struct ptxt_value {
	uint64_t bits;
	enum ptxt_match match;
};

struct ptxt_buffer {
	enum ptxt_kind kind;
	bool is_param;	 /* a value instead of a buffer */
	bool has_expect; /* compared afterwards */
	uint32_t n;
	struct ptxt_value *in, *expect; /* owned */
};

struct ptxt_case {
	char name[128];
	unsigned line;
	struct buf ptx;
	uint32_t grid[3], block[3], shared;
	uint64_t budget;
	struct ptxt_buffer buffers[PTXT_BUFFERS];
	uint32_t n_buffers;
	char fault[16]; /* "address", "align", "trap", "insn" or "" */
	uint32_t fault_line;
	struct buf print;  /* what it must print */
	char refused[128]; /* text that the refusal must contain */
	uint32_t refused_line;
	unsigned stride; /* insn tables: lanes per row */
};

unsigned ptxt_bytes(enum ptxt_kind k);

/* Calls run for each case of a file. run returns the number of failures. -1: the file is wrong
 * (printed). */
int ptxt_file(const char *path, int (*run)(const struct ptxt_case *c, void *arg), void *arg);
/* Compares; prints what differs. Returns the number of differences. */
int ptxt_compare(const struct ptxt_case *c, const struct ptxt_buffer *b, unsigned index,
		 const void *data);

#endif

/* PTX test cases as text: reading a file and comparing results. tests/ptx/README.md describes the
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

/* Expected values that are not a single bit pattern. */
enum ptxt_match { MATCH_EXACT, MATCH_ANY_NAN, MATCH_NEAR };

struct ptxt_value {
	uint64_t bits;
	enum ptxt_match match;
};

struct ptxt_buffer {
	enum ptxt_kind kind;
	bool is_param;	 /* a scalar parameter instead of a buffer */
	bool has_expect; /* compared after the run */
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
	struct buf print;  /* expected output */
	char refused[128]; /* text that the refusal must contain */
	uint32_t refused_line;
	unsigned stride; /* instruction tables: lanes per row */
};

unsigned ptxt_bytes(enum ptxt_kind k);

/* Calls run for each case of a file, which returns the number of failures. Returns their sum, or -1
 * after printing an error if the file is malformed. */
int ptxt_file(const char *path, int (*run)(const struct ptxt_case *c, void *arg), void *arg);
/* Compares results and prints differences. Returns their number. */
int ptxt_compare(const struct ptxt_case *c, const struct ptxt_buffer *b, unsigned index,
		 const void *data);

#endif

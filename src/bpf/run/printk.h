/* Lines that programs print with bpf_printk: a ring that any thread fills and one thread empties.
 * It is private to the process. Neither side waits, allocates or enters the kernel; while the ring
 * is full a further line costs a few nanoseconds and is counted. */
#ifndef GBPF_BPF_RUN_PRINTK_H
#define GBPF_BPF_RUN_PRINTK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rate.h"

#define EBPF_PRINT_LINES 16u /* a power of two */
#define EBPF_PRINT_TEXT 120u /* bytes of a line, with the terminator */
#define EBPF_PRINTS_PER_SECOND 16u

struct ebpf_prints {
	uint64_t tail, head;	/* [atomic] positions of the next line to write and to read */
	uint64_t dropped;	/* [atomic] lines that found the ring full */
	struct rate_limit rate; /* the reader's */
	struct ebpf_print_line {
		uint64_t seq; /* [atomic] 1 + position of the line that is complete here */
		char text[EBPF_PRINT_TEXT];
	} line[EBPF_PRINT_LINES];
};

/* Formats a line of printable ASCII to text, of EBPF_PRINT_TEXT bytes. Formats with other
 * conversions than those of bpf_printk, and too few args, give "%?". Returns its length. */
size_t ebpf_print_format(char *text, const void *fmt, size_t fmt_bytes, const void *args,
			 size_t args_bytes);
/* Returns the first character of a conversion that bpf_printk does not have, or 0; *ret_args is the
 * number of arguments that the format takes. */
char ebpf_print_check(const void *fmt, size_t fmt_bytes, unsigned *ret_args);

/* ---- lines of programs inside kernels ----
 *
 * They go to an SM_RING that the loader adds to an object, as numbers: where the format lies in a
 * constant map, or which of the stack's it is, and the arguments. gbpfd formats them. */
#define EBPF_PRINT_MAP ".printk"
#define EBPF_PRINT_ARGS 8u
#define EBPF_PRINT_REGISTERS 3u /* of bpf_trace_printk */
#define EBPF_PRINT_RECORDS 64u	/* of a multiprocessor, a power of two */

/* In place of the map: the format is on the stack, the number the instruction of the call; from bit
 * 16 on it is that of the program. */
#define EBPF_PRINT_STACK UINT32_MAX
#define EBPF_PRINT_STACK_TEXTS 32u /* of a program */

/* Formats that a program makes on its stack, by the instruction of the call: there they are the
 * same on every path. */
struct ebpf_stack_texts {
	uint32_t n;
	struct ebpf_stack_text {
		uint32_t insn;
		char text[EBPF_PRINT_TEXT];
	} at[EBPF_PRINT_STACK_TEXTS];
};

struct ebpf_print_record {
	uint64_t fmt;  /* offset of the format in the value of a map; from bit 32 on the map */
	uint64_t time; /* of the GPU, ns */
	uint64_t kernel, block;
	uint64_t lane; /* from bit 32 on the number of the warp in its block */
	uint64_t args[EBPF_PRINT_ARGS];
};

/* Returns the format on the stack that the call of this instruction prints, or NULL. */
const char *ebpf_stack_text(const struct ebpf_stack_texts *t, uint32_t insn);
/* Formats a line; args are u64 of any alignment. Memory may change meanwhile. Returns the length,
 * or -EAGAIN if the ring is full. */
int ebpf_print(struct ebpf_prints *p, const void *fmt, size_t fmt_bytes, const void *args,
	       size_t args_bytes);

/* Returns true if the next line is complete. */
bool ebpf_prints_any(const struct ebpf_prints *p);
/* Takes the next line; text has EBPF_PRINT_TEXT bytes and gets only printable ASCII. Returns false
 * if there is none. */
bool ebpf_prints_take(struct ebpf_prints *p, char *text);
/* The same within EBPF_PRINTS_PER_SECOND; the lines beyond it stay in the ring. *ret_dropped is the
 * number of lines that were dropped before this one. */
bool ebpf_prints_take_limited(struct ebpf_prints *p, uint64_t now_ns, char *text,
			      uint64_t *ret_dropped);

#endif

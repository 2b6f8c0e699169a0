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

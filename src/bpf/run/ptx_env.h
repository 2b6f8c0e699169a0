/* The environment of a program on a GPU, which its functions get as an address. */
#ifndef GBPF_BPF_RUN_PTX_ENV_H
#define GBPF_BPF_RUN_PTX_ENV_H

#include "bpf/run/env.h"

/* In memory that the GPU reaches, in its byte order (little endian). For programs inside kernels it
 * is in global memory, aligned to 128 bytes; maps and random_state are constant from before the
 * first launch on, and the maps lie in other lines of L2 than the counters. */
struct ebpf_ptx_env {
	uint64_t maps[EBPF_MAX_MAPS]; /* generic address of the data of each map */
	uint64_t notes[EBPF_NOTES];   /* as in struct ebpf_env */
	uint64_t helper_errors;
	uint64_t random_state; /* not 0 */
	/* The rest is only for checked programs. */
	uint64_t mem, mem_bytes; /* the program's memory */
	uint64_t fuel;		 /* instructions left */
	uint64_t frames;	 /* generic address of EBPF_MAX_FRAMES frames in local memory */
	uint32_t frame;		 /* index of the running one */
	uint32_t error;		 /* EFAULT, ETIME, ELOOP or 0 */
	uint32_t pc;		 /* instruction at which it ended, if error is not 0 */
	uint32_t done;		 /* 1 once the program has returned */
	uint64_t regs[10];	 /* before, across calls, and after */
};

/* Programs that were built to be set while they run (EBPF_BUILD_CONTROL) read the interval of the
 * blocks that run them, 0: none, from a word behind the environment, which the host may change at
 * any time. Each kernel may have words of its own, a row: the root is given the address of the
 * environment plus the row's offset. All words of a row are equal; there are several so that not
 * all multiprocessors read one line of L2. A line has a word of each of 32 rows. */
#define EBPF_PTX_CONTROL_AT 4096u    /* offset of the first, from that address */
#define EBPF_PTX_CONTROL_STRIDE 128u /* between two */
#define EBPF_PTX_CONTROL_WORDS 64u   /* by number of the multiprocessor, modulo this */
#define EBPF_PTX_CONTROL_ROWS (EBPF_PTX_CONTROL_STRIDE / 4) /* in EBPF_PTX_CONTROL_BYTES */
#define EBPF_PTX_CONTROL_BYTES (EBPF_PTX_CONTROL_STRIDE * EBPF_PTX_CONTROL_WORDS)
#define EBPF_PTX_CONTROL_ROW(row) /* its offset */                                                 \
	((row) / EBPF_PTX_CONTROL_ROWS * EBPF_PTX_CONTROL_BYTES + (row) % EBPF_PTX_CONTROL_ROWS * 4)

_Static_assert(sizeof(struct ebpf_ptx_env) <= EBPF_PTX_CONTROL_AT, "the words are behind it");
_Static_assert(sizeof(((struct ebpf_ptx_env *)0)->maps) % 128 == 0, "the counters begin a line");

#endif

/* A driver that does nothing by itself: each call is written to a log and returns what the test
 * has asked for. Streams are idle, events reached and copies made when the test says so. */
#ifndef GBPF_TESTS_GPU_SCRIPT_H
#define GBPF_TESTS_GPU_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>

#include "cuabi/table.h"
#include "ptx/block.h"

#define SCRIPT_STREAMS 32u
#define SCRIPT_LAUNCHES 512u
#define SCRIPT_CONTEXT(n) ((CUcontext)(uintptr_t)(0x1000u + (n)))
#define SCRIPT_STREAM(n) ((CUstream)(uintptr_t)(0x100u + (n)))
#define SCRIPT_EVENT(n) ((CUevent)(uintptr_t)(0x2000u + (n)))
#define SCRIPT_CLONE(n) ((CUfunction)(uintptr_t)(0x3000u + (n)))
/* Kernels of gBPF's own. */
#define SCRIPT_WARM ((CUfunction)(uintptr_t)0x4000u)
#define SCRIPT_CLOCK ((CUfunction)(uintptr_t)0x4001u)
#define SCRIPT_TAKE ((CUfunction)(uintptr_t)0x4002u)
#define SCRIPT_CLOSE ((CUfunction)(uintptr_t)0x4003u)

struct script_launch {
	CUfunction f;
	unsigned blocks, threads[3], smem, stream;
	uint64_t param[4];	  /* of kernels of our own */
	struct ptx_block_arg arg; /* of clones, */
	uint64_t first_param;	  /* and what is in front of it */
};

extern struct cuabi_table script;
extern char script_log[65536];
extern CUresult script_query[SCRIPT_STREAMS]; /* of streams by number; those created begin at 1 */
extern CUstreamCaptureStatus script_capturing[SCRIPT_STREAMS];
extern CUresult script_reached; /* of event queries */
extern float script_ms;		/* between two events */
extern struct script_launch script_launches[SCRIPT_LAUNCHES];
extern unsigned script_n_launches, script_n_allocations;
extern void (*script_on_launch)(const struct script_launch *l);
extern void (*script_on_call)(const char *call); /* of those that can fail */
extern CUstreamCaptureMode script_mode;
extern __thread CUcontext script_current;
extern __thread unsigned script_depth;

void script_init(void);
void script_finish(void); /* asserts that no context is left current */
/* The call by that name fails once, after so many that succeed. */
void script_fail(const char *call, CUresult e, unsigned after);
/* Makes the last copy from the device. */
void script_copy(void);

/* Asserts the calls since the last one of these. */
#define SCRIPT_SAID(text)                                                                          \
	do {                                                                                       \
		assert_string_equal(script_log, text);                                             \
		script_log[0] = 0;                                                                 \
	} while (0)

#endif

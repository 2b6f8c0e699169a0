/* The shim over the fake libcuda and the test's scheduler. */
#ifndef GBPF_TESTS_SHIM_FIXTURE_H
#define GBPF_TESTS_SHIM_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuabi/api.h"
#include "fake_cuda.h"
#include "sched_double.h"
#include "policy/ctx.h"
#include "shim/object/stream_queue.h"
#include "shim/shim.h"

extern const struct fake_interface *fake;

int fixture_setup(void **state);  /* set-up of a group */
int fixture_before(void **state); /* set-up of a test: nothing deferred, nothing recorded */

CUstream fixture_stream(unsigned flags);  /* 1: non-blocking */
CUresult fixture_launch(CUstream stream); /* a kernel without parameters */
/* Enqueues one deferred launch on the stream; its queue defers no further ones. */
struct sched_queue *fixture_defer_one(CUstream stream);
/* Index of the first record of that function, or -1; number of its records. */
int fixture_find(uint32_t index);
unsigned fixture_count(uint32_t index);
int fixture_find_note(const char *text);

#endif

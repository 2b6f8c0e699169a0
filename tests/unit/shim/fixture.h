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

int fixture_setup(void **state);  /* of a group */
int fixture_before(void **state); /* of a test: nothing kept, nothing recorded */

CUstream fixture_stream(unsigned flags);  /* 1: non-blocking */
CUresult fixture_launch(CUstream stream); /* a kernel without parameters */
/* Puts one deferred launch on the stream; its queue defers no more after that. */
struct sched_queue *fixture_defer_one(CUstream stream);
/* Place of the first record of that function, or -1; how many there are. */
int fixture_find(uint32_t index);
unsigned fixture_count(uint32_t index);
int fixture_find_note(const char *text);

#endif

/* A libcuda for tests. It executes nothing, records every call with its arguments in order, and
 * returns distinct handles. Tests open it again by its path and query it through fake_interface. */
#ifndef GBPF_TESTS_FAKE_CUDA_H
#define GBPF_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/names.h"
#include "cuabi/types.h"

#define FAKE_MAX_ARGS 16
#define FAKE_NOTE UINT32_MAX /* index of a note that the test recorded */

struct fake_record {
	uint32_t index; /* CUABI_IDX_*, or FAKE_NOTE */
	uint32_t nargs;
	uint64_t a[FAKE_MAX_ARGS];
	uint64_t data;	  /* data that the call points to: first kernel parameter, first word of the
			     source of a copy */
	CUcontext ctx;	  /* current context of the call */
	const char *text; /* text of a note */
};

struct fake_interface {
	void (*reset)(void);
	unsigned (*count)(void);
	struct fake_record (*get)(unsigned i);
	void (*note)(const char *text); /* adds a record of the test, in order with the calls */
	void (*fail_with)(
		uint32_t index,
		CUresult with); /* makes that function fail until reset; UINT32_MAX: none */
	/* Makes memory known to cuPointerGetAttribute. */
	void (*pin)(const void *from, size_t bytes);
	/* Sets the number of parameters of every kernel, 8 bytes each. */
	void (*params)(unsigned n);
	/* Returns the value of an MPS environment variable at the last cuInit: pipe directory,
	 * client priority, thread percentage; NULL: not set. cuInit fails while FAKE_NO_MPS and the
	 * first one are set. */
	const char *(*init_env)(unsigned i);
};
typedef const struct fake_interface *(*fake_interface_fn)(void);
#define FAKE_INTERFACE "fake_interface"

#define FAKE_CTX ((CUcontext)0xc0000) /* current context if none was pushed; on device 0 */
#define FAKE_CTX_OF(device) ((CUcontext)(uintptr_t)(0xc0000u + 0x1000u * (device)))
#define FAKE_FUNCTION ((CUfunction)0xf0000)

CUresult fake_call(uint32_t index, const uint64_t *a, unsigned n);

#endif

/* A libcuda for tests: it runs nothing, but remembers every call with its arguments in order, and
 * gives handles that can be told apart. Tests open it again by its path and ask through
 * fake_interface. */
#ifndef GBPF_TESTS_FAKE_CUDA_H
#define GBPF_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/names.h"
#include "cuabi/types.h"

#define FAKE_MAX_ARGS 16
#define FAKE_NOTE UINT32_MAX /* index of a note that the test made itself */

struct fake_record {
	uint32_t index; /* CUABI_IDX_*, or FAKE_NOTE */
	uint32_t nargs;
	uint64_t a[FAKE_MAX_ARGS];
	uint64_t data; /* what the call pointed to: first kernel parameter, first word of a copy's
			  source */
	CUcontext ctx; /* current at the call */
	const char *text; /* of a note */
};

struct fake_interface {
	void (*reset)(void);
	unsigned (*count)(void);
	struct fake_record (*get)(unsigned i);
	void (*note)(const char *text); /* a record of the test's own, in order with the calls */
	void (*fail_with)(uint32_t index,
			  CUresult with); /* that function, until reset; UINT32_MAX: none */
	/* Memory that cuPointerGetAttribute knows. */
	void (*pin)(const void *from, size_t bytes);
	/* Parameters of every kernel: so many, of 8 bytes each. */
	void (*params)(unsigned n);
	/* What a variable of the environment was at the last cuInit: the MPS ones, in the order
	 * pipe directory, client priority, thread percentage; NULL: it was not set. cuInit answers
	 * with an error while FAKE_NO_MPS is set and the first one is. */
	const char *(*init_env)(unsigned i);
};
typedef const struct fake_interface *(*fake_interface_fn)(void);
#define FAKE_INTERFACE "fake_interface"

#define FAKE_CTX ((CUcontext)0xc0000) /* current where none was pushed; on device 0 */
#define FAKE_CTX_OF(device) ((CUcontext)(uintptr_t)(0xc0000u + 0x1000u * (device)))
#define FAKE_FUNCTION ((CUfunction)0xf0000)

CUresult fake_call(uint32_t index, const uint64_t *a, unsigned n);

#endif

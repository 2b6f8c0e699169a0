/* An entry stub as the room's files use it. */
#ifndef GBPF_CUBIN_CUBIN_STUB_INT_H
#define GBPF_CUBIN_CUBIN_STUB_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUBIN_STUB_PLACES_MAX 32u
#define CUBIN_STUB_LISTS_MAX 4u

/* Places in the stub's code that an attribute lists: exits, for example. */
struct cubin_stub_list {
	unsigned id, n;
	uint32_t at[CUBIN_STUB_PLACES_MAX];
};

struct cubin_stub {
	uint8_t *code; /* owned; up to, not including, the marker */
	size_t bytes;
	/* owned; per instruction: first bit of its 16-bit field that holds an address of the
	 * argument, 0: it has none */
	uint8_t *field;
	uint32_t arg_at;    /* address in bank 0 for which `code` was compiled */
	uint32_t arg_bytes; /* at most 4096, a multiple of 8 */
	uint32_t base;	    /* address in bank 0 of the first parameter */
	unsigned arch;
	unsigned registers, barriers;
	struct cubin_stub_list lists[CUBIN_STUB_LISTS_MAX]; /* lists[0]: exits, of any count */
	unsigned n_lists;
	bool uses_ctaid_z; /* an attribute says so on architectures before sm_90 */
};

#endif

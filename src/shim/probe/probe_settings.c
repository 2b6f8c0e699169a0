/* The setting of probed forms, from the environment of the program. An unknown value is reported
 * once. */
#include "shim/probe/shim_probe_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PTX of this size is about 500 instructions: the driver compiles it in a part of what an
 * attachment may take (docs/BENCHMARKS.md), so nothing is lost if no other process has the same
 * text. The compiled forms of longer kernels are cached, and such kernels run long enough for the
 * table's first load, which is what the constants save. */
#define TEXT_MAX (16u << 10)

static uint32_t text_max; /* set once */

static void read_addresses(void)
{
	const char *v = getenv("GBPF_PROBE_ADDRESSES");

	text_max = TEXT_MAX;
	if (v && strcmp(v, "text") == 0) {
		text_max = UINT32_MAX;
	} else if (v && strcmp(v, "table") == 0) {
		text_max = 0;
	} else if (v && strcmp(v, "auto") != 0) {
		fprintf(stderr,
			"gbpf: invalid GBPF_PROBE_ADDRESSES: %s: expected 'auto', 'text' or "
			"'table'; using 'auto'\n",
			v);
	}
}

uint32_t shim_probe_text_max(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_addresses);
	return text_max;
}

/* ptxas's command line, as far as needed to find the input: options with an argument, options that
 * change what is compiled, and the rest. */
#include "ptxas/ptxas.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum kind {
	UNKNOWN, /* also known options that compile something other than one module's entries */
	FLAG,
	VALUE,
	ARCH,
};

static const struct {
	const char *name, *brief;
	enum kind kind;
} options[] = {
	{ "Ofast-compile", "Ofc", VALUE },
	{ "allow-expensive-optimizations", "allow-expensive-optimizations", VALUE },
	{ "compile-only", "c", FLAG },
	{ "compiler-annotations", "annotate", FLAG },
	{ "def-load-cache", "dlcm", VALUE },
	{ "def-store-cache", "dscm", VALUE },
	{ "device-debug", "g", FLAG },
	{ "device-function-maxrregcount", "func-maxrregcount", VALUE },
	{ "device-stack-protector", "device-stack-protector", VALUE },
	{ "disable-optimizer-constants", "disable-optimizer-consts", FLAG },
	{ "disable-warnings", "w", FLAG },
	{ "dont-merge-basicblocks", "no-bb-merge", FLAG },
	{ "fmad", "fmad", VALUE },
	{ "force-load-cache", "flcm", VALUE },
	{ "force-store-cache", "fscm", VALUE },
	{ "generate-line-info", "lineinfo", FLAG },
	{ "gpu-name", "arch", ARCH },
	{ "machine", "m", VALUE },
	{ "maxntid", "maxntid", VALUE },
	{ "maxrregcount", "maxrregcount", VALUE },
	{ "minnctapersm", "minnctapersm", VALUE },
	{ "opt-level", "O", VALUE },
	{ "optimize-float-atomics", "opt-fp-atomics", FLAG },
	{ "output-file", "o", VALUE },
	{ "override-directive-values", "override-directive-values", FLAG },
	{ "position-independent-code", "pic", VALUE },
	{ "preserve-relocs", "preserve-relocs", FLAG },
	{ "register-usage-level", "regUsageLevel", VALUE },
	{ "return-at-end", "ret-end", FLAG },
	{ "sp-bounds-check", "sp-bounds-check", FLAG },
	{ "split-compile", "split-compile", VALUE },
	{ "suppress-async-bulk-multicast-advisory-warning",
	  "suppress-async-bulk-multicast-advisory-warning", FLAG },
	{ "suppress-debug-info", "suppress-debug-info", FLAG },
	{ "suppress-double-demote-warning", "suppress-double-demote-warning", FLAG },
	{ "suppress-sparse-mma-advisory-info", "suppress-sparse-mma-advisory-info", FLAG },
	{ "suppress-stack-size-warning", "suppress-stack-size-warning", FLAG },
	{ "verbose", "v", FLAG },
	{ "warn-on-double-precision-use", "warn-double-usage", FLAG },
	{ "warn-on-local-memory-usage", "warn-lmem-usage", FLAG },
	{ "warn-on-spills", "warn-spills", FLAG },
	{ "warning-as-error", "Werror", FLAG },
};

static enum kind kind_of(const char *word, size_t len)
{
	bool full = word[1] == '-';

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		const char *name = full ? options[i].name : options[i].brief;

		if (strlen(name) == len - 1 - full &&
		    memcmp(name, word + 1 + full, len - 1 - full) == 0) {
			return options[i].kind;
		}
	}
	/* -O3 */
	return !full && len == 3 && word[1] == 'O' && word[2] >= '0' && word[2] <= '9' ? FLAG
										       : UNKNOWN;
}

/* Returns 90 for sm_90a; 0: not the name of a device. */
static unsigned arch_of(const char *name)
{
	char *end;
	unsigned long v;

	if (strncmp(name, "sm_", 3) != 0 || name[3] < '1' || name[3] > '9') {
		return 0;
	}
	v = strtoul(name + 3, &end, 10);
	return v < 10000 && (*end == 0 || (strchr("af", *end) && !end[1])) ? (unsigned)v : 0;
}

struct ptxas_command ptxas_command(int argc, char **argv)
{
	const struct ptxas_command none = { .input = 0 };
	struct ptxas_command c = { .input = 0 };

	if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
		c.version = true;
		return c;
	}
	for (int i = 1; i < argc; i++) {
		const char *equals = strchr(argv[i], '='), *value;
		enum kind kind;

		if (argv[i][0] != '-') {
			if (c.input || argv[i][0] == '@' || !argv[i][0]) {
				return none; /* several inputs, or options in a file */
			}
			c.input = i;
			continue;
		}
		kind = kind_of(argv[i], equals ? (size_t)(equals - argv[i]) : strlen(argv[i]));
		if (kind == UNKNOWN || (kind == FLAG && equals)) {
			return none;
		}
		value = kind == FLAG ? NULL : equals ? equals + 1 : i + 1 < argc ? argv[++i] : "";
		c.arch = kind == ARCH ? arch_of(value) : c.arch;
	}
	return c.arch ? c : none;
}

/* PTX text through parser, printer and the execution engine's decoder; what loads is also run for a
 * moment. Build and run by hand, from the root (EXEC_ONLY_BASE: without the handlers that are
 * compiled for AVX2):
 *   clang-14 -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined \
 *     -fno-sanitize=alignment,shift -Isrc -Iinclude -DEXEC_ONLY_BASE \
 *     -DEXEC_TABLE=exec_handlers_base -DEXEC_TABLE_NAME='"base"' -Wno-everything \
 *     tests/fuzz/fuzz_ptx.c src/ptx/{arena,equal,module,print}.c src/ptx/parse/*.c \
 *     $(find src/soft/server/exec -name "*.c") src/base/{buf,report,strmap,clock,fd}.c -lm -o
 * fuzz_ptx mkdir -p corpus && ./fuzz_ptx -max_total_time=60 -timeout=10 -rss_limit_mb=2048 corpus
 * The kernels of tests/ptx are good seeds. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/module.h"
#include "soft/server/exec/exec.h"

#define WINDOW (UINT64_C(1) << 20)

static void round_trip(const uint8_t *data, size_t size)
{
	struct ptx_module *a = NULL, *b = NULL;
	struct buf out;
	struct report r;

	report_init(&r);
	buf_init(&out);
	if (ptx_module_parse(&a, (const char *)data, size, "fuzz", &r) == 0) {
		if (ptx_module_print(a, &out) < 0 ||
		    ptx_module_parse(&b, buf_text(&out), out.len, "again", &r) < 0 ||
		    !ptx_module_equal(a, b)) {
			abort();
		}
	}
	ptx_module_free(a);
	ptx_module_free(b);
	buf_finish(&out);
	report_finish(&r);
}

static void drop(void *arg, const char *text, size_t n)
{
	volatile char last = n ? text[n - 1] : 0;

	(void)last;
}

static uint64_t give(void *arg, uint64_t bytes)
{
	return bytes < 4096 ? UINT64_C(0x700000000000) + 4096 : 0;
}

static int take(void *arg, uint64_t address)
{
	return address % 16 ? -ENOENT : 0;
}

static void run_all(struct exec_module *m)
{
	static const struct exec_host host = {
		.print = drop, .complain = drop, .allocate = give, .release = take
	};
	static uint8_t memory[WINDOW] __attribute__((aligned(4096))),
		pages[WINDOW / EXEC_PAGE_BYTES];
	struct exec_space space = {
		.base = UINT64_C(0x700000000000), .bytes = WINDOW, .host = memory, .pages = pages
	};
	uint8_t params[65536] = { 0 };

	if (exec_module_global_bytes(m) > WINDOW / 2) {
		return;
	}
	memset(pages, 3, sizeof(pages) / 2);
	exec_module_bind(m, space.base, memory);
	for (unsigned i = 0; i < exec_module_functions(m); i++) {
		struct exec_launch l = { .function = exec_module_function_at(m, i),
					 .grid = { 2, 1, 1 },
					 .block = { 40, 1, 1 },
					 .dynamic_shared_bytes = 64,
					 .params = params,
					 .space = &space,
					 .host = &host,
					 .grid_workspace = space.base,
					 .sm_count = 1 };
		struct exec_fault fault;
		struct exec_block *b = exec_block_create(&l);
		uint64_t used;

		for (unsigned k = 0; b && k < 2; k++) {
			exec_block_reset(b, k, 0);
			exec_block_run(b, 300, &used, &fault);
			exec_block_run(b, 2000, &used, &fault);
		}
		exec_block_destroy(b);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct exec_module *m = NULL;
	struct report r;

	round_trip(data, size);
	report_init(&r);
	if (exec_module_load(&m, (const char *)data, size, "fuzz", &r) == 0) {
		run_all(m);
		exec_module_unref(m);
	}
	report_finish(&r);
	return 0;
}

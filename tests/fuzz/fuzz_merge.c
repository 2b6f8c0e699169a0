/* Merges modules that are separated by zero bytes. The result must parse, and merging it alone must
 * succeed as well. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/merge.h"

#define MODULES_MAX 6

static void read_back(const struct buf *text)
{
	struct ptx_module *m = NULL;
	struct ptx_merge again;
	struct report r;
	struct buf out;

	report_init(&r);
	if (ptx_module_parse(&m, buf_text(text), text->len, "merged", &r) < 0) {
		abort();
	}
	ptx_module_free(m);
	buf_init(&out);
	ptx_merge_init(&again, &r);
	if (ptx_merge_add(&again, buf_text(text), text->len, "again") < 0 ||
	    ptx_merge_finish(&again, &out) < 0) {
		abort();
	}
	ptx_merge_free(&again);
	buf_finish(&out);
	report_finish(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data, *end = p + size;
	struct ptx_merge m;
	struct report r;
	struct buf out;
	int err = 0;

	report_init(&r);
	buf_init(&out);
	ptx_merge_init(&m, &r);
	for (unsigned i = 0; i < MODULES_MAX && p <= end && err == 0; i++) {
		size_t len = strnlen(p, (size_t)(end - p));

		err = ptx_merge_add(&m, p, len, "fuzz");
		p += len + 1;
	}
	err = err ? err : ptx_merge_finish(&m, &out);
	ptx_merge_free(&m);
	if (err == 0) {
		read_back(&out);
	} else if (!r.message.len) {
		abort();
	}
	buf_finish(&out);
	report_finish(&r);
	return 0;
}

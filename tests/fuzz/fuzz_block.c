/* Runs the block-level pass on any readable module: its printed result parses to an equal module,
 * each entry reported to have a clone has one, the engine accepts the result if it accepts the
 * original, and a second pass changes nothing. For images (first byte odd), also selects the PTX in
 * them. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/block_image.h"
#include "ptx/fatbin.h"
#include "soft/server/exec/exec.h"

static int load(const char *text, size_t bytes)
{
	struct exec_module *m = NULL;
	struct report r;
	int err;

	report_init(&r);
	err = exec_module_load(&m, text, bytes, "fuzz", &r);
	if (err == 0) {
		exec_module_unref(m);
	}
	report_finish(&r);
	return err;
}

static void check_entries(const struct ptx_module *m, const struct ptx_block_entry *e, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ptx_function *clone;
		struct buf name;

		buf_init(&name);
		buf_printf(&name, "%s" PTX_BLOCK_SUFFIX, e[i].name);
		clone = ptx_module_function(m, buf_text(&name));
		buf_finish(&name);
		if (e[i].why == PROTO_BLOCK_UNKNOWN || e[i].why >= PROTO_BLOCK_WHYS ||
		    (e[i].why == PROTO_BLOCK_OK &&
		     (!clone || !clone->is_entry || clone->n_params != e[i].n_params + 1))) {
			abort();
		}
	}
}

static void print(const struct ptx_module *m, struct buf *out)
{
	buf_init(out);
	if (ptx_module_print(m, out) < 0) {
		abort();
	}
}

/* Runs the pass on its result. */
static void again(const struct buf *text, const struct ptx_module *like)
{
	const struct ptx_block_entry *e;
	struct ptx_module *m = NULL;
	struct report r;
	struct buf out;
	uint32_t n;

	report_init(&r);
	if (ptx_module_parse(&m, buf_text(text), text->len, "again", &r) < 0 ||
	    !ptx_module_equal(m, like)) {
		abort();
	}
	if (ptx_block_run(m, &e, &n, &r) < 0) {
		abort();
	}
	print(m, &out);
	check_entries(m, e, n);
	buf_finish(&out);
	ptx_module_free(m);
	report_finish(&r);
}

static void rewrite(const char *text, size_t bytes)
{
	const struct ptx_block_entry *e;
	struct ptx_module *m = NULL;
	struct report r;
	struct buf out;
	uint32_t n;
	int err;

	report_init(&r);
	if (ptx_module_parse(&m, text, bytes, "fuzz", &r) == 0) {
		err = ptx_block_run(m, &e, &n, &r);
		if (err == -EINVAL && !r.message.len) {
			abort();
		}
		if (err == 0) {
			print(m, &out);
			check_entries(m, e, n);
			again(&out, m);
			if (load(text, bytes) == 0 && load(buf_text(&out), out.len) == -EINVAL) {
				abort();
			}
			buf_finish(&out);
		}
	}
	ptx_module_free(m);
	report_finish(&r);
}

static void open_image(const uint8_t *data, size_t size)
{
	const struct ptx_device device = { 90, size % 2 ? PTX_RULE_SOFT : PTX_RULE_DRIVER };
	const struct ptx_block_image *i;
	void *copy = malloc(size + 1);

	if (copy && size) {
		memcpy(copy, data, size);
		if (ptx_block_image_open(&i, copy, size, device, "fuzz") == 0) {
			ptx_block_image_close(i);
		}
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size && data[0] % 2) {
		open_image(data + 1, size - 1);
	} else if (size) {
		rewrite((const char *)data + 1, size - 1);
	}
	return 0;
}

/* Reads images of any kind: containers, decompression, selection and merging of entries. The result
 * must be zero-terminated text within the limit. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/fatbin.h"
#include "ptx/image.h"

#define MAX_TEXT ((size_t)1 << 18)

/* Checks that the walk terminates and that every entry lies within the image. */
static void walk(const uint8_t *data, size_t size)
{
	struct ptx_fatbin_entry e;
	struct ptx_fatbin_walk w;
	size_t bytes, n = 0;

	if (ptx_fatbin_open(&w, data, size, &bytes) < 0) {
		return;
	}
	while (ptx_fatbin_next(&w, &e) == 1) {
		if (e.data < data || e.data + e.bytes > data + bytes || ++n > size / 64) {
			abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const unsigned archs[] = { 86, 75, 30 };
	struct report r;

	walk(data, size);
	for (unsigned i = 0; i < 3; i++) {
		struct ptx_device device = { archs[i], i % 2 ? PTX_RULE_DRIVER : PTX_RULE_SOFT };
		struct ptx_image_text t;

		report_init(&r);
		if (ptx_image_open(&t, data, size, device, MAX_TEXT, "fuzz", &r) == 0) {
			if (t.bytes > MAX_TEXT || t.text[t.bytes] != 0) {
				abort();
			}
			ptx_text_arch(t.text, t.bytes);
			ptx_image_close(&t);
		} else if (!r.message.len) {
			abort(); /* a refusal must have a message */
		}
		report_finish(&r);
	}
	return 0;
}

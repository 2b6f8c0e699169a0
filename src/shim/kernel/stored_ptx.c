/* The PTX of kernels that were loaded: kept, or stored in their machine code by gBPF's ptxas. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/stored.h"
#include "shim/kernel/loaded_image.h"

#define TEXTS_MAX 16u /* modules that were linked into one image */

/* Whether the text has an entry of that name; the parser looks more closely. */
static bool has_entry(const char *text, const char *kernel)
{
	size_t bytes = strlen(kernel);

	for (const char *at = text; (at = strstr(at, ".entry")) != NULL;) {
		at += strlen(".entry");
		at += strspn(at, " \t\r\n");
		if (strncmp(at, kernel, bytes) == 0 && !isalnum((unsigned char)at[bytes]) &&
		    at[bytes] != '_' && at[bytes] != '$') {
			return true;
		}
	}
	return false;
}

static char *stored(const struct shim_code_kept *code, const char *kernel, size_t *ret_bytes)
{
	size_t bytes = 0;
	struct report r;
	void *elf;
	char *text = NULL;

	report_init(&r);
	elf = shim_code_kept_elf(code, &bytes, &r);
	report_finish(&r);
	for (uint32_t i = 0; elf && i < TEXTS_MAX; i++) {
		if (ptx_stored_read(elf, bytes, i, &text, ret_bytes) < 0) {
			text = NULL;
			break;
		}
		if (!kernel || has_entry(text, kernel)) {
			break;
		}
		free(text);
		text = NULL;
	}
	free(elf);
	return text;
}

char *shim_image_ptx(const void *owner, const char *kernel, size_t *ret_bytes,
		     struct shim_kept_reason *ret_why)
{
	struct shim_kept_image *kept = shim_image_kept(owner, ret_why);
	struct shim_code_kept *code = kept ? NULL : shim_image_code(owner);
	char *text = kept ? shim_kept_text(kept, ret_bytes) : NULL;

	if (code) {
		text = stored(code, kernel, ret_bytes);
	}
	shim_image_code_unref(code);
	shim_kept_unref(kept);
	return text;
}

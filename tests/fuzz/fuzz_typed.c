/* Handles values with untrusted types and untrusted texts: printing, describing, finding and
 * parsing stay within the value, terminate, and print JSON with a valid start and end. Input: u16
 * length of the BTF, BTF, text. */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/report.h"
#include "bpf/load/btf/typed.h"

#define VALUE_BYTES 64u
#define MAX_TYPES 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int silent(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return 0;
}

/* Uses a separate allocation, so that the sanitizer detects accesses outside of the value. */
static void try_type(const struct btf *btf, uint32_t type, const char *text)
{
	uint8_t *value = malloc(VALUE_BYTES);
	struct ebpf_typed_part part;
	struct buf out = { 0 };
	struct report r;
	bool is_signed;
	uint64_t v;

	if (!value) {
		return;
	}
	memset(value, 0x5a, VALUE_BYTES);
	report_init(&r);
	if (ebpf_typed_print(&out, btf, type, value, VALUE_BYTES) == 0 && out.len > (5u << 20)) {
		abort();
	}
	ebpf_typed_describe(&out, btf, type);
	ebpf_typed_parse(btf, type, text, value, VALUE_BYTES, &r);
	if (ebpf_typed_find(btf, type, VALUE_BYTES, text, &part, &r) == 0) {
		if (part.offset > VALUE_BYTES || part.bytes > VALUE_BYTES - part.offset) {
			abort();
		}
		if (ebpf_typed_read(btf, &part, value, &v, &is_signed) == 0) {
			ebpf_typed_write(btf, &part, value, v + 1);
		}
	}
	report_finish(&r);
	buf_finish(&out);
	free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct btf *btf;
	uint16_t bytes;
	char *text;

	libbpf_set_print(silent);
	if (size < 2) {
		return 0;
	}
	memcpy(&bytes, data, 2);
	data += 2;
	size -= 2;
	if (bytes > size) {
		return 0;
	}
	btf = btf__new(data, bytes);
	text = strndup((const char *)data + bytes, size - bytes);
	for (uint32_t id = 0; text && btf && id < btf__type_cnt(btf) + 1 && id < MAX_TYPES; id++) {
		try_type(btf, id, text);
	}
	free(text);
	btf__free(btf);
	return 0;
}

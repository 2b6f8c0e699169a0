/* Fat binaries: entries are found and decompressed, the best PTX is taken, and all sizes are
 * checked. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fatbin_make.h"
#include "ptx/image.h"

#define MAX_TEXT ((size_t)1 << 20)

static const struct ptx_device device_80 = { 80, PTX_RULE_SOFT };

static char *ptx_for(char *out, size_t cap, const char *version, const char *target)
{
	snprintf(out, cap,
		 ".version %s\n.target %s\n.address_size 64\n.visible .entry "
		 "on_%s()\n{\n\tret;\n}\n",
		 version, target, target);
	return out;
}

static void add_ptx(struct buf *b, unsigned arch, const char *version, const char *target,
		    uint64_t how)
{
	char text[256];

	ptx_for(text, sizeof(text), version, target);
	make_entry(b, PTX_FATBIN_PTX, arch, text, strlen(text), how);
}

static int open_image(struct ptx_image_text *t, const struct buf *b, unsigned arch)
{
	return ptx_image_open(t, b->data, b->len, (struct ptx_device){ arch, PTX_RULE_SOFT },
			      MAX_TEXT, "test", NULL);
}

static void assert_taken(const struct buf *b, unsigned arch, const char *kernel)
{
	struct ptx_image_text t;

	assert_int_equal(open_image(&t, b, arch), 0);
	assert_int_equal(t.text[t.bytes], 0);
	if (!strstr(t.text, kernel)) {
		fail_msg("not %s:\n%s", kernel, t.text);
	}
	ptx_image_close(&t);
}

static void assert_image(const struct buf *b, int err)
{
	struct ptx_image_text t;

	assert_int_equal(open_image(&t, b, 80), err);
}

static void every_compression_gives_the_text_back(void **state)
{
	static const uint64_t how[] = { 0, PTX_FATBIN_LZ4, PTX_FATBIN_ZSTD };
	char text[256];

	(void)state;
	ptx_for(text, sizeof(text), "8.0", "sm_80");
	for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
		for (size_t zero = 0; zero < 2; zero++) { /* with and without the zero at the end */
			struct ptx_image_text t;
			struct buf b = { 0 };
			size_t at = make_begin(&b);

			make_entry(&b, PTX_FATBIN_PTX, 80, text, strlen(text) + zero, how[i]);
			make_end(&b, at);
			assert_int_equal(open_image(&t, &b, 80), 0);
			assert_int_equal(t.bytes, strlen(text));
			assert_string_equal(t.text, text);
			ptx_image_close(&t);
			buf_finish(&b);
		}
	}
}

static void zstd_is_known_by_its_magic_and_size_too(void **state)
{
	struct buf b = { 0 };
	size_t at, entry;
	uint64_t none = 0;
	char text[256];

	(void)state;
	ptx_for(text, sizeof(text), "8.0", "sm_80");
	at = make_begin(&b);
	entry = make_entry(&b, PTX_FATBIN_PTX, 80, text, strlen(text), PTX_FATBIN_ZSTD);
	make_end(&b, at);
	make_put(&b, entry + 40, &none, 8);
	make_put(&b, entry + 56, &none, 8);
	make_put(&b, entry + 16, &none, 4);
	assert_taken(&b, 80, "on_sm_80");
	buf_finish(&b);
}

static void the_highest_that_the_device_has_is_taken(void **state)
{
	static const struct {
		unsigned arch;
		const char *kernel;
	} cases[] = { { 75, "on_sm_75" },
		      { 79, "on_sm_75" },
		      { 86, "on_sm_80" },
		      { 120, "on_sm_90" },
		      { 60, "on_sm_75" } };
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	add_ptx(&b, 90, "8.0", "sm_90", PTX_FATBIN_LZ4);
	make_entry(&b, PTX_FATBIN_CUBIN, 86,
		   "\x7f"
		   "ELF....",
		   8, 0);
	add_ptx(&b, 75, "8.0", "sm_75", 0);
	add_ptx(&b, 80, "8.0", "sm_80", PTX_FATBIN_ZSTD);
	make_end(&b, at);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_taken(&b, cases[i].arch, cases[i].kernel);
	}
	buf_finish(&b);
}

static void code_for_one_architecture_and_new_versions_are_passed_over(void **state)
{
	struct ptx_image_text t;
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	add_ptx(&b, 86, "10.0", "sm_86", 0);
	make_end(&b, at);
	assert_int_equal(open_image(&t, &b, 86), -EOPNOTSUPP);
	add_ptx(&b, 80, "8.0", "sm_80a", 0);
	make_end(&b, at);
	assert_taken(&b, 86, "on_sm_80a");
	add_ptx(&b, 52, "8.0", "sm_52", 0);
	make_end(&b, at);
	assert_taken(&b, 86, "on_sm_52");
	buf_finish(&b);
}

/* The texts of every subset of entries, in one container or two. The soft GPU executes what
 * ptx_image_open() returns; clones and probed forms are made of what ptx_image_pick() returns. */
static void what_is_executed_is_what_is_rewritten(void **state)
{
	static const struct {
		unsigned arch;
		const char *version, *target;
	} entries[] = { { 70, "7.0", "sm_70" },	   { 80, "8.0", "sm_80" },
			{ 80, "8.0", "sm_80a" },   { 86, "10.0", "sm_86" },
			{ 90, "8.0", "sm_90" },	   { 90, "8.0", "sm_90a" },
			{ 100, "8.8", "sm_100f" }, { 100, "8.8", "sm_100" },
			{ 121, "8.8", "sm_121a" } };
	const struct ptx_device device = { 86, PTX_RULE_SOFT };

	(void)state;
	for (unsigned set = 0; set < 2u << ARRAY_SIZE(entries); set++) {
		struct ptx_image_text executed, rewritten;
		struct buf b = { 0 };
		size_t at = make_begin(&b);
		struct ptx_image_rest rest;
		int err;

		for (unsigned i = 0; i < ARRAY_SIZE(entries); i++) {
			if (set & 1u << i) {
				add_ptx(&b, entries[i].arch, entries[i].version, entries[i].target,
					0);
			}
		}
		make_end(&b, at);
		if (set >> ARRAY_SIZE(entries)) { /* a part without PTX */
			at = make_begin(&b);
			make_entry(&b, PTX_FATBIN_CUBIN, 86, "machine code", 12, 0);
			make_end(&b, at);
		}
		err = ptx_image_open(&executed, b.data, b.len, device, MAX_TEXT, "t", NULL);
		assert_int_equal(ptx_image_pick(&rewritten, b.data, b.len, device, MAX_TEXT, "t",
						&rest, NULL),
				 err);
		assert_true(err == 0 || !(set & 0x1f7));
		assert_int_equal(rest.other.arch, 0);
		assert_int_equal(rest.differs.code.arch, 0); /* code of a GPU */
		if (err == 0) {
			assert_string_equal(rewritten.text, executed.text);
		}
		ptx_image_close(&executed);
		ptx_image_close(&rewritten);
		buf_finish(&b);
	}
}

static void containers_behind_each_other_are_one_program(void **state)
{
	static const char *const texts[] = {
		".version 8.0\n.target sm_80\n.address_size 64\n.extern .func f;\n"
		".visible .entry k() { call.uni f; ret; }\n",
		".version 8.1\n.target sm_75\n.address_size 64\n.visible .func f { ret; }\n",
	};
	struct ptx_image_text t;
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	make_entry(&b, PTX_FATBIN_CUBIN, 90,
		   "\x7f"
		   "ELF....",
		   8, 0);
	make_end(&b, at);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		at = make_begin(&b);
		make_entry(&b, PTX_FATBIN_PTX, 75, texts[i], strlen(texts[i]), PTX_FATBIN_LZ4);
		make_end(&b, at);
	}
	assert_int_equal(open_image(&t, &b, 86), 0);
	assert_non_null(strstr(t.text, ".version 8.1"));
	assert_non_null(strstr(t.text, ".target sm_80"));
	assert_non_null(strstr(t.text, ".visible .func f"));
	assert_null(strstr(t.text, ".extern"));
	ptx_image_close(&t);
	buf_finish(&b);
}

static void images_without_ptx_are_distinguished(void **state)
{
	uint8_t elf[64] = { 0x7f, 'E', 'L', 'F', 2, 1, 1 };
	struct ptx_image_text t;
	struct buf b = { 0 };
	uint16_t machine = 190;
	size_t at = make_begin(&b);

	(void)state;
	make_end(&b, at);
	assert_int_equal(open_image(&t, &b, 80), -ENOENT);
	make_entry(&b, PTX_FATBIN_CUBIN, 90,
		   "\x7f"
		   "ELF....",
		   8, 0);
	make_entry(&b, 8, 90, "\x7fLTO....", 8, 0);
	make_end(&b, at);
	assert_int_equal(open_image(&t, &b, 80), -ENOENT);
	memcpy(elf + 18, &machine, 2);
	assert_int_equal(ptx_image_open(&t, elf, sizeof(elf), device_80, MAX_TEXT, "t", NULL),
			 -ENOENT);
	machine = 62;
	memcpy(elf + 18, &machine, 2);
	assert_int_equal(ptx_image_open(&t, elf, sizeof(elf), device_80, MAX_TEXT, "t", NULL),
			 -EINVAL);
	assert_int_equal(ptx_image_open(&t, elf, 20, device_80, MAX_TEXT, "t", NULL), -EINVAL);
	assert_int_equal(ptx_image_open(&t, ".version 10.1\n", 14, device_80, MAX_TEXT, "t", NULL),
			 -EOPNOTSUPP);
	buf_finish(&b);
}

/* For anything that is truncated or wrong there is an error or the text, and no byte outside is
 * read: each image is at the end of its own allocation. */
static void cut_and_wrong_sizes_are_refused(void **state)
{
	static const uint64_t wrong[] = { 0, 1, 63, 64, 1u << 16, UINT32_MAX, UINT64_MAX - 7 };
	static const struct {
		unsigned at, bytes;
	} fields[] = { { 6, 2 }, { 8, 8 }, { 20, 4 }, { 24, 8 }, { 32, 4 }, { 56, 8 }, { 72, 8 } };
	struct ptx_image_text t;
	char text[256], *exact;
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	ptx_for(text, sizeof(text), "8.0", "sm_80");
	make_entry(&b, PTX_FATBIN_PTX, 80, text, strlen(text), PTX_FATBIN_LZ4);
	make_end(&b, at);
	for (size_t n = 0; n < b.len; n++) {
		exact = malloc(n + 1);
		memcpy(exact + 1, b.data, n);
		assert_true(ptx_image_open(&t, exact + 1, n, device_80, MAX_TEXT, "t", NULL) < 0 ||
			    n < 4);
		if (n < 4) {
			ptx_image_close(&t);
		}
		free(exact);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(wrong); k++) {
			exact = malloc(b.len);
			memcpy(exact, b.data, b.len);
			memcpy(exact + fields[i].at, &wrong[k], fields[i].bytes);
			if (ptx_image_open(&t, exact, b.len, device_80, MAX_TEXT, "t", NULL) == 0) {
				ptx_image_close(&t);
			}
			free(exact);
		}
	}
	buf_finish(&b);
}

static void oversized_contents_are_refused(void **state)
{
	static const uint64_t how[] = { 0, PTX_FATBIN_LZ4, PTX_FATBIN_ZSTD };
	size_t n = MAX_TEXT + 1;
	char *text = malloc(n);
	uint64_t claim = 1000;

	(void)state;
	memset(text, ' ', n);
	for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
		struct ptx_image_text t;
		struct buf b = { 0 };
		size_t at = make_begin(&b);
		size_t entry = make_entry(&b, PTX_FATBIN_PTX, 80, text, n, how[i]);

		make_end(&b, at);
		assert_int_equal(open_image(&t, &b, 80), -EFBIG);
		if (how[i]) { /* also if it claims to be small */
			make_put(&b, entry + 56, &claim, 8);
			assert_int_equal(open_image(&t, &b, 80), -EINVAL);
		}
		buf_finish(&b);
	}
	free(text);
}

/* A container of a few KiB cannot keep the reader busy for a long time. */
static void decompression_for_the_choice_is_limited(void **state)
{
	static const char head[] = ".version 10.0\n";
	size_t n = MAX_TEXT / 2;
	char *text = malloc(n);
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	memset(text, ' ', n);
	memcpy(text, head, strlen(head));
	for (int i = 0; i < 4; i++) {
		make_entry(&b, PTX_FATBIN_PTX, 80, text, n, PTX_FATBIN_ZSTD);
	}
	make_end(&b, at);
	assert_image(&b, -EOPNOTSUPP);
	for (int i = 0; i < 10; i++) {
		make_entry(&b, PTX_FATBIN_PTX, 80, text, n, PTX_FATBIN_ZSTD);
	}
	make_end(&b, at);
	assert_image(&b, -EFBIG);
	buf_finish(&b);
	free(text);
}

static void versions_and_targets_are_read_from_the_text(void **state)
{
	static const char a[] = "// x\n/* y */ .version 7.8\n.target sm_89, debug\n";

	(void)state;
	assert_int_equal(ptx_text_version(a, strlen(a)), 78);
	assert_int_equal(ptx_text_arch(a, strlen(a)), 89);
	assert_int_equal(ptx_text_version(".version", 8), 0);
	assert_int_equal(ptx_text_version(".versio", 7), 0);
	assert_int_equal(ptx_text_version("", 0), 0);
	assert_int_equal(ptx_text_arch(".target", 7), 0);
	assert_int_equal(ptx_text_arch(".target sm_", 11), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_compression_gives_the_text_back),
		cmocka_unit_test(zstd_is_known_by_its_magic_and_size_too),
		cmocka_unit_test(the_highest_that_the_device_has_is_taken),
		cmocka_unit_test(code_for_one_architecture_and_new_versions_are_passed_over),
		cmocka_unit_test(what_is_executed_is_what_is_rewritten),
		cmocka_unit_test(containers_behind_each_other_are_one_program),
		cmocka_unit_test(images_without_ptx_are_distinguished),
		cmocka_unit_test(cut_and_wrong_sizes_are_refused),
		cmocka_unit_test(oversized_contents_are_refused),
		cmocka_unit_test(decompression_for_the_choice_is_limited),
		cmocka_unit_test(versions_and_targets_are_read_from_the_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

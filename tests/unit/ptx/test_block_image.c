/* The passes over images: which PTX is taken, that an image is rewritten once, and that everything
 * in an image is checked. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fatbin_make.h"
#include "ptx/block_image.h"

/* A kernel named after its version and target. */
static const char *ptx_for(char *out, size_t cap, const char *version, const char *target)
{
	snprintf(out, cap,
		 ".version %s\n.target %s\n.address_size 64\n.visible .entry on_%s(.param .u64 p)\n"
		 "{\n\tret;\n}\n",
		 version, target, target);
	return out;
}

static void add_ptx(struct buf *b, unsigned arch, const char *version, const char *target)
{
	char text[256];

	ptx_for(text, sizeof(text), version, target);
	make_entry(b, PTX_FATBIN_PTX, arch, text, strlen(text), PTX_FATBIN_LZ4);
}

static const struct ptx_block_image *open_on(struct ptx_device device, const void *image,
					     size_t bytes)
{
	const struct ptx_block_image *i = NULL;

	assert_int_equal(ptx_block_image_open(&i, image, bytes, device, "t"), 0);
	assert_non_null(i);
	return i;
}

static const struct ptx_block_image *open_image(const void *image, size_t bytes, unsigned arch)
{
	return open_on((struct ptx_device){ arch, PTX_RULE_DRIVER }, image, bytes);
}

static void assert_taken(const void *image, size_t bytes, unsigned arch, const char *kernel,
			 bool native)
{
	const struct ptx_block_image *i = open_image(image, bytes, arch);
	const struct ptx_block_entry *e = ptx_block_image_entry(i, kernel);
	char name[64];

	snprintf(name, sizeof(name), "%s$gbpf(", kernel);
	assert_int_equal(i->why, PROTO_BLOCK_OK);
	assert_string_equal(i->reason, "");
	if (!e || !i->text || !strstr(i->text, name)) {
		fail_msg("no %s in:\n%s", kernel, i->text ? i->text : "nothing");
	}
	assert_int_equal(e->why, PROTO_BLOCK_OK);
	assert_int_equal(e->arg_offset, 8);
	assert_int_equal(e->param_bytes[0], 8);
	assert_int_equal(i->text[i->bytes], 0);
	assert_int_equal(strlen(i->text), i->bytes);
	assert_int_equal(i->native, native);
	assert_null(ptx_block_image_entry(i, "other"));
	ptx_block_image_close(i);
}

static void assert_not(const void *image, size_t bytes, unsigned arch, enum proto_block_why why,
		       bool native)
{
	const struct ptx_block_image *i = open_image(image, bytes, arch);

	assert_int_equal(i->why, why);
	assert_null(i->text);
	assert_int_equal(i->n_entries, 0);
	assert_int_equal(i->native, native);
	assert_int_equal(*i->reason != 0, why == PROTO_BLOCK_UNREADABLE);
	ptx_block_image_close(i);
}

static void text_is_rewritten(void **state)
{
	char text[256];

	(void)state;
	ptx_for(text, sizeof(text), "6.0", "sm_70");
	assert_taken(text, 0, 90, "on_sm_70", false);
	assert_taken(text, strlen(text), 90, "on_sm_70", false);
	assert_taken(text, strlen(text) + 1, 70, "on_sm_70", false);
	assert_not(text, 0, 61, PROTO_BLOCK_OTHER_PTX, false);
	ptx_for(text, sizeof(text), "10.0", "sm_70");
	assert_not(text, 0, 90, PROTO_BLOCK_UNREADABLE, false);
	ptx_for(text, sizeof(text), "8.0", "sm_90a");
	assert_taken(text, 0, 90, "on_sm_90a", false);
	assert_not(text, 0, 100, PROTO_BLOCK_OTHER_PTX, false);
	ptx_for(text, sizeof(text), "8.8", "sm_100f");
	assert_taken(text, 0, 103, "on_sm_100f", false);
	assert_not(text, 0, 120, PROTO_BLOCK_OTHER_PTX, false);
	assert_not("", 0, 90, PROTO_BLOCK_NO_PTX, false);
	assert_not("abc", 0, 90, PROTO_BLOCK_NO_PTX, false);
	assert_not("hello, world", 0, 90, PROTO_BLOCK_NO_PTX, false);
	ptx_for(text, sizeof(text), "8.0", "sm_90");
	memcpy(strstr(text, "ret;"), "ret ", 4);
	assert_not(text, 0, 90, PROTO_BLOCK_UNREADABLE, false);
}

/* The soft GPU executes PTX of every target, so that all of it gets clones. */
static void the_soft_gpu_has_clones_for_any_target(void **state)
{
	static const char *const targets[] = { "sm_70",	 "sm_87",   "sm_90",  "sm_90a",
					       "sm_100", "sm_100f", "sm_121a" };
	const struct ptx_device soft = { 86, PTX_RULE_SOFT };

	(void)state;
	for (size_t n = 0; n < sizeof(targets) / sizeof(targets[0]); n++) {
		char text[256], kernel[32];
		struct buf b = { 0 };
		size_t at = make_begin(&b);

		ptx_for(text, sizeof(text), "8.8", targets[n]);
		snprintf(kernel, sizeof(kernel), "on_%s", targets[n]);
		add_ptx(&b, (unsigned)strtoul(targets[n] + 3, NULL, 10), "8.8", targets[n]);
		make_end(&b, at);
		for (unsigned container = 0; container < 2; container++) {
			const struct ptx_block_image *i =
				container ? open_on(soft, b.data, b.len) : open_on(soft, text, 0);

			assert_int_equal(i->why, PROTO_BLOCK_OK);
			assert_int_equal(i->n_clones, 1);
			assert_non_null(ptx_block_image_entry(i, kernel));
			ptx_block_image_close(i);
		}
		buf_finish(&b);
	}
}

/* Machine code of the soft GPU in a fat binary that is not linked with another one runs instead of
 * the PTX, which may be of something else. */
static void the_soft_gpus_machine_code_comes_first(void **state)
{
	static const char own[] = "\177ELF: .shstrtab\0" PTX_SOFT_CODE;
	static const char other[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
				    ".visible .entry other(.param .u64 p) { ret; }\n";
	const struct ptx_device soft = { 86, PTX_RULE_SOFT };
	const struct ptx_block_image *i;
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	make_entry(&b, PTX_FATBIN_CUBIN, 86, "code of a GPU", 13, 0);
	add_ptx(&b, 75, "7.0", "sm_75");
	make_end(&b, at);
	i = open_on(soft, b.data, b.len);
	assert_int_equal(i->n_clones, 1);
	assert_false(i->native);
	ptx_block_image_close(i);
	make_entry(&b, PTX_FATBIN_CUBIN, 86, own, sizeof(own), PTX_FATBIN_LZ4);
	make_end(&b, at);
	i = open_on(soft, b.data, b.len);
	assert_int_equal(i->why, PROTO_BLOCK_NO_PTX);
	assert_true(i->native);
	ptx_block_image_close(i);
	at = make_begin(&b);
	make_entry(&b, PTX_FATBIN_PTX, 75, other, strlen(other), 0);
	make_end(&b, at);
	i = open_on(soft, b.data, b.len);
	assert_int_equal(i->n_clones, 2);
	ptx_block_image_close(i);
	buf_finish(&b);
}

/* A GPU's code for sm_90a runs on 9.0 alone. */
static void machine_code_for_one_device_is_not_native_elsewhere(void **state)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b), entry;
	uint64_t flags = PTX_FATBIN_ARCH_SPECIFIC;

	(void)state;
	entry = make_entry(&b, PTX_FATBIN_CUBIN, 100, "machine code", 12, 0);
	make_put(&b, entry + 40, &flags, sizeof(flags));
	add_ptx(&b, 90, "8.0", "sm_90");
	make_end(&b, at);
	assert_taken(b.data, b.len, 100, "on_sm_90", true);
	assert_taken(b.data, b.len, 103, "on_sm_90", false);
	buf_finish(&b);
}

/* CU_JIT_TARGET does not make a GPU run code for another one. */
static void machine_code_for_another_target_must_run_on_the_device(void **state)
{
	static const bool native[] = { false, true }; /* on 9.0, 8.6 */
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	make_entry(&b, PTX_FATBIN_CUBIN, 80, "machine code", 12, 0);
	add_ptx(&b, 80, "8.0", "sm_80");
	make_end(&b, at);
	for (unsigned n = 0; n < 2; n++) {
		const struct ptx_block_image *i = open_on(
			(struct ptx_device){ n ? 86 : 90, PTX_RULE_DRIVER, 80 }, b.data, b.len);

		assert_non_null(i->text);
		assert_int_equal(i->native, native[n]);
		ptx_block_image_close(i);
	}
	buf_finish(&b);
}

/* Opens a fat binary with one text and code of architecture `code` with these flags. */
static void assert_differs(unsigned device, unsigned code, uint64_t flags, unsigned arch,
			   const char *target, bool differs)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b), entry;
	const struct ptx_block_image *i;

	add_ptx(&b, arch, "8.8", target);
	entry = make_entry(&b, PTX_FATBIN_CUBIN, code, "machine code", 12, 0);
	make_put(&b, entry + 40, &flags, sizeof(flags));
	make_end(&b, at);
	i = open_image(b.data, b.len, device);
	assert_non_null(i->text);
	assert_true(i->native);
	assert_int_equal(i->differs, differs);
	ptx_block_image_close(i);
	buf_finish(&b);
}

#define ALONE PTX_FATBIN_ARCH_SPECIFIC
#define FAMILY PTX_FATBIN_FAMILY_SPECIFIC

/* The results for one text are not mixed up. */
static void ptx_may_differ_from_machine_code_in_features(void **state)
{
	(void)state;
	for (unsigned again = 0; again < 2; again++) {
		assert_differs(90, 90, 0, 90, "sm_90", false);
		assert_differs(90, 90, ALONE, 90, "sm_90", true);
		assert_differs(90, 90, ALONE, 90, "sm_90a", false);
		assert_differs(90, 90, 0, 90, "sm_90a", true);
		assert_differs(90, 90, 0, 80, "sm_80", true);
		assert_differs(103, 103, ALONE, 100, "sm_100f", true);
		assert_differs(103, 103, 0, 100, "sm_100f", true);
		assert_differs(103, 100, FAMILY, 100, "sm_100", true);
		assert_differs(100, 100, FAMILY, 100, "sm_100a", true);
		assert_differs(103, 103, FAMILY, 100, "sm_100f", false);
		/* minor numbers do not count */
		assert_differs(86, 86, 0, 80, "sm_80", false);
		assert_differs(86, 80, 0, 86, "sm_86", false);
	}
}

static void the_code_that_the_device_executes_counts(void **state)
{
	const struct ptx_block_image *i;
	struct buf b = { 0 };
	size_t at = make_begin(&b), entry;
	uint64_t flags = PTX_FATBIN_ARCH_SPECIFIC;

	(void)state;
	entry = make_entry(&b, PTX_FATBIN_CUBIN, 100, "machine code", 12, 0);
	make_put(&b, entry + 40, &flags, sizeof(flags));
	make_entry(&b, PTX_FATBIN_CUBIN, 100, "machine code", 12, 0);
	make_entry(&b, PTX_FATBIN_CUBIN, 103, "machine code", 12, 0);
	add_ptx(&b, 100, "8.8", "sm_100");
	make_end(&b, at);
	i = open_image(b.data, b.len, 100);
	assert_true(i->differs);
	ptx_block_image_close(i);
	i = open_image(b.data, b.len, 103);
	assert_true(i->native);
	assert_false(i->differs);
	ptx_block_image_close(i);
	buf_finish(&b);
}

/* Of containers that are linked, code of one is not compared with PTX of another one. */
static void ptx_is_compared_with_code_of_its_own_container(void **state)
{
	static const char other[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
				    ".visible .entry other(.param .u64 p) { ret; }\n";
	const struct ptx_block_image *i;
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	make_entry(&b, PTX_FATBIN_CUBIN, 90, "machine code", 12, 0);
	add_ptx(&b, 90, "8.0", "sm_90");
	make_end(&b, at);
	at = make_begin(&b);
	make_entry(&b, PTX_FATBIN_PTX, 80, other, strlen(other), 0);
	make_end(&b, at);
	i = open_image(b.data, b.len, 90);
	assert_int_equal(i->n_clones, 2);
	assert_true(i->native);
	assert_false(i->differs);
	ptx_block_image_close(i);
	b.len = at;
	at = make_begin(&b);
	make_entry(&b, PTX_FATBIN_CUBIN, 90, "machine code", 12, 0);
	make_entry(&b, PTX_FATBIN_PTX, 80, other, strlen(other), 0);
	make_end(&b, at);
	i = open_image(b.data, b.len, 90);
	assert_int_equal(i->n_clones, 2);
	assert_true(i->differs);
	ptx_block_image_close(i);
	buf_finish(&b);
}

/* The program's machine code runs, and its PTX cannot. */
static void ptx_for_newer_devices_next_to_machine_code_is_named(void **state)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	make_entry(&b, PTX_FATBIN_CUBIN, 90, "machine code", 12, 0);
	add_ptx(&b, 100, "8.7", "sm_100");
	make_end(&b, at);
	assert_not(b.data, 0, 90, PROTO_BLOCK_OTHER_PTX, true);
	buf_finish(&b);
}

static void without_clones_the_original_is_loaded(void **state)
{
	static const char text[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
				   ".entry k() { griddepcontrol.wait; ret; }\n";
	const struct ptx_block_image *i = open_image(text, 0, 90);

	(void)state;
	assert_int_equal(i->why, PROTO_BLOCK_OK);
	assert_null(i->text);
	assert_int_equal(i->n_entries, 1);
	assert_int_equal(i->n_clones, 0);
	assert_int_equal(ptx_block_image_entry(i, "k")->why, PROTO_BLOCK_DEPENDENT);
	assert_int_equal(ptx_block_image_entry(i, "k")->line, 4);
	ptx_block_image_close(i);
}

/* A variable of a body would be two with a clone, so the module is prepared first. */
static void a_module_is_prepared_before_it_is_cloned(void **state)
{
	static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				   ".visible .entry k(.param .u64 p)\n{\n\t.global .b32 own;\n"
				   "\tst.global.u32 [own], 1;\n\tret;\n}\n";
	const struct ptx_block_image *i = open_image(text, sizeof(text) - 1, 90);

	assert_false(i->prepared);
	assert_int_equal(i->n_clones, 0);
	ptx_block_image_close(i);
	assert_int_equal(ptx_block_image_open_prepared(&i, text, sizeof(text) - 1,
						       (struct ptx_device){ .arch = 90 }, "t"),
			 0);
	assert_true(i->prepared);
	assert_int_equal(i->n_clones, 1);
	assert_non_null(strstr(i->text, ".global .b32 gbpf$own_"));
	assert_non_null(strstr(i->text, "k$gbpf("));
	assert_null(strstr(i->text, "[own]"));
	ptx_block_image_close(i);
}

static void the_best_of_a_fat_binary_is_taken(void **state)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	make_entry(&b, PTX_FATBIN_CUBIN, 80, "machine code", 12, 0);
	add_ptx(&b, 70, "7.0", "sm_70");
	add_ptx(&b, 90, "8.0", "sm_90");
	add_ptx(&b, 90, "8.0", "sm_90a");
	add_ptx(&b, 100, "8.7", "sm_100");
	add_ptx(&b, 86, "11.0", "sm_86");
	make_end(&b, at);
	for (unsigned with = 0; with < 2; with++) {
		size_t bytes = with ? b.len : 0;

		assert_taken(b.data, bytes, 90, "on_sm_90a", false);
		assert_taken(b.data, bytes, 75, "on_sm_70", false);
		assert_not(b.data, bytes, 87, PROTO_BLOCK_UNREADABLE, true); /* 86 is too new */
		assert_not(b.data, bytes, 89, PROTO_BLOCK_UNREADABLE, true);
		assert_taken(b.data, bytes, 99, "on_sm_90", false);
		assert_taken(b.data, bytes, 120, "on_sm_100", false);
		assert_not(b.data, bytes, 60, PROTO_BLOCK_OTHER_PTX, false);
	}
	buf_finish(&b);
}

/* PTX for other devices is not executed, whatever its .version. */
static void the_target_counts_before_the_version(void **state)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b);
	char text[256];

	(void)state;
	add_ptx(&b, 90, "11.0", "sm_90a");
	make_end(&b, at);
	assert_not(b.data, 0, 90, PROTO_BLOCK_UNREADABLE, false);
	assert_not(b.data, 0, 100, PROTO_BLOCK_OTHER_PTX, false);
	add_ptx(&b, 80, "8.0", "sm_80");
	make_end(&b, at);
	assert_not(b.data, 0, 90, PROTO_BLOCK_UNREADABLE, false);
	assert_taken(b.data, 0, 100, "on_sm_80", false);
	assert_not(ptx_for(text, sizeof(text), "11.0", "sm_120"), 0, 90, PROTO_BLOCK_OTHER_PTX,
		   false);
	buf_finish(&b);
}

/* The first container has PTX that is executed, next to PTX for another device. */
static void the_reason_is_of_the_container_without_ptx(void **state)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	add_ptx(&b, 90, "8.0", "sm_90a");
	add_ptx(&b, 80, "8.0", "sm_80");
	make_end(&b, at);
	at = make_begin(&b);
	make_entry(&b, PTX_FATBIN_CUBIN, 90, "machine code", 12, 0);
	make_end(&b, at);
	assert_not(b.data, b.len, 100, PROTO_BLOCK_NO_PTX, false);
	buf_finish(&b);
}

static void machine_code_alone_has_no_clones(void **state)
{
	uint8_t elf[64] = { 0x7f, 'E', 'L', 'F', 2 };
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	make_entry(&b, PTX_FATBIN_CUBIN, 90, "machine code", 12, 0);
	make_end(&b, at);
	assert_not(b.data, 0, 90, PROTO_BLOCK_NO_PTX, true);
	assert_not(b.data, 0, 100, PROTO_BLOCK_NO_PTX, false);
	assert_not(elf, 0, 90, PROTO_BLOCK_NO_PTX, true);
	buf_finish(&b);
}

static void wrappers_are_followed(void **state)
{
	static const char part_a[] =
		".version 8.0\n.target sm_90\n.address_size 64\n"
		".extern .func g();\n.entry a(.param .u64 p) { call g; ret; }\n";
	static const char part_b[] =
		".version 8.0\n.target sm_90\n.address_size 64\n"
		".visible .func g() { .reg .b32 %r; mov.u32 %r, %ctaid.x; ret; }\n";
	struct buf x = { 0 }, y = { 0 };
	size_t at = make_begin(&x);
	const void *list[3] = { NULL };
	struct ptx_fatbin_wrapper w = { .magic = PTX_FATBIN_WRAPPER_MAGIC, .version = 1 };

	(void)state;
	make_entry(&x, PTX_FATBIN_PTX, 90, part_a, sizeof(part_a), PTX_FATBIN_ZSTD);
	make_end(&x, at);
	at = make_begin(&y);
	make_entry(&y, PTX_FATBIN_PTX, 90, part_b, sizeof(part_b), 0);
	make_end(&y, at);
	w.data = y.data;
	{
		const struct ptx_block_image *i = open_image(&w, 0, 90);

		assert_int_equal(i->why, PROTO_BLOCK_OK);
		assert_int_equal(i->n_entries, 0);
		ptx_block_image_close(i);
	}
	list[0] = x.data;
	list[1] = y.data;
	w.version = 2;
	w.more = list;
	assert_taken(&w, 0, 90, "a", false);
	/* A part that no container has. */
	list[1] = NULL;
	{
		const struct ptx_block_image *i = open_image(&w, 0, 90);

		assert_int_equal(i->why, PROTO_BLOCK_OK);
		assert_int_equal(ptx_block_image_entry(i, "a")->why, PROTO_BLOCK_EXTERN);
		ptx_block_image_close(i);
	}
	w.version = 1;
	w.data = NULL;
	assert_not(&w, 0, 90, PROTO_BLOCK_UNREADABLE, false);
	w.data = "no container at all";
	assert_not(&w, 0, 90, PROTO_BLOCK_UNREADABLE, false);
	assert_not(&w, 8, 90, PROTO_BLOCK_UNREADABLE, false);
	/* The contents of a file, which may point anywhere. */
	w.data = y.data;
	assert_not(&w, sizeof(w), 90, PROTO_BLOCK_UNREADABLE, false);
	buf_finish(&x);
	buf_finish(&y);
}

static void no_size_is_believed(void **state)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	add_ptx(&b, 90, "8.0", "sm_90");
	make_end(&b, at);
	for (size_t n = 1; n < b.len; n++) {
		void *cut = malloc(n);
		const struct ptx_block_image *i;

		memcpy(cut, b.data, n);
		i = open_image(cut, n, 90);
		assert_null(i->text);
		ptx_block_image_close(i);
		free(cut);
	}
	for (size_t n = 0; n < b.len * 8; n++) {
		const struct ptx_block_image *i;

		b.data[n / 8] ^= (char)(1 << n % 8);
		i = open_image(b.data, b.len, 90);
		ptx_block_image_close(i);
		b.data[n / 8] ^= (char)(1 << n % 8);
	}
	buf_finish(&b);
}

static uint64_t passes(void)
{
	struct ptx_block_image_counts c;

	ptx_block_image_counts(&c);
	return c.passes;
}

static void an_image_is_rewritten_once(void **state)
{
	char text[256], other[256];
	const struct ptx_block_image *a, *b;
	uint64_t before = passes();

	(void)state;
	ptx_for(text, sizeof(text), "8.1", "sm_80");
	ptx_for(other, sizeof(other), "8.2", "sm_80");
	a = open_image(text, 0, 90);
	b = open_image(text, 0, 90);
	assert_ptr_equal(a, b);
	assert_int_equal(passes(), before + 1);
	ptx_block_image_close(b);
	assert_ptr_equal(ptx_block_image_ref(a), a);
	ptx_block_image_close(a);
	ptx_block_image_close(a);
	b = open_image(text, 0, 90); /* it was not open */
	assert_int_equal(passes(), before + 1);
	a = open_image(other, 0, 90);
	assert_ptr_not_equal(a, b);
	assert_int_equal(passes(), before + 2);
	ptx_block_image_close(a);
	/* Open images stay while idle ones are freed. */
	for (unsigned i = 0; i < 200; i++) {
		snprintf(other, sizeof(other),
			 ".version 8.0\n.target sm_80\n.address_size 64\n.entry k%u() { ret; }\n",
			 i);
		ptx_block_image_close(open_image(other, 0, 90));
	}
	assert_non_null(strstr(b->text, "on_sm_80$gbpf"));
	a = open_image(text, 0, 90);
	assert_ptr_equal(a, b);
	ptx_block_image_close(a);
	ptx_block_image_close(b);
	before = passes();
	ptx_block_image_close(
		open_image(other, 0, 90)); /* a recent one is kept, an early one is not */
	assert_int_equal(passes(), before);
	ptx_block_image_close(open_image(
		".version 8.0\n.target sm_80\n.address_size 64\n.entry k0() { ret; }\n", 0, 90));
	assert_int_equal(passes(), before + 1);
	assert_null(ptx_block_image_ref(NULL));
	ptx_block_image_close(NULL);
}

static void *open_many(void *arg)
{
	char text[256];

	for (unsigned i = 0; i < 300; i++) {
		const struct ptx_block_image *a;
		char name[32];

		snprintf(name, sizeof(name), "k%u$gbpf", (i + *(unsigned *)arg) % 100);
		snprintf(text, sizeof(text),
			 ".version 8.3\n.target sm_80\n.address_size 64\n.entry k%u() { ret; }\n",
			 (i + *(unsigned *)arg) % 100);
		if (ptx_block_image_open(&a, text, 0, (struct ptx_device){ .arch = 90 }, "t") !=
			    0 ||
		    !a->text || !strstr(a->text, name)) {
			return arg;
		}
		ptx_block_image_close(a);
	}
	return NULL;
}

static void threads_may_load_at_once(void **state)
{
	pthread_t t[4];
	unsigned n[4];
	void *bad;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		n[i] = i / 2;
		assert_int_equal(pthread_create(&t[i], NULL, open_many, &n[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(t[i], &bad), 0);
		assert_null(bad);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_rewritten),
		cmocka_unit_test(the_soft_gpu_has_clones_for_any_target),
		cmocka_unit_test(the_soft_gpus_machine_code_comes_first),
		cmocka_unit_test(machine_code_for_one_device_is_not_native_elsewhere),
		cmocka_unit_test(machine_code_for_another_target_must_run_on_the_device),
		cmocka_unit_test(ptx_may_differ_from_machine_code_in_features),
		cmocka_unit_test(the_code_that_the_device_executes_counts),
		cmocka_unit_test(ptx_is_compared_with_code_of_its_own_container),
		cmocka_unit_test(ptx_for_newer_devices_next_to_machine_code_is_named),
		cmocka_unit_test(without_clones_the_original_is_loaded),
		cmocka_unit_test(a_module_is_prepared_before_it_is_cloned),
		cmocka_unit_test(the_best_of_a_fat_binary_is_taken),
		cmocka_unit_test(the_target_counts_before_the_version),
		cmocka_unit_test(the_reason_is_of_the_container_without_ptx),
		cmocka_unit_test(machine_code_alone_has_no_clones),
		cmocka_unit_test(wrappers_are_followed),
		cmocka_unit_test(no_size_is_believed),
		cmocka_unit_test(an_image_is_rewritten_once),
		cmocka_unit_test(threads_may_load_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

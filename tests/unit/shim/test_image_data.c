/* Sizes of variables by the forms of images: PTX texts, machine code, fat binaries, and hostile
 * ones of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <elf.h>

#include "../ptx/fatbin_make.h"
#include "base/buf.h"
#include "base/compiler.h"
#include "shim/mem/image_data.h"

#define MIB ((uint64_t)1 << 20)
#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static const struct ptx_device gpu = { 90, PTX_RULE_DRIVER };
static const struct ptx_device gpu_as_80 = { 90, PTX_RULE_DRIVER, 80 };
static const struct ptx_device gpu_as_75 = { 90, PTX_RULE_DRIVER, 75 };
static const struct ptx_device soft_gpu = { 86, PTX_RULE_SOFT };

static uint64_t of_text(const char *body)
{
	struct buf b = { 0 };
	uint64_t known, stated;

	buf_printf(&b, HEAD "%s", body);
	stated = shim_mem_image_bytes(buf_text(&b), 0, gpu);
	known = shim_mem_image_bytes(buf_text(&b), b.len, gpu);
	assert_int_equal(stated, known);
	buf_finish(&b);
	return stated;
}

static const struct {
	const char *text;
	uint64_t bytes;
} texts[] = {
	{ "", 0 },
	{ ".visible .entry k() { ret; }\n", 0 },
	{ ".global .u32 a;\n", 4 },
	{ ".visible .global .align 8 .b8 a[100];\n", 104 },
	{ ".visible.global.align 4 .b8 a[100];.global .u64 b;", 108 },
	{ ".global .v4 .f32 a[3], b;\n", 64 },
	{ ".weak .global .u16 a[2][3][4];\n", 48 },
	{ ".common .global .u16 a[2];\n", 4 },
	{ ".extern .global .b8 a[5000000];\n", 6 * MIB },
	{ ".extern .global .b8 a[];\n", 0 },
	{ ".const .f64 a[10];\n.const[3] .u32 b;\n", 84 },
	{ ".global .attribute(.managed) .b8 a[3145728];\n", 4 * MIB },
	{ ".global .attribute(.unified(1, 2), .managed) .u32 a;\n", 4 },
	{ ".global .u32 a<3>;\n", 12 },
	{ ".global .u32 a[] = {1, 2, 3};\n", 12 },
	{ ".global .u32 a[][2] = {{1, 2}, {3, 4}, {5, 6}};\n", 24 },
	{ ".global .u64 a[] = {generic(x), y, mask(0xff)};\n", 24 },
	{ ".global .u32 a[4] = {1}, b = 5, c;\n", 24 },
	{ ".global .u32 a[] = {};\n", 0 },
	{ ".global .b8 a[2 * 1024 * 512];\n", MIB },
	{ ".global .b8 a[(1 << 20) + 1];\n", 2 * MIB },
	{ ".global .b8 a[2097153];\n", 4 * MIB },
	{ ".global .b8 a[1200000], b[1200000], c[1048576];\n", 5 * MIB },
	{ ".global .texref t;\n.global .samplerref s;\n", 16 },
	{ "// .global .u32 a;\n/* .global .u32 b; */ .global .u32 c;\n", 4 },
	{ ".file 1 \"x\"\n.global .u32 a;\n", 4 },
	{ ".shared .align 4 .b8 s[1024];\n.extern .shared .b8 d[];\n", 0 },
	{ ".visible .entry k(.param .u64 .ptr .global .align 8 p) { .reg .u64 %r<4>;\n"
	  "ld.param.u64 %r1, [p];\ncvta.to.global.u64 %r2, %r1;\nld.global.u64 %r3, [%r2+8];\n"
	  "st.volatile.global.u64 [%r2], %r3;\nld.const.u64 %r1, [c];\n.local .b8 l[64];\nret; }\n",
	  0 },
	{ ".func f() { .global .b8 a[5000000]; { .const .u32 b; } ret; }\n", 6 * MIB + 4 },
	{ ".version 7.0 .target sm_70 .address_size 64 .global .u32 a;", 4 },
};

static void texts_are_measured_by_their_declarations(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		uint64_t bytes = of_text(texts[i].text);

		if (bytes != texts[i].bytes) {
			fail_msg("%s: %llu instead of %llu", texts[i].text,
				 (unsigned long long)bytes, (unsigned long long)texts[i].bytes);
		}
	}
}

static void huge_sizes_are_the_largest_number(void **state)
{
	(void)state;
	assert_true(of_text(".global .b8 a[18446744073709551615];\n") == UINT64_MAX);
	assert_true(of_text(".global .u64 a[18446744073709551615];\n") == UINT64_MAX);
	assert_true(of_text(".global .u64 a[4294967296][4294967296];\n") == UINT64_MAX);
	assert_true(of_text(".global .b8 a[9223372036854775808], b[9223372036854775808];\n") ==
		    UINT64_MAX);
}

/* Texts that no driver takes: they end, and what is before the fault may count. */
static void broken_texts_end(void **state)
{
	static const char *const broken[] = {
		".global",
		".global .u32",
		".global .u32 a[",
		".global .u32 a[5",
		".global .u32 a[] = {",
		".global .u32 a[] = {{{{1,",
		".global .align",
		"/* ",
		"\"",
		".global .align 3 .u32 a[-5];",
		".global .u32 a[1.5];",
		"\\\\\\ ] } )",
		".global .attribute((((",
		".const[[[[",
		".global .u32 a<",
		"@!%",
		"0x",
		"0f1",
	};
	struct buf b = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		assert_true(of_text(broken[i]) < MIB);
	}
	buf_puts(&b, ".global .u32 a[");
	for (int i = 0; i < 1000000; i++) {
		buf_puts(&b, i % 2 ? "0" : "(");
	}
	assert_true(of_text(buf_text(&b)) < MIB);
	buf_clear(&b);
	for (int i = 0; i < 1000000; i++) {
		buf_puts(&b, "0");
	}
	buf_puts(&b, "g; .global .u32 a;");
	assert_int_equal(of_text(buf_text(&b)), 4); /* in linear time */
	buf_finish(&b);
}

/* ---- machine code ---- */

#define SECTIONS 5u
#define SYMBOLS 4u

struct code {
	Elf64_Ehdr head;
	Elf64_Shdr sections[SECTIONS];
	Elf64_Sym symbols[SYMBOLS];
	char names[64];
};

/* Two variables of 1.2 MiB and one of 100 bytes without contents, 20 bytes of constants, and a
 * kernel's parameters. */
static struct code make_code(uint16_t type)
{
	static const char names[] = "\0.nv.global\0.nv.constant3\0.nv.constant0.k\0.symtab";
	const uint64_t big = 1200000;
	struct code c = {
		.head = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			  .e_type = type,
			  .e_machine = 190,
			  .e_shoff = offsetof(struct code, sections),
			  .e_shentsize = sizeof(Elf64_Shdr),
			  .e_shnum = SECTIONS,
			  .e_shstrndx = 4 },
	};

	memcpy(c.names, names, sizeof(names));
	c.sections[1] = (Elf64_Shdr){ .sh_name = 1,
				      .sh_type = SHT_NOBITS,
				      .sh_flags = SHF_ALLOC | SHF_WRITE,
				      .sh_size = 2 * big + 100 };
	c.sections[2] = (Elf64_Shdr){ .sh_name = 12,
				      .sh_type = SHT_PROGBITS,
				      .sh_flags = SHF_ALLOC,
				      .sh_offset = 0,
				      .sh_size = 20 };
	c.sections[3] = (Elf64_Shdr){
		.sh_name = 26, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC, .sh_size = 300
	};
	c.sections[4] = (Elf64_Shdr){ .sh_name = 0,
				      .sh_type = SHT_STRTAB,
				      .sh_offset = offsetof(struct code, names),
				      .sh_size = sizeof(c.names) };
	c.symbols[1] = (Elf64_Sym){ .st_info = STT_OBJECT, .st_shndx = 1, .st_size = big };
	c.symbols[2] = c.symbols[1];
	c.symbols[3] = (Elf64_Sym){ .st_info = STT_FUNC, .st_shndx = 1, .st_size = big };
	return c;
}

static uint64_t of_code(const struct code *c, size_t bytes)
{
	return shim_mem_image_bytes(c, bytes, gpu);
}

static void machine_code_is_measured_by_its_sections(void **state)
{
	struct code c = make_code(ET_EXEC);

	(void)state;
	assert_int_equal(of_code(&c, 0), 4 * MIB + 20); /* as one variable: 2400100 bytes */
	c.sections[2].sh_type = SHT_SYMTAB;		/* with symbols, without constants */
	c.sections[2].sh_offset = offsetof(struct code, symbols);
	c.sections[2].sh_size = sizeof(c.symbols);
	c.sections[2].sh_flags = 0;
	assert_int_equal(of_code(&c, sizeof(c)), 4 * MIB + 100);
	c.symbols[1].st_size = 2097153;
	c.symbols[2].st_size = 7;
	assert_int_equal(of_code(&c, sizeof(c)), 4 * MIB + 7 + 2400100 - 2097153 - 7);
	c.symbols[2].st_size = UINT64_MAX; /* more than 64 bits together */
	assert_true(of_code(&c, sizeof(c)) == UINT64_MAX);
	/* The driver's linker writes sizes of sections in 32 bits. */
	c.symbols[2].st_size = UINT64_C(16) << 30;
	c.sections[1].sh_size = (uint32_t)c.symbols[2].st_size;
	assert_true(of_code(&c, sizeof(c)) == 4 * MIB + (UINT64_C(16) << 30));
	c.head.e_type = ET_REL;
	assert_true(of_code(&c, sizeof(c)) == 4 * MIB + (UINT64_C(16) << 30));
	c.head.e_machine = EM_X86_64;
	assert_int_equal(of_code(&c, sizeof(c)), 0);
}

static void machine_code_that_is_cut_or_wrong_is_survived(void **state)
{
	struct code c = make_code(ET_EXEC), copy;
	uint8_t *bytes = malloc(sizeof(c));

	(void)state;
	for (size_t n = 1; n < sizeof(c); n++) {
		uint8_t *cut = malloc(n); /* its end is the allocation's, for a sanitizer */

		memcpy(cut, &c, n);
		(void)shim_mem_image_bytes(cut, n, gpu);
		free(cut);
	}
	for (size_t n = 0; n < sizeof(c); n++) {
		for (unsigned v = 0; v < 4; v++) {
			static const uint8_t values[] = { 0xff, 0x7f, 0, 1 };

			memcpy(bytes, &c, sizeof(c));
			bytes[n] = values[v];
			(void)shim_mem_image_bytes(bytes, sizeof(c), gpu);
		}
	}
	copy = c;
	copy.sections[1].sh_size = UINT64_MAX;
	assert_true(of_code(&copy, sizeof(copy)) == UINT64_MAX);
	copy.sections[2].sh_flags = 0;
	copy.sections[1].sh_size = (uint64_t)900 << 20;
	assert_int_equal(of_code(&copy, sizeof(copy)), 900 * MIB);
	free(bytes);
}

/* ---- fat binaries ---- */

static void add_text(struct buf *b, unsigned arch, uint64_t bytes, uint64_t how)
{
	char text[256];

	snprintf(text, sizeof(text), HEAD ".global .b8 a[%llu];\n", (unsigned long long)bytes);
	make_entry(b, PTX_FATBIN_PTX, arch, text, strlen(text), how);
}

static void add_code(struct buf *b, unsigned arch, uint64_t bytes, uint64_t how)
{
	struct code c = make_code(ET_EXEC);

	c.sections[1].sh_size = bytes;
	c.sections[2].sh_flags = 0;
	make_entry(b, PTX_FATBIN_CUBIN, arch, &c, sizeof(c), how);
}

static uint64_t of_fatbin(const struct buf *b)
{
	uint64_t stated = shim_mem_image_bytes(b->data, 0, gpu);
	struct ptx_fatbin_wrapper w = { PTX_FATBIN_WRAPPER_MAGIC, 1, b->data, "a name" };

	assert_int_equal(stated, shim_mem_image_bytes(b->data, b->len, gpu));
	assert_int_equal(stated, shim_mem_image_bytes(&w, 0, gpu));
	return stated;
}

static void fat_binaries_are_measured_by_what_the_driver_takes(void **state)
{
	static const uint64_t how[] = { 0, PTX_FATBIN_LZ4, PTX_FATBIN_ZSTD };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
		struct buf b = { 0 };
		size_t at = make_begin(&b);

		add_text(&b, 75, 8 * MIB, how[i]);
		add_text(&b, 100, 64 * MIB, how[i]); /* too new */
		make_end(&b, at);
		assert_int_equal(of_fatbin(&b), 8 * MIB);
		b.len = at;
		at = make_begin(&b);
		add_code(&b, 75, 32 * MIB, how[i]); /* of another device */
		add_code(&b, 90, 6 * MIB, how[i]);
		add_code(&b, 90, 4 * MIB, how[i]); /* sm_90a, say */
		add_text(&b, 80, 16 * MIB, how[i]);
		make_end(&b, at);
		assert_int_equal(of_fatbin(&b), 6 * MIB);
		/* code for 7.5 does not run on 9.0, whatever CU_JIT_TARGET says */
		assert_int_equal(shim_mem_image_bytes(b.data, 0, gpu_as_80), 16 * MIB);
		assert_int_equal(shim_mem_image_bytes(b.data, 0, gpu_as_75), 0);
		buf_finish(&b);
	}
}

/* A driver may read a .version that gBPF does not, and more PTX than gBPF chooses from. */
static void ptx_that_cannot_be_chosen_is_measured(void **state)
{
	static const char newer[] = ".version 11.0\n.target sm_90\n.address_size 64\n"
				    ".global .b8 a[8388608];\n";
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	add_text(&b, 75, 2 * MIB, 0);
	make_entry(&b, PTX_FATBIN_PTX, 90, newer, strlen(newer), 0);
	make_end(&b, at);
	assert_int_equal(of_fatbin(&b), 8 * MIB);
	assert_int_equal(shim_mem_image_bytes(b.data, 0, gpu_as_80), 2 * MIB);
	b.len = at;
	at = make_begin(&b);
	add_text(&b, 75, 2 * MIB, 0);
	for (unsigned i = 0; i < 64; i++) {
		add_text(&b, 80, 4 * MIB, 0);
	}
	add_text(&b, 100, 64 * MIB, 0); /* too new */
	make_end(&b, at);
	assert_int_equal(of_fatbin(&b), 4 * MIB);
	buf_finish(&b);
}

/* The soft GPU takes its own machine code, or else PTX of any .target. */
static void fat_binaries_are_measured_by_what_the_soft_gpu_takes(void **state)
{
	static const char text[] = ".version 8.8\n.target sm_100\n.address_size 64\n"
				   ".global .b8 a[8388608];\n";
	struct code c = make_code(ET_EXEC);
	char own[sizeof(c) + sizeof(PTX_SOFT_CODE)];
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	(void)state;
	add_code(&b, 86, 6 * MIB, 0); /* of a GPU */
	make_entry(&b, PTX_FATBIN_PTX, 100, text, strlen(text), 0);
	make_end(&b, at);
	assert_int_equal(shim_mem_image_bytes(b.data, 0, soft_gpu), 8 * MIB);
	assert_int_equal(shim_mem_image_bytes(b.data, 0, gpu), 0);
	c.sections[1].sh_size = 4 * MIB;
	c.sections[2].sh_flags = 0;
	memcpy(own, &c, sizeof(c));
	memcpy(own + sizeof(c), PTX_SOFT_CODE, sizeof(PTX_SOFT_CODE));
	make_entry(&b, PTX_FATBIN_CUBIN, 86, own, sizeof(own), PTX_FATBIN_LZ4);
	make_end(&b, at);
	assert_int_equal(shim_mem_image_bytes(b.data, b.len, soft_gpu), 4 * MIB);
	at = make_begin(&b);
	add_text(&b, 75, 2 * MIB, 0);
	make_end(&b, at); /* the PTX of both is linked */
	assert_int_equal(shim_mem_image_bytes(b.data, b.len, soft_gpu), 10 * MIB);
	buf_finish(&b);
}

static void linked_containers_are_added_up(void **state)
{
	struct buf a = { 0 }, b = { 0 };
	const void *more[3];
	struct ptx_fatbin_wrapper w = { PTX_FATBIN_WRAPPER_MAGIC, 2, NULL, more };
	size_t at = make_begin(&a);

	(void)state;
	add_text(&a, 75, 8 * MIB, 0);
	make_end(&a, at);
	at = make_begin(&b);
	add_text(&b, 75, 4 * MIB, 0);
	make_end(&b, at);
	more[0] = a.data;
	more[1] = b.data;
	more[2] = NULL;
	assert_int_equal(shim_mem_image_bytes(&w, 0, gpu), 12 * MIB);
	buf_add(&a, b.data, b.len);
	assert_int_equal(shim_mem_image_bytes(a.data, a.len, gpu), 12 * MIB);
	buf_finish(&a);
	buf_finish(&b);
}

static void broken_fat_binaries_are_survived(void **state)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b), whole;

	(void)state;
	add_text(&b, 75, 8 * MIB, PTX_FATBIN_LZ4);
	add_code(&b, 90, 8 * MIB, PTX_FATBIN_ZSTD);
	make_end(&b, at);
	whole = b.len;
	for (size_t n = 1; n < whole; n++) {
		uint8_t *cut = malloc(n);

		memcpy(cut, b.data, n);
		(void)shim_mem_image_bytes(cut, n, gpu);
		free(cut);
	}
	for (size_t n = 16; n < whole; n++) {
		uint8_t *changed = malloc(whole);

		memcpy(changed, b.data, whole);
		changed[n] ^= 0xff;
		(void)shim_mem_image_bytes(changed, whole, gpu);
		free(changed);
	}
	buf_finish(&b);
}

static void files_are_read(void **state)
{
	static const char text[] = HEAD ".global .b8 a[8388608];\n";
	char path[] = "/tmp/gbpf-image-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	close(fd);
	assert_int_equal(shim_mem_file_bytes(path, gpu), 8 * MIB);
	unlink(path);
	assert_int_equal(shim_mem_file_bytes(path, gpu), 0);
	assert_int_equal(shim_mem_file_bytes("/dev/zero", gpu), 0);
	assert_int_equal(shim_mem_file_bytes(NULL, gpu), 0);
	assert_int_equal(shim_mem_image_bytes(NULL, 0, gpu), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_are_measured_by_their_declarations),
		cmocka_unit_test(huge_sizes_are_the_largest_number),
		cmocka_unit_test(broken_texts_end),
		cmocka_unit_test(machine_code_is_measured_by_its_sections),
		cmocka_unit_test(machine_code_that_is_cut_or_wrong_is_survived),
		cmocka_unit_test(fat_binaries_are_measured_by_what_the_driver_takes),
		cmocka_unit_test(ptx_that_cannot_be_chosen_is_measured),
		cmocka_unit_test(fat_binaries_are_measured_by_what_the_soft_gpu_takes),
		cmocka_unit_test(linked_containers_are_added_up),
		cmocka_unit_test(broken_fat_binaries_are_survived),
		cmocka_unit_test(files_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

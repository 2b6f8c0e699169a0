/* PTX that is stored in machine code is read back, and everything in the machine code is checked.
 */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "ptx/module.h"
#include "ptx/stored.h"

static const char text[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
			   ".visible .entry f(.param .u64 p) { ret; }\n";

struct elf {
	Elf64_Ehdr head;
	uint32_t words[512];
	char names[64];
	Elf64_Sym symbols[3];
	Elf64_Shdr sections[4];
};

/* Takes the words of the variables in a module's text. Returns their number. */
static size_t words_of(const char *module, uint32_t *words, size_t cap)
{
	struct ptx_module *m = NULL;
	struct report r;
	size_t n = 0;

	report_init(&r);
	assert_int_equal(ptx_module_parse(&m, module, strlen(module), "m", &r), 0);
	ptx_each (&m->items, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		for (uint32_t i = 0; it->kind == PTX_VARIABLE && v->init && i < v->init->n_args;
		     i++) {
			assert_true(n < cap);
			words[n++] = (uint32_t)v->init->args[i].value;
		}
	}
	ptx_module_free(m);
	report_finish(&r);
	return n;
}

/* Makes machine code that has only the variable, as a PTX compiler writes it. */
static void make_elf(struct elf *e)
{
	struct buf module;
	size_t n;

	*e = (struct elf){ .head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
						  ELFDATA2LSB, 1 },
				     .e_machine = 190,
				     .e_shoff = offsetof(struct elf, sections),
				     .e_shentsize = sizeof(Elf64_Shdr),
				     .e_shnum = 4 } };
	buf_init(&module);
	buf_puts(&module, text);
	assert_int_equal(ptx_stored_print(&module, text, strlen(text)), 0);
	n = words_of(buf_text(&module), e->words, ARRAY_SIZE(e->words));
	assert_true(n > 10);
	buf_finish(&module);
	snprintf(e->names + 1, sizeof(e->names) - 1, PTX_STORED "0123");
	e->symbols[1] =
		(Elf64_Sym){ .st_name = 1, .st_info = STT_OBJECT, .st_shndx = 1, .st_size = n * 4 };
	e->sections[1] = (Elf64_Shdr){ .sh_type = SHT_PROGBITS,
				       .sh_offset = offsetof(struct elf, words),
				       .sh_size = sizeof(e->words) };
	e->sections[2] = (Elf64_Shdr){ .sh_type = SHT_STRTAB,
				       .sh_offset = offsetof(struct elf, names),
				       .sh_size = sizeof(e->names) };
	e->sections[3] = (Elf64_Shdr){ .sh_type = SHT_SYMTAB,
				       .sh_offset = offsetof(struct elf, symbols),
				       .sh_size = sizeof(e->symbols),
				       .sh_link = 2 };
}

/* Returns whether text i is in the first bytes. */
static bool is_in(const void *data, size_t bytes, uint32_t i)
{
	void *cut = malloc(bytes); /* of exactly this size: a read behind it is noticed */
	size_t n = 0;
	char *got = NULL;
	bool same;

	memcpy(cut, data, bytes);
	same = ptx_stored_read(cut, bytes, i, &got, &n) == 0;
	if (same) {
		assert_int_equal(n, strlen(text));
		assert_string_equal(got, text);
		free(got);
	}
	free(cut);
	return same;
}

static void stored_text_is_read_back(void **state)
{
	struct elf e;

	(void)state;
	make_elf(&e);
	assert_true(is_in(&e, sizeof(e), 0));
	assert_false(is_in(&e, sizeof(e), 1));
	e.symbols[2] = e.symbols[1];
	assert_true(is_in(&e, sizeof(e), 1));
}

static void damaged_machine_code_has_none(void **state)
{
	struct elf e;

	(void)state;
	make_elf(&e);
	for (size_t n = 1; n < sizeof(e); n++) {
		assert_false(is_in(&e, n, 0));
	}
	for (size_t n = 0; n < sizeof(e) * 8; n++) {
		uint8_t *byte = (uint8_t *)&e + n / 8;

		*byte ^= (uint8_t)(1 << n % 8);
		(void)is_in(&e, sizeof(e), 0); /* never another text */
		*byte ^= (uint8_t)(1 << n % 8);
	}
}

/* Sizes that the frame's sum does not cover. */
static void false_sizes_are_refused(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 100, UINT32_MAX, 16u << 20 };
	size_t n;
	char *got;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct elf e;

		make_elf(&e);
		e.words[3] = sizes[i];
		assert_int_equal(ptx_stored_read(&e, sizeof(e), 0, &got, &n), -EINVAL);
		make_elf(&e);
		e.words[4] = sizes[i];
		assert_int_equal(ptx_stored_read(&e, sizeof(e), 0, &got, &n), -EINVAL);
	}
}

static void long_texts_are_not_stored(void **state)
{
	size_t bytes = PTX_STORED_MAX + 1;
	char *zeros = calloc(1, bytes);
	struct buf out;

	(void)state;
	buf_init(&out);
	assert_int_equal(ptx_stored_print(&out, zeros, bytes), -EFBIG);
	for (size_t i = 0; i < 4 * PTX_STORED_PACKED_MAX; i++) { /* does not compress */
		zeros[i] = (char)((i * i * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
	}
	assert_int_equal(ptx_stored_print(&out, zeros, 4 * PTX_STORED_PACKED_MAX), -EFBIG);
	assert_int_equal(out.len, 0);
	buf_finish(&out);
	free(zeros);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stored_text_is_read_back),
		cmocka_unit_test(damaged_machine_code_has_none),
		cmocka_unit_test(false_sizes_are_refused),
		cmocka_unit_test(long_texts_are_not_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

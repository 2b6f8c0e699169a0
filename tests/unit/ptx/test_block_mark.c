/* Rewritten modules are recognized: as text, and in machine code, of which everything is checked.
 */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "ptx/block_image.h"
#include "ptx/block_mark.h"

static const char ptx[] =
	".version 8.0\n.target sm_90\n.address_size 64\n"
	".visible .entry f(.param .u64 p, .param .u32 n, .param .u64 q) { ret; }\n"
	".visible .entry g() { griddepcontrol.wait; ret; }\n"
	".visible .entry longer_name() { ret; }\n";

static const struct ptx_block_image *open_image(const void *image, size_t bytes)
{
	const struct ptx_block_image *i = NULL;

	assert_int_equal(
		ptx_block_image_open(&i, image, bytes, (struct ptx_device){ .arch = 90 }, "t"), 0);
	assert_non_null(i);
	return i;
}

static void assert_known(const struct ptx_block_image *i)
{
	const struct ptx_block_entry *f = ptx_block_image_entry(i, "f");

	assert_int_equal(i->why, PROTO_BLOCK_OK);
	assert_null(i->text);
	assert_int_equal(i->n_entries, 3);
	assert_int_equal(i->n_clones, 2);
	assert_non_null(f);
	assert_int_equal(f->why, PROTO_BLOCK_OK);
	assert_int_equal(f->n_params, 3);
	assert_int_equal(f->param_offset[2], 16);
	assert_int_equal(f->param_bytes[1], 4);
	assert_int_equal(f->arg_offset, 24);
	assert_int_equal(ptx_block_image_entry(i, "g")->why, PROTO_BLOCK_DEPENDENT);
	assert_int_equal(ptx_block_image_entry(i, "g")->line, 5);
	assert_int_equal(ptx_block_image_entry(i, "longer_name")->why, PROTO_BLOCK_OK);
}

static void marked_text(struct buf *text)
{
	const struct ptx_block_image *i = open_image(ptx, 0);

	buf_init(text);
	assert_non_null(i->text);
	assert_int_equal(ptx_block_image_marked(i, text), 0);
	ptx_block_image_close(i);
}

static void rewritten_text_is_known(void **state)
{
	const struct ptx_block_image *i;
	struct buf text, again;

	(void)state;
	marked_text(&text);
	assert_non_null(strstr(text.data, "f$gbpf"));
	i = open_image(text.data, 0);
	assert_known(i);
	buf_init(&again);
	assert_int_equal(ptx_block_image_marked(i, &again), -ENOENT);
	ptx_block_image_close(i);
	buf_finish(&text);
}

/* The words of the list, as a compiler writes them to a file. */
static size_t list_of(const char *text, uint32_t *words, size_t cap)
{
	const char *at = strchr(strstr(text, PTX_BLOCK_MARK), '{') + 1;
	size_t n = 0;

	while (n < cap) {
		char *end;

		words[n++] = (uint32_t)strtoul(at, &end, 10);
		if (*end != ',') {
			break;
		}
		at = end + 1;
	}
	return n;
}

struct elf {
	Elf64_Ehdr head;
	uint32_t list[64];
	char names[64];
	Elf64_Sym symbols[4];
	Elf64_Shdr sections[4];
};

/* Makes machine code that has only the variable, as a PTX compiler writes it. */
static void make_elf(struct elf *e)
{
	struct buf text;
	size_t n;

	marked_text(&text);
	*e = (struct elf){ .head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
						  ELFDATA2LSB, 1 },
				     .e_machine = 190,
				     .e_shoff = offsetof(struct elf, sections),
				     .e_shentsize = sizeof(Elf64_Shdr),
				     .e_shnum = 4 } };
	n = list_of(text.data, e->list, ARRAY_SIZE(e->list));
	assert_true(n > 20 && n < ARRAY_SIZE(e->list));
	snprintf(e->names + 1, sizeof(e->names) - 1, "f");
	snprintf(e->names + 3, sizeof(e->names) - 3, PTX_BLOCK_MARK "0123");
	e->symbols[1] = (Elf64_Sym){ .st_name = 1, .st_info = STT_OBJECT, .st_shndx = 1 };
	e->symbols[2] = (Elf64_Sym){ .st_name = 3,
				     .st_info = STT_OBJECT | STB_GLOBAL << 4,
				     .st_shndx = 1,
				     .st_size = n * 4 };
	e->sections[1] = (Elf64_Shdr){ .sh_type = SHT_PROGBITS,
				       .sh_offset = offsetof(struct elf, list),
				       .sh_size = sizeof(e->list) };
	e->sections[2] = (Elf64_Shdr){ .sh_type = SHT_STRTAB,
				       .sh_offset = offsetof(struct elf, names),
				       .sh_size = sizeof(e->names) };
	e->sections[3] = (Elf64_Shdr){ .sh_type = SHT_SYMTAB,
				       .sh_offset = offsetof(struct elf, symbols),
				       .sh_size = sizeof(e->symbols),
				       .sh_link = 2 };
	buf_finish(&text);
}

/* Returns the number of clones found in the first bytes. */
static unsigned clones_in(const void *data, size_t bytes)
{
	void *cut = malloc(
		bytes ? bytes : 1); /* of exactly this size, so that a read behind it is noticed */
	const struct ptx_block_image *i;
	unsigned n;

	memcpy(cut, data, bytes);
	i = open_image(cut, bytes);
	n = i->n_clones;
	ptx_block_image_close(i);
	free(cut);
	return n;
}

static void machine_code_is_known(void **state)
{
	const struct ptx_block_image *i;
	struct elf e;

	(void)state;
	make_elf(&e);
	i = open_image(&e, sizeof(e));
	assert_known(i);
	assert_true(i->native);
	ptx_block_image_close(i);
	i = open_image(&e, 0);
	assert_known(i);
	ptx_block_image_close(i);
}

/* Two modules, each with its list, linked into one file. */
static void all_lists_are_read(void **state)
{
	static const char other[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
				    ".visible .entry k() { ret; }\n";
	const struct ptx_block_image *i;
	size_t first, n;
	struct buf text;
	struct elf e;

	(void)state;
	make_elf(&e);
	first = e.symbols[2].st_size / 4;
	buf_init(&text);
	i = open_image(other, 0);
	assert_int_equal(ptx_block_image_marked(i, &text), 0);
	ptx_block_image_close(i);
	n = list_of(text.data, e.list + first, ARRAY_SIZE(e.list) - first);
	assert_true(first + n < ARRAY_SIZE(e.list));
	e.symbols[3] = e.symbols[2];
	e.symbols[3].st_value = first * 4;
	e.symbols[3].st_size = n * 4;
	i = open_image(&e, sizeof(e));
	assert_int_equal(i->n_entries, 4);
	assert_int_equal(i->n_clones, 3);
	assert_int_equal(ptx_block_image_entry(i, "k")->why, PROTO_BLOCK_OK);
	assert_int_equal(ptx_block_image_entry(i, "f")->n_params, 3);
	ptx_block_image_close(i);
	/* A broken list does not invalidate the others. */
	e.list[first + n - 1]++;
	assert_int_equal(clones_in(&e, sizeof(e)), 2);
	buf_finish(&text);
}

static void incomplete_lists_are_ignored(void **state)
{
	struct elf e;

	(void)state;
	make_elf(&e);
	for (size_t n = 4; n < sizeof(e); n++) {
		assert_int_equal(clones_in(&e, n), 0);
	}
	for (size_t n = 0; n < sizeof(e) * 8; n++) {
		uint8_t *byte = (uint8_t *)&e + n / 8;
		bool list = n / 8 >= offsetof(struct elf, list) &&
			    n / 8 < offsetof(struct elf, list) + e.symbols[2].st_size;

		*byte ^= (uint8_t)(1 << n % 8);
		assert_true(!(clones_in(&e, sizeof(e)) && list));
		*byte ^= (uint8_t)(1 << n % 8);
	}
	assert_int_equal(clones_in(&e, sizeof(e)), 2);
}

static void other_versions_are_left_alone(void **state)
{
	const struct ptx_block_image *i;
	struct buf text;
	struct elf e;
	char *version;

	(void)state;
	make_elf(&e);
	e.list[1]++;
	assert_int_equal(clones_in(&e, sizeof(e)), 0);
	marked_text(&text);
	version = strchr(strchr(strstr(text.data, PTX_BLOCK_MARK), '{'), ',') + 2;
	assert_int_equal(*version, '2');
	*version = '1';
	i = open_image(text.data, 0);
	assert_int_equal(i->n_clones, 0);
	assert_null(i->text);
	ptx_block_image_close(i);
	buf_finish(&text);
}

/* Forged lists with a correct sum. */
static void lies_are_refused(void **state)
{
	static const uint32_t offsets[] = { 0, 8 }, sizes[] = { 8, 4 };
	const struct ptx_block_entry good = { .name = "f",
					      .why = PROTO_BLOCK_OK,
					      .n_params = 2,
					      .arg_offset = 16,
					      .param_offset = offsets,
					      .param_bytes = sizes };
	static const uint32_t high[] = { 0, 24 }, crossed[] = { 8, 0 }, large[] = { 8, ~0u };
	struct ptx_block_entry lies[7];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lies); i++) {
		lies[i] = good;
	}
	lies[1].param_offset = high;
	lies[2].param_offset = crossed;
	lies[3].param_bytes = large;
	lies[4].arg_offset = 12;
	lies[5].arg_offset = 1u << 20;
	lies[6].why = PROTO_BLOCK_UNKNOWN;
	for (unsigned i = 0; i < ARRAY_SIZE(lies); i++) {
		const struct ptx_block_image *image;
		struct buf text;

		buf_init(&text);
		buf_puts(&text, ".version 8.0\n.target sm_90\n.address_size 64\n"
				".visible .entry f(.param .u64 p) { ret; }\n");
		assert_int_equal(ptx_block_mark_print(&text, &lies[i], 1, 7), 0);
		image = open_image(text.data, 0);
		/* The first is used, and loaded as it is; of the others the entries are read. */
		assert_int_equal(image->text == NULL, i == 0);
		ptx_block_image_close(image);
		buf_finish(&text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rewritten_text_is_known),
		cmocka_unit_test(machine_code_is_known),
		cmocka_unit_test(all_lists_are_read),
		cmocka_unit_test(incomplete_lists_are_ignored),
		cmocka_unit_test(other_versions_are_left_alone),
		cmocka_unit_test(lies_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

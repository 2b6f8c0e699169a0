/* The committed cubins (tests/data/cubins), and changing bytes of them. CUBINS is their folder. */
#ifndef GBPF_TESTS_CUBIN_FILES_H
#define GBPF_TESTS_CUBIN_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "cubin/cubin.h"
#include "cubin/cubin_elf_int.h"

/* name: "kernels.sm_90". buf_finish it. */
static inline struct buf read_cubin(const char *name)
{
	struct buf path, b;

	buf_init(&path);
	buf_init(&b);
	buf_printf(&path, "%s/%s.cubin", CUBINS, name);
	assert_int_equal(buf_read_file(&b, buf_text(&path), 1u << 20), 0);
	buf_finish(&path);
	return b;
}

static inline struct cubin_stub *open_stub(unsigned arch)
{
	struct cubin_stub *s = NULL;
	struct buf name, a, b;

	buf_init(&name);
	buf_printf(&name, "gate_64.sm_%u", arch);
	a = read_cubin(buf_text(&name));
	buf_clear(&name);
	buf_printf(&name, "gate_1024.sm_%u", arch);
	b = read_cubin(buf_text(&name));
	assert_int_equal(
		cubin_stub_open(&s, a.data, a.len, 64, b.data, b.len, 1024, "gbpf_stub", 64, NULL),
		0);
	buf_finish(&a);
	buf_finish(&b);
	buf_finish(&name);
	return s;
}

/* Patches; returns what cubin_patch does and stores the message of a refusal. */
static inline int patch(struct cubin_patched **ret, const struct buf *b, const struct cubin_stub *s,
			struct buf *message)
{
	struct report r;
	int err;

	*ret = NULL;
	report_init(&r);
	err = cubin_patch(ret, b->data, b->len, s, &r);
	if (message) {
		buf_clear(message);
		buf_puts(message, buf_text(&r.message));
	}
	report_finish(&r);
	return err;
}

/* An image of which some bytes are changed; the ELF is a view of it. */
struct changed {
	struct buf image;
	struct cubin_elf elf;
};

static inline struct changed open_changed(const char *name)
{
	struct changed c = { .image = read_cubin(name) };

	assert_int_equal(cubin_elf_open(&c.elf, c.image.data, c.image.len, NULL), 0);
	return c;
}

static inline void close_changed(struct changed *c)
{
	cubin_elf_finish(&c->elf);
	buf_finish(&c->image);
}

static inline uint32_t section_named(const struct cubin_elf *e, const char *name)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (!strcmp(cubin_elf_name(e, i), name)) {
			return i;
		}
	}
	fail_msg("no section %s", name);
	return 0;
}

/* Bytes of the image at which a section's content is. */
static inline uint8_t *content(struct changed *c, const char *section)
{
	uint32_t i = section_named(&c->elf, section);

	return (uint8_t *)c->image.data + c->elf.sections[i].sh_offset;
}

/* The header of a section inside the image. */
static inline uint8_t *header(struct changed *c, const char *section)
{
	return (uint8_t *)c->image.data + c->elf.head.e_shoff +
	       section_named(&c->elf, section) * sizeof(Elf64_Shdr);
}

/* Returns the record of an attribute, NULL if there is none. */
static inline uint8_t *attribute(struct changed *c, const char *section, unsigned id)
{
	uint32_t i = section_named(&c->elf, section);
	const uint8_t *at = cubin_elf_data(&c->elf, i), *end = at + c->elf.sections[i].sh_size;
	const uint8_t *record = at;
	struct cubin_attr a;

	while (cubin_attr_next(&at, end, &a) > 0) {
		if (a.id == id) {
			return (uint8_t *)c->image.data + (record - c->elf.data);
		}
		record = at;
	}
	return NULL;
}

static inline uint32_t symbol_named(const struct cubin_elf *e, const char *name)
{
	for (uint32_t i = 1; i < e->n_symbols; i++) {
		Elf64_Sym y = cubin_elf_symbol(e, i);

		if (!strcmp(cubin_elf_symbol_name(e, &y), name)) {
			return i;
		}
	}
	fail_msg("no symbol %s", name);
	return 0;
}

/* Turns an image of CUDA 13 into the older form: registers and barriers are in the code section's
 * header, the architecture is in the low byte of the flags. */
static inline void make_old_abi(struct changed *c)
{
	Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)c->image.data;
	uint32_t arch = h->e_flags >> 8 & 0xff;

	h->e_ident[EI_OSABI] = 0x33;
	h->e_ident[EI_ABIVERSION] = CUBIN_ABI_OLD;
	h->e_flags = arch << 16 | 0x500 | arch;
	for (uint32_t i = 1; i < c->elf.n_sections; i++) {
		Elf64_Shdr *s = (Elf64_Shdr *)(void *)(c->image.data + h->e_shoff) + i;
		const char *kernel = cubin_elf_suffix(&c->elf, i, ".nv.info.");
		uint8_t *barriers, *count;
		struct buf text;

		if (!kernel) {
			continue;
		}
		buf_init(&text);
		buf_printf(&text, ".text.%s", kernel);
		s = (Elf64_Shdr *)(void *)(c->image.data + h->e_shoff) +
		    section_named(&c->elf, buf_text(&text));
		buf_finish(&text);
		barriers = attribute(c, cubin_elf_name(&c->elf, i), CUBIN_ATTR_NUM_BARRIERS);
		if (barriers) {
			s->sh_flags |= (uint64_t)barriers[2] << 20;
			barriers[1] = 1; /* a record without meaning */
		}
		count = NULL;
		for (uint8_t *at = content(c, ".nv.info"); !count; at += 12) {
			if (at[1] == CUBIN_ATTR_REGCOUNT &&
			    cubin_u32(at + 4) == symbol_named(&c->elf, kernel)) {
				count = at + 8;
			}
		}
		s->sh_info = (s->sh_info & 0xffffff) | (uint32_t)*count << 24;
	}
}

#endif

/* Reads the structure of a cubin. */
#include "soft/code/code_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "soft/code/code.h"
#include "soft/code/code_file.h"

/* ---- images of unknown length ---- */

bool soft_code_is_cubin(const void *image)
{
	Elf64_Ehdr h;

	if (memcmp(image, ELFMAG, SELFMAG) != 0) {
		return false;
	}
	memcpy(&h, image, sizeof(h));
	return h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_ident[EI_DATA] == ELFDATA2LSB &&
	       h.e_machine == SOFT_FILE_MACHINE;
}

static uint64_t end_of(uint64_t at, uint64_t n, uint64_t bytes)
{
	return at > SOFT_CODE_BYTES_MAX ? UINT64_MAX : at + n * bytes;
}

size_t soft_code_bytes(const void *image)
{
	uint64_t end = 0;
	Elf64_Ehdr h;

	memcpy(&h, image, sizeof(h));
	if (h.e_flags != SOFT_FILE_FLAGS || h.e_shentsize != sizeof(Elf64_Shdr) ||
	    (h.e_phnum && h.e_phentsize != sizeof(Elf64_Phdr))) {
		return 0;
	}
	end = MAX(end_of(h.e_shoff, h.e_shnum, sizeof(Elf64_Shdr)),
		  end_of(h.e_phoff, h.e_phnum, sizeof(Elf64_Phdr)));
	if (end > SOFT_CODE_BYTES_MAX) {
		return 0;
	}
	for (uint32_t i = 0; i < h.e_shnum; i++) {
		uint64_t section;
		Elf64_Shdr s;

		memcpy(&s, (const uint8_t *)image + h.e_shoff + i * sizeof(s), sizeof(s));
		section = s.sh_type == SHT_NOBITS ? 0 : end_of(s.sh_offset, s.sh_size, 1);
		if (section > SOFT_CODE_BYTES_MAX || s.sh_size > UINT32_MAX) {
			return 0;
		}
		end = MAX(end, section);
	}
	return (size_t)end;
}

/* ---- sections ---- */

static bool copy_from(const struct soft_view *v, uint64_t at, void *ret, size_t bytes)
{
	if (at > v->bytes || bytes > v->bytes - at) {
		return false;
	}
	memcpy(ret, v->data + at, bytes);
	return true;
}

bool soft_view_section(const struct soft_view *v, uint32_t index, Elf64_Shdr *ret)
{
	return index < v->head.e_shnum && v->head.e_shoff <= v->bytes &&
	       copy_from(v, v->head.e_shoff + (uint64_t)index * sizeof(*ret), ret, sizeof(*ret)) &&
	       (ret->sh_type == SHT_NOBITS ||
		(ret->sh_offset <= v->bytes && ret->sh_size <= v->bytes - ret->sh_offset));
}

static int add_names(struct soft_view *v)
{
	Elf64_Shdr names, s;

	if (!soft_view_section(v, v->head.e_shstrndx, &names) || names.sh_type != SHT_STRTAB) {
		return -EINVAL;
	}
	for (uint32_t i = 1; i < v->head.e_shnum; i++) {
		const char *name;
		size_t left, len;
		int err;

		if (!soft_view_section(v, i, &s) || s.sh_name >= names.sh_size) {
			return -EINVAL;
		}
		name = (const char *)v->data + names.sh_offset + s.sh_name;
		left = (size_t)(names.sh_size - s.sh_name);
		len = strnlen(name, left);
		if (len == left) {
			return -EINVAL;
		}
		err = strmap_add_n(&v->by_name, name, len, (void *)(uintptr_t)i);
		if (err) {
			return err == -EEXIST ? -EINVAL : err;
		}
	}
	return 0;
}

uint32_t soft_view_find(const struct soft_view *v, const char *prefix, const char *name)
{
	struct buf key;
	void *found;

	buf_init(&key);
	buf_printf(&key, name ? "%s.%s" : "%s", prefix, name);
	found = key.failed ? NULL : strmap_get_n(&v->by_name, buf_text(&key), key.len);
	buf_finish(&key);
	return (uint32_t)(uintptr_t)found;
}

/* ---- symbols and registers ---- */

static bool symbol_at(const struct soft_view *v, const Elf64_Shdr *table, uint64_t index,
		      Elf64_Sym *ret)
{
	return index < table->sh_size / sizeof(*ret) &&
	       copy_from(v, table->sh_offset + index * sizeof(*ret), ret, sizeof(*ret)) &&
	       ret->st_shndx < v->head.e_shnum;
}

static void add_sizes(struct soft_view *v, const Elf64_Shdr *table)
{
	Elf64_Sym y;

	for (uint64_t i = 0; i < table->sh_size / sizeof(y); i++) {
		if (symbol_at(v, table, i, &y) && ELF64_ST_TYPE(y.st_info) == STT_FUNC &&
		    y.st_other == SOFT_FILE_ENTRY && y.st_value == 0) {
			v->code[y.st_shndx].symbol_bytes = y.st_size;
		}
	}
}

static int add_registers(struct soft_view *v, const Elf64_Shdr *table)
{
	uint32_t index = soft_view_find(v, ".nv.info", NULL);
	struct soft_view_attribute a;
	uint64_t at = 0;
	Elf64_Shdr s;
	Elf64_Sym y;
	int more;

	if (!index) {
		return 0;
	}
	if (!soft_view_section(v, index, &s)) {
		return -EINVAL;
	}
	while ((more = soft_view_attribute(v, &s, &at, &a)) == 1) {
		if (a.format == SOFT_FORMAT_DATA && a.number == SOFT_ATTR_REGCOUNT &&
		    symbol_at(v, table, soft_view_word(&a, 0), &y)) {
			v->code[y.st_shndx].registers = soft_view_word(&a, 1);
		}
	}
	return more;
}

int soft_view_open(struct soft_view *v, const void *image, size_t bytes)
{
	Elf64_Shdr table;
	int err;

	*v = (struct soft_view){ .data = image, .bytes = bytes };
	strmap_init(&v->by_name);
	if (bytes < sizeof(v->head) || !soft_code_is_cubin(image)) {
		return -EINVAL;
	}
	memcpy(&v->head, image, sizeof(v->head));
	if (v->head.e_shentsize != sizeof(Elf64_Shdr)) {
		return -EINVAL;
	}
	v->code = calloc(v->head.e_shnum + 1u, sizeof(*v->code));
	err = v->code ? add_names(v) : -ENOMEM;
	if (err) {
		return err;
	}
	if (!soft_view_section(v, soft_view_find(v, ".symtab", NULL), &table) ||
	    table.sh_type != SHT_SYMTAB) {
		return -EINVAL;
	}
	add_sizes(v, &table);
	return add_registers(v, &table);
}

void soft_view_finish(struct soft_view *v)
{
	strmap_finish(&v->by_name);
	free(v->code);
}

/* ---- attributes ---- */

int soft_view_attribute(const struct soft_view *v, const Elf64_Shdr *s, uint64_t *at,
			struct soft_view_attribute *ret)
{
	uint8_t head[4];

	if (s->sh_type == SHT_NOBITS || *at >= s->sh_size) {
		return s->sh_type == SHT_NOBITS ? -EINVAL : 0;
	}
	if (s->sh_size - *at < sizeof(head) ||
	    !copy_from(v, s->sh_offset + *at, head, sizeof(head))) {
		return -EINVAL;
	}
	*at += sizeof(head);
	*ret = (struct soft_view_attribute){ .format = head[0], .number = head[1] };
	memcpy(&ret->value, head + 2, sizeof(ret->value));
	if (ret->format == SOFT_FORMAT_BYTE) {
		ret->value = head[2];
	} else if (ret->format == SOFT_FORMAT_DATA) {
		if (ret->value > s->sh_size - *at) {
			return -EINVAL;
		}
		ret->data = v->data + s->sh_offset + *at;
		ret->bytes = ret->value;
		*at += ret->bytes;
	} else if (ret->format != SOFT_FORMAT_NONE && ret->format != SOFT_FORMAT_HALF) {
		return -EINVAL;
	}
	return 1;
}

uint32_t soft_view_word(const struct soft_view_attribute *a, uint32_t index)
{
	uint32_t word = 0;

	if (index < a->bytes / sizeof(word)) {
		memcpy(&word, a->data + index * sizeof(word), sizeof(word));
	}
	return word;
}

/* Access to the parts of a cubin that cubin_elf_open has checked: names, symbols, relocations,
 * attributes. Parts may be unaligned, so each is copied. */
#include <errno.h>
#include <string.h>

#include "cubin/cubin_elf_int.h"

uint16_t cubin_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

uint32_t cubin_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

void cubin_put16(uint8_t *p, uint16_t v)
{
	memcpy(p, &v, sizeof(v));
}

void cubin_put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

const char *cubin_elf_name(const struct cubin_elf *e, uint32_t section)
{
	return e->names + e->sections[section].sh_name;
}

const char *cubin_elf_suffix(const struct cubin_elf *e, uint32_t section, const char *prefix)
{
	const char *name = cubin_elf_name(e, section);
	size_t n = strlen(prefix);

	return strncmp(name, prefix, n) ? NULL : name + n;
}

Elf64_Sym cubin_elf_symbol(const struct cubin_elf *e, uint32_t i)
{
	Elf64_Sym s;

	memcpy(&s, e->symbols + (size_t)i * sizeof(s), sizeof(s));
	return s;
}

const char *cubin_elf_symbol_name(const struct cubin_elf *e, const Elf64_Sym *s)
{
	return e->strings + s->st_name;
}

const uint8_t *cubin_elf_data(const struct cubin_elf *e, uint32_t section)
{
	return e->data + e->sections[section].sh_offset;
}

bool cubin_elf_in_file(const struct cubin_elf *e, uint32_t section)
{
	const Elf64_Shdr *s = &e->sections[section];

	return s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL && s->sh_size;
}

bool cubin_elf_is_reloc(const struct cubin_elf *e, uint32_t section)
{
	return e->sections[section].sh_type == SHT_REL || e->sections[section].sh_type == SHT_RELA;
}

size_t cubin_elf_relocs(const struct cubin_elf *e, uint32_t section)
{
	const Elf64_Shdr *s = &e->sections[section];

	return s->sh_size / (s->sh_type == SHT_REL ? sizeof(Elf64_Rel) : sizeof(Elf64_Rela));
}

struct cubin_reloc cubin_elf_reloc(const struct cubin_elf *e, uint32_t section, size_t i)
{
	bool addend = e->sections[section].sh_type == SHT_RELA;
	size_t each = addend ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
	Elf64_Rela l = { 0 };

	memcpy(&l, cubin_elf_data(e, section) + i * each, each);
	return (struct cubin_reloc){ .offset = l.r_offset,
				     .symbol = (uint32_t)ELF64_R_SYM(l.r_info),
				     .type = (uint32_t)ELF64_R_TYPE(l.r_info),
				     .addend = l.r_addend,
				     .has_addend = addend };
}

int cubin_attr_next(const uint8_t **at, const uint8_t *end, struct cubin_attr *a)
{
	const uint8_t *p = *at;

	if (p == end) {
		return 0;
	}
	if (end - p < 4 || p[0] < 1 || p[0] > 4) {
		return -ENOEXEC;
	}
	a->format = p[0];
	a->id = p[1];
	a->value = cubin_u16(p + 2);
	a->data = p + 4;
	a->len = p[0] == 4 ? cubin_u16(p + 2) : 0;
	a->bytes = 4 + a->len;
	if ((size_t)(end - p) < a->bytes) {
		return -ENOEXEC;
	}
	*at = p + a->bytes;
	return 1;
}

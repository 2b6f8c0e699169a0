/* Constants of the objects that come with gBPF, set before they are attached. */
#include <elf.h>
#include <string.h>

#include "cli/trace.h"

/* Returns section i, whose contents lie in the file; NULL: there is none. */
static const Elf64_Shdr *section(const struct buf *elf, const Elf64_Ehdr *h, size_t i)
{
	const Elf64_Shdr *s;

	if (i >= h->e_shnum || h->e_shoff % _Alignof(Elf64_Shdr) || h->e_shoff > elf->len ||
	    elf->len - h->e_shoff < (size_t)h->e_shnum * sizeof(*s)) {
		return NULL;
	}
	s = (const Elf64_Shdr *)((const char *)elf->data + h->e_shoff) + i;
	if (s->sh_type == SHT_NOBITS || s->sh_offset > elf->len ||
	    s->sh_size > elf->len - s->sh_offset) {
		return NULL;
	}
	return s;
}

/* Stores the value if the symbol is that constant. */
static bool set(const struct buf *elf, const Elf64_Ehdr *h, const Elf64_Shdr *names,
		const Elf64_Sym *sym, const char *name, uint32_t value)
{
	const Elf64_Shdr *in = section(elf, h, sym->st_shndx);
	size_t len = strlen(name) + 1;
	char *data = elf->data;

	if (!in || sym->st_name > names->sh_size || names->sh_size - sym->st_name < len ||
	    memcmp(data + names->sh_offset + sym->st_name, name, len) != 0 ||
	    sym->st_size != sizeof(value) || sym->st_value > in->sh_size ||
	    in->sh_size - sym->st_value < sizeof(value)) {
		return false;
	}
	memcpy(data + in->sh_offset + sym->st_value, &value, sizeof(value));
	return true;
}

bool cli_trace_constant(struct buf *elf, const char *name, uint32_t value)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)elf->data;

	if (elf->len < sizeof(*h)) {
		return false;
	}
	for (size_t i = 0; i < h->e_shnum; i++) {
		const Elf64_Shdr *s = section(elf, h, i), *names;
		Elf64_Sym sym;

		names = s && s->sh_type == SHT_SYMTAB ? section(elf, h, s->sh_link) : NULL;
		for (size_t k = 0; names && k < s->sh_size / sizeof(sym); k++) {
			memcpy(&sym, (const char *)elf->data + s->sh_offset + k * sizeof(sym),
			       sizeof(sym));
			if (set(elf, h, names, &sym, name, value)) {
				return true;
			}
		}
	}
	return false;
}

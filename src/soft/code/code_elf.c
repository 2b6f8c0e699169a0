/* Writes ELF files as ptxas arranges them: sections in their order, their headers, then the program
 * headers: one for themselves, one for constants and code, one for variables if there are any, and
 * again the first. */
#include "soft/code/code_elf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "soft/code/code_file.h"

#define SEGMENTS 4u /* at most */

void soft_elf_init(struct soft_elf *e)
{
	*e = (struct soft_elf){ .n = 0 };
	buf_init(&e->names);
	buf_init(&e->strings);
	buf_init(&e->symbols);
	buf_add(&e->strings, "", 1);
	soft_elf_section(e, "", NULL, SHT_NULL, 0, 0);
	soft_elf_section(e, ".shstrtab", NULL, SHT_STRTAB, 0, 1);
	soft_elf_section(e, ".strtab", NULL, SHT_STRTAB, 0, 1);
	soft_elf_section(e, ".symtab", NULL, SHT_SYMTAB, 0, 8);
	soft_elf_symbol(e, "", (Elf64_Sym){ .st_name = 0 });
}

void soft_elf_finish(struct soft_elf *e)
{
	for (uint32_t i = 0; i < e->n; i++) {
		buf_finish(&e->sections[i].data);
	}
	free(e->sections);
	buf_finish(&e->names);
	buf_finish(&e->strings);
	buf_finish(&e->symbols);
}

struct soft_elf_section *soft_elf_at(struct soft_elf *e, uint32_t index)
{
	static struct soft_elf_section none; /* after a failure; nothing is added to it */

	none.data.failed = -ENOMEM;
	return index < e->n ? &e->sections[index] : &none;
}

uint32_t soft_elf_section(struct soft_elf *e, const char *prefix, const char *name, uint32_t type,
			  uint64_t flags, uint64_t align)
{
	struct soft_elf_section *s, *grown;

	if (e->n == e->cap) {
		grown = realloc(e->sections, (e->cap * 2 + 16u) * sizeof(*grown));
		if (!grown) {
			e->failed = -ENOMEM;
			return e->n;
		}
		e->sections = grown;
		e->cap = e->cap * 2 + 16;
	}
	s = &e->sections[e->n];
	*s = (struct soft_elf_section){ .head = { .sh_name = (uint32_t)e->names.len,
						  .sh_type = type,
						  .sh_flags = flags,
						  .sh_addralign = align } };
	buf_init(&s->data);
	buf_printf(&e->names, name ? "%s.%s" : "%s", prefix, name);
	buf_add(&e->names, "", 1);
	return e->n++;
}

uint32_t soft_elf_symbol(struct soft_elf *e, const char *name, Elf64_Sym s)
{
	s.st_name = *name ? (uint32_t)e->strings.len : 0;
	if (*name) {
		buf_add(&e->strings, name, strlen(name) + 1);
	}
	buf_add(&e->symbols, &s, sizeof(s));
	if (ELF64_ST_BIND(s.st_info) == STB_LOCAL) {
		e->locals = soft_elf_symbols(e);
	}
	return soft_elf_symbols(e) - 1;
}

uint32_t soft_elf_symbols(const struct soft_elf *e)
{
	return (uint32_t)(e->symbols.len / sizeof(Elf64_Sym));
}

static void pad(struct buf *out, size_t begin, uint64_t align)
{
	while (!out->failed && align > 1 && (out->len - begin) % align) {
		buf_add(out, "", 1);
	}
}

static void place_section(struct soft_elf_section *s, struct buf *out, size_t begin)
{
	pad(out, begin, s->head.sh_addralign);
	s->head.sh_offset = s->head.sh_type == SHT_NULL ? 0 : out->len - begin;
	if (s->head.sh_type != SHT_NOBITS) {
		s->head.sh_size = s->data.len;
		buf_add(out, s->data.data, s->data.len);
	}
}

/* Stores the segment of the sections with these flags; returns false if there is none. */
static bool segment(const struct soft_elf *e, uint64_t flags, uint32_t rights, Elf64_Phdr *ret)
{
	Elf64_Phdr p = { .p_type = PT_LOAD, .p_flags = rights, .p_align = 8 };
	bool any = false;

	for (uint32_t i = 0; i < e->n; i++) {
		const Elf64_Shdr *h = &e->sections[i].head;
		uint64_t end = h->sh_offset + h->sh_size;

		if (!(h->sh_flags & SHF_ALLOC) || (h->sh_flags & SHF_WRITE) != flags) {
			continue;
		}
		p.p_offset = any ? p.p_offset : h->sh_offset;
		any = true;
		p.p_memsz = end - p.p_offset;
		p.p_filesz = h->sh_type == SHT_NOBITS ? p.p_filesz : p.p_memsz;
	}
	*ret = p;
	return any;
}

static void write_heads(struct soft_elf *e, struct buf *out, size_t begin, Elf64_Ehdr *h)
{
	Elf64_Phdr p[SEGMENTS];
	uint16_t n = 1;

	pad(out, begin, 8);
	h->e_shoff = out->len - begin;
	for (uint32_t i = 0; i < e->n; i++) {
		buf_add(out, &e->sections[i].head, sizeof(e->sections[i].head));
	}
	h->e_phoff = out->len - begin;
	p[0] = (Elf64_Phdr){
		.p_type = PT_PHDR, .p_flags = PF_R | PF_X, .p_offset = h->e_phoff, .p_align = 8
	};
	n += segment(e, 0, PF_R | PF_X, &p[n]);
	n += segment(e, SHF_WRITE, PF_R | PF_W, &p[n]);
	h->e_phnum = ++n;
	p[0].p_filesz = p[0].p_memsz = n * sizeof(p[0]);
	p[n - 1] = p[0];
	p[n - 1].p_type = PT_LOAD;
	buf_add(out, p, n * sizeof(p[0]));
}

int soft_elf_write(struct soft_elf *e, struct buf *out)
{
	Elf64_Ehdr h = { .e_type = ET_EXEC,
			 .e_machine = SOFT_FILE_MACHINE,
			 .e_version = EV_CURRENT,
			 .e_flags = SOFT_FILE_FLAGS,
			 .e_ehsize = sizeof(h),
			 .e_phentsize = sizeof(Elf64_Phdr),
			 .e_shentsize = sizeof(Elf64_Shdr),
			 .e_shnum = (uint16_t)e->n,
			 .e_shstrndx = SOFT_ELF_SHSTRTAB };
	size_t begin = out->len;

	if (e->failed) {
		return e->failed;
	}
	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	h.e_ident[EI_DATA] = ELFDATA2LSB;
	h.e_ident[EI_VERSION] = EV_CURRENT;
	h.e_ident[EI_OSABI] = SOFT_FILE_OS_ABI;
	h.e_ident[EI_ABIVERSION] = SOFT_FILE_ABI_VERSION;
	e->sections[SOFT_ELF_SHSTRTAB].data = e->names;
	e->sections[SOFT_ELF_STRTAB].data = e->strings;
	e->sections[SOFT_ELF_SYMTAB].data = e->symbols;
	e->sections[SOFT_ELF_SYMTAB].head.sh_link = SOFT_ELF_STRTAB;
	e->sections[SOFT_ELF_SYMTAB].head.sh_info = e->locals;
	e->sections[SOFT_ELF_SYMTAB].head.sh_entsize = sizeof(Elf64_Sym);
	buf_init(&e->names);
	buf_init(&e->strings);
	buf_init(&e->symbols);
	buf_add(out, &h, sizeof(h));
	for (uint32_t i = 0; i < e->n; i++) {
		out->failed = out->failed ? out->failed : e->sections[i].data.failed;
		place_section(&e->sections[i], out, begin);
	}
	write_heads(e, out, begin, &h);
	if (!out->failed) {
		memcpy(out->data + begin, &h, sizeof(h));
	}
	return out->failed;
}

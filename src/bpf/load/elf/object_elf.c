/* Reads the ELF structure of an object. Everything in the headers and tables is checked or copied
 * here once, so that the rest of the loader can rely on indices in range. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"

static int check_header(struct ebpf_obj_parse *p, const uint8_t *elf, size_t bytes, Elf64_Ehdr *h)
{
	if (bytes < sizeof(*h) || memcmp(elf, ELFMAG, SELFMAG) != 0) {
		report_hint(
			p->r,
			"build it with: clang -target bpf -mcpu=v3 -g -O2 -c x.bpf.c -o x.bpf.o");
		return ebpf_obj_refuse(p, -EINVAL, NULL, 0,
				       bytes < sizeof(*h)
					       ? "too short for an ELF object (%zu bytes)"
					       : "not an ELF object (%zu bytes)",
				       bytes);
	}
	memcpy(h, elf, sizeof(*h));
	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB) {
		return ebpf_obj_refuse(p, -EINVAL, NULL, 0,
				       "not a 64-bit little-endian ELF object");
	}
	if (h->e_machine != EM_BPF) {
		report_hint(p->r, "compile with -target bpf");
		return ebpf_obj_refuse(p, -EINVAL, NULL, 0,
				       "made for machine %u, not for eBPF (%u)", h->e_machine,
				       EM_BPF);
	}
	if (h->e_type != ET_REL || h->e_ident[EI_VERSION] != EV_CURRENT) {
		return ebpf_obj_refuse(p, -EINVAL, NULL, 0,
				       "ELF type %u is not a relocatable object", h->e_type);
	}
	if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff < sizeof(*h) || h->e_shoff > bytes ||
	    (uint64_t)h->e_shnum * sizeof(Elf64_Shdr) > bytes - h->e_shoff) {
		return ebpf_obj_refuse(
			p, -EINVAL, NULL, 0,
			"truncated: the section headers (%u at byte %llu) lie outside "
			"the %zu bytes",
			h->e_shnum, (unsigned long long)h->e_shoff, bytes);
	}
	if (h->e_shnum == 0 || h->e_shnum > OBJ_MAX_SECTIONS || h->e_shstrndx >= h->e_shnum) {
		return ebpf_obj_refuse(p, h->e_shnum > OBJ_MAX_SECTIONS ? -E2BIG : -EINVAL, NULL, 0,
				       "%u sections (limit %u), names in section %u", h->e_shnum,
				       OBJ_MAX_SECTIONS, h->e_shstrndx);
	}
	return 0;
}

static int read_section(struct ebpf_obj_parse *p, const uint8_t *elf, size_t bytes, uint32_t i,
			const Elf64_Shdr *h)
{
	struct ebpf_obj_section *s = &p->secs[i];

	s->type = h->sh_type;
	s->flags = h->sh_flags;
	s->link = h->sh_link;
	s->info = h->sh_info;
	s->size = h->sh_size;
	if (s->type == SHT_NOBITS || s->type == SHT_NULL || s->size == 0) {
		return 0;
	}
	if (h->sh_offset > bytes || h->sh_size > bytes - h->sh_offset) {
		return ebpf_obj_refuse(p, -EINVAL, NULL, 0,
				       "truncated: section %u has %llu bytes at byte %llu of %zu",
				       i, (unsigned long long)h->sh_size,
				       (unsigned long long)h->sh_offset, bytes);
	}
	if (s->flags & SHF_COMPRESSED) {
		s->size = 0; /* compressed sections are debug sections; ignore them */
		return 0;
	}
	s->data = elf + h->sh_offset;
	if (s->type == SHT_STRTAB && s->data[s->size - 1] != 0) {
		return ebpf_obj_refuse(p, -EINVAL, NULL, 0,
				       "string table (section %u) without terminating zero", i);
	}
	return 0;
}

/* Returns a name in a string table that read_section() has checked, or NULL. */
static const char *string_at(const struct ebpf_obj_section *s, uint64_t off)
{
	return s->data && off < s->size ? (const char *)s->data + off : NULL;
}

static int read_sections(struct ebpf_obj_parse *p, const uint8_t *elf, size_t bytes,
			 const Elf64_Ehdr *e)
{
	const struct ebpf_obj_section *names;
	Elf64_Shdr h;

	p->secs = calloc(e->e_shnum, sizeof(*p->secs));
	if (!p->secs) {
		return -ENOMEM;
	}
	p->n_secs = e->e_shnum;
	for (uint32_t i = 0; i < p->n_secs; i++) {
		int err;

		p->secs[i].name = "";
		p->secs[i].map = p->secs[i].hook = -1;
		memcpy(&h, elf + e->e_shoff + (size_t)i * sizeof(h), sizeof(h));
		err = read_section(p, elf, bytes, i, &h);
		if (err) {
			return err;
		}
	}
	names = &p->secs[e->e_shstrndx];
	for (uint32_t i = 1; i < p->n_secs; i++) {
		const char *name;

		memcpy(&h, elf + e->e_shoff + (size_t)i * sizeof(h), sizeof(h));
		name = names->type == SHT_STRTAB ? string_at(names, h.sh_name) : NULL;
		if (!name || strnlen(name, OBJ_MAX_NAME) == OBJ_MAX_NAME) {
			return ebpf_obj_refuse(p, -EINVAL, NULL, 0, "section %u has a name %s", i,
					       name ? "of more than 8191 bytes"
						    : "outside the string table");
		}
		p->secs[i].name = name;
	}
	return 0;
}

const char *ebpf_obj_symbol_name(const struct ebpf_obj_parse *p, const Elf64_Sym *sym)
{
	const char *name;

	if (ELF64_ST_TYPE(sym->st_info) == STT_SECTION && sym->st_shndx < p->n_secs) {
		return p->secs[sym->st_shndx].name;
	}
	name = string_at(&p->secs[p->strtab], sym->st_name);
	return name ? name : "";
}

static int check_symbol(struct ebpf_obj_parse *p, const Elf64_Sym *sym, uint32_t i)
{
	const struct ebpf_obj_section *s;

	const char *name = string_at(&p->secs[p->strtab], sym->st_name);

	if (!name || strnlen(name, OBJ_MAX_NAME) == OBJ_MAX_NAME) {
		return ebpf_obj_refuse(p, -EINVAL, ".symtab", 0, "symbol %u has a name %s", i,
				       name ? "of more than 8191 bytes"
					    : "outside the string table");
	}
	p->name_bytes += strlen(name);
	if (p->name_bytes > OBJ_MAX_NAMES) {
		return ebpf_obj_refuse(p, -E2BIG, ".symtab", 0,
				       "names of symbols have more than %u MiB together",
				       OBJ_MAX_NAMES >> 20);
	}
	if (!ebpf_obj_symbol_defined(sym)) {
		return 0;
	}
	if (sym->st_shndx >= p->n_secs) {
		return ebpf_obj_refuse(p, -EINVAL, ".symtab", 0,
				       "symbol %u (%s) lies in section %u of %u", i,
				       ebpf_obj_symbol_name(p, sym), sym->st_shndx, p->n_secs);
	}
	s = &p->secs[sym->st_shndx];
	if (sym->st_value > s->size || sym->st_size > s->size - sym->st_value) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, sym->st_value,
				       "symbol %u (%s, %llu bytes) lies outside the "
				       "section's %zu bytes",
				       i, ebpf_obj_symbol_name(p, sym),
				       (unsigned long long)sym->st_size, s->size);
	}
	return 0;
}

static int find_symtab(struct ebpf_obj_parse *p)
{
	for (uint32_t i = 1; i < p->n_secs; i++) {
		if (p->secs[i].type == SHT_SYMTAB) {
			if (p->symtab) {
				return ebpf_obj_refuse(p, -EINVAL, p->secs[i].name, 0,
						       "a second symbol table");
			}
			p->symtab = i;
		}
	}
	if (!p->symtab) {
		return ebpf_obj_refuse(p, -EINVAL, NULL, 0,
				       "no symbol table (was the object stripped?)");
	}
	return 0;
}

static int read_symbols(struct ebpf_obj_parse *p)
{
	const struct ebpf_obj_section *s;
	int err = find_symtab(p);

	if (err) {
		return err;
	}
	s = &p->secs[p->symtab];
	p->strtab = s->link;
	p->n_syms = (uint32_t)(s->size / sizeof(Elf64_Sym));
	if (s->size % sizeof(Elf64_Sym) || !s->data || p->strtab == 0 || p->strtab >= p->n_secs ||
	    p->secs[p->strtab].type != SHT_STRTAB) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0, "broken symbol table");
	}
	if (s->size / sizeof(Elf64_Sym) > OBJ_MAX_SYMBOLS) {
		return ebpf_obj_refuse(p, -E2BIG, s->name, 0, "%zu symbols (limit %u)",
				       s->size / sizeof(Elf64_Sym), OBJ_MAX_SYMBOLS);
	}
	p->syms = malloc(s->size);
	if (!p->syms) {
		return -ENOMEM;
	}
	memcpy(p->syms, s->data, s->size);
	for (uint32_t i = 1; err == 0 && i < p->n_syms; i++) {
		err = check_symbol(p, &p->syms[i], i);
	}
	return err;
}

static int rel_order(const void *a, const void *b)
{
	const Elf64_Rel *x = a, *y = b;

	return x->r_offset < y->r_offset ? -1 : x->r_offset > y->r_offset;
}

uint32_t ebpf_obj_reloc_from(const struct ebpf_obj_section *s, uint64_t offset)
{
	uint32_t lo = 0, hi = s->n_rels;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->rels[mid].r_offset < offset) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

uint64_t ebpf_obj_word_at(const struct ebpf_obj_section *s, uint64_t offset)
{
	uint64_t v = 0;

	if (s->data && offset <= s->size && s->size - offset >= sizeof(v)) {
		memcpy(&v, s->data + offset, sizeof(v));
	}
	return v;
}

static int check_relocs(struct ebpf_obj_parse *p, const struct ebpf_obj_section *t)
{
	for (uint32_t i = 0; i < t->n_rels; i++) {
		const Elf64_Rel *r = &t->rels[i];

		if (ELF64_R_SYM(r->r_info) >= p->n_syms) {
			return ebpf_obj_refuse(p, -EINVAL, t->name, r->r_offset,
					       "relocation against symbol %u of %u",
					       (unsigned)ELF64_R_SYM(r->r_info), p->n_syms);
		}
		if (r->r_offset >= t->size) {
			return ebpf_obj_refuse(p, -EINVAL, t->name, r->r_offset,
					       "relocation outside the section's %zu bytes",
					       t->size);
		}
		if (i > 0 && r->r_offset == r[-1].r_offset) {
			return ebpf_obj_refuse(p, -EINVAL, t->name, r->r_offset,
					       "two relocations for one place");
		}
	}
	return 0;
}

/* Reads the relocations of sections that are loaded; those of debug sections are ignored. */
static int read_relocs_of(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s)
{
	struct ebpf_obj_section *t;
	uint32_t n = (uint32_t)(s->size / sizeof(Elf64_Rel));
	int sorted = 1;

	if (s->info == 0 || s->info >= p->n_secs) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0, "relocations for section %u of %u",
				       s->info, p->n_secs);
	}
	t = &p->secs[s->info];
	if (!(t->flags & SHF_ALLOC) || n == 0) {
		return 0;
	}
	if (s->type == SHT_RELA) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0,
				       "relocations with addends (RELA) are not eBPF's");
	}
	if (s->size % sizeof(Elf64_Rel) || s->link != p->symtab || t->n_rels || !s->data) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0, "broken relocation section");
	}
	t->rels = malloc(s->size);
	if (!t->rels) {
		return -ENOMEM;
	}
	t->n_rels = n;
	memcpy(t->rels, s->data, s->size);
	for (uint32_t i = 1; i < n && sorted; i++) {
		sorted = t->rels[i].r_offset > t->rels[i - 1].r_offset;
	}
	if (!sorted) {
		qsort(t->rels, n, sizeof(*t->rels), rel_order);
	}
	return check_relocs(p, t);
}

int ebpf_obj_read_elf(struct ebpf_obj_parse *p, const void *elf, size_t bytes)
{
	Elf64_Ehdr h;
	int err;

	if (bytes > OBJ_MAX_BYTES) {
		return ebpf_obj_refuse(p, -E2BIG, NULL, 0, "%zu bytes (limit %u)", bytes,
				       OBJ_MAX_BYTES);
	}
	err = check_header(p, elf, bytes, &h);
	err = err ? err : read_sections(p, elf, bytes, &h);
	err = err ? err : read_symbols(p);
	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		if (p->secs[i].type == SHT_REL || p->secs[i].type == SHT_RELA) {
			err = read_relocs_of(p, &p->secs[i]);
		}
	}
	return err;
}

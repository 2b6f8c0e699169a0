/* The ELF side of an object: libelf finds the sections, everything in them is copied or checked
 * here once, so that the rest of the loader deals with tables that are in range. */
#include "bpf/load/object_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_header(struct obj_parse *p, const uint8_t *elf, size_t bytes)
{
	Elf64_Ehdr h;

	if (bytes < sizeof(h) || memcmp(elf, ELFMAG, SELFMAG) != 0) {
		report_hint(
			p->r,
			"build it with: clang -target bpf -mcpu=v3 -g -O2 -c x.bpf.c -o x.bpf.o");
		return obj_refuse(p, -EINVAL, NULL, 0,
				  bytes < sizeof(h) ? "too short for an ELF object (%zu bytes)"
						    : "not an ELF object (%zu bytes)",
				  bytes);
	}
	memcpy(&h, elf, sizeof(h));
	if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB) {
		return obj_refuse(p, -EINVAL, NULL, 0, "not a 64-bit little-endian ELF object");
	}
	if (h.e_machine != EM_BPF) {
		report_hint(p->r, "compile with -target bpf");
		return obj_refuse(p, -EINVAL, NULL, 0, "made for machine %u, not for eBPF (%u)",
				  h.e_machine, EM_BPF);
	}
	if (h.e_type != ET_REL) {
		return obj_refuse(p, -EINVAL, NULL, 0, "ELF type %u is not a relocatable object",
				  h.e_type);
	}
	if (h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shoff < sizeof(h) || h.e_shoff > bytes ||
	    (uint64_t)h.e_shnum * sizeof(Elf64_Shdr) > bytes - h.e_shoff) {
		return obj_refuse(p, -EINVAL, NULL, 0,
				  "truncated: the section headers (%u at byte %llu) lie outside "
				  "the %zu bytes",
				  h.e_shnum, (unsigned long long)h.e_shoff, bytes);
	}
	if (h.e_shoff % 8) {
		return obj_refuse(p, -EINVAL, NULL, 0,
				  "the section headers (at byte %llu) are not aligned",
				  (unsigned long long)h.e_shoff);
	}
	if (h.e_shnum == 0 || h.e_shnum > OBJ_MAX_SECTIONS) {
		return obj_refuse(p, h.e_shnum ? -E2BIG : -EINVAL, NULL, 0,
				  "%u sections (limit %u)", h.e_shnum, OBJ_MAX_SECTIONS);
	}
	return 0;
}

static int read_section(struct obj_parse *p, Elf_Scn *scn, size_t names, size_t bytes)
{
	size_t i = elf_ndxscn(scn);
	Elf64_Shdr *h = elf64_getshdr(scn);
	struct obj_section *s;
	Elf_Data *d;

	if (!h || i >= p->n_secs) {
		return obj_refuse(p, -EINVAL, NULL, 0, "section %zu has no readable header", i);
	}
	s = &p->secs[i];
	s->name = elf_strptr(p->elf, names, h->sh_name);
	if (!s->name) {
		return obj_refuse(p, -EINVAL, NULL, 0,
				  "section %zu has a name outside the string table", i);
	}
	s->type = h->sh_type;
	s->flags = h->sh_flags;
	s->link = h->sh_link;
	s->info = h->sh_info;
	s->size = h->sh_size;
	if (s->type == SHT_NOBITS || s->type == SHT_NULL || s->size == 0) {
		return 0;
	}
	if (h->sh_offset > bytes || h->sh_size > bytes - h->sh_offset) {
		return obj_refuse(
			p, -EINVAL, s->name, 0, "truncated: %llu bytes at byte %llu of %zu",
			(unsigned long long)h->sh_size, (unsigned long long)h->sh_offset, bytes);
	}
	if (s->flags & SHF_COMPRESSED) {
		s->size = 0; /* only debug sections are ever compressed */
		return 0;
	}
	d = elf_rawdata(scn, NULL);
	if (!d || !d->d_buf || d->d_size != s->size) {
		return obj_refuse(p, -EINVAL, s->name, 0, "unreadable: %s", elf_errmsg(-1));
	}
	s->data = d->d_buf;
	if (s->type == SHT_STRTAB && s->data[s->size - 1] != 0) {
		return obj_refuse(p, -EINVAL, s->name, s->size - 1,
				  "string table without terminating zero");
	}
	return 0;
}

static int read_sections(struct obj_parse *p, size_t bytes)
{
	size_t names, n;
	Elf_Scn *scn = NULL;

	if (elf_getshdrnum(p->elf, &n) || elf_getshdrstrndx(p->elf, &names) || n == 0 ||
	    names >= n) {
		return obj_refuse(p, -EINVAL, NULL, 0, "broken ELF header: %s", elf_errmsg(-1));
	}
	p->secs = calloc(n, sizeof(*p->secs));
	if (!p->secs) {
		return -ENOMEM;
	}
	p->n_secs = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		p->secs[i].name = "";
		p->secs[i].map = -1;
		p->secs[i].hook = -1;
	}
	while ((scn = elf_nextscn(p->elf, scn)) != NULL) {
		int err = read_section(p, scn, names, bytes);

		if (err) {
			return err;
		}
	}
	return 0;
}

const char *obj_symbol_name(const struct obj_parse *p, const Elf64_Sym *sym)
{
	const char *name;

	if (ELF64_ST_TYPE(sym->st_info) == STT_SECTION && sym->st_shndx < p->n_secs) {
		return p->secs[sym->st_shndx].name;
	}
	name = elf_strptr(p->elf, p->strtab, sym->st_name);
	return name ? name : "";
}

static int check_symbol(struct obj_parse *p, const Elf64_Sym *sym, uint32_t i)
{
	const struct obj_section *s;

	if (!elf_strptr(p->elf, p->strtab, sym->st_name)) {
		return obj_refuse(p, -EINVAL, ".symtab", 0,
				  "symbol %u has a name outside the string table", i);
	}
	if (sym->st_shndx >= SHN_LORESERVE || sym->st_shndx == SHN_UNDEF) {
		return 0;
	}
	if (sym->st_shndx >= p->n_secs) {
		return obj_refuse(p, -EINVAL, ".symtab", 0,
				  "symbol %u (%s) lies in section %u of %u", i,
				  obj_symbol_name(p, sym), sym->st_shndx, p->n_secs);
	}
	s = &p->secs[sym->st_shndx];
	if (sym->st_value > s->size || sym->st_size > s->size - sym->st_value) {
		return obj_refuse(p, -EINVAL, s->name, sym->st_value,
				  "symbol %u (%s, %llu bytes) lies outside the "
				  "section's %zu bytes",
				  i, obj_symbol_name(p, sym), (unsigned long long)sym->st_size,
				  s->size);
	}
	return 0;
}

static int read_symbols(struct obj_parse *p)
{
	const struct obj_section *s;

	for (uint32_t i = 1; i < p->n_secs; i++) {
		if (p->secs[i].type == SHT_SYMTAB) {
			if (p->symtab) {
				return obj_refuse(p, -EINVAL, p->secs[i].name, 0,
						  "a second symbol table");
			}
			p->symtab = i;
		}
	}
	if (!p->symtab) {
		return obj_refuse(p, -EINVAL, NULL, 0,
				  "no symbol table (was the object stripped?)");
	}
	s = &p->secs[p->symtab];
	p->strtab = s->link;
	p->n_syms = (uint32_t)(s->size / sizeof(Elf64_Sym));
	if (s->size % sizeof(Elf64_Sym) || !s->data || p->strtab == 0 || p->strtab >= p->n_secs ||
	    p->secs[p->strtab].type != SHT_STRTAB) {
		return obj_refuse(p, -EINVAL, s->name, 0, "broken symbol table");
	}
	if (p->n_syms > OBJ_MAX_SYMBOLS) {
		return obj_refuse(p, -E2BIG, s->name, 0, "%u symbols (limit %u)", p->n_syms,
				  OBJ_MAX_SYMBOLS);
	}
	p->syms = malloc(s->size);
	if (!p->syms) {
		return -ENOMEM;
	}
	memcpy(p->syms, s->data, s->size);
	for (uint32_t i = 1; i < p->n_syms; i++) {
		int err = check_symbol(p, &p->syms[i], i);

		if (err) {
			return err;
		}
	}
	return 0;
}

static int rel_order(const void *a, const void *b)
{
	const Elf64_Rel *x = a, *y = b;

	return x->r_offset < y->r_offset ? -1 : x->r_offset > y->r_offset;
}

const Elf64_Rel *obj_reloc_at(const struct obj_section *s, uint64_t offset)
{
	Elf64_Rel key = { .r_offset = offset };

	return s->n_rels ? bsearch(&key, s->rels, s->n_rels, sizeof(key), rel_order) : NULL;
}

/* Takes the relocations of sections that are loaded; those of debug sections do not matter. */
static int read_relocs_of(struct obj_parse *p, const struct obj_section *s)
{
	struct obj_section *t;
	Elf64_Rel *rels;
	uint32_t n = (uint32_t)(s->size / sizeof(*rels));

	if (s->info == 0 || s->info >= p->n_secs) {
		return obj_refuse(p, -EINVAL, s->name, 0, "relocations for section %u of %u",
				  s->info, p->n_secs);
	}
	t = &p->secs[s->info];
	if (!(t->flags & SHF_ALLOC) || n == 0) {
		return 0;
	}
	if (s->type == SHT_RELA) {
		return obj_refuse(p, -EINVAL, s->name, 0,
				  "relocations with addends (RELA) are not eBPF's");
	}
	if (s->size % sizeof(*rels) || s->link != p->symtab || t->n_rels || !s->data) {
		return obj_refuse(p, -EINVAL, s->name, 0, "broken relocation section");
	}
	rels = malloc(s->size);
	if (!rels) {
		return -ENOMEM;
	}
	t->rels = rels;
	t->n_rels = n;
	memcpy(rels, s->data, s->size);
	qsort(rels, n, sizeof(*rels), rel_order);
	for (uint32_t i = 0; i < n; i++) {
		if (ELF64_R_SYM(rels[i].r_info) >= p->n_syms) {
			return obj_refuse(p, -EINVAL, t->name, rels[i].r_offset,
					  "relocation against symbol %u of %u",
					  (unsigned)ELF64_R_SYM(rels[i].r_info), p->n_syms);
		}
		if (rels[i].r_offset >= t->size) {
			return obj_refuse(p, -EINVAL, t->name, rels[i].r_offset,
					  "relocation outside the section's %zu bytes", t->size);
		}
		if (i > 0 && rels[i].r_offset == rels[i - 1].r_offset) {
			return obj_refuse(p, -EINVAL, t->name, rels[i].r_offset,
					  "two relocations for one place");
		}
	}
	return 0;
}

int obj_read_elf(struct obj_parse *p, const void *elf, size_t bytes)
{
	int err;

	if (bytes > OBJ_MAX_BYTES) {
		return obj_refuse(p, -E2BIG, NULL, 0, "%zu bytes (limit %u)", bytes, OBJ_MAX_BYTES);
	}
	err = check_header(p, elf, bytes);
	if (err) {
		return err;
	}
	p->copy = malloc(bytes);
	if (!p->copy) {
		return -ENOMEM;
	}
	memcpy(p->copy, elf, bytes);
	elf_version(EV_CURRENT);
	p->elf = elf_memory((char *)p->copy, bytes);
	if (!p->elf || elf_kind(p->elf) != ELF_K_ELF) {
		return obj_refuse(p, -EINVAL, NULL, 0, "not an ELF object: %s", elf_errmsg(-1));
	}
	err = read_sections(p, bytes);
	if (err == 0) {
		err = read_symbols(p);
	}
	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		if (p->secs[i].type == SHT_REL || p->secs[i].type == SHT_RELA) {
			err = read_relocs_of(p, &p->secs[i]);
		}
	}
	return err;
}

/* Opening a cubin: the ELF header, the tables, and the order of what the file holds. Refuses images
 * of any other form than compilers, linkers and drivers write. */
#include "cubin/cubin_elf_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin.h"

#define SEGMENTS_MAX 64u
#define NAMES_SLACK (1u << 20)

int cubin_refuse(struct report *r, const char *fmt, ...)
{
	struct buf text;
	va_list ap;

	buf_init(&text);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	report_set(r, -ENOEXEC, "cubin", "%s", buf_text(&text));
	buf_finish(&text);
	return -ENOEXEC;
}

/* Architecture in the flags of the header; 0 if the ABI is unknown. */
static unsigned arch_of(const Elf64_Ehdr *h)
{
	if (h->e_ident[EI_ABIVERSION] == CUBIN_ABI_NEW) {
		return h->e_flags >> 8 & 0xff;
	}
	return h->e_ident[EI_ABIVERSION] == CUBIN_ABI_OLD ? h->e_flags & 0xff : 0;
}

static bool is_cubin(const Elf64_Ehdr *h)
{
	static const uint8_t ident[] = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT };

	return !memcmp(h->e_ident, ident, sizeof(ident)) && h->e_machine == CUBIN_MACHINE;
}

unsigned cubin_arch(const void *image, size_t bytes)
{
	Elf64_Ehdr h;

	if (bytes < sizeof(h)) {
		return 0;
	}
	memcpy(&h, image, sizeof(h));
	return is_cubin(&h) ? arch_of(&h) : 0;
}

/* Extends *end to the end of n entries at `at`. */
static int cover(uint64_t at, uint64_t n, uint64_t each, size_t max, uint64_t *end)
{
	uint64_t bytes;

	if (checked_mul(n, each, &bytes) || checked_add(at, bytes, &bytes) || bytes > max) {
		return -E2BIG;
	}
	*end = MAX(*end, bytes);
	return 0;
}

int cubin_bytes(const void *image, size_t max, size_t *ret)
{
	uint64_t end = sizeof(Elf64_Ehdr);
	Elf64_Ehdr h;

	if (max < sizeof(h)) {
		return -E2BIG;
	}
	memcpy(&h, image, SELFMAG);
	if (memcmp(&h, ELFMAG, SELFMAG) != 0) {
		return -ENOEXEC;
	}
	memcpy(&h, image, sizeof(h));
	if (!is_cubin(&h) || (h.e_shnum && h.e_shentsize != sizeof(Elf64_Shdr)) ||
	    (h.e_phnum && h.e_phentsize != sizeof(Elf64_Phdr))) {
		return -ENOEXEC;
	}
	if (cover(h.e_shoff, h.e_shnum, sizeof(Elf64_Shdr), max, &end) < 0 ||
	    cover(h.e_phoff, h.e_phnum, sizeof(Elf64_Phdr), max, &end) < 0) {
		return -E2BIG;
	}
	for (unsigned i = 0; i < h.e_shnum; i++) {
		Elf64_Shdr s;

		memcpy(&s, (const uint8_t *)image + h.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL &&
		    cover(s.sh_offset, 1, s.sh_size, max, &end) < 0) {
			return -E2BIG;
		}
	}
	*ret = end;
	return 0;
}

/* Copies a table of n entries. */
static int copy_table(const struct cubin_elf *e, uint64_t at, size_t n, size_t each, void *ret,
		      struct report *r)
{
	uint64_t end = 0;
	void *copy;

	if (cover(at, n, each, e->bytes, &end) < 0) {
		return cubin_refuse(r, "a table of headers exceeds the image");
	}
	copy = malloc(n ? n * each : 1);
	if (!copy) {
		return -ENOMEM;
	}
	memcpy(copy, e->data + at, n * each);
	memcpy(ret, &copy, sizeof(copy));
	return 0;
}

static int read_head(struct cubin_elf *e, struct report *r)
{
	const Elf64_Ehdr *h = &e->head;

	if (e->bytes < sizeof(*h) || e->bytes > CUBIN_BYTES_MAX) {
		return cubin_refuse(r, "an image of %zu bytes", e->bytes);
	}
	memcpy(&e->head, e->data, sizeof(*h));
	if (!is_cubin(h)) {
		return cubin_refuse(r, "not a cubin");
	}
	e->abi = h->e_ident[EI_ABIVERSION];
	e->arch = arch_of(h);
	if (e->arch < 70) {
		return cubin_refuse(r, "ABI version %u, architecture %u", e->abi, e->arch);
	}
	if (h->e_type != ET_EXEC) {
		return cubin_refuse(r, "a relocatable cubin, or another type: %u", h->e_type);
	}
	if (h->e_ehsize != sizeof(*h) || h->e_shentsize != sizeof(Elf64_Shdr) ||
	    (h->e_phnum && h->e_phentsize != sizeof(Elf64_Phdr))) {
		return cubin_refuse(r, "headers of an unknown size");
	}
	if (h->e_shnum < 2 || h->e_shnum >= SHN_LORESERVE || h->e_shstrndx >= h->e_shnum ||
	    h->e_phnum > SEGMENTS_MAX) {
		return cubin_refuse(r, "%u sections, %u segments", h->e_shnum, h->e_phnum);
	}
	return 0;
}

/* Whether each name in a table of strings ends inside it. */
static bool is_string_table(const struct cubin_elf *e, uint32_t section)
{
	const Elf64_Shdr *s = &e->sections[section];

	return s->sh_type == SHT_STRTAB && s->sh_size && !e->data[s->sh_offset + s->sh_size - 1];
}

/* Adds the length of a name to *sum. Names may share bytes, but not so many that reading all of
 * them takes longer than reading the image. */
static bool add_name(const char *name, uint64_t table_bytes, uint64_t *sum)
{
	*sum += strlen(name);
	return *sum <= 8 * table_bytes + NAMES_SLACK;
}

static int check_names(const struct cubin_elf *e, struct report *r)
{
	uint64_t bytes = e->sections[e->head.e_shstrndx].sh_size, sum = 0;

	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (e->sections[i].sh_name >= bytes ||
		    !add_name(cubin_elf_name(e, i), bytes, &sum)) {
			return cubin_refuse(r, "section %u has no name, or one too long", i);
		}
	}
	return 0;
}

static int check_sections(struct cubin_elf *e, struct report *r)
{
	static const Elf64_Shdr none;
	uint64_t sum = 0;

	if (memcmp(&e->sections[0], &none, sizeof(none)) != 0) {
		return cubin_refuse(r, "section 0 is not empty");
	}
	for (uint32_t i = 1; i < e->n_sections; i++) {
		const Elf64_Shdr *s = &e->sections[i];
		uint64_t end = 0;

		if (s->sh_type != SHT_NOBITS &&
		    cover(s->sh_offset, 1, s->sh_size, e->bytes, &end) < 0) {
			return cubin_refuse(r, "section %u exceeds the image", i);
		}
		/* Offsets need not be aligned: cuBLASLt's are not where a pruning tool has moved
		 * sections together. */
		if (s->sh_addralign & (s->sh_addralign - 1) || s->sh_addralign > 4096) {
			return cubin_refuse(r, "section %u has alignment %llu", i,
					    (unsigned long long)s->sh_addralign);
		}
		sum += cubin_elf_in_file(e, i) ? s->sh_size : 0;
		if (sum > 2 * (uint64_t)e->bytes) { /* some sections share bytes; not many */
			return cubin_refuse(r, "sections overlap");
		}
	}
	if (!is_string_table(e, e->head.e_shstrndx)) {
		return cubin_refuse(r, "section names are no string table");
	}
	e->names = (const char *)e->data + e->sections[e->head.e_shstrndx].sh_offset;
	return check_names(e, r);
}

static int check_symbols(struct cubin_elf *e, struct report *r)
{
	uint64_t sum = 0;
	const Elf64_Shdr *s;

	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (e->sections[i].sh_type == SHT_SYMTAB) {
			if (e->symtab) {
				return cubin_refuse(r, "more than one symbol table");
			}
			e->symtab = i;
		}
	}
	s = &e->sections[e->symtab];
	if (!e->symtab || s->sh_entsize != sizeof(Elf64_Sym) || s->sh_size % sizeof(Elf64_Sym) ||
	    s->sh_link >= e->n_sections || !is_string_table(e, s->sh_link)) {
		return cubin_refuse(r, "no symbol table, or one without names");
	}
	e->symbols = e->data + s->sh_offset;
	e->n_symbols = (uint32_t)(s->sh_size / sizeof(Elf64_Sym));
	e->strings = (const char *)e->data + e->sections[s->sh_link].sh_offset;
	for (uint32_t i = 0; i < e->n_symbols; i++) {
		Elf64_Sym y = cubin_elf_symbol(e, i);

		if (y.st_name >= e->sections[s->sh_link].sh_size ||
		    !add_name(cubin_elf_symbol_name(e, &y), e->sections[s->sh_link].sh_size,
			      &sum)) {
			return cubin_refuse(r, "symbol %u has no name, or one too long", i);
		}
	}
	return 0;
}

/* A tool that has removed sections from cuBLAS' images left the old number of the symbol table in
 * relocations that are empty or concern no code. The driver takes the image's only symbol table. */
static bool known_link(const struct cubin_elf *e, const Elf64_Shdr *s)
{
	return s->sh_link == e->symtab || !s->sh_size ||
	       (s->sh_info < e->n_sections && !(e->sections[s->sh_info].sh_flags & SHF_EXECINSTR) &&
		!(e->sections[s->sh_info].sh_flags & SHF_ALLOC));
}

static int check_relocs(const struct cubin_elf *e, struct report *r)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		const Elf64_Shdr *s = &e->sections[i];
		size_t each = s->sh_type == SHT_REL ? sizeof(Elf64_Rel) : sizeof(Elf64_Rela);

		if (!cubin_elf_is_reloc(e, i)) {
			continue;
		}
		if (!known_link(e, s) || s->sh_info >= e->n_sections || s->sh_entsize != each ||
		    s->sh_size % each) {
			return cubin_refuse(r, "relocations of an unknown form: section %u", i);
		}
		for (size_t q = 0; q < cubin_elf_relocs(e, i); q++) {
			struct cubin_reloc l = cubin_elf_reloc(e, i, q);

			if (l.symbol >= e->n_symbols ||
			    l.offset >= e->sections[s->sh_info].sh_size) {
				return cubin_refuse(r, "a relocation outside: section %u", i);
			}
		}
	}
	return 0;
}

int cubin_elf_open(struct cubin_elf *e, const void *image, size_t bytes, struct report *r)
{
	int err;

	memset(e, 0, sizeof(*e));
	e->data = image;
	e->bytes = bytes;
	err = read_head(e, r);
	if (err < 0) {
		return err;
	}
	e->n_sections = e->head.e_shnum;
	e->n_segments = e->head.e_phnum;
	err = copy_table(e, e->head.e_shoff, e->n_sections, sizeof(Elf64_Shdr), &e->sections, r);
	if (!err) {
		err = copy_table(e, e->head.e_phoff, e->n_segments, sizeof(Elf64_Phdr),
				 &e->segments, r);
	}
	if (!err) {
		err = check_sections(e, r);
	}
	if (!err) {
		err = check_symbols(e, r);
	}
	if (!err) {
		err = check_relocs(e, r);
	}
	if (err < 0) {
		cubin_elf_finish(e);
	}
	return err;
}

void cubin_elf_finish(struct cubin_elf *e)
{
	free(e->sections);
	free(e->segments);
	e->sections = NULL;
	e->segments = NULL;
}

bool cubin_elf_is_mercury(const struct cubin_elf *e)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (e->sections[i].sh_type == CUBIN_TYPE_MERCURY) {
			return true;
		}
	}
	return false;
}

/* Finds variables by their names in machine code, and lists of entries in such variables. Machine
 * code is an ELF file; every offset and size in it is checked before use. */
#include "ptx/block_mark.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

#define MACHINE_CUDA 190u
#define CODE_BYTES_MAX ((uint64_t)1 << 30)
#define LISTS_BYTES_MAX ((size_t)PTX_BLOCK_MARK_WORDS_MAX * 4) /* bytes, of all lists in a file */

struct code {
	const uint8_t *data;
	uint64_t bytes, sections; /* offset of the section table */
	unsigned n_sections;
};

/* Copies an object at that offset; returns false if it is not within the image. */
static bool copy_from(const struct code *c, uint64_t at, void *ret, size_t bytes)
{
	if (at > c->bytes || bytes > c->bytes - at) {
		return false;
	}
	memcpy(ret, c->data + at, bytes);
	return true;
}

/* Reads section header i; returns false if its contents are not within the image. */
static bool section(const struct code *c, unsigned i, Elf64_Shdr *ret)
{
	return i < c->n_sections &&
	       copy_from(c, c->sections + (uint64_t)i * sizeof(*ret), ret, sizeof(*ret)) &&
	       ret->sh_type != SHT_NOBITS && ret->sh_offset <= c->bytes &&
	       ret->sh_size <= c->bytes - ret->sh_offset;
}

/* Reads only the bytes that identify an ELF file; the image's size is not known yet. */
static bool is_code(const uint8_t *image)
{
	uint16_t machine;

	if (memcmp(image, ELFMAG, SELFMAG) != 0 || image[EI_CLASS] != ELFCLASS64 ||
	    image[EI_DATA] != ELFDATA2LSB) {
		return false;
	}
	memcpy(&machine, image + offsetof(Elf64_Ehdr, e_machine), sizeof(machine));
	return machine == MACHINE_CUDA;
}

static bool open_code(struct code *c, const void *image, size_t bytes)
{
	Elf64_Ehdr h;

	if ((bytes && bytes < sizeof(h)) || !is_code(image)) {
		return false;
	}
	memcpy(&h, image, sizeof(h));
	c->data = image;
	c->sections = h.e_shoff;
	c->n_sections = h.e_shnum;
	c->bytes = bytes ? bytes : h.e_shoff + (uint64_t)h.e_shnum * sizeof(Elf64_Shdr);
	return h.e_shentsize == sizeof(Elf64_Shdr) && h.e_shoff < CODE_BYTES_MAX &&
	       c->bytes <= CODE_BYTES_MAX;
}

static bool first_of_type(const struct code *c, uint32_t type, Elf64_Shdr *ret)
{
	for (unsigned i = 0; i < c->n_sections; i++) {
		if (section(c, i, ret) && ret->sh_type == type) {
			return true;
		}
	}
	return false;
}

/* The symbols of a file; `at` is the next one. */
struct symbols {
	const struct code *code;
	const char *prefix; /* of those that are looked for */
	Elf64_Shdr table, names;
	uint64_t at;
};

static bool open_symbols(struct symbols *y, const struct code *c, const char *prefix)
{
	*y = (struct symbols){ .code = c, .prefix = prefix };
	return first_of_type(c, SHT_SYMTAB, &y->table) && section(c, y->table.sh_link, &y->names);
}

static bool has_name(const struct symbols *y, const Elf64_Sym *s)
{
	size_t bytes = strlen(y->prefix);
	char name[16];

	return ELF64_ST_TYPE(s->st_info) == STT_OBJECT && bytes <= sizeof(name) &&
	       s->st_name <= y->names.sh_size && y->names.sh_size - s->st_name >= bytes &&
	       copy_from(y->code, y->names.sh_offset + s->st_name, name, bytes) &&
	       memcmp(name, y->prefix, bytes) == 0;
}

/* Finds the contents of the next variable whose name begins with the prefix. */
static bool next_variable(struct symbols *y, const uint8_t **ret, size_t *ret_bytes)
{
	while (y->table.sh_size - y->at >= sizeof(Elf64_Sym)) {
		Elf64_Shdr of;
		Elf64_Sym s;

		if (!copy_from(y->code, y->table.sh_offset + y->at, &s, sizeof(s))) {
			return false;
		}
		y->at += sizeof(s);
		if (has_name(y, &s) && section(y->code, s.st_shndx, &of) &&
		    s.st_value <= of.sh_size && s.st_size <= of.sh_size - s.st_value &&
		    s.st_size <= LISTS_BYTES_MAX) {
			*ret = y->code->data + of.sh_offset + s.st_value;
			*ret_bytes = (size_t)s.st_size;
			return true;
		}
	}
	return false;
}

/* Doubles the capacity, so that the time is linear in the number of lists. */
static int append(struct ptx_arena *arena, struct ptx_block_entry **list, uint32_t *n,
		  uint32_t *cap, const struct ptx_block_entry *more, uint32_t n_more)
{
	if (*n + n_more > *cap) {
		uint32_t wanted = MAX(*n + n_more, *cap * 2);
		struct ptx_block_entry *larger = ptx_arena_array(arena, wanted, sizeof(*larger));

		if (!larger) {
			return -ENOMEM;
		}
		if (*n) {
			memcpy(larger, *list, *n * sizeof(*larger));
		}
		*list = larger;
		*cap = wanted;
	}
	if (n_more) {
		memcpy(*list + *n, more, n_more * sizeof(*more));
	}
	*n += n_more;
	return 0;
}

int ptx_block_mark_of_code(struct ptx_arena *arena, const void *image, size_t bytes,
			   const struct ptx_block_entry **ret, uint32_t *ret_n)
{
	const struct ptx_block_entry *more;
	struct ptx_block_entry *list = NULL;
	uint32_t n = 0, cap = 0, n_more;
	const uint8_t *at;
	struct symbols y;
	struct code c;
	size_t size, left = LISTS_BYTES_MAX;
	bool any = false;

	if (!open_code(&c, image, bytes) || !open_symbols(&y, &c, PTX_BLOCK_MARK)) {
		return -ENOENT;
	}
	while (next_variable(&y, &at, &size) && size <= left && n < PTX_BLOCK_MARK_ENTRIES_MAX) {
		int err = ptx_block_mark_read(arena, at, size, &more, &n_more);

		left -= MIN(left, size + sizeof(Elf64_Sym));
		if (err == 0) {
			any = true;
			err = append(arena, &list, &n, &cap, more, n_more);
		}
		if (err < 0 && err != -ENOENT) {
			return err;
		}
	}
	*ret = list;
	*ret_n = n;
	return any ? 0 : -ENOENT;
}

int ptx_block_code_variable(const void *image, size_t bytes, const char *prefix, uint32_t i,
			    const uint8_t **ret, size_t *ret_bytes)
{
	struct symbols y;
	struct code c;

	if (!open_code(&c, image, bytes) || !open_symbols(&y, &c, prefix)) {
		return -ENOENT;
	}
	do {
		if (!next_variable(&y, ret, ret_bytes)) {
			return -ENOENT;
		}
	} while (i-- > 0);
	return 0;
}

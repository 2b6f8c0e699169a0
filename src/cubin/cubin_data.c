/* Sizes of variables. Reads headers and symbols alone, each copied once within the bytes that
 * exist, so that images which cannot be patched are measured as well. */
#include <errno.h>
#include <string.h>

#include "cubin/cubin.h"
#include "cubin/cubin_elf_int.h"

#define DATA_SECTIONS_MAX 16u /* whose symbols are read; compilers write three */

struct data_view {
	const uint8_t *image;
	uint64_t bytes;
	Elf64_Ehdr head;
};

static bool copy_at(const struct data_view *v, uint64_t at, void *ret, size_t n)
{
	if (at > v->bytes || n > v->bytes - at) {
		return false;
	}
	memcpy(ret, v->image + at, n);
	return true;
}

static bool section_at(const struct data_view *v, uint32_t i, Elf64_Shdr *ret)
{
	uint64_t at;

	return !checked_add(v->head.e_shoff, (uint64_t)i * sizeof(*ret), &at) &&
	       copy_at(v, at, ret, sizeof(*ret));
}

/* Stores the beginning of a section's name, zero-terminated. */
static bool name_of(const struct data_view *v, const Elf64_Shdr *s, char *ret, size_t cap)
{
	Elf64_Shdr names;
	uint64_t at, left;
	size_t n;

	if (!section_at(v, v->head.e_shstrndx, &names) || s->sh_name >= names.sh_size ||
	    checked_add(names.sh_offset, (uint64_t)s->sh_name, &at) || at >= v->bytes) {
		return false;
	}
	left = MIN(names.sh_size - s->sh_name, v->bytes - at);
	n = (size_t)MIN(left, (uint64_t)cap - 1);
	memcpy(ret, v->image + at, n);
	ret[n] = 0;
	return true;
}

/* Returns true for variables, and for constants of the module: those of a kernel have its name. */
static bool is_data(const char *name)
{
	static const char constant[] = ".nv.constant";
	size_t n = sizeof(constant) - 1;

	if (strcmp(name, ".nv.global") == 0 || strcmp(name, ".nv.global.init") == 0) {
		return true;
	}
	return strncmp(name, constant, n) == 0 && name[n] &&
	       !name[n + strspn(name + n, "0123456789")];
}

/* Walks the symbols of a section. Stores the sum of the objects' sizes; fn NULL: reports none.
 * Returns false if the sum exceeds 64 bits. */
static bool objects_of(const struct data_view *v, uint32_t section, uint64_t *ret_sum,
		       cubin_data_fn *fn, void *arg)
{
	*ret_sum = 0;
	for (uint32_t i = 1; i < v->head.e_shnum; i++) {
		Elf64_Shdr table;

		if (!section_at(v, i, &table) || table.sh_type != SHT_SYMTAB ||
		    table.sh_offset > v->bytes) {
			continue;
		}
		table.sh_size = MIN(table.sh_size, v->bytes - table.sh_offset);
		for (uint64_t q = 0; q + sizeof(Elf64_Sym) <= table.sh_size;
		     q += sizeof(Elf64_Sym)) {
			Elf64_Sym y;

			memcpy(&y, v->image + table.sh_offset + q, sizeof(y));
			if (y.st_shndx != section || ELF64_ST_TYPE(y.st_info) != STT_OBJECT ||
			    !y.st_size) {
				continue;
			}
			if (checked_add(*ret_sum, y.st_size, ret_sum)) {
				return false;
			}
			if (fn) {
				fn(arg, y.st_size);
			}
		}
		break; /* an image has one */
	}
	return true;
}

/* Reports a section by its objects, and what lies between them. The driver's linker (580.159)
 * writes a section's size in 32 bits, those of objects in 64, and goes by the latter. */
static void report_section(const struct data_view *v, uint32_t section, uint64_t bytes,
			   cubin_data_fn *fn, void *arg)
{
	uint64_t sum;

	if (!objects_of(v, section, &sum, NULL, NULL)) {
		fn(arg, UINT64_MAX);
		return;
	}
	(void)objects_of(v, section, &sum, fn, arg);
	if (bytes > sum) {
		fn(arg, bytes - sum);
	}
}

int cubin_data_bytes(const void *image, size_t bytes, cubin_data_fn *fn, void *arg)
{
	struct data_view v = { .image = image, .bytes = bytes };
	uint32_t n = 0;
	char name[32];

	if (!copy_at(&v, 0, &v.head, sizeof(v.head)) ||
	    memcmp(v.head.e_ident, ELFMAG, SELFMAG) != 0 ||
	    v.head.e_ident[EI_CLASS] != ELFCLASS64 || v.head.e_machine != CUBIN_MACHINE) {
		return -ENOEXEC;
	}
	for (uint32_t i = 1; i < v.head.e_shnum; i++) {
		Elf64_Shdr s;

		if (!section_at(&v, i, &s)) {
			return -ENOEXEC;
		}
		if (!(s.sh_flags & SHF_ALLOC) || !name_of(&v, &s, name, sizeof(name)) ||
		    !is_data(name)) {
			continue;
		}
		if (n++ < DATA_SECTIONS_MAX) {
			report_section(&v, i, s.sh_size, fn, arg);
		} else if (s.sh_size) {
			fn(arg, s.sh_size);
		}
	}
	return 0;
}

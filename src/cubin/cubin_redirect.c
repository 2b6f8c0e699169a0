/* Replaces relocations of bank 4 by addresses. */
#include "cubin/cubin_redirect_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BANK ".nv.constant4"
#define RELOC_ADDRESS 2u /* 64 bits, the symbol's address */
#define VARIABLES_MAX 4096u

static int refuse(struct report *r, const char *why)
{
	(void)report_set(r, -ENOTSUP, "cubin", "a copy of the kernel would have its own %s", why);
	report_hint(r, "build it with PTX, or compile it with gBPF's ptxas (gbpf-run(1))");
	return -ENOTSUP;
}

/* ---- the bank ---- */

static bool overlaps(const Elf64_Shdr *a, const Elf64_Shdr *b)
{
	return a->sh_offset < b->sh_offset + b->sh_size && b->sh_offset < a->sh_offset + a->sh_size;
}

/* Blackwell's images have the bank's bytes in a second section, with relocations of its own. */
static bool is_shared(const struct cubin_elf *e, uint32_t bank)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (i != bank && cubin_elf_in_file(e, i) &&
		    overlaps(&e->sections[i], &e->sections[bank])) {
			return true;
		}
	}
	return false;
}

static int find_sections(struct cubin_redirects *d, const struct cubin_elf *e, struct report *r)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (strcmp(cubin_elf_name(e, i), BANK) == 0) {
			if (d->bank || !cubin_elf_in_file(e, i)) {
				return refuse(r,
					      "variables, whose addresses lie in an unknown form");
			}
			d->bank = i;
		}
	}
	if (!d->bank) {
		return refuse(r, "variables, whose addresses are not in bank 4");
	}
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (cubin_elf_is_reloc(e, i) && e->sections[i].sh_info == d->bank) {
			if (d->relocs) {
				return refuse(r,
					      "variables, whose addresses lie in an unknown form");
			}
			d->relocs = i;
		}
	}
	return is_shared(e, d->bank)
		       ? refuse(r, "variables, which this image has for several architectures")
		       : 0;
}

/* ---- variables ---- */

bool cubin_redirects_keep(const struct cubin_elf *e, uint32_t relocs, size_t q)
{
	Elf64_Sym y = cubin_elf_symbol(e, cubin_elf_reloc(e, relocs, q).symbol);

	return ELF64_ST_TYPE(y.st_info) == STT_FUNC && y.st_shndx == SHN_UNDEF;
}

static uint64_t word_at(const struct cubin_elf *e, uint32_t section, uint64_t at)
{
	uint64_t word;

	memcpy(&word, cubin_elf_data(e, section) + at, sizeof(word));
	return word;
}

/* Returns what the driver adds to the symbol's address. */
static uint64_t addend_of(const struct cubin_redirects *d, const struct cubin_elf *e,
			  const struct cubin_reloc *l)
{
	return l->has_addend ? (uint64_t)l->addend : word_at(e, d->bank, l->offset);
}

static bool is_variable(const struct cubin_elf *e, const struct cubin_reloc *l, Elf64_Sym y)
{
	return l->type == RELOC_ADDRESS && ELF64_ST_TYPE(y.st_info) == STT_OBJECT &&
	       y.st_shndx != SHN_UNDEF && y.st_shndx < e->n_sections;
}

static int no_address(struct report *r, const char *name)
{
	return report_set(r, -ENOTSUP, "cubin", "the driver has no address of the variable '%s'",
			  name);
}

static int add(struct cubin_redirects *d, const struct cubin_elf *e, size_t q,
	       cubin_address_fn *address, void *arg, struct report *r)
{
	struct cubin_reloc l = cubin_elf_reloc(e, d->relocs, q);
	Elf64_Sym y = cubin_elf_symbol(e, l.symbol);
	uint64_t bytes = e->sections[d->bank].sh_size, at = 0;

	if (bytes < 8 || l.offset > bytes - 8 || l.offset % 8) {
		return refuse(r, "variables, whose addresses lie in an unknown form");
	}
	if (cubin_redirects_keep(e, d->relocs, q)) {
		return 0;
	}
	if (!is_variable(e, &l, y)) {
		return refuse(r, "functions, whose addresses it has");
	}
	if (address && address(arg, cubin_elf_symbol_name(e, &y), &at) < 0) {
		return no_address(r, cubin_elf_symbol_name(e, &y));
	}
	d->list[d->n].offset = l.offset;
	d->list[d->n++].address = address ? at + addend_of(d, e, &l) : 0;
	return 0;
}

int cubin_redirects_make(struct cubin_redirects *ret, const struct cubin_elf *e,
			 cubin_address_fn *address, void *arg, struct report *r)
{
	struct cubin_redirects d = { 0 };
	int err = find_sections(&d, e, r);
	size_t n = !err && d.relocs ? cubin_elf_relocs(e, d.relocs) : 0;

	if (!err && n > VARIABLES_MAX) {
		err = refuse(r, "variables, which are too many");
	}
	if (!err) {
		d.list = calloc(n + 1, sizeof(*d.list));
		err = d.list ? 0 : -ENOMEM;
	}
	for (size_t q = 0; q < n && !err; q++) {
		err = add(&d, e, q, address, arg, r);
	}
	if (err) {
		cubin_redirects_finish(&d);
		return err;
	}
	*ret = d;
	return 0;
}

void cubin_redirects_finish(struct cubin_redirects *d)
{
	free(d->list);
	memset(d, 0, sizeof(*d));
}

/* ---- the copy ---- */

size_t cubin_redirects_reloc_bytes(const struct cubin_redirects *d, const struct cubin_elf *e)
{
	size_t each = d->relocs ? (size_t)e->sections[d->relocs].sh_entsize : 0;

	return d->relocs ? (cubin_elf_relocs(e, d->relocs) - d->n) * each : 0;
}

void cubin_redirects_write_bank(uint8_t *to, const struct cubin_redirects *d,
				const struct cubin_elf *e)
{
	memcpy(to, cubin_elf_data(e, d->bank), e->sections[d->bank].sh_size);
	for (size_t i = 0; i < d->n; i++) {
		memcpy(to + d->list[i].offset, &d->list[i].address, sizeof(uint64_t));
	}
}

void cubin_redirects_write_relocs(uint8_t *to, const struct cubin_redirects *d,
				  const struct cubin_elf *e)
{
	size_t each = (size_t)e->sections[d->relocs].sh_entsize;
	const uint8_t *from = cubin_elf_data(e, d->relocs);

	for (size_t q = 0; q < cubin_elf_relocs(e, d->relocs); q++) {
		if (cubin_redirects_keep(e, d->relocs, q)) {
			memcpy(to, from + q * each, each);
			to += each;
		}
	}
}

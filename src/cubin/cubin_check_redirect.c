/* Compares bank 4 of a copy, and its relocations, with the original's: an entry has the address
 * that was asked for and no relocation, or is the original's with its relocation. */
#include <string.h>

#include "cubin/cubin_check_int.h"

bool cubin_check_is_redirected(const struct cubin_checking *c, uint32_t i)
{
	return c->redirects && i && (i == c->redirects->bank || i == c->redirects->relocs);
}

/* Returns the address that an offset of the bank was to get; NULL: none. Both lists have the order
 * of the relocations, so `next` moves on. */
static const struct cubin_redirect *take(const struct cubin_redirects *d, size_t *next,
					 uint64_t offset)
{
	return *next < d->n && d->list[*next].offset == offset ? &d->list[(*next)++] : NULL;
}

static bool same(const struct cubin_reloc *a, const struct cubin_reloc *b)
{
	return a->offset == b->offset && a->symbol == b->symbol && a->type == b->type &&
	       a->addend == b->addend;
}

/* Each relocation of the original is in the copy, or its place has an address. */
static int check_relocs(const struct cubin_checking *c)
{
	const struct cubin_redirects *d = c->redirects;
	size_t next = 0, at = 0, n = cubin_elf_relocs(&c->new, d->relocs);

	for (size_t q = 0; q < cubin_elf_relocs(&c->old, d->relocs); q++) {
		struct cubin_reloc a = cubin_elf_reloc(&c->old, d->relocs, q), b;

		if (take(d, &next, a.offset)) {
			continue;
		}
		if (at == n) {
			return cubin_refuse(c->r, "check: a relocation of bank 4 is missing");
		}
		b = cubin_elf_reloc(&c->new, d->relocs, at++);
		if (!same(&a, &b)) {
			return cubin_refuse(c->r, "check: a relocation of bank 4 differs");
		}
	}
	return at == n && next == d->n
		       ? 0
		       : cubin_refuse(c->r, "check: relocations of bank 4 are too many");
}

static bool has_address(const struct cubin_redirects *d, uint64_t offset, uint64_t word)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->list[i].offset == offset) {
			return d->list[i].address == word;
		}
	}
	return false;
}

static int check_bank(const struct cubin_checking *c)
{
	uint32_t bank = c->redirects->bank;
	const uint8_t *a = cubin_elf_data(&c->old, bank), *b = cubin_elf_data(&c->new, bank);
	uint64_t bytes = c->old.sections[bank].sh_size;

	if (c->new.sections[bank].sh_size != bytes) {
		return cubin_refuse(c->r, "check: bank 4 has another size");
	}
	for (uint64_t at = 0; at < bytes; at += 8) {
		uint64_t word = 0, n = MIN(bytes - at, (uint64_t)8);

		memcpy(&word, b + at, n);
		if (memcmp(a + at, b + at, n) != 0 && !has_address(c->redirects, at, word)) {
			return cubin_refuse(c->r, "check: bank 4 differs at 0x%x", (unsigned)at);
		}
	}
	for (size_t i = 0; i < c->redirects->n; i++) {
		if (memcmp(b + c->redirects->list[i].offset, &c->redirects->list[i].address, 8) !=
		    0) {
			return cubin_refuse(c->r, "check: an address in bank 4 is missing");
		}
	}
	return 0;
}

int cubin_check_redirects(const struct cubin_checking *c)
{
	int err = c->redirects ? check_bank(c) : 0;

	return !err && c->redirects && c->redirects->relocs ? check_relocs(c) : err;
}

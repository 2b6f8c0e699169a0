/* Compares bank 4 and the code of a copy, and their relocations, with the original's: a place has
 * the address that was asked for and no relocation, or is the original's with its relocation. */
#include <string.h>

#include "cubin/cubin_check_int.h"
#include "cubin/cubin_insn_int.h"

bool cubin_check_is_redirected(const struct cubin_checking *c, uint32_t i)
{
	return c->redirects && i &&
	       (i == c->redirects->bank.section || cubin_check_loses_relocs(c, i));
}

bool cubin_check_loses_relocs(const struct cubin_checking *c, uint32_t i)
{
	return c->redirects && i &&
	       (i == c->redirects->bank.relocs || i == c->redirects->code.relocs);
}

/* Returns whether relocation q was to go. The list has the order of the relocations, so `next`
 * moves on. */
static bool take(const struct cubin_redirected *d, size_t *next, size_t q, uint64_t offset)
{
	bool goes = *next < d->n && d->list[*next].reloc == q && d->list[*next].offset == offset;

	*next += goes;
	return goes;
}

static bool same(const struct cubin_reloc *a, const struct cubin_reloc *b)
{
	return a->offset == b->offset && a->symbol == b->symbol && a->type == b->type &&
	       a->addend == b->addend;
}

/* Each relocation of the original is in the copy, or its place has an address. */
static int check_relocs(const struct cubin_checking *c, const struct cubin_redirected *d)
{
	size_t next = 0, at = 0, n = cubin_elf_relocs(&c->new, d->relocs);

	for (size_t q = 0; q < cubin_elf_relocs(&c->old, d->relocs); q++) {
		struct cubin_reloc a = cubin_elf_reloc(&c->old, d->relocs, q), b;

		if (take(d, &next, q, a.offset)) {
			continue;
		}
		if (at == n) {
			return cubin_refuse(c->r, "check: a relocation of an address is missing");
		}
		b = cubin_elf_reloc(&c->new, d->relocs, at++);
		if (!same(&a, &b)) {
			return cubin_refuse(c->r, "check: a relocation of an address differs");
		}
	}
	return at == n && next == d->n
		       ? 0
		       : cubin_refuse(c->r, "check: relocations of addresses are too many");
}

static bool has_address(const struct cubin_redirected *d, uint64_t offset, uint64_t word)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->list[i].offset == offset) {
			return d->list[i].value == word;
		}
	}
	return false;
}

static int check_bank(const struct cubin_checking *c)
{
	const struct cubin_redirected *d = &c->redirects->bank;
	uint32_t bank = d->section;
	const uint8_t *a = cubin_elf_data(&c->old, bank), *b = cubin_elf_data(&c->new, bank);
	uint64_t bytes = c->old.sections[bank].sh_size;

	if (c->new.sections[bank].sh_size != bytes) {
		return cubin_refuse(c->r, "check: bank 4 has another size");
	}
	for (uint64_t at = 0; at < bytes; at += 8) {
		uint64_t word = 0, n = MIN(bytes - at, (uint64_t)8);

		memcpy(&word, b + at, n);
		if (memcmp(a + at, b + at, n) != 0 && !has_address(d, at, word)) {
			return cubin_refuse(c->r, "check: bank 4 differs at 0x%x", (unsigned)at);
		}
	}
	for (size_t i = 0; i < d->n; i++) {
		if (memcmp(b + d->list[i].offset, &d->list[i].value, 8) != 0) {
			return cubin_refuse(c->r, "check: an address in bank 4 is missing");
		}
	}
	return 0;
}

int cubin_check_redirects(const struct cubin_checking *c)
{
	const struct cubin_redirects *d = c->redirects;
	int err = d && d->bank.section ? check_bank(c) : 0;

	if (!err && d && d->bank.relocs) {
		err = check_relocs(c, &d->bank);
	}
	return !err && d && d->code.relocs ? check_relocs(c, &d->code) : err;
}

bool cubin_check_same_code(const struct cubin_checking *c, uint32_t text)
{
	const struct cubin_redirected *d = c->redirects ? &c->redirects->code : NULL;
	const uint8_t *a = cubin_elf_data(&c->old, text), *b = cubin_elf_data(&c->new, text);
	uint64_t bytes = c->old.sections[text].sh_size;
	size_t n = d && d->section == text ? d->n : 0;

	for (size_t i = 0; i < n; i++) {
		if (cubin_u32(b + d->list[i].offset + CUBIN_INSN_IMMEDIATE) != d->list[i].value) {
			return false;
		}
	}
	for (uint64_t at = CUBIN_INSN_BYTES; at < bytes; at += 4) {
		uint64_t insn = at - at % CUBIN_INSN_BYTES;

		if (memcmp(a + at, b + at, 4) != 0 && !(n && at - insn == CUBIN_INSN_IMMEDIATE &&
							has_address(d, insn, cubin_u32(b + at)))) {
			return false;
		}
	}
	return true;
}

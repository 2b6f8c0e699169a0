/* Replaces relocations of bank 4 and of instructions by addresses. */
#include "cubin/cubin_redirect_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin_insn_int.h"

#define BANK ".nv.constant4"
#define RELOC_ADDRESS 2u /* 64 bits, the symbol's address */
#define RELOC_LOW 0x38u	 /* bits 0 to 31 of it, at bit 32 of an instruction */
#define RELOC_HIGH 0x39u /* bits 32 to 63, likewise */
#define VARIABLES_MAX 4096u

int cubin_refuse_own(struct report *r, const char *why)
{
	(void)report_set(r, -ENOTSUP, "cubin", "a copy of the kernel would have its own %s", why);
	report_hint(r, "build it with PTX, or compile it with gBPF's ptxas (gbpf-run(1))");
	return -ENOTSUP;
}

static int refuse_form(struct report *r)
{
	return cubin_refuse_own(r, "variables, whose addresses lie in an unknown form");
}

/* ---- the sections ---- */

static bool overlaps(const Elf64_Shdr *a, const Elf64_Shdr *b)
{
	return a->sh_offset < b->sh_offset + b->sh_size && b->sh_offset < a->sh_offset + a->sh_size;
}

/* Blackwell's images have the bytes in a second section, with relocations of its own. */
static bool is_shared(const struct cubin_elf *e, uint32_t section)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (i != section && cubin_elf_in_file(e, i) &&
		    overlaps(&e->sections[i], &e->sections[section])) {
			return true;
		}
	}
	return false;
}

static int find_bank(struct cubin_redirected *d, const struct cubin_elf *e, struct report *r)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (strcmp(cubin_elf_name(e, i), BANK) == 0) {
			if (d->section || !cubin_elf_in_file(e, i)) {
				return refuse_form(r);
			}
			d->section = i;
		}
	}
	return d->section ? 0 : cubin_refuse_own(r, "variables, whose addresses are not in bank 4");
}

static int find_relocs(struct cubin_redirected *d, const struct cubin_elf *e, bool is_code,
		       struct report *r)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (cubin_elf_is_reloc(e, i) && e->sections[i].sh_info == d->section) {
			if (d->relocs) {
				return refuse_form(r);
			}
			d->relocs = i;
		}
	}
	return is_shared(e, d->section) || (is_code && cubin_elf_is_mercury(e))
		       ? cubin_refuse_own(
				 r, "variables, which this image has for several architectures")
		       : 0;
}

/* ---- variables ---- */

struct making {
	const struct cubin_elf *e;
	cubin_address_fn *address;
	void *arg;
	struct report *r;
};

static bool is_variable(const struct cubin_elf *e, Elf64_Sym y)
{
	return ELF64_ST_TYPE(y.st_info) == STT_OBJECT && y.st_shndx != SHN_UNDEF &&
	       y.st_shndx < e->n_sections;
}

static bool is_of_driver(Elf64_Sym y)
{
	return ELF64_ST_TYPE(y.st_info) == STT_FUNC && y.st_shndx == SHN_UNDEF;
}

bool cubin_redirects_half(const struct cubin_elf *e, uint32_t text, const struct cubin_reloc *l)
{
	uint64_t bytes = e->sections[text].sh_size;
	unsigned op;

	/* the first instruction moves */
	if ((l->type != RELOC_LOW && l->type != RELOC_HIGH) || !l->has_addend ||
	    l->offset % CUBIN_INSN_BYTES || l->offset < CUBIN_INSN_BYTES ||
	    bytes < CUBIN_INSN_BYTES || l->offset > bytes - CUBIN_INSN_BYTES ||
	    !is_variable(e, cubin_elf_symbol(e, l->symbol))) {
		return false;
	}
	op = cubin_insn_op(cubin_insn_at(cubin_elf_data(e, text) + l->offset));
	return op == CUBIN_OP_MOV_IMM || op == CUBIN_OP_UMOV_IMM;
}

static uint64_t word_at(const struct cubin_elf *e, uint32_t section, uint64_t at)
{
	uint64_t word;

	memcpy(&word, cubin_elf_data(e, section) + at, sizeof(word));
	return word;
}

/* Adds the address of a relocation's symbol and what the driver adds to it. */
static int add(struct cubin_redirected *d, const struct making *m, size_t q)
{
	struct cubin_reloc l = cubin_elf_reloc(m->e, d->relocs, q);
	Elf64_Sym y = cubin_elf_symbol(m->e, l.symbol);
	const char *name = cubin_elf_symbol_name(m->e, &y);
	uint64_t at = 0;

	if (m->address && m->address(m->arg, name, &at) < 0) {
		return report_set(m->r, -ENOTSUP, "cubin",
				  "the driver has no address of the variable '%s'", name);
	}
	if (m->address) {
		at += l.has_addend ? (uint64_t)l.addend : word_at(m->e, d->section, l.offset);
	}
	if (l.type != RELOC_ADDRESS) {
		at = l.type == RELOC_HIGH ? at >> 32 : at & UINT32_MAX;
	}
	d->list[d->n++] = (struct cubin_redirect){ q, l.offset, at };
	return 0;
}

static int add_to_bank(struct cubin_redirected *d, const struct making *m, size_t q)
{
	struct cubin_reloc l = cubin_elf_reloc(m->e, d->relocs, q);
	Elf64_Sym y = cubin_elf_symbol(m->e, l.symbol);
	uint64_t bytes = m->e->sections[d->section].sh_size;

	if (bytes < 8 || l.offset > bytes - 8 || l.offset % 8) {
		return refuse_form(m->r);
	}
	if (is_of_driver(y)) {
		return 0;
	}
	return l.type == RELOC_ADDRESS && is_variable(m->e, y)
		       ? add(d, m, q)
		       : cubin_refuse_own(m->r, "functions, whose addresses it has");
}

static int add_to_code(struct cubin_redirected *d, const struct making *m, size_t q)
{
	struct cubin_reloc l = cubin_elf_reloc(m->e, d->relocs, q);

	return cubin_redirects_half(m->e, d->section, &l) ? add(d, m, q) : 0;
}

/* Finds the places in the section of d. */
static int find(struct cubin_redirected *d, const struct making *m,
		int (*each)(struct cubin_redirected *, const struct making *, size_t))
{
	int err = find_relocs(d, m->e, each == add_to_code, m->r);
	size_t n = !err && d->relocs ? cubin_elf_relocs(m->e, d->relocs) : 0;

	if (!err && n > VARIABLES_MAX) {
		err = cubin_refuse_own(m->r, "variables, which are too many");
	}
	if (!err) {
		d->list = calloc(n + 1, sizeof(*d->list));
		err = d->list ? 0 : -ENOMEM;
	}
	for (size_t q = 0; q < n && !err; q++) {
		err = each(d, m, q);
	}
	return err;
}

int cubin_redirects_make(struct cubin_redirects *ret, const struct cubin_elf *e,
			 struct cubin_uses uses, cubin_address_fn *address, void *arg,
			 struct report *r)
{
	const struct making m = { e, address, arg, r };
	struct cubin_redirects d = { .code.section = uses.code };
	int err = uses.bank ? find_bank(&d.bank, e, r) : 0;

	if (!err && uses.bank) {
		err = find(&d.bank, &m, add_to_bank);
	}
	if (!err && uses.code) {
		err = find(&d.code, &m, add_to_code);
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
	free(d->bank.list);
	free(d->code.list);
	memset(d, 0, sizeof(*d));
}

/* ---- the copy ---- */

size_t cubin_redirects_reloc_bytes(const struct cubin_redirected *d, const struct cubin_elf *e)
{
	size_t each = (size_t)e->sections[d->relocs].sh_entsize;

	return (cubin_elf_relocs(e, d->relocs) - d->n) * each;
}

void cubin_redirects_write_bank(uint8_t *to, const struct cubin_redirected *d,
				const struct cubin_elf *e)
{
	memcpy(to, cubin_elf_data(e, d->section), e->sections[d->section].sh_size);
	for (size_t i = 0; i < d->n; i++) {
		memcpy(to + d->list[i].offset, &d->list[i].value, sizeof(uint64_t));
	}
}

void cubin_redirects_write_code(uint8_t *to, const struct cubin_redirected *d)
{
	for (size_t i = 0; i < d->n; i++) {
		cubin_put32(to + d->list[i].offset + CUBIN_INSN_IMMEDIATE,
			    (uint32_t)d->list[i].value);
	}
}

void cubin_redirects_write_relocs(uint8_t *to, const struct cubin_redirected *d,
				  const struct cubin_elf *e)
{
	size_t each = (size_t)e->sections[d->relocs].sh_entsize, next = 0;
	const uint8_t *from = cubin_elf_data(e, d->relocs);

	for (size_t q = 0; q < cubin_elf_relocs(e, d->relocs); q++) {
		if (next < d->n && d->list[next].reloc == q) {
			next++;
		} else {
			memcpy(to, from + q * each, each);
			to += each;
		}
	}
}

/* Copies of an image that run one kernel with a stub of its own, beside the image that the program
 * has loaded. A copy has variables, constants, textures and numbers of functions of its own.
 * Compiled code names them by constant banks other than those of the kernel, by relocations, and by
 * calls through registers. A kernel that uses variables by their addresses in bank 4, or in its
 * instructions, runs in a copy that has those of the program's module there, and cubin_calls.c
 * knows which calls are the same in a copy; a kernel that uses the others cannot be copied. */
#include <errno.h>
#include <string.h>

#include "cubin/cubin.h"
#include "cubin/cubin_copy_int.h"
#include "cubin/cubin_insn_int.h"

#define SYMBOL_TYPES_PLAIN 4u /* types from 10 on are textures, samplers and surfaces */

/* ---- code ---- */

#define BANK_NONE 32u
#define OFFSET_AT 38u /* first bit of the offset in a constant operand */
#define OFFSET_AT_LDCU 37u
#define BANK_VARIABLES 4u

/* Returns the bank of an operand in constant memory. These have forms 3 and 5 and their bank at one
 * place; bank 0 has the parameters, bank 2 constants of the compiler, bank 4 addresses. */
static unsigned bank_of(struct cubin_insn i)
{
	unsigned form = cubin_insn_op(i) >> 9;

	return (form == 3 || form == 5) && cubin_insn_base(i) != CUBIN_BASE_BAR
		       ? (unsigned)(i.lo >> 54) & 0x1f
		       : BANK_NONE;
}

static bool has_variables(const struct cubin_elf *e)
{
	for (uint32_t i = 1; i < e->n_symbols; i++) {
		if (ELF64_ST_TYPE(cubin_elf_symbol(e, i).st_info) == STT_OBJECT) {
			return true;
		}
	}
	return false;
}

static bool has_constants(const struct cubin_elf *e)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (cubin_elf_suffix(e, i, ".nv.constant3")) {
			return true;
		}
	}
	return false;
}

/* Generic addresses of constants are computed from the address of bank 3, a word of bank 0. */
static bool reads_address(const struct cubin_elf *e, struct cubin_insn i)
{
	uint32_t word = e->arch >= 100 ? 0x120 : e->arch >= 90 ? 0xd0 : 0x50;
	unsigned first = cubin_insn_op(i) == CUBIN_OP_LDCU ? OFFSET_AT_LDCU : OFFSET_AT;
	uint32_t offset = (uint32_t)(i.lo >> first & 0xffff);

	return bank_of(i) == 0 && offset >= word - 4 && offset < word + 8;
}

/* The soft GPU's code does not show what it uses. */
static int check_code(const struct cubin_elf *e, uint32_t text, struct cubin_uses *ret,
		      struct report *r)
{
	const uint8_t *code = cubin_elf_data(e, text);
	bool variables = has_variables(e), constants = has_constants(e), unknown = false;
	int err = cubin_calls_check(e, text, &unknown);

	if (err < 0) {
		return err;
	}
	if (unknown) {
		return cubin_refuse_own(r, "functions, which it calls in an unknown form");
	}
	for (size_t at = 0; at + CUBIN_INSN_BYTES <= e->sections[text].sh_size;
	     at += CUBIN_INSN_BYTES) {
		struct cubin_insn i = cubin_insn_at(code + at);
		unsigned bank = bank_of(i);

		if (cubin_insn_op(i) == CUBIN_OP_NONE && constants) {
			return cubin_refuse_own(r, "constants of the module");
		}
		if (bank == BANK_VARIABLES || (variables && cubin_insn_op(i) == CUBIN_OP_NONE)) {
			ret->bank = true;
		} else if ((bank != 0 && bank != 2 && bank != BANK_NONE) ||
			   (constants && reads_address(e, i))) {
			return cubin_refuse_own(r, "constants of the module");
		}
	}
	return 0;
}

/* ---- relocations ---- */

/* Returns true if the section is the kernel's code, or constants that its code may read. */
static bool is_read(const struct cubin_elf *e, uint32_t section, uint32_t text, const char *kernel)
{
	const char *bank = cubin_elf_suffix(e, section, ".nv.constant");

	if (section == text || !bank) {
		return section == text;
	}
	bank += strcspn(bank, ".");
	return !*bank || strcmp(bank + 1, kernel) == 0;
}

/* Returns true if what a symbol names is the kernel's own. */
static bool is_own(const struct cubin_elf *e, Elf64_Sym y, uint32_t text, const char *kernel)
{
	const char *shared;

	if (y.st_shndx == SHN_UNDEF || y.st_shndx >= e->n_sections) {
		return false;
	}
	shared = cubin_elf_suffix(e, y.st_shndx, ".nv.shared.");
	return y.st_shndx == text ||
	       (shared && (!strcmp(shared, kernel) || !strncmp(shared, "reserved.", 9)));
}

/* Bank 4 has the addresses of all variables of the image; which of them a kernel reads is seen in
 * its code. */
static bool is_table(const struct cubin_elf *e, uint32_t section)
{
	return !strcmp(cubin_elf_name(e, section), ".nv.constant4") ||
	       !strcmp(cubin_elf_name(e, section), ".nv.constant3");
}

static int check_relocs(const struct cubin_elf *e, uint32_t text, const char *kernel,
			struct cubin_uses *ret, struct report *r)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		size_t n = cubin_elf_is_reloc(e, i) ? cubin_elf_relocs(e, i) : 0;
		uint32_t target = e->sections[i].sh_info;

		if (!n || target >= e->n_sections || is_table(e, target) ||
		    !is_read(e, target, text, kernel)) {
			continue;
		}
		for (size_t q = 0; q < n; q++) {
			struct cubin_reloc l = cubin_elf_reloc(e, i, q);

			if (target == text && cubin_redirects_half(e, text, &l)) {
				ret->code = text;
			} else if (!is_own(e, cubin_elf_symbol(e, l.symbol), text, kernel) &&
				   !(target == text && cubin_calls_driver(e, text, l))) {
				return cubin_refuse_own(r, "variables or functions of the module");
			}
		}
	}
	return 0;
}

/* ---- the image ---- */

static int check_symbols(const struct cubin_elf *e, struct report *r)
{
	for (uint32_t i = 1; i < e->n_symbols; i++) {
		if (ELF64_ST_TYPE(cubin_elf_symbol(e, i).st_info) > SYMBOL_TYPES_PLAIN) {
			return cubin_refuse_own(r, "texture references");
		}
	}
	return 0;
}

int cubin_copy_check(const struct cubin_elf *e, const struct cubin_scan *s,
		     const struct cubin_kernel *k, struct cubin_uses *ret, struct report *r)
{
	uint32_t text = s->parts[k - s->kernels].text;
	int err = check_symbols(e, r);

	*ret = (struct cubin_uses){ 0 };
	err = err ? err : check_code(e, text, ret, r);
	return err ? err : check_relocs(e, text, k->name, ret, r);
}

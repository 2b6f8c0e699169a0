/* Copies of an image that run one kernel with a stub of its own, beside the image that the program
 * has loaded. A copy has variables, constants, textures and numbers of functions of its own, so a
 * kernel that uses them cannot be copied. Compiled code names them by constant banks other than
 * those of the kernel, by relocations, and by calls through registers. */
#include <errno.h>
#include <string.h>

#include "cubin/cubin.h"
#include "cubin/cubin_copy_int.h"
#include "cubin/cubin_insn_int.h"

#define SYMBOL_TYPES_PLAIN 4u /* types from 10 on are textures, samplers and surfaces */

static int refuse(struct report *r, const char *why)
{
	(void)report_set(r, -ENOTSUP, "cubin", "a copy of the kernel would have its own %s", why);
	report_hint(r, "build it with PTX, or compile it with gBPF's ptxas (gbpf-run(1))");
	return -ENOTSUP;
}

/* ---- code ---- */

/* Operands in constant memory have forms 3 and 5 and their bank at one place; bank 0 has the
 * parameters, bank 2 constants of the compiler. */
static bool uses_constants(struct cubin_insn i)
{
	unsigned form = cubin_insn_op(i) >> 9, bank = (unsigned)(i.lo >> 54) & 0x1f;

	return (form == 3 || form == 5) && cubin_insn_base(i) != CUBIN_BASE_BAR && bank != 0 &&
	       bank != 2;
}

static bool calls_by_number(struct cubin_insn i)
{
	return cubin_insn_base(i) == CUBIN_BASE_CALL_ABS ||
	       (cubin_insn_base(i) == CUBIN_BASE_CALL_REL && cubin_insn_op(i) != CUBIN_OP_CALL_REL);
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

/* The soft GPU's code does not show what it uses. */
static int check_code(const struct cubin_elf *e, uint32_t text, struct report *r)
{
	const uint8_t *code = cubin_elf_data(e, text);
	bool variables = has_variables(e);

	for (size_t at = 0; at + CUBIN_INSN_BYTES <= e->sections[text].sh_size;
	     at += CUBIN_INSN_BYTES) {
		struct cubin_insn i = cubin_insn_at(code + at);

		if (calls_by_number(i)) {
			return refuse(r, "numbers of functions, which it calls by number");
		}
		if (uses_constants(i) || (variables && cubin_insn_op(i) == CUBIN_OP_NONE)) {
			return refuse(r, "variables or constants of the module");
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
			struct report *r)
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

			if (!is_own(e, cubin_elf_symbol(e, l.symbol), text, kernel)) {
				return refuse(r, "variables or functions of the module");
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
			return refuse(r, "texture references");
		}
	}
	return 0;
}

int cubin_copy_check(const struct cubin_elf *e, const struct cubin_scan *s,
		     const struct cubin_kernel *k, struct report *r)
{
	uint32_t text = s->parts[k - s->kernels].text;
	int err = check_symbols(e, r);

	err = err ? err : check_code(e, text, r);
	return err ? err : check_relocs(e, text, k->name, r);
}

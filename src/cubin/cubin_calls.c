/* Calls that leave the kernel's code. Compiled code calls functions of the driver (assert, printf,
 * malloc) by an address that it has just loaded from bank 4, where the driver puts it in a copy as
 * in the program's module; and functions of its own by their place in the kernel's code, which it
 * has just loaded from the kernel's bank 2, at the number that a pointer to a function is. These
 * numbers and places are constants of the image, so they agree in all modules that are loaded from
 * its bytes. Linkers, also the driver's, make calls of an absolute address that a relocation fills
 * in: those of functions of the driver have the same address in a copy. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin_copy_int.h"
#include "cubin/cubin_insn_int.h"

#define DISTANCE_MAX 64u /* instructions between the load and the call */
#define FORM_REGISTER 1u
#define FORM_CONSTANT 5u
#define BANK_ADDRESSES 4u
#define BANK_PLACES 2u
#define LOADED_REGISTERS 4u /* by one load at most, aligned */

#define RELOC_CALL 0x4bu /* the address in a call */

static bool is_of_driver(const struct cubin_elf *e, uint32_t symbol)
{
	static const char *const names[] = { "malloc", "free", "vprintf", "__assertfail" };
	Elf64_Sym y = cubin_elf_symbol(e, symbol);

	for (size_t i = 0; i < ARRAY_SIZE(names) && y.st_shndx == SHN_UNDEF; i++) {
		if (strcmp(cubin_elf_symbol_name(e, &y), names[i]) == 0) {
			return true;
		}
	}
	return false;
}

bool cubin_calls_driver(const struct cubin_elf *e, uint32_t text, struct cubin_reloc l)
{
	uint64_t bytes = e->sections[text].sh_size;
	struct cubin_insn i;

	if (l.type != RELOC_CALL || l.addend || l.offset % CUBIN_INSN_BYTES ||
	    bytes < CUBIN_INSN_BYTES || l.offset > bytes - CUBIN_INSN_BYTES ||
	    !is_of_driver(e, l.symbol)) {
		return false;
	}
	i = cubin_insn_at(cubin_elf_data(e, text) + l.offset);
	return cubin_insn_op(i) == CUBIN_OP_CALL_ABS;
}

/* Marks the calls whose address is that of a function of the driver. */
static void mark_driver(const struct cubin_elf *e, uint32_t text, bool *driver)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		size_t n = cubin_elf_is_reloc(e, i) && e->sections[i].sh_info == text
				   ? cubin_elf_relocs(e, i)
				   : 0;

		for (size_t q = 0; q < n; q++) {
			struct cubin_reloc l = cubin_elf_reloc(e, i, q);

			if (cubin_calls_driver(e, text, l)) {
				driver[l.offset / CUBIN_INSN_BYTES] = true;
			}
		}
	}
}

static bool is_call(struct cubin_insn i)
{
	return cubin_insn_base(i) == CUBIN_BASE_CALL_ABS ||
	       (cubin_insn_base(i) == CUBIN_BASE_CALL_REL && cubin_insn_op(i) != CUBIN_OP_CALL_REL);
}

/* Whether other instructions than the one before may run before this one's successor. */
static bool is_jump(struct cubin_insn i)
{
	switch (cubin_insn_base(i)) {
	case CUBIN_BASE_BRA:
	case CUBIN_BASE_BSSY:
	case CUBIN_BASE_BSYNC:
	case CUBIN_BASE_BRX:
	case CUBIN_BASE_JMX:
	case CUBIN_BASE_RET:
	case CUBIN_BASE_CALL_ABS:
	case CUBIN_BASE_CALL_REL:
		return true;
	default:
		return cubin_insn_op(i) == CUBIN_OP_EXIT ||
		       cubin_insn_op(i) == CUBIN_OP_BRA_UNIFORM;
	}
}

static bool is_table_jump(struct cubin_insn i)
{
	return cubin_insn_base(i) == CUBIN_BASE_BRX || cubin_insn_base(i) == CUBIN_BASE_JMX;
}

static unsigned destination(struct cubin_insn i)
{
	return (unsigned)(i.lo >> 16) & 0xff;
}

/* Loads of memory write up to four registers, of which the first is a multiple of four. */
static bool is_load(struct cubin_insn i)
{
	unsigned base = cubin_insn_base(i);

	return base >= CUBIN_BASE_LD && base <= CUBIN_BASE_LDS && base != CUBIN_BASE_LDC;
}

static bool may_write(struct cubin_insn i, unsigned reg)
{
	unsigned first = reg - reg % LOADED_REGISTERS;

	return destination(i) == reg || destination(i) == reg + 1 ||
	       (is_load(i) && (destination(i) == first || destination(i) == first + 2));
}

static bool loads_from(struct cubin_insn i, unsigned bank)
{
	return cubin_insn_base(i) == CUBIN_BASE_LDC && cubin_insn_op(i) >> 9 == FORM_CONSTANT &&
	       (i.lo >> 54 & 0x1f) == bank && cubin_insn_predicate(i) == CUBIN_ALWAYS;
}

/* Marks the targets of branches: instructions that may follow others than the one before. */
static void mark_targets(const struct cubin_elf *e, const uint8_t *code, size_t n, bool *marks)
{
	for (size_t k = 0; k < n; k++) {
		struct cubin_insn i = cubin_insn_at(code + k * CUBIN_INSN_BYTES);
		int64_t to = is_jump(i) && !is_table_jump(i)
				     ? cubin_insn_target(e->arch, i, k * CUBIN_INSN_BYTES)
				     : -1;

		if (to >= 0 && (uint64_t)to / CUBIN_INSN_BYTES < n) {
			marks[to / CUBIN_INSN_BYTES] = true;
		}
	}
}

/* Returns true if the register of the call at instruction k was loaded from the bank that has what
 * such a call expects, and nothing between can have written it. */
static bool is_known(const uint8_t *code, size_t k, const bool *marks)
{
	struct cubin_insn call = cubin_insn_at(code + k * CUBIN_INSN_BYTES);
	unsigned reg = (unsigned)(call.lo >> 24) & 0xff;
	unsigned bank = cubin_insn_base(call) == CUBIN_BASE_CALL_ABS ? BANK_ADDRESSES : BANK_PLACES;

	if (cubin_insn_op(call) >> 9 != FORM_REGISTER) {
		return false;
	}
	for (size_t back = 1; back <= DISTANCE_MAX && back <= k && !marks[k - back + 1]; back++) {
		struct cubin_insn i = cubin_insn_at(code + (k - back) * CUBIN_INSN_BYTES);

		if (is_jump(i)) {
			return false;
		}
		if (may_write(i, reg)) {
			return destination(i) == reg && loads_from(i, bank);
		}
	}
	return false;
}

/* With jumps through tables not all targets are known. */
static bool all_known(const uint8_t *code, size_t n, const bool *marks, const bool *driver)
{
	bool any = false, tables = false;

	for (size_t k = 0; k < n; k++) {
		struct cubin_insn i = cubin_insn_at(code + k * CUBIN_INSN_BYTES);

		if (is_call(i) && !driver[k] && !is_known(code, k, marks)) {
			return false;
		}
		any = any || (is_call(i) && !driver[k]);
		tables = tables || is_table_jump(i);
	}
	return !any || !tables;
}

static bool has_pointers(const uint8_t *code, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		struct cubin_insn i = cubin_insn_at(code + k * CUBIN_INSN_BYTES);

		if (is_call(i) && cubin_insn_base(i) == CUBIN_BASE_CALL_REL) {
			return true;
		}
	}
	return false;
}

/* Returns true if the driver fills words of bank 2: then they are no constants of the image. */
static bool is_filled(const struct cubin_elf *e)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (cubin_elf_is_reloc(e, i) && cubin_elf_relocs(e, i) &&
		    e->sections[i].sh_info < e->n_sections &&
		    cubin_elf_suffix(e, e->sections[i].sh_info, ".nv.constant2")) {
			return true;
		}
	}
	return false;
}

int cubin_calls_check(const struct cubin_elf *e, uint32_t text, bool *ret_unknown)
{
	size_t n = e->sections[text].sh_size / CUBIN_INSN_BYTES;
	const uint8_t *code = cubin_elf_data(e, text);
	bool *marks = calloc(2 * (n + 1), sizeof(*marks)), *driver;

	if (!marks) {
		return -ENOMEM;
	}
	driver = marks + n + 1;
	mark_targets(e, code, n, marks);
	mark_driver(e, text, driver);
	*ret_unknown =
		!all_known(code, n, marks, driver) || (has_pointers(code, n) && is_filled(e));
	free(marks);
	return 0;
}

/* Variables of a copy that are to be those of the program's module. Compiled code has the address
 * of each in bank 4 or, after a linker, in the immediate operands of two instructions, and the
 * driver fills these places by relocations when it loads the image. In a copy the places have the
 * addresses in the program's module, and no relocations. */
#ifndef GBPF_CUBIN_CUBIN_REDIRECT_INT_H
#define GBPF_CUBIN_CUBIN_REDIRECT_INT_H

#include "cubin/cubin.h"
#include "cubin/cubin_elf_int.h"

/* Where a kernel's code has addresses of variables. */
struct cubin_uses {
	bool bank;     /* in bank 4 */
	uint32_t code; /* in instructions of this section; 0: none */
};

struct cubin_redirect {
	size_t reloc;	 /* number of the relocation that goes */
	uint64_t offset; /* in the section */
	uint64_t value;	 /* what stands there; in code: 32 bits */
};

/* What changes in one section. */
struct cubin_redirected {
	uint32_t section, relocs;    /* 0: none */
	struct cubin_redirect *list; /* owned; in the order of the relocations */
	size_t n;
};

struct cubin_redirects {
	struct cubin_redirected bank, code;
};

/* Reports what the kernel would have twice, with a remedy. Returns -ENOTSUP. */
int cubin_refuse_own(struct report *r, const char *why);

/* Returns whether a relocation of code fills in one half of a variable's address, in an instruction
 * of a known form. */
bool cubin_redirects_half(const struct cubin_elf *e, uint32_t text, const struct cubin_reloc *l);

/* Finds the variables and their addresses. address NULL: only checks that their places have known
 * forms; the addresses are 0. 0; -ENOTSUP with the reason; -ENOMEM. */
int cubin_redirects_make(struct cubin_redirects *ret, const struct cubin_elf *e,
			 struct cubin_uses uses, cubin_address_fn *address, void *arg,
			 struct report *r);
void cubin_redirects_finish(struct cubin_redirects *d);

/* Returns the bytes of the relocations that stay. */
size_t cubin_redirects_reloc_bytes(const struct cubin_redirected *d, const struct cubin_elf *e);
/* Write bank 4; the places in code that is written already; the relocations that stay. */
void cubin_redirects_write_bank(uint8_t *to, const struct cubin_redirected *d,
				const struct cubin_elf *e);
void cubin_redirects_write_code(uint8_t *to, const struct cubin_redirected *d);
void cubin_redirects_write_relocs(uint8_t *to, const struct cubin_redirected *d,
				  const struct cubin_elf *e);

#endif

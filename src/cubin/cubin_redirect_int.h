/* Variables of a copy that are to be those of the program's module: bank 4 has the address of each,
 * and the driver fills it by relocations when it loads the image. In a copy the bank has the
 * addresses in the program's module, and no relocations for them. */
#ifndef GBPF_CUBIN_CUBIN_REDIRECT_INT_H
#define GBPF_CUBIN_CUBIN_REDIRECT_INT_H

#include "cubin/cubin.h"
#include "cubin/cubin_elf_int.h"

struct cubin_redirect {
	uint64_t offset, address; /* in bank 4; what stands there */
};

struct cubin_redirects {
	uint32_t bank, relocs;	     /* sections; 0: none */
	struct cubin_redirect *list; /* owned; in the order of the relocations */
	size_t n;
};

/* Finds the variables in bank 4 and their addresses. address NULL: only checks that there is a bank
 * of a known form; the addresses are 0. 0; -ENOTSUP with the reason; -ENOMEM. */
int cubin_redirects_make(struct cubin_redirects *ret, const struct cubin_elf *e,
			 cubin_address_fn *address, void *arg, struct report *r);
void cubin_redirects_finish(struct cubin_redirects *d);

/* Returns true if relocation q of the section stays: its symbol is a function of the driver. */
bool cubin_redirects_keep(const struct cubin_elf *e, uint32_t relocs, size_t q);
/* Returns the bytes of the relocations that stay. */
size_t cubin_redirects_reloc_bytes(const struct cubin_redirects *d, const struct cubin_elf *e);
/* Write the two sections. */
void cubin_redirects_write_bank(uint8_t *to, const struct cubin_redirects *d,
				const struct cubin_elf *e);
void cubin_redirects_write_relocs(uint8_t *to, const struct cubin_redirects *d,
				  const struct cubin_elf *e);

#endif

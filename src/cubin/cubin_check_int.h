/* The checker's parts. They share with the patcher how ELF and attributes are read, and the stub;
 * nothing of how an image is laid out or written. */
#ifndef GBPF_CUBIN_CUBIN_CHECK_INT_H
#define GBPF_CUBIN_CUBIN_CHECK_INT_H

#include "cubin/cubin_elf_int.h"
#include "cubin/cubin_redirect_int.h"
#include "cubin/cubin_stub_int.h"

struct cubin_check_kernel {
	const char *name;
	uint32_t text, info, bank, symbol; /* the same numbers in both images */
	bool patched;
	bool has_regcount;
	uint32_t arg_offset;
	uint32_t n_params;
};

struct cubin_checking {
	struct cubin_elf old, new;
	const struct cubin_stub *stub;
	struct cubin_check_kernel *kernels; /* owned */
	size_t n;
	uint32_t *kernel_of; /* owned; by section (text, attributes, bank): index + 1 */
	const struct cubin_redirects *redirects; /* NULL: none */
	struct report *r;
};

/* As cubin_check(), of a copy in which bank 4 and the code have these addresses; NULL: as the
 * original's. */
int cubin_check_copy(const void *original, size_t original_bytes, const void *result,
		     size_t result_bytes, const struct cubin_stub *s,
		     const struct cubin_redirects *d, struct report *r);

/* Each returns 0, or -ENOEXEC with the first difference in c->r. */
int cubin_check_code(const struct cubin_checking *c, const struct cubin_check_kernel *k);
/* Also finds k->arg_offset and n_params; runs before the others. */
int cubin_check_info(const struct cubin_checking *c, struct cubin_check_kernel *k);
int cubin_check_bank(const struct cubin_checking *c, const struct cubin_check_kernel *k);
/* Attributes of the image (.nv.info). */
int cubin_check_image_info(const struct cubin_checking *c, uint32_t section);

/* Returns true if section i has addresses, or relocations, that a copy has replaced. */
bool cubin_check_is_redirected(const struct cubin_checking *c, uint32_t i);
/* Returns true if section i is the relocations of such addresses. */
bool cubin_check_loses_relocs(const struct cubin_checking *c, uint32_t i);
/* Bank 4 and the relocations, in a copy. */
int cubin_check_redirects(const struct cubin_checking *c);
/* Returns whether the code of both images, without what is behind the old code's end and the first
 * instruction, differs in such addresses only. */
bool cubin_check_same_code(const struct cubin_checking *c, uint32_t text);

#endif

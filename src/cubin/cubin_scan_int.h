/* The kernels of a cubin: where their parts lie, and what is known about each. */
#ifndef GBPF_CUBIN_CUBIN_SCAN_INT_H
#define GBPF_CUBIN_CUBIN_SCAN_INT_H

#include "base/strmap.h"
#include "cubin/cubin.h"
#include "cubin/cubin_elf_int.h"

#define CUBIN_ENTRY_BYTES 16u /* of the first instruction */

/* Parts of one kernel; 0 stands for none. */
struct cubin_parts {
	uint32_t text, info, bank;		   /* sections */
	uint32_t symbol, bank_symbol;		   /* of the kernel; of the bank's section */
	uint32_t regcount_at;			   /* offset in the image of its register count */
	uint32_t base;				   /* address of the first parameter in bank 0 */
	uint32_t bank_bytes;			   /* of parameters, as PARAM_CBANK says */
	uint32_t size_bytes;			   /* as CBANK_PARAM_SIZE says */
	uint32_t max_registers;			   /* limit it was compiled with */
	bool odd_params;			   /* parameters of an unknown form */
	bool odd_form;				   /* an attribute that rules patching out */
	uint8_t records[CUBIN_ATTR_KNOWN_MAX + 1]; /* count of records by attribute, at most 255 */
};

struct cubin_scan {
	const struct cubin_elf *elf;  /* borrowed */
	struct cubin_kernel *kernels; /* owned unless taken; names and params point below */
	struct cubin_parts *parts;    /* owned; of the same index */
	size_t n;
	struct strmap names;	    /* kernel's name -> kernel */
	struct cubin_param *params; /* owned unless taken; of all kernels */
	uint32_t *kernel_of;	    /* owned; by section (text, attributes, bank): index + 1 */
};

/* Fills a scan of e. A kernel's `why` is CUBIN_OK unless what it consists of rules patching out.
 * 0, -ENOEXEC, -ENOMEM. e must outlive it. */
int cubin_scan_open(struct cubin_scan *s, const struct cubin_elf *e, struct report *r);
void cubin_scan_finish(struct cubin_scan *s);

/* Reads a kernel's attributes; adds its parameters at `params`, which has room for all of them. */
int cubin_scan_attrs(const struct cubin_elf *e, struct cubin_parts *p, struct cubin_kernel *k,
		     struct cubin_param *params, struct report *r);
/* Returns the count of parameters that a section of attributes lists; -ENOEXEC. */
int cubin_scan_params(const struct cubin_elf *e, uint32_t info);
/* Reads a kernel's code: facts, hash, branches to the first instruction. */
void cubin_scan_code(const struct cubin_elf *e, const struct cubin_parts *p,
		     struct cubin_kernel *k);

#endif

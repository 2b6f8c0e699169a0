/* What patching changes in an image: sizes of the changed sections, and where everything goes. */
#ifndef GBPF_CUBIN_CUBIN_PLAN_INT_H
#define GBPF_CUBIN_CUBIN_PLAN_INT_H

#include "cubin/cubin_scan_int.h"
#include "cubin/cubin_stub_int.h"

/* Decides for each kernel whether it is patched; sets why, arg_offset and patched_registers.
 * Returns the count of those that are. */
size_t cubin_plan_kernels(struct cubin_scan *s, const struct cubin_stub *stub);

/* Returns why no stub can be inserted into a kernel, as far as that does not depend on the stub, or
 * CUBIN_OK. */
enum cubin_why cubin_plan_form(const struct cubin_scan *s, const struct cubin_parts *p,
			       const struct cubin_kernel *k);

/* Sizes of a patched kernel's sections. */
size_t cubin_plan_text(const struct cubin_kernel *k, const struct cubin_stub *stub);
size_t cubin_plan_bank(const struct cubin_kernel *k, const struct cubin_stub *stub);
size_t cubin_plan_info(const struct cubin_elf *e, const struct cubin_parts *p,
		       const struct cubin_stub *stub);

/* Write them. `to` has exactly the bytes that the functions above return. */
void cubin_write_text(uint8_t *to, const struct cubin_elf *e, const struct cubin_parts *p,
		      const struct cubin_kernel *k, const struct cubin_stub *stub);
void cubin_write_bank(uint8_t *to, const struct cubin_elf *e, const struct cubin_parts *p,
		      const struct cubin_kernel *k, const struct cubin_stub *stub);
void cubin_write_info(uint8_t *to, const struct cubin_elf *e, const struct cubin_parts *p,
		      const struct cubin_kernel *k, const struct cubin_stub *stub);

/* Where the parts of the new image go. */
struct cubin_layout {
	uint64_t *offset, *bytes; /* owned; by section */
	uint32_t *order;	  /* owned; sections in the order of the file, then of the table */
	uint64_t sections_at, segments_at;
	uint64_t total;
};
/* Computes the new offsets; l->bytes has the new sizes. 0, -ENOEXEC, -ENOMEM. */
int cubin_layout_init(struct cubin_layout *l, const struct cubin_elf *e);
int cubin_layout_make(struct cubin_layout *l, const struct cubin_elf *e, struct report *r);
void cubin_layout_finish(struct cubin_layout *l);
/* Moves a segment to where its sections went. 0 or -ENOEXEC. */
int cubin_layout_segment(const struct cubin_layout *l, const struct cubin_elf *e, Elf64_Phdr *p,
			 struct report *r);

#endif

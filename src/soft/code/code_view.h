/* A cubin that is read: its sections by name and its kernels' symbols. Every offset and size in it
 * is checked before use. Internal to the room. */
#ifndef GBPF_SOFT_CODE_CODE_VIEW_H
#define GBPF_SOFT_CODE_CODE_VIEW_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/strmap.h"

/* What is known of a section that holds a kernel's code. */
struct soft_view_code {
	uint64_t symbol_bytes; /* 0: no symbol */
	uint32_t registers;
	bool claimed; /* belongs to an entry of the PTX */
};

struct soft_view {
	const uint8_t *data; /* borrowed */
	size_t bytes;
	Elf64_Ehdr head;
	struct strmap by_name;	     /* section indices */
	struct soft_view_code *code; /* owned; one for each section */
};

/* Returns 0; -EINVAL: not well-formed; -ENOMEM. Finish always. */
int soft_view_open(struct soft_view *v, const void *image, size_t bytes);
void soft_view_finish(struct soft_view *v);

/* Returns the header of section index; false if its contents are not within the file. */
bool soft_view_section(const struct soft_view *v, uint32_t index, Elf64_Shdr *ret);
/* Returns the index of section PREFIX or PREFIX.NAME; 0: there is none. */
uint32_t soft_view_find(const struct soft_view *v, const char *prefix, const char *name);

/* One attribute of an .nv.info section. */
struct soft_view_attribute {
	uint8_t format, number;
	uint16_t value; /* of a byte or half */
	const uint8_t *data;
	uint32_t bytes;
};

/* Reads the attribute at *at, which advances. Returns 1; 0 at the end; -EINVAL. */
int soft_view_attribute(const struct soft_view *v, const Elf64_Shdr *s, uint64_t *at,
			struct soft_view_attribute *ret);
/* Returns the word at index of an attribute's data, 0 beyond its end. */
uint32_t soft_view_word(const struct soft_view_attribute *a, uint32_t index);

#endif

/* An ELF file in the making. Internal to the room. */
#ifndef GBPF_SOFT_CODE_CODE_ELF_H
#define GBPF_SOFT_CODE_CODE_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Sections 1 to 3 of each file. */
enum { SOFT_ELF_SHSTRTAB = 1, SOFT_ELF_STRTAB, SOFT_ELF_SYMTAB };

struct soft_elf_section {
	Elf64_Shdr head; /* sh_name, sh_offset and, unless SHT_NOBITS, sh_size are set at the end */
	struct buf data;
};

struct soft_elf {
	struct soft_elf_section *sections; /* owned */
	uint32_t n, cap;
	struct buf names, strings, symbols; /* of the first three */
	uint32_t locals;		    /* symbols before the first global one */
	int failed;			    /* -ENOMEM */
};

void soft_elf_init(struct soft_elf *e);
void soft_elf_finish(struct soft_elf *e);

/* Adds a section, named PREFIX or PREFIX.NAME; returns its index. */
uint32_t soft_elf_section(struct soft_elf *e, const char *prefix, const char *name, uint32_t type,
			  uint64_t flags, uint64_t align);
/* Returns a section, valid until the next is added; never NULL. */
struct soft_elf_section *soft_elf_at(struct soft_elf *e, uint32_t index);

/* Adds a symbol; returns its index. Local ones are added before the first global one. */
uint32_t soft_elf_symbol(struct soft_elf *e, const char *name, Elf64_Sym s);
uint32_t soft_elf_symbols(const struct soft_elf *e);

/* Appends the file. Returns 0; -ENOMEM. */
int soft_elf_write(struct soft_elf *e, struct buf *out);

#endif

/* The mark of a rewritten module, by which its clones are found again in machine code that another
 * compiler made of it: a variable whose name begins with PTX_BLOCK_MARK holds the list of the
 * module's entries. Everything in it is checked before use; a forged list only makes launches of
 * its own program fail. */
#ifndef GBPF_PTX_BLOCK_MARK_H
#define GBPF_PTX_BLOCK_MARK_H

#include "ptx/block.h"

#define PTX_BLOCK_MARK "gbpf$twins_"
#define PTX_BLOCK_MARK_ENTRIES_MAX 65536u
#define PTX_BLOCK_MARK_WORDS_MAX (1u << 22)

/* Appends the variable's declaration. id distinguishes modules that are linked together. Returns 0
 * or -ENOMEM. */
int ptx_block_mark_print(struct buf *out, const struct ptx_block_entry *entries, uint32_t n,
			 uint64_t id);

/* Reads the entries of a list into the arena. Returns 0; -ENOENT: another version, or corrupt;
 * -ENOMEM. */
int ptx_block_mark_read(struct ptx_arena *arena, const void *list, size_t bytes,
			const struct ptx_block_entry **ret, uint32_t *ret_n);
/* As above for a module, in its arena. -ENOENT also if it has no such variable. */
int ptx_block_mark_of_module(struct ptx_module *m, const struct ptx_block_entry **ret,
			     uint32_t *ret_n);

/* As above for machine code, an ELF file in memory (src/ptx/block/block_code.c); for linked
 * modules, the entries of all. bytes 0: as large as its header states, which the driver relies on
 * as well. */
int ptx_block_mark_of_code(struct ptx_arena *arena, const void *image, size_t bytes,
			   const struct ptx_block_entry **ret, uint32_t *ret_n);

/* Finds variable i, from 0, of machine code whose name begins with the prefix, of at most 16
 * characters. 0, and its contents in the image; -ENOENT. */
int ptx_block_code_variable(const void *image, size_t bytes, const char *prefix, uint32_t i,
			    const uint8_t **ret, size_t *ret_bytes);

#endif

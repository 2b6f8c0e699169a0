/* What a module that has been rewritten says of itself, so that its twins are found again in
 * machine code that others made of it: a variable whose name begins with PTX_BLOCK_MARK holds the
 * list of the module's entries. Nothing of it is believed before it is checked; a list that lies
 * makes launches of its own program fail, and nothing else. */
#ifndef GBPF_PTX_BLOCK_MARK_H
#define GBPF_PTX_BLOCK_MARK_H

#include "ptx/block.h"

#define PTX_BLOCK_MARK "gbpf$twins_"
#define PTX_BLOCK_MARK_ENTRIES_MAX 65536u
#define PTX_BLOCK_MARK_WORDS_MAX (1u << 22)

/* Appends the variable's declaration. id tells modules that are linked together apart. 0 or
 * -ENOMEM. */
int ptx_block_mark_print(struct buf *out, const struct ptx_block_entry *entries, uint32_t n,
			 uint64_t id);

/* The entries of a list, of arena. 0; -ENOENT: of another version, or broken; -ENOMEM. */
int ptx_block_mark_read(struct ptx_arena *arena, const void *list, size_t bytes,
			const struct ptx_block_entry **ret, uint32_t *ret_n);
/* The same of a module that has the variable, of its arena. -ENOENT: it has none, too. */
int ptx_block_mark_of_module(struct ptx_module *m, const struct ptx_block_entry **ret,
			     uint32_t *ret_n);

/* The same of machine code, an ELF file in memory (src/ptx/block/block_code.c); of modules that
 * were linked, the entries of all. bytes 0: as long as its header says, which the driver believes
 * as well. */
int ptx_block_mark_of_code(struct ptx_arena *arena, const void *image, size_t bytes,
			   const struct ptx_block_entry **ret, uint32_t *ret_n);

#endif

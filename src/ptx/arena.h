/* Memory that is freed all at once; holds the parts of a PTX module. */
#ifndef GBPF_PTX_ARENA_H
#define GBPF_PTX_ARENA_H

#include <stddef.h>

struct ptx_arena_chunk;

struct ptx_arena {
	struct ptx_arena_chunk *chunks; /* owned, newest first */
	size_t used;			/* bytes allocated */
	size_t limit;			/* 0: PTX_ARENA_LIMIT */
};

#define PTX_ARENA_LIMIT ((size_t)1 << 30)

void ptx_arena_init(struct ptx_arena *a);
void ptx_arena_finish(struct ptx_arena *a);

/* Returns zeroed memory aligned for any type; NULL if memory or the limit is exhausted. Valid until
 * finish. */
void *ptx_arena_alloc(struct ptx_arena *a, size_t bytes);
/* As above for n objects; NULL also if n * bytes overflows. */
void *ptx_arena_array(struct ptx_arena *a, size_t n, size_t bytes);
/* Returns a zero-terminated copy. */
char *ptx_arena_text(struct ptx_arena *a, const char *text, size_t len);

#endif

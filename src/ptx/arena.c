/* Bump allocation in chunks that double up to a megabyte. */
#include "ptx/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define CHUNK_MIN ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)1 << 20)
#define ALIGNMENT ((size_t)16)

struct ptx_arena_chunk {
	struct ptx_arena_chunk *next;
	size_t used, cap; /* size of the data behind this header */
};

#define HEADER ROUND_UP(sizeof(struct ptx_arena_chunk), ALIGNMENT)

void ptx_arena_init(struct ptx_arena *a)
{
	*a = (struct ptx_arena){ 0 };
}

void ptx_arena_finish(struct ptx_arena *a)
{
	struct ptx_arena_chunk *next;

	for (struct ptx_arena_chunk *c = a->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	*a = (struct ptx_arena){ 0 };
}

static struct ptx_arena_chunk *chunk_add(struct ptx_arena *a, size_t bytes)
{
	size_t cap = a->chunks ? MIN(a->chunks->cap * 2, CHUNK_MAX) : CHUNK_MIN;
	size_t limit = a->limit ? a->limit : PTX_ARENA_LIMIT;
	struct ptx_arena_chunk *c;

	cap = MAX(cap, bytes);
	if (cap > limit || a->used > limit - cap) {
		return NULL;
	}
	c = calloc(1, HEADER + cap);
	if (!c) {
		return NULL;
	}
	c->cap = cap;
	c->next = a->chunks;
	a->chunks = c;
	a->used += cap;
	return c;
}

void *ptx_arena_alloc(struct ptx_arena *a, size_t bytes)
{
	struct ptx_arena_chunk *c = a->chunks;
	void *p;

	if (bytes > PTX_ARENA_LIMIT) {
		return NULL;
	}
	bytes = ROUND_UP(MAX(bytes, (size_t)1), ALIGNMENT);
	if (!c || c->cap - c->used < bytes) {
		c = chunk_add(a, bytes);
		if (!c) {
			return NULL;
		}
	}
	p = (char *)c + HEADER + c->used;
	c->used += bytes;
	return p;
}

void *ptx_arena_array(struct ptx_arena *a, size_t n, size_t bytes)
{
	size_t total;

	if (checked_mul(n, bytes, &total)) {
		return NULL;
	}
	return ptx_arena_alloc(a, total);
}

char *ptx_arena_text(struct ptx_arena *a, const char *text, size_t len)
{
	char *p = len < SIZE_MAX ? ptx_arena_alloc(a, len + 1) : NULL;

	if (p) {
		memcpy(p, text, len);
	}
	return p;
}

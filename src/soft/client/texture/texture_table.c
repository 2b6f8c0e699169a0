/* The tables of texture and surface objects, one for each context. Objects lie in pinned memory, so
 * that kernels read them without a request to the server; what only the program asks for is kept
 * beside. A destroyed object stays in its place until no launch can use it: it is reused when its
 * context was idle, or has been drained because every place is taken. */
#include "soft/client/texture/texture_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/client/memory/memory.h"
#include "soft/client/ring_submit.h"
#include "soft/client/stream/stream.h"

#define CHUNK 256u	 /* objects that are allocated together */
#define CHUNKS_MAX 256u	 /* per context */
#define RECYCLE_MIN 128u /* destroyed objects that make looking for reusable ones worth it */
#define NONE UINT32_MAX

struct slot {
	struct soft_texture_record record;
	uint32_t next; /* in the list of free or of dead ones */
	uint32_t use;  /* number of the last use, in the handle */
	bool live;
};

struct soft_textures {
	uint64_t memory[CHUNKS_MAX]; /* address of each chunk, for kernels and for this process */
	struct slot *slots[CHUNKS_MAX];
	uint32_t n_chunks;
	uint32_t free, dead; /* heads of lists, or NONE */
	uint32_t n_dead;
};

static struct lock lock = LOCK_INITIALIZER(SOFT_TEXTURES); /* guards all tables */

static struct slot *slot_at(const struct soft_textures *s, uint32_t i)
{
	return &s->slots[i / CHUNK][i % CHUNK];
}

static uint64_t address_at(const struct soft_textures *s, uint32_t i)
{
	return s->memory[i / CHUNK] + (uint64_t)(i % CHUNK) * SOFT_TEXTURE_ALIGN;
}

static struct soft_texture *object_at(const struct soft_textures *s, uint32_t i)
{
	return (struct soft_texture *)(uintptr_t)address_at(s, i);
}

/* Returns whether everything submitted to the context has ended. */
static bool is_idle(const struct CUcontext_st *ctx)
{
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		if (soft_stream_slot_is(i, ctx) &&
		    !soft_word_reached(&soft.shared->streams[i].done,
				       load_acquire(&soft.stream_count[i]))) {
			return false;
		}
	}
	return true;
}

/* Makes the dead objects free. No launch uses them any more. */
static void recycle(struct soft_textures *s) REQUIRES(lock)
{
	while (s->dead != NONE) {
		uint32_t i = s->dead;
		struct slot *slot = slot_at(s, i);

		store_release(&object_at(s, i)->handle, UINT64_C(0));
		s->dead = slot->next;
		slot->next = s->free;
		s->free = i;
	}
	s->n_dead = 0;
}

static CUresult grow(struct soft_textures *s, CUcontext ctx) REQUIRES(lock)
{
	struct soft_range hidden = { .kind = SOFT_RANGE_HOST, .hidden = 1 };
	uint32_t n = s->n_chunks;
	CUresult e;

	if (n == CHUNKS_MAX) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->slots[n] = calloc(CHUNK, sizeof(*s->slots[n]));
	if (!s->slots[n]) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e = soft_memory_create(ctx, (uint64_t)CHUNK * SOFT_TEXTURE_ALIGN, &hidden, &s->memory[n],
			       NULL);
	if (e) {
		free(s->slots[n]);
		return e;
	}
	for (uint32_t i = CHUNK; i-- > 0;) {
		s->slots[n][i].next = s->free;
		s->free = n * CHUNK + i;
	}
	s->n_chunks++;
	return CUDA_SUCCESS;
}

/* Takes a place. Returns CUDA_ERROR_NOT_READY if the context has to be drained first. */
static CUresult take(struct soft_textures *s, CUcontext ctx, uint32_t *ret) REQUIRES(lock)
{
	CUresult e = CUDA_SUCCESS;

	if (s->free == NONE && s->n_dead >= RECYCLE_MIN && is_idle(ctx)) {
		recycle(s);
	}
	if (s->free == NONE) {
		e = grow(s, ctx);
	}
	if (e == CUDA_ERROR_OUT_OF_MEMORY && s->n_dead) {
		return CUDA_ERROR_NOT_READY;
	}
	if (!e) {
		*ret = s->free;
		s->free = slot_at(s, *ret)->next;
	}
	return e;
}

static CUresult table_of(CUcontext ctx, struct soft_textures **ret) REQUIRES(lock)
{
	if (!ctx->textures) {
		ctx->textures = calloc(1, sizeof(*ctx->textures));
		if (!ctx->textures) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		ctx->textures->free = ctx->textures->dead = NONE;
	}
	*ret = ctx->textures;
	return CUDA_SUCCESS;
}

/* Takes a place and locks the table, unless it fails. */
static CUresult take_locked(CUcontext ctx, struct soft_textures **ret, uint32_t *ret_index)
	ACQUIRES_IF(false, lock)
{
	CUresult e;

	for (;;) {
		lock_take(&lock);
		e = table_of(ctx, ret);
		e = e ? e : take(*ret, ctx, ret_index);
		if (!e) {
			return e;
		}
		lock_release(&lock);
		if (e == CUDA_ERROR_NOT_READY) {
			e = soft_context_drain(ctx);
			if (e) {
				return e;
			}
			lock_take(&lock);
			recycle(*ret);
			lock_release(&lock);
			continue;
		}
		return e;
	}
}

CUresult soft_texture_add(CUcontext ctx, const struct soft_texture *t,
			  const struct soft_texture_record *record, uint64_t *ret_handle)
{
	struct soft_textures *s;
	struct soft_texture *to;
	struct slot *slot;
	uint32_t i = 0;
	CUresult e = take_locked(ctx, &s, &i);

	if (e) {
		return e;
	}
	slot = slot_at(s, i);
	slot->use = slot->use % SOFT_TEXTURE_USE_MAX + 1;
	slot->live = true;
	slot->record = *record;
	to = object_at(s, i);
	*to = *t;
	to->dead_after = UINT64_MAX;
	*ret_handle = address_at(s, i) | (uint64_t)slot->use << SOFT_TEXTURE_USE_SHIFT;
	/* Last: a kernel that guesses a handle sees a complete object or none. */
	store_release(&to->handle, *ret_handle);
	lock_release(&lock);
	return CUDA_SUCCESS;
}

/* Finds a live object in a table. */
static struct slot *find_in(const struct soft_textures *s, uint64_t handle,
			    enum soft_texture_kind kind, uint32_t *ret) REQUIRES(lock)
{
	uint64_t address = handle & ((UINT64_C(1) << SOFT_TEXTURE_USE_SHIFT) - 1);

	for (uint32_t i = 0; s && i < s->n_chunks; i++) {
		uint64_t off = address - s->memory[i];
		struct slot *slot;

		if (off >= (uint64_t)CHUNK * SOFT_TEXTURE_ALIGN || off % SOFT_TEXTURE_ALIGN) {
			continue;
		}
		*ret = i * CHUNK + (uint32_t)(off / SOFT_TEXTURE_ALIGN);
		slot = slot_at(s, *ret);
		return slot->live && slot->use == handle >> SOFT_TEXTURE_USE_SHIFT &&
				       object_at(s, *ret)->kind == (uint32_t)kind
			       ? slot
			       : NULL;
	}
	return NULL;
}

/* Finds a live object in any context, with the lock held on return. Contexts are never freed, and
 * the table of one that was destroyed is NULL. */
static struct slot *find_locked(uint64_t handle, enum soft_texture_kind kind,
				struct soft_textures **ret, uint32_t *ret_index) ACQUIRES(lock)
{
	CUcontext contexts[SOFT_MAX_CONTEXTS];
	struct slot *found = NULL;

	lock_take(&soft.lock);
	memcpy(contexts, soft.contexts, sizeof(contexts));
	lock_release(&soft.lock);
	lock_take(&lock);
	for (uint32_t i = 0; i < SOFT_MAX_CONTEXTS && !found; i++) {
		*ret = contexts[i] ? contexts[i]->textures : NULL;
		found = find_in(*ret, handle, kind, ret_index);
	}
	return found;
}

void soft_texture_remove(uint64_t handle, enum soft_texture_kind kind)
{
	uint64_t written = soft_ring_written();
	struct soft_textures *s;
	uint32_t i;
	struct slot *slot = find_locked(handle, kind, &s, &i);

	if (slot) {
		slot->live = false;
		store_release(&object_at(s, i)->dead_after, written);
		slot->next = s->dead;
		s->dead = i;
		s->n_dead++;
	}
	lock_release(&lock);
}

CUresult soft_texture_find(uint64_t handle, enum soft_texture_kind kind,
			   struct soft_texture_record *ret)
{
	struct soft_textures *s;
	uint32_t i;
	const struct slot *slot = find_locked(handle, kind, &s, &i);

	if (slot) {
		*ret = slot->record;
	}
	lock_release(&lock);
	return slot ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void soft_texture_drop_context(CUcontext ctx)
{
	struct soft_textures *s;

	lock_take(&lock);
	s = ctx->textures;
	ctx->textures = NULL;
	lock_release(&lock);
	for (uint32_t i = 0; s && i < s->n_chunks; i++) {
		free(s->slots[i]);
	}
	free(s);
}

/* Small allocations that can leave the device (shim/mem/packs.h). Regions of packs are made and
 * freed in swap_region.c. */
#include "shim/mem/packs.h"

#include <stdlib.h>

#include "shim/mem/charge.h"
#include "shim/mem/swap_region.h"
#include "shim/object/green_context.h"
#include "shim/shim.h"

_Static_assert(MEM_PACK_BYTES == MEM_SWAP_UNIT && MEM_PACK_BYTES == SHIM_SWAP_MIN,
	       "a small allocation fits into a pack, which is one chunk");

/* The packs of a context on a row's device. */
static struct set {
	struct mem_pack_set packs; /* first: a pack leads to it */
	struct set *next;
	CUcontext ctx;
	int row;
	unsigned endings; /* of the context that may be under way: nothing is allocated here */
	bool ended;	  /* nothing is allocated here any more */
} * sets GUARDED_BY(shim_swap_mutex); /* owned */

/* ---- sets ---- */

static bool is_open(const struct set *s, CUcontext ctx, int row)
{
	return s->ctx == ctx && s->row == row && !s->endings && !s->ended;
}

/* Returns a set in which a context allocates, or NULL. */
static struct set *set_of(CUcontext ctx, int row) REQUIRES(shim_swap_mutex)
{
	struct set *s = sets;

	while (s && !is_open(s, ctx, row)) {
		s = s->next;
	}
	return s;
}

/* Frees a set if it has no packs. */
static void unset(struct set *s) REQUIRES(shim_swap_mutex)
{
	struct set **at = &sets;

	if (!s->packs.n) {
		while (*at != s) {
			at = &(*at)->next;
		}
		*at = s->next;
		free(s);
	}
}

static struct set *make_set(CUcontext ctx, int row) REQUIRES(shim_swap_mutex)
{
	struct set *s = calloc(1, sizeof(*s));

	if (s) {
		s->ctx = ctx;
		s->row = row;
		s->next = sets;
		sets = s;
	}
	return s;
}

void shim_packs_ending(CUcontext ctx, bool ending)
{
	for (struct set *s = sets; s; s = s->next) {
		if (s->ctx == ctx && ending) {
			s->endings++;
		} else if (s->ctx == ctx && s->endings) {
			s->endings--;
		}
	}
}

void shim_packs_end(CUcontext ctx)
{
	for (struct set *s = sets; s; s = s->next) {
		s->ended |= s->ctx == ctx;
	}
}

/* ---- packs ---- */

static CUdeviceptr begin(struct mem_pack_part *part) REQUIRES(shim_swap_mutex)
{
	part->id = shim_swap_new_id();
	return mem_pack_address(part);
}

bool shim_packs_begin(struct mem_swap_region *r, size_t bytes, CUdeviceptr *ret)
{
	CUcontext ctx = (CUcontext)(uintptr_t)r->owner;
	struct set *s = set_of(ctx, r->row);
	struct mem_pack_part *part;

	s = s ? s : make_set(ctx, r->row);
	if (!s) {
		return false;
	}
	part = mem_pack_add(&s->packs, r->base, bytes);
	if (!part) {
		unset(s);
		return false;
	}
	r->pack = part->pack;
	*ret = begin(part);
	return true;
}

void shim_packs_dropped(struct mem_swap_region *r)
{
	struct set *s;

	if (r->pack) {
		s = (struct set *)(void *)r->pack->set;
		mem_pack_remove(r->pack);
		r->pack = NULL;
		unset(s);
	}
}

struct mem_pack_part *shim_packs_live(const struct mem_swap_region *r, CUdeviceptr address)
{
	struct mem_pack_part *part = r->pack ? mem_pack_find(r->pack, address) : NULL;

	return part && !part->freed ? part : NULL;
}

struct mem_swap_region *shim_packs_find(CUdeviceptr base, uint64_t id,
					struct mem_pack_part **ret_part)
{
	struct mem_swap_region *r = mem_swap_find(&shim_swap_map, base);
	struct mem_pack_part *part = r && r->pack ? mem_pack_find(r->pack, base) : NULL;

	*ret_part = part && part->id == id ? part : NULL;
	return r && (*ret_part || r->id == id) ? r : NULL;
}

bool shim_packs_give(struct mem_pack_part *part)
{
	struct mem_pack *p = part->pack;

	mem_pack_give(part);
	return !p->n;
}

/* ---- allocations ---- */

/* Allocates in a pack that there is. A context has several sets if it has allocated while it was
 * about to end, and stayed. */
static bool take(CUdeviceptr *ret, size_t bytes, CUcontext ctx, int row)
{
	struct mem_pack_part *part = NULL;

	lock_take(&shim_swap_mutex);
	for (struct set *s = sets; s && !part; s = s->next) {
		part = is_open(s, ctx, row) ? mem_pack_take(&s->packs, bytes) : NULL;
	}
	if (part) {
		*ret = begin(part);
	}
	lock_release(&shim_swap_mutex);
	return part != NULL;
}

CUresult shim_packs_alloc(CUdeviceptr *ret, size_t bytes, int row)
{
	CUcontext ctx = NULL;
	CUresult r;

	if (!shim_mem_limited(row) || shim_driver.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	ctx = shim_green_base(ctx);
	if (take(ret, bytes, ctx, row)) {
		return CUDA_SUCCESS;
	}
	shim_swap_settle(); /* what was freed meanwhile may be in a pack that stays */
	if (take(ret, bytes, ctx, row)) {
		return CUDA_SUCCESS;
	}
	r = shim_swap_alloc_pack(ret, bytes, row);
	return r == CUDA_ERROR_OUT_OF_MEMORY && take(ret, bytes, ctx, row) ? CUDA_SUCCESS : r;
}

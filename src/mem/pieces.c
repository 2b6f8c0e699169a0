/* The pinned pieces of a context. They are made when a copy needs them and kept until the context
 * ends. Taking them never waits for a copy: a copy whose pieces were all in use elsewhere would
 * depend on other streams, which the driver's copies do not. */
#include <errno.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "mem/copy_plan.h"

void mem_pieces_init(struct mem_pieces *p)
{
	*p = (struct mem_pieces){ .numa = MEM_NUMA_NONE };
	lock_init(&p->lock, LOCK_PIECES);
}

/* Takes those that are free. Pieces whose copies have failed are taken as well: the next copy in
 * the context fails by itself. */
static unsigned take_free(struct mem_pieces *p, const struct mem_device_ops *ops, void *dev,
			  struct mem_piece **ret, unsigned n) REQUIRES(p->lock)
{
	struct mem_piece **at = &p->free;
	unsigned taken = 0;

	while (*at && taken < n) {
		struct mem_piece *piece = *at;

		if (piece->lost || ops->piece_done(dev, piece) == -EAGAIN) {
			at = &piece->next;
			continue;
		}
		*at = piece->next;
		ret[taken++] = piece;
	}
	return taken;
}

static struct mem_piece *make(const struct mem_pieces *p, const struct mem_device_ops *ops,
			      void *dev)
{
	struct mem_piece *piece = calloc(1, sizeof(*piece));
	struct mem_numa_policy policy;
	int err;

	if (!piece) {
		return NULL;
	}
	mem_numa_prefer(&p->numa, &policy);
	err = ops->piece_create(dev, MEM_PIECE_BYTES, piece);
	mem_numa_restore(&policy);
	if (err) {
		free(piece);
		return NULL;
	}
	return piece;
}

/* Returns how many pieces may be made. */
static unsigned affordable(const struct mem_pieces *p) REQUIRES(p->lock)
{
	uint64_t most = MIN(p->copied / MEM_PIECE_CREDIT, (uint64_t)MEM_CONTEXT_PIECES_MAX);

	return most > p->made ? (unsigned)most - p->made : 0;
}

unsigned mem_pieces_take(struct mem_pieces *p, const struct mem_device_ops *ops, void *dev,
			 uint64_t bytes, struct mem_piece **ret, unsigned n)
{
	unsigned taken, wanted;

	lock_take(&p->lock);
	if (checked_add(p->copied, bytes, &p->copied)) {
		p->copied = UINT64_MAX;
	}
	taken = take_free(p, ops, dev, ret, n);
	wanted = MIN(n - taken, affordable(p));
	p->made += wanted;
	lock_release(&p->lock);
	while (wanted && (ret[taken] = make(p, ops, dev))) {
		taken++;
		wanted--;
	}
	if (wanted) {
		lock_take(&p->lock);
		p->made -= wanted;
		lock_release(&p->lock);
	}
	return taken;
}

void mem_pieces_give(struct mem_pieces *p, struct mem_piece **pieces, unsigned n)
{
	lock_take(&p->lock);
	for (unsigned i = n; i--;) { /* the next copy takes them in the same order */
		pieces[i]->next = p->free;
		p->free = pieces[i];
	}
	lock_release(&p->lock);
}

void mem_pieces_finish(struct mem_pieces *p, const struct mem_device_ops *ops, void *dev)
{
	struct mem_piece *next;

	for (struct mem_piece *piece = p->free; piece; piece = next) {
		next = piece->next;
		if (ops) {
			ops->piece_destroy(dev, piece);
		}
		free(piece);
	}
	lock_finish(&p->lock);
}

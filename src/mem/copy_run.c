/* One copy by the pipelined plan (mem/copy_plan.h). Piece k uses slot k % n_pieces. Upwards a piece
 * is opened (its units may be moved) when the slot's earlier piece has left for the device, and
 * issued when its units are moved. Downwards it is issued when the slot's earlier piece is moved,
 * and opened when it has arrived. All of that is done by the calling thread, in order of the
 * pieces. */
#include <errno.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "mem/copy_int.h"

#define SPIN_NS 300000u	     /* until the caller sleeps while it waits: more than a piece takes */
#define SLEEP_MAX_NS 100000u /* longest sleep */

struct pipeline {
	struct mem_copy_pool *pool;
	struct mem_copy_job job;
	uint64_t n;		 /* pieces */
	uint64_t opened, issued; /* the first pieces that are not */
	uint64_t moved;		 /* downwards: moved */
	uint64_t finished;	 /* known to have arrived; downwards: those opened */
	uint64_t waits_since_ns; /* 0: the caller has made progress */
	int err;
};

static size_t piece_size(const struct pipeline *p, uint64_t k)
{
	const struct mem_copy *c = p->job.c;

	return MIN(c->piece_bytes, c->bytes - k * c->piece_bytes);
}

static struct mem_piece *piece_of(const struct pipeline *p, uint64_t k)
{
	return p->job.c->piece[k % p->job.c->n_pieces];
}

bool mem_copy_unit(struct mem_copy_job *j)
{
	const struct mem_copy *c = j->c;
	uint64_t u = load_relaxed(&j->next), slot;
	unsigned char *host, *pinned;
	size_t bytes;
	int err = 0;

	/* The acquire pairs with open_next(): the slot's earlier use is over. */
	do {
		if (u >= load_acquire(&j->open)) {
			return false;
		}
	} while (!cas_acqrel(&j->next, &u, u + 1));
	slot = u / j->units_per_piece % c->n_pieces;
	host = c->host + u / j->units_per_piece * c->piece_bytes +
	       u % j->units_per_piece * MEM_COPY_UNIT;
	pinned = c->piece[slot]->host + u % j->units_per_piece * MEM_COPY_UNIT;
	bytes = MIN(MEM_COPY_UNIT, (size_t)(c->host + c->bytes - host));
	if (!load_relaxed(&j->stop)) {
		err = c->way == MEM_COPY_UP ? mem_copy_from_program(pinned, host, bytes, j->plain)
					    : mem_copy_to_program(host, pinned, bytes, j->plain);
	}
	if (err) {
		store_relaxed(&j->stop, 1u);
	}
	/* Pairs with is_moved(): the bytes are moved, or `stop` is set, before they count. */
	(void)add_acqrel(&j->moved[slot], 1u);
	return true;
}

static bool is_moved(const struct pipeline *p, uint64_t k)
{
	size_t units = (piece_size(p, k) + MEM_COPY_UNIT - 1) / MEM_COPY_UNIT;

	return load_acquire(&p->job.moved[k % p->job.c->n_pieces]) == units;
}

static void open_next(struct pipeline *p)
{
	uint64_t end = (p->opened + 1) * p->job.units_per_piece;

	store_relaxed(&p->job.moved[p->opened % p->job.c->n_pieces], 0u);
	store_release(&p->job.open, MIN(end, p->job.n_units));
	p->opened++;
	mem_copy_pool_wake(p->pool);
}

/* Returns true if the piece's copy has finished on the device. */
static bool is_done(struct pipeline *p, uint64_t k)
{
	const struct mem_copy *c = p->job.c;
	int err = c->ops->piece_done(c->dev, piece_of(p, k));

	if (err && err != -EAGAIN) {
		p->err = err;
	}
	return !err;
}

/* Returns the bytes of the pieces that are on the device's way. All earlier pieces than `finished`
 * have left their slots, so the events of the others are their own. */
static size_t unfinished(struct pipeline *p)
{
	const struct mem_copy *c = p->job.c;

	if (c->way == MEM_COPY_DOWN) {
		p->finished = p->opened;
	}
	while (!p->err && p->finished < p->issued && is_done(p, p->finished)) {
		p->finished++;
	}
	return (size_t)MIN(p->issued * c->piece_bytes, (uint64_t)c->bytes) -
	       (size_t)(p->finished * c->piece_bytes);
}

/* Returns false if it is not the next piece's turn. */
static bool issue_next(struct pipeline *p)
{
	const struct mem_copy *c = p->job.c;
	int err = c->may_go_on ? c->may_go_on(c->arg) : 0;

	if (!err && c->is_turn) {
		size_t waiting = unfinished(p);

		if (p->err || !c->is_turn(c->arg, c->bytes - p->issued * c->piece_bytes, waiting)) {
			return false;
		}
	}
	if (!err) {
		err = c->ops->issue(c->dev, c->queue, c->way, piece_of(p, p->issued),
				    c->device + p->issued * c->piece_bytes,
				    piece_size(p, p->issued));
	}
	if (err) {
		p->err = err;
	} else {
		p->issued++;
	}
	return true;
}

/* Returns true if something was done. */
static bool step_up(struct pipeline *p)
{
	bool progress = false;

	while (p->opened < p->n) {
		if (p->opened >= p->job.c->n_pieces) {
			uint64_t before = p->opened - p->job.c->n_pieces;

			if (before >= p->issued || !is_done(p, before)) {
				break;
			}
			p->finished = MAX(p->finished, before + 1);
		}
		open_next(p);
		progress = true;
	}
	while (!p->err && p->issued < p->opened && is_moved(p, p->issued) &&
	       !load_relaxed(&p->job.stop) && issue_next(p)) {
		progress = true;
	}
	return progress;
}

static bool step_down(struct pipeline *p)
{
	bool progress = false;

	while (p->moved < p->opened && is_moved(p, p->moved) && !load_relaxed(&p->job.stop)) {
		p->moved++;
		progress = true;
	}
	while (!p->err && p->issued < p->n && p->issued < p->moved + p->job.c->n_pieces &&
	       issue_next(p)) {
		progress = true;
	}
	while (!p->err && p->opened < p->issued && is_done(p, p->opened)) {
		open_next(p);
		progress = true;
	}
	return progress;
}

/* Called when there is nothing to do. Spins at first; a longer wait is that for earlier work of the
 * stream, of which a sleep is a small part. */
static void pause_caller(struct pipeline *p)
{
	const struct mem_copy *c = p->job.c;
	uint64_t now = clock_now_ns(), waited;

	p->waits_since_ns = p->waits_since_ns ? p->waits_since_ns : now;
	waited = now - p->waits_since_ns;
	if (waited < SPIN_NS) {
		cpu_relax();
		return;
	}
	p->err = c->may_go_on ? c->may_go_on(c->arg) : 0;
	clock_sleep_ns(MIN(waited / 16, SLEEP_MAX_NS));
}

static bool through(const struct pipeline *p)
{
	return (p->job.c->way == MEM_COPY_UP ? p->issued : p->moved) == p->n;
}

static void transfer(struct pipeline *p)
{
	while (!p->err && !load_relaxed(&p->job.stop) && !through(p)) {
		bool progress = p->job.c->way == MEM_COPY_UP ? step_up(p) : step_down(p);

		if (progress | mem_copy_unit(&p->job)) {
			p->waits_since_ns = 0;
		} else if (!p->err) {
			pause_caller(p);
		}
	}
}

/* Waits until the device has fetched what was issued. */
static void await_arrival(struct pipeline *p)
{
	p->waits_since_ns = 0;
	while (!p->err && p->issued && !is_done(p, p->issued - 1)) {
		if (!p->err) {
			pause_caller(p);
		}
	}
}

int mem_copy_run(struct mem_copy_pool *pool, const struct mem_copy *c, size_t *ret_done)
{
	struct pipeline p = {
		.pool = pool,
		.n = (c->bytes + c->piece_bytes - 1) / c->piece_bytes,
		.job = { .c = c,
			 .units_per_piece = (unsigned)(c->piece_bytes / MEM_COPY_UNIT),
			 .n_units = (c->bytes + MEM_COPY_UNIT - 1) / MEM_COPY_UNIT,
			 .plain = mem_copy_is_plain(c->host, c->bytes, c->way == MEM_COPY_DOWN) },
	};
	uint64_t done;

	mem_copy_pool_add(pool, &p.job);
	transfer(&p);
	if (p.err) {
		store_relaxed(&p.job.stop, 1u);
	}
	mem_copy_pool_remove(pool, &p.job);
	if (!p.err && c->wait && c->way == MEM_COPY_UP) {
		await_arrival(&p);
	}
	done = c->way == MEM_COPY_UP ? p.issued : p.moved;
	*ret_done = MIN(done * c->piece_bytes, c->bytes);
	return p.err;
}

/* The boards of other tenants' latency class: how many requests they have open. Other processes
 * write these pages, so each word is read once and trusted only where it cannot do harm; a wrong
 * board can hold a launch no longer than the hold limit. */
#include "sched/sched_int.h"

#include <errno.h>

#include "base/clock.h"

/* Returns the time until an announced request, or UINT64_MAX if the announcement is not allowed or
 * overdue. */
static uint64_t until_announced(uint64_t at, uint64_t now)
{
	if (at > now) {
		return at - now <= SCHED_ANNOUNCE_MAX_NS ? at - now : UINT64_MAX;
	}
	return now - at <= SCHED_LATE_NS ? 0 : UINT64_MAX;
}

uint32_t sched_boards_scan(struct sched *s, uint32_t gpu_index, uint64_t now,
			   struct sched_decision *a, uint64_t *ret_idle_ns, uint64_t *ret_next_ns)
{
	uint32_t n = load_acquire(&s->boards.n), total = 0;
	uint64_t last = 0, next = UINT64_MAX;

	for (uint32_t i = 0; i < n; i++) {
		const struct proto_board *b = load_acquire(&s->boards.slot[i].board);
		const struct proto_board_gpu *g;
		uint64_t at;
		uint32_t seq, open;

		if (!b) {
			continue;
		}
		g = &b->gpu[gpu_index];
		seq = load_acquire(&g->seq); /* Read before `open`, so that a wait on seq cannot
						miss a close (docs/SCHEDULING.md: no lost wake). */
		open = proto_board_open(b, gpu_index, now);
		at = load_relaxed(&g->next_ns);
		if (unlikely(at)) {
			next = MIN(next, until_announced(at, now));
		}
		if (open) {
			total += MIN(open, 4096u);
			if (!a->word) {
				a->word = &g->seq;
				a->seq = seq;
			}
		} else {
			uint64_t end = load_relaxed(&g->last_end_ns);

			last = MAX(last, MIN(end, now - 1));
		}
	}
	*ret_next_ns = next;
	*ret_idle_ns = total ? 0 : last ? now - last : UINT64_MAX;
	return total;
}

bool sched_boards_quiet_since(struct sched *s, uint32_t gpu, uint64_t since_ns, bool own_counts)
{
	uint32_t index = load_relaxed(&s->policy.gpu[gpu].index);
	uint64_t now = clock_now_ns();
	struct policy_reader *pin = policy_read_enter();
	bool quiet = !own_counts || !load_relaxed(&s->req[gpu].open);

	for (uint32_t i = 0; i < load_acquire(&s->boards.n) && index < PROTO_MAX_GPUS && quiet;
	     i++) {
		const struct proto_board *b = load_acquire(&s->boards.slot[i].board);
		uint64_t end = b ? load_relaxed(&b->gpu[index].last_end_ns) : 0;

		/* an end in the future is not to be trusted */
		quiet = !b || (!proto_board_open(b, index, now) &&
			       (end < since_ns || end > now + PROTO_BEAT_NS));
	}
	policy_read_leave(pin);
	return quiet;
}

static void shrink(struct sched_boards *b)
{
	uint32_t n = PROTO_MAX_LC;

	while (n && !b->slot[n - 1].board) {
		n--;
	}
	store_release(&b->n, n);
}

static struct sched_boards *boards_of(struct sched *s, enum sched_board_kind kind)
{
	return kind == SCHED_BOARD_PEER ? &s->peers : &s->boards;
}

int sched_board_add(struct sched *s, enum sched_board_kind kind, uint32_t slot, uint32_t tenant,
		    const struct proto_board *board)
{
	struct sched_boards *b = boards_of(s, kind);

	if (slot >= PROTO_MAX_LC || !board || s->forked) {
		return -EINVAL;
	}
	if (b->slot[slot].board) {
		return -EEXIST;
	}
	if (tenant == s->cfg.tenant && kind == SCHED_BOARD_LATENCY) {
		return 0; /* this process's own board does not hold it */
	}
	b->slot[slot].tenant = tenant;
	store_release(&b->slot[slot].board, board);
	shrink(b);
	return 0;
}

bool sched_board_remove(struct sched *s, enum sched_board_kind kind, uint32_t slot)
{
	struct sched_boards *b = boards_of(s, kind);

	if (slot >= PROTO_MAX_LC || !b->slot[slot].board) {
		return true;
	}
	store_release(&b->slot[slot].board, (const struct proto_board *)NULL);
	shrink(b);
	return policy_synchronize();
}

void sched_boards_clear(struct sched_boards *b)
{
	for (uint32_t i = 0; i < PROTO_MAX_LC; i++) {
		store_release(&b->slot[i].board, (const struct proto_board *)NULL);
	}
	store_release(&b->n, 0u);
}

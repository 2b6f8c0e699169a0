/* What follows a refused charge: gbpfd may allow more, where other vGPUs have reserved memory, and
 * the call may wait for memory. gbpfd orders the waiters. A waiter holds nothing: its charge is
 * made again when gbpfd says that there may be room. */
#include "shim/mem/charge.h"

#include <errno.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "shim/shim.h"

#define AGAIN_NS                                                                                   \
	1000000000u	 /* the question is repeated after that: gbpfd may have been restarted */
#define LOOK_NS 5000000u /* without gbpfd: how often is looked whether there is room */
#define TRIES 8		 /* without waiting: others may take what was allowed */
#define RECLAIMS 2	 /* of these: other vGPUs release memory */

/* One question at a time for each process: its line has room for one answer. */
static struct lock asking = LOCK_INITIALIZER(MEM_ASKING);
static uint32_t last_seq GUARDED_BY(asking);

static uint64_t left_of(uint64_t until_ns)
{
	uint64_t now = clock_now_ns();

	return until_ns > now ? until_ns - now : 0;
}

/* Waits for its turn to ask; the agent does not. Returns false if that took too long. */
static bool lock(uint64_t until_ns, const struct shim_mem_session *session)
	ACQUIRES_IF(true, asking)
{
	struct timespec t = clock_timespec(until_ns);

	return session->is_agent() ? lock_try(&asking) : lock_take_by(&asking, CLOCK_MONOTONIC, &t);
}

/* Asks gbpfd for bytes of a row and waits for its answer. *ret_seq becomes the question's number.
 * Returns PROTO_ACCOUNT_RETRY, PROTO_ACCOUNT_REFUSED, or -ENOTCONN without gbpfd: a call that waits
 * looks by itself then. Any other question that was asked once waits for gbpfd to be restarted, as
 * long as other vGPUs could release memory for it. */
static int ask(struct mem_ledger *l, struct proto_mem_ask m, uint64_t until_ns,
	       const struct shim_mem_session *session, uint32_t *ret_seq)
{
	const struct proto_account_line *line = &l->page->line[m.row][l->line];
	uint64_t reclaim_until = m.flags & PROTO_MEM_RECLAIM
					 ? until_ns + clock_patience(PROTO_MEM_RECLAIM_MAX_NS)
					 : 0;
	uint64_t give_up = MAX(until_ns, reclaim_until) + 2 * (uint64_t)AGAIN_NS;
	bool asked = false;
	int ret = 0;

	if (!lock(give_up, session)) {
		return PROTO_ACCOUNT_REFUSED;
	}
	*ret_seq = m.seq = ++last_seq;
	while (!ret) {
		uint64_t again = clock_now_ns() + AGAIN_NS;
		uint32_t seen;

		m.wait_ns = left_of(until_ns);
		if (session->ask(&m) >= 0) {
			asked = true;
		} else if (!asked || m.wait_ns || !left_of(reclaim_until)) {
			ret = -ENOTCONN;
			break;
		} else {
			again = MIN(again, clock_now_ns() + LOOK_NS);
		}
		while ((seen = load_acquire(&line->answer_seq)) != m.seq && left_of(again)) {
			(void)futex_wait_shared(&line->answer_seq, seen, left_of(again));
		}
		if (seen == m.seq) {
			ret = load_relaxed(&line->answer) == PROTO_ACCOUNT_RETRY
				      ? PROTO_ACCOUNT_RETRY
				      : PROTO_ACCOUNT_REFUSED;
		} else if (!left_of(give_up)) {
			ret = PROTO_ACCOUNT_REFUSED;
		}
	}
	lock_release(&asking);
	return ret;
}

/* A charge that was refused. */
struct refused {
	struct mem_ledger *l;
	uint32_t row;
	uint64_t bytes, until_ns;
	const struct shim_mem_session *session;
	bool in_move; /* the caller's change of memory; no memory changes during a wait */
	bool reclaim; /* other vGPUs may release memory */
};

static void wait_begin(const struct refused *c)
{
	if (c->in_move) {
		shim_mem_move_over();
	}
}

static void wait_end(const struct refused *c)
{
	if (c->in_move) {
		shim_mem_move_begin();
	}
}

/* Without gbpfd the limit alone counts; it waits for processes of its own vGPU, and for gbpfd.
 * Returns true if the bytes are charged or the time is over. */
static bool charge_alone(const struct refused *c, bool *ret_charged)
{
	*ret_charged = shim_mem_try_charge_whole((int)c->row, c->bytes);
	if (*ret_charged || !left_of(c->until_ns)) {
		return true;
	}
	wait_begin(c);
	clock_sleep_ns(LOOK_NS);
	wait_end(c);
	return false;
}

static bool charge_until(const struct refused *c)
{
	uint32_t seq = 0;
	int answers = 0;

	while (answers < TRIES || left_of(c->until_ns)) {
		const struct proto_mem_ask m = { .row = c->row,
						 .bytes = c->bytes,
						 .flags = c->reclaim && answers < RECLAIMS
								  ? PROTO_MEM_RECLAIM
								  : 0 };
		bool charged;
		int answer;

		wait_begin(c);
		answer = ask(c->l, m, c->until_ns, c->session, &seq);
		wait_end(c);
		if (answer == -ENOTCONN) {
			if (charge_alone(c, &charged)) {
				return charged;
			}
			continue;
		}
		answers++;
		if (answer == PROTO_ACCOUNT_REFUSED) {
			return false;
		}
		if (shim_mem_try_charge((int)c->row, c->bytes)) {
			mem_ledger_tried(c->l, c->row, seq);
			return true;
		}
	}
	mem_ledger_tried(c->l, c->row, seq); /* it does not ask again */
	return false;
}

bool shim_mem_charge_later(struct mem_ledger *l, uint32_t row, uint64_t bytes,
			   const struct shim_mem_session *session, uint64_t wait_ns, bool reclaim)
{
	uint64_t limit = mem_ledger_limit(l, row);
	const struct refused c = { l,	    row,
				   bytes,   clock_now_ns() + wait_ns,
				   session, (wait_ns || reclaim) && row < PROTO_MAX_GPUS,
				   reclaim };

	if (bytes > limit || (!wait_ns && mem_ledger_allowed(l, row) >= limit)) {
		return false; /* gbpfd cannot help */
	}
	return charge_until(&c);
}

/* Without gbpfd it tries from time to time. */
static bool look_alone(const struct shim_mem_attempt *a)
{
	clock_sleep_ns(MIN(left_of(a->until_ns), (uint64_t)LOOK_NS));
	return left_of(a->until_ns) != 0;
}

bool shim_mem_wait_for_device(struct mem_ledger *l, uint32_t row, uint64_t bytes,
			      const struct shim_mem_session *session, struct shim_mem_attempt *a,
			      bool reclaim)
{
	const struct proto_mem_ask m = { .row = row,
					 .bytes = bytes,
					 .flags = PROTO_MEM_FULL | (a->seq ? PROTO_MEM_AGAIN : 0) |
						  (reclaim ? PROTO_MEM_RECLAIM : 0) };
	int answer = ask(l, m, a->until_ns, session, &a->seq);

	if (answer == -ENOTCONN) {
		a->reclaims -= reclaim; /* no other vGPU was asked for memory */
		return look_alone(a);
	}
	return answer == PROTO_ACCOUNT_RETRY;
}

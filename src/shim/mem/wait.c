/* What follows a refused charge: gbpfd may allow more, where other vGPUs have reserved memory, and
 * the call may wait for memory. gbpfd orders the waiters. A waiter holds nothing: its charge is
 * made anew when gbpfd says that there may be room. */
#include "shim/mem/charge.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "shim/shim.h"

#define AGAIN_NS                                                                                   \
	1000000000u	 /* the question is repeated after that: gbpfd may have been restarted */
#define LOOK_NS 5000000u /* without gbpfd: how often is looked whether there is room */
#define TRIES 8		 /* without waiting: others may take what was allowed */

/* One question at a time for each process: its line has room for one answer. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static uint32_t last_seq;  /* guarded by asking */
static uint32_t n_waiting; /* [atomic] threads */

static uint64_t left_of(uint64_t until_ns)
{
	uint64_t now = clock_now_ns();

	return until_ns > now ? until_ns - now : 0;
}

/* Sleeps until the line's answer changes from `old`, or ns have passed. */
static void sleep_on(const uint32_t *word, uint32_t old, uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u),
			      .tv_nsec = (long)(ns % 1000000000u) };

	(void)syscall(SYS_futex, word, FUTEX_WAIT, old, &t, NULL, 0);
}

/* Waits for its turn to ask; the agent does not. Returns false if that took too long. */
static bool lock(uint64_t until_ns, const struct shim_mem_session *session)
{
	struct timespec t = { .tv_sec = (time_t)(until_ns / 1000000000u),
			      .tv_nsec = (long)(until_ns % 1000000000u) };

	return session->is_agent() ? pthread_mutex_trylock(&asking) == 0
				   : pthread_mutex_clocklock(&asking, CLOCK_MONOTONIC, &t) == 0;
}

/* Asks gbpfd for bytes of a row and waits for its answer. *ret_seq becomes the question's number.
 * Returns PROTO_ACCOUNT_RETRY, PROTO_ACCOUNT_REFUSED, or -ENOTCONN without gbpfd. */
static int ask(struct mem_ledger *l, struct proto_mem_ask m, uint64_t until_ns,
	       const struct shim_mem_session *session, uint32_t *ret_seq)
{
	const struct proto_account_line *line = &l->page->line[m.row][l->line];
	uint64_t give_up = until_ns + 2 * (uint64_t)AGAIN_NS;
	int ret = 0;

	if (!lock(give_up, session)) {
		return PROTO_ACCOUNT_REFUSED;
	}
	*ret_seq = m.seq = ++last_seq;
	while (!ret) {
		uint64_t again = clock_now_ns() + AGAIN_NS;
		uint32_t seen;

		m.wait_ns = left_of(until_ns);
		if (session->ask(&m) < 0) {
			ret = -ENOTCONN;
			break;
		}
		while ((seen = load_acquire(&line->answer_seq)) != m.seq && left_of(again)) {
			sleep_on(&line->answer_seq, seen, left_of(again));
		}
		if (seen == m.seq) {
			ret = load_relaxed(&line->answer) == PROTO_ACCOUNT_RETRY
				      ? PROTO_ACCOUNT_RETRY
				      : PROTO_ACCOUNT_REFUSED;
		} else if (!left_of(give_up)) {
			ret = PROTO_ACCOUNT_REFUSED;
		}
	}
	pthread_mutex_unlock(&asking);
	return ret;
}

/* Without gbpfd the limit alone counts; it waits for processes of its own vGPU. */
static bool charge_alone(struct mem_ledger *l, uint32_t row, uint64_t bytes, uint64_t until_ns)
{
	while (mem_ledger_charge_whole(l, row, bytes) < 0) {
		if (!left_of(until_ns)) {
			return false;
		}
		clock_sleep_ns(LOOK_NS);
	}
	return true;
}

bool shim_mem_waits(void)
{
	return load_acquire(&n_waiting) != 0;
}

/* As shim_mem_charge_later(), until that time. */
static bool charge_until(struct mem_ledger *l, uint32_t row, uint64_t bytes, uint64_t until,
			 const struct shim_mem_session *session)
{
	uint32_t seq = 0;

	for (int i = 0; i < TRIES || left_of(until); i++) {
		const struct proto_mem_ask m = { .row = row, .bytes = bytes };
		int answer = ask(l, m, until, session, &seq);

		if (answer == -ENOTCONN) {
			return charge_alone(l, row, bytes, until);
		}
		if (answer == PROTO_ACCOUNT_REFUSED) {
			return false;
		}
		if (mem_ledger_charge(l, row, bytes) == 0) {
			mem_ledger_tried(l, row, seq);
			return true;
		}
	}
	mem_ledger_tried(l, row, seq); /* it does not ask again */
	return false;
}

bool shim_mem_charge_later(struct mem_ledger *l, uint32_t row, uint64_t bytes,
			   const struct shim_mem_session *session, bool may_wait)
{
	uint64_t limit = mem_ledger_limit(l, row);
	uint64_t wait = !may_wait || session->is_agent() ? 0 : load_relaxed(&l->page->wait_ns);
	bool done;

	if (bytes > limit || (!wait && mem_ledger_allowed(l, row) >= limit)) {
		return false; /* gbpfd cannot help */
	}
	(void)add_acqrel(&n_waiting, wait ? 1 : 0);
	done = charge_until(l, row, bytes, clock_now_ns() + MIN(wait, PROTO_VGPU_WAIT_MAX_NS),
			    session);
	(void)sub_acqrel(&n_waiting, wait ? 1 : 0);
	return done;
}

/* Without gbpfd it tries from time to time. */
static bool look_alone(const struct shim_mem_attempt *a)
{
	clock_sleep_ns(MIN(left_of(a->until_ns), (uint64_t)LOOK_NS));
	return left_of(a->until_ns) != 0;
}

bool shim_mem_wait_for_device(struct mem_ledger *l, uint32_t row, uint64_t bytes,
			      const struct shim_mem_session *session, struct shim_mem_attempt *a)
{
	const struct proto_mem_ask m = { .row = row,
					 .bytes = bytes,
					 .flags = PROTO_MEM_FULL | (a->seq ? PROTO_MEM_AGAIN : 0) };
	int answer = ask(l, m, a->until_ns, session, &a->seq);

	return answer == -ENOTCONN ? look_alone(a) : answer == PROTO_ACCOUNT_RETRY;
}

/* Reservations, and processes that wait for memory.
 *
 * Once a vGPU has reserved memory, what each vGPU may hold on a device (`allowed` of its page) is
 * its own reservation and what gbpfd has granted it of the rest. gbpfd keeps the sum of all
 * reservations and grants within the device's memory, from figures of its own. A process whose
 * charge is refused although its limit has room asks for more (PROTO_MEM_ASK); gbpfd takes back
 * what other vGPUs were granted and do not use, then grants it, or lets the process wait.
 *
 * Taking back is safe against charges: `allowed` is lowered before use is summed, and a process
 * reads `allowed` after it has stored what it wants (mem/ledger.h). So either the charge obeys the
 * new value, or the sum contains it, and gbpfd returns that much. */
#include "daemon/vgpu/vgpu_int.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/session/tenant_session.h"
#include "daemon/timer.h"
#include "mem/ledger.h"

/* How long a process that was asked to try again keeps priority. */
#define PROMISE_TIMEOUT_NS 5000000000u
#define LOOK_USEC 5000u		  /* between two looks for memory while processes wait */
#define LOOK_REST 10u		  /* a look may take this share of the time to the next one */
#define ASKS_PER_SECOND 1000u	  /* of a process that are decided at once */
#define STEP (UINT64_C(64) << 20) /* grants are multiples of it where there is room */

#define vgpu_each(d, v) for (struct daemon_vgpu *v = (d)->vgpus.first; v; v = v->next)

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- devices ---- */

uint64_t daemon_vgpu_reserved(const struct daemon *d)
{
	uint64_t sum = 0;

	vgpu_each(d, v)
	{
		sum = add(sum, v->is.config.reserve);
	}
	return sum;
}

/* Returns the size of the device of a row, or what may be pinned; 0: unknown. That of swap has
 * none: vGPUs divide host memory in the row of pinned memory, to which it is charged, too. */
static uint64_t size_of_row(const struct daemon_vgpu *v, uint32_t row)
{
	const struct daemon_gpu *g;

	if (row == PROTO_ACCOUNT_HOST) {
		return v->d->vgpus.pinnable;
	}
	if (row == PROTO_ACCOUNT_SWAP) {
		return 0;
	}
	g = daemon_vgpu_device_of(v, row);
	return g ? g->mem : 0;
}

/* Returns the size of the smallest device; 0: none is known. Of users other than root and gbpfd's
 * own it takes none: these could name a device that does not exist. */
static uint64_t smallest(const struct daemon *d)
{
	uint64_t least = 0;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		const struct daemon_gpu *g = &d->devices.d[i];
		uint64_t mem = g->used && g->mem_sure ? g->mem : 0;

		least = mem && (!least || mem < least) ? mem : least;
	}
	return least;
}

bool daemon_vgpu_may_reserve(const struct daemon *d, uint64_t bytes, uint64_t *ret_left,
			     uint64_t *ret_size)
{
	uint64_t sum = daemon_vgpu_reserved(d);

	*ret_size = *ret_size ? *ret_size : smallest(d);
	*ret_left = sum < *ret_size ? *ret_size - sum : 0;
	return !*ret_size || add(sum, bytes) <= *ret_size;
}

void daemon_vgpu_reserve_left(const struct daemon_session *s, uint64_t *ret_left,
			      uint64_t *ret_size)
{
	uint64_t others = daemon_vgpu_reserved(s->d) - s->vgpu.of->is.config.reserve;

	*ret_size = smallest(s->d);
	*ret_left = others < *ret_size ? *ret_size - others : 0;
}

/* ---- what each may hold ---- */

/* Returns what a vGPU has reserved of the memory of a row. */
static uint64_t reserve_of(const struct daemon_vgpu *v, uint32_t row)
{
	return row < PROTO_MAX_GPUS ? v->is.config.reserve : 0;
}

/* Returns what a vGPU may hold at most. size 0: the device's is unknown. */
static uint64_t limit_of(const struct daemon_vgpu *v, uint32_t row, uint64_t size)
{
	uint64_t limit = mem_limit_stated(row, v->row[row].limit);

	return MIN(limit, size ? size : UINT64_MAX);
}

/* Returns what a vGPU may hold, where memory is reserved. */
static uint64_t held_by(const struct daemon_vgpu *v, uint32_t row, uint64_t size)
{
	return MIN(add(reserve_of(v, row), v->row[row].granted), limit_of(v, row, size));
}

/* Stores what a vGPU may hold: at least a byte, since 0 means no restriction. */
static void store_allowed(struct daemon_vgpu *v, uint32_t row, uint64_t size)
{
	v->row[row].restricted = true;
	store_seqcst(&daemon_vgpu_page(v)->allowed[row], MAX(held_by(v, row, size), (uint64_t)1));
}

void daemon_vgpu_restore_allowed(struct daemon_vgpu *v, uint32_t row)
{
	if (v->row[row].restricted) {
		store_allowed(v, row, size_of_row(v, row));
	} else {
		store_seqcst(&daemon_vgpu_page(v)->allowed[row], (uint64_t)0);
	}
}

static uint64_t used_of(const struct daemon_vgpu *v, uint32_t row)
{
	return mem_account_claimed(daemon_vgpu_page(v), row);
}

/* Takes back what a vGPU was granted and does not use; it retains what it uses beyond its
 * reservation. The page may say that it uses more than it ever could: that is not believed. */
static void trim(struct daemon_vgpu *v, uint32_t row, uint64_t size)
{
	struct daemon_vgpu_row *r = &v->row[row];
	uint64_t used;

	r->granted = 0;
	store_allowed(v, row, size);
	used = min_once(used_of(v, row), MIN(r->most, size));
	r->granted = used > reserve_of(v, row) ? used - reserve_of(v, row) : 0;
	store_allowed(v, row, size);
}

void daemon_vgpu_reserve_update(struct daemon *d)
{
	bool any = daemon_vgpu_reserved(d) > 0;

	vgpu_each(d, v)
	{
		for (uint32_t row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
			uint64_t size = size_of_row(v, row);
			bool shared = row == PROTO_ACCOUNT_HOST ? d->vgpus.n > 1 : any;

			if (!daemon_vgpu_has_row(v, row)) {
				continue;
			}

			if (shared && size) {
				trim(v, row, size);
			} else {
				v->row[row].granted = 0;
				v->row[row].restricted = false;
				daemon_vgpu_restore_allowed(v, row);
			}
		}
	}
}

/* Returns what is reserved or granted of a device: more than it has where vGPUs hold memory that
 * others have reserved since. */
static uint64_t claimed_of(const struct daemon *d, const uint8_t uuid[16])
{
	uint64_t sum = daemon_vgpu_is_host(uuid) ? 0 : daemon_vgpu_reserved(d);

	vgpu_each(d, v)
	{
		uint32_t row = daemon_vgpu_row_of(v, uuid);

		sum = row < PROTO_ACCOUNT_ROWS ? add(sum, v->row[row].granted) : sum;
	}
	return sum;
}

static uint64_t left_of(const struct daemon *d, const uint8_t uuid[16], uint64_t size)
{
	uint64_t sum = claimed_of(d, uuid);

	return sum < size ? size - sum : 0;
}

/* Grants a vGPU `more` bytes. Returns false if there is no room. */
static bool grant(struct daemon_vgpu *of, uint32_t row, uint64_t size, uint64_t more)
{
	const uint8_t *uuid = of->row[row].uuid;
	uint64_t left = left_of(of->d, uuid, size);

	if (left < more) {
		vgpu_each(of->d, v)
		{
			uint32_t r = v == of ? PROTO_ACCOUNT_ROWS : daemon_vgpu_row_of(v, uuid);

			if (r < PROTO_ACCOUNT_ROWS) {
				trim(v, r, size);
			}
		}
		left = left_of(of->d, uuid, size);
	}
	if (left < more) {
		return false;
	}
	of->row[row].granted += MIN(left, more > UINT64_MAX - STEP ? more : ROUND_UP(more, STEP));
	store_allowed(of, row, size);
	return true;
}

/* ---- processes that ask, and wait ---- */

static struct proto_account_line *line_of(const struct daemon_session *s)
{
	return &daemon_vgpu_page(s->vgpu.of)->line[s->vgpu.ask.row][s->vgpu.line];
}

bool daemon_vgpu_is_promised(const struct daemon_session *s, uint64_t now)
{
	return now < s->vgpu.ask.promised_until_ns &&
	       load_acquire(&line_of(s)->tried_seq) != s->vgpu.ask.seq &&
	       mem_line_used(line_of(s)) == s->vgpu.ask.held;
}

void daemon_vgpu_answer(struct daemon_session *s, uint32_t what, uint64_t promise_ns)
{
	struct proto_account_line *line = line_of(s);

	s->vgpu.ask.promised_until_ns = 0;
	if (what == PROTO_ACCOUNT_RETRY) {
		s->vgpu.ask.promised_until_ns = clock_now_ns() + promise_ns;
		s->vgpu.ask.held = mem_line_used(line);
		s->vgpu.ask.place = s->vgpu.ask.since;
	}
	s->vgpu.ask.since = 0;
	store_relaxed(&line->answer, what);
	store_release(&line->answer_seq, s->vgpu.ask.seq);
	(void)syscall(SYS_futex, &line->answer_seq, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static bool waits_for_limit(const struct daemon_session *s)
{
	return s->vgpu.ask.since && !s->vgpu.ask.full && !s->vgpu.ask.reclaims;
}

/* Returns true if a process that came before waits for memory of the same vGPU and device. */
static bool is_behind(const struct daemon_session *s)
{
	daemon_session_each(s->d, o)
	{
		if (o != s && o->vgpu.of == s->vgpu.of && waits_for_limit(o) &&
		    o->vgpu.ask.row == s->vgpu.ask.row && o->vgpu.ask.since < s->vgpu.ask.since) {
			return true;
		}
	}
	return false;
}

/* Returns what other processes of the same vGPU and device were told to try. */
static uint64_t promised(const struct daemon_session *s)
{
	uint64_t now = clock_now_ns(), sum = 0;

	daemon_session_each(s->d, o)
	{
		if (o != s && o->vgpu.of == s->vgpu.of && o->vgpu.ask.row == s->vgpu.ask.row &&
		    daemon_vgpu_is_promised(o, now)) {
			sum = add(sum, o->vgpu.ask.bytes);
		}
	}
	return sum;
}

bool daemon_vgpu_has_room(struct daemon_session *s)
{
	struct daemon_vgpu *v = s->vgpu.of;
	uint32_t row = s->vgpu.ask.row;
	uint64_t size = size_of_row(v, row), held = held_by(v, row, size);
	uint64_t need = promised(s); /* first: what has been tried is in use (shim/mem/wait.c) */

	need = add(need, add(used_of(v, row), s->vgpu.ask.bytes));
	if (need > limit_of(v, row, size)) {
		return false;
	}
	return !v->row[row].restricted || need <= held || grant(v, row, size, need - held);
}

bool daemon_vgpu_may_try(struct daemon_session *s)
{
	return !is_behind(s) && daemon_vgpu_has_room(s);
}

uint64_t daemon_vgpu_missing(const struct daemon_session *s)
{
	const struct daemon_vgpu *v = s->vgpu.of;
	uint32_t row = s->vgpu.ask.row;
	uint64_t size = size_of_row(v, row), held = held_by(v, row, size);
	uint64_t need = add(promised(s), add(used_of(v, row), s->vgpu.ask.bytes));
	uint64_t all = claimed_of(v->d, v->row[row].uuid);

	if (need > limit_of(v, row, size) || need <= held) {
		return 0;
	}
	all = add(all, need - held);
	return all > size ? all - size : 0;
}

void daemon_vgpu_take_back(struct daemon_vgpu *v, uint32_t row)
{
	if (v->row[row].restricted) {
		trim(v, row, size_of_row(v, row));
	}
}

bool daemon_vgpu_is_hopeless(const struct daemon_session *s)
{
	const struct daemon_vgpu *v = s->vgpu.of;
	uint32_t row = s->vgpu.ask.row;

	return s->vgpu.ask.bytes > limit_of(v, row, size_of_row(v, row));
}

/* Finds the waiters of each vGPU and device that came first. */
static void find_first(struct daemon *d)
{
	vgpu_each(d, v)
	{
		for (uint32_t row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
			v->row[row].first = 0;
		}
	}
	daemon_session_each(d, s)
	{
		uint64_t *first =
			waits_for_limit(s) ? &s->vgpu.of->row[s->vgpu.ask.row].first : NULL;

		if (first && (!*first || s->vgpu.ask.since < *first)) {
			*first = s->vgpu.ask.since;
		}
	}
}

/* Answers those that can be answered. Returns true if some still wait. */
static bool look(struct daemon *d)
{
	uint64_t now = clock_now_ns();
	bool some = daemon_vgpu_reclaim_look(d);

	some |= daemon_vgpu_full_look(d);
	find_first(d);
	daemon_session_each(d, s)
	{
		uint64_t since = s->vgpu.ask.since;

		if (!waits_for_limit(s)) {
			continue;
		}
		if (s->vgpu.of->row[s->vgpu.ask.row].first == since && daemon_vgpu_has_room(s)) {
			daemon_vgpu_answer(s, PROTO_ACCOUNT_RETRY,
					   clock_patience(PROMISE_TIMEOUT_NS));
		} else if (now >= s->vgpu.ask.until_ns || daemon_vgpu_is_hopeless(s)) {
			daemon_vgpu_answer(s, PROTO_ACCOUNT_REFUSED, 0);
		} else {
			some = true;
		}
	}
	return some;
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
	uint64_t begun = clock_now_ns(), now;
	struct daemon *d = arg;

	(void)usec;
	sd_event_now(d->loop, CLOCK_MONOTONIC, &now);
	if (look(d)) {
		uint64_t took = (clock_now_ns() - begun) / 1000;

		daemon_timer_arm(src, now + LOOK_USEC + took * LOOK_REST);
	}
	return 0;
}

void daemon_vgpu_await_memory(struct daemon *d)
{
	uint64_t now;

	sd_event_now(d->loop, CLOCK_MONOTONIC, &now);
	/* One that runs is not put off: processes that ask on and on would stop it. */
	if (!daemon_timer_is_armed(d->vgpus.timer)) {
		(void)daemon_timer_at(d->loop, &d->vgpus.timer, now + LOOK_USEC, 1, on_timer, d);
	}
}

static void ask_for_limit(struct daemon_session *s, uint64_t wait, bool at_once)
{
	if (!at_once) {
		daemon_vgpu_await_memory(s->d); /* answered with all others */
	} else if (daemon_vgpu_may_try(s)) {
		daemon_vgpu_answer(s, PROTO_ACCOUNT_RETRY, clock_patience(PROMISE_TIMEOUT_NS));
	} else if (daemon_vgpu_reclaim_begin(s)) {
		; /* its round answers it */
	} else if (!wait || daemon_vgpu_is_hopeless(s)) {
		daemon_vgpu_answer(s, PROTO_ACCOUNT_REFUSED, 0);
	} else {
		daemon_vgpu_await_memory(s->d);
	}
}

void daemon_vgpu_limit_reclaimed(struct daemon_session *s)
{
	if (daemon_vgpu_may_try(s)) {
		daemon_vgpu_answer(s, PROTO_ACCOUNT_RETRY, clock_patience(PROMISE_TIMEOUT_NS));
	} else if (clock_now_ns() >= s->vgpu.ask.until_ns || daemon_vgpu_is_hopeless(s)) {
		daemon_vgpu_answer(s, PROTO_ACCOUNT_REFUSED, 0);
	} else {
		daemon_vgpu_await_memory(s->d);
	}
}

/* Returns the place in the order of arrival. One that has tried keeps its old one. */
static uint64_t place_of(const struct daemon_session *s, const struct proto_mem_ask *m,
			 uint64_t now)
{
	bool again = m->flags & PROTO_MEM_FULL
			     ? (m->flags & PROTO_MEM_AGAIN) && s->vgpu.ask.full
			     : !s->vgpu.ask.full && daemon_vgpu_is_promised(s, now);
	uint64_t place = ++s->d->vgpus.asked;

	return again && s->vgpu.ask.row == m->row && s->vgpu.ask.place ? s->vgpu.ask.place : place;
}

/* A charge of the session's process was refused. */
static void ask(struct daemon_session *s, const struct proto_mem_ask *m)
{
	uint64_t now = clock_now_ns(), wait = MIN(m->wait_ns, s->vgpu.of->is.config.wait_ns);
	bool full = m->flags & PROTO_MEM_FULL, again, at_once;

	if (m->flags & PROTO_MEM_SHARES) {
		daemon_vgpu_shares_changed(s->d);
		return;
	}
	/* Swap may have been taken back since the process has seen it: the question is refused. */
	if (!daemon_vgpu_has_row(s->vgpu.of, m->row) && m->row != PROTO_ACCOUNT_SWAP) {
		s->d->counters.garbage++;
		daemon_session_drop(s, "it asks for memory of row %u", m->row);
		return;
	}
	if (s->vgpu.ask.since && s->vgpu.ask.seq == m->seq) {
		return; /* it asks again, in case that gbpfd was restarted */
	}
	at_once = rate_allow(&s->vgpu.asks, ASKS_PER_SECOND, now);
	if (at_once) {
		daemon_vgpu_check_page(s->vgpu.of, s->peer.pid);
	}
	daemon_vgpu_reclaim_stop(s);
	s->vgpu.ask.since = place_of(s, m, now);
	again = s->vgpu.ask.since == s->vgpu.ask.place;
	s->vgpu.ask.promised_until_ns = 0;
	s->vgpu.ask.row = m->row;
	s->vgpu.ask.seq = m->seq;
	s->vgpu.ask.bytes = m->bytes;
	s->vgpu.ask.until_ns = now + wait;
	s->vgpu.ask.full = full;
	s->vgpu.ask.may_reclaim = m->flags & PROTO_MEM_RECLAIM;
	if (full) {
		daemon_vgpu_full_ask(s, wait, again, at_once);
	} else {
		ask_for_limit(s, wait, at_once);
	}
}

bool daemon_vgpu_take_ask(struct daemon_session *s, struct daemon_received *r)
{
	bool is_in_one = s->vgpu.of;

	if (is_in_one) {
		ask(s, &r->m.mem_ask);
	}
	return is_in_one;
}

void daemon_vgpu_stop_waiting(struct daemon_session *s)
{
	s->vgpu.ask.since = s->vgpu.ask.promised_until_ns = 0;
}

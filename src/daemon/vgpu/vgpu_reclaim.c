/* Reclaim: a process needs memory of a device that its vGPU may hold, and other vGPUs hold that
 * memory beyond their reservations. gbpfd orders processes of those that have swap to move some of
 * theirs to the host (PROTO_MEM_RELEASE), one order after the other, until there is room for the
 * question, no vGPU can give more, or the time is over. Then the question is answered as one that
 * does not reclaim.
 *
 * A device has one round at a time, which belongs to one question. No order asks for more than what
 * the vGPU holds beyond its reservation, and the process stops there by itself, since the vGPU may
 * have freed memory meanwhile. Where memory is reserved, the accounts decide whether there
 * is room, not the reports of processes. Elsewhere a false report costs the asking process an
 * attempt.
 *
 * A vGPU may take the time of others for a tenth of the time, and a second at once: the time of its
 * orders is taken off a credit, and its next round waits until that is positive again.
 *
 * Memory of the host takes ten times as long to make as chunks take to leave for it. So a process
 * that could be given an order learns that before: by an order of no bytes, once a second. */
#include "daemon/vgpu/vgpu_int.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/session/tenant_session.h"
#include "daemon/vgpu/vgpu_list.h"
#include "mem/ledger.h"

#define ORDER_TIMEOUT_NS 1000000000u	  /* for one order to be answered */
#define SHUN_NS 10000000000u		  /* a process that has not answered gets no order */
#define EXIT_NS 200000000u		  /* for the memory of a process that ends to be freed */
#define HOLD_NS 1000000000u		  /* chunks do not return to the device for that time */
#define CREDIT_MAX_NS INT64_C(1000000000) /* orders of a vGPU at once, */
#define CREDIT_SHARE 10u		  /* and in the long run this part of the time */
#define CREDIT_BOUND_NS UINT64_C(10000000000) /* of what is added or taken off */
#define CREDIT_WAIT_NS 1000000000u    /* a question waits for credit for that time at most */
#define ORDER_MAX (UINT64_C(1) << 30) /* the agent of a process is busy with one that long */
#define UNIT (UINT64_C(16) << 20)     /* needs are rounded up: memory leaves in such chunks */
#define CHUNK_MIN (UINT64_C(2) << 20) /* smallest chunk */
#define NO_ROUND UINT64_MAX

static uint64_t round_up(uint64_t bytes)
{
	return bytes > UINT64_MAX - UNIT ? UINT64_MAX : ROUND_UP(bytes, UNIT);
}

static struct daemon_gpu *device_of(const struct daemon_session *s)
{
	return s->vgpu.ask.row < PROTO_MAX_GPUS ? daemon_vgpu_device_of(s->vgpu.of, s->vgpu.ask.row)
						: NULL;
}

/* ---- the time that a vGPU takes of others ---- */

/* Adds what time has brought since the last call. Returns the time until there is credit. */
static uint64_t until_credit(struct daemon_vgpu *v, uint64_t now)
{
	uint64_t parts = (now - v->reclaim.credited_ns) / CREDIT_SHARE;

	if (!v->reclaim.credited_ns) { /* it has taken nothing yet */
		v->reclaim.credit_ns = CREDIT_MAX_NS;
		v->reclaim.credited_ns = now;
	} else {
		v->reclaim.credit_ns += (int64_t)MIN(parts, CREDIT_BOUND_NS);
		v->reclaim.credit_ns = MIN(v->reclaim.credit_ns, CREDIT_MAX_NS);
		v->reclaim.credited_ns += parts * CREDIT_SHARE;
	}
	return v->reclaim.credit_ns > 0 ? 0 : (uint64_t)(1 - v->reclaim.credit_ns) * CREDIT_SHARE;
}

/* Takes the time of an order off the credit of the vGPU at a place, if there is one still. */
static void take_credit(struct daemon *d, uint32_t place, uint64_t spent_ns)
{
	for (struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		if (v->place == place) {
			v->reclaim.credit_ns -= (int64_t)MIN(spent_ns, CREDIT_BOUND_NS);
			v->reclaim.credit_ns = MAX(v->reclaim.credit_ns, -(int64_t)CREDIT_BOUND_NS);
		}
	}
}

/* ---- what vGPUs hold beyond their reservations ---- */

/* Returns what a vGPU holds of a row beyond its reservation; 0 if its memory cannot leave. */
static uint64_t above_of(const struct daemon_vgpu *v, uint32_t row)
{
	uint64_t most, used;

	if (row >= PROTO_MAX_GPUS || !v->row[PROTO_ACCOUNT_SWAP].limit) {
		return 0;
	}
	most = MIN(v->row[row].most, PROTO_VGPU_MEM_MAX);
	used = min_once(mem_account_used(daemon_vgpu_page(v), row), most);
	return used > v->is.config.reserve ? used - v->is.config.reserve : 0;
}

/* Returns what the process of a session holds of a row. */
static uint64_t own_of(const struct daemon_session *s, uint32_t row)
{
	return min_once(mem_account_line_used(daemon_vgpu_page(s->vgpu.of), row, s->vgpu.line),
			PROTO_VGPU_MEM_MAX);
}

/* Returns true if the process can be given an order in the round of that number. */
static bool may_order(const struct daemon_session *s, uint64_t round, uint64_t now)
{
	return s->state == DAEMON_SESSION_READY && !s->dying && s->vgpu.release.round != round &&
	       now >= s->vgpu.release.shunned_until_ns;
}

/* Returns the process of the vGPU that holds the most and can be given an order; NULL: none. */
static struct daemon_session *process_of(const struct daemon_vgpu *v, uint32_t row, uint64_t round,
					 uint64_t now)
{
	struct daemon_session *found = NULL;
	uint64_t most = CHUNK_MIN - 1;

	daemon_session_each(v->d, s)
	{
		if (s->vgpu.of == v && may_order(s, round, now) && own_of(s, row) > most) {
			most = own_of(s, row);
			found = s;
		}
	}
	return found;
}

/* Returns what of a vGPU's swap is not in use. */
static uint64_t swap_left_of(const struct daemon_vgpu *v)
{
	uint64_t limit = v->row[PROTO_ACCOUNT_SWAP].limit;
	uint64_t used = mem_account_used(daemon_vgpu_page(v), PROTO_ACCOUNT_SWAP);

	return used < limit ? limit - used : 0;
}

/* Returns what the policy allows to be taken in this round. It is asked once in a round. */
static uint64_t quota_of(struct daemon_vgpu *v, uint32_t row, uint64_t above,
			 const struct daemon_vgpu_round *r, uint64_t need)
{
	const struct daemon_vgpu *by = r->asker->vgpu.of;
	const struct daemon_vgpu_claim c = { .of = &v->is.config,
					     .by = &by->is.config,
					     .place = v->place,
					     .for_place = by->place,
					     .gpu = (uint32_t)(r - v->d->vgpus.round),
					     .need = need,
					     .used = above + v->is.config.reserve,
					     .above = above,
					     .swap_left = swap_left_of(v),
					     .full = r->asker->vgpu.ask.full,
					     .attempts = r->orders };
	struct daemon_vgpu_row *of = &v->row[row];

	if (of->quota_round != r->number) {
		of->quota_round = r->number;
		of->quota = UINT64_MAX;
		daemon_features_each(f)
		{
			if ((*f)->reclaim && (*f)->reclaim(v->d, &c, &of->quota)) {
				break;
			}
		}
	}
	return of->quota;
}

/* A vGPU that could be given the next order. */
struct candidate {
	struct daemon_vgpu *v;
	struct daemon_session *process; /* NULL: there is no candidate */
	uint32_t row;
	uint64_t above, most; /* beyond its reservation; that may be taken of it */
};

/* The least important first, then the one that holds the most beyond its reservation. */
static bool is_before(const struct candidate *a, const struct candidate *b)
{
	int32_t x = a->v->is.config.prio, y = b->process ? b->v->is.config.prio : INT32_MAX;

	return !b->process || x < y || (x == y && a->above > b->above);
}

/* Returns a candidate that has a process for an order, of whatever size. by: the vGPU for which
 * that is; NULL: any. */
static struct candidate candidate_of(struct daemon_vgpu *v, const struct daemon_vgpu *by,
				     const struct daemon_gpu *g, uint64_t round, uint64_t now)
{
	struct candidate c = { .v = v, .row = daemon_vgpu_row_of(v, g->uuid) };

	c.above = v != by ? above_of(v, c.row) : 0;
	if (c.above >= CHUNK_MIN) {
		c.process = process_of(v, c.row, round, now);
	}
	return c;
}

/* Returns true if a vGPU could release memory for a question. */
static bool any_candidate(const struct daemon_session *asker, const struct daemon_gpu *g,
			  uint64_t now)
{
	bool any = false;

	for (struct daemon_vgpu *v = asker->d->vgpus.first; v && !any; v = v->next) {
		any = candidate_of(v, asker->vgpu.of, g, NO_ROUND, now).process;
	}
	return any;
}

/* Returns true while another vGPU may come to be a candidate: after a restart of gbpfd. */
static bool one_may_come(const struct daemon_session *asker)
{
	for (const struct daemon_vgpu *v = asker->d->vgpus.first; v; v = v->next) {
		if (v != asker->vgpu.of && v->is.config.swap && daemon_vgpu_is_awaited(v)) {
			return true;
		}
	}
	daemon_session_each(asker->d, s)
	{
		if (s->vgpu.of && s->vgpu.of != asker->vgpu.of && s->vgpu.of->is.config.swap &&
		    !s->dying && s->state < DAEMON_SESSION_READY &&
		    daemon_vgpus_are_awaited(s->d)) {
			return true;
		}
	}
	return false;
}

static struct candidate choose(const struct daemon_vgpu_round *r, const struct daemon_gpu *g,
			       uint64_t need, uint64_t now)
{
	struct candidate best = { .process = NULL };

	for (struct daemon_vgpu *v = r->asker->d->vgpus.first; v; v = v->next) {
		struct candidate c = candidate_of(v, r->asker->vgpu.of, g, r->number, now);

		if (!c.process) {
			continue;
		}
		c.most = MIN(c.above, quota_of(v, c.row, c.above, r, need));
		if (c.most >= CHUNK_MIN && is_before(&c, &best)) {
			best = c;
		}
	}
	return best;
}

/* ---- rounds ---- */

/* Returns what the question still needs; 0: there is room. */
static uint64_t need_of(struct daemon_session *s, const struct daemon_vgpu_round *r)
{
	if (s->vgpu.ask.full) {
		uint64_t all = round_up(s->vgpu.ask.bytes);

		return r->freed < all ? all - r->freed : 0;
	}
	return daemon_vgpu_may_try(s) ? 0 : round_up(daemon_vgpu_missing(s));
}

/* Gives the next order of a round. Returns false if no vGPU can give more. */
static bool give_order(struct daemon_vgpu_round *r, const struct daemon_gpu *g, uint64_t need,
		       uint64_t now)
{
	struct candidate c = choose(r, g, need, now);
	union proto_message m = { 0 };

	if (!c.process) {
		return false;
	}
	r->victim = c.process;
	r->row = c.row;
	r->orders++;
	r->victim_had = own_of(c.process, c.row);
	r->most = MIN(c.most, MIN(r->victim_had, ORDER_MAX));
	r->ordered = MIN(need, r->most);
	r->order = ++c.v->d->vgpus.orders;
	r->sent_ns = now;
	r->until_ns = now + clock_patience(ORDER_TIMEOUT_NS);
	m.mem_release.row = c.row;
	m.mem_release.number = r->order;
	m.mem_release.bytes = r->ordered;
	m.mem_release.most = r->most;
	m.mem_release.reserve = c.v->is.config.reserve;
	m.mem_release.hold_ns = clock_patience(HOLD_NS);
	daemon_session_send(c.process, &m, PROTO_MEM_RELEASE, NULL, 0);
	return true;
}

/* The events are read by the owner of the process that has got the order: they do not name the
 * vGPU that needs the memory. */
static void note_timeout(struct daemon_session *s, uint64_t bytes, uint64_t now)
{
	if (daemon_session_event_allowed(s->d, s->peer.uid)) {
		daemon_history_repeat(
			&s->d->history, now, s->peer.uid, "memory", s->tenant, s->peer.pid,
			"%s (pid %d) has not answered the order to release %llu MiB of GPU memory, "
			"which another vGPU needs, within %u ms; it gets no order for %u s",
			s->name, (int)s->peer.pid, (unsigned long long)(bytes >> 20),
			(unsigned)(clock_patience(ORDER_TIMEOUT_NS) / 1000000),
			(unsigned)(SHUN_NS / 1000000000u));
	}
}

static void note_release(struct daemon_session *s, uint64_t bytes, uint64_t now)
{
	if (daemon_session_event_allowed(s->d, s->peer.uid)) {
		daemon_history_repeat(&s->d->history, now, s->peer.uid, "memory", s->tenant,
				      s->peer.pid,
				      "%s (pid %d) has moved %llu MiB of GPU memory to the host, "
				      "since another vGPU needs it",
				      s->name, (int)s->peer.pid, (unsigned long long)(bytes >> 20));
	}
}

/* Ends the order that is under way, if its time is over. Returns false if it is not. */
static bool order_is_over(struct daemon_vgpu_round *r, uint64_t now)
{
	if (r->order && now < r->until_ns) {
		return false;
	}
	if (r->order && r->victim) {
		r->victim->vgpu.release.shunned_until_ns = now + SHUN_NS;
		note_timeout(r->victim, r->ordered, now);
	}
	r->order = 0;
	r->victim = NULL;
	return true;
}

/* Ends a round, and answers its question, or leaves it to the queue of those that wait. */
static void end_round(struct daemon_vgpu_round *r)
{
	struct daemon_session *s = r->asker;

	r->asker = NULL;
	s->vgpu.ask.reclaims = false;
	if (s->vgpu.ask.full) {
		daemon_vgpu_full_reclaimed(s, r->freed > 0);
	} else {
		daemon_vgpu_limit_reclaimed(s);
	}
}

/* Returns true if s is the next one to have a round on a device. */
static bool comes_before(const struct daemon_session *s, const struct daemon_session *other)
{
	return !other || s->vgpu.ask.since < other->vgpu.ask.since;
}

/* Begins the round of the question that came first, of those that have credit or whose time is
 * over. Returns false if there is none. */
static bool begin_round(struct daemon *d, struct daemon_vgpu_round *r, const struct daemon_gpu *g,
			uint64_t now)
{
	struct daemon_session *first = NULL;

	daemon_session_each(d, s)
	{
		if (s->vgpu.of && s->vgpu.ask.reclaims && device_of(s) == g &&
		    (now >= s->vgpu.ask.reclaim_until_ns || !until_credit(s->vgpu.of, now)) &&
		    comes_before(s, first)) {
			first = s;
		}
	}
	r->asker = first;
	r->number = ++d->vgpus.rounds;
	r->freed = 0;
	r->orders = 0;
	r->place = first ? first->vgpu.of->place : 0;
	return first != NULL;
}

/* Goes on until an order is under way, or no question is left that can go on now. */
static void step(struct daemon *d, unsigned gpu)
{
	struct daemon_vgpu_round *r = &d->vgpus.round[gpu];
	const struct daemon_gpu *g = &d->devices.d[gpu];
	uint64_t now = clock_now_ns();

	while (order_is_over(r, now) && (r->asker || begin_round(d, r, g, now))) {
		uint64_t need =
			now < r->asker->vgpu.ask.reclaim_until_ns ? need_of(r->asker, r) : 0;

		if (!need) {
			end_round(r);
		} else if (!give_order(r, g, need, now)) {
			if (one_may_come(r->asker)) {
				return;
			}
			end_round(r);
		}
	}
}

bool daemon_vgpu_reclaim_begin(struct daemon_session *s)
{
	uint64_t now = clock_now_ns();
	struct daemon_gpu *g;

	if (!s->vgpu.ask.may_reclaim || daemon_vgpu_is_hopeless(s)) {
		return false;
	}
	g = device_of(s);
	if (!g || until_credit(s->vgpu.of, now) > CREDIT_WAIT_NS ||
	    (!any_candidate(s, g, now) && !one_may_come(s))) {
		return false;
	}
	s->vgpu.ask.reclaims = true;
	s->vgpu.ask.reclaim_until_ns = now + clock_patience(PROTO_MEM_RECLAIM_MAX_NS);
	step(s->d, (unsigned)(g - s->d->devices.d));
	if (s->vgpu.ask.reclaims) {
		daemon_vgpu_await_memory(s->d);
	}
	return true;
}

bool daemon_vgpu_reclaim_look(struct daemon *d)
{
	bool some = false;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (d->devices.d[i].used) {
			step(d, i);
		}
	}
	daemon_session_each(d, s)
	{
		some |= s->vgpu.of && s->vgpu.ask.reclaims;
	}
	return some;
}

void daemon_vgpu_reclaim_stop(struct daemon_session *s)
{
	s->vgpu.ask.reclaims = false;
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		struct daemon_vgpu_round *r = &s->d->vgpus.round[i];

		/* An order that is under way counts until it has been answered. */
		r->asker = r->asker == s ? NULL : r->asker;
	}
}

/* Its memory is freed soon, so the round waits for that. */
void daemon_vgpu_reclaim_left(struct daemon_session *s)
{
	daemon_vgpu_reclaim_stop(s);
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		struct daemon_vgpu_round *r = &s->d->vgpus.round[i];

		if (r->order && r->victim == s) {
			r->victim = NULL;
			r->freed += r->ordered;
			r->until_ns = clock_now_ns() + clock_patience(EXIT_NS);
		}
	}
}

/* An answer that the account does not bear out ends the orders to the process in this round: it
 * would be the first choice again. (It may have allocated something meanwhile.) */
static bool is_borne_out(const struct daemon_session *s, const struct daemon_vgpu_round *r,
			 uint64_t freed)
{
	uint64_t has = own_of(s, r->row);

	return has < r->victim_had && r->victim_had - has >= freed / 2;
}

static void take_answer(struct daemon_session *s, struct daemon_vgpu_round *r, uint64_t bytes)
{
	uint64_t now = clock_now_ns(), freed = MIN(bytes, r->most);
	bool more = freed >= CHUNK_MIN && is_borne_out(s, r, freed);

	take_credit(s->d, r->place, now - r->sent_ns);
	r->freed += freed;
	s->vgpu.of->row[r->row].quota -= MIN(freed, s->vgpu.of->row[r->row].quota);
	r->order = 0;
	r->victim = NULL;
	if (!more) {
		s->vgpu.release.round = r->number; /* it can give no more */
	}
	if (freed >= CHUNK_MIN) {
		note_release(s, freed, now);
	}
	daemon_vgpu_take_back(s->vgpu.of, r->row);
}

bool daemon_vgpu_released(struct daemon_session *s, struct daemon_received *m)
{
	if (!m->m.mem_release.number) {
		s->vgpu.release.foreseen = false;
	}
	for (unsigned i = 0; s->vgpu.of && i < PROTO_MAX_GPUS; i++) {
		struct daemon_vgpu_round *r = &s->d->vgpus.round[i];

		if (r->order && r->victim == s && r->order == m->m.mem_release.number) {
			take_answer(s, r, m->m.mem_release.bytes);
			step(s->d, i);
			break;
		}
	}
	return s->vgpu.of; /* another one is late: its time was over */
}

/* ---- orders that may come ---- */

/* Returns what a vGPU that has processes may still take of a device. */
static uint64_t may_take(const struct daemon_vgpu *v, const struct daemon_gpu *g)
{
	uint32_t row = daemon_vgpu_row_of(v, g->uuid);
	uint64_t most;

	if (row >= PROTO_MAX_GPUS || !v->n_lines) {
		return 0;
	}
	most = MIN(mem_limit_stated(row, v->row[row].limit), g->mem);
	return most - min_once(mem_account_used(daemon_vgpu_page(v), row), most);
}

/* Returns the candidate that gets the first order when other vGPUs take what they may; none if that
 * is free. */
static struct candidate foresee(struct daemon *d, unsigned gpu)
{
	struct candidate best = { .process = NULL };
	const struct daemon_gpu *g = &d->devices.d[gpu];
	uint64_t size, left = daemon_vgpu_free_memory(d, gpu, &size), all = 0;

	for (struct daemon_vgpu *v = d->vgpus.first; size && v; v = v->next) {
		all += may_take(v, g);
	}
	for (struct daemon_vgpu *v = d->vgpus.first; size && v; v = v->next) {
		struct candidate c = candidate_of(v, NULL, g, NO_ROUND, clock_now_ns());

		if (c.process && all - MIN(all, may_take(v, g)) > left && is_before(&c, &best)) {
			best = c;
		}
	}
	return best;
}

/* Returns true if processes of one vGPU may need what those of another one can release: otherwise
 * no account is summed up, which takes as long as processes make it, and no user's budget pays for.
 */
static bool may_need(const struct daemon *d)
{
	unsigned n = 0, with_swap = 0;

	for (const struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		n += v->n_lines > 0;
		with_swap += v->n_lines && v->row[PROTO_ACCOUNT_SWAP].limit;
	}
	return n > 1 && with_swap;
}

void daemon_vgpu_reclaim_foresee(struct daemon *d)
{
	unsigned n = may_need(d) ? PROTO_MAX_GPUS : 0;

	for (unsigned i = 0; i < n; i++) {
		struct candidate c = foresee(d, i);
		union proto_message m = { 0 };

		/* A process that is stopped gets no second one. */
		if (c.process && !c.process->vgpu.release.foreseen) {
			c.process->vgpu.release.foreseen = true;
			m.mem_release.row = c.row;
			daemon_session_send(c.process, &m, PROTO_MEM_RELEASE, NULL, 0);
		}
	}
}

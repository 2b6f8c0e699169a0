/* Groups: processes of one user with the same text in their hello that communicate across GPUs.
 * Each is sent the boards of the others (sched/group.h). A process has a slot in its group; at most
 * PROTO_MAX_LC of a group are ranks, further ones are held by themselves. */
#include "daemon/session/tenant_session.h"

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "policy/ctx.h"

#define GROUPS_MAX 64u /* that are looked at for leading; with more, no GPU is led */
#define IN_STEP 64u    /* as LAG_MAX of sched/group.c */
/* Several hold limits: a group that is stopped is in step still. */
#define LATELY_NS UINT64_C(1000000000)

static bool are_one_group(const struct daemon_session *a, const struct daemon_session *b)
{
	return a != b && a->peer.uid == b->peer.uid && strcmp(a->group.name, b->group.name) == 0;
}

static bool is_ready(const struct daemon_session *s)
{
	return s->state == DAEMON_SESSION_READY && !s->dying;
}

static void send_peer(struct daemon_session *to, enum proto_type type,
		      const struct daemon_session *peer)
{
	union proto_message m = { 0 };

	m.board.slot = (uint32_t)peer->group.slot;
	m.board.tenant = (uint32_t)peer->tenant;
	m.board.group = type == PROTO_PEER_ADD ? peer->group.number : 0;
	daemon_session_send(to, &m, type, &peer->board.fd, type == PROTO_PEER_ADD);
}

/* Returns the slots of the group that are taken, as bits, and its number, 0 without any. */
static uint64_t slots_of(const struct daemon_session *s, uint32_t *ret_number)
{
	uint64_t taken = 0;

	*ret_number = 0;
	daemon_session_each(s->d, t)
	{
		if (t->group.slot >= 0 && are_one_group(s, t)) {
			taken |= UINT64_C(1) << t->group.slot;
			*ret_number = t->group.number;
		}
	}
	return taken;
}

void daemon_group_join(struct daemon_session *s)
{
	uint64_t taken;
	uint32_t number;

	s->group.communicates = true;
	if (s->group.slot >= 0 || !s->group.name[0]) {
		return;
	}
	taken = slots_of(s, &number);
	if (taken == UINT64_MAX) {
		daemon_session_event(s, "limit",
				     "%s exceeds the %u processes of group '%s': a policy holds it "
				     "by itself until one of them exits",
				     s->name, PROTO_MAX_LC, s->group.name);
		return;
	}
	s->group.slot = __builtin_ctzll(~taken);
	s->group.number = number ? number : ++s->d->sessions.last_group;
	daemon_session_each(s->d, t)
	{
		if (t->group.slot >= 0 && is_ready(t) && are_one_group(s, t)) {
			send_peer(t, PROTO_PEER_ADD, s);
			send_peer(s, PROTO_PEER_ADD, t);
		}
	}
	daemon_groups_lead(s->d);
}

/* Gives a free slot to a process of the group that has none. */
static void join_waiting(const struct daemon_session *left)
{
	daemon_session_each(left->d, t)
	{
		if (t->group.communicates && t->group.slot < 0 && is_ready(t) &&
		    are_one_group(left, t)) {
			daemon_group_join(t);
			return;
		}
	}
}

void daemon_group_leave(struct daemon_session *s)
{
	if (s->group.slot < 0) {
		return;
	}
	daemon_session_each(s->d, t)
	{
		if (t->group.slot >= 0 && is_ready(t) && are_one_group(s, t)) {
			send_peer(t, PROTO_PEER_REMOVE, s);
		}
	}
	s->group.slot = -1;
	join_waiting(s);
	daemon_groups_lead(s->d);
}

static bool take_communicates(struct daemon_session *s, struct daemon_received *r)
{
	(void)r;
	daemon_group_join(s);
	return true;
}

const struct daemon_feature daemon_groups_feature = {
	.messages = { { PROTO_COMMUNICATES, 1u << DAEMON_SESSION_READY, take_communicates } },
	.session_ended = daemon_group_leave,
};

/* ---- GPUs that are led ---- */

/* What is known of a group: the GPUs on which it has ranks, and how many collectives each counts.
 */
struct group {
	uint32_t number, gpus;
	uint64_t collectives[PROTO_MAX_GPUS];
};

/* Returns the entry of that number, a new one if there is none; NULL: there are too many. */
static struct group *entry_of(struct group *groups, unsigned *n, uint32_t number)
{
	unsigned i = 0;

	while (i < *n && groups[i].number != number) {
		i++;
	}
	if (i == GROUPS_MAX) {
		return NULL;
	}
	if (i == *n) {
		groups[(*n)++] = (struct group){ .number = number };
	}
	return &groups[i];
}

/* Looks at what a process does on one of its GPUs. Returns whether it has launched work lately, and
 * *ret_rank, collectives among it. */
static bool is_busy(struct daemon_session *s, uint32_t ordinal, uint64_t now, bool *ret_rank)
{
	const struct proto_stats *stats = s->stats.map;
	const struct proto_stats_gpu *st = &stats->gpu[ordinal];
	const struct proto_board *board = s->board.map;
	uint32_t gpu = s->gpu_index[ordinal];
	uint64_t launches = load_relaxed(&st->launches) + load_relaxed(&st->copies),
		 collectives = load_relaxed(&board->gpu[gpu].collectives);

	if (launches != s->group.seen[ordinal].launches) {
		s->group.seen[ordinal].launches = launches;
		s->group.seen[ordinal].launched_ns = now;
	}
	if (collectives != s->group.seen[ordinal].collectives) {
		s->group.seen[ordinal].collectives = collectives;
		s->group.seen[ordinal].communicated_ns = now;
	}
	*ret_rank = s->group.slot >= 0 && s->class_id != GBPF_CLASS_LATENCY &&
		    load_relaxed(&board->ranks) & 1u << gpu &&
		    now - s->group.seen[ordinal].communicated_ns < LATELY_NS;
	return now - s->group.seen[ordinal].launched_ns < LATELY_NS || load_relaxed(&st->inflight);
}

/* Adds a session: to its group where it is a rank, and else to *ret_others the GPUs on which it
 * works. Returns false if there are too many groups. */
static bool add(struct daemon_session *s, uint64_t now, struct group *groups, unsigned *n,
		uint32_t *ret_others)
{
	const struct proto_board *board = s->board.map;

	for (uint32_t i = 0; i < s->gpus; i++) {
		uint32_t gpu = s->gpu_index[i];
		bool rank, busy = is_busy(s, i, now, &rank);
		struct group *g = rank ? entry_of(groups, n, s->group.number) : NULL;

		if (rank && !g) {
			return false;
		}
		if (g) {
			uint64_t count = load_relaxed(&board->gpu[gpu].collectives);

			g->gpus |= 1u << gpu;
			g->collectives[gpu] = MAX(g->collectives[gpu], count);
		} else if (busy) {
			*ret_others |= 1u << gpu;
		}
	}
	return true;
}

/* Returns the GPUs, as bits, on which the group has ranks in step with that on this one. */
static uint32_t in_step(const struct group *g, uint32_t gpu)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		uint64_t ahead = g->collectives[i] - g->collectives[gpu] + IN_STEP;

		bits |= g->gpus & 1u << i && ahead <= 2 * IN_STEP ? 1u << i : 0;
	}
	return bits;
}

/* Returns the GPUs, as bits, on which the same policy is in force. */
static uint32_t same_policy(struct daemon *d, uint32_t gpu)
{
	return daemon_policy_gpus_of(d, daemon_policy_active_version(d, gpu));
}

/* Returns the GPU that leads this one: the lowest with the same policy on which all its groups have
 * ranks, of those that have other work, if there are any. One with other work is never led. Where
 * the leader is led itself, since being in step is not transitive, its own leader has all of these
 * groups, too. */
static uint32_t leader_of(struct daemon *d, const struct group *groups, unsigned n, uint32_t others,
			  uint32_t gpu)
{
	uint32_t may = UINT32_MAX;

	for (unsigned i = 0; i < n; i++) {
		may &= groups[i].gpus & 1u << gpu ? in_step(&groups[i], gpu) : UINT32_MAX;
	}
	if (may == UINT32_MAX || others & 1u << gpu) { /* no group is there, or other work */
		return gpu;
	}
	may &= same_policy(d, gpu);
	may = may & others ? may & others : may;
	return may ? (uint32_t)__builtin_ctz(may) : gpu;
}

/* Returns the GPUs, as bits, of the session's group, if it has several and they have no other work
 * than that of groups with the same GPUs; 0 otherwise. */
static uint32_t sole_gpus(const struct daemon_session *s, const struct group *groups, unsigned n,
			  uint32_t others)
{
	uint32_t gpus = 0;

	for (unsigned i = 0; i < n && s->group.slot >= 0; i++) {
		gpus |= groups[i].number == s->group.number ? groups[i].gpus : 0;
	}
	for (unsigned i = 0; i < n; i++) {
		others |= groups[i].gpus == gpus ? 0 : groups[i].gpus;
	}
	return __builtin_popcount(gpus) > 1 && !(others & gpus) ? gpus : 0;
}

/* Publishes the GPUs that are led, and sets sole_gpus of each session. */
static void look_at_groups(struct daemon *d)
{
	struct group groups[GROUPS_MAX] = { 0 };
	uint32_t others = 0, led = 0;
	uint64_t now = clock_now_ns();
	bool complete = true;
	unsigned n = 0;

	daemon_session_each(d, s)
	{
		if (is_ready(s)) {
			complete = add(s, now, groups, &n, &others) && complete;
		}
	}
	for (uint32_t i = 0; i < PROTO_MAX_GPUS && n && complete; i++) {
		led |= leader_of(d, groups, n, others, i) != i ? 1u << i : 0;
	}
	daemon_session_each(d, s)
	{
		s->group.sole_gpus = complete ? sole_gpus(s, groups, n, others) : 0;
	}
	if (led != load_relaxed(&daemon_directory(d)->led)) {
		store_relaxed(&daemon_directory(d)->led, led);
	}
}

void daemon_groups_lead(struct daemon *d)
{
	if (d->sessions.last_group) {
		look_at_groups(d);
	}
}

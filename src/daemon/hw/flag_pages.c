/* Flag pages (gpu/flag.h): device memory that one tenant's kernels read and latency tenants write
 * leases to. A process that makes one sends its descriptor to gbpfd, which passes it on to each
 * tenant on the same GPU whose board is published, with the number of the board's slot as the index
 * of its word. A page contains leases and nothing else: its holder can delay the owner's
 * preemptible kernels up to the hold limit, as with an open request on a board, and can see when
 * others raise leases. Words of tenants that have left are cleared here, so that the next owner of
 * their slot finds them free. A descriptor from a tenant is checked before gbpfd and the receivers
 * map it: it must be a sealed memfd or a node of the NVIDIA driver, so that no mapping can fault
 * and no close can block. */
#include "daemon/hw/hw_control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gpu/control.h"
#include "gpu/flag.h"

#define MAX_FOREIGN 64u /* pages of one user that is neither root nor the daemon's */

struct daemon_flag_page {
	struct daemon_session *owner;
	uint32_t gpu; /* gbpfd's number */
	int fd;	      /* owned */
	struct gpu_lease_page map;
};

/* Returns true for a sealed memfd and for a character device. fstat() of a tenant's file could
 * block in the file system of that tenant (FUSE); these two calls do not. */
static bool is_plain(int fd)
{
	struct statx st;

	if (fcntl(fd, F_GET_SEALS) >= 0) {
		return true; /* a memfd */
	}
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
	       S_ISCHR(st.stx_mode);
}

static void page_free(struct daemon_flag_page *p)
{
	gpu_lease_unmap(&p->map);
	fd_close_foreign(p->fd);
	free(p);
}

static bool sees(const struct daemon_session *s, uint32_t gpu)
{
	return s->gpu_mask & 1u << gpu;
}

static void send_page(struct daemon_session *to, struct daemon_flag_page *p)
{
	union proto_message m = { 0 };
	unsigned number = 0;

	if (to == p->owner || to->state != DAEMON_SESSION_READY || to->dying || to->lc.slot < 0 ||
	    !sees(to, p->gpu)) {
		return;
	}
	while (number < PROTO_FLAGS && to->flags.sent[number]) {
		number++;
	}
	if (number == PROTO_FLAGS) {
		daemon_session_event(to, "limit",
				     "%s has %u flag pages: it cannot stop %s between blocks",
				     to->name, PROTO_FLAGS, p->owner->name);
		return;
	}
	to->flags.sent[number] = p;
	m.flag.gpu = p->gpu;
	m.flag.number = number;
	m.flag.slot = (uint32_t)to->lc.slot;
	m.flag.tenant = (uint32_t)p->owner->tenant;
	daemon_session_send(to, &m, PROTO_FLAG_ADD, &p->fd, 1);
}

static void take_from(struct daemon_session *from, unsigned number)
{
	union proto_message m = { 0 };

	m.flag.gpu = from->flags.sent[number]->gpu;
	m.flag.tenant = (uint32_t)from->flags.sent[number]->owner->tenant;
	m.flag.number = number;
	from->flags.sent[number] = NULL;
	daemon_session_send(from, &m, PROTO_FLAG_REMOVE, NULL, 0);
}

/* Frees a page and has all holders unmap it: its memory is freed with its owner. */
static void page_end(struct daemon *d, struct daemon_flag_page *p)
{
	daemon_session_each(d, s)
	{
		for (unsigned i = 0; i < PROTO_FLAGS; i++) {
			if (s->flags.sent[i] == p) {
				take_from(s, i);
			}
		}
	}
	page_free(p);
}

static unsigned pages_of(const struct daemon *d, uid_t uid)
{
	unsigned n = 0;

	daemon_session_each(d, s)
	{
		for (unsigned i = 0; s->peer.uid == uid && i < PROTO_MAX_GPUS; i++) {
			n += s->flags.own[i] != NULL;
		}
	}
	return n;
}

static bool may_have_one_more(const struct daemon_session *s)
{
	bool foreign = s->peer.uid != 0 && s->peer.uid != s->d->uid;

	return !foreign || pages_of(s->d, s->peer.uid) < MAX_FOREIGN;
}

static void take_back(struct daemon_session *s, uint32_t ordinal)
{
	if (s->flags.own[ordinal]) {
		struct daemon_flag_page *p = s->flags.own[ordinal];

		s->flags.own[ordinal] = NULL;
		page_end(s->d, p);
	}
}

/* Clears the words of slots without an owner, because a former holder may have written any word.
 * Current owners repair their own words when they receive the page, or when BOARD_REMOVE reports
 * that a holder has left. */
static void clear_ownerless(const struct daemon *d, const struct daemon_flag_page *p)
{
	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		if (!d->sessions.lc[i]) {
			gpu_lease_store(&p->map, i, 0);
		}
	}
}

static int keep(struct daemon_session *s, uint32_t ordinal, int fd)
{
	struct daemon_flag_page *p = calloc(1, sizeof(*p));
	int err = p ? 0 : -ENOMEM;

	if (!err) {
		*p = (struct daemon_flag_page){ .owner = s,
						.gpu = s->gpu_index[ordinal],
						.fd = -1 };
		err = gpu_lease_map(&p->map, fd);
	}
	if (err) {
		free(p);
		return err;
	}
	p->fd = fd;
	clear_ownerless(s->d,
			p); /* words written while no gbpfd ran, or by a holder of that time */
	gpu_lease_fence();
	daemon_gpus_set_capable(&s->d->devices, p->gpu, 1u << GPU_CONTROL_FLAG);
	s->flags.own[ordinal] = p;
	daemon_session_each(s->d, t)
	{
		send_page(t, p);
	}
	return 0;
}

static int take(struct daemon_session *s, const struct proto_flag *m, int fd)
{
	if (m->gpu >= s->gpus) {
		return -EINVAL;
	}
	take_back(s, m->gpu);
	if (m->number == 1) {
		return 0;
	}
	if (!may_have_one_more(s)) {
		return -EMFILE;
	}
	return is_plain(fd) ? keep(s, m->gpu, fd) : -EBADF;
}

static bool take_flag(struct daemon_session *s, struct daemon_received *r)
{
	int fd = r->nfds ? r->fds[0] : -1, err;

	if (!daemon_hw_may_offer(s)) {
		return false;
	}
	err = take(s, &r->m.flag, fd);
	if (err) {
		fd_close_foreign(fd);
		daemon_session_event(s, "flag",
				     "cannot use the flag page of %s: %s; other tenants cannot "
				     "stop its kernels between blocks",
				     s->name, strerror(-err));
	}
	return true;
}

/* Withdraws its pages from the sessions that have them. */
static void session_ended(struct daemon_session *s)
{
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		take_back(s, i);
	}
}

/* Sends it the pages of others. */
static void board_published(struct daemon_session *s)
{
	daemon_session_each(s->d, t)
	{
		for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
			if (t->flags.own[i]) {
				send_page(s, t->flags.own[i]);
			}
		}
	}
}

/* Takes those pages back and clears its words on them. */
static void board_withdrawn(struct daemon_session *s)
{
	bool any = false;

	for (unsigned i = 0; i < PROTO_FLAGS; i++) {
		struct daemon_flag_page *p = s->flags.sent[i];

		if (p && !p->owner->dying) {
			clear_ownerless(s->d, p);
			any = true;
		}
		if (p) {
			take_from(s, i);
		}
	}
	if (any) {
		gpu_lease_fence();
	}
}

const struct daemon_feature daemon_flags_feature = {
	.messages = { { PROTO_FLAG, 1u << DAEMON_SESSION_READY, take_flag } },
	.board_published = board_published,
	.board_withdrawn = board_withdrawn,
	.session_ended = session_ended,
};

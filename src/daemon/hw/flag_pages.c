/* Flag pages (gpu/flag.h): device memory that one tenant's kernels read and latency tenants write
 * leases to. Whoever makes one gives gbpfd its descriptor; each tenant whose board is published and
 * that sees the same GPU gets it, with the number of its board's slot as its word. A page holds
 * leases and nothing else: who has it can keep its owner's preemptible kernels waiting, as an open
 * request on a board does, until the hold limit, and learns when others raise leases. Words of who
 * is gone are cleared here, so that a slot's next owner finds them free.
 * A descriptor from a tenant is looked at before it is mapped, by us and by who gets it: a sealed
 * memfd or a node of the NVIDIA driver, nothing that could make a mapping fault or a close wait. */
#include "daemon/session/tenant_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gpu/control.h"
#include "gpu/flag.h"

#define MAX_FOREIGN 64u /* pages of one user that is neither root nor the daemon's */

struct flag_page {
	struct session *owner;
	uint32_t gpu; /* gbpfd's number */
	int fd;	      /* owned */
	struct gpu_lease_page map;
};

/* fstat() of a stranger's file may wait for his file system; neither of these does. */
static bool is_plain(int fd)
{
	struct statx st;

	if (fcntl(fd, F_GET_SEALS) >= 0) {
		return true; /* a memfd */
	}
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
	       S_ISCHR(st.stx_mode);
}

static void page_free(struct flag_page *p)
{
	gpu_lease_unmap(&p->map);
	fd_close_foreign(p->fd);
	free(p);
}

static bool sees(const struct session *s, uint32_t gpu)
{
	return s->gpu_mask & 1u << gpu;
}

static void send_page(struct session *to, struct flag_page *p)
{
	union wire_message m = { 0 };
	unsigned number = 0;

	if (to == p->owner || to->state != SESSION_READY || to->dying || to->lc_slot < 0 ||
	    !sees(to, p->gpu)) {
		return;
	}
	while (number < WIRE_FLAGS && to->flag_seen[number]) {
		number++;
	}
	if (number == WIRE_FLAGS) {
		session_event(to, "limit", "%s has %u flag pages: it cannot stop %s between blocks",
			      to->name, WIRE_FLAGS, p->owner->name);
		return;
	}
	to->flag_seen[number] = p;
	m.flag.gpu = p->gpu;
	m.flag.number = number;
	m.flag.slot = (uint32_t)to->lc_slot;
	m.flag.tenant = (uint32_t)p->owner->tenant;
	session_send(to, &m, WIRE_FLAG_ADD, &p->fd, 1);
}

static void take_from(struct session *from, unsigned number)
{
	union wire_message m = { 0 };

	m.flag.gpu = from->flag_seen[number]->gpu;
	m.flag.tenant = (uint32_t)from->flag_seen[number]->owner->tenant;
	m.flag.number = number;
	from->flag_seen[number] = NULL;
	session_send(from, &m, WIRE_FLAG_REMOVE, NULL, 0);
}

/* The memory behind a page goes with its owner, so nobody may write to it any more. */
static void page_end(struct daemon *d, struct flag_page *p)
{
	session_each(d, s)
	{
		for (unsigned i = 0; i < WIRE_FLAGS; i++) {
			if (s->flag_seen[i] == p) {
				take_from(s, i);
			}
		}
	}
	page_free(p);
}

static unsigned pages_of(const struct daemon *d, uid_t uid)
{
	unsigned n = 0;

	session_each(d, s)
	{
		for (unsigned i = 0; s->peer.uid == uid && i < WIRE_GPUS; i++) {
			n += s->flag[i] != NULL;
		}
	}
	return n;
}

static bool may_have_one_more(const struct session *s)
{
	bool foreign = s->peer.uid != 0 && s->peer.uid != s->d->uid;

	return !foreign || pages_of(s->d, s->peer.uid) < MAX_FOREIGN;
}

static void take_back(struct session *s, uint32_t ordinal)
{
	if (s->flag[ordinal]) {
		struct flag_page *p = s->flag[ordinal];

		s->flag[ordinal] = NULL;
		page_end(s->d, p);
	}
}

/* Who had a page could write each word of it. Those of others are theirs to put right, which they
 * do when they hear that he has gone (BOARD_REMOVE), or get the page. */
static void clear_ownerless(const struct daemon *d, const struct flag_page *p)
{
	for (unsigned i = 0; i < SCHED_MAX_LC; i++) {
		if (!d->lc[i]) {
			gpu_lease_put(&p->map, i, 0);
		}
	}
}

static int keep(struct session *s, uint32_t ordinal, int fd)
{
	struct flag_page *p = calloc(1, sizeof(*p));
	int err = p ? 0 : -ENOMEM;

	if (!err) {
		*p = (struct flag_page){ .owner = s, .gpu = s->gpu_index[ordinal], .fd = -1 };
		err = gpu_lease_map(&p->map, fd);
	}
	if (err) {
		free(p);
		return err;
	}
	p->fd = fd;
	clear_ownerless(s->d, p); /* written while there was no gbpfd, or by somebody of its time */
	gpu_lease_fence();
	devices_tried(&s->d->devices, p->gpu, 1u << GPU_CONTROL_FLAG);
	s->flag[ordinal] = p;
	session_each(s->d, t)
	{
		send_page(t, p);
	}
	return 0;
}

static int take(struct session *s, const struct wire_flag *m, int fd)
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

void flags_take(struct session *s, const struct wire_flag *m, int fd)
{
	int err = take(s, m, fd);

	if (err) {
		fd_close_foreign(fd);
		session_event(s, "flag",
			      "the flag page of %s is refused (%s): its kernels cannot "
			      "be stopped between blocks by others",
			      s->name, strerror(-err));
	}
}

void flags_forget(struct session *s)
{
	for (uint32_t i = 0; i < WIRE_GPUS; i++) {
		take_back(s, i);
	}
}

void flags_publish(struct session *s)
{
	session_each(s->d, t)
	{
		for (uint32_t i = 0; i < WIRE_GPUS; i++) {
			if (t->flag[i]) {
				send_page(s, t->flag[i]);
			}
		}
	}
}

void flags_withdraw(struct session *s)
{
	bool any = false;

	for (unsigned i = 0; i < WIRE_FLAGS; i++) {
		struct flag_page *p = s->flag_seen[i];

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

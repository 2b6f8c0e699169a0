/* vGPUs, their lines and their end (daemon/vgpu/vgpu.h).
 *
 * The memory of a process is free once the kernel has closed its descriptors, which is before its
 * pidfd becomes readable: all its threads have exited then. A line is cleared then and no sooner,
 * or the vGPU would take memory twice; the end of a session says nothing, since a process may close
 * its socket and live. gbpfd keeps its own record of the processes, and uses that of the page only
 * when it takes over the page after a restart, for processes of the same user. */
#include "daemon/vgpu/vgpu_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/procfs.h"
#include "mem/account_figures.h"

#define OWN_VGPUS 16u	   /* reserved for root and gbpfd's user */
#define FOREIGN_MAX 16u	   /* of one user that is neither */
#define FOREIGN_LINES 256u /* processes in them */
#define ADOPT_TIMEOUT_NS                                                                           \
	10000000000u /* after gbpfd has started: time for processes to bring their page            \
		      */

/* Returns the start time of a process, 0 if it cannot be read. */
static uint64_t start_of(int pid)
{
	long long start;

	return procfs_stat_field(pid, PROCFS_START, &start, NULL) == 0 ? (uint64_t)start : 0;
}

static void drop_page(struct daemon_vgpu *v)
{
	for (unsigned i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		v->line[i].death = sd_event_source_disable_unref(v->line[i].death);
	}
	v->n_lines = 0;
	v->n_rows = 0;
	v->garbled_ns = 0;
	memset(v->row, 0, sizeof(v->row));
	daemon_page_destroy(&v->page);
	v->page = DAEMON_PAGE_NONE;
}

void daemon_vgpu_destroy(struct daemon_vgpu *v)
{
	struct daemon *d = v->d;
	struct daemon_vgpu **link = &d->vgpus.first;

	while (*link != v) {
		link = &(*link)->next;
	}
	*link = v->next;
	d->vgpus.n--;
	drop_page(v);
	free(v);
	if (!d->ending) {
		daemon_vgpu_reserve_update(d);
		daemon_features_call(vgpus_changed, d);
	}
}

/* The answers too: the next process in the line counts its questions from 1 again. */
static void zero_words(struct proto_account *a, uint32_t line)
{
	for (unsigned row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
		struct proto_account_line *l = &a->line[row][line];

		store_seqcst(&l->released, load_seqcst(&l->charged));
		store_seqcst(&l->wanted, (uint64_t)0);
		store_relaxed(&l->overhead, (uint64_t)0);
		store_relaxed(&l->shared, (uint64_t)0);
		store_relaxed(&l->answer, 0u);
		store_relaxed(&l->answer_seq, 0u);
		store_seqcst(&l->turn, 0u);
		store_relaxed(&l->tried_seq, 0u);
		store_relaxed(&l->gbpf, (uint64_t)0);
		store_relaxed(&a->orphans[row][line].peak, (uint64_t)0);
	}
	mem_account_clear_kinds(a, line);
}

/* Clears lines of processes that have exited: what others have imported of them passes on first.
 * The owners go last: a gbpfd that is killed before leaves the lines to be cleared by the next one.
 */
static void zero_lines(struct daemon_vgpu *v, const uint64_t lines[PROTO_ACCOUNT_LINES / 64])
{
	struct proto_account *a = daemon_vgpu_page(v);

	daemon_vgpu_pass_on(v, lines);
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		if (daemon_vgpu_is_in(lines, i)) {
			zero_words(a, i);
		}
	}
	daemon_vgpu_drop_shares(v, lines);
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		if (daemon_vgpu_is_in(lines, i)) {
			a->owner[i].pid = 0;
		}
	}
}

static void zero_line(struct daemon_vgpu *v, uint32_t line)
{
	uint64_t lines[PROTO_ACCOUNT_LINES / 64] = { 0 };

	lines[line / 64] = UINT64_C(1) << line % 64;
	zero_lines(v, lines);
}

/* Stores the limit of a row, 0: none, but of swap that nothing may be charged. */
static void set_limit(struct daemon_vgpu *v, uint32_t row, uint64_t limit)
{
	struct daemon_vgpu_row *r = &v->row[row];

	r->limit = limit;
	r->most = MAX(r->most, limit ? limit : UINT64_MAX);
	store_seqcst(&daemon_vgpu_page(v)->limit[row], limit);
}

/* Stores the uuid of a row, in gbpfd's own record and in the page. */
static void name_row(struct daemon_vgpu *v, uint32_t row, const uint8_t uuid[16])
{
	memcpy(v->row[row].uuid, uuid, 16);
	memcpy(daemon_vgpu_page(v)->uuid[row], uuid, 16);
}

/* The row of swap has no uuid where there is none; what is in use stays charged until released. */
static void store_host_limits(struct daemon_vgpu *v)
{
	static const uint8_t host[16] = PROTO_ACCOUNT_HOST_UUID, swap[16] = PROTO_ACCOUNT_SWAP_UUID,
			     none[16];
	uint64_t all = v->d->vgpus.pinnable, own = v->is.config.pinned;

	name_row(v, PROTO_ACCOUNT_HOST, host);
	set_limit(v, PROTO_ACCOUNT_HOST, own && all ? MIN(own, all) : MAX(own, all));
	name_row(v, PROTO_ACCOUNT_SWAP, v->is.config.swap ? swap : none);
	set_limit(v, PROTO_ACCOUNT_SWAP, v->is.config.swap);
	daemon_vgpu_store_shown(v);
}

/* Its last process has exited. The next one gets a page of its own: somebody may have the old one
 * mapped, or have written anything to it. */
static void emptied(struct daemon_vgpu *v)
{
	if (v->is.name[0]) {
		drop_page(v);
		daemon_vgpu_emptied(v);
	} else {
		daemon_vgpu_destroy(v);
	}
}

/* Returns the most memory that a process has held at a time on one device, bytes. Its page says
 * that; it counts up to the highest limit of the vGPU and the device's size, as gbpfd knows them.
 */
static uint64_t peak_of(const struct daemon_vgpu *v, uint32_t line)
{
	uint64_t peak = 0;

	for (uint32_t row = 0; row < v->n_rows; row++) {
		const struct daemon_gpu *g = daemon_vgpu_device_of(v, row);
		uint64_t bound = MIN(v->row[row].most, PROTO_VGPU_MEM_MAX);
		uint64_t held = mem_account_peak(daemon_vgpu_page(v), row, line);

		bound = g && g->mem ? MIN(bound, g->mem) : bound;
		peak = MAX(peak, MIN(held, bound));
	}
	return peak;
}

/* Clears the line of a process that has exited, and records what it has written over. */
static void clear_line(struct daemon_vgpu_line *l)
{
	l->peak = peak_of(l->v, (uint32_t)(l - l->v->line));
	daemon_vgpu_check_page(l->v, l->pid);
	zero_line(l->v, (uint32_t)(l - l->v->line));
}

uint32_t daemon_vgpu_lines(const struct daemon_vgpu *v)
{
	uint32_t n = PROTO_ACCOUNT_LINES;

	while (n && !v->line[n - 1].death) {
		n--;
	}
	return n;
}

static void free_line(struct daemon_vgpu_line *l)
{
	struct daemon_vgpu *v = l->v;

	clear_line(l);
	l->death = sd_event_source_disable_unref(l->death);
	v->n_lines--;
	store_seqcst(&daemon_vgpu_page(v)->lines, daemon_vgpu_lines(v));
	if (!v->n_lines) {
		emptied(v);
	}
}

static int on_death(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct daemon_vgpu_line *l = arg;

	(void)fd;
	(void)revents;
	l->gone = true;
	sd_event_source_set_enabled(src, SD_EVENT_OFF);
	if (l->left) {
		free_line(l);
	} else { /* its memory is free now; the line is, once its session has ended */
		clear_line(l);
	}
	return 0;
}

static struct daemon_vgpu *find_number(const struct daemon *d, uid_t uid, uint64_t number)
{
	struct daemon_vgpu *v = d->vgpus.first;

	while (v && (v->uid != uid || v->is.name[0] || v->is.number != number)) {
		v = v->next;
	}
	return v;
}

static bool is_foreign(const struct daemon *d, uid_t uid)
{
	return uid != 0 && uid != d->uid;
}

/* Returns how many vGPUs the user, which has n, may have, where other foreign users have `others`.
 * Those that were there before gbpfd was restarted come back in any order, so each user may have
 * again what one may have at most. */
static unsigned quota_of(const struct daemon *d, uid_t uid, unsigned n, unsigned others,
			 enum daemon_vgpu_entering how)
{
	const unsigned all = PROTO_VGPUS - OWN_VGPUS;
	unsigned free = PROTO_VGPUS - (d->vgpus.n - n); /* of all places */

	if (!is_foreign(d, uid)) {
		return free;
	}
	if (how == DAEMON_VGPU_RETURNS) {
		return MIN(free, MIN(FOREIGN_MAX, all > others ? all - others : 0));
	}
	return MIN(free, daemon_user_quota(all, others, FOREIGN_MAX));
}

int daemon_vgpu_check_user(const struct daemon *d, uid_t uid, enum daemon_vgpu_entering how,
			   struct report *r)
{
	unsigned n = 0, others = 0, lines = 0, quota;

	for (const struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		n += v->uid == uid;
		others += v->uid != uid && is_foreign(d, v->uid);
		lines += v->uid == uid ? v->n_lines : 0;
	}
	quota = quota_of(d, uid, n, others, how);
	if (how != DAEMON_VGPU_JOINS && n >= quota) {
		report_hint(r, "End its programs, or remove one with `gbpf vgpu rm`");
		return report_set(r, -EUSERS, "limit",
				  "user %d has %u virtual GPUs, of %u that others leave to it",
				  (int)uid, n, quota);
	}
	if (is_foreign(d, uid) && lines >= FOREIGN_LINES) {
		report_hint(r, "End some of them");
		return report_set(r, -EUSERS, "limit",
				  "user %d has %u processes in its virtual GPUs, of %u that a user "
				  "may have",
				  (int)uid, lines, FOREIGN_LINES);
	}
	return 0;
}

/* Returns a place that no vGPU has; there is one. */
static uint32_t free_place(const struct daemon *d)
{
	uint64_t taken = 0;

	for (const struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		taken |= UINT64_C(1) << v->place;
	}
	return (uint32_t)__builtin_ctzll(~taken);
}

struct daemon_vgpu *daemon_vgpu_add(struct daemon *d, uid_t uid, const struct proto_vgpu *is)
{
	struct daemon_vgpu *v = calloc(1, sizeof(*v));

	if (v) {
		v->d = d;
		v->page = DAEMON_PAGE_NONE;
		v->is = *is;
		v->uid = uid;
		v->place = free_place(d);
		v->next = d->vgpus.first;
		d->vgpus.first = v;
		d->vgpus.n++;
	}
	return v;
}

/* Makes the page of a new vGPU. */
static int make_page(struct daemon_vgpu *v)
{
	int err = daemon_page_create(&v->page, "gbpf-account", PROTO_ACCOUNT_BYTES);

	if (!err) {
		daemon_vgpu_page(v)->magic = PROTO_ACCOUNT_MAGIC;
		daemon_vgpu_page(v)->abi = PROTO_ABI;
	}
	return err;
}

/* Gives a line to a process. pidfd is taken. Returns 0 or -errno. */
static int occupy(struct daemon_vgpu *v, uint32_t number, int pid, uint64_t start, int pidfd)
{
	struct daemon_vgpu_line *l = &v->line[number];
	struct proto_account *a = daemon_vgpu_page(v);
	int err = sd_event_add_io(v->d->loop, &l->death, pidfd, EPOLLIN, on_death, l);

	if (err < 0) {
		l->death = NULL;
		fd_close(pidfd);
		return err;
	}
	sd_event_source_set_io_fd_own(l->death, 1);
	/* Before requests that have come earlier: the vGPU's memory is short until then. */
	(void)sd_event_source_set_priority(l->death, SD_EVENT_PRIORITY_IMPORTANT);
	l->v = v;
	l->pid = pid;
	l->start = start;
	l->left = true; /* until a session has it */
	l->gone = false;
	l->peak = 0;
	v->n_lines++;
	a->owner[number].start = start;
	a->owner[number].pid = pid;
	/* Before the process can charge: a charge of another process either reads the new number,
	 * or has stored its own bytes before, which this process then sees (mem/ledger.h). */
	if (load_seqcst(&a->lines) < number + 1) {
		store_seqcst(&a->lines, number + 1);
	}
	return 0;
}

/* Returns a pidfd of a process that may be in a vGPU and has started then; or negative. */
static int open_owner(const struct daemon_vgpu *v, int pid, uint64_t start)
{
	uid_t user;
	int fd = daemon_vgpu_open_process(pid, start, &user);

	return fd >= 0 && !daemon_vgpu_is_open_to(v, user) ? fd_close(fd) : fd;
}

/* Takes over the rows of a page. Returns 0, or -EINVAL if two are of one device or one of host
 * memory, which no gbpfd has written: what is granted of a device would not be counted. */
static int adopt_rows(struct daemon_vgpu *v)
{
	static const uint8_t none[16];
	struct proto_account *a = daemon_vgpu_page(v);

	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		struct daemon_vgpu_row *r = &v->row[i];

		memcpy(r->uuid, a->uuid[i], sizeof(r->uuid));
		if (memcmp(r->uuid, none, sizeof(none)) == 0) {
			break;
		}
		if (daemon_vgpu_is_no_device(r->uuid)) {
			return -EINVAL;
		}
		for (uint32_t k = 0; k < i; k++) {
			if (memcmp(v->row[k].uuid, r->uuid, sizeof(r->uuid)) == 0) {
				return -EINVAL;
			}
		}
		v->n_rows = i + 1;
		set_limit(v, i, v->is.config.mem[0]);
	}
	return 0;
}

/* Takes over the page of a vGPU that an earlier gbpfd made. Lines of processes of the user that
 * still run are kept: these say hello again. Those of others are cleared. */
static int adopt_page(struct daemon_vgpu *v, int *fd)
{
	int err = daemon_page_adopt(&v->page, *fd, PROTO_ACCOUNT_BYTES);
	uint64_t dead[PROTO_ACCOUNT_LINES / 64] = { 0 };
	struct proto_account *a = v->page.map;

	if (err) {
		return err;
	}
	*fd = -1;
	if (!v->page.writable || a->magic != PROTO_ACCOUNT_MAGIC || a->abi != PROTO_ABI) {
		return -EINVAL;
	}
	if (daemon_vgpu_page_is_of_others(v)) {
		return -EACCES; /* before anything is written: they bring it to their own vGPU */
	}
	if (adopt_rows(v) < 0) {
		return -EINVAL;
	}
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		int pid = load_relaxed(&a->owner[i].pid);
		uint64_t start = load_relaxed(&a->owner[i].start);
		int pidfd = daemon_vgpu_check_user(v->d, v->uid, DAEMON_VGPU_JOINS, NULL)
				    ? -1
				    : open_owner(v, pid, start);

		if (pidfd < 0) {
			dead[i / 64] |= UINT64_C(1) << i % 64;
		} else if (occupy(v, i, pid, start, pidfd) < 0) {
			return -ENOMEM;
		}
	}
	store_host_limits(v);
	zero_lines(v, dead);
	daemon_vgpu_shares_changed(v->d); /* what an earlier gbpfd has left to do */
	return 0;
}

/* Gives a vGPU its page: the one that a process has brought, or a new one. */
static int give_page(struct daemon_vgpu *v, int *brought)
{
	int err;

	if (v->page.map) {
		daemon_vgpu_check_page(v, 0);
		return brought && !daemon_vgpu_has_page(v, *brought) ? -EINVAL : 0;
	}
	err = brought ? adopt_page(v, brought) : make_page(v);
	if (err) {
		drop_page(v);
	} else {
		store_relaxed(&daemon_vgpu_page(v)->vgpu_owner, 1 + (uint64_t)v->uid);
	}
	return err;
}

bool daemon_vgpus_are_awaited(const struct daemon *d)
{
	return clock_now_ns() - d->started_ns < clock_patience(ADOPT_TIMEOUT_NS);
}

bool daemon_vgpu_is_awaited(const struct daemon_vgpu *v)
{
	return v->awaited && !v->page.map && daemon_vgpus_are_awaited(v->d);
}

/* Ends the wait for processes that had joined before gbpfd was restarted. */
static int on_adopt_end(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	(void)usec;
	for (struct daemon_vgpu *v = d->vgpus.first, *next; v; v = next) {
		next = v->next;
		if (v->awaited && !v->n_lines) {
			emptied(v);
		}
	}
	daemon_vgpu_look_at_shares(d); /* creators that have not come back have exited */
	return 0;
}

void daemon_vgpus_await(struct daemon *d)
{
	uint64_t now;

	sd_event_now(d->loop, CLOCK_MONOTONIC, &now);
	(void)sd_event_add_time(d->loop, &d->vgpus.adopt_end, CLOCK_MONOTONIC,
				now + clock_patience(ADOPT_TIMEOUT_NS) / 1000, 1, on_adopt_end, d);
}

static struct daemon_vgpu *enter_named(struct daemon_session *s, const struct proto_hello *h,
				       int *brought, struct report *r, int *ret_err)
{
	struct daemon_vgpu *v = NULL;

	*ret_err = daemon_vgpu_find_meant(s, h, brought, &v);
	if (*ret_err) {
		; /* -ENOENT also for those of others: their names are private */
	} else if (v->draining && !brought) {
		*ret_err = -ESHUTDOWN;
	} else if (!brought && daemon_vgpu_is_awaited(v)) {
		*ret_err = -EAGAIN;
	} else {
		*ret_err = brought ? 0 : daemon_vgpu_check_user(s->d, v->uid, DAEMON_VGPU_JOINS, r);
		*ret_err = *ret_err ? *ret_err : give_page(v, brought);
	}
	return *ret_err ? NULL : v;
}

/* Returns 0 if the vGPU has a page, or the result of daemon_vgpu_look(). */
static int look_numbered(const struct daemon_session *s, const struct proto_hello *h,
			 const struct daemon_vgpu **ret)
{
	*ret = find_number(s->d, s->peer.uid, h->vgpu.number);
	return *ret								      ? 0
	       : h->vgpu.made_ns < s->d->started_ns && daemon_vgpus_are_awaited(s->d) ? -EAGAIN
										      : -ENOENT;
}

/* The same for one with a name. */
static int look_named(const struct daemon_session *s, const struct proto_hello *h,
		      const struct daemon_vgpu **ret)
{
	struct daemon_vgpu *v = NULL;

	if (daemon_vgpu_find_name(s->d, s->peer.uid, false, &h->vgpu, &v) < 0) {
		return -EPERM;
	}
	*ret = v;
	return v->page.map ? 0 : v->awaited && daemon_vgpus_are_awaited(s->d) ? -EAGAIN : -ENOENT;
}

int daemon_vgpu_look(const struct daemon_session *s, const struct proto_hello *h,
		     const struct proto_vgpu_config **ret)
{
	const struct daemon_vgpu *v = NULL;
	int err = h->vgpu.name[0] ? look_named(s, h, &v) : look_numbered(s, h, &v);

	*ret = v ? &v->is.config : &h->vgpu.config;
	return err ? err : v->page.fd;
}

/* Returns the vGPU of a hello, which is made if it is new and has no name; NULL with the reason. */
static struct daemon_vgpu *enter(struct daemon_session *s, const struct proto_hello *h,
				 int *brought, struct report *r, int *ret_err)
{
	struct daemon_vgpu *v = find_number(s->d, s->peer.uid, h->vgpu.number);
	enum daemon_vgpu_entering how = v ? DAEMON_VGPU_JOINS : DAEMON_VGPU_NEW;

	if (!v && brought && daemon_vgpus_are_awaited(s->d)) {
		how = DAEMON_VGPU_RETURNS;
	}
	*ret_err = v && brought ? 0 : daemon_vgpu_check_user(s->d, s->peer.uid, how, r);
	if (*ret_err) {
		return NULL;
	}
	if (h->vgpu.config.reserve && !daemon_may_administer(s->d, s->conn.sock)) {
		*ret_err = -EPERM;
		return NULL;
	}
	if (!v && !brought && h->vgpu.made_ns < s->d->started_ns &&
	    daemon_vgpus_are_awaited(s->d)) {
		*ret_err = -EAGAIN; /* its other processes have its page and will bring it */
		return NULL;
	}
	v = v ? v : daemon_vgpu_add(s->d, s->peer.uid, &h->vgpu);
	*ret_err = v ? give_page(v, brought) : -ENOMEM;
	if (v && *ret_err && !v->n_lines) {
		daemon_vgpu_destroy(v);
	}
	return *ret_err ? NULL : v;
}

/* Gives the session the line of its process: the one that it brings, or a free one. */
static int take_line(struct daemon_session *s, struct daemon_vgpu *v, const struct proto_hello *h)
{
	uint64_t start = s->peer.pid > 0 ? start_of(s->peer.pid) : 0;
	uint32_t i = 0;
	int err = 0, pidfd;

	if (h->accounts) {
		i = h->account_line;
		if (i >= PROTO_ACCOUNT_LINES || !v->line[i].death || !v->line[i].left ||
		    v->line[i].pid != s->peer.pid) {
			return -EINVAL;
		}
	} else {
		while (i < PROTO_ACCOUNT_LINES && v->line[i].death &&
		       !(v->line[i].left && v->line[i].pid == s->peer.pid &&
			 v->line[i].start == start)) {
			i++;
		}
		if (i == PROTO_ACCOUNT_LINES) {
			return -ENOSPC;
		}
		zero_line(v, i); /* of the same process before an exec or a failed cuInit */
		pidfd = v->line[i].death ? -1 : fcntl(s->pidfd, F_DUPFD_CLOEXEC, 3);
		if (!v->line[i].death) {
			err = pidfd < 0 ? -ESRCH : occupy(v, i, s->peer.pid, start, pidfd);
		}
	}
	if (!err) {
		v->line[i].left = false;
		daemon_vgpu_page(v)->owner[i].pid = s->peer.pid;
		s->vgpu.of = v;
		s->vgpu.fresh = !h->accounts;
		s->vgpu.line = i;
	}
	return err;
}

int daemon_vgpu_join(struct daemon_session *s, const struct proto_hello *h, int *fds,
		     struct report *r)
{
	int err, *brought = h->accounts ? &fds[2 + __builtin_popcount(h->regions)] : NULL;
	struct daemon_vgpu *v;

	if (!proto_vgpu_is_set(&h->vgpu)) {
		return 0;
	}
	v = h->vgpu.name[0] ? enter_named(s, h, brought, r, &err) : enter(s, h, brought, r, &err);
	if (!v) {
		return err;
	}
	err = take_line(s, v, h);
	if (!v->n_lines) {
		emptied(v);
		return err;
	}
	if (v->is.name[0]) {
		daemon_vgpu_mark(v, true);
	}
	daemon_vgpu_actual_begin(v);
	return err;
}

uint32_t daemon_vgpu_row_of(const struct daemon_vgpu *v, const uint8_t uuid[16])
{
	uint32_t row = 0;

	while (row < PROTO_ACCOUNT_ROWS &&
	       (!daemon_vgpu_has_row(v, row) || memcmp(v->row[row].uuid, uuid, 16) != 0)) {
		row++;
	}
	return row;
}

struct daemon_gpu *daemon_vgpu_device_of(const struct daemon_vgpu *v, uint32_t row)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		struct daemon_gpu *g = &v->d->devices.d[i];

		if (g->used && memcmp(g->uuid, v->row[row].uuid, sizeof(g->uuid)) == 0) {
			return g;
		}
	}
	return NULL;
}

/* Returns the row of a device, or that of a new one; PROTO_MAX_GPUS: there is no room. */
static uint32_t row_for(struct daemon_vgpu *v, const uint8_t uuid[16])
{
	uint32_t i = 0;

	while (i < v->n_rows && memcmp(v->row[i].uuid, uuid, 16) != 0) {
		i++;
	}
	if (i == v->n_rows && i < PROTO_MAX_GPUS) {
		v->n_rows++;
		name_row(v, i, uuid);
	}
	return i;
}

void daemon_vgpu_update_page(struct daemon_vgpu *v)
{
	struct proto_account *a = daemon_vgpu_page(v);

	for (uint32_t row = 0; row < v->n_rows; row++) {
		set_limit(v, row, v->is.config.mem[v->row[row].ordinal]);
	}
	if (a) {
		store_host_limits(v);
		store_relaxed(&a->wait_ns, v->is.config.wait_ns);
	}
	daemon_vgpu_reserve_update(v->d);
	daemon_features_call(vgpus_changed, v->d);
}

int daemon_vgpu_add_devices(struct daemon_session *s, const uint8_t uuid[PROTO_MAX_GPUS][16])
{
	struct daemon_vgpu *v = s->vgpu.of;
	uint64_t left, size = 0;

	for (uint32_t i = 0; v && i < s->gpus; i++) {
		uint32_t row;

		if (daemon_vgpu_is_no_device(uuid[i])) {
			return -EINVAL;
		}
		row = row_for(v, uuid[i]);
		if (row == PROTO_MAX_GPUS) {
			return -ENOSPC;
		}
		v->row[row].ordinal = i;
		set_limit(v, row, v->is.config.mem[i]);
	}
	if (v) {
		store_host_limits(v);
		store_relaxed(&daemon_vgpu_page(v)->wait_ns, v->is.config.wait_ns);
		daemon_vgpu_reserve_update(s->d);
	}
	if (v && !v->is.name[0] && v->is.config.reserve && v->n_lines == 1 && s->vgpu.fresh &&
	    !daemon_vgpu_may_reserve(s->d, 0, &left, &size)) {
		/* The process has charged nothing yet: the vGPU ends with the session, so that a
		 * process which lives on does not reserve what it was refused. */
		v->line[s->vgpu.line].gone = true;
		return -EDQUOT;
	}
	return 0;
}

int daemon_vgpu_fd(const struct daemon_session *s)
{
	return s->vgpu.of ? s->vgpu.of->page.fd : -1;
}

void daemon_vgpu_leave(struct daemon_session *s)
{
	struct daemon_vgpu_line *l;

	if (!s->vgpu.of) {
		return;
	}
	daemon_vgpu_reclaim_left(s);
	daemon_vgpu_stop_waiting(s);
	daemon_vgpu_actual_count(s);
	l = &s->vgpu.of->line[s->vgpu.line];
	s->vgpu.peak = MAX(l->peak, peak_of(s->vgpu.of, s->vgpu.line)); /* one is 0 */
	s->vgpu.of = NULL;
	l->left = true;
	if (l->gone) {
		free_line(l);
	}
}

static void session_ended(struct daemon_session *s)
{
	if (s->vgpu.of) {
		daemon_vgpu_leave(s);
		daemon_features_call(vgpus_changed, s->d);
	}
}

const struct daemon_feature daemon_vgpus_feature = {
	.messages = { { PROTO_MEM_ASK, 1u << DAEMON_SESSION_READY, daemon_vgpu_take_ask },
		      { PROTO_MEM_RELEASED, 1u << DAEMON_SESSION_READY, daemon_vgpu_released } },
	.session_ended = session_ended,
};

void daemon_vgpu_figures(const struct daemon_session *s, struct daemon_vgpu_figures *ret)
{
	const struct daemon_vgpu *v = s->vgpu.of;

	memset(ret, 0, sizeof(*ret));
	if (!v) {
		return;
	}
	ret->vgpu = &v->is;
	ret->uid = v->uid;
	ret->place = v->place;
	ret->limit = v->is.config.mem[0];
	ret->pinned_limit = v->row[PROTO_ACCOUNT_HOST].limit;
	ret->pinned = mem_line_used(&daemon_vgpu_page(v)->line[PROTO_ACCOUNT_HOST][s->vgpu.line]);
	ret->pinned_gbpf =
		load_relaxed(&daemon_vgpu_page(v)->line[PROTO_ACCOUNT_HOST][s->vgpu.line].gbpf);
	ret->swap_limit = v->row[PROTO_ACCOUNT_SWAP].limit;
	ret->swap = mem_line_used(&daemon_vgpu_page(v)->line[PROTO_ACCOUNT_SWAP][s->vgpu.line]);
	for (unsigned row = 0; row < PROTO_MAX_GPUS; row++) {
		const struct proto_account_line *line =
			&daemon_vgpu_page(v)->line[row][s->vgpu.line];
		uint64_t orphans = mem_account_orphans(daemon_vgpu_page(v), row, s->vgpu.line);
		uint64_t shared = load_relaxed(&line->shared);

		ret->used += mem_account_used(daemon_vgpu_page(v), row);
		ret->own += mem_account_line_used(daemon_vgpu_page(v), row, s->vgpu.line);
		ret->overhead += load_relaxed(&line->overhead);
		ret->gbpf += load_relaxed(&line->gbpf);
		ret->shared += shared > orphans ? shared - orphans : 0;
	}
}

void daemon_vgpus_close(struct daemon *d)
{
	d->vgpus.timer = sd_event_source_disable_unref(d->vgpus.timer);
	d->vgpus.shares_timer = sd_event_source_disable_unref(d->vgpus.shares_timer);
	d->vgpus.actual_timer = sd_event_source_disable_unref(d->vgpus.actual_timer);
	d->vgpus.adopt_end = sd_event_source_disable_unref(d->vgpus.adopt_end);
	for (struct daemon_vgpu *v = d->vgpus.first, *next; v; v = next) {
		next = v->next;
		daemon_vgpu_destroy(v);
	}
}

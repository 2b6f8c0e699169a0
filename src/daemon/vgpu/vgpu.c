/* vGPUs, their lines and their end (daemon/vgpu/vgpu.h).
 *
 * The memory of a process is free once the kernel has closed its descriptors, which is before its
 * pidfd becomes readable: all its threads have exited then. A line is cleared then and no sooner,
 * or the vGPU would take memory twice; the end of a session says nothing, since a process may close
 * its socket and live. gbpfd keeps its own record of the processes, and uses that of the page only
 * when it takes over the page after a restart, for processes of the same user. */
#include "daemon/vgpu/vgpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/session/peer.h"
#include "mem/ledger.h"

#define OWN_VGPUS 16u	   /* reserved for root and gbpfd's user */
#define FOREIGN_MAX 16u	   /* of one user that is neither */
#define FOREIGN_LINES 256u /* processes in them */
#define ADOPT_NS                                                                                   \
	10000000000u /* after gbpfd has started: time for processes to bring their page            \
		      */

#define START_FIELD 22 /* of /proc/PID/stat, proc(5) */

struct line {
	struct daemon_vgpu *v;
	sd_event_source *death; /* owned; its process's pidfd. NULL: the line is free */
	int pid;
	uint64_t start;
	bool left; /* its session has ended */
	bool gone; /* the process has exited */
};

struct daemon_vgpu {
	struct daemon_vgpu *next;
	struct daemon *d;
	struct proto_vgpu is;
	uid_t uid;
	uint32_t place;		 /* below PROTO_VGPUS; of no other vGPU */
	struct daemon_page page; /* struct proto_account */
	unsigned n_lines;
	struct line line[PROTO_ACCOUNT_LINES];
};

static struct proto_account *page_of(const struct daemon_vgpu *v)
{
	return v->page.map;
}

/* Returns the start time of a process, 0 if it cannot be read. */
static uint64_t start_of(int pid)
{
	long long start;

	return daemon_peer_stat_field(pid, START_FIELD, &start) == 0 ? (uint64_t)start : 0;
}

static void destroy(struct daemon_vgpu *v)
{
	struct daemon *d = v->d;
	struct daemon_vgpu **link = &d->vgpus.first;

	while (*link != v) {
		link = &(*link)->next;
	}
	*link = v->next;
	d->vgpus.n--;
	for (unsigned i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		sd_event_source_disable_unref(v->line[i].death);
	}
	daemon_page_destroy(&v->page);
	free(v);
}

static void zero_line(struct proto_account *a, uint32_t line)
{
	for (unsigned row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
		store_seqcst(&a->line[row][line].used, (uint64_t)0);
		store_seqcst(&a->line[row][line].wanted, (uint64_t)0);
	}
	a->owner[line].pid = 0;
}

static void free_line(struct line *l)
{
	struct daemon_vgpu *v = l->v;
	uint32_t lines = PROTO_ACCOUNT_LINES;

	zero_line(page_of(v), (uint32_t)(l - v->line));
	l->death = sd_event_source_disable_unref(l->death);
	v->n_lines--;
	while (lines && !v->line[lines - 1].death) {
		lines--;
	}
	store_seqcst(&page_of(v)->lines, lines);
	if (!v->n_lines) {
		destroy(v);
	}
}

static int on_death(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct line *l = arg;

	(void)fd;
	(void)revents;
	l->gone = true;
	sd_event_source_set_enabled(src, SD_EVENT_OFF);
	if (l->left) {
		free_line(l);
	}
	return 0;
}

static struct daemon_vgpu *find(const struct daemon *d, uid_t uid, uint64_t number)
{
	struct daemon_vgpu *v = d->vgpus.first;

	while (v && (v->uid != uid || v->is.number != number)) {
		v = v->next;
	}
	return v;
}

/* Returns 0, or -EUSERS if the user may have no further vGPU (is_new) or process in one. */
static int check_user(const struct daemon *d, uid_t uid, bool is_new)
{
	bool foreign = uid != 0 && uid != d->uid;
	unsigned n = 0, lines = 0;

	for (const struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		n += v->uid == uid;
		lines += v->uid == uid ? v->n_lines : 0;
	}
	if (is_new && (d->vgpus.n >= PROTO_VGPUS ||
		       (foreign && (n >= FOREIGN_MAX || d->vgpus.n >= PROTO_VGPUS - OWN_VGPUS)))) {
		return -EUSERS;
	}
	return foreign && lines >= FOREIGN_LINES ? -EUSERS : 0;
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

static struct daemon_vgpu *create(struct daemon_session *s, const struct proto_hello *h)
{
	struct daemon_vgpu *v = calloc(1, sizeof(*v));

	if (v) {
		v->d = s->d;
		v->page = DAEMON_PAGE_NONE;
		v->is = h->vgpu;
		v->place = free_place(s->d);
		v->uid = s->peer.uid;
		v->next = s->d->vgpus.first;
		s->d->vgpus.first = v;
		s->d->vgpus.n++;
	}
	return v;
}

/* Makes the page of a new vGPU. */
static int make_page(struct daemon_vgpu *v)
{
	int err = daemon_page_create(&v->page, "gbpf-account", PROTO_ACCOUNT_BYTES);

	if (!err) {
		page_of(v)->magic = PROTO_ACCOUNT_MAGIC;
		page_of(v)->abi = PROTO_ABI;
	}
	return err;
}

/* Gives a line to a process. pidfd is taken. Returns 0 or -errno. */
static int occupy(struct daemon_vgpu *v, uint32_t number, int pid, uint64_t start, int pidfd)
{
	struct line *l = &v->line[number];
	struct proto_account *a = page_of(v);
	int err = sd_event_add_io(v->d->loop, &l->death, pidfd, EPOLLIN, on_death, l);

	if (err < 0) {
		l->death = NULL;
		fd_close(pidfd);
		return err;
	}
	sd_event_source_set_io_fd_own(l->death, 1);
	l->v = v;
	l->pid = pid;
	l->start = start;
	l->left = true; /* until a session has it */
	l->gone = false;
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

/* Returns a pidfd of a process of that user that has started then; or negative. */
static int open_owner(int pid, uint64_t start, uid_t uid)
{
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (fd >= 0 && (stat(path, &st) < 0 || st.st_uid != uid || start_of(pid) != start)) {
		return fd_close(fd);
	}
	return fd;
}

/* Takes over the page of a vGPU that an earlier gbpfd made. Lines of processes of the user that
 * still run are kept: these say hello again. Those of others are cleared. */
static int adopt_page(struct daemon_vgpu *v, int *fd)
{
	int err = daemon_page_adopt(&v->page, *fd, PROTO_ACCOUNT_BYTES);
	struct proto_account *a = v->page.map;

	if (err) {
		return err;
	}
	*fd = -1;
	if (!v->page.writable || a->magic != PROTO_ACCOUNT_MAGIC || a->abi != PROTO_ABI) {
		return -EINVAL;
	}
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		int pid = load_relaxed(&a->owner[i].pid);
		uint64_t start = load_relaxed(&a->owner[i].start);
		int pidfd = check_user(v->d, v->uid, false) ? -1 : open_owner(pid, start, v->uid);

		if (pidfd < 0) {
			zero_line(a, i);
		} else if (occupy(v, i, pid, start, pidfd) < 0) {
			return -ENOMEM;
		}
	}
	return 0;
}

static bool is_same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

/* Returns the vGPU of a hello, which is made if it is new; NULL with the reason. */
static struct daemon_vgpu *enter(struct daemon_session *s, const struct proto_hello *h,
				 int *brought, int *ret_err)
{
	struct daemon_vgpu *v = find(s->d, s->peer.uid, h->vgpu.number);

	*ret_err = v && brought ? 0 : check_user(s->d, s->peer.uid, !v);
	if (*ret_err) {
		return NULL;
	}
	if (v) {
		*ret_err = brought && !is_same_file(*brought, v->page.fd) ? -EINVAL : 0;
		return *ret_err ? NULL : v;
	}
	if (!brought && h->vgpu.made_ns < s->d->started_ns &&
	    clock_now_ns() - s->d->started_ns < ADOPT_NS) {
		*ret_err = -EAGAIN; /* its other processes have its page and will bring it */
		return NULL;
	}
	v = create(s, h);
	*ret_err = !v ? -ENOMEM : brought ? adopt_page(v, brought) : make_page(v);
	if (v && *ret_err) {
		destroy(v);
		return NULL;
	}
	return v;
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
		zero_line(page_of(v),
			  i); /* of the same process before an exec or a failed cuInit */
		pidfd = v->line[i].death ? -1 : fcntl(s->pidfd, F_DUPFD_CLOEXEC, 3);
		if (!v->line[i].death) {
			err = pidfd < 0 ? -ESRCH : occupy(v, i, s->peer.pid, start, pidfd);
		}
	}
	if (!err) {
		v->line[i].left = false;
		page_of(v)->owner[i].pid = s->peer.pid;
		s->vgpu.of = v;
		s->vgpu.line = i;
	}
	return err;
}

int daemon_vgpu_join(struct daemon_session *s, const struct proto_hello *h, int *fds)
{
	int err, *brought = h->accounts ? &fds[2 + h->regions] : NULL;
	struct daemon_vgpu *v;

	if (!proto_vgpu_is_set(&h->vgpu)) {
		return 0;
	}
	if (h->vgpu.name[0]) {
		return -ENOENT;
	}
	v = enter(s, h, brought, &err);
	if (!v) {
		return err;
	}
	err = take_line(s, v, h);
	if (err && !v->n_lines) {
		destroy(v);
	}
	return err;
}

/* Returns the row of a device, or that of a new one; PROTO_MAX_GPUS: there is no room. */
static uint32_t row_for(struct daemon_vgpu *v, const uint8_t uuid[16])
{
	static const uint8_t none[16];
	struct proto_account *a = page_of(v);

	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if (memcmp(a->uuid[i], uuid, 16) == 0) {
			return i;
		}
		if (memcmp(a->uuid[i], none, 16) == 0) {
			memcpy(a->uuid[i], uuid, 16);
			return i;
		}
	}
	return PROTO_MAX_GPUS;
}

int daemon_vgpu_add_devices(struct daemon_session *s, const uint8_t uuid[PROTO_MAX_GPUS][16])
{
	struct daemon_vgpu *v = s->vgpu.of;

	for (uint32_t i = 0; v && i < s->gpus; i++) {
		uint32_t row = row_for(v, uuid[i]);

		if (row == PROTO_MAX_GPUS) {
			return -ENOSPC;
		}
		store_relaxed(&page_of(v)->limit[row], v->is.config.mem[i]);
	}
	return 0;
}

int daemon_vgpu_fd(const struct daemon_session *s)
{
	return s->vgpu.of ? s->vgpu.of->page.fd : -1;
}

void daemon_vgpu_leave(struct daemon_session *s)
{
	struct line *l;

	if (!s->vgpu.of) {
		return;
	}
	l = &s->vgpu.of->line[s->vgpu.line];
	s->vgpu.of = NULL;
	l->left = true;
	if (l->gone) {
		free_line(l);
	}
}

void daemon_vgpu_figures(const struct daemon_session *s, struct daemon_vgpu_figures *ret)
{
	const struct daemon_vgpu *v = s->vgpu.of;

	memset(ret, 0, sizeof(*ret));
	if (!v) {
		return;
	}
	ret->vgpu = &v->is;
	ret->place = v->place;
	ret->limit = v->is.config.mem[0];
	for (unsigned row = 0; row < PROTO_MAX_GPUS; row++) {
		ret->used += mem_account_used(page_of(v), row);
		ret->own += load_relaxed(&page_of(v)->line[row][s->vgpu.line].used);
	}
}

void daemon_vgpus_close(struct daemon *d)
{
	while (d->vgpus.first) {
		destroy(d->vgpus.first);
	}
}

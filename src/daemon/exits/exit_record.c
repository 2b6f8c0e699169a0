/* Exit records: how a tenant's process ended, for the history. gbpfd is not its parent, so the exit
 * status is readable while the process is a zombie, or later through the pidfd on kernels that keep
 * it there (PIDFD_GET_INFO, Linux 6.15). The socket is closed shortly before the process is dead,
 * so the record waits for that on timers and the pidfd, without blocking the loop. */
#include "daemon/exits/exit_record.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/point.h"
#include "base/procfs.h"
#include "daemon/consts.h"
#include "daemon/hw/mps_crash.h"
#include "daemon/hw/sharing_mode.h"
#include "daemon/session/tenant_session.h"
#include "daemon/timer.h"

#define FIRST_LOOK_USEC 20000u
#define NEXT_LOOK_USEC 200000u
#define DYING_LOOKS                                                                                \
	50u /* attempts to read the status of a dying process, whose end the driver may delay */
#define MAX_OBITUARIES 1024u
#define MAX_OF_A_USER 256u /* so that one user's many exits do not lose the records of others */

struct pidfd_info_1 { /* linux/pidfd.h, first version of struct pidfd_info */
	uint64_t mask, cgroupid;
	uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
	int32_t exit_code;
};
#define PIDFD_GET_INFO_1 _IOWR(0xFF, 11, struct pidfd_info_1)
#define PIDFD_INFO_EXIT_1 8u

struct daemon_exit_record {
	struct daemon_exit_record *next;
	struct daemon *d;
	sd_event_source *timer, *death;
	int pidfd, tenant, pid;
	uid_t uid;
	bool dead;
	unsigned looks;
	char name[PROTO_NAME];
	bool shared; /* it was in the shared lane */
	bool busy;   /* it had work on the device */
	struct daemon_history_use use;
	uint32_t restart;
	char crash_reason[DAEMON_CRASH_TEXT];
	char neighbours[200]; /* tenants of the shared lane that its exit may have harmed; empty:
				 none */
};

static bool zombie_status(int pid, int *ret)
{
	long long status;
	char state;

	if (procfs_stat_field(pid, PROCFS_EXIT_CODE, &status, &state) < 0 ||
	    (state != 'Z' && state != 'X')) {
		return false;
	}
	*ret = (int)status;
	return true;
}

static bool pidfd_status(int pidfd, int *ret)
{
	struct pidfd_info_1 info = { .mask = PIDFD_INFO_EXIT_1 };

	if (ioctl(pidfd, PIDFD_GET_INFO_1, &info) < 0 || !(info.mask & PIDFD_INFO_EXIT_1)) {
		return false;
	}
	*ret = info.exit_code;
	return true;
}

static void finish(struct daemon_exit_record *o)
{
	struct daemon_exit_record **link = &o->d->exits.first;

	while (*link != o) {
		link = &(*link)->next;
	}
	*link = o->next;
	o->d->exits.n--;
	sd_event_source_disable_unref(o->timer);
	sd_event_source_disable_unref(o->death);
	fd_close(o->pidfd);
	free(o);
}

/* Marks the other tenants of the shared lane, including those whose exit records are pending, as
 * possibly broken by this process. */
static void blame(const struct daemon_exit_record *o)
{
	char why[DAEMON_CRASH_TEXT];

	snprintf(why, sizeof(why), "%s (pid %d) has failed in its shared lane", o->name, o->pid);
	daemon_mps_crash_mark_all(o->d, why);
	for (struct daemon_exit_record *p = o->d->exits.first; p; p = p->next) {
		if (p != o && p->shared && !p->crash_reason[0]) {
			memcpy(p->crash_reason, why, sizeof(why));
		}
	}
}

/* Returns true if the process failed. Without a status (the parent reaped it first), work left on
 * the device counts as failure: a process that exits regularly has drained its work. */
static bool has_failed(const struct daemon_exit_record *o, const int *status)
{
	return o->dead && (status ? *status != 0 : o->busy);
}

/* Returns the kind of the event that the process has ended, and how it has. */
static const char *kind_of(const struct daemon_exit_record *o, const int *status, char how[96])
{
	if (!o->dead) {
		snprintf(how, 96, "left its session");
		return "detach";
	}
	if (status && WIFSIGNALED(*status)) {
		snprintf(how, 96, "was killed by signal %d (%s)", WTERMSIG(*status),
			 strsignal(WTERMSIG(*status)));
		return "kill";
	}
	if (status) {
		snprintf(how, 96, "ended with exit code %d", WEXITSTATUS(*status));
	} else {
		snprintf(how, 96, "ended");
	}
	return "exit";
}

/* Adds the event that the process has ended, with what it has used. */
static void add_end(const struct daemon_exit_record *o, const int *status)
{
	char how[96], memory[64] = "";
	const char *kind = kind_of(o, status, how);

	if (o->use.mem_peak) {
		snprintf(memory, sizeof(memory), ", at most %.1f MiB of GPU memory",
			 (double)o->use.mem_peak / (1u << 20));
	}
	daemon_history_add_end(&o->d->history, o->uid, kind, o->tenant, o->pid, &o->use,
			       "%s (pid %d) %s; %.3f s of GPU time%s", o->name, o->pid, how,
			       (double)o->use.gpu_ns / 1e9, memory);
}

static void record(const struct daemon_exit_record *o, const int *status)
{
	bool killed = o->dead && status && WIFSIGNALED(*status);

	o->d->counters.deaths += killed;
	if (o->dead && o->shared) {
		if (has_failed(o, status) && !o->crash_reason[0]) {
			blame(o);
		}
		daemon_mps_exit_add(o->d, o->pid, o->uid, o->restart, o->crash_reason);
	}
	if (!daemon_session_event_allowed(o->d, o->uid)) {
		return;
	}
	add_end(o, status);
	/* Lets the user of a program that fails at this moment find the probable reason. */
	if (o->neighbours[0] && has_failed(o, status)) {
		daemon_history_add_of(
			&o->d->history, o->uid, "lane", o->tenant, o->pid,
			"%s (pid %d) failed in the shared lane that it shared with %s", o->name,
			o->pid, o->neighbours);
	}
}

static bool look(struct daemon_exit_record *o, bool last)
{
	int status;
	bool known = o->dead && (zombie_status(o->pid, &status) || pidfd_status(o->pidfd, &status));

	if (!known && !last) {
		return false;
	}
	record(o, known ? &status : NULL);
	POINT("daemon.obituary.recorded");
	finish(o);
	return true;
}

/* Returns true if no later attempt would find more. A process that announced its end on its board
 * but still runs after DYING_LOOKS has executed another program: it counts as detached. */
static bool is_last(struct daemon_exit_record *o)
{
	struct pollfd p = { .fd = o->pidfd, .events = POLLIN };
	bool ended = poll(&p, 1, 0) > 0;

	if (!o->looks || (o->dead && !ended && o->looks < DYING_LOOKS)) {
		return false;
	}
	o->dead &= ended;
	return true;
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon_exit_record *o = arg;

	if (!look(o, is_last(o))) {
		o->looks++;
		daemon_timer_arm(src, usec + NEXT_LOOK_USEC);
	}
	return 0;
}

static int on_death(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct daemon_exit_record *o = arg;

	(void)fd;
	(void)revents;
	o->dead = true;
	sd_event_source_set_enabled(src, SD_EVENT_OFF);
	look(o, false);
	return 0;
}

static bool has_room(const struct daemon *d, uid_t uid)
{
	unsigned n = 0;

	for (const struct daemon_exit_record *o = d->exits.first; o; o = o->next) {
		n += o->uid == uid;
	}
	return d->exits.n < MAX_OBITUARIES && n < MAX_OF_A_USER;
}

/* Takes the session's pidfd. */
static void write_record(struct daemon_session *s)
{
	const struct proto_stats *st = s->stats.map;
	struct daemon *d = s->d;
	struct daemon_exit_record now_at_once = { .d = d,
						  .pidfd = -1,
						  .tenant = s->tenant,
						  .pid = s->peer.pid,
						  .uid = s->peer.uid,
						  .dead = true },
				  *o;
	uint64_t now;

	memcpy(now_at_once.name, s->name, sizeof(now_at_once.name));
	now_at_once.shared = s->grant.lane == GBPF_LANE_SHARED;
	now_at_once.busy = st && load_relaxed(&st->inflight);
	now_at_once.use.gpu_ns = st ? load_relaxed(&st->busy_ns) : 0;
	now_at_once.use.mem_peak = s->vgpu.peak;
	now_at_once.restart = s->grant.restart;
	memcpy(now_at_once.crash_reason, s->crash_reason, sizeof(now_at_once.crash_reason));
	daemon_lane_neighbours(s, now_at_once.neighbours, sizeof(now_at_once.neighbours));
	o = s->pidfd >= 0 && has_room(d, now_at_once.uid) ? calloc(1, sizeof(*o)) : NULL;
	if (!o) {
		record(&now_at_once, NULL);
		return;
	}
	*o = now_at_once;
	o->dead = s->dead;
	o->pidfd = s->pidfd;
	o->next = d->exits.first;
	s->conn.death = sd_event_source_disable_unref(s->conn.death);
	s->pidfd = -1;
	d->exits.first = o;
	d->exits.n++;
	POINT("daemon.obituary.begun");
	sd_event_now(d->loop, CLOCK_MONOTONIC, &now);
	if (sd_event_add_io(d->loop, &o->death, o->pidfd, EPOLLIN, on_death, o) < 0 ||
	    sd_event_add_time(d->loop, &o->timer, CLOCK_MONOTONIC, now + FIRST_LOOK_USEC, 1000,
			      on_timer, o) < 0) {
		look(o, true);
	}
}

static void session_ended(struct daemon_session *s)
{
	POINT("daemon.death.forgotten");
	if (s->end == DAEMON_END_CLOSED) {
		write_record(s);
	}
}

const struct daemon_feature daemon_exits_feature = { .session_ended = session_ended };

bool daemon_exit_record_is_pending(const struct daemon *d, int pid)
{
	for (const struct daemon_exit_record *o = d->exits.first; o; o = o->next) {
		if (o->pid == pid) {
			return true;
		}
	}
	return false;
}

void daemon_exit_records_close(struct daemon *d)
{
	while (d->exits.first) {
		look(d->exits.first, true);
	}
}

/* What the files of gbpfd share: one struct daemon, used by the main thread alone. */
#ifndef GBPF_DAEMON_DAEMON_H
#define GBPF_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "daemon/hw/gpu_list.h"
#include "daemon/history.h"
#include "daemon/sealed_page.h"
#include "daemon/job_thread.h"

#define DAEMON_PATH 4096
#define DAEMON_HOLD_LIMIT_NS 100000000u
#define DAEMON_MIN_SHARE_PPM 20000u
#define DAEMON_MAX_WEIGHT 10000u
#define DAEMON_MAX_LEAD_US 10000u
#define DAEMON_DEFAULT_WEIGHT 100u

#define DAEMON_FATES 64u
#define NEIGHBOUR_WHY 160

struct fate { /* of a process that was in the shared lane; neighbour.c */
	int pid;
	uid_t uid;
	uint64_t at_ns;	  /* when it was written up */
	uint32_t restart; /* how often it may be started again, as admit said */
	char why[NEIGHBOUR_WHY];
};

struct session;
struct control;
struct policies;
struct ticker;
struct watch;
struct mps;

struct options {
	bool foreground, state_given; /* by --state-dir */
	int ready_fd;		      /* -1: nobody waits */
	unsigned idle_exit_s;
	char device[16];
	char policy[DAEMON_PATH]; /* name or path; empty: the stored one, or fair */
	char runtime[DAEMON_PATH], state[DAEMON_PATH];
};

struct counters {
	uint64_t sessions, refused_sessions, dropped_sessions, deaths, garbage;
	uint64_t loads, swaps, refused, rollbacks, late, failed_prepares;
	uint64_t watch_rollbacks;
	uint64_t ticks, tick_overruns, tick_max_ns, verdict_errors, events_left_out;
};

struct daemon {
	sd_event *loop;
	struct options opt;
	uid_t uid;
	gid_t group;		    /* gbpf, or (gid_t)-1 */
	int lock_fd, state_lock_fd; /* flock: the only ones in these directories */
	int spare_fd;		    /* given up for a moment when accept meets EMFILE */
	uint64_t started_ns;
	uint32_t generation;
	bool ending;
	char *first_failed; /* owned: why the policy of the command line was refused */
	struct history history;
	uint64_t foreign_second; /* in which foreign_events were counted */
	unsigned foreign_events;
	struct worker worker;
	struct worker hands; /* steer.c's thread */
	struct devices devices;
	struct counters counters;
	struct page directory; /* struct sched_directory */

	/* session.c */
	int session_fd;
	sd_event_source *session_io, *reaper, *requeue, *idle_timer;
	struct session *sessions, **sessions_end; /* in the order in which they connected */
	unsigned n_sessions;
	struct session *tenant[SCHED_MAX_TENANTS];
	struct session *lc[SCHED_MAX_LC]; /* whose boards are published */
	struct obituary *obituaries;
	unsigned n_obituaries;
	struct fate fates[DAEMON_FATES];
	unsigned n_fates; /* ever */

	struct policies *policies; /* owned */
	uint64_t unmapping_bytes;  /* live.c: memory of dead tenants that the worker unmaps */
	struct ticker *ticker;	   /* owned */
	struct mps *mps;	   /* owned */
	sd_event_source *failure_timer;
	uint64_t dump_last_ns, dump_left_ns; /* maps_dump.c: time that dumps may take yet */
	struct maps_watch *maps_watches;     /* owned; maps_watch.c */
	struct watch *watches;		     /* owned; watch.c */
	struct control *control;	     /* owned */
};

static inline struct sched_directory *daemon_directory(struct daemon *d)
{
	return d->directory.map;
}

/* Accepts from a listening socket; when descriptors have run out the connection is taken and
 * closed, so that the loop does not spin on it. -EAGAIN: none is waiting (or none could be kept).
 */
int daemon_accept(struct daemon *d, int listen_fd);

/* True for root, the daemon's own user and members of group gbpf. */
bool daemon_may_administer(const struct daemon *d, int sock);

#endif

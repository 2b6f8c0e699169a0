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

#define DAEMON_MPS_EXITS 64u
#define DAEMON_CRASH_TEXT 160

struct daemon_mps_exit { /* of a process that was in the shared lane; neighbour.c */
	int pid;
	uid_t uid;
	uint64_t at_ns;	  /* when it was written up */
	uint32_t restart; /* how often it may be started again, as admit said */
	char why[DAEMON_CRASH_TEXT];
};

struct daemon_session;
struct daemon_control;
struct daemon_policies;
struct daemon_ticker;
struct daemon_watch;
struct daemon_mps;

struct daemon_options {
	bool foreground, state_given; /* by --state-dir */
	int ready_fd;		      /* -1: nobody waits */
	unsigned idle_exit_s;
	char device[16];
	char policy[DAEMON_PATH]; /* name or path; empty: the stored one, or fair */
	char runtime[DAEMON_PATH], state[DAEMON_PATH];
};

struct daemon_counters {
	uint64_t sessions, refused_sessions, dropped_sessions, deaths, garbage;
	uint64_t loads, swaps, refused, rollbacks, late, failed_prepares;
	uint64_t watch_rollbacks;
	uint64_t ticks, tick_overruns, tick_max_ns, verdict_errors, events_left_out;
};

struct daemon {
	sd_event *loop;
	struct daemon_options opt;
	uid_t uid;
	gid_t group;		    /* gbpf, or (gid_t)-1 */
	int lock_fd, state_lock_fd; /* flock: the only ones in these directories */
	int spare_fd;		    /* given up for a moment when accept meets EMFILE */
	uint64_t started_ns;
	uint32_t generation;
	bool ending;
	char *first_failed; /* owned: why the policy of the command line was refused */
	struct daemon_history history;
	uint64_t foreign_second; /* in which foreign_events were counted */
	unsigned foreign_events;
	struct daemon_job_thread worker;
	struct daemon_job_thread control_thread; /* steer.c's thread */
	struct daemon_gpus devices;
	struct daemon_counters counters;
	struct daemon_page directory; /* struct sched_directory */

	/* session.c */
	int session_fd;
	sd_event_source *session_io, *reaper, *requeue, *idle_timer;
	struct daemon_session *sessions, **sessions_end; /* in the order in which they connected */
	unsigned n_sessions;
	struct daemon_session *tenant[PROTO_MAX_TENANTS];
	struct daemon_session *lc[PROTO_MAX_LC]; /* whose boards are published */
	struct daemon_exit_record *exit_records;
	unsigned n_exit_records;
	struct daemon_mps_exit mps_exits[DAEMON_MPS_EXITS];
	unsigned n_mps_exits; /* ever */

	struct daemon_policies *policies; /* owned */
	uint64_t unmapping_bytes;     /* live.c: memory of dead tenants that the worker unmaps */
	struct daemon_ticker *ticker; /* owned */
	struct daemon_mps *mps;	      /* owned */
	sd_event_source *failure_timer;
	uint64_t dump_last_ns, dump_left_ns;	/* maps_dump.c: time that dumps may take yet */
	struct daemon_maps_watch *maps_watches; /* owned; maps_watch.c */
	struct daemon_watch *watches;		/* owned; watch.c */
	struct daemon_control *control;		/* owned */
};

static inline struct proto_directory *daemon_directory(struct daemon *d)
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

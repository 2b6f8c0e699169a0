/* The state that the files of gbpfd share: one struct daemon, used by the main thread alone. */
#ifndef GBPF_DAEMON_DAEMON_H
#define GBPF_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/rate.h"
#include "daemon/history.h"
#include "daemon/hw/gpu_list.h"
#include "daemon/job_thread.h"
#include "daemon/sealed_page.h"

#define DAEMON_PATH 4096
#define DAEMON_HOLD_LIMIT_NS 100000000u
#define DAEMON_MIN_SHARE_PPM 20000u
#define DAEMON_MAX_WEIGHT 10000u
#define DAEMON_MAX_LEAD_US 10000u
#define DAEMON_DEFAULT_WEIGHT 100u

#define DAEMON_MPS_EXITS 64u
#define DAEMON_CRASH_TEXT 160

struct daemon_mps_exit { /* exit of a process that was in the shared lane; mps_crash.c */
	int pid;
	uid_t uid;
	uint64_t at_ns;	  /* when the exit record was written */
	uint32_t restart; /* number of restarts that admit has allowed */
	char why[DAEMON_CRASH_TEXT];
};

struct daemon_session;
struct daemon_control;
struct daemon_policies;
struct daemon_ticker;
struct daemon_watch;
struct daemon_mps;

struct daemon_options {
	bool foreground, state_given; /* state_given: by --state-dir */
	int ready_fd;		      /* readiness is written to it; -1: none */
	unsigned idle_exit_s;
	char device[16];
	char policy[DAEMON_PATH]; /* name or path; empty: the stored policy, or fair */
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
	int lock_fd, state_lock_fd; /* flock on the runtime and the state directory */
	int spare_fd; /* closed for a moment to accept a connection when descriptors run out */
	uint64_t started_ns;
	uint32_t generation;
	bool ending;
	char *first_failed; /* owned; why the policy given on the command line was refused; NULL: it
			       was not */
	struct daemon_history history;
	struct rate_limit foreign_events; /* events of users other than root and gbpfd's own */
	struct daemon_job_thread worker;
	struct daemon_job_thread control_thread; /* calls the driver for hw_control.c */
	struct daemon_gpus devices;
	struct daemon_counters counters;
	struct daemon_page directory; /* struct proto_directory */

	/* tenant_session.c, session_life.c */
	int session_fd;
	sd_event_source *session_io, *reaper, *requeue, *idle_timer;
	struct daemon_session *sessions, **sessions_end; /* in order of connection */
	unsigned n_sessions;
	struct daemon_session *tenant[PROTO_MAX_TENANTS];
	struct daemon_session *lc[PROTO_MAX_LC]; /* by slot of their published boards */
	struct daemon_exit_record *exit_records;
	unsigned n_exit_records;
	struct daemon_mps_exit mps_exits[DAEMON_MPS_EXITS];
	unsigned n_mps_exits; /* total; the last DAEMON_MPS_EXITS are stored */

	struct daemon_policies *policies; /* owned */
	uint64_t unmapping_bytes; /* version.c: memory of exited tenants that the worker is about to
				     unmap */
	struct daemon_ticker *ticker; /* owned */
	struct daemon_mps *mps;	      /* owned */
	sd_event_source *failure_timer;
	uint64_t dump_last_ns, dump_left_ns;	/* maps_dump.c: time budget of dumps */
	struct daemon_maps_watch *maps_watches; /* owned; maps_watch.c */
	struct daemon_watch *watches;		/* owned; watch.c */
	struct daemon_control *control;		/* owned */
};

static inline struct proto_directory *daemon_directory(struct daemon *d)
{
	return d->directory.map;
}

/* Accepts a connection from a listening socket. When descriptors have run out, takes the connection
 * and closes it, so that the loop does not spin on the socket. -EAGAIN: none is pending, or none
 * could be kept. */
int daemon_accept(struct daemon *d, int listen_fd);

/* Returns true for root, the daemon's own user and members of group gbpf. */
bool daemon_may_administer(const struct daemon *d, int sock);

#endif

/* The state that the files of gbpfd share: one struct daemon, with a part for each feature. */
#ifndef GBPF_DAEMON_DAEMON_H
#define GBPF_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/atomic.h"
#include "base/rate.h"
#include "daemon/history.h"
#include "daemon/gpu_list.h"
#include "daemon/job_thread.h"
#include "daemon/sealed_page.h"
#include "daemon/users.h"

#define DAEMON_PATH 4096
#define DAEMON_HOLD_LIMIT_NS 100000000u
#define DAEMON_MIN_SHARE_PPM 20000u
#define DAEMON_MAX_WEIGHT 10000u
#define DAEMON_MAX_LEAD_US 10000u
#define DAEMON_DEFAULT_WEIGHT 100u

struct daemon_session;
struct daemon_control;
struct daemon_policies;
struct daemon_probes;
struct daemon_ticker;
struct daemon_watch;
struct daemon_mps;
struct daemon_idle;
struct daemon_prints;
struct daemon_vgpu;

struct daemon_options {
	bool foreground, state_given; /* state_given: by --state-dir */
	int ready_fd;		      /* readiness is written to it; -1: none */
	unsigned idle_exit_s;
	uint64_t pinned_mib; /* host memory that virtual GPUs may pin; 0: half of all */
	char device[16];
	char policy[DAEMON_PATH]; /* name or path; empty: the stored policy, or fair */
	char runtime[DAEMON_PATH], state[DAEMON_PATH];
};

struct daemon_counters {
	uint64_t sessions, refused_sessions, dropped_sessions, deaths, garbage;
	uint64_t loads, swaps, refused, rollbacks, late, failed_prepares;
	uint64_t watch_rollbacks;
	uint64_t idle_demotions;
	uint64_t ticks, tick_overruns, tick_max_ns, verdict_errors, events_left_out;
	uint64_t user_pauses;
};

/* Accepting connections, and the right to administer: access.c. */
struct daemon_access {
	gid_t group;  /* gbpf, or (gid_t)-1 */
	int spare_fd; /* owned; closed for a moment to accept a connection when descriptors run out
		       */
};

/* flock on the two directories: runtime.c. */
struct daemon_locks {
	int runtime_fd, state_fd; /* owned; -1: not locked */
	int phase_fd;		  /* owned; the file that states gbpfd's phase, or -1 */
};

/* The sessions: tenant_session.c, session_life.c (tenant: hello.c; lc: lc_boards.c). */
struct daemon_sessions {
	int fd;						     /* owned; the listening socket */
	sd_event_source *io, *reaper, *requeue, *idle_timer; /* owned */
	struct daemon_session *first, **end;		     /* owned; in order of connection */
	unsigned n;
	struct daemon_session *tenant[PROTO_MAX_TENANTS]; /* borrowed; by number */
	struct daemon_session *lc[PROTO_MAX_LC]; /* borrowed; by slot of their published boards */
	uint32_t last_group;			 /* number */
};

/* Processes that have exited and whose record is not written yet: exit_record.c. */
struct daemon_exits {
	struct daemon_exit_record *first; /* owned */
	unsigned n;
};

#define DAEMON_MPS_EXITS 64u
#define DAEMON_CRASH_TEXT 160

/* Exits of processes that were in the shared lane: mps_crash.c. */
struct daemon_mps_exits {
	struct daemon_mps_exit {
		int pid;
		uid_t uid;
		uint64_t at_ns;	  /* when the exit record was written */
		uint32_t restart; /* number of restarts that admit has allowed */
		char why[DAEMON_CRASH_TEXT];
	} last[DAEMON_MPS_EXITS];
	unsigned n; /* total; the last DAEMON_MPS_EXITS are stored */
};

/* Maps that callers read: maps_dump.c (time budget of dumps), maps_watch.c. */
struct daemon_maps {
	uint64_t dump_last_ns, dump_left_ns;
	struct daemon_maps_watch *watches;   /* owned */
	uint64_t drain_turn, drain_until_ns; /* rings are drained in that turn of the loop, until
						that processor time */
};

/* vGPUs: vgpu.c. */
/* vgpu_reclaim.c: memory of a device that is taken for one question. */
struct daemon_vgpu_round {
	struct daemon_session *asker;  /* borrowed; NULL: there is no round */
	struct daemon_session *victim; /* borrowed; has the order; NULL: it has ended */
	uint64_t number;	       /* of the round */
	uint64_t order;		       /* that is under way; 0: none */
	uint64_t sent_ns, until_ns;    /* of that order */
	uint64_t ordered, most;	       /* bytes of that order: needed, may be released */
	uint64_t freed;		       /* of the round so far */
	uint64_t victim_had;	       /* bytes of the victim when it got the order */
	uint32_t row;		       /* of the victim's account */
	uint32_t place;		       /* of the asker's vGPU */
	uint32_t orders;	       /* given in the round */
};

struct daemon_vgpus {
	struct daemon_vgpu *first; /* owned */
	unsigned n;
	sd_event_source *timer;	    /* owned; vgpu_reserve.c: while a process waits for memory */
	sd_event_source *adopt_end; /* owned; vgpu.c: while vGPUs of an earlier gbpfd are awaited */
	sd_event_source *shares_timer; /* owned; vgpu_share.c: a look at shared memory is due */
	uint64_t shares_rest_ns;       /* vgpu_share.c: no look before that */
	sd_event_source *actual_timer; /* owned; vgpu_actual.c: while vGPUs have processes */
	uint64_t asked;		       /* counts what processes ask for */
	uint64_t orders, rounds;       /* likewise; vgpu_reclaim.c */
	uint64_t questions;	       /* counts; vgpu_ipc.c */
	struct daemon_vgpu_round round[PROTO_MAX_GPUS]; /* by gbpfd's number of the GPU */
	unsigned saving;   /* changes of callers that are being written: vgpu_store.c */
	uint64_t pinnable; /* bytes of host memory that all of them may pin; 0: any */
};

/* Used by the main thread alone, without locks: the other threads get jobs, which hold copies of
 * what they need. The files named at a part are the only ones that change its fields. */
struct daemon {
	/* the process: daemon_main.c */
	sd_event *loop;
	struct daemon_options opt;
	uid_t uid;
	uint64_t started_ns;
	uint32_t generation; /* differs from that of earlier gbpfd processes */
	bool ending;

	/* services that all files use */
	struct daemon_history history;
	struct daemon_history audit; /* audit.c */
	struct daemon_users users;
	struct daemon_counters counters;
	struct daemon_gpus devices;
	struct daemon_page directory;		 /* struct proto_directory */
	struct daemon_job_thread worker;	 /* makes versions, writes to disk, unmaps memory */
	struct daemon_job_thread verifiers;	 /* verify policies: verify_jobs.c */
	struct daemon_job_thread tool_builder;	 /* verifies tools: probe_attach.c */
	struct daemon_job_thread control_thread; /* calls the driver for hw_control.c */

	/* features */
	struct daemon_access access;
	struct daemon_locks locks;
	struct daemon_sessions sessions;
	struct daemon_exits exits;
	struct daemon_mps_exits mps_exits;
	struct daemon_maps maps;
	struct daemon_vgpus vgpus;
	struct daemon_policies *policies; /* owned; policies.c */
	struct daemon_probes *probes;	  /* owned; daemon/probe */
	struct daemon_ticker *ticker;	  /* owned; daemon_hooks.c */
	struct daemon_mps *mps;		  /* owned; mps.c */
	struct daemon_watch *watches;	  /* owned; watch.c */
	struct daemon_idle *idle;	  /* owned; idle_boards.c */
	struct daemon_prints *prints;	  /* owned; policy_prints.c */
	struct daemon_control *control;	  /* owned; control_socket.c */
};

static inline struct proto_directory *daemon_directory(const struct daemon *d)
{
	return d->directory.map;
}

/* Returns true while every call passes through: policies decide nothing. */
static inline bool daemon_policy_is_off(const struct daemon *d)
{
	return load_relaxed(&daemon_directory(d)->off);
}

/* Returns the version of the policy that is active on a GPU, 0: none. */
static inline uint64_t daemon_policy_active_version(struct daemon *d, unsigned gpu)
{
	return gpu < PROTO_MAX_GPUS ? load_relaxed(&daemon_directory(d)->version[gpu]) : 0;
}

/* Returns the numbers of the GPUs on which the version is active, a bit each: all, also of devices
 * that are not known yet, where no operation named one. 0 for version 0. */
static inline uint32_t daemon_policy_gpus_of(struct daemon *d, uint64_t version)
{
	uint32_t gpus = 0;

	for (uint32_t i = 0; i < PROTO_MAX_GPUS && version; i++) {
		gpus |= daemon_policy_active_version(d, i) == version ? 1u << i : 0;
	}
	return gpus;
}

/* Accepts a connection from a listening socket. When descriptors have run out, takes the connection
 * and closes it, so that the loop does not spin on the socket. -EAGAIN: none is pending, or none
 * could be kept. */
int daemon_accept(struct daemon *d, int listen_fd);

/* Returns true for root, the daemon's own user and members of group gbpf. */
bool daemon_may_administer(const struct daemon *d, int sock);

#endif

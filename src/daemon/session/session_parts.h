/* The parts of a session, one for each feature. The files named at a part are the only ones that
 * change its fields; other files read them or call that feature's functions. Main thread only. */
#ifndef GBPF_DAEMON_SESSION_SESSION_PARTS_H
#define GBPF_DAEMON_SESSION_SESSION_PARTS_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/rate.h"
#include "bpf/run/printk.h"
#include "daemon/session/outbox.h"
#include "proto/pages.h"
#include "proto/wire.h"

#define DAEMON_PROBE_SLOTS 32u /* tools, with those that are being detached or replaced */

struct daemon_flag_page;
struct daemon_hw;
struct daemon_probe_part;
struct daemon_vgpu;

/* The connection: tenant_session.c, session_life.c. */
struct daemon_session_conn {
	int sock;			     /* owned */
	sd_event_source *io, *timer, *death; /* owned; the socket, its timeout, the pidfd */
	uint32_t version;		     /* of the protocol that the process speaks; 0: ours */
	struct daemon_outbox out;	     /* messages that wait for room in the socket */
	struct rate_limit notes;	     /* NOTE messages */
};

/* How far the hello is: hello.c (asked_mask: daemon_hooks.c). */
struct daemon_session_hello {
	bool early;	      /* sent before the driver was started: the devices follow */
	bool has_devices;     /* gpus, gpu_index and gpu_mask are valid */
	bool reattached;      /* the process had a session with an earlier gbpfd */
	bool queued_sent;     /* QUEUED was sent */
	uint64_t had_version; /* reattached: the policy version that it runs */
	uint32_t asked_mask;  /* GPUs whose policies have run admit */
};

/* The verdict of admit, restricted to what the process supports: daemon_hooks.c, sharing_mode.c. */
struct daemon_session_grant {
	uint32_t lane, lanes;	/* GBPF_LANE_*; bits of the lanes it can take */
	uint32_t slice_us;	/* 0: the device's default */
	uint64_t slice_version; /* the policy version that chose slice_us */
	uint32_t sm_percent;
	int32_t priority;
	uint32_t rhythm, lead_us; /* of announced requests */
	uint32_t restart;	  /* restarts allowed after a crash of another MPS client */
};

/* The settings that the process was last sent: hello.c, tenant_session.c. */
struct daemon_session_sent {
	uint32_t class_id, weight, weight_asked;
	struct rate_limit changes; /* changes of class, each of which is broadcast */
};

/* Boards of latency tenants: lc_boards.c. */
struct daemon_session_lc {
	int slot;      /* of its own board in daemon.lc; -1: not published */
	uint64_t sent; /* bits of the slots whose boards it was sent */
};

/* The group that it belongs to: groups.c (name: hello.c). */
struct daemon_session_group {
	char name[PROTO_NAME]; /* "": none */
	int slot;	       /* among those of the group that communicate; -1: none */
	bool communicates;     /* also if there was no slot */
	uint32_t number;       /* of the group, if it has a slot */
	uint32_t sole_gpus; /* of the group, as bits: those that it shares with groups of the same
			       GPUs, and no other work; 0: there is other work */
	/* By the process's ordinal: what its pages showed last, and when that last changed. */
	struct {
		uint64_t launches, launched_ns, collectives, communicated_ns;
	} seen[PROTO_MAX_GPUS];
};

/* Open requests without GPU work: idle_boards.c. */
struct daemon_session_idle {
	uint64_t open_ns[PROTO_MAX_GPUS];   /* that its board has shown one, in this window */
	uint64_t window_ns[PROTO_MAX_GPUS]; /* in the window that is being judged */
	uint64_t charge_ns;		    /* of that, without work */
	uint64_t claims;		    /* sum of its page's counters at the last window */
	bool has_worked;		    /* in the last window */
	bool demoted;			    /* from class latency, until it works */
};

/* Flag pages: flag_pages.c. */
struct daemon_session_flags {
	struct daemon_flag_page *own[PROTO_MAX_GPUS]; /* owned; by the process's ordinal */
	struct daemon_flag_page *sent[PROTO_FLAGS];   /* borrowed from their sessions; by number */
};

/* Hardware control, and its requests as gbpfd sees them: hw_control.c. */
struct daemon_session_hw {
	struct daemon_hw *state; /* owned; NULL: no handles and nothing to be applied */
	uint32_t capable;	 /* bits of enum gpu_control, as the process reports them */
	uint64_t request_since[PROTO_MAX_GPUS]; /* ns; 0: no request is open */
	uint64_t request_key[PROTO_MAX_GPUS];	/* tells consecutive requests apart */
	struct rate_limit offers;		/* CONTROL and FLAG messages */
};

/* The hook preempt: preempt.c. */
struct daemon_session_preempt {
	/* As the tenant that waits: whether its process is to report requests as they open. */
	uint64_t report_until_ns;
	bool reports; /* as it was last sent */
	struct rate_limit rate;
	/* As the tenant that is preempted: the strongest level applied for the last request. */
	int tried_for; /* tenant whose request it was */
	uint64_t tried_since;
	uint32_t tried; /* GBPF_LEVEL_* */
	bool killed;	/* by a verdict; it may take a while to exit */
};

/* What the policy says of it (gbpf_explain): tenant_helpers.c. */
struct daemon_session_explained {
	uint64_t version; /* that said it; 0: none */
	char text[EBPF_PRINT_TEXT];
};

/* The vGPU that it is in: vgpu.c, vgpu_actual.c, vgpu_reserve.c. */
struct daemon_session_vgpu {
	struct daemon_vgpu *of; /* borrowed; NULL: none */
	uint32_t line;		/* of its process in the account */
	bool fresh;		/* it had no account before */
	uint64_t peak;	 /* once it has left: the most memory that it held on one device, bytes */
	bool unchecked;	 /* vgpu_maps.c: whether policies keep its shares is to be checked */
	bool is_counted; /* vgpu_actual.c: busy_ns counts from here on */
	uint64_t busy_ns[PROTO_MAX_GPUS]; /* of its page, by ordinal, as far as it is counted */
	struct rate_limit asks;		  /* MEM_ASK messages that are decided at once */
	struct {
		uint64_t since; /* order of arrival; 0: it does not wait for memory */
		uint64_t bytes, until_ns;
		uint32_t row, seq;
		bool full; /* it waits for memory of the device, not for its vGPU's limit */
		/* vgpu_reclaim.c: other vGPUs may be made to release memory for it, and are until
		 * then. */
		bool may_reclaim, reclaims;
		uint64_t reclaim_until_ns;
		uint64_t seen; /* vgpu_full.c: the device's event after which it tried last */
		/* It was told to try again: until then, until it says that it has, or until it
		 * holds something else than `held`, the bytes are its own, and a further question
		 * has its old place. */
		uint64_t promised_until_ns, held, place;
	} ask;
	/* vgpu_reclaim.c: the round in which it could release nothing more; it has not answered an
	 * order, and gets none until then. */
	struct {
		uint64_t round, shunned_until_ns;
		bool foreseen; /* an order of no bytes is not answered yet */
	} release;
};

/* vgpu_ipc.c: its question for memory that another process has shared. */
struct daemon_session_ipc {
	uint64_t number; /* 0: it asks for none */
	int owner;	 /* tenant that was asked */
	unsigned asked;	 /* questions to this process that it has not answered */
};

/* Policy versions: policy_swap.c, active_versions.c, version.c (tallied: policy_failures.c). */
struct daemon_session_policy {
	uint64_t prepares_sent, prepares_acked; /* messages */
	uint64_t awaited_ack;  /* value of prepares_acked that the swap waits for; 0: none */
	uint64_t awaited_from; /* and its value before the first of them */
	bool offered;	       /* PREPARE of the swap under way was sent, or need not be */
	bool cannot_run;       /* the process answered it with an error */
	bool tallied;	       /* its page's counters have been added to its version's */
};

/* Tools that it was sent, by their places: daemon/probe. */
struct daemon_session_probes {
	struct daemon_probe_part *part[DAEMON_PROBE_SLOTS]; /* owned */
	uint64_t cover_sent, cover_wanted; /* numbers of COVERAGE: last one sent, last wanted */
	uint64_t cover_done;		   /* last one answered */
};

/* The answer of admit of the version that is about to become active: policy_rejoin.c, and
 * tenant_session.c where the question has changed. */
struct daemon_session_rejoin {
	bool asked;   /* admit has run, or need not */
	bool changes; /* the flip sets weight and slice_us */
	uint32_t weight, slice_us;
};

#endif

/* Inside the watch folder: a watch, and the window of time that it evaluates. */
#ifndef GBPF_DAEMON_WATCH_WATCH_INT_H
#define GBPF_DAEMON_WATCH_WATCH_INT_H

#include "bpf/run/map/map.h"
#include "daemon/watch/watch.h"

#define WATCH_REASON 320u
#define WATCH_CLASSES 3u

/* Words of a statistics page that are summed up. */
enum daemon_window_counter {
	WINDOW_requests,
	WINDOW_launches,
	WINDOW_copies,
	WINDOW_holds,
	WINDOW_deferred,
	WINDOW_limit_hits,
	WINDOW_helper_errors,
	WINDOW_verdict_errors,
	WINDOW_held_ns,
	WINDOW_busy_ns,
	WINDOW_COUNTERS
};

struct daemon_window_sum {
	uint64_t counter[WINDOW_COUNTERS];
	uint64_t hist[PROTO_HIST_BUCKETS];
	uint64_t present_ns; /* time that its tenants were connected, summed up */
};

struct daemon_window_base { /* a tenant's counters when the window began for it */
	uint64_t connected_ns, since_ns;
	struct daemon_window_sum at;
};

struct daemon_window {
	struct daemon *d;
	uint32_t gpu_mask;
	uint64_t begin_ns;
	struct daemon_window_base *base[PROTO_MAX_TENANTS]; /* owned; NULL: not seen yet */
	struct daemon_window_sum gone[WATCH_CLASSES]; /* of tenants that have left, by class */
	uint64_t tick_overruns, late, failed_prepares,
		verdict_errors; /* gbpfd's counters at the beginning */
};

void daemon_window_begin(struct daemon_window *w, struct daemon *d, uint32_t gpu_mask,
			 uint64_t now);
void daemon_window_finish(struct daemon_window *w);
void daemon_window_session_ended(struct daemon_window *w, const struct daemon_session *s);
/* Computes the value of each term; NAN: not known. */
void daemon_window_evaluate(struct daemon_window *w, const struct daemon_watch_expr *e,
			    uint64_t version, uint64_t now, double value[WATCH_TERMS]);

enum daemon_watch_state { WATCH_LOOKS, WATCH_STAYS, WATCH_ROLLED_BACK, WATCH_ENDED };

struct daemon_watch {
	struct daemon_watch *next;
	struct daemon *d;
	sd_event_source *timer;
	uint64_t version, before, begin_ns, ended_ns;
	uint32_t gpu_mask;
	uint64_t old[PROTO_MAX_GPUS];
	enum daemon_watch_state state;
	char name[EBPF_NAME_BYTES], reason[WATCH_REASON];
	struct daemon_watch_request order;
	struct daemon_window window;
	double value[WATCH_TERMS]; /* at the last evaluation */
};

#endif

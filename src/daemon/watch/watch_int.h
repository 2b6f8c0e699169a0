/* Inside the watch folder: a watch, and the window of time that it evaluates. */
#ifndef GBPF_DAEMON_WATCH_WATCH_INT_H
#define GBPF_DAEMON_WATCH_WATCH_INT_H

#include "bpf/run/map/map.h"
#include "daemon/watch/watch.h"

#define DAEMON_WATCH_REASON 320u
#define DAEMON_WATCH_CLASSES 3u

/* Words of a statistics page that are summed up. */
enum daemon_window_counter {
	DAEMON_WINDOW_requests,
	DAEMON_WINDOW_launches,
	DAEMON_WINDOW_copies,
	DAEMON_WINDOW_holds,
	DAEMON_WINDOW_deferred,
	DAEMON_WINDOW_limit_hits,
	DAEMON_WINDOW_helper_errors,
	DAEMON_WINDOW_verdict_errors,
	DAEMON_WINDOW_held_ns,
	DAEMON_WINDOW_busy_ns,
	DAEMON_WINDOW_COUNTERS
};

struct daemon_window_sum {
	uint64_t counter[DAEMON_WINDOW_COUNTERS];
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
	struct daemon_window_sum
		gone[DAEMON_WATCH_CLASSES]; /* of tenants that have left, by class */
	uint64_t tick_overruns, late, failed_prepares,
		verdict_errors; /* gbpfd's counters at the beginning */
};

void daemon_window_begin(struct daemon_window *w, struct daemon *d, uint32_t gpu_mask,
			 uint64_t now);
void daemon_window_finish(struct daemon_window *w);
void daemon_window_session_ended(struct daemon_window *w, const struct daemon_session *s);
/* Computes the value of each term; NAN: not known. */
void daemon_window_evaluate(struct daemon_window *w, const struct daemon_watch_expr *e,
			    uint64_t version, uint64_t now, double value[DAEMON_WATCH_TERMS]);

enum daemon_watch_state {
	DAEMON_WATCH_LOOKS,
	DAEMON_WATCH_ROLLS_BACK, /* the condition held, and the version is still active */
	DAEMON_WATCH_STAYS,
	DAEMON_WATCH_ROLLED_BACK,
	DAEMON_WATCH_ENDED
};

struct daemon_watch {
	struct daemon_watch *next;
	struct daemon *d;
	sd_event_source *timer;
	struct daemon_stored_watch is;
	struct daemon_watch_expr expr;
	uint64_t before;
	uint64_t begin_ns;    /* of the window: the flip, or gbpfd's start */
	uint64_t end_ns;      /* deadline */
	uint64_t ended_ns;    /* when it ended, or when the condition held */
	uint64_t rollback_ns; /* from then until the version before was active */
	bool resumed;	      /* it was begun by an earlier gbpfd */
	uint32_t back_mask;   /* GPUs on which it was active when the condition held */
	enum daemon_watch_state state;
	char reason[DAEMON_WATCH_REASON];
	struct daemon_window window;
	double value[DAEMON_WATCH_TERMS]; /* at the last evaluation */
};

/* Adds a watch that does not run yet; NULL: no memory. */
struct daemon_watch *daemon_watch_add(struct daemon *d, const struct daemon_watch_request *o);
/* Starts the evaluation of a watch that ends after left_ns. */
void daemon_watch_run(struct daemon_watch *w, uint64_t left_ns);
void daemon_watch_end(struct daemon_watch *w, enum daemon_watch_state state, const char *reason);

#endif

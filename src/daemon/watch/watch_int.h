/* Inside watch*.c: a watch, and the window over which it looks. */
#ifndef GBPF_DAEMON_WATCH_WATCH_INT_H
#define GBPF_DAEMON_WATCH_WATCH_INT_H

#include "bpf/run/map/map.h"
#include "daemon/watch/watch.h"

#define WATCH_REASON 320u
#define WATCH_CLASSES 3u

/* What is added up of a statistics page. */
enum window_counter {
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

struct window_sum {
	uint64_t counter[WINDOW_COUNTERS];
	uint64_t hist[SCHED_HIST_BUCKETS];
	uint64_t present_ns; /* time that its tenants have been there, added up */
};

struct window_base { /* what a tenant's page had when the window began for it */
	uint64_t connected_ns, since_ns;
	struct window_sum at;
};

struct window {
	struct daemon *d;
	uint32_t gpu_mask;
	uint64_t begin_ns;
	struct window_base *base[SCHED_MAX_TENANTS]; /* owned; NULL: not seen yet */
	struct window_sum gone[WATCH_CLASSES];	     /* of tenants that have left */
	uint64_t tick_overruns, late, failed_prepares,
		verdict_errors; /* gbpfd's at the beginning */
};

void window_begin(struct window *w, struct daemon *d, uint32_t gpu_mask, uint64_t now);
void window_finish(struct window *w);
void window_forget(struct window *w, const struct session *s);
/* NAN for what is not known. */
void window_look(struct window *w, const struct watch_expr *e, uint64_t version, uint64_t now,
		 double value[WATCH_TERMS]);

enum watch_state { WATCH_LOOKS, WATCH_STAYS, WATCH_ROLLED_BACK, WATCH_ENDED };

struct watch {
	struct watch *next;
	struct daemon *d;
	sd_event_source *timer;
	uint64_t version, before, begin_ns, ended_ns;
	uint32_t gpu_mask;
	uint64_t old[SCHED_MAX_GPUS];
	enum watch_state state;
	char name[EBPF_NAME_BYTES], reason[WATCH_REASON];
	struct watch_order order;
	struct window window;
	double value[WATCH_TERMS]; /* at the last look */
};

#endif

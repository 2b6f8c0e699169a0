/* Inside hw_*.c: what is wanted for a tenant, and what is in force on each of its GPUs. */
#ifndef GBPF_DAEMON_HW_HW_CONTROL_INT_H
#define GBPF_DAEMON_HW_HW_CONTROL_INT_H

#include "daemon/consts.h"
#include "daemon/hw/hw_control.h"
#include "gpu/control.h"

#define DAEMON_HW_SLICE_UNKNOWN UINT32_MAX

/* One GPU of a tenant: its handles, and what is in force. */
struct daemon_hw_gpu {
	bool used;
	uint32_t gpu; /* gbpfd's number */
	int fd;	      /* owned; commands the process's work there */
	struct gpu_handles h;
	uint32_t slice_us; /* 0: the device's default; DAEMON_HW_SLICE_UNKNOWN: a change failed
			      half-way */
	bool off;	   /* switched off, or a change of that failed */
	bool evicted;	   /* taken off the hardware for GBPF_LEVEL_SLICE */
};

struct daemon_hw_target {
	uint32_t slice_us, level, gpus; /* gpus: bits of gbpfd's numbers, for level */
};

static const struct daemon_hw_target HW_NOTHING = { .level = GBPF_LEVEL_NONE };

/* While `working`, the control thread owns job, gpu, done and err; otherwise the main thread does.
 * The main thread owns all other fields; the control thread reads `exited`. */
struct daemon_hw {
	struct daemon_job job; /* first */
	struct daemon *d;
	struct daemon_session *s; /* NULL: it has ended */
	bool working;		  /* submitted to the control thread */
	bool exited;		  /* the process is dead: nothing needs to be undone; atomic */
	bool new_handles;	  /* installed since the last submission */

	struct daemon_hw_gpu gpu[PROTO_MAX_GPUS];      /* by the process's ordinal */
	struct daemon_hw_gpu received[PROTO_MAX_GPUS]; /* replace gpu[] when not working */
	struct daemon_hw_target want, done;	       /* done: as submitted last */
	int err;				       /* of the last work */
	bool err_reported;			       /* an event was written for err */
	uint64_t slice_changed_ns, finished_ns; /* last change of slice; end of the last work */

	/* why `want` is what it is */
	uint64_t slice_version, level_version; /* policy versions */
	int for_tenant;			       /* whose request level is for; -1: none */
	uint64_t for_key;		       /* that request's key */
	uint64_t level_since_ns, level_set_ns; /* first and last call that set it */
	uint64_t pause_until_ns;	       /* at the hold limit; 0: level is in force */
};

/* hw_apply.c: on the control thread, or after it has stopped. */
void daemon_hw_apply(struct daemon_job *j);	 /* brings gpu[] to done */
void daemon_hw_apply_last(struct daemon_job *j); /* the same, then closes all descriptors */
void daemon_hw_gpu_close(struct daemon_hw_gpu *g);

static inline bool daemon_hw_gpu_can(const struct daemon_hw_gpu *g, enum gpu_control c)
{
	return g->h.capable & 1u << c;
}

/* hw_control.c: submits what is wanted, if that differs from what was submitted and may change
 * now. */
void daemon_hw_update(struct daemon_hw *hw, uint64_t now);
/* Returns true while something is wanted or being changed, which needs further ticks. */
bool daemon_hw_is_busy(const struct daemon_hw *hw);

/* hw_level.c */
void daemon_hw_end_level(struct daemon_hw *hw, uint64_t now);

#endif

/* The device interface of sched: markers, runs and leases of a queue. gpu/ implements it on a
 * driver table, tests implement it in memory. Every member: any thread, called without locks of
 * sched, must not block, unless its comment differs. */
#ifndef GBPF_SCHED_DEVICE_H
#define GBPF_SCHED_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct sched_marker {
	void *event; /* owned by the device; NULL: none */
};

/* How far a run is. */
struct sched_run_progress {
	uint64_t launched, done; /* launches of the run; the first `done` of them have started all
				    their blocks */
	uint64_t end_ns;	 /* about when it should be through (monotonic); 0: not known */
	uint32_t interruptions;	 /* number of interruptions */
	uint32_t futile;	 /* number of those that no block had got through before */
	bool stopped;		 /* it is interrupted, */
	bool waiting;		 /* and there is nothing to do before may_run or force */
	bool full;		 /* takes no further launch now */
	bool feeding;		 /* holds back blocks, which run_step launches piece by piece */
};

struct sched_device_ops {
	/* mandatory: places a marker at the end of the queue. timed: mark_span_ns will be asked
	 * about it. Returns 0, -EAGAIN if that is not possible now (stream capture), or -EIO.
	 * dev_queue is the argument of sched_queue_open. */
	int (*mark)(void *dev, void *dev_queue, bool timed, struct sched_marker *m);
	/* mandatory: returns 1 if the marker is reached, 0 if not, -EIO on a device error (counts
	 * as reached). */
	int (*mark_done)(void *dev, const struct sched_marker *m);
	/* mandatory: returns the ns between two reached markers, both timed, or -EIO. */
	int64_t (*mark_span_ns)(void *dev, const struct sched_marker *from,
				const struct sched_marker *to);
	/* mandatory: releases a marker; its event is reused. */
	void (*mark_release)(void *dev, struct sched_marker *m);
	/* mandatory: returns 1 if all work of the queue has finished, 0 if not, -EAGAIN during a
	 * capture, or -EIO. */
	int (*queue_idle)(void *dev, void *dev_queue);

	/* optional (NULL: the device has no block level). The run of a queue is the sequence of its
	 * latest launches at block level; see gpu/gpu_run.h. Returns 1 if a launch of it has blocks
	 * that have not started, so that only launches at block level may follow, else 0. One load
	 * of host memory in the usual case. */
	int (*run_busy)(void *dev, void *dev_queue);
	/* mandatory with run_busy: looks after an unfinished run. If it was interrupted, launches
	 * the missing blocks with may_run, one piece of them with force alone, and all of them
	 * immune to leases with both. Caller holds issue.lock. Returns ns until the next call, or
	 * UINT64_MAX when the run is through. */
	uint64_t (*run_step)(void *dev, void *dev_queue, bool may_run, bool force);
	/* mandatory with run_busy: fills *ret. Returns 0 or, once, the device error (> 0) that
	 * ended the run or a launch in it. */
	int (*run_look)(void *dev, void *dev_queue, struct sched_run_progress *ret);
	/* optional: returns the device time that a launch of the run (its value of `launched`)
	 * would have taken without interruptions, by the observed end of its blocks. 0: not known,
	 * unfinished, or too long ago. */
	uint64_t (*run_took)(void *dev, void *dev_queue, uint64_t launch);

	/* optional: states on every flag page of the GPU (device ordinal) that this process's work
	 * goes first until that time (monotonic); 0 withdraws it. On the launch path: about 200 ns
	 * a page. */
	void (*lease)(void *dev, uint32_t gpu, uint64_t until_ns);
	/* optional: launches an empty kernel, so that this process's context is on the hardware
	 * when the announced request comes. Agent thread; takes microseconds, the first time
	 * milliseconds. */
	void (*warm)(void *dev, uint32_t gpu);
	/* optional: sets the time slice of the contexts of the GPU in us; 0: the device's default.
	 * Agent thread; takes milliseconds. Returns 0 or -errno. */
	int (*slice)(void *dev, uint32_t gpu, uint32_t slice_us);
};

#endif

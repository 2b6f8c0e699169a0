/* What sched needs from hardware: markers in a queue. gpu/ implements it on a driver table; tests
 * implement it in memory. All calls: any thread, no sched lock is held, none may block unless said.
 */
#ifndef GBPF_SCHED_DEVICE_H
#define GBPF_SCHED_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct sched_marker {
	void *event; /* the device's; NULL: none */
};

/* How far a chain is. */
struct sched_run_progress {
	uint64_t launched, done; /* launches; all blocks of so many have begun */
	uint64_t end_ns;	 /* when it should be through (monotonic), about; 0: not known */
	uint32_t interruptions;	 /* so far */
	bool stopped;		 /* interrupted, */
	bool waiting;		 /* and nothing to be done before may_run or force */
	bool full;		 /* takes no further launch now */
	bool feeding;		 /* keeps some of its blocks back: chain_step gives them out */
};

struct sched_device_ops {
	/* mandatory: puts a timed marker at the end of the queue. 0, -EAGAIN (not possible now,
	 * e.g. stream capture: do without), -EIO. dev_queue is what sched_queue_open was given. */
	int (*mark)(void *dev, void *dev_queue, struct sched_marker *m);
	/* mandatory: 1 reached, 0 not yet, -EIO (device error: counts as reached). */
	int (*mark_done)(void *dev, const struct sched_marker *m);
	/* mandatory: nanoseconds between two reached markers, or -EIO. */
	int64_t (*mark_span_ns)(void *dev, const struct sched_marker *from,
				const struct sched_marker *to);
	/* mandatory: gives a marker back (its event is reused). */
	void (*mark_release)(void *dev, struct sched_marker *m);
	/* mandatory: 1 when everything submitted to the queue has finished, 0 not, -EIO, -EAGAIN
	 * (capturing). */
	int (*queue_idle)(void *dev, void *dev_queue);

	/* optional (NULL: the device has no block level). The chain of a queue is the run of
	 * launches at block level that were put on it one after the other; see gpu/gpu_run.h. 1: a
	 * launch of it has blocks that have not begun yet, so only further launches at block level
	 * may follow; 0: everything may. One load of host memory when nothing is wrong. */
	int (*run_busy)(void *dev, void *dev_queue);
	/* Looks after an unfinished chain. When it was interrupted: with may_run launches the
	 * missing blocks; with force alone one piece of them, and with both all of them such that
	 * no lease interrupts them. Serialized by the caller (issue lock). Nanoseconds until it
	 * wants to be called again, UINT64_MAX when it is finished. */
	uint64_t (*run_step)(void *dev, void *dev_queue, bool may_run, bool force);
	/* mandatory beside chain_busy. No lock. 0, or once the device's error (> 0) that ended the
	 * chain or a launch in it after it had been taken. */
	int (*run_look)(void *dev, void *dev_queue, struct sched_run_progress *ret);
	/* optional: what that launch of the chain (sched_chain.launched, when it was the newest)
	 * would have taken of the device without interruptions, from when its blocks were seen to
	 * end. 0: not known, unfinished, or too long ago. No lock. */
	uint64_t (*run_took)(void *dev, void *dev_queue, uint64_t launch);

	/* optional: says on every flag page of that GPU (device ordinal) that this process's work
	 * goes first, until that time (monotonic); 0 takes it back. Any thread, no lock of others,
	 * about 200 ns a page: the request path calls it. */
	void (*lease)(void *dev, uint32_t gpu, uint64_t until_ns);
	/* optional: launches a kernel that does nothing, so that this process's context is on the
	 * hardware when the announced request comes. The agent calls it; it may take some
	 * microseconds, the first time milliseconds. */
	void (*warm)(void *dev, uint32_t gpu);
	/* optional: time slice of the contexts of that GPU in microseconds, 0 the device's own.
	 * Takes milliseconds. 0 or -errno. */
	int (*slice)(void *dev, uint32_t gpu, uint32_t slice_us);
};

#endif

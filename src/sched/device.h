/* What sched needs from hardware: markers in a queue. gpu/ implements it on a driver table; tests
 * implement it in memory. All calls: any thread, no sched lock is held, none may block unless said.
 */
#ifndef GBPF_SCHED_DEVICE_H
#define GBPF_SCHED_DEVICE_H

#include <stdint.h>

struct sched_marker {
	void *event; /* the device's; NULL: none */
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
};

#endif

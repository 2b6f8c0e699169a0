/* Hardware control, the part that calls the driver: brings the GPUs of a tenant to a target. Runs
 * on the control thread, because a call may take milliseconds; must not touch the session or the
 * daemon. */
#include "daemon/hw/hw_control_int.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fd.h"

#define SLICE_MIN_US 1u
#define SLICE_PORTABLE_MAX_US 100000u /* every device accepts it; some accept more */

static int set_slice(struct daemon_hw_gpu *g, uint32_t slice_us)
{
	int err;

	if (g->slice_us == slice_us || !daemon_hw_gpu_can(g, GPU_CONTROL_SLICE_SET)) {
		return 0;
	}
	err = gpu_control(&g->h, g->fd, GPU_CONTROL_SLICE_SET, slice_us, NULL);
	if (err == -EINVAL && slice_us > SLICE_PORTABLE_MAX_US) {
		err = gpu_control(&g->h, g->fd, GPU_CONTROL_SLICE_SET, SLICE_PORTABLE_MAX_US, NULL);
	}
	g->slice_us = err ? DAEMON_HW_SLICE_UNKNOWN : slice_us;
	return err;
}

static int set_off(struct daemon_hw_gpu *g, bool off)
{
	int err;

	if (g->off == off || !daemon_hw_gpu_can(g, GPU_CONTROL_SCHEDULE)) {
		return 0;
	}
	err = gpu_control(&g->h, g->fd, GPU_CONTROL_SCHEDULE, !off, NULL);
	/* A failed switch-on, which may have failed half-way, counts as off: it is tried again. */
	g->off = err && !off ? true : off;
	return err;
}

static int evict(struct daemon_hw_gpu *g, bool now)
{
	int err = 0;

	if (now && !g->evicted && daemon_hw_gpu_can(g, GPU_CONTROL_PREEMPT)) {
		err = gpu_control(&g->h, g->fd, GPU_CONTROL_PREEMPT, 1, NULL);
	}
	g->evicted = now;
	return err == -ETIMEDOUT ? 0 : err; /* the device completes it later */
}

/* Applies all three even if one fails; returns the first error. */
static int apply_to(struct daemon_hw_gpu *g, const struct daemon_hw_target *t)
{
	uint32_t level = t->gpus & 1u << g->gpu ? t->level : GBPF_LEVEL_NONE;
	int err = set_off(g, level == GBPF_LEVEL_OFF), e;

	e = set_slice(g, level == GBPF_LEVEL_SLICE ? SLICE_MIN_US : t->slice_us);
	err = err ? err : e;
	e = evict(g, level == GBPF_LEVEL_SLICE);
	return err ? err : e;
}

void daemon_hw_gpu_close(struct daemon_hw_gpu *g)
{
	if (g->used) {
		fd_close_foreign(g->fd);
		memset(g, 0, sizeof(*g));
	}
}

void daemon_hw_apply(struct daemon_job *j)
{
	struct daemon_hw *hw = (struct daemon_hw *)j;

	hw->err = 0;
	for (unsigned i = 0; i < PROTO_MAX_GPUS && !load_relaxed(&hw->exited); i++) {
		struct daemon_hw_gpu *g = &hw->gpu[i];
		int err = g->used ? apply_to(g, &hw->done) : 0;

		if (err == -ENODEV) { /* the process has destroyed its context */
			daemon_hw_gpu_close(g);
		} else if (err) {
			hw->err = err;
		}
	}
}

void daemon_hw_apply_last(struct daemon_job *j)
{
	struct daemon_hw *hw = (struct daemon_hw *)j;

	daemon_hw_apply(j);
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		daemon_hw_gpu_close(&hw->gpu[i]);
		daemon_hw_gpu_close(&hw->received[i]);
	}
}

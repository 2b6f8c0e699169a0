/* Controls of NVIDIA's stock driver. Structures: ctrla06c.h, ctrla06fgpfifo.h, ctrl2080fifo.h,
 * ctrl2080gr.h of the open kernel modules. Controls skip groups that no longer exist. */
#include <errno.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/control_int.h"
#include "gpu/rm.h"

#define GROUP_SCHEDULE 0xa06c0101u
#define GROUP_PREEMPT 0xa06c0105u
#define GROUP_INTERLEAVE_SET 0xa06c0107u
#define GROUP_INTERLEAVE_GET 0xa06c0108u
#define SUBDEVICE_DISABLE_CHANNELS 0x2080110bu
#define SUBDEVICE_PREEMPTION_MODE 0x20801210u
#define SUBDEVICE_SWITCHES 0x20801215u

#define PREEMPT_US 10000u /* for all groups together */
#define MAX_SLICE_US 10000000u
#define DISABLE_MAX 64u

struct preempt {
	uint8_t wait, own_timeout, pad[2];
	uint32_t timeout_us;
};

struct schedule {
	uint8_t enable, skip_submit, skip_enable;
};

struct disable {
	uint8_t disable, pad[3];
	uint32_t n;
	uint8_t only_scheduling, rewind, pad2[6];
	uint64_t event;
	uint32_t client[DISABLE_MAX], channel[DISABLE_MAX];
};
_Static_assert(sizeof(struct disable) == 24 + 8 * DISABLE_MAX, "ctrl2080fifo.h");
_Static_assert(DISABLE_MAX >= GPU_MAX_CHANNELS, "all channels in one call");

struct mode {
	uint32_t flags, group, graphics, compute;
	uint64_t route[2];
};
#define MODE_COMPUTE 1u
#define LEVEL_MEDIUM 1u

struct switches {
	uint32_t group, flags, saves, restores, idle, block, instruction, graphics;
};

typedef int group_fn(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value,
		     uint64_t *ret);

/* Returns the first error other than -ENODEV; -ENODEV only if all groups have ended. */
static int each_group(const struct gpu_handles *h, int fd, group_fn *f, uint64_t value,
		      uint64_t *ret)
{
	uint32_t gone = 0;
	int worst = 0;

	for (uint32_t i = 0; i < h->n_groups; i++) {
		int err = f(h, fd, i, value, ret);

		if (err == -ENODEV) {
			gone++;
		} else if (err && !worst) {
			worst = err;
		}
	}
	return worst ? worst : gone == h->n_groups ? -ENODEV : 0;
}

/* For controls that only compute groups have: returns 0 if one group accepts it, else the first
 * group's error. */
static int any_group(const struct gpu_handles *h, int fd, group_fn *f, uint64_t value,
		     uint64_t *ret)
{
	int first = -ENODEV;
	bool any = false;

	for (uint32_t i = 0; i < h->n_groups; i++) {
		int err = f(h, fd, i, value, ret);

		any = any || !err;
		first = i == 0 ? err : first;
	}
	return any ? 0 : first;
}

static int slice_set(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value, uint64_t *ret)
{
	uint64_t us = value ? MIN(value, MAX_SLICE_US) : h->slice_us[i];

	(void)ret;
	if (!us) {
		return -ENOTSUP; /* its slice before ours is unknown */
	}
	return gpu_rm_control(fd, h->client, h->group[i], GPU_RM_GROUP_SLICE_SET, &us, sizeof(us));
}

/* Groups have their own slices; the longest is that of the compute work. */
static int slice_get(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value, uint64_t *ret)
{
	uint64_t us = 0;
	int err =
		gpu_rm_control(fd, h->client, h->group[i], GPU_RM_GROUP_SLICE_GET, &us, sizeof(us));

	(void)value;
	if (!err) {
		*ret = MAX(*ret, us);
	}
	return err;
}

/* *ret: deadline for all groups. */
static int preempt(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value, uint64_t *ret)
{
	uint64_t now = value ? clock_now_ns() : 0;
	struct preempt p = { .wait = value != 0, .own_timeout = value != 0 };

	if (value && now >= *ret) {
		return -ETIMEDOUT;
	}
	p.timeout_us = value ? (uint32_t)((*ret - now) / 1000) + 1 : 0;
	return gpu_rm_control(fd, h->client, h->group[i], GROUP_PREEMPT, &p, sizeof(p));
}

static int interleave_set(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value,
			  uint64_t *ret)
{
	uint32_t level = (uint32_t)value;

	(void)ret;
	return gpu_rm_control(fd, h->client, h->group[i], GROUP_INTERLEAVE_SET, &level,
			      sizeof(level));
}

static int mode_set(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value, uint64_t *ret)
{
	struct mode m = { .flags = MODE_COMPUTE, .group = h->group[i], .compute = (uint32_t)value };

	(void)ret;
	return gpu_rm_control(fd, h->client, h->subdevice, SUBDEVICE_PREEMPTION_MODE, &m,
			      sizeof(m));
}

static int group_schedule(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value,
			  uint64_t *ret)
{
	struct schedule s = { .enable = value != 0 };

	(void)ret;
	return gpu_rm_control(fd, h->client, h->group[i], GROUP_SCHEDULE, &s, sizeof(s));
}

static int channels(const struct gpu_handles *h, int fd, bool on)
{
	struct disable d = { .disable = !on, .n = h->n_channels };

	for (uint32_t i = 0; i < h->n_channels; i++) {
		d.client[i] = h->client;
		d.channel[i] = h->channel[i];
	}
	return gpu_rm_control(fd, h->client, h->subdevice, SUBDEVICE_DISABLE_CHANNELS, &d,
			      sizeof(d));
}

/* Disables all channels in one call, the proven way. By groups if that fails (a channel has ended
 * meanwhile) or if there are more channels than are known. */
static int schedule(const struct gpu_handles *h, int fd, bool on)
{
	uint64_t nowhere = 0;
	int err = -ENOTSUP;

	if (h->n_channels && !(h->more & GPU_MORE_CHANNELS)) {
		err = channels(h, fd, on);
	}
	return err ? each_group(h, fd, group_schedule, on, &nowhere) : 0;
}

static int add_switches(const struct gpu_handles *h, int fd, uint32_t i, struct gpu_switches *sum)
{
	struct switches s = { .group = h->group[i] };
	int err = gpu_rm_control(fd, h->client, h->subdevice, SUBDEVICE_SWITCHES, &s, sizeof(s));

	if (!err) {
		sum->saves += s.saves;
		sum->restores += s.restores;
		sum->idle += s.idle;
		sum->block += s.block;
		sum->instruction += s.instruction;
	}
	return err;
}

/* Groups that never computed have no counters. */
int gpu_control_nvidia_switches(const struct gpu_handles *h, int fd, struct gpu_switches *ret)
{
	int err, first = -ENODEV;
	bool any = false;

	for (uint32_t i = 0; i < h->n_groups; i++) {
		err = add_switches(h, fd, i, ret);
		any = any || !err;
		first = i == 0 ? err : first;
	}
	return any ? 0 : first;
}

int gpu_control_nvidia(const struct gpu_handles *h, int fd, enum gpu_control what, uint64_t value,
		       uint64_t *ret)
{
	struct gpu_switches s = { 0 };
	uint64_t end;
	int err;

	*ret = 0;
	switch (what) {
	case GPU_CONTROL_SLICE_SET:
		return each_group(h, fd, slice_set, value, ret);
	case GPU_CONTROL_SLICE_GET:
		return each_group(h, fd, slice_get, 0, ret);
	case GPU_CONTROL_PREEMPT:
		end = clock_now_ns() + PREEMPT_US * UINT64_C(1000);
		return each_group(h, fd, preempt, value, &end);
	case GPU_CONTROL_SCHEDULE:
		return schedule(h, fd, value != 0);
	case GPU_CONTROL_PREEMPTION_MODE:
		return value > 2 ? -EINVAL : any_group(h, fd, mode_set, value, ret);
	case GPU_CONTROL_INTERLEAVE:
		return value > 2 ? -EINVAL : each_group(h, fd, interleave_set, value, ret);
	case GPU_CONTROL_COUNTERS:
		err = gpu_control_nvidia_switches(h, fd, &s);
		*ret = s.saves;
		return err;
	default:
		return -ENOTSUP;
	}
}

/* ---- self-test: calls without effect ---- */

/* Sets the slice that the group has. */
static int same_slice(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value,
		      uint64_t *ret)
{
	uint64_t us = 0;
	int err =
		gpu_rm_control(fd, h->client, h->group[i], GPU_RM_GROUP_SLICE_GET, &us, sizeof(us));

	(void)value, (void)ret;
	return err ? err
		   : gpu_rm_control(fd, h->client, h->group[i], GPU_RM_GROUP_SLICE_SET, &us,
				    sizeof(us));
}

/* Driver 580 does not report the level; then sets the one that a group begins with. */
static int same_interleave(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value,
			   uint64_t *ret)
{
	uint32_t level = 0;
	int err = gpu_rm_control(fd, h->client, h->group[i], GROUP_INTERLEAVE_GET, &level,
				 sizeof(level));

	(void)value, (void)ret;
	if (err && err != -ENOTSUP) {
		return err;
	}
	level = err ? LEVEL_MEDIUM : level;
	return gpu_rm_control(fd, h->client, h->group[i], GROUP_INTERLEAVE_SET, &level,
			      sizeof(level));
}

/* Sets neither mode: -EIO means that the call exists and refused only its argument. */
static int no_mode(const struct gpu_handles *h, int fd, uint32_t i, uint64_t value, uint64_t *ret)
{
	struct mode m = { .group = h->group[i] };
	int err = gpu_rm_control(fd, h->client, h->subdevice, SUBDEVICE_PREEMPTION_MODE, &m,
				 sizeof(m));

	(void)value, (void)ret;
	return err == -EIO ? 0 : err;
}

void gpu_control_nvidia_test(struct gpu_handles *h, int fd)
{
	uint64_t n = 0;
	struct gpu_switches s = { 0 };
	const struct {
		enum gpu_control what;
		int err;
	} tried[] = {
		{ GPU_CONTROL_SLICE_GET, each_group(h, fd, slice_get, 0, &n) },
		{ GPU_CONTROL_SLICE_SET, each_group(h, fd, same_slice, 0, &n) },
		{ GPU_CONTROL_PREEMPT, each_group(h, fd, preempt, 0, &n) },
		{ GPU_CONTROL_SCHEDULE, schedule(h, fd, true) },
		{ GPU_CONTROL_PREEMPTION_MODE, any_group(h, fd, no_mode, 0, &n) },
		{ GPU_CONTROL_INTERLEAVE, each_group(h, fd, same_interleave, 0, &n) },
		{ GPU_CONTROL_COUNTERS, gpu_control_nvidia_switches(h, fd, &s) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(tried); i++) {
		if (!tried[i].err) {
			h->capable |= 1u << tried[i].what;
		}
	}
}

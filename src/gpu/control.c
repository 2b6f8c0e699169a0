/* Chooses the back end of a control, and checks handles that another process sent. */
#include "gpu/control.h"

#include <errno.h>

#include "base/compiler.h"
#include "gpu/control_int.h"
#include "gpu/flag_int.h"
#include "gpu/learn.h"

const char *gpu_control_name(enum gpu_control c)
{
	static const char *const names[GPU_CONTROLS] = {
		[GPU_CONTROL_SLICE_SET] = "time slice",
		[GPU_CONTROL_SLICE_GET] = "time slice read",
		[GPU_CONTROL_PREEMPT] = "preempt",
		[GPU_CONTROL_SCHEDULE] = "schedule off and on",
		[GPU_CONTROL_PREEMPTION_MODE] = "preemption mode",
		[GPU_CONTROL_INTERLEAVE] = "interleave",
		[GPU_CONTROL_COUNTERS] = "switch counters",
		[GPU_CONTROL_FLAG] = "flag page",
		[GPU_CONTROL_GREEN] = "green context",
	};

	return (unsigned)c < GPU_CONTROLS ? names[c] : "unknown";
}

int gpu_handles_check(const struct gpu_handles *h)
{
	return (h->kind == GPU_KIND_NVIDIA || h->kind == GPU_KIND_SOFT) &&
			       h->n_groups <= GPU_MAX_GROUPS && h->n_channels <= GPU_MAX_CHANNELS &&
			       h->capable < 1u << GPU_CONTROLS && h->more < 4
		       ? 0
		       : -EPROTO;
}

int gpu_control(const struct gpu_handles *h, int fd, enum gpu_control what, uint64_t value,
		uint64_t *ret)
{
	uint64_t nowhere = 0;

	if (gpu_handles_check(h) < 0 || fd < 0 || (unsigned)what >= GPU_CONTROL_FLAG) {
		return -ENOTSUP;
	}
	ret = ret ? ret : &nowhere;
	return h->kind == GPU_KIND_SOFT ? gpu_control_soft(fd, what, value, ret)
					: gpu_control_nvidia(h, fd, what, value, ret);
}

int gpu_control_switches(const struct gpu_handles *h, int fd, struct gpu_switches *ret)
{
	*ret = (struct gpu_switches){ 0 };
	if (gpu_handles_check(h) < 0 || fd < 0) {
		return -ENOTSUP;
	}
	return h->kind == GPU_KIND_SOFT ? gpu_control_soft_switches(fd, ret)
					: gpu_control_nvidia_switches(h, fd, ret);
}

int gpu_learn(const struct cuabi_table *real, uint32_t gpu, CUcontext ctx, struct gpu_handles *ret,
	      int *ret_fd)
{
	const struct cuabi_soft_table *soft = gpu_soft_table(real);

	*ret = (struct gpu_handles){ 0 };
	*ret_fd = -1;
	if (soft) {
		return gpu_control_soft_learn(soft, ctx, ret, ret_fd);
	}
	return gpu_learn_installed() ? gpu_control_nvidia_learn(real, gpu, ret, ret_fd) : -ENOTSUP;
}

void gpu_self_test(struct gpu_handles *h, int fd)
{
	h->capable &= 1u << GPU_CONTROL_FLAG | 1u << GPU_CONTROL_GREEN;
	if (h->kind == GPU_KIND_SOFT) {
		gpu_control_soft_test(h, fd);
	} else if (h->kind == GPU_KIND_NVIDIA) {
		gpu_control_nvidia_test(h, fd);
	}
}

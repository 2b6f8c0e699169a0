/* Requests of a condition in addition to CUDA: sets time slices of the client's own contexts, and
 * announces requests. Only these conditions use it. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "bench/client/load_client.h"
#include "cuabi/lookup.h"
#include "gbpf/gbpf.h"
#include "gpu/control.h"

#define SETTLE_NS 20000000u /* CUDA sets slices, too, shortly after it has created a context */

void bench_client_learn(struct bench_client *c, void *lib)
{
	if (c->slice_us) {
		gpu_learn_install(lib); /* not available: the soft GPU, or reported below */
	}
}

void bench_client_slice(struct bench_client *c, void *lib)
{
	static struct cuabi_table real;
	struct gpu_handles h;
	int fd = -1, err;

	if (!c->slice_us) {
		return;
	}
	clock_sleep_ns(SETTLE_NS);
	gpu_control_soft_library(c->libcuda);
	cuabi_table_load(&real, lib);
	err = gpu_learn(&real, 0, c->ctx, &h, &fd);
	if (!err) {
		gpu_self_test(&h, fd);
		err = h.capable & (1u << GPU_CONTROL_SLICE_SET)
			      ? gpu_control(&h, fd, GPU_CONTROL_SLICE_SET, c->slice_us, NULL)
			      : -ENOTSUP;
	}
	if (err) {
		c->page->unavailable = 1;
		bench_client_fail("cannot set the device's time slices: %s", strerror(-err));
	}
}

void bench_client_announce(struct bench_client *c)
{
	int err = c->hint_us ? gbpf_hint(c->hint_us, 0, 0) : 0;

	if (err == -ENOENT || err == -EPERM) {
		c->page->unavailable = 1;
		bench_client_fail("cannot announce requests: %s", strerror(-err));
	}
}

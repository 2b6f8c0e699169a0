/* A device on the test's clock, whose clock kernel stores the GPU's time, and a page of leases. */
#ifndef GBPF_TESTS_GPU_CLOCK_RIG_H
#define GBPF_TESTS_GPU_CLOCK_RIG_H

#include "script.h"

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shm.h"
#include "gpu/flag.h"
#include "gpu/gpu_int.h"
#include "policy/read.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define NEVER UINT64_MAX

static struct gpu_device *d;
static int fd;
static uint32_t *word;
static uint64_t now_ns, tick;
static int64_t gpu_ahead; /* the GPU's clock minus ours */
static unsigned runs;	  /* clock kernels that have run */
static bool stuck;	  /* kernels do not run */

static unsigned sleeps; /* of the code under test, whose waits these are */
static long slept_ns;

int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	sleeps++;
	slept_ns = t->tv_nsec;
	return 0;
}

static inline uint64_t test_clock(void)
{
	return now_ns += tick;
}

/* The clock kernel stores the GPU's time. */
static inline void run_kernel(const struct script_launch *l)
{
	if (l->f == SCRIPT_CLOCK && !stuck) {
		*(volatile uint64_t *)(uintptr_t)l->param[0] = now_ns + 300 + (uint64_t)gpu_ahead;
		runs++;
	}
}

static inline int set_up(void **state)
{
	policy_read_setup();
	script_init();
	script_on_launch = run_kernel;
	now_ns = 1000 * S;
	tick = 1000;
	gpu_ahead = 5 * (int64_t)S;
	runs = sleeps = 0;
	stuck = false;
	clock_set_source(test_clock);
	fd = shm_create("page", GPU_FLAG_BYTES, SHM_NOEXEC);
	word = shm_map(fd, GPU_FLAG_BYTES, 1);
	return gpu_device_create(&d, &script);
}

static inline int tear_down(void **state)
{
	gpu_device_destroy(d);
	clock_set_source(NULL);
	shm_unmap(word, GPU_FLAG_BYTES);
	close(fd);
	script_finish();
	return 0;
}

#endif

/* A resumable run on a driver that does what the test says: the test plays the device by writing
 * the run's words, and moves the clock. */
#ifndef GBPF_TESTS_GPU_RUN_RIG_H
#define GBPF_TESTS_GPU_RUN_RIG_H

#include "script.h"

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "gpu/cuda/gpu_run_int.h"
#include "gpu/flag.h"
#include "gpu/gpu_int.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define NEVER UINT64_MAX
#define FIRST 0xffffe000u /* first ticket of a new line */
#define PREPARED                                                                                   \
	"stream 1 host 32768 memory 98304 set 16384:1 set 8192:1 stream 2 load gbpf_take "         \
	"gbpf_close launch 4002 1:2 launch 4003 1:2"

#define OWN_LAUNCHES 2u /* of kernels of our own, by PREPARED */

static struct gpu_device *d;
static struct gpu_queue q;
static uint64_t now_ns, tick;
static uint32_t leases[64];

/* The flag page that runs read. */
CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return (uintptr_t)leases;
}

static void (*rig_on_clock)(void); /* called whenever the clock is read */

static uint64_t rig_clock(void)
{
	if (rig_on_clock) {
		rig_on_clock();
	}
	return now_ns += tick;
}

static inline int rig_set_up(void **state)
{
	script_init();
	script_current = SCRIPT_CONTEXT(1);
	rig_on_clock = NULL;
	now_ns = 1000 * S;
	tick = 0;
	clock_set_source(rig_clock);
	q = (struct gpu_queue){ .stream = SCRIPT_STREAM(20), .ctx = SCRIPT_CONTEXT(1) };
	return gpu_device_create(&d, &script);
}

static inline int rig_tear_down(void **state)
{
	gpu_run_close(d, &q);
	gpu_device_destroy(d);
	clock_set_source(NULL);
	script_current = NULL;
	script_finish();
	return 0;
}

static inline struct gpu_block_launch rig_launch(uint32_t blocks, uint32_t piece)
{
	static const uint64_t value = 4711;

	return (struct gpu_block_launch){ .clone = SCRIPT_CLONE(1),
					  .id = 1,
					  .resident = 16,
					  .grid = { blocks, 1, 1 },
					  .block = { 64, 2, 1 },
					  .smem = 32,
					  .piece_blocks = piece,
					  .params = &value,
					  .params_bytes = sizeof(value) };
}

/* Launches blocks in pieces of the given size; 0: chosen by the run. */
static inline CUresult launch(uint32_t blocks, uint32_t piece)
{
	struct gpu_block_launch l = rig_launch(blocks, piece);

	return gpu_run_launch(d, &q, &l);
}

static inline const struct script_launch *last_launch(void)
{
	return &script_launches[(script_n_launches - 1) % SCRIPT_LAUNCHES];
}

static inline enum gpu_run_state run_state(void)
{
	return (enum gpu_run_state)q.run->seen.state;
}

/* The block that draws the last ticket of a piece stores its number. */
static inline void device_stores(uint32_t number)
{
	__atomic_store_n(q.run->line.words, number, __ATOMIC_RELEASE);
}

static inline uint32_t *device_counter(void)
{
	return (uint32_t *)(uintptr_t)q.run->line.counter;
}

static inline uint64_t step(bool may_run, bool force)
{
	return gpu_run_step(d, &q, may_run, force);
}

/* The blocks that have not begun leave, after so many tickets in all; the host reads the counter:
 * two steps, of which the second one finds it and, with may_run, resumes. */
static inline void interrupted_at(uint32_t tickets, bool may_run)
{
	*device_counter() = FIRST + tickets;
	script_query[20] = CUDA_SUCCESS;
	script_query[1] = CUDA_ERROR_NOT_READY;
	now_ns += 8 * US;
	(void)step(may_run, false);
	script_copy();
	script_query[1] = CUDA_SUCCESS;
	(void)step(may_run, false);
}

#endif

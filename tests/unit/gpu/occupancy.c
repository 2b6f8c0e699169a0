/* See occupancy.h. All blocks of one kernel are alike and all slots are free when it begins, so a
 * wave is one event. */
#include "occupancy.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/flag.h"
#include "ptx/block.h"

#define OPS 512u
#define SLABS 8u
#define START_NS 4000u	/* from a call to the begin on the device */
#define LAUNCH_NS 2500u /* duration of a launch call */
#define QUERY_NS 800u
#define DROP_PS 300u /* duration of a block that leaves */

struct event {
	struct event *next; /* of all events, which end with the testbed */
	uint64_t put, reached;
};

struct op {
	struct event *event; /* NULL: a kernel */
	uint64_t nth;
	struct ptx_block_arg arg;
	uint32_t to_begin;
	uint64_t put_ns, next_ns; /* submission; next wave, or the end */
	uint64_t block_ns, slow;
	bool begun;
};

struct waves waves;
struct cuabi_table occupancy_table;
static struct op ops[OPS];
static uint32_t head, tail;
static void *memory[SLABS];
static unsigned n_memory;
static CUcontext current;
static uint64_t rng;

/* The page that runs read. */
CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return (uintptr_t)waves.lease;
}

/* ---- the device ---- */

static bool leased(const struct op *o)
{
	return o->arg.groups && load_relaxed(&waves.lease[0]);
}

/* Advances by one wave, or by the rest of the kernel. */
static void wave(struct op *o)
{
	uint32_t *tickets = (uint32_t *)(uintptr_t)o->arg.tickets;
	uint32_t *ready = tickets + PTX_BLOCK_READY / sizeof(*tickets);
	uint32_t n = MIN(o->to_begin, waves.resident);

	if (leased(o) || (int32_t)(*ready - o->arg.first) < 0) {
		o->next_ns += (uint64_t)o->to_begin * DROP_PS / 1000;
		o->to_begin = 0;
		return;
	}
	*tickets += n;
	o->to_begin -= n;
	waves.blocks += n;
	waves.busy_ns += o->block_ns;
	assert_true(*tickets - o->arg.first <= o->arg.total);
	if (*tickets - o->arg.first == o->arg.total) {
		assert_int_equal(o->to_begin, 0);
		*ready = *tickets;
		store_release((uint32_t *)(uintptr_t)o->arg.done, o->arg.number);
	}
	o->next_ns += o->block_ns;
}

static void begin(struct op *o)
{
	uint64_t ready = waves.free_ns + waves.gap_ns, there = o->put_ns + START_NS;

	o->begun = true;
	rng = rng * 6364136223846793005u + 1442695040888963407u;
	o->block_ns =
		o->slow * waves.block_ns + (rng >> 33) % (waves.uneven + 1) * waves.block_ns / 1000;
	o->next_ns = MAX(ready, there);
	waves.dry_ns += there > ready && !waves.lease[0] ? there - ready : 0;
}

static void run(uint64_t until)
{
	while (tail != head) {
		struct op *o = &ops[tail % OPS];

		if (o->event) {
			o->event->reached = MAX(o->event->reached, o->nth);
			tail++;
			continue;
		}
		if (!o->begun) {
			begin(o);
		}
		if (o->next_ns > until) {
			return;
		}
		if (o->to_begin) {
			wave(o);
		} else {
			waves.free_ns = o->next_ns;
			tail++;
		}
	}
}

void occupancy_until(uint64_t ns)
{
	waves.now_ns = MAX(waves.now_ns, ns);
	run(waves.now_ns);
}

uint64_t occupancy_clock(void)
{
	occupancy_until(waves.now_ns + 50);
	return waves.now_ns;
}

bool occupancy_idle(void)
{
	return head == tail;
}

void occupancy_lease(bool on)
{
	run(waves.now_ns);
	if (!on && head == tail) { /* idle time until now belongs to the request */
		waves.free_ns = waves.now_ns;
	}
	store_relaxed(&waves.lease[0], on ? 1u : 0u);
}

/* ---- calls ---- */

static void takes(uint64_t ns)
{
	waves.called_ns += ns;
	occupancy_until(waves.now_ns + ns);
}

static CUresult get_device(CUdevice *ret)
{
	*ret = 0;
	return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext ctx)
{
	current = ctx;
	return CUDA_SUCCESS;
}

static CUresult pop_current(CUcontext *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	return CUDA_SUCCESS;
}

static CUresult priorities(int *least, int *greatest)
{
	*least = *greatest = 0;
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *ret, unsigned flags, int priority)
{
	*ret = (CUstream)(uintptr_t)0x4000;
	return CUDA_SUCCESS;
}

static CUresult host_alloc(void **ret, size_t bytes, unsigned flags)
{
	assert_true(n_memory < SLABS);
	*ret = memory[n_memory++] = calloc(1, bytes);
	return CUDA_SUCCESS;
}

static CUresult device_pointer(CUdeviceptr *ret, void *p, unsigned flags)
{
	*ret = (uintptr_t)p;
	return CUDA_SUCCESS;
}

static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
	void *p;

	(void)host_alloc(&p, bytes, 0);
	*ret = (uintptr_t)p;
	return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream s, CUstreamCaptureStatus *ret)
{
	*ret = CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static void put(struct op o)
{
	assert_true(head - tail < OPS);
	o.put_ns = waves.now_ns;
	ops[head++ % OPS] = o;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		       unsigned by, unsigned bz, unsigned smem, CUstream stream, void **params,
		       void **extra)
{
	struct op o = { .to_begin = gx, .slow = f == OCCUPANCY_SLOW ? 3 : 1 };

	assert_true(f == OCCUPANCY_CLONE || f == OCCUPANCY_SLOW);
	memcpy(&o.arg, extra[1], sizeof(o.arg));
	waves.launches++;
	takes(LAUNCH_NS);
	put(o);
	return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
	waves.queries++;
	takes(QUERY_NS);
	return stream == WAVES_STREAM && head != tail ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult synchronize(CUstream stream)
{
	while (head != tail) {
		occupancy_until(waves.now_ns + 1000);
	}
	return CUDA_SUCCESS;
}

static CUresult copy(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	takes(LAUNCH_NS);
	memcpy(to, (const void *)(uintptr_t)from, bytes);
	return CUDA_SUCCESS;
}

static CUresult set(CUdeviceptr to, unsigned value, size_t n, CUstream stream)
{
	for (size_t i = 0; i < n; i++) {
		((uint32_t *)(uintptr_t)to)[i] = value;
	}
	return CUDA_SUCCESS;
}

static struct event *events;

static CUresult event_create(CUevent *ret, unsigned flags)
{
	struct event *v = calloc(1, sizeof(*v));

	assert_non_null(v);
	v->next = events;
	events = v;
	*ret = (CUevent)v;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent e)
{
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent e, CUstream stream)
{
	struct event *v = (struct event *)e;

	takes(LAUNCH_NS / 2);
	put((struct op){ .event = v, .nth = ++v->put });
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent e)
{
	const struct event *v = (struct event *)e;

	takes(QUERY_NS);
	return v->reached >= v->put ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult elapsed(float *ms, CUevent a, CUevent b)
{
	return CUDA_ERROR_NOT_READY;
}

static CUresult module_load(CUmodule *ret, const void *image)
{
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult module_function(CUfunction *ret, CUmodule module, const char *name)
{
	return CUDA_ERROR_NOT_FOUND;
}

void occupancy_init(uint32_t resident, uint64_t block_ns)
{
	occupancy_table = (struct cuabi_table){
		.cuCtxGetCurrent = get_current,
		.cuCtxGetDevice = get_device,
		.cuCtxPushCurrent_v2 = push_current,
		.cuCtxPopCurrent_v2 = pop_current,
		.cuThreadExchangeStreamCaptureMode = exchange_mode,
		.cuCtxGetStreamPriorityRange = priorities,
		.cuStreamCreateWithPriority = stream_create,
		.cuMemHostAlloc = host_alloc,
		.cuMemHostGetDevicePointer_v2 = device_pointer,
		.cuMemAlloc_v2 = mem_alloc,
		.cuMemsetD32Async = set,
		.cuStreamIsCapturing = is_capturing,
		.cuLaunchKernel = launch,
		.cuModuleLoadData = module_load,
		.cuModuleGetFunction = module_function,
		.cuStreamQuery = query,
		.cuStreamSynchronize = synchronize,
		.cuMemcpyDtoHAsync_v2 = copy,
		.cuEventCreate = event_create,
		.cuEventDestroy_v2 = event_destroy,
		.cuEventRecord = event_record,
		.cuEventQuery = event_query,
		.cuEventElapsedTime = elapsed,
	};
	waves = (struct waves){ .now_ns = 1000000000,
				.free_ns = 1000000000,
				.block_ns = block_ns,
				.resident = resident,
				.gap_ns = 1500 };
	head = tail = 0;
	rng = 7;
	current = WAVES_CTX;
	clock_set_source(occupancy_clock);
}

void occupancy_finish(void)
{
	clock_set_source(NULL);
	while (events) {
		struct event *v = events;

		events = v->next;
		free(v);
	}
	while (n_memory) {
		free(memory[--n_memory]);
	}
}

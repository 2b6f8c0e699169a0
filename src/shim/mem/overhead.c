/* Measures overhead (shim/mem/overhead.h), in one of two ways for each device:
 *
 * by the process's figure: what NVML says that the process has, less what it is charged for. Exact
 * while no other thread allocates or frees; the lower bound otherwise. Used if NVML lists this
 * process, which it does not in many containers: its entry must appear with the first context, or
 * the number belongs to a process of another namespace.
 *
 * by differences: what the device's use has grown by during a call that may take memory, within
 * bounds, since other processes disturb it. Launches are not measured then.
 *
 * A context, module or limit whose overhead exceeds what is left is undone, and the call returns
 * CUDA_ERROR_OUT_OF_MEMORY. Overhead that is found later cannot be undone: it is charged beyond the
 * limit. */
#include "shim/mem/overhead.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"
#include "gpu/own_memory.h"
#include "mem/region.h"
#include "shim/mem/charge.h"
#include "shim/mem/driver_use.h"
#include "shim/mem/graphs.h"
#include "shim/mem/libraries.h"
#include "shim/mem/overhead_event.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

#define STACK_BYTES (8u << 20) /* the program's thread-local variables are on it, too */
#define LISTED_ROUNDS 10       /* of 10 ms: until NVML has forgotten a program before an exec */
#define FIRST_NS 10000000u     /* after a change: measured again after this, 10 and 100 times it */
#define LAST_NS 1000000000u
#define STOP_ROUNDS 1000		 /* of 100 us */
#define FIGURE_BYTES ((uint64_t)1 << 20) /* NVML's figure is right to that */
#define TRIES 3

/* Upper bounds of a difference. */
#define CONTEXT_MAX ((uint64_t)1 << 30)
#define BUFFER_SLACK ((uint64_t)64 << 20) /* a limit's buffers, beyond their size */
#define THREADS_MAX 512000u		  /* resident on a device, each with a stack */

enum way { UNDECIDED, BY_FIGURE, BY_DIFFERENCE };

static uint32_t ways[PROTO_MAX_GPUS]; /* [atomic] enum way, by ordinal */

static struct lock measuring = LOCK_INITIALIZER(MEM_MEASURING); /* overhead is changed */
static struct lock events = LOCK_INITIALIZER(MEM_EVENTS); /* held during a call that is measured by
							   * its difference */
/* By handle: overhead found by differences. */
static struct mem_regions contexts GUARDED_BY(measuring);
static TLS_FAST bool inside; /* a call that is being measured makes others, as tools do */

/* [atomic] Calls that are being measured: those under way, plus 2^32 for each that is over. */
static uint64_t events_seen;

static struct {
	uint32_t running;  /* [atomic] */
	uint32_t changed;  /* [atomic] the thread sleeps on it */
	uint32_t stopping; /* [atomic] */
	uint32_t shrunk;   /* [atomic] counts what gives memory back */
	uint32_t settled;  /* [atomic] as many of them were followed by a second of measurements */
} watch;

/* ---- measuring ---- */

/* Returns gBPF's own memory. Ticket counters share a block, which is not the program's. */
static uint64_t own_bytes(CUdevice device)
{
	return ROUND_UP(gpu_own_memory(device), (uint64_t)SHIM_MEM_UNIT);
}

/* Stores the overhead on a device by the process's figure: 0 while nothing can be said. *ret_exact:
 * it is no lower bound.
 * Imported memory is not subtracted: drivers differ in whether the figure contains it.
 * Returns false if NVML does not say. */
static bool read_figure(CUdevice device, int row, uint64_t *ret, bool *ret_exact)
{
	uint64_t figure = 0, held = 0;
	bool is_bound = false;

	*ret_exact = false;
	for (int i = 0; i < TRIES && !*ret_exact; i++) {
		bool moving, still_moving;
		uint64_t moves = shim_mem_moves(&moving), late = shim_mem_graphs_late();
		uint64_t own = own_bytes(device), own_after;
		struct shim_mem_mark mark;

		shim_mem_mark(row, &mark);
		figure = shim_mem_use_of_process(device);
		figure = figure == SHIM_MEM_UNLISTED ? 0 : figure;
		own_after = own_bytes(device);
		held = shim_mem_held_since(row, &mark) + MAX(own, own_after);
		/* Memory of nodes may be in the figure before it is charged. */
		is_bound = !(uint32_t)late && shim_mem_graphs_late() == late;
		*ret_exact = is_bound && own == own_after &&
			     shim_mem_moves(&still_moving) == moves && !moving;
	}
	*ret = is_bound && figure > held ? figure - held : 0;
	shim_mem_set_gbpf(row, gpu_own_memory(device));
	return figure != SHIM_MEM_UNKNOWN;
}

bool shim_mem_is_explained(CUdevice device, int row)
{
	uint64_t own = own_bytes(device), figure, known;
	bool moving, still_moving;
	uint64_t moves = shim_mem_moves(&moving), late = shim_mem_graphs_late();

	if (load_acquire(&ways[device]) != BY_FIGURE || (uint32_t)moves != 1 || (uint32_t)late) {
		return false;
	}
	figure = shim_mem_use_of_process(device);
	known = shim_mem_held(row) + shim_mem_overhead(row) + own;
	return figure < SHIM_MEM_UNLISTED && figure <= known + FIGURE_BYTES &&
	       shim_mem_moves(&still_moving) == moves && shim_mem_graphs_late() == late;
}

/* Returns true while the overhead may be lowered: memory was given back in the last second. */
static bool may_shrink(void)
{
	return load_acquire(&watch.shrunk) != load_acquire(&watch.settled);
}

/* Charges the overhead that the process's figure shows. Returns false if it exceeds the limit; with
 * force it is charged in any case, unless a call is under way that may have taken it: it can still
 * be undone, and is followed by a measurement. */
static bool account_figure(CUdevice device, int row, bool force, const char *call)
{
	uint64_t bytes, least, now, seen;
	bool exact, ok = true;

	shim_mem_settle();
	lock_take(&measuring);
	now = shim_mem_overhead(row);
	seen = load_acquire(&events_seen);
	if (!load_acquire(&watch.stopping) && read_figure(device, row, &bytes, &exact)) {
		if (force && ((uint32_t)seen || load_acquire(&events_seen) != seen)) {
			bytes = MIN(bytes, now);
		}
		least = bytes - MIN(bytes, shim_mem_shared(row));
		bytes = now < least ? least : bytes < now && exact && may_shrink() ? bytes : now;
		ok = shim_mem_set_overhead(row, bytes, force, call);
	}
	lock_release(&measuring);
	return ok;
}

static void measure_all(void)
{
	for (CUdevice d = 0; d < (int)PROTO_MAX_GPUS; d++) {
		int row = shim_mem_row(d);

		if (row >= 0 && load_acquire(&ways[d]) == BY_FIGURE) {
			(void)account_figure(d, row, true, "");
		}
	}
}

/* Returns what is taken on a device: of NVML, else of the driver, which needs a context. */
static uint64_t device_use(CUdevice device)
{
	uint64_t bytes = shim_mem_use_of_device(device);
	size_t available, total;
	CUdevice current;

	if (bytes != SHIM_MEM_UNKNOWN) {
		return bytes;
	}
	return shim_driver.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device &&
			       shim_driver.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS
		       ? total - available
		       : SHIM_MEM_UNKNOWN;
}

/* ---- the thread ---- */

static void *run(void *arg)
{
	uint64_t pause = UINT64_MAX;
	uint32_t shrunk = 0;

	(void)arg;
	while (!load_acquire(&watch.stopping)) {
		(void)futex_wait_shared(&watch.changed, 0, pause);
		if (load_acquire(&watch.stopping)) {
			break;
		}
		if (xchg_acqrel(&watch.changed, 0u)) {
			pause = FIRST_NS / 10;
			shrunk = load_acquire(&watch.shrunk);
		} else if (pause == UINT64_MAX) {
			continue; /* a signal, or woken for nothing */
		}
		measure_all();
		clock_sleep_ns(FIRST_NS / 10); /* bounds what programs with many kernels cost */
		pause = pause < LAST_NS ? 10 * pause : UINT64_MAX;
		if (pause == UINT64_MAX) {
			store_release(&watch.settled, shrunk);
		}
	}
	return NULL;
}

static void start_thread(void)
{
	static struct lock once = LOCK_INITIALIZER(MEM_ONCE);

	lock_take(&once);
	if (!load_relaxed(&watch.running) && thread_start_detached(run, NULL, STACK_BYTES) == 0) {
		store_release(&watch.running, 1u);
	}
	lock_release(&once);
}

void shim_mem_overhead_changed(void)
{
	if (load_acquire(&watch.running) && shim_mem_joined() && !load_acquire(&watch.changed) &&
	    !xchg_acqrel(&watch.changed, 1u)) {
		(void)futex_wake_shared(&watch.changed, 1);
	}
}

void shim_mem_overhead_stop(void)
{
	store_release(&watch.stopping, 1u);
	for (int i = 0; i < STOP_ROUNDS; i++) {
		if (lock_try(&measuring)) {
			lock_release(&measuring);
			return;
		}
		clock_sleep_ns(100000);
	}
}

/* ---- calls that take memory ---- */

/* Decides how a device is measured, as far as that is possible before its first context. */
static uint32_t choose_way(CUdevice device)
{
	uint32_t way = load_acquire(&ways[device]);
	uint64_t figure = way == UNDECIDED ? shim_mem_use_of_process(device) : SHIM_MEM_UNLISTED;

	for (int i = 0; i < LISTED_ROUNDS && figure < SHIM_MEM_UNLISTED; i++) {
		clock_sleep_ns(10000000);
		figure = shim_mem_use_of_process(device);
	}
	if (figure != SHIM_MEM_UNLISTED) {
		way = BY_DIFFERENCE;
		store_release(&ways[device], way);
	}
	return way;
}

/* UNCHECKED: e->locked says whether `events` is held until _end(). */
UNCHECKED void shim_mem_event_begin(struct shim_mem_event *e, CUdevice device)
{
	*e = (struct shim_mem_event){ .device = device };
	e->row = inside || load_acquire(&watch.stopping) ? -1 : shim_mem_row(device);
	if (e->row < 0) {
		return;
	}
	inside = true;
	(void)add_acqrel(&events_seen, 1);
	e->locked = load_acquire(&ways[device]) != BY_FIGURE;
	if (e->locked) {
		lock_take(&events);
		e->held = shim_mem_held(e->row);
		e->use = device_use(device);
	}
	e->way = choose_way(device);
}

void shim_mem_event_begin_current(struct shim_mem_event *e)
{
	CUdevice device;

	*e = (struct shim_mem_event){ .row = -1 };
	if (shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
		shim_mem_event_begin(e, device);
	}
}

/* Notes overhead of a context that was found by a difference. ctx: NULL for the current one. */
static void note_difference(int row, CUcontext ctx, uint64_t bytes) REQUIRES(measuring)
{
	struct mem_region *r;
	uint64_t key;

	if (!ctx) {
		(void)shim_driver.cuCtxGetCurrent(&ctx);
	}
	key = (uint64_t)(uintptr_t)ctx;
	r = mem_regions_find(&contexts, key);
	if (r) {
		r->bytes += bytes;
	} else {
		(void)mem_regions_add(&contexts,
				      &(struct mem_region){ .key = key,
							    .bytes = bytes,
							    .row = (uint32_t)row,
							    .count = 1 }); /* else it stays */
	}
}

/* Charges what the device's use has grown by since the event began, beyond what was charged
 * meanwhile, or before it for this call. */
static bool account_difference(const struct shim_mem_event *e, uint64_t most, const char *call)
{
	uint64_t use = device_use(e->device), held = shim_mem_held(e->row), grown;
	bool ok;

	if (use == SHIM_MEM_UNKNOWN || e->use == SHIM_MEM_UNKNOWN || use <= e->use) {
		return true;
	}
	grown = use - e->use;
	grown = held < e->held		 ? grown + (e->held - held)
		: grown > held - e->held ? grown - (held - e->held)
					 : 0;
	grown = MIN(grown > e->known ? grown - e->known : 0, most);
	lock_take(&measuring);
	ok = shim_mem_set_overhead(e->row, shim_mem_overhead(e->row) + grown, false, call);
	if (ok && grown) {
		note_difference(e->row, e->made, grown);
	}
	lock_release(&measuring);
	return ok;
}

/* The first context of a device shows whether NVML lists this process. */
static void decide(struct shim_mem_event *e)
{
	bool is_listed = shim_mem_use_of_process(e->device) < SHIM_MEM_UNLISTED;

	e->way = is_listed ? BY_FIGURE : BY_DIFFERENCE;
	store_release(&ways[e->device], e->way);
	if (e->way == BY_FIGURE) {
		start_thread();
	}
}

/* UNCHECKED: see _begin(). */
UNCHECKED bool shim_mem_event_end(struct shim_mem_event *e, CUresult r, uint64_t most,
				  const char *call)
{
	bool ok = true;

	if (e->row < 0) {
		return true;
	}
	if (r == CUDA_SUCCESS && e->way == UNDECIDED) {
		decide(e);
	}
	if (r == CUDA_SUCCESS) {
		ok = e->way == BY_FIGURE ? account_figure(e->device, e->row, false, call)
					 : account_difference(e, most, call);
	}
	if (e->locked) {
		lock_release(&events);
	}
	return ok;
}

void shim_mem_event_finish(const struct shim_mem_event *e)
{
	if (e->row >= 0) {
		(void)add_acqrel(&events_seen, (UINT64_C(1) << 32) - 1);
		inside = false;
		shim_mem_overhead_changed();
	}
}

void shim_mem_event_shrunk(bool measure)
{
	(void)add_acqrel(&watch.shrunk, 1);
	if (measure) {
		measure_all();
	}
	shim_mem_overhead_changed();
}

CUresult shim_mem_undone(void)
{
	(void)add_acqrel(&watch.shrunk, 1);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void shim_mem_overhead_context_ended(CUcontext ctx)
{
	struct mem_region r;

	if (load_acquire(&watch.stopping)) {
		return;
	}
	lock_take(&measuring);
	if (mem_regions_take(&contexts, (uint64_t)(uintptr_t)ctx, &r)) {
		uint64_t now = shim_mem_overhead((int)r.row);

		(void)shim_mem_set_overhead((int)r.row, now > r.bytes ? now - r.bytes : 0, false,
					    "");
	}
	lock_release(&measuring);
	shim_mem_event_shrunk(true);
}

/* ---- contexts ---- */

static uint32_t n_created; /* [atomic] contexts that were ever created, primary ones excepted */

bool shim_mem_has_one_context(void)
{
	uint32_t n = load_acquire(&n_created);
	CUdevice device;
	unsigned flags;
	int active = 1;

	return n <= 1 && shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	       shim_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
	       n + (active ? 1 : 0) == 1;
}

/* A context that is being made. */
struct making {
	struct shim_mem_event event;
	CUdevice device;
	uint64_t reserved; /* for the libraries that are loaded */
};

/* Returns false if the libraries exceed the limit in a further context. made() follows. */
static bool begin_making(struct making *m, CUdevice device, const char *call)
{
	m->device = device;
	shim_mem_move_begin();
	shim_mem_event_begin(&m->event, device);
	return shim_mem_libraries_reserve(device, call, &m->reserved);
}

/* The driver's result for the context is r. Returns the result for the program; *ret_undo: the
 * caller destroys the context, then calls made(). */
static CUresult charge_making(struct making *m, CUresult r, CUcontext ctx, bool is_primary,
			      const char *call, bool *ret_undo)
{
	CUresult with_libraries =
		shim_mem_libraries_enter(ctx, m->device, is_primary, m->reserved, r);

	shim_mem_move_end();
	m->event.made = r == CUDA_SUCCESS ? ctx : NULL;
	if (r == CUDA_SUCCESS) {
		shim_swap_context_seen(ctx, m->device);
	}
	*ret_undo = !shim_mem_event_end(&m->event, with_libraries, CONTEXT_MAX, call) ||
		    with_libraries != r;
	if (*ret_undo) {
		shim_mem_libraries_context_ended(ctx, shim_mem_epoch());
		shim_swap_context_ended(ctx, 0);
		return shim_mem_undone();
	}
	return r;
}

static CUresult created(struct making *m, CUresult r, CUcontext *ret)
{
	bool undo;

	add_acqrel(&n_created, r == CUDA_SUCCESS ? 1u : 0u);
	r = charge_making(m, r, r == CUDA_SUCCESS ? *ret : NULL, false, "cuCtxCreate", &undo);
	if (undo) {
		(void)shim_driver.cuCtxDestroy_v2(*ret);
	}
	shim_mem_event_finish(&m->event);
	return r;
}

static CUresult create_v1(CUcontext *ret, unsigned flags, CUdevice device)
{
	struct making m;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (begin_making(&m, device, "cuCtxCreate")) {
		r = shim_driver.cuCtxCreate(ret, flags, device);
	}
	return created(&m, r, ret);
}

static CUresult create_v2(CUcontext *ret, unsigned flags, CUdevice device)
{
	struct making m;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (begin_making(&m, device, "cuCtxCreate")) {
		r = shim_driver.cuCtxCreate_v2(ret, flags, device);
	}
	return created(&m, r, ret);
}

static CUresult create_v3(CUcontext *ret, CUexecAffinityParam *affinity, int n, unsigned flags,
			  CUdevice device)
{
	struct making m;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (begin_making(&m, device, "cuCtxCreate")) {
		r = shim_driver.cuCtxCreate_v3(ret, affinity, n, flags, device);
	}
	return created(&m, r, ret);
}

static CUresult create_v4(CUcontext *ret, CUctxCreateParams *p, unsigned flags, CUdevice device)
{
	struct making m;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (begin_making(&m, device, "cuCtxCreate")) {
		r = shim_driver.cuCtxCreate_v4(ret, p, flags, device);
	}
	return created(&m, r, ret);
}

static CUresult retain_primary(CUcontext *ret, CUdevice device)
{
	static const char call[] = "cuDevicePrimaryCtxRetain";
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	struct making m;
	unsigned flags;
	int active = 0;
	bool undo;

	if (shim_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
	    active) {
		return shim_driver.cuDevicePrimaryCtxRetain(ret, device);
	}
	if (begin_making(&m, device, call)) {
		r = shim_driver.cuDevicePrimaryCtxRetain(ret, device);
	}
	r = charge_making(&m, r, r == CUDA_SUCCESS ? *ret : NULL, true, call, &undo);
	if (undo) {
		(void)shim_driver.cuDevicePrimaryCtxRelease_v2(device);
	}
	shim_mem_event_finish(&m.event);
	return r;
}

/* Returns an upper bound of what a limit may take. */
static uint64_t most_of(CUlimit what, size_t value)
{
	uint64_t bytes = value;

	if (what == CU_LIMIT_STACK_SIZE && __builtin_mul_overflow(bytes, THREADS_MAX, &bytes)) {
		return UINT64_MAX;
	}
	return bytes > UINT64_MAX - BUFFER_SLACK ? UINT64_MAX : bytes + BUFFER_SLACK;
}

static CUresult set_limit(CUlimit what, size_t value)
{
	size_t before = 0;
	struct shim_mem_event e;
	CUresult r;

	shim_mem_event_begin_current(&e);
	(void)shim_driver.cuCtxGetLimit(&before, what);
	r = shim_driver.cuCtxSetLimit(what, value);
	if (r == CUDA_SUCCESS && value < before) {
		(void)add_acqrel(&watch.shrunk, 1);
	}
	if (!shim_mem_event_end(&e, r, most_of(what, value), "cuCtxSetLimit")) {
		(void)shim_driver.cuCtxSetLimit(what, before);
		r = shim_mem_undone();
	}
	shim_mem_event_finish(&e);
	return r;
}

void shim_mem_install_overhead(uint8_t (*uuid)[16], uint32_t gpus)
{
	shim_mem_use_init(uuid, gpus);
	shim_real.cuCtxCreate = create_v1;
	shim_real.cuCtxCreate_v2 = create_v2;
	shim_real.cuCtxCreate_v3 = create_v3;
	shim_real.cuCtxCreate_v4 = create_v4;
	shim_real.cuDevicePrimaryCtxRetain = retain_primary;
	shim_real.cuCtxSetLimit = set_limit;
}

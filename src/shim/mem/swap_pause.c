/* Pauses in which memory can move (shim/mem/swap_int.h): no thread is in a call that submits work,
 * and the work that could use it is done, in all contexts of the process. */
#include "base/clock.h"
#include "policy/read.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/packs.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define SPIN_NS UINT64_C(50000) /* of a wait, before it sleeps between queries */
#define SLEEP_NS UINT64_C(20000)
#define QUIET_NS UINT64_C(200000)
#define CONTEXTS_MAX SHIM_SWAP_CONTEXTS_MAX

struct lock shim_swap_mutex = LOCK_INITIALIZER(MEM_SWAP);
struct mem_swap_map shim_swap_map;
uint64_t shim_work_interval = 1, shim_work_opened;
uint64_t shim_work_used[SHIM_WORK_SLOTS];
uint64_t shim_swap_stops;

static struct shim_swap_context contexts[CONTEXTS_MAX] GUARDED_BY(shim_swap_mutex);
static uint64_t uses_at_end[SHIM_SWAP_ENDS] GUARDED_BY(shim_swap_mutex); /* of intervals */
static bool slot_is_taken[SHIM_WORK_SLOTS] GUARDED_BY(shim_swap_mutex);
static uint32_t next_slot GUARDED_BY(shim_swap_mutex) = 1;
/* Contexts that the table has no room for. Beyond these the process's memory stays where it is. */
#define UNKNOWN_MAX 256u
static CUcontext unknown[UNKNOWN_MAX] GUARDED_BY(shim_swap_mutex);
static uint32_t n_unknown GUARDED_BY(shim_swap_mutex);
static uint32_t several_devices; /* [atomic] */

/* ---- contexts ---- */

struct shim_swap_context *shim_swap_context(CUcontext ctx)
{
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].ctx == ctx) {
			return &contexts[i];
		}
	}
	return NULL;
}

/* Makes the events and streams of the context, which is current. The context ends with them. */
static CUresult fill(struct shim_swap_context *c)
{
	CUresult r = shim_driver.cuEventCreate(&c->event, CU_EVENT_DISABLE_TIMING);

	for (unsigned i = 0; i < SHIM_SWAP_BATCH && r == CUDA_SUCCESS; i++) {
		r = shim_driver.cuEventCreate(&c->copied[i], CU_EVENT_DISABLE_TIMING);
	}
	for (unsigned i = 0; i < SHIM_SWAP_ENDS && r == CUDA_SUCCESS; i++) {
		r = shim_driver.cuEventCreate(&c->ends[i], CU_EVENT_DISABLE_TIMING);
	}
	r = r != CUDA_SUCCESS ? r : shim_driver.cuEventCreate(&c->begin, CU_EVENT_DEFAULT);
	r = r != CUDA_SUCCESS ? r : shim_driver.cuEventCreate(&c->end, CU_EVENT_DEFAULT);
	r = r != CUDA_SUCCESS ? r : shim_driver.cuStreamCreate(&c->back, CU_STREAM_NON_BLOCKING);
	return r != CUDA_SUCCESS ? r : shim_driver.cuStreamCreate(&c->out, CU_STREAM_NON_BLOCKING);
}

static uint32_t unknown_at(CUcontext ctx) REQUIRES(shim_swap_mutex)
{
	uint32_t i = 0;

	while (i < MIN(n_unknown, UNKNOWN_MAX) && unknown[i] != ctx) {
		i++;
	}
	return i;
}

static void add_unknown(CUcontext ctx) REQUIRES(shim_swap_mutex)
{
	uint32_t at = unknown_at(ctx);

	if (at == UNKNOWN_MAX) {
		n_unknown = UNKNOWN_MAX + 1;
	} else if (at == n_unknown) {
		unknown[n_unknown++] = ctx;
	}
}

static void note_device(CUdevice device) REQUIRES(shim_swap_mutex)
{
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].ctx && contexts[i].device != device) {
			store_release(&several_devices, 1u);
		}
	}
}

bool shim_swap_has_several_devices(void)
{
	return load_acquire(&several_devices) != 0;
}

CUcontext shim_swap_context_on(CUdevice device)
{
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].ctx && contexts[i].device == device && !contexts[i].ending) {
			return contexts[i].ctx;
		}
	}
	return NULL;
}

void shim_swap_see(CUcontext ctx, CUdevice device, bool made)
{
	struct shim_swap_context *c = shim_swap_context(ctx);
	bool known = c != NULL;
	CUcontext before;

	note_device(device);
	c = known ? c : shim_swap_context(NULL);
	if (!c) {
		add_unknown(ctx);
	} else if (!known || (made && c->ending)) {
		shim_packs_end(ctx);
		*c = (struct shim_swap_context){ .ctx = ctx,
						 .device = device,
						 .epoch = shim_mem_epoch(),
						 .first = load_relaxed(&shim_work_interval) };
		if (shim_driver.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS) {
			if (fill(c) != CUDA_SUCCESS) {
				c->out = NULL;
			}
			(void)shim_driver.cuCtxPopCurrent_v2(&before);
		}
	}
}

void shim_swap_context_seen(CUcontext ctx, CUdevice device)
{
	if (shim_swap_is_on()) {
		lock_take(&shim_swap_mutex);
		shim_swap_see(ctx, device, true);
		lock_release(&shim_swap_mutex);
	}
}

/* Returns true if the device's primary context has not been seen: one that was made by a private
 * call of the driver. */
static bool has_other_primary_on(CUdevice device) REQUIRES(shim_swap_mutex)
{
	CUcontext ctx = NULL;
	unsigned flags;
	int active = 0;
	bool known;

	if (shim_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS) {
		return true;
	}
	if (!active) {
		return false;
	}
	if (shim_driver.cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS) {
		return true;
	}
	known = shim_swap_context(ctx) != NULL;
	(void)shim_driver.cuDevicePrimaryCtxRelease_v2(device);
	return !known;
}

static bool has_other_primary(void) REQUIRES(shim_swap_mutex)
{
	bool has = false;

	for (CUdevice d = 0; shim_mem_row(d) >= 0 && !has; d++) {
		has = has_other_primary_on(d);
	}
	return has;
}

const struct shim_swap_context *shim_swap_context_of(int row)
{
	const struct shim_swap_context *found = NULL;

	for (unsigned i = 0; i < CONTEXTS_MAX && !n_unknown; i++) {
		const struct shim_swap_context *c = &contexts[i];

		if (c->ctx && (c->ending || !c->out)) {
			return NULL;
		}
		if (c->ctx && shim_mem_row(c->device) == row) {
			found = c;
		}
	}
	return found && !has_other_primary() ? found : NULL;
}

struct shim_swap_context *shim_swap_context_number(unsigned i)
{
	return &contexts[i];
}

bool shim_swap_forget(CUcontext ctx, uint64_t epoch)
{
	struct shim_swap_context *c = shim_swap_context(ctx);
	uint32_t at = unknown_at(ctx);
	bool left = false;

	if (at < MIN(n_unknown, UNKNOWN_MAX)) {
		if (n_unknown <= UNKNOWN_MAX) {
			unknown[at] = unknown[--n_unknown];
		}
	} else if (!c) {
		/* It was not seen. */
	} else if (c->epoch <= epoch) { /* its streams and events have ended */
		*c = (struct shim_swap_context){ 0 };
	}
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		left |= contexts[i].ctx != NULL;
	}
	return left;
}

/* ---- work that goes on ---- */

CUresult shim_swap_record(CUcontext ctx, CUevent event)
{
	CUresult r = CUDA_ERROR_NOT_READY;

	if (!shim_capture_trylock()) {
		return r;
	}
	if (!shim_capture_any()) {
		r = shim_work_driver.cuCtxRecordEvent(ctx, event);
	}
	shim_capture_unlock();
	return r;
}

CUresult shim_swap_make_event(CUcontext ctx, CUevent *ret)
{
	CUresult r = shim_driver.cuCtxPushCurrent_v2(ctx);
	CUcontext before;

	*ret = NULL;
	if (r == CUDA_SUCCESS) {
		r = shim_driver.cuEventCreate(ret, CU_EVENT_DISABLE_TIMING);
		(void)shim_driver.cuCtxPopCurrent_v2(&before);
	}
	return r;
}

CUresult shim_swap_record_behind(CUcontext ctx, CUevent *ret)
{
	CUresult r = shim_swap_make_event(ctx, ret);

	if (r != CUDA_SUCCESS) {
		*ret = NULL;
		return r;
	}
	r = shim_swap_record(ctx, *ret);
	if (r != CUDA_SUCCESS) {
		(void)shim_driver.cuEventDestroy_v2(*ret);
		*ret = NULL;
	}
	return r;
}

void shim_swap_delay_query(uint64_t waited_ns)
{
	if (waited_ns >= SPIN_NS) {
		clock_sleep_ns(SLEEP_NS);
	}
}

bool shim_swap_is_quiet(void)
{
	uint64_t begin = clock_now_ns();
	CUresult r = CUDA_SUCCESS;

	for (unsigned i = 0; i < CONTEXTS_MAX && r == CUDA_SUCCESS; i++) {
		r = contexts[i].ctx ? shim_swap_record(contexts[i].ctx, contexts[i].event) : r;
	}
	for (unsigned i = 0; i < CONTEXTS_MAX && r == CUDA_SUCCESS; i++) {
		while (contexts[i].ctx && (r = shim_work_driver.cuEventQuery(contexts[i].event)) ==
						  CUDA_ERROR_NOT_READY) {
			if (clock_now_ns() - begin >= QUIET_NS) {
				return false;
			}
		}
	}
	return r == CUDA_SUCCESS;
}

bool shim_swap_is_idle(CUcontext ctx)
{
	bool is = shim_swap_context(ctx) != NULL;

	for (unsigned i = 0; i < CONTEXTS_MAX && is; i++) {
		const struct shim_swap_context *c = &contexts[i];

		is = !c->ctx ||
		     (!c->ending && c->out && shim_swap_record(c->ctx, c->event) == CUDA_SUCCESS &&
		      shim_work_driver.cuEventQuery(c->event) == CUDA_SUCCESS);
	}
	return is;
}

/* ---- intervals ---- */

uint32_t shim_swap_take_slot(void)
{
	for (uint32_t i = 0; i < SHIM_WORK_SLOTS; i++) {
		uint32_t slot = (next_slot + i) % SHIM_WORK_SLOTS;

		if (slot && !slot_is_taken[slot]) {
			slot_is_taken[slot] = true;
			next_slot = slot + 1;
			shim_work_note(&shim_work_used[slot]);
			return slot;
		}
	}
	return 0;
}

void shim_swap_free_slot(uint32_t slot)
{
	slot_is_taken[slot] = false;
}

uint64_t shim_swap_last_use(const struct mem_swap_region *r)
{
	uint64_t any = load_relaxed(&shim_work_opened);

	return MAX(any, load_relaxed(&shim_work_used[r->slot]));
}

/* Finds the latest interval of which all work of the context is done. */
static void look_at_ends(struct shim_swap_context *c, uint64_t now) REQUIRES(shim_swap_mutex)
{
	uint64_t i = now;

	while (i > c->first && i > c->done + 1 && i + SHIM_SWAP_ENDS > now) {
		i--;
		if (shim_work_driver.cuEventQuery(c->ends[i % SHIM_SWAP_ENDS]) == CUDA_SUCCESS) {
			c->done = i;
			c->uses = uses_at_end[i % SHIM_SWAP_ENDS];
		}
	}
}

uint64_t shim_swap_done(uint64_t *ret_uses)
{
	uint64_t now = load_relaxed(&shim_work_interval), done = now - 1;

	*ret_uses = uses_at_end[done % SHIM_SWAP_ENDS];
	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		struct shim_swap_context *c = &contexts[i];

		if (!c->ctx) {
			continue;
		}
		look_at_ends(c, now);
		if (c->done < done) {
			done = c->done;
			*ret_uses = c->uses;
		}
	}
	return done;
}

/* Ends the interval, in all contexts: their rings have the same places. Returns false if an event
 * cannot be recorded, as during a capture: the interval goes on. */
static bool end_interval(void) REQUIRES(shim_swap_mutex)
{
	uint64_t now = load_relaxed(&shim_work_interval);

	for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
		struct shim_swap_context *c = &contexts[i];

		if (!c->ctx || c->ending || !c->out) {
			continue; /* no memory moves */
		}
		if (shim_swap_record(c->ctx, c->ends[now % SHIM_SWAP_ENDS]) != CUDA_SUCCESS) {
			return false; /* those that were recorded are behind later work only */
		}
	}
	uses_at_end[now % SHIM_SWAP_ENDS] = shim_swap_map.uses;
	store_relaxed(&shim_work_interval, now + 1);
	return true;
}

/* ---- pauses ---- */

static void restore(const struct shim_swap_pause *p)
{
	(void)pthread_sigmask(SIG_SETMASK, &p->signals, NULL);
	(void)pthread_setcancelstate(p->cancel, NULL);
}

void shim_swap_resume(struct shim_swap_pause *p)
{
	policy_work_open();
	restore(p);
}

bool shim_swap_stop(struct shim_swap_pause *p, uint64_t wait_ns)
{
	sigset_t all;

	shim_swap_stops++;
	sigfillset(&all);
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &p->cancel);
	(void)pthread_sigmask(SIG_SETMASK, &all, &p->signals);
	if (!policy_work_close(clock_patience(wait_ns))) {
		restore(p);
		return false;
	}
	if (!end_interval()) {
		shim_swap_resume(p);
		return false;
	}
	return true;
}

/* Delays the next query in a wait. Returns false if its time is over. */
static bool goes_on(uint64_t begin, uint64_t wait_ns)
{
	uint64_t waited = clock_now_ns() - begin;

	shim_swap_delay_query(waited);
	return waited < clock_patience(wait_ns);
}

bool shim_swap_await(const struct shim_swap_context *c, uint64_t interval, uint64_t wait_ns)
{
	uint64_t begin = clock_now_ns(), uses;
	CUresult out, back;

	while (shim_swap_done(&uses) < interval) {
		if (!goes_on(begin, wait_ns)) {
			return false;
		}
	}
	if (shim_work_driver.cuEventRecord(c->copied[0], c->out) != CUDA_SUCCESS ||
	    shim_work_driver.cuEventRecord(c->copied[1], c->back) != CUDA_SUCCESS) {
		return false;
	}
	do {
		out = shim_work_driver.cuEventQuery(c->copied[0]);
		back = shim_work_driver.cuEventQuery(c->copied[1]);
	} while ((out == CUDA_ERROR_NOT_READY || back == CUDA_ERROR_NOT_READY) &&
		 goes_on(begin, wait_ns));
	return out == CUDA_SUCCESS && back == CUDA_SUCCESS;
}

/* The pool of host memory for chunks (shim/mem/swap_pool.h), and its thread. The thread makes and
 * frees one chunk's memory at a time, with the mutex released, so that no thread of the program
 * waits for more than that. It runs while the pool has something or is in use. */
#include "shim/mem/swap_pool.h"

#include <sys/prctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "mem/host_room.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

/* Memory of the host is made at 5 GB/s (H200), a tenth of the rate at which chunks leave. */
#define SPARES_MAX 64u
/* What a program fills at 10 GB/s while the pool is made. Of a small limit a quarter. */
#define NEAR_BYTES (2 * SPARES_MAX * SHIM_SWAP_CHUNK)
#define NEAR_PART 4u
#define LOOK_NS UINT64_C(1000000000) /* from one look at the machine to the next */
#define STACK_BYTES (8u << 20)	     /* the program's thread-local variables are on it, too */
#define STOP_ROUNDS 1000	     /* of 100 us */

static struct {
	uint64_t handle, address;
} spares[SPARES_MAX] GUARDED_BY(shim_swap_mutex); /* of SHIM_SWAP_CHUNK bytes each; charged */
static uint32_t n_spares;			  /* [atomic] changed under the mutex */

static struct {
	int row;
	CUdevice device;
	uint64_t used_ns;     /* when memory was wanted, taken or put the last time */
	uint64_t pause_until; /* none is made before, ns */
	uint32_t drops;	      /* counts shim_swap_pool_drop() */
	bool runs;	      /* there is a thread */
	bool calls;	      /* it calls the driver, for memory that is charged */
	bool woken;
} pool GUARDED_BY(shim_swap_mutex);
static uint32_t stopping; /* [atomic] */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, called = PTHREAD_COND_INITIALIZER;

enum due { NOTHING, MAKE, FREE };

/* ---- what is due ---- */

/* Returns true if the limit leaves so little that chunks may have to leave soon. */
static bool is_near(int row)
{
	return shim_mem_left(row) <= MIN(NEAR_BYTES, shim_mem_limit(row) / NEAR_PART);
}

/* Returns how many chunks' memory the pool should have: not more than could leave. */
static uint64_t target(void) REQUIRES(shim_swap_mutex)
{
	return MIN((uint64_t)SPARES_MAX,
		   shim_swap_map.at[pool.row][MEM_SWAP_DEVICE].bytes / SHIM_SWAP_CHUNK);
}

/* Returns the bytes that may be charged to swap. The pool takes no more than half of that: the
 * other processes of the vGPU may need it. */
static uint64_t left_of_swap(void)
{
	return min_once(shim_mem_left(PROTO_ACCOUNT_SWAP), shim_mem_left(PROTO_ACCOUNT_HOST));
}

static bool is_idle(uint64_t now) REQUIRES(shim_swap_mutex)
{
	return now >= pool.used_ns && now - pool.used_ns >= SHIM_SWAP_POOL_IDLE_NS;
}

/* room: what the host has, bytes; 0: it is under pressure. */
static enum due choose(uint64_t now, uint64_t room) REQUIRES(shim_swap_mutex)
{
	bool idle = is_idle(now);
	bool on_host = shim_swap_map.at[pool.row][MEM_SWAP_HOST].first != NULL;
	uint64_t n = load_relaxed(&n_spares), left = left_of_swap();

	if (!room) {
		pool.pause_until = now + SHIM_SWAP_POOL_IDLE_NS;
		return n ? FREE : NOTHING;
	}
	if (n && idle && !on_host) {
		return FREE;
	}
	if (n && left < n * SHIM_SWAP_CHUNK && now >= pool.used_ns + LOOK_NS) {
		return FREE;
	}
	return !idle && now >= pool.pause_until && room >= SHIM_SWAP_CHUNK && n < target() &&
			       left >= (n + 2) * SHIM_SWAP_CHUNK && is_near(pool.row)
		       ? MAKE
		       : NOTHING;
}

/* ---- the pool ---- */

static void start(void) REQUIRES(shim_swap_mutex);

/* The pool is in use: its thread runs. */
static void use(void) REQUIRES(shim_swap_mutex)
{
	pool.used_ns = clock_now_ns();
	if (!pool.runs) {
		start();
	} else if (!pool.woken) {
		pool.woken = true;
		pthread_cond_signal(&wake);
	}
}

void shim_swap_pool_want(int row, CUdevice device)
{
	pool.row = row;
	pool.device = device;
	if (is_near(row)) {
		use();
	}
}

void shim_swap_pool_settle(void)
{
	int cancel;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* the mutex is held */
	while (pool.calls) {
		lock_wait(&shim_swap_mutex, &called);
	}
	(void)pthread_setcancelstate(cancel, NULL);
}

bool shim_swap_pool_take(uint64_t *ret_handle, uint64_t *ret_address)
{
	uint32_t n = load_relaxed(&n_spares);

	if (!n) {
		return false;
	}
	*ret_handle = spares[--n].handle;
	*ret_address = spares[n].address;
	store_release(&n_spares, n);
	use();
	return true;
}

/* Adds memory. Returns false if there is no room. */
static bool add(uint64_t handle, uint64_t address) REQUIRES(shim_swap_mutex)
{
	uint32_t n = load_relaxed(&n_spares);

	if (n == SPARES_MAX) {
		return false;
	}
	spares[n].handle = handle;
	spares[n].address = address;
	store_release(&n_spares, n + 1);
	return true;
}

bool shim_swap_pool_put(uint64_t handle, uint64_t address)
{
	use();
	return add(handle, address);
}

void shim_swap_pool_drop(uint64_t pause_ns)
{
	uint32_t n = load_relaxed(&n_spares);

	pool.drops++; /* what is being made is freed, too */
	pool.pause_until = clock_now_ns() + pause_ns;
	store_release(&n_spares, 0u);
	while (n) {
		n--;
		shim_swap_chunk_free_host(spares[n].handle, spares[n].address, SHIM_SWAP_CHUNK);
	}
}

uint64_t shim_swap_pool_bytes(void)
{
	return load_acquire(&n_spares) * SHIM_SWAP_CHUNK;
}

/* ---- the thread ---- */

static void calls_end(void) REQUIRES(shim_swap_mutex)
{
	pool.calls = false;
	pthread_cond_broadcast(&called);
}

/* Releases the mutex meanwhile. */
static void make_one(uint64_t now) REQUIRES(shim_swap_mutex)
{
	uint64_t handle, address;
	uint32_t drops = pool.drops;
	CUdevice device = pool.device;
	bool made;

	pool.calls = true;
	lock_release(&shim_swap_mutex);
	made = shim_swap_chunk_make_host(SHIM_SWAP_CHUNK, device, &handle, &address);
	lock_take(&shim_swap_mutex);
	if (!made) {
		pool.pause_until = now + SHIM_SWAP_POOL_IDLE_NS;
	} else if (!load_acquire(&stopping) && (drops != pool.drops || !add(handle, address))) {
		shim_swap_chunk_free_host(handle, address, SHIM_SWAP_CHUNK);
	}
	calls_end();
}

/* The same. */
static void free_one(void) REQUIRES(shim_swap_mutex)
{
	uint32_t n = load_relaxed(&n_spares) - 1;
	uint64_t handle = spares[n].handle, address = spares[n].address;

	store_release(&n_spares, n);
	pool.calls = true;
	lock_release(&shim_swap_mutex);
	shim_swap_chunk_free_host(handle, address, SHIM_SWAP_CHUNK);
	lock_take(&shim_swap_mutex);
	calls_end();
}

bool shim_swap_pool_step(uint64_t now_ns)
{
	uint64_t room = mem_host_room(MEM_HOST_SYSTEM);
	enum due due;

	lock_take(&shim_swap_mutex);
	due = load_acquire(&stopping) ? NOTHING : choose(now_ns, room);
	if (due == MAKE) {
		make_one(now_ns);
	} else if (due == FREE) {
		free_one();
	}
	lock_release(&shim_swap_mutex);
	return due != NOTHING;
}

/* Sleeps until the pool is used, or it is time to look at the machine again. Returns false if the
 * thread ends, since there is nothing left to do. */
static bool sleep_until_used(void) REQUIRES(shim_swap_mutex)
{
	uint64_t now = clock_now_ns();
	struct timespec at = clock_timespec(now + LOOK_NS);
	int err = 0;

	if (load_acquire(&stopping) || (!load_relaxed(&n_spares) && is_idle(now))) {
		return false;
	}
	while (!pool.woken && !err) {
		err = lock_wait_clock(&shim_swap_mutex, &wake, CLOCK_MONOTONIC, &at);
	}
	pool.woken = false;
	return true;
}

static void *run(void *arg)
{
	bool runs = true;

	prctl(PR_SET_NAME, "gbpf-swap");
	(void)shim_capture_exempt(); /* for good: what it makes is no part of a capture */
	while (runs) {
		while (shim_swap_pool_step(clock_now_ns())) {
		}
		lock_take(&shim_swap_mutex);
		runs = sleep_until_used();
		pool.runs = runs;
		lock_release(&shim_swap_mutex);
	}
	return arg;
}

/* Without a thread memory is made when it is needed. */
static void start(void)
{
	if (!load_acquire(&stopping)) {
		pool.runs = thread_start_detached(run, NULL, STACK_BYTES) == 0;
	}
}

/* The thread reads `stopping` under the mutex before it begins to call the driver. So once it is
 * seen out of its calls, it does not call any more. It may be stuck in one, or another thread in a
 * movement: they are not waited for for long. */
void shim_swap_pool_stop(void)
{
	store_release(&stopping, 1u);
	for (int i = 0; i < STOP_ROUNDS; i++) {
		if (lock_try(&shim_swap_mutex)) {
			bool calls = pool.calls;

			lock_release(&shim_swap_mutex);
			if (!calls) {
				return;
			}
		}
		clock_sleep_ns(100000);
	}
}

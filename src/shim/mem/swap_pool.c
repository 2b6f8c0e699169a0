/* The pool of host memory for chunks (shim/mem/swap_pool.h), and its thread. The thread makes and
 * frees one chunk's memory at a time, with the mutex released, so that no thread of the program
 * waits for more than that. It runs while the pool has something or is in use. */
#include "shim/mem/swap_pool.h"

#include <string.h>
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
#define BYTES_MAX SHIM_SWAP_BATCH_BYTES
#define SPARES_MAX 256u
/* What a program fills at 10 GB/s while the pool is made. Of a small limit a quarter. */
#define NEAR_BYTES (2 * BYTES_MAX)
#define NEAR_PART 4u
#define LOOK_NS UINT64_C(1000000000) /* from one look at the machine to the next */
/* None is made for so long after a movement: another one may follow, and the driver's calls wait
 * for each other (11 ms for 64 MiB). */
#define CALM_NS UINT64_C(20000000)
#define STACK_BYTES (8u << 20) /* the program's thread-local variables are on it, too */
#define STOP_ROUNDS 1000       /* of 100 us */

static struct spare {
	uint64_t handle, address, bytes;
	CUdevice device; /* for which it was mapped the last time */
	/* The chunk whose bytes it has had since the interval: region and address; 0: none. */
	uint64_t of, of_address, interval;
} spares[SPARES_MAX] GUARDED_BY(shim_swap_mutex); /* charged; the oldest first */
static uint32_t n_spares GUARDED_BY(shim_swap_mutex);
static uint64_t spare_bytes; /* [atomic] of all; changed under the mutex */

static struct {
	int row; /* of the device for which memory is made: the latest that may need it; -1: none */
	uint64_t used_ns;     /* when memory was wanted, taken or put the last time */
	uint64_t moved_ns;    /* when chunks moved the last time */
	uint64_t ordered_ns;  /* when gbpfd has ordered memory to leave, or foreseen it */
	uint64_t pause_until; /* none is made before, ns */
	uint64_t busy_until;  /* none is copied before, ns */
	uint32_t drops;	      /* counts shim_swap_pool_drop() */
	bool runs;	      /* there is a thread */
	bool calls;	      /* it calls the driver, for memory that is charged */
	bool woken;
} pool GUARDED_BY(shim_swap_mutex) = { .row = -1 };
static uint32_t stopping; /* [atomic] */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, called = PTHREAD_COND_INITIALIZER;

enum due { NOTHING, MAKE, FREE, COPY };

/* ---- what is due ---- */

/* Returns true if another vGPU has just needed memory, or may need it. */
static bool is_ordered(uint64_t now) REQUIRES(shim_swap_mutex)
{
	return pool.ordered_ns && now < pool.ordered_ns + SHIM_SWAP_POOL_IDLE_NS;
}

/* Returns true if chunks may have to leave soon: the limit leaves little, or an order has. */
static bool is_near(int row) REQUIRES(shim_swap_mutex)
{
	return row >= 0 && ((row == pool.row && is_ordered(clock_now_ns())) ||
			    shim_mem_left(row) <= MIN(NEAR_BYTES, shim_mem_limit(row) / NEAR_PART));
}

/* Returns true if chunks of any device are on the host. */
static bool has_away(void) REQUIRES(shim_swap_mutex)
{
	bool has = false;

	for (unsigned row = 0; row < MEM_SWAP_ROWS && !has; row++) {
		has = shim_swap_map.at[row][MEM_SWAP_HOST].first != NULL;
	}
	return has;
}

/* Returns the size of the memory that the pool lacks for the chunks that were not used for longest,
 * as many as it has room for; 0: none. */
static uint64_t lacking(void) REQUIRES(shim_swap_mutex)
{
	const struct mem_swap_chunk *c = shim_swap_map.at[pool.row][MEM_SWAP_DEVICE].first;
	uint16_t has[SHIM_SWAP_CHUNK_MAX / MEM_SWAP_UNIT + 1] = { 0 };
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n_spares; i++) {
		has[spares[i].bytes / MEM_SWAP_UNIT]++;
	}
	for (uint32_t i = 0; c && i < SPARES_MAX; c = c->next, i++) {
		uint16_t *of_size = &has[c->bytes / MEM_SWAP_UNIT];

		sum += c->bytes;
		if (sum > BYTES_MAX) {
			break;
		}
		if (!*of_size) {
			return c->bytes;
		}
		--*of_size;
	}
	return 0;
}

/* Returns the bytes that may be charged to swap. */
static uint64_t left_of_swap(void)
{
	return min_once(shim_mem_left(PROTO_ACCOUNT_SWAP), shim_mem_left(PROTO_ACCOUNT_HOST));
}

static bool is_calm(uint64_t now) REQUIRES(shim_swap_mutex)
{
	return now >= pool.moved_ns && now - pool.moved_ns >= CALM_NS;
}

static bool is_idle(uint64_t now) REQUIRES(shim_swap_mutex)
{
	return now >= pool.used_ns && now - pool.used_ns >= SHIM_SWAP_POOL_IDLE_NS;
}

/* Returns what has to be left for memory to be made. The pool takes no more than half of that: the
 * other processes of the vGPU may need it, and of pinned memory other vGPUs. */
static uint64_t needed_for(uint64_t bytes) REQUIRES(shim_swap_mutex)
{
	return spare_bytes + 2 * bytes;
}

/* room: what the host has, bytes; 0: it is under pressure. *ret_bytes becomes what is to be made.
 */
static enum due choose(uint64_t now, uint64_t room, uint64_t *ret_bytes) REQUIRES(shim_swap_mutex)
{
	bool idle = is_idle(now);
	uint64_t has = load_relaxed(&spare_bytes), left = left_of_swap();

	if (!room) {
		pool.pause_until = now + SHIM_SWAP_POOL_IDLE_NS;
		return has ? FREE : NOTHING;
	}
	if (has && idle && !has_away()) {
		return FREE;
	}
	if (has && left < has && now >= pool.used_ns + LOOK_NS) {
		return FREE;
	}
	if (idle || now < pool.pause_until || !is_calm(now) || !is_near(pool.row)) {
		return NOTHING;
	}
	*ret_bytes = lacking();
	return *ret_bytes && room >= *ret_bytes && has + *ret_bytes <= BYTES_MAX &&
			       left >= needed_for(*ret_bytes) && n_spares < SPARES_MAX
		       ? MAKE
		       : NOTHING;
}

/* Returns true if the chunk was copied there. */
static bool is_copy(const struct spare *s, const struct mem_swap_chunk *c) REQUIRES(shim_swap_mutex)
{
	return s->of && s->of == c->region->id && s->of_address == c->address;
}

/* Returns true if the memory has what some chunk on the device has. */
static bool is_useful(const struct spare *s) REQUIRES(shim_swap_mutex)
{
	const struct mem_swap_region *r =
		s->of ? mem_swap_find(&shim_swap_map, s->of_address) : NULL;

	return r && !r->freed && r->id == s->of && shim_swap_last_use(r) <= s->interval;
}

/* Returns memory that a chunk is to be copied to, or NULL. */
static struct spare *place_for(const struct mem_swap_chunk *c) REQUIRES(shim_swap_mutex)
{
	struct spare *found = NULL;

	for (uint32_t i = 0; i < n_spares; i++) {
		struct spare *s = &spares[i];

		if (is_copy(s, c) && is_useful(s)) {
			return NULL;
		}
		if (s->bytes == c->bytes && s->device == c->region->device && !is_useful(s)) {
			found = s;
		}
	}
	return found;
}

/* Returns the chunk that is to be copied next, and where to, or NULL: one of those that would leave
 * for an order as large as all that the pool has. */
static struct mem_swap_chunk *choose_copy(uint64_t now, struct spare **ret)
	REQUIRES(shim_swap_mutex)
{
	struct mem_swap_chunk *list[SHIM_SWAP_BATCH];
	double worth;
	unsigned n = 0;

	if (pool.row >= 0 && is_ordered(now) && is_calm(now) && now >= pool.busy_until) {
		n = mem_swap_pick(&shim_swap_map, pool.row, UINT64_MAX, load_relaxed(&spare_bytes),
				  UINT64_MAX, list, SHIM_SWAP_BATCH, &worth);
	}
	for (unsigned i = 0; i < n; i++) {
		*ret = list[i]->region->id ? place_for(list[i]) : NULL;
		if (*ret) {
			return list[i];
		}
	}
	return NULL;
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

/* Memory is made for chunks of the row's device from now on. */
static void aim(int row) REQUIRES(shim_swap_mutex)
{
	pool.ordered_ns = row == pool.row ? pool.ordered_ns : 0;
	pool.row = row;
}

void shim_swap_pool_want(int row)
{
	if (is_near(row) || !is_near(pool.row)) {
		aim(row);
	}
	if (is_near(row)) {
		use();
	}
}

void shim_swap_pool_ordered(int row)
{
	aim(row);
	use();
	pool.ordered_ns = pool.used_ns;
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

/* Takes memory out. */
static struct spare remove_at(uint32_t i) REQUIRES(shim_swap_mutex)
{
	struct spare s = spares[i];

	n_spares--;
	memmove(&spares[i], &spares[i + 1], (n_spares - i) * sizeof(*spares));
	store_release(&spare_bytes, spare_bytes - s.bytes);
	return s;
}

static void free_spare(const struct spare *s)
{
	shim_swap_chunk_free_host(s->handle, s->address, s->bytes);
}

/* Returns how well memory of its size suits a chunk: best what it was copied to; not at all what
 * another one was copied to, rather what has to be mapped for its device first. */
static unsigned suits(const struct spare *s, const struct mem_swap_chunk *c)
	REQUIRES(shim_swap_mutex)
{
	return is_copy(s, c) ? 4 : 2 * !is_useful(s) + (s->device == c->region->device);
}

/* Returns the place of memory for a chunk; n_spares: there is none. */
static uint32_t find(const struct mem_swap_chunk *c) REQUIRES(shim_swap_mutex)
{
	uint32_t found = n_spares;

	for (uint32_t i = n_spares; i > 0; i--) {
		const struct spare *s = &spares[i - 1];

		if (s->bytes == c->bytes &&
		    (found == n_spares || suits(s, c) > suits(&spares[found], c))) {
			found = i - 1;
		}
	}
	return found;
}

bool shim_swap_pool_take(struct mem_swap_chunk *c)
{
	CUdevice device = c->region->device;
	uint32_t i = find(c);
	struct spare s;

	aim(shim_mem_row(device));
	use();
	pool.moved_ns = pool.used_ns; /* also without memory, which is made then */
	if (i == n_spares) {
		return false;
	}
	s = remove_at(i);
	if (s.device != device &&
	    shim_swap_set_access(s.address, s.bytes, 1u << device) != CUDA_SUCCESS) {
		free_spare(&s);
		return false;
	}
	c->host = s.handle;
	c->host_address = s.address;
	c->copied = is_copy(&s, c) ? s.interval : 0;
	return true;
}

bool shim_swap_pool_free_oldest(void)
{
	struct spare s;

	if (!n_spares) {
		return false;
	}
	s = remove_at(0);
	free_spare(&s);
	return true;
}

/* Adds memory. Returns false if there is no room. */
static bool add(const struct spare *s) REQUIRES(shim_swap_mutex)
{
	if (n_spares == SPARES_MAX || spare_bytes + s->bytes > BYTES_MAX) {
		return false;
	}
	spares[n_spares++] = *s;
	store_release(&spare_bytes, spare_bytes + s->bytes);
	return true;
}

void shim_swap_pool_put(uint64_t handle, uint64_t address, uint64_t bytes, CUdevice device)
{
	struct spare s = { .handle = handle, .address = address, .bytes = bytes, .device = device };

	use();
	pool.moved_ns = pool.used_ns;
	while (!add(&s)) {
		(void)shim_swap_pool_free_oldest();
	}
}

void shim_swap_pool_drop(uint64_t pause_ns)
{
	pool.drops++; /* what is being made is freed, too */
	pool.pause_until = clock_now_ns() + pause_ns;
	while (shim_swap_pool_free_oldest()) {
	}
}

uint64_t shim_swap_pool_bytes(void)
{
	return load_acquire(&spare_bytes);
}

/* ---- the thread ---- */

static void calls_end(void) REQUIRES(shim_swap_mutex)
{
	pool.calls = false;
	pthread_cond_broadcast(&called);
}

/* Releases the mutex meanwhile. */
static void make_one(uint64_t now, uint64_t bytes) REQUIRES(shim_swap_mutex)
{
	struct spare s = { .bytes = bytes, .device = shim_mem_device(pool.row) };
	uint32_t drops = pool.drops;
	bool made;

	pool.calls = true;
	lock_release(&shim_swap_mutex);
	made = shim_swap_chunk_make_host(bytes, s.device, &s.handle, &s.address);
	lock_take(&shim_swap_mutex);
	if (!made) {
		pool.pause_until = now + SHIM_SWAP_POOL_IDLE_NS;
	} else if (!load_acquire(&stopping) && (drops != pool.drops || !add(&s))) {
		free_spare(&s);
	}
	calls_end();
}

/* The same. */
static void free_one(void) REQUIRES(shim_swap_mutex)
{
	struct spare s = remove_at(0);

	pool.calls = true;
	lock_release(&shim_swap_mutex);
	free_spare(&s);
	lock_take(&shim_swap_mutex);
	calls_end();
}

/* Has gbpfd grant pinned memory, of which each of several vGPUs has as much as it has asked for.
 * Releases the mutex meanwhile, and is in none of the calls that a movement waits for: the answer
 * may take long. Returns what is due then. */
static enum due ask_for_host(uint64_t now, uint64_t room, uint64_t *ret_bytes)
	REQUIRES(shim_swap_mutex)
{
	uint64_t needed = needed_for(*ret_bytes);

	lock_release(&shim_swap_mutex);
	shim_mem_ask(PROTO_ACCOUNT_HOST, needed);
	lock_take(&shim_swap_mutex);
	if (shim_mem_room(PROTO_ACCOUNT_HOST) < needed) {
		pool.pause_until = now + SHIM_SWAP_POOL_IDLE_NS;
		return NOTHING;
	}
	return load_acquire(&stopping) ? NOTHING : choose(now, room, ret_bytes);
}

/* With the mutex held: none of it can be freed meanwhile. */
static void copy_one(uint64_t now, const struct mem_swap_chunk *c, struct spare *s)
	REQUIRES(shim_swap_mutex)
{
	uint64_t interval;

	s->of = 0;
	if (shim_swap_copy_ahead(c, s->address, &interval)) {
		s->of = c->region->id;
		s->of_address = c->address;
		s->interval = interval;
	} else {
		pool.busy_until = now + LOOK_NS;
	}
}

bool shim_swap_pool_step(uint64_t now_ns)
{
	uint64_t room = mem_host_room(MEM_HOST_SYSTEM), bytes;
	const struct mem_swap_chunk *c = NULL;
	struct spare *s = NULL;
	enum due due;

	lock_take(&shim_swap_mutex);
	due = load_acquire(&stopping) ? NOTHING : choose(now_ns, room, &bytes);
	if (due == MAKE && shim_mem_room(PROTO_ACCOUNT_HOST) < needed_for(bytes)) {
		due = ask_for_host(now_ns, room, &bytes);
	}
	if (due == MAKE) {
		make_one(now_ns, bytes);
	} else if (due == FREE) {
		free_one();
	} else if (!load_acquire(&stopping)) {
		c = choose_copy(now_ns, &s);
		due = c ? COPY : NOTHING;
	}
	if (due == COPY) {
		copy_one(now_ns, c, s);
	}
	lock_release(&shim_swap_mutex);
	return due != NOTHING;
}

/* Sleeps until the pool is used, or it is time to look at the machine again. Returns false if the
 * thread ends, since there is nothing left to do. */
static bool sleep_until_used(void) REQUIRES(shim_swap_mutex)
{
	uint64_t now = clock_now_ns();
	struct timespec at = clock_timespec(now + (is_calm(now) ? LOOK_NS : CALM_NS));
	int err = 0;

	if (load_acquire(&stopping) || (!n_spares && is_idle(now))) {
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

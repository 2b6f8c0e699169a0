/* Movement of memory that can leave the device. A chunk moves only in a pause of all work that
 * could use it (swap_pause.c). Otherwise it stays where it is. */
#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_async.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_managed.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define BATCH SHIM_SWAP_BATCH
/* Tries to pause for a movement that an allocation needs, each of which waits for four times as
 * long as the one before: a call may wait in the driver for work, as a copy to memory that is not
 * pinned does. The calls of the process are held meanwhile, so the first is short. */
#define TRIES 3u
#define MORE 4u

/* For whom memory moves, by patience. */
enum wait {
	WAIT_ONCE,  /* for what would be faster */
	WAIT_CALLS, /* for an allocation of this process: tries again while calls do not return */
	WAIT_WORK, /* for another process, which may be refused otherwise: and while work goes on */
};

uint64_t shim_swap_on_host;
static uint64_t held_until_ns[PROTO_MAX_GPUS]; /* [atomic] by row: chunks stay on the host */

/* What moves in one pause, in order. The device's memory of a chunk on its way out may become that
 * of one of its size on its way back. */
struct moves {
	unsigned n_out, n_back;
	struct mem_swap_chunk *out[BATCH];  /* with memory of the host */
	struct mem_swap_chunk *back[BATCH]; /* with memory of the device, or without */
	struct mem_swap_chunk *from[BATCH]; /* that this memory is still mapped for; NULL: none */
	bool begun[BATCH];		    /* the latter's copies */
	uint64_t back_bytes;
};

static bool is_on_device(enum mem_swap_place place)
{
	return place == MEM_SWAP_DEVICE || place == MEM_SWAP_SHARED || place == MEM_SWAP_PEER;
}

/* Returns the kind of what a chunk has on the device. */
static enum proto_kind kind_at(enum mem_swap_place place)
{
	return place == MEM_SWAP_SHARED ? PROTO_KIND_SHARED
	       : place == MEM_SWAP_PEER ? PROTO_KIND_PEER
					: PROTO_KIND_CHUNK;
}

void shim_swap_show_away(int row)
{
	shim_mem_set_away(row, shim_swap_map.at[row][MEM_SWAP_HOST].bytes +
				       shim_managed_map.at[row][MEM_SWAP_HOST].bytes);
}

void shim_swap_place(struct mem_swap_chunk *c, enum mem_swap_place place)
{
	uint64_t was = c->place == MEM_SWAP_HOST ? c->bytes : 0;
	uint64_t is = place == MEM_SWAP_HOST ? c->bytes : 0;
	int row = c->region->row;

	if (is_on_device(c->place)) {
		shim_mem_kind_sub(row, kind_at(c->place), c->bytes);
	}
	mem_swap_place(&shim_swap_map, c, place);
	if (is_on_device(place)) {
		shim_mem_kind_add(row, kind_at(place), c->bytes);
	}
	shim_swap_show_away(row);
	store_release(&shim_swap_on_host, shim_swap_on_host + is - was);
}

/* ---- the pause ---- */

/* Copies the chunk between its address and the host, behind the copies of the stream. */
static CUresult begin_copy(const struct mem_swap_chunk *k, bool out, CUstream stream)
{
	return shim_work_driver.cuMemcpyDtoDAsync_v2(out ? k->host_address : k->address,
						     out ? k->address : k->host_address, k->bytes,
						     stream);
}

/* Returns true if the host's memory has what a chunk has that is to leave. Constant in a pause. */
static bool is_copied(const struct mem_swap_chunk *k)
{
	return k->copied && shim_swap_last_use(k->region) <= k->copied;
}

/* Begins to copy chunks out. Returns how many. */
static unsigned begin_out(const struct shim_swap_context *c, const struct moves *m)
	REQUIRES(shim_swap_mutex)
{
	unsigned n = 0;

	while (n < m->n_out &&
	       (is_copied(m->out[n]) || begin_copy(m->out[n], true, c->out) == CUDA_SUCCESS) &&
	       shim_work_driver.cuEventRecord(c->copied[n], c->out) == CUDA_SUCCESS) {
		n++;
	}
	return n;
}

/* Unmaps a chunk that nothing uses. */
static bool leave_place(struct mem_swap_chunk *k) REQUIRES(shim_swap_mutex)
{
	if (shim_swap_chunk_unmap(k) != CUDA_SUCCESS) {
		return false;
	}
	shim_swap_place(k, MEM_SWAP_NOWHERE);
	return true;
}

/* Begins to move a chunk back that has memory of the device. */
static CUresult begin_back(const struct shim_swap_context *c, struct moves *m, unsigned i)
	REQUIRES(shim_swap_mutex)
{
	const struct mem_swap_chunk *k = m->back[i];

	if (m->from[i] && !leave_place(m->from[i])) {
		return CUDA_ERROR_UNKNOWN;
	}
	if (!shim_swap_chunk_remap(k, k->host, k->handle)) {
		return CUDA_ERROR_UNKNOWN;
	}
	m->begun[i] = true;
	return begin_copy(k, false, c->back);
}

/* Gives the memory that a chunk has left to the first one that needs as much, and begins to move
 * that. */
static CUresult pass_on(const struct shim_swap_context *c, struct moves *m,
			struct mem_swap_chunk *from) REQUIRES(shim_swap_mutex)
{
	for (unsigned i = 0; i < m->n_back; i++) {
		struct mem_swap_chunk *k = m->back[i];

		if (!k->handle && k->bytes == from->bytes) {
			k->handle = from->handle;
			from->handle = 0;
			return begin_back(c, m, i);
		}
	}
	return CUDA_SUCCESS;
}

/* Moves everything in the current context, in a pause: chunks are remapped while others are copied,
 * in both directions. If a copy to the device fails, those that were begun are mapped to the host
 * again, which has not changed; one that cannot be stays on the device, whatever it has. */
static void move_all(const struct shim_swap_context *c, struct moves *m) REQUIRES(shim_swap_mutex)
{
	unsigned n_out = begin_out(c, m);
	CUresult r = CUDA_SUCCESS, last;

	for (unsigned i = 0; i < m->n_back && r == CUDA_SUCCESS; i++) {
		r = m->back[i]->handle ? begin_back(c, m, i) : r;
	}
	for (unsigned i = 0; i < n_out; i++) {
		struct mem_swap_chunk *k = m->out[i];

		if (shim_work_driver.cuEventSynchronize(c->copied[i]) == CUDA_SUCCESS &&
		    shim_swap_chunk_remap(k, k->handle, k->host)) {
			shim_swap_place(k, MEM_SWAP_HOST);
			r = r == CUDA_SUCCESS ? pass_on(c, m, k) : r;
		}
	}
	(void)shim_work_driver.cuStreamSynchronize(c->out);
	last = shim_work_driver.cuStreamSynchronize(c->back);
	for (unsigned i = 0; i < m->n_back; i++) {
		const struct mem_swap_chunk *k = m->back[i];

		if (m->begun[i] && (r != CUDA_SUCCESS || last != CUDA_SUCCESS)) {
			m->begun[i] = !shim_swap_chunk_remap(k, k->handle, k->host);
		}
	}
}

/* In a pause, in the context, which is current. The copy may go on afterwards: work that writes
 * meanwhile is of a later interval. It waits for no work, since it could begin at once. */
static bool begin_ahead(const struct shim_swap_context *c, const struct mem_swap_chunk *k,
			CUdeviceptr to, uint64_t interval) REQUIRES(shim_swap_mutex)
{
	uint64_t last = shim_swap_last_use(k->region);

	return last < interval && shim_swap_await(c, last, SHIM_SWAP_WAIT_NS) &&
	       shim_work_driver.cuMemcpyDtoDAsync_v2(to, k->address, k->bytes, c->out) ==
		       CUDA_SUCCESS;
}

bool shim_swap_copy_ahead(const struct mem_swap_chunk *k, CUdeviceptr to, uint64_t *ret_interval)
{
	const struct shim_swap_context *c = shim_swap_context_of(k->region->row);
	struct shim_swap_pause p;
	bool begun = false;
	CUcontext before;

	if (!c || !shim_swap_is_quiet() ||
	    shim_work_driver.cuCtxPushCurrent_v2(c->ctx) != CUDA_SUCCESS) {
		return false;
	}
	if (shim_swap_stop(&p, SHIM_SWAP_WAIT_NS)) {
		*ret_interval = load_relaxed(&shim_work_interval) - 1;
		begun = begin_ahead(c, k, to, *ret_interval);
		shim_swap_resume(&p);
	}
	begun = begun && shim_work_driver.cuStreamSynchronize(c->out) == CUDA_SUCCESS;
	(void)shim_work_driver.cuCtxPopCurrent_v2(&before);
	return begun;
}

/* ---- before and after ---- */

/* Frees memory of the device that is not mapped, and its charge. Returns its bytes. */
static uint64_t give_up(struct mem_swap_chunk *k) REQUIRES(shim_swap_mutex)
{
	if (!k->handle) {
		return 0;
	}
	shim_swap_chunk_release(k);
	shim_mem_release(k->region->row, k->bytes);
	return k->bytes;
}

/* Returns the latest interval in which work was submitted that may use what moves. Constant in a
 * pause. The regions of m->from do not count: their program has freed them, and the free has waited
 * for the work that uses them. Other work of the same interval may go on. */
static uint64_t last_use(const struct moves *m)
{
	uint64_t i = 0;

	for (unsigned k = 0; k < m->n_out; k++) {
		i = MAX(i, shim_swap_last_use(m->out[k]->region));
	}
	for (unsigned k = 0; k < m->n_back; k++) {
		i = MAX(i, shim_swap_last_use(m->back[k]->region));
	}
	return i;
}

/* Moves all of it in a pause, or nothing if work goes on that could use it. Waits that long for
 * calls to return, and with WAIT_WORK for work to end. Returns false if it may be tried again. */
static bool move_in_pause(const struct shim_swap_context *c, struct moves *m, enum wait wait,
			  uint64_t wait_ns) REQUIRES(shim_swap_mutex)
{
	bool moves = false;
	struct shim_swap_pause p;
	CUcontext before;

	if (!shim_swap_stop(&p, wait_ns)) {
		return false;
	}
	if (shim_work_driver.cuCtxPushCurrent_v2(c->ctx) == CUDA_SUCCESS) {
		moves = shim_swap_await(c, last_use(m),
					wait == WAIT_WORK ? wait_ns : SHIM_SWAP_WAIT_NS);
		if (moves) {
			move_all(c, m);
		}
		(void)shim_work_driver.cuCtxPopCurrent_v2(&before);
	}
	shim_swap_resume(&p);
	return moves || wait != WAIT_WORK;
}

/* Moves all of it, or nothing. Returns the bytes that the device has no more; *ret_back becomes
 * those that came back. */
static uint64_t move(const struct shim_swap_context *c, struct moves *m, enum wait wait,
		     uint64_t *ret_back) REQUIRES(shim_swap_mutex)
{
	uint64_t freed = 0, out = 0, wait_ns = SHIM_SWAP_WAIT_NS;
	unsigned tries = wait == WAIT_ONCE ? 1 : TRIES;
	bool any = m->n_out != 0;

	*ret_back = 0;
	for (unsigned i = 0; i < m->n_back; i++) {
		any |= m->back[i]->handle != 0;
	}
	while (any && tries-- && !move_in_pause(c, m, wait, wait_ns)) {
		wait_ns *= MORE;
	}
	for (unsigned i = 0; i < m->n_out; i++) {
		if (m->out[i]->place == MEM_SWAP_HOST) {
			out += m->out[i]->bytes;
			freed += give_up(m->out[i]);
		} else {
			shim_swap_chunk_unback(m->out[i]);
		}
	}
	for (unsigned i = 0; i < m->n_back; i++) {
		if (m->begun[i]) {
			shim_swap_place(m->back[i], shim_swap_device_place(m->back[i]->region));
			shim_swap_chunk_unback(m->back[i]);
			*ret_back += m->back[i]->bytes;
		} else if (m->from[i] && m->from[i]->place != MEM_SWAP_NOWHERE) {
			m->from[i]->handle = m->back[i]->handle; /* where it is still mapped */
			m->back[i]->handle = 0;
		} else {
			(void)give_up(m->back[i]);
		}
	}
	if (out) {
		sched_moved(shim.sched, true, out);
	}
	if (*ret_back) {
		sched_moved(shim.sched, false, *ret_back);
	}
	return freed;
}

/* Returns true if no closed launch of an interval after that one may use the chunk. */
static bool is_unused(const struct mem_swap_chunk *k, uint64_t interval)
{
	return load_relaxed(&shim_work_used[k->region->slot]) <= interval;
}

/* Adds chunks of at most that size that are worth least and were not used since that use, nor by
 * work of an interval that is not done, until they have that many bytes. */
static void add_out(struct moves *m, int row, uint64_t bytes, uint64_t largest, uint64_t since,
		    uint64_t done) REQUIRES(shim_swap_mutex)
{
	struct mem_swap_chunk *list[BATCH];
	double worth;
	unsigned n;

	bytes = MIN(bytes, SHIM_SWAP_BATCH_BYTES);
	n = bytes ? mem_swap_pick_if(&shim_swap_map, row, since, bytes, largest, is_unused, done,
				     list, BATCH, &worth)
		  : 0;
	for (unsigned i = 0; i < n && shim_swap_chunk_back(list[i]); i++) {
		m->out[m->n_out++] = list[i];
	}
}

static bool fits(const struct moves *m, const struct mem_swap_chunk *k)
{
	return m->n_back < BATCH && m->back_bytes + k->bytes <= SHIM_SWAP_BATCH_BYTES;
}

/* Adds a chunk that is to come back. */
static void add(struct moves *m, struct mem_swap_chunk *k, struct mem_swap_chunk *from)
{
	m->from[m->n_back] = from;
	m->back[m->n_back++] = k;
	m->back_bytes += k->bytes;
}

/* The same. Returns whether the limit has room for it. */
static bool add_back(struct moves *m, struct mem_swap_chunk *k) REQUIRES(shim_swap_mutex)
{
	int row = k->region->row;
	bool has_room = shim_mem_try_charge(row, k->bytes);

	if (has_room && shim_swap_chunk_create(k) != CUDA_SUCCESS) {
		shim_mem_release(row, k->bytes);
		has_room = false;
	}
	add(m, k, NULL);
	return has_room;
}

/* Adds a chunk that is to come back, if one of a region that nothing uses has memory of its size,
 * and gives it that, where the limit still has room for it. */
static bool add_from(struct moves *m, struct mem_swap_chunk *k, struct mem_swap_region *unused)
	REQUIRES(shim_swap_mutex)
{
	for (uint32_t i = 0; i < unused->n; i++) {
		struct mem_swap_chunk *from = &unused->chunk[i];

		if (from->place != MEM_SWAP_DEVICE || !from->handle || from->bytes != k->bytes) {
			continue;
		}
		shim_mem_release(unused->row, k->bytes);
		if (shim_mem_try_charge(unused->row, k->bytes)) {
			k->handle = from->handle;
			from->handle = 0;
			add(m, k, from);
			return true;
		}
		(void)leave_place(from);
		shim_swap_chunk_release(from);
	}
	return false;
}

void shim_swap_ask_for_host(uint64_t bytes)
{
	bytes -= MIN(bytes, shim_swap_pool_bytes());
	shim_mem_ask(PROTO_ACCOUNT_HOST, bytes);
}

/* Removes those that are worth most until the others have no more than that many bytes. */
static void limit_out(struct moves *m, uint64_t bytes) REQUIRES(shim_swap_mutex)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < m->n_out; i++) {
		sum += m->out[i]->bytes;
	}
	while (sum > bytes) {
		sum -= m->out[--m->n_out]->bytes;
		shim_swap_chunk_unback(m->out[m->n_out]);
	}
}

/* Moves the chunks out that are worth least, as many as fit into one pause: until they have that
 * many bytes, and no more than `most`. Returns the bytes that are free of charge by it; 0: no more
 * can be. */
static uint64_t out_once(int row, uint64_t bytes, uint64_t most, enum wait wait)
	REQUIRES(shim_swap_mutex)
{
	const struct shim_swap_context *c = shim_swap_context_of(row);
	struct moves m = { 0 };
	uint64_t back;

	if (!c) {
		return 0;
	}
	add_out(&m, row, bytes, most, UINT64_MAX, UINT64_MAX);
	limit_out(&m, most);
	return move(c, &m, wait, &back);
}

void shim_swap_out(int row, uint64_t bytes)
{
	CUstreamCaptureMode mode;
	uint64_t left, freed;

	if (!shim_swap_is_on()) {
		return;
	}
	mode = shim_capture_exempt();
	do {
		left = shim_mem_room(row);
		if (left < bytes) {
			shim_swap_ask_for_host(MIN(bytes - left, SHIM_SWAP_BATCH_BYTES));
		}
		lock_take(&shim_swap_mutex);
		shim_swap_pool_settle();
		left = shim_mem_room(row);
		freed = left < bytes ? out_once(row, bytes - left, UINT64_MAX, WAIT_CALLS) : 0;
		lock_release(&shim_swap_mutex);
	} while (freed);
	left = shim_mem_room(row);
	if (left < bytes) {
		(void)shim_managed_out(row, bytes - left, UINT64_MAX, 0);
	}
	shim_capture_restore(mode);
}

uint64_t shim_swap_release(int row, uint64_t bytes, uint64_t most, uint64_t reserve,
			   uint64_t hold_ns)
{
	uint64_t used, dead, freed = 0;
	CUstreamCaptureMode mode;

	if (!shim_swap_is_on()) {
		return 0;
	}
	if (!bytes) {
		lock_take(&shim_swap_mutex);
		shim_swap_pool_ordered(row);
		lock_release(&shim_swap_mutex);
		return 0;
	}
	store_release(&held_until_ns[row], clock_now_ns() + hold_ns);
	bytes = MIN(bytes, SHIM_SWAP_BATCH_BYTES);
	dead = shim_swap_async_free(row, bytes, most, reserve);
	bytes -= MIN(bytes, dead);
	most -= MIN(most, dead);
	mode = shim_capture_exempt();
	shim_mem_move_begin();
	shim_swap_ask_for_host(bytes);
	lock_take(&shim_swap_mutex);
	shim_swap_pool_settle();
	used = shim_mem_used(row);
	if (used > reserve) {
		most = MIN(most, used - reserve);
		freed = out_once(row, MIN(bytes, most), most, WAIT_WORK);
		shim_swap_pool_ordered(row);
	}
	lock_release(&shim_swap_mutex);
	if (freed < bytes) {
		freed += shim_managed_out(row, bytes - freed, most - MIN(most, freed), reserve);
	}
	shim_mem_move_end();
	shim_capture_restore(mode);
	return dead + freed;
}

bool shim_swap_is_held(int row)
{
	return clock_now_ns() < load_acquire(&held_until_ns[row]);
}

void shim_swap_back(int row)
{
	const struct shim_swap_context *c = shim_swap_context_of(row);
	struct mem_swap_chunk *k = shim_swap_map.at[row][MEM_SWAP_HOST].last;
	struct moves m = { 0 };
	bool has_room = true;
	uint64_t back;

	if (!c || shim_swap_is_held(row)) {
		return;
	}
	for (; k && has_room && fits(&m, k); k = k->prev) {
		has_room = k->region->freed || add_back(&m, k);
	}
	(void)move(c, &m, WAIT_ONCE, &back);
}

void shim_swap_back_into(struct mem_swap_region *unused)
{
	const struct shim_swap_context *c = shim_swap_context_of(unused->row);
	struct mem_swap_chunk *k = shim_swap_map.at[unused->row][MEM_SWAP_HOST].last;
	struct moves m = { 0 };
	uint64_t back;

	if (!c || shim_swap_is_held(unused->row)) {
		return;
	}
	for (unsigned i = 0; k && fits(&m, k) && i < MEM_SWAP_SEARCHED; k = k->prev, i++) {
		if (!k->region->freed) {
			(void)add_from(&m, k, unused);
		}
	}
	(void)move(c, &m, WAIT_ONCE, &back);
}

/* As shim_swap_exchange(), in one pause. Returns the bytes that the device has no more; *ret_back
 * becomes those that came back. */
static uint64_t exchange_once(const struct shim_swap_context *c, int row,
			      struct mem_swap_chunk *const list[], unsigned n, uint64_t since,
			      uint64_t done, uint64_t *ret_back) REQUIRES(shim_swap_mutex)
{
	struct moves m = { 0 };
	uint64_t missing = 0;

	for (unsigned i = 0; i < n && fits(&m, list[i]); i++) {
		missing += add_back(&m, list[i]) ? 0 : list[i]->bytes;
	}
	add_out(&m, row, missing, UINT64_MAX, since, done);
	return move(c, &m, WAIT_ONCE, ret_back);
}

uint64_t shim_swap_exchange(int row, struct mem_swap_chunk *const list[], unsigned n,
			    uint64_t since, uint64_t done)
{
	const struct shim_swap_context *c = shim_swap_context_of(row);
	uint64_t back;

	if (!c || shim_swap_is_held(row)) {
		return 0;
	}
	if (exchange_once(c, row, list, n, since, done, &back) && !back) {
		(void)exchange_once(c, row, list, n, since, done, &back);
	}
	return back;
}

/* Movements of managed memory (shim/mem/swap_managed.h), while the program runs.
 *
 * Advice comes before the prefetch that moves pages out, and before the first access to new memory.
 * All prefetches to the device are made in one stream of gBPF's, so that none of them can come
 * after a chunk has left. */
#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/managed_int.h"
#include "shim/mem/swap_managed.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)
/* What moves at a time, at most: the mutex is held meanwhile. */
#define BATCH 16u
#define BATCH_BYTES (256 * MIB)
/* How long a movement is waited for: streams may wait for work of the program's. */
#define WAIT_NS UINT64_C(5000000)
#define WAIT_NS_PER_MIB UINT64_C(500000)
#define CLEARLY 1500u /* thousandths: worth of what comes back, by that of what leaves */
#define REST 20u      /* after a fetch in vain none is tried for so many times as long */

/* By row: the context whose streams have moved memory the last time. */
static CUcontext moved_in[PROTO_MAX_GPUS] GUARDED_BY(shim_swap_mutex);
static uint64_t rest_until_ns GUARDED_BY(shim_swap_mutex);

/* ---- the driver's calls ---- */

static CUmemLocation device_of(const struct mem_swap_region *r)
{
	return (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = r->device };
}

static const CUmemLocation host = { .type = CU_MEM_LOCATION_TYPE_HOST };

static CUresult advise(CUdeviceptr at, uint64_t bytes, CUmem_advise what, CUmemLocation where)
{
	return shim_work_driver.cuMemAdvise_v2(at, bytes, what, where);
}

CUresult shim_managed_keep(const struct mem_swap_chunk *c)
{
	uint64_t at = c->address - c->region->base, end = at + shim_managed_bytes(c), next;
	CUresult r = CUDA_SUCCESS;

	for (uint64_t i = at; i < end && r == CUDA_SUCCESS; i = next) {
		struct mem_advice a = mem_advice_at(c->region->advice, i, &next);

		next = MIN(next, end);
		if (a.read_mostly) {
			r = advise(c->region->base + i, next - i, CU_MEM_ADVISE_UNSET_READ_MOSTLY,
				   host);
		}
	}
	r = r != CUDA_SUCCESS
		    ? r
		    : advise(c->address, end - at, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host);
	return r != CUDA_SUCCESS ? r
				 : advise(c->address, end - at, CU_MEM_ADVISE_SET_ACCESSED_BY,
					  device_of(c->region));
}

/* Gives a chunk the program's own advice back. It is charged on the device, so an error of the
 * driver's only leaves it slower. */
static void let_go(const struct mem_swap_chunk *c)
{
	uint64_t at = c->address - c->region->base, end = at + shim_managed_bytes(c), next;
	uint64_t by_device = UINT64_C(2) << c->region->device;

	for (uint64_t i = at; i < end; i = next) {
		struct mem_advice a = mem_advice_at(c->region->advice, i, &next);
		CUdeviceptr p = c->region->base + i;
		CUmemLocation preferred = { .type = (CUmemLocationType)a.preferred.type,
					    .id = a.preferred.id };

		next = MIN(next, end);
		(void)advise(p, next - i,
			     a.preferred.type ? CU_MEM_ADVISE_SET_PREFERRED_LOCATION
					      : CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
			     preferred);
		if (!(a.accessed_by & by_device)) {
			(void)advise(p, next - i, CU_MEM_ADVISE_UNSET_ACCESSED_BY,
				     device_of(c->region));
		}
		if (a.read_mostly) {
			(void)advise(p, next - i, CU_MEM_ADVISE_SET_READ_MOSTLY, host);
		}
	}
}

static CUresult prefetch(CUdeviceptr at, uint64_t bytes, CUmemLocation to, CUstream stream)
{
	return shim_work_driver.cuMemPrefetchAsync_v2(at, bytes, to, 0, stream);
}

/* Returns the context in whose streams memory of a row moves, or NULL: none can now. As long as it
 * exists it is the same one, so that its streams have all that may be under way. */
static const struct shim_swap_context *mover(int row) REQUIRES(shim_swap_mutex)
{
	const struct shim_swap_context *c = moved_in[row] ? shim_swap_context(moved_in[row]) : NULL;

	if (c) {
		return c->ending || !c->out || !c->back ? NULL : c;
	}
	c = shim_swap_context_of(row);
	moved_in[row] = c ? c->ctx : NULL;
	return c;
}

/* Waits for what has been begun in a stream. Returns false if it is not done in time. */
static bool await(const struct shim_swap_context *c, CUstream stream, uint64_t bytes)
{
	uint64_t begin = clock_now_ns();
	uint64_t until = begin + clock_patience(WAIT_NS + bytes / MIB * WAIT_NS_PER_MIB);
	CUresult r = shim_work_driver.cuEventRecord(c->copied[0], stream);

	while (r == CUDA_SUCCESS) {
		uint64_t now = clock_now_ns();

		r = shim_work_driver.cuEventQuery(c->copied[0]);
		if (r != CUDA_ERROR_NOT_READY || now >= until) {
			break;
		}
		shim_swap_delay_query(now - begin);
		r = CUDA_SUCCESS;
	}
	return r == CUDA_SUCCESS;
}

/* ---- movements ---- */

/* Begins to move a chunk out that is charged to swap as well. */
static CUresult begin_out(const struct shim_swap_context *c, const struct mem_swap_chunk *k)
{
	CUresult r = shim_managed_keep(k);

	return r != CUDA_SUCCESS ? r : prefetch(k->address, shim_managed_bytes(k), host, c->out);
}

/* Has the copies out begin after the prefetches to the device that are under way. */
static CUresult behind_prefetches(const struct shim_swap_context *c)
{
	CUresult r = shim_work_driver.cuEventRecord(c->copied[1], c->back);

	return r != CUDA_SUCCESS ? r
				 : shim_work_driver.cuStreamWaitEvent(c->out, c->copied[1],
								      CU_EVENT_WAIT_DEFAULT);
}

/* Moves chunks out, in the current context. Returns the bytes that the device has no more. */
static uint64_t move_out(const struct shim_swap_context *c, struct mem_swap_chunk *const list[],
			 unsigned n) REQUIRES(shim_swap_mutex)
{
	uint64_t bytes = 0, freed = 0;
	unsigned begun = 0, charged = 0;
	bool done;

	while (charged < n && shim_managed_charge_host(list[charged])) {
		charged++;
	}
	if (charged && behind_prefetches(c) == CUDA_SUCCESS) {
		while (begun < charged && begin_out(c, list[begun]) == CUDA_SUCCESS) {
			bytes += shim_managed_bytes(list[begun++]);
		}
	}
	done = begun && await(c, c->out, bytes);
	for (unsigned i = 0; i < charged; i++) {
		if (done && i < begun) {
			shim_managed_place(list[i], MEM_SWAP_HOST);
			shim_managed_release_device(list[i]);
			freed += list[i]->bytes;
		} else {
			let_go(list[i]);
			shim_managed_release_host(list[i]);
		}
	}
	return freed;
}

static bool enter_context(const struct shim_swap_context *c)
{
	return shim_work_driver.cuCtxPushCurrent_v2(c->ctx) == CUDA_SUCCESS;
}

static void leave_context(void)
{
	CUcontext before;

	(void)shim_work_driver.cuCtxPopCurrent_v2(&before);
}

/* Moves those out that are worth least and were not used since that use, of that many bytes and no
 * more than `most`. Returns the bytes that the device has no more. */
static uint64_t out_once(int row, uint64_t bytes, uint64_t most, uint64_t since)
	REQUIRES(shim_swap_mutex)
{
	const struct shim_swap_context *c = mover(row);
	struct mem_swap_chunk *list[BATCH];
	uint64_t sum = 0, freed = 0;
	unsigned n, k = 0;
	double worth;

	bytes = MIN(bytes, BATCH_BYTES);
	n = c && bytes
		    ? mem_swap_pick(&shim_managed_map, row, since, bytes, most, list, BATCH, &worth)
		    : 0;
	while (k < n && sum + list[k]->bytes <= most) {
		sum += list[k++]->bytes;
	}
	if (k && enter_context(c)) {
		freed = move_out(c, list, k);
		leave_context();
	}
	if (freed) {
		sched_moved(shim.sched, true, freed);
	}
	return freed;
}

uint64_t shim_managed_out(int row, uint64_t bytes, uint64_t most, uint64_t reserve)
{
	CUstreamCaptureMode mode;
	uint64_t all = 0, freed;

	if (!shim_managed_any()) {
		return 0;
	}
	mode = shim_capture_exempt();
	do {
		uint64_t used, may;

		shim_swap_ask_for_host(MIN(bytes - all, BATCH_BYTES));
		lock_take(&shim_swap_mutex);
		shim_swap_pool_settle();
		used = shim_mem_used(row);
		may = MIN(most - all, used - MIN(used, reserve));
		freed = out_once(row, MIN(bytes - all, may), may, UINT64_MAX);
		lock_release(&shim_swap_mutex);
		all += freed;
	} while (freed && all < bytes);
	shim_capture_restore(mode);
	return all;
}

/* Brings chunks back for which the limit has room, in the current context. Returns their bytes;
 * *ret_done becomes false if they are not there in time. */
static uint64_t move_back(const struct shim_swap_context *c, struct mem_swap_chunk *const list[],
			  unsigned n, bool *ret_done) REQUIRES(shim_swap_mutex)
{
	struct mem_swap_chunk *back[BATCH];
	uint64_t bytes = 0;
	unsigned k = 0;

	for (unsigned i = 0; i < n && i < BATCH; i++) {
		if (shim_mem_try_charge(list[i]->region->row, list[i]->bytes)) {
			shim_managed_on_device(list[i]);
			shim_managed_place(list[i], MEM_SWAP_DEVICE);
			let_go(list[i]);
			(void)prefetch(list[i]->address, shim_managed_bytes(list[i]),
				       device_of(list[i]->region), c->back);
			bytes += list[i]->bytes;
			back[k++] = list[i];
		}
	}
	*ret_done = !k || await(c, c->back, bytes); /* swap is free then */
	while (k) {
		shim_managed_release_host(back[--k]);
	}
	if (bytes) {
		sched_moved(shim.sched, false, bytes);
	}
	return bytes;
}

/* ---- launches ---- */

void shim_managed_begin_use(struct shim_managed_naming *n)
{
	n->need = (struct mem_swap_need){ 0 };
	if (shim_managed_map.n) {
		mem_swap_begin_use(&shim_managed_map);
	}
	n->use = shim_managed_map.uses;
	n->row = -1;
}

uint64_t shim_managed_name(struct shim_managed_naming *n, struct mem_swap_region *r,
			   uint64_t address, uint64_t most, uint32_t cost)
{
	n->row = r->row;
	return mem_swap_use(&shim_managed_map, r, address, most, cost, &n->need);
}

static unsigned list_missing(int row, uint64_t use, struct mem_swap_chunk *list[BATCH],
			     uint64_t *ret_bytes) REQUIRES(shim_swap_mutex)
{
	struct mem_swap_chunk *k = shim_managed_map.at[row][MEM_SWAP_HOST].last;
	unsigned n = 0;

	*ret_bytes = 0;
	for (unsigned i = 0; k && n < BATCH && i < MEM_SWAP_SEARCHED; k = k->prev, i++) {
		if (k->used >= use && *ret_bytes + k->bytes <= BATCH_BYTES) {
			*ret_bytes += k->bytes;
			list[n++] = k;
		}
	}
	return n;
}

/* Returns true if other memory is to leave for all that a launch misses: launches have lost as much
 * time by its absence as the movement takes, and it is worth clearly more. */
static bool is_worth_more(const struct shim_managed_naming *n, uint64_t move_ns_per_mib)
	REQUIRES(shim_swap_mutex)
{
	uint64_t lost_ns = n->need.lost * (MEM_SWAP_UNIT / MIB) * 1000;

	return lost_ns >= n->need.missing / MIB * move_ns_per_mib &&
	       mem_swap_ratio(&shim_managed_map, n->row, &n->need, shim_mem_room(n->row), n->use) >=
		       CLEARLY;
}

static bool may_fetch(int row) REQUIRES(shim_swap_mutex)
{
	return !shim_swap_is_held(row) && clock_now_ns() >= rest_until_ns;
}

/* Moves once; leave: other memory may leave for it. Returns the bytes that came back; *ret_done
 * becomes false if it takes too long to go on. */
static uint64_t fetch_once(const struct shim_managed_naming *n, bool leave, bool *ret_done)
	REQUIRES(shim_swap_mutex)
{
	const struct shim_swap_context *c = mover(n->row);
	struct mem_swap_chunk *list[BATCH];
	uint64_t missing, room, back = 0;
	unsigned k;

	*ret_done = true;
	if (!c || !may_fetch(n->row)) {
		return 0;
	}
	k = list_missing(n->row, n->use, list, &missing);
	room = shim_mem_room(n->row);
	if (missing > room && leave && !out_once(n->row, missing - room, UINT64_MAX, n->use)) {
		*ret_done = false;
	}
	if (k && enter_context(c)) {
		bool done;

		back = move_back(c, list, k, &done);
		*ret_done = *ret_done && done;
		leave_context();
	}
	return back;
}

bool shim_managed_fetch(const struct shim_managed_naming *n, uint64_t move_ns_per_mib)
{
	uint64_t begin, back = 0, moved;
	CUstreamCaptureMode mode;
	bool may, done, leave = false;

	if (n->row < 0 || !n->need.missing) {
		return true;
	}
	if (shim_mem_session()->is_agent()) { /* it does not wait */
		return false;
	}
	lock_take(&shim_swap_mutex);
	may = may_fetch(n->row);
	lock_release(&shim_swap_mutex);
	if (!may) {
		return false;
	}
	begin = clock_now_ns();
	mode = shim_capture_exempt();
	shim_mem_ask(n->row, n->need.missing);
	shim_mem_move_begin();
	do { /* in between orders of gbpfd find the mutex free */
		lock_take(&shim_swap_mutex);
		shim_swap_pool_settle();
		leave = leave || (!back && is_worth_more(n, move_ns_per_mib));
		moved = fetch_once(n, leave, &done);
		back += moved;
		if (!back && may_fetch(n->row)) {
			rest_until_ns = clock_now_ns() + REST * (clock_now_ns() - begin);
		}
		lock_release(&shim_swap_mutex);
	} while (moved && done && back < n->need.missing);
	shim_mem_move_end();
	shim_capture_restore(mode);
	return back >= n->need.missing;
}

/* ---- parts of it ---- */

/* Returns the next chunk of a range from *i on, and the part of it that is in the range; NULL:
 * there is none. */
static struct mem_swap_chunk *next_part(const struct shim_managed_range *g, uint32_t *i,
					CUdeviceptr *ret_at, uint64_t *ret_bytes)
{
	for (; *i < g->region->n; ++*i) {
		struct mem_swap_chunk *c = &g->region->chunk[*i];
		uint64_t begin = c->address - g->region->base, end = begin + shim_managed_bytes(c);

		begin = MAX(begin, g->begin);
		end = MIN(end, g->end);
		if (begin < end) {
			*ret_at = g->region->base + begin;
			*ret_bytes = end - begin;
			++*i;
			return c;
		}
	}
	return NULL;
}

bool shim_managed_bring(const struct shim_managed_range *g, uint32_t *next)
{
	const struct shim_swap_context *c = mover(g->region->row);
	bool stay = shim_mem_session()->is_agent() || shim_swap_is_held(g->region->row);
	bool more = true, done = true;
	struct mem_swap_chunk *list[BATCH];
	uint64_t bytes, sum = 0;
	unsigned n = 0;
	CUdeviceptr at;

	if (!c || !enter_context(c)) {
		return false;
	}
	for (unsigned i = 0; i < BATCH && sum < BATCH_BYTES && more; i++) {
		struct mem_swap_chunk *k = next_part(g, next, &at, &bytes);

		more = k != NULL;
		if (!k) {
			continue;
		}
		if (k->place == MEM_SWAP_DEVICE) {
			(void)prefetch(at, bytes, device_of(g->region), c->back);
		} else if (!stay) {
			list[n++] = k;
			sum += k->bytes;
		}
	}
	if (n) {
		(void)move_back(c, list, n, &done);
	}
	leave_context();
	return more && done;
}

CUresult shim_managed_advise(const struct shim_managed_range *g, CUmem_advise what,
			     CUmemLocation where)
{
	CUresult r = CUDA_SUCCESS;
	const struct mem_swap_chunk *k;
	CUdeviceptr at;
	uint64_t bytes;
	uint32_t i = 0;

	while (r == CUDA_SUCCESS && (k = next_part(g, &i, &at, &bytes)) != NULL) {
		if (k->place == MEM_SWAP_DEVICE) {
			r = advise(at, bytes, what, where);
		}
	}
	return r;
}

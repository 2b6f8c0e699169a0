/* Managed memory that can leave the device: shim/mem/swap_managed.c, managed_moves.c and
 * managed_calls.c over an account of the rig and a driver that moves managed memory as NVIDIA's
 * documents have it: by accesses of the device, unless it is preferred elsewhere and mapped there,
 * and by prefetches, in the order of streams. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "base/compiler.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_managed.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define KERNEL ((CUfunction)(uintptr_t)64)
#define NOWHERE (-2)
#define HOST (-1)
#define DEVICE 0
#define UNITS 512u /* of a MiB, that an allocation has at most */
#define ALLOCATIONS 16u
#define PREFETCHES 1024u
#define PAGE 4096u

/* ---- the driver ---- */

static struct allocation {
	CUdeviceptr at; /* 0: free */
	uint64_t bytes;
	struct unit {
		int is_at, preferred;
		bool mapped, read_mostly;
	} unit[UNITS];
} all[ALLOCATIONS];
static CUdeviceptr next_address;
static uint64_t available, total; /* of the device */
static unsigned calls;		  /* of cuMemAllocManaged */
static unsigned advised;	  /* calls of cuMemAdvise */
static unsigned fail_advice;	  /* number of the call that fails; 0: none */
static bool concurrent, refuse_free, stuck;
static uint64_t wanted_in_free; /* another thread allocates that much meanwhile; 0: none does */
static CUresult got_in_free;
static struct prefetch {
	CUdeviceptr at;
	uint64_t bytes;
	int to;
	CUstream stream;
	bool done;
} queue[PREFETCHES];
static unsigned n_queued;

static struct allocation *find(CUdeviceptr p)
{
	for (unsigned i = 0; i < ALLOCATIONS; i++) {
		if (all[i].at && p >= all[i].at && p - all[i].at < all[i].bytes) {
			return &all[i];
		}
	}
	return NULL;
}

static CUresult allocate(CUdeviceptr *ret, size_t bytes, unsigned flags)
{
	unsigned i = 0;

	calls++;
	assert_true(bytes <= available);
	while (all[i].at) {
		i++;
		assert_true(i < ALLOCATIONS);
	}
	all[i].at = *ret = next_address;
	all[i].bytes = bytes;
	next_address += ROUND_UP(bytes, 2 * MIB);
	for (unsigned k = 0; k < UNITS; k++) {
		all[i].unit[k] = (struct unit){ .is_at = NOWHERE, .preferred = NOWHERE };
	}
	return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr p)
{
	struct allocation *a = find(p);

	assert_non_null(a);
	if (wanted_in_free) {
		CUdeviceptr other = 0;
		bool full;

		got_in_free =
			shim_managed_alloc(&other, wanted_in_free, CU_MEM_ATTACH_GLOBAL, 0, &full);
		wanted_in_free = 0;
	}
	if (refuse_free) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->at = 0;
	return CUDA_SUCCESS;
}

static int place_of(CUmemLocation l)
{
	return l.type == CU_MEM_LOCATION_TYPE_DEVICE ? l.id : HOST;
}

static CUresult advise(CUdeviceptr p, size_t bytes, CUmem_advise what, CUmemLocation where)
{
	struct allocation *a = find(p);

	advised++;
	if (!a || bytes > a->bytes - (p - a->at)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (fail_advice && --fail_advice == 0) {
		return CUDA_ERROR_UNKNOWN;
	}
	for (uint64_t k = (p - a->at) / MIB; k * MIB < p - a->at + bytes; k++) {
		struct unit *u = &a->unit[k];

		switch (what) {
		case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
			u->preferred = what == CU_MEM_ADVISE_SET_PREFERRED_LOCATION
					       ? place_of(where)
					       : NOWHERE;
			break;
		case CU_MEM_ADVISE_SET_READ_MOSTLY:
		case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
			u->read_mostly = what == CU_MEM_ADVISE_SET_READ_MOSTLY;
			break;
		default:
			if (place_of(where) == DEVICE) {
				u->mapped = what == CU_MEM_ADVISE_SET_ACCESSED_BY;
			}
		}
	}
	return CUDA_SUCCESS;
}

static CUresult prefetch(CUdeviceptr p, size_t bytes, CUmemLocation to, unsigned flags,
			 CUstream stream)
{
	if (!find(p)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	/* Those to the device come in the order of a stream of gBPF's. */
	assert_true(place_of(to) == HOST || (uintptr_t)stream % 256 == 0);
	assert_true(n_queued < PREFETCHES);
	queue[n_queued++] = (struct prefetch){ p, bytes, place_of(to), stream, false };
	return CUDA_SUCCESS;
}

/* Makes the prefetches that are queued, of one stream or of all (NULL). */
static void run_prefetches(CUstream stream)
{
	for (unsigned i = 0; i < n_queued; i++) {
		struct prefetch *q = &queue[i];
		struct allocation *a = find(q->at);

		if (q->done || (stream && q->stream != stream)) {
			continue;
		}
		q->done = true;
		for (uint64_t k = a ? (q->at - a->at) / MIB : 0;
		     a && k * MIB < q->at - a->at + q->bytes; k++) {
			a->unit[k].is_at = q->to;
		}
	}
}

static CUstream recorded[2]; /* of the latest events */

static CUresult record(CUevent event, CUstream stream)
{
	recorded[1] = recorded[0];
	recorded[0] = stream;
	return CUDA_SUCCESS;
}

static CUresult query(CUevent event)
{
	if (stuck) {
		return CUDA_ERROR_NOT_READY;
	}
	run_prefetches(recorded[0]);
	return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
	run_prefetches(recorded[0]);
	return CUDA_SUCCESS;
}

static CUresult get_flags(CUstream stream, unsigned *ret)
{
	*ret = 0;
	return stream == (CUstream)(uintptr_t)1234 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
	*ret_free = available;
	*ret_total = total;
	return CUDA_SUCCESS;
}

static CUresult get_device_attribute(int *ret, CUdevice_attribute what, CUdevice device)
{
	*ret = what == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS && concurrent;
	return CUDA_SUCCESS;
}

static int join(void **state)
{
	int err = rig_join(state);

	shim_driver.cuDeviceGetAttribute = get_device_attribute;
	shim_driver.cuMemGetInfo_v2 = get_info;
	shim_driver.cuMemAllocManaged = allocate;
	shim_driver.cuMemFree_v2 = release;
	shim_driver.cuMemAdvise_v2 = shim_work_driver.cuMemAdvise_v2 = advise;
	shim_driver.cuMemPrefetchAsync_v2 = shim_work_driver.cuMemPrefetchAsync_v2 = prefetch;
	shim_driver.cuStreamGetFlags = get_flags;
	shim_work_driver.cuStreamWaitEvent = wait_event;
	return err;
}

/* ---- what tests do ---- */

static CUresult (*rig_record)(CUevent, CUstream), (*rig_query)(CUevent);

static int set_up(void **state)
{
	int err = rig_set_up(state);

	memset(all, 0, sizeof(all));
	next_address = UINT64_C(1) << 44;
	available = total = 4000 * MIB;
	calls = fail_advice = n_queued = 0;
	wanted_in_free = 0;
	refuse_free = stuck = false;
	concurrent = true;
	rig_record = shim_work_driver.cuEventRecord;
	rig_query = shim_work_driver.cuEventQuery;
	shim_work_driver.cuEventRecord = record;
	shim_work_driver.cuEventQuery = query;
	return err;
}

static bool try_release(CUdeviceptr at)
{
	CUresult r = CUDA_ERROR_UNKNOWN;

	assert_true(shim_managed_free(at, &r));
	rig_end_if_left();
	return r == CUDA_SUCCESS;
}

static int tear_down(void **state)
{
	refuse_free = false;
	shim_work_driver.cuEventRecord = rig_record;
	shim_work_driver.cuEventQuery = rig_query;
	while (shim_managed_map.n) {
		assert_true(try_release(shim_managed_map.region[0]->base));
	}
	return rig_tear_down(state);
}

static CUresult try_take(CUdeviceptr *ret, uint64_t bytes)
{
	bool full = false;
	CUresult r = shim_managed_alloc(ret, bytes, CU_MEM_ATTACH_GLOBAL, 0, &full);

	rig_end_if_left();
	return r;
}

static CUdeviceptr take(uint64_t bytes)
{
	CUdeviceptr ret = 0;

	assert_int_equal(try_take(&ret, bytes), CUDA_SUCCESS);
	return ret;
}

static struct mem_swap_chunk *chunk(CUdeviceptr at, unsigned i)
{
	return &mem_swap_find(&shim_managed_map, at)->chunk[i];
}

static bool is_on_host(CUdeviceptr at, unsigned i)
{
	return chunk(at, i)->place == MEM_SWAP_HOST;
}

/* A kernel accesses all memory there is, behind all prefetches. No more than the limit is on the
 * device then, and what is charged to the host is there. */
static void touch_all(void)
{
	uint64_t on_device = 0;

	run_prefetches(NULL);
	for (unsigned i = 0; i < ALLOCATIONS; i++) {
		for (uint64_t k = 0; all[i].at && k * MIB < all[i].bytes; k++) {
			struct unit *u = &all[i].unit[k];
			bool stays = u->preferred == HOST && u->mapped && !u->read_mostly;

			u->is_at = stays ? (u->is_at == NOWHERE ? HOST : u->is_at) : DEVICE;
			on_device += u->is_at == DEVICE ? MIB : 0;
			assert_true(u->is_at == HOST ||
				    !is_on_host(all[i].at, (unsigned)(k * MIB / CHUNK)));
		}
	}
	assert_true(on_device <= rig.page.limit[0]);
}

static void assert_charged(uint64_t device, uint64_t host)
{
	const struct mem_ledger *l = shim_mem_ledger();

	assert_int_equal(mem_ledger_own(l, 0), device);
	assert_int_equal(mem_ledger_own(l, PROTO_ACCOUNT_SWAP), host);
	assert_int_equal(mem_ledger_own(l, PROTO_ACCOUNT_HOST), host);
	assert_int_equal(rig.page.kinds[0][2].bytes[PROTO_KIND_CHUNK], device);
	assert_int_equal(rig.page.kinds[0][2].away, host);
	assert_int_equal(shim_swap_on_host, host);
	assert_int_equal(shim_mem_held(0), 0); /* the driver counts none of it as the process's */
}

static void launch_on_all(CUdeviceptr at[], unsigned n)
{
	void *params[ARRAY_SIZE(rig.param_bytes)] = { NULL };
	struct shim_swap_launch l = { .f = KERNEL, .params = params };

	rig.now += SECOND;
	for (unsigned i = 0; i < n; i++) {
		params[i] = &at[i];
		rig.param_bytes[i] = sizeof(at[i]);
	}
	shim_swap_launch(&l);
	rig_end_if_left();
	if (l.timed_in) {
		shim_swap_launched(&l, CUDA_SUCCESS);
	}
}

static void launch_on(CUdeviceptr at)
{
	launch_on_all(&at, 1);
}

static const CUmemLocation device = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
			   host = { .type = CU_MEM_LOCATION_TYPE_HOST };

static int attribute(CUmem_range_attribute what, CUdeviceptr p, uint64_t bytes)
{
	int ret = 0;

	assert_int_equal(shim_real.cuMemRangeGetAttribute(&ret, sizeof(ret), what, p, bytes),
			 CUDA_SUCCESS);
	return ret;
}

/* ---- tests ---- */

static void memory_beyond_the_limit_lies_on_the_host_and_stays_there(void **state)
{
	CUdeviceptr a;

	rig_limit(2 * CHUNK);
	a = take(3 * CHUNK - 100);
	assert_charged(2 * CHUNK, CHUNK);
	assert_false(is_on_host(a, 0) || is_on_host(a, 1));
	assert_true(is_on_host(a, 2));
	touch_all();
	assert_true(try_release(a));
	assert_charged(0, 0);
}

static void memory_leaves_for_an_allocation(void **state)
{
	CUdeviceptr a, b;

	rig_limit(2 * CHUNK);
	a = take(2 * CHUNK);
	touch_all();
	b = take(CHUNK);
	assert_charged(2 * CHUNK, CHUNK);
	assert_true(is_on_host(a, 0) && !is_on_host(a, 1) && !is_on_host(b, 0));
	touch_all();
}

static void ordinary_memory_leaves_first(void **state)
{
	CUdeviceptr a, b;

	shim_work_driver.cuEventRecord = rig_record;
	shim_work_driver.cuEventQuery = rig_query;
	rig_limit(2 * CHUNK);
	a = take(CHUNK);
	b = rig_alloc(CHUNK);
	rig_out(CHUNK);
	assert_true(!rig_on_device(b, 0) && !is_on_host(a, 0));
	rig_free(b);
}

static void what_leaves_is_charged_until_it_is_on_the_host(void **state)
{
	CUdeviceptr a;

	rig_limit(2 * CHUNK);
	a = take(2 * CHUNK);
	touch_all();
	stuck = true;
	rig_out(CHUNK);
	assert_charged(2 * CHUNK, 0);
	assert_false(is_on_host(a, 0) || is_on_host(a, 1));
	assert_int_equal(all[0].unit[0].preferred, NOWHERE);
	touch_all();
	stuck = false;
	rig_out(CHUNK);
	assert_true(is_on_host(a, 0));
	assert_charged(CHUNK, CHUNK);
	touch_all();
}

static void a_release_is_within_its_bounds(void **state)
{
	CUdeviceptr a = take(4 * CHUNK);

	touch_all();
	assert_int_equal(shim_swap_release(0, 2 * CHUNK, 2 * CHUNK - 1, 0, 0), CHUNK);
	assert_int_equal(shim_swap_release(0, 2 * CHUNK, 2 * CHUNK, 2 * CHUNK, 0), CHUNK);
	assert_int_equal(shim_swap_release(0, CHUNK, CHUNK, 2 * CHUNK, 0), 0);
	assert_charged(2 * CHUNK, 2 * CHUNK);
	assert_true(is_on_host(a, 0) && is_on_host(a, 1));
	touch_all();
}

static void a_launch_has_its_memory_back_where_there_is_room(void **state)
{
	CUdeviceptr a = take(3 * CHUNK), b = take(CHUNK);

	touch_all();
	rig_limit(4 * CHUNK);
	rig_out(4 * CHUNK);
	assert_charged(0, 4 * CHUNK);
	launch_on(a + CHUNK);
	assert_true(is_on_host(a, 0) && !is_on_host(a, 1) && !is_on_host(a, 2));
	assert_true(is_on_host(b, 0));
	assert_charged(2 * CHUNK, 2 * CHUNK);
	assert_int_equal(all[0].unit[20].preferred, NOWHERE);
	assert_false(all[0].unit[20].mapped);
	assert_int_equal(all[0].unit[20].is_at, DEVICE);
	touch_all();
}

static void others_leave_for_a_launch_once_it_has_lost_enough(void **state)
{
	CUdeviceptr a, b;
	unsigned n = 0;

	rig_limit(CHUNK);
	a = take(CHUNK);
	b = take(CHUNK);
	launch_on(b);
	assert_true(is_on_host(a, 0));
	launch_on(a);
	assert_true(is_on_host(a, 0)); /* not at once: it would go to and fro */
	while (is_on_host(a, 0)) {
		launch_on(a);
		n++;
		assert_true(n < 20);
	}
	assert_true(n > 1 && is_on_host(b, 0));
	assert_charged(CHUNK, CHUNK);
	touch_all();
}

/* What a launch misses is compared with all that would leave for it, not with what moves at a time.
 */
static void memory_of_equal_worth_stays_where_it_is(void **state)
{
	CUdeviceptr a[3], b[3];

	rig_limit(3 * 15 * CHUNK);
	for (unsigned i = 0; i < 3; i++) {
		a[i] = take(15 * CHUNK);
	}
	for (unsigned i = 0; i < 3; i++) {
		b[i] = take(15 * CHUNK);
	}
	for (unsigned n = 0; n < 20; n++) {
		launch_on_all(b, 3);
		launch_on_all(a, 3);
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_true(is_on_host(a[i], 0) && !is_on_host(b[i], 0));
	}
}

static void no_memory_comes_back_for_another_virtual_gpu(void **state)
{
	CUdeviceptr a = take(CHUNK);
	unsigned asks;

	assert_int_equal(shim_swap_release(0, CHUNK, CHUNK, 0, 10 * SECOND), CHUNK);
	rig.page.allowed[0] = CHUNK / 2;
	asks = rig.asks;
	launch_on(a);
	assert_true(is_on_host(a, 0));
	assert_int_equal(rig.asks, asks); /* nor is gbpfd asked each time */
	rig.page.allowed[0] = 0;
	rig.now += 10 * SECOND;
	launch_on(a);
	assert_false(is_on_host(a, 0));
}

static void the_programs_advice_is_answered_and_waits_for_its_return(void **state)
{
	CUdeviceptr a = take(2 * CHUNK);

	assert_int_equal(shim_real.cuMemAdvise_v2(a, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, host),
			 CUDA_SUCCESS);
	assert_true(all[0].unit[0].read_mostly && !all[0].unit[1].read_mostly);
	rig_limit(2 * CHUNK);
	rig_out(2 * CHUNK);
	assert_false(all[0].unit[0].read_mostly); /* it would have copies on the device */
	assert_int_equal(shim_real.cuMemAdvise_v2(a + MIB, MIB,
						  CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device),
			 CUDA_SUCCESS);
	assert_int_equal(shim_real.cuMemAdvise_v2(a, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, device),
			 CUDA_SUCCESS);
	touch_all();
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, MIB), 1);
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, 2 * MIB), 0);
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a + MIB, MIB), 0);
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, CHUNK), NOWHERE);
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, a, PAGE), 0);
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, a + MIB, PAGE), NOWHERE);
	launch_on(a);
	assert_false(is_on_host(a, 0));
	assert_true(all[0].unit[0].read_mostly && !all[0].unit[1].read_mostly);
	assert_int_equal(all[0].unit[0].preferred, NOWHERE);
	assert_int_equal(all[0].unit[1].preferred, DEVICE);
	assert_true(all[0].unit[0].mapped && !all[0].unit[1].mapped);
}

static void a_prefetch_without_room_succeeds_and_is_not_made(void **state)
{
	CUdeviceptr a, b;

	rig_limit(CHUNK);
	a = take(CHUNK);
	b = take(CHUNK);
	assert_true(is_on_host(a, 0));
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, CHUNK, device, 0, NULL), CUDA_SUCCESS);
	assert_true(is_on_host(a, 0));
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a, CHUNK), 0);
	touch_all();
	assert_true(try_release(b));
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, PAGE, device, 0, NULL), CUDA_SUCCESS);
	assert_false(is_on_host(a, 0));
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, PAGE, host, 0, rig_stream(0)),
			 CUDA_SUCCESS);
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a, PAGE), HOST);
	assert_int_equal(attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a, CHUNK),
			 NOWHERE);
}

static void a_prefetch_brings_much_memory_back(void **state)
{
	CUdeviceptr a = take(320 * MIB);

	rig_limit(320 * MIB);
	rig_out(320 * MIB);
	assert_charged(0, 320 * MIB);
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, 320 * MIB, device, 0, NULL),
			 CUDA_SUCCESS);
	assert_charged(320 * MIB, 0);
}

static void a_prefetch_that_takes_too_long_goes_no_further(void **state)
{
	CUdeviceptr a = take(320 * MIB);

	rig_limit(320 * MIB);
	rig_out(320 * MIB);
	stuck = true;
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, 320 * MIB, device, 0, NULL),
			 CUDA_SUCCESS);
	stuck = false;
	assert_charged(256 * MIB, 64 * MIB);
}

static void the_agent_brings_nothing_back(void **state)
{
	CUdeviceptr a = take(2 * CHUNK);

	rig_limit(2 * CHUNK);
	rig_out(CHUNK);
	run_prefetches(NULL);
	rig.agent = true;
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, 2 * CHUNK, device, 0, NULL),
			 CUDA_SUCCESS);
	rig.agent = false;
	assert_true(is_on_host(a, 0));
	run_prefetches(NULL);
	assert_int_equal(all[0].unit[CHUNK / MIB].is_at, DEVICE); /* it is charged there */
	assert_int_equal(all[0].unit[0].is_at, HOST);
}

/* One that the program has made before memory leaves is made before that does. */
static void a_prefetch_that_comes_late_brings_nothing_back(void **state)
{
	CUdeviceptr a = take(CHUNK);

	rig_limit(CHUNK);
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, CHUNK, device, 0, rig_stream(1)),
			 CUDA_SUCCESS);
	assert_int_equal(n_queued, 1);
	assert_false(queue[0].done);
	rig_out(CHUNK);
	assert_true(is_on_host(a, 0));
	touch_all();
	assert_int_equal(all[0].unit[0].is_at, HOST);
}

/* The driver's ranges are whole pages: one from behind the last byte on may reach what follows. */
static void a_range_behind_an_allocation_spans_what_follows(void **state)
{
	CUdeviceptr a = take(CHUNK - 100), b = take(CHUNK);
	unsigned before = advised;

	assert_int_equal(b, a + CHUNK);
	assert_int_equal(
		shim_real.cuMemAdvise_v2(a + CHUNK - 50, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, host),
		CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(advised, before);
}

static void wrong_ranges_and_streams_are_refused(void **state)
{
	CUdeviceptr a = take(CHUNK), b = take(CHUNK);
	unsigned before = advised;
	int out;

	assert_int_equal(b, a + CHUNK);
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, CHUNK + 1, device, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(shim_real.cuMemPrefetchAsync_v2(a, CHUNK, device, 1, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(
		shim_real.cuMemPrefetchAsync_v2(a, CHUNK, device, 0, (CUstream)(uintptr_t)1234),
		CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(shim_real.cuMemAdvise_v2(a, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, host),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(
		shim_real.cuMemAdvise_v2(a - PAGE, 2 * PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, host),
		CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(shim_real.cuMemRangeGetAttribute(
				 &out, 1, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, PAGE),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(n_queued, 0);
	assert_int_equal(advised, before); /* the driver may take what spans allocations */
}

static void more_than_the_device_has_free_is_not_asked_for(void **state)
{
	CUdeviceptr a, b = 0;

	rig_limit(2 * CHUNK);
	available = 3 * CHUNK;
	assert_int_equal(try_take(&b, 4 * CHUNK), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(calls, 0);
	a = take(3 * CHUNK);
	assert_int_equal(try_take(&b, 3 * CHUNK), CUDA_ERROR_OUT_OF_MEMORY); /* one is away */
	total = 4 * CHUNK;
	assert_int_equal(try_take(&b, 2 * CHUNK), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(calls, 1);
	b = take(CHUNK);
	assert_int_equal(calls, 2);
	assert_true(try_release(a) && try_release(b));
	assert_charged(0, 0);
}

/* A free may wait for work: until then its memory is there. */
static void memory_that_is_being_freed_counts(void **state)
{
	CUdeviceptr a;

	rig_limit(CHUNK);
	available = total = 4 * CHUNK;
	a = take(3 * CHUNK);
	wanted_in_free = 3 * CHUNK;
	assert_true(try_release(a));
	assert_int_equal(got_in_free, CUDA_ERROR_OUT_OF_MEMORY);
	a = take(3 * CHUNK);
	refuse_free = true;
	assert_false(try_release(a));
	refuse_free = false;
	assert_true(try_release(a));
	a = take(3 * CHUNK);
}

static void without_room_on_the_host_nothing_leaves(void **state)
{
	CUdeviceptr a, b = 0;

	rig_limit(CHUNK);
	rig.page.limit[PROTO_ACCOUNT_SWAP] = CHUNK;
	a = take(CHUNK);
	b = take(CHUNK);
	assert_true(is_on_host(a, 0));
	assert_int_equal(try_take(&b, CHUNK), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(calls, 2);
	assert_charged(CHUNK, CHUNK);
}

static void memory_that_the_driver_cannot_keep_on_the_host_is_refused(void **state)
{
	CUdeviceptr a = 0;

	rig_limit(CHUNK);
	for (unsigned i = 1; i <= 2; i++) {
		fail_advice = i;
		assert_int_equal(try_take(&a, 2 * CHUNK), CUDA_ERROR_NOT_SUPPORTED);
		assert_int_equal(all[0].at, 0);
		assert_charged(0, 0);
	}
	a = take(CHUNK);
	for (unsigned i = 1; i <= 2; i++) {
		fail_advice = i;
		rig_out(CHUNK);
		assert_charged(CHUNK, 0);
		assert_int_equal(all[0].unit[0].preferred, NOWHERE);
	}
}

static void a_free_that_fails_changes_nothing(void **state)
{
	CUdeviceptr a;
	CUresult r;

	rig_limit(CHUNK);
	a = take(2 * CHUNK);
	refuse_free = true;
	assert_false(try_release(a));
	assert_charged(CHUNK, CHUNK);
	assert_true(is_on_host(a, 1));
	refuse_free = false;
	assert_false(shim_managed_free(a + PAGE, &r));
	assert_true(try_release(a));
	assert_charged(0, 0);
	assert_false(shim_managed_free(a, &r));
}

static void memory_ends_with_its_context(void **state)
{
	uint64_t epoch;

	rig_limit(CHUNK);
	(void)take(2 * CHUNK);
	epoch = shim_mem_epoch();
	(void)take(CHUNK);
	shim_managed_context_ended((CUcontext)(uintptr_t)7, epoch);
	assert_int_equal(shim_managed_map.n, 1);
	shim_managed_context_ended((CUcontext)(uintptr_t)7, shim_mem_epoch());
	assert_charged(0, 0);
	memset(all, 0, sizeof(all));
}

/* The driver gives addresses of a context that it has destroyed before the shim forgets them. */
static void addresses_that_are_given_again_are_charged_once(void **state)
{
	(void)take(2 * CHUNK);
	memset(all, 0, sizeof(all));
	next_address = UINT64_C(1) << 44;
	(void)take(CHUNK);
	assert_charged(CHUNK, 0);
	assert_int_equal(shim_managed_map.n, 1);
}

static void without_concurrent_access_all_is_as_before(void **state)
{
	CUdeviceptr a = 0;

	concurrent = false;
	assert_int_equal(try_take(&a, CHUNK), CUDA_ERROR_NOT_SUPPORTED);
	concurrent = true;
	assert_int_equal(try_take(&a, SHIM_SWAP_MIN - 1), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(calls, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(memory_beyond_the_limit_lies_on_the_host_and_stays_there),
		TEST(memory_leaves_for_an_allocation),
		TEST(ordinary_memory_leaves_first),
		TEST(what_leaves_is_charged_until_it_is_on_the_host),
		TEST(a_release_is_within_its_bounds),
		TEST(a_launch_has_its_memory_back_where_there_is_room),
		TEST(others_leave_for_a_launch_once_it_has_lost_enough),
		TEST(memory_of_equal_worth_stays_where_it_is),
		TEST(no_memory_comes_back_for_another_virtual_gpu),
		TEST(the_programs_advice_is_answered_and_waits_for_its_return),
		TEST(a_prefetch_without_room_succeeds_and_is_not_made),
		TEST(a_prefetch_brings_much_memory_back),
		TEST(a_prefetch_that_takes_too_long_goes_no_further),
		TEST(the_agent_brings_nothing_back),
		TEST(a_prefetch_that_comes_late_brings_nothing_back),
		TEST(a_range_behind_an_allocation_spans_what_follows),
		TEST(wrong_ranges_and_streams_are_refused),
		TEST(more_than_the_device_has_free_is_not_asked_for),
		TEST(memory_that_is_being_freed_counts),
		TEST(without_room_on_the_host_nothing_leaves),
		TEST(memory_that_the_driver_cannot_keep_on_the_host_is_refused),
		TEST(a_free_that_fails_changes_nothing),
		TEST(memory_ends_with_its_context),
		TEST(addresses_that_are_given_again_are_charged_once),
		TEST(without_concurrent_access_all_is_as_before),
	};

	return cmocka_run_group_tests_name("swap managed", tests, join, NULL);
}

/* Calls about parts of managed memory that can leave the device: prefetches, advice, and questions
 * about both. A program's own advice and its prefetches to the device reach the driver only for
 * what is on the device; all of them are noted, so that questions have the same answers as without
 * gBPF, and applied when the memory comes back. */
#include <string.h>

#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_managed.h"
#include "shim/shim.h"

#define NOWHERE (-2) /* CU_DEVICE_INVALID */
#define HOST_ID (-1) /* CU_DEVICE_CPU */

/* Returns a location for CUDA's number of a device. */
static CUmemLocation location_of(CUdevice device)
{
	return device == HOST_ID
		       ? (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_HOST }
		       : (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device };
}

static bool is_host(const CUmemLocation *l)
{
	return l->type == CU_MEM_LOCATION_TYPE_HOST || l->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
	       l->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static bool is_device(const CUmemLocation *l)
{
	return l->type == CU_MEM_LOCATION_TYPE_DEVICE && shim_mem_row(l->id) >= 0;
}

static CUresult note(const struct shim_managed_range *g, const struct mem_advice_change *c)
	REQUIRES(shim_swap_mutex)
{
	return mem_advice_change(g->region->advice, g->begin, g->end, c) < 0
		       ? CUDA_ERROR_OUT_OF_MEMORY
		       : CUDA_SUCCESS;
}

/* ---- prefetches ---- */

/* A prefetch as the program has asked for it. */
struct request {
	CUdeviceptr p;
	size_t bytes;
	CUmemLocation to;
	unsigned flags;
	CUstream stream;
	bool per_thread;
};

static CUresult note_prefetch(const struct request *q)
{
	const struct mem_advice_change c = { .kind = MEM_ADVICE_PREFETCHED,
					     .location = { (int)q->to.type, q->to.id } };
	struct shim_managed_range g;
	CUresult r = CUDA_SUCCESS;

	lock_take(&shim_swap_mutex);
	g = shim_managed_find(q->p, q->bytes);
	if (g.region && !g.spans) {
		r = note(&g, &c);
	}
	lock_release(&shim_swap_mutex);
	return r;
}

/* Prefetches to the device what has room there, in the order of gBPF's own stream: whether the
 * program's has come so far does not matter for a prefetch, and one that comes late could bring
 * memory back that has left. */
static CUresult to_device(const struct request *q)
{
	CUstreamCaptureMode mode;
	struct shim_managed_range g;
	uint32_t next = 0;
	bool more;
	unsigned flags;
	CUresult r = q->per_thread ? shim_driver.cuStreamGetFlags_ptsz(q->stream, &flags)
				   : shim_driver.cuStreamGetFlags(q->stream, &flags);

	if (r != CUDA_SUCCESS || q->flags) {
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	}
	mode = shim_capture_exempt();
	shim_mem_move_begin();
	do { /* in between orders of gbpfd find the mutex free */
		lock_take(&shim_swap_mutex);
		g = shim_managed_find(q->p, q->bytes);
		more = g.region && !g.spans && g.region->device == q->to.id &&
		       shim_managed_bring(&g, &next);
		lock_release(&shim_swap_mutex);
	} while (more);
	shim_mem_move_end();
	shim_capture_restore(mode);
	return note_prefetch(q);
}

enum way {
	DRIVER,	   /* it is the driver's */
	REFUSED,   /* it spans more than one allocation */
	TO_DEVICE, /* it is gBPF's */
	NOTED,	   /* the driver's, and noted once it has succeeded */
};

static enum way way_of(const struct request *q)
{
	struct shim_managed_range g;

	if (!shim_managed_any() ||
	    (shim_capture_any() && shim_capture_has(q->stream, q->per_thread))) {
		return DRIVER;
	}
	lock_take(&shim_swap_mutex);
	g = shim_managed_find(q->p, q->bytes);
	lock_release(&shim_swap_mutex);
	if (g.spans) {
		return REFUSED;
	}
	if (!g.region) {
		return DRIVER;
	}
	return is_device(&q->to) ? TO_DEVICE : is_host(&q->to) ? NOTED : DRIVER;
}

static CUresult prefetch_v2(const struct request *q)
{
	return q->per_thread ? shim_driver.cuMemPrefetchAsync_v2_ptsz(q->p, q->bytes, q->to,
								      q->flags, q->stream)
			     : shim_driver.cuMemPrefetchAsync_v2(q->p, q->bytes, q->to, q->flags,
								 q->stream);
}

/* Returns true if the driver is to be asked by the program's own call. */
static bool is_drivers(const struct request *q, CUresult *ret)
{
	switch (way_of(q)) {
	case DRIVER:
		return true;
	case REFUSED:
		*ret = CUDA_ERROR_INVALID_VALUE;
		break;
	case TO_DEVICE:
		*ret = to_device(q);
		break;
	case NOTED:
		*ret = prefetch_v2(q);
		*ret = *ret == CUDA_SUCCESS ? note_prefetch(q) : *ret;
	}
	return false;
}

static CUresult prefetch(CUdeviceptr p, size_t bytes, CUdevice device, CUstream stream)
{
	const struct request q = { p, bytes, location_of(device), 0, stream, false };
	CUresult r;

	return is_drivers(&q, &r) ? shim_driver.cuMemPrefetchAsync(p, bytes, device, stream) : r;
}

static CUresult prefetch_ptsz(CUdeviceptr p, size_t bytes, CUdevice device, CUstream stream)
{
	const struct request q = { p, bytes, location_of(device), 0, stream, true };
	CUresult r;

	return is_drivers(&q, &r) ? shim_driver.cuMemPrefetchAsync_ptsz(p, bytes, device, stream)
				  : r;
}

static CUresult prefetch_to(CUdeviceptr p, size_t bytes, CUmemLocation to, unsigned flags,
			    CUstream stream)
{
	const struct request q = { p, bytes, to, flags, stream, false };
	CUresult r;

	return is_drivers(&q, &r) ? prefetch_v2(&q) : r;
}

static CUresult prefetch_to_ptsz(CUdeviceptr p, size_t bytes, CUmemLocation to, unsigned flags,
				 CUstream stream)
{
	const struct request q = { p, bytes, to, flags, stream, true };
	CUresult r;

	return is_drivers(&q, &r) ? prefetch_v2(&q) : r;
}

/* Several prefetches: range i goes to the location of the last index in first[] that is at most i.
 */
struct batch {
	CUdeviceptr *p;
	size_t *bytes, count;
	CUmemLocation *to;
	size_t *first, n;
	unsigned long long flags;
	CUstream stream;
	bool per_thread;
};

/* Returns true if the driver is to have all of it: it is none of such memory's, or invalid. */
static bool is_whole(const struct batch *b)
{
	bool any = false;

	if (!shim_managed_any() || !b->p || !b->bytes || !b->count || !b->to || !b->first ||
	    !b->n || b->n > b->count || b->first[0] || b->flags ||
	    (shim_capture_any() && shim_capture_has(b->stream, b->per_thread))) {
		return true;
	}
	lock_take(&shim_swap_mutex);
	for (size_t i = 0; i < b->count && !any; i++) {
		struct shim_managed_range g = shim_managed_find(b->p[i], b->bytes[i]);

		any = g.region || g.spans;
	}
	lock_release(&shim_swap_mutex);
	return !any;
}

static CUresult prefetch_each(const struct batch *b)
{
	CUresult r = CUDA_SUCCESS;
	size_t k = 0;

	for (size_t i = 0; i < b->count && r == CUDA_SUCCESS; i++) {
		k += k + 1 < b->n && b->first[k + 1] == i;
		r = b->per_thread ? prefetch_to_ptsz(b->p[i], b->bytes[i], b->to[k], 0, b->stream)
				  : prefetch_to(b->p[i], b->bytes[i], b->to[k], 0, b->stream);
	}
	return r;
}

#define BATCH_PARAMS                                                                               \
	CUdeviceptr *p, size_t *bytes, size_t count, CUmemLocation *to, size_t *first, size_t n,   \
		unsigned long long flags, CUstream stream

static CUresult prefetch_batch(BATCH_PARAMS)
{
	const struct batch b = { p, bytes, count, to, first, n, flags, stream, false };

	return is_whole(&b) ? shim_driver.cuMemPrefetchBatchAsync(p, bytes, count, to, first, n,
								  flags, stream)
			    : prefetch_each(&b);
}

static CUresult prefetch_batch_ptsz(BATCH_PARAMS)
{
	const struct batch b = { p, bytes, count, to, first, n, flags, stream, true };

	return is_whole(&b) ? shim_driver.cuMemPrefetchBatchAsync_ptsz(p, bytes, count, to, first,
								       n, flags, stream)
			    : prefetch_each(&b);
}

static CUresult discard_batch(BATCH_PARAMS)
{
	const struct batch b = { p, bytes, count, to, first, n, flags, stream, false };
	CUresult r;

	if (is_whole(&b)) {
		return shim_driver.cuMemDiscardAndPrefetchBatchAsync(p, bytes, count, to, first, n,
								     flags, stream);
	}
	r = shim_driver.cuMemDiscardBatchAsync(p, bytes, count, 0, stream);
	return r == CUDA_SUCCESS ? prefetch_each(&b) : r;
}

static CUresult discard_batch_ptsz(BATCH_PARAMS)
{
	const struct batch b = { p, bytes, count, to, first, n, flags, stream, true };
	CUresult r;

	if (is_whole(&b)) {
		return shim_driver.cuMemDiscardAndPrefetchBatchAsync_ptsz(p, bytes, count, to,
									  first, n, flags, stream);
	}
	r = shim_driver.cuMemDiscardBatchAsync_ptsz(p, bytes, count, 0, stream);
	return r == CUDA_SUCCESS ? prefetch_each(&b) : r;
}

/* ---- advice ---- */

/* Describes advice. Returns false if it is invalid, which the driver says. */
static bool change_of(CUmem_advise what, CUmemLocation where, struct mem_advice_change *ret)
{
	bool set = what == CU_MEM_ADVISE_SET_READ_MOSTLY || what == CU_MEM_ADVISE_SET_ACCESSED_BY;

	*ret = (struct mem_advice_change){ .set = set };
	switch (what) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		ret->kind = MEM_ADVICE_READ_MOSTLY;
		return true;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		ret->kind = MEM_ADVICE_PREFERRED;
		ret->location = (struct mem_location){ (int)where.type, where.id };
		return is_host(&where) || is_device(&where);
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		ret->kind = MEM_ADVICE_PREFERRED;
		return true;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		ret->kind = MEM_ADVICE_ACCESSED_BY;
		ret->by = is_device(&where) ? UINT64_C(2) << where.id : 1;
		return is_host(&where) || is_device(&where);
	default:
		return false;
	}
}

static CUresult advise_to(CUdeviceptr p, size_t bytes, CUmem_advise what, CUmemLocation where)
{
	struct mem_advice_change c;
	struct shim_managed_range g;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	if (!shim_managed_any() || !change_of(what, where, &c)) {
		return shim_driver.cuMemAdvise_v2(p, bytes, what, where);
	}
	lock_take(&shim_swap_mutex);
	g = shim_managed_find(p, bytes);
	if (g.region && !g.spans) {
		r = shim_managed_advise(&g, what, where);
		r = r == CUDA_SUCCESS ? note(&g, &c) : r;
	}
	lock_release(&shim_swap_mutex);
	return g.region || g.spans ? r : shim_driver.cuMemAdvise_v2(p, bytes, what, where);
}

static CUresult advise(CUdeviceptr p, size_t bytes, CUmem_advise what, CUdevice device)
{
	struct shim_managed_range g = { 0 };

	if (shim_managed_any()) {
		lock_take(&shim_swap_mutex);
		g = shim_managed_find(p, bytes);
		lock_release(&shim_swap_mutex);
	}
	return g.region || g.spans ? advise_to(p, bytes, what, location_of(device))
				   : shim_driver.cuMemAdvise(p, bytes, what, device);
}

/* ---- questions ---- */

static CUresult give(void *out, size_t size, int value)
{
	if (size != sizeof(value)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(out, &value, sizeof(value));
	return CUDA_SUCCESS;
}

static CUresult give_accessed(int *out, size_t size, uint64_t by)
{
	size_t n = 0, room = size / sizeof(*out);

	if (!size || size % sizeof(*out)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (int i = 0; i < 64 && n < room; i++) {
		if (by >> i & 1) {
			out[n++] = i - 1;
		}
	}
	while (n < room) {
		out[n++] = NOWHERE;
	}
	return CUDA_SUCCESS;
}

/* Returns CUDA's number of a location. */
static int device_of(struct mem_location l)
{
	return !l.type ? NOWHERE : l.type == CU_MEM_LOCATION_TYPE_DEVICE ? l.id : HOST_ID;
}

/* Returns CUDA_ERROR_NOT_SUPPORTED if the driver has to answer. */
static CUresult answer(void *out, size_t size, CUmem_range_attribute what,
		       const struct mem_advice *a)
{
	switch (what) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		return give(out, size, a->read_mostly);
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		return give(out, size, device_of(a->preferred));
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		return give_accessed(out, size, a->accessed_by);
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		return give(out, size, device_of(a->prefetched));
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		return give(out, size, a->preferred.type);
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		return give(out, size, MAX(a->preferred.id, 0));
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		return give(out, size, a->prefetched.type);
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		return give(out, size, MAX(a->prefetched.id, 0));
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult get_attribute(void *out, size_t size, CUmem_range_attribute what, CUdeviceptr p,
			      size_t bytes)
{
	CUresult r = CUDA_ERROR_NOT_SUPPORTED;
	struct shim_managed_range g;

	if (out && shim_managed_any()) {
		lock_take(&shim_swap_mutex);
		g = shim_managed_find(p, bytes);
		if (g.spans) {
			r = CUDA_ERROR_INVALID_VALUE;
		} else if (g.region) {
			struct mem_advice a = mem_advice_of(g.region->advice, g.begin, g.end);

			r = answer(out, size, what, &a);
		}
		lock_release(&shim_swap_mutex);
	}
	return r != CUDA_ERROR_NOT_SUPPORTED
		       ? r
		       : shim_driver.cuMemRangeGetAttribute(out, size, what, p, bytes);
}

static CUresult get_attributes(void **out, size_t *sizes, CUmem_range_attribute *what, size_t n,
			       CUdeviceptr p, size_t bytes)
{
	CUresult r = CUDA_SUCCESS;

	if (!shim_managed_any() || !out || !sizes || !what || !n) {
		return shim_driver.cuMemRangeGetAttributes(out, sizes, what, n, p, bytes);
	}
	for (size_t i = 0; i < n && r == CUDA_SUCCESS; i++) {
		r = get_attribute(out[i], sizes[i], what[i], p, bytes);
	}
	return r;
}

void shim_managed_install_calls(void)
{
	shim_real.cuMemPrefetchAsync = prefetch;
	shim_real.cuMemPrefetchAsync_ptsz = prefetch_ptsz;
	shim_real.cuMemPrefetchAsync_v2 = prefetch_to;
	shim_real.cuMemPrefetchAsync_v2_ptsz = prefetch_to_ptsz;
	shim_real.cuMemPrefetchBatchAsync = prefetch_batch;
	shim_real.cuMemPrefetchBatchAsync_ptsz = prefetch_batch_ptsz;
	shim_real.cuMemDiscardAndPrefetchBatchAsync = discard_batch;
	shim_real.cuMemDiscardAndPrefetchBatchAsync_ptsz = discard_batch_ptsz;
	shim_real.cuMemAdvise = advise;
	shim_real.cuMemAdvise_v2 = advise_to;
	shim_real.cuMemRangeGetAttribute = get_attribute;
	shim_real.cuMemRangeGetAttributes = get_attributes;
}

/* Arrays and mipmapped arrays, whose layout is the driver's own (14 MiB of data took 22 on an H200;
 * cuArrayGetMemoryRequirements refuses ordinary arrays). Charged are at first the bytes of the
 * data, then what the device's free memory has decreased by, if that is plausible: another program
 * or thread may have allocated at the same time. A decrease of which the process's own figure shows
 * nothing is another process's. The size of arrays of the same descriptor is learned from that
 * (mem/layout.h); once it is known, it is charged, also for those that live already. */
#include "base/strmap.h"
#include "mem/layout.h"
#include "mem/region.h"
#include "shim/mem/charge.h"
#include "shim/mem/overhead.h"
#include "shim/shim.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct mem_regions arrays;  /* by handle; owner: context; count: number of the shape */
static struct mem_layouts layouts; /* guarded by mutex */
static pthread_mutex_t measuring =
	PTHREAD_MUTEX_INITIALIZER; /* held from one figure to the other */

/* Bytes of a channel. Formats that are not known have at most 4. */
static uint64_t channel_bytes(CUarray_format format)
{
	switch ((unsigned)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	default:
		return 4;
	}
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

/* Returns the bytes of the levels of an array; layers and faces do not shrink. */
static uint64_t data_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	bool flat = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t element = channel_bytes(d->Format) * MAX(d->NumChannels, 1u), sum = 0, bytes;

	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) {
		return 0; /* has no memory of its own */
	}
	for (unsigned i = 0; i < MIN(MAX(levels, 1u), 64u); i++) {
		bytes = times(element, MAX(d->Width >> i, 1u));
		bytes = times(bytes, MAX(d->Height >> i, 1u));
		bytes = times(bytes, MAX(flat ? d->Depth : d->Depth >> i, 1u));
		sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
	}
	return sum;
}

static uint64_t device_free(void)
{
	size_t available = 0, total;

	return shim_driver.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS ? available : 0;
}

/* An array in the making. */
struct making {
	int row;
	uint32_t shape; /* of its descriptor on that device, at least 1 */
	uint64_t data, charged, before, epoch;
};

/* Returns the number of a shape; different ones have the same number rarely. */
static uint32_t shape_of(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels, int row)
{
	const uint64_t words[] = { d->Width,	   d->Height, d->Depth, (uint64_t)d->Format,
				   d->NumChannels, d->Flags,  levels,	(uint64_t)row };
	uint32_t shape = (uint32_t)hash_bytes(words, sizeof(words));

	return shape ? shape : 1;
}

/* Returns what the driver is known to take, or the data; not less than that. */
static uint64_t expected(const struct making *m)
{
	uint64_t known;

	pthread_mutex_lock(&mutex);
	known = mem_layout_known(&layouts, m->shape);
	pthread_mutex_unlock(&mutex);
	return MAX(known, m->data);
}

/* Lowers the charges of live arrays of a shape to what they take. Caller holds the mutex. */
static void correct_live(const struct making *m, uint64_t bytes)
{
	for (size_t i = 0; i < arrays.size; i++) {
		struct mem_region *a = &arrays.slot[i];

		if (a->count == m->shape && a->row == (uint32_t)m->row && a->bytes > bytes) {
			shim_mem_release(m->row, a->bytes - bytes);
			a->bytes = bytes;
		}
	}
}

/* Returns what is to be charged for an array during whose making the free memory decreased so. */
static uint64_t learn(const struct making *m, uint64_t took)
{
	bool plausible = took > m->data && took <= 2 * m->data + 2 * SHIM_MEM_UNIT;
	uint64_t known;

	took = plausible ? took : m->data;
	pthread_mutex_lock(&mutex);
	if (mem_layout_note(&layouts, m->shape, took)) {
		correct_live(m, took);
	}
	known = mem_layout_known(&layouts, m->shape);
	pthread_mutex_unlock(&mutex);
	return known ? MAX(known, m->data) : took; /* another shape may have the same number */
}

/* Charges an array before the driver is asked, and takes the mutex of measurements. Returns false
 * if it exceeds the limit. */
static bool begin(struct making *m, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	m->row = shim_mem_row_current();
	m->data = m->row >= 0 ? shim_mem_round(data_bytes(d, levels)) : 0;
	m->charged = 0;
	if (m->data) {
		m->shape = shape_of(d, levels, m->row);
		m->charged = expected(m);
		shim_mem_move_begin();
		if (!shim_mem_charge(m->row, m->charged, "cuArrayCreate")) {
			shim_mem_move_end();
			return false;
		}
		pthread_mutex_lock(&measuring);
		m->before = device_free();
		m->epoch = shim_mem_epoch();
	}
	return true;
}

/* Notes an array that the driver has made. Returns false if it must be destroyed again, and
 * m->charged released. */
static bool note(struct making *m, uint64_t handle, uint64_t after)
{
	struct mem_region a = { .key = handle, .row = (uint32_t)m->row, .count = m->shape }, stale;
	uint64_t took = m->before > after ? m->before - after : 0;
	CUcontext ctx = NULL;
	CUdevice device;
	int err;

	if (took > m->charged && shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	    shim_mem_is_explained(device, m->row)) {
		took = m->charged;
	}
	took = learn(m, took);
	if (!shim_mem_recharge(m->row, m->charged, took, "cuArrayCreate")) {
		return false;
	}
	m->charged = took;
	(void)shim_driver.cuCtxGetCurrent(&ctx);
	a.bytes = m->charged;
	a.owner = (uint64_t)(uintptr_t)ctx;
	a.epoch = m->epoch;
	pthread_mutex_lock(&mutex);
	/* The handle may be that of an array whose context is being destroyed. */
	if (mem_regions_take(&arrays, handle, &stale)) {
		shim_mem_release((int)stale.row, stale.bytes);
	}
	err = mem_regions_add(&arrays, &a);
	pthread_mutex_unlock(&mutex);
	return !err;
}

/* An array of either kind. */
static CUresult destroy_real(uint64_t handle, bool is_mipmapped)
{
	return is_mipmapped
		       ? shim_driver.cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)handle)
		       : shim_driver.cuArrayDestroy((CUarray)(uintptr_t)handle);
}

/* Completes an array: r is the driver's answer for it. */
static CUresult complete(struct making *m, CUresult r, uint64_t handle, bool is_mipmapped)
{
	uint64_t after;

	if (!m->charged) {
		return r;
	}
	after = device_free();
	pthread_mutex_unlock(&measuring);
	if (r == CUDA_SUCCESS && !note(m, handle, after)) {
		(void)destroy_real(handle, is_mipmapped);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r != CUDA_SUCCESS) {
		shim_mem_release(m->row, m->charged);
	}
	shim_mem_move_end();
	return r;
}

/* An array as the program has asked for it. */
struct request {
	CUarray *array;
	CUmipmappedArray *mipmapped;	   /* NULL: not such an array */
	const CUDA_ARRAY_DESCRIPTOR *flat; /* NULL: it was described by `d` */
	const CUDA_ARRAY3D_DESCRIPTOR *d;
	unsigned levels;
};

static CUresult run(const struct request *q)
{
	if (q->mipmapped) {
		return shim_driver.cuMipmappedArrayCreate(q->mipmapped, q->d, q->levels);
	}
	return q->flat ? shim_driver.cuArrayCreate_v2(q->array, q->flat)
		       : shim_driver.cuArray3DCreate_v2(q->array, q->d);
}

static CUresult make_once(const struct request *q, struct making *m, struct shim_mem_attempt *a)
{
	uint64_t handle = 0;
	CUresult r;

	if (!begin(m, q->d, q->levels)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r = run(q);
	if (r == CUDA_SUCCESS) {
		handle = (uint64_t)(q->mipmapped ? (uintptr_t)*q->mipmapped : (uintptr_t)*q->array);
	}
	a->charged = m->charged && r != CUDA_SUCCESS;
	return complete(m, r, handle, q->mipmapped != NULL);
}

static CUresult make(const struct request *q)
{
	struct shim_mem_attempt a = { 0 };
	struct making m;
	CUresult r;

	do {
		r = make_once(q, &m, &a);
	} while (shim_mem_again(&a, m.row, m.charged, r, "cuArrayCreate"));
	return r;
}

static CUresult create_3d(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return ret && d ? make(&(struct request){ .array = ret, .d = d, .levels = 1 })
			: shim_driver.cuArray3DCreate_v2(ret, d);
}

static CUresult create(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR of = { 0 };

	if (!ret || !d) {
		return shim_driver.cuArrayCreate_v2(ret, d);
	}
	of.Width = d->Width;
	of.Height = d->Height;
	of.Format = d->Format;
	of.NumChannels = d->NumChannels;
	return make(&(struct request){ .array = ret, .flat = d, .d = &of, .levels = 1 });
}

static CUresult create_mipmapped(CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d,
				 unsigned levels)
{
	return ret && d ? make(&(struct request){ .mipmapped = ret, .d = d, .levels = levels })
			: shim_driver.cuMipmappedArrayCreate(ret, d, levels);
}

/* The entry goes first: another thread may get the same handle. */
static bool forget(uint64_t handle, struct mem_region *ret)
{
	bool known;

	if (!shim_mem_joined()) {
		return false;
	}
	pthread_mutex_lock(&mutex);
	known = mem_regions_take(&arrays, handle, ret);
	pthread_mutex_unlock(&mutex);
	return known;
}

static CUresult destroyed(CUresult r, bool known, const struct mem_region *a)
{
	if (known && r == CUDA_SUCCESS) {
		shim_mem_release((int)a->row, a->bytes);
	} else if (known) {
		pthread_mutex_lock(&mutex);
		(void)mem_regions_add(&arrays, a); /* else it stays charged */
		pthread_mutex_unlock(&mutex);
	}
	return r;
}

static CUresult destroy_any(uint64_t handle, bool is_mipmapped)
{
	struct mem_region a;
	bool known;
	CUresult r;

	shim_mem_move_begin();
	known = forget(handle, &a);
	r = destroyed(destroy_real(handle, is_mipmapped), known, &a);
	shim_mem_move_end();
	return r;
}

static CUresult destroy(CUarray array)
{
	return destroy_any((uint64_t)(uintptr_t)array, false);
}

static CUresult destroy_mipmapped(CUmipmappedArray array)
{
	return destroy_any((uint64_t)(uintptr_t)array, true);
}

/* The calls of CUDA 2 and 3.1, with sizes of 32 bits. */
static CUresult create_v1(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	(void)ret;
	(void)d;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult create_3d_v1(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	(void)ret;
	(void)d;
	return CUDA_ERROR_NOT_SUPPORTED;
}

void shim_mem_arrays_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_region a;
	size_t cursor = 0;

	pthread_mutex_lock(&mutex);
	while (mem_regions_take_owned(&arrays, (uint64_t)(uintptr_t)ctx, epoch, &cursor, &a)) {
		shim_mem_release((int)a.row, a.bytes);
	}
	pthread_mutex_unlock(&mutex);
}

void shim_mem_install_arrays(void)
{
	shim_real.cuArrayCreate_v2 = create;
	shim_real.cuArray3DCreate_v2 = create_3d;
	shim_real.cuMipmappedArrayCreate = create_mipmapped;
	shim_real.cuArrayDestroy = destroy;
	shim_real.cuMipmappedArrayDestroy = destroy_mipmapped;
	shim_real.cuArrayCreate = create_v1;
	shim_real.cuArray3DCreate = create_3d_v1;
}

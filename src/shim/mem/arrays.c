/* Arrays and mipmapped arrays. Charged are at first the bytes of the layout that NVIDIA's devices
 * have (cuabi/array_layout.h; cuArrayGetMemoryRequirements refuses ordinary arrays), then what the
 * device's free memory has decreased by, if that is more and plausible: another program or thread
 * may have allocated at the same time. A decrease of which the process's own figure shows nothing
 * is another process's. The size of arrays of the same descriptor is learned from that
 * (mem/layout.h); once it is known, it is charged, also for those that live already. Arrays up to 1
 * MiB are not measured: the driver packs those of a context into units, which are charged. */
#include "base/strmap.h"
#include "cuabi/array_layout.h"
#include "mem/layout.h"
#include "mem/region.h"
#include "shim/mem/charge.h"
#include "shim/mem/overhead.h"
#include "shim/shim.h"

#define SMALL_BYTES (1u << 20)
#define SMALL UINT32_MAX /* as a shape: a small array */

static struct lock mutex = LOCK_INITIALIZER(MEM_ARRAYS);
/* By handle; owner: context; count: number of the shape. */
static struct mem_regions arrays GUARDED_BY(mutex);
static struct mem_layouts layouts GUARDED_BY(mutex);
/* Units of small arrays, by context and row. bytes: charged; owner: bytes taken, each array with
 * its part of what its unit cannot hold; count: arrays. */
static struct mem_regions units GUARDED_BY(mutex);
/* Held from one figure to the other. */
static struct lock measuring = LOCK_INITIALIZER(MEM_ARRAYS_MEASURING);

/* Formats that are not plain have at most 4 bytes a channel. */
static uint64_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	unsigned channels, bytes = cuabi_channel_bytes(d->Format, &channels);

	return (uint64_t)(bytes ? bytes : 4) * MAX(d->NumChannels, 1u);
}

/* Returns the bytes of the elements of an array, levels excepted; 0: it has no memory of its own.
 */
static uint64_t data_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	const uint64_t factors[] = { d->Width, MAX(d->Height, 1u), MAX(d->Depth, 1u) };
	uint64_t bytes = element_bytes(d);

	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) {
		return 0;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(factors); i++) {
		if (__builtin_mul_overflow(bytes, factors[i], &bytes)) {
			return UINT64_MAX;
		}
	}
	return bytes;
}

static uint64_t device_free(void)
{
	size_t available = 0, total;

	return shim_driver.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS ? available : 0;
}

/* An array in the making. */
struct making {
	int row;
	uint32_t shape;	 /* of its descriptor on that device, at least 1, or SMALL */
	uint64_t data;	 /* bytes of its elements, in units */
	uint64_t layout; /* bytes of the layout, in units */
	uint64_t charged, epoch;
	uint64_t ctx;
};

/* Returns the number of a shape; different ones have the same number rarely. */
static uint32_t shape_of(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels, int row)
{
	const uint64_t words[] = { d->Width,	   d->Height, d->Depth, (uint64_t)d->Format,
				   d->NumChannels, d->Flags,  levels,	(uint64_t)row };
	uint32_t shape = (uint32_t)hash_bytes(words, sizeof(words));

	return shape && shape != SMALL ? shape : 1;
}

/* Returns what the driver is known to take, or the layout; not less than the data. */
static uint64_t expected(const struct making *m)
{
	uint64_t known;

	lock_take(&mutex);
	known = mem_layout_known(&layouts, m->shape);
	lock_release(&mutex);
	return known ? MAX(known, m->data) : m->layout;
}

/* Releases bytes that live arrays are charged for. */
static void give_back(int row, uint64_t bytes)
{
	shim_mem_kind_sub(row, PROTO_KIND_ARRAY, bytes);
	shim_mem_release(row, bytes);
}

/* Lowers the charges of live arrays of a shape to what they take. */
static void correct_live(const struct making *m, uint64_t bytes) REQUIRES(mutex)
{
	for (size_t i = 0; i < arrays.size; i++) {
		struct mem_region *a = &arrays.slot[i];

		if (a->count == m->shape && a->row == (uint32_t)m->row && a->bytes > bytes) {
			give_back(m->row, a->bytes - bytes);
			a->bytes = bytes;
		}
	}
}

/* Returns what is to be charged for an array during whose making the free memory decreased so. */
static uint64_t learn(const struct making *m, uint64_t took)
{
	bool plausible = took >= m->data && took <= 2 * m->layout + 2 * SHIM_MEM_UNIT;
	uint64_t known;

	took = plausible ? took : m->layout;
	lock_take(&mutex);
	if (mem_layout_note(&layouts, m->shape, took)) {
		correct_live(m, took);
	}
	known = mem_layout_known(&layouts, m->shape);
	lock_release(&mutex);
	if (!known) { /* another program may have freed memory meanwhile */
		return MAX(took, m->layout);
	}
	return MAX(known, m->data); /* another shape may have the same number */
}

/* ---- small arrays ---- */

/* Returns what an array adds to the units: as many as fit into one of them take all of it. */
static uint64_t part_of_unit(uint64_t bytes)
{
	return SHIM_MEM_UNIT / (SHIM_MEM_UNIT / MAX(bytes, 1u));
}

/* Contexts do not share units. */
static uint64_t units_key(uint64_t ctx, int row)
{
	return ctx * PROTO_ACCOUNT_ROWS + (unsigned)row;
}

/* Adds a unit that is charged. Returns false if there is no host memory. */
static bool add_unit(const struct making *m) REQUIRES(mutex)
{
	uint64_t key = units_key(m->ctx, m->row);
	struct mem_region *u = mem_regions_find(&units, key);

	if (u) {
		u->bytes += SHIM_MEM_UNIT;
		u->owner += m->charged;
		u->count++;
	} else if (mem_regions_add(&units, &(struct mem_region){ .key = key,
								 .bytes = SHIM_MEM_UNIT,
								 .owner = m->charged,
								 .count = 1 })) {
		return false;
	}
	shim_mem_kind_add(m->row, PROTO_KIND_ARRAY, SHIM_MEM_UNIT);
	return true;
}

/* Enters a small array, if it fits into the units, or one more that can be charged at once: under
 * the mutex, or other threads were refused what fits into that one. Returns whether it does. *unit:
 * another one that is charged, which is used if need be, and then cleared. */
static bool enter_small(const struct making *m, bool *unit)
{
	struct mem_region *u;
	bool fits;

	lock_take(&mutex);
	u = mem_regions_find(&units, units_key(m->ctx, m->row));
	fits = u && u->owner + m->charged <= u->bytes;
	if (fits) {
		u->owner += m->charged;
		u->count++;
	} else if (*unit || shim_mem_try_charge(m->row, SHIM_MEM_UNIT)) {
		fits = add_unit(m);
		*unit = !fits;
	}
	lock_release(&mutex);
	return fits;
}

/* Charges a small array. While it waits for a unit other threads may destroy arrays, which makes
 * room in those that are charged. Returns false if it exceeds the limit. */
static bool charge_small(const struct making *m)
{
	bool unit = false, fits = enter_small(m, &unit);

	if (!fits) {
		unit = unit || shim_mem_charge(m->row, SHIM_MEM_UNIT, "cuArrayCreate");
		fits = enter_small(m, &unit);
	}
	if (unit) {
		shim_mem_release(m->row, SHIM_MEM_UNIT);
	}
	return fits;
}

/* The driver keeps a unit while there is an array in it, so each array that is left may keep one.
 */
static void release_small(const struct mem_region *a) REQUIRES(mutex)
{
	uint64_t key = units_key(a->owner, (int)a->row), needed;
	struct mem_region *u = mem_regions_find(&units, key), gone;

	if (!u) {
		return;
	}
	if (u->count == 1) {
		(void)mem_regions_take(&units, key, &gone);
		give_back((int)a->row, gone.bytes);
		return;
	}
	u->count--;
	u->owner -= a->bytes;
	needed = MIN(u->bytes, (uint64_t)u->count * SHIM_MEM_UNIT);
	give_back((int)a->row, u->bytes - needed);
	u->bytes = needed;
}

static void release(const struct mem_region *a) REQUIRES(mutex)
{
	if (a->count == SMALL) {
		release_small(a);
	} else {
		give_back((int)a->row, a->bytes);
	}
}

/* ---- making and destroying ---- */

static bool begin_small(struct making *m, uint64_t bytes)
{
	m->shape = SMALL;
	m->charged = part_of_unit(bytes);
	m->epoch = shim_mem_epoch();
	return charge_small(m);
}

static bool begin_large(struct making *m)
{
	m->charged = expected(m);
	if (!shim_mem_charge(m->row, m->charged, "cuArrayCreate")) {
		return false;
	}
	shim_mem_kind_add(m->row, PROTO_KIND_ARRAY, m->charged);
	return true;
}

/* Charges an array before the driver is asked. Returns false if it exceeds the limit. */
static bool begin(struct making *m, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	uint64_t data = data_bytes(d), bytes;
	CUcontext ctx = NULL;
	bool charged;

	*m = (struct making){ .row = data ? shim_mem_row_current() : -1 };
	if (m->row < 0) {
		return true;
	}
	(void)shim_driver.cuCtxGetCurrent(&ctx);
	m->ctx = (uint64_t)(uintptr_t)ctx;
	bytes = cuabi_array_bytes(d, element_bytes(d), levels);
	m->data = shim_mem_round(data);
	m->layout = shim_mem_round(bytes);
	m->shape = shape_of(d, levels, m->row);
	shim_mem_move_begin();
	charged = bytes <= SMALL_BYTES ? begin_small(m, bytes) : begin_large(m);
	if (!charged) {
		shim_mem_move_end();
	}
	return charged;
}

/* Corrects the charge of a large array to what the driver has taken, as free memory shows. Returns
 * false if that exceeds the limit. */
static bool correct(struct making *m, uint64_t took)
{
	CUdevice device;

	if (took > m->charged && shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	    shim_mem_is_explained(device, m->row)) {
		took = m->charged;
	}
	took = learn(m, took);
	if (took <= m->charged) {
		give_back(m->row, m->charged - took);
	} else if (shim_mem_recharge(m->row, m->charged, took, "cuArrayCreate")) {
		shim_mem_kind_add(m->row, PROTO_KIND_ARRAY, took - m->charged);
	} else {
		return false;
	}
	m->charged = took;
	return true;
}

/* Notes an array that the driver has made. Returns false if there is no host memory for it. */
static bool note(const struct making *m, uint64_t handle)
{
	struct mem_region a = { .key = handle,
				.row = (uint32_t)m->row,
				.count = m->shape,
				.bytes = m->charged,
				.owner = m->ctx,
				.epoch = m->epoch },
			  stale;
	int err;

	lock_take(&mutex);
	/* The handle may be that of an array whose context is being destroyed. */
	if (mem_regions_take(&arrays, handle, &stale)) {
		release(&stale);
	}
	err = mem_regions_add(&arrays, &a);
	lock_release(&mutex);
	return !err;
}

/* Releases the charge of an array that was not made. */
static void take_back(const struct making *m)
{
	const struct mem_region a = {
		.row = (uint32_t)m->row, .count = m->shape, .owner = m->ctx, .bytes = m->charged
	};

	lock_take(&mutex);
	release(&a);
	lock_release(&mutex);
}

/* An array of either kind. */
static CUresult destroy_real(uint64_t handle, bool is_mipmapped)
{
	return is_mipmapped
		       ? shim_driver.cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)handle)
		       : shim_driver.cuArrayDestroy((CUarray)(uintptr_t)handle);
}

/* Completes an array that is charged: r is the driver's answer for it, by whose making free memory
 * has decreased by `took`, if it is a large one. */
static CUresult complete(struct making *m, CUresult r, uint64_t handle, bool is_mipmapped,
			 uint64_t took)
{
	if (r == CUDA_SUCCESS && !((m->shape == SMALL || correct(m, took)) && note(m, handle))) {
		(void)destroy_real(handle, is_mipmapped);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r != CUDA_SUCCESS) {
		take_back(m);
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

/* Makes a large array. *ret_took: what free memory has decreased by. */
static CUresult run_measured(const struct request *q, struct making *m, uint64_t *ret_took)
{
	uint64_t before, after;
	CUresult r;

	lock_take(&measuring);
	before = device_free();
	m->epoch = shim_mem_epoch();
	r = run(q);
	after = device_free();
	lock_release(&measuring);
	*ret_took = before > after ? before - after : 0;
	return r;
}

static CUresult make_once(const struct request *q, struct making *m, struct shim_mem_attempt *a)
{
	uint64_t handle = 0, took = 0;
	CUresult r;

	if (!begin(m, q->d, q->levels)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r = m->charged && m->shape != SMALL ? run_measured(q, m, &took) : run(q);
	if (r == CUDA_SUCCESS) {
		handle = (uint64_t)(q->mipmapped ? (uintptr_t)*q->mipmapped : (uintptr_t)*q->array);
	}
	a->charged = m->charged && r != CUDA_SUCCESS;
	return m->charged ? complete(m, r, handle, q->mipmapped != NULL, took) : r;
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
	lock_take(&mutex);
	known = mem_regions_take(&arrays, handle, ret);
	lock_release(&mutex);
	return known;
}

static CUresult destroyed(CUresult r, bool known, const struct mem_region *a)
{
	if (known) {
		lock_take(&mutex);
		if (r == CUDA_SUCCESS) {
			release(a);
		} else {
			(void)mem_regions_add(&arrays, a); /* else it stays charged */
		}
		lock_release(&mutex);
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

	lock_take(&mutex);
	while (mem_regions_take_owned(&arrays, (uint64_t)(uintptr_t)ctx, epoch, &cursor, &a)) {
		release(&a);
	}
	lock_release(&mutex);
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

/* Records of libraries, of contexts, and of which is in which (shim/mem/libraries.h).
 *
 * One mutex guards all of them. It is held while a library is loaded, from the first charge until
 * its record is in the list, and while a context's record is added with its libraries. Of a library
 * and a context that are made at the same time, the one that comes second finds the other one, so
 * each pair is charged once. A library is taken off the list, and a context marked, before the
 * driver ends it: the driver is never asked to place one in the other after that, since it is asked
 * with the mutex held.
 *
 * The mutex comes after that of a measurement (overhead_event.h) and before those of pools and
 * graphs, which a charge locks. */
#include "shim/mem/libraries.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "gpu/ptx_rule.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/image_charge.h"
#include "shim/mem/image_data.h"
#include "shim/mem/overhead_event.h"
#include "shim/object/driver_device.h"
#include "shim/shim.h"

#define LIBRARY_MIN ((uint64_t)1 << 20) /* bytes of variables, from which they are charged */

struct shim_mem_library {
	struct shim_mem_library *next;
	CUlibrary handle;
	uint64_t bytes[PROTO_MAX_GPUS]; /* of its variables, by device */
};

struct context {
	CUcontext ctx;
	CUdevice device;
	uint64_t epoch;
	bool is_primary, ending;
};

/* A library in a context. */
struct place {
	const struct shim_mem_library *library;
	CUcontext ctx;
	CUdevice device;
	uint64_t epoch;
};

static struct lock mutex = LOCK_INITIALIZER(MEM_LIBRARIES);
static struct shim_mem_library *libraries GUARDED_BY(mutex); /* owned */
static struct context *contexts GUARDED_BY(mutex);	     /* owned */
static size_t n_contexts GUARDED_BY(mutex);
static struct place *places GUARDED_BY(mutex); /* owned */
static size_t n_places GUARDED_BY(mutex);
static TLS_FAST bool holds_mutex; /* a tool's callback in the driver may call these functions again:
				   * what it makes is measured */

static void lock(void) ACQUIRES(mutex)
{
	lock_take(&mutex);
	holds_mutex = true;
}

static void unlock(void) RELEASES(mutex)
{
	holds_mutex = false;
	lock_release(&mutex);
}

/* ---- records ---- */

/* Makes room for one more element of an array whose length is a number of elements. */
static bool grow(void *array, size_t n, size_t each)
{
	void *grown, *old;

	if (n & (n - 1)) {
		return true; /* its room is the next power of two */
	}
	memcpy(&old, array, sizeof(old));
	grown = realloc(old, MAX(2 * n, (size_t)1) * each);
	if (grown) {
		memcpy(array, &grown, sizeof(grown));
	}
	return grown != NULL;
}

static bool add_context(CUcontext ctx, CUdevice device, bool is_primary) REQUIRES(mutex)
{
	if (!grow(&contexts, n_contexts, sizeof(*contexts))) {
		return false;
	}
	contexts[n_contexts++] = (struct context){
		.ctx = ctx, .device = device, .epoch = shim_mem_epoch(), .is_primary = is_primary
	};
	return true;
}

static bool add_place(const struct shim_mem_library *l, CUcontext ctx, CUdevice device)
	REQUIRES(mutex)
{
	if (!grow(&places, n_places, sizeof(*places))) {
		return false;
	}
	places[n_places++] = (struct place){
		.library = l, .ctx = ctx, .device = device, .epoch = shim_mem_epoch()
	};
	return true;
}

/* Removes a place and releases its charge. */
static void drop_place(size_t i) REQUIRES(mutex)
{
	struct place p = places[i];

	places[i] = places[--n_places];
	shim_mem_image_release(shim_mem_row(p.device), p.library->bytes[p.device]);
}

static void drop_library_places(const struct shim_mem_library *l) REQUIRES(mutex)
{
	for (size_t i = n_places; i-- > 0;) {
		if (places[i].library == l) {
			drop_place(i);
		}
	}
}

static void drop_context(CUcontext ctx, uint64_t epoch) REQUIRES(mutex)
{
	for (size_t i = n_contexts; i-- > 0;) {
		if (contexts[i].ctx == ctx && contexts[i].epoch <= epoch) {
			contexts[i] = contexts[--n_contexts];
		}
	}
	for (size_t i = n_places; i-- > 0;) {
		if (places[i].ctx == ctx && places[i].epoch <= epoch) {
			drop_place(i);
		}
	}
}

static void unlink_library(const struct shim_mem_library *l) REQUIRES(mutex)
{
	struct shim_mem_library **at = &libraries;

	while (*at && *at != l) {
		at = &(*at)->next;
	}
	if (*at) {
		*at = l->next;
	}
}

/* ---- contexts ---- */

/* Returns a device's primary context, NULL if it has none. It is retained for a moment to get its
 * handle, but not while another thread releases it: that one is to see whether it has ended. */
static CUcontext primary_of(CUdevice device) REQUIRES(mutex)
{
	CUcontext ctx = NULL;
	unsigned flags;
	int active = 0;

	if (shim_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
	    !active) {
		return NULL;
	}
	for (size_t i = 0; i < n_contexts; i++) {
		if (contexts[i].is_primary && contexts[i].device == device && contexts[i].ending) {
			return contexts[i].ctx;
		}
	}
	if (shim_driver.cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS) {
		return NULL;
	}
	(void)shim_driver.cuDevicePrimaryCtxRelease_v2(device);
	return ctx;
}

/* Returns whether a context has a record. One that ends may have, too, when its handle is used
 * again. */
static bool is_known(CUcontext ctx, bool may_end) REQUIRES(mutex)
{
	for (size_t i = 0; i < n_contexts; i++) {
		if (contexts[i].ctx == ctx && (may_end || !contexts[i].ending)) {
			return true;
		}
	}
	return false;
}

static CUresult place_in(CUlibrary library, CUcontext ctx)
{
	CUstreamCaptureMode mode = shim_capture_exempt();
	CUresult r = shim_driver.cuCtxPushCurrent_v2(ctx);
	CUcontext popped;
	CUmodule m;

	if (r == CUDA_SUCCESS) {
		r = shim_driver.cuLibraryGetModule(&m, library);
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
	shim_capture_restore(mode);
	return r;
}

/* Places what is charged: a library in all contexts, or (library NULL) all libraries in a context.
 * One that has nothing for a device is not charged there. Returns false if the device is full. */
static bool place_all(const struct shim_mem_library *library, CUcontext ctx) REQUIRES(mutex)
{
	for (size_t i = n_places; i-- > 0;) {
		struct place p = places[i];
		CUresult r;

		if (library ? p.library != library : p.ctx != ctx) {
			continue;
		}
		r = place_in(p.library->handle, p.ctx);
		if (r == CUDA_ERROR_OUT_OF_MEMORY) {
			return false;
		}
		if (r != CUDA_SUCCESS) {
			drop_place(i);
		}
	}
	return true;
}

static uint64_t bytes_of_all(CUdevice device) REQUIRES(mutex)
{
	uint64_t sum = 0;

	for (const struct shim_mem_library *l = libraries; l; l = l->next) {
		sum = checked_add(sum, l->bytes[device], &sum) ? UINT64_MAX : sum;
	}
	return sum;
}

bool shim_mem_libraries_reserve(CUdevice device, const char *call, uint64_t *ret_reserved)
{
	int row = shim_mem_row(device);

	*ret_reserved = 0;
	if (row < 0 || holds_mutex) {
		return true;
	}
	lock();
	*ret_reserved = bytes_of_all(device);
	unlock();
	if (*ret_reserved && !shim_mem_image_charge(row, *ret_reserved, call, false, NULL)) {
		*ret_reserved = 0;
		return false;
	}
	return true;
}

/* Charges the libraries for a context, of which `reserved` bytes are charged already, and records
 * that. Returns false if it exceeds the limit; what is charged then is what was reserved. */
static bool charge_context(CUcontext ctx, CUdevice device, uint64_t reserved) REQUIRES(mutex)
{
	int row = shim_mem_row(device);
	uint64_t bytes = bytes_of_all(device);

	if (bytes > reserved &&
	    !shim_mem_image_charge(row, bytes - reserved, "cuCtxCreate", false, NULL)) {
		return false;
	}
	if (bytes < reserved) {
		shim_mem_image_release(row, reserved - bytes);
	}
	for (const struct shim_mem_library *l = libraries; l; l = l->next) {
		if (l->bytes[device] && !add_place(l, ctx, device)) {
			shim_mem_image_release(row, l->bytes[device]); /* measured */
		}
	}
	return true;
}

/* Adds and removes primary contexts that were made or have ended without a call of the program's,
 * such as the runtime's private ones. Charges of the libraries that do not fit are left out: these
 * are measured. */
static void look_for_primaries(void) REQUIRES(mutex)
{
	for (CUdevice d = 0; d < (int)PROTO_MAX_GPUS; d++) {
		CUcontext now = shim_mem_row(d) < 0 ? NULL : primary_of(d);

		for (size_t i = n_contexts; i-- > 0;) {
			struct context c = contexts[i];

			if (c.is_primary && c.device == d && c.ctx != now && !c.ending) {
				drop_context(c.ctx, c.epoch);
				i = MIN(i, n_contexts);
			}
		}
		if (now && !is_known(now, true) && add_context(now, d, true) &&
		    charge_context(now, d, 0)) {
			(void)place_all(NULL, now);
		}
	}
}

CUresult shim_mem_libraries_enter(CUcontext ctx, CUdevice device, bool is_primary,
				  uint64_t reserved, CUresult r)
{
	int row = shim_mem_row(device);

	if (row < 0 || holds_mutex) {
		return r;
	}
	if (r != CUDA_SUCCESS) {
		shim_mem_image_release(row, reserved);
		return r;
	}
	lock();
	if (is_known(ctx, false)) { /* another thread has retained it, too, or has found it */
		shim_mem_image_release(row, reserved);
	} else if (!add_context(ctx, device, is_primary) ||
		   !charge_context(ctx, device, reserved)) {
		shim_mem_image_release(row, reserved);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	} else if (!place_all(NULL, ctx)) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r != CUDA_SUCCESS) {
		drop_context(ctx, UINT64_MAX);
	}
	unlock();
	return r;
}

void shim_mem_libraries_context_ending(CUcontext ctx)
{
	if (holds_mutex) {
		return;
	}
	lock();
	for (size_t i = 0; i < n_contexts; i++) {
		contexts[i].ending = contexts[i].ending || contexts[i].ctx == ctx;
	}
	unlock();
}

void shim_mem_libraries_context_stays(CUcontext ctx)
{
	if (holds_mutex) {
		return;
	}
	lock();
	for (size_t i = 0; i < n_contexts; i++) {
		contexts[i].ending = contexts[i].ending && contexts[i].ctx != ctx;
	}
	unlock();
}

void shim_mem_libraries_context_ended(CUcontext ctx, uint64_t epoch)
{
	if (holds_mutex) {
		return;
	}
	lock();
	drop_context(ctx, epoch);
	unlock();
}

/* ---- libraries ---- */

/* Measures the library for each device that is charged: the image, or else the file. */
static struct shim_mem_library *measured(const void *image, const char *path, unsigned target)
{
	struct shim_mem_library *l = holds_mutex ? NULL : calloc(1, sizeof(*l));
	struct ptx_device device = { .rule = gpu_ptx_rule(&shim_driver), .target = target };
	unsigned arch_before = 0;
	uint64_t bytes = 0, most = 0;

	for (CUdevice d = 0; l && d < (int)PROTO_MAX_GPUS; d++) {
		if (shim_mem_row(d) < 0) {
			continue;
		}
		device.arch = shim_device_arch(d);
		if (device.arch != arch_before) {
			bytes = image ? shim_mem_image_bytes(image, 0, device)
				      : shim_mem_file_bytes(path, device);
			arch_before = device.arch;
		}
		l->bytes[d] = bytes;
		most = MAX(most, bytes);
	}
	if (most < LIBRARY_MIN) {
		free(l);
		return NULL;
	}
	return l;
}

struct shim_mem_library *shim_mem_library_of_data(const void *image, unsigned target)
{
	return image ? measured(image, NULL, target) : NULL;
}

struct shim_mem_library *shim_mem_library_of_file(const char *path, unsigned target)
{
	return path ? measured(NULL, path, target) : NULL;
}

/* Charges a library for a context and records that. */
static bool charge_library(const struct shim_mem_library *l, const struct context *c)
	REQUIRES(mutex)
{
	uint64_t bytes = l->bytes[c->device];
	int row = shim_mem_row(c->device);

	if (row < 0 || !bytes || c->ending) {
		return true;
	}
	if (!shim_mem_image_charge(row, bytes, "cuLibraryLoadData", false, NULL)) {
		return false;
	}
	if (!add_place(l, c->ctx, c->device)) {
		shim_mem_image_release(row, bytes);
		return false;
	}
	return true;
}

bool shim_mem_library_begin(struct shim_mem_library *l) ACQUIRES(mutex)
{
	lock();
	look_for_primaries();
	for (size_t i = 0; i < n_contexts; i++) {
		if (!charge_library(l, &contexts[i])) {
			return false;
		}
	}
	return true;
}

CUresult shim_mem_library_loaded(struct shim_mem_library *l, CUresult r, CUlibrary handle)
	RELEASES(mutex)
{
	l->handle = handle;
	if (r == CUDA_SUCCESS && !place_all(l, NULL)) {
		(void)shim_driver.cuLibraryUnload(handle);
		r = shim_mem_undone();
	}
	if (r == CUDA_SUCCESS) {
		l->next = libraries;
		libraries = l;
		unlock();
		return r;
	}
	drop_library_places(l);
	unlock();
	free(l);
	return r;
}

bool shim_mem_library_unload(CUlibrary handle, CUresult *ret)
{
	struct shim_mem_library *l;

	if (holds_mutex || !shim_mem_joined()) { /* in a child after fork the mutex may be held */
		return false;
	}
	lock();
	for (l = libraries; l && l->handle != handle; l = l->next) {
	}
	if (l) {
		unlink_library(l);
	}
	unlock();
	if (!l) {
		return false;
	}
	shim_mem_move_begin();
	*ret = shim_driver.cuLibraryUnload(handle);
	lock();
	if (*ret == CUDA_SUCCESS) {
		drop_library_places(l);
	} else {
		l->next = libraries;
		libraries = l;
	}
	unlock();
	shim_mem_move_end();
	if (*ret == CUDA_SUCCESS) {
		free(l);
	}
	return true;
}

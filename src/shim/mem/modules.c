/* Loading of modules and libraries in a vGPU. The variables of an image are charged before the
 * driver is called; what else the driver takes, code above all, is measured as overhead. Programs
 * that load many modules are measured for the first of them in a second, then by the thread, which
 * cannot undo a load: that bounds what measuring costs, and leaves only code to the thread. */

#include "base/clock.h"
#include "gpu/ptx_rule.h"
#include "mem/region.h"
#include "shim/mem/charge.h"
#include "shim/mem/image_charge.h"
#include "shim/mem/image_data.h"
#include "shim/mem/libraries.h"
#include "shim/mem/overhead.h"
#include "shim/mem/overhead_event.h"
#include "shim/object/driver_device.h"
#include "shim/shim.h"

#define TOKENS_MAX 32u /* measurements of modules in a row */
#define TOKENS_NS 1000000000u
#define MODULE_MAX ((uint64_t)512 << 20) /* upper bound of a difference beyond the variables */

static struct lock mutex = LOCK_INITIALIZER(MEM_MODULES);
/* By handle: those whose variables are charged. owner: the context. */
static struct mem_regions modules GUARDED_BY(mutex);

/* Bounds the measurements of programs that load many modules: the thread measures the others. */
static bool take_token(void)
{
	static uint64_t last_ns;	     /* [atomic] */
	static uint32_t tokens = TOKENS_MAX; /* [atomic] */
	uint64_t now = clock_now_ns(), last = load_relaxed(&last_ns);
	uint32_t n;

	if (now - last > TOKENS_NS && cas_acqrel(&last_ns, &last, now)) {
		store_release(&tokens, TOKENS_MAX);
	}
	n = load_acquire(&tokens);
	while (n && !cas_acqrel(&tokens, &n, n - 1)) {
	}
	return n != 0;
}

static void begin_event(struct shim_mem_event *e)
{
	if (take_token()) {
		shim_mem_event_begin_current(e);
	} else {
		*e = (struct shim_mem_event){ .row = -1 };
		shim_mem_overhead_changed();
	}
}

/* ---- modules ---- */

/* A module that is being loaded. */
struct loading {
	struct shim_mem_event event;
	struct shim_mem_attempt attempt;
	CUcontext ctx;
	int row;	/* negative: no variables are charged */
	uint64_t bytes; /* that its variables take */
	uint64_t epoch;
	bool begun;
};

/* Returns the current context's device; with architecture 0: there is none that is charged. target:
 * CU_JIT_TARGET, or 0. */
static struct ptx_device prepare(struct loading *l, unsigned target)
{
	struct ptx_device d = { .rule = gpu_ptx_rule(&shim_driver), .target = target };
	CUdevice device;

	*l = (struct loading){ .row = -1 };
	if (shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
		l->row = shim_mem_row(device);
	}
	d.arch = l->row < 0 ? 0 : shim_device_arch(device);
	return d;
}

static void prepare_data(struct loading *l, const void *image, unsigned target)
{
	struct ptx_device d = prepare(l, target);

	l->bytes = d.arch ? shim_mem_image_bytes(image, 0, d) : 0;
}

static void prepare_file(struct loading *l, const char *path)
{
	struct ptx_device d = prepare(l, 0);

	l->bytes = d.arch ? shim_mem_file_bytes(path, d) : 0;
}

/* Charges the module's variables. Returns false if they exceed the limit: the driver is not called.
 * loaded() follows in any case. */
static bool begin(struct loading *l)
{
	uint64_t charged = 0;

	l->begun = true;
	if (l->bytes) {
		shim_mem_move_begin();
		l->begun = shim_mem_image_charge(l->row, l->bytes, "cuModuleLoad", true, &charged);
		l->attempt.charged = l->begun;
		l->epoch = shim_mem_epoch();
		(void)shim_driver.cuCtxGetCurrent(&l->ctx);
	}
	if (l->begun) {
		begin_event(&l->event);
		l->event.known = charged;
	}
	return l->begun;
}

/* Returns what the variables are charged for with an entry that is left at the handle: its context
 * has ended, and shim_mem_modules_context_ended() comes later. */
static void drop_stale(CUmodule module) REQUIRES(mutex)
{
	struct mem_region stale;

	if (mem_regions_take(&modules, (uint64_t)(uintptr_t)module, &stale)) {
		shim_mem_image_release((int)stale.row, stale.bytes);
	}
}

static bool note(const struct loading *l, CUmodule module)
{
	struct mem_region r = { .key = (uint64_t)(uintptr_t)module,
				.bytes = l->bytes,
				.owner = (uint64_t)(uintptr_t)l->ctx,
				.epoch = l->epoch,
				.row = (uint32_t)l->row,
				.count = 1 };
	int err;

	lock_take(&mutex);
	drop_stale(module);
	err = mem_regions_add(&modules, &r);
	lock_release(&mutex);
	return err == 0;
}

/* Completes a load whose result is r. Returns true if it shall be tried again. */
static bool loaded(struct loading *l, CUresult *r, const CUmodule *ret)
{
	bool fits;

	if (l->begun) {
		fits = shim_mem_event_end(&l->event, *r, MODULE_MAX, "cuModuleLoad");
		if (*r == CUDA_SUCCESS && (!fits || (l->bytes && !note(l, *ret)))) {
			(void)shim_driver.cuModuleUnload(*ret);
			*r = shim_mem_undone();
			l->attempt.charged = false; /* it is the limit that has no room */
		}
		if (l->bytes && *r != CUDA_SUCCESS) {
			shim_mem_image_release(l->row, l->bytes);
		}
		shim_mem_event_finish(&l->event);
	}
	if (l->bytes) {
		shim_mem_move_end();
	}
	return l->bytes && shim_mem_again(&l->attempt, l->row, l->bytes, *r, "cuModuleLoad");
}

static CUresult load_file(CUmodule *ret, const char *path)
{
	struct loading l;
	CUresult r;

	prepare_file(&l, path);
	do {
		r = begin(&l) ? shim_driver.cuModuleLoad(ret, path) : CUDA_ERROR_OUT_OF_MEMORY;
	} while (loaded(&l, &r, ret));
	return r;
}

static CUresult load_data(CUmodule *ret, const void *image)
{
	struct loading l;
	CUresult r;

	prepare_data(&l, image, 0);
	do {
		r = begin(&l) ? shim_driver.cuModuleLoadData(ret, image) : CUDA_ERROR_OUT_OF_MEMORY;
	} while (loaded(&l, &r, ret));
	return r;
}

static CUresult load_data_ex(CUmodule *ret, const void *image, unsigned n, CUjit_option *options,
			     void **values)
{
	struct loading l;
	CUresult r;

	prepare_data(&l, image, gpu_ptx_target(n, options, values));
	do {
		r = begin(&l) ? shim_driver.cuModuleLoadDataEx(ret, image, n, options, values)
			      : CUDA_ERROR_OUT_OF_MEMORY;
	} while (loaded(&l, &r, ret));
	return r;
}

static CUresult load_fat(CUmodule *ret, const void *image)
{
	struct loading l;
	CUresult r;

	prepare_data(&l, image, 0);
	do {
		r = begin(&l) ? shim_driver.cuModuleLoadFatBinary(ret, image)
			      : CUDA_ERROR_OUT_OF_MEMORY;
	} while (loaded(&l, &r, ret));
	return r;
}

void shim_mem_modules_context_ended(CUcontext ctx, uint64_t epoch)
{
	struct mem_region r;
	size_t cursor = 0;

	lock_take(&mutex);
	while (mem_regions_take_owned(&modules, (uint64_t)(uintptr_t)ctx, epoch, &cursor, &r)) {
		shim_mem_image_release((int)r.row, r.bytes);
	}
	lock_release(&mutex);
}

static CUresult unloaded(CUresult r)
{
	if (r == CUDA_SUCCESS && shim_mem_joined()) {
		shim_mem_event_shrunk(take_token());
	}
	return r;
}

/* The entry is taken before the driver is called: another thread may get the same handle as soon as
 * that has unloaded the module. Until its charge is released the memory counts, never the other way
 * around. */
static CUresult unload(CUmodule module)
{
	struct mem_region r;
	bool is_charged;
	CUresult result;

	if (!shim_mem_joined()) { /* in a child after fork the mutex may be held */
		return shim_driver.cuModuleUnload(module);
	}
	lock_take(&mutex);
	is_charged = mem_regions_take(&modules, (uint64_t)(uintptr_t)module, &r);
	lock_release(&mutex);
	if (!is_charged) {
		return unloaded(shim_driver.cuModuleUnload(module));
	}
	shim_mem_move_begin();
	result = shim_driver.cuModuleUnload(module);
	if (result == CUDA_SUCCESS) {
		shim_mem_image_release((int)r.row, r.bytes);
	} else {
		lock_take(&mutex);
		(void)mem_regions_add(&modules, &r); /* without memory it stays charged */
		lock_release(&mutex);
	}
	shim_mem_move_end();
	return unloaded(result);
}

/* ---- libraries ---- */

/* A library that is being loaded. */
struct loading_library {
	struct shim_mem_event event;
	struct shim_mem_library *library; /* NULL: its variables are not charged */
	bool is_charged;
};

static bool begin_library(struct loading_library *l, struct shim_mem_library *library)
{
	*l = (struct loading_library){ .library = library, .is_charged = library != NULL };
	if (library) {
		shim_mem_move_begin();
	}
	begin_event(&l->event);
	return !library || shim_mem_library_begin(library);
}

static void unload_refused(const struct loading_library *l, CUlibrary library)
{
	CUresult r;

	if (!l->is_charged || !shim_mem_library_unload(library, &r)) {
		(void)shim_driver.cuLibraryUnload(library);
	}
}

static CUresult loaded_library(struct loading_library *l, CUresult r, const CUlibrary *ret)
{
	if (l->is_charged) {
		r = shim_mem_library_loaded(l->library, r, r == CUDA_SUCCESS ? *ret : NULL);
		shim_mem_move_end();
	}
	if (!shim_mem_event_end(&l->event, r, MODULE_MAX, "cuLibraryLoadData")) {
		unload_refused(l, *ret);
		r = shim_mem_undone();
	}
	shim_mem_event_finish(&l->event);
	return r;
}

static CUresult load_library(CUlibrary *ret, const void *image, CUjit_option *options,
			     void **values, unsigned n, CUlibraryOption *library_options,
			     void **library_values, unsigned n_library)
{
	struct loading_library l;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (begin_library(&l,
			  shim_mem_library_of_data(image, gpu_ptx_target(n, options, values)))) {
		r = shim_driver.cuLibraryLoadData(ret, image, options, values, n, library_options,
						  library_values, n_library);
	}
	return loaded_library(&l, r, ret);
}

static CUresult load_library_file(CUlibrary *ret, const char *path, CUjit_option *options,
				  void **values, unsigned n, CUlibraryOption *library_options,
				  void **library_values, unsigned n_library)
{
	struct loading_library l;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (begin_library(&l, shim_mem_library_of_file(path, gpu_ptx_target(n, options, values)))) {
		r = shim_driver.cuLibraryLoadFromFile(ret, path, options, values, n,
						      library_options, library_values, n_library);
	}
	return loaded_library(&l, r, ret);
}

static CUresult unload_library(CUlibrary library)
{
	CUresult r;

	return unloaded(
		shim_mem_library_unload(library, &r) ? r : shim_driver.cuLibraryUnload(library));
}

void shim_mem_install_modules(void)
{
	shim_real.cuModuleLoad = load_file;
	shim_real.cuModuleLoadData = load_data;
	shim_real.cuModuleLoadDataEx = load_data_ex;
	shim_real.cuModuleLoadFatBinary = load_fat;
	shim_real.cuLibraryLoadData = load_library;
	shim_real.cuLibraryLoadFromFile = load_library_file;
	shim_real.cuModuleUnload = unload;
	shim_real.cuLibraryUnload = unload_library;
}

/* Functions of modules and libraries. Handles, lists and properties are answered as if no function
 * had a clone; properties that the program sets on a function are set on its clone, too. */
#include <stdlib.h>

#include "cuabi/api.h"
#include "shim/entry/gate.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/kernel/loaded_image.h"
#include "shim/probe/shim_probe.h"

#define MAX_LIST (1u << 20)

static void note(CUresult r, const void *handle, const char *name, const void *owner,
		 enum shim_kernel_kind kind)
{
	if (r == CUDA_SUCCESS && handle && name && shim_attached()) {
		shim_kernel_note(handle, name, owner, kind);
	}
}

/* ---- handles ---- */

CUresult cuModuleGetFunction(CUfunction *ret, CUmodule module, const char *name)
{
	CUresult r;

	if (unlikely(ret && shim_image_hides(module, name))) {
		return CUDA_ERROR_NOT_FOUND;
	}
	r = shim_real.cuModuleGetFunction(ret, module, name);
	note(r, ret ? *ret : NULL, name, module, SHIM_KERNEL_OF_MODULE);
	return r;
}

CUresult cuLibraryGetKernel(CUkernel *ret, CUlibrary library, const char *name)
{
	CUresult r;

	if (unlikely(ret && shim_image_hides(library, name))) {
		return CUDA_ERROR_NOT_FOUND;
	}
	r = shim_real.cuLibraryGetKernel(ret, library, name);
	note(r, ret ? *ret : NULL, name, library, SHIM_KERNEL_OF_LIBRARY);
	return r;
}

CUresult cuKernelGetFunction(CUfunction *ret, CUkernel kernel)
{
	CUresult r = shim_real.cuKernelGetFunction(ret, kernel);
	struct shim_kernel_origin o;

	if (r == CUDA_SUCCESS && ret && shim_attached() && shim_kernel_origin(kernel, &o)) {
		note(r, *ret, o.name, o.owner, SHIM_KERNEL_FUNCTION);
		free(o.name);
	}
	return r;
}

CUresult cuLibraryGetModule(CUmodule *ret, CUlibrary library)
{
	CUresult r = shim_real.cuLibraryGetModule(ret, library);

	if (r == CUDA_SUCCESS && ret && shim_attached()) {
		shim_image_note_module(*ret, library);
	}
	return r;
}

/* ---- lists ---- */

static CUresult without_clones(CUresult r, unsigned *ret, const void *owner)
{
	if (r == CUDA_SUCCESS && ret) {
		unsigned n = shim_image_clones(owner);

		*ret -= n < *ret ? n : 0;
	}
	return r;
}

CUresult cuModuleGetFunctionCount(unsigned *ret, CUmodule module)
{
	return without_clones(shim_real.cuModuleGetFunctionCount(ret, module), ret, module);
}

CUresult cuLibraryGetKernelCount(unsigned *ret, CUlibrary library)
{
	return without_clones(shim_real.cuLibraryGetKernelCount(ret, library), ret, library);
}

/* The driver's list including clones, from which names without the clones' suffix are returned. */
struct list {
	const void *owner;
	enum shim_kernel_kind kind;
	void **all; /* owned */
	unsigned n;
};

static bool begin_list(struct list *l, const void *owner, enum shim_kernel_kind kind)
{
	CUresult r;

	*l = (struct list){ .owner = owner, .kind = kind };
	if (!shim_image_clones(owner)) {
		return false;
	}
	r = kind == SHIM_KERNEL_OF_LIBRARY
		    ? shim_real.cuLibraryGetKernelCount(&l->n, (CUlibrary)(uintptr_t)owner)
		    : shim_real.cuModuleGetFunctionCount(&l->n, (CUmodule)(uintptr_t)owner);
	if (r == CUDA_SUCCESS && l->n && l->n <= MAX_LIST) {
		l->all = calloc(l->n, sizeof(l->all[0]));
	}
	return l->all != NULL;
}

static CUresult end_list(struct list *l, void **ret, unsigned cap, CUresult r)
{
	unsigned given = 0;

	for (unsigned i = 0; r == CUDA_SUCCESS && i < l->n && given < cap; i++) {
		const char *name = NULL;
		CUresult named = l->kind == SHIM_KERNEL_OF_LIBRARY
					 ? shim_real.cuKernelGetName(&name, (CUkernel)l->all[i])
					 : shim_real.cuFuncGetName(&name, (CUfunction)l->all[i]);

		if (!l->all[i] || (named == CUDA_SUCCESS && shim_image_is_clone_name(name))) {
			continue;
		}
		note(named, l->all[i], name, l->owner, l->kind);
		ret[given++] = l->all[i];
	}
	free(l->all);
	return r;
}

CUresult cuModuleEnumerateFunctions(CUfunction *ret, unsigned cap, CUmodule module)
{
	struct list l;

	if (!ret || !cap || !begin_list(&l, module, SHIM_KERNEL_OF_MODULE)) {
		return shim_real.cuModuleEnumerateFunctions(ret, cap, module);
	}
	return end_list(
		&l, (void **)ret, cap,
		shim_real.cuModuleEnumerateFunctions((CUfunction *)(void *)l.all, l.n, module));
}

CUresult cuLibraryEnumerateKernels(CUkernel *ret, unsigned cap, CUlibrary library)
{
	struct list l;

	if (!ret || !cap || !begin_list(&l, library, SHIM_KERNEL_OF_LIBRARY)) {
		return shim_real.cuLibraryEnumerateKernels(ret, cap, library);
	}
	return end_list(
		&l, (void **)ret, cap,
		shim_real.cuLibraryEnumerateKernels((CUkernel *)(void *)l.all, l.n, library));
}

/* ---- properties: a deferred launch must run with the previous ones, where they matter to it ----
 */

/* Returns true if a change from *now does not affect deferred launches: a preference, the current
 * value, or a limit that is raised. By address, since the call that stores the value may be
 * evaluated after the other arguments. */
static bool leaves_deferred_valid(CUresult asked, CUfunction_attribute what, const int *now,
				  int value)
{
	bool allows = what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
		      what == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;

	return what == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
	       (asked == CUDA_SUCCESS && (value == *now || (allows && value > *now)));
}

/* Returns the record of a function that has changed, NULL if it cannot be stopped. */
static struct shim_clone *changed(CUresult r, const void *handle)
{
	struct shim_clone *t = r == CUDA_SUCCESS && shim_attached() ? shim_clone_get(handle) : NULL;

	return t && t->handle ? t : NULL;
}

/* Returns the clone on which to repeat a change, NULL if none. */
static struct shim_clone *clone_to_follow(CUresult r, const void *handle)
{
	struct shim_clone *t = changed(r, handle);

	return t && !t->code ? t : NULL;
}

/* Libraries set the same maximum before each launch. */
static bool is_known(const struct shim_clone *t, CUfunction_attribute what, int value)
{
	return what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
	       (t->code ? (uint32_t)value : PTX_BLOCK_SMEM((uint32_t)value)) ==
		       load_relaxed(&t->max_smem_bytes);
}

/* A kernel of a library and the functions obtained from it share their attributes. */
static void refresh(const struct shim_clone *t, const void *handle)
{
	shim_clone_refresh(t->owner, t->kind == SHIM_KERNEL_OF_MODULE ? handle : NULL);
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value)
{
	struct shim_clone *t;
	int now = 0;
	CUresult r;

	if (unlikely(shim_pending()) &&
	    !leaves_deferred_valid(SHIM_REAL(cuFuncGetAttribute)(&now, what, f), what, &now,
				   value)) {
		shim_drain_all();
	}
	r = shim_real.cuFuncSetAttribute(f, what, value);
	shim_probe_refresh(f);
	t = changed(r, f);
	if (!t || is_known(t, what, value)) {
		return r;
	}
	if (!t->code && what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		(void)shim_real.cuFuncSetAttribute(t->handle, what, value);
	}
	refresh(t, f);
	return r;
}

static void repeat_on_clone(const struct shim_clone *t, CUfunction_attribute what, int value,
			    CUdevice d)
{
	CUkernel clone = (CUkernel)(void *)t->handle;

	if (what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
	    value >= 1 << 28 ||
	    shim_real.cuKernelSetAttribute(what, (int)PTX_BLOCK_SMEM((uint32_t)value), clone, d) !=
		    CUDA_SUCCESS) {
		(void)shim_real.cuKernelSetAttribute(what, value, clone, d);
	}
}

CUresult cuKernelSetAttribute(CUfunction_attribute what, int value, CUkernel k, CUdevice d)
{
	struct shim_clone *t;
	int now = 0;
	CUresult r;

	if (unlikely(shim_pending()) &&
	    !leaves_deferred_valid(SHIM_REAL(cuKernelGetAttribute)(&now, what, k, d), what, &now,
				   value)) {
		shim_drain_all();
	}
	r = shim_real.cuKernelSetAttribute(what, value, k, d);
	shim_probe_refresh(k);
	t = changed(r, k);
	if (!t || is_known(t, what, value)) {
		return r;
	}
	if (!t->code) {
		repeat_on_clone(t, what, value, d);
	}
	refresh(t, k);
	return r;
}

CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache config)
{
	CUresult r = shim_real.cuFuncSetCacheConfig(f, config);
	struct shim_clone *t = clone_to_follow(r, f);

	if (t) {
		(void)shim_real.cuFuncSetCacheConfig(t->handle, config);
		shim_clone_refresh(t->owner, f);
	}
	return r;
}

CUresult cuKernelSetCacheConfig(CUkernel k, CUfunc_cache config, CUdevice d)
{
	CUresult r = shim_real.cuKernelSetCacheConfig(k, config, d);
	struct shim_clone *t = clone_to_follow(r, k);

	if (t) {
		(void)shim_real.cuKernelSetCacheConfig((CUkernel)(void *)t->handle, config, d);
		shim_clone_refresh(t->owner, NULL);
	}
	return r;
}

CUresult cuFuncSetSharedMemConfig(CUfunction f, CUsharedconfig config)
{
	CUresult r = shim_real.cuFuncSetSharedMemConfig(f, config);
	struct shim_clone *t = clone_to_follow(r, f);

	if (t) {
		(void)shim_real.cuFuncSetSharedMemConfig(t->handle, config);
	}
	return r;
}

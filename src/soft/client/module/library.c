/* Libraries and kernels: modules that are loaded into each context on first use there. Queries
 * without a context are answered from the library's PTX. */
#include "soft/client/module/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/image.h"
#include "ptx/module.h"
#include "soft/client/context/context.h"
#include "soft/client/memory/memory.h"
#include "soft/client/module/module_code.h"
#include "soft/client/module/module_image.h"
#include "soft/client/module/module_load.h"
#include "soft/client/process.h"
#include "soft/client/strict.h"

/* guards loading into contexts, and the names; taken before soft.lock */
static struct lock library_lock = LOCK_INITIALIZER(SOFT_LIBRARIES);

static CUresult check_library(CUlibrary l)
{
	CUresult e = soft_check();

	return e					? e
	       : soft_handle_is(l, SOFT_OBJECT_LIBRARY) ? CUDA_SUCCESS
							: CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_kernel(CUkernel k)
{
	CUresult e = soft_check();

	return e				       ? e
	       : soft_handle_is(k, SOFT_OBJECT_KERNEL) ? CUDA_SUCCESS
						       : CUDA_ERROR_INVALID_HANDLE;
}

/* Loads the library into the context unless it already is. */
static CUresult module_in(CUlibrary l, CUcontext ctx, struct soft_jit *j, CUmodule *ret)
	REQUIRES(library_lock)
{
	struct soft_image i = { .data = l->image, .bytes = l->bytes, .registers = l->registers };
	CUmodule m = NULL;
	CUresult e;

	if (l->modules[ctx->slot] && l->module_contexts[ctx->slot] == ctx->id) {
		*ret = l->modules[ctx->slot];
		return CUDA_SUCCESS;
	}
	e = soft_module_load(ctx, "library", &i, j, &m);
	l->modules[ctx->slot] = m;
	l->module_contexts[ctx->slot] = ctx->id;
	if (m) {
		m->library = l;
	}
	*ret = m;
	return e;
}

static CUresult library_module(CUlibrary l, CUmodule *ret)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e) {
		return e;
	}
	lock_take(&library_lock);
	e = module_in(l, ctx, NULL, ret);
	lock_release(&library_lock);
	return e;
}

/* Without a context, only checks that the image contains PTX, without compiling it. */
static CUresult check_image(CUlibrary l, struct soft_jit *j)
{
	const struct ptx_device device = { SOFT_ARCH, PTX_RULE_SOFT };
	struct ptx_image_text text;
	struct report rep;
	struct buf why;
	int err;

	report_init(&rep);
	buf_init(&why);
	err = ptx_image_open(&text, l->image, l->bytes, device, SOFT_MAX_PTX_BYTES, "library",
			     &rep);
	if (err) {
		report_text(&rep, &why);
		soft_jit_error(j, buf_text(&why));
	}
	ptx_image_close(&text);
	buf_finish(&why);
	report_finish(&rep);
	return err == 0		    ? CUDA_SUCCESS
	       : err == -ENOMEM	    ? CUDA_ERROR_OUT_OF_MEMORY
	       : err == -ENOENT	    ? CUDA_ERROR_NO_BINARY_FOR_GPU
	       : err == -EOPNOTSUPP ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
	       : err == -EBADMSG    ? CUDA_ERROR_INVALID_PTX
				    : CUDA_ERROR_INVALID_IMAGE;
}

static void library_delete(CUlibrary l)
{
	lock_take(&soft.lock);
	while (l->kernels) {
		CUkernel k = l->kernels;

		l->kernels = k->next;
		free(k->name);
		soft_object_destroy(k);
	}
	while (l->n_names) {
		free(l->names[--l->n_names]);
	}
	free(l->names);
	free(l->image);
	soft_registers_unref(l->registers);
	soft_object_destroy(l);
	lock_release(&soft.lock);
}

/* Takes memory that the image owns; copies memory that it does not own. */
static CUresult library_new(struct soft_image *i, struct soft_jit *j, CUlibrary *ret)
{
	CUresult e = CUDA_SUCCESS;
	CUcontext ctx;
	CUmodule m;
	CUlibrary l;

	if (!i->owned) {
		i->owned = malloc(i->bytes + 1);
		if (!i->owned) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		i->data = memcpy(i->owned, i->data, i->bytes);
	}
	lock_take(&soft.lock);
	l = soft_object_create(SOFT_OBJECT_LIBRARY, sizeof(*l));
	lock_release(&soft.lock);
	if (!l) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	l->image = i->owned;
	l->bytes = i->bytes;
	l->registers = soft_registers_ref(i->registers);
	i->owned = NULL;
	if (soft_thread_context() && soft_context_current(&ctx) == CUDA_SUCCESS) {
		lock_take(&library_lock);
		e = module_in(l, ctx, j, &m);
		lock_release(&library_lock);
	} else {
		e = check_image(l, j);
	}
	if (e) {
		library_delete(l);
	} else {
		*ret = l;
	}
	return e;
}

static CUresult check_options(const CUlibraryOption *options, void **values, unsigned n)
{
	if (n && !options) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < n; i++) {
		if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE && !values) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		if ((unsigned)options[i] > CU_LIBRARY_BINARY_IS_PRESERVED) {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

/* opened: the result of opening the image. */
static CUresult load_library(CUlibrary *ret, struct soft_image *i, CUresult opened,
			     CUjit_option *jit, void **jit_values, unsigned n_jit)
{
	struct soft_jit j;
	CUresult e = soft_jit_read(&j, n_jit, jit, jit_values);

	if (e) {
		return e;
	}
	e = opened;
	if (e) {
		soft_jit_error(
			&j,
			e == CUDA_ERROR_NO_BINARY_FOR_GPU
				? "the image is machine code of another device and holds no PTX; "
				  "make it with nvcc -ptx or -fatbin"
				: "the data is neither PTX nor a fat binary");
	} else {
		e = soft_image_resolve(i, "library", &j);
		e = e ? e : library_new(i, &j, ret);
	}
	soft_jit_finish(&j);
	return e;
}

CUresult cuLibraryLoadData(CUlibrary *ret, const void *code, CUjit_option *jit, void **jit_values,
			   unsigned int n_jit, CUlibraryOption *options, void **values,
			   unsigned int n)
{
	struct soft_image i = { 0 };
	CUresult e = soft_check();

	e = e ? e : check_options(options, values, n);
	if (e || !ret || !code) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_image_open(&i, code);
	e = load_library(ret, &i, e, jit, jit_values, n_jit);
	soft_image_close(&i);
	return e;
}

CUresult cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *jit,
			       void **jit_values, unsigned int n_jit, CUlibraryOption *options,
			       void **values, unsigned int n)
{
	struct soft_image i = { 0 };
	CUresult e = soft_check();

	e = e ? e : check_options(options, values, n);
	if (e || !ret || !path) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_image_read(&i, path);
	e = load_library(ret, &i, e, jit, jit_values, n_jit);
	soft_image_close(&i);
	return e;
}

CUresult cuLibraryGetModule(CUmodule *ret, CUlibrary l)
{
	CUresult e = check_library(l);

	return e ? e : ret ? library_module(l, ret) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryUnload(CUlibrary l)
{
	CUresult e = check_library(l);

	if (e) {
		return e;
	}
	soft_handle_destroying(l);
	lock_take(&library_lock);
	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++) {
		CUcontext ctx = soft.contexts[i];

		if (l->modules[i] && soft_object_is(ctx, SOFT_OBJECT_CONTEXT) &&
		    ctx->id == l->module_contexts[i]) {
			soft_module_unload(l->modules[i]);
		}
	}
	library_delete(l);
	lock_release(&library_lock);
	return CUDA_SUCCESS;
}

/* ---- kernels ---- */

/* Collects the names of the library's kernels from its PTX. */
static CUresult collect_names(CUlibrary l, const struct ptx_module *p) REQUIRES(library_lock)
{
	uint32_t n = 0;

	ptx_each (&p->items, it) {
		const struct ptx_function *f = (const struct ptx_function *)it;

		n += it->kind == PTX_FUNCTION && f->is_entry && f->has_body;
	}
	l->names = calloc(n + 1u, sizeof(*l->names));
	for (struct ptx_item *it = l->names ? p->items.first : NULL; it; it = it->next) {
		const struct ptx_function *f = (const struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && f->is_entry && f->has_body) {
			l->names[l->n_names] = strdup(f->name);
			if (!l->names[l->n_names]) {
				return CUDA_ERROR_OUT_OF_MEMORY;
			}
			l->n_names++;
		}
	}
	return l->names ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult read_names(CUlibrary l) REQUIRES(library_lock)
{
	const struct ptx_device device = { SOFT_ARCH, PTX_RULE_SOFT };
	struct ptx_module *p = NULL;
	struct ptx_image_text text = { 0 };
	struct report rep;
	CUresult e = CUDA_ERROR_INVALID_PTX;

	if (l->names) {
		return CUDA_SUCCESS;
	}
	report_init(&rep);
	if (ptx_image_open(&text, l->image, l->bytes, device, SOFT_MAX_PTX_BYTES, "library",
			   &rep) == 0 &&
	    ptx_module_parse(&p, text.text, text.bytes, "library", &rep) == 0) {
		e = collect_names(l, p);
	}
	ptx_module_free(p);
	ptx_image_close(&text);
	report_finish(&rep);
	return e;
}

/* As soft_module_function_at(). */
static CUresult kernel_at(CUlibrary l, uint32_t index, uint32_t *ret_n, char **ret_name)
{
	CUmodule m;
	CUresult e = library_module(l, &m);

	*ret_name = NULL;
	if (e != CUDA_ERROR_INVALID_CONTEXT) {
		return e ? e : soft_module_function_at(m, index, ret_n, ret_name);
	}
	lock_take(&library_lock);
	e = read_names(l);
	*ret_n = l->n_names;
	if (!e && index < l->n_names) {
		*ret_name = strdup(l->names[index]);
		e = *ret_name ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_release(&library_lock);
	return e;
}

static CUresult kernel_there(CUlibrary l, const char *name)
{
	CUfunction f;
	CUmodule m;
	CUresult e = library_module(l, &m);

	if (e != CUDA_ERROR_INVALID_CONTEXT) {
		return e ? e : soft_module_function(m, name, &f);
	}
	lock_take(&library_lock);
	e = read_names(l);
	for (uint32_t i = 0; !e && i <= l->n_names; i++) {
		if (i == l->n_names) {
			e = CUDA_ERROR_NOT_FOUND;
		} else if (strcmp(l->names[i], name) == 0) {
			break;
		}
	}
	lock_release(&library_lock);
	return e;
}

static CUresult make_kernel(CUlibrary l, const char *name, CUkernel *ret)
{
	char *copy = strdup(name);
	CUkernel k;

	if (!copy) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_take(&soft.lock);
	for (k = l->kernels; k && strcmp(k->name, name) != 0; k = k->next) {
	}
	if (!k) {
		k = soft_object_create(SOFT_OBJECT_KERNEL, sizeof(*k));
		if (k) {
			k->library = l;
			k->name = copy;
			k->next = l->kernels;
			l->kernels = k;
			copy = NULL;
		}
	}
	lock_release(&soft.lock);
	free(copy);
	*ret = k;
	return k ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryGetKernel(CUkernel *ret, CUlibrary l, const char *name)
{
	CUresult e = check_library(l);

	if (e) {
		return e;
	}
	if (!ret || !name) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = kernel_there(l, name);
	return e ? e : make_kernel(l, name, ret);
}

CUresult cuLibraryGetKernelCount(unsigned int *ret, CUlibrary l)
{
	uint32_t n = 0;
	CUresult e = check_library(l);
	char *name;

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = kernel_at(l, 0, &n, &name);
	free(name);
	*ret = n;
	return e;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int cap, CUlibrary l)
{
	uint32_t n = 1;
	CUresult e = check_library(l);

	if (!e && !kernels) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; !e && i < cap && i < n; i++) {
		char *name;

		e = kernel_at(l, i, &n, &name);
		if (!e && name) {
			e = make_kernel(l, name, &kernels[i]);
		}
		free(name);
	}
	return e;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *ret, size_t *ret_bytes, CUlibrary l, const char *name)
{
	CUmodule m;
	CUresult e = check_library(l);

	e = e ? e : library_module(l, &m);
	return e ? e : soft_module_global(m, name, ret, ret_bytes);
}

CUresult cuLibraryGetManaged(CUdeviceptr *ret, size_t *ret_bytes, CUlibrary l, const char *name)
{
	struct soft_range range;
	CUdeviceptr address;
	CUcontext ctx;
	CUresult e = cuLibraryGetGlobal(&address, ret_bytes, l, name);

	if (e) {
		return e;
	}
	if (!soft_memory_find(address, &ctx, &range) || range.kind != SOFT_RANGE_MANAGED) {
		return CUDA_ERROR_NOT_FOUND;
	}
	if (ret) {
		*ret = address;
	}
	return CUDA_SUCCESS;
}

/* Functions common to host and device exist only in the runtime library. */
CUresult cuLibraryGetUnifiedFunction(void **ret, CUlibrary l, const char *name)
{
	CUresult e = check_library(l);

	return e ? e : CUDA_ERROR_INVALID_VALUE; /* none exists; same result as an H200 */
}

CUresult soft_library_function(CUkernel k, CUfunction *ret)
{
	CUmodule m;
	CUresult e = library_module(k->library, &m);

	e = e ? e : soft_module_function(m, k->name, ret);
	if (!e && k->dynamic_shared) {
		(*ret)->max_dynamic_shared = (uint32_t)(k->dynamic_shared - 1);
	}
	if (!e && k->carveout) {
		(*ret)->carveout = k->carveout - 1;
	}
	return e;
}

CUresult soft_kernel_enter(CUkernel k, CUdevice dev, bool *ret_pushed)
{
	CUcontext ctx = soft_thread_context();
	unsigned flags;
	int active = 0;
	CUresult e = check_kernel(k);

	*ret_pushed = false;
	e = e ? e : soft_context_check_device(dev);
	if (e || (soft_object_is(ctx, SOFT_OBJECT_CONTEXT) && ctx->device == dev)) {
		return e;
	}
	e = cuDevicePrimaryCtxGetState(dev, &flags, &active);
	if (e || !active) {
		return e ? e : CUDA_ERROR_INVALID_CONTEXT;
	}
	e = cuDevicePrimaryCtxRetain(&ctx, dev);
	if (!e) {
		e = soft_context_push(ctx);
		*ret_pushed = e == CUDA_SUCCESS;
	}
	return e;
}

void soft_kernel_leave(CUdevice dev, bool pushed)
{
	CUcontext ctx;

	if (pushed) {
		soft_context_pop(&ctx);
		cuDevicePrimaryCtxRelease_v2(dev);
	}
}

CUresult cuKernelGetFunction(CUfunction *ret, CUkernel k)
{
	CUresult e = check_kernel(k);

	return e ? e : ret ? soft_library_function(k, ret) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetName(const char **ret, CUkernel k)
{
	CUresult e = check_kernel(k);

	if (!e && ret) {
		*ret = k->name;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetLibrary(CUlibrary *ret, CUkernel k)
{
	CUresult e = check_kernel(k);

	if (!e && ret) {
		*ret = k->library;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelSetCacheConfig(CUkernel k, CUfunc_cache config, CUdevice dev)
{
	CUresult e = check_kernel(k);

	e = e ? e : soft_context_check_device(dev);
	return e ? e : (unsigned)config <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

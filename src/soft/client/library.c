/* Libraries and kernels: modules that are loaded into each context when they are first used there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "soft/client/client.h"

CUresult cuLibraryLoadData(CUlibrary *ret, const void *code, CUjit_option *jit, void **jit_values,
			   unsigned int n_jit, CUlibraryOption *options, void **values,
			   unsigned int n)
{
	CUlibrary l;
	CUresult e = soft_check();
	size_t bytes = 0;

	(void)jit;
	(void)jit_values;
	(void)n_jit;
	(void)options;
	(void)values;
	(void)n;
	e = e ? e : !ret ? CUDA_ERROR_INVALID_VALUE : module_check_image(code, &bytes);
	if (e) {
		return e;
	}
	pthread_mutex_lock(&soft.lock);
	l = object_new(OBJECT_LIBRARY, sizeof(*l));
	if (l) {
		l->ptx = strdup(code);
	}
	pthread_mutex_unlock(&soft.lock);
	*ret = l;
	return l && l->ptx ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *jit,
			       void **jit_values, unsigned int n_jit, CUlibraryOption *options,
			       void **values, unsigned int n)
{
	struct buf b;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	buf_init(&b);
	e = module_read_image(path, &b);
	e = e ? e : cuLibraryLoadData(ret, b.data, jit, jit_values, n_jit, options, values, n);
	buf_finish(&b);
	return e;
}

static CUresult library_module(CUlibrary l, CUmodule *ret)
{
	CUcontext ctx;
	CUresult e = soft_current(&ctx);

	if (e) {
		return e;
	}
	if (!l->modules[ctx->slot] || l->module_contexts[ctx->slot] != ctx->id) {
		e = module_load_text(ctx, "library", l->ptx, strlen(l->ptx), NULL, 0,
				     &l->modules[ctx->slot]);
		if (e) {
			l->modules[ctx->slot] = NULL;
			return e;
		}
		l->module_contexts[ctx->slot] = ctx->id;
	}
	*ret = l->modules[ctx->slot];
	return CUDA_SUCCESS;
}

static CUresult check_library(CUlibrary l)
{
	CUresult e = soft_check();

	return e ? e : object_is(l, OBJECT_LIBRARY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_kernel(CUkernel k)
{
	CUresult e = soft_check();

	return e ? e : object_is(k, OBJECT_KERNEL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetModule(CUmodule *ret, CUlibrary l)
{
	CUresult e = check_library(l);

	return e ? e : ret ? library_module(l, ret) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryUnload(CUlibrary l)
{
	CUresult e = check_library(l);
	CUcontext ctx;

	if (e) {
		return e;
	}
	if (soft_current(&ctx) == CUDA_SUCCESS && l->modules[ctx->slot] &&
	    l->module_contexts[ctx->slot] == ctx->id) {
		cuModuleUnload(l->modules[ctx->slot]);
	}
	pthread_mutex_lock(&soft.lock);
	while (l->kernels) {
		CUkernel k = l->kernels;

		l->kernels = k->next;
		free(k->name);
		object_delete(k);
	}
	free(l->ptx);
	object_delete(l);
	pthread_mutex_unlock(&soft.lock);
	return CUDA_SUCCESS;
}

static CUresult make_kernel(CUlibrary l, const char *name, CUkernel *ret)
{
	CUkernel k;

	pthread_mutex_lock(&soft.lock);
	for (k = l->kernels; k && strcmp(k->name, name) != 0; k = k->next) {
	}
	if (!k) {
		k = object_new(OBJECT_KERNEL, sizeof(*k));
		if (k) {
			k->library = l;
			k->name = strdup(name);
			k->next = l->kernels;
			l->kernels = k;
		}
	}
	pthread_mutex_unlock(&soft.lock);
	*ret = k;
	return k && k->name ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryGetKernel(CUkernel *ret, CUlibrary l, const char *name)
{
	CUfunction f;
	CUmodule m;
	CUresult e = check_library(l);

	if (e) {
		return e;
	}
	if (!ret || !name) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	/* Without a current context the name cannot be checked yet. */
	e = library_module(l, &m);
	e = e == CUDA_ERROR_INVALID_CONTEXT ? CUDA_SUCCESS : e ? e : module_function(m, name, &f);
	return e ? e : make_kernel(l, name, ret);
}

CUresult cuLibraryGetKernelCount(unsigned int *ret, CUlibrary l)
{
	CUmodule m;
	CUresult e = check_library(l);

	e = e ? e : library_module(l, &m);
	return e ? e : cuModuleGetFunctionCount(ret, m);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int cap, CUlibrary l)
{
	char name[SOFT_NAME_MAX];
	uint32_t n = 1;
	CUmodule m;
	CUresult e = check_library(l);

	e = e ? e : library_module(l, &m);
	for (uint32_t i = 0; !e && i < cap && i < n; i++) {
		e = module_function_at(m, i, &n, name, sizeof(name));
		if (!e && i < n) {
			e = make_kernel(l, name, &kernels[i]);
		}
	}
	return e;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *ret, size_t *ret_bytes, CUlibrary l, const char *name)
{
	CUmodule m;
	CUresult e = check_library(l);

	e = e ? e : library_module(l, &m);
	return e ? e : module_global(m, name, ret, ret_bytes);
}

CUresult library_function(CUkernel k, CUfunction *ret)
{
	CUmodule m;
	CUresult e = library_module(k->library, &m);

	return e ? e : module_function(m, k->name, ret);
}

CUresult cuKernelGetFunction(CUfunction *ret, CUkernel k)
{
	CUresult e = check_kernel(k);

	return e ? e : ret ? library_function(k, ret) : CUDA_ERROR_INVALID_VALUE;
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

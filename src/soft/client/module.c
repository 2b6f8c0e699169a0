/* Modules, functions, libraries and kernels. PTX goes to the server, which answers with what launches need. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/shm.h"
#include "soft/client/client.h"

#define MAGIC_ELF 0x464c457fu
#define MAGIC_FATBIN 0xba55ed50u
#define MAGIC_FATBIN_WRAPPER 0x466243b1u

static int ptx_descriptor(const char *ptx, size_t bytes)
{
	int fd = shm_create("gbpf-soft-ptx", bytes, SHM_NOEXEC);
	void *p;

	if (fd < 0) {
		return fd;
	}
	p = shm_map(fd, bytes, 1);
	if (!p) {
		close(fd);
		return -ENOMEM;
	}
	memcpy(p, ptx, bytes);
	shm_unmap(p, bytes);
	return fd;
}

CUresult module_load_text(CUcontext ctx, const char *name, const char *ptx, size_t bytes, char *log, size_t log_bytes,
			  CUmodule *ret)
{
	struct soft_request q = { .op = SOFT_REQ_MODULE_LOAD, .context = ctx->slot };
	struct soft_reply r = { 0 };
	CUmodule m;
	CUresult e;
	int fd;

	if (!bytes || bytes > SOFT_MAX_PTX_BYTES) {
		return CUDA_ERROR_INVALID_IMAGE;
	}
	fd = ptx_descriptor(ptx, bytes);
	if (fd < 0) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	snprintf(q.name, sizeof(q.name), "%s", name);
	e = link_call(&q, fd, &r, sizeof(r), NULL);
	close(fd);
	if (log && log_bytes) {
		snprintf(log, log_bytes, "%s", e == CUDA_ERROR_INVALID_PTX ? r.text : "");
	}
	if (e) {
		return e;
	}
	pthread_mutex_lock(&soft.lock);
	m = object_new(OBJECT_MODULE, sizeof(*m));
	if (m) {
		m->context = ctx;
		m->id = r.value32;
	}
	pthread_mutex_unlock(&soft.lock);
	*ret = m;
	return m ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Handles of modules that outlive their context stay allocated: a few objects for each. */
static void module_forget(CUmodule m) /* soft.lock held */
{
	while (m->functions) {
		CUfunction f = m->functions;

		m->functions = f->next;
		free(f->name);
		free(f->params);
		free(f->old_params);
		object_delete(f);
	}
	object_delete(m);
}

static CUresult current_and(CUmodule m, CUcontext *ctx)
{
	CUresult e = soft_current(ctx);

	return e ? e : object_is(m, OBJECT_MODULE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The kind of image, and its text. PTX is text that ends with a zero byte. */
static CUresult check_image(const void *image, size_t *ret_bytes)
{
	uint32_t magic;

	if (!image) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(&magic, image, strnlen(image, sizeof(magic)) < sizeof(magic) ? 0 : sizeof(magic));
	if (strnlen(image, sizeof(magic)) < sizeof(magic)) {
		return CUDA_ERROR_INVALID_IMAGE;
	}
	if (magic == MAGIC_ELF || magic == MAGIC_FATBIN || magic == MAGIC_FATBIN_WRAPPER) {
		return CUDA_ERROR_NO_BINARY_FOR_GPU; /* machine code for other devices */
	}
	*ret_bytes = strlen(image);
	return CUDA_SUCCESS;
}

struct jit {
	char *log;
	size_t log_bytes;
	void **log_used; /* where the used size of the log is written */
	char *info;
	size_t info_bytes;
};

static void read_options(unsigned n, const CUjit_option *options, void **values, struct jit *j)
{
	memset(j, 0, sizeof(*j));
	for (unsigned i = 0; options && values && i < n; i++) {
		switch ((int)options[i]) {
		case CU_JIT_ERROR_LOG_BUFFER:
			j->log = values[i];
			break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			j->log_bytes = (size_t)(uint32_t)(uintptr_t)values[i];
			j->log_used = &values[i];
			break;
		case CU_JIT_INFO_LOG_BUFFER:
			j->info = values[i];
			break;
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
			j->info_bytes = (size_t)(uint32_t)(uintptr_t)values[i];
			break;
		default:
			break; /* options about code generation have no meaning here */
		}
	}
	if (j->info && j->info_bytes) {
		j->info[0] = 0;
	}
}

static CUresult load_text(const char *name, const char *text, size_t bytes, unsigned n, CUjit_option *options,
			  void **values, CUmodule *ret)
{
	struct jit j;
	CUcontext ctx;
	CUresult e = soft_current(&ctx);

	if (e) {
		return e;
	}
	read_options(n, options, values, &j);
	e = module_load_text(ctx, name, text, bytes, j.log, j.log_bytes, ret);
	if (j.log_used && j.log) {
		*j.log_used = (void *)(uintptr_t)(j.log_bytes ? strnlen(j.log, j.log_bytes) : 0);
	}
	return e;
}

CUresult cuModuleLoadDataEx(CUmodule *ret, const void *image, unsigned int n, CUjit_option *options, void **values)
{
	size_t bytes = 0;
	CUresult e = soft_check();

	e = e ? e : !ret ? CUDA_ERROR_INVALID_VALUE : check_image(image, &bytes);
	return e ? e : load_text("ptx", image, bytes, n, options, values, ret);
}

CUresult cuModuleLoadData(CUmodule *ret, const void *image)
{
	return cuModuleLoadDataEx(ret, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *ret, const void *image)
{
	return cuModuleLoadDataEx(ret, image, 0, NULL, NULL);
}

static CUresult read_image(const char *path, struct buf *b)
{
	size_t bytes;
	int err = path ? buf_read_file(b, path, SOFT_MAX_PTX_BYTES) : -EINVAL;

	if (err) {
		return err == -ENOENT ? CUDA_ERROR_FILE_NOT_FOUND :
		       err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY :
					CUDA_ERROR_INVALID_VALUE;
	}
	return check_image(buf_text(b), &bytes);
}

CUresult cuModuleLoad(CUmodule *ret, const char *path)
{
	struct buf b;
	CUresult e = soft_check();

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	buf_init(&b);
	e = read_image(path, &b);
	if (!e) {
		const char *leaf = strrchr(path, '/');

		e = load_text(leaf ? leaf + 1 : path, b.data, b.len, 0, NULL, NULL, ret);
	}
	buf_finish(&b);
	return e;
}

CUresult cuModuleUnload(CUmodule m)
{
	struct soft_request q = { .op = SOFT_REQ_MODULE_UNLOAD };
	struct soft_reply r;
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	if (e) {
		return e;
	}
	context_drain(m->context);
	memory_drop_module(m->context, m->id);
	q.context = m->context->slot;
	q.object = m->id;
	e = link_call(&q, -1, &r, sizeof(r), NULL);
	pthread_mutex_lock(&soft.lock);
	module_forget(m);
	pthread_mutex_unlock(&soft.lock);
	return e;
}

static CUfunction find_function(CUmodule m, const char *name)
{
	CUfunction f;

	pthread_mutex_lock(&soft.lock);
	for (f = m->functions; f && strcmp(f->name, name) != 0; f = f->next) {
	}
	pthread_mutex_unlock(&soft.lock);
	return f;
}

/* Fills a function from the server's answer; soft.lock held. */
static CUfunction make_function(CUmodule m, const char *name, const struct soft_function_info *i)
{
	CUfunction f = object_new(OBJECT_FUNCTION, sizeof(*f));

	if (!f) {
		return NULL;
	}
	f->module = m;
	f->id = i->id;
	f->n_params = MIN(i->n_params, SOFT_PARAMS_MAX);
	f->param_bytes = i->param_bytes;
	f->shared_bytes = i->shared_bytes;
	f->local_bytes = i->local_bytes;
	f->const_bytes = i->const_bytes;
	f->registers = i->registers;
	f->max_threads = i->max_threads;
	f->max_dynamic_shared = SOFT_DEFAULT_SHARED_PER_BLOCK - MIN(i->shared_bytes, SOFT_DEFAULT_SHARED_PER_BLOCK);
	f->name = strdup(name);
	f->params = calloc(f->n_params + 1, sizeof(*f->params));
	if (!f->name || !f->params) {
		free(f->name);
		free(f->params);
		object_delete(f);
		return NULL;
	}
	for (uint32_t k = 0; k < f->n_params; k++) {
		f->params[k].offset = i->params[k].offset;
		f->params[k].bytes = i->params[k].bytes;
	}
	f->next = m->functions;
	m->functions = f;
	return f;
}

CUresult module_function(CUmodule m, const char *name, CUfunction *ret)
{
	struct soft_request q = { .op = SOFT_REQ_FUNCTION, .context = m->context->slot, .object = m->id };
	struct soft_reply r = { 0 };
	CUresult e;

	if (strlen(name) >= SOFT_NAME_MAX) {
		return CUDA_ERROR_NOT_FOUND;
	}
	*ret = find_function(m, name);
	if (*ret) {
		return CUDA_SUCCESS;
	}
	snprintf(q.name, sizeof(q.name), "%s", name);
	e = link_call(&q, -1, &r, sizeof(r), NULL);
	if (e) {
		return e;
	}
	pthread_mutex_lock(&soft.lock);
	*ret = make_function(m, name, &r.function);
	pthread_mutex_unlock(&soft.lock);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleGetFunction(CUfunction *ret, CUmodule m, const char *name)
{
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	if (e) {
		return e;
	}
	return ret && name ? module_function(m, name, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult function_at(CUmodule m, uint32_t index, uint32_t *ret_n, char *name, size_t cap)
{
	struct soft_request q = { .op = SOFT_REQ_FUNCTION_AT, .context = m->context->slot, .object = m->id,
				  .index = index };
	struct soft_reply r = { 0 };
	CUresult e = link_call(&q, -1, &r, sizeof(r), NULL);

	if (!e) {
		*ret_n = r.value32;
		snprintf(name, cap, "%.*s", (int)cap - 1, index < r.value32 ? r.text : "");
	}
	return e;
}

CUresult cuModuleGetFunctionCount(unsigned int *ret, CUmodule m)
{
	char name[SOFT_NAME_MAX];
	uint32_t n = 0;
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = function_at(m, 0, &n, name, sizeof(name));
	*ret = n;
	return e;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int cap, CUmodule m)
{
	char name[SOFT_NAME_MAX];
	uint32_t n = 1;
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	if (!e && !functions) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; !e && i < cap && i < n; i++) {
		e = function_at(m, i, &n, name, sizeof(name));
		if (!e && i < n) {
			e = module_function(m, name, &functions[i]);
		}
	}
	return e;
}

static CUresult module_global(CUmodule m, const char *name, CUdeviceptr *ret, size_t *ret_bytes)
{
	struct soft_request q = { .op = SOFT_REQ_GLOBAL, .context = m->context->slot, .object = m->id };
	struct range range = { .hidden = 0 };
	struct soft_reply r = { 0 };
	CUcontext owner;
	CUresult e;

	if (!name || strlen(name) >= SOFT_NAME_MAX) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	snprintf(q.name, sizeof(q.name), "%s", name);
	e = link_call(&q, -1, &r, sizeof(r), NULL);
	if (e) {
		return e;
	}
	if (ret) {
		*ret = r.value;
	}
	if (ret_bytes) {
		*ret_bytes = r.bytes;
	}
	range.address = r.value;
	range.bytes = r.bytes;
	range.module = m->id + 1;
	return memory_find(r.value, &owner, &range) ? CUDA_SUCCESS : memory_note(m->context, &range);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *ret, size_t *ret_bytes, CUmodule m, const char *name)
{
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	return e ? e : module_global(m, name, ret, ret_bytes);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *ret)
{
	CUresult e = soft_check();

	if (!e && ret) {
		*ret = CU_MODULE_EAGER_LOADING;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Libraries: modules that are loaded into each context when they are first used there. */

CUresult cuLibraryLoadData(CUlibrary *ret, const void *code, CUjit_option *jit, void **jit_values, unsigned int n_jit,
			   CUlibraryOption *options, void **values, unsigned int n)
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
	e = e ? e : !ret ? CUDA_ERROR_INVALID_VALUE : check_image(code, &bytes);
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

CUresult cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *jit, void **jit_values,
			       unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n)
{
	struct buf b;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	buf_init(&b);
	e = read_image(path, &b);
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
		e = module_load_text(ctx, "library", l->ptx, strlen(l->ptx), NULL, 0, &l->modules[ctx->slot]);
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
	if (soft_current(&ctx) == CUDA_SUCCESS && l->modules[ctx->slot] && l->module_contexts[ctx->slot] == ctx->id) {
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
		e = function_at(m, i, &n, name, sizeof(name));
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

/* Modules, their functions and variables. Passes images unchanged to the server, whose reply
 * contains what launches need. */
#include "soft/client/module/module_load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/shm.h"
#include "ptx/module.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"
#include "soft/client/module/module_code.h"
#include "soft/client/module/module_image.h"
#include "soft/client/process.h"
#include "soft/client/server_link.h"
#include "soft/client/stream/stream.h"
#include "soft/client/strict.h"
#include "soft/client/texture/texture_ref.h"

static int descriptor(const void *data, size_t bytes)
{
	int fd = shm_create("gbpf-soft-image", bytes, SHM_NOEXEC);
	void *p;

	if (fd < 0) {
		return fd;
	}
	p = shm_map(fd, bytes, 1);
	if (!p) {
		close(fd);
		return -ENOMEM;
	}
	memcpy(p, data, bytes);
	shm_unmap(p, bytes);
	return fd;
}

/* Maps managed variables into this process at their device address. */
static CUresult map_managed(CUmodule m, uint64_t address, int fd)
{
	CUcontext ctx = m->context;
	struct stat st;
	size_t bytes;

	if (fstat(fd, &st) < 0 || st.st_size <= 0) {
		return CUDA_ERROR_MAP_FAILED;
	}
	bytes = (size_t)st.st_size;
	if (address < ctx->window->base || bytes > ctx->window->bytes ||
	    address - ctx->window->base > ctx->window->bytes - bytes ||
	    mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 fd, 0) == MAP_FAILED) {
		return CUDA_ERROR_MAP_FAILED;
	}
	m->managed = address;
	m->managed_bytes = bytes;
	return CUDA_SUCCESS;
}

static void unmap_managed(CUmodule m)
{
	if (m->managed) {
		mmap((void *)(uintptr_t)m->managed, m->managed_bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	}
}

/* Returns the function at index, if it is below *ret_n, the number of functions. */
static CUresult function_at(CUmodule m, uint32_t index, uint32_t *ret_n, CUfunction *ret)
{
	char *name;
	CUresult e = soft_module_function_at(m, index, ret_n, &name);

	if (!e && name) {
		e = soft_module_function(m, name, ret);
	}
	free(name);
	return e;
}

/* Writes the resource usage of each function to the log, as a compiler in verbose mode does. */
static void report_functions(CUmodule m, struct soft_jit *j)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < n; i++) {
		struct buf line;
		CUfunction f;

		if (function_at(m, i, &n, &f) || i >= n) {
			return;
		}
		buf_init(&line);
		buf_printf(&line,
			   "info    : function '%s': %u registers, %u bytes of shared, %u of local,"
			   " %u of constant memory, %u bytes of parameters",
			   f->name, f->registers, f->shared_bytes, f->local_bytes, f->const_bytes,
			   f->param_bytes);
		soft_jit_info(j, buf_text(&line));
		buf_finish(&line);
	}
}

CUresult soft_module_load(CUcontext ctx, const char *name, const struct soft_image *i,
			  struct soft_jit *j, CUmodule *ret)
{
	struct soft_request q = { .op = SOFT_REQ_MODULE_LOAD, .context = ctx->slot };
	struct soft_reply r = { 0 };
	CUmodule m;
	CUresult e;
	int fd, managed = -1;

	if (!i->bytes || i->bytes > SOFT_MAX_PTX_BYTES) {
		return CUDA_ERROR_INVALID_IMAGE;
	}
	fd = descriptor(i->data, i->bytes);
	if (fd < 0) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	q.index = j ? j->target : 0;
	snprintf(q.name, sizeof(q.name), "%s", name);
	e = soft_link_call(&q, fd, &r, sizeof(r), &managed);
	close(fd);
	if (e) {
		fd_close(managed);
		soft_jit_error(j, r.text);
		return e;
	}
	lock_take(&soft.lock);
	m = soft_object_create(SOFT_OBJECT_MODULE, sizeof(*m));
	if (m) {
		m->context = ctx;
		m->id = r.value32;
		m->arch = (unsigned)r.value;
		m->registers = soft_registers_ref(i->registers);
	}
	lock_release(&soft.lock);
	if (m && managed >= 0) {
		e = map_managed(m, r.bytes, managed);
	}
	fd_close(managed);
	if (e) {
		soft_module_unload(m);
		return e;
	}
	*ret = m;
	if (m && j && j->verbose && j->info) {
		report_functions(m, j);
	}
	return m ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Drops a module. Handles of modules that outlive their context stay allocated: a few objects for
 * each. */
static void module_forget(CUmodule m) REQUIRES(soft.lock)
{
	while (m->functions) {
		CUfunction f = m->functions;

		m->functions = f->next;
		free(f->name);
		free(f->params);
		free(f->old_params);
		soft_object_destroy(f);
	}
	soft_reference_drop_module(m);
	soft_registers_unref(m->registers);
	soft_object_destroy(m);
}

static CUresult current_and(CUmodule m, CUcontext *ctx)
{
	CUresult e = soft_context_current(ctx);

	return e				       ? e
	       : soft_handle_is(m, SOFT_OBJECT_MODULE) ? CUDA_SUCCESS
						       : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult load(const char *name, struct soft_image *i, unsigned n, CUjit_option *options,
		     void **values, CUmodule *ret)
{
	struct soft_jit j;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	e = e ? e : soft_jit_read(&j, n, options, values);
	if (e) {
		return e;
	}
	e = soft_image_resolve(i, name, &j);
	e = e ? e : soft_module_load(ctx, name, i, &j, ret);
	soft_jit_finish(&j);
	return e;
}

/* Also writes to the log that the image is invalid. */
static CUresult refuse(CUresult e, unsigned n, CUjit_option *options, void **values)
{
	struct soft_jit j;

	if (e == CUDA_ERROR_INVALID_VALUE || soft_jit_read(&j, n, options, values)) {
		return e;
	}
	soft_jit_error(&j,
		       e == CUDA_ERROR_NO_BINARY_FOR_GPU
			       ? "the image is machine code of another device and holds no PTX; "
				 "make it with nvcc -ptx or -fatbin"
			       : "the data is neither PTX nor a fat binary");
	soft_jit_finish(&j);
	return e;
}

CUresult cuModuleLoadDataEx(CUmodule *ret, const void *data, unsigned int n, CUjit_option *options,
			    void **values)
{
	struct soft_image i;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_image_open(&i, data);
	e = e ? refuse(e, n, options, values) : load("ptx", &i, n, options, values, ret);
	soft_image_close(&i);
	return e;
}

CUresult cuModuleLoadData(CUmodule *ret, const void *image)
{
	return cuModuleLoadDataEx(ret, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *ret, const void *image)
{
	return cuModuleLoadDataEx(ret, image, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *ret, const char *path)
{
	const char *leaf;
	struct soft_image i;
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_image_read(&i, path);
	if (!e) {
		leaf = strrchr(path, '/');
		e = load(leaf ? leaf + 1 : path, &i, 0, NULL, NULL, ret);
	}
	soft_image_close(&i);
	return e;
}

CUresult soft_module_unload(CUmodule m)
{
	struct soft_request q = { .op = SOFT_REQ_MODULE_UNLOAD };
	struct soft_reply r;
	CUresult e;

	soft_context_drain(m->context);
	soft_memory_drop_module(m->context, m->id);
	q.context = m->context->slot;
	q.object = m->id;
	unmap_managed(m);
	e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	lock_take(&soft.lock);
	module_forget(m);
	lock_release(&soft.lock);
	return e;
}

CUresult cuModuleUnload(CUmodule m)
{
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	e = e ? e : soft_capture_unsafe();
	if (e) {
		return e;
	}
	if (m->library) {
		return CUDA_ERROR_NOT_PERMITTED;
	}
	soft_handle_destroying(m);
	return soft_module_unload(m);
}

static CUfunction find_function(CUmodule m, const char *name)
{
	CUfunction f;

	lock_take(&soft.lock);
	for (f = m->functions; f && strcmp(f->name, name) != 0; f = f->next) {
	}
	lock_release(&soft.lock);
	return f;
}

/* Creates a function from the server's reply. */
static CUfunction make_function(CUmodule m, const char *name, const struct soft_function_info *i)
	REQUIRES(soft.lock)
{
	uint32_t registers = soft_registers_of(m->registers, name);
	CUfunction f = soft_object_create(SOFT_OBJECT_FUNCTION, sizeof(*f));

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
	f->registers = registers ? registers : i->registers;
	f->max_threads = i->max_threads;
	f->max_dynamic_shared =
		SOFT_DEFAULT_SHARED_PER_BLOCK - MIN(i->shared_bytes, SOFT_DEFAULT_SHARED_PER_BLOCK);
	f->name = strdup(name);
	f->params = calloc(f->n_params + 1, sizeof(*f->params));
	if (!f->name || !f->params) {
		free(f->name);
		free(f->params);
		soft_object_destroy(f);
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

/* Makes a request about a function or variable by that name. */
static CUresult call_named(struct soft_request *q, const char *name, struct soft_reply *r)
{
	size_t n = strlen(name);
	CUresult e;
	int fd = -1;

	if (n > PTX_NAME_MAX) {
		return CUDA_ERROR_NOT_FOUND;
	}
	if (n < sizeof(q->name)) {
		memcpy(q->name, name, n + 1);
	} else {
		fd = descriptor(name, n + 1);
		if (fd < 0) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	e = soft_link_call(q, fd, r, sizeof(*r), NULL);
	fd_close(fd);
	return e;
}

CUresult soft_module_function(CUmodule m, const char *name, CUfunction *ret)
{
	struct soft_request q = { .op = SOFT_REQ_FUNCTION,
				  .context = m->context->slot,
				  .object = m->id };
	struct soft_reply r = { 0 };
	CUresult e;

	*ret = find_function(m, name);
	if (*ret) {
		return CUDA_SUCCESS;
	}
	e = call_named(&q, name, &r);
	if (e) {
		return e;
	}
	*ret = find_function(m, name); /* another thread may have created it meanwhile */
	if (*ret) {
		return CUDA_SUCCESS;
	}
	lock_take(&soft.lock);
	*ret = make_function(m, name, &r.function);
	lock_release(&soft.lock);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleGetFunction(CUfunction *ret, CUmodule m, const char *name)
{
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	if (e) {
		return e;
	}
	return ret && name && name[0] ? soft_module_function(m, name, ret)
				      : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_module_function_at(CUmodule m, uint32_t index, uint32_t *ret_n, char **ret_name)
{
	struct soft_request q = { .op = SOFT_REQ_FUNCTION_AT,
				  .context = m->context->slot,
				  .object = m->id,
				  .index = index };
	struct soft_reply r = { 0 };
	struct buf name;
	CUresult e;

	*ret_name = NULL;
	buf_init(&name);
	do {
		q.value = name.len;
		e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
		r.text[sizeof(r.text) - 1] = '\0';
		if (!e && index < r.value32) {
			buf_puts(&name, r.text);
		}
	} while (!e && index < r.value32 && strlen(r.text) == sizeof(r.text) - 1 &&
		 name.len <= PTX_NAME_MAX && !name.failed);
	*ret_n = r.value32;
	if (!e && name.len > PTX_NAME_MAX) {
		e = CUDA_ERROR_UNKNOWN;
	} else if (!e && index < r.value32) {
		*ret_name = buf_steal(&name);
		e = *ret_name ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	buf_finish(&name);
	return e;
}

CUresult cuModuleGetFunctionCount(unsigned int *ret, CUmodule m)
{
	uint32_t n = 0;
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);
	char *name;

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_module_function_at(m, 0, &n, &name);
	free(name);
	*ret = n;
	return e;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int cap, CUmodule m)
{
	uint32_t n = 1;
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	if (!e && !functions) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; !e && i < cap && i < n; i++) {
		e = function_at(m, i, &n, &functions[i]);
	}
	return e;
}

static CUresult find_variable(CUmodule m, const char *name, struct soft_reply *ret)
{
	struct soft_request q = { .op = SOFT_REQ_GLOBAL,
				  .context = m->context->slot,
				  .object = m->id };

	return name ? call_named(&q, name, ret) : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_module_global(CUmodule m, const char *name, CUdeviceptr *ret, size_t *ret_bytes)
{
	struct soft_range range = { .hidden = 0 };
	struct soft_reply r = { 0 };
	CUcontext owner;
	CUresult e = find_variable(m, name, &r);

	if (!e && r.value32 > SOFT_VARIABLE_MANAGED) { /* no variable that programs access */
		e = CUDA_ERROR_NOT_FOUND;
	}
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
	range.ctx = m->context;
	range.module = m->id + 1;
	range.kind = r.value32 == SOFT_VARIABLE_MANAGED ? SOFT_RANGE_MANAGED : SOFT_RANGE_DEVICE;
	return soft_memory_find(r.value, &owner, &range)
		       ? CUDA_SUCCESS
		       : soft_memory_add(m->context->window, &range);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *ret, size_t *ret_bytes, CUmodule m, const char *name)
{
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	if (!e && ((!ret && !ret_bytes) || !name || !name[0])) {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	return e ? e : soft_module_global(m, name, ret, ret_bytes);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *ret)
{
	CUresult e = soft_check();

	if (!e && ret) {
		*ret = CU_MODULE_EAGER_LOADING;
	}
	return e ? e : ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_reference(CUmodule m, const char *name, bool surface, CUtexref *ret)
{
	struct soft_reply r = { 0 };
	CUcontext ctx;
	CUresult e = current_and(m, &ctx);

	if (e || !ret || !name) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = find_variable(m, name, &r);
	if (!e && r.value32 != (surface ? SOFT_VARIABLE_SURFREF : SOFT_VARIABLE_TEXREF)) {
		return CUDA_ERROR_NOT_FOUND;
	}
	return e ? e : soft_reference_get(m, name, r.value, surface, ret);
}

CUresult cuModuleGetTexRef(CUtexref *ret, CUmodule m, const char *name)
{
	return get_reference(m, name, false, ret);
}

CUresult cuModuleGetSurfRef(CUsurfref *ret, CUmodule m, const char *name)
{
	CUtexref r = NULL;
	CUresult e = get_reference(m, name, true, ret ? &r : NULL);

	if (!e) {
		*ret = (CUsurfref)(void *)r;
	}
	return e;
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *ret, unsigned int *ret_bytes, CUmodule m,
			   const char *name)
{
	CUdeviceptr address;
	size_t bytes;
	CUresult e = cuModuleGetGlobal_v2(&address, &bytes, m, name);

	if (e) {
		return e;
	}
	if (ret && address > UINT32_MAX) { /* addresses in that API have 32 bits */
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (ret_bytes) {
		*ret_bytes = (unsigned)bytes;
	}
	return CUDA_SUCCESS;
}

/* Modules, functions, libraries and kernels. PTX goes to the server, which answers with what
 * launches need. */
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

CUresult module_load_text(CUcontext ctx, const char *name, const char *ptx, size_t bytes, char *log,
			  size_t log_bytes, CUmodule *ret)
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
CUresult module_check_image(const void *image, size_t *ret_bytes)
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

static CUresult load_text(const char *name, const char *text, size_t bytes, unsigned n,
			  CUjit_option *options, void **values, CUmodule *ret)
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

CUresult cuModuleLoadDataEx(CUmodule *ret, const void *image, unsigned int n, CUjit_option *options,
			    void **values)
{
	size_t bytes = 0;
	CUresult e = soft_check();

	e = e ? e : !ret ? CUDA_ERROR_INVALID_VALUE : module_check_image(image, &bytes);
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

CUresult module_read_image(const char *path, struct buf *b)
{
	size_t bytes;
	int err = path ? buf_read_file(b, path, SOFT_MAX_PTX_BYTES) : -EINVAL;

	if (err) {
		return err == -ENOENT	? CUDA_ERROR_FILE_NOT_FOUND
		       : err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
					: CUDA_ERROR_INVALID_VALUE;
	}
	return module_check_image(buf_text(b), &bytes);
}

CUresult cuModuleLoad(CUmodule *ret, const char *path)
{
	struct buf b;
	CUresult e = soft_check();

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	buf_init(&b);
	e = module_read_image(path, &b);
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
	f->max_dynamic_shared =
		SOFT_DEFAULT_SHARED_PER_BLOCK - MIN(i->shared_bytes, SOFT_DEFAULT_SHARED_PER_BLOCK);
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
	struct soft_request q = { .op = SOFT_REQ_FUNCTION,
				  .context = m->context->slot,
				  .object = m->id };
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

CUresult module_function_at(CUmodule m, uint32_t index, uint32_t *ret_n, char *name, size_t cap)
{
	struct soft_request q = { .op = SOFT_REQ_FUNCTION_AT,
				  .context = m->context->slot,
				  .object = m->id,
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
	e = module_function_at(m, 0, &n, name, sizeof(name));
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
		e = module_function_at(m, i, &n, name, sizeof(name));
		if (!e && i < n) {
			e = module_function(m, name, &functions[i]);
		}
	}
	return e;
}

CUresult module_global(CUmodule m, const char *name, CUdeviceptr *ret, size_t *ret_bytes)
{
	struct soft_request q = { .op = SOFT_REQ_GLOBAL,
				  .context = m->context->slot,
				  .object = m->id };
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
	return memory_find(r.value, &owner, &range) ? CUDA_SUCCESS
						    : memory_note(m->context, &range);
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

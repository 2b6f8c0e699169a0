/* Which handles name patched kernels. Handles are learned where the program gets them; one that was
 * not is resolved by what the driver says of it: its name, its module or library, and, for a
 * function of a library's module that has not been seen, the layout of its parameters, of which the
 * last is the stub's argument. */
#include "shim/code/shim_code_int.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "shim/object/handle_set.h"

#define MAX_HANDLES 262144u

struct owner {
	CUcontext ctx;		 /* of a module; NULL: of a library */
	const void *library;	 /* this is a module of that library; NULL: it has its own image */
	struct cubin_patched *p; /* owned; NULL with library */
};

static pthread_mutex_t code_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct strmap owners; /* code_mutex; handle in hexadecimal > struct owner */
static struct strmap
	handles; /* code_mutex; handle in hexadecimal > struct cubin_kernel, or &none */
static struct cubin_kernel none; /* the code is the program's own */
static uint32_t any;		 /* [atomic] */

bool shim_code_any(void)
{
	return load_acquire(&any) != 0;
}

/* ---- owners ---- */

static void free_owner(struct owner *o)
{
	cubin_patched_close(o->p);
	free(o);
}

/* Returns false without memory. Caller holds code_mutex. */
static bool put_owner(const void *handle, struct owner *o)
{
	struct owner *before = strmap_del(&owners, shim_handle_key(handle).text);

	if (before) { /* the handle was reused without an unload */
		free_owner(before);
	}
	return strmap_add(&owners, shim_handle_key(handle).text, o) == 0;
}

/* Forgets all handles. Threads that launch a kernel that remains look it up again. Caller holds
 * code_mutex. */
static void forget_handles(void)
{
	strmap_finish(&handles);
	strmap_init(&handles);
	add_acqrel(&shim.code_generation, 1);
}

bool shim_code_note(const void *owner, CUcontext ctx, struct cubin_patched *p, bool kept)
{
	struct owner *o = calloc(1, sizeof(*o));
	bool ok = o != NULL;

	if (!kept) {
		cubin_patched_drop_image(p);
	}
	pthread_mutex_lock(&code_mutex);
	if (o) {
		o->ctx = ctx;
		o->p = p;
		ok = put_owner(owner, o);
	}
	/* An answer about a handle's earlier meaning may be in the table. */
	forget_handles();
	pthread_mutex_unlock(&code_mutex);
	if (!ok) {
		free(o);
	}
	return ok;
}

struct cubin_patched *shim_code_forget(const void *owner)
{
	struct cubin_patched *p = NULL;
	struct owner *o;

	if (!shim_code_any()) {
		return NULL;
	}
	pthread_mutex_lock(&code_mutex);
	o = strmap_del(&owners, shim_handle_key(owner).text);
	if (o) {
		p = o->p;
		free(o);
	}
	strmap_each (&owners, e) {
		struct owner *m = e->value;

		if (m->library == owner) {
			strmap_del(&owners, e->key);
			free_owner(m);
		}
	}
	forget_handles();
	pthread_mutex_unlock(&code_mutex);
	return p;
}

void shim_code_context_end(CUcontext ctx)
{
	if (!ctx || !shim_code_any()) {
		return;
	}
	pthread_mutex_lock(&code_mutex);
	strmap_each (&owners, e) {
		struct owner *o = e->value;

		if (o->ctx == ctx) {
			strmap_del(&owners, e->key);
			free_owner(o);
		}
	}
	forget_handles();
	pthread_mutex_unlock(&code_mutex);
}

/* Returns the image of a module or library, NULL if it is not a patched one. Caller holds
 * code_mutex. */
static const struct cubin_patched *image_of(const void *handle)
{
	const struct owner *o = handle ? strmap_get(&owners, shim_handle_key(handle).text) : NULL;

	if (o && o->library) {
		o = strmap_get(&owners, shim_handle_key(o->library).text);
	}
	return o ? o->p : NULL;
}

bool shim_code_owns(const void *owner)
{
	bool r;

	if (!shim_code_any()) {
		return false;
	}
	pthread_mutex_lock(&code_mutex);
	r = image_of(owner) != NULL;
	pthread_mutex_unlock(&code_mutex);
	return r;
}

static const struct cubin_kernel *kernel_in(const struct cubin_patched *p, const char *name)
{
	const struct cubin_kernel *k = cubin_patched_find(p, name);

	return k && k->why == CUBIN_OK ? k : NULL;
}

/* ---- handles ---- */

/* Caller holds code_mutex. k NULL: the code is the program's own. */
static void put_handle(const void *handle, const struct cubin_kernel *k)
{
	(void)strmap_del(&handles, shim_handle_key(handle).text);
	if (handles.live < MAX_HANDLES) {
		(void)strmap_add(&handles, shim_handle_key(handle).text, unqual(k ? k : &none));
	}
}

/* A handle that the program has just got, by name. */
static void learn(const void *handle, const void *owner, const char *name)
{
	const struct cubin_patched *p;
	const struct cubin_kernel *k;

	pthread_mutex_lock(&code_mutex);
	p = image_of(owner);
	k = p ? kernel_in(p, name) : NULL;
	if (k) {
		put_handle(handle, k);
	} else if (p && strmap_get(&handles, shim_handle_key(handle).text)) {
		put_handle(handle, NULL);
	}
	pthread_mutex_unlock(&code_mutex);
}

static CUresult param_info(bool function, const void *handle, size_t i, size_t *ret_offset,
			   size_t *ret_bytes)
{
	return function ? shim_driver.cuFuncGetParamInfo((CUfunction)(uintptr_t)handle, i,
							 ret_offset, ret_bytes)
			: shim_driver.cuKernelGetParamInfo((CUkernel)(uintptr_t)handle, i,
							   ret_offset, ret_bytes);
}

/* Returns true if the driver's parameters are those of the patched kernel. */
static bool has_layout(bool function, const void *handle, const struct cubin_kernel *k)
{
	size_t offset = 0, bytes = 0;

	return param_info(function, handle, k->n_params, &offset, &bytes) == CUDA_SUCCESS &&
	       offset == k->arg_offset && bytes == SHIM_CODE_ARG_BYTES &&
	       param_info(function, handle, (size_t)k->n_params + 1, &offset, &bytes) !=
		       CUDA_SUCCESS;
}

/* Returns the nth patched kernel of that name in all images, NULL if there are fewer. */
static const struct cubin_kernel *nth_named(const char *name, unsigned nth)
{
	const struct cubin_kernel *k = NULL;

	pthread_mutex_lock(&code_mutex);
	strmap_each (&owners, e) {
		const struct owner *o = e->value;
		const struct cubin_kernel *here = o->p ? kernel_in(o->p, name) : NULL;

		if (here && nth-- == 0) {
			k = here;
			break;
		}
	}
	pthread_mutex_unlock(&code_mutex);
	return k;
}

static const struct cubin_kernel *by_layout(bool function, const void *handle, const char *name)
{
	const struct cubin_kernel *k;

	for (unsigned i = 0; (k = nth_named(name, i)) != NULL; i++) {
		if (has_layout(function, handle, k)) {
			return k;
		}
	}
	return NULL;
}

/* Asks the driver what the handle is. No lock is held over its calls. */
static const struct cubin_kernel *resolve(const void *handle)
{
	CUfunction f = (CUfunction)(uintptr_t)handle;
	CUkernel kernel = (CUkernel)(uintptr_t)handle;
	const struct cubin_kernel *k = NULL;
	const struct cubin_patched *p;
	const char *name = NULL;
	const void *owner = NULL;
	CUlibrary library = NULL;
	CUmodule module = NULL;
	bool function = shim_driver.cuFuncGetName(&name, f) == CUDA_SUCCESS && name;

	if (function) {
		owner = shim_driver.cuFuncGetModule(&module, f) == CUDA_SUCCESS ? module : NULL;
	} else if (shim_driver.cuKernelGetName(&name, kernel) == CUDA_SUCCESS && name) {
		owner = shim_driver.cuKernelGetLibrary(&library, kernel) == CUDA_SUCCESS ? library
											 : NULL;
	} else {
		return NULL;
	}
	pthread_mutex_lock(&code_mutex);
	p = image_of(owner);
	k = p ? kernel_in(p, name) : NULL;
	pthread_mutex_unlock(&code_mutex);
	return p || (library && owner) ? k : by_layout(function, handle, name);
}

static const struct cubin_kernel *find(const void *handle)
{
	const struct cubin_kernel *k;

	pthread_mutex_lock(&code_mutex);
	k = strmap_get(&handles, shim_handle_key(handle).text);
	pthread_mutex_unlock(&code_mutex);
	if (!k) {
		k = resolve(handle);
		pthread_mutex_lock(&code_mutex);
		put_handle(handle, k);
		pthread_mutex_unlock(&code_mutex);
	}
	return k == &none ? NULL : k;
}

const struct cubin_kernel *shim_code_lookup(const void *handle, struct shim_thread *t,
					    unsigned slot)
{
	uint32_t now = load_acquire(&shim.code_generation);
	const struct cubin_kernel *k;

	if (!handle) {
		return NULL;
	}
	if (t && t->code_generation != now) {
		memset(t->codes, 0, sizeof(t->codes));
		t->code_generation = now;
	}
	if (t && t->codes[slot ^ 1].key == (uintptr_t)handle) {
		return t->codes[slot ^ 1].kernel;
	}
	k = find(handle);
	if (t) {
		slot = t->codes[slot].key && !t->codes[slot ^ 1].key ? slot ^ 1 : slot;
		t->codes[slot] = (struct shim_thread_code){ (uintptr_t)handle, k };
	}
	return k;
}

/* ---- where the program gets handles ---- */

static CUresult get_function(CUfunction *ret, CUmodule module, const char *name)
{
	CUresult r = shim_driver.cuModuleGetFunction(ret, module, name);

	if (r == CUDA_SUCCESS && ret && name) {
		learn(*ret, module, name);
	}
	return r;
}

static CUresult get_kernel(CUkernel *ret, CUlibrary library, const char *name)
{
	CUresult r = shim_driver.cuLibraryGetKernel(ret, library, name);

	if (r == CUDA_SUCCESS && ret && name) {
		learn(*ret, library, name);
	}
	return r;
}

static CUresult get_function_of_kernel(CUfunction *ret, CUkernel kernel)
{
	CUresult r = shim_driver.cuKernelGetFunction(ret, kernel);
	const struct cubin_kernel *k;

	if (r == CUDA_SUCCESS && ret && *ret) {
		k = shim_code_kernel(kernel);
		pthread_mutex_lock(&code_mutex);
		put_handle(*ret, k);
		pthread_mutex_unlock(&code_mutex);
	}
	return r;
}

static CUresult get_module(CUmodule *ret, CUlibrary library)
{
	CUresult r = shim_driver.cuLibraryGetModule(ret, library);
	struct owner *o = r == CUDA_SUCCESS && ret ? calloc(1, sizeof(*o)) : NULL;

	if (!o) {
		return r;
	}
	(void)shim_driver.cuCtxGetCurrent(&o->ctx);
	o->library = library;
	pthread_mutex_lock(&code_mutex);
	/* Without memory the module's functions are recognized by their parameters. */
	if (image_of(library) && put_owner(*ret, o)) {
		o = NULL;
	}
	pthread_mutex_unlock(&code_mutex);
	free(o);
	return r;
}

void shim_code_lead_handles(void)
{
	store_release(&any, 1u);
	store_release(&shim_real.cuModuleGetFunction, get_function);
	store_release(&shim_real.cuLibraryGetKernel, get_kernel);
	store_release(&shim_real.cuKernelGetFunction, get_function_of_kernel);
	store_release(&shim_real.cuLibraryGetModule, get_module);
}

/* Which handles name patched kernels. Handles are learned where the program gets them; one that was
 * not is resolved by what the driver says of it: its name, its module or library, and, for a
 * function of a library's module that has not been seen, the layout of its parameters, of which the
 * last is the stub's argument. */
#include "shim/code/shim_code_int.h"

#include <stdlib.h>

#include "base/strmap.h"
#include "shim/object/green_context.h"
#include "shim/object/handle_set.h"

#define MAX_HANDLES 262144u

struct owner {
	CUcontext ctx;		 /* of a module; NULL: of a library */
	const void *library;	 /* this is a module of that library; NULL: it has its own image */
	struct cubin_patched *p; /* owned; NULL with library */
	bool lent;		 /* kernels of p may serve handles of other owners: keep it */
	uint64_t number;	 /* of its record */
	struct owner *next;	 /* in lent_owners */
};

static struct lock code_mutex = LOCK_INITIALIZER(CODE);
static struct strmap owners GUARDED_BY(code_mutex); /* handle in hexadecimal > struct owner */
/* Handle in hexadecimal > struct cubin_kernel, or &shim_code_own. */
static struct strmap handles GUARDED_BY(code_mutex);
static struct owner *lent_owners GUARDED_BY(code_mutex); /* unloaded, whose kernels were lent */
static uint32_t any;					 /* [atomic] */
static uint64_t recorded GUARDED_BY(code_mutex);	 /* owners ever */

struct cubin_kernel shim_code_own;

bool shim_code_any(void)
{
	return load_acquire(&any) != 0;
}

/* ---- owners ---- */

static void free_owner(struct owner *o) REQUIRES(code_mutex)
{
	if (o->lent) {
		cubin_patched_drop_image(o->p);
		o->next = lent_owners;
		lent_owners = o;
		return;
	}
	cubin_patched_close(o->p);
	free(o);
}

/* Clears the threads' caches: the table has the handles that remain, so no driver is asked again
 * about their code. */
static void invalidate_threads(void) REQUIRES(code_mutex)
{
	add_acqrel(&shim.kernel_generation, 1);
}

/* Forgets all handles. */
static void forget_handles(void) REQUIRES(code_mutex)
{
	strmap_finish(&handles);
	strmap_init(&handles);
	invalidate_threads();
}

static bool is_of(const struct cubin_patched *p, const struct cubin_kernel *k)
{
	return p && cubin_patched_find(p, k->name) == k;
}

/* Forgets the handles of an image's kernels, p NULL: of none, and those whose code is the program's
 * own, of which it is not known whose they are. */
static void forget_handles_of(const struct cubin_patched *p) REQUIRES(code_mutex)
{
	strmap_each (&handles, e) {
		const struct cubin_kernel *k = e->value;

		if (k == &shim_code_own || is_of(p, k)) {
			strmap_del(&handles, e->key);
		}
	}
	invalidate_threads();
}

/* Takes o. Returns false without memory, and leaves it to the caller. A new owner has handles that
 * no other one has, so nothing that is known becomes wrong. */
static bool put_owner(const void *handle, struct owner *o) REQUIRES(code_mutex)
{
	struct owner *before = strmap_del(&owners, shim_handle_key(handle).text);

	if (before) { /* the handle was reused after an unload that was not seen */
		forget_handles();
		free_owner(before);
	}
	o->number = ++recorded;
	return strmap_add(&owners, shim_handle_key(handle).text, o) == 0;
}

bool shim_code_note(const void *owner, CUcontext ctx, struct cubin_patched *p, bool kept)
{
	struct owner *o = calloc(1, sizeof(*o));
	bool ok = o != NULL;

	if (!kept) {
		cubin_patched_drop_image(p);
	}
	lock_take(&code_mutex);
	if (o) {
		o->ctx = ctx;
		o->p = p;
		ok = put_owner(owner, o);
	}
	lock_release(&code_mutex);
	if (!ok) {
		free(o);
	}
	return ok;
}

uint64_t shim_code_unloading(const void *owner)
{
	const struct owner *o;
	uint64_t until;

	if (!shim_code_any()) {
		return 0;
	}
	lock_take(&code_mutex);
	until = recorded;
	o = strmap_get(&owners, shim_handle_key(owner).text);
	forget_handles_of(o ? o->p : NULL);
	lock_release(&code_mutex);
	return until;
}

void shim_code_unloaded(const void *owner, uint64_t until)
{
	struct owner *o;

	if (!shim_code_any()) {
		return;
	}
	lock_take(&code_mutex);
	o = strmap_get(&owners, shim_handle_key(owner).text);
	if (o && o->number <= until) {
		forget_handles_of(o->p); /* as below */
		strmap_del(&owners, shim_handle_key(owner).text);
		free_owner(o);
	}
	strmap_each (&owners, e) {
		struct owner *m = e->value;

		if (m->library == owner && m->number <= until) {
			strmap_del(&owners, e->key);
			free_owner(m);
		}
	}
	lock_release(&code_mutex);
}

/* The owner has no patched image; its handle may have been reused as in put_owner. */
static void drop_owner(const void *handle) REQUIRES(code_mutex)
{
	struct owner *o = strmap_del(&owners, shim_handle_key(handle).text);

	if (o) {
		forget_handles();
		free_owner(o);
	}
}

void shim_code_loaded_unpatched(const void *owner)
{
	if (!shim_code_any()) {
		return;
	}
	lock_take(&code_mutex);
	drop_owner(owner);
	lock_release(&code_mutex);
}

static uint64_t context_ending(CUcontext ctx)
{
	uint64_t until;

	if (!shim_code_any()) {
		return 0;
	}
	lock_take(&code_mutex);
	until = recorded;
	forget_handles(); /* also those of library kernels' functions in the context */
	lock_release(&code_mutex);
	return until;
}

static void context_ended(CUcontext ctx, uint64_t until, bool gone)
{
	if (!gone || !shim_code_any()) {
		return;
	}
	lock_take(&code_mutex);
	forget_handles(); /* others may have been found by their layout meanwhile */
	strmap_each (&owners, e) {
		struct owner *o = e->value;

		if (o->ctx == ctx && o->number <= until) {
			strmap_del(&owners, e->key);
			free_owner(o);
		}
	}
	lock_release(&code_mutex);
}

static void unloaded(const void *owner, uint64_t until, bool gone)
{
	if (gone) {
		shim_code_unloaded(owner, until);
	}
}

const struct shim_part shim_code_part = { .unloading = shim_code_unloading,
					  .unloaded = unloaded,
					  .context_ending = context_ending,
					  .context_ended = context_ended };

/* Returns the image of a module or library, NULL if it is not a patched one. */
static const struct cubin_patched *image_of(const void *handle) REQUIRES(code_mutex)
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
	lock_take(&code_mutex);
	r = image_of(owner) != NULL;
	lock_release(&code_mutex);
	return r;
}

static const struct cubin_kernel *kernel_in(const struct cubin_patched *p, const char *name)
{
	const struct cubin_kernel *k = cubin_patched_find(p, name);

	return k && k->why == CUBIN_OK ? k : NULL;
}

/* ---- handles ---- */

/* k NULL: the code is the program's own. If the table has another answer, the driver has reused the
 * handle after an unload that was not seen. */
static void put_handle(const void *handle, const struct cubin_kernel *k) REQUIRES(code_mutex)
{
	const struct cubin_kernel *now = k ? k : &shim_code_own;
	const struct cubin_kernel *before = strmap_del(&handles, shim_handle_key(handle).text);

	if (before && before != now) {
		invalidate_threads();
	}
	if (handles.live < MAX_HANDLES) {
		(void)strmap_add(&handles, shim_handle_key(handle).text, unqual(now));
	}
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

/* Returns the nth patched kernel of that name in all libraries, NULL if there are fewer. It remains
 * although its library may be unloaded by another thread. Functions of a module are found by it. */
static const struct cubin_kernel *nth_named(const char *name, unsigned nth)
{
	const struct cubin_kernel *k = NULL;

	lock_take(&code_mutex);
	strmap_each (&owners, e) {
		struct owner *o = e->value;
		const struct cubin_kernel *here = o->p && !o->ctx ? kernel_in(o->p, name) : NULL;

		if (here && nth-- == 0) {
			o->lent = true;
			k = here;
			break;
		}
	}
	lock_release(&code_mutex);
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

/* Asks the driver what the handle is. No lock is held over its calls. *ret_known: it knows it. */
static const struct cubin_kernel *resolve(const void *handle, bool *ret_known)
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
		*ret_known = false;
		return NULL;
	}
	*ret_known = true;
	lock_take(&code_mutex);
	p = image_of(owner);
	k = p ? kernel_in(p, name) : NULL;
	lock_release(&code_mutex);
	return p || (library && owner) ? k : by_layout(function, handle, name);
}

/* *ret_lasts: the answer may be kept, until handles are forgotten. It may not if it was resolved
 * while another thread forgot some, nor if the driver refuses the handle, which it may assign at
 * any time. */
static const struct cubin_kernel *find(const void *handle, bool *ret_lasts)
{
	const struct cubin_kernel *k;
	uint32_t generation;
	bool known;

	*ret_lasts = true;

	lock_take(&code_mutex);
	generation = load_relaxed(&shim.kernel_generation);
	k = strmap_get(&handles, shim_handle_key(handle).text);
	lock_release(&code_mutex);
	if (!k) {
		k = resolve(handle, &known);
		lock_take(&code_mutex);
		*ret_lasts = known && generation == load_relaxed(&shim.kernel_generation);
		if (*ret_lasts) {
			put_handle(handle, k);
		}
		lock_release(&code_mutex);
	}
	return k == &shim_code_own ? NULL : k;
}

const struct cubin_kernel *shim_code_lookup(const void *handle, struct shim_thread *t)
{
	const struct cubin_kernel *k;
	struct shim_thread_kernel *e;
	uint32_t generation;
	bool lasts;

	if (!handle) {
		return NULL;
	}
	generation = t ? shim_thread_fill_begin(t) : 0;
	k = find(handle, &lasts);
	e = t && lasts ? shim_thread_fill(t, (uintptr_t)handle, generation) : NULL;
	if (e) {
		e->code = k ? k : &shim_code_own;
	}
	return k;
}

/* ---- handles that the program has just got ---- */

void shim_code_learn(const void *handle, const void *owner, const char *name)
{
	const struct cubin_patched *p;
	const struct cubin_kernel *k, *before;

	lock_take(&code_mutex);
	before = strmap_get(&handles, shim_handle_key(handle).text);
	p = image_of(owner);
	k = p ? kernel_in(p, name) : NULL;
	if (k || (p && before)) {
		put_handle(handle, k);
	} else if (before &&
		   before != &shim_code_own) { /* as in put_handle; the driver is asked again */
		strmap_del(&handles, shim_handle_key(handle).text);
		invalidate_threads();
	}
	lock_release(&code_mutex);
}

void shim_code_learn_function(CUfunction f, CUkernel kernel)
{
	const struct cubin_kernel *k = shim_code_kernel(kernel);

	lock_take(&code_mutex);
	put_handle(f, k);
	lock_release(&code_mutex);
}

void shim_code_learn_module(CUmodule module, CUlibrary library)
{
	struct owner *o = calloc(1, sizeof(*o));
	struct owner *before;

	if (!o) { /* the module's functions are recognized by their parameters */
		return;
	}
	(void)shim_driver.cuCtxGetCurrent(&o->ctx);
	o->ctx = shim_green_base(o->ctx); /* with which its modules end */
	o->library = library;
	lock_take(&code_mutex);
	before = strmap_get(&owners, shim_handle_key(module).text);
	if (before && before->p) { /* its clones are excluded later, by shim_image_note_module() */
		before->lent = true;
	}
	if (!image_of(library)) {
		drop_owner(module);
	} else if ((!before || before->library != library) && put_owner(module, o)) {
		o = NULL;
	}
	lock_release(&code_mutex);
	free(o);
}

void shim_code_start(void)
{
	store_release(&any, 1u);
}

void shim_code_handles_before_fork(void) ACQUIRES(code_mutex)
{
	lock_take(&code_mutex);
}

void shim_code_handles_after_fork(void) RELEASES(code_mutex)
{
	lock_release(&code_mutex);
}

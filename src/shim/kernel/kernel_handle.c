/* Names of kernels. The driver reports them since CUDA 12.3 (cuFuncGetName, cuKernelGetName); for
 * older drivers the name by which the program requested the handle is used. Graphs have no name;
 * theirs is derived from the handle. */
#include "shim/kernel/kernel_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "ptx/probe_pointers.h"
#include "proto/block_why.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_int.h"
#include "shim/kernel/loaded_image.h"
#include "shim/mem/charge.h"
#include "shim/mem/overhead.h"
#include "shim/object/handle_set.h"

#define MAX_KERNELS 262144u
#define MAX_UNKNOWN 65536u /* from how many on there is no room for handles that were not noted */

struct lock shim_kernels_mutex = LOCK_INITIALIZER(KERNELS);
struct strmap shim_kernels;

struct shim_kernel shim_kernel_none;

/* ---- the table ---- */

/* Returns NULL if nothing is known of the handle. */
static struct shim_kernel *known(const void *handle) REQUIRES(shim_kernels_mutex)
{
	return strmap_get(&shim_kernels, shim_handle_key(handle).text);
}

/* The same, if the program got the handle through the shim. */
static struct shim_kernel *noted(const void *handle) REQUIRES(shim_kernels_mutex)
{
	struct shim_kernel *k = handle ? known(handle) : NULL;

	return k && k->name ? k : NULL;
}

/* Returns the record of a handle, a new one if it has none and there are fewer than `most`; NULL:
 * no room, or no memory. */
static struct shim_kernel *record_of(const void *handle, uint32_t most) REQUIRES(shim_kernels_mutex)
{
	struct shim_kernel *k = known(handle);

	if (k || shim_kernels.live >= most) {
		return k;
	}
	k = calloc(1, sizeof(*k));
	if (k) {
		k->handle = handle;
	}
	if (k && strmap_add(&shim_kernels, shim_handle_key(handle).text, k) < 0) {
		free(k);
		k = NULL;
	}
	return k;
}

void shim_kernel_drop_pointers(struct shim_kernel *k)
{
	free(k->pointers);
	k->pointers = NULL;
}

void shim_kernel_means_another(struct shim_kernel *k)
{
	if (k->clone) {
		or_relaxed(&k->clone->excluded, (uint8_t)SHIM_CLONE_FORMER);
	}
	free(k->name);
	k->name = NULL;
	shim_kernel_drop_pointers(k);
	store_release(&k->clone, NULL);
	store_release(&k->counted, NULL);
	add_acqrel(&shim.kernel_generation, 1);
}

bool shim_kernel_names_the_same(const struct shim_kernel *k, const char *name, const void *owner,
				uint64_t load)
{
	bool loaded_again = k->owner == owner && k->load && load && k->load != load;

	return k->name && strcmp(k->name, name) == 0 && !loaded_again;
}

void shim_kernel_note(const void *handle, const char *name, const void *owner,
		      enum shim_kernel_kind kind)
{
	struct ptx_pointers *pointers = shim_image_pointers(owner, name), *before;
	uint64_t load = shim_image_load(owner);
	struct shim_kernel *k;
	bool again;

	if (unlikely(proto_communicates(name))) {
		sched_will_communicate(shim.sched); /* before its first launch */
	}
	lock_take(&shim_kernels_mutex);
	k = known(handle);
	again = k && shim_kernel_names_the_same(k, name, owner, load);
	if (k && !again) {
		shim_kernel_means_another(k);
	}
	k = k ? k : record_of(handle, MAX_KERNELS);
	if (k) {
		if (!again || !load || k->load != load) {
			k->probes = load_acquire(&shim.probes_attached);
		}
		k->name = again ? k->name : strdup(name);
		k->owner = owner;
		k->kind = kind;
		k->load = load;
		before = k->pointers;
		k->pointers = pointers;
		pointers = before;
	}
	lock_release(&shim_kernels_mutex);
	free(pointers);
}

/* The handles of a module or library that is being unloaded may be reused with another meaning.
 * Launches that wait may still use their clones. */
static uint64_t forget(const void *owner)
{
	lock_take(&shim_kernels_mutex);
	strmap_each (&shim_kernels, e) {
		struct shim_kernel *k = e->value;

		if (k->name && shim_image_is_of(k->owner, owner)) {
			free(k->name);
			k->name = NULL;
			shim_kernel_drop_pointers(k);
		}
	}
	add_acqrel(&shim.kernel_generation, 1);
	lock_release(&shim_kernels_mutex);
	return 0;
}

const struct shim_part shim_kernel_part = { .if_attached = true, .unloading = forget };

CUresult shim_kernel_attribute(int *ret, CUfunction_attribute what, CUfunction f, bool library)
{
	CUdevice d = 0;

	if (!library) {
		return SHIM_REAL(cuFuncGetAttribute)(ret, what, f);
	}
	(void)shim_real.cuCtxGetDevice(&d);
	return SHIM_REAL(cuKernelGetAttribute)(ret, what, (CUkernel)(void *)f, d);
}

bool shim_kernel_is_library(const void *handle)
{
	const struct shim_kernel *k;
	bool r;

	lock_take(&shim_kernels_mutex);
	k = noted(handle);
	r = k && k->kind == SHIM_KERNEL_OF_LIBRARY;
	lock_release(&shim_kernels_mutex);
	return r;
}

bool shim_kernel_glance(const void *handle, struct shim_kernel_glance *ret,
			struct ptx_pointers *ret_pointers)
{
	const struct shim_kernel *k;
	const struct sched_kernel *counted;

	if (!lock_try(&shim_kernels_mutex)) {
		return false;
	}
	k = noted(handle);
	counted = k ? load_acquire(&k->counted) : NULL;
	*ret = (struct shim_kernel_glance){ .known = k && !k->stale && k->pointers,
					    .library = k && k->kind == SHIM_KERNEL_OF_LIBRARY,
					    .hash = counted ? sched_kernel_hash(counted) : 0 };
	if (ret->known) {
		*ret_pointers = *k->pointers;
	}
	lock_release(&shim_kernels_mutex);
	return true;
}

bool shim_kernel_origin(const void *handle, struct shim_kernel_origin *ret)
{
	const struct shim_kernel *k;

	ret->name = NULL;
	lock_take(&shim_kernels_mutex);
	k = noted(handle);
	if (k) {
		ret->owner = k->owner;
		ret->kind = k->kind;
		ret->probes = k->probes;
		ret->load = k->load;
		ret->name = strdup(k->name);
	}
	lock_release(&shim_kernels_mutex);
	return ret->name != NULL;
}

/* Returns the name that the driver has for one of these, the other is NULL; NULL: none. */
static const char *driver_name(CUkernel kernel, CUfunction function)
{
	const char *name = NULL;
	CUresult r = kernel ? shim_real.cuKernelGetName(&name, kernel)
			    : shim_real.cuFuncGetName(&name, function);

	return r == CUDA_SUCCESS ? name : NULL;
}

static bool is_function_of(const void *kernel, CUfunction function)
{
	CUfunction of = NULL;

	return shim_real.cuKernelGetFunction(&of, (CUkernel)(uintptr_t)kernel) == CUDA_SUCCESS &&
	       of == function;
}

/* Returns the library's kernel with that function in the current context. */
static const void *kernel_with(CUfunction function) REQUIRES(shim_kernels_mutex)
{
	const char *name = driver_name(NULL, function);

	if (!name) {
		return NULL;
	}
	strmap_each (&shim_kernels, e) {
		const struct shim_kernel *k = e->value;

		if (k->name && k->kind == SHIM_KERNEL_OF_LIBRARY && strcmp(k->name, name) == 0 &&
		    is_function_of(k->handle, function)) {
			return k->handle;
		}
	}
	return NULL;
}

const void *shim_kernel_noted(CUkernel kernel, CUfunction function)
{
	const void *found = NULL;

	lock_take(&shim_kernels_mutex);
	if (noted(kernel)) {
		found = kernel;
	} else if (noted(function)) {
		found = function;
	} else if (function) {
		found = kernel_with(function);
	}
	lock_release(&shim_kernels_mutex);
	return found;
}

/* Returns the scheduler's kernel by name, NULL if there is no name, or no memory. Without the mutex
 * the name might be forgotten. */
static struct sched_kernel *by_name(const struct shim_kernel *k) REQUIRES(shim_kernels_mutex)
{
	bool library = k->name && k->kind == SHIM_KERNEL_OF_LIBRARY;
	struct sched_kernel *counted;
	const char *name = NULL;

	if (!library) {
		name = driver_name(NULL, (CUfunction)(uintptr_t)k->handle);
	}
	if (!name && (!k->name || library)) {
		name = driver_name((CUkernel)(uintptr_t)k->handle, NULL);
	}
	if (!name) {
		name = k->name;
	}
	counted = name ? sched_kernel_get(shim.sched, name) : NULL;
	if (!k->name && counted && sched_kernel_form(counted) == PROTO_FORM_UNKNOWN) {
		sched_kernel_set_form(shim.sched, counted, PROTO_FORM_NONE,
				      "the program got its handle in an unknown way");
	}
	return counted;
}

/* Returns the scheduler's kernel, looked up by name where it is not known. */
static struct sched_kernel *counted_of(struct shim_kernel *k) REQUIRES(shim_kernels_mutex)
{
	if (!k->counted || k->stale) {
		store_release(&k->counted, by_name(k));
		k->stale = false;
	}
	return k->counted;
}

static int by_owner(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct shim_kernel_launched *)a)->owner;
	uintptr_t y = (uintptr_t)((const struct shim_kernel_launched *)b)->owner;

	return x < y ? -1 : x > y;
}

struct shim_kernel_launched *shim_kernel_launched(size_t *ret_n)
{
	struct shim_kernel_launched *all;
	size_t n = 0;

	lock_take(&shim_kernels_mutex);
	all = calloc(shim_kernels.live + 1, sizeof(*all));
	strmap_each (&shim_kernels, e) {
		const struct shim_kernel *k = e->value;

		if (all && k->name && k->counted &&
		    sched_kernel_form(k->counted) == PROTO_FORM_UNKNOWN) {
			all[n].owner = k->owner;
			all[n].kernel = k->counted;
			all[n].name = strdup(k->name);
			n += all[n].name != NULL;
		}
	}
	lock_release(&shim_kernels_mutex);
	if (all) {
		qsort(all, n, sizeof(*all), by_owner);
	}
	*ret_n = n;
	return all;
}

void shim_kernel_launched_free(struct shim_kernel_launched *l, size_t n)
{
	for (size_t i = 0; l && i < n; i++) {
		free(l[i].name);
	}
	free(l);
}

struct sched_kernel *shim_kernel_counted(const void *handle)
{
	struct sched_kernel *counted;
	struct shim_kernel *k;

	lock_take(&shim_kernels_mutex);
	k = noted(handle);
	counted = k ? counted_of(k) : NULL;
	lock_release(&shim_kernels_mutex);
	return counted;
}

static void graph_name(char text[32], const void *exec)
{
	snprintf(text, 32, "graph:%08x", (unsigned)hash_bytes(&exec, sizeof(exec)));
}

struct sched_kernel *shim_kernel_counted_graph(const void *exec)
{
	char text[32];

	graph_name(text, exec);
	return sched_kernel_find(shim.sched, text);
}

bool shim_kernel_communicates(CUkernel kernel, CUfunction function)
{
	const void *handle = kernel ? (const void *)kernel : (const void *)function;
	const char *name;
	const struct shim_kernel *k;
	bool found;

	if (!sched_may_communicate(shim.sched)) {
		return false; /* none of the process does */
	}
	name = driver_name(kernel, function);
	if (name) {
		return proto_communicates(name);
	}
	lock_take(&shim_kernels_mutex);
	k = noted(handle);
	found = k && proto_communicates(k->name);
	lock_release(&shim_kernels_mutex);
	return found;
}

void shim_kernel_set_graph(const void *exec, bool communicates)
{
	struct sched_kernel *k;
	char text[32];

	graph_name(text, exec);
	k = communicates ? sched_kernel_get(shim.sched, text) : sched_kernel_find(shim.sched, text);
	if (k) {
		sched_kernel_set_communicates(k, communicates);
	}
}

/* The statistics show why its launches have no clone. */
static void show_why(const struct shim_kernel *k)
{
	const struct shim_clone *t = load_acquire(&k->clone);
	uint8_t reported = t ? load_relaxed(&t->reported_why) : PROTO_BLOCK_UNKNOWN;
	uint8_t why = reported ? reported : t ? t->why : PROTO_BLOCK_UNKNOWN;

	if (k->counted && why != PROTO_BLOCK_UNKNOWN) {
		sched_kernel_set_block(k->counted, why);
	}
}

const struct shim_kernel *shim_kernel_look_up(struct shim_thread *t, const void *handle)
{
	struct shim_thread_kernel *e;
	struct shim_kernel *k;
	uint32_t generation;

	if (!handle) { /* the driver refuses the launch */
		return &shim_kernel_none;
	}
	generation = shim_thread_fill_begin(t);
	lock_take(&shim_kernels_mutex);
	k = record_of(handle, MAX_UNKNOWN);
	if (k) {
		(void)counted_of(k);
	}
	lock_release(&shim_kernels_mutex);
	if (k) {
		(void)shim_clone_get(handle);
		show_why(k);
	}
	shim_mem_overhead_changed(); /* the first launch of a kernel may take memory */
	e = k ? shim_thread_fill(t, (uintptr_t)handle, generation) : NULL;
	if (e) {
		e->kernel = k;
	}
	return k ? k : &shim_kernel_none;
}

struct sched_kernel *shim_kernel_look_up_graph(struct shim_thread *t, const void *exec)
{
	struct sched_kernel *k;
	struct shim_thread_kernel *e;
	uint32_t generation;
	char text[32];

	if (!exec) {
		return NULL;
	}
	generation = shim_thread_fill_begin(t);
	graph_name(text, exec);
	k = sched_kernel_get(shim.sched, text);
	if (k) {
		sched_kernel_set_block(k, PROTO_BLOCK_CAPTURE);
		if (sched_kernel_form(k) == PROTO_FORM_UNKNOWN) {
			sched_kernel_set_form(shim.sched, k, PROTO_FORM_UNKNOWN,
					      "a graph whose kernels are not known");
		}
	}
	shim_mem_overhead_changed();
	e = k ? shim_thread_fill(t, (uintptr_t)exec | SHIM_THREAD_GRAPH, generation) : NULL;
	if (e) {
		e->graph = k;
	}
	return k;
}

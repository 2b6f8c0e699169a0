/* Names of kernels. The driver reports them since CUDA 12.3 (cuFuncGetName, cuKernelGetName); for
 * older drivers the name by which the program requested the handle is used. Graphs have no name;
 * theirs is derived from the handle. */
#include "shim/kernel/kernel_handle.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "proto/block_why.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/loaded_image.h"
#include "shim/mem/overhead.h"
#include "shim/object/handle_set.h"

#define MAX_NOTES 65536u

static pthread_mutex_t notes_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct strmap notes; /* notes_mutex; handle in hexadecimal > struct note */

struct note {
	const void *owner;
	enum shim_kernel_kind kind;
	uint32_t probes;
	uint64_t load;
	struct sched_kernel *kernel; /* NULL: not launched yet */
	char name[];
};

void shim_kernel_note(const void *handle, const char *name, const void *owner,
		      enum shim_kernel_kind kind)
{
	size_t len = strlen(name) + 1;
	struct note *n = malloc(sizeof(*n) + len), *before;

	if (!n) {
		return;
	}
	n->owner = owner;
	n->kind = kind;
	n->probes = load_acquire(&shim.probes_attached);
	n->load = shim_image_load(owner);
	n->kernel = NULL;
	memcpy(n->name, name, len);
	if (unlikely(proto_communicates(name))) {
		sched_will_communicate(shim.sched); /* before its first launch */
	}
	pthread_mutex_lock(&notes_mutex);
	before = strmap_del(&notes, shim_handle_key(handle).text);
	if (before && n->load && before->load == n->load && strcmp(before->name, name) == 0) {
		n->probes = before->probes; /* asked for again, not reused by the driver */
		n->kernel = before->kernel;
	}
	free(before);
	if (notes.live < MAX_NOTES && strmap_add(&notes, shim_handle_key(handle).text, n) == 0) {
		n = NULL;
	}
	pthread_mutex_unlock(&notes_mutex);
	free(n);
}

/* The handles of a module or library that is being unloaded may be reused with another meaning. */
static uint64_t forget(const void *owner)
{
	pthread_mutex_lock(&notes_mutex);
	strmap_each (&notes, e) {
		struct note *n = e->value;

		if (shim_image_is_of(n->owner, owner)) {
			strmap_del(&notes, e->key);
			free(n);
		}
	}
	add_acqrel(&shim.kernel_generation, 1);
	pthread_mutex_unlock(&notes_mutex);
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
	const struct note *n;
	bool r;

	pthread_mutex_lock(&notes_mutex);
	n = strmap_get(&notes, shim_handle_key(handle).text);
	r = n && n->kind == SHIM_KERNEL_OF_LIBRARY;
	pthread_mutex_unlock(&notes_mutex);
	return r;
}

bool shim_kernel_origin(const void *handle, struct shim_kernel_origin *ret)
{
	const struct note *n;

	ret->name = NULL;
	pthread_mutex_lock(&notes_mutex);
	n = strmap_get(&notes, shim_handle_key(handle).text);
	if (n) {
		ret->owner = n->owner;
		ret->kind = n->kind;
		ret->probes = n->probes;
		ret->name = strdup(n->name);
	}
	pthread_mutex_unlock(&notes_mutex);
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

/* Returns the library's kernel with that function in the current context. Caller holds notes_mutex.
 */
static const void *kernel_with(CUfunction function)
{
	const char *name = driver_name(NULL, function);

	if (!name) {
		return NULL;
	}
	strmap_each (&notes, e) {
		const struct note *n = e->value;
		const void *kernel = (const void *)(uintptr_t)strtoull(e->key, NULL, 16);

		if (n->kind == SHIM_KERNEL_OF_LIBRARY && strcmp(n->name, name) == 0 &&
		    is_function_of(kernel, function)) {
			return kernel;
		}
	}
	return NULL;
}

static bool is_noted(const void *handle)
{
	return handle && strmap_get(&notes, shim_handle_key(handle).text);
}

const void *shim_kernel_noted(CUkernel kernel, CUfunction function)
{
	const void *found = NULL;

	pthread_mutex_lock(&notes_mutex);
	if (is_noted(kernel)) {
		found = kernel;
	} else if (is_noted(function)) {
		found = function;
	} else if (function) {
		found = kernel_with(function);
	}
	pthread_mutex_unlock(&notes_mutex);
	return found;
}

/* Returns the scheduler's kernel by name, NULL if there is no name. Caller holds notes_mutex, since
 * the note may be forgotten. */
static struct sched_kernel *by_name(const void *handle)
{
	struct sched_kernel *k;
	struct note *n = strmap_get(&notes, shim_handle_key(handle).text);
	const char *name = NULL;

	if (!n || n->kind != SHIM_KERNEL_OF_LIBRARY) {
		name = driver_name(NULL, (CUfunction)(uintptr_t)handle);
	}
	if (!name && (!n || n->kind == SHIM_KERNEL_OF_LIBRARY)) {
		name = driver_name((CUkernel)(uintptr_t)handle, NULL);
	}
	if (!name && n) {
		name = n->name;
	}
	k = name ? sched_kernel_get(shim.sched, name) : NULL;
	if (n) {
		n->kernel = k;
	} else if (k && sched_kernel_form(k) == PROTO_FORM_UNKNOWN) {
		sched_kernel_set_form(shim.sched, k, PROTO_FORM_NONE,
				      "the program got its handle in an unknown way");
	}
	return k;
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

	pthread_mutex_lock(&notes_mutex);
	all = calloc(notes.live + 1, sizeof(*all));
	strmap_each (&notes, e) {
		const struct note *note = e->value;

		if (all && note->kernel && sched_kernel_form(note->kernel) == PROTO_FORM_UNKNOWN) {
			all[n].owner = note->owner;
			all[n].kernel = note->kernel;
			all[n].name = strdup(note->name);
			n += all[n].name != NULL;
		}
	}
	pthread_mutex_unlock(&notes_mutex);
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
	struct sched_kernel *k;
	const struct note *n;

	pthread_mutex_lock(&notes_mutex);
	n = strmap_get(&notes, shim_handle_key(handle).text);
	k = !n ? NULL : n->kernel ? n->kernel : by_name(handle);
	pthread_mutex_unlock(&notes_mutex);
	return k;
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
	const struct note *n;
	bool found;

	if (!sched_may_communicate(shim.sched)) {
		return false; /* none of the process does */
	}
	name = driver_name(kernel, function);
	if (name) {
		return proto_communicates(name);
	}
	pthread_mutex_lock(&notes_mutex);
	n = strmap_get(&notes, shim_handle_key(handle).text);
	found = n && proto_communicates(n->name);
	pthread_mutex_unlock(&notes_mutex);
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

static struct shim_kernel find(uintptr_t key)
{
	const void *handle = (const void *)(key & ~(uintptr_t)1);
	enum proto_block_why why = PROTO_BLOCK_UNKNOWN;
	struct shim_kernel found = { .k = NULL };
	char text[32];

	if (key & 1) {
		graph_name(text, handle);
		found.k = sched_kernel_get(shim.sched, text);
		if (found.k) {
			sched_kernel_set_block(found.k, PROTO_BLOCK_CAPTURE);
			if (sched_kernel_form(found.k) == PROTO_FORM_UNKNOWN) {
				sched_kernel_set_form(shim.sched, found.k, PROTO_FORM_UNKNOWN,
						      "a graph whose kernels are not known");
			}
		}
	} else {
		pthread_mutex_lock(&notes_mutex);
		found.k = by_name(handle);
		pthread_mutex_unlock(&notes_mutex);
		found.clone = shim_clone_find(handle, &why);
		if (found.k && why != PROTO_BLOCK_UNKNOWN) {
			sched_kernel_set_block(found.k, (uint8_t)why);
		}
	}
	shim_mem_overhead_changed(); /* the first launch of a kernel may take memory */
	return found;
}

struct shim_kernel shim_kernel_look_up(struct shim_thread *t, uintptr_t key)
{
	struct shim_thread_kernel *e;
	struct shim_kernel found = { .k = NULL };
	uint32_t generation;

	if (!key) { /* the driver refuses the launch */
		return found;
	}
	generation = shim_thread_fill_begin(t);
	found = find(key);
	e = shim_thread_fill(t, key, generation);
	if (e) {
		e->k = found.k;
		e->clone = found.clone ? found.clone : &shim_clone_none;
	}
	return found;
}

/* Loading and unloading of modules and libraries: with clones of their functions where they have
 * PTX, with entry stubs in their machine code where they have none, else as they are. The driver's
 * cache of compiled code serves all. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuabi/api.h"
#include "gpu/ptx_rule.h"
#include "shim/code/shim_code.h"
#include "shim/defer/block_launch.h"
#include "shim/entry/link_calls.h"
#include "shim/entry/parts.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/loaded_image.h"
#include "shim/object/green_context.h"

#define MAX_OPTIONS 64u

/* ---- loading ---- */

/* A load call with its arguments. */
struct loader {
	/* other: an image to be loaded instead; NULL: the program's own */
	CUresult (*run)(struct loader *l, const void *other);
	const void *image; /* or the path of a file */
	const void *data;  /* the image, or what the file contains; NULL: not known */
	size_t bytes;	   /* of data; 0: not known */
	void **ret;
	unsigned n, n_library;
	bool library;  /* a library, which belongs to no context */
	bool only_one; /* of a caller that uses only modules with one function */
	CUjit_option *options;
	void **values;
	CUlibraryOption *library_options;
	void **library_values;
};

/* The program's options with an error log of the shim's, so that the program never reads a message
 * about the rewritten text: if that is refused, it gets the original's error. */
struct quiet {
	CUjit_option options[MAX_OPTIONS + 2];
	void *values[MAX_OPTIONS + 2];
	char log[1024];
};

static bool is_error_log(CUjit_option o)
{
	return o == CU_JIT_ERROR_LOG_BUFFER || o == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
}

/* Replaces the options. Returns false if there are too many, or missing arrays. */
static bool quieten(struct loader *l, struct quiet *q)
{
	unsigned n = 0;

	if (l->n > MAX_OPTIONS || (l->n && (!l->options || !l->values))) {
		return false;
	}
	for (unsigned i = 0; i < l->n; i++) {
		if (!is_error_log(l->options[i])) {
			q->options[n] = l->options[i];
			q->values[n++] = l->values[i];
		}
	}
	q->log[0] = 0;
	q->options[n] = CU_JIT_ERROR_LOG_BUFFER;
	q->values[n++] = q->log;
	q->options[n] = CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
	q->values[n++] = (void *)(uintptr_t)sizeof(q->log);
	l->n = n;
	l->options = q->options;
	l->values = q->values;
	return true;
}

/* Passes the driver's answers in the options on to the program. */
static void return_options(const struct loader *l, const struct quiet *q)
{
	void **bytes = NULL;
	char *log = NULL;
	size_t room;

	for (unsigned i = 0, n = 0; i < l->n; i++) {
		if (l->options[i] == CU_JIT_ERROR_LOG_BUFFER) {
			log = l->values[i];
		} else if (l->options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
			bytes = &l->values[i];
		} else {
			l->values[i] = q->values[n++];
		}
	}
	room = bytes ? (uint32_t)(uintptr_t)*bytes : 0;
	if (log && room) {
		snprintf(log, room, "%.*s", (int)sizeof(q->log) - 1, q->log);
		*bytes = (void *)(uintptr_t)strlen(log);
	}
}

static CUcontext context_of(const struct loader *l)
{
	CUcontext ctx = NULL;

	if (!l->library) {
		(void)shim_real.cuCtxGetCurrent(&ctx);
	}
	return ctx;
}

/* Returns true if the program has asked the driver not to copy a library's image. */
static bool keeps_binary(const struct loader *l)
{
	for (unsigned i = 0; l->library_options && i < l->n_library; i++) {
		if (l->library_options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) {
			return true;
		}
	}
	return false;
}

/* The program's library options, and the one by which the driver makes no copy of the image. */
struct preserved {
	CUlibraryOption options[MAX_OPTIONS + 1];
	void *values[MAX_OPTIONS + 1];
};

/* Adds the option. Returns false if the program's have no room for it. */
static bool preserve(struct loader *l, struct preserved *p)
{
	if (l->n_library > MAX_OPTIONS ||
	    (l->n_library && (!l->library_options || !l->library_values))) {
		return false;
	}
	for (unsigned i = 0; i < l->n_library; i++) {
		p->options[i] = l->library_options[i];
		p->values[i] = l->library_values[i];
	}
	p->options[l->n_library] = CU_LIBRARY_BINARY_IS_PRESERVED;
	p->values[l->n_library++] = (void *)(uintptr_t)1;
	l->library_options = p->options;
	l->library_values = p->values;
	return true;
}

/* Makes the driver's call. The handle that it returns is known if the driver has reused it after an
 * unload that was not seen. */
static CUresult run(struct loader *l, const void *other)
{
	CUresult r = l->run(l, other);

	if (r == CUDA_SUCCESS && l->ret && shim_attached() &&
	    (shim_image_load(*l->ret) || shim_code_owns(*l->ret))) {
		shim_clone_end_load(*l->ret, UINT64_MAX);
	}
	return r;
}

/* Runs the call with a patched image. A mapped one is left to the driver until the library is
 * unloaded, so that pages that are not used take no memory; if it refuses that, it makes a copy.
 * *ret_kept: the driver still reads the image. */
static CUresult run_patched(struct loader *l, const struct cubin_patched *p, bool *ret_kept)
{
	struct loader without_copy = *l;
	struct preserved preserved;
	size_t bytes;
	const void *image = cubin_patched_image(p, &bytes);

	*ret_kept = keeps_binary(l);
	if (l->library && !*ret_kept && cubin_patched_image_is_set(p) &&
	    preserve(&without_copy, &preserved) && run(&without_copy, image) == CUDA_SUCCESS) {
		*ret_kept = true;
		return CUDA_SUCCESS;
	}
	return run(l, image);
}

static void unload(const struct loader *l)
{
	if (l->library) {
		shim_driver.cuLibraryUnload(*(CUlibrary *)(void *)l->ret);
	} else {
		shim_driver.cuModuleUnload(*(CUmodule *)(void *)l->ret);
	}
}

static CUresult run_unpatched(struct loader *l, const void *other)
{
	CUresult r = run(l, other);

	if (r == CUDA_SUCCESS && l->ret) {
		shim_code_loaded_unpatched(*l->ret);
	}
	return r;
}

static struct shim_image_source source_of(const struct loader *l)
{
	return (struct shim_image_source){ .image = l->data,
					   .bytes = l->bytes,
					   .library = l->library,
					   .target = gpu_ptx_target(l->n, l->options, l->values) };
}

/* Loads the image's machine code with entry stubs. Returns false if there is none, or the driver
 * refuses it, and *ret_why, unchanged if there is none. */
static bool load_patched(const struct loader *l, enum proto_block_why *ret_why)
{
	struct shim_image_source s = source_of(l);
	struct cubin_patched *p = l->data && l->ret && shim_image_code_wanted(&s, ret_why)
					  ? shim_code_open(l->data, l->bytes, l->library, ret_why)
					  : NULL;
	struct loader patched = *l;
	struct quiet q;
	bool kept;

	if (!p) {
		return false;
	}
	if (quieten(&patched, &q) && run_patched(&patched, p, &kept) == CUDA_SUCCESS) {
		if (shim_code_note(*l->ret, shim_green_base(context_of(l)), p, kept)) {
			return_options(l, &q);
			shim_block_prepare_context();
			return true;
		}
		unload(l);
	}
	*ret_why = PROTO_BLOCK_REJECTED;
	cubin_patched_close(p);
	return false;
}

/* Loads the image with clones or with entry stubs, or else as it is; if all fail, the original's
 * error is returned. i: the pass's result; takes its reference. */
static CUresult load(struct loader *l, const struct ptx_block_image *i, enum proto_block_why why)
{
	struct loader rewritten = *l;
	bool cloned = i && i->n_clones; /* rewritten earlier, by gBPF's ptxas */
	struct quiet q;
	CUresult r;

	if (i && i->text && l->ret && quieten(&rewritten, &q)) {
		r = run_unpatched(&rewritten, i->text);
		if (r == CUDA_SUCCESS) {
			return_options(l, &q);
			if (i->prepared) { /* to be kept: slices name what is in it */
				l->data = i->text;
				l->bytes = i->bytes;
			}
			shim_image_note(*l->ret, context_of(l), &i, 1, PROTO_BLOCK_OK);
			shim_block_prepare_context();
			return r;
		}
		why = PROTO_BLOCK_REJECTED;
	}
	r = !cloned && load_patched(l, &why) ? CUDA_SUCCESS : run_unpatched(l, NULL);
	if (r == CUDA_SUCCESS && l->ret && shim_attached()) {
		/* its entries have the reasons */
		unsigned n = i && !i->text && i->n_entries;

		shim_image_note(*l->ret, context_of(l), &i, n, why);
		if (n && cloned) {
			shim_block_prepare_context();
		}
		i = n ? NULL : i;
	}
	ptx_block_image_close(i);
	return r;
}

/* Loads the result of cuLinkComplete that has its clones already. */
static CUresult load_linked(struct loader *l, const struct ptx_block_image **parts, unsigned n)
{
	CUresult r = run_unpatched(l, NULL);

	if (r == CUDA_SUCCESS && l->ret) {
		shim_image_note(*l->ret, context_of(l), parts, n, PROTO_BLOCK_OK);
		shim_block_prepare_context();
		return r;
	}
	while (n) {
		ptx_block_image_close(parts[--n]);
	}
	return r;
}

/* cuFFT takes the function of a module by a private call of the driver. Where a clone is a second
 * one, it unloads the module and fails with CUFFT_INTERNAL_ERROR (cuFFT 12.0). */
static bool uses_only_one(const void *caller)
{
	const char *name;
	Dl_info info;

	if (!dladdr(caller, &info) || !info.dli_fname) {
		return false;
	}
	name = strrchr(info.dli_fname, '/');
	return strncmp(name ? name + 1 : info.dli_fname, "libcufft", strlen("libcufft")) == 0;
}

/* Keeps what was loaded, for probes. */
static CUresult keep(const struct loader *l, CUresult r, bool linked)
{
	struct shim_image_source s = source_of(l);

	if (r == CUDA_SUCCESS && l->ret && shim_attached()) {
		shim_image_keep(*l->ret, &s, linked);
	}
	return r;
}

static CUresult load_data(struct loader *l)
{
	const struct ptx_block_image *parts[SHIM_IMAGE_PARTS_MAX], *i;
	struct shim_image_source s;
	enum proto_block_why why;
	unsigned n;

	if (!shim_attached()) {
		return run_unpatched(l, NULL);
	}
	l->data = l->image;
	n = shim_link_find(l->image, parts);
	if (n) {
		return keep(l, load_linked(l, parts, n), true);
	}
	s = source_of(l);
	i = shim_image_open(&s, &why);
	if (l->only_one && i && i->text) {
		ptx_block_image_close(i);
		i = NULL;
		why = PROTO_BLOCK_ONLY_ONE;
	}
	return keep(l, load(l, i, why), false);
}

static CUresult load_file(struct loader *l)
{
	const struct ptx_block_image *i = NULL;
	enum proto_block_why why = PROTO_BLOCK_UNKNOWN;
	struct shim_image_source s;
	char *data = NULL;
	CUresult r;

	if (!shim_attached()) {
		return run_unpatched(l, NULL);
	}
	data = shim_image_read_file(l->image, &l->bytes);
	l->data = data;
	if (data && shim_image_wanted()) {
		s = source_of(l);
		i = shim_image_open(&s, &why);
	}
	r = keep(l, load(l, i, why), false);
	free(data);
	return r;
}

static CUmodule *module_of(const struct loader *l)
{
	return (CUmodule *)(void *)l->ret;
}

static CUresult run_other(struct loader *l, const void *other)
{
	return shim_real.cuModuleLoadDataEx(module_of(l), other, l->n, l->options, l->values);
}

static CUresult run_file(struct loader *l, const void *other)
{
	return other ? run_other(l, other) : shim_real.cuModuleLoad(module_of(l), l->image);
}

static CUresult run_data(struct loader *l, const void *other)
{
	return other ? run_other(l, other) : shim_real.cuModuleLoadData(module_of(l), l->image);
}

static CUresult run_data_ex(struct loader *l, const void *other)
{
	return run_other(l, other ? other : l->image);
}

static CUresult run_fat(struct loader *l, const void *other)
{
	return other ? run_other(l, other)
		     : shim_real.cuModuleLoadFatBinary(module_of(l), l->image);
}

static CUresult run_library(struct loader *l, const void *other)
{
	return shim_real.cuLibraryLoadData((CUlibrary *)(void *)l->ret, other ? other : l->image,
					   l->options, l->values, l->n, l->library_options,
					   l->library_values, l->n_library);
}

static CUresult run_library_file(struct loader *l, const void *other)
{
	return other ? run_library(l, other)
		     : shim_real.cuLibraryLoadFromFile(
			       (CUlibrary *)(void *)l->ret, l->image, l->options, l->values, l->n,
			       l->library_options, l->library_values, l->n_library);
}

CUresult cuModuleLoad(CUmodule *ret, const char *path)
{
	struct loader l = { .run = run_file, .image = path, .ret = (void **)ret };

	return load_file(&l);
}

CUresult cuModuleLoadData(CUmodule *ret, const void *image)
{
	struct loader l = { .run = run_data, .image = image, .ret = (void **)ret };

	l.only_one = uses_only_one(__builtin_return_address(0));
	return load_data(&l);
}

CUresult cuModuleLoadDataEx(CUmodule *ret, const void *image, unsigned n, CUjit_option *options,
			    void **values)
{
	struct loader l = { .run = run_data_ex,
			    .image = image,
			    .ret = (void **)ret,
			    .n = n,
			    .options = options,
			    .values = values };

	l.only_one = uses_only_one(__builtin_return_address(0));
	return load_data(&l);
}

CUresult cuModuleLoadFatBinary(CUmodule *ret, const void *image)
{
	struct loader l = { .run = run_fat, .image = image, .ret = (void **)ret };

	l.only_one = uses_only_one(__builtin_return_address(0));
	return load_data(&l);
}

CUresult cuLibraryLoadData(CUlibrary *ret, const void *image, CUjit_option *options, void **values,
			   unsigned n, CUlibraryOption *library_options, void **library_values,
			   unsigned n_library)
{
	struct loader l = { .run = run_library,
			    .library = true,
			    .image = image,
			    .ret = (void **)ret,
			    .n = n,
			    .n_library = n_library,
			    .options = options,
			    .values = values,
			    .library_options = library_options,
			    .library_values = library_values };

	return load_data(&l);
}

CUresult cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *options,
			       void **values, unsigned n, CUlibraryOption *library_options,
			       void **library_values, unsigned n_library)
{
	struct loader l = { .run = run_library_file,
			    .library = true,
			    .image = path,
			    .ret = (void **)ret,
			    .n = n,
			    .n_library = n_library,
			    .options = options,
			    .values = values,
			    .library_options = library_options,
			    .library_values = library_values };

	return load_file(&l);
}

CUresult cuModuleUnload(CUmodule module)
{
	struct shim_end e = shim_parts_unloading(module);
	CUresult r = shim_real.cuModuleUnload(module);

	shim_parts_unloaded(&e, r == CUDA_SUCCESS);
	return r;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	struct shim_end e = shim_parts_unloading(library);
	CUresult r = shim_real.cuLibraryUnload(library);

	shim_parts_unloaded(&e, r == CUDA_SUCCESS);
	return r;
}

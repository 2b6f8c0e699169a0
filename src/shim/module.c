/* Modules and libraries come and go: loaded with twins beside their functions where that can be,
 * else as they are. The driver's own cache of compiled code serves both. */
#include <stdlib.h>
#include <string.h>

#include "cuabi/api.h"
#include "shim/block.h"
#include "shim/gates.h"
#include "shim/image.h"
#include "shim/kernel.h"
#include "shim/link.h"
#include "shim/twin.h"

#define MAX_OPTIONS 64u

/* ---- loading ---- */

/* One way to load, with its arguments. */
struct loader {
	/* text NULL: the program's own image */
	CUresult (*run)(struct loader *l, const char *text);
	const void *image; /* or the path of a file */
	void **ret;
	unsigned n, n_library;
	bool library; /* it belongs to no context */
	CUjit_option *options;
	void **values;
	CUlibraryOption *library_options;
	void **library_values;
};

/* The driver writes results over some values of options: a second try needs them as they were. */
static bool keep_values(const struct loader *l, void *kept[MAX_OPTIONS])
{
	if (l->n > MAX_OPTIONS || (l->n && !l->values)) {
		return false;
	}
	if (l->n) {
		memcpy(kept, l->values, l->n * sizeof(kept[0]));
	}
	return true;
}

static CUcontext context_of(const struct loader *l)
{
	CUcontext ctx = NULL;

	if (!l->library) {
		(void)shim_real.cuCtxGetCurrent(&ctx);
	}
	return ctx;
}

/* With twins, or else as it is; only the answer to the original counts when both fail. image is
 * what the pass reads; takes i. */
static CUresult load(struct loader *l, const struct ptx_block_image *i, enum ptx_block_why why)
{
	void *kept[MAX_OPTIONS];
	CUresult r;

	if (i && i->text && l->ret && keep_values(l, kept)) {
		r = l->run(l, i->text);
		if (r == CUDA_SUCCESS) {
			image_note(*l->ret, context_of(l), &i, 1, PTX_BLOCK_OK);
			block_prepare();
			return r;
		}
		if (l->n) {
			memcpy(l->values, kept, l->n * sizeof(kept[0]));
		}
		why = PTX_BLOCK_REJECTED;
	}
	r = l->run(l, NULL);
	if (r == CUDA_SUCCESS && l->ret && shim_attached()) {
		unsigned n = i && !i->text; /* its entries say why */

		image_note(*l->ret, context_of(l), &i, n, why);
		if (n && i->n_twins) { /* rewritten before, by gBPF's ptxas */
			block_prepare();
		}
		i = n ? NULL : i;
	}
	ptx_block_image_close(i);
	return r;
}

/* What cuLinkComplete gave has its twins already. */
static CUresult load_linked(struct loader *l, const struct ptx_block_image **parts, unsigned n)
{
	CUresult r = l->run(l, NULL);

	if (r == CUDA_SUCCESS && l->ret) {
		image_note(*l->ret, context_of(l), parts, n, PTX_BLOCK_OK);
		block_prepare();
		return r;
	}
	while (n) {
		ptx_block_image_close(parts[--n]);
	}
	return r;
}

static CUresult load_data(struct loader *l)
{
	const struct ptx_block_image *parts[IMAGE_PARTS], *i;
	enum ptx_block_why why;
	unsigned n;

	if (!shim_attached()) {
		return l->run(l, NULL);
	}
	n = link_find(l->image, parts);
	if (n) {
		return load_linked(l, parts, n);
	}
	i = image_open(l->image, 0, &why);
	return load(l, i, why);
}

static CUresult load_file(struct loader *l)
{
	const struct ptx_block_image *i = NULL;
	enum ptx_block_why why = PTX_BLOCK_UNKNOWN;
	size_t bytes;
	char *data;

	if (!shim_attached()) {
		return l->run(l, NULL);
	}
	if (image_wanted() && (data = image_read_file(l->image, &bytes)) != NULL) {
		i = image_open(data, bytes, &why);
		free(data);
	}
	return load(l, i, why);
}

static CUmodule *module_of(const struct loader *l)
{
	return (CUmodule *)(void *)l->ret;
}

static CUresult run_file(struct loader *l, const char *text)
{
	return text ? shim_real.cuModuleLoadData(module_of(l), text)
		    : shim_real.cuModuleLoad(module_of(l), l->image);
}

static CUresult run_data(struct loader *l, const char *text)
{
	return shim_real.cuModuleLoadData(module_of(l), text ? text : l->image);
}

static CUresult run_data_ex(struct loader *l, const char *text)
{
	return shim_real.cuModuleLoadDataEx(module_of(l), text ? text : l->image, l->n, l->options,
					    l->values);
}

static CUresult run_fat(struct loader *l, const char *text)
{
	return text ? shim_real.cuModuleLoadData(module_of(l), text)
		    : shim_real.cuModuleLoadFatBinary(module_of(l), l->image);
}

static CUresult run_library(struct loader *l, const char *text)
{
	return shim_real.cuLibraryLoadData((CUlibrary *)(void *)l->ret, text ? text : l->image,
					   l->options, l->values, l->n, l->library_options,
					   l->library_values, l->n_library);
}

static CUresult run_library_file(struct loader *l, const char *text)
{
	return text ? run_library(l, text)
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

	return load_data(&l);
}

CUresult cuModuleLoadFatBinary(CUmodule *ret, const void *image)
{
	struct loader l = { .run = run_fat, .image = image, .ret = (void **)ret };

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

static struct image_owner *unloading(const void *owner)
{
	shim_settle_pending();
	kernel_forget(owner);
	twin_forget(owner);
	return image_forget(owner);
}

CUresult cuModuleUnload(CUmodule module)
{
	struct image_owner *o = unloading(module);
	CUresult r = shim_real.cuModuleUnload(module);

	image_release(o);
	return r;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	struct image_owner *o = unloading(library);
	CUresult r = shim_real.cuLibraryUnload(library);

	image_release(o);
	return r;
}

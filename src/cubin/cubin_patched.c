/* Access to a patched image and its kernels. */
#include "cubin/cubin_patched_int.h"

#include <stdlib.h>

void cubin_patched_free(void *image, size_t bytes)
{
	free(image);
}

const void *cubin_patched_image(const struct cubin_patched *p, size_t *ret_bytes)
{
	*ret_bytes = p->image ? p->bytes : 0;
	return p->image;
}

void cubin_patched_drop_image(struct cubin_patched *p)
{
	if (p->image && p->release) {
		p->release(unqual(p->image), p->bytes);
	}
	p->image = NULL;
}

void cubin_patched_set_image(struct cubin_patched *p, const void *image, size_t bytes,
			     cubin_release_fn *release)
{
	cubin_patched_drop_image(p);
	p->image = image;
	p->bytes = bytes;
	p->release = release;
}

bool cubin_patched_image_is_set(const struct cubin_patched *p)
{
	return p->image && p->release != cubin_patched_free;
}

void cubin_patched_close(struct cubin_patched *p)
{
	if (!p) {
		return;
	}
	cubin_patched_drop_image(p);
	free(p->kernels);
	free(p->params);
	strmap_finish(&p->names);
	free(p);
}

size_t cubin_patched_kernels(const struct cubin_patched *p)
{
	return p->n;
}

size_t cubin_patched_count(const struct cubin_patched *p)
{
	return p->patched;
}

const struct cubin_kernel *cubin_patched_kernel(const struct cubin_patched *p, size_t i)
{
	return i < p->n ? &p->kernels[i] : NULL;
}

const struct cubin_kernel *cubin_patched_find(const struct cubin_patched *p, const char *name)
{
	return strmap_get(&p->names, name);
}

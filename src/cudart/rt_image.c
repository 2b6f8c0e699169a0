/* Loading of registered fat binaries. nvcc's wrapper has two versions: with one finished image, or,
 * of relocatable device code (-rdc=true), with an image for the architectures that nvcc linked and
 * a list of the objects' own images, which the driver can link for any other. */
#include "cudart/rt_image.h"

#include <stdint.h>

#include "cudart/rt_int.h"

#define WRAPPER_MAGIC 0x466243b1u
#define WRAPPER_LINKED 2
#define MAX_OBJECTS 65536

struct wrapper {
	uint32_t magic, version;
	const void *image;
	const void *const *objects; /* of WRAPPER_LINKED: ends with NULL */
};

/* The bytes of a fat binary, header included. */
static size_t fat_bytes(const void *fat)
{
	const struct {
		uint32_t magic;
		uint16_t version, header_bytes;
		uint64_t body_bytes;
	} *h = fat;

	return h->header_bytes + (size_t)h->body_bytes;
}

/* Links the first n objects' images and loads the result, which the driver copies. */
static CUresult link_objects(struct cudart_image *i, const struct wrapper *w, int n)
{
	CUlinkState link;
	size_t bytes;
	void *linked;
	CUresult r = cudart_driver.cuLinkCreate_v2(0, NULL, NULL, &link);

	if (r) {
		return r;
	}
	for (int k = 0; !r && k < n; k++) {
		union {
			const void *in;
			void *out;
		} object = { w->objects[k] }; /* the driver does not write to it */

		r = cudart_driver.cuLinkAddData_v2(link, CU_JIT_INPUT_FATBINARY, object.out,
						   fat_bytes(object.in), "object", 0, NULL, NULL);
	}
	r = r ? r : cudart_driver.cuLinkComplete(link, &linked, &bytes);
	r = r ? r
	      : cudart_driver.cuLibraryLoadData(&i->library, linked, NULL, NULL, 0, NULL, NULL, 0);
	cudart_driver.cuLinkDestroy(link);
	return r;
}

/* nvcc adds its device runtime behind the program's objects. It is there for kernels that launch
 * kernels and has references that only NVIDIA's driver resolves, so objects at the end are left out
 * until the rest links; the rest cannot link if it needs what is left out. */
static CUresult load_linked(struct cudart_image *i, const struct wrapper *w)
{
	CUresult r = CUDA_ERROR_INVALID_IMAGE;
	int n = 0;

	while (n < MAX_OBJECTS && w->objects[n]) {
		n++;
	}
	for (; r && n > 0; n--) {
		r = link_objects(i, w, n);
	}
	return r;
}

cudaError_t cudart_image_load(struct cudart_image *i)
{
	const struct wrapper *w = i->wrapper;
	CUresult r;

	if (i->library || i->error) {
		return i->error;
	}
	r = cudart_driver.cuLibraryLoadData(&i->library, w, NULL, NULL, 0, NULL, NULL, 0);
	if (r && w->magic == WRAPPER_MAGIC && w->version == WRAPPER_LINKED && w->objects) {
		r = load_linked(i, w);
	}
	if (r) {
		i->library = NULL;
		i->error = cudart_from_driver(r);
	}
	return i->error;
}

void cudart_image_unload(struct cudart_image *i)
{
	if (i->library) {
		cudart_driver.cuLibraryUnload(i->library);
	}
	i->library = NULL;
}

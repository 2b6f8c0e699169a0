/* cudaDeviceProp, filled from the driver's attributes by the list of its fields. */
#include <string.h>

#include "cudart/rt_api.h"
#include "cudart/rt_array.h"
#include "cudart/rt_int.h"

static const struct field {
	size_t offset;
	unsigned bytes, elements; /* bytes: of one element */
	int attribute;		  /* of the first element; 0: none */
} fields[] = {
#define CUDART_PROP(type, name, attribute)                                                         \
	{ offsetof(struct cudaDeviceProp, name), sizeof(type), 1, (int)(attribute) },
#define CUDART_PROP_N(type, name, n, attribute)                                                    \
	{ offsetof(struct cudaDeviceProp, name), sizeof(type), n, (int)(attribute) },
#include "cudart/device_prop.def"
#undef CUDART_PROP
#undef CUDART_PROP_N
};

/* Attributes that a driver does not know leave their fields 0. */
static void fill(struct cudaDeviceProp *p, const struct field *f, int device)
{
	char *at = (char *)p + f->offset;

	for (unsigned i = 0; f->attribute && i < f->elements; i++) {
		int value = 0;

		(void)cudart_driver.cuDeviceGetAttribute(
			&value, (CUdevice_attribute)(f->attribute + (int)i), device);
		if (f->bytes == sizeof(size_t)) {
			size_t wide = (size_t)(unsigned)value;

			memcpy(at + i * f->bytes, &wide, sizeof(wide));
		} else {
			memcpy(at + i * f->bytes, &value, sizeof(value));
		}
	}
}

static cudaError_t properties(struct cudaDeviceProp *p, int device)
{
	CUresult r;

	if (device < 0 || device >= cudart_devices()) {
		return cudaErrorInvalidDevice;
	}
	memset(p, 0, sizeof(*p));
	r = cudart_driver.cuDeviceGetName(p->name, sizeof(p->name), device);
	r = r ? r : cudart_driver.cuDeviceTotalMem_v2(&p->totalGlobalMem, device);
	if (r) {
		return cudart_from_driver(r);
	}
	(void)cudart_driver.cuDeviceGetUuid_v2(&p->uuid, device);
	(void)cudart_driver.cuDeviceGetLuid(p->luid, &p->luidDeviceNodeMask, device);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		fill(p, &fields[i], device);
	}
	return cudaSuccess;
}

#if CUDART_ABI == 12
/* Programs compiled by CUDA 11 headers have a shorter structure, the beginning of that of 12. */
#define FIRST_BYTES offsetof(struct cudaDeviceProp, hostRegisterSupported)
_Static_assert(FIRST_BYTES == 728, "as the runtime's");

cudaError_t cudart_get_device_properties(struct cudaDeviceProp *ret, int device)
{
	struct cudaDeviceProp p;
	cudaError_t e = ret ? properties(&p, device) : cudaErrorInvalidValue;

	if (!e) {
		memcpy((void *)ret, &p, FIRST_BYTES);
	}
	return e;
}

cudaError_t cudart_get_device_properties_v2(struct cudaDeviceProp *ret, int device)
{
	return ret ? properties(ret, device) : cudaErrorInvalidValue;
}
#else
cudaError_t cudart_get_device_properties(struct cudaDeviceProp *ret, int device)
{
	return ret ? properties(ret, device) : cudaErrorInvalidValue;
}
#endif

/* The device with the most of what was asked for: compute capability, then memory. */
cudaError_t cudart_choose_device(int *ret, const struct cudaDeviceProp *wanted)
{
	int best_score = -1;

	if (!ret || !wanted) {
		return cudaErrorInvalidValue;
	}
	for (int d = 0; d < cudart_devices(); d++) {
		struct cudaDeviceProp p;
		cudaError_t e = properties(&p, d);
		int score;

		if (e) {
			return e;
		}
		score = 2 * (p.major > wanted->major ||
			     (p.major == wanted->major && p.minor >= wanted->minor)) +
			(p.totalGlobalMem >= wanted->totalGlobalMem);
		if (score > best_score) {
			best_score = score;
			*ret = d;
		}
	}
	return cudaSuccess;
}

cudaError_t cudart_device_get_texture_1d_linear_max_width(size_t *ret,
							  const struct cudaChannelFormatDesc *desc,
							  int device)
{
	CUarray_format format;
	unsigned channels;

	if (!desc || cudart_format(desc, &format, &channels)) {
		return cudaErrorInvalidValue;
	}
	return cudart_from_driver(
		cudart_driver.cuDeviceGetTexture1DLinearMaxWidth(ret, format, channels, device));
}

/* The driver's further limits have no number in the runtime. */
static bool is_limit(CUlimit limit)
{
	return (unsigned)limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
}

cudaError_t cudart_device_set_limit(CUlimit limit, size_t value)
{
	return is_limit(limit) ? cudart_from_driver(cudart_driver.cuCtxSetLimit(limit, value))
			       : cudaErrorInvalidValue;
}

cudaError_t cudart_device_get_limit(size_t *ret, CUlimit limit)
{
	return is_limit(limit) ? cudart_from_driver(cudart_driver.cuCtxGetLimit(ret, limit))
			       : cudaErrorInvalidValue;
}

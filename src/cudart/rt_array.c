/* Arrays: channel descriptors, allocation and queries. */
#include "cudart/rt_array.h"

#include "cudart/rt_api.h"
#include "cudart/rt_int.h"

#define FIRST_NORMALIZED ((int)cudaChannelFormatKindUnsignedNormalized8X1)
#define LAST_NORMALIZED ((int)cudaChannelFormatKindSignedNormalized16X4)

RT_EXPORT struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
							     enum cudaChannelFormatKind f);

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
						   enum cudaChannelFormatKind f)
{
	return (struct cudaChannelFormatDesc){ x, y, z, w, f };
}

static const struct {
	enum cudaChannelFormatKind kind;
	int bits;
	CUarray_format format;
} formats[] = {
	{ cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8 },
	{ cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16 },
	{ cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32 },
	{ cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8 },
	{ cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16 },
	{ cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32 },
	{ cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF },
	{ cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT },
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

/* Channels have equal sizes, and the first ones are used. 0: not so. */
static unsigned count_channels(const struct cudaChannelFormatDesc *d)
{
	const int bits[] = { d->x, d->y, d->z, d->w };
	unsigned n = 0;

	while (n < 4 && bits[n] == d->x && bits[n] > 0) {
		n++;
	}
	for (unsigned i = n; i < 4; i++) {
		if (bits[i] != 0) {
			return 0;
		}
	}
	return n == 3 ? 0 : n;
}

cudaError_t cudart_format(const struct cudaChannelFormatDesc *desc, CUarray_format *ret_format,
			  unsigned *ret_channels)
{
	unsigned n = count_channels(desc);

	if (n && (int)desc->f >= FIRST_NORMALIZED && (int)desc->f <= LAST_NORMALIZED) {
		*ret_format = (CUarray_format)(CU_AD_FORMAT_UNORM_INT8X1 +
					       ((int)desc->f - FIRST_NORMALIZED));
		*ret_channels = n;
		return cudaSuccess;
	}
	for (size_t i = 0; n && i < N_FORMATS; i++) {
		if (formats[i].kind == desc->f && formats[i].bits == desc->x) {
			*ret_format = formats[i].format;
			*ret_channels = n;
			return cudaSuccess;
		}
	}
	return cudaErrorInvalidChannelDescriptor;
}

/* Bits of a channel of a normalized format: three formats each of 8 and 16 bits. */
static int normalized_bits(CUarray_format format)
{
	return ((int)format - CU_AD_FORMAT_UNORM_INT8X1) / 3 % 2 ? 16 : 8;
}

struct cudaChannelFormatDesc cudart_channel_desc(CUarray_format format, unsigned channels)
{
	struct cudaChannelFormatDesc d = { .f = cudaChannelFormatKindNone };
	int bits = 0;

	for (size_t i = 0; i < N_FORMATS; i++) {
		if (formats[i].format == format) {
			d.f = formats[i].kind;
			bits = formats[i].bits;
		}
	}
	if (format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4) {
		d.f = (enum cudaChannelFormatKind)(FIRST_NORMALIZED +
						   ((int)format - CU_AD_FORMAT_UNORM_INT8X1));
		bits = normalized_bits(format);
	}
	d.x = bits;
	d.y = channels > 1 ? bits : 0;
	d.z = channels > 2 ? bits : 0;
	d.w = channels > 2 ? bits : 0;
	return d;
}

cudaError_t cudart_array_get_info(struct cudaChannelFormatDesc *desc, struct cudaExtent *extent,
				  unsigned int *flags, cudaArray_t array)
{
	CUDA_ARRAY3D_DESCRIPTOR a;
	CUresult r = cudart_driver.cuArray3DGetDescriptor_v2(&a, array);

	if (r) {
		return cudart_from_driver(r);
	}
	if (desc) {
		*desc = cudart_channel_desc(a.Format, a.NumChannels);
	}
	if (extent) {
		*extent = (struct cudaExtent){ a.Width, a.Height, a.Depth };
	}
	if (flags) {
		*flags = a.Flags;
	}
	return cudaSuccess;
}

cudaError_t cudart_get_channel_desc(struct cudaChannelFormatDesc *ret, cudaArray_t array)
{
	return ret ? cudart_array_get_info(ret, NULL, NULL, array) : cudaErrorInvalidValue;
}

cudaError_t cudart_element_bytes(cudaArray_t array, size_t *ret)
{
	struct cudaChannelFormatDesc d = { 0 };
	cudaError_t e = cudart_array_get_info(&d, NULL, NULL, array);

	if (!e) {
		*ret = (size_t)(d.x + d.y + d.z + d.w) / 8;
	}
	return e;
}

static cudaError_t describe(CUDA_ARRAY3D_DESCRIPTOR *ret, const struct cudaChannelFormatDesc *desc,
			    struct cudaExtent extent, unsigned int flags)
{
	*ret = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = extent.width,
		.Height = extent.height,
		.Depth = extent.depth,
		.Flags = flags,
	};
	return desc ? cudart_format(desc, &ret->Format, &ret->NumChannels) : cudaErrorInvalidValue;
}

cudaError_t cudart_malloc_3d_array(cudaArray_t *ret, const struct cudaChannelFormatDesc *desc,
				   struct cudaExtent extent, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR a;
	cudaError_t e = describe(&a, desc, extent, flags);

	return e ? e : cudart_from_driver(cudart_driver.cuArray3DCreate_v2(ret, &a));
}

cudaError_t cudart_malloc_array(cudaArray_t *ret, const struct cudaChannelFormatDesc *desc,
				size_t width, size_t height, unsigned int flags)
{
	return cudart_malloc_3d_array(ret, desc, (struct cudaExtent){ width, height, 0 }, flags);
}

cudaError_t cudart_malloc_mipmapped_array(cudaMipmappedArray_t *ret,
					  const struct cudaChannelFormatDesc *desc,
					  struct cudaExtent extent, unsigned int levels,
					  unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR a;
	cudaError_t e = describe(&a, desc, extent, flags);

	return e ? e : cudart_from_driver(cudart_driver.cuMipmappedArrayCreate(ret, &a, levels));
}

cudaError_t cudart_free_array(cudaArray_t array)
{
	return array ? cudart_from_driver(cudart_driver.cuArrayDestroy(array)) : cudaSuccess;
}

cudaError_t cudart_free_mipmapped_array(cudaMipmappedArray_t array)
{
	return array ? cudart_from_driver(cudart_driver.cuMipmappedArrayDestroy(array))
		     : cudaSuccess;
}

/* The layout in blocks, as seen from what an H200's driver 580 takes for 110 shapes:
 * a surface consists of tiles of 64 bytes in 8 rows, and its height is that of whole blocks, which
 * are as many tiles high as the surface needs, a power of two, at most 16. In a volume blocks are
 * one tile high, and as many slices deep as it needs, a power of two, at most 16. */
#include "cuabi/array_layout.h"

#include <stdbool.h>

#include "base/compiler.h"

#define TILE_BYTES 64u
#define TILE_ROWS 8u
#define BLOCK_MAX 16u /* tiles, or slices */

unsigned cuabi_channel_bytes(CUarray_format f, unsigned *ret_channels)
{
	static const unsigned char wide[] = { 1, 2, 4 };

	*ret_channels = 0;
	switch (f) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		break;
	}
	if (f < CU_AD_FORMAT_UNORM_INT8X1 || f > CU_AD_FORMAT_SNORM_INT16X4) {
		return 0;
	}
	*ret_channels = wide[(f - CU_AD_FORMAT_UNORM_INT8X1) % 3];
	return (f - CU_AD_FORMAT_UNORM_INT8X1) / 3 % 2 ? 2 : 1;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

/* Returns the size of a block that is to cover n, n at least 1. */
static uint64_t block_for(uint64_t n)
{
	uint64_t block = 1;

	while (block < n && block < BLOCK_MAX) {
		block *= 2;
	}
	return block;
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, uint64_t element, unsigned level)
{
	bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t width = MAX(d->Width >> level, 1u), rows = MAX(d->Height >> level, 1u),
		 slices = MAX(layered ? d->Depth : d->Depth >> level, 1u);

	if (slices > 1 && !layered) {
		rows = ROUND_UP(rows, TILE_ROWS);
		slices = ROUND_UP(slices, block_for(slices));
	} else {
		rows = ROUND_UP(rows, TILE_ROWS * block_for(ROUND_UP(rows, TILE_ROWS) / TILE_ROWS));
	}
	return times(times(ROUND_UP(width * element, TILE_BYTES), rows), slices);
}

uint64_t cuabi_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, uint64_t element, unsigned levels)
{
	uint64_t sum = 0, bytes;

	/* Larger than any device, and small enough for the sums above. */
	if (d->Width > UINT32_MAX || d->Height > UINT32_MAX || d->Depth > UINT32_MAX ||
	    element > UINT16_MAX) {
		return UINT64_MAX;
	}
	for (unsigned i = 0; i < MIN(MAX(levels, 1u), 32u); i++) {
		bytes = level_bytes(d, element, i);
		sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
	}
	return sum;
}

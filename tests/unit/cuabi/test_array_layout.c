/* What arrays take, against what an H200 took for them (driver 580.159.04, 2026-11-23): the
 * decrease of the device's free memory, which the driver takes in units of 2 MiB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "cuabi/array_layout.h"

#define UNIT ((uint64_t)2 << 20)

static const struct {
	unsigned width, height, depth, element, flags, levels, mib;
} taken[] = {
	{ 16384, 0, 0, 16, 0x0, 1, 2 },	    { 32768, 0, 0, 16, 0x0, 1, 4 },
	{ 65536, 0, 0, 4, 0x0, 1, 2 },	    { 65536, 0, 0, 16, 0x0, 1, 8 },
	{ 131072, 0, 0, 4, 0x0, 1, 4 },	    { 131072, 0, 0, 16, 0x0, 1, 16 },
	{ 8192, 9, 0, 16, 0x0, 1, 2 },	    { 8192, 16, 0, 16, 0x0, 1, 2 },
	{ 8192, 17, 0, 16, 0x0, 1, 4 },	    { 8192, 24, 0, 16, 0x0, 1, 4 },
	{ 8192, 32, 0, 16, 0x0, 1, 4 },	    { 8192, 33, 0, 16, 0x0, 1, 8 },
	{ 8192, 48, 0, 16, 0x0, 1, 8 },	    { 8192, 64, 0, 16, 0x0, 1, 8 },
	{ 8192, 65, 0, 16, 0x0, 1, 16 },    { 8192, 96, 0, 16, 0x0, 1, 16 },
	{ 8192, 100, 0, 16, 0x0, 1, 16 },   { 8192, 128, 0, 16, 0x0, 1, 16 },
	{ 8192, 129, 0, 16, 0x0, 1, 32 },   { 8192, 160, 0, 16, 0x0, 1, 32 },
	{ 8192, 192, 0, 16, 0x0, 1, 32 },   { 8192, 256, 0, 16, 0x0, 1, 32 },
	{ 8192, 257, 0, 16, 0x0, 1, 48 },   { 8192, 300, 0, 16, 0x0, 1, 48 },
	{ 8192, 512, 0, 16, 0x0, 1, 64 },   { 8192, 513, 0, 16, 0x0, 1, 80 },
	{ 8192, 1000, 0, 16, 0x0, 1, 128 }, { 8192, 1024, 0, 16, 0x0, 1, 128 },
	{ 16, 8192, 0, 16, 0x0, 1, 2 },	    { 17, 8192, 0, 16, 0x0, 1, 4 },
	{ 63, 8192, 0, 16, 0x0, 1, 8 },	    { 64, 8192, 0, 16, 0x0, 1, 8 },
	{ 65, 8192, 0, 16, 0x0, 1, 10 },    { 100, 8192, 0, 16, 0x0, 1, 14 },
	{ 1000, 8192, 0, 16, 0x0, 1, 126 }, { 1024, 8192, 0, 16, 0x0, 1, 128 },
	{ 1025, 8192, 0, 16, 0x0, 1, 130 }, { 2000, 8192, 0, 16, 0x0, 1, 250 },
	{ 1000, 4000, 0, 1, 0x0, 1, 4 },    { 1025, 4000, 0, 1, 0x0, 1, 6 },
	{ 4100, 4000, 0, 1, 0x0, 1, 18 },   { 1024, 128, 1, 16, 0x0, 1, 2 },
	{ 1024, 128, 3, 16, 0x0, 1, 8 },    { 1024, 128, 5, 16, 0x0, 1, 16 },
	{ 1024, 128, 16, 16, 0x0, 1, 32 },  { 64, 64, 64, 16, 0x0, 1, 4 },
	{ 100, 100, 100, 16, 0x0, 1, 18 },  { 256, 256, 256, 16, 0x0, 1, 256 },
	{ 300, 300, 5, 16, 0x0, 1, 12 },    { 300, 300, 7, 16, 0x0, 1, 12 },
	{ 300, 300, 9, 16, 0x0, 1, 24 },    { 300, 300, 17, 16, 0x0, 1, 46 },
	{ 300, 300, 33, 16, 0x0, 1, 68 },   { 1024, 4, 256, 16, 0x0, 1, 32 },
	{ 1024, 1, 256, 16, 0x0, 1, 32 },   { 16, 16, 16384, 16, 0x0, 1, 64 },
	{ 4096, 8, 9, 16, 0x0, 1, 8 },	    { 1024, 1024, 1, 16, 0x1, 1, 16 },
	{ 1024, 1024, 6, 16, 0x1, 1, 96 },  { 1024, 1000, 7, 16, 0x1, 1, 112 },
	{ 1024, 100, 7, 16, 0x1, 1, 14 },   { 16384, 0, 7, 16, 0x1, 1, 14 },
	{ 16384, 0, 64, 16, 0x1, 1, 128 },  { 512, 512, 6, 16, 0x4, 1, 24 },
	{ 500, 500, 6, 16, 0x4, 1, 24 },    { 512, 512, 12, 16, 0x5, 1, 48 },
	{ 1024, 1024, 0, 16, 0x0, 1, 16 },  { 1024, 1024, 0, 16, 0x0, 2, 20 },
	{ 1024, 1024, 0, 16, 0x0, 3, 22 },  { 1024, 1024, 0, 16, 0x0, 5, 22 },
	{ 1024, 1024, 0, 16, 0x0, 11, 22 }, { 256, 256, 256, 16, 0x0, 2, 288 },
	{ 256, 256, 256, 16, 0x0, 9, 294 }, { 1024, 1000, 0, 16, 0x0, 10, 22 },
	{ 16384, 0, 0, 16, 0x0, 5, 4 },	    { 1024, 1024, 6, 16, 0x1, 11, 130 },
	{ 1024, 1024, 0, 16, 0x2, 1, 16 },  { 1024, 1024, 0, 4, 0x8, 1, 4 },
	{ 1024, 128, 0, 16, 0x0, 1, 2 },    { 1024, 256, 0, 16, 0x0, 1, 4 },
	{ 1024, 384, 0, 16, 0x0, 1, 6 },    { 1024, 640, 0, 16, 0x0, 1, 10 },
	{ 1024, 896, 0, 16, 0x0, 1, 14 },   { 1024, 96, 0, 16, 0x0, 1, 2 },
};

static void large_arrays_take_what_the_device_took(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(taken); i++) {
		const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = taken[i].width,
						    .Height = taken[i].height,
						    .Depth = taken[i].depth,
						    .Flags = taken[i].flags };
		uint64_t bytes = cuabi_array_bytes(&d, taken[i].element, taken[i].levels);

		if (ROUND_UP(bytes, UNIT) >> 20 != taken[i].mib) {
			fail_msg(
				"%u x %u x %u of %u bytes, flags %#x, %u levels: %.2f MiB, took %u",
				taken[i].width, taken[i].height, taken[i].depth, taken[i].element,
				taken[i].flags, taken[i].levels, (double)bytes / (1 << 20),
				taken[i].mib);
		}
	}
}

/* 400 of each took 2, 2, 2, 8, 26, 80 and 100 MiB. */
static void small_arrays_take_tiles(void **state)
{
	static const unsigned sides[][2] = { { 8, 512 },     { 16, 1024 },   { 32, 4096 },
					     { 64, 16384 },  { 128, 65536 }, { 180, 196608 },
					     { 256, 262144 } };

	for (unsigned i = 0; i < ARRAY_SIZE(sides); i++) {
		const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = sides[i][0], .Height = sides[i][0] };

		assert_int_equal(cuabi_array_bytes(&d, 4, 1), sides[i][1]);
	}
}

static void sizes_that_no_device_has_do_not_overflow(void **state)
{
	const CUDA_ARRAY3D_DESCRIPTOR large[] = {
		{ .Width = SIZE_MAX, .Height = 1 },
		{ .Width = 1, .Height = SIZE_MAX },
		{ .Width = 1, .Height = 1, .Depth = SIZE_MAX },
		{ .Width = UINT32_MAX, .Height = UINT32_MAX, .Depth = UINT32_MAX },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(large); i++) {
		assert_true(cuabi_array_bytes(&large[i], 16, UINT32_MAX) == UINT64_MAX);
	}
}

static void elements_of_plain_formats_have_a_size(void **state)
{
	unsigned channels = 9;

	assert_int_equal(cuabi_channel_bytes(CU_AD_FORMAT_HALF, &channels), 2);
	assert_int_equal(channels, 0);
	assert_int_equal(cuabi_channel_bytes(CU_AD_FORMAT_UNORM_INT8X4, &channels), 1);
	assert_int_equal(channels, 4);
	assert_int_equal(cuabi_channel_bytes(CU_AD_FORMAT_NV12, &channels), 0);
	assert_int_equal(cuabi_channel_bytes((CUarray_format)-1, &channels), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(large_arrays_take_what_the_device_took),
		cmocka_unit_test(small_arrays_take_tiles),
		cmocka_unit_test(elements_of_plain_formats_have_a_size),
		cmocka_unit_test(sizes_that_no_device_has_do_not_overflow),
	};

	return cmocka_run_group_tests_name("array layout", tests, NULL, NULL);
}

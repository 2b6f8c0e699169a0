/* Surface objects through the driver API: what they write and show. Results of single instructions
 * are in tests/ptx. */
#include "texture_bed.h"

#include "base/compiler.h"

/* A kernel writes an array through a surface; a texture and a copy show the same. */
static void surface(void *unused)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 16,
				      .Format = CU_AD_FORMAT_UNSIGNED_INT32,
				      .NumChannels = 1,
				      .Flags = CUDA_ARRAY3D_SURFACE_LDST };
	CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_ARRAY };
	float x[16];
	uint32_t got[16], value = 1000;
	CUsurfObject s;
	struct bed b;
	CUarray a;

	open_bed(&b);
	CU(cuArray3DCreate_v2(&a, &d));
	r.res.array.hArray = a;
	CU(cuSurfObjectCreate(&s, &r));
	CU(cuLaunchKernel(b.write, 1, 1, 1, 16, 1, 1, 0, NULL, (void *[]){ &s, &value }, NULL));
	CU(cuMemcpyAtoH_v2(got, a, 0, sizeof(got)));
	for (unsigned i = 0; i < 16; i++) {
		CHECK(got[i] == 1000 + i);
		x[i] = (float)i + 0.5f;
	}
	CU(fetch(&b, texture_of(a, CU_TR_FILTER_MODE_POINT, 0), x, 16, got));
	for (unsigned i = 0; i < 16; i++) {
		CHECK(got[i] == 1000 + i);
	}
	CU(cuTexObjectDestroy(s)); /* names no texture */
	CU(cuSurfObjectGetResourceDesc(&r, s));
	CU(cuSurfObjectDestroy(s));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectGetResourceDesc(&r, s));
	/* beyond the surface with .trap */
	CU(cuSurfObjectCreate(&s, &r));
	CU(cuLaunchKernel(b.write, 1, 1, 1, 17, 1, 1, 0, NULL, (void *[]){ &s, &value }, NULL));
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void surfaces_write_arrays(void **state)
{
	(void)state;
	assert_int_equal(rig_run(surface, NULL), 0);
}

/* The number of a layer has no sign: an H200 clamps negative ones to the last layer. */
static void layers(void *unused)
{
	static const uint32_t expect[] = { 12, 12, 12, 12, 10, 11, 12, 12 };
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 1,
				      .Depth = 3,
				      .Format = CU_AD_FORMAT_UNSIGNED_INT32,
				      .NumChannels = 1,
				      .Flags = CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_LAYERED };
	CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_ARRAY };
	const uint32_t texels[] = { 10, 11, 12 };
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = texels,
			       .srcPitch = sizeof(*texels),
			       .srcHeight = 1,
			       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			       .WidthInBytes = sizeof(*texels),
			       .Height = 1,
			       .Depth = 3 };
	uint32_t got[ARRAY_SIZE(expect)];
	CUfunction layer_of;
	CUsurfObject s;
	struct bed b;

	open_bed(&b);
	CU(cuModuleGetFunction(&layer_of, b.module, "layer_of"));
	CU(cuArray3DCreate_v2(&r.res.array.hArray, &d));
	copy.dstArray = r.res.array.hArray;
	CU(cuMemcpy3D_v2(&copy));
	CU(cuSurfObjectCreate(&s, &r));
	CU(cuLaunchKernel(layer_of, 1, 1, 1, ARRAY_SIZE(expect), 1, 1, 0, NULL,
			  (void *[]){ &s, &b.out }, NULL));
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(got, b.out, sizeof(got)));
	for (unsigned i = 0; i < ARRAY_SIZE(expect); i++) {
		rig_check(got[i] == expect[i], "clamped layer", __FILE__, (int)i, (long)got[i]);
	}
}

static void layers_of_surfaces_are_clamped_without_sign(void **state)
{
	(void)state;
	assert_int_equal(rig_run(layers, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(surfaces_write_arrays),
		cmocka_unit_test(layers_of_surfaces_are_clamped_without_sign),
	};

	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}

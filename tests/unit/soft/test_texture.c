/* Texture objects through the driver API: what they show, lifetime, and handles that are wrong.
 * Results of single instructions are in tests/ptx. */
#include "texture_bed.h"

#include <string.h>

static CUarray bytes_array(const uint8_t *values, size_t n, unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = n, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1, .Flags = flags
	};
	CUarray a;

	CU(cuArray3DCreate_v2(&a, &d));
	CU(cuMemcpyHtoA_v2(a, 0, values, n));
	return a;
}

/* The results of an H100 for the same texture and coordinates. */
static void measured(void *unused)
{
	static const uint8_t values[] = { 0, 100, 200, 50 };
	static const uint8_t whole[] = { 0,   0,   0,	0,   0,	  13,  25,  38,	 50,  63,  75,
					 88,  100, 113, 125, 138, 150, 163, 175, 188, 200, 181,
					 163, 144, 125, 106, 88,  69,  50,  50,	 50,  50 };
	struct bed b;
	uint32_t got[N];
	float x[N];
	CUarray a;

	open_bed(&b);
	a = bytes_array(values, sizeof(values), 0);
	for (unsigned i = 0; i < N; i++) {
		x[i] = (float)i / 8;
	}
	CU(fetch(&b, texture_of(a, CU_TR_FILTER_MODE_LINEAR, CU_TRSF_READ_AS_INTEGER), x, N, got));
	for (unsigned i = 0; i < N; i++) {
		rig_check(got[i] == whole[i], "interpolated whole numbers", __FILE__, (int)i,
			  (long)got[i]);
	}
	CU(fetch(&b, texture_of(a, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER), x, N, got));
	for (unsigned i = 0; i < N; i++) {
		CHECK(got[i] == values[i / 8]);
	}
}

static void arrays_show_what_an_h100_shows(void **state)
{
	(void)state;
	assert_int_equal(rig_run(measured, NULL), 0);
}

/* A launch that waits keeps the texture that was destroyed behind it, even while new ones are made
 * and destroyed; a later launch must not use it. */
static void destroyed(void *unused)
{
	static const uint8_t values[] = { 7, 8, 9, 10 };
	const float x[] = { 2 };
	struct bed b;
	CUtexObject t, other;
	uint32_t got = 0, *flag;
	CUdeviceptr at;
	CUarray a;

	open_bed(&b);
	CU(cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer_v2(&at, flag, 0));
	a = bytes_array(values, sizeof(values), 0);
	t = texture_of(a, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
	CU(cuMemcpyHtoD_v2(b.x, x, sizeof(x)));
	*flag = 0;
	CU(cuLaunchKernel(b.fetch, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &t, &b.x, &b.out, &at },
			  NULL));
	CU(cuTexObjectDestroy(t));
	CU(cuTexObjectDestroy(t)); /* names nothing any more */
	for (unsigned i = 0; i < 2000; i++) {
		other = texture_of(a, CU_TR_FILTER_MODE_POINT, 0);
		CHECK(other != t);
		CU(cuTexObjectDestroy(other));
	}
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(&got, b.out, sizeof(got)));
	CHECK(got == 9);
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, fetch(&b, t, x, 1, &got));
}

static void launches_use_textures_that_are_destroyed_behind_them(void **state)
{
	(void)state;
	assert_int_equal(rig_run(destroyed, NULL), 0);
}

/* arg: what is wrong. Each ends the context of this program with an error. */
static void hostile(void *arg)
{
	unsigned what = *(unsigned *)arg;
	static const uint8_t values[] = { 7, 8, 9, 10 };
	const float x[] = { 2 };
	uint32_t got = 0;
	CUdeviceptr forged;
	uint64_t object[32];
	struct bed b;
	CUtexObject t;

	open_bed(&b);
	t = texture_of(bytes_array(values, sizeof(values), 0), CU_TR_FILTER_MODE_POINT, 0);
	CU(cuMemAlloc_v2(&forged, 4096));
	switch (what) {
	case 0: /* an object that the program wrote, with an address of nothing */
		memset(object, 0x01, sizeof(object));
		object[0] = forged | UINT64_C(1) << 48;
		object[1] = UINT64_MAX;
		CU(cuMemcpyHtoD_v2(forged, object, sizeof(object)));
		t = object[0];
		break;
	case 1: /* a variable that names itself */
		CU(cuMemcpyHtoD_v2(forged, &forged, sizeof(forged)));
		t = forged;
		break;
	case 2:
		t = 0;
		break;
	case 3:
		t = UINT64_MAX;
		break;
	case 4: /* another use of the same place */
		t += UINT64_C(1) << 48;
		break;
	case 5: /* between two objects */
		t += 8;
		break;
	case 6: /* its memory was freed */
	{
		CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_LINEAR };
		CUDA_TEXTURE_DESC d = { .flags = CU_TRSF_READ_AS_INTEGER };
		CUdeviceptr p;

		CU(cuMemAlloc_v2(&p, 4096));
		r.res.linear.devPtr = p;
		r.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
		r.res.linear.numChannels = 1;
		r.res.linear.sizeInBytes = 4096;
		CU(cuTexObjectCreate(&t, &r, &d, NULL));
		CU(fetch(&b, t, x, 1, &got));
		CU(cuMemFree_v2(p));
		break;
	}
	default: /* a surface is no texture */
	{
		CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_ARRAY };

		r.res.array.hArray = bytes_array(values, sizeof(values), CUDA_ARRAY3D_SURFACE_LDST);
		CU(cuSurfObjectCreate(&t, &r));
	}
	}
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, fetch(&b, t, x, 1, &got));
}

static void wrong_handles_end_the_context_that_uses_them(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(rig_run(hostile, &i), 0);
	}
	assert_int_equal(rig_run(measured, NULL), 0); /* the server is well */
}

static void refused(void *unused)
{
	static const uint8_t values[] = { 1, 2, 3, 4 };
	CUDA_RESOURCE_DESC array = { .resType = CU_RESOURCE_TYPE_ARRAY }, r;
	CUDA_RESOURCE_DESC pitched = { .resType = CU_RESOURCE_TYPE_PITCH2D };
	CUDA_RESOURCE_DESC linear = { .resType = CU_RESOURCE_TYPE_LINEAR };
	CUDA_TEXTURE_DESC plain = { 0 }, d;
	CUDA_RESOURCE_VIEW_DESC view = { .format = CU_RES_VIEW_FORMAT_UINT_1X8, .width = 4 }, v;
	struct bed b;
	CUtexObject t;

	open_bed(&b);
	array.res.array.hArray = bytes_array(values, sizeof(values), 0);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(NULL, &array, &plain, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, NULL, &plain, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &array, NULL, NULL));
	d = plain;
	d.addressMode[1] = 4;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &array, &d, NULL));
	d = plain;
	d.filterMode = 2;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &array, &d, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&t, &linear));
	CU(cuSurfObjectCreate(&t, &array));
	CU(cuTexObjectCreate(&t, &array, &plain, &view));
	v = view;
	v.format = CU_RES_VIEW_FORMAT_UINT_1X16;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &array, &plain, &v));
	v = view;
	v.width = 3;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &array, &plain, &v));
	v = view;
	v.lastMipmapLevel = 1;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &array, &plain, &v));

	CU(cuMemAlloc_v2(&pitched.res.pitch2D.devPtr, 4096));
	pitched.res.pitch2D.format = CU_AD_FORMAT_UNSIGNED_INT8;
	pitched.res.pitch2D.numChannels = 1;
	pitched.res.pitch2D.width = 60;
	pitched.res.pitch2D.height = 64;
	pitched.res.pitch2D.pitchInBytes = 64;
	CU(cuTexObjectCreate(&t, &pitched, &plain, NULL));
	r = pitched;
	r.res.pitch2D.pitchInBytes = 60;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &r, &plain, NULL));
	r = pitched;
	r.res.pitch2D.width = 65; /* as the driver: only accesses are checked */
	CU(cuTexObjectCreate(&t, &r, &plain, NULL));
	r = pitched;
	r.res.pitch2D.devPtr += 16;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &r, &plain, NULL));
	r = pitched;
	r.res.pitch2D.numChannels = 3;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &r, &plain, NULL));
	linear.res.linear.devPtr = pitched.res.pitch2D.devPtr;
	linear.res.linear.format = CU_AD_FORMAT_FLOAT;
	linear.res.linear.numChannels = 4;
	linear.res.linear.sizeInBytes = 4096;
	CU(cuTexObjectCreate(&t, &linear, &plain, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceViewDesc(&v, t));
	CU(cuTexObjectGetResourceDesc(&r, t));
	CHECK(r.res.linear.sizeInBytes == 4096 && r.resType == CU_RESOURCE_TYPE_LINEAR);
	linear.res.linear.devPtr += 4;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&t, &linear, &plain, NULL));
	CU(cuTexObjectDestroy(12345));
}

static void wrong_descriptions_are_refused(void **state)
{
	(void)state;
	assert_int_equal(rig_run(refused, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arrays_show_what_an_h100_shows),
		cmocka_unit_test(launches_use_textures_that_are_destroyed_behind_them),
		cmocka_unit_test(wrong_handles_end_the_context_that_uses_them),
		cmocka_unit_test(wrong_descriptions_are_refused),
	};

	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}

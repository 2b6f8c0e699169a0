/* Texture and surface objects through the driver API: what they show, lifetime, and handles that
 * are wrong. Results of single instructions are in tests/ptx. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "rig.h"

#define N 32

/* fetch(t, x, out): out[i] = the texel at x[i]; spin_fetch: the same after *flag is not 0;
 * write(s, v): texel i of the surface = v + i; layer_of(s, out): out[i] = texel 0 of layer i - 4,
 * clamped. */
static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry fetch(.param .u64 t, .param .u64 x, .param .u64 out, .param .u64 "
	"flag)\n{\n"
	"	.reg .b64 %t, %x, %o, %f, %w; .reg .b32 %r<6>; .reg .f32 %c; .reg .pred %p;\n"
	"	ld.param.u64 %t, [t]; ld.param.u64 %x, [x]; ld.param.u64 %o, [out];\n"
	"	ld.param.u64 %f, [flag];\n"
	"	setp.eq.u64 %p, %f, 0;\n"
	"	@%p bra go;\n"
	"again:\n"
	"	ld.volatile.global.u32 %r0, [%f];\n"
	"	setp.eq.u32 %p, %r0, 0;\n"
	"	@%p bra again;\n"
	"go:\n"
	"	mov.u32 %r0, %tid.x; mul.wide.u32 %w, %r0, 4;\n"
	"	add.u64 %x, %x, %w; add.u64 %o, %o, %w;\n"
	"	ld.global.f32 %c, [%x];\n"
	"	tex.1d.v4.u32.f32 {%r1, %r2, %r3, %r4}, [%t, {%c}];\n"
	"	st.global.u32 [%o], %r1;\n"
	"	ret;\n}\n"
	".visible .entry write(.param .u64 s, .param .u32 v)\n{\n"
	"	.reg .b64 %s; .reg .b32 %r<4>;\n"
	"	ld.param.u64 %s, [s]; ld.param.u32 %r0, [v];\n"
	"	mov.u32 %r1, %tid.x; add.u32 %r0, %r0, %r1; shl.b32 %r2, %r1, 2;\n"
	"	sust.b.1d.b32.trap [%s, {%r2}], %r0;\n"
	"	ret;\n}\n"
	".visible .entry layer_of(.param .u64 s, .param .u64 out)\n{\n"
	"	.reg .b64 %s, %o, %w; .reg .b32 %r<3>;\n"
	"	ld.param.u64 %s, [s]; ld.param.u64 %o, [out];\n"
	"	mov.u32 %r0, %tid.x; mul.wide.u32 %w, %r0, 4; add.u64 %o, %o, %w;\n"
	"	sub.s32 %r1, %r0, 4;\n"
	"	suld.b.a1d.b32.clamp %r2, [%s, {%r1, 0}];\n"
	"	st.global.u32 [%o], %r2;\n"
	"	ret;\n}\n";

struct bed {
	CUcontext ctx;
	CUmodule module;
	CUfunction fetch, write;
	CUdeviceptr x, out;
};

static void open_bed(struct bed *b)
{
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&b->ctx, 0, 0));
	CU(cuModuleLoadData(&b->module, ptx));
	CU(cuModuleGetFunction(&b->fetch, b->module, "fetch"));
	CU(cuModuleGetFunction(&b->write, b->module, "write"));
	CU(cuMemAlloc_v2(&b->x, N * sizeof(float)));
	CU(cuMemAlloc_v2(&b->out, N * sizeof(uint32_t)));
}

static CUresult fetch(struct bed *b, CUtexObject t, const float *x, unsigned n, uint32_t *ret)
{
	CUdeviceptr none = 0;
	void *params[] = { &t, &b->x, &b->out, &none };
	CUresult e;

	CU(cuMemcpyHtoD_v2(b->x, x, n * sizeof(*x)));
	CU(cuLaunchKernel(b->fetch, 1, 1, 1, n, 1, 1, 0, NULL, params, NULL));
	e = cuCtxSynchronize();
	return e ? e : cuMemcpyDtoH_v2(ret, b->out, n * sizeof(*ret));
}

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

static CUtexObject texture_of(CUarray a, CUfilter_mode filter, unsigned flags)
{
	CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_ARRAY };
	CUDA_TEXTURE_DESC d = { .filterMode = filter, .flags = flags };
	CUtexObject t = 0;

	r.res.array.hArray = a;
	for (unsigned i = 0; i < 3; i++) {
		d.addressMode[i] = CU_TR_ADDRESS_MODE_CLAMP;
	}
	CU(cuTexObjectCreate(&t, &r, &d, NULL));
	CHECK(t != 0);
	return t;
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
		cmocka_unit_test(arrays_show_what_an_h100_shows),
		cmocka_unit_test(launches_use_textures_that_are_destroyed_behind_them),
		cmocka_unit_test(wrong_handles_end_the_context_that_uses_them),
		cmocka_unit_test(wrong_descriptions_are_refused),
		cmocka_unit_test(surfaces_write_arrays),
		cmocka_unit_test(layers_of_surfaces_are_clamped_without_sign),
	};

	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}

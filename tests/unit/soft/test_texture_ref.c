/* Texture and surface references through the driver API. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "rig.h"

#define N 8

/* fetch(x, out): out[i] = the texel of `shown` at x[i]; write(v): texel i of `written` = v + i. */
static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".global .texref shown;\n.global .surfref written;\n.global .u32 number;\n"
	".visible .entry fetch(.param .u64 x, .param .u64 out)\n{\n"
	"	.reg .b64 %x, %o, %w; .reg .b32 %r<6>; .reg .f32 %c;\n"
	"	ld.param.u64 %x, [x]; ld.param.u64 %o, [out];\n"
	"	mov.u32 %r0, %tid.x; mul.wide.u32 %w, %r0, 4;\n"
	"	add.u64 %x, %x, %w; add.u64 %o, %o, %w;\n"
	"	ld.global.f32 %c, [%x];\n"
	"	tex.1d.v4.u32.f32 {%r1, %r2, %r3, %r4}, [shown, {%c}];\n"
	"	st.global.u32 [%o], %r1;\n"
	"	ret;\n}\n"
	".visible .entry write(.param .u32 v)\n{\n"
	"	.reg .b32 %r<4>;\n"
	"	ld.param.u32 %r0, [v];\n"
	"	mov.u32 %r1, %tid.x; add.u32 %r0, %r0, %r1; shl.b32 %r2, %r1, 2;\n"
	"	sust.b.1d.b32.trap [written, {%r2}], %r0;\n"
	"	ret;\n}\n";

struct bed {
	CUmodule module;
	CUfunction fetch, write;
	CUdeviceptr x, out;
};

static void open_bed(struct bed *b)
{
	CUcontext ctx;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	CU(cuModuleLoadData(&b->module, ptx));
	CU(cuModuleGetFunction(&b->fetch, b->module, "fetch"));
	CU(cuModuleGetFunction(&b->write, b->module, "write"));
	CU(cuMemAlloc_v2(&b->x, N * sizeof(float)));
	CU(cuMemAlloc_v2(&b->out, N * sizeof(uint32_t)));
}

static void fetch(struct bed *b, uint32_t *ret)
{
	float x[N];

	for (unsigned i = 0; i < N; i++) {
		x[i] = (float)i + 0.75f;
	}
	CU(cuMemcpyHtoD_v2(b->x, x, sizeof(x)));
	CU(cuLaunchKernel(b->fetch, 1, 1, 1, N, 1, 1, 0, NULL, (void *[]){ &b->x, &b->out }, NULL));
	CU(cuMemcpyDtoH_v2(ret, b->out, N * sizeof(*ret)));
}

static CUarray array_of(const uint32_t *values, unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = N, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1, .Flags = flags
	};
	CUarray a;

	CU(cuArray3DCreate_v2(&a, &d));
	CU(cuMemcpyHtoA_v2(a, 0, values, N * sizeof(*values)));
	return a;
}

static void bound(void *unused)
{
	static const uint32_t values[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	static const uint8_t bytes[N] = { 10, 20, 30, 40, 50, 60, 70, 80 };
	uint32_t got[N];
	CUdeviceptr linear, none;
	CUaddress_mode mode;
	CUarray_format format;
	CUarray a, same;
	size_t offset;
	struct bed b;
	CUtexref t, again;
	int channels;

	open_bed(&b);
	CU(cuModuleGetTexRef(&t, b.module, "shown"));
	CU(cuModuleGetTexRef(&again, b.module, "shown"));
	CHECK(t == again);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&again, b.module, "number"));
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&again, b.module, "written"));
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&again, b.module, "absent"));
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&none, NULL, b.module, "shown"));

	a = array_of(values, 0);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetArray(t, a, 0));
	CU(cuTexRefSetArray(t, a, CU_TRSA_OVERRIDE_FORMAT));
	CU(cuTexRefSetAddressMode(t, 0, CU_TR_ADDRESS_MODE_CLAMP));
	CU(cuTexRefGetAddressMode(&mode, t, 0));
	CHECK(mode == CU_TR_ADDRESS_MODE_CLAMP);
	CU(cuTexRefGetArray(&same, t));
	CHECK(same == a);
	CU(cuTexRefGetFormat(&format, &channels, t));
	CHECK(format == CU_AD_FORMAT_UNSIGNED_INT32 && channels == 1);
	fetch(&b, got);
	CHECK(memcmp(got, values, sizeof(got)) == 0);

	/* another resource, format and filter: seen by the next launch */
	CU(cuMemAlloc_v2(&linear, 4096));
	CU(cuMemcpyHtoD_v2(linear, bytes, sizeof(bytes)));
	CU(cuTexRefSetFormat(t, CU_AD_FORMAT_UNSIGNED_INT8, 1));
	CU(cuTexRefSetAddress_v2(&offset, t, linear, sizeof(bytes)));
	CHECK(offset == 0);
	CU(cuTexRefSetFlags(t, CU_TRSF_READ_AS_INTEGER));
	CU(cuTexRefSetFilterMode(t, CU_TR_FILTER_MODE_LINEAR));
	fetch(&b, got);
	for (unsigned i = 0; i < N; i++) { /* a quarter towards the next, 10 more */
		CHECK(got[i] == (i == N - 1 ? 80 : 10 * (i + 1) + 3));
	}
	CU(cuTexRefSetAddress_v2(&offset, t, linear + 4, 4));
	CHECK(offset == 4);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress_v2(NULL, t, linear + 4, 4));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFilterMode(t, 2));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddressMode(t, 3, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuTexRefDestroy(t));
}

static void launches_see_what_is_bound(void **state)
{
	(void)state;
	assert_int_equal(rig_run(bound, NULL), 0);
}

static void surface(void *unused)
{
	static const uint32_t zero[N];
	uint32_t got[N], value = 70;
	CUarray a, same;
	CUsurfref s;
	struct bed b;

	open_bed(&b);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetSurfRef(&s, b.module, "shown"));
	CU(cuModuleGetSurfRef(&s, b.module, "written"));
	a = array_of(zero, CUDA_ARRAY3D_SURFACE_LDST);
	CU(cuSurfRefSetArray(s, a, 0));
	CU(cuSurfRefGetArray(&same, s));
	CHECK(same == a);
	CU(cuLaunchKernel(b.write, 1, 1, 1, N, 1, 1, 0, NULL, (void *[]){ &value }, NULL));
	CU(cuMemcpyAtoH_v2(got, a, 0, sizeof(got)));
	for (unsigned i = 0; i < N; i++) {
		CHECK(got[i] == 70 + i);
	}
}

static void surface_references_write_arrays(void **state)
{
	(void)state;
	assert_int_equal(rig_run(surface, NULL), 0);
}

static void nothing_bound(void *unused)
{
	struct bed b;

	open_bed(&b);
	CU(cuLaunchKernel(b.fetch, 1, 1, 1, N, 1, 1, 0, NULL, (void *[]){ &b.x, &b.out }, NULL));
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void a_fetch_without_a_texture_ends_the_context(void **state)
{
	(void)state;
	assert_int_equal(rig_run(nothing_bound, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(launches_see_what_is_bound),
		cmocka_unit_test(surface_references_write_arrays),
		cmocka_unit_test(a_fetch_without_a_texture_ends_the_context),
	};

	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}

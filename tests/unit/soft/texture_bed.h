/* A context with kernels that read textures and use surfaces. */
#ifndef GBPF_TESTS_SOFT_TEXTURE_BED_H
#define GBPF_TESTS_SOFT_TEXTURE_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

static inline void open_bed(struct bed *b)
{
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&b->ctx, 0, 0));
	CU(cuModuleLoadData(&b->module, ptx));
	CU(cuModuleGetFunction(&b->fetch, b->module, "fetch"));
	CU(cuModuleGetFunction(&b->write, b->module, "write"));
	CU(cuMemAlloc_v2(&b->x, N * sizeof(float)));
	CU(cuMemAlloc_v2(&b->out, N * sizeof(uint32_t)));
}

static inline CUresult fetch(struct bed *b, CUtexObject t, const float *x, unsigned n,
			     uint32_t *ret)
{
	CUdeviceptr none = 0;
	void *params[] = { &t, &b->x, &b->out, &none };
	CUresult e;

	CU(cuMemcpyHtoD_v2(b->x, x, n * sizeof(*x)));
	CU(cuLaunchKernel(b->fetch, 1, 1, 1, n, 1, 1, 0, NULL, params, NULL));
	e = cuCtxSynchronize();
	return e ? e : cuMemcpyDtoH_v2(ret, b->out, n * sizeof(*ret));
}

static inline CUtexObject texture_of(CUarray a, CUfilter_mode filter, unsigned flags)
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

#endif

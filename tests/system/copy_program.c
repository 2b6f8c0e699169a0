#include "copy_program.h"
#include "../unit/eventually.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

CUdevice copy_device;
CUcontext copy_context;
CUfunction copy_invert;

static uint32_t released; /* [atomic] the host function may return */
static unsigned rounds;	  /* [atomic] */

static const char ptx[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".visible .entry invert(.param .u64 at, .param .u32 n)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [n];\n"
	"mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	"mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra L;\n"
	"cvta.to.global.u64 %rd1, %rd1; cvt.u64.u32 %rd2, %r5; add.s64 %rd3, %rd1, %rd2;\n"
	"ld.global.u8 %r6, [%rd3]; not.b32 %r6, %r6; st.global.u8 [%rd3], %r6;\n"
	"L: ret;\n}\n";

void copy_open_context(void)
{
	CUmodule module;

	CU(cuDevicePrimaryCtxRetain(&copy_context, copy_device));
	CU(cuCtxSetCurrent(copy_context));
	CU(cuModuleLoadData(&module, ptx));
	CU(cuModuleGetFunction(&copy_invert, module, "invert"));
}

void copy_begin(void)
{
	CU(cuInit(0));
	CU(cuDeviceGet(&copy_device, 0));
	copy_open_context();
}

void copy_fill(unsigned char *p, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++) {
		p[i] = (unsigned char)((seed + i) * 0x9e3779b1u >> 24);
	}
}

unsigned char *copy_map_host(size_t reserved, size_t mapped)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 } };
	const CUmemAccessDesc access[] = {
		{ { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
		{ { CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
	};
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;

	CU(cuMemAddressReserve(&p, reserved, 0, 0, 0));
	CU(cuMemCreate(&h, mapped, &prop, 0));
	CU(cuMemMap(p, mapped, 0, h, 0));
	CU(cuMemSetAccess(p, mapped, access, ARRAY_SIZE(access)));
	return (unsigned char *)(uintptr_t)p;
}

void copy_run_lanes(struct copy_lane lanes[COPY_LANES], uint64_t seed, void *(*run)(void *lane))
{
	pthread_t t[COPY_LANES];

	printf("seed %llu\n", (unsigned long long)seed);
	for (unsigned i = 0; i < COPY_LANES; i++) {
		lanes[i] = (struct copy_lane){ .kind = (enum copy_kind)i,
					       .seed = seed * COPY_LANES + i };
		CHECK(pthread_create(&t[i], NULL, run, &lanes[i]) == 0, "lane %u", i);
	}
	for (unsigned i = 0; i < COPY_LANES; i++) {
		CHECK(pthread_join(t[i], NULL) == 0, "lane %u", i);
	}
}

void copy_lane_begin(struct copy_lane *l, size_t bytes)
{
	CU(cuCtxSetCurrent(copy_context));
	if (l->kind >= COPY_BLOCKING) {
		CU(cuStreamCreate(&l->stream, l->kind == COPY_NON_BLOCKING));
	}
	l->model = program_room(bytes);
	CU(cuMemAlloc(&l->at, bytes));
}

void copy_lane_end(struct copy_lane *l)
{
	CU(cuMemFree(l->at));
	if (l->stream) {
		CU(cuStreamDestroy(l->stream));
	}
	free(l->model);
}

void copy_lane_invert(struct copy_lane *l, size_t off, size_t n)
{
	CUdeviceptr at = l->at + off;
	unsigned bytes = (unsigned)n;
	void *params[] = { &at, &bytes };

	CU((l->kind == COPY_PER_THREAD ? cuLaunchKernel_ptsz : cuLaunchKernel)(
		copy_invert, (bytes + 1023) / 1024, 1, 1, 1024, 1, 1, 0, l->stream, params, NULL));
	for (size_t i = 0; i < n; i++) {
		l->model[off + i] = (unsigned char)~l->model[off + i];
	}
}

static void await_release(void *unused)
{
	(void)unused;
	eventually(__atomic_load_n(&released, __ATOMIC_ACQUIRE));
}

void copy_hold(CUstream stream)
{
	__atomic_store_n(&released, 0u, __ATOMIC_RELEASE);
	CU(cuLaunchHostFunc(stream, await_release, NULL));
}

void copy_release(void)
{
	__atomic_store_n(&released, 1u, __ATOMIC_RELEASE);
}

void copy_count_round(void)
{
	__atomic_fetch_add(&rounds, 1u, __ATOMIC_RELEASE);
}

void copy_await_rounds(unsigned n)
{
	unsigned from = __atomic_load_n(&rounds, __ATOMIC_ACQUIRE);

	eventually(__atomic_load_n(&rounds, __ATOMIC_ACQUIRE) - from >= n);
}

void copy_show_pid(void)
{
	printf("%d\n", (int)getpid());
	fflush(stdout);
}

int copy_run_case(const struct copy_case *cases, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(name, cases[i].name) == 0) {
			return cases[i].run();
		}
	}
	CHECK(false, "unknown case %s", name);
}

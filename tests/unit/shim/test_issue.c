/* A launch reaches the driver as the program made it, by the same function: whatever the launch
 * function, whether the kernel's code is the program's or has an entry stub, and whether it goes
 * past the gate, through it, is deferred or captured. */
#include "code_rig.h"

#include <stdio.h>
#include <string.h>

enum way { WAY_IDLE, WAY_GATED, WAY_DEFERRED, WAY_CAPTURED, N_WAYS };
enum { PLAIN, COOPERATIVE, EX, N_APIS };

static CUstream stream;

/* What the driver was given: by value, since a deferred call's memory ends with it. */
static struct seen {
	unsigned calls;
	int api;
	bool ptsz;
	CUfunction f;
	uint32_t shape[7];
	CUstream stream;
	unsigned n_attrs;
	uint64_t first;
	uint32_t second;
	bool has_argument; /* a third parameter, all zero */
} seen;

static void see_params(void **params, void **extra)
{
	const unsigned char *bytes = extra ? extra[1] : NULL;
	bool stub = seen.f == RIG_TWO;

	memcpy(&seen.first, extra ? bytes : params[0], 8);
	memcpy(&seen.second, extra ? bytes + 8 : params[1], 4);
	if (extra) {
		seen.has_argument = stub && *(size_t *)extra[3] == 80 && rig_is_zero(bytes + 16);
	} else {
		seen.has_argument = stub && rig_is_zero(params[2]);
	}
}

static CUresult see(int api, bool ptsz, CUfunction f, const uint32_t shape[7], CUstream s,
		    void **params, void **extra)
{
	seen = (struct seen){
		.calls = seen.calls + 1, .api = api, .ptsz = ptsz, .f = f, .stream = s
	};
	memcpy(seen.shape, shape, sizeof(seen.shape));
	see_params(params, extra);
	return CUDA_SUCCESS;
}

#define SEES(name, ptsz)                                                                           \
	static CUresult plain##name(CUfunction f, unsigned gx, unsigned gy, unsigned gz,           \
				    unsigned bx, unsigned by, unsigned bz, unsigned smem,          \
				    CUstream s, void **params, void **extra)                       \
	{                                                                                          \
		return see(PLAIN, ptsz, f, (const uint32_t[]){ gx, gy, gz, bx, by, bz, smem }, s,  \
			   params, extra);                                                         \
	}                                                                                          \
	static CUresult cooperative##name(CUfunction f, unsigned gx, unsigned gy, unsigned gz,     \
					  unsigned bx, unsigned by, unsigned bz, unsigned smem,    \
					  CUstream s, void **params)                               \
	{                                                                                          \
		return see(COOPERATIVE, ptsz, f,                                                   \
			   (const uint32_t[]){ gx, gy, gz, bx, by, bz, smem }, s, params, NULL);   \
	}                                                                                          \
	static CUresult ex##name(const CUlaunchConfig *c, CUfunction f, void **params,             \
				 void **extra)                                                     \
	{                                                                                          \
		CUresult r = see(EX, ptsz, f,                                                      \
				 (const uint32_t[]){ c->gridDimX, c->gridDimY, c->gridDimZ,        \
						     c->blockDimX, c->blockDimY, c->blockDimZ,     \
						     c->sharedMemBytes },                          \
				 c->hStream, params, extra);                                       \
		seen.n_attrs = c->numAttrs;                                                        \
		return r;                                                                          \
	}
SEES(, false)
SEES(_ptsz, true)

static CUresult (*other_attribute)(int *, CUdevice_attribute, CUdevice);

static CUresult attribute(int *ret, CUdevice_attribute what, CUdevice d)
{
	if (what == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
		*ret = 132; /* a cooperative launch must fit */
		return CUDA_SUCCESS;
	}
	return other_attribute(ret, what, d);
}

static void stand_in(struct cuabi_table *t)
{
	other_attribute =
		t->cuDeviceGetAttribute == attribute ? other_attribute : t->cuDeviceGetAttribute;
	t->cuDeviceGetAttribute = attribute;
	t->cuStreamIsCapturing_ptsz = t->cuStreamIsCapturing; /* which the fake has alone */
	t->cuLaunchKernel = plain;
	t->cuLaunchKernel_ptsz = plain_ptsz;
	t->cuLaunchCooperativeKernel = cooperative;
	t->cuLaunchCooperativeKernel_ptsz = cooperative_ptsz;
	t->cuLaunchKernelEx = ex;
	t->cuLaunchKernelEx_ptsz = ex_ptsz;
}

/* extra: the parameters are in a buffer. */
static CUresult launch(int api, bool ptsz, CUfunction f, bool extra)
{
	struct {
		uint64_t first;
		uint32_t second;
	} p = { 0x1122334455667788, 0x99aabbcc };
	size_t bytes = 12;
	void *pointers[] = { &p.first, &p.second };
	void *list[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &p, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			 CU_LAUNCH_PARAM_END };
	void **params = extra ? NULL : pointers, **more = extra ? list : NULL;
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_IGNORE };
	CUlaunchConfig c = { 4, 3, 2, 16, 2, 1, 128, stream, &attr, 1 };
	CUresult r;

	switch (api) {
	case PLAIN:
		r = (ptsz ? cuLaunchKernel_ptsz : cuLaunchKernel)(f, 4, 3, 2, 16, 2, 1, 128, stream,
								  params, more);
		break;
	case COOPERATIVE:
		r = (ptsz ? cuLaunchCooperativeKernel_ptsz
			  : cuLaunchCooperativeKernel)(f, 4, 3, 2, 16, 2, 1, 128, stream, params);
		break;
	default:
		r = (ptsz ? cuLaunchKernelEx_ptsz : cuLaunchKernelEx)(&c, f, params, more);
	}
	memset(&p, 0xee, sizeof(p)); /* the program may use its memory again */
	memset(&c, 0xee, sizeof(c));
	memset(list, 0xee, sizeof(list));
	return r;
}

static void set_idle(bool idle)
{
	store_relaxed(&((struct sched_shared *)(void *)shim.sched)->active, idle ? 0u : 1u);
}

static void launch_in(enum way way, int api, bool ptsz, CUfunction f, bool extra)
{
	struct sched_queue *q = double_queue(stream);
	unsigned before = q->submits;
	CUgraph g;

	q->defer = way == WAY_DEFERRED;
	set_idle(way == WAY_IDLE);
	if (way == WAY_CAPTURED) {
		assert_int_equal(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
				 CUDA_SUCCESS);
	}
	assert_int_equal(launch(api, ptsz, f, extra), CUDA_SUCCESS);
	set_idle(false);
	assert_int_equal(double_deferred(), way == WAY_DEFERRED);
	assert_int_equal(seen.calls, way != WAY_DEFERRED);
	/* Past the gate, and in a capture, the scheduler is not asked. */
	assert_int_equal(q->submits - before, way == WAY_GATED || way == WAY_DEFERRED);
	double_issue();
	if (way == WAY_CAPTURED) {
		assert_int_equal(cuStreamEndCapture(stream, &g), CUDA_SUCCESS);
	}
}

static void check(enum way way, int api, bool ptsz, CUfunction f, bool extra)
{
	static const uint32_t shape[] = { 4, 3, 2, 16, 2, 1, 128 };
	bool same;

	seen.calls = 0;
	launch_in(way, api, ptsz, f, extra);
	same = seen.calls == 1 && seen.api == api && seen.ptsz == ptsz && seen.f == f &&
	       memcmp(seen.shape, shape, sizeof(shape)) == 0 && seen.stream == stream &&
	       seen.n_attrs == (api == EX) && seen.first == 0x1122334455667788 &&
	       seen.second == 0x99aabbcc && seen.has_argument == (f == RIG_TWO);
	if (!same) {
		fail_msg("way %d, function %d%s, %s code, %s: another call", way, api,
			 ptsz ? "_ptsz" : "", f == RIG_TWO ? "patched" : "own",
			 extra ? "buffer" : "pointers");
	}
}

static void check_all(CUfunction f)
{
	for (int i = 0; i < N_WAYS * N_APIS * 4; i++) {
		int api = i / 4 % N_APIS;
		bool extra = i & 1;

		if (!extra || api != COOPERATIVE) {
			check((enum way)(i / 4 / N_APIS), api, i & 2, f, extra);
		}
	}
}

static void every_launch_is_what_the_program_made(void **state)
{
	CUfunction f = RIG_TWO;
	CUmodule m = RIG_MODULE;

	stream = fixture_stream(CU_STREAM_NON_BLOCKING);
	check_all(RIG_OTHER); /* before any code is patched, and after that */
	assert_false(shim.forms);
	assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
	assert_int_equal(cuModuleGetFunction(&f, m, "two"), CUDA_SUCCESS);
	stand_in(&shim_driver);
	assert_true(shim.forms);
	check_all(RIG_OTHER);
	check_all(RIG_TWO);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

static int before(void **state)
{
	int err = rig_before(state);

	stand_in(&shim_driver);
	stand_in((struct cuabi_table *)(void *)&shim_real);
	return err;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(every_launch_is_what_the_program_made, before),
	};

	return cmocka_run_group_tests(tests, rig_setup, NULL);
}

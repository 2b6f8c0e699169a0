/* The log of the fake libcuda, and the functions that return meaningful results. */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuabi/api.h"
#include "cuabi/lookup.h"

#define MAX_RECORDS 262144u
#define MAX_STREAMS 4096u
#define STREAM_BASE 0x100000u
#define STREAM_BYTES 0x100u
#define EVENT_BASE 0x900000u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fake_record records[MAX_RECORDS];
static unsigned n_records;
/* As in NVIDIA's: a debugger sets it. */
__attribute__((visibility("default"))) extern uint32_t cudbgIpcFlag;
uint32_t cudbgIpcFlag;

static uint32_t failing = UINT32_MAX;
static CUresult failure;
static const char *pinned;
static size_t pinned_bytes;
static unsigned n_params;
static struct {
	unsigned flags;
	int priority;
	bool capturing;
	CUcontext ctx;
} streams[MAX_STREAMS];
static unsigned n_streams, n_events, n_capturing;
static __thread CUcontext stack[16];
static __thread unsigned depth;

static CUcontext current(void)
{
	return depth ? stack[depth - 1] : FAKE_CTX;
}

static CUresult record(uint32_t index, const uint64_t *a, unsigned n, uint64_t data)
{
	CUresult r;

	pthread_mutex_lock(&mutex);
	if (n_records < MAX_RECORDS) {
		struct fake_record *rec = &records[n_records++];

		*rec = (struct fake_record){
			.index = index, .nargs = n, .data = data, .ctx = current()
		};
		if (n) {
			memcpy(rec->a, a, n * sizeof(a[0]));
		}
	}
	r = index == failing ? failure : CUDA_SUCCESS;
	pthread_mutex_unlock(&mutex);
	return r;
}

CUresult fake_call(uint32_t index, const uint64_t *a, unsigned n)
{
	uint64_t data = 0;

	if (index == CUABI_IDX_cuMemcpyHtoDAsync_v2 && a[1]) {
		memcpy(&data, (const void *)(uintptr_t)a[1], sizeof(data));
	}
	if (index == CUABI_IDX_cuLaunchKernelEx && a[0]) {
		data = ((const CUlaunchConfig *)(uintptr_t)a[0])->gridDimX;
	}
	return record(index, a, n, data);
}

static unsigned stream_number(CUstream s)
{
	uintptr_t h = (uintptr_t)s;

	return h < STREAM_BASE ? MAX_STREAMS : (unsigned)((h - STREAM_BASE) / STREAM_BYTES);
}

/* ---- calls that the shim makes itself: not recorded ---- */

static char init_text[3][256];
static bool init_set[3];

static const char *init_env(unsigned i)
{
	return init_set[i] ? init_text[i] : NULL;
}

CUresult cuInit(unsigned flags)
{
	static const char *const names[] = { "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_CLIENT_PRIORITY",
					     "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" };

	for (unsigned i = 0; i < 3; i++) {
		const char *v = getenv(names[i]);

		init_set[i] = v != NULL;
		snprintf(init_text[i], sizeof(init_text[i]), "%s", v ? v : "");
	}
	return init_set[0] && getenv("FAKE_NO_MPS") ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
	*n = 1;
	return CUDA_SUCCESS;
}

/* No private tables: not the soft GPU. */
CUresult cuGetExportTable(const void **ret, const CUuuid *id)
{
	(void)ret;
	(void)id;
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d)
{
	memset(u, 0x5a, sizeof(*u));
	return CUDA_SUCCESS;
}

/* Compute capability 9.0, four multiprocessors. */
CUresult cuDeviceGetAttribute(int *ret, CUdevice_attribute what, CUdevice d)
{
	*ret = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
	       : what == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT   ? 4
								    : 0;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *ret, CUfunction_attribute what, CUfunction f)
{
	*ret = what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? 49152 : 1024;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *ret, CUfunction_attribute what, CUkernel k, CUdevice d)
{
	return cuFuncGetAttribute(ret, what, NULL);
}

CUresult cuCtxGetCurrent(CUcontext *ret)
{
	*ret = current();
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (depth == 16) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret)
{
	*ret = current();
	depth -= depth > 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *ret)
{
	*ret = (CUdevice)(((uintptr_t)current() - (uintptr_t)FAKE_CTX) / 0x1000u);
	return CUDA_SUCCESS;
}

static unsigned streams_made(void)
{
	return __atomic_load_n(&n_streams, __ATOMIC_ACQUIRE);
}

CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned flags, int priority)
{
	unsigned i = __atomic_fetch_add(&n_streams, 1, __ATOMIC_ACQ_REL) % MAX_STREAMS;

	streams[i].flags = flags;
	streams[i].priority = priority;
	streams[i].capturing = false;
	streams[i].ctx = current();
	*ret = (CUstream)(uintptr_t)(STREAM_BASE + i * STREAM_BYTES);
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *ret, unsigned flags)
{
	return cuStreamCreateWithPriority(ret, flags, 0);
}

CUresult cuStreamGetFlags(CUstream s, unsigned *ret)
{
	unsigned i = stream_number(s);

	if (i >= streams_made()) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	*ret = streams[i].flags;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream s, int *ret)
{
	unsigned i = stream_number(s);

	*ret = i < streams_made() ? streams[i].priority : 0;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream s, CUcontext *ret)
{
	unsigned i = stream_number(s);

	if (i >= streams_made()) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	*ret = streams[i].ctx;
	return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
	*ret = (CUevent)(uintptr_t)(EVENT_BASE +
				    64 * __atomic_fetch_add(&n_events, 1, __ATOMIC_RELAXED));
	return CUDA_SUCCESS;
}

/* Not recorded: the scheduler polls events all the time. */
CUresult cuEventQuery(CUevent e)
{
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *ret, CUpointer_attribute what, CUdeviceptr p)
{
	const char *at = (const char *)(uintptr_t)p;

	if (p >= 0xd0000000u && p < 0xe0000000u) {
		*(unsigned *)ret = CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	}
	if (at < pinned || at >= pinned + pinned_bytes) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*(unsigned *)ret = CU_MEMORYTYPE_HOST;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **ret, CUfunction f)
{
	*ret = "fake_kernel";
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t *offset, size_t *size)
{
	if (i >= n_params) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*offset = 8 * i;
	*size = 8;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel f, size_t i, size_t *offset, size_t *size)
{
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *ret)
{
	unsigned i = stream_number(s);

	if (i >= streams_made() && __atomic_load_n(&n_capturing, __ATOMIC_RELAXED)) {
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	*ret = i < streams_made() && streams[i].capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
							  : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	extern void *fake_address(int index);
	int i = cuabi_resolve(name, version, flags);

	*ret = i < 0 ? NULL : fake_address(i);
	return i < 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

/* ---- calls recorded with the data that they point to ---- */

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			unsigned by, unsigned bz, unsigned smem, CUstream s, void **params,
			void **extra)
{
	uint64_t a[] = {
		(uintptr_t)f,	 gx, gy, gz, bx, by, bz, smem, (uintptr_t)s, (uintptr_t)params,
		(uintptr_t)extra
	};
	uint64_t data = 0;

	if (params && n_params) {
		memcpy(&data, params[0], sizeof(data));
	} else if (extra) {
		memcpy(&data, extra[1], sizeof(data));
	}
	return record(CUABI_IDX_cuLaunchKernel, a, 11, data);
}

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	uint64_t a[] = { (uintptr_t)s, mode };

	streams[stream_number(s)].capturing = true;
	__atomic_fetch_add(&n_capturing, 1, __ATOMIC_RELAXED);
	return record(CUABI_IDX_cuStreamBeginCapture_v2, a, 2, 0);
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *ret)
{
	uint64_t a[] = { (uintptr_t)s, (uintptr_t)ret };

	streams[stream_number(s)].capturing = false;
	__atomic_fetch_sub(&n_capturing, 1, __ATOMIC_RELAXED);
	return record(CUABI_IDX_cuStreamEndCapture, a, 2, 0);
}

/* ---- for the test ---- */

static void reset(void)
{
	pthread_mutex_lock(&mutex);
	n_records = 0;
	failing = UINT32_MAX;
	pthread_mutex_unlock(&mutex);
}

static unsigned count(void)
{
	unsigned n;

	pthread_mutex_lock(&mutex);
	n = n_records;
	pthread_mutex_unlock(&mutex);
	return n;
}

static struct fake_record get(unsigned i)
{
	struct fake_record r;

	pthread_mutex_lock(&mutex);
	r = records[i];
	pthread_mutex_unlock(&mutex);
	return r;
}

static void note(const char *text)
{
	record(FAKE_NOTE, NULL, 0, 0);
	pthread_mutex_lock(&mutex);
	records[n_records - 1].text = text;
	pthread_mutex_unlock(&mutex);
}

static void fail(uint32_t index, CUresult with)
{
	failing = index;
	failure = with;
}

static void pin(const void *from, size_t bytes)
{
	pinned = from;
	pinned_bytes = bytes;
}

static void params(unsigned n)
{
	n_params = n;
}

__attribute__((visibility("default"))) const struct fake_interface *fake_interface(void);
const struct fake_interface *fake_interface(void)
{
	static const struct fake_interface i = { reset, count, get,    note,
						 fail,	pin,   params, init_env };

	return &i;
}

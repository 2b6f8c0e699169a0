/* See script.h. */
#include "script_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

struct cuabi_table script;
char script_log[65536];
CUresult script_query[SCRIPT_STREAMS], script_reached;
CUstreamCaptureStatus script_capturing[SCRIPT_STREAMS];
float script_ms;
struct script_launch script_launches[SCRIPT_LAUNCHES];
unsigned script_n_launches;
__thread unsigned script_depth;
void (*script_on_launch)(const struct script_launch *l);
void (*script_on_call)(const char *call);
CUstreamCaptureMode script_mode;
__thread CUcontext script_current;

static const char *failing;
static CUresult failure;
static unsigned successes, n_streams, n_events;
static __thread CUcontext before[16];
static struct {
	uint32_t *to;
	const uint32_t *from;
} copies;

static void PRINTF_LIKE(1, 2) say(const char *fmt, ...)
{
	size_t n = strlen(script_log);
	va_list ap;

	if (n) {
		script_log[n++] = ' ';
	}
	va_start(ap, fmt);
	assert_true(vsnprintf(script_log + n, sizeof(script_log) - n, fmt, ap) <
		    (int)(sizeof(script_log) - n));
	va_end(ap);
}

static CUresult result(const char *call)
{
	if (script_on_call) {
		script_on_call(call);
	}
	if (failing && strcmp(call, failing) == 0 && !successes--) {
		failing = NULL;
		say("%s!", call);
		return failure;
	}
	return CUDA_SUCCESS;
}

void script_fail(const char *call, CUresult e, unsigned after)
{
	failing = call;
	failure = e;
	successes = after;
}

static unsigned number(CUstream s)
{
	unsigned n = (unsigned)((uintptr_t)s - 0x100u);

	assert_true(n < SCRIPT_STREAMS);
	return n;
}

static CUresult get_device(CUdevice *ret)
{
	*ret = 0;
	return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
	CUresult e = result("current");

	*ret = script_current;
	return e;
}

static CUresult push_current(CUcontext ctx)
{
	CUresult e = result("push");

	if (!e) {
		say("push %u", (unsigned)((uintptr_t)ctx - 0x1000u));
		before[script_depth++] = script_current;
		script_current = ctx;
	}
	return e;
}

static CUresult pop_current(CUcontext *ret)
{
	say("pop");
	assert_true(script_depth > 0);
	*ret = script_current;
	script_current = before[--script_depth];
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = script_mode;
	CUresult e = result("mode");

	if (!e) {
		script_mode = *mode;
		*mode = old;
	}
	return e;
}

static CUresult priorities(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *ret, unsigned flags, int priority)
{
	CUresult e = result("stream");

	if (e) {
		return e;
	}
	assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
	assert_int_equal(priority, -5);
	*ret = SCRIPT_STREAM(++n_streams);
	say("stream %u", n_streams);
	return CUDA_SUCCESS;
}

static CUresult host_alloc(void **ret, size_t bytes, unsigned flags)
{
	CUresult e = result("host");

	if (!e) {
		assert_int_equal(flags, CU_MEMHOSTALLOC_DEVICEMAP);
		*ret = script_allocate(bytes);
		say("host %zu", bytes);
	}
	return e;
}

static CUresult device_pointer(CUdeviceptr *ret, void *p, unsigned flags)
{
	CUresult e = result("map");

	*ret = e ? 0 : (uintptr_t)p;
	assert_int_equal(flags, 0);
	return e;
}

static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
	CUresult e = result("memory");

	if (!e) {
		*ret = (uintptr_t)script_allocate(bytes);
		say("memory %zu", bytes);
	}
	return e;
}

static CUresult mem_free(CUdeviceptr p)
{
	say("free");
	return script_release((void *)(uintptr_t)p);
}

static CUresult host_free(void *p)
{
	say("free-host");
	return script_release(p);
}

static CUresult set(CUdeviceptr to, unsigned value, size_t n, CUstream stream)
{
	CUresult e = result("set");

	if (e) {
		return e;
	}
	say("set %u:%u", (unsigned)n, number(stream));
	for (size_t i = 0; i < n; i++) {
		((uint32_t *)(uintptr_t)to)[i] = value;
	}
	return CUDA_SUCCESS;
}

static CUresult copy(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	CUresult e = result("copy");

	if (!e) {
		say("copy %zu:%u", bytes, number(stream));
		copies.to = to;
		copies.from = (const uint32_t *)(uintptr_t)from;
	}
	return e;
}

void script_copy(void)
{
	*copies.to = *copies.from;
}

static CUresult is_capturing(CUstream s, CUstreamCaptureStatus *ret)
{
	CUresult e = result("capturing");

	*ret = script_capturing[number(s)];
	return e;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		       unsigned by, unsigned bz, unsigned smem, CUstream stream, void **params,
		       void **extra)
{
	struct script_launch l = {
		f, gx * gy * gz, { bx, by, bz }, smem, number(stream), { 0 }, { 0 }, 0
	};
	CUresult e = result("launch");
	const uint8_t *p;
	size_t bytes;

	if (e) {
		return e;
	}
	say("launch %x %u:%u", (unsigned)(uintptr_t)f, l.blocks, l.stream);
	assert_non_null(script_current);
	if (extra) {
		assert_ptr_equal(extra[0], CU_LAUNCH_PARAM_BUFFER_POINTER);
		assert_ptr_equal(extra[2], CU_LAUNCH_PARAM_BUFFER_SIZE);
		assert_ptr_equal(extra[4], CU_LAUNCH_PARAM_END);
		p = extra[1];
		bytes = *(const size_t *)extra[3];
		assert_true(bytes >= sizeof(l.arg));
		memcpy(&l.arg, p + bytes - sizeof(l.arg), sizeof(l.arg));
		memcpy(&l.first_param, p, MIN(bytes - sizeof(l.arg), sizeof(l.first_param)));
	}
	for (unsigned i = 0; i < (f == SCRIPT_TAKE    ? 3u
				  : f == SCRIPT_CLOSE ? 2u
						      : f == SCRIPT_CLOCK);
	     i++) {
		l.param[i] = *(const uint64_t *)params[i];
	}
	if (f == SCRIPT_TAKE) {
		l.param[3] = *(const uint32_t *)params[3];
	}
	script_launches[script_n_launches++ % SCRIPT_LAUNCHES] = l;
	if (script_on_launch) {
		script_on_launch(&l);
	}
	return CUDA_SUCCESS;
}

static CUresult module_load(CUmodule *ret, const void *image)
{
	CUresult e = result("load");

	if (!e) {
		say("load%s", script_mode == CU_STREAM_CAPTURE_MODE_RELAXED ? "" : "(not relaxed)");
		assert_memory_equal(image, ".version", 8);
		*ret = (CUmodule)(uintptr_t)0x5000;
	}
	return e;
}

static CUresult module_function(CUfunction *ret, CUmodule module, const char *name)
{
	CUresult e = result("function");

	assert_ptr_equal(module, (CUmodule)(uintptr_t)0x5000);
	if (!e) {
		say("%s", name);
		*ret = strcmp(name, "gbpf_take") == 0	 ? SCRIPT_TAKE
		       : strcmp(name, "gbpf_close") == 0 ? SCRIPT_CLOSE
		       : strcmp(name, "gbpf_clock") == 0 ? SCRIPT_CLOCK
							 : SCRIPT_WARM;
	}
	return e;
}

static CUresult query(CUstream s)
{
	return script_query[number(s)];
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
	CUresult e = result("event");

	if (!e) {
		assert_int_equal(flags & ~CU_EVENT_DISABLE_TIMING, CU_EVENT_DEFAULT);
		*ret = SCRIPT_EVENT(++n_events);
		say("%sevent %u of %u", flags & CU_EVENT_DISABLE_TIMING ? "untimed " : "", n_events,
		    (unsigned)((uintptr_t)script_current - 0x1000u));
	}
	return e;
}

static unsigned event_number(CUevent e)
{
	return (unsigned)((uintptr_t)e - 0x2000u);
}

static CUresult event_record(CUevent event, CUstream s)
{
	CUresult e = result("record");

	if (!e) {
		say("record %u:%u", event_number(event), number(s));
	}
	return e;
}

static CUresult event_query(CUevent event)
{
	say("query %u", event_number(event));
	return script_reached;
}

static CUresult elapsed(float *ms, CUevent a, CUevent b)
{
	CUresult e = result("elapsed");

	say("elapsed %u-%u", event_number(a), event_number(b));
	*ms = script_ms;
	return e;
}

void script_init(void)
{
	memset(&script, 0, sizeof(script));
	script.cuCtxGetCurrent = get_current;
	script.cuCtxGetDevice = get_device;
	script.cuCtxPushCurrent_v2 = push_current;
	script.cuCtxPopCurrent_v2 = pop_current;
	script.cuThreadExchangeStreamCaptureMode = exchange_mode;
	script.cuCtxGetStreamPriorityRange = priorities;
	script.cuStreamCreateWithPriority = stream_create;
	script.cuMemHostAlloc = host_alloc;
	script.cuMemHostGetDevicePointer_v2 = device_pointer;
	script.cuMemAlloc_v2 = mem_alloc;
	script.cuMemFree_v2 = mem_free;
	script.cuMemFreeHost = host_free;
	script.cuMemsetD32Async = set;
	script.cuMemcpyDtoHAsync_v2 = copy;
	script.cuStreamIsCapturing = is_capturing;
	script.cuLaunchKernel = launch;
	script.cuModuleLoadData = module_load;
	script.cuModuleGetFunction = module_function;
	script.cuStreamQuery = query;
	script.cuEventCreate = event_create;
	script.cuEventRecord = event_record;
	script.cuEventQuery = event_query;
	script.cuEventElapsedTime = elapsed;
	memset(script_query, 0, sizeof(script_query));
	memset(script_capturing, 0, sizeof(script_capturing));
	script_reached = CUDA_SUCCESS;
	script_on_launch = NULL;
	script_on_call = NULL;
	script_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	script_current = NULL;
	script_depth = script_n_launches = n_streams = n_events = 0;
	script_log[0] = 0;
	failing = NULL;
}

void script_finish(void)
{
	assert_int_equal(script_depth, 0);
	assert_null(script_current);
	assert_int_equal(script_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	script_release_all();
}

#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "policy/ctx.h"
#include "policy/read.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"
#include "../eventually.h"

#define LINE 2u
#define MEMORIES 256u
#define COPIES 256u
#define EVENTS 1024u
#define CHUNKS 128u
#define CALLS_MAX 1000000u /* of a test, which else does not end */
#define CONTEXT rig_context(0)
#define DEPTH_MAX 4
#define LOOK_NS 100000u
#define FIRST_STREAM 0x80u /* of the program; others are multiples of 256 */

struct swap_rig rig;
static uint8_t uuid[2][16] = { { 0xa5 }, { 0xa6 } };

int __wrap_thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes);
void __wrap_clock_sleep_ns(uint64_t ns);
void __wrap_sched_moved(struct sched *s, bool out, uint64_t bytes);
bool __wrap_sched_mem_decide(struct sched *s, struct sched_mem_fault *f, uint32_t *ret_verdict);

/* The pool has no thread. */
int __wrap_thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes)
{
	rig.threads++;
	return -1;
}

void __wrap_sched_moved(struct sched *s, bool out, uint64_t bytes)
{
	rig.moved[out] += bytes;
	if (rig.on_moved) {
		rig.on_moved();
	}
}

bool __wrap_sched_mem_decide(struct sched *s, struct sched_mem_fault *f, uint32_t *ret_verdict)
{
	rig.asked_gpu = f->gpu;
	rig.in_place_ns = f->in_place_ns;
	*ret_verdict = rig.verdict;
	f->drain_ns = 50000000;
	return true;
}

static uint64_t clock_of_test(void)
{
	rig.now += LOOK_NS;
	if (rig.on_look) {
		rig.on_look();
	}
	return rig.now;
}

void __wrap_clock_sleep_ns(uint64_t ns)
{
	rig.now += ns;
}

/* ---- the driver ---- */

static const char *wrong; /* the first thing that was wrong; NULL: none */

#define EXPECT(right)                                                                              \
	do {                                                                                       \
		wrong = wrong || (right) ? wrong : #right;                                         \
	} while (0)

/* Physical memory, by its handle, and the addresses at which it is mapped. */
static struct memory {
	bool lives, on_host;
	uint64_t bytes, content;
	uint64_t at[2];	    /* 0: not mapped */
	uint32_t access[2]; /* of devices, by bits */
} memory[MEMORIES];
static uint64_t next_address, next_content, reserved;
static uint64_t reserved_by_program; /* of these */
static uint64_t address[CHUNKS];     /* of chunks, in the order of their allocation */
static unsigned n_chunks;

static struct {
	CUstream stream;
	CUdeviceptr to, from;
	size_t bytes;
	bool is_done; /* or never will be */
} copy[COPIES];
static unsigned n_copies;
static struct {
	bool lives;
	CUcontext ctx;
	CUstream stream; /* NULL: all of the context */
	unsigned copies; /* submitted before it */
	bool is_behind;	 /* work that goes on */
} event_of[EVENTS];
static uintptr_t n_streams;
static int depth; /* of pushed contexts */
static CUcontext pushed[DEPTH_MAX];
static unsigned all_calls;

CUcontext rig_context(unsigned i)
{
	return (CUcontext)(uintptr_t)(7 + i);
}

static bool is_busy_context(CUcontext ctx)
{
	return rig.busy_ctxs >> ((uintptr_t)ctx - (uintptr_t)rig_context(0)) & 1;
}

static CUcontext current(void)
{
	return depth ? pushed[depth - 1] : rig_context(rig.device);
}

CUresult rig_use_legacy(void)
{
	if (!(rig.captured >> ((uintptr_t)current() - (uintptr_t)rig_context(0)) & 1)) {
		return CUDA_SUCCESS;
	}
	rig.invalidated++;
	return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

static bool in_pause(void)
{
	return load_acquire(&policy_work_closed) != 0;
}

/* Counts a call. Returns whether it fails. */
static bool fails(void)
{
	if (++all_calls > CALLS_MAX) {
		fprintf(stderr, "the driver is called for ever\n");
		abort();
	}
	rig.calls++;
	return rig.calls == rig.fail[0] || rig.calls == rig.fail[1];
}

static void trace(const char *what, uint64_t at)
{
	size_t n = strlen(rig.trace);
	unsigned i = 0;

	while (i < n_chunks && address[i] != at) {
		i++;
	}
	if (!at) {
		snprintf(rig.trace + n, sizeof(rig.trace) - n, "%s%s", n ? " " : "", what);
	} else if (i < n_chunks) {
		snprintf(rig.trace + n, sizeof(rig.trace) - n, "%s%s%c", n ? " " : "", what,
			 i < 26 ? (char)('a' + i) : '?');
	}
}

static struct memory *mapped_at(CUdeviceptr at)
{
	for (unsigned i = 0; i < MEMORIES; i++) {
		if (memory[i].lives && (memory[i].at[0] == at || memory[i].at[1] == at)) {
			return &memory[i];
		}
	}
	return NULL;
}

static bool is_copied(CUdeviceptr at)
{
	for (unsigned i = 0; i < n_copies; i++) {
		if (!copy[i].is_done && (copy[i].to == at || copy[i].from == at)) {
			return true;
		}
	}
	return false;
}

static bool has_access(const struct memory *m, CUdeviceptr at)
{
	return m && m->access[m->at[1] == at];
}

/* Makes the copies of a stream, or of all, up to a number. */
static void run_copies(CUstream stream, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct memory *to = mapped_at(copy[i].to), *from = mapped_at(copy[i].from);

		if (copy[i].is_done || (stream && copy[i].stream != stream)) {
			continue;
		}
		copy[i].is_done = true;
		EXPECT(has_access(to, copy[i].to) && has_access(from, copy[i].from));
		EXPECT(to != from && to && from && to->bytes == copy[i].bytes &&
		       from->bytes == copy[i].bytes);
		if (to && from) {
			to->content = from->content;
		}
	}
}

/* Memory of the device can be shared. */
static CUresult get_device_attribute(int *ret, CUdevice_attribute what, CUdevice device)
{
	*ret = what == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	bool on_host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST;
	unsigned i = 1;

	while (i < MEMORIES && memory[i].lives) {
		i++;
	}
	EXPECT(i < MEMORIES && !in_pause());
	EXPECT(on_host || prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (i == MEMORIES || fails()) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory[i] = (struct memory){
		.lives = true, .bytes = bytes, .on_host = on_host, .content = 1000 + next_content++
	};
	rig.created[on_host]++;
	*ret = i;
	return CUDA_SUCCESS;
}

static CUresult export(void *ret, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	bool lives = handle && handle < MEMORIES && memory[handle].lives;

	EXPECT(lives && !memory[handle].on_host && !flags);
	EXPECT(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (!lives || fails()) {
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*(int *)ret = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rig.exported[rig.n_exported++ % ARRAY_SIZE(rig.exported)] = handle;
	return CUDA_SUCCESS;
}

static CUresult import(CUmemGenericAllocationHandle *ret, void *fd, CUmemAllocationHandleType type)
{
	const CUmemAllocationProp p = { .requestedHandleTypes = type,
					.location.type = CU_MEM_LOCATION_TYPE_DEVICE };

	return create(ret, rig.ipc_bytes, &p, 0);
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	bool lives = handle && handle < MEMORIES && memory[handle].lives;

	EXPECT(lives);
	if (lives) {
		EXPECT(!memory[handle].at[0] && !memory[handle].at[1]);
		memory[handle].lives = false;
	}
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *ret, size_t bytes, size_t align, CUdeviceptr wish,
			unsigned long long flags)
{
	if (fails()) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = next_address;
	next_address += bytes;
	reserved += bytes;
	return CUDA_SUCCESS;
}

static CUresult free_address(CUdeviceptr at, size_t bytes)
{
	EXPECT(!mapped_at(at));
	reserved -= bytes;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct memory *m = &memory[handle < MEMORIES ? handle : 0];
	bool may_be = handle && m->lives && m->bytes == bytes && !mapped_at(at);

	EXPECT(may_be);
	EXPECT(!m->at[0] || (m->on_host && !m->at[1]));
	if (!may_be || fails()) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	m->access[m->at[0] != 0] = 0;
	m->at[m->at[0] != 0] = at;
	trace(m->on_host ? "h" : "d", at);
	return CUDA_SUCCESS;
}

/* It does not fail for what is freed, outside of a pause, or where access was refused. */
static CUresult unmap(CUdeviceptr at, size_t bytes)
{
	struct memory *m = mapped_at(at);

	EXPECT(m || rig.may_be_unmapped);
	EXPECT(!is_copied(at));
	if (!m || (in_pause() && has_access(m, at) && fails())) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	m->at[m->at[1] == at] = 0;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	struct memory *m = mapped_at(at);

	EXPECT(m && m->bytes == bytes && n && n <= ARRAY_SIZE(uuid));
	if (!m || fails()) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < n; i++) {
		EXPECT(access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE);
		EXPECT(access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		m->access[m->at[1] == at] |= 1u << access[i].location.id;
	}
	return CUDA_SUCCESS;
}

static CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	const struct memory *m = mapped_at(from);
	sigset_t blocked;

	(void)pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	EXPECT(in_pause() && depth == 1);
	EXPECT(sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGUSR1));
	EXPECT(n_copies < COPIES && (m || rig.may_be_unmapped));
	rig.copies++;
	if (n_copies == COPIES || !m || fails() || rig.copies == rig.fail_copy) {
		return CUDA_ERROR_UNKNOWN;
	}
	trace(m->on_host ? "b" : "o", m->on_host ? to : from);
	for (unsigned i = 0; i < n_copies; i++) { /* both directions go on at once */
		const struct memory *other = mapped_at(copy[i].from);

		EXPECT(copy[i].is_done || !other ||
		       (copy[i].stream == stream) == (other->on_host == m->on_host));
	}
	copy[n_copies].is_done = false;
	copy[n_copies].stream = stream;
	copy[n_copies].to = to;
	copy[n_copies].from = from;
	copy[n_copies++].bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult make_event(CUevent *ret, unsigned flags)
{
	unsigned i = 0;

	while (i < EVENTS && event_of[i].lives) {
		i++;
	}
	EXPECT(i < EVENTS);
	if (i == EVENTS) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	event_of[i].lives = true;
	event_of[i].ctx = current();
	event_of[i].copies = 0;
	*ret = (CUevent)(uintptr_t)(i + 1);
	return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent event)
{
	event_of[(uintptr_t)event - 1].lives = false;
	return CUDA_SUCCESS;
}

/* All of gBPF's own. */
static CUresult make_stream(CUstream *ret, unsigned flags)
{
	EXPECT(flags == CU_STREAM_NON_BLOCKING);
	if (fails()) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = (CUstream)(++n_streams << 8);
	rig.streams++;
	return CUDA_SUCCESS;
}

static CUresult destroy_stream(CUstream stream)
{
	rig.streams--;
	return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
	if (fails()) {
		return CUDA_ERROR_UNKNOWN;
	}
	event_of[(uintptr_t)event - 1].is_behind = false;
	EXPECT(event_of[(uintptr_t)event - 1].ctx == current() || !stream);
	event_of[(uintptr_t)event - 1].stream = stream;
	event_of[(uintptr_t)event - 1].copies = n_copies;
	return CUDA_SUCCESS;
}

static CUresult record_context(CUcontext ctx, CUevent event)
{
	CUresult r = record(event, NULL);

	EXPECT(event_of[(uintptr_t)event - 1].ctx == ctx);
	if (r == CUDA_SUCCESS) {
		event_of[(uintptr_t)event - 1].is_behind = rig.goes_on;
	}
	return r;
}

static CUresult wait_event(CUevent event)
{
	if (fails()) {
		return CUDA_ERROR_UNKNOWN;
	}
	run_copies(event_of[(uintptr_t)event - 1].stream, event_of[(uintptr_t)event - 1].copies);
	return CUDA_SUCCESS;
}

/* A stream without a number, that is NULL or of the movement, is behind all others. */
static bool is_busy(CUstream stream)
{
	uintptr_t i = (uintptr_t)stream - FIRST_STREAM;

	return i < 64 ? rig.busy >> i & 1 : rig.busy != 0;
}

static CUresult query_event(CUevent event)
{
	if (fails()) {
		return CUDA_ERROR_UNKNOWN;
	}
	if (rig.now < rig.work_until || is_busy(event_of[(uintptr_t)event - 1].stream) ||
	    (rig.goes_on && event_of[(uintptr_t)event - 1].is_behind) ||
	    is_busy_context(event_of[(uintptr_t)event - 1].ctx)) {
		return CUDA_ERROR_NOT_READY;
	}
	return rig.work;
}

static CUresult elapsed(float *ret_ms, CUevent begin, CUevent end)
{
	*ret_ms = rig.launch_ms;
	return CUDA_SUCCESS;
}

/* If it fails, the copies are never made. */
static CUresult wait_stream(CUstream stream)
{
	bool failed = fails();

	trace("w", 0);
	for (unsigned i = 0; i < n_copies; i++) {
		copy[i].is_done |= failed && copy[i].stream == stream;
	}
	run_copies(stream, n_copies);
	if (failed) {
		return CUDA_ERROR_UNKNOWN;
	}
	return stream == CU_STREAM_LEGACY ? rig_use_legacy() : CUDA_SUCCESS;
}

static CUresult get_context(CUcontext *ret)
{
	*ret = current();
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext ctx)
{
	EXPECT(ctx >= rig_context(0) && ctx <= rig_context(2) && depth < DEPTH_MAX);
	if (depth == DEPTH_MAX || (in_pause() && fails())) {
		return CUDA_ERROR_UNKNOWN;
	}
	pushed[depth++] = ctx;
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
	*ret = current();
	depth--;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret)
{
	*ret = current() != rig_context(0);
	return CUDA_SUCCESS;
}

static CUresult enable_peer(CUcontext ctx, unsigned flags)
{
	EXPECT(ctx != current());
	if (fails()) {
		return CUDA_ERROR_TOO_MANY_PEERS;
	}
	rig.peers++;
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult disable_peer(CUcontext ctx)
{
	EXPECT(ctx != current());
	rig.peers--;
	return CUDA_SUCCESS;
}

static CUresult get_primary(CUdevice device, unsigned *ret_flags, int *ret_active)
{
	*ret_active = 0;
	return fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
	*ret_free = *ret_total = 4000 * MIB;
	return CUDA_SUCCESS;
}

static CUresult get_version(int *ret)
{
	*ret = 13000;
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	rig.exchanges++;
	return CUDA_SUCCESS;
}

static CUresult param_info(CUfunction f, size_t i, size_t *ret_offset, size_t *ret_size)
{
	if (i >= ARRAY_SIZE(rig.param_bytes) || !rig.param_bytes[i]) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_offset = 0;
	*ret_size = rig.param_bytes[i];
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		       unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
		       void **extra)
{
	EXPECT(!in_pause());
	return CUDA_SUCCESS;
}

static CUresult get_attribute(void *ret, CUpointer_attribute what, CUdeviceptr at)
{
	*(unsigned *)ret = CU_MEMORYTYPE_DEVICE;
	return rig.other && at - rig.other < 2 * MIB ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the session ---- */

static void note(const char *text)
{
}

static int ask(const struct proto_mem_ask *m)
{
	struct proto_account_line *line = &rig.page.line[m->row][LINE];
	uint64_t all;

	rig.asks++;
	rig.busy = rig.ask_ends_work ? 0 : rig.busy;
	if (!rig.grants) {
		return -1; /* without gbpfd */
	}
	all = mem_line_used(line) + m->bytes;
	if (all <= rig.grants) {
		rig.page.allowed[m->row] = all;
	}
	store_relaxed(&line->answer,
		      all <= rig.grants ? PROTO_ACCOUNT_RETRY : PROTO_ACCOUNT_REFUSED);
	store_release(&line->answer_seq, m->seq);
	return 0;
}

static bool is_agent(void)
{
	return rig.agent;
}

static bool kernel_of(const void *handle, struct shim_kernel_glance *ret,
		      struct ptx_pointers *ret_pointers)
{
	if (rig.busy_looks) {
		rig.busy_looks--;
		return false;
	}
	*ret = (struct shim_kernel_glance){ .known = rig.words != NULL,
					    .library = rig.of_library,
					    .hash = 1 };
	if (rig.words) {
		*ret_pointers = *rig.words;
	}
	return true;
}

static int own_pid(void)
{
	return 7;
}

static int open_ipc(int *sock, uint64_t deadline, struct proto_ipc *m, int fds[PROTO_IPC_CHUNKS])
{
	if (!rig.ipc_bytes) {
		return -ETIMEDOUT; /* without gbpfd */
	}
	m->n = 1;
	m->bytes = rig.ipc_bytes;
	fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

static int join(uint32_t gpus)
{
	static const struct shim_mem_session session = { note,	    ask,     is_agent,
							 kernel_of, own_pid, open_ipc };
	int err;

	rig.page.magic = PROTO_ACCOUNT_MAGIC;
	rig.page.abi = PROTO_ABI;
	rig.page.lines = LINE + 1;
	rig.page.owner[LINE].pid = 7;
	memcpy(rig.page.uuid, uuid, gpus * sizeof(uuid[0]));
	rig.page.limit[PROTO_ACCOUNT_SWAP] = 8000 * MIB;
	shim_driver.cuCtxGetDevice = get_device;
	shim_driver.cuDeviceGetAttribute = get_device_attribute;
	shim_driver.cuCtxGetCurrent = get_context;
	shim_driver.cuCtxDisablePeerAccess = disable_peer;
	shim_driver.cuCtxEnablePeerAccess = enable_peer;
	shim_driver.cuCtxPushCurrent_v2 = push;
	shim_driver.cuCtxPopCurrent_v2 = pop;
	shim_driver.cuCtxRecordEvent = record_context;
	shim_driver.cuDevicePrimaryCtxGetState = get_primary;
	shim_driver.cuDriverGetVersion = get_version;
	shim_driver.cuEventCreate = make_event;
	shim_driver.cuEventDestroy_v2 = destroy_event;
	shim_driver.cuEventRecord = record;
	shim_driver.cuEventSynchronize = wait_event;
	shim_driver.cuEventElapsedTime = elapsed;
	shim_driver.cuEventQuery = query_event;
	shim_driver.cuFuncGetParamInfo = param_info;
	shim_driver.cuLaunchKernel = launch;
	shim_driver.cuPointerGetAttribute = get_attribute;
	shim_driver.cuMemGetInfo_v2 = get_info;
	shim_driver.cuMemCreate = create;
	shim_driver.cuMemExportToShareableHandle = export;
	shim_driver.cuMemImportFromShareableHandle = import;
	shim_driver.cuMemRelease = release;
	shim_driver.cuMemAddressReserve = reserve;
	shim_driver.cuMemAddressFree = free_address;
	shim_driver.cuMemMap = map;
	shim_driver.cuMemUnmap = unmap;
	shim_driver.cuMemSetAccess = set_access;
	shim_driver.cuMemcpyDtoDAsync_v2 = copy_async;
	shim_driver.cuStreamCreate = make_stream;
	shim_driver.cuStreamDestroy_v2 = destroy_stream;
	shim_driver.cuStreamSynchronize = wait_stream;
	shim_real.cuThreadExchangeStreamCaptureMode = exchange_mode;
	clock_set_source(clock_of_test);
	rig.now = SECOND;
	policy_read_setup();
	err = shim_mem_join(&rig.page, LINE, uuid, gpus, &session);
	for (uint32_t i = 0; i < gpus && !err && shim_swap_is_on(); i++) {
		shim_swap_context_seen(rig_context(i), (CUdevice)i);
	}
	return err ? err : !shim_swap_is_on();
}

int rig_join(void **state)
{
	return join(1);
}

int rig_join_two(void **state)
{
	return join(2);
}

/* ---- tests ---- */

void rig_arm(unsigned fail, unsigned again)
{
	rig.calls = rig.copies = rig.fail_copy = rig.created[0] = rig.created[1] = 0;
	rig.exchanges = 0;
	rig.moved[0] = rig.moved[1] = 0;
	rig.trace[0] = 0;
	rig.fail[0] = fail;
	rig.fail[1] = again;
}

void rig_limit(uint64_t bytes)
{
	rig.page.limit[rig.device] = bytes;
}

void rig_end_if_left(void)
{
	bool free = lock_try(&shim_swap_mutex);

	if (free) {
		lock_release(&shim_swap_mutex);
	}
	if (!free || in_pause()) {
		fprintf(stderr, "a movement has left %s\n",
			free ? "work sections closed" : "the mutex held");
		abort();
	}
}

void rig_write(CUdeviceptr at)
{
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, at);

	assert_non_null(r);
	for (uint32_t i = 0; i < r->n; i++) {
		struct memory *m = mapped_at(r->chunk[i].address);

		assert_non_null(m);
		m->content = r->chunk[i].address;
		assert_true(n_chunks < CHUNKS);
		address[n_chunks++] = r->chunk[i].address;
	}
}

CUstream rig_stream(unsigned i)
{
	return (CUstream)(uintptr_t)(FIRST_STREAM + i);
}

CUdeviceptr rig_try_alloc(uint64_t bytes)
{
	CUdeviceptr ret = 0;
	CUresult err;

	n_chunks = shim_swap_map.n ? n_chunks : 0;
	err = shim_swap_alloc(&ret, bytes, (int)rig.device);
	rig_end_if_left();
	if (err != CUDA_SUCCESS) {
		return 0;
	}
	rig_write(ret);
	return ret;
}

CUdeviceptr rig_alloc(uint64_t bytes)
{
	CUdeviceptr ret = rig_try_alloc(bytes);

	assert_true(ret);
	return ret;
}

bool rig_try_free(CUdeviceptr at)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	bool known = shim_swap_free(at, &r);

	rig_end_if_left();
	assert_true(known);
	return r == CUDA_SUCCESS;
}

void rig_free(CUdeviceptr at)
{
	assert_true(rig_try_free(at));
}

CUdeviceptr rig_reserve(uint64_t bytes)
{
	CUdeviceptr at = 0;

	assert_int_equal(shim_real.cuMemAddressReserve(&at, bytes, 0, 0, 0), CUDA_SUCCESS);
	reserved_by_program += bytes;
	return at;
}

void rig_unreserve(CUdeviceptr at, uint64_t bytes)
{
	assert_int_equal(shim_real.cuMemAddressFree(at, bytes), CUDA_SUCCESS);
	reserved_by_program -= bytes;
}

struct mem_swap_chunk *rig_chunk(CUdeviceptr at, unsigned i)
{
	return &mem_swap_find(&shim_swap_map, at)->chunk[i];
}

bool rig_on_device(CUdeviceptr at, unsigned i)
{
	return rig_chunk(at, i)->place == MEM_SWAP_DEVICE;
}

uint32_t rig_access(CUdeviceptr at)
{
	const struct memory *m = mapped_at(at);

	return m ? m->access[m->at[1] == at] : 0;
}

void rig_out(uint64_t free)
{
	shim_mem_move_begin();
	shim_swap_out(0, free);
	shim_mem_move_end();
	rig_end_if_left();
}

static void check_chunk(const struct mem_swap_chunk *c)
{
	bool on_host = c->place == MEM_SWAP_HOST;
	const struct memory *m = mapped_at(c->address);

	assert_int_equal(on_host ? c->handle : c->host, 0);
	if (rig.may_be_unmapped) {
		return;
	}
	assert_non_null(m);
	assert_ptr_equal(m, &memory[on_host ? c->host : c->handle]);
	assert_int_equal(m->on_host, on_host);
	assert_true(has_access(m, c->address));
	assert_int_equal(m->content, c->address);
}

static void check_sums(void)
{
	uint64_t bytes[2] = { 0, 0 }, lives[2] = { 0, 0 }, addresses = shim_swap_pool_bytes();
	uint64_t kinds = 0, away = 0;
	const struct mem_ledger *l = shim_mem_ledger();

	for (size_t i = 0; i < shim_swap_map.n; i++) {
		const struct mem_swap_region *r = shim_swap_map.region[i];

		addresses += r->by_handle ? 0 : r->reserved;
		for (uint32_t k = 0; k < r->n; k++) {
			bool on_host = r->chunk[k].place == MEM_SWAP_HOST;

			check_chunk(&r->chunk[k]);
			bytes[on_host] += r->chunk[k].bytes;
			addresses += on_host ? r->chunk[k].bytes : 0;
		}
	}
	for (unsigned i = 0; i < MEMORIES; i++) {
		lives[memory[i].on_host] += memory[i].lives ? memory[i].bytes : 0;
	}
	assert_int_equal(lives[0], bytes[0]);
	assert_int_equal(lives[1], bytes[1] + shim_swap_pool_bytes());
	assert_int_equal(reserved, addresses + reserved_by_program);
	assert_int_equal(mem_ledger_own(l, 0) + mem_ledger_own(l, 1), lives[0]);
	assert_int_equal(mem_ledger_own(l, PROTO_ACCOUNT_SWAP), lives[1]);
	assert_int_equal(mem_ledger_own(l, PROTO_ACCOUNT_HOST), lives[1]);
	for (unsigned i = 0; i < ARRAY_SIZE(uuid); i++) {
		const struct proto_account_kinds *k = &rig.page.kinds[i][LINE];

		kinds += k->bytes[PROTO_KIND_CHUNK] + k->bytes[PROTO_KIND_SHARED] +
			 k->bytes[PROTO_KIND_PEER];
		away += k->away;
	}
	assert_int_equal(kinds, bytes[0]);
	assert_int_equal(away, bytes[1]);
	assert_int_equal(shim_swap_on_host, bytes[1]);
}

void rig_check(void)
{
	sigset_t blocked;

	rig_end_if_left();
	if (wrong) {
		fail_msg("the driver expects %s", wrong);
	}
	assert_int_equal(depth, 0);
	(void)pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	assert_false(sigismember(&blocked, SIGTERM));
	for (unsigned i = 0; i < n_copies; i++) {
		assert_true(copy[i].is_done);
	}
	n_copies = 0;
	check_sums();
}

int rig_set_up(void **state)
{
	rig_end_if_left();
	(void)alarm(EVENTUALLY_S);
	memset(memory, 0, sizeof(memory));
	memset(rig.page.line, 0, sizeof(rig.page.line));
	memset(rig.page.kinds, 0, sizeof(rig.page.kinds));
	memset(rig.param_bytes, 0, sizeof(rig.param_bytes));
	rig.page.limit[PROTO_ACCOUNT_SWAP] = rig.page.limit[PROTO_ACCOUNT_HOST] = 8000 * MIB;
	rig.page.allowed[PROTO_ACCOUNT_HOST] = 8000 * MIB;
	rig.now += 1000 * SECOND;
	rig.verdict = GBPF_MEM_FETCH;
	rig.launch_ms = 1;
	rig.work = CUDA_SUCCESS;
	rig.may_be_unmapped = rig.ask_ends_work = rig.goes_on = rig.agent = false;
	rig.page.allowed[0] = 0;
	rig.words = NULL;
	rig.other = rig.ipc_bytes = rig.grants = 0;
	rig.on_moved = rig.on_look = NULL;
	rig.device = rig.busy_ctxs = rig.peers = 0;
	rig.work_until = rig.busy = rig.threads = 0;
	next_address = UINT64_C(1) << 40;
	n_chunks = n_copies = all_calls = 0;
	reserved = reserved_by_program = 0;
	depth = 0;
	wrong = NULL;
	rig_arm(0, 0);
	rig.page.limit[0] = rig.page.limit[1] = 2000 * MIB;
	return 0;
}

int rig_tear_down(void **state)
{
	rig_end_if_left();
	rig_arm(0, 0);
	rig.work = CUDA_SUCCESS;
	rig.busy = rig.busy_ctxs = rig.device = 0;
	rig.goes_on = false;
	rig.on_moved = rig.on_look = NULL;
	shim.captures = 0;
	for (size_t n = shim_swap_map.n; n; n--) {
		shim_swap_map.region[0]->freed = false; /* as a test may have it */
		rig_free(shim_swap_map.region[0]->base);
	}
	lock_take(&shim_swap_mutex);
	shim_swap_pool_drop(0);
	lock_release(&shim_swap_mutex);
	rig_check();
	assert_int_equal(shim_swap_map.n, 0);
	(void)alarm(0);
	return 0;
}

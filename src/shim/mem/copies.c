/* Which copies take which plan, and the entry points. A copy takes the pipelined plan if one side
 * is pageable memory of the program and the other one memory of the current context's device, and
 * if the driver would neither record it into a graph nor refuse it. Everything else goes to the
 * driver as it came, and so does the rest of a copy from the first page on that cannot be accessed:
 * the driver takes the fault in the calling thread (SIGSEGV, H200), as without this plan.
 *
 * The functions here are called through shim_real, so behind the gate: the scheduler has decided
 * about the copy as a whole. */
#include "shim/mem/copies.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/copy_device.h"
#include "mem/direct.h"
#include "policy/ctx.h"
#include "shim/capture_state.h"
#include "shim/object/green_context.h"
#include "shim/shim.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define ASKED_MIN_BYTES (64u << 10) /* smallest copy of unknown direction that is counted */
#define RANGES_MAX 1024u	    /* mappings that the device side of a copy may consist of */

static struct mem_copy_pool pool;
static uint32_t planned; /* [atomic] the plan is used; 0 in a forked child, too */

/* ---- which copies ---- */

bool shim_copy_attribute_is(CUpointer_attribute what, CUdeviceptr address, int wanted)
{
	int is = -1;

	return shim_driver.cuPointerGetAttribute(&is, what, address) == CUDA_SUCCESS &&
	       is == wanted;
}

static bool is_unknown(CUdeviceptr address)
{
	unsigned type = 0;
	CUresult r =
		shim_driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);

	return r == CUDA_ERROR_INVALID_VALUE || (r == CUDA_SUCCESS && !type);
}

/* Returns true if the driver does not know the memory. Parts in the middle may be registered: they
 * are the host's memory as well. */
static bool is_pageable(const void *host, size_t bytes)
{
	CUdeviceptr first = (uintptr_t)host, last = first + (bytes - 1);

	return first && last > first && is_unknown(first) && is_unknown(last);
}

/* Returns true if the whole range is ordinary memory of that device: a copy that exceeds its
 * allocation is refused by the driver as a whole. Memory that is mapped in several chunks counts as
 * several allocations. */
static bool is_of_device(CUdeviceptr address, size_t bytes, CUdevice device)
{
	for (unsigned i = 0; i < RANGES_MAX; i++) {
		CUdeviceptr base = 0;
		size_t size = 0, inside;

		if (!shim_copy_attribute_is(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address,
					    CU_MEMORYTYPE_DEVICE) ||
		    !shim_copy_attribute_is(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, device) ||
		    !shim_copy_attribute_is(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, 0) ||
		    !shim_copy_attribute_is(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address, 0) ||
		    shim_driver.cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS ||
		    address < base || address - base >= size) {
			return false;
		}
		inside = size - (address - base);
		if (inside >= bytes) {
			return true;
		}
		address += inside;
		bytes -= inside;
	}
	return false;
}

bool shim_copy_is_of_context(CUstream stream, CUcontext ctx)
{
	CUcontext of = NULL;

	return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD ||
	       (shim_driver.cuStreamGetCtx(stream, &of) == CUDA_SUCCESS && of == ctx);
}

/* Returns true if the device reads pageable memory itself, so that the driver needs no staging. */
static bool reads_pageable(CUdevice device)
{
	int is = 1;

	return shim_driver.cuDeviceGetAttribute(&is, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
						device) != CUDA_SUCCESS ||
	       is;
}

CUcontext shim_copy_current_context(void)
{
	CUcontext ctx = NULL;

	return shim_driver.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx &&
			       shim_green_base(ctx) == ctx
		       ? ctx
		       : NULL;
}

struct shim_copy_context *shim_copy_admit(const struct shim_copy_request *r)
{
	CUcontext ctx = shim_copy_current_context();
	unsigned long long id = 0;
	CUdevice device = 0;
	unsigned flags = 0;

	if (!ctx || !shim_copy_is_of_context(r->queue.stream, ctx) ||
	    shim_driver.cuCtxGetId(ctx, &id) != CUDA_SUCCESS || !id ||
	    shim_driver.cuCtxGetFlags(&flags) != CUDA_SUCCESS || (flags & CU_CTX_SYNC_MEMOPS) ||
	    shim_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || reads_pageable(device) ||
	    !is_of_device(r->device, r->bytes, device)) {
		return NULL;
	}
	return shim_copy_context_enter(ctx, id);
}

/* ---- one copy ---- */

CUresult shim_copy_by_driver(const struct shim_copy_request *r)
{
	bool pt = r->queue.per_thread;

	if (r->way == MEM_COPY_UP && r->blocking) {
		return (pt ? shim_driver.cuMemcpyHtoD_v2_ptds
			   : shim_driver.cuMemcpyHtoD_v2)(r->device, r->host, r->bytes);
	}
	if (r->way == MEM_COPY_UP) {
		return (pt ? shim_driver.cuMemcpyHtoDAsync_v2_ptsz
			   : shim_driver.cuMemcpyHtoDAsync_v2)(r->device, r->host, r->bytes,
							       r->queue.stream);
	}
	if (r->blocking) {
		return (pt ? shim_driver.cuMemcpyDtoH_v2_ptds
			   : shim_driver.cuMemcpyDtoH_v2)(r->host, r->device, r->bytes);
	}
	return (pt ? shim_driver.cuMemcpyDtoHAsync_v2_ptsz : shim_driver.cuMemcpyDtoHAsync_v2)(
		r->host, r->device, r->bytes, r->queue.stream);
}

int shim_copy_may_go_on(const struct shim_copy_context *context, const struct gpu_copy_queue *q)
{
	if (load_relaxed(&context->ending)) {
		return shim_copies_planned() ? CUDA_ERROR_CONTEXT_IS_DESTROYED
					     : CUDA_ERROR_DEINITIALIZED;
	}
	/* Another thread captures the stream: pieces must not get into its graph. */
	return shim_capture_any() && shim_capture_has(q->stream, q->per_thread)
		       ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
		       : 0;
}

/* What is asked before each piece is issued. */
struct condition {
	const struct shim_copy_context *context;
	const struct gpu_copy_queue *queue;
	struct sched_copy *turn; /* NULL: the policy is not asked */
	bool first;		 /* the first piece may go: the policy has been asked already */
};

static int may_go_on(void *arg)
{
	const struct condition *c = arg;

	return shim_copy_may_go_on(c->context, c->queue);
}

static bool is_turn(void *arg, size_t left, size_t unfinished)
{
	struct condition *c = arg;
	uint32_t piece_bytes = c->turn->piece_bytes;
	bool may = c->first;

	c->turn->left = left;
	c->turn->unfinished = unfinished;
	c->first = false;
	may = may || sched_copy_may_go(c->turn);
	c->turn->piece_bytes = piece_bytes;
	return may;
}

/* With shim_capture_lock(): no capture begins between the question and the copy. */
int shim_copy_issue(void *dev, void *queue, enum mem_copy_way way, struct mem_piece *p,
		    uint64_t device, size_t bytes)
{
	const struct gpu_copy_queue *q = queue;
	int r;

	shim_capture_lock();
	if (shim_capture_any() && shim_capture_has(q->stream, q->per_thread)) {
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else {
		r = gpu_copy_ops.issue(dev, queue, way, p, device, bytes);
	}
	shim_capture_unlock();
	if (!r) {
		sched_copied(shim.sched, way == MEM_COPY_UP, bytes);
	}
	return r;
}

static struct mem_device_ops ops; /* gpu_copy_ops with shim_copy_issue(); constant once installed */

/* Asks the policy about the first piece, which also sets the size of all. Returns false if it wants
 * the driver to make the copy. */
static bool ask_first(struct mem_copy *c, struct condition *condition)
{
	struct sched_copy *turn = condition->turn;

	turn->cut = true;
	turn->piece_bytes = (uint32_t)c->piece_bytes;
	condition->first = sched_copy_may_go(turn);
	c->piece_bytes = turn->piece_bytes;
	c->is_turn = is_turn;
	return turn->plan == GBPF_PLAN_PIPELINED;
}

/* Returns false if the plan has no pieces now, or the policy does not want it. turn: NULL, or for
 * asking the policy. *ret_done: as mem_copy_run(). */
static bool run(const struct shim_copy_request *r, struct shim_copy_context *context,
		struct sched_copy *turn, int *ret, size_t *ret_done)
{
	struct gpu_copy_queue queue = r->queue;
	struct condition condition = { context, &queue, turn, false };
	struct mem_copy c = {
		.ops = &ops,
		.dev = &shim_driver,
		.queue = &queue,
		.numa = &context->pieces.numa,
		.way = r->way,
		.device = r->device,
		.host = r->host,
		.bytes = r->bytes,
		.piece_bytes = mem_copy_piece_bytes(r->bytes),
		.wait = r->blocking,
		.may_go_on = may_go_on,
		.arg = &condition,
	};
	size_t pieces = (c.bytes + c.piece_bytes - 1) / c.piece_bytes;
	bool takes;

	shim_copy_context_place(context);
	c.n_pieces = mem_pieces_take(&context->pieces, &ops, &shim_driver, c.bytes, c.piece,
				     (unsigned)MIN(pieces, MEM_COPY_PIECES_MAX));
	takes = c.n_pieces >= 2 && (!turn || ask_first(&c, &condition));
	if (takes) {
		*ret = mem_copy_run(&pool, &c, ret_done);
		if (turn) {
			turn->unfinished = 0;
			sched_copy_end(turn);
		}
	}
	mem_pieces_give(&context->pieces, c.piece, c.n_pieces);
	return takes;
}

/* Counts a copy that the driver makes as a whole. Returns its result. */
static inline CUresult counted(enum mem_copy_way way, size_t n, CUresult r)
{
	if (likely(r == CUDA_SUCCESS)) {
		sched_copied(shim.sched, way == MEM_COPY_UP, n);
	}
	return r;
}

/* Returns true if the copy was made by the plan; *ret is its result then. */
static bool pipelined(const struct shim_copy_request *r, struct sched_copy *turn, CUresult *ret)
{
	struct shim_copy_context *context;
	CUstreamCaptureMode mode;
	struct shim_copy_request rest = *r;
	size_t done = 0;
	int result = 0;
	bool taken;

	if (!shim_copies_planned() || shim_capture_any() || !is_pageable(r->host, r->bytes)) {
		return false;
	}
	mode = shim_capture_exempt();
	context = shim_copy_admit(r);
	taken = context && run(r, context, turn, &result, &done);
	if (context) {
		shim_copy_context_leave(context);
	}
	shim_capture_restore(mode);
	if (!taken) {
		return false;
	}
	sched_copied_in_pieces(shim.sched, done);
	*ret = (CUresult)result;
	if (!result && done < r->bytes) {
		rest.device += done;
		rest.host = (unsigned char *)r->host + done;
		rest.bytes -= done;
		*ret = counted(r->way, rest.bytes, shim_copy_by_driver(&rest));
	}
	return true;
}

static inline bool is_small(enum mem_copy_way way, size_t n)
{
	return n <= load_relaxed(&shim_copy_direct_most[way]);
}

_Static_assert(MEM_DIRECT_UP_MAX <= GBPF_PIECE_MIN, "no policy has small copies cut into pieces");

/* Returns the plan for a copy of its size. */
static uint32_t plan_of(const struct shim_copy_request *r)
{
	if (is_small(r->way, r->bytes)) {
		return GBPF_PLAN_DIRECT;
	}
	return r->bytes >= SHIM_COPIES_MIN_BYTES && shim_copies_planned() ? GBPF_PLAN_PIPELINED
									  : GBPF_PLAN_DRIVER;
}

/* Returns true if the copy was made by a plan; *ret is its result then. Else the policy, if it
 * decides about copies, lets it go as a whole. */
static NOINLINE bool by_plan(const struct shim_copy_request *r, CUresult *ret)
{
	struct sched_copy turn;
	bool decided = shim_copy_is_decided(r, &turn);

	turn.plan = plan_of(r);
	if (turn.plan == GBPF_PLAN_DIRECT) {
		if (decided) {
			shim_copy_await_turn(&turn);
		}
		return turn.plan == GBPF_PLAN_DIRECT && shim_copy_direct(r, ret);
	}
	if (r->bytes >= SHIM_COPIES_MIN_BYTES && pipelined(r, decided ? &turn : NULL, ret)) {
		return true;
	}
	if (decided && shim_copy_pinned(r, &turn, ret)) {
		return true;
	}
	if (decided) {
		shim_copy_await_turn(&turn);
	}
	return false;
}

/* ---- entry points ---- */

/* Memory that has left the device counts as the device's. */
static bool is_host(CUdeviceptr address)
{
	unsigned type = CU_MEMORYTYPE_HOST; /* of memory that the driver does not know */

	(void)SHIM_REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
	return type == CU_MEMORYTYPE_HOST;
}

/* Returns the direction of a copy that names none; negative: it is neither up nor down, or small.
 * The driver is asked for it, which is too dear for small copies: they are not counted, and the
 * policy is not asked about them. */
static inline int way_of(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	bool from_host;

	if (likely(n < ASKED_MIN_BYTES)) {
		return -1;
	}
	from_host = is_host(src);
	if (from_host == is_host(dst)) {
		return -1;
	}
	return from_host ? MEM_COPY_UP : MEM_COPY_DOWN;
}

/* As counted(), of a way_of(). */
static inline CUresult counted_any(int way, size_t n, CUresult r)
{
	return way < 0 ? r : counted((enum mem_copy_way)way, n, r);
}

/* Returns whether a copy of that many bytes may be made by a plan, or be held. */
static inline bool is_of_interest(enum mem_copy_way way, size_t n)
{
	return n >= SHIM_COPIES_MIN_BYTES || is_small(way, n) || sched_copies_decided(shim.sched);
}

static inline bool try_up(CUdeviceptr dst, const void *src, size_t n, CUstream stream,
			  bool per_thread, bool blocking, CUresult *ret)
{
	return is_of_interest(MEM_COPY_UP, n) &&
	       by_plan(
		       &(struct shim_copy_request){
			       MEM_COPY_UP, dst, unqual(src), n, { stream, per_thread }, blocking },
		       ret);
}

static inline bool try_down(void *dst, CUdeviceptr src, size_t n, CUstream stream, bool per_thread,
			    bool blocking, CUresult *ret)
{
	return is_of_interest(MEM_COPY_DOWN, n) &&
	       by_plan(
		       &(struct shim_copy_request){
			       MEM_COPY_DOWN, src, dst, n, { stream, per_thread }, blocking },
		       ret);
}

/* way: of way_of(). */
static inline bool try_any(int way, CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream,
			   bool per_thread, bool blocking, CUresult *ret)
{
	if (way < 0) {
		return false;
	}
	return way == MEM_COPY_UP ? try_up(dst, (const void *)(uintptr_t)src, n, stream, per_thread,
					   blocking, ret)
				  : try_down((void *)(uintptr_t)dst, src, n, stream, per_thread,
					     blocking, ret);
}

static CUresult up(CUdeviceptr dst, const void *src, size_t n)
{
	CUresult r;

	return try_up(dst, src, n, NULL, false, true, &r)
		       ? r
		       : counted(MEM_COPY_UP, n, shim_driver.cuMemcpyHtoD_v2(dst, src, n));
}

static CUresult up_ptds(CUdeviceptr dst, const void *src, size_t n)
{
	CUresult r;

	return try_up(dst, src, n, NULL, true, true, &r)
		       ? r
		       : counted(MEM_COPY_UP, n, shim_driver.cuMemcpyHtoD_v2_ptds(dst, src, n));
}

static CUresult up_async(CUdeviceptr dst, const void *src, size_t n, CUstream stream)
{
	CUresult r;

	return try_up(dst, src, n, stream, false, false, &r)
		       ? r
		       : counted(MEM_COPY_UP, n,
				 shim_driver.cuMemcpyHtoDAsync_v2(dst, src, n, stream));
}

static CUresult up_async_ptsz(CUdeviceptr dst, const void *src, size_t n, CUstream stream)
{
	CUresult r;

	return try_up(dst, src, n, stream, true, false, &r)
		       ? r
		       : counted(MEM_COPY_UP, n,
				 shim_driver.cuMemcpyHtoDAsync_v2_ptsz(dst, src, n, stream));
}

static CUresult down(void *dst, CUdeviceptr src, size_t n)
{
	CUresult r;

	return try_down(dst, src, n, NULL, false, true, &r)
		       ? r
		       : counted(MEM_COPY_DOWN, n, shim_driver.cuMemcpyDtoH_v2(dst, src, n));
}

static CUresult down_ptds(void *dst, CUdeviceptr src, size_t n)
{
	CUresult r;

	return try_down(dst, src, n, NULL, true, true, &r)
		       ? r
		       : counted(MEM_COPY_DOWN, n, shim_driver.cuMemcpyDtoH_v2_ptds(dst, src, n));
}

static CUresult down_async(void *dst, CUdeviceptr src, size_t n, CUstream stream)
{
	CUresult r;

	return try_down(dst, src, n, stream, false, false, &r)
		       ? r
		       : counted(MEM_COPY_DOWN, n,
				 shim_driver.cuMemcpyDtoHAsync_v2(dst, src, n, stream));
}

static CUresult down_async_ptsz(void *dst, CUdeviceptr src, size_t n, CUstream stream)
{
	CUresult r;

	return try_down(dst, src, n, stream, true, false, &r)
		       ? r
		       : counted(MEM_COPY_DOWN, n,
				 shim_driver.cuMemcpyDtoHAsync_v2_ptsz(dst, src, n, stream));
}

static CUresult any(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	int way = way_of(dst, src, n);
	CUresult r;

	return try_any(way, dst, src, n, NULL, false, true, &r)
		       ? r
		       : counted_any(way, n, shim_driver.cuMemcpy(dst, src, n));
}

static CUresult any_ptds(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	int way = way_of(dst, src, n);
	CUresult r;

	return try_any(way, dst, src, n, NULL, true, true, &r)
		       ? r
		       : counted_any(way, n, shim_driver.cuMemcpy_ptds(dst, src, n));
}

static CUresult any_async(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
	int way = way_of(dst, src, n);
	CUresult r;

	return try_any(way, dst, src, n, stream, false, false, &r)
		       ? r
		       : counted_any(way, n, shim_driver.cuMemcpyAsync(dst, src, n, stream));
}

static CUresult any_async_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
	int way = way_of(dst, src, n);
	CUresult r;

	return try_any(way, dst, src, n, stream, true, false, &r)
		       ? r
		       : counted_any(way, n, shim_driver.cuMemcpyAsync_ptsz(dst, src, n, stream));
}

/* ---- installation ---- */

/* Returns true if pages can be populated, which Linux can since 5.14. */
static bool can_populate(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool can;

	if (p == MAP_FAILED) {
		return false;
	}
	can = madvise(p, page, MADV_POPULATE_WRITE) == 0;
	(void)munmap(p, page);
	return can;
}

/* Returns the value of GBPF_COPY_THREADS, 0 if it is not set or invalid. */
static unsigned wanted_threads(void)
{
	const char *text = getenv("GBPF_COPY_THREADS");
	unsigned long n;
	char *end;

	if (!text) {
		return 0;
	}
	n = strtoul(text, &end, 10);
	if (end == text || *end || text[0] == '-' || !n || n > MEM_COPY_THREADS_MAX) {
		fprintf(stderr,
			"gbpf: invalid GBPF_COPY_THREADS: %s: expected 1 to %u; using the "
			"default\n",
			text, MEM_COPY_THREADS_MAX);
		return 0;
	}
	return (unsigned)n;
}

/* Reads GBPF_COPY: the plans that are used beside the driver's. */
static void choose(bool *ret_pipelined, bool *ret_direct)
{
	const char *plan = getenv("GBPF_COPY");
	bool all = !plan || strcmp(plan, "all") == 0;

	*ret_pipelined = all || strcmp(plan, "pipelined") == 0;
	*ret_direct = all || strcmp(plan, "direct") == 0;
	if (!*ret_pipelined && !*ret_direct && strcmp(plan, "driver") != 0) {
		fprintf(stderr,
			"gbpf: invalid GBPF_COPY: %s: expected 'all', 'pipelined', 'direct' or "
			"'driver'; using 'all'\n",
			plan);
		*ret_pipelined = *ret_direct = true;
	}
}

void shim_copies_install(void)
{
	bool pipelined, direct;

	choose(&pipelined, &direct);
	if (pipelined && can_populate()) {
		mem_copy_pool_init(&pool, wanted_threads());
		ops = gpu_copy_ops;
		ops.issue = shim_copy_issue;
		store_release(&planned, 1u);
	}
	if (direct) {
		shim_copy_direct_begin();
	}
	shim_real.cuMemcpyHtoD_v2 = up;
	shim_real.cuMemcpyHtoD_v2_ptds = up_ptds;
	shim_real.cuMemcpyHtoDAsync_v2 = up_async;
	shim_real.cuMemcpyHtoDAsync_v2_ptsz = up_async_ptsz;
	shim_real.cuMemcpyDtoH_v2 = down;
	shim_real.cuMemcpyDtoH_v2_ptds = down_ptds;
	shim_real.cuMemcpyDtoHAsync_v2 = down_async;
	shim_real.cuMemcpyDtoHAsync_v2_ptsz = down_async_ptsz;
	shim_real.cuMemcpy = any;
	shim_real.cuMemcpy_ptds = any_ptds;
	shim_real.cuMemcpyAsync = any_async;
	shim_real.cuMemcpyAsync_ptsz = any_async_ptsz;
}

bool shim_copies_planned(void)
{
	return load_acquire(&planned) != 0;
}

void shim_copies_exit(void)
{
	shim_copy_direct_exit();
	if (shim_copies_planned()) {
		store_release(&planned, 0u);
		shim_copy_contexts_exit();
	}
}

void shim_copies_before_fork(void)
{
	shim_copy_direct_before_fork();
}

void shim_copies_after_fork(void)
{
	shim_copy_direct_after_fork();
}

static void child(void)
{
	shim_copy_direct_forget();
	store_release(&planned, 0u);
}

const struct shim_part shim_copies_part = { .context_ending = shim_copy_context_ending,
					    .context_ended = shim_copy_context_ended,
					    .child = child };

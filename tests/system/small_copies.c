/* small_copies CASE [SEED]: copies that are small enough for the direct plan, for
 * small_copies.bats. Each case checks what it can see itself, prints what is wrong and exits
 * with 1.
 *
 *   random SEED  random copies, kernels and frees in four threads, each on its own kind of stream,
 *                against a model of the device's memory
 *   order        copies up behind work that cannot end before they have been called
 *   wait         copies down behind work that takes long
 *   freed        copies to memory that was freed, and beyond its end: refused
 *   fault        a page of the program's memory is accessible only after the handler has run
 *   jump         the handler leaves by siglongjmp
 *   odd          other memory than the program's on the host's side. Prints results
 *   mapped       host memory of cuMemMap on the host's side, and beyond it: refused
 *   capture      copies next to a capture in all modes, and in one
 *   fork         a child has no window; the parent copies on
 *   forks        children while other threads have memory mapped: none has a window
 *   reset        the context is reset; copies in the next one are right
 *   exit         returns from main() while other threads copy
 *   windows      prints whether this process has mapped device memory
 *   forever      copies until it is killed; prints its process number after some copies
 *   contexts     copies memory of another context than the current one as well
 *   foreign      as forever, but only memory of another context
 *   rdma         as forever, but only memory with SYNC_MEMOPS
 *   null         no memory on the host's side. Prints results
 *   refused      as forever, after copies beyond the end of the memory
 *   combined     as forever, but only from write-combining memory
 *   pinned       300 copies of page-locked memory after 100 of pageable memory, for which the
 *                driver takes long; then prints its process number and waits */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "copy_program.h"
#include "base/compiler.h"

#define BUFFER ((size_t)5 << 20)
#define SMALL ((size_t)16 << 10)
#define UNIT ((size_t)2 << 20)
#define WARM_BYTES ((size_t)3 << 20) /* no other memory is in its units */
#define PAGE ((size_t)4096)
#define LARGEST ((size_t)1 << 20)
#define OPERATIONS 600u
#define WARM 40u /* copies after which there is a window */

/* Number of mappings of device memory in this process: of the soft GPU's, or as many more of a
 * whole unit of an NVIDIA GPU's as there are than at the first call. */
static unsigned windows(void)
{
	static int before = -1;
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512];
	int n = 0;

	CHECK(f, "no maps");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx", &from, &to) == 2) {
			n += strstr(line, "gbpf-soft-memory") ||
			     (strstr(line, "/dev/nvidia") && to - from == UNIT);
		}
	}
	fclose(f);
	before = before < 0 ? n : before;
	return n > before ? (unsigned)(n - before) : 0;
}

/* Copies until the memory, of WARM_BYTES, has a window if it can have one. */
static CUdeviceptr warm(void)
{
	unsigned char host[64] = { 0 };
	CUdeviceptr at;

	CU(cuMemAlloc(&at, WARM_BYTES));
	for (unsigned i = 0; i < WARM; i++) {
		CU(cuMemcpyHtoD(at, host, sizeof(host)));
	}
	return at;
}

/* ---- random ---- */

static void put(const struct copy_lane *l, CUdeviceptr to, const void *from, size_t n,
		bool blocking)
{
	if (l->kind == COPY_LEGACY && blocking) {
		CU(cuMemcpyHtoD(to, from, n));
	} else if (l->kind == COPY_PER_THREAD) {
		CU(blocking ? cuMemcpyHtoD_v2_ptds(to, from, n)
			    : cuMemcpyHtoDAsync_v2_ptsz(to, from, n, NULL));
	} else {
		CU(cuMemcpyHtoDAsync(to, from, n, l->stream));
	}
}

static void get(const struct copy_lane *l, void *to, CUdeviceptr from, size_t n, bool blocking)
{
	if (l->kind == COPY_LEGACY && blocking) {
		CU(cuMemcpyDtoH(to, from, n));
	} else if (l->kind == COPY_PER_THREAD) {
		CU(blocking ? cuMemcpyDtoH_v2_ptds(to, from, n)
			    : cuMemcpyDtoHAsync_v2_ptsz(to, from, n, NULL));
	} else {
		CU(cuMemcpyDtoHAsync(to, from, n, l->stream));
	}
}

static void up(struct copy_lane *l, size_t off, size_t n, uint64_t seed)
{
	unsigned char *host = malloc(n + 64), *from = host + seed % 64;

	CHECK(host, "no memory");
	if (seed % 11) {
		copy_fill(from, n, seed);
	} else {
		memset(from, 0xff, n); /* what a device reads as that does not answer */
	}
	memcpy(l->model + off, from, n);
	put(l, l->at + off, from, n, seed & 256);
	memset(host, 0xee, n + 64);
	free(host);
}

static void down(struct copy_lane *l, size_t off, size_t n, uint64_t seed)
{
	unsigned char *host = malloc(n + 66), *to = host + 1 + seed % 64;

	CHECK(host, "no memory");
	memset(host, 0x5a, n + 66);
	get(l, to, l->at + off, n, seed & 256);
	CHECK(memcmp(to, l->model + off, n) == 0, "kind %d: %zu bytes at %zu", l->kind, n, off);
	CHECK(to[-1] == 0x5a && to[n] == 0x5a, "kind %d: %zu bytes at %zu", l->kind, n, off);
	free(host);
}

/* Memory of another address, with other contents. */
static void renew(struct copy_lane *l, uint64_t seed)
{
	CU(cuMemFree(l->at));
	CU(cuMemAlloc(&l->at, BUFFER));
	for (size_t off = 0; off < BUFFER; off += (size_t)1 << 20) {
		up(l, off, MIN(BUFFER - off, (size_t)1 << 20), seed + off);
	}
}

static void *run_lane(void *arg)
{
	struct copy_lane *l = arg;

	copy_lane_begin(l, BUFFER);
	renew(l, l->seed);
	for (unsigned i = 0; i < OPERATIONS; i++) {
		uint64_t r = program_random(&l->seed), s = program_random(&l->seed);
		size_t n = 1 + r / 7 % (r % 3 ? 300 : r % 2 ? SMALL : BUFFER / 4), off;

		/* Often around the end of a unit of 2 MiB. */
		off = r % 16 < 3 ? UNIT - l->at % UNIT - n / 2 : s;
		off %= BUFFER - n;
		switch (r / 16 % 16) {
		case 0:
			copy_lane_invert(l, off, MIN(n, 100000u));
			break;
		case 1:
			if (i % 8 == 0) {
				renew(l, s);
			}
			break;
		case 2:
		case 3:
		case 4:
		case 5:
		case 6:
		case 7:
		case 8:
			up(l, off, n, s);
			break;
		default:
			down(l, off, MIN(n, s % 3 ? 4096u : n), s);
		}
	}
	down(l, 0, BUFFER, l->seed);
	copy_lane_end(l);
	return NULL;
}

static int random_copies(uint64_t seed)
{
	struct copy_lane l[COPY_LANES];

	copy_run_lanes(l, seed, run_lane);
	return 0;
}

/* ---- order ---- */

/* Puts a kernel on the stream that inverts n bytes. It cannot run before copy_release(). */
static void invert_later(CUdeviceptr at, unsigned n, CUstream stream)
{
	copy_hold(stream);
	LAUNCH3(copy_invert, 1, 1, 1, 1024, 1, 1, 0, stream, &at, &n);
}

/* On `before`: a host function that does not return before the copy has been called, then a kernel
 * that inverts; then the copy on `after`, which is ordered behind it. */
static void copy_behind(CUdeviceptr at, CUstream before, CUstream after, const char *what)
{
	unsigned char is[100], right[100];
	unsigned n = sizeof(is);

	copy_fill(right, n, 77);
	memset(is, 0, n);
	invert_later(at, n, before);
	CU(cuMemcpyHtoDAsync(at, right, n, after));
	copy_release();
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH(is, at, n));
	CHECK(memcmp(is, right, n) == 0, "%s: the copy was not last", what);
}

static int order(void)
{
	CUdeviceptr at = warm();
	CUstream blocking, other;

	CU(cuStreamCreate(&blocking, 0));
	CU(cuStreamCreate(&other, 1));
	for (unsigned i = 0; i < 20; i++) {
		copy_behind(at, other, other, "non-blocking");
		copy_behind(at, blocking, blocking, "blocking");
		copy_behind(at, NULL, NULL, "legacy");
		copy_behind(at, blocking, NULL, "legacy behind blocking");
		copy_behind(at, NULL, blocking, "blocking behind legacy");
		copy_behind(at, CU_STREAM_PER_THREAD, NULL, "legacy behind per-thread");
		copy_behind(at, NULL, CU_STREAM_PER_THREAD, "per-thread behind legacy");
		copy_behind(at, CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD, "per-thread");
	}
	return 0;
}

static void *release_later(void *unused)
{
	(void)unused;
	usleep(2000);
	copy_release();
	return NULL;
}

/* A copy down, blocking or not, behind a kernel that cannot run before it has been called. */
static void wait_for(CUdeviceptr at, CUstream stream, bool up_first, const char *what)
{
	unsigned char is[100], right[100];
	unsigned n = sizeof(is);
	pthread_t t;

	copy_fill(right, n, (uint64_t)(uintptr_t)what);
	CU(cuMemcpyHtoD(at, right, n));
	CU(cuCtxSynchronize());
	invert_later(at, n, stream);
	CHECK(pthread_create(&t, NULL, release_later, NULL) == 0, "no thread");
	if (up_first) {
		CU(cuMemcpyHtoD(at + 50, right, 50));
	}
	CU(cuMemcpyDtoH(is, at, n));
	for (unsigned i = 0; i < n; i++) {
		unsigned char wanted = up_first && i >= 50 ? right[i - 50] : ~right[i];

		CHECK(is[i] == wanted, "%s: byte %u", what, i);
	}
	CHECK(pthread_join(t, NULL) == 0, "not joined");
}

/* An asynchronous copy down on the stream: to page-locked memory it returns before the work that it
 * is behind can begin, to pageable memory when the bytes are there. */
static void wait_async(CUdeviceptr at, CUstream stream, unsigned char *pinned, const char *what)
{
	unsigned char right[100], pageable[100];
	unsigned char *is = pinned ? pinned : pageable;
	unsigned n = sizeof(right);
	pthread_t t;

	copy_fill(right, n, (uint64_t)(uintptr_t)what + 1);
	CU(cuMemcpyHtoD(at, right, n));
	CU(cuCtxSynchronize());
	invert_later(at, n, stream);
	if (!pinned) {
		CHECK(pthread_create(&t, NULL, release_later, NULL) == 0, "no thread");
	}
	CU(cuMemcpyDtoHAsync(is, at, n, stream));
	copy_release();
	if (pinned) {
		CU(cuStreamSynchronize(stream));
	} else {
		CHECK(pthread_join(t, NULL) == 0, "not joined");
	}
	for (unsigned i = 0; i < n; i++) {
		CHECK(is[i] == (unsigned char)~right[i], "%s: byte %u", what, i);
	}
}

static int wait_cases(void)
{
	CUdeviceptr at = warm();
	CUstream blocking, other;
	void *pinned;

	CU(cuMemHostAlloc(&pinned, 4096, 0));
	CU(cuStreamCreate(&blocking, 0));
	CU(cuStreamCreate(&other, 1));
	for (unsigned i = 0; i < 10; i++) {
		wait_for(at, NULL, i % 2, "legacy");
		wait_for(at, blocking, i % 2, "blocking");
		wait_for(at, CU_STREAM_PER_THREAD, i % 2, "per-thread");
		wait_async(at, NULL, i % 2 ? pinned : NULL, "legacy, async");
		wait_async(at, blocking, i % 2 ? pinned : NULL, "blocking, async");
		wait_async(at, other, i % 2 ? pinned : NULL, "non-blocking, async");
		wait_async(at, CU_STREAM_PER_THREAD, i % 2 ? pinned : NULL, "per-thread, async");
	}
	return 0;
}

/* ---- memory ---- */

static int freed(void)
{
	unsigned char host[256], back[256];
	CUdeviceptr at = warm();

	memset(host, 0x22, sizeof(host));
	CU(cuMemcpyHtoD(at + WARM_BYTES - 16, host, 16)); /* in the other unit */
	for (unsigned i = 0; i < WARM; i++) {
		CU(cuMemcpyHtoD(at + WARM_BYTES - 16, host, 16));
	}
	CHECK(cuMemcpyHtoD(at + WARM_BYTES - 16, host, 17) == CUDA_ERROR_INVALID_VALUE, "accepted");
	CHECK(cuMemcpyDtoH(back, at + WARM_BYTES - 16, 17) == CUDA_ERROR_INVALID_VALUE, "accepted");
	CHECK(cuMemcpyHtoD(at + WARM_BYTES, host, 1) == CUDA_ERROR_INVALID_VALUE, "accepted");
	CU(cuMemFree(at));
	CHECK(windows() == 0, "%u windows on freed memory", windows());
	CHECK(cuMemcpyHtoD(at, host, 16) == CUDA_ERROR_INVALID_VALUE, "accepted");
	CHECK(cuMemcpyDtoH(back, at, 16) == CUDA_ERROR_INVALID_VALUE, "accepted");
	at = warm();
	CU(cuMemFreeAsync(at, NULL));
	CU(cuCtxSynchronize());
	CHECK(cuMemcpyHtoD(at, host, 16) == CUDA_ERROR_INVALID_VALUE, "accepted");
	return 0;
}

static unsigned char *guarded;
static volatile sig_atomic_t faults;
static sigjmp_buf *leave_to;

static void on_fault(int signal, siginfo_t *info, void *unused)
{
	unsigned char *at = info->si_addr;

	(void)signal;
	(void)unused;
	faults++;
	if (leave_to) {
		siglongjmp(*leave_to, 1);
	}
	if (at < guarded || at >= guarded + PAGE ||
	    mprotect(guarded, PAGE, PROT_READ | PROT_WRITE)) {
		_exit(3);
	}
}

/* Two pages, the second of which has these rights. */
static unsigned char *guard(int rights)
{
	struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
	unsigned char *p =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED, "no memory");
	copy_fill(p, 2 * PAGE, 9);
	guarded = p + PAGE;
	CHECK(sigaction(SIGSEGV, &a, NULL) == 0 && mprotect(guarded, PAGE, rights) == 0, "guard");
	faults = 0;
	return p;
}

static int fault(void)
{
	CUdeviceptr at = warm();
	unsigned char *host = guard(PROT_NONE), back[256];

	CU(cuMemcpyHtoD(at, guarded - 100, 200));
	CHECK(faults == 1, "%d faults", (int)faults);
	CU(cuMemcpyDtoH(back, at, 200));
	CHECK(memcmp(back, guarded - 100, 200) == 0, "the copy up is wrong");
	munmap(host, 2 * PAGE);
	host = guard(PROT_READ);
	CU(cuMemcpyDtoH(guarded - 100, at, 200));
	CHECK(faults == 1, "%d faults", (int)faults);
	CHECK(memcmp(back, guarded - 100, 200) == 0, "the copy down is wrong");
	munmap(host, 2 * PAGE);
	return 0;
}

static int jump(void)
{
	CUdeviceptr at = warm();
	sigjmp_buf here;
	unsigned char right[100], is[100];

	for (volatile unsigned i = 0; i < 2; i++) {
		unsigned char *host = guard(i ? PROT_READ : PROT_NONE);

		leave_to = &here;
		if (sigsetjmp(here, 1) == 0) {
			(void)(i ? cuMemcpyDtoH(guarded - 10, at, 20)
				 : cuMemcpyHtoD(at, guarded - 10, 20));
		}
		leave_to = NULL;
		CHECK(faults == 1, "%d faults", (int)faults);
		munmap(host, 2 * PAGE);
		copy_fill(right, sizeof(right), i);
		CU(cuMemcpyHtoD(at, right, sizeof(right)));
		CU(cuMemcpyDtoH(is, at, sizeof(is)));
		CHECK(memcmp(right, is, sizeof(is)) == 0, "the copy is wrong");
	}
	CU(cuMemFree(at));
	return 0;
}

/* Device, managed, pinned and registered memory on the host's side. */
static int odd(void)
{
	CUdeviceptr at = warm(), from, managed, pool;
	unsigned char host[64], back[64];
	void *pinned;

	CU(cuMemAlloc(&from, SMALL));
	CU(cuMemAllocManaged(&managed, SMALL, 1));
	CU(cuMemAllocAsync(&pool, SMALL, NULL));
	CU(cuMemHostAlloc(&pinned, SMALL, 0));
	CU(cuCtxSynchronize());
	copy_fill(host, sizeof(host), 3);
	CU(cuMemcpyHtoD(from, host, 64));
	CU(cuMemcpyHtoD(pool, host, 64));
	memcpy(pinned, host, 64);
	memcpy((void *)(uintptr_t)managed, host, 64);
	for (unsigned i = 0; i < 4; i++) {
		const CUdeviceptr side[] = { from, pool, managed, (uintptr_t)pinned };
		CUresult r, s;

		CU(cuMemsetD8(at, 0, 64));
		CU(cuCtxSynchronize());
		r = cuMemcpyHtoD(at, (void *)(uintptr_t)side[i], 64);
		CU(cuMemcpyDtoH(back, at, 64));
		s = cuMemcpyDtoH((void *)(uintptr_t)side[i], at, 64);
		printf("%u: %d %d %d\n", i, (int)r, (int)s, memcmp(back, host, 64) == 0);
	}
	for (unsigned i = 0; i < WARM; i++) { /* a pool's memory is not mapped */
		copy_fill(host, sizeof(host), i);
		CU(cuMemcpyHtoD(pool, host, 64));
		CU(cuMemcpyHtoD(managed, host, 64));
		CU(cuMemcpyDtoH(back, pool, 64));
		CHECK(memcmp(back, host, 64) == 0, "pool");
		CU(cuMemcpyDtoH(back, managed, 64));
		CHECK(memcmp(back, host, 64) == 0, "managed");
	}
	return 0;
}

static int mapped(void)
{
	unsigned char *host = copy_map_host(2 * UNIT, UNIT) + UNIT - SMALL, back[SMALL];
	CUdeviceptr at = warm();

	for (unsigned i = 0; i < WARM; i++) {
		copy_fill(host, SMALL, i);
		CU(cuMemcpyHtoD(at, host, SMALL));
		CU(cuMemcpyDtoH(back, at, SMALL));
		CHECK(memcmp(back, host, SMALL) == 0, "copy %u", i);
		CHECK(cuMemcpyHtoD(at, host + 1, SMALL) == CUDA_ERROR_INVALID_VALUE, "accepted");
		CHECK(cuMemcpyDtoH(host + SMALL - 63, at, 64) == CUDA_ERROR_INVALID_VALUE,
		      "accepted");
	}
	return 0;
}

/* ---- captures, processes, contexts ---- */

static int capture(void)
{
	static const CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_GLOBAL,
						     CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						     CU_STREAM_CAPTURE_MODE_RELAXED };
	CUdeviceptr at = warm();
	unsigned char host[64], back[64];
	CUstream capturing, stream;
	size_t nodes;
	CUgraph graph;

	CU(cuStreamCreate(&capturing, 0));
	CU(cuStreamCreate(&stream, 0));
	for (unsigned i = 0; i < 3; i++) {
		copy_fill(host, sizeof(host), i);
		CU(cuStreamBeginCapture(capturing, modes[i]));
		for (unsigned k = 0; k < 3; k++) {
			CU(cuMemcpyHtoDAsync(at + 64 * k, host, sizeof(host), stream));
		}
		CU(cuMemcpyHtoDAsync(at + 256, host, sizeof(host), capturing));
		CU(cuStreamEndCapture(capturing, &graph));
		nodes = 9;
		CU(cuGraphGetNodes(graph, NULL, &nodes));
		CHECK(nodes == 1, "mode %u: %zu nodes", i, nodes);
		CU(cuCtxSynchronize());
		CU(cuMemcpyDtoH(back, at + 128, sizeof(back)));
		CHECK(memcmp(host, back, sizeof(back)) == 0, "mode %u", i);
	}
	return 0;
}

static int forks(void)
{
	CUdeviceptr at = warm();
	unsigned char host[64], back[64];
	unsigned before = windows();
	int status;
	pid_t p;

	printf("%s\n", before ? "window" : "no window");
	fflush(stdout);
	for (unsigned i = 0; i < 5; i++) {
		p = fork();
		if (!p) {
			_exit(windows() || cuMemcpyHtoD(at, host, 64) == CUDA_SUCCESS ? 1 : 0);
		}
		CHECK(waitpid(p, &status, 0) == p && status == 0, "child %u: status %d", i, status);
		copy_fill(host, sizeof(host), i);
		CU(cuMemcpyHtoD(at, host, 64));
		CU(cuMemcpyDtoH(back, at, 64));
		CHECK(memcmp(host, back, 64) == 0, "after child %u", i);
	}
	CHECK(windows() == before, "%u windows", windows());
	return 0;
}

static uint32_t stopping; /* [atomic] */

static void *map_on(void *unused)
{
	unsigned char host[64] = { 1 };
	CUdeviceptr at;

	CU(cuCtxSetCurrent(copy_context));
	while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE)) {
		CU(cuMemAlloc(&at, 2 * UNIT));
		for (unsigned i = 0; i < 12; i++) {
			CU(cuMemcpyHtoD(at, host, sizeof(host)));
		}
		CU(cuMemFree(at));
	}
	return unused;
}

static int forks_beside_copies(void)
{
	pthread_t t[3];
	int status;
	pid_t p;

	for (unsigned i = 0; i < 3; i++) {
		CHECK(pthread_create(&t[i], NULL, map_on, NULL) == 0, "no thread");
	}
	for (unsigned i = 0; i < 800; i++) {
		p = fork();
		if (!p) {
			_exit(windows() ? 1 : 0);
		}
		CHECK(waitpid(p, &status, 0) == p && status == 0, "child %u: status %d", i, status);
	}
	__atomic_store_n(&stopping, 1u, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 3; i++) {
		CHECK(pthread_join(t[i], NULL) == 0, "not joined");
	}
	return 0;
}

static int reset(void)
{
	unsigned char host[64], back[64];
	CUdeviceptr at = warm();

	for (unsigned i = 0; i < 5; i++) {
		CU(cuDevicePrimaryCtxReset(copy_device));
		CHECK(windows() == 0, "%u windows without a context", windows());
		CHECK(cuMemcpyHtoD(at, host, 64) != CUDA_SUCCESS, "copied without a context");
		copy_open_context();
		at = warm();
		copy_fill(host, sizeof(host), i);
		CU(cuMemcpyHtoD(at, host, 64));
		CU(cuMemcpyDtoH(back, at, 64));
		CHECK(memcmp(host, back, 64) == 0, "context %u", i);
	}
	return 0;
}

static void *copy_on(void *unused)
{
	unsigned char host[4096];
	CUdeviceptr at;

	(void)unused;
	memset(host, 1, sizeof(host));
	(void)cuCtxSetCurrent(copy_context);
	for (;;) {
		if (cuMemAlloc(&at, SMALL) != CUDA_SUCCESS) {
			return NULL; /* at exit */
		}
		for (unsigned i = 0; i < WARM; i++) {
			(void)cuMemcpyHtoD(at, host, 1 + i * 100);
			(void)cuMemcpyDtoH(host, at, 1 + i * 100);
		}
		(void)cuMemFree(at);
		copy_count_round();
	}
}

static int leave(void)
{
	pthread_t t;

	for (unsigned i = 0; i < 3; i++) {
		CHECK(pthread_create(&t, NULL, copy_on, NULL) == 0, "no thread");
	}
	copy_await_rounds(4);
	return 0;
}

static int show_windows(void)
{
	(void)warm();
	printf("%s\n", windows() ? "window" : "no window");
	return 0;
}

static int forever(void)
{
	pthread_t t;

	(void)warm();
	CHECK(pthread_create(&t, NULL, copy_on, NULL) == 0, "no thread");
	copy_await_rounds(2);
	copy_show_pid();
	CHECK(pthread_join(t, NULL) == 0, "not joined");
	return 0;
}

/* ---- memory that is the driver's ---- */

/* Copies of another context's memory, which are in order with the copies of its own. */
static int contexts(void)
{
	unsigned char host[64], back[64];
	CUdeviceptr at = warm();
	CUcontext other;

	CU(cuCtxCreate(&other, 0, copy_device));
	for (unsigned i = 0; i < WARM; i++) {
		CU(cuCtxSetCurrent(i % 2 ? other : copy_context));
		copy_fill(host, sizeof(host), i);
		CU(cuMemcpyHtoD(at, host, sizeof(host)));
		CU(cuCtxSetCurrent(i % 3 ? other : copy_context));
		CU(cuMemcpyDtoH(back, at, sizeof(back)));
		CHECK(memcmp(host, back, sizeof(back)) == 0, "copy %u", i);
	}
	return 0;
}

/* Copies until it is killed; prints its process number after some copies. */
static void copy_on_at(CUdeviceptr at, const void *host, size_t bytes)
{
	for (unsigned i = 0;; i++) {
		CU(cuMemcpyHtoD(at, host, bytes));
		if (i == 100) {
			copy_show_pid();
		}
	}
}

static int foreign(void)
{
	unsigned char host[64] = { 0 };
	CUdeviceptr at;
	CUcontext other;

	CU(cuMemAlloc(&at, WARM_BYTES));
	CU(cuCtxCreate(&other, 0, copy_device));
	copy_on_at(at, host, sizeof(host));
	return 0;
}

static int rdma(void)
{
	unsigned char host[64] = { 0 };
	CUdeviceptr at;
	int on = 1;

	CU(cuMemAlloc(&at, WARM_BYTES));
	CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
	copy_on_at(at, host, sizeof(host));
	return 0;
}

static int null(void)
{
	CUdeviceptr at = warm();

	printf("%d\n", (int)cuMemcpyHtoD(at, NULL, 16));
	printf("%d\n", (int)cuMemcpyDtoH(NULL, at, 16));
	printf("%d\n", (int)cuMemcpyHtoDAsync(at, NULL, 16, NULL));
	printf("%d\n", (int)cuMemcpyDtoHAsync(NULL, at, 16, NULL));
	return 0;
}

static int refused(void)
{
	unsigned char host[64] = { 0 };
	CUdeviceptr at;

	CU(cuMemAlloc(&at, WARM_BYTES));
	for (unsigned i = 0; i < 20; i++) {
		CHECK(cuMemcpyHtoD(at + WARM_BYTES - 8, host, sizeof(host)) ==
			      CUDA_ERROR_INVALID_VALUE,
		      "accepted");
	}
	for (unsigned i = 0; i < 100; i++) {
		CU(cuMemcpyHtoD(at, host, sizeof(host)));
	}
	copy_show_pid();
	for (;;) {
		pause();
	}
}

static int combined(void)
{
	CUdeviceptr at;
	void *host;

	CU(cuMemAlloc(&at, WARM_BYTES));
	CU(cuMemHostAlloc(&host, SMALL, CU_MEMHOSTALLOC_WRITECOMBINED));
	copy_on_at(at, host, SMALL);
	return 0;
}

/* ---- times ---- */

static void copy_often(CUdeviceptr at, const void *host, CUstream stream, unsigned copies)
{
	for (unsigned i = 0; i < copies; i++) {
		CU(cuMemcpyHtoDAsync(at, host, LARGEST, stream));
		CU(cuStreamSynchronize(stream));
	}
}

static int pinned(void)
{
	CUdeviceptr at = warm();
	void *host = malloc(LARGEST), *locked;
	CUstream stream;

	CHECK(host, "no memory");
	memset(host, 1, LARGEST);
	CU(cuMemHostAlloc(&locked, LARGEST, 0));
	CU(cuStreamCreate(&stream, 1));
	copy_often(at, host, stream, 100);
	copy_often(at, locked, stream, 300);
	copy_show_pid();
	for (;;) {
		pause();
	}
}

int main(int argc, char **argv)
{
	static const struct copy_case cases[] = { { "order", order },
						  { "wait", wait_cases },
						  { "freed", freed },
						  { "fault", fault },
						  { "jump", jump },
						  { "odd", odd },
						  { "mapped", mapped },
						  { "capture", capture },
						  { "fork", forks },
						  { "forks", forks_beside_copies },
						  { "reset", reset },
						  { "exit", leave },
						  { "windows", show_windows },
						  { "forever", forever },
						  { "contexts", contexts },
						  { "foreign", foreign },
						  { "rdma", rdma },
						  { "null", null },
						  { "refused", refused },
						  { "combined", combined },
						  { "pinned", pinned } };

	CHECK(argc > 1, "usage: small_copies CASE [SEED]");
	copy_begin();
	(void)windows(); /* counts those there are without copies */
	if (strcmp(argv[1], "random") == 0) {
		return random_copies(argc > 2 ? strtoull(argv[2], NULL, 10) : 1);
	}
	return copy_run_case(cases, ARRAY_SIZE(cases), argv[1]);
}

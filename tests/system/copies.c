/* copies CASE [SEED]: copies of pageable memory, for copies.bats. Each case checks what it can see
 * itself, prints what is wrong and exits with 1.
 *
 *   random SEED  random copies and kernels in four threads, each on its own kind of stream, against
 *                a model of the device's memory. Prints a checksum of all that was read
 *   helpers      prints how many threads the first large copy has started
 *   near CPU     copies until another thread has been bound to that CPU alone
 *   unmap        memory that is unmapped as soon as a copy has returned
 *   capture      copies while another stream captures, and on a stream that captures
 *   fault-up     a page of the source has no access until the program's handler gives it
 *   fault-down   the same with a page of the destination that is read-only
 *   dies-up      the same without a handler: ends by SIGSEGV
 *   beyond       copies that exceed their device memory: refused, and nothing is copied
 *   beyond-mapping   copies that exceed their mapping of host memory, of cuMemMap: likewise
 *   reset        the context is reset while another thread's copy waits behind earlier work; that
 *                copy fails, and those in the next context do not. Needs helpers
 *   fork         children while another thread copies; one that copies itself
 *   exit         returns from main() while other threads copy
 *   forever      copies until it is killed; prints its process number, and a line after two
 *                copies */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <dirent.h>
#include <unistd.h>

#include "copy_program.h"
#include "../unit/eventually.h"
#include "base/compiler.h"

#define MIB ((size_t)1 << 20)
#define BUFFER (24 * MIB)
#define OPERATIONS 40u
#define PAGE ((size_t)4096)

/* The first pieces are made when enough has been copied. */
static void warm_up(unsigned copies)
{
	void *host = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr at;

	CHECK(host != MAP_FAILED, "%s", strerror(errno));
	CU(cuMemAlloc(&at, BUFFER));
	for (unsigned i = 0; i < copies; i++) {
		CU(cuMemcpyHtoD(at, host, BUFFER));
	}
	CU(cuMemFree(at));
	munmap(host, BUFFER);
}

static unsigned char *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED, "%s", strerror(errno));
	return p;
}

static unsigned threads_now(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	CHECK(d, "%s", strerror(errno));
	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n - 2;
}

/* ---- random ---- */

static void put(struct copy_lane *l, CUdeviceptr to, const void *from, size_t n, unsigned how)
{
	switch (how % 4) {
	case 0:
		if (l->kind == COPY_LEGACY) {
			CU(cuMemcpyHtoD(to, from, n));
			return;
		}
		if (l->kind == COPY_PER_THREAD) {
			CU(cuMemcpyHtoD_v2_ptds(to, from, n));
			return;
		}
		FALLTHROUGH;
	case 1:
		if (l->kind == COPY_PER_THREAD) {
			CU(cuMemcpyAsync_ptsz(to, (uintptr_t)from, n, NULL));
		} else {
			CU(cuMemcpyAsync(to, (uintptr_t)from, n, l->stream));
		}
		return;
	case 2:
		if (l->kind == COPY_LEGACY) {
			CU(cuMemcpy(to, (uintptr_t)from, n));
			return;
		}
		FALLTHROUGH;
	default:
		if (l->kind == COPY_PER_THREAD) {
			CU(cuMemcpyHtoDAsync_v2_ptsz(to, from, n, NULL));
		} else {
			CU(cuMemcpyHtoDAsync(to, from, n, l->stream));
		}
	}
}

static void get(struct copy_lane *l, void *to, CUdeviceptr from, size_t n, unsigned how)
{
	switch (how % 4) {
	case 0:
		if (l->kind == COPY_LEGACY) {
			CU(cuMemcpyDtoH(to, from, n));
			return;
		}
		if (l->kind == COPY_PER_THREAD) {
			CU(cuMemcpy_ptds((uintptr_t)to, from, n));
			return;
		}
		FALLTHROUGH;
	case 1:
		if (l->kind == COPY_PER_THREAD) {
			CU(cuMemcpyDtoH_v2_ptds(to, from, n));
		} else {
			CU(cuMemcpyAsync((uintptr_t)to, from, n, l->stream));
		}
		return;
	default:
		if (l->kind == COPY_PER_THREAD) {
			CU(cuMemcpyDtoHAsync_v2_ptsz(to, from, n, NULL));
		} else {
			CU(cuMemcpyDtoHAsync(to, from, n, l->stream));
		}
	}
}

/* A copy up, whose source is overwritten when the call has returned. */
static void up(struct copy_lane *l, size_t off, size_t n, uint64_t seed)
{
	size_t shift = seed % 97;
	unsigned char *host = map(n + shift);

	copy_fill(host + shift, n, seed);
	memcpy(l->model + off, host + shift, n);
	put(l, l->at + off, host + shift, n, (unsigned)(seed >> 8));
	memset(host, 0xee, n + shift);
	CHECK(munmap(host, n + shift) == 0, "%s", strerror(errno));
}

/* A copy down, to memory that was touched or not. The bytes around it must not change. */
static void down(struct copy_lane *l, size_t off, size_t n, uint64_t seed)
{
	size_t shift = 1 + seed % 97;
	unsigned char *host = map(n + shift + 64);

	if (seed & 1024) {
		memset(host, 0x5a, n + shift + 64);
	} else {
		host[shift - 1] = host[n + shift] = 0x5a;
	}
	get(l, host + shift, l->at + off, n, (unsigned)(seed >> 8));
	CHECK(memcmp(host + shift, l->model + off, n) == 0, "kind %d: %zu bytes at %zu", l->kind, n,
	      off);
	CHECK(host[shift - 1] == 0x5a && host[n + shift] == 0x5a, "kind %d: %zu bytes at %zu",
	      l->kind, n, off);
	for (size_t i = 0; i < n; i += 61) {
		l->sum = l->sum * 31 + host[shift + i];
	}
	CHECK(munmap(host, n + shift + 64) == 0, "%s", strerror(errno));
}

static void *run_lane(void *arg)
{
	struct copy_lane *l = arg;

	copy_lane_begin(l, BUFFER);
	up(l, 0, BUFFER, l->seed);
	for (unsigned i = 0; i < OPERATIONS; i++) {
		uint64_t r = program_random(&l->seed), s = program_random(&l->seed);
		size_t off = s % BUFFER, n = 1 + r / 7 % (r % 3 ? BUFFER : 64 * 1024);

		n = MIN(n, BUFFER - off);
		switch (r % 5) {
		case 0:
			copy_lane_invert(l, off, MIN(n, 200000u));
			break;
		case 1:
		case 2:
			up(l, off, n, s);
			break;
		default:
			down(l, off, n, s);
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
	for (unsigned i = 0; i < COPY_LANES; i++) {
		printf("%u: %016llx\n", i, (unsigned long long)l[i].sum);
	}
	return 0;
}

/* ---- the other cases ---- */

static int helpers(void)
{
	unsigned char *host = map(BUFFER);
	CUdeviceptr at;
	unsigned before;

	CU(cuMemAlloc(&at, BUFFER));
	CU(cuMemcpyHtoD(at, host, MIB));
	before = threads_now();
	CU(cuMemcpyHtoD(at, host, BUFFER));
	printf("%u\n", threads_now() - before);
	return 0;
}

/* Returns whether a thread of this process may run on that CPU alone. */
static bool any_bound(int cpu)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	bool found = false;
	cpu_set_t set;

	CHECK(d, "no tasks");
	while ((e = readdir(d))) {
		pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

		found |= tid && sched_getaffinity(tid, sizeof(set), &set) == 0 &&
			 CPU_COUNT(&set) == 1 && CPU_ISSET((size_t)cpu, &set);
	}
	closedir(d);
	return found;
}

static int near(int cpu)
{
	unsigned char *host = map(BUFFER);
	cpu_set_t before, now;
	unsigned copies = 0;
	CUdeviceptr at;

	CHECK(sched_getaffinity(0, sizeof(before), &before) == 0, "affinity");
	CU(cuMemAlloc(&at, BUFFER));
	while (!any_bound(cpu)) {
		CHECK(copies++ < 600, "no helper went to CPU %d", cpu);
		CU(cuMemcpyHtoD(at, host, BUFFER));
	}
	CHECK(sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&before, &now),
	      "the program's thread was bound");
	return 0;
}

static void expect_inverse(CUdeviceptr at, uint64_t seed, size_t bytes)
{
	unsigned char *right = map(bytes), *is = map(bytes);

	copy_fill(right, bytes, seed);
	CU(cuMemcpyDtoH(is, at, bytes));
	for (size_t i = 0; i < bytes; i++) {
		CHECK(is[i] == (unsigned char)~right[i], "byte %zu", i);
	}
	munmap(right, bytes);
	munmap(is, bytes);
}

static int unmap(void)
{
	unsigned bytes = BUFFER;
	unsigned char *host = map(bytes);
	CUstream stream;
	CUdeviceptr at;

	CU(cuStreamCreate(&stream, 1));
	CU(cuMemAlloc(&at, bytes));
	copy_fill(host, bytes, 3);
	CU(cuMemcpyHtoDAsync(at, host, bytes, stream));
	munmap(host, bytes);
	LAUNCH3(copy_invert, bytes / 1024, 1, 1, 1024, 1, 1, 0, stream, &at, &bytes);
	host = map(bytes);
	CU(cuMemcpyDtoHAsync(host, at, bytes, stream));
	munmap(host, bytes);
	expect_inverse(at, 3, bytes);
	return 0;
}

/* Another stream captures: a copy on this one is not recorded. On a stream that captures the driver
 * refuses to read pageable memory or records the copy; both plans do the same. */
static int capture(void)
{
	unsigned char *host = map(BUFFER), *back = map(BUFFER);
	CUstream capturing, stream;
	CUdeviceptr at;
	CUgraph graph;
	size_t nodes = 9;
	CUresult r;

	CU(cuStreamCreate(&capturing, 1));
	CU(cuStreamCreate(&stream, 1));
	CU(cuMemAlloc(&at, BUFFER));
	copy_fill(host, BUFFER, 5);
	CU(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CU(cuMemcpyHtoDAsync(at, host, BUFFER, stream));
	CU(cuStreamEndCapture(capturing, &graph));
	CU(cuGraphGetNodes(graph, NULL, &nodes));
	CHECK(nodes == 0, "%zu", nodes);
	CU(cuMemcpyDtoH(back, at, BUFFER));
	CHECK(memcmp(host, back, BUFFER) == 0, "copied next to a capture");
	CU(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
	r = cuMemcpyHtoDAsync(at, host, BUFFER, capturing);
	(void)cuStreamEndCapture(capturing, &graph);
	nodes = 0;
	if (graph) {
		CU(cuGraphGetNodes(graph, NULL, &nodes));
	}
	printf("result %d, %zu nodes\n", (int)r, nodes);
	return 0;
}

static unsigned char *protected_page;
static volatile sig_atomic_t faults;
static volatile pid_t fault_thread;

static void on_fault(int signal, siginfo_t *info, void *unused)
{
	unsigned char *at = info->si_addr;

	(void)signal;
	(void)unused;
	if (at < protected_page || at >= protected_page + PAGE ||
	    mprotect(protected_page, PAGE, PROT_READ | PROT_WRITE)) {
		_exit(3);
	}
	faults++;
	fault_thread = (pid_t)syscall(SYS_gettid);
}

static void protect(unsigned char *host, int rights)
{
	struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(SIGSEGV, &a, NULL) == 0, "%s", strerror(errno));
	protected_page = host + BUFFER / 2;
	CHECK(mprotect(protected_page, PAGE, rights) == 0, "%s", strerror(errno));
}

static int fault_up(void)
{
	unsigned char *host = map(BUFFER), *back = map(BUFFER);
	CUdeviceptr at;

	CU(cuMemAlloc(&at, BUFFER));
	copy_fill(host, BUFFER, 7);
	protect(host, PROT_NONE);
	CU(cuMemcpyHtoD(at, host, BUFFER));
	CHECK(faults == 1 && fault_thread == syscall(SYS_gettid), "%d faults", (int)faults);
	CU(cuMemcpyDtoH(back, at, BUFFER));
	CHECK(memcmp(host, back, BUFFER) == 0, "the copy is wrong");
	return 0;
}

static int fault_down(void)
{
	unsigned char *host = map(BUFFER), *back = map(BUFFER);
	CUdeviceptr at;

	CU(cuMemAlloc(&at, BUFFER));
	copy_fill(host, BUFFER, 7);
	CU(cuMemcpyHtoD(at, host, BUFFER));
	protect(back, PROT_READ);
	CU(cuMemcpyDtoH(back, at, BUFFER));
	CHECK(faults == 1 && fault_thread == syscall(SYS_gettid), "%d faults", (int)faults);
	CHECK(memcmp(host, back, BUFFER) == 0, "the copy is wrong");
	return 0;
}

static int dies_up(void)
{
	unsigned char *host = map(BUFFER);
	CUdeviceptr at;

	CU(cuMemAlloc(&at, BUFFER));
	munmap(host + BUFFER / 2, PAGE);
	CU(cuMemcpyHtoD(at, host, BUFFER));
	return 0;
}

static int beyond(void)
{
	unsigned char *host = map(BUFFER), *back = map(BUFFER);
	CUdeviceptr at;

	CU(cuMemAlloc(&at, BUFFER));
	CU(cuMemsetD8(at, 0x11, BUFFER));
	memset(host, 0x22, BUFFER);
	CHECK(cuMemcpyHtoD(at + 8 * MIB, host, BUFFER) == CUDA_ERROR_INVALID_VALUE, "accepted");
	CU(cuMemcpyDtoH(back, at, BUFFER));
	for (size_t i = 0; i < BUFFER; i++) {
		CHECK(back[i] == 0x11, "byte %zu", i);
	}
	CHECK(cuMemcpyDtoH(host, at + 8 * MIB, BUFFER) == CUDA_ERROR_INVALID_VALUE, "accepted");
	CHECK(host[0] == 0x22, "written");
	return 0;
}

static int beyond_mapping(void)
{
	unsigned char *host = copy_map_host(BUFFER, BUFFER / 3), *back = map(BUFFER);
	CUdeviceptr at;

	CU(cuMemAlloc(&at, BUFFER));
	CU(cuMemsetD8(at, 0x11, BUFFER));
	memset(host, 0x22, BUFFER / 3);
	CHECK(cuMemcpyHtoD(at, host, BUFFER) == CUDA_ERROR_INVALID_VALUE, "accepted");
	CU(cuMemcpyDtoH(back, at, BUFFER));
	for (size_t i = 0; i < BUFFER; i++) {
		CHECK(back[i] == 0x11, "byte %zu", i);
	}
	CHECK(cuMemcpyDtoH(host, at, BUFFER) == CUDA_ERROR_INVALID_VALUE, "accepted");
	CHECK(host[0] == 0x22, "written");
	CU(cuMemcpyHtoD(at, host, BUFFER / 3));
	CU(cuMemcpyDtoH(back, at, BUFFER / 3));
	CHECK(memcmp(back, host, BUFFER / 3) == 0, "not copied");
	return 0;
}

static int stopping; /* [atomic] */

/* Copies up and down until `stopping`; its context may go away at any time. */
static void *copy_on(void *arg)
{
	unsigned char *host = map(BUFFER);
	CUcontext ctx;

	(void)arg;
	while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE)) {
		CUdeviceptr at;

		if (cuDevicePrimaryCtxRetain(&ctx, copy_device) != CUDA_SUCCESS) {
			continue;
		}
		(void)cuCtxSetCurrent(ctx);
		if (cuMemAlloc(&at, BUFFER) == CUDA_SUCCESS) {
			(void)cuMemcpyHtoD(at, host, BUFFER);
			if (cuMemcpyDtoH(host, at, BUFFER) == CUDA_SUCCESS) {
				copy_count_round();
			}
			(void)cuMemFree(at);
		}
	}
	return NULL;
}

/* Copies behind a host function that returns only when the copy has. */
static void *copy_behind(void *arg)
{
	unsigned char *host = map(BUFFER);
	CUstream stream;
	CUdeviceptr at;
	CUresult r;

	CU(cuCtxSetCurrent(copy_context));
	CU(cuStreamCreate(&stream, 1));
	CU(cuMemAlloc(&at, BUFFER));
	copy_hold(stream);
	r = cuMemcpyDtoHAsync(host, at, BUFFER, stream);
	CHECK(r == CUDA_ERROR_CONTEXT_IS_DESTROYED, "result %d", (int)r);
	copy_release();
	munmap(host, BUFFER);
	return arg;
}

/* The first copy starts helpers, so that their number shows that it has begun. */
static int reset(void)
{
	unsigned before = threads_now();
	struct copy_lane again = { .kind = COPY_LEGACY };
	pthread_t t;

	CHECK(pthread_create(&t, NULL, copy_behind, NULL) == 0, "no thread");
	eventually(threads_now() >= before + 4); /* it, the driver's for host functions, helpers */
	CU(cuDevicePrimaryCtxReset(copy_device));
	CHECK(pthread_join(t, NULL) == 0, "not joined");
	copy_open_context();
	copy_lane_begin(&again, BUFFER);
	for (unsigned i = 0; i < 3; i++) {
		up(&again, i, BUFFER - i, 16 + i);
		down(&again, 0, BUFFER, i);
	}
	copy_lane_end(&again);
	return 0;
}

static int forks(void)
{
	unsigned char *host = map(BUFFER);
	CUdeviceptr at;
	pthread_t t;

	CU(cuMemAlloc(&at, BUFFER));
	CHECK(pthread_create(&t, NULL, copy_on, NULL) == 0, "no thread");
	for (unsigned i = 0; i < 20; i++) {
		int status;
		pid_t p;

		copy_await_rounds(1);
		p = fork();
		if (!p) {
			_exit(i % 2 && cuMemcpyHtoD(at, host, BUFFER) == CUDA_SUCCESS ? 1 : 0);
		}
		CHECK(waitpid(p, &status, 0) == p && status == 0, "child %u: status %d", i, status);
	}
	__atomic_store_n(&stopping, 1, __ATOMIC_RELEASE);
	CHECK(pthread_join(t, NULL) == 0, "not joined");
	return 0;
}

static int leave(void)
{
	pthread_t t;

	for (unsigned i = 0; i < 2; i++) {
		CHECK(pthread_create(&t, NULL, copy_on, NULL) == 0, "no thread");
	}
	copy_await_rounds(2);
	return 0;
}

static int forever(void)
{
	pthread_t t;

	copy_show_pid();
	CHECK(pthread_create(&t, NULL, copy_on, NULL) == 0, "no thread");
	copy_await_rounds(2);
	puts("copied");
	fflush(stdout);
	CHECK(pthread_join(t, NULL) == 0, "not joined");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct copy_case cases[] = { { "helpers", helpers },
						  { "unmap", unmap },
						  { "capture", capture },
						  { "fault-up", fault_up },
						  { "beyond", beyond },
						  { "reset", reset },
						  { "fault-down", fault_down },
						  { "dies-up", dies_up },
						  { "fork", forks },
						  { "forever", forever },
						  { "exit", leave },
						  { "beyond-mapping", beyond_mapping } };

	CHECK(argc > 1, "usage: copies CASE [SEED]");
	copy_begin();
	/* These count threads: the plan begins with their own copies. */
	warm_up(strcmp(argv[1], "helpers") && strcmp(argv[1], "reset") ? 8 : 1);
	if (strcmp(argv[1], "random") == 0) {
		return random_copies(argc > 2 ? strtoull(argv[2], NULL, 10) : 1);
	}
	if (strcmp(argv[1], "near") == 0) {
		return near(argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0);
	}
	return copy_run_case(cases, ARRAY_SIZE(cases), argv[1]);
}

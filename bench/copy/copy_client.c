/* bench-copy-client --page FD --libcuda PATH: a program that copies pageable memory, alternately by
 * the driver library at that path and by the libcuda that a program gets, which is gBPF's shim
 * under `gbpf run`. Both are in one process and use one context, so that they see the same machine.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "bench/copy/copy_client.h"

#define SAMPLE 4099u /* distance of the bytes that are compared */

static struct bench_copy_page *page;
struct bench_copy_calls bench_copy_cuda[COPY_BYS];
CUstream bench_copy_stream[2];
static CUcontext context;
static CUdeviceptr device[2];
static unsigned char *host[2];
static uint64_t room; /* bytes of each of these */

void bench_copy_fail(const char *fmt, ...)
{
	char text[sizeof(page->error)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "bench-copy-client: %s\n", text);
	if (page) {
		memcpy(page->error, text, sizeof(text));
		store_release(&page->state, (uint32_t)COPY_FAILED);
	}
	_exit(1);
}

void bench_copy_must(CUresult r, const char *call)
{
	const char *name = NULL;

	if (r != CUDA_SUCCESS) {
		bench_copy_cuda[COPY_BY_SHIM].cuGetErrorName(r, &name);
		bench_copy_fail("%.120s: %s", call, name ? name : "unknown error");
	}
}

static void open_library(unsigned by, const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL), *p;

	if (!lib) {
		bench_copy_fail("%s", dlerror());
	}
#define COPY_CALL(name)                                                                            \
	p = dlsym(lib, #name);                                                                     \
	if (!p) {                                                                                  \
		bench_copy_fail("%s lacks %s", path, #name);                                       \
	}                                                                                          \
	memcpy(&bench_copy_cuda[by].name, &p, sizeof(p));
	COPY_CALLS(COPY_CALL)
#undef COPY_CALL
}

unsigned char *bench_copy_map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		bench_copy_fail("no memory for %llu bytes", (unsigned long long)bytes);
	}
	return p;
}

static unsigned char pattern(uint64_t i)
{
	return (unsigned char)(i * 2654435761u >> 24);
}

static void make_room(uint64_t bytes)
{
	if (bytes <= room) {
		return;
	}
	for (unsigned i = 0; i < 2; i++) {
		if (room) {
			munmap(host[i], room);
			CU(COPY_BY_SHIM, cuMemFree_v2(device[i]));
		}
		host[i] = bench_copy_map(bytes);
		for (uint64_t k = 0; k < bytes; k++) {
			host[i][k] = pattern(k);
		}
		CU(COPY_BY_SHIM, cuMemAlloc_v2(&device[i], bytes));
		CU(COPY_BY_SHIM, cuMemcpyHtoD_v2(device[i], host[i], bytes));
	}
	room = bytes;
}

/* ---- both ways at once ---- */

static pthread_barrier_t both;
static struct {
	uint64_t bytes;
	unsigned by;
} task;
static unsigned char *target; /* of the copies down */

static void *go_up(void *unused)
{
	(void)unused;
	CU(COPY_BY_SHIM, cuCtxSetCurrent(context));
	for (;;) {
		pthread_barrier_wait(&both);
		CU(task.by,
		   cuMemcpyHtoDAsync_v2(device[0], host[0], task.bytes, bench_copy_stream[0]));
		CU(task.by, cuStreamSynchronize(bench_copy_stream[0]));
		pthread_barrier_wait(&both);
	}
	return NULL;
}

static void one(unsigned by, unsigned way, uint64_t bytes)
{
	if (way == COPY_UP) {
		CU(by, cuMemcpyHtoD_v2(device[0], host[0], bytes));
	} else if (way == COPY_DOWN) {
		CU(by, cuMemcpyDtoH_v2(target, device[1], bytes));
	} else {
		task.bytes = bytes;
		task.by = by;
		pthread_barrier_wait(&both);
		CU(by, cuMemcpyDtoHAsync_v2(target, device[1], bytes, bench_copy_stream[1]));
		pthread_barrier_wait(&both);
	}
}

/* Compares what was copied; device[1] holds what host[1] does. */
static void compare(unsigned way, uint64_t bytes)
{
	unsigned char *back = target;

	if (way != COPY_DOWN) {
		back = bench_copy_map(bytes);
		CU(COPY_BY_DRIVER, cuMemcpyDtoH_v2(back, device[0], bytes));
	}
	for (uint64_t i = 0; i<bytes; i += bytes> SAMPLE * 100 ? SAMPLE : 1) {
		if (back[i] != pattern(i)) {
			bench_copy_fail("wrong byte at %llu of %llu", (unsigned long long)i,
					(unsigned long long)bytes);
		}
	}
	if (way != COPY_DOWN) {
		munmap(back, bytes);
	}
}

/* Makes the copies of a command; the library that goes first changes with each. */
static void copy_by_both(struct bench_copy_page *p)
{
	for (unsigned i = 0; i < 2 * page->calls; i++) {
		unsigned by = (i + i / 2) % 2;
		uint64_t before;

		target = page->fresh ? bench_copy_map(page->bytes) : host[1];
		/* The driver may return from a copy up before it has arrived; the next one would
		 * wait. */
		CU(COPY_BY_DRIVER, cuCtxSynchronize());
		before = clock_now_ns();
		one(by, page->way, page->bytes);
		page->ns[by][i / 2] = clock_now_ns() - before;
		if (i + 2 >= 2 * page->calls) {
			compare(page->way, page->bytes);
		}
		if (page->fresh) {
			munmap(target, page->bytes);
		}
	}
}

/* ---- copies without a pause, by gBPF ---- */

/* Copies until `stop`, then compares. The side that is copied to is cleared before; a
 * download brings host[1]'s content back. */
static void copy_on(struct bench_copy_page *p)
{
	uint64_t bytes = page->bytes;
	bool up = page->way == COPY_UP;
	void *pinned = NULL;
	unsigned char *memory = host[!up];

	if (page->pinned) {
		CU(COPY_BY_SHIM, cuMemHostAlloc(&pinned, bytes, 0));
		memory = pinned;
	}
	if (!up) {
		memset(memory, 0, bytes);
	} else {
		if (pinned) {
			memcpy(pinned, host[0], bytes);
		}
		CU(COPY_BY_SHIM, cuMemsetD8_v2(device[0], 0, bytes));
	}
	store_release(&page->looping, 1u);
	do {
		if (up) {
			CU(COPY_BY_SHIM,
			   cuMemcpyHtoDAsync_v2(device[0], memory, bytes, bench_copy_stream[0]));
		} else {
			CU(COPY_BY_SHIM,
			   cuMemcpyDtoHAsync_v2(memory, device[1], bytes, bench_copy_stream[0]));
		}
		CU(COPY_BY_SHIM, cuStreamSynchronize(bench_copy_stream[0]));
	} while (!load_acquire(&page->stop));
	target = memory;
	compare(page->way, bytes);
	if (pinned) {
		CU(COPY_BY_SHIM, cuMemFreeHost(pinned));
	}
}

static void copy_at_times(struct bench_copy_page *p)
{
	for (unsigned i = 0; i < page->calls; i++) {
		uint64_t before;

		clock_sleep_ns(1000ull * page->pause_us);
		before = clock_now_ns();
		one(COPY_BY_SHIM, COPY_UP, page->bytes);
		page->ns[COPY_BY_SHIM][i] = clock_now_ns() - before;
	}
	compare(COPY_UP, page->bytes);
}

static bool command_is_valid(void)
{
	return page->bytes && page->bytes <= COPY_BYTES_MAX && page->way < COPY_WAYS &&
	       page->calls <= COPY_CALLS_MAX && page->job < COPY_JOBS &&
	       !(page->job == COPY_STREAM && page->way == COPY_BOTH);
}

static void carry_out(void)
{
	static void (*const jobs[COPY_JOBS])(struct bench_copy_page *) = {
		[COPY_COMPARE] = copy_by_both,	   [COPY_STREAM] = copy_on,
		[COPY_LATENCY] = copy_at_times,	   [COPY_CALIBRATE] = bench_copy_calibrate,
		[COPY_IMAGES] = bench_copy_images,
	};

	if (!command_is_valid()) {
		bench_copy_fail("invalid command");
	}
	if (page->job < COPY_CALIBRATE) {
		make_room(page->bytes);
	}
	jobs[page->job](page);
}

static void NORETURN serve(void)
{
	uint32_t done = 0, command;
	pthread_t up;

	pthread_barrier_init(&both, NULL, 2);
	if (pthread_create(&up, NULL, go_up, NULL)) {
		bench_copy_fail("cannot create a thread");
	}
	store_release(&page->state, (uint32_t)COPY_READY);
	for (;;) {
		command = load_acquire(&page->command);
		if (command == done) {
			futex_wait_shared(&page->command, done, 100000000);
			continue;
		}
		carry_out();
		done = command;
		store_release(&page->done, done);
		futex_wake_shared(&page->done, 1 << 30);
	}
}

static void open_device(void)
{
	CUdevice gpu;
	cpu_set_t set;

	CU(COPY_BY_SHIM, cuInit(0));
	CU(COPY_BY_SHIM, cuDeviceGet(&gpu, 0));
	CU(COPY_BY_SHIM, cuDeviceGetName(page->device, sizeof(page->device), gpu));
	CU(COPY_BY_SHIM, cuDevicePrimaryCtxRetain(&context, gpu));
	CU(COPY_BY_SHIM, cuCtxSetCurrent(context));
	for (unsigned i = 0; i < 2; i++) {
		CU(COPY_BY_SHIM, cuStreamCreate(&bench_copy_stream[i], CU_STREAM_NON_BLOCKING));
	}
	page->cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

int main(int argc, char **argv)
{
	void *p = MAP_FAILED;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* ignore the terminal's: the coordinator ends this process */
	if (argc == 5 && strcmp(argv[1], "--page") == 0 && strcmp(argv[3], "--libcuda") == 0) {
		p = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED,
			 (int)strtol(argv[2], NULL, 10), 0);
	}
	if (p == MAP_FAILED || ((struct bench_copy_page *)p)->magic != COPY_MAGIC) {
		fprintf(stderr, "bench-copy-client: started by gbpf bench dev copy\n");
		return 2;
	}
	page = p;
	page->pid = (uint32_t)getpid();
	open_library(COPY_BY_SHIM, "libcuda.so.1");
	open_library(COPY_BY_DRIVER, argv[4]);
	open_device();
	serve();
}

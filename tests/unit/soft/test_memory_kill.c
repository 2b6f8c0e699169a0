/* Kills processes that use all kinds of memory, at random moments: none of their memory remains,
 * and their partners continue. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "rig.h"

#include "../eventually.h"

#define GRAIN (2u << 20)
#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 12u /* which take as long as 60 without it; those run elsewhere */
#else
#define ROUNDS 60u
#endif

/* Shared by the test and its children. */
static struct {
	uint32_t steps;	  /* of the process to be killed */
	uint32_t handles; /* number of IPC handles in `handle` */
	CUipcMemHandle handle[16];
	uint32_t stop;	 /* requests the partner to exit */
	uint32_t opened; /* handles that the partner has opened */
} * board;

static const CUmemAllocationProp prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
};

static unsigned draw(unsigned *seed, unsigned below)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 8) % below;
}

static void share_plain(unsigned *seed)
{
	CUipcMemHandle h;
	CUdeviceptr p;
	uint32_t at = load_relaxed(&board->handles);

	CU(cuMemAlloc_v2(&p, 1 + draw(seed, 3 << 20)));
	CU(cuMemsetD8Async(p, 1, 1, NULL));
	CU(cuIpcGetMemHandle(&h, p));
	if (at < 16) {
		board->handle[at] = h;
		store_release(&board->handles, at + 1);
	}
	if (draw(seed, 2)) {
		CU(cuMemFree_v2(p));
	}
}

static void map_physical(unsigned *seed)
{
	CUmemAccessDesc d = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, 3 };
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	int fd;

	CU(cuMemCreate(&h, GRAIN, &prop, 0));
	CU(cuMemAddressReserve(&p, 2 * GRAIN, 0, 0, 0));
	CU(cuMemMap(p, GRAIN, 0, h, 0));
	CU(cuMemSetAccess(p, GRAIN, &d, 1));
	CU(cuMemsetD32Async(p, 7, GRAIN / 4, NULL));
	if (draw(seed, 2)) {
		CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						0));
	}
	CU(cuMemRelease(h));
	if (draw(seed, 2)) {
		CU(cuCtxSynchronize());
		CU(cuMemUnmap(p, GRAIN));
		CU(cuMemAddressFree(p, 2 * GRAIN));
	}
}

static void move_about(unsigned *seed, char *own)
{
	CUdeviceptr p;
	void *host;

	CU(cuMemAllocAsync(&p, 5 << 20, NULL));
	CU(cuMemcpyHtoDAsync_v2(p, own, 4 << 20, NULL));
	CU(cuMemHostRegister_v2(own + 8192, 1 << 20, 0));
	CU(cuMemcpyDtoHAsync_v2(own + 8192, p, 1 << 20, NULL));
	CU(cuMemHostUnregister(own + 8192));
	CU(cuMemFreeAsync(p, NULL));
	CU(cuMemHostAlloc(&host, 1 + draw(seed, 1 << 20), 0));
	CU(cuMemFreeHost(host));
}

static void victim(void *arg)
{
	unsigned seed = *(unsigned *)arg;
	char *own = malloc(5 << 20);

	memset(own, 1, 5 << 20);
	rig_context();
	for (;;) {
		CUdeviceptr p;
		size_t left, total;

		add_acqrel(&board->steps, 1u);
		CU(cuMemGetInfo_v2(&left, &total));
		if (left < 24u << 20) {
			for (;;) { /* memory is full: repeats until it is killed */
				add_acqrel(&board->steps, 1u);
				CU(cuMemAlloc_v2(&p, 1 << 20));
				CU(cuMemFree_v2(p));
			}
		}
		switch (draw(&seed, 3)) {
		case 0:
			share_plain(&seed);
			break;
		case 1:
			map_physical(&seed);
			break;
		default:
			move_about(&seed, own);
		}
	}
}

/* Opens exported memory of the others, uses it, and closes it at a random time. */
static void partner(void *unused)
{
	CUdeviceptr p[8] = { 0 };
	unsigned at = 0;

	(void)unused;
	rig_context();
	while (!load_acquire(&board->stop)) {
		uint32_t n = load_acquire(&board->handles);
		unsigned k = at++ % 8;

		if (p[k]) {
			CU(cuMemsetD8_v2(p[k], 3, 1));
			CU(cuIpcCloseMemHandle(p[k]));
			p[k] = 0;
		}
		/* The owner may free it, or be killed, at any moment. */
		if (n && cuIpcOpenMemHandle_v2(&p[k], board->handle[at % n], 1) != CUDA_SUCCESS) {
			p[k] = 0;
		}
		board->opened += p[k] != 0;
	}
	for (int k = 0; k < 8; k++) {
		if (p[k]) {
			CU(cuIpcCloseMemHandle(p[k]));
		}
	}
	CU(cuCtxSynchronize());
}

static struct soft_stats nothing_left(void)
{
	struct soft_stats s = rig_stats_unshared();

	assert_int_equal(s.pinned_used, 0);
	assert_int_equal(s.allocations, 0);
	return s;
}

static void one_kill(unsigned seed)
{
	unsigned steps = 1 + draw(&seed, 40);
	pid_t pid;

	store_release(&board->handles, 0u);
	store_release(&board->steps, 0u);
	pid = rig_spawn(victim, &seed);
	eventually(load_acquire(&board->steps) >= steps);
	kill(pid, SIGKILL);
	assert_int_equal(rig_wait(pid), 128 + SIGKILL);
}

static void kills_at_any_moment_leave_nothing(void **state)
{
	struct soft_stats before;
	pid_t other;

	(void)state;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_true(board != MAP_FAILED);
	one_kill(1);
	before = nothing_left();
	other = rig_spawn(partner, NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		one_kill(i * 7919 + 3);
	}
	store_release(&board->stop, 1u);
	assert_int_equal(rig_wait(other), 0);
	nothing_left();
	rig_check_descriptors(&before);
	assert_true(board->opened > 0);
}

/* The server lets a new program wait until exited ones have released their memory, but for at most
 * half a second times GBPF_PATIENCE; on a machine so busy that this has passed, waits for the
 * memory. */
#define LEAVE_NS 500000000u
static void await_memory(uint64_t begun, size_t bytes)
{
	size_t left, total;

	if (clock_now_ns() - begun >= clock_patience(LEAVE_NS)) {
		eventually((CU(cuMemGetInfo_v2(&left, &total)), left >= bytes));
	}
}

static void takes_most(void *arg)
{
	uint64_t begun = clock_now_ns();
	CUcontext second;
	CUdeviceptr p;
	void *host = malloc(60u << 20);

	rig_context();
	CU(cuCtxCreate_v2(&second, 0, 0));
	await_memory(begun, 60u << 20);
	CU(cuMemAlloc_v2(&p, 60u << 20));
	CU(cuMemsetD8_v2(p, 1, 60u << 20));
	CHECK(host);
	CU(cuMemcpyDtoH_v2(host, p, 60u << 20));
	free(host);
	if (*(unsigned *)arg % 2) {
		raise(SIGKILL);
	}
}

/* The server learns from a descriptor that a process has exited; the next program may connect
 * before that. */
static void memory_of_an_exited_program_is_reusable(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 24; i++) {
		assert_int_equal(rig_run(takes_most, &i), i % 2 ? 128 + SIGKILL : 0);
	}
}

static int open_server(void **state)
{
	static const char *const args[] = { "--mem", "96M", NULL };

	(void)state;
	rig_open();
	rig_start(args);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kills_at_any_moment_leave_nothing),
		cmocka_unit_test(memory_of_an_exited_program_is_reusable),
	};

	return cmocka_run_group_tests(tests, open_server, rig_end);
}

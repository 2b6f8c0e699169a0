/* Flag pages and the clock: a kernel reads what another process stores, descriptors from outside
 * are checked, and the fallback by stream writes works. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "gpu/flag.h"
#include "ptx/block.h"
#include "rig.h"
#include "table.h"

static struct cuabi_table real;
static int sock[2];

static struct gpu_device *device(void)
{
	struct gpu_device *d;

	table_fill(&real);
	CHECK(gpu_device_create(&d, &real) == 0);
	return d;
}

static void say(int s, int fd)
{
	CHECK(msg_send(s, "x", 1, &fd, fd >= 0) == 0);
}

static int hear(int s)
{
	int fds[FD_PASS_MAX] = { -1 };
	unsigned n = 0;
	char c;

	if (msg_recv(s, &c, 1, fds, &n) != 1) {
		return -2;
	}
	return n ? fds[0] : -1;
}

/* Reads a word as a kernel does. */
static uint32_t word_at(CUdeviceptr p)
{
	CUdeviceptr to;
	uint32_t word;

	CU(cuMemAlloc_v2(&to, sizeof(word)));
	rig_launch(rig_function("copy_first"), 1, 1, NULL, (void *[]){ &to, &p });
	CU(cuMemcpyDtoH_v2(&word, to, sizeof(word)));
	CU(cuMemFree_v2(to));
	return word;
}

/* ---- seen by a kernel ---- */

static void owner_program(void *arg)
{
	CUcontext ctx = rig_context();
	struct gpu_device *d = device();
	struct gpu_flag *f;
	CUdeviceptr word;

	(void)arg;
	CHECK(gpu_flag_create(d, ctx, &f) == 0);
	CHECK(gpu_flag_why(d)[0] == 0);
	CHECK(gpu_flag_fd(f) >= 0);
	CHECK(fcntl(gpu_flag_fd(f), F_GETFD) & FD_CLOEXEC);
	for (uint32_t i = 0; i < GPU_FLAG_BYTES; i += 508) {
		CHECK(word_at(gpu_flag_address(f) + i) == 0);
	}
	word = gpu_flag_address(f) + 4 * 63;
	rig_launch(rig_function("until"), 1, 1, NULL, (void *[]){ &word });
	say(sock[1], gpu_flag_fd(f));
	CU(cuCtxSynchronize());
	CHECK(word_at(word) == 77 && word_at(word - 4) == 0);
	CHECK(gpu_flag_write(f, 2, 5) == 0 && word_at(gpu_flag_address(f) + 8) == 5);
	CHECK(gpu_flag_write(f, 64, 5) == -EINVAL);
	gpu_flag_destroy(f);
	CU(cuCtxSynchronize());
	say(sock[1], -1);
	CHECK(hear(sock[1]) == -1);
	gpu_device_destroy(d);
}

static void a_kernel_sees_what_another_process_stores(void **state)
{
	struct gpu_lease_page p;
	pid_t pid;
	int fd;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	pid = rig_spawn(owner_program, NULL);
	close(sock[1]);
	fd = hear(sock[0]);
	assert_true(fd >= 0);
	assert_int_equal(gpu_lease_map(&p, fd), 0);
	assert_int_equal(p.bytes, GPU_FLAG_BYTES);
	gpu_lease_store(&p, 63, 77);
	gpu_lease_fence();
	assert_int_equal(hear(sock[0]), -1); /* it has seen the store, and destroyed the page */
	gpu_lease_store(&p, 0, 1);	     /* has no effect now */
	gpu_lease_fence();
	say(sock[0], -1);
	assert_int_equal(rig_wait(pid), 0);
	gpu_lease_unmap(&p);
	gpu_lease_unmap(&p);
	close(fd);
	close(sock[0]);
	rig_stats_unshared();
}

/* ---- owners that exit ---- */

static void dying_program(void *arg)
{
	CUcontext ctx = rig_context();
	struct gpu_flag *f;
	CUdeviceptr word;

	(void)arg;
	CHECK(gpu_flag_create(device(), ctx, &f) == 0);
	word = gpu_flag_address(f);
	rig_launch(rig_function("until"), 1, 1, NULL, (void *[]){ &word });
	say(sock[1], gpu_flag_fd(f));
	pause();
}

static void a_page_whose_owner_was_killed_takes_stores(void **state)
{
	struct gpu_lease_page p;
	pid_t pid;
	int fd;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	pid = rig_spawn(dying_program, NULL);
	close(sock[1]);
	fd = hear(sock[0]);
	assert_int_equal(gpu_lease_map(&p, fd), 0);
	kill(pid, SIGKILL);
	assert_int_equal(rig_wait(pid), 128 + SIGKILL);
	rig_stats_idle();
	for (uint32_t i = 0; i < GPU_FLAG_SLOTS; i++) {
		gpu_lease_store(&p, i, i);
	}
	gpu_lease_fence();
	gpu_lease_unmap(&p);
	close(fd);
	close(sock[0]);
	rig_stats_unshared();
}

/* ---- descriptors from outside ---- */

static int memfd(size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void refused(int fd)
{
	struct gpu_lease_page p = { (void *)1, 1 };

	assert_true(gpu_lease_map(&p, fd) < 0);
	assert_ptr_equal(p.word, NULL);
	gpu_lease_unmap(&p);
	close(fd);
}

static void descriptors_that_could_fault_are_refused(void **state)
{
	const int size = F_SEAL_SHRINK | F_SEAL_GROW;
	int pair[2], fd;
	struct gpu_lease_page p;

	(void)state;
	refused(-1);
	refused(open("/dev/null", O_RDWR | O_CLOEXEC));
	refused(open("/dev/zero", O_RDWR | O_CLOEXEC));
	refused(open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
	assert_int_equal(pipe(pair), 0);
	refused(pair[0]);
	close(pair[1]);
	refused(memfd(4096, 0));
	refused(memfd(4096, F_SEAL_GROW));
	refused(memfd(4095, size));
	refused(memfd((64 << 10) + 1, size));
	refused(memfd(4096, size | F_SEAL_WRITE));
	refused(memfd(4096, size | F_SEAL_FUTURE_WRITE));
	fd = memfd(4096, size);
	assert_int_equal(gpu_lease_map(&p, fd), 0);
	gpu_lease_store(&p, 0, 1);
	gpu_lease_unmap(&p);
	close(fd);
}

/* ---- without a descriptor ---- */

static CUresult no_table(const void **ret, const CUuuid *id)
{
	(void)id;
	*ret = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

static void stream_program(void *arg)
{
	CUcontext ctx = rig_context(), now;
	struct gpu_device *d = device();
	struct gpu_flag *f;
	CUdeviceptr word;
	size_t before, after, all;

	(void)arg;
	real.cuGetExportTable = no_table;
	CU(cuMemGetInfo_v2(&before, &all));
	CU(cuCtxPopCurrent_v2(&now));
	CHECK(gpu_flag_create(d, ctx, &f) == 0);
	CU(cuCtxGetCurrent(&now));
	CHECK(now == NULL);
	CHECK(gpu_flag_fd(f) == -1 && gpu_flag_why(d)[0] != 0);
	fprintf(stderr, "why: %s\n", gpu_flag_why(d));
	CU(cuCtxPushCurrent_v2(ctx));
	word = gpu_flag_address(f) + 4;
	CHECK(word_at(word) == 0);
	/* A kernel that waits in the default stream does not block the write. */
	rig_launch(rig_function("until"), 1, 1, NULL, (void *[]){ &word });
	CHECK(gpu_flag_write(f, 1, 9) == 0);
	CU(cuCtxSynchronize());
	CHECK(word_at(word) == 9);
	gpu_flag_destroy(f);
	CU(cuMemGetInfo_v2(&after, &all));
	CHECK(before == after);
	gpu_device_destroy(d);
}

static void without_a_descriptor_words_are_written_by_stream(void **state)
{
	(void)state;
	assert_int_equal(rig_run(stream_program, NULL), 0);
}

/* ---- clock ---- */

static void clock_program(void *arg)
{
	CUcontext ctx = rig_context(), other;
	struct gpu_device *d = device();
	int64_t offset, again, wall;

	(void)arg;
	CHECK(gpu_clock_offset(d, ctx, &offset) == 0);
	CHECK(gpu_clock_offset(d, ctx, &again) == 0);
	/* The soft GPU's %globaltimer is the wall clock. */
	wall = (int64_t)(clock_wall_ns() - clock_now_ns());
	fprintf(stderr, "off by %lld and %lld ns\n", (long long)(offset - wall),
		(long long)(again - wall));
	CHECK(llabs(offset - wall) < 20000000 && llabs(again - wall) < 20000000);
	gpu_context_forget(d, ctx);
	CU(cuCtxDestroy_v2(ctx));
	CHECK(gpu_clock_offset(d, ctx, &again) == -EIO);
	CU(cuCtxCreate_v2(&other, 0, 0));
	CHECK(gpu_clock_offset(d, other, &again) == 0);
	gpu_device_destroy(d);
}

static void the_clocks_differ_by_what_is_measured(void **state)
{
	(void)state;
	assert_int_equal(rig_run(clock_program, NULL), 0);
}

/* The kernels' test: ptx/block.h. */
static bool in_force(uint32_t word, uint64_t gpu_ns)
{
	return (int32_t)(word - (uint32_t)(gpu_ns >> PTX_LEASE_SHIFT)) > 0;
}

static void a_lease_is_never_shorter_than_asked_for(void **state)
{
	static const int64_t offsets[] = { 0, 1700000000123456789, -5000000000,
					   ((int64_t)1 << 48) - 70000 };
	const uint64_t unit = UINT64_C(1) << PTX_LEASE_SHIFT, now = 6000000000;

	(void)state;
	for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
		for (uint64_t ns = 1; ns < 2000000; ns += 1237) {
			uint32_t word = gpu_lease_word(offsets[i], now + ns);
			uint64_t gpu = now + (uint64_t)offsets[i];

			assert_true(word != 0);
			assert_true(in_force(word, gpu + ns - 1));
			assert_false(in_force(word, gpu + ns + 2 * unit));
		}
	}
	assert_int_equal(gpu_lease_word(0, UINT64_C(1) << 48), 1); /* not 0 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_kernel_sees_what_another_process_stores),
		cmocka_unit_test(a_page_whose_owner_was_killed_takes_stores),
		cmocka_unit_test(descriptors_that_could_fault_are_refused),
		cmocka_unit_test(without_a_descriptor_words_are_written_by_stream),
		cmocka_unit_test(the_clocks_differ_by_what_is_measured),
		cmocka_unit_test(a_lease_is_never_shorter_than_asked_for),
	};

	alarm(200);
	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}

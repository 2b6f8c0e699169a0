/* The modelled link between GPU and host: what passes it, how long that takes, and that nothing is
 * modelled without --link-bandwidth. Times have exact lower bounds; upper bounds are tried several
 * times, since a loaded host delays everything. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "cuabi/private.h"
#include "rig.h"

#include "../eventually.h"

#define MIB (1u << 20)
#define RATE "64M"
#define MIB_MS (1000.0 / 64) /* duration of 1 MiB at that rate */
#define LATE_MS 1.0	     /* by which an idle link may have begun earlier */
#define TRIES 20
#define THREADS 256u
#define VECTOR 16u /* bytes of an access of take() */

/* take(p, rounds): each of 256 threads loads 16 bytes in each round, 4096 bytes together;
 * give(p, rounds): stores them; add_one(p): every thread adds 1 to one word. */
static const char own_ptx[] =
	".version 7.0\n.target sm_80\n.address_size 64\n"
	".visible .entry take(.param .u64 at, .param .u32 rounds)\n"
	"{\n"
	" .reg .pred %p<2>;\n .reg .b32 %r<8>;\n .reg .b64 %rd<4>;\n"
	" ld.param.u64 %rd1, [at];\n ld.param.u32 %r1, [rounds];\n"
	" mov.u32 %r2, %tid.x;\n mul.wide.u32 %rd2, %r2, 16;\n add.s64 %rd3, %rd1, %rd2;\n"
	"NEXT:\n"
	" ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd3];\n"
	" add.s64 %rd3, %rd3, 4096;\n sub.s32 %r1, %r1, 1;\n"
	" setp.ne.s32 %p1, %r1, 0;\n @%p1 bra NEXT;\n"
	" ret;\n}\n"
	".visible .entry give(.param .u64 at, .param .u32 rounds)\n"
	"{\n"
	" .reg .pred %p<2>;\n .reg .b32 %r<8>;\n .reg .b64 %rd<4>;\n"
	" ld.param.u64 %rd1, [at];\n ld.param.u32 %r1, [rounds];\n"
	" mov.u32 %r2, %tid.x;\n mul.wide.u32 %rd2, %r2, 16;\n add.s64 %rd3, %rd1, %rd2;\n"
	"NEXT:\n"
	" st.global.v4.u32 [%rd3], {%r1, %r1, %r1, %r1};\n"
	" add.s64 %rd3, %rd3, 4096;\n sub.s32 %r1, %r1, 1;\n"
	" setp.ne.s32 %p1, %r1, 0;\n @%p1 bra NEXT;\n"
	" ret;\n}\n"
	".visible .entry add_one(.param .u64 at)\n"
	"{\n"
	" .reg .b64 %rd<2>;\n"
	" ld.param.u64 %rd1, [at];\n red.global.add.u32 [%rd1], 1;\n"
	" ret;\n}\n";

static const char *const modelled[] = { "--mem", "256M", "--link-bandwidth", RATE, NULL };
static const char *const plain[] = { "--mem", "256M", NULL };

static int begin(void **state)
{
	(void)state;
	rig_open();
	rig_start(modelled);
	return 0;
}

static CUfunction own_function(const char *name)
{
	CUmodule m;
	CUfunction f;

	CU(cuModuleLoadData(&m, own_ptx));
	CU(cuModuleGetFunction(&f, m, name));
	return f;
}

static void launch(CUfunction f, CUdeviceptr p, unsigned mib, CUstream s)
{
	unsigned rounds = mib * (MIB / (THREADS * VECTOR));
	void *params[] = { &p, &rounds };

	rig_launch(f, 1, THREADS, s, params);
}

static CUdeviceptr pinned(unsigned mib)
{
	void *p;

	CU(cuMemAllocHost_v2(&p, (size_t)mib * MIB));
	return (CUdeviceptr)(uintptr_t)p;
}

static CUdeviceptr on_device(unsigned mib)
{
	CUdeviceptr p;

	CU(cuMemAlloc_v2(&p, (size_t)mib * MIB));
	return p;
}

/* Fails unless up and down have grown by these bytes since *before, and stores the new figures. */
static void grown(struct soft_stats *before, uint64_t up, uint64_t down)
{
	struct soft_stats now = rig_stats();

	fprintf(stderr, "up %llu, down %llu bytes\n",
		(unsigned long long)(now.link_up - before->link_up),
		(unsigned long long)(now.link_down - before->link_down));
	CHECK(now.link_up - before->link_up == up);
	CHECK(now.link_down - before->link_down == down);
	*before = now;
}

/* Maps host memory of cuMemCreate for kernels and copies. */
static CUdeviceptr mapped_host(unsigned mib)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_HOST, 0 } };
	CUmemAccessDesc both[2] = {
		{ { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
		{ { CU_MEM_LOCATION_TYPE_HOST, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE }
	};
	CUmemGenericAllocationHandle h;
	size_t bytes = (size_t)mib * MIB;
	CUdeviceptr p;

	CU(cuMemCreate(&h, bytes, &prop, 0));
	CU(cuMemAddressReserve(&p, bytes, 0, 0, 0));
	CU(cuMemMap(p, bytes, 0, h, 0));
	CU(cuMemSetAccess(p, bytes, both, 2));
	return p;
}

static void mapped_program(void *arg)
{
	struct soft_stats s;
	CUdeviceptr host, device;

	(void)arg;
	rig_context();
	host = mapped_host(2);
	device = on_device(2);
	s = rig_stats();
	launch(own_function("take"), host, 2, NULL);
	CU(cuCtxSynchronize());
	grown(&s, 2 * MIB, 0);
	launch(own_function("give"), host, 2, NULL);
	CU(cuCtxSynchronize());
	grown(&s, 0, 2 * MIB);
	CU(cuMemcpyDtoD_v2(device, host, 2 * MIB));
	CU(cuCtxSynchronize());
	grown(&s, 2 * MIB, 0);
}

static void mapped_host_memory_is_counted(void **state)
{
	(void)state;
	assert_int_equal(rig_run(mapped_program, NULL), 0);
}

static void kernels_program(void *arg)
{
	const struct cuabi_soft_table *t = rig_table();
	struct soft_stats s;
	CUdeviceptr host, managed, device, flag;
	void *one[] = { &host }, *flags[] = { &flag };
	int fd;

	(void)arg;
	rig_context();
	host = pinned(1);
	device = on_device(1);
	CU(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	s = rig_stats();
	launch(own_function("take"), host, 1, NULL);
	CU(cuCtxSynchronize());
	grown(&s, MIB, 0);
	launch(own_function("take"), managed, 1, NULL);
	CU(cuCtxSynchronize());
	grown(&s, MIB, 0);
	launch(own_function("give"), host, 1, NULL);
	CU(cuCtxSynchronize());
	grown(&s, 0, MIB);
	launch(own_function("give"), device, 1, NULL);
	launch(own_function("take"), device, 1, NULL);
	CU(cuCtxSynchronize());
	grown(&s, 0, 0);
	rig_launch(own_function("add_one"), 1, 32, NULL, one);
	CU(cuCtxSynchronize());
	CU(t->flag_new(NULL, 4096, CUABI_SOFT_FLAG_KERNELS_WRITE, &flag, &fd));
	rig_launch(own_function("add_one"), 1, 32, NULL, flags);
	CU(cuCtxSynchronize());
	grown(&s, 4, 4); /* one word for the warp, read and written; not the flag page's */
}

static void kernel_accesses_are_counted(void **state)
{
	(void)state;
	assert_int_equal(rig_run(kernels_program, NULL), 0);
}

static void copies_program(void *arg)
{
	struct soft_stats s;
	CUdeviceptr host, device, other;
	char *pageable = calloc(1, MIB);

	(void)arg;
	rig_context();
	CHECK(pageable);
	host = pinned(1);
	device = on_device(1);
	other = on_device(1);
	s = rig_stats();
	CU(cuMemcpyHtoD_v2(device, (void *)(uintptr_t)host, MIB));
	CU(cuCtxSynchronize());
	grown(&s, MIB, 0);
	CU(cuMemcpyDtoH_v2((void *)(uintptr_t)host, device, MIB));
	grown(&s, 0, MIB);
	CU(cuMemcpyHtoD_v2(device, pageable, MIB));
	CU(cuCtxSynchronize());
	grown(&s, MIB, 0);
	CU(cuMemcpyDtoH_v2(pageable, device, 100)); /* small ones, too */
	grown(&s, 0, 100);
	CU(cuMemcpyDtoD_v2(other, device, MIB));
	CU(cuMemsetD8_v2(device, 1, MIB));
	CU(cuCtxSynchronize());
	grown(&s, 0, 0);
	CU(cuMemsetD8_v2(host, 1, MIB));
	CU(cuCtxSynchronize());
	grown(&s, 0, MIB);
	free(pageable);
}

static void copies_are_counted(void **state)
{
	(void)state;
	assert_int_equal(rig_run(copies_program, NULL), 0);
}

/* ---- durations ---- */

/* What run_parts() starts together, in MiB; 0: not. */
struct parts {
	unsigned copy_up, copy_down, kernel_up;
};

static double run_parts(const struct parts *p)
{
	static CUdeviceptr host, device;
	static CUstream a, b, c;
	static CUfunction take;
	uint64_t begin;

	if (!host) {
		rig_context();
		host = pinned(8);
		device = on_device(16);
		take = own_function("take");
		CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
		CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
		CU(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
	}
	begin = clock_now_ns();
	if (p->copy_up) {
		CU(cuMemcpyHtoDAsync_v2(device, (void *)(uintptr_t)host, p->copy_up * MIB, a));
	}
	if (p->copy_down) {
		CU(cuMemcpyDtoHAsync_v2((void *)(uintptr_t)host, device + 8 * MIB,
					p->copy_down * MIB, b));
	}
	if (p->kernel_up) {
		launch(take, host, p->kernel_up, c);
	}
	CU(cuCtxSynchronize());
	return (double)(clock_now_ns() - begin) / 1e6;
}

/* Checks that the parts take as long as that many MiB on one lane of the link: not less, and in one
 * of several runs less than twice that. */
static void takes(const struct parts *p, unsigned mib)
{
	double ms = 0, least = mib * MIB_MS - LATE_MS;

	for (int i = 0; i < TRIES && (i == 0 || ms >= 1.9 * least); i++) {
		ms = run_parts(p);
		fprintf(stderr,
			"copies of %u up, %u down, kernel of %u MiB: %.1f ms, at least %.1f\n",
			p->copy_up, p->copy_down, p->kernel_up, ms, least);
		CHECK(ms >= least);
	}
	CHECK(ms < 1.9 * least);
}

static void durations_program(void *arg)
{
	(void)arg;
	run_parts(&(struct parts){ 1, 1, 1 });
	takes(&(struct parts){ .copy_up = 8 }, 8);
	takes(&(struct parts){ .kernel_up = 8 }, 8);
	takes(&(struct parts){ .copy_up = 8, .kernel_up = 8 }, 16);
}

static void copies_and_kernels_take_the_sum(void **state)
{
	(void)state;
	assert_int_equal(rig_run(durations_program, NULL), 0);
}

static void directions_program(void *arg)
{
	(void)arg;
	run_parts(&(struct parts){ 1, 1, 1 });
	takes(&(struct parts){ .copy_down = 8, .kernel_up = 8 }, 8);
}

static void directions_do_not_share(void **state)
{
	(void)state;
	assert_int_equal(rig_run(directions_program, NULL), 0);
}

/* ---- several processes ---- */

struct board {
	uint32_t ready, go; /* [atomic] */
	double ms[2];
};

static struct board *board;

static void one_of_two(void *arg)
{
	unsigned me = *(const unsigned *)arg;
	struct parts p = { .copy_up = me == 0 ? 8 : 0, .kernel_up = me == 1 ? 8 : 0 };

	run_parts(&(struct parts){ 1, 1, 1 });
	add_relaxed(&board->ready, 1u);
	eventually(load_acquire(&board->go));
	board->ms[me] = run_parts(&p);
}

/* Returns true if both took about the sum: neither had to wait for the other's end. */
static bool two_processes(void)
{
	unsigned number[2] = { 0, 1 };
	pid_t pid[2];

	memset(board, 0, sizeof(*board));
	for (int i = 0; i < 2; i++) {
		pid[i] = rig_spawn(one_of_two, &number[i]);
	}
	eventually(load_relaxed(&board->ready) == 2);
	store_release(&board->go, 1u);
	assert_int_equal(rig_wait(pid[0]), 0);
	assert_int_equal(rig_wait(pid[1]), 0);
	fprintf(stderr, "a copy of 8 MiB %.1f ms, another process's kernel %.1f ms\n", board->ms[0],
		board->ms[1]);
	assert_true(MAX(board->ms[0], board->ms[1]) >= 16 * MIB_MS - LATE_MS);
	return MIN(board->ms[0], board->ms[1]) >= 10 * MIB_MS;
}

static void processes_share_in_time_order(void **state)
{
	bool shared = false;

	(void)state;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_ptr_not_equal(board, MAP_FAILED);
	for (int i = 0; i < TRIES && !shared; i++) {
		shared = two_processes();
	}
	assert_true(shared);
	munmap(board, sizeof(*board));
}

/* ---- without the option ---- */

static void take_program(void *arg)
{
	(void)arg;
	rig_context();
	launch(own_function("take"), pinned(1), 1, NULL);
	CU(cuMemcpyHtoD_v2(on_device(1), (void *)(uintptr_t)pinned(1), MIB));
	CU(cuCtxSynchronize());
}

/* Returns the instructions of take_program(), and its bytes on the link. */
static uint64_t take_with(const char *const *args, uint64_t *ret_bytes)
{
	struct soft_stats after;

	rig_restart(args);
	assert_int_equal(rig_run(take_program, NULL), 0);
	after = rig_stats_idle();
	*ret_bytes = after.link_up;
	return after.warp_instructions;
}

/* An access costs one operation more while it is counted, and otherwise none. */
static void nothing_is_counted_without_the_option(void **state)
{
	uint64_t bytes, counted = take_with(modelled, &bytes), loads = MIB / VECTOR / 32;

	(void)state;
	assert_int_equal(bytes, 2 * MIB);
	assert_int_equal(counted - take_with(plain, &bytes), loads);
	assert_int_equal(bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_accesses_are_counted),
		cmocka_unit_test(copies_are_counted),
		cmocka_unit_test(mapped_host_memory_is_counted),
		cmocka_unit_test(copies_and_kernels_take_the_sum),
		cmocka_unit_test(directions_do_not_share),
		cmocka_unit_test(processes_share_in_time_order),
		cmocka_unit_test(nothing_is_counted_without_the_option),
	};

	return cmocka_run_group_tests(tests, begin, rig_end);
}

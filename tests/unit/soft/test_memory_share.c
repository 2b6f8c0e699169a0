/* Shared memory: IPC handles, and cuMemCreate with its mappings. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "rig.h"

#include "../eventually.h"

#define GRAIN (2u << 20)

static int pair[2]; /* connects the two children */

static void pipe_send(int who, const void *data, size_t n, int fd)
{
	CHECK(msg_send(pair[who], data, n, &fd, fd >= 0) == 0);
}

static void pipe_receive(int who, void *data, size_t n, int *ret_fd)
{
	int fds[FD_PASS_MAX];
	unsigned nfds;

	CHECK(msg_recv(pair[who], data, n, fds, &nfds) == (ssize_t)n);
	if (ret_fd) {
		CHECK(nfds == 1);
		*ret_fd = fds[0];
	}
}

static uint32_t word_at(CUdeviceptr p)
{
	uint32_t v;

	CU(cuMemcpyDtoH_v2(&v, p, sizeof(v)));
	return v;
}

static void nothing_left(void)
{
	struct soft_stats s = rig_stats_unshared();

	assert_int_equal(s.pinned_used, 0);
}

static void run_pair(void (*first)(void *), void (*second)(void *), int expected_first)
{
	pid_t a, b;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	a = rig_spawn(first, NULL);
	b = rig_spawn(second, NULL);
	close(pair[0]);
	close(pair[1]);
	assert_int_equal(rig_wait(b), 0);
	assert_int_equal(rig_wait(a), expected_first);
	nothing_left();
}

/* ---- IPC ---- */

static void exporter(void *unused)
{
	CUipcMemHandle h;
	CUdeviceptr p, q;
	char byte;

	(void)unused;
	close(pair[1]);
	rig_context();
	CU(cuMemAlloc_v2(&p, 100000));
	CU(cuMemsetD32_v2(p, 42, 25000));
	CU(cuCtxSynchronize());
	CU(cuIpcGetMemHandle(&h, p));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&q, h, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, 16));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p));
	pipe_send(0, &h, sizeof(h), -1);
	pipe_receive(0, &byte, 1, NULL); /* the importer has written 43 */
	CHECK(word_at(p + 4 * 24999) == 43);
	CU(cuMemFree_v2(p)); /* the importer keeps using it */
	CU(cuMemAlloc_v2(&q, 100000));
	CHECK(q != p); /* the pages are not allocated again */
	CHECK(word_at(q + 4 * 24999) == 0);
	pipe_send(0, &byte, 1, -1);
	pipe_receive(0, &byte, 1, NULL);
	kill(getpid(), SIGKILL);
}

static void importer(void *unused)
{
	CUipcMemHandle h, wrong;
	CUdeviceptr p, again, base;
	size_t bytes;
	unsigned n = 25000;
	void *params[] = { &p, &p, &p, &n };
	char byte = 1;

	(void)unused;
	close(pair[0]);
	rig_context();
	pipe_receive(1, &h, sizeof(h), NULL);
	wrong = h;
	wrong.reserved[40] ^= 1;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&p, wrong, 1));
	memset(&wrong, 0, sizeof(wrong));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&p, wrong, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&p, h, 6));
	CU(cuIpcOpenMemHandle_v2(&p, h, 1));
	CU(cuIpcOpenMemHandle_v2(&again, h, 1));
	CHECK(again == p);
	CU(cuMemGetAddressRange_v2(&base, &bytes, p + 99999));
	CHECK(base == p && bytes == 100000);
	CHECK(word_at(p) == 42);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p));
	CU(cuMemsetD32_v2(p, 43, 25000));
	CU(cuCtxSynchronize());
	pipe_send(1, &byte, 1, -1);
	pipe_receive(1, &byte, 1, NULL); /* the exporter has freed it */
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&wrong, p));
	rig_launch(rig_function("add"), 100, 256, NULL, params);
	CHECK(word_at(p + 4 * 24999) == 86);
	CU(cuIpcCloseMemHandle(p));
	CHECK(word_at(p) == 86);
	CU(cuIpcCloseMemHandle(p));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&p, h, 1));
	pipe_send(1, &byte, 1, -1);
}

static void memory_lives_until_its_last_user_has_gone(void **state)
{
	(void)state;
	run_pair(exporter, importer, 128 + SIGKILL);
}

static void dying_exporter(void *unused)
{
	CUipcMemHandle h;
	CUdeviceptr p, other;

	(void)unused;
	close(pair[1]);
	rig_context();
	CU(cuMemAlloc_v2(&other, 5 << 20));
	CU(cuMemAlloc_v2(&p, 4096));
	CU(cuMemsetD32_v2(p, 7, 1024));
	CU(cuCtxSynchronize());
	CU(cuIpcGetMemHandle(&h, p));
	pipe_send(0, &h, sizeof(h), -1);
	pipe_receive(0, &h, 1, NULL);
	kill(getpid(), SIGKILL);
}

static void surviving_importer(void *unused)
{
	CUipcMemHandle h;
	CUdeviceptr p;
	CUcontext other;

	(void)unused;
	close(pair[0]);
	rig_context();
	pipe_receive(1, &h, sizeof(h), NULL);
	CU(cuIpcOpenMemHandle_v2(&p, h, 1));
	pipe_send(1, &h, 1, -1);
	/* Only the module's variable and this range remain. */
	eventually(rig_stats().memory_used <= 2 * 4096);
	CHECK(word_at(p + 4092) == 7);
	CU(cuCtxCreate_v2(&other, 0, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&p, h, 1));
}

static void memory_outlives_the_process_that_exported_it(void **state)
{
	(void)state;
	run_pair(dying_exporter, surviving_importer, 128 + SIGKILL);
}

static void what_has_no_handle(void *unused)
{
	CUipcMemHandle h;
	CUdeviceptr p;
	void *host;
	size_t bytes;
	CUmodule m;

	(void)unused;
	rig_context();
	CU(cuMemAllocManaged(&p, 4096, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, p));
	CU(cuMemHostAlloc(&host, 4096, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, (CUdeviceptr)(uintptr_t)host));
	CU(cuModuleLoadData(&m, rig_ptx));
	CU(cuModuleGetGlobal_v2(&p, &bytes, m, "counter"));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, p));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, p));
}

static void only_plain_allocations_have_handles(void **state)
{
	(void)state;
	assert_int_equal(rig_run(what_has_no_handle, NULL), 0);
	nothing_left();
}

/* ---- physical memory and addresses ---- */

static const CUmemAllocationProp prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
};

static void allow(CUdeviceptr p, size_t n, CUmemAccess_flags flags)
{
	CUmemAccessDesc d = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, flags };

	CU(cuMemSetAccess(p, n, &d, 1));
}

static void map_twice(void *unused)
{
	CUmemGenericAllocationHandle h, h2, kept;
	CUdeviceptr p, q;
	CUmemAllocationProp got;
	unsigned long long access;
	CUmemLocation here = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	size_t grain, free_before, free_now, total;

	(void)unused;
	rig_context();
	CU(cuMemGetInfo_v2(&free_before, &total));
	CU(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK(grain == GRAIN);
	CU(cuMemCreate(&h, GRAIN, &prop, 0));
	CU(cuMemCreate(&h2, 2 * GRAIN, &prop, 0));
	CU(cuMemAddressReserve(&p, 8ull * GRAIN, 0, 0, 0));
	CHECK(p % GRAIN == 0);
	CU(cuMemAddressReserve(&q, 4ull * GRAIN, 64 << 20, 0, 0));
	CHECK(q % (64 << 20) == 0);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(p + 7ull * GRAIN, 2 * GRAIN, 0, h2, 0));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(p, 2 * GRAIN, 0, h, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(p + 4096, GRAIN, 0, h, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(p, GRAIN, 0, 0x1234, 0));
	CU(cuMemMap(p, GRAIN, 0, h, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(p, GRAIN, 0, h, 0));
	CU(cuMemMap(p + GRAIN, 2 * GRAIN, 0, h2, 0));
	CU(cuMemMap(q, GRAIN, 0, h, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(p, 1, GRAIN)); /* no rights yet */
	allow(p, 3 * GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	allow(q, GRAIN, CU_MEM_ACCESS_FLAGS_PROT_READ);
	CU(cuMemGetAccess(&access, &here, q));
	CHECK(access == CU_MEM_ACCESS_FLAGS_PROT_READ);
	CU(cuMemsetD32_v2(p, 77, 3 * GRAIN / 4)); /* across both mappings */
	CHECK(word_at(q + GRAIN - 4) == 77);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(q, 1, 1));
	CU(cuMemGetAllocationPropertiesFromHandle(&got, h));
	CHECK(memcmp(&got, &prop, sizeof(got)) == 0);
	CU(cuMemRetainAllocationHandle(&kept, (void *)(uintptr_t)(p + 100)));
	CHECK(kept == h);
	CU(cuMemRelease(h));
	CU(cuMemRelease(h));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(h));
	CU(cuMemRelease(h2));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(p + GRAIN, GRAIN));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(p, 4 * GRAIN));
	CU(cuMemUnmap(p, 3 * GRAIN));
	CHECK(word_at(q) == 77);
	CU(cuMemGetInfo_v2(&free_now, &total));
	CHECK(free_now == free_before - GRAIN);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(q, 4ull * GRAIN));
	CU(cuMemUnmap(q, GRAIN));
	CU(cuMemAddressFree(q, 4ull * GRAIN));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(p, GRAIN));
	CU(cuMemAddressFree(p, 8ull * GRAIN));
	CU(cuMemGetInfo_v2(&free_now, &total));
	CHECK(free_now == free_before);
}

static void memory_is_mapped_where_wanted(void **state)
{
	(void)state;
	assert_int_equal(rig_run(map_twice, NULL), 0);
	nothing_left();
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle h, CUmemAccess_flags flags)
{
	CUdeviceptr p;

	CU(cuMemAddressReserve(&p, GRAIN, 0, 0, 0));
	CU(cuMemMap(p, GRAIN, 0, h, 0));
	allow(p, GRAIN, flags);
	return p;
}

static void write_read_only(void *unused)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p, q;
	void *params[] = { &p, &q };

	(void)unused;
	rig_context();
	CU(cuMemCreate(&h, GRAIN, &prop, 0));
	p = mapped(h, CU_MEM_ACCESS_FLAGS_PROT_READ);
	CU(cuMemAlloc_v2(&q, 4096));
	params[0] = &q;
	params[1] = &p;
	rig_launch(rig_function("copy_first"), 1, 1, NULL, params); /* needs the right to read */
	CU(cuCtxSynchronize());
	params[0] = &p;
	params[1] = &q;
	rig_launch(rig_function("copy_first"), 1, 1, NULL, params); /* needs the right to write */
	CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void rights_hold_for_kernels(void **state)
{
	(void)state;
	assert_int_equal(rig_run(write_read_only, NULL), 0);
	nothing_left();
}

/* Returns what NVML shows of this process on the first GPU. */
static uint64_t own_bytes(void)
{
	struct soft_request q = { .op = SOFT_REQ_GPUS };
	static struct soft_reply r;
	int fds[FD_PASS_MAX], sock = rig_connect();
	uint64_t bytes = 0;
	unsigned n;

	CHECK(msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0) == 0);
	CHECK(msg_recv(sock, &r, sizeof(r), fds, &n) >= (ssize_t)SOFT_REPLY_MIN);
	close(sock);
	CHECK(r.gpu.n == r.gpu.groups);
	for (uint32_t i = 0; i < r.gpu.n; i++) {
		bytes += r.gpu.group[i].pid == getpid() ? r.gpu.group[i].memory_bytes : 0;
	}
	return bytes;
}

static void created_program(void *unused)
{
	CUmemGenericAllocationHandle h, h2;
	CUcontext second;
	CUdeviceptr p;
	uint64_t before;
	int fd;

	(void)unused;
	rig_context();
	before = own_bytes();
	CU(cuMemCreate(&h, GRAIN, &prop, 0));
	CHECK(own_bytes() == before + GRAIN);
	CU(cuCtxCreate_v2(&second, 0, 0));
	CHECK(own_bytes() == before + GRAIN); /* once for the process */
	CU(cuMemCreate(&h2, 2 * GRAIN, &prop, 0));
	CHECK(own_bytes() == before + 3 * GRAIN);
	CU(cuMemRelease(h2));
	CHECK(own_bytes() == before + GRAIN);
	CU(cuMemAddressReserve(&p, GRAIN, 0, 0, 0));
	CU(cuMemMap(p, GRAIN, 0, h, 0));
	CU(cuMemRelease(h));
	CHECK(own_bytes() == before + GRAIN); /* the mapping keeps it */
	CU(cuMemUnmap(p, GRAIN));
	CHECK(own_bytes() == before);
	CU(cuMemAddressFree(p, GRAIN));
	CU(cuMemCreate(&h, GRAIN, &prop, 0));
	CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(cuMemImportFromShareableHandle(&h2, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(own_bytes() == before + GRAIN); /* of which it has two handles */
	CU(cuMemRelease(h2));
	CU(cuMemRelease(h));
	CHECK(own_bytes() == before); /* others could have it by the descriptor */
	close(fd);
}

static void created_memory_is_the_process_s(void **state)
{
	(void)state;
	assert_int_equal(rig_run(created_program, NULL), 0);
	nothing_left();
}

static void handle_giver(void *unused)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	char byte = 1;
	int fd, fabric;
	uint64_t before;

	(void)unused;
	close(pair[1]);
	rig_context();
	before = own_bytes();
	CU(cuMemCreate(&h, GRAIN, &prop, 0));
	p = mapped(h, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CU(cuMemsetD32_v2(p, 5, GRAIN / 4));
	CU(cuCtxSynchronize());
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemExportToShareableHandle(&fabric, h, CU_MEM_HANDLE_TYPE_FABRIC, 0));
	CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	pipe_send(0, &byte, 1, fd);
	close(fd);
	pipe_receive(0, &byte, 1, NULL);
	CHECK(word_at(p) == 6);
	CHECK(own_bytes() == before + GRAIN);
	kill(getpid(), SIGKILL);
}

static void handle_taker(void *unused)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	char byte = 1;
	uint64_t before;
	int fd;

	(void)unused;
	close(pair[0]);
	rig_context();
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)0,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	pipe_receive(1, &byte, 1, &fd);
	before = own_bytes();
	CU(cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CHECK(own_bytes() == before); /* it is the maker's */
	p = mapped(h, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CU(cuMemRelease(h));
	CHECK(word_at(p + GRAIN - 4) == 5);
	CU(cuMemsetD32_v2(p, 6, 1));
	CU(cuCtxSynchronize());
	pipe_send(1, &byte, 1, -1);
	CHECK(read(pair[1], &byte, 1) <= 0); /* the exporter has been killed */
	CHECK(word_at(p) == 6);
}

static void handles_travel_by_descriptor(void **state)
{
	(void)state;
	run_pair(handle_giver, handle_taker, 128 + SIGKILL);
}

/* Descriptors that cannot be sent or received are errors of the call, not of the connection. */
static void bad_descriptors(void *unused)
{
	CUmemGenericAllocationHandle h, other;
	struct rlimit all, few;
	int fd;

	(void)unused;
	rig_context();
	CU(cuMemCreate(&h, GRAIN, &prop, 0));
	CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemImportFromShareableHandle(&other, (void *)(uintptr_t)fd,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0);
	few = (struct rlimit){ .rlim_cur = 0, .rlim_max = all.rlim_max };
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	CU_IS(CUDA_ERROR_OPERATING_SYSTEM,
	      cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
	CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(cuMemImportFromShareableHandle(&other, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(cuMemRelease(other));
	CU(cuMemRelease(h));
	CU(cuCtxSynchronize());
}

static void bad_descriptors_do_not_end_the_connection(void **state)
{
	(void)state;
	assert_int_equal(rig_run(bad_descriptors, NULL), 0);
}

static void killed_with_descriptors(void *unused)
{
	CUmemGenericAllocationHandle h;
	int fd;

	(void)unused;
	rig_context();
	for (int i = 0; i < 8; i++) {
		CU(cuMemCreate(&h, GRAIN, &prop, 0));
		CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						0));
		mapped(h, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	}
	kill(getpid(), SIGKILL);
}

static void kills_leave_nothing(void **state)
{
	struct soft_stats before;

	(void)state;
	rig_run(killed_with_descriptors, NULL);
	nothing_left();
	before = rig_stats_idle();
	for (int i = 0; i < 20; i++) {
		assert_int_equal(rig_run(killed_with_descriptors, NULL), 128 + SIGKILL);
	}
	nothing_left();
	rig_stats_idle();
	rig_check_descriptors(&before);
}

static void hostile(void *unused)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp p = prop;
	CUdeviceptr a;
	size_t n;

	(void)unused;
	rig_context();
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, 0, &prop, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, GRAIN + 1, &prop, 0));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&h, ~0ull / GRAIN * GRAIN, &prop, 0));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&h, 1ull << 50, &prop, 0));
	p.location.id = 77;
	CU_IS(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&h, GRAIN, &p, 0));
	p = prop;
	p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&h, GRAIN, &p, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&n, NULL, 0));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&a, ~0ull / GRAIN * GRAIN, 0, 0, 0));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&a, 1ull << 60, 0, 0, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, GRAIN, 3, 0, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, GRAIN, 1ull << 60, 0, 0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(1, GRAIN));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(~0ull, ~0ull));
	CU(cuMemAlloc_v2(&a, GRAIN));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(a, GRAIN));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, GRAIN));
}

static void out_of_range_sizes_are_refused(void **state)
{
	(void)state;
	assert_int_equal(rig_run(hostile, NULL), 0);
	nothing_left();
}

/* Memory belongs to one GPU; other GPUs reach it only by copies. */
static void second_gpu(void *unused)
{
	CUmemAccessDesc both[2] = { { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, 3 },
				    { { CU_MEM_LOCATION_TYPE_DEVICE, 1 }, 3 } };
	CUmemLocation here = { CU_MEM_LOCATION_TYPE_DEVICE, 1 };
	CUmemAllocationProp there = prop;
	CUmemGenericAllocationHandle h;
	unsigned long long access;
	CUmemoryPool pool[2];
	CUcontext zero = rig_context(), one;
	CUdeviceptr p, q, r;
	size_t left[2], total;
	int ordinal;

	(void)unused;
	CU(cuMemAlloc_v2(&p, GRAIN));
	CU(cuMemsetD32_v2(p, 5, GRAIN / 4));
	CU(cuMemGetInfo_v2(&left[0], &total));
	CU(cuCtxCreate_v2(&one, 0, 1));
	there.location.id = 1;
	CU(cuMemCreate(&h, GRAIN, &there, 0));
	CU(cuMemAddressReserve(&q, GRAIN, 0, 0, 0));
	CU(cuMemMap(q, GRAIN, 0, h, 0));
	CU(cuMemSetAccess(q, GRAIN, both, 2));
	CU(cuMemGetAccess(&access, &here, q));
	CHECK(access == 3);
	CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, q));
	CHECK(ordinal == 1);
	CU(cuMemGetInfo_v2(&left[1], &total));
	CHECK(left[1] == total - GRAIN);
	CU(cuMemcpyPeer(q, one, p, zero, GRAIN));
	CHECK(word_at(q + GRAIN - 4) == 5);
	CU(cuDeviceGetDefaultMemPool(&pool[0], 0));
	CU(cuDeviceGetDefaultMemPool(&pool[1], 1));
	CHECK(pool[0] != pool[1]);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(1, pool[0]));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemAllocFromPoolAsync(&r, 4096, pool[0], NULL));
	CU(cuMemAllocAsync(&r, 4096, NULL));
	CU(cuCtxSetCurrent(zero));
	CU(cuMemGetInfo_v2(&left[1], &total));
	CHECK(left[0] == left[1]);
}

static void memory_belongs_to_one_gpu(void **state)
{
	(void)state;
	assert_int_equal(rig_run(second_gpu, NULL), 0);
	nothing_left();
}

/* Requests with random numbers, on two connections that exchange handles: errors, but no harm and
 * no leaks. */
struct peer_client {
	int sock, fds[3];
};

static uint64_t draw(uint64_t *seed, uint64_t below)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (*seed >> 33) % below;
}

static bool call(struct peer_client *c, struct soft_request *q, int fd, struct soft_reply *r,
		 int *ret_fd)
{
	int fds[FD_PASS_MAX];
	unsigned n = 0;

	assert_int_equal(msg_send(c->sock, q, SOFT_REQUEST_MIN + 1, &fd, fd >= 0), 0);
	assert_true(msg_recv(c->sock, r, sizeof(*r), fds, &n) >= (ssize_t)SOFT_REPLY_MIN);
	while (n > (ret_fd ? 1 : 0)) {
		close(fds[--n]);
	}
	if (ret_fd) {
		*ret_fd = n ? fds[0] : -1;
	}
	return r->result == CUDA_SUCCESS;
}

static void connect_peer(struct peer_client *c)
{
	struct soft_request q = { .op = SOFT_REQ_HELLO, .object = SOFT_VERSION };
	static struct soft_reply r;
	int fds[FD_PASS_MAX];
	unsigned n;

	c->sock = rig_connect();
	assert_int_equal(msg_send(c->sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
	assert_true(msg_recv(c->sock, &r, sizeof(r), fds, &n) > 0);
	assert_int_equal(n, 3);
	memcpy(c->fds, fds, sizeof(c->fds));
}

static void drop_peer(struct peer_client *c)
{
	for (int i = 0; i < 3; i++) {
		close(c->fds[i]);
	}
	close(c->sock);
}

#define KNOWN 16

static void random_requests_leave_nothing(void **state)
{
	static const uint32_t ops[] = {
		SOFT_REQ_ALLOC,
		SOFT_REQ_ALLOC,
		SOFT_REQ_FREE,
		SOFT_REQ_IPC_EXPORT,
		SOFT_REQ_IPC_OPEN,
		SOFT_REQ_IPC_CLOSE,
		SOFT_REQ_RESERVE,
		SOFT_REQ_UNRESERVE,
		SOFT_REQ_MAP,
		SOFT_REQ_MAP,
		SOFT_REQ_UNMAP,
		SOFT_REQ_ACCESS,
		SOFT_REQ_POOL_EXPORT,
		SOFT_REQ_POOL_IMPORT,
		SOFT_REQ_HANDLE_CREATE,
		SOFT_REQ_HANDLE_RELEASE,
		SOFT_REQ_HANDLE_EXPORT,
		SOFT_REQ_HANDLE_IMPORT,
		SOFT_REQ_CONTEXT_CREATE,
		SOFT_REQ_CONTEXT_DESTROY,
	};
	uint64_t seed = 4711, known[KNOWN] = { 0 };
	struct soft_ipc_handle handles[KNOWN] = { 0 };
	int tokens[KNOWN];
	struct peer_client c[2];
	static struct soft_reply r;
	unsigned good = 0;

	(void)state;
	memset(tokens, 0xff, sizeof(tokens));
	connect_peer(&c[0]);
	connect_peer(&c[1]);
	for (int i = 0; i < 30000; i++) {
		struct soft_request q = { .op = ops[draw(&seed, sizeof(ops) / sizeof(ops[0]))],
					  .context = (uint32_t)draw(&seed, 3),
					  .object = (uint32_t)draw(&seed, 5) };
		uint64_t slot = draw(&seed, KNOWN), size = (1 + draw(&seed, 6)) * (GRAIN / 2);
		unsigned who = (unsigned)draw(&seed, 2);
		int fd = -1, got = -1;

		if (q.op == SOFT_REQ_CONTEXT_DESTROY && draw(&seed, 20)) {
			continue;
		}
		q.value = draw(&seed, 4) ? known[draw(&seed, KNOWN)] : size;
		q.more[0] = draw(&seed, 8) ? size : seed;
		q.more[1] = draw(&seed, 3) ? 0 : known[draw(&seed, KNOWN)];
		q.more[2] = 1 + draw(&seed, 12);
		switch (q.op) {
		case SOFT_REQ_ALLOC:
		case SOFT_REQ_RESERVE:
		case SOFT_REQ_HANDLE_CREATE:
			q.value = draw(&seed, 30) ? size : seed;
			q.more[0] = draw(&seed, 3) ? 0 : 1ull << draw(&seed, 40);
			break;
		case SOFT_REQ_HANDLE_RELEASE:
		case SOFT_REQ_HANDLE_EXPORT:
			q.value = 1 + draw(&seed, 12);
			break;
		case SOFT_REQ_HANDLE_IMPORT:
		case SOFT_REQ_POOL_IMPORT:
			fd = draw(&seed, 10) ? tokens[slot] : c[0].fds[draw(&seed, 3)];
			break;
		case SOFT_REQ_IPC_OPEN:
			memcpy(q.more, &handles[slot], sizeof(handles[slot]));
			break;
		case SOFT_REQ_POOL_EXPORT:
			q.value = draw(&seed, 3);
			break;
		default:
			break;
		}
		if (!call(&c[who], &q, fd, &r, &got)) {
			assert_int_equal(got, -1);
			continue;
		}
		good++;
		if (q.op == SOFT_REQ_IPC_EXPORT) {
			handles[slot] = r.ipc;
		} else if (r.value) {
			known[slot] = r.value;
		}
		if (got >= 0 && (q.op == SOFT_REQ_HANDLE_EXPORT || q.op == SOFT_REQ_POOL_EXPORT)) {
			fd_close(tokens[slot]);
			tokens[slot] = got;
		} else {
			fd_close(got);
		}
		if (i % 5000 == 4999) { /* one of them exits with everything it holds */
			drop_peer(&c[who]);
			connect_peer(&c[who]);
		}
	}
	assert_true(good > 3000);
	drop_peer(&c[0]);
	drop_peer(&c[1]);
	for (int i = 0; i < KNOWN; i++) {
		fd_close(tokens[i]);
	}
	nothing_left();
}

static int open_server(void **state)
{
	static const char *const args[] = { "--mem", "256M", "--gpus", "2", NULL };

	(void)state;
	rig_open();
	rig_start(args);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_lives_until_its_last_user_has_gone),
		cmocka_unit_test(memory_outlives_the_process_that_exported_it),
		cmocka_unit_test(only_plain_allocations_have_handles),
		cmocka_unit_test(memory_is_mapped_where_wanted),
		cmocka_unit_test(rights_hold_for_kernels),
		cmocka_unit_test(created_memory_is_the_process_s),
		cmocka_unit_test(handles_travel_by_descriptor),
		cmocka_unit_test(bad_descriptors_do_not_end_the_connection),
		cmocka_unit_test(kills_leave_nothing),
		cmocka_unit_test(out_of_range_sizes_are_refused),
		cmocka_unit_test(memory_belongs_to_one_gpu),
		cmocka_unit_test(random_requests_leave_nothing),
	};

	return cmocka_run_group_tests(tests, open_server, rig_end);
}

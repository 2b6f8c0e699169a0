/* Handles of host memory, of cuMemCreate with the locations HOST and HOST_NUMA, and the rights to
 * their mappings. Expected answers were measured on an H200, except those to FABRIC, to ranges that
 * mappings do not fill, to exports of handles without a type, to cuMemHostGetFlags before the
 * program has rights, and to copies without rights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/fd.h"
#include "rig.h"

#define GRAIN (2u << 20)
#define NONE CU_MEM_ACCESS_FLAGS_PROT_NONE
#define READ CU_MEM_ACCESS_FLAGS_PROT_READ
#define WRITE CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static const CUmemLocation gpu = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
static const CUmemLocation any_node = { CU_MEM_LOCATION_TYPE_HOST, 0 };
static const CUmemLocation node_0 = { CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 };

static void nothing_left(void)
{
	assert_int_equal(rig_stats_unshared().pinned_used, 0);
}

static void run(void (*program)(void *))
{
	assert_int_equal(rig_run(program, NULL), 0);
	nothing_left();
}

static CUmemAllocationProp prop_of(CUmemLocation where, unsigned types)
{
	return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .requestedHandleTypes = (CUmemAllocationHandleType)types,
				      .location = where };
}

static CUresult create(CUmemGenericAllocationHandle *ret, CUmemLocation where, unsigned types)
{
	CUmemAllocationProp p = prop_of(where, types);

	return cuMemCreate(ret, GRAIN, &p, 0);
}

static CUmemGenericAllocationHandle created(CUmemLocation where)
{
	CUmemGenericAllocationHandle h;

	CU(create(&h, where, 0));
	return h;
}

static CUresult allow(CUdeviceptr p, size_t bytes, CUmemLocation where, CUmemAccess_flags flags)
{
	CUmemAccessDesc d = { where, flags };

	return cuMemSetAccess(p, bytes, &d, 1);
}

/* Maps a handle as the second unit of four reserved ones, without any rights. */
static CUdeviceptr mapped(CUmemGenericAllocationHandle h)
{
	CUdeviceptr p;

	CU(cuMemAddressReserve(&p, 4ull * GRAIN, 0, 0, 0));
	CU(cuMemMap(p + GRAIN, GRAIN, 0, h, 0));
	return p + GRAIN;
}

static uint32_t word_at(CUdeviceptr p)
{
	uint32_t v;

	CU(cuMemcpyDtoH_v2(&v, p, sizeof(v)));
	return v;
}

static volatile uint32_t *words(CUdeviceptr p)
{
	return (volatile uint32_t *)(uintptr_t)p;
}

/* Returns the program's rights to a page: the kernel reads and writes it without raising a signal.
 */
static unsigned cpu_rights(CUdeviceptr p)
{
	void *at = (void *)(uintptr_t)p;
	unsigned rights;
	char byte;
	int ends[2];

	CHECK(pipe(ends) == 0);
	rights = write(ends[1], at, 1) == 1 ? READ : NONE;
	CHECK(rights || write(ends[1], "", 1) == 1);
	rights |= read(ends[0], at, 1) == 1 ? WRITE : NONE;
	CHECK((rights & 2) || read(ends[0], &byte, 1) == 1);
	close(ends[0]);
	close(ends[1]);
	return rights;
}

static unsigned long long access_of(CUdeviceptr p, CUmemLocation where)
{
	unsigned long long flags = 99;

	CU(cuMemGetAccess(&flags, &where, p));
	return flags;
}

/* ---- what cuMemCreate accepts ---- */

static const struct {
	CUmemLocation where;
	unsigned types;
	CUresult expected;
} requests[] = {
	{ { CU_MEM_LOCATION_TYPE_HOST, 0 }, 0, CUDA_SUCCESS },
	{ { CU_MEM_LOCATION_TYPE_HOST, 7 }, 0, CUDA_SUCCESS },
	{ { CU_MEM_LOCATION_TYPE_HOST, -1 }, 0, CUDA_SUCCESS },
	{ { CU_MEM_LOCATION_TYPE_HOST, 0 }, FD, CUDA_ERROR_INVALID_VALUE },
	{ { CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 }, 0, CUDA_SUCCESS },
	{ { CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 }, FD, CUDA_SUCCESS },
	{ { CU_MEM_LOCATION_TYPE_HOST_NUMA, 1 }, 0, CUDA_ERROR_INVALID_VALUE },
	{ { CU_MEM_LOCATION_TYPE_HOST_NUMA, -1 }, 0, CUDA_ERROR_INVALID_VALUE },
	{ { CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 },
	  CU_MEM_HANDLE_TYPE_WIN32,
	  CUDA_ERROR_INVALID_VALUE },
	{ { CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 },
	  CU_MEM_HANDLE_TYPE_FABRIC,
	  CUDA_ERROR_NOT_SUPPORTED }, /* the soft GPU has no fabric */
	{ { CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0 }, 0, CUDA_ERROR_INVALID_VALUE },
	{ { CU_MEM_LOCATION_TYPE_INVALID, 0 }, 0, CUDA_ERROR_INVALID_VALUE },
	{ { (CUmemLocationType)9, 0 }, 0, CUDA_ERROR_INVALID_VALUE },
	{ { CU_MEM_LOCATION_TYPE_DEVICE, 77 }, 0, CUDA_ERROR_INVALID_DEVICE },
};

static void creating_program(void *unused)
{
	CUmemGenericAllocationHandle h;
	size_t grain;

	(void)unused;
	rig_context();
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		CUmemAllocationProp p = prop_of(requests[i].where, requests[i].types);

		CU_IS(requests[i].expected, cuMemCreate(&h, GRAIN, &p, 0));
		grain = 0;
		CU(cuMemGetAllocationGranularity(&grain, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
		CHECK(grain == GRAIN);
	}
}

static void handles_are_made_of_node_0_or_of_any_node(void **state)
{
	(void)state;
	run(creating_program);
}

/* ---- rights ---- */

static void sharing_program(void *unused)
{
	CUdeviceptr p, counter;
	void *params[] = { &p, &counter };

	(void)unused;
	rig_context();
	p = mapped(created(node_0));
	CU(cuMemAlloc_v2(&counter, 4096));
	CU(cuMemsetD32_v2(counter, 42, 1));
	CU(allow(p, GRAIN, gpu, WRITE));
	CU(allow(p, GRAIN, any_node, WRITE));
	words(p)[1] = 41;
	CHECK(word_at(p + 4) == 41);
	rig_launch(rig_function("copy_first"), 1, 1, NULL, params);
	CU(cuCtxSynchronize());
	CHECK(*words(p) == 42 && words(p)[1] == 41);
	CU(cuMemsetD32_v2(p + GRAIN - 4, 43, 1));
	CU(cuCtxSynchronize());
	CHECK(words(p + GRAIN - 4)[0] == 43);
	CU(cuMemUnmap(p, GRAIN));
	CHECK(cpu_rights(p) == NONE);
}

static void the_program_and_kernels_share_the_memory(void **state)
{
	(void)state;
	run(sharing_program);
}

/* Checks the rights that the program has, and those that it is shown. */
static void expect_rights(CUdeviceptr p, unsigned of_gpu, unsigned of_cpu)
{
	CHECK(cpu_rights(p) == of_cpu);
	CHECK(access_of(p, gpu) == of_gpu);
	CHECK(access_of(p, node_0) == of_cpu);
	CHECK(access_of(p, any_node) == (of_cpu ? of_cpu : of_gpu));
}

static void rights_program(void *unused)
{
	CUmemLocation node = { CU_MEM_LOCATION_TYPE_HOST_NUMA, -1 };
	CUmemLocation other = { CU_MEM_LOCATION_TYPE_HOST, 9 };
	CUmemLocation current = { CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0 };
	CUmemLocation no_gpu = { CU_MEM_LOCATION_TYPE_DEVICE, 77 };
	unsigned long long flags;
	CUdeviceptr p;

	(void)unused;
	rig_context();
	p = mapped(created(any_node));
	expect_rights(p, NONE, NONE);
	CU(allow(p, GRAIN, other, WRITE));
	expect_rights(p, NONE, WRITE);
	CU(allow(p, GRAIN, gpu, READ));
	expect_rights(p, READ, WRITE);
	CU(allow(p, GRAIN, node, READ));
	expect_rights(p, READ, READ);
	CU(allow(p, GRAIN, node_0, NONE));
	expect_rights(p, READ, NONE);
	CU_IS(CUDA_ERROR_INVALID_VALUE, allow(p, GRAIN, any_node, (CUmemAccess_flags)2));
	CU_IS(CUDA_ERROR_INVALID_VALUE, allow(p, GRAIN, current, WRITE));
	CU_IS(CUDA_ERROR_INVALID_VALUE, allow(p, 2ull * GRAIN, any_node, WRITE));
	CU_IS(CUDA_ERROR_INVALID_VALUE, allow(p + 4096, 4096, any_node, WRITE));
	CU_IS(CUDA_ERROR_INVALID_DEVICE, cuMemGetAccess(&flags, &current, p));
	CU_IS(CUDA_ERROR_INVALID_DEVICE, cuMemGetAccess(&flags, &no_gpu, p));
	expect_rights(p, READ, NONE);
}

static void rights_are_those_that_were_set(void **state)
{
	(void)state;
	run(rights_program);
}

static void device_program(void *unused)
{
	CUmemAccessDesc both[2] = { { gpu, WRITE }, { any_node, WRITE } };
	CUmemLocation current = { CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0 };
	CUdeviceptr p;

	(void)unused;
	rig_context();
	p = mapped(created(gpu));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, allow(p, GRAIN, any_node, WRITE));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, allow(p, GRAIN, node_0, READ));
	CU_IS(CUDA_ERROR_INVALID_VALUE, allow(p, GRAIN, current, WRITE));
	CU(allow(p, GRAIN, any_node, NONE));
	expect_rights(p, NONE, NONE);
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuMemSetAccess(p, GRAIN, both, 2));
	expect_rights(p, WRITE, NONE); /* the first one holds */
	CU(cuMemMap(p + GRAIN, GRAIN, 0, created(node_0), 0));
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, allow(p, 2ull * GRAIN, any_node, WRITE));
	CHECK(cpu_rights(p + GRAIN) == NONE);
}

static void the_program_gets_no_rights_to_device_memory(void **state)
{
	(void)state;
	run(device_program);
}

/* Copies by host addresses need the program's rights or those of the GPU, others those of the GPU.
 * A synchronous one has ended when it returns, whatever made it. */
static void copying_program(void *unused)
{
	CUdeviceptr p, q;
	void *host;
	uint32_t v;

	(void)unused;
	rig_context();
	CU(cuMemAlloc_v2(&q, GRAIN));
	p = mapped(created(node_0));
	host = (void *)(uintptr_t)p;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(q, host, GRAIN));
	CU(allow(p, GRAIN, node_0, WRITE));
	words(p)[0] = 5;
	CU(cuMemcpyHtoD_v2(q, host, GRAIN));
	CHECK(word_at(q) == 5);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(q, p, GRAIN));
	CU(cuMemsetD32_v2(q, 6, GRAIN / 4));
	CU(cuMemcpyDtoH_v2(host, q, GRAIN));
	CHECK(words(p)[GRAIN / 4 - 1] == 6);
	CU(allow(p, GRAIN, node_0, READ));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host, q, GRAIN));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(q, host, 2ull * GRAIN));
	CU(allow(p, GRAIN, gpu, READ));
	CU(cuMemcpyDtoH_v2(&v, p, 4));
	CHECK(v == 6);
	CU(allow(p, GRAIN, gpu, WRITE));
	for (unsigned i = 0; i < 64; i++) {
		CU(cuMemsetD32Async(q, 100 + i, GRAIN / 4, NULL));
	}
	CU(cuMemcpyDtoH_v2(host, q, GRAIN));
	CHECK(words(p)[GRAIN / 4 - 1] == 163);
}

static void copies_by_host_address_need_the_programs_rights(void **state)
{
	(void)state;
	run(copying_program);
}

/* ---- queries ---- */

static CUresult attribute(CUpointer_attribute what, CUdeviceptr p, uint64_t *ret)
{
	*ret = 0;
	return cuPointerGetAttribute(ret, what, p);
}

static uint64_t known(CUpointer_attribute what, CUdeviceptr p)
{
	uint64_t v;

	CU(attribute(what, p, &v));
	return v;
}

static void expect_places(CUdeviceptr p, uint64_t type)
{
	CHECK(known(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 64) == type);
	CHECK(known(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 64) == p - GRAIN);
	CHECK(known(CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 64) == 4ull * GRAIN);
	CHECK(known(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, p + 64) == p);
	CHECK(known(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p + 64) == GRAIN);
}

static void querying_program(void *unused)
{
	CUdeviceptr p, q, base;
	unsigned flags;
	size_t bytes;
	uint64_t v;

	(void)unused;
	rig_context();
	p = mapped(created(node_0));
	q = mapped(created(gpu));
	expect_places(p, CU_MEMORYTYPE_HOST);
	expect_places(q, CU_MEMORYTYPE_DEVICE);
	CU_IS(CUDA_ERROR_INVALID_VALUE, attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p, &v));
	CU_IS(CUDA_ERROR_INVALID_VALUE, attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, p, &v));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&flags, (void *)(uintptr_t)p));
	CU(allow(p, GRAIN, node_0, READ));
	CU_IS(CUDA_ERROR_INVALID_VALUE, attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p, &v));
	CHECK(known(CU_POINTER_ATTRIBUTE_HOST_POINTER, p + 64) == p + 64);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &bytes, p));
	CU(allow(p, GRAIN, gpu, READ));
	CHECK(known(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 64) == p + 64);
	CU(cuMemGetAddressRange_v2(&base, &bytes, p + 64));
	CHECK(base == 0 && bytes == GRAIN);
	CU(cuMemHostGetFlags(&flags, (void *)(uintptr_t)p));
	CHECK(flags == (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer_v2(&base, (void *)(uintptr_t)p, 0));
	CHECK(base == p);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &bytes, q));
	CU(allow(q, GRAIN, gpu, READ));
	CU(cuMemGetAddressRange_v2(&base, &bytes, q + 64));
	CHECK(base == q && bytes == GRAIN);
	CU_IS(CUDA_ERROR_INVALID_VALUE, attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, q, &v));
}

static void queries_name_the_mapping_and_the_reservation(void **state)
{
	(void)state;
	run(querying_program);
}

/* ---- other processes ---- */

static int pair[2];

static void giver(void *unused)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	char byte = 1;
	int fd;

	(void)unused;
	close(pair[1]);
	rig_context();
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemExportToShareableHandle(&fd, created(any_node), FD, 0));
	CU(create(&h, node_0, FD));
	p = mapped(h);
	CU(allow(p, GRAIN, node_0, WRITE));
	words(p)[0] = 5;
	CU(cuMemExportToShareableHandle(&fd, h, FD, 0));
	CHECK(msg_send(pair[0], &byte, 1, &fd, 1) == 0);
	close(fd);
	CHECK(read(pair[0], &byte, 1) == 1);
	CHECK(words(p)[0] == 6 && words(p)[1] == 7);
}

static void taker(void *unused)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp got, expected = prop_of(node_0, 0);
	int fds[FD_PASS_MAX];
	CUdeviceptr p;
	unsigned n;
	char byte;

	(void)unused;
	close(pair[0]);
	rig_context();
	CHECK(msg_recv(pair[1], &byte, 1, fds, &n) == 1 && n == 1);
	CU(cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fds[0], FD));
	close(fds[0]);
	CU(cuMemGetAllocationPropertiesFromHandle(&got, h));
	CHECK(memcmp(&got, &expected, sizeof(got)) == 0);
	p = mapped(h);
	CU(allow(p, GRAIN, node_0, WRITE));
	CU(allow(p, GRAIN, gpu, WRITE));
	CHECK(words(p)[0] == 5);
	words(p)[0] = 6;
	CU(cuMemsetD32_v2(p + 4, 7, 1));
	CU(cuCtxSynchronize());
	CHECK(write(pair[1], &byte, 1) == 1);
}

static void another_process_maps_an_exported_handle(void **state)
{
	pid_t a, b;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	a = rig_spawn(giver, NULL);
	b = rig_spawn(taker, NULL);
	close(pair[0]);
	close(pair[1]);
	assert_int_equal(rig_wait(b), 0);
	assert_int_equal(rig_wait(a), 0);
	nothing_left();
}

/* A forked process keeps the mapping until it ends. */
static void freeing_program(void *unused)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	int ends[2], status;
	char byte = 1;
	pid_t child;

	(void)unused;
	rig_context();
	h = created(node_0);
	p = mapped(h);
	CU(allow(p, GRAIN, any_node, WRITE));
	words(p)[0] = 41;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	child = fork();
	if (child == 0) {
		CHECK(read(ends[1], &byte, 1) == 1);
		_exit(words(p)[0] == 0 ? 0 : 1);
	}
	CHECK(child > 0);
	CU(cuMemUnmap(p, GRAIN));
	CU(cuMemRelease(h));
	CHECK(write(ends[0], &byte, 1) == 1);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void pages_are_freed_while_a_forked_process_maps_them(void **state)
{
	(void)state;
	run(freeing_program);
}

/* ---- leaving the GPU, and coming back ---- */

/* Unmaps what is mapped at p, and maps another handle there. */
static void remap(CUdeviceptr p, CUmemGenericAllocationHandle h)
{
	CU(cuMemUnmap(p, GRAIN));
	CU(cuMemMap(p, GRAIN, 0, h, 0));
	CU(allow(p, GRAIN, gpu, WRITE));
}

static void moving_program(void *unused)
{
	CUmemAllocationProp host = prop_of(node_0, 0), got;
	CUmemGenericAllocationHandle here, there, h;
	size_t free_before, free_now, total;
	CUdeviceptr p, q, counter;
	void *params[] = { &p, &counter };
	uint64_t pinned;

	(void)unused;
	rig_context();
	CU(cuMemGetInfo_v2(&free_before, &total));
	there = created(node_0);
	CHECK(rig_stats().pinned_used == GRAIN);
	CU(cuMemGetInfo_v2(&free_now, &total));
	CHECK(free_now == free_before); /* it is no memory of the GPU */
	CU(cuMemGetAllocationPropertiesFromHandle(&got, there));
	CHECK(memcmp(&got, &host, sizeof(got)) == 0);
	here = created(gpu);
	p = mapped(here);
	q = mapped(there);
	CU(allow(p, GRAIN, gpu, WRITE));
	CU(allow(q, GRAIN, gpu, WRITE));
	/* Out: the contents go to the host, and a kernel finds and changes them at their address.
	 */
	CU(cuMemsetD32_v2(p, 41, GRAIN / 4));
	CU(cuMemcpyDtoD_v2(q, p, GRAIN));
	CU(cuCtxSynchronize());
	remap(p, there);
	CHECK(word_at(p + GRAIN - 4) == 41);
	CU(cuMemAlloc_v2(&counter, 4096));
	CU(cuMemsetD32_v2(counter, 42, 1));
	rig_launch(rig_function("copy_first"), 1, 1, NULL, params);
	CU(cuCtxSynchronize());
	CHECK(word_at(q) == 42 && word_at(p) == 42);
	/* Back. */
	remap(q, here);
	CU(cuMemcpyDtoD_v2(q, p, GRAIN));
	CU(cuCtxSynchronize());
	remap(p, here);
	CHECK(word_at(p) == 42 && word_at(p + GRAIN - 4) == 41);
	pinned = rig_stats().pinned_used; /* with the client's own, for copies */
	CU(cuMemRelease(there));
	CHECK(rig_stats().pinned_used == pinned - GRAIN);
	/* More than may be pinned. */
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&h, 1ull << 44, &host, 0));
	created(any_node); /* is left to the server */
	CHECK(rig_stats().pinned_used == pinned);
}

static void contents_leave_and_come_back(void **state)
{
	(void)state;
	run(moving_program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(handles_are_made_of_node_0_or_of_any_node),
		cmocka_unit_test(the_program_and_kernels_share_the_memory),
		cmocka_unit_test(rights_are_those_that_were_set),
		cmocka_unit_test(the_program_gets_no_rights_to_device_memory),
		cmocka_unit_test(copies_by_host_address_need_the_programs_rights),
		cmocka_unit_test(queries_name_the_mapping_and_the_reservation),
		cmocka_unit_test(another_process_maps_an_exported_handle),
		cmocka_unit_test(pages_are_freed_while_a_forked_process_maps_them),
		cmocka_unit_test(contents_leave_and_come_back),
	};

	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}

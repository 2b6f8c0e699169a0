/* Making a flag page: on the soft GPU, whose page is mapped and tried, and on a driver that gives
 * no descriptor, where words are written by stream. Each call can be refused; then nothing is left.
 */
#include "script.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shm.h"
#include "cuabi/private.h"
#include "gpu/flag.h"
#include "gpu/flag_int.h"
#include "gpu/gpu_int.h"
#include "gpu/own_memory.h"

static struct gpu_device *d;
static uint8_t *memory; /* of the page, as the device has it */
static int page_fd;
static unsigned reserved, mapped, created, streams_gone, closed;
static uint32_t written[3]; /* by stream: slot, word, flags */
static CUresult soft_result;
static const char *refused; /* this call, once */

static bool is_soft, in_use; /* in_use: by kernels */

static CUresult wait_for_kernels(void)
{
	in_use = false;
	return CUDA_SUCCESS;
}

static bool refuses(const char *call)
{
	if (refused && strcmp(call, refused) == 0) {
		refused = NULL;
		return true;
	}
	return false;
}

/* ---- the soft GPU ---- */

static CUresult flag_new(CUcontext ctx, size_t bytes, unsigned flags, CUdeviceptr *ret_device,
			 int *ret_fd)
{
	assert_ptr_equal(ctx, SCRIPT_CONTEXT(1));
	assert_int_equal(bytes, 4096);
	assert_int_equal(flags, 0);
	*ret_fd = soft_result ? 77 : dup(page_fd);
	*ret_device = soft_result ? 0 : (uintptr_t)memory;
	return soft_result;
}

static CUresult flag_close(CUcontext ctx, CUdeviceptr device, size_t bytes)
{
	assert_true(device == (uintptr_t)memory);
	assert_int_equal(bytes, 4096);
	assert_false(in_use);
	closed++;
	return CUDA_SUCCESS;
}

static struct cuabi_soft_table soft = { .size = sizeof(soft),
					.flag_new = flag_new,
					.flag_close = flag_close };
static CUresult export_table(const void **ret, const CUuuid *id)
{
	*ret = is_soft ? &soft : NULL;
	return refuses("table") ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* ---- another driver ---- */

static CUresult get_device(CUdevice *ret)
{
	*ret = 3;
	return refuses("device") ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	assert_int_equal(gpu_own_memory(3), (created + 1) << 21); /* before there is any */
	if (refuses("create")) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (refuses("create-memory")) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	assert_int_equal(bytes, 2 << 20);
	assert_int_equal(prop->location.id, 3);
	*ret = 9;
	created++;
	return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle h)
{
	assert_int_equal(h, 9);
	created--;
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *ret, size_t bytes, size_t align, CUdeviceptr wish,
			unsigned long long flags)
{
	if (refuses("reserve")) {
		*ret = 1234;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	assert_int_equal(bytes, 2 << 20);
	*ret = (uintptr_t)memory;
	reserved++;
	return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr p, size_t bytes)
{
	assert_true(p == (uintptr_t)memory && bytes == 2 << 20);
	reserved--;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle h,
		    unsigned long long flags)
{
	if (refuses("map")) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	assert_true(p == (uintptr_t)memory && bytes == 2 << 20 && h == 9 && offset == 0);
	mapped++;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr p, size_t bytes)
{
	assert_true(p == (uintptr_t)memory && bytes == 2 << 20);
	assert_false(in_use);
	mapped--;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *a, size_t n)
{
	assert_int_equal(n, 1);
	assert_int_equal(a->location.id, 3);
	return refuses("access") ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult synchronize(CUstream s)
{
	return refuses("synchronize") ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

static CUresult destroy_stream(CUstream s)
{
	streams_gone++;
	return CUDA_SUCCESS;
}

static CUresult write_value(CUstream s, CUdeviceptr p, uint32_t value, unsigned flags)
{
	if (refuses("write")) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (refuses("write-failed")) {
		return CUDA_ERROR_LAUNCH_FAILED;
	}
	assert_non_null(script_current);
	written[0] = (uint32_t)((p - (uintptr_t)memory) / 4);
	written[1] = value;
	written[2] = flags;
	return CUDA_SUCCESS;
}

static int set_up(void **state)
{
	script_init();
	script.cuGetExportTable = export_table;
	script.cuCtxGetDevice = get_device;
	script.cuCtxSynchronize = wait_for_kernels;
	script.cuMemCreate = create;
	script.cuMemRelease = release;
	script.cuMemAddressReserve = reserve;
	script.cuMemAddressFree = unreserve;
	script.cuMemMap = map;
	script.cuMemUnmap = unmap;
	script.cuMemSetAccess = set_access;
	script.cuStreamSynchronize = synchronize;
	script.cuStreamDestroy_v2 = destroy_stream;
	script.cuStreamWriteValue32_v2 = write_value;
	page_fd = shm_create("page", 4096, SHM_NOEXEC);
	memory = shm_map(page_fd, 4096, 1);
	reserved = mapped = created = streams_gone = closed = 0;
	soft_result = CUDA_SUCCESS;
	soft.size = sizeof(soft);
	refused = NULL;
	is_soft = true;
	in_use = false;
	return memory ? gpu_device_create(&d, &script) : -1;
}

static int tear_down(void **state)
{
	assert_int_equal(reserved + mapped + created, 0);
	assert_int_equal(gpu_own_memory(3), 0);
	gpu_device_destroy(d);
	shm_unmap(memory, 4096);
	close(page_fd);
	script_finish();
	return 0;
}

static void a_soft_gpus_page_is_written_directly(void **state)
{
	int next = dup(0);
	struct gpu_flag *f;

	close(next);
	assert_string_equal(gpu_flag_why(d), "");
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), 0);
	assert_true(gpu_flag_address(f) == (uintptr_t)memory);
	assert_int_equal(gpu_flag_fd(f), next);
	for (unsigned i = 0; i < 4096; i++) {
		assert_int_equal(memory[i], 0); /* what was tried is gone */
	}
	SCRIPT_SAID("push 1 pop");
	assert_int_equal(gpu_flag_write(f, 63, 4711), 0);
	assert_int_equal(((const uint32_t *)(const void *)memory)[63], 4711);
	assert_int_equal(gpu_flag_write(f, 64, 1), -EINVAL);
	SCRIPT_SAID("");
	in_use = true;
	gpu_flag_destroy(f);
	assert_int_equal(closed, 1);
	assert_int_equal(streams_gone, 0);
	SCRIPT_SAID("push 1 pop");
	gpu_flag_destroy(NULL);
}

static void what_the_soft_gpu_refuses_is_explained(void **state)
{
	struct gpu_flag *f;

	soft_result = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), -ENOMEM);
	assert_string_equal(gpu_flag_why(d), "the soft GPU gives no flag page: CUDA error 0x2");
	soft_result = CUDA_ERROR_UNKNOWN;
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), -EIO);
	assert_string_equal(gpu_flag_why(d), "the soft GPU gives no flag page: CUDA error 0x3e7");
	assert_int_equal(closed, 0);
	script_fail("push", CUDA_ERROR_INVALID_CONTEXT, 0);
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), -EIO);
}

/* A page whose stores the device does not see, or that cannot be mapped, has no descriptor. */
static void a_page_that_is_not_seen_is_not_given_to_others(void **state)
{
	int seen = page_fd, other = shm_create("other", 4096, SHM_NOEXEC), small;
	struct gpu_flag *f;

	page_fd = other;
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), 0);
	assert_int_equal(gpu_flag_fd(f), -1);
	assert_string_equal(gpu_flag_why(d),
			    "the device does not see what is stored into the flag page");
	gpu_flag_destroy(f);
	small = shm_create("small", 1024, SHM_NOEXEC);
	page_fd = small;
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), 0);
	assert_int_equal(gpu_flag_fd(f), -1);
	assert_string_equal(gpu_flag_why(d), "the flag page cannot be mapped here: errno 0x16");
	gpu_flag_destroy(f);
	assert_int_equal(closed, 2);
	page_fd = seen;
	close(other);
	close(small);
}

static void without_a_descriptor_words_are_written_by_stream(void **state)
{
	struct gpu_flag *f;

	is_soft = false;
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), 0);
	SCRIPT_SAID("push 1 stream 1 set 1024:1 pop");
	assert_int_equal(gpu_flag_fd(f), -1);
	assert_string_equal(gpu_flag_why(d), "calls of the driver library are not seen");
	assert_int_equal(reserved + mapped + created, 3);
	assert_int_equal(gpu_flag_write(f, 7, 4711), 0);
	assert_int_equal(written[0] * 100000 + written[1], 704711);
	assert_int_equal(written[2], CU_STREAM_WRITE_VALUE_DEFAULT);
	SCRIPT_SAID("push 1 pop");
	refused = "write"; /* then by a memset */
	assert_int_equal(gpu_flag_write(f, 8, 5), 0);
	SCRIPT_SAID("push 1 set 1:1 pop");
	assert_int_equal(((const uint32_t *)(const void *)memory)[8], 5);
	refused = "write-failed";
	assert_int_equal(gpu_flag_write(f, 8, 6), -EIO);
	script_fail("push", CUDA_ERROR_INVALID_CONTEXT, 0);
	assert_int_equal(gpu_flag_write(f, 8, 6), -EIO);
	assert_int_equal(gpu_flag_write(f, 64, 6), -EINVAL);
	in_use = true;
	gpu_flag_destroy(f);
	assert_int_equal(streams_gone, 1);
	assert_int_equal(closed, 0);
}

static void what_the_driver_refuses_leaves_nothing(void **state)
{
	static const struct {
		const char *call;
		int want;
		unsigned streams;
	} cases[] = {
		{ "device", -ENOTSUP, 0 },
		{ "create", -ENOTSUP, 0 },
		{ "create-memory", -ENOMEM, 0 },
		{ "reserve", -EIO, 0 },
		{ "map", -EIO, 0 },
		{ "access", -EIO, 0 },
		{ "synchronize", -EIO, 1 },
	};
	struct gpu_flag *f;

	is_soft = false;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		refused = cases[i].call;
		streams_gone = 0;
		assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), cases[i].want);
		assert_int_equal(streams_gone, cases[i].streams);
		assert_int_equal(created, 0);
		assert_int_equal(reserved + mapped, 0);
	}
	script_fail("stream", CUDA_ERROR_OUT_OF_MEMORY, 0);
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), -EIO);
	assert_string_equal(gpu_flag_why(d), "the flag page cannot be cleared");
	assert_int_equal(reserved + mapped + created, 0);
	script_fail("set", CUDA_ERROR_OUT_OF_MEMORY, 0);
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), -EIO);
	assert_int_equal(reserved + mapped + created, 0);
}

/* The context has ended, and its memory with it: only what belongs to this process is undone. */
static void an_ended_context_is_not_called(void **state)
{
	struct gpu_flag *f;
	int next = dup(0);

	close(next);
	assert_int_equal(gpu_flag_create(d, SCRIPT_CONTEXT(1), &f), 0);
	script_fail("push", CUDA_ERROR_CONTEXT_IS_DESTROYED, 0);
	gpu_flag_destroy(f);
	assert_int_equal(closed, 0);
	assert_int_equal(dup2(next, next), -1); /* the descriptor is closed */
}

static void tables_of_other_drivers_are_not_used(void **state)
{
	assert_ptr_equal(gpu_soft_table(&script), &soft);
	soft.size--;
	assert_null(gpu_soft_table(&script));
	soft.size += 2;
	assert_ptr_equal(gpu_soft_table(&script), &soft);
	refused = "table";
	assert_null(gpu_soft_table(&script));
	is_soft = false;
	assert_null(gpu_soft_table(&script));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(a_soft_gpus_page_is_written_directly),
		T(what_the_soft_gpu_refuses_is_explained),
		T(a_page_that_is_not_seen_is_not_given_to_others),
		T(without_a_descriptor_words_are_written_by_stream),
		T(what_the_driver_refuses_leaves_nothing),
		T(an_ended_context_is_not_called),
		T(tables_of_other_drivers_are_not_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

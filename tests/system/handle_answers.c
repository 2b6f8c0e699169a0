/* handle_answers [--refused|--new]: a program that uses memory of cuMemCreate in each way that the
 * driver knows, and prints what it is answered, for swapping.bats: the answers are the same whether
 * the memory can leave the device or not. Contents are checked after each step. Addresses are
 * printed as their distance from what was reserved. --refused: exports a handle for which the limit
 * has no room, and one while work is under way that does not end: both are refused, and have their
 * contents. --new: exports one that is new. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

#define MIB ((size_t)1 << 20)
#define SIZE (48 * MIB)
#define PIECE (2 * MIB)
#define FILLER (40 * MIB)
#define SAY(call) printf("%s: %d\n", #call, (int)(call))

static const CUmemLocation here = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
static const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes =
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
static const CUmemAccessDesc both_ways = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
					   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
static const CUmemAccessDesc to_read = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
					 .flags = CU_MEM_ACCESS_FLAGS_PROT_READ };
static CUdeviceptr at, other; /* reserved: 4 x SIZE each */
static CUmemGenericAllocationHandle first, second;

static void write_all(CUdeviceptr p, uint32_t seed)
{
	for (size_t i = 0; i < SIZE; i += PIECE) {
		CU(cuMemsetD32(p + i, seed + (uint32_t)(i / PIECE), PIECE / 4));
	}
	CU(cuCtxSynchronize());
}

static void check_all(CUdeviceptr p, uint32_t seed, int line)
{
	static uint32_t host[PIECE / 4];

	for (size_t i = 0; i < SIZE; i += PIECE) {
		CU(cuMemcpyDtoH(host, p + i, PIECE));
		for (size_t k = 0; k < PIECE / 4; k += 997) {
			CHECK(host[k] == seed + i / PIECE,
			      "called in line %d: word %zu of %zu is %u", line, k, i, host[k]);
		}
	}
}
#define CHECK_ALL(p, seed) check_all(p, seed, __LINE__)

/* Fills the device, so that what can leave it does, and returns. */
static void push(void)
{
	CUdeviceptr filler;

	CU(cuMemAlloc(&filler, FILLER));
	CU(cuMemsetD8(filler, 1, FILLER));
	CU(cuCtxSynchronize());
	CU(cuMemFree(filler));
}

static void say_number(const char *what, CUdeviceptr p, CUpointer_attribute attribute)
{
	unsigned long long value = 0;
	int r = cuPointerGetAttribute(&value, attribute, p);

	printf(" %s %d %llx", what, r, value);
}

static void say_address(const char *what, CUdeviceptr p, CUpointer_attribute attribute)
{
	CUdeviceptr value = 0;
	int r = cuPointerGetAttribute(&value, attribute, p);

	printf(" %s %d %lld", what, r, value ? (long long)(value - at) : 0);
}

static void say(const char *when, CUdeviceptr p)
{
	unsigned long long flags = 0;
	CUdeviceptr base = at;
	size_t bytes = 0;
	int r;

	printf("%s:", when);
	say_number("type", p, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
	say_number("context", p, CU_POINTER_ATTRIBUTE_CONTEXT);
	say_address("pointer", p, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
	say_number("host", p, CU_POINTER_ATTRIBUTE_HOST_POINTER);
	say_number("managed", p, CU_POINTER_ATTRIBUTE_IS_MANAGED);
	say_number("device", p, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
	say_address("range", p, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
	say_number("bytes", p, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
	say_number("mapped", p, CU_POINTER_ATTRIBUTE_MAPPED);
	say_number("types", p, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
	say_number("access", p, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
	say_number("pool", p, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
	say_address("mapping", p, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
	say_number("bytes", p, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
	r = cuMemGetAddressRange_v2(&base, &bytes, p);
	printf(" address range %d %lld %zx", r, (long long)(base - at), bytes);
	r = cuMemGetAccess(&flags, &here, p);
	printf(" access %d %llu\n", r, flags);
}

/* What the driver refuses has no effect. */
static void refusals(void)
{
	CUmemGenericAllocationHandle h;
	int fd;

	SAY(cuMemCreate(&h, 3 * MIB, &prop, 0));
	SAY(cuMemCreate(&h, 0, &prop, 0));
	SAY(cuMemCreate(&h, PIECE, &prop, 1));
	SAY(cuMemCreate(&h, (size_t)0 - 2 * PIECE, &prop, 0));
	SAY(cuMemCreate(&h, (size_t)1 << 50, &prop, 0));
	SAY(cuMemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_FABRIC, 0));
	SAY(cuMemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
	SAY(cuMemMap(at, SIZE / 2, 0, first, 0));
	SAY(cuMemMap(at, SIZE, PIECE, first, 0));
	SAY(cuMemMap(at, 2 * SIZE, 0, first, 0));
	SAY(cuMemMap(at + MIB, SIZE, 0, first, 0));
	SAY(cuMemMap(at, SIZE, 0, first, 1));
}

static void use_one(void)
{
	CUmemGenericAllocationHandle again = 0;
	CUmemAllocationProp got = { 0 };
	CUipcMemHandle ipc;
	int one = 1;

	CU(cuMemMap(at + PIECE, SIZE, 0, first, 0));
	SAY(cuMemSetAccess(at + PIECE, SIZE / 2, &both_ways, 1));
	SAY(cuMemSetAccess(at, SIZE, &both_ways, 1));
	SAY(cuMemSetAccess(at + PIECE, SIZE, &both_ways, 1));
	write_all(at + PIECE, 1000);
	push();
	say("away", at + PIECE + SIZE / 2 + 5);
	say("not mapped", at);
	CHECK_ALL(at + PIECE, 1000);
	SAY(cuMemMap(at, SIZE, 0, second, 0)); /* a part of it is in use */
	SAY(cuMemUnmap(at + PIECE, SIZE / 2));
	SAY(cuMemUnmap(at + PIECE + 16 * MIB, 16 * MIB));
	SAY(cuMemUnmap(at + 2 * PIECE, SIZE - PIECE));
	SAY(cuMemFree(at + PIECE));
	SAY(cuIpcGetMemHandle(&ipc, at + PIECE));
	SAY(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at + PIECE));
	CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + PIECE + SIZE / 2)));
	CHECK(again == first, "another handle is retained");
	CU(cuMemRelease(again));
	CU(cuMemGetAllocationPropertiesFromHandle(&got, first));
	CHECK(!memcmp(&got, &prop, sizeof(got)), "other properties");
	CHECK_ALL(at + PIECE, 1000);
}

/* The contents belong to the handle. */
static void map_elsewhere(void)
{
	CU(cuMemUnmap(at + PIECE, SIZE));
	say("unmapped", at + PIECE);
	push();
	CU(cuMemMap(at + SIZE, SIZE, 0, first, 0));
	CU(cuMemMap(at, SIZE, 0, second, 0));
	CU(cuMemSetAccess(at, 2 * SIZE, &both_ways, 1)); /* both at once */
	write_all(at, 5000);
	push();
	CHECK_ALL(at + SIZE, 1000);
	CHECK_ALL(at, 5000);
	say("first", at + SIZE);
	say("second", at);
}

/* From here on the first one stays on the device. */
static void export_one(void)
{
	CUmemGenericAllocationHandle imported;
	int fd = -1;

	CU(cuMemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(fcntl(fd, F_GETFD) >= 0, "no descriptor");
	say("exported", at + SIZE);
	CHECK_ALL(at + SIZE, 1000);
	CU(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CU(cuMemMap(other, SIZE, 0, imported, 0));
	CU(cuMemSetAccess(other, SIZE, &both_ways, 1));
	CHECK_ALL(other, 1000);
	write_all(other, 2000);
	push();
	CHECK_ALL(at + SIZE, 2000);
	CU(cuMemUnmap(other, SIZE));
	CU(cuMemRelease(imported));
	CU(cuMemUnmap(at + SIZE, SIZE));
	CU(cuMemRelease(first));
}

/* A second mapping, with other rights; so the second one stays, too. */
static void map_twice(void)
{
	CU(cuMemMap(other, SIZE, 0, second, 0));
	say("no access", other);
	CU(cuMemSetAccess(other, SIZE, &to_read, 1));
	say("to read", other);
	CHECK_ALL(other, 5000);
	write_all(at, 6000);
	CHECK_ALL(other, 6000);
	CU(cuMemRelease(second)); /* the mappings keep it */
	CU(cuMemUnmap(at, SIZE));
	CHECK_ALL(other, 6000);
	CU(cuMemUnmap(other, SIZE));
}

/* One that is mapped to be read only, and one that is given up without a mapping. */
static void read_only(void)
{
	CU(cuMemCreate(&first, SIZE, &prop, 0));
	CU(cuMemMap(at, SIZE, 0, first, 0));
	CU(cuMemSetAccess(at, SIZE, &both_ways, 1));
	write_all(at, 7000);
	CU(cuMemSetAccess(at, SIZE, &to_read, 1));
	say("to read", at + MIB);
	push();
	CHECK_ALL(at, 7000);
	CU(cuMemUnmap(at, SIZE));
	CU(cuMemRelease(first));
	CU(cuMemCreate(&first, SIZE, &prop, 0));
	CU(cuMemRelease(first));
}

/* Of a range with memory that can leave and memory that cannot all is unmapped, or nothing. */
static void mixed(void)
{
	CUmemAllocationProp compressed = prop;
	int fd;

	CU(cuMemCreate(&first, 8 * MIB, &prop, 0));
	CU(cuMemCreate(&second, 8 * MIB, &compressed, 0));
	CU(cuMemExportToShareableHandle(&fd, second, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	CU(cuMemMap(at, 8 * MIB, 0, first, 0));
	CU(cuMemMap(at + 8 * MIB, 8 * MIB, 0, second, 0));
	CU(cuMemSetAccess(at, 16 * MIB, &both_ways, 1));
	CU(cuMemsetD8(at, 9, 16 * MIB));
	CU(cuCtxSynchronize());
	SAY(cuMemUnmap(at, 12 * MIB));
	SAY(cuMemUnmap(at + 4 * MIB, 12 * MIB));
	CU(cuMemUnmap(at, 16 * MIB));
	say("unmapped", at);
	say("unmapped", at + 8 * MIB);
	CU(cuMemRelease(first));
	CU(cuMemRelease(second));
}

static int export(CUmemGenericAllocationHandle handle)
{
	int fd = -1, r;

	r = cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (r == CUDA_SUCCESS) {
		close(fd);
	}
	return r;
}

/* Without contents nothing is copied, and no room needed for both: 48 of 64 MiB. */
static void export_new(void)
{
	size_t before, available, total;

	CU(cuMemGetInfo_v2(&before, &total));
	CU(cuMemCreate(&first, SIZE, &prop, 0));
	SAY(export(first));
	CU(cuMemAddressReserve(&at, SIZE, 0, 0, 0));
	CU(cuMemMap(at, SIZE, 0, first, 0));
	CU(cuMemSetAccess(at, SIZE, &both_ways, 1));
	write_all(at, 3);
	CHECK_ALL(at, 3);
	CU(cuMemGetInfo_v2(&available, &total));
	CHECK(before - available == SIZE, "%zu of %zu are free", available, before);
}

static void refused(void)
{
	CUstream stream;
	uint32_t *word;
	CUdeviceptr flag;

	CU(cuMemAddressReserve(&at, 2 * SIZE, 0, 0, 0));
	CU(cuMemCreate(&first, SIZE, &prop, 0));
	CU(cuMemMap(at, SIZE, 0, first, 0));
	write_all(at, 100);
	SAY(export(first)); /* a limit of less than SIZE */
	CHECK_ALL(at, 100);
	write_all(at, 200);
	CHECK_ALL(at, 200);
	CU(cuMemUnmap(at, SIZE));
	SAY(export(first));
	CU(cuMemMap(at + SIZE, SIZE, 0, first, 0));
	CHECK_ALL(at + SIZE, 200);
	CU(cuMemUnmap(at + SIZE, SIZE));
	CU(cuMemRelease(first));

	CU(cuMemCreate(&first, 4 * MIB, &prop, 0));
	CU(cuMemMap(at, 4 * MIB, 0, first, 0));
	CU(cuMemsetD32(at, 77, MIB));
	CU(cuMemHostAlloc((void **)&word, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer_v2(&flag, word, 0));
	*word = 0;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	SAY(export(first));
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	CU(cuStreamSynchronize(stream));
	SAY(export(first));
	CU(cuMemcpyDtoH(word, at + 4 * MIB - 4, 4));
	CHECK(*word == 77, "the word is %u", *word);
}

int main(int argc, char **argv)
{
	CUcontext context;
	size_t available, total, before;

	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&context, 0));
	CU(cuCtxSetCurrent(context));
	if (argc > 1 && !strcmp(argv[1], "--refused")) {
		refused();
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "--new")) {
		export_new();
		return 0;
	}
	CU(cuMemGetInfo_v2(&before, &total));
	CU(cuMemAddressReserve(&at, 4 * SIZE, 0, 0, 0));
	CU(cuMemAddressReserve(&other, 4 * SIZE, 0, 0, 0));
	CU(cuMemCreate(&first, SIZE, &prop, 0));
	CU(cuMemCreate(&second, SIZE, &prop, 0));
	refusals();
	use_one();
	map_elsewhere();
	export_one();
	map_twice();
	read_only();
	mixed();
	CU(cuMemAddressFree(at, 4 * SIZE));
	CU(cuMemAddressFree(other, 4 * SIZE));
	CU(cuMemGetInfo_v2(&available, &total));
	/* What was exported stays charged. */
	CHECK(before - available == SIZE + 8 * MIB, "%zu of %zu are free", available, before);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	return 0;
}

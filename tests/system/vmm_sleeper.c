/* vmm_sleeper MIB [--serve]: a program that gives its device memory back while it sleeps and keeps
 * the addresses, as vLLM's sleep mode does with the driver's virtual memory: it reserves addresses,
 * maps chunks there, "sleeps" (copies what it keeps to the host, unmaps and releases the chunks),
 * and "wakes" (makes chunks and maps them at the same addresses). Weights are kept, the cache is
 * not. Checked are the contents, the addresses, and that free memory goes up and down by exactly
 * what the chunks take. For vmm_sleeper.bats and, with --serve, tests/gpu/memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "../unit/eventually.h"
#include "check.h"

#define MIB ((size_t)1 << 20)
#define UNIT (2 * MIB)
#define CHUNK (8 * MIB)
#define PARTS 2
#define NIGHTS 3

#define cuMemGetInfo cuMemGetInfo_v2

/* A range of addresses with a chunk for each CHUNK bytes. */
struct range {
	CUdeviceptr at;
	size_t bytes, chunks;
	CUmemGenericAllocationHandle *chunk;
	uint32_t *host; /* its contents while it sleeps; NULL: they are not kept */
};

static CUdevice device;
static const CUmemAllocationProp on_device = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
static const CUmemAccessDesc both_ways = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
					   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

static size_t total_bytes(void)
{
	size_t available, total;

	CU(cuMemGetInfo(&available, &total));
	return total;
}

static size_t free_bytes(void)
{
	size_t available, total;

	CU(cuMemGetInfo(&available, &total));
	return available;
}

/* Unmaps and releases the chunks before the given one. */
static void unmap(struct range *r, size_t chunks)
{
	for (size_t i = 0; i < chunks; i++) {
		CU(cuMemUnmap(r->at + i * CHUNK, CHUNK));
		CU(cuMemRelease(r->chunk[i]));
	}
}

/* Returns false if memory is short: nothing is mapped then. */
static bool map(struct range *r)
{
	for (size_t i = 0; i < r->chunks; i++) {
		CUresult e = cuMemCreate(&r->chunk[i], CHUNK, &on_device, 0);

		if (e == CUDA_ERROR_OUT_OF_MEMORY) {
			unmap(r, i);
			return false;
		}
		CU(e);
		CU(cuMemMap(r->at + i * CHUNK, CHUNK, 0, r->chunk[i], 0));
	}
	CU(cuMemSetAccess(r->at, r->bytes, &both_ways, 1));
	return true;
}

static void make(struct range *r, size_t bytes, bool is_kept)
{
	r->chunks = bytes / CHUNK;
	r->bytes = r->chunks * CHUNK;
	r->chunk = program_room(r->chunks * sizeof(*r->chunk));
	r->host = is_kept ? program_room(r->bytes) : NULL;
	CU(cuMemAddressReserve(&r->at, r->bytes, 0, 0, 0));
}

/* Stores a different word in each chunk. */
static void paint(const struct range *r, uint32_t seed)
{
	for (size_t i = 0; i < r->chunks; i++) {
		CU(cuMemsetD32(r->at + i * CHUNK, seed + (uint32_t)i, CHUNK / 4));
	}
	CU(cuCtxSynchronize());
}

/* Returns the number of words that paint() has not stored. */
static size_t wrong_words(const struct range *r, uint32_t seed)
{
	uint32_t *back = program_room(CHUNK);
	size_t wrong = 0;

	for (size_t i = 0; i < r->chunks; i++) {
		CU(cuMemcpyDtoH(back, r->at + i * CHUNK, CHUNK));
		for (size_t k = 0; k < CHUNK / 4; k++) {
			wrong += back[k] != seed + (uint32_t)i;
		}
	}
	free(back);
	return wrong;
}

static void sleep_now(struct range *r)
{
	if (r->host) {
		CU(cuMemcpyDtoH(r->host, r->at, r->bytes));
	}
	unmap(r, r->chunks);
}

static bool wake(struct range *r)
{
	if (!map(r)) {
		return false;
	}
	if (r->host) {
		CU(cuMemcpyHtoD(r->at, r->host, r->bytes));
	}
	return true;
}

static void begin(struct range part[PARTS], size_t bytes)
{
	CUcontext context;
	CUdeviceptr first;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuCtxCreate(&context, 0, device));
	CU(cuMemAlloc(&first, UNIT));
	CU(cuMemsetD8(first, 0, UNIT));
	CU(cuCtxSynchronize());
	make(&part[0], bytes / 4, true);	  /* weights */
	make(&part[1], bytes - bytes / 4, false); /* cache */
}

/* One night: the memory is free meanwhile, and can be used by others. */
static void night(struct range part[PARTS], size_t before, uint32_t n)
{
	size_t awake = before - part[0].bytes - part[1].bytes, is;
	CUdeviceptr other;

	is = free_bytes();
	CHECK(is == awake, "%zu of %zu KiB are free while it is awake", is >> 10, awake >> 10);
	paint(&part[0], 1000 * n);
	paint(&part[1], 7000 * n);
	CHECK(!wrong_words(&part[0], 1000 * n) && !wrong_words(&part[1], 7000 * n), "contents");
	sleep_now(&part[1]);
	eventually(free_bytes() ==
		   awake + part[1].bytes); /* the driver may give memory back late */
	CHECK(!wrong_words(&part[0], 1000 * n), "the weights have changed");
	sleep_now(&part[0]);
	eventually(free_bytes() == before);
	CU(cuMemAlloc(&other, part[1].bytes / UNIT * UNIT));
	CHECK(!wake(&part[1]), "it has got memory that is used");
	eventually(free_bytes() == before - part[1].bytes);
	CU(cuMemFree(other));
	CHECK(wake(&part[0]) && wake(&part[1]), "no memory to wake up");
	CHECK(!wrong_words(&part[0], 1000 * n), "the weights are not those of the evening");
}

static void end(struct range part[PARTS])
{
	for (int i = 0; i < PARTS; i++) {
		unmap(&part[i], part[i].chunks);
		CU(cuMemAddressFree(part[i].at, part[i].bytes));
		free(part[i].chunk);
		free(part[i].host);
	}
}

int main(int argc, char **argv)
{
	size_t bytes = argc >= 2 ? (size_t)atoi(argv[1]) * MIB : 0, before;
	struct range part[PARTS] = { { 0 } };
	char line[16];

	if (bytes < 4 * CHUNK || argc > 3) {
		fprintf(stderr, "usage: %s MIB [--serve]; at least %zu\n", argv[0],
			4 * CHUNK / MIB);
		return 2;
	}
	begin(part, bytes);
	before = free_bytes();
	CHECK(bytes <= before && part[1].bytes > before / 2, "%zu KiB are free", before >> 10);
	CHECK(map(&part[0]) && map(&part[1]), "no memory");
	for (uint32_t n = 1; n <= NIGHTS; n++) {
		night(part, before, n);
	}
	if (argc == 3) { /* asleep until a line is read, then awake until the next */
		sleep_now(&part[1]);
		sleep_now(&part[0]);
		printf("{\"asleep\": %zu, \"total\": %zu}\n", free_bytes(), total_bytes());
		fflush(stdout);
		CHECK(fgets(line, sizeof(line), stdin), "no line");
		CHECK(wake(&part[0]) && wake(&part[1]), "no memory");
		CHECK(!wrong_words(&part[0], 1000 * NIGHTS), "the weights have changed");
		printf("{\"awake\": %zu, \"holds\": %zu}\n", free_bytes(),
		       part[0].bytes + part[1].bytes);
		fflush(stdout);
		CHECK(fgets(line, sizeof(line), stdin), "no line");
	}
	end(part);
	eventually(free_bytes() == before);
	printf("slept %d times\n", NIGHTS);
	return 0;
}

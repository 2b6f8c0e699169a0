/* reclaim: a program that takes device memory by commands, for reclaim.bats. It knows nothing of
 * gBPF. Commands, one a line, each with a line as its answer; the first line of the output is the
 * process's number.
 *
 *   alloc MIB    by cuMemAlloc; `dirty` if the memory is not zero. Fills it
 *   create MIB   the same by cuMemCreate
 *   keep MIB     has a pool keep that, which it does not use
 *   renew        fills all memory with something else
 *   check        `wrong` unless all memory has what it was filled with
 *   free         the last one of `alloc` */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

#define MIB ((size_t)1 << 20)
#define ITEMS_MAX 256u

static CUdevice device;

static struct item {
	CUdeviceptr at;
	size_t bytes;
	uint64_t seed;
} items[ITEMS_MAX];
static unsigned n;

static uint32_t *fill(const struct item *i)
{
	uint32_t *words = program_room(i->bytes);
	uint64_t random = i->seed;

	for (size_t k = 0; k < i->bytes / 4; k++) {
		words[k] = program_random(&random) | 1u; /* none is zero */
	}
	return words;
}

static bool is_zero(const struct item *i)
{
	uint32_t *words = program_room(i->bytes);
	bool zero = true;

	CU(cuMemcpyDtoH(words, i->at, i->bytes));
	for (size_t k = 0; k < i->bytes / 4; k++) {
		zero = zero && !words[k];
	}
	free(words);
	return zero;
}

static const char *take(CUdeviceptr at, size_t bytes)
{
	struct item *i = &items[n++];
	uint32_t *words;
	bool zero;

	*i = (struct item){ .at = at, .bytes = bytes, .seed = (uint64_t)getpid() * 1000 + n };
	zero = is_zero(i);
	words = fill(i);
	CU(cuMemcpyHtoD(i->at, words, i->bytes));
	free(words);
	return zero ? "ok" : "dirty";
}

static CUresult renew(void)
{
	for (unsigned i = 0; i < n; i++) {
		uint32_t *words;

		items[i].seed += 500;
		words = fill(&items[i]);
		CU(cuMemcpyHtoD(items[i].at, words, items[i].bytes));
		free(words);
	}
	return CUDA_SUCCESS;
}

static bool is_right(const struct item *i)
{
	uint32_t *words = fill(i), *read = program_room(i->bytes);
	bool right;

	CU(cuMemcpyDtoH(read, i->at, i->bytes));
	right = memcmp(words, read, i->bytes) == 0;
	free(words);
	free(read);
	return right;
}

static const char *check(void)
{
	bool right = true;

	for (unsigned i = 0; i < n; i++) {
		right = is_right(&items[i]) && right;
	}
	return right ? "ok" : "wrong";
}

static CUresult create(CUdeviceptr *ret, size_t bytes)
{
	CUmemAllocationProp p = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				  .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						.id = device } };
	CUmemAccessDesc access = { .location = p.location,
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	CUresult r = cuMemCreate(&h, bytes, &p, 0);

	if (r == CUDA_SUCCESS) {
		CU(cuMemAddressReserve(ret, bytes, 0, 0, 0));
		CU(cuMemMap(*ret, bytes, 0, h, 0));
		CU(cuMemSetAccess(*ret, bytes, &access, 1));
	}
	return r;
}

static CUresult keep(size_t bytes)
{
	uint64_t all = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr at;
	CUresult r;

	CU(cuDeviceGetDefaultMemPool(&pool, device));
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	r = cuMemAllocAsync(&at, bytes, NULL);
	if (r == CUDA_SUCCESS) {
		CU(cuMemFreeAsync(at, NULL));
		CU(cuStreamSynchronize(NULL));
	}
	return r;
}

static const char *answer(const char *verb, size_t bytes)
{
	const char *name = "unknown";
	CUdeviceptr at = 0;
	CUresult r;

	if (strcmp(verb, "check") == 0) {
		return check();
	}
	if (strcmp(verb, "free") == 0) {
		r = cuMemFree(items[--n].at);
	} else if (strcmp(verb, "renew") == 0) {
		r = renew();
	} else if (strcmp(verb, "create") == 0) {
		r = create(&at, bytes);
	} else if (strcmp(verb, "keep") == 0) {
		r = keep(bytes);
	} else {
		r = cuMemAlloc(&at, bytes);
	}
	cuGetErrorName(r, &name);
	return r != CUDA_SUCCESS ? name : at ? take(at, bytes) : "ok";
}

int main(int argc, char **argv)
{
	CUcontext context;
	char line[64], verb[32];

	CHECK(argc == 2 && strcmp(argv[1], "serve") == 0, "usage: %s serve", argv[0]);
	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuCtxCreate(&context, 0, device));
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		size_t mib = 0;

		CHECK(sscanf(line, "%31s %zu", verb, &mib) >= 1 && n < ITEMS_MAX, "%s", line);
		puts(answer(verb, mib * MIB));
		fflush(stdout);
	}
	return 0;
}

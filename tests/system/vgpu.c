/* vgpu CASE: programs that take device memory in a virtual GPU (`gbpf run --mem`), for vgpu.bats.
 * Each checks what it can see itself, prints what is wrong and exits with 1.
 *
 *   fill KIND    allocates by one entry point until memory is short, and frees all of it
 *   race         two processes allocate and free at random; what both hold stays within the limit
 *   contexts     memory goes with its context
 *   chunks       handles and mappings of virtual memory
 *   frees        memory that is freed in stream order, and pools that are destroyed
 *   exec         takes memory, then is replaced by `fill linear-3M`
 *   small        small allocations at the limit
 *   fork         a child that calls nothing
 *   overhead MIB [later]  contexts that take MIB each, and modules; later: the first one is not
 *                measured
 *   modules      libraries whose memory is found after they were loaded
 *   graphs       memory of allocation nodes and of captures
 *   pinned MIB   pinned host memory, whose limit that is
 *   no-context   a context that does not fit
 *   init         cuInit only, whose result it prints
 *   serve        carries out commands of its standard input: see serve() */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"
#include "../unit/eventually.h"
#include "check.h"

#define MIB ((size_t)1 << 20)
#define ITEMS_MAX 200000u
#define SHARED_MAX ((size_t)64 << 10) /* upper bound of a small item's share of 2 MiB */

#define cuMemGetInfo cuMemGetInfo_v2
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuMemAllocPitch cuMemAllocPitch_v2
#define cuArrayCreate cuArrayCreate_v2
#define cuArray3DCreate cuArray3DCreate_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2

static CUdevice device;
static CUcontext context;

static void begin(void)
{
	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuCtxCreate(&context, 0, device));
}

static size_t limit(void)
{
	size_t available, total, of_device;

	CU(cuMemGetInfo(&available, &total));
	CU(cuDeviceTotalMem(&of_device, device));
	CHECK(total == of_device, "%zu and %zu", total, of_device);
	CHECK(available <= total, "%zu of %zu", available, total);
	return total;
}

/* Returns what the vGPU holds, bytes. */
static size_t used(void)
{
	size_t available, total = limit();

	CU(cuMemGetInfo(&available, &total));
	return total - available;
}

#define EXPECT_USED(bytes)                                                                         \
	do {                                                                                       \
		size_t is = used();                                                                \
                                                                                                   \
		CHECK(is == (bytes), "%zu KiB are in use", is >> 10);                              \
	} while (0)

/* ---- fill ---- */

static CUmemoryPool pool;
static const CUmemAllocationProp on_device = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };

static CUresult take_linear(uint64_t *ret, size_t bytes)
{
	return cuMemAlloc((CUdeviceptr *)ret, bytes);
}

static CUresult free_linear(uint64_t item)
{
	return cuMemFree((CUdeviceptr)item);
}

static CUresult take_pitch(uint64_t *ret, size_t bytes)
{
	size_t pitch = 0;
	CUresult r = cuMemAllocPitch((CUdeviceptr *)ret, &pitch, 4000, bytes / 4096, 4);

	CHECK(r != CUDA_SUCCESS || pitch == 4096, "a pitch of %zu", pitch);
	return r;
}

static CUresult take_managed(uint64_t *ret, size_t bytes)
{
	return cuMemAllocManaged((CUdeviceptr *)ret, bytes, CU_MEM_ATTACH_GLOBAL);
}

static CUresult take_chunk(uint64_t *ret, size_t bytes)
{
	return cuMemCreate((CUmemGenericAllocationHandle *)ret, bytes, &on_device, 0);
}

static CUresult free_chunk(uint64_t item)
{
	return cuMemRelease((CUmemGenericAllocationHandle)item);
}

static CUresult take_array(uint64_t *ret, size_t bytes)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 1024,
					    .Height = bytes / 4096,
					    .Format = CU_AD_FORMAT_FLOAT,
					    .NumChannels = 1 };
	CUarray a = NULL;
	CUresult r = cuArray3DCreate(&a, &d);

	*ret = (uint64_t)(uintptr_t)a;
	return r;
}

/* The device takes eight rows. */
static CUresult take_array_1d(uint64_t *ret, size_t bytes)
{
	const CUDA_ARRAY_DESCRIPTOR d = { .Width = bytes / 4 / 8,
					  .Format = CU_AD_FORMAT_FLOAT,
					  .NumChannels = 1 };
	CUarray a = NULL;
	CUresult r = cuArrayCreate(&a, &d);

	*ret = (uint64_t)(uintptr_t)a;
	return r;
}

static CUresult free_array(uint64_t item)
{
	return cuArrayDestroy((CUarray)(uintptr_t)item);
}

static CUresult take_async(uint64_t *ret, size_t bytes)
{
	return cuMemAllocAsync((CUdeviceptr *)ret, bytes, NULL);
}

static CUresult take_from_pool(uint64_t *ret, size_t bytes)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };

	if (!pool) {
		CU(cuMemPoolCreate(&pool, &props));
	}
	return cuMemAllocFromPoolAsync((CUdeviceptr *)ret, bytes, pool, NULL);
}

static CUresult free_async(uint64_t item)
{
	return cuMemFreeAsync((CUdeviceptr)item, NULL);
}

/* A way to take memory. unit: device memory for an item, bytes; 0: several items share 2 MiB.
 * slack: upper bound of what may be left at the limit. */
static const struct kind {
	const char *name;
	size_t bytes, unit, slack;
	CUresult (*take)(uint64_t *ret, size_t bytes);
	CUresult (*free)(uint64_t item);
} kinds[] = {
	{ "linear-64M", 64 * MIB, 64 * MIB, 0, take_linear, free_linear },
	{ "linear-2M", 2 * MIB, 2 * MIB, 0, take_linear, free_linear },
	{ "linear-3M", 3 * MIB, 4 * MIB, 0, take_linear, free_linear },
	{ "linear-1000", 1000, 0, 0, take_linear, free_linear },
	{ "pitch", 4000u * 1024u, 4 * MIB, 0, take_pitch, free_linear },
	{ "managed-1000", 1000, 0, 0, take_managed, free_linear },
	{ "managed", 3 * MIB, 4 * MIB, 0, take_managed, free_linear },
	{ "create", 2 * MIB, 2 * MIB, 0, take_chunk, free_chunk },
	{ "array", 4 * MIB, 4 * MIB, 0, take_array, free_array },
	{ "array-1M", MIB, MIB, 0, take_array, free_array },
	{ "array-64K", MIB / 16, MIB / 16, 0, take_array, free_array },
	{ "array-1d", 2 * MIB, 2 * MIB, 0, take_array_1d, free_array },
	{ "async", 8 * MIB, 8 * MIB, 32 * MIB - 1, take_async, free_async },
	{ "async-1M", MIB, MIB, 32 * MIB - 1, take_async, free_async },
	{ "pool", 8 * MIB, 8 * MIB, 32 * MIB - 1, take_from_pool, free_async },
};

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].name, name) == 0) {
			return &kinds[i];
		}
	}
	fprintf(stderr, "no kind '%s'\n", name);
	exit(2);
}

/* Takes items until memory is short. Returns how many. */
static size_t take_all(const struct kind *k, uint64_t *items)
{
	CUresult r = CUDA_SUCCESS;
	size_t n = 0;

	while (n < ITEMS_MAX && (r = k->take(&items[n], k->bytes)) == CUDA_SUCCESS) {
		n++;
	}
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d after %zu items", (int)r, n);
	return n;
}

static void free_all(const struct kind *k, const uint64_t *items, size_t n)
{
	while (n) {
		CU(k->free(items[--n]));
	}
	CU(cuCtxSynchronize());
}

/* Returns what is held after a synchronization, at which pools give memory back. It is not seen at
 * one during which a thread of the shim measures. */
static size_t settled(void)
{
	CU(cuCtxSynchronize());
	return used();
}

/* Twice: memory that was returned can be taken again, all of it. */
static int fill(const char *name)
{
	const struct kind *k = find_kind(name);
	uint64_t *items = program_room(ITEMS_MAX * sizeof(*items));
	size_t all, n, held;

	begin();
	all = limit();
	for (int round = 0; round < 2; round++) {
		eventually(settled() == 0);
		n = take_all(k, items);
		held = used();
		CHECK(held + k->slack >= all, "%zu items, %zu of %zu KiB", n, held >> 10,
		      all >> 10);
		CHECK(k->unit ? n * k->unit == held : n * k->bytes <= held,
		      "%zu items, %zu KiB in use", n, held >> 10);
		CHECK(k->unit || n >= held / SHARED_MAX, "only %zu items", n);
		free_all(k, items, n);
	}
	eventually(settled() == 0);
	free(items);
	printf("%s: %zu items\n", name, n);
	return 0;
}

/* ---- race ---- */

#define ROUNDS 1000
#define DUELS 10000u
#define HELD 16u

/* Shared by both processes. held is raised after an allocation and lowered before memory is freed,
 * so it never exceeds what both hold. */
struct race {
	size_t held, most;
	int arrived[3];
	unsigned steps, won; /* of the duel: arrivals of both, allocations in all */
};

static void add_held(struct race *s, size_t bytes, size_t all)
{
	size_t held = __atomic_add_fetch(&s->held, bytes, __ATOMIC_SEQ_CST);
	size_t most = __atomic_load_n(&s->most, __ATOMIC_SEQ_CST);

	while (held > most && !__atomic_compare_exchange_n(&s->most, &most, held, 0,
							   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
	}
	CHECK(held <= all, "both hold %zu of %zu MiB", held / MIB, all / MIB);
}

/* Returns once both processes are here. */
static void meet(struct race *s, int where)
{
	__atomic_add_fetch(&s->arrived[where], 1, __ATOMIC_SEQ_CST);
	eventually(__atomic_load_n(&s->arrived[where], __ATOMIC_SEQ_CST) >= 2);
}

static void one_round(struct race *s, uint64_t *seed, size_t all, CUdeviceptr *at, size_t *bytes)
{
	unsigned i = program_random(seed) % HELD;
	size_t want = 2 * MIB * (1 + program_random(seed) % 16);
	CUresult r;

	if (bytes[i]) {
		__atomic_sub_fetch(&s->held, bytes[i], __ATOMIC_SEQ_CST);
		CU(cuMemFree(at[i]));
		bytes[i] = 0;
	}
	r = cuMemAlloc(&at[i], want);
	if (r == CUDA_SUCCESS) {
		bytes[i] = want;
		add_held(s, want, all);
	}
	CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
}

/* Returns once both processes have come to this step, at nearly the same time. */
static void step(struct race *s, unsigned *n)
{
	__atomic_add_fetch(&s->steps, 1, __ATOMIC_SEQ_CST);
	*n += 2;
	while ((int)(__atomic_load_n(&s->steps, __ATOMIC_SEQ_CST) - *n) < 0) {
		sched_yield();
	}
}

/* Both ask for more than half of the limit at the same time: exactly one of them gets it. */
static void duel(struct race *s, size_t all)
{
	unsigned n = 0;

	for (unsigned i = 1; i <= DUELS; i++) {
		CUdeviceptr at;
		CUresult r;

		step(s, &n);
		r = cuMemAlloc(&at, all / 2 + 2 * MIB);
		__atomic_add_fetch(&s->won, r == CUDA_SUCCESS, __ATOMIC_SEQ_CST);
		step(s, &n);
		CHECK(s->won == i, "%u allocations in %u duels", s->won, i);
		step(s, &n);
		if (r == CUDA_SUCCESS) {
			CU(cuMemFree(at));
		}
	}
}

static void run_race(struct race *s, uint64_t seed)
{
	CUdeviceptr at[HELD] = { 0 }, more;
	size_t bytes[HELD] = { 0 }, all;

	begin();
	all = limit();
	meet(s, 0);
	duel(s, all);
	for (int i = 0; i < ROUNDS; i++) {
		one_round(s, &seed, all, at, bytes);
	}
	while (cuMemAlloc(&more, 2 * MIB) == CUDA_SUCCESS) {
		add_held(s, 2 * MIB, all);
	}
	meet(s, 1);
	CHECK(s->held * 100 >= all * 99, "both hold %zu of %zu MiB", s->held / MIB, all / MIB);
	EXPECT_USED(s->held);
	meet(s, 2); /* before either exits, which returns its memory */
}

static int race(const char *program, int fd)
{
	uint64_t seed = fd < 0 ? 11 : 22;
	struct race *s;
	char text[16];
	pid_t child = 0;
	int status = 0;

	if (fd < 0) {
		fd = memfd_create("race", 0);
		CHECK(fd >= 0 && ftruncate(fd, sizeof(*s)) == 0, "memfd_create");
		snprintf(text, sizeof(text), "%d", fd);
		child = fork();
		if (child == 0) {
			execl(program, program, "race", text, (char *)NULL);
			_exit(127);
		}
	}
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(s != MAP_FAILED && child >= 0, "mmap or fork");
	run_race(s, seed);
	if (child) {
		CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
		printf("most %zu MiB\n", s->most / MIB);
	}
	return 0;
}

/* ---- contexts ---- */

static CUdeviceptr linear(size_t bytes)
{
	CUdeviceptr at;

	CU(cuMemAlloc(&at, bytes));
	return at;
}

/* Takes memory of several kinds in the current context. */
static void take_some(void)
{
	uint64_t array;

	(void)linear(10 * MIB);
	(void)linear(1000);
	(void)linear(1000);
	CU(take_array(&array, 4 * MIB));
}

#define SOME (16 * MIB)

static int contexts(void)
{
	CUcontext other, primary, gone;

	begin();
	(void)linear(2 * MIB); /* of a context that stays */
	CU(cuCtxCreate(&other, 0, device));
	take_some();
	EXPECT_USED(2 * MIB + SOME);
	CU(cuCtxDestroy(other));
	CU(cuCtxSetCurrent(context));
	EXPECT_USED(2 * MIB);
	for (int reset = 0; reset < 2; reset++) {
		CU(cuDevicePrimaryCtxRetain(&primary, device));
		CU(cuCtxPushCurrent_v2(primary));
		take_some();
		EXPECT_USED(2 * MIB + SOME);
		CU(cuCtxPopCurrent_v2(&gone));
		CU(reset ? cuDevicePrimaryCtxReset(device) : cuDevicePrimaryCtxRelease(device));
		EXPECT_USED(2 * MIB);
	}
	return 0;
}

/* ---- frees in stream order ---- */

static CUdeviceptr from_pool(CUmemoryPool *ret)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUdeviceptr at;

	CU(cuMemPoolCreate(ret, &props));
	CU(cuMemAllocFromPoolAsync(&at, 16 * MIB, *ret, NULL));
	return at;
}

/* A destroyed pool that the program has told to keep its memory keeps only what is in use. */
static void destroy_with_threshold(void)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	uint64_t threshold = UINT64_MAX;
	CUdeviceptr stays, goes;
	CUmemoryPool p;
	CUstream stream;

	CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CU(cuMemPoolCreate(&p, &props));
	CU(cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	CU(cuMemAllocFromPoolAsync(&stays, 32 * MIB, p, stream));
	CU(cuMemAllocFromPoolAsync(&goes, 16 * MIB, p, stream));
	CU(cuMemFreeAsync(goes, stream));
	CU(cuStreamSynchronize(stream));
	CHECK(used() >= 48 * MIB, "%zu", used());
	CU(cuMemPoolDestroy(p));
	EXPECT_USED(32 * MIB);
	CHECK(cuMemPoolDestroy(p) == CUDA_ERROR_INVALID_VALUE, "destroyed twice");
	CHECK(cuMemAllocFromPoolAsync(&goes, MIB, p, stream) == CUDA_ERROR_INVALID_VALUE,
	      "from a destroyed pool");
	CU(cuMemFreeAsync(stays, stream));
	CU(cuStreamSynchronize(stream));
	EXPECT_USED(0);
}

/* The limit is less than what all of the rounds take together. */
static int frees(void)
{
	CUmemoryPool p;
	CUdeviceptr at;

	begin();
	for (int i = 0; i < 40; i++) {
		at = linear(i % 2 ? 16 * MIB : 1000);
		CU(cuMemFreeAsync(at, NULL));
		CU(cuCtxSynchronize());
		EXPECT_USED(0);
	}
	for (int i = 0; i < 40; i++) {
		at = from_pool(&p);
		CU(cuMemFreeAsync(at, NULL));
		CU(cuMemPoolDestroy(p));
		CU(cuCtxSynchronize());
		EXPECT_USED(0);
	}
	at = from_pool(&p); /* its memory is kept while it is in use */
	CU(cuMemPoolDestroy(p));
	CU(cuCtxSynchronize());
	CHECK(used() >= 16 * MIB, "%zu", used());
	CU(cuMemFreeAsync(at, NULL));
	CU(cuCtxSynchronize());
	EXPECT_USED(0);
	destroy_with_threshold();
	return 0;
}

static int exec_again(char **argv)
{
	begin();
	(void)linear(40 * MIB);
	execl(argv[0], argv[0], "fill", "linear-3M", (char *)NULL);
	return 2;
}

/* ---- chunks ---- */

static CUmemGenericAllocationHandle chunk(size_t bytes)
{
	CUmemGenericAllocationHandle h;

	CU(cuMemCreate(&h, bytes, &on_device, 0));
	return h;
}

/* A mapping keeps a chunk, and so does a handle from cuMemRetainAllocationHandle. */
static void keep_by_mapping(CUdeviceptr at)
{
	CUmemGenericAllocationHandle h = chunk(4 * MIB), again;

	CU(cuMemMap(at, 4 * MIB, 0, h, 0));
	CU(cuMemRelease(h));
	EXPECT_USED(4 * MIB);
	CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + MIB)));
	CU(cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)at));
	CU(cuMemUnmap(at, 4 * MIB));
	EXPECT_USED(4 * MIB);
	CU(cuMemRelease(h));
	EXPECT_USED(4 * MIB);
	CU(cuMemRelease(again));
	EXPECT_USED(0);
}

/* One call unmaps mappings of three chunks, of which one is mapped twice. */
static void unmap_several(CUdeviceptr at)
{
	CUmemGenericAllocationHandle a = chunk(4 * MIB), b = chunk(2 * MIB), c = chunk(2 * MIB);

	EXPECT_USED(8 * MIB);
	CU(cuMemMap(at, 4 * MIB, 0, a, 0));
	CU(cuMemMap(at + 4 * MIB, 2 * MIB, 0, b, 0));
	CU(cuMemMap(at + 6 * MIB, 4 * MIB, 0, a, 0));
	CU(cuMemMap(at + 10 * MIB, 2 * MIB, 0, c, 0));
	CU(cuMemRelease(a));
	CU(cuMemRelease(b));
	EXPECT_USED(8 * MIB);
	CU(cuMemUnmap(at, 6 * MIB));
	EXPECT_USED(6 * MIB);
	CU(cuMemUnmap(at + 6 * MIB, 6 * MIB));
	EXPECT_USED(2 * MIB);
	CU(cuMemRelease(c));
	EXPECT_USED(0);
}

static int chunks(void)
{
	CUdeviceptr at;

	begin();
	CU(cuMemAddressReserve(&at, 16 * MIB, 0, 0, 0));
	keep_by_mapping(at);
	unmap_several(at);
	CHECK(cuMemRelease(12345) != CUDA_SUCCESS, "a handle that does not exist");
	CHECK(cuMemUnmap(at, 2 * MIB) != CUDA_SUCCESS, "a range without a mapping");
	EXPECT_USED(0);
	return 0;
}

/* ---- fork ---- */

static int fork_quiet(void)
{
	int status;
	pid_t child;

	begin();
	(void)linear(10 * MIB);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		exit(0); /* runs the handlers of the driver and of the shim */
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "fork");
	EXPECT_USED(10 * MIB);
	(void)linear(2 * MIB);
	EXPECT_USED(12 * MIB);
	return 0;
}

/* ---- small allocations at the limit ---- */

static int small(void)
{
	const struct kind *k = find_kind("linear-2M");
	uint64_t *items = program_room(ITEMS_MAX * sizeof(*items));
	CUdeviceptr stays = 0, goes = 0, more;
	size_t n, taken = 0;
	CUresult r;

	begin();
	do { /* two in one block; the first one may be alone at its end */
		stays = goes;
		goes = linear(1000);
	} while (stays / (2 * MIB) != goes / (2 * MIB));
	n = take_all(k, items);
	CHECK(used() == limit(), "%zu of %zu", used(), limit());
	CU(cuMemFree(goes));
	CHECK(used() == limit(), "%zu of %zu", used(), limit());
	while ((r = cuMemAlloc(&more, 1000)) == CUDA_SUCCESS) { /* in the block, and no further */
		taken++;
		CHECK(used() == limit(), "%zu of %zu", used(), limit());
		CHECK(more / (2 * MIB) == stays / (2 * MIB), "%llx", (unsigned long long)more);
	}
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	CHECK(taken >= 1 && taken < 5000, "%zu", taken);
	CHECK(k->take(&items[n], k->bytes) == CUDA_ERROR_OUT_OF_MEMORY, "more than all");
	free_all(k, items, n);
	CU(cuCtxDestroy(context));
	CU(cuCtxCreate(&context, 0, device));
	EXPECT_USED(0);
	free(items);
	return 0;
}

/* ---- overhead ---- */

#define MODULE (8 * MIB)
static const char module_text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
				  ".global .align 4 .b8 big[8388608];\n"
				  ".visible .entry k() { ret; }\n";

static void expect_no_room(void)
{
	CUcontext other = NULL;
	CUmodule m = NULL;
	CUresult r;

	r = cuCtxCreate(&other, 0, device);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	r = cuDevicePrimaryCtxRetain(&other, device);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	r = cuModuleLoadData(&m, module_text);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
}

static int overhead(size_t each, bool later)
{
	const struct kind *k = find_kind("linear-2M");
	uint64_t *items = program_room(ITEMS_MAX * sizeof(*items));
	size_t first = later ? 0 : each, n;
	CUcontext other;
	CUmodule m;

	begin();
	for (int round = 0; round < 2; round++) {
		EXPECT_USED(first);
		CU(cuCtxCreate(&other, 0, device));
		EXPECT_USED(first + each);
		CU(cuCtxDestroy(other));
		CU(cuCtxSetCurrent(context));
		EXPECT_USED(first);
		CU(cuDevicePrimaryCtxRetain(&other, device));
		EXPECT_USED(first + each);
		CU(cuDevicePrimaryCtxRelease(device));
		EXPECT_USED(first);
		CU(cuModuleLoadData(&m, module_text));
		EXPECT_USED(first + MODULE);
		CU(cuModuleUnload(m));
		if (!later) {
			EXPECT_USED(first);
		}
		n = take_all(k, items);
		CHECK(later || n * k->unit == limit() - first, "%zu items", n);
		CHECK(used() == limit(), "%zu of %zu", used(), limit());
		expect_no_room();
		CHECK(used() == limit(), "%zu of %zu", used(), limit());
		CHECK(k->take(&items[n], k->bytes) == CUDA_ERROR_OUT_OF_MEMORY, "more than all");
		free_all(k, items, n);
		CU(cuCtxDestroy(context));
		CU(cuCtxCreate(&context, 0, device));
	}
	EXPECT_USED(first);
	free(items);
	return 0;
}

/* ---- pinned host memory ---- */

static CUresult take_host(uint64_t *ret, size_t bytes)
{
	return cuMemHostAlloc((void **)ret, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

static CUresult take_plain_host(uint64_t *ret, size_t bytes)
{
	return cuMemAllocHost_v2((void **)ret, bytes);
}

static CUresult free_host(uint64_t item)
{
	return cuMemFreeHost((void *)(uintptr_t)item);
}

/* Half a page before a border of pages: takes one page more. */
static CUresult take_registered(uint64_t *ret, size_t bytes)
{
	char *p = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	CUresult r;

	CHECK(p != MAP_FAILED, "mmap");
	r = cuMemHostRegister_v2(p + 2048, bytes, 0);
	if (r != CUDA_SUCCESS) {
		munmap(p, bytes + 4096);
	}
	*ret = (uint64_t)(uintptr_t)(p + 2048);
	return r;
}

static CUresult free_registered(uint64_t item)
{
	return cuMemHostUnregister((void *)(uintptr_t)item);
}

static CUresult take_host_chunk(uint64_t *ret, size_t bytes)
{
	CUmemAllocationProp p = on_device;

	p.location.type = CU_MEM_LOCATION_TYPE_HOST;
	return cuMemCreate((CUmemGenericAllocationHandle *)ret, bytes, &p, 0);
}

static const struct kind host_kinds[] = {
	{ "cuMemHostAlloc", 2 * MIB, 2 * MIB, 0, take_host, free_host },
	{ "cuMemAllocHost", 3 * MIB + 1, 3 * MIB + 4096, 0, take_plain_host, free_host },
	{ "cuMemHostRegister", 2 * MIB, 2 * MIB + 4096, 0, take_registered, free_registered },
	{ "cuMemCreate", 2 * MIB, 2 * MIB, 0, take_host_chunk, free_chunk },
};

static int pinned(size_t most)
{
	uint64_t *items = program_room(ITEMS_MAX * sizeof(*items)), one;
	CUcontext other;
	size_t n;

	begin();
	for (size_t i = 0; i < sizeof(host_kinds) / sizeof(host_kinds[0]); i++) {
		const struct kind *k = &host_kinds[i];

		if (k->take == take_host_chunk && k->take(&one, k->bytes) != CUDA_SUCCESS) {
			continue; /* the device has no chunks on the host */
		}
		if (k->take == take_host_chunk) {
			CU(k->free(one));
		}
		for (int round = 0; round < 2; round++) {
			n = take_all(k, items);
			CHECK(n == most / k->unit, "%s: %zu items", k->name, n);
			EXPECT_USED(0); /* it is no device memory */
			free_all(k, items, n);
		}
	}
	for (int i = 0; i < 3; i++) { /* it goes with its context */
		CU(cuCtxCreate(&other, 0, device));
		CU(take_host(&one, most - 4 * MIB));
		CU(cuCtxDestroy(other));
		CU(cuCtxSetCurrent(context));
	}
	free(items);
	return 0;
}

/* ---- graphs ---- */

static const CUDA_MEM_ALLOC_NODE_PARAMS of_8_mib = {
	.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
	.bytesize = 8 * MIB
};

/* Returns a graph that allocates and frees n times 8 MiB. */
static CUgraph graph_of(unsigned n)
{
	CUgraphNode node, last = NULL;
	CUgraph g;

	CU(cuGraphCreate(&g, 0));
	for (unsigned i = 0; i < n; i++) {
		CUDA_MEM_ALLOC_NODE_PARAMS p = of_8_mib;

		CU(cuGraphAddMemAllocNode(&node, g, last ? &last : NULL, last != NULL, &p));
		CU(cuGraphAddMemFreeNode(&last, g, &node, 1, p.dptr));
	}
	return g;
}

/* Takes all but `left` bytes; returns the memory. */
static CUdeviceptr leave_only(size_t left)
{
	return linear(limit() - used() - left);
}

static void launch_twice(CUgraph g)
{
	CUgraphExec exec;

	CU(cuGraphInstantiateWithFlags(&exec, g, 0));
	for (int i = 0; i < 2; i++) {
		CU(cuGraphLaunch(exec, NULL));
		CU(cuCtxSynchronize());
		EXPECT_USED(16 * MIB);
	}
	CU(cuGraphExecDestroy(exec));
}

static void capture_some(void)
{
	CUgraphExec exec;
	CUdeviceptr at;
	CUstream s;
	CUgraph g;

	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemAllocAsync(&at, 8 * MIB, s));
	CU(cuMemFreeAsync(at, s));
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphInstantiateWithFlags(&exec, g, 0));
	CU(cuGraphLaunch(exec, s));
	CU(cuStreamSynchronize(s));
	EXPECT_USED(8 * MIB);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(g));
	CU(cuStreamDestroy(s));
	CU(cuDeviceGraphMemTrim(device));
	EXPECT_USED(0);
}

static CUresult add_node(CUgraph g, unsigned entry, size_t bytes)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = of_8_mib };
	CUgraphNode node;

	p.alloc.bytesize = bytes;
	return entry % 3 == 0	? cuGraphAddMemAllocNode(&node, g, NULL, 0, &p.alloc)
	       : entry % 3 == 1 ? cuGraphAddNode(&node, g, NULL, 0, &p)
				: cuGraphAddNode_v2(&node, g, NULL, NULL, 0, &p);
}

/* The first nodes of the process: a node that is refused is not in the graph. */
static void refuse_nodes(void)
{
	size_t n = 1, most = limit();
	CUdeviceptr at = 0;
	CUstream s;
	CUgraph g;

	CU(cuGraphCreate(&g, 0));
	for (unsigned entry = 0; entry < 3; entry++) {
		CUresult r = add_node(g, entry, most + 8 * MIB);

		CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "entry %u: error %d", entry, (int)r);
	}
	CU(cuGraphGetNodes(g, NULL, &n));
	CHECK(n == 0, "%zu nodes", n);
	CU(cuGraphDestroy(g));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuMemAllocAsync(&at, most + 8 * MIB, s) == CUDA_ERROR_OUT_OF_MEMORY, "at %llx",
	      (unsigned long long)at);
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphGetNodes(g, NULL, &n));
	CHECK(n == 0, "%zu nodes", n);
	CU(cuGraphDestroy(g));
	CU(cuStreamDestroy(s));
	EXPECT_USED(0);
}

static void graphs_until_full(void)
{
	CUgraph g;
	CUresult r;
	size_t n = 0;

	CU(cuGraphCreate(&g, 0));
	do {
		r = add_node(g, (unsigned)n, 8 * MIB);
		n += r == CUDA_SUCCESS;
	} while (r == CUDA_SUCCESS && n < 1000);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY && n * 8 * MIB == limit(), "error %d, %zu nodes",
	      (int)r, n);
	EXPECT_USED(limit());
	CU(cuGraphDestroy(g));
	EXPECT_USED(0);
}

/* The soft GPU takes the memory of a node when it is made. */
static int graphs(void)
{
	CUgraphExec exec;
	CUdeviceptr at;
	CUgraph g;

	begin();
	refuse_nodes();
	g = graph_of(2);
	EXPECT_USED(16 * MIB);
	launch_twice(g);
	at = leave_only(0);
	EXPECT_USED(limit());
	CU(cuGraphInstantiateWithFlags(&exec, g, 0));
	CU(cuGraphLaunch(exec, NULL)); /* has its memory */
	CU(cuCtxSynchronize());
	CU(cuGraphExecDestroy(exec));
	EXPECT_USED(limit());
	CU(cuMemFree(at));
	launch_twice(g);
	CU(cuGraphDestroy(g));
	CU(cuDeviceGraphMemTrim(device));
	EXPECT_USED(0);
	capture_some();
	graphs_until_full();
	graphs_until_full();
	return 0;
}

/* Libraries beyond the number that is measured at once are loaded and found later, beyond the
 * limit; nothing can be taken until enough of them are unloaded. */
/* Loads so many modules that the shim leaves the measurement of further ones in this second to its
 * thread. At the limit they may be refused. */
static void load_many(void)
{
	CUmodule m;

	for (int i = 0; i < 64; i++) {
		(void)cuModuleLoadData(&m, ".version 6.0\n.target sm_70\n.address_size 64\n"
					   ".visible .entry k() { ret; }\n");
	}
}

/* Loads a library whose variable is too small to be charged before. On a slow machine the second is
 * over before: then it is measured, and may be refused. */
static CUlibrary load_unmeasured(void)
{
	static const char text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
				   ".global .align 4 .b8 little[1000000];\n"
				   ".visible .entry k() { ret; }\n";
	CUlibrary l = NULL;
	CUresult r = cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0);

	for (int i = 0; i < 1000 && r == CUDA_ERROR_OUT_OF_MEMORY; i++) {
		load_many();
		r = cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0);
	}
	CHECK(r == CUDA_SUCCESS, "error %d", (int)r);
	return l;
}

static int modules(void)
{
	CUlibrary loaded[80];
	CUdeviceptr at;
	CUresult r;

	begin();
	load_many();
	for (size_t i = 0; i < 80; i++) {
		loaded[i] = load_unmeasured();
	}
	eventually(used() >= limit()); /* a thread of the shim measures */
	r = cuMemAlloc(&at, 2 * MIB);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	for (size_t i = 4; i < 80; i++) {
		CU(cuLibraryUnload(loaded[i]));
	}
	eventually(used() <= 8 * MIB);
	CU(cuMemAlloc(&at, 32 * MIB));
	for (size_t i = 0; i < 4; i++) {
		CU(cuLibraryUnload(loaded[i]));
	}
	eventually(used() == 32 * MIB);
	return 0;
}

static int no_context(void)
{
	CUresult r;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	r = cuCtxCreate(&context, 0, device);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	r = cuCtxGetCurrent(&context);
	CHECK(r == CUDA_SUCCESS && !context, "a context");
	return 0;
}

/* ---- serve ---- */

/* What one server shares with another lies in a file of this name, in the runtime folder. */
static FILE *open_shared(const char *mode)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/shared", getenv("GBPF_RUNTIME_DIR"));
	f = fopen(path, mode);
	CHECK(f, "%s", path);
	return f;
}

static CUdeviceptr shared; /* that was exported last */

static CUresult share_linear(CUdeviceptr at)
{
	CUipcMemHandle h;
	FILE *f;

	shared = at;
	CU(cuIpcGetMemHandle(&h, at));
	f = open_shared("w");
	CHECK(fwrite(&h, sizeof(h), 1, f) == 1, "write");
	fclose(f);
	return CUDA_SUCCESS;
}

/* Shares n allocations, none of which is opened. */
static CUresult share_many(size_t n)
{
	CUipcMemHandle h;

	while (n--) {
		CU(cuIpcGetMemHandle(&h, linear(1)));
	}
	return CUDA_SUCCESS;
}

static CUdeviceptr imported[2]; /* the same memory, opened twice */
static CUmemGenericAllocationHandle imported_chunk;

static CUresult open_linear(void)
{
	CUipcMemHandle h;
	FILE *f = open_shared("r");
	CUresult r = CUDA_SUCCESS;

	CHECK(fread(&h, sizeof(h), 1, f) == 1, "read");
	fclose(f);
	for (int i = 0; i < 2 && r == CUDA_SUCCESS; i++) {
		r = cuIpcOpenMemHandle_v2(&imported[i], h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	}
	return r;
}

static CUresult share_chunk(size_t bytes)
{
	CUmemAllocationProp p = on_device;
	CUmemGenericAllocationHandle h;
	FILE *f;
	int fd;

	p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CU(cuMemCreate(&h, bytes, &p, 0));
	CU(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	f = open_shared("w");
	fprintf(f, "/proc/%d/fd/%d", (int)getpid(), fd);
	fclose(f);
	return CUDA_SUCCESS;
}

static CUresult open_chunk(size_t bytes)
{
	FILE *f = open_shared("r");
	char path[64] = "";
	int fd;

	CHECK(fgets(path, sizeof(path), f), "read");
	fclose(f);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0, "%s", path);
	CU(cuMemImportFromShareableHandle(&imported_chunk, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(cuMemAddressReserve(&imported[0], bytes, 0, 0, 0));
	return cuMemMap(imported[0], bytes, 0, imported_chunk, 0);
}

/* The file has the data of a pointer, then the path of the pool's descriptor. */
static CUresult share_pool(size_t bytes)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	CUmemPoolPtrExportData data;
	CUmemoryPool p;
	FILE *f;
	int fd;

	CU(cuMemPoolCreate(&p, &props));
	CU(cuMemAllocFromPoolAsync(&shared, bytes, p, NULL));
	CU(cuStreamSynchronize(NULL));
	CU(cuMemPoolExportToShareableHandle(&fd, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(cuMemPoolExportPointer(&data, shared));
	f = open_shared("w");
	CHECK(fwrite(&data, sizeof(data), 1, f) == 1, "write");
	fprintf(f, "/proc/%d/fd/%d", (int)getpid(), fd);
	fclose(f);
	return CUDA_SUCCESS;
}

static CUresult open_pool(void)
{
	CUmemPoolPtrExportData data;
	FILE *f = open_shared("r");
	char path[64] = "";
	CUmemoryPool p;
	int fd;

	CHECK(fread(&data, sizeof(data), 1, f) == 1 && fgets(path, sizeof(path), f), "read");
	fclose(f);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0, "%s", path);
	CU(cuMemPoolImportFromShareableHandle(&p, (void *)(uintptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return cuMemPoolImportPointer(&imported[0], p, &data);
}

/* The verbs of sharing. Returns false if this is none. */
static bool share(const char *verb, size_t mib, CUresult *ret)
{
	size_t bytes = mib * MIB;

	if (strcmp(verb, "share") == 0) {
		*ret = share_linear(linear(bytes));
	} else if (strcmp(verb, "share-many") == 0) {
		*ret = share_many(mib);
	} else if (strcmp(verb, "open") == 0) {
		*ret = open_linear();
	} else if (strcmp(verb, "close") == 0) {
		*ret = cuIpcCloseMemHandle(imported[0]);
	} else if (strcmp(verb, "free-shared") == 0) {
		*ret = cuMemFree(shared);
	} else if (strcmp(verb, "share-pool") == 0) {
		*ret = share_pool(bytes);
	} else if (strcmp(verb, "open-pool") == 0) {
		*ret = open_pool();
	} else if (strcmp(verb, "free-imported") == 0) {
		*ret = cuMemFree(imported[0]);
	} else if (strcmp(verb, "share-chunk") == 0) {
		*ret = share_chunk(bytes);
	} else if (strcmp(verb, "open-chunk") == 0) {
		*ret = open_chunk(bytes);
	} else if (strcmp(verb, "close-chunk") == 0) {
		CU(cuMemRelease(imported_chunk));
		*ret = cuMemUnmap(imported[0], bytes);
	} else {
		return false;
	}
	return true;
}

static CUdeviceptr stack[4096];
static size_t depth;

/* Writes over the account of its virtual GPU: over the first words, or over all. */
static bool scribble(bool whole)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], mode[8];
	size_t first, end;
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps)) {
		found = strstr(line, "gbpf-account") &&
			sscanf(line, "%zx-%zx %7s", &first, &end, mode) == 3 && mode[1] == 'w';
	}
	if (found) {
		memset((void *)first, 0xff, whole ? end - first : 16);
	}
	if (maps) {
		fclose(maps);
	}
	return found;
}

/* Loads a module with a variable of that many bytes. */
static CUresult load_variable(size_t bytes)
{
	char text[256];
	CUmodule m;

	snprintf(text, sizeof(text),
		 ".version 6.0\n.target sm_70\n.address_size 64\n.global .align 4 .b8 v[%zu];\n"
		 ".visible .entry k() { ret; }\n",
		 bytes);
	return cuModuleLoadData(&m, text);
}

static const char *answer(const char *verb, size_t mib, char out[64])
{
	const char *name = "ok";
	CUresult r = CUDA_SUCCESS;
	uint64_t item;
	void *host;

	if (strcmp(verb, "alloc") == 0) {
		r = cuMemAlloc(&stack[depth], mib * MIB);
		depth += r == CUDA_SUCCESS;
	} else if (strcmp(verb, "managed") == 0) {
		r = cuMemAllocManaged(&stack[depth], mib * MIB, CU_MEM_ATTACH_GLOBAL);
		depth += r == CUDA_SUCCESS;
	} else if (strcmp(verb, "free") == 0) {
		r = cuMemFree(stack[--depth]);
	} else if (strncmp(verb, "take-", 5) == 0) {
		r = find_kind(verb + 5)->take(&item, find_kind(verb + 5)->bytes);
	} else if (share(verb, mib, &r)) {
		; /* done */
	} else if (strcmp(verb, "pin") == 0) {
		r = cuMemHostAlloc(&host, mib * MIB, 0);
	} else if (strcmp(verb, "load") == 0) {
		r = load_variable(mib * MIB);
	} else if (strcmp(verb, "scribble") == 0) {
		return scribble(mib) ? "ok" : "no account";
	} else if (strcmp(verb, "context") == 0) {
		r = cuCtxCreate(&context, 0, device);
	} else {
		snprintf(out, 64, "%zu of %zu", used() / MIB, limit() / MIB);
		return out;
	}
	if (r != CUDA_SUCCESS) {
		cuGetErrorName(r, &name);
	}
	return name;
}

/* Commands, one a line, each with a line as its answer: `alloc MIB`, `managed MIB`, `free` (of the
 * last one that was allocated), `context` (makes one more), `pin MIB`, `load MIB` (a module with a
 * variable), `take-KIND` (an item as fill() takes them), `scribble 0|1`, those of share(), and
 * `used`. The first line of the output is the process's number. */
static int serve(void)
{
	char line[64], verb[32], text[64];

	begin();
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		size_t mib = 0;

		if (sscanf(line, "%31s %zu", verb, &mib) < 1 || depth == 4096 ||
		    (strcmp(verb, "free") == 0 && !depth)) {
			return 2;
		}
		puts(answer(verb, mib, text));
		fflush(stdout);
	}
	return 0;
}

static int init(void)
{
	const char *name = "?";

	cuGetErrorName(cuInit(0), &name);
	puts(name);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "fill") == 0 && argc == 3) {
		return fill(argv[2]);
	}
	if (strcmp(what, "race") == 0) {
		return race(argv[0], argc > 2 ? atoi(argv[2]) : -1);
	}
	if (strcmp(what, "contexts") == 0) {
		return contexts();
	}
	if (strcmp(what, "chunks") == 0) {
		return chunks();
	}
	if (strcmp(what, "frees") == 0) {
		return frees();
	}
	if (strcmp(what, "exec") == 0) {
		return exec_again(argv);
	}
	if (strcmp(what, "fork") == 0) {
		return fork_quiet();
	}
	if (strcmp(what, "small") == 0) {
		return small();
	}
	if (strcmp(what, "overhead") == 0 && argc >= 3) {
		return overhead((size_t)atoi(argv[2]) * MIB, argc > 3);
	}
	if (strcmp(what, "pinned") == 0 && argc == 3) {
		return pinned((size_t)atoi(argv[2]) * MIB);
	}
	if (strcmp(what, "graphs") == 0) {
		return graphs();
	}
	if (strcmp(what, "modules") == 0) {
		return modules();
	}
	if (strcmp(what, "no-context") == 0) {
		return no_context();
	}
	if (strcmp(what, "serve") == 0) {
		return serve();
	}
	if (strcmp(what, "init") == 0) {
		return init();
	}
	fprintf(stderr, "usage: %s CASE, see vgpu.c\n", argv[0]);
	return 2;
}

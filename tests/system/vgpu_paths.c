/* vgpu_paths: device memory by one entry point until the call fails, for vgpu_paths.bats and
 * tests/gpu/memory, which runs it on a card. It knows nothing of gBPF: it compares what it got with
 * what cuMemGetInfo had promised.
 *
 *   check PATH [PATH]  fills what is free, in pieces of 64 MiB down to 2 MiB, and frees it, twice;
 *                      with two paths in two processes at once. Prints what they got together, and
 *                      exits with 1 unless that is what was free, to 2 MiB, or to 32
 *                      MiB if all paths are pools, which grow by that
 *   serve PATH         carries out commands of its standard input: see serve()
 *
 * Sizes are those that the driver takes: whole units of 2 MiB. */
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
#define UNIT (2 * MIB)
#define ITEMS_MAX 16384u
#define ROUNDS 2

#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAllocPitch cuMemAllocPitch_v2
#define cuArrayCreate cuArrayCreate_v2
#define cuArray3DCreate cuArray3DCreate_v2

struct item {
	uint64_t at, handle; /* handle: of the array, the chunk or the graph */
	CUgraphExec exec;
	size_t bytes;
};

static CUdevice device;
static CUmemoryPool pool;
static CUdeviceptr small; /* for computations */
static struct item items[ITEMS_MAX];
static size_t n_items;

/* ---- linear memory ---- */

static CUresult take_linear(struct item *i)
{
	return cuMemAlloc((CUdeviceptr *)&i->at, i->bytes);
}

static CUresult take_pitch(struct item *i)
{
	size_t pitch = 0;
	CUresult r = cuMemAllocPitch((CUdeviceptr *)&i->at, &pitch, 4096, i->bytes / 4096, 16);

	CHECK(r != CUDA_SUCCESS || pitch == 4096, "a pitch of %zu", pitch);
	return r;
}

static CUresult take_managed(struct item *i)
{
	return cuMemAllocManaged((CUdeviceptr *)&i->at, i->bytes, CU_MEM_ATTACH_GLOBAL);
}

static CUresult free_linear(const struct item *i)
{
	return cuMemFree((CUdeviceptr)i->at);
}

/* ---- pools ---- */

static CUresult take_async(struct item *i)
{
	CUresult r = cuMemAllocAsync((CUdeviceptr *)&i->at, i->bytes, NULL);

	return r == CUDA_SUCCESS ? cuStreamSynchronize(NULL) : r;
}

static CUresult take_from_pool(struct item *i)
{
	CUresult r = cuMemAllocFromPoolAsync((CUdeviceptr *)&i->at, i->bytes, pool, NULL);

	return r == CUDA_SUCCESS ? cuStreamSynchronize(NULL) : r;
}

static CUresult free_async(const struct item *i)
{
	return cuMemFreeAsync((CUdeviceptr)i->at, NULL);
}

/* ---- virtual memory ---- */

static CUresult take_chunk(struct item *i)
{
	const CUmemAllocationProp p = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	const CUmemAccessDesc access = { .location = p.location,
					 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	CUresult r = cuMemCreate(&h, i->bytes, &p, 0);

	if (r == CUDA_SUCCESS) {
		i->handle = h;
		CU(cuMemAddressReserve((CUdeviceptr *)&i->at, i->bytes, 0, 0, 0));
		CU(cuMemMap((CUdeviceptr)i->at, i->bytes, 0, h, 0));
		CU(cuMemSetAccess((CUdeviceptr)i->at, i->bytes, &access, 1));
	}
	return r;
}

static CUresult free_chunk(const struct item *i)
{
	CU(cuMemUnmap((CUdeviceptr)i->at, i->bytes));
	CU(cuMemAddressFree((CUdeviceptr)i->at, i->bytes));
	return cuMemRelease((CUmemGenericAllocationHandle)i->handle);
}

/* ---- arrays: elements of 16 bytes ---- */

static CUresult made(struct item *i, CUresult r, const void *array)
{
	i->handle = (uint64_t)(uintptr_t)array;
	return r;
}

/* The device takes eight rows. */
static CUresult take_1d(struct item *i)
{
	const CUDA_ARRAY_DESCRIPTOR d = { .Width = i->bytes / 16 / 8,
					  .Format = CU_AD_FORMAT_FLOAT,
					  .NumChannels = 4 };
	CUarray a = NULL;
	CUresult r = cuArrayCreate(&a, &d);

	return made(i, r, a);
}

static CUresult take_3d(struct item *i)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 1024,
					    .Height = 128,
					    .Depth = i->bytes / UNIT,
					    .Format = CU_AD_FORMAT_FLOAT,
					    .NumChannels = 4 };
	CUarray a = NULL;
	CUresult r = cuArray3DCreate(&a, &d);

	return made(i, r, a);
}

/* Two levels, of 1 MiB and 256 KiB, for which the device takes a unit. */
static CUresult take_mipmapped(struct item *i)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = 1024, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4
	};
	CUmipmappedArray a = NULL;
	CUresult r = cuMipmappedArrayCreate(&a, &d, 2);

	return made(i, r, a);
}

static CUresult free_array(const struct item *i)
{
	return cuArrayDestroy((CUarray)(uintptr_t)i->handle);
}

static CUresult free_mipmapped(const struct item *i)
{
	return cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)i->handle);
}

/* ---- allocation nodes: a graph for each, which is launched once ---- */

static CUresult run_graph(struct item *i, CUgraph g)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = i->bytes,
	};
	CUgraphNode node;
	CUresult r = cuGraphAddMemAllocNode(&node, g, NULL, 0, &p);

	i->at = p.dptr;
	if (r == CUDA_SUCCESS) {
		r = cuGraphInstantiate(&i->exec, g, 0);
	}
	if (r == CUDA_SUCCESS) {
		r = cuGraphLaunch(i->exec, NULL);
		r = r == CUDA_SUCCESS ? cuCtxSynchronize() : r;
		if (r != CUDA_SUCCESS) {
			CU(cuGraphExecDestroy(i->exec));
		}
	}
	return r;
}

static CUresult take_node(struct item *i)
{
	CUgraph g;
	CUresult r;

	CU(cuGraphCreate(&g, 0));
	r = run_graph(i, g);
	i->handle = (uint64_t)(uintptr_t)g;
	if (r != CUDA_SUCCESS) {
		CU(cuGraphDestroy(g));
	}
	return r;
}

static CUresult free_node(const struct item *i)
{
	CU(cuMemFree((CUdeviceptr)i->at));
	CU(cuGraphExecDestroy(i->exec));
	return cuGraphDestroy((CUgraph)(uintptr_t)i->handle);
}

/* An entry point. piece: greatest size, in bytes of the device's memory, that it takes. */
static const struct path {
	const char *name;
	size_t piece;
	CUresult (*take)(struct item *i);
	CUresult (*free)(const struct item *i);
	bool addressed; /* cuMemsetD8 can be used on it */
} paths[] = {
	{ "alloc", 64 * MIB, take_linear, free_linear, true },
	{ "pitch", 64 * MIB, take_pitch, free_linear, true },
	{ "managed", 64 * MIB, take_managed, free_linear, true },
	{ "async", 64 * MIB, take_async, free_async, true },
	{ "pool", 64 * MIB, take_from_pool, free_async, true },
	{ "create", 64 * MIB, take_chunk, free_chunk, true },
	{ "array-1d", UNIT, take_1d, free_array, false },
	{ "array-3d", 64 * MIB, take_3d, free_array, false },
	{ "mipmapped", UNIT, take_mipmapped, free_mipmapped, false },
	{ "node", 64 * MIB, take_node, free_node, true },
};

static const struct path *find_path(const char *name)
{
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (strcmp(paths[i].name, name) == 0) {
			return &paths[i];
		}
	}
	fprintf(stderr, "no path '%s'\n", name);
	exit(2);
}

/* ---- filling ---- */

static size_t free_bytes(size_t *ret_total)
{
	size_t available, total;

	CU(cuMemGetInfo(&available, &total));
	if (ret_total) {
		*ret_total = total;
	}
	return available;
}

static void begin(void)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUcontext context;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuCtxCreate(&context, 0, device));
	CU(cuMemAlloc(&small, UNIT));
	CU(cuMemsetD8(small, 0, UNIT));
	CU(cuMemPoolCreate(&pool, &props));
}

/* Takes pieces, then smaller ones, until one of 2 MiB is refused. Returns the bytes. */
static size_t fill(const struct path *p)
{
	size_t got = 0;

	for (size_t piece = p->piece; piece >= UNIT; piece /= 2) {
		CUresult r = CUDA_SUCCESS;

		while (n_items < ITEMS_MAX) {
			struct item *i = &items[n_items];

			*i = (struct item){ .bytes = piece };
			r = p->take(i);
			if (r != CUDA_SUCCESS) {
				break;
			}
			if (p->addressed) {
				CU(cuMemsetD8((CUdeviceptr)i->at, (unsigned char)n_items, 4096));
			}
			got += piece;
			n_items++;
		}
		CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "%s: error %d after %zu items of %zu MiB",
		      p->name, (int)r, n_items, piece / MIB);
	}
	return got;
}

/* Returns the number of items whose first bytes are not what fill() stored. */
static unsigned wrong_items(const struct path *p)
{
	unsigned char back[4096];
	unsigned wrong = 0;

	for (size_t k = 0; p->addressed && k < n_items; k++) {
		CU(cuMemcpyDtoH(back, (CUdeviceptr)items[k].at, sizeof(back)));
		for (size_t b = 0; b < sizeof(back); b++) {
			if (back[b] != (unsigned char)k) {
				wrong++;
				break;
			}
		}
	}
	return wrong;
}

static void drop_from(const struct path *p, size_t keep)
{
	while (n_items > keep) {
		CU(p->free(&items[--n_items]));
	}
	CU(cuCtxSynchronize());
	CU(cuDeviceGraphMemTrim(device));
}

/* Returns whether the device still computes. */
static bool computes(void)
{
	uint32_t back[1024];

	CU(cuMemsetD32(small, 0x12345678, 1024));
	CU(cuMemcpyDtoH(back, small, sizeof(back)));
	for (size_t i = 0; i < 1024; i++) {
		if (back[i] != 0x12345678) {
			return false;
		}
	}
	return true;
}

/* ---- check ---- */

/* Shared by the processes. */
struct meeting {
	unsigned arrived;
	size_t got[ROUNDS];
	bool failed;
	pid_t reporter;
};

/* Returns once all processes have come here n times; exits if another one has failed. */
static void meet(struct meeting *m, unsigned n, unsigned processes)
{
	__atomic_add_fetch(&m->arrived, 1, __ATOMIC_SEQ_CST);
	eventually(__atomic_load_n(&m->arrived, __ATOMIC_SEQ_CST) >= n * processes ||
		   __atomic_load_n(&m->failed, __ATOMIC_SEQ_CST));
	CHECK(!__atomic_load_n(&m->failed, __ATOMIC_SEQ_CST), "the other process failed");
}

/* One process: reports when all have what they can get, to a unit, and when all have freed it. */
static int run(const struct path *p, struct meeting *m, unsigned processes)
{
	unsigned met = 0;
	size_t at_first;

	begin();
	meet(m, ++met, processes);
	at_first = free_bytes(NULL);
	for (unsigned round = 0; round < ROUNDS; round++) {
		size_t got, left;

		meet(m, ++met, processes);
		got = fill(p);
		__atomic_add_fetch(&m->got[round], got, __ATOMIC_SEQ_CST);
		meet(m, ++met, processes);
		left = free_bytes(NULL);
		if (m->reporter == getpid()) {
			printf("%s: %zu of %zu MiB, %zu left\n", p->name, m->got[round] / MIB,
			       at_first / MIB, left / MIB);
		}
		CHECK(m->got[round] <= at_first, "%zu of %zu KiB", m->got[round] >> 10,
		      at_first >> 10);
		CHECK(m->got[round] + UNIT > at_first, "%zu of %zu KiB", m->got[round] >> 10,
		      at_first >> 10);
		CHECK(left < UNIT, "%zu KiB are left", left >> 10);
		CHECK(wrong_items(p) == 0 && computes(), "wrong contents");
		meet(m, ++met, processes);
		drop_from(p, 0);
		meet(m, ++met, processes);
		/* A thread of either process may still be measuring a pool. */
		eventually(free_bytes(NULL) == at_first);
	}
	meet(m, ++met, processes);
	return 0;
}

static int check(char **names, unsigned processes)
{
	struct meeting *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int code = 0, status;

	CHECK(m != MAP_FAILED, "mmap");
	for (unsigned i = 0; i < processes; i++) {
		(void)find_path(names[i]);
	}
	for (unsigned i = 0; i < processes; i++) {
		pid_t child = fork();

		CHECK(child >= 0, "fork");
		if (child == 0) {
			m->reporter = i == 0 ? getpid() : m->reporter;
			exit(run(find_path(names[i]), m, processes));
		}
	}
	for (unsigned i = 0; i < processes; i++) {
		CHECK(wait(&status) > 0, "wait");
		if (status) {
			__atomic_store_n(&m->failed, true, __ATOMIC_SEQ_CST);
			code = 1;
		}
	}
	return code;
}

/* ---- serve ---- */

static void answer(const char *more)
{
	size_t total, available = free_bytes(&total);

	printf("{\"free\": %zu, \"total\": %zu%s}\n", available, total, more);
	fflush(stdout);
}

/* Commands, one a line, each answered with a line of JSON: `info`, `fill`, and `free`, which
 * frees a piece, computes, and frees the others. Fields: free, total, held (bytes before the
 * first command), got, refused, wrong (contents and results that are not right). */
static int serve(const struct path *p)
{
	char line[64], more[128];

	begin();
	snprintf(more, sizeof(more), ", \"held\": %zu, \"wrong\": %d", UNIT, !computes());
	answer(more);
	while (fgets(line, sizeof(line), stdin)) {
		more[0] = 0;
		if (strcmp(line, "fill\n") == 0) {
			size_t got = fill(p);

			snprintf(more, sizeof(more),
				 ", \"got\": %zu, \"refused\": true, \"wrong\": %u", got,
				 wrong_items(p));
		} else if (strcmp(line, "free\n") == 0) {
			drop_from(p, n_items ? n_items - 1 : 0);
			snprintf(more, sizeof(more), ", \"wrong\": %u",
				 wrong_items(p) + !computes());
			drop_from(p, 0);
		} else if (strcmp(line, "info\n") != 0) {
			return 2;
		}
		answer(more);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 3 && argc <= 4 && strcmp(argv[1], "check") == 0) {
		return check(argv + 2, (unsigned)argc - 2);
	}
	if (argc == 3 && strcmp(argv[1], "serve") == 0) {
		return serve(find_path(argv[2]));
	}
	fprintf(stderr, "usage: %s check PATH [PATH] | serve PATH\n", argv[0]);
	return 2;
}

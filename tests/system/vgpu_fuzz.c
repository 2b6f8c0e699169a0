/* vgpu_fuzz SEED SECONDS PROCESSES THREADS KILLS [lone]: random operations on every path by which
 * device memory is charged, in a virtual GPU, against a model, for vgpu_fuzz.bats. lone: the
 * processes have no context but the primary one, so that memory outside pools occurs; it must.
 *
 * The first process starts PROCESSES others, which operate with THREADS threads each. At random
 * moments it closes a gate: every thread then stops between two operations, each process finishes
 * its streams and publishes bounds of what it must be charged (docs/MEMORY.md), and the first
 * process, which holds nothing, compares the account with their sum. Then it takes exactly what is
 * left, and one unit more, which must be refused. At each eighth gate everything is freed first. Up
 * to KILLS times it kills a process, at any moment, and starts another one: the account then equals
 * the survivors' within WAIT_NS.
 *
 * Between gates, what all processes certainly hold is summed and never exceeds the limit. A process
 * whose start fails is started again: gbpfd may be away. Prints the seed, and what failed. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/account.h"

#include "../programs/program.h"
#include "../unit/eventually.h"

#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAllocPitch cuMemAllocPitch_v2
#define cuArrayCreate cuArrayCreate_v2
#define cuArray3DCreate cuArray3DCreate_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2

#define MIB ((uint64_t)1 << 20)
#define UNIT (2 * MIB)
#define SMALL_MAX MIB
#define STEP (32 * MIB) /* charged before a pool may grow */
#define PROCESSES_MAX 8u
#define THREADS_MAX 8u
#define ITEMS 24u /* of a thread */
#define POOLS 3u  /* of a process; the first one is the device's */
#define EXPORTS_MAX 2u
#define AGAIN_MAX 20000u /* starts that failed */
#define WAIT_NS 60000000000ull
#define EXIT_NOT_READY 3 /* cuInit has failed */

/* ---- what all processes share ---- */

/* The gate: its round, times STATES, and one of these. _DROP: everything is freed first. */
enum { OPEN, CLOSED, CLOSED_DROP };
#define STATES 3u

struct slot {
	uint32_t ready;		    /* [atomic] the gate for which the bounds were published */
	uint64_t low, high;	    /* bytes that the process is charged at least, at most */
	int64_t held;		    /* [atomic] bytes that it certainly holds */
	uint64_t ops, oom;	    /* [atomic] */
	uint64_t outside;	    /* [atomic] allocations outside pools */
	char last[THREADS_MAX][48]; /* operation that each thread has begun last */
};

struct shared {
	uint32_t gate; /* [atomic] */
	uint32_t threads;
	bool lone;
	uint64_t seed, limit;
	int64_t held; /* [atomic] sum of the slots' */
	struct slot slot[PROCESSES_MAX];
};

static struct shared *all;
static struct slot *mine;
static CUdevice device;

#define LOAD(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define STORE(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define ADD(p, v) __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST)

static void print_last(void)
{
	for (unsigned p = 0; p < PROCESSES_MAX; p++) {
		for (unsigned t = 0; t < THREADS_MAX; t++) {
			if (all->slot[p].last[t][0]) {
				fprintf(stderr, "  process %u thread %u: %.47s\n", p, t,
					all->slot[p].last[t]);
			}
		}
	}
}

#define CHECK(right, ...)                                                                          \
	do {                                                                                       \
		if (!(right)) {                                                                    \
			fprintf(stderr, "seed %llu: line %d: %s: ", (unsigned long long)all->seed, \
				__LINE__, #right);                                                 \
			fprintf(stderr, __VA_ARGS__);                                              \
			fputc('\n', stderr);                                                       \
			print_last();                                                              \
			_exit(EXIT_FAILURE);                                                       \
		}                                                                                  \
	} while (0)

static uint64_t rounded(uint64_t bytes)
{
	return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* What a killed process had in only one of the two figures makes the sum too low, never too high;
 * it is made right at the next gate. */
static void hold(uint64_t bytes)
{
	int64_t sum;

	ADD(&mine->held, (int64_t)bytes);
	sum = ADD(&all->held, (int64_t)bytes);
	CHECK(sum <= (int64_t)all->limit, "%lld KiB are held of %llu", (long long)(sum >> 10),
	      (unsigned long long)(all->limit >> 10));
}

static void unhold(uint64_t bytes)
{
	ADD(&all->held, -(int64_t)bytes);
	ADD(&mine->held, -(int64_t)bytes);
}

static uint64_t used(void)
{
	size_t available, total;

	OK(cuMemGetInfo(&available, &total));
	CHECK(total == all->limit && available <= total, "%zu of %zu", available, total);
	return total - available;
}

/* ---- a process that operates ---- */

enum kind { NONE, LINEAR, SMALL, POOLED, CHUNK, ARRAY, SMALL_ARRAY, MIPMAP };

/* What a thread has allocated. */
struct item {
	enum kind kind;
	uint64_t at;	  /* address or handle */
	uint64_t bytes;	  /* charged at least; a small one: 0 */
	uint64_t most;	  /* charged at most */
	bool primary;	  /* in the primary context, else in the thread's own */
	unsigned pool;	  /* POOLED: whose */
	uint64_t address; /* CHUNK: reserved range, 0: none */
	unsigned handles; /* CHUNK: references by handle */
	bool mapped;	  /* CHUNK */
	bool managed;	  /* LINEAR, SMALL */
};

struct thread {
	unsigned number;
	uint64_t random;
	CUcontext own;	    /* lone: the primary one */
	CUstream stream[2]; /* of the thread's context */
	struct item item[ITEMS];
	pthread_t thread;
	uint32_t parked; /* [atomic] the gate that it has come to */
};

static struct thread threads[THREADS_MAX];
static CUcontext primary;
static CUmemoryPool pools[POOLS];
static unsigned exports; /* [atomic] */
static uint64_t kept;	 /* [atomic] bytes charged until the process ends */
static bool solo;	 /* no other process or thread operates */
static bool is_freeing;	 /* solo: memory was freed in stream order since the last gate */
/* Pools may be used by any thread, and replaced by one that holds it for writing. */
static pthread_rwlock_t pools_lock = PTHREAD_RWLOCK_INITIALIZER;

static uint32_t under(struct thread *t, uint32_t n)
{
	return program_random(&t->random) % n;
}

static void begin_op(struct thread *t, const char *name, uint64_t bytes)
{
	snprintf(mine->last[t->number], sizeof(mine->last[0]), "%s %llu", name,
		 (unsigned long long)bytes);
	ADD(&mine->ops, 1);
}

/* A refusal must have a reason where that can be told: nothing else moves. Memory that was freed in
 * stream order may have been in use at the time of the call; it must be there now. */
static bool granted(CUresult r, uint64_t need)
{
	CUdeviceptr probe;
	uint64_t is;

	CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	if (r == CUDA_SUCCESS) {
		return true;
	}
	ADD(&mine->oom, 1);
	is = used();
	if (solo && is + need <= all->limit) {
		CHECK(is_freeing && cuMemAlloc(&probe, need) == CUDA_SUCCESS,
		      "refused with %llu KiB in use, for %llu", (unsigned long long)(is >> 10),
		      (unsigned long long)(need >> 10));
		OK(cuMemFree(probe));
	}
	return false;
}

static uint64_t random_bytes(struct thread *t)
{
	switch (under(t, 4)) {
	case 0:
		return 1 + under(t, 100000);
	case 1:
		return 1 + under(t, (uint32_t)(2 * SMALL_MAX));
	case 2: /* around the bound between small ones and units */
		return SMALL_MAX - 2 + under(t, 5);
	default:
		return 1 + under(t, (uint32_t)(24 * MIB));
	}
}

static void note_linear(struct item *i, uint64_t bytes)
{
	i->kind = bytes <= SMALL_MAX ? SMALL : LINEAR;
	i->bytes = i->kind == SMALL ? 0 : rounded(bytes);
	hold(i->bytes);
}

static void take_linear(struct thread *t, struct item *i)
{
	uint64_t bytes = random_bytes(t);
	size_t pitch = 0, width = 1 + bytes % 5000, height = 1 + bytes / 5000;

	switch (under(t, 3)) {
	case 0:
		begin_op(t, "cuMemAlloc", bytes);
		if (granted(cuMemAlloc((CUdeviceptr *)&i->at, bytes), rounded(bytes))) {
			note_linear(i, bytes);
		}
		break;
	case 1:
		begin_op(t, "cuMemAllocManaged", bytes);
		if (granted(cuMemAllocManaged((CUdeviceptr *)&i->at, bytes, CU_MEM_ATTACH_GLOBAL),
			    rounded(bytes))) {
			i->managed = true;
			note_linear(i, bytes);
		}
		break;
	default:
		begin_op(t, "cuMemAllocPitch", bytes);
		if (granted(cuMemAllocPitch((CUdeviceptr *)&i->at, &pitch, width, height, 4),
			    rounded((width + 511) / 512 * 512 * height))) {
			note_linear(i, pitch * height);
		}
	}
}

/* An array of which the device takes the bytes of its data. */
static void take_small_array(struct thread *t, struct item *i)
{
	const CUDA_ARRAY_DESCRIPTOR d = { 16 * (1 + under(t, 128)), 128, CU_AD_FORMAT_FLOAT, 1 };

	begin_op(t, "cuArrayCreate, small", d.Width * d.Height * 4);
	if (granted(cuArrayCreate((CUarray *)&i->at, &d), UNIT)) {
		i->kind = SMALL_ARRAY;
		i->bytes = d.Width * d.Height * 4;
		hold(i->bytes);
	}
}

static void take_array(struct thread *t, struct item *i)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 1 + under(t, 1024),
				      .Height = 1 + under(t, 1024),
				      .Depth = under(t, 3),
				      .Format = CU_AD_FORMAT_FLOAT,
				      .NumChannels = 1u << under(t, 3) };
	const CUDA_ARRAY_DESCRIPTOR flat = { d.Width, d.Height, d.Format, d.NumChannels };
	uint64_t texel = 4 * d.NumChannels, bytes = d.Width * d.Height * texel;
	CUarray a = NULL;
	CUmipmappedArray m = NULL;
	CUresult r;

	i->kind = ARRAY;
	switch (under(t, 3)) {
	case 0:
		begin_op(t, "cuArrayCreate", bytes);
		r = cuArrayCreate(&a, &flat);
		break;
	case 1:
		bytes *= d.Depth ? d.Depth : 1;
		begin_op(t, "cuArray3DCreate", bytes);
		r = cuArray3DCreate(&a, &d);
		break;
	default:
		d.Depth = 0;
		bytes +=
			(d.Width > 1 ? d.Width / 2 : 1) * (d.Height > 1 ? d.Height / 2 : 1) * texel;
		i->kind = MIPMAP;
		begin_op(t, "cuMipmappedArrayCreate", bytes);
		r = cuMipmappedArrayCreate(&m, &d, d.Width > 1 || d.Height > 1 ? 2 : 1);
	}
	if (!granted(r, 2 * rounded(bytes) + 2 * UNIT)) {
		i->kind = NONE;
		return;
	}
	i->at = (uint64_t)(uintptr_t)(a ? (void *)a : (void *)m);
	i->bytes = bytes; /* of the data: the last unit may be missing from what is measured */
	i->most = 2 * rounded(bytes) + 2 * UNIT;
	hold(bytes);
}

static void take_chunk(struct thread *t, struct item *i)
{
	const CUmemAllocationProp p = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					.requestedHandleTypes =
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					.location = { CU_MEM_LOCATION_TYPE_DEVICE, device } };
	uint64_t bytes = UNIT * (1 + under(t, 8));

	begin_op(t, "cuMemCreate", bytes);
	if (!granted(cuMemCreate((CUmemGenericAllocationHandle *)&i->at, bytes, &p, 0), bytes)) {
		return;
	}
	i->kind = CHUNK;
	i->bytes = bytes;
	i->handles = 1;
	hold(bytes);
}

static CUstream any_stream(struct thread *t, bool in_primary)
{
	unsigned n = under(t, 3);

	return (in_primary && !all->lone) || n == 2 ? NULL : t->stream[n];
}

static bool is_pools(CUdeviceptr at)
{
	CUmemoryPool pool = NULL;

	OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
	return pool != NULL;
}

static void note_pooled(struct item *i, unsigned pool, uint64_t bytes)
{
	if (!is_pools(i->at)) {
		CHECK(all->lone, "memory outside pools");
		ADD(&mine->outside, 1);
		note_linear(i, bytes);
		return;
	}
	i->kind = POOLED;
	i->pool = pool;
	i->bytes = bytes;
	hold(bytes);
}

static void take_pooled(struct thread *t, struct item *i)
{
	uint64_t bytes = random_bytes(t), step = (bytes + STEP - 1) / STEP * STEP;
	unsigned n = under(t, POOLS);
	CUstream s = any_stream(t, i->primary);
	CUresult r;

	pthread_rwlock_rdlock(&pools_lock);
	if (n == 0) {
		begin_op(t, "cuMemAllocAsync", bytes);
		r = cuMemAllocAsync((CUdeviceptr *)&i->at, bytes, s);
	} else {
		begin_op(t, "cuMemAllocFromPoolAsync", bytes);
		r = cuMemAllocFromPoolAsync((CUdeviceptr *)&i->at, bytes, pools[n], s);
	}
	if (granted(r, step + STEP)) {
		note_pooled(i, n, bytes);
	}
	pthread_rwlock_unlock(&pools_lock);
}

static void set_current(struct thread *t, bool in_primary)
{
	OK(cuCtxSetCurrent(in_primary ? primary : t->own));
}

static void take(struct thread *t, struct item *i)
{
	memset(i, 0, sizeof(*i));
	i->primary = under(t, 2) || all->lone;
	set_current(t, i->primary);
	switch (under(t, 8)) {
	case 0:
	case 1:
	case 2:
		take_linear(t, i);
		break;
	case 3:
		take_array(t, i);
		break;
	case 4:
		take_chunk(t, i);
		break;
	case 5:
		take_small_array(t, i);
		break;
	default:
		take_pooled(t, i);
	}
}

/* Maps, unmaps, or adds or drops a handle of a chunk; the last reference goes with it. */
static void use_chunk(struct thread *t, struct item *i)
{
	CUmemGenericAllocationHandle again;
	int fd = -1;

	if (!i->mapped && i->handles && under(t, 2)) {
		begin_op(t, "cuMemMap", i->bytes);
		OK(cuMemAddressReserve((CUdeviceptr *)&i->address, i->bytes, 0, 0, 0));
		OK(cuMemMap(i->address, i->bytes, 0, i->at, 0));
		i->mapped = true;
	} else if (i->mapped && under(t, 2)) {
		begin_op(t, "cuMemRetainAllocationHandle", i->bytes);
		OK(cuMemRetainAllocationHandle(
			&again, (void *)(uintptr_t)(i->address + under(t, (uint32_t)i->bytes))));
		if (i->handles && again != i->at) {
			OK(cuMemRelease(again));
		} else {
			i->at = again;
			i->handles++;
		}
	} else if (i->handles > 1 || (i->handles && i->mapped)) {
		begin_op(t, "cuMemRelease of one", i->bytes);
		OK(cuMemRelease(i->at));
		i->handles--;
	} else if (i->handles && i->most == 0 && i->bytes <= 2 * UNIT &&
		   ADD(&exports, 1) <= EXPORTS_MAX) {
		begin_op(t, "cuMemExportToShareableHandle", i->bytes);
		ADD(&kept, i->bytes);
		OK(cuMemExportToShareableHandle(&fd, i->at,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		OK(cuMemRelease(again));
		close(fd);
		i->most = UINT64_MAX; /* counted in `kept` */
	}
}

static void drop_chunk(struct item *i)
{
	if (i->mapped) {
		OK(cuMemUnmap(i->address, i->bytes));
		OK(cuMemAddressFree(i->address, i->bytes));
	} else if (i->address) {
		OK(cuMemAddressFree(i->address, i->bytes));
	}
	while (i->handles) {
		OK(cuMemRelease(i->at));
		i->handles--;
	}
}

/* The driver refuses to free managed memory in stream order. */
static void drop_linear(struct thread *t, struct item *i)
{
	if (under(t, 4)) {
		OK(cuMemFree(i->at));
	} else if (i->managed) {
		CHECK(cuMemFreeAsync(i->at, NULL) == CUDA_ERROR_INVALID_VALUE, "managed");
		OK(cuMemFree(i->at));
	} else {
		is_freeing = solo;
		OK(cuMemFreeAsync(i->at, any_stream(t, i->primary)));
	}
}

static void drop(struct thread *t, struct item *i)
{
	begin_op(t, "free of kind", i->kind);
	set_current(t, i->primary);
	unhold(i->bytes);
	switch (i->kind) {
	case LINEAR:
	case SMALL:
		drop_linear(t, i);
		break;
	case POOLED:
		if (under(t, 4)) {
			is_freeing = solo;
			OK(cuMemFreeAsync(i->at, any_stream(t, i->primary)));
		} else {
			OK(cuMemFree(i->at));
		}
		break;
	case ARRAY:
	case SMALL_ARRAY:
		OK(cuArrayDestroy((CUarray)(uintptr_t)i->at));
		break;
	case MIPMAP:
		OK(cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)i->at));
		break;
	case CHUNK:
		drop_chunk(i);
		break;
	case NONE:
		break;
	}
	i->kind = NONE;
}

/* Replaces a pool, of which memory may be in use. */
static void change_pool(struct thread *t)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, device } };
	unsigned n = 1 + under(t, POOLS - 1);
	uint64_t threshold = under(t, 2) ? UINT64_MAX : 0;

	begin_op(t, "cuMemPoolDestroy", n);
	pthread_rwlock_wrlock(&pools_lock);
	OK(cuMemPoolDestroy(pools[n]));
	OK(cuMemPoolCreate(&pools[n], &props));
	OK(cuMemPoolSetAttribute(pools[n], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	pthread_rwlock_unlock(&pools_lock);
}

static void trim_pool(struct thread *t)
{
	unsigned n = under(t, POOLS);

	begin_op(t, "cuMemPoolTrimTo", n);
	pthread_rwlock_rdlock(&pools_lock);
	OK(cuMemPoolTrimTo(pools[n], under(t, 2) ? 0 : under(t, (uint32_t)STEP)));
	pthread_rwlock_unlock(&pools_lock);
}

static CUresult make_own(struct thread *t)
{
	t->own = primary;
	return all->lone ? cuCtxSetCurrent(primary) : cuCtxCreate(&t->own, 0, device);
}

static void make_context(struct thread *t)
{
	CUresult r;

	/* A full account or device has no room for a context until other threads free memory. */
	eventually((r = make_own(t)) != CUDA_ERROR_OUT_OF_MEMORY);
	OK(r);
	OK(cuStreamCreate(&t->stream[0], CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&t->stream[1], CU_STREAM_NON_BLOCKING));
}

/* Forgets items that went with a context. Pools and chunks are not a context's, but what a stream
 * of it has allocated is freed before it goes. */
static void leave_context(struct thread *t, bool in_primary)
{
	for (unsigned k = 0; k < ITEMS; k++) {
		struct item *i = &t->item[k];

		if (i->primary != in_primary || i->kind == NONE) {
			continue;
		}
		if (i->kind == POOLED || i->kind == CHUNK) {
			drop(t, i);
		} else {
			unhold(i->bytes);
			i->kind = NONE;
		}
	}
}

/* Destroys the thread's context with memory in it. */
static void change_context(struct thread *t)
{
	if (all->lone) {
		return;
	}
	leave_context(t, false);
	begin_op(t, "cuCtxDestroy", 0);
	OK(cuCtxSetCurrent(t->own));
	OK(cuCtxDestroy(t->own));
	make_context(t);
}

static void fork_once(struct thread *t)
{
	bool exec = under(t, 2);
	int status = 0;
	pid_t child;

	begin_op(t, exec ? "fork, exec" : "fork, exit", 0);
	child = fork();
	if (child == 0) {
		if (exec) {
			execl("/bin/true", "true", (char *)NULL);
		}
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

/* A thread that takes memory, and ends; another one frees it. */
static void *run_short(void *arg)
{
	struct thread *t = arg;

	for (unsigned k = 0; k < ITEMS; k++) {
		if (t->item[k].kind == NONE) {
			take(t, &t->item[k]);
			break;
		}
	}
	return NULL;
}

static void start_thread_once(struct thread *t)
{
	pthread_t other;

	begin_op(t, "a thread", 0);
	CHECK(pthread_create(&other, NULL, run_short, t) == 0, "pthread_create");
	pthread_join(other, NULL);
}

static void operate(struct thread *t)
{
	struct item *i = &t->item[under(t, ITEMS)];

	switch (under(t, 60)) {
	case 0:
		change_context(t);
		break;
	case 1:
		change_pool(t);
		break;
	case 2:
	case 3:
		trim_pool(t);
		break;
	case 4:
		fork_once(t);
		break;
	case 5:
		start_thread_once(t);
		break;
	case 6:
	case 7:
		begin_op(t, "cuCtxSynchronize", 0);
		set_current(t, under(t, 2));
		OK(cuCtxSynchronize());
		break;
	default:
		if (i->kind == NONE) {
			take(t, i);
		} else if (i->kind == CHUNK && under(t, 3)) {
			use_chunk(t, i);
		} else {
			drop(t, i);
		}
	}
}

/* ---- bounds ---- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Returns the bytes of the blocks in which small allocations lie. */
static uint64_t blocks_bytes(void)
{
	uint64_t block[THREADS_MAX * ITEMS], sum = 0;
	size_t n = 0;

	for (unsigned k = 0; k < THREADS_MAX * ITEMS; k++) {
		const struct item *i = &threads[k / ITEMS].item[k % ITEMS];

		if (i->kind == SMALL) {
			block[n++] = i->at / UNIT;
		}
	}
	qsort(block, n, sizeof(block[0]), by_value);
	for (size_t k = 0; k < n; k++) {
		sum += k == 0 || block[k] != block[k - 1] ? UNIT : 0;
	}
	return sum;
}

/* Pools that were destroyed with memory in use cannot be asked any more: each of their allocations
 * may keep whole steps. */
static void add_items(uint64_t *low, uint64_t *high, uint64_t pooled)
{
	uint64_t live = 0, waste = 0, parts = 0, units = 0;

	for (unsigned k = 0; k < THREADS_MAX * ITEMS; k++) {
		const struct item *i = &threads[k / ITEMS].item[k % ITEMS];

		if (i->kind == POOLED) {
			live += i->bytes;
			waste += (i->bytes + STEP - 1) / STEP * STEP;
		} else if (i->kind == SMALL_ARRAY) {
			parts += UNIT / (UNIT / i->bytes); /* the rest of a unit goes with it */
			units += UNIT;			   /* which it may keep */
		} else if (i->kind != NONE && i->most != UINT64_MAX) {
			*low += i->bytes;
			*high += i->most ? i->most : i->bytes;
		}
	}
	*low += (pooled > live ? pooled : live) + parts; /* others may be in the last unit */
	*high += pooled + waste + units;
}

static void synchronize(struct thread *t)
{
	OK(cuCtxSetCurrent(t->own));
	OK(cuCtxSynchronize());
}

/* All threads of the process are parked but this one. */
static void publish(struct thread *t, uint32_t gate)
{
	bool empty = gate % STATES == CLOSED_DROP;
	uint64_t low, high, pooled = 0, bytes;

	if (empty || under(t, 8) == 0) {
		for (unsigned k = 0; k < all->threads; k++) {
			leave_context(&threads[k], true);
		}
		begin_op(t, "cuDevicePrimaryCtxReset", 0);
		OK(cuCtxSetCurrent(t->own));
		OK(cuDevicePrimaryCtxReset(device));
		OK(cuDevicePrimaryCtxRetain(&primary, device));
		for (unsigned k = 0; all->lone && k < all->threads; k++) {
			make_context(&threads[k]);
		}
	}
	for (unsigned k = 0; k < all->threads; k++) {
		if (empty) {
			change_context(&threads[k]);
		}
		synchronize(&threads[k]);
	}
	OK(cuCtxSetCurrent(primary));
	OK(cuCtxSynchronize());
	is_freeing = false;
	for (unsigned n = 0; n < POOLS; n++) {
		OK(cuMemPoolTrimTo(pools[n], 0));
		OK(cuMemPoolGetAttribute(pools[n], CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
		CHECK(!empty || !bytes, "pool %u holds %llu KiB", n,
		      (unsigned long long)(bytes >> 10));
		pooled += bytes;
	}
	low = high = LOAD(&kept) + blocks_bytes();
	add_items(&low, &high, pooled);
	CHECK(!empty || low == LOAD(&kept), "%llu", (unsigned long long)low);
	mine->low = low;
	mine->high = empty ? low : high;
	STORE(&mine->ready, gate);
}

static bool all_parked(uint32_t gate)
{
	for (unsigned k = 0; k < all->threads; k++) {
		if (LOAD(&threads[k].parked) != gate) {
			return false;
		}
	}
	return true;
}

/* Stops at the gate while it is closed. The first thread waits for the others, and publishes. */
static void pass_gate(struct thread *t)
{
	uint32_t gate = LOAD(&all->gate);

	if (gate % STATES == OPEN) {
		return;
	}
	STORE(&t->parked, gate);
	if (t->number == 0) {
		eventually(all_parked(gate));
		publish(t, gate);
	}
	eventually(LOAD(&all->gate) != gate);
}

static void *run_thread(void *arg)
{
	struct thread *t = arg;

	make_context(t);
	for (;;) {
		pass_gate(t);
		operate(t);
	}
	return NULL;
}

static int work(unsigned number, uint64_t seed, bool alone)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	mine = &all->slot[number];
	solo = alone;
	if (cuInit(0) != CUDA_SUCCESS) {
		return EXIT_NOT_READY;
	}
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&primary, device));
	OK(cuDeviceGetDefaultMemPool(&pools[0], device));
	for (unsigned n = 1; n < POOLS; n++) {
		OK(cuMemPoolCreate(&pools[n], &props));
	}
	for (unsigned k = 0; k < all->threads; k++) {
		threads[k].number = k;
		threads[k].random = seed * THREADS_MAX + k + 1;
		if (k) {
			CHECK(pthread_create(&threads[k].thread, NULL, run_thread, &threads[k]) ==
				      0,
			      "pthread_create");
		}
	}
	run_thread(&threads[0]);
	return EXIT_FAILURE;
}

/* ---- the first process ---- */

static struct {
	const char *program;
	int fd;
	unsigned n, again;
	uint32_t round;
	pid_t pid[PROCESSES_MAX];
	uint64_t random;
	bool dying; /* a process was killed: its line is cleared at any time */
} first;

static void start(unsigned p)
{
	char fd[16], number[16], seed[32], alone[16];

	memset(&all->slot[p], 0, sizeof(all->slot[p]));
	snprintf(fd, sizeof(fd), "%d", first.fd);
	snprintf(number, sizeof(number), "%u", p);
	snprintf(seed, sizeof(seed), "%u", program_random(&first.random));
	snprintf(alone, sizeof(alone), "%d", first.n == 1 && all->threads == 1);
	first.pid[p] = fork();
	if (first.pid[p] == 0) {
		execl(first.program, first.program, "work", fd, number, seed, alone, (char *)NULL);
		_exit(127);
	}
	CHECK(first.pid[p] > 0, "fork");
}

/* Starts processes again that could not join; any other end is a fault. */
static void look_after(void)
{
	int status;

	for (unsigned p = 0; p < first.n; p++) {
		if (waitpid(first.pid[p], &status, WNOHANG) == first.pid[p]) {
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NOT_READY,
			      "process %u: status %x", p, (unsigned)status);
			CHECK(first.again++ < AGAIN_MAX, "processes cannot join");
			start(p);
		}
	}
}

static void kill_one(void)
{
	unsigned p = program_random(&first.random) % first.n;
	int64_t held;

	kill(first.pid[p], SIGSTOP);
	CHECK(waitpid(first.pid[p], NULL, WUNTRACED) == first.pid[p], "waitpid");
	held = LOAD(&all->slot[p].held); /* before its memory is free for others */
	ADD(&all->held, -held);
	kill(first.pid[p], SIGKILL);
	(void)waitpid(first.pid[p], NULL, 0);
	first.dying = true;
	start(p);
}

/* Waits until all processes are at the gate. Returns the sums of their bounds. */
static void gather(uint64_t *low, uint64_t *high)
{
	int64_t held = 0;

	*low = *high = 0;
	for (unsigned p = 0; p < first.n; p++) {
		eventually((look_after(), LOAD(&all->slot[p].ready) == LOAD(&all->gate)));
		*low += all->slot[p].low;
		*high += all->slot[p].high;
		held += LOAD(&all->slot[p].held);
	}
	STORE(&all->held, held);
}

/* Shows whose figure is wrong: nothing moves. */
static void explain(void)
{
	for (unsigned p = 0; p < first.n; p++) {
		fprintf(stderr, "  process %u, pid %d: %llu to %llu KiB\n", p, (int)first.pid[p],
			(unsigned long long)(all->slot[p].low >> 10),
			(unsigned long long)(all->slot[p].high >> 10));
	}
	if (system("gbpf ps >&2") != 0) {
		fputs("  no answer of gbpfd\n", stderr);
	}
}

/* Waits until the account is within the bounds, which it is at once unless a process was killed.
 * Returns it. */
static uint64_t settled(uint64_t low, uint64_t high, uint64_t deadline)
{
	uint64_t is = used();

	while (first.dying && is > high && program_ns() < deadline) {
		usleep(200); /* polls the state */
		is = used();
	}
	if (is < low || is > high) {
		explain();
	}
	CHECK(is >= low && is <= high, "%llu KiB are charged, not %llu to %llu",
	      (unsigned long long)(is >> 10), (unsigned long long)(low >> 10),
	      (unsigned long long)(high >> 10));
	return is;
}

/* Takes what is left of the limit, and one unit more. Returns true if that was refused. */
static bool take_all_but(uint64_t is)
{
	uint64_t left = (all->limit - is) / UNIT * UNIT;
	CUdeviceptr at, more;
	CUresult r;

	if (left) {
		OK(cuMemAlloc(&at, left));
	}
	r = cuMemAlloc(&more, UNIT);
	if (r == CUDA_SUCCESS) {
		OK(cuMemFree(more));
	}
	if (left) {
		OK(cuMemFree(at));
	}
	return r == CUDA_ERROR_OUT_OF_MEMORY;
}

/* Returns the account of the virtual GPU, which the process has mapped. */
static const struct proto_account *account(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	void *first_byte = NULL;
	char line[512];

	while (maps && !first_byte && fgets(line, sizeof(line), maps)) {
		if (strstr(line, "gbpf-account")) {
			CHECK(sscanf(line, "%p", &first_byte) == 1, "%s", line);
		}
	}
	CHECK(first_byte, "no account");
	fclose(maps);
	return first_byte;
}

/* Nothing moves: what is recorded by kind is part of what each line is charged. What was freed in a
 * stream may be charged a little longer. */
static void check_kinds(void)
{
	const struct proto_account *a = account();

	for (unsigned i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		const struct proto_account_line *line = &a->line[0][i];
		uint64_t held = LOAD(&line->charged) - LOAD(&line->released);
		uint64_t left = held - LOAD(&line->overhead);

		for (unsigned k = 0; k < PROTO_KINDS; k++) {
			uint64_t of = LOAD(&a->kinds[0][i].bytes[k]);

			CHECK(of <= left, "line %u: %llu KiB of kind %u, %llu of %llu are left", i,
			      (unsigned long long)(of >> 10), k, (unsigned long long)(left >> 10),
			      (unsigned long long)(held >> 10));
			left -= of;
		}
	}
}

/* Nothing moves: the account is within the bounds, and what is left can be taken. The line of a
 * killed process may still be cleared, also within the bounds: then it is looked at again. */
static void compare(uint64_t low, uint64_t high)
{
	uint64_t deadline = program_ns() + WAIT_NS, is, after;
	bool refused;

	do {
		is = settled(low, high, deadline);
		refused = take_all_but(is);
		after = used();
		CHECK((after == is && refused) ||
			      (first.dying && after < is && program_ns() < deadline),
		      "%llu, then %llu; a unit more was %s", (unsigned long long)is,
		      (unsigned long long)after, refused ? "refused" : "granted");
	} while (after != is);
	if (!first.dying) {
		check_kinds();
	}
}

static void check_at_gate(bool empty)
{
	uint64_t low, high;

	STORE(&all->gate, ++first.round * STATES + (empty ? CLOSED_DROP : CLOSED));
	gather(&low, &high);
	compare(low, high);
	STORE(&all->gate, first.round * STATES + OPEN);
}

static uint64_t operations(void)
{
	uint64_t sum = 0;

	for (unsigned p = 0; p < first.n; p++) {
		sum += LOAD(&all->slot[p].ops);
	}
	return sum;
}

/* Lets the processes work until they have made that many operations. */
static void work_on(uint64_t ops)
{
	uint64_t from = operations();

	eventually((look_after(), operations() - from >= ops || operations() < from));
}

static int lead(const char *program, char **argv)
{
	uint64_t end = program_ns() + strtoull(argv[2], NULL, 0) * 1000000000u;
	unsigned kills = (unsigned)strtoul(argv[5], NULL, 0), gates = 0, killed = 0;
	uint64_t ops = 0, oom = 0, outside = 0;
	size_t available, total;
	CUcontext context;

	first.program = program;
	first.fd = memfd_create("fuzz", 0);
	if (first.fd < 0 || ftruncate(first.fd, sizeof(*all)) < 0) {
		return 2;
	}
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED, first.fd, 0);
	all->seed = strtoull(argv[1], NULL, 0);
	first.random = all->seed + 1;
	first.n = (unsigned)strtoul(argv[3], NULL, 0);
	all->threads = (uint32_t)strtoul(argv[4], NULL, 0);
	all->lone = argv[6] != NULL;
	CHECK(first.n && first.n <= PROCESSES_MAX && all->threads && all->threads <= THREADS_MAX,
	      "PROCESSES or THREADS");
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate(&context, 0, device));
	OK(cuMemGetInfo(&available, &total));
	all->limit = total;
	for (unsigned p = 0; p < first.n; p++) {
		start(p);
	}
	while (program_ns() < end || !gates || killed < (kills != 0)) {
		work_on(1 + program_random(&first.random) % 400);
		if (killed < kills && program_random(&first.random) % 2) {
			kill_one();
			killed++;
		}
		check_at_gate(++gates % 8 == 0);
	}
	check_at_gate(true);
	for (unsigned p = 0; p < first.n; p++) {
		ops += all->slot[p].ops;
		oom += all->slot[p].oom;
		outside += all->slot[p].outside;
		kill(first.pid[p], SIGKILL);
		(void)waitpid(first.pid[p], NULL, 0);
	}
	first.dying = true;
	compare(0, 0);
	CHECK(!all->lone || outside, "no memory outside pools");
	printf("seed %llu: %llu operations of the last processes, %llu refused, %llu outside "
	       "pools, %u gates, %u kills\n",
	       (unsigned long long)all->seed, (unsigned long long)ops, (unsigned long long)oom,
	       (unsigned long long)outside, gates, killed);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "work") == 0) {
		int fd = (int)strtol(argv[2], NULL, 0);

		all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		return all == MAP_FAILED ? 2
					 : work((unsigned)strtoul(argv[3], NULL, 0),
						strtoull(argv[4], NULL, 0), argv[5][0] == '1');
	}
	if (argc == 6 || (argc == 7 && strcmp(argv[6], "lone") == 0)) {
		return lead(argv[0], argv);
	}
	fprintf(stderr, "usage: %s SEED SECONDS PROCESSES THREADS KILLS [lone]\n", argv[0]);
	return 2;
}

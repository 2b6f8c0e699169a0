/* swapping: a program that computes in more memory than its limit may allow, for swapping.bats and
 * tests/gpu/memory. It knows nothing of gBPF, and prints a digest of all of its results, which does
 * not depend on where its memory lies.
 *
 *   swapping [--handles|--async|--managed] [--kib] [--gpus N] BUFFERS MIB ROUNDS [THREADS]
 *
 * Makes BUFFERS buffers of MIB and an odd number of bytes, while work on the earlier ones is under
 * way. In each of ROUNDS rounds kernels, copies, sets and a graph use buffers across each other's
 * parts, and one buffer is freed and another made in its place. With THREADS each thread does so by
 * itself, with a share of the buffers. --handles: buffers are made by cuMemCreate, as PyTorch's
 * expandable segments and JAX do. --async: they are allocated and freed in the order of streams, of
 * which one frees memory that the other one may get. --managed: they are managed memory, which is
 * advised and prefetched as well. --kib: MIB is a number of KiB. --gpus: of each thread, N GPUs
 * have as many buffers each, and copy from one to the next in each round. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"
#include "check.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define UNIT (2 * MIB)
#define PAGE 4096u
#define HOST (-1) /* a device */
#define BUFFERS_MAX 4096u
#define THREADS_MAX 16u
#define GPUS_MAX 4u
#define BLOCK 256u
#define BLOCKS 64u

/* A kernel over the words of a, by name, preparation and body: %q is the address of word %i, less a
 * where the body adds it. */
static const char kernel[] = ".visible .entry %s(.param .u64 a, .param .u32 n,\n"
			     ".param .u32 seed, .param .u64 b)\n"
			     "{\n"
			     ".reg .pred %%p;\n"
			     ".reg .b32 %%i, %%n, %%s, %%t, %%u, %%v;\n"
			     ".reg .b64 %%a, %%b, %%q, %%r;\n"
			     "ld.param.u64 %%a, [a];\n"
			     "ld.param.u64 %%b, [b];\n"
			     "ld.param.u32 %%n, [n];\n"
			     "ld.param.u32 %%s, [seed];\n"
			     "mov.u32 %%t, %%tid.x;\n"
			     "mov.u32 %%u, %%ctaid.x;\n"
			     "mov.u32 %%v, %%ntid.x;\n"
			     "mad.lo.u32 %%i, %%u, %%v, %%t;\n"
			     "mov.u32 %%t, %%nctaid.x;\n"
			     "mul.lo.u32 %%t, %%t, %%v;\n"
			     "%s"
			     "loop:\n"
			     "setp.ge.u32 %%p, %%i, %%n;\n"
			     "@%%p bra done;\n"
			     "mul.wide.u32 %%q, %%i, 4;\n"
			     "%s"
			     "add.u32 %%i, %%i, %%t;\n"
			     "bra loop;\n"
			     "done:\n"
			     "ret;\n"
			     "}\n";

/* a[i] = a[i] * 1664525 + i + seed */
static const char mix_body[] = "add.u64 %q, %q, %a;\n"
			       "ld.global.u32 %u, [%q];\n"
			       "mad.lo.u32 %u, %u, 1664525, %i;\n"
			       "add.u32 %u, %u, %s;\n"
			       "st.global.u32 [%q], %u;\n";

/* a[i] += b[(i * 7 + seed) % n] */
static const char add_body[] = "add.u64 %q, %q, %a;\n"
			       "mad.lo.u32 %u, %i, 7, %s;\n"
			       "rem.u32 %u, %u, %n;\n"
			       "mul.wide.u32 %r, %u, 4;\n"
			       "add.u64 %r, %r, %b;\n"
			       "ld.global.u32 %u, [%r];\n"
			       "ld.global.u32 %v, [%q];\n"
			       "add.u32 %u, %u, %v;\n"
			       "st.global.u32 [%q], %u;\n";

/* t[0][i] = (t[0][i] ^ t[1][i]) + seed: the addresses lie in memory, at a. */
static const char through_begin[] = "ld.global.u64 %b, [%a+8];\n"
				    "ld.global.u64 %a, [%a];\n";
static const char through_body[] = "add.u64 %r, %q, %b;\n"
				   "add.u64 %q, %q, %a;\n"
				   "ld.global.u32 %u, [%r];\n"
				   "ld.global.u32 %v, [%q];\n"
				   "xor.b32 %u, %u, %v;\n"
				   "add.u32 %u, %u, %s;\n"
				   "st.global.u32 [%q], %u;\n";

/* Adds the seed to a[0] n times. */
static const char count_body[] = "red.global.add.u32 [%a], %s;\n";

static struct gpu {
	CUcontext context;
	CUfunction mix, add, through, count;
} gpu[GPUS_MAX];
static unsigned gpus = 1;
static size_t bytes; /* of a buffer */
static unsigned rounds;
static bool handles;
static bool async;
static bool managed;
static bool kib;

/* The part of a thread on one GPU. */
struct worker {
	const struct gpu *gpu;
	CUdeviceptr table;
	CUdeviceptr buffer[BUFFERS_MAX];
	unsigned n;
	uint64_t random;
	CUstream stream[2];
};

struct thread {
	pthread_t thread;
	struct worker part[GPUS_MAX];
	uint64_t digest;
};

static size_t mapped_bytes(void)
{
	return (bytes + UNIT - 1) / UNIT * UNIT;
}

static CUdeviceptr map_new(const struct worker *w)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, (int)(w->gpu - gpu) }
	};
	CUmemAccessDesc access = { .location = prop.location,
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p = 0;

	CU(cuMemAddressReserve(&p, mapped_bytes(), 0, 0, 0));
	CU(cuMemCreate(&handle, mapped_bytes(), &prop, 0));
	CU(cuMemMap(p, mapped_bytes(), 0, handle, 0));
	CU(cuMemRelease(handle));
	CU(cuMemSetAccess(p, mapped_bytes(), &access, 1));
	return p;
}

/* Waits for the work of a part's streams. Waiting for that of its context would invalidate what
 * another thread captures there. */
static void wait_for(const struct worker *w)
{
	for (unsigned i = 0; i < 2; i++) {
		CU(cuStreamSynchronize(w->stream[i]));
	}
}

/* Frees a buffer, behind the work of a stream or once all work is done. */
static void give(const struct worker *w, CUdeviceptr p, unsigned stream)
{
	if (async) {
		CU(cuMemFreeAsync(p, w->stream[stream]));
	} else if (handles) {
		wait_for(w);
		CU(cuMemUnmap(p, mapped_bytes()));
		CU(cuMemAddressFree(p, mapped_bytes()));
	} else {
		CU(cuMemFree(p));
	}
}

/* Makes a buffer, for work behind that of the stream. */
static CUdeviceptr take(struct worker *w, unsigned stream)
{
	CUdeviceptr p = 0, base = 0;
	unsigned type = 0;
	size_t size = 0;
	uint32_t word = 0;

	if (handles) {
		p = map_new(w);
	} else if (async) {
		CU(cuMemAllocAsync(&p, bytes, w->stream[stream]));
	} else if (managed) {
		CU(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
	} else {
		CU(cuMemAlloc(&p, bytes));
	}
	CU(cuMemGetAddressRange_v2(&base, &size, p + bytes / 2));
	CHECK(base == p && size == (handles ? mapped_bytes() : bytes),
	      "an allocation of %zu bytes has %zu", bytes, size);
	CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + bytes - 1));
	CHECK(type == CU_MEMORYTYPE_DEVICE || managed, "an allocation has type %u", type);
	word = program_random(&w->random);
	CU(cuMemsetD32Async(p, word, bytes / 4, w->stream[stream]));
	return p;
}

static void launch(CUfunction f, CUstream s, CUdeviceptr a, size_t n, uint32_t seed, CUdeviceptr b)
{
	uint32_t words = (uint32_t)n;

	LAUNCH3(f, BLOCKS, 1, 1, BLOCK, 1, 1, 0, s, &a, &words, &seed, &b);
}

/* The first stream's work so far comes before the second one's next. */
static void join(const struct worker *w, unsigned from)
{
	CUevent e;

	CU(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CU(cuEventRecord(e, w->stream[from]));
	CU(cuStreamWaitEvent(w->stream[1 - from], e, 0));
	CU(cuEventDestroy(e));
}

static void run_graph(const struct worker *w, CUdeviceptr a, CUdeviceptr b, uint32_t seed)
{
	CUgraph g;
	CUgraphExec x;

	CU(cuStreamBeginCapture(w->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	launch(w->gpu->mix, w->stream[0], a, bytes / 4, seed, 0);
	CU(cuMemcpyDtoDAsync(b + bytes / 3 / 16 * 16, a, bytes / 2 / 16 * 16, w->stream[0]));
	CU(cuStreamEndCapture(w->stream[0], &g));
	CU(cuGraphInstantiate(&x, g, 0));
	CU(cuGraphLaunch(x, w->stream[0]));
	CU(cuStreamSynchronize(w->stream[0]));
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
}

/* Says where a part of a buffer should be, which changes no result. */
static void hint(const struct worker *w, CUdeviceptr a, uint32_t seed)
{
	size_t from = seed % bytes / PAGE * PAGE, size = bytes - from;

	CU(cuMemAdvise(a + from, size,
		       seed % 2 ? CU_MEM_ADVISE_SET_READ_MOSTLY : CU_MEM_ADVISE_UNSET_READ_MOSTLY,
		       0));
	CU(cuMemAdvise(a + from, size,
		       seed % 3 ? CU_MEM_ADVISE_SET_PREFERRED_LOCATION
				: CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
		       seed % 5 ? 0 : HOST));
	CU(cuMemPrefetchAsync(a + from, size, seed % 7 > 3 ? 0 : HOST, w->stream[seed % 2]));
}

static void run_round(struct worker *w)
{
	unsigned i = program_random(&w->random) % w->n, j = (i + 1) % w->n;
	CUdeviceptr a = w->buffer[i], b = w->buffer[j], both[2] = { a, b };
	uint32_t seed = program_random(&w->random), words[64];

	for (unsigned k = 0; k < 64; k++) {
		words[k] = program_random(&w->random);
	}
	CU(cuCtxSetCurrent(w->gpu->context));
	if (managed) {
		hint(w, a, seed);
	}
	launch(w->gpu->mix, w->stream[0], a, bytes / 4, seed, 0);
	launch(w->gpu->add, w->stream[0], b, bytes / 4, seed % 1000, a);
	join(w, 0);
	launch(w->gpu->count, w->stream[1], a, BLOCK * BLOCKS * 2, seed, 0);
	CU(cuMemcpyHtoDAsync(b + bytes / 2 / 4 * 4, words, sizeof(words), w->stream[1]));
	CU(cuMemcpyHtoDAsync(w->table, both, sizeof(both), w->stream[1]));
	launch(w->gpu->through, w->stream[1], w->table, bytes / 4, seed, 0);
	join(w, 1);
	run_graph(w, b, a, seed);
	CU(cuMemsetD8Async(a + bytes / 5, (uint8_t)seed, bytes / 3, w->stream[0]));
	launch(w->gpu->mix, w->stream[0], b, bytes / 4, seed, 0);
	if (w->n > 2) { /* one whose work is done: the free waits, as cuMemFree does */
		unsigned k = (i + 2) % w->n;

		give(w, w->buffer[k], 0);
		w->buffer[k] = take(w, seed % 2);
		join(w, seed % 2);
	}
}

/* The stream's work so far, in its context, comes before the other part's next. */
static void join_parts(const struct worker *w, unsigned stream, const struct worker *other)
{
	CUevent e;

	CU(cuCtxSetCurrent(w->gpu->context));
	CU(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CU(cuEventRecord(e, w->stream[stream]));
	for (unsigned i = 0; i < 2; i++) {
		CU(cuStreamWaitEvent(other->stream[i], e, 0));
	}
	CU(cuEventDestroy(e));
}

/* Copies from a buffer of one GPU to one of another, in one of the three ways of the driver, on a
 * stream of the former. */
static void copy_across(struct worker *from, struct worker *to, unsigned round)
{
	CUdeviceptr a = from->buffer[program_random(&from->random) % from->n] + bytes / 5 / 16 * 16;
	CUdeviceptr b = to->buffer[program_random(&to->random) % to->n] + bytes / 7 / 16 * 16;
	size_t part = bytes / 2 + 4;

	join_parts(to, 0, from);
	join_parts(to, 1, from);
	CU(cuCtxSetCurrent(from->gpu->context));
	join(from, 1);
	if (round % 3 == 0) {
		CU(cuMemcpyPeerAsync(b, to->gpu->context, a, from->gpu->context, part,
				     from->stream[0]));
	} else if (round % 3 == 1) {
		CU(cuMemcpyDtoDAsync(b, a, part, from->stream[0]));
	} else {
		CU(cuStreamSynchronize(from->stream[0]));
		CU(cuMemcpyDtoD(b, a, part));
		CU(cuStreamSynchronize(CU_STREAM_LEGACY)); /* the copy may go on */
	}
	join(from, 0);
	join_parts(from, 0, to);
}

static void digest(struct thread *t)
{
	uint8_t *host = program_room(bytes);

	t->digest = 1469598103934665603u;
	for (unsigned g = 0; g < gpus; g++) {
		const struct worker *w = &t->part[g];

		CU(cuCtxSetCurrent(w->gpu->context));
		for (unsigned i = 0; i < w->n; i++) {
			CU(cuMemcpyDtoH(host, w->buffer[i], bytes));
			for (size_t k = 0; k < bytes; k++) {
				t->digest = (t->digest ^ host[k]) * 1099511628211u;
			}
		}
	}
	free(host);
}

static void begin(struct worker *w)
{
	CU(cuCtxSetCurrent(w->gpu->context));
	CU(cuMemAlloc(&w->table, 16));
	for (unsigned i = 0; i < 2; i++) {
		CU(cuStreamCreate(&w->stream[i], CU_STREAM_NON_BLOCKING));
	}
	for (unsigned i = 0; i < w->n; i++) {
		w->buffer[i] = take(w, 0);
		launch(w->gpu->mix, w->stream[0], w->buffer[i], bytes / 4, i, 0);
		if (i) {
			launch(w->gpu->add, w->stream[0], w->buffer[i], bytes / 4, i,
			       w->buffer[i / 2]);
		}
	}
}

static void end(const struct worker *w)
{
	CU(cuCtxSetCurrent(w->gpu->context));
	for (unsigned i = 0; i < w->n; i++) {
		give(w, w->buffer[i], i % 2);
	}
}

static void *work(void *arg)
{
	struct thread *t = arg;

	for (unsigned g = 0; g < gpus; g++) {
		begin(&t->part[g]);
	}
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned g = 0; g < gpus; g++) {
			run_round(&t->part[g]);
		}
		for (unsigned g = 0; g < gpus && gpus > 1; g++) {
			copy_across(&t->part[g], &t->part[(g + 1) % gpus], i + g);
		}
	}
	for (unsigned g = 0; g < gpus; g++) {
		wait_for(&t->part[g]);
	}
	digest(t);
	for (unsigned g = 0; g < gpus; g++) {
		end(&t->part[g]);
	}
	return NULL;
}

static size_t print_kernel(char *to, size_t room, const char *name, const char *begin,
			   const char *body)
{
	int n = snprintf(to, room, kernel, name, begin, body);

	CHECK(n > 0 && (size_t)n < room, "no room for %s", name);
	return (size_t)n;
}

static void load(struct gpu *g)
{
	char text[16384] = ".version 7.0\n.target sm_70\n.address_size 64\n";
	size_t n = strlen(text);
	CUmodule m;

	n += print_kernel(text + n, sizeof(text) - n, "mix", "", mix_body);
	n += print_kernel(text + n, sizeof(text) - n, "add", "", add_body);
	n += print_kernel(text + n, sizeof(text) - n, "through", through_begin, through_body);
	(void)print_kernel(text + n, sizeof(text) - n, "count", "", count_body);
	CU(cuModuleLoadData(&m, text));
	CU(cuModuleGetFunction(&g->mix, m, "mix"));
	CU(cuModuleGetFunction(&g->add, m, "add"));
	CU(cuModuleGetFunction(&g->through, m, "through"));
	CU(cuModuleGetFunction(&g->count, m, "count"));
}

static void start(struct thread *t, unsigned number, unsigned buffers)
{
	for (unsigned g = 0; g < gpus; g++) {
		t->part[g].gpu = &gpu[g];
		t->part[g].n = buffers;
		t->part[g].random = 42 + number + 1000 * g;
	}
	CHECK(pthread_create(&t->thread, NULL, work, t) == 0, "no thread");
}

int main(int argc, char **argv)
{
	static struct thread thread[THREADS_MAX];
	unsigned buffers, threads;
	uint64_t sum = 0;
	CUdevice device;

	while (argc > 1 && argv[1][0] == '-') {
		bool has_number = argc > 2 && !strcmp(argv[1], "--gpus");

		handles |= !strcmp(argv[1], "--handles");
		async |= !strcmp(argv[1], "--async");
		managed |= !strcmp(argv[1], "--managed");
		kib |= !strcmp(argv[1], "--kib");
		gpus = has_number ? (unsigned)atoi(argv[2]) : gpus;
		argv += 1 + has_number;
		argc -= 1 + has_number;
	}
	buffers = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	bytes = argc > 2 ? (size_t)atoi(argv[2]) * (kib ? KIB : MIB) + 12 : 0;
	rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	threads = argc > 4 ? (unsigned)atoi(argv[4]) : 1;
	if (bytes <= 12 || !threads || threads > THREADS_MAX || buffers / threads < 2 ||
	    buffers / threads > BUFFERS_MAX || !gpus || gpus > GPUS_MAX) {
		fprintf(stderr, "usage: swapping [--handles|--async|--managed] [--kib] [--gpus N] "
				"BUFFERS MIB ROUNDS [THREADS]\n");
		return 2;
	}
	CU(cuInit(0));
	for (unsigned g = 0; g < gpus; g++) {
		CU(cuDeviceGet(&device, (int)g));
		CU(cuDevicePrimaryCtxRetain(&gpu[g].context, device));
		CU(cuCtxSetCurrent(gpu[g].context));
		load(&gpu[g]);
	}
	for (unsigned i = 0; i < threads; i++) {
		start(&thread[i], i, buffers / threads);
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(thread[i].thread, NULL);
		sum = sum * 31 + thread[i].digest;
	}
	printf("%016llx\n", (unsigned long long)sum);
	for (unsigned g = 0; g < gpus; g++) {
		CU(cuDevicePrimaryCtxRelease_v2((CUdevice)g));
	}
	return 0;
}

/* stress IMAGE SEED STREAMS OPERATIONS [THREADS]: a random program of kernels, copies, memsets,
 * graphs, events, host functions and allocations on several streams, the default stream among them,
 * whose result is known: every word of a buffer is a * h(i) + s * (i + 1) + c, and each operation
 * changes (a, s, c) of whole buffers. A buffer belongs to one stream at a time; it is handed over
 * by an event, by a synchronization, or by the order that the default stream gives. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"

#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemsetD32Async_ cuMemsetD32Async

#define THREADS 64u
#define BLOCKS 192u
#define WORDS (THREADS * BLOCKS)
#define MAX_STREAMS 16
#define BUFFERS 24
#define EVENTS 8
#define MAX_THREADS 16
#define DEFAULT 0 /* the legacy default stream's place */

struct buffer {
	CUdeviceptr data;
	uint32_t a, s, c;
	int stream;
	bool pooled; /* of cuMemAllocAsync */
};

static struct program p;
static CUfunction step, swap;
static __thread CUstream streams[MAX_STREAMS];
static __thread bool blocking[MAX_STREAMS];
static __thread int n_streams;
static __thread struct buffer buffers[BUFFERS];
static __thread CUdeviceptr counter;
static __thread uint32_t expected_blocks;
static __thread uint32_t *pinned; /* WORDS */
static __thread uint64_t seed;
static __thread unsigned long host_calls, host_expected;

static unsigned long operations;
static uintptr_t n_threads;

static uint32_t below(uint32_t n)
{
	return program_random(&seed) % n;
}

static uint32_t h(uint32_t i)
{
	return (i ^ i >> 7) * 0x9e3779b1u;
}

static void apply(struct buffer *b, uint32_t a, uint32_t salt, uint32_t k)
{
	b->a *= a;
	b->s = b->s * a + salt;
	b->c = b->c * a + k;
}

static uint32_t value(const struct buffer *b, uint32_t i)
{
	return b->a * h(i) + b->s * (i + 1) + b->c;
}

static void check(const struct buffer *b, const uint32_t *words, const char *what)
{
	for (uint32_t i = 0; i < WORDS; i++) {
		if (words[i] != value(b, i)) {
			fprintf(stderr, "%s: buffer %d word %u (block %u): %08x instead of %08x\n",
				what, (int)(b - buffers), i, i / THREADS, words[i], value(b, i));
			exit(1);
		}
	}
}

/* The default stream waits for blocking streams, and they for it. */
static bool ordered(int from, int to)
{
	return from == to || (from == DEFAULT && blocking[to]) || (to == DEFAULT && blocking[from]);
}

/* A buffer for the stream, handed over from the one that has it. */
static struct buffer *take(int s)
{
	static __thread CUevent events[EVENTS];
	struct buffer *b = &buffers[below(BUFFERS)];
	CUevent *e = &events[below(EVENTS)];

	if (ordered(b->stream, s)) {
		b->stream = s;
		return b;
	}
	switch (below(4)) {
	case 0:
		CU(cuStreamSynchronize(streams[b->stream]));
		break;
	case 1:
		if (!*e) {
			CU(cuEventCreate(e, 0));
		}
		CU(cuEventRecord(*e, streams[b->stream]));
		while (cuEventQuery(*e) == CUDA_ERROR_NOT_READY) {
		}
		CU(cuEventSynchronize(*e));
		break;
	default:
		if (!*e) {
			CU(cuEventCreate(e, 0));
		}
		CU(cuEventRecord(*e, streams[b->stream]));
		CU(cuStreamWaitEvent(streams[s], *e, 0));
		break;
	}
	b->stream = s;
	return b;
}

static void launch(int s, struct buffer *b)
{
	uint32_t n = WORDS, a = below(1000) * 2 + 1, salt = below(1u << 30), k = below(1u << 30),
		 spin = below(8) ? below(50) : below(2000), extra = below(3);
	void *params[] = { &b->data, &n, &a, &salt, &k, &counter, &spin };

	expected_blocks += BLOCKS;
	apply(b, a, salt, k);
	switch (extra) {
	case 0:
		expected_blocks += 3;
		CU(cuLaunchKernel(step, BLOCKS + 3, 1, 1, THREADS, 1, 1, 0, streams[s], params,
				  NULL));
		break;
	case 1:
		CU(cuLaunchKernel(step, 8, 6, BLOCKS / 48, THREADS, 1, 1, 0, streams[s], params,
				  NULL));
		break;
	default:
		CU(cuLaunchKernel(swap, BLOCKS / 4, 4, 1, THREADS, 1, 1, THREADS * 4, streams[s],
				  params, NULL));
		break;
	}
}

static void launch_ex(int s, struct buffer *b)
{
	struct {
		CUdeviceptr data;
		uint32_t n, a, salt, k;
		CUdeviceptr counter;
		uint32_t spin;
	} buffer = { b->data, WORDS, 3, below(1u << 30), below(1u << 30), counter, below(100) };
	size_t bytes = 40 - 4;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	CUlaunchConfig config = { BLOCKS, 1, 1, THREADS, 1, 1, 0, streams[s], NULL, 0 };

	expected_blocks += BLOCKS;
	apply(b, buffer.a, buffer.salt, buffer.k);
	CU(cuLaunchKernelEx(&config, step, NULL, extra));
}

static void graph(int s, struct buffer *b)
{
	uint32_t n = WORDS, a = 5, salt = below(1u << 30), k = below(1u << 30), spin = 0;
	void *params[] = { &b->data, &n, &a, &salt, &k, &counter, &spin };
	CUgraphExec exec;
	CUgraph g;
	CUstream on = streams[s];

	/* The default stream cannot capture, nor be used by another thread while a stream that is
	 * ordered with it captures. */
	if (s == DEFAULT || (blocking[s] && n_threads > 1)) {
		return;
	}
	CU(cuStreamBeginCapture(on, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CU(cuLaunchKernel(step, BLOCKS, 1, 1, THREADS, 1, 1, 0, on, params, NULL));
	CU(cuMemsetD32Async(counter + 4, 1, 1, on));
	CU(cuStreamEndCapture(on, &g));
	CU(cuGraphInstantiate(&exec, g, 0));
	for (uint32_t i = below(3) + 1; i; i--) {
		CU(cuGraphLaunch(exec, on));
		expected_blocks += BLOCKS;
		apply(b, a, salt, k);
	}
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(g));
}

static void host_function(void *arg)
{
	__atomic_fetch_add((unsigned long *)arg, 1, __ATOMIC_RELAXED);
}

static void copy_in(int s, struct buffer *b)
{
	static __thread uint32_t pageable[WORDS];

	b->a = 0;
	b->s = below(1u << 30);
	b->c = below(1u << 30);
	for (uint32_t i = 0; i < WORDS; i++) {
		pageable[i] = value(b, i);
	}
	CU(cuMemcpyHtoDAsync(b->data, pageable, sizeof(pageable), streams[s]));
	memset(pageable, 0, sizeof(pageable));
}

static void copy_out(int s, struct buffer *b)
{
	static __thread uint32_t pageable[WORDS];

	switch (below(3)) {
	case 0:
		CU(cuMemcpyDtoHAsync(pinned, b->data, WORDS * 4, streams[s]));
		CU(cuStreamSynchronize(streams[s]));
		check(b, pinned, "copied to pinned memory");
		break;
	case 1:
		if (s == DEFAULT || blocking[s]) {
			CU(cuMemcpyDtoH(pageable, b->data, sizeof(pageable)));
			check(b, pageable, "copied on the default stream");
		}
		break;
	default:
		CU(cuMemcpyDtoHAsync(pageable, b->data, sizeof(pageable), streams[s]));
		CU(cuStreamSynchronize(streams[s]));
		check(b, pageable, "copied to pageable memory");
		break;
	}
}

/* A buffer moves to fresh memory, in stream order or not. */
static void move(int s, struct buffer *b)
{
	bool pooled = below(2);
	CUdeviceptr fresh;

	if (pooled) {
		CU(cuMemAllocAsync(&fresh, WORDS * 4, streams[s]));
	} else {
		CU(cuMemAlloc(&fresh, WORDS * 4));
	}
	CU(cuMemcpyDtoDAsync(fresh, b->data, WORDS * 4, streams[s]));
	if (b->pooled) {
		CU(cuMemFreeAsync(b->data, streams[s]));
	} else {
		CU(cuMemFree(b->data)); /* waits */
	}
	b->data = fresh;
	b->pooled = pooled;
}

static void renew_stream(int s)
{
	if (s == DEFAULT) {
		return;
	}
	for (int i = 0; i < BUFFERS; i++) {
		if (buffers[i].stream == s) {
			CU(cuStreamSynchronize(streams[s]));
			buffers[i].stream = DEFAULT;
		}
	}
	CU(cuStreamDestroy(streams[s]));
	CU(cuStreamCreate(&streams[s], blocking[s] ? 0 : 1));
}

/* While another thread captures a context is not to be synchronized. */
static void synchronize_all(void)
{
	if (n_threads == 1) {
		CU(cuCtxSynchronize());
		return;
	}
	for (int i = 0; i < n_streams; i++) {
		CU(cuStreamSynchronize(streams[i]));
	}
}

static void operate(int s)
{
	struct buffer *b = take(s), *other = take(s);
	uint32_t v;

	switch (below(40)) {
	case 0:
		copy_in(s, b);
		break;
	case 1:
		copy_out(s, b);
		break;
	case 2:
		graph(s, b);
		break;
	case 3:
		host_expected++;
		CU(cuLaunchHostFunc(streams[s], host_function, &host_calls));
		break;
	case 4:
		move(s, b);
		break;
	case 5:
		b->a = b->s = 0;
		b->c = v = below(1u << 30);
		CU(cuMemsetD32Async(b->data, v, WORDS, streams[s]));
		break;
	case 6:
	case 7:
		if (b != other) {
			CU(cuMemcpyDtoDAsync(b->data, other->data, WORDS * 4, streams[s]));
			b->a = other->a;
			b->s = other->s;
			b->c = other->c;
		}
		break;
	case 8:
		CU(cuStreamSynchronize(streams[s]));
		break;
	case 9:
		(void)cuStreamQuery(streams[s]);
		break;
	case 10:
		if (below(10) == 0) {
			synchronize_all();
		}
		break;
	case 11:
		if (below(10) == 0) {
			renew_stream(s);
		}
		break;
	case 12:
	case 13:
		launch_ex(s, b);
		break;
	default:
		launch(s, b);
		break;
	}
}

static void finish(void)
{
	uint32_t *words = program_room(WORDS * 4), blocks = 0;

	synchronize_all();
	for (int i = 0; i < BUFFERS; i++) {
		CU(cuMemcpyDtoH(words, buffers[i].data, WORDS * 4));
		check(&buffers[i], words, "at the end");
	}
	CU(cuMemcpyDtoH(&blocks, counter, 4));
	if (blocks != expected_blocks) {
		fprintf(stderr, "%u blocks ran instead of %u\n", blocks, expected_blocks);
		exit(1);
	}
	if (__atomic_load_n(&host_calls, __ATOMIC_ACQUIRE) != host_expected) {
		fprintf(stderr, "%lu host functions instead of %lu\n", host_calls, host_expected);
		exit(1);
	}
	free(words);
}

static void *run(void *arg)
{
	uint32_t *words = program_room(WORDS * 4);

	CU(cuCtxSetCurrent(p.context));
	seed = (strtoull(p.argv[2], NULL, 10) + (uintptr_t)arg * 1000) * 2654435761u + 1;
	n_streams = (int)strtol(p.argv[3], NULL, 10);
	n_streams = n_streams < 1 ? 1 : n_streams > MAX_STREAMS ? MAX_STREAMS : n_streams;
	blocking[DEFAULT] = true;
	for (int i = 1; i < n_streams; i++) {
		blocking[i] = i % 3 == 0;
		CU(cuStreamCreate(&streams[i], blocking[i] ? 0 : 1));
	}
	CU(cuMemAllocHost((void **)(void *)&pinned, WORDS * 4));
	counter = program_zeros(16);
	for (int i = 0; i < BUFFERS; i++) {
		buffers[i] = (struct buffer){ .a = 1, .stream = DEFAULT };
		for (uint32_t w = 0; w < WORDS; w++) {
			words[w] = value(&buffers[i], w);
		}
		buffers[i].data = program_put(words, WORDS * 4);
	}
	free(words);
	CU(cuStreamSynchronize(NULL)); /* the memsets, before streams that do not wait for them */
	for (unsigned long i = 0; i < operations; i++) {
		operate((int)below((uint32_t)n_streams));
	}
	finish();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_THREADS];
	uintptr_t n;

	if (argc < 5) {
		fputs("usage: stress IMAGE SEED STREAMS OPERATIONS [THREADS]\n", stderr);
		return 2;
	}
	program_open(&p, "stress", argc, argv);
	operations = strtoul(argv[4], NULL, 10);
	n = argc > 5 ? strtoul(argv[5], NULL, 10) : 1;
	n = n_threads = n > MAX_THREADS ? MAX_THREADS : n;
	step = program_kernel(&p, "step");
	swap = program_kernel(&p, "swap");
	for (uintptr_t i = 1; i < n; i++) {
		if (pthread_create(&threads[i], NULL, run, (void *)i)) {
			return 1;
		}
	}
	run(NULL);
	for (uintptr_t i = 1; i < n; i++) {
		pthread_join(threads[i], NULL);
	}
	return program_close(&p);
}

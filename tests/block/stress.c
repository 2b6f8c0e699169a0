/* stress IMAGE SEED STREAMS OPERATIONS [THREADS [wide | legacy]]: a random program of kernels,
 * copies, memsets, graphs, events, host functions and allocations on several streams, including the
 * default stream, with a known result: every word of a buffer is a * h(i) + s * (i + 1) + c, and
 * each operation changes (a, s, c) of whole buffers. A buffer belongs to one stream at a time; it
 * is handed over by an event, by a synchronization, or by the order of the default stream. wide:
 * also by memory operations and by events in graphs, and one stream is the per-thread default
 * stream. legacy: as wide, but most streams are ordered with the legacy default stream, which gets
 * much of the work. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream_ops.h"

#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemsetD32Async_ cuMemsetD32Async

#define THREADS 64u
#define BLOCKS 192u
#define WORDS (THREADS * BLOCKS)
#define MAX_STREAMS 16
#define BUFFERS 24
#define EVENTS 8
#define MAX_THREADS 16
#define DEFAULT 0 /* index of the legacy default stream */
#define OWN 1	  /* index of the per-thread default stream; wide */
#define NARROW 40 /* number of kinds of operations */
#define WIDE 67

struct buffer {
	CUdeviceptr data;
	uint32_t a, s, c;
	int stream;
	bool pooled; /* allocated with cuMemAllocAsync */
	bool managed;
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
static bool wide, legacy;
static __thread CUdeviceptr signals; /* for wide_order: one word for each use */
static __thread uint32_t n_signals;

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

/* The default stream waits for blocking streams, and they wait for it. */
static bool ordered(int from, int to)
{
	return from == to || (from == DEFAULT && blocking[to]) || (to == DEFAULT && blocking[from]);
}

/* Returns true if no default stream is between the two: it would wait for one and be waited for by
 * the other. */
static bool can_signal(int from, int to)
{
	return wide && (n_threads == 1 || (!blocking[from] && !blocking[to]));
}

/* Returns a buffer for the stream, handed over from its present owner. */
static struct buffer *take(int s)
{
	static __thread CUevent events[EVENTS];
	struct buffer *b = &buffers[below(BUFFERS)];
	CUevent *e = &events[below(EVENTS)];

	if (ordered(b->stream, s)) {
		b->stream = s;
		return b;
	}
	switch (below(can_signal(b->stream, s) ? 6 : 4)) {
	case 4:
	case 5:
		wide_order(streams[b->stream], streams[s], signals + 4ul * n_signals, below(4));
		n_signals++;
		break;
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

	/* The default stream cannot capture, and another thread cannot use it while a stream
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

/* Moves a buffer to newly allocated memory, in stream order or not. */
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
	b->managed = false;
}

static void move_managed(int s, struct buffer *b)
{
	CUdeviceptr fresh = wide_managed(streams[s]);

	wide_copy(streams[s], fresh, b->data, p.context, below(5));
	if (b->pooled) {
		CU(cuMemFreeAsync(b->data, streams[s]));
	} else {
		CU(cuMemFree(b->data));
	}
	b->data = fresh;
	b->pooled = false;
	b->managed = true;
}

static void create_stream(int s)
{
	unsigned flags = blocking[s] ? 0 : 1;
	int least = 0, greatest = 0;

	if (!wide) {
		CU(cuStreamCreate(&streams[s], flags));
		return;
	}
	CU(cuCtxGetStreamPriorityRange(&least, &greatest));
	CU(cuStreamCreateWithPriority(&streams[s], flags, below(2) ? least : greatest));
}

static void renew_stream(int s)
{
	if (s == DEFAULT || (wide && s == OWN)) {
		return;
	}
	for (int i = 0; i < BUFFERS; i++) {
		if (buffers[i].stream == s) {
			CU(cuStreamSynchronize(streams[s]));
			buffers[i].stream = DEFAULT;
		}
	}
	CU(cuStreamDestroy(streams[s]));
	create_stream(s);
}

/* Hands the stream's buffers to another stream by an event, and destroys the stream while it is
 * busy. */
static void retire_stream(int s, int to)
{
	CUevent e;

	if (s == to || s == DEFAULT || s == OWN) {
		return;
	}
	CU(cuEventCreate(&e, 0));
	CU(cuEventRecord(e, streams[s]));
	CU(cuStreamWaitEvent(streams[to], e, 0));
	for (int i = 0; i < BUFFERS; i++) {
		buffers[i].stream = buffers[i].stream == s ? to : buffers[i].stream;
	}
	CU(cuStreamDestroy(streams[s]));
	create_stream(s);
	CU(cuEventDestroy(e));
}

/* A context cannot be synchronized while another thread captures. */
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

static void copied(struct buffer *b, const struct buffer *from)
{
	b->a = from->a;
	b->s = from->s;
	b->c = from->c;
}

static void filled(struct buffer *b, uint32_t v)
{
	b->a = b->s = 0;
	b->c = v;
}

/* A graph of kernel, copy, memset, host function and an event that another stream awaits. */
static void wide_graph(int s, struct buffer *b, struct buffer *copy, struct buffer *fill)
{
	uint32_t n = WORDS, a = 7, salt = below(1u << 30), k = below(1u << 30), spin = below(200),
		 v = below(1u << 30);
	void *params[] = { &b->data, &n, &a, &salt, &k, &counter, &spin };
	int to = (int)below((uint32_t)n_streams);
	CUgraphExec exec;
	CUgraph g;
	CUevent e;

	if (s == DEFAULT || (blocking[s] && n_threads > 1) || b == copy || b == fill ||
	    copy == fill) {
		return;
	}
	CU(cuEventCreate(&e, 0));
	CU(cuStreamBeginCapture(streams[s], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CU(cuLaunchKernel(step, BLOCKS, 1, 1, THREADS, 1, 1, 0, streams[s], params, NULL));
	CU(cuMemcpyDtoDAsync(copy->data, b->data, WORDS * 4, streams[s]));
	CU(cuMemsetD32Async(fill->data, v, WORDS, streams[s]));
	CU(cuLaunchHostFunc(streams[s], host_function, &host_calls));
	if (below(2)) {
		CU(cuEventRecordWithFlags(e, streams[s], CU_EVENT_RECORD_EXTERNAL));
	}
	CU(cuStreamEndCapture(streams[s], &g));
	CU(cuGraphInstantiate(&exec, g, 0));
	CU(cuGraphDestroy(g));
	for (uint32_t i = below(3) + 1; i; i--) {
		CU(cuGraphLaunch(exec, streams[s]));
		expected_blocks += BLOCKS;
		host_expected++;
		apply(b, a, salt, k);
	}
	copied(copy, b);
	filled(fill, v);
	CU(cuGraphExecDestroy(exec));
	CU(cuEventRecord(e, streams[s]));
	CU(cuStreamWaitEvent(streams[to], e, 0));
	b->stream = copy->stream = fill->stream = to;
	CU(cuEventDestroy(e));
}

static void put(int s, struct buffer *b)
{
	static __thread uint32_t words[WORDS];

	b->a = 0;
	b->s = below(1u << 30);
	b->c = below(1u << 30);
	for (uint32_t i = 0; i < WORDS; i++) {
		words[i] = value(b, i);
	}
	wide_put(streams[s], b->data, words, below(3));
	memset(words, 0, sizeof(words));
}

static void get(int s, struct buffer *b)
{
	static __thread uint32_t words[WORDS];
	uint32_t *to = below(2) ? pinned : words;

	wide_get(streams[s], to, b->data, below(2));
	CU(cuStreamSynchronize(streams[s]));
	check(b, to, "copied in rows");
}

static void launch_wide(int s, struct buffer *b)
{
	uint32_t n = WORDS, a = below(1000) * 2 + 1, salt = below(1u << 30), k = below(1u << 30),
		 spin = below(100);
	void *params[] = { &b->data, &n, &a, &salt, &k, &counter, &spin };

	expected_blocks += BLOCKS;
	apply(b, a, salt, k);
	wide_launch(streams[s], step, BLOCKS, THREADS, params, below(4));
}

static void operate_wide(int s, struct buffer *b, struct buffer *other, uint32_t what)
{
	switch (what) {
	case 0:
		put(s, b);
		break;
	case 1:
		get(s, b);
		break;
	case 2:
	case 3:
		filled(b, wide_fill(streams[s], b->data, below(1u << 30), below(5)));
		break;
	case 4:
		move_managed(s, b);
		break;
	case 5:
		if (b->managed) {
			CU(cuMemPrefetchAsync(b->data, WORDS * 4, below(2) ? 0 : -1, streams[s]));
		}
		break;
	case 6:
	case 7:
		wide_graph(s, b, other, take(s));
		break;
	case 8:
		retire_stream(s, (int)below((uint32_t)n_streams));
		break;
	case 20:
	case 21:
		if (s != DEFAULT && b != other) {
			wide_batch(streams[s], b->data, other->data, below(4));
			copied(b, other);
		}
		break;
	case 22:
	case 23:
		if (blocking[s] && b != other) {
			wide_copy_default(b->data, other->data, below(2));
			copied(b, other);
		}
		break;
	case 24:
		if (blocking[s]) {
			filled(b, below(1u << 30));
			wide_fill_default(b->data, b->c, below(2));
		}
		break;
	case 25:
		if (s != DEFAULT && s != OWN) {
			wide_attribute(streams[s], b->data, below(2));
		}
		break;
	case 26:
		wide_mapped(streams[s], b->data);
		break;
	case 9:
	case 10:
	case 11:
		launch_wide(s, b);
		break;
	default:
		if (b != other) {
			wide_copy(streams[s], b->data, other->data, p.context, below(5));
			copied(b, other);
		}
		break;
	}
}

static void operate(int s)
{
	struct buffer *b = take(s), *other = take(s);
	uint32_t v, what = below(wide ? WIDE : NARROW);

	if (what >= NARROW) {
		operate_wide(s, b, other, what - NARROW);
		return;
	}
	switch (what) {
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
		blocking[i] = (legacy ? i % 4 != 2 : i % 3 == 0) || (wide && i == OWN);
		if (wide && i == OWN) {
			streams[i] = CU_STREAM_PER_THREAD;
		} else {
			create_stream(i);
		}
	}
	signals = program_zeros(12 * (operations + 1)); /* each takes three buffers at most */
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
	CU(cuStreamSynchronize(NULL)); /* the memsets, before non-blocking streams use the memory */
	for (unsigned long i = 0; i < operations; i++) {
		operate(legacy && !below(3) ? DEFAULT : (int)below((uint32_t)n_streams));
	}
	finish();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_THREADS];
	CUdeviceptr word;
	uintptr_t n;

	if (argc < 5) {
		fputs("usage: stress IMAGE SEED STREAMS OPERATIONS [THREADS [wide | legacy]]\n",
		      stderr);
		return 2;
	}
	program_open(&p, "stress", argc, argv);
	operations = strtoul(argv[4], NULL, 10);
	legacy = argc > 6 && strcmp(argv[6], "legacy") == 0;
	wide = legacy || (argc > 6 && strcmp(argv[6], "wide") == 0);
	n = argc > 5 ? strtoul(argv[5], NULL, 10) : 1;
	n = n_threads = n > MAX_THREADS ? MAX_THREADS : n;
	step = program_kernel(&p, "step");
	swap = program_kernel(&p, "swap");
	word = program_zeros(4);
	program_settle(word);
	CU(cuMemFree(word));
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

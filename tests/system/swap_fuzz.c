/* swap_fuzz SEED STEPS MIB [KILLS]: random operations on memory that can leave the device, against
 * a model, for swap_fuzz.bats. Prints the seed, and where memory differs from the model.
 *
 * THREADS threads with a stream each make STEPS steps of their own: they allocate and free, so that
 * all of them hold up to MIB MiB together, by cuMemAlloc, by cuMemCreate and from a pool, map what
 * they have made by handles elsewhere or twice, copy, set, launch kernels, and capture and launch
 * graphs. If the seed is odd, the pool keeps what is freed. The model is a copy of each buffer on
 * the host, on which each operation is repeated when it is submitted. A whole buffer is compared
 * with its model at random steps and at the end. All threads count in one more buffer by atomic
 * operations.
 *
 * With KILLS, two processes do so until one of them was killed and started again that many times,
 * at random steps. The other one, and the last one that was started, must be right.
 *
 * The seed determines what each thread does, not how the threads interleave. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"
#include "../unit/eventually.h"

#define cuMemGetInfo cuMemGetInfo_v2

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define CHUNK (16 * MIB)   /* of memory that leaves the device; its borders are crossed often */
#define SWAP_MIN (2 * MIB) /* of a buffer of any kind that can lie on the host */
#define THREADS 4u
#define BUFFERS 24u /* of a thread */
#define BUFFER_MAX (40 * MIB)
#define GRAPHS 4u /* of a thread */
#define NODES 6u  /* of a graph */
#define PIECES 4u /* of pinned memory, of a thread */
#define PIECE (256 * KIB)
#define WAVE 64u	 /* steps in which a thread's memory grows and shrinks once */
#define WORDS_MAX 16384u /* that a kernel uses */
#define COUNTERS 4096u
#define COUNTER_STRIDE 1280u /* words: the counters lie in two chunks */
#define BLOCK 128u
#define BLOCKS 16u
#define KERNEL_PTX                                                                                 \
	".visible .entry %s(.param .u64 a, .param .u32 n, .param .u32 seed, .param .u64 b,\n"      \
	".param .u32 stride)\n"                                                                    \
	"{\n"                                                                                      \
	".reg .pred %%p;\n"                                                                        \
	".reg .b32 %%d, %%i, %%n, %%s, %%t, %%u, %%v;\n"                                           \
	".reg .b64 %%a, %%b, %%q, %%r;\n"                                                          \
	"ld.param.u64 %%a, [a];\n"                                                                 \
	"ld.param.u64 %%b, [b];\n"                                                                 \
	"ld.param.u32 %%n, [n];\n"                                                                 \
	"ld.param.u32 %%s, [seed];\n"                                                              \
	"ld.param.u32 %%d, [stride];\n"                                                            \
	"mov.u32 %%t, %%tid.x;\n"                                                                  \
	"mov.u32 %%u, %%ctaid.x;\n"                                                                \
	"mov.u32 %%v, %%ntid.x;\n"                                                                 \
	"mad.lo.u32 %%i, %%u, %%v, %%t;\n"                                                         \
	"mov.u32 %%t, %%nctaid.x;\n"                                                               \
	"mul.lo.u32 %%t, %%t, %%v;\n"                                                              \
	"%s"                                                                                       \
	"loop:\n"                                                                                  \
	"setp.ge.u32 %%p, %%i, %%n;\n"                                                             \
	"@%%p bra done;\n"                                                                         \
	"mul.lo.u32 %%u, %%i, %%d;\n"                                                              \
	"mul.wide.u32 %%q, %%u, 4;\n"                                                              \
	"%s"                                                                                       \
	"add.u32 %%i, %%i, %%t;\n"                                                                 \
	"bra loop;\n"                                                                              \
	"done:\n"                                                                                  \
	"ret;\n"                                                                                   \
	"}\n"

/* ---- operations ---- */

enum kind { MIX, ADD, THROUGH, COUNT, KERNELS, COPY = KERNELS, SET, SET32, NODE_KINDS };

/* Kernels by kind: name, preparation and body. %q is the offset of word %i * stride. */
static const struct {
	const char *name, *begin, *body;
} kernels[KERNELS] = {
	/* a[i] = a[i] * 1664525 + i + seed */
	[MIX] = { "mix", "",
		  "add.u64 %q, %q, %a;\n"
		  "ld.global.u32 %u, [%q];\n"
		  "mad.lo.u32 %u, %u, 1664525, %i;\n"
		  "add.u32 %u, %u, %s;\n"
		  "st.global.u32 [%q], %u;\n" },
	/* a[i] += b[(i * 7 + seed) % n] */
	[ADD] = { "add", "",
		  "add.u64 %q, %q, %a;\n"
		  "mad.lo.u32 %u, %i, 7, %s;\n"
		  "rem.u32 %u, %u, %n;\n"
		  "mul.lo.u32 %u, %u, %d;\n"
		  "mul.wide.u32 %r, %u, 4;\n"
		  "add.u64 %r, %r, %b;\n"
		  "ld.global.u32 %u, [%r];\n"
		  "ld.global.u32 %v, [%q];\n"
		  "add.u32 %u, %u, %v;\n"
		  "st.global.u32 [%q], %u;\n" },
	/* t[0][i] = (t[0][i] ^ t[1][i]) + seed: the addresses lie in memory, at a. */
	[THROUGH] = { "through",
		      "ld.global.u64 %b, [%a+8];\n"
		      "ld.global.u64 %a, [%a];\n",
		      "add.u64 %r, %q, %b;\n"
		      "add.u64 %q, %q, %a;\n"
		      "ld.global.u32 %u, [%r];\n"
		      "ld.global.u32 %v, [%q];\n"
		      "xor.b32 %u, %u, %v;\n"
		      "add.u32 %u, %u, %s;\n"
		      "st.global.u32 [%q], %u;\n" },
	/* a[i % COUNTERS] += seed */
	[COUNT] = { "count", "",
		    "and.b32 %u, %i, 4095;\n"
		    "mul.lo.u32 %u, %u, %d;\n"
		    "mul.wide.u32 %q, %u, 4;\n"
		    "add.u64 %q, %q, %a;\n"
		    "red.global.add.u32 [%q], %s;\n" },
};

struct buffer {
	CUdeviceptr at; /* 0: none */
	size_t bytes;
	uint8_t *model;			     /* owned */
	unsigned number;		     /* of the thread's allocations */
	CUmemGenericAllocationHandle handle; /* 0: of cuMemAlloc */
	size_t mapped;			     /* bytes */
};

struct op {
	enum kind kind;
	unsigned to, from;  /* buffers */
	size_t at, from_at; /* bytes from their begin */
	size_t n;	    /* bytes; of kernels: words, stride words from each other */
	uint32_t stride, seed;
	unsigned slot; /* THROUGH: of the table */
};

struct graph {
	CUgraphExec exec; /* NULL: none */
	unsigned n;
	struct op node[NODES];
};

/* A piece of pinned memory, and the copy from or to it that was submitted last. */
struct piece {
	uint8_t *host;
	uint8_t *expected; /* by a copy from the device */
	size_t n;	   /* bytes that are to be compared; 0: none */
	unsigned number;   /* of the buffer */
	size_t at;
	CUevent event;
};

struct worker {
	pthread_t thread;
	unsigned id, step, allocations;
	uint64_t random, ops, refused;
	bool blocking; /* its stream waits for the default one */
	CUstream stream, capturing;
	size_t live, share; /* bytes: that it holds, and holds at most, about */
	unsigned phase;
	struct buffer buffer[BUFFERS], table;
	struct graph graph[GRAPHS];
	struct piece piece[PIECES];
	uint8_t *scratch;  /* of BUFFER_MAX bytes */
	uint32_t *counted; /* what it has added to each counter */
};

/* What all processes share. */
struct shared {
	uint32_t steps[2]; /* [atomic] of each process */
	uint32_t stop;	   /* [atomic] */
};

static uint64_t seed;
static unsigned steps; /* 0: until all->stop */
static struct shared *all;
static unsigned process;
static CUcontext context;
static CUfunction function[KERNELS];
static CUdeviceptr counters;
static _Thread_local struct worker *self;

#define LOAD(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define STORE(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define ADD_TO(p, v) __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST)

/* Ends the process unless the condition holds: other threads may be in the driver, which its exit
 * handlers shut down. */
#define CHECK(right, ...)                                                                          \
	do {                                                                                       \
		if (!(right)) {                                                                    \
			fprintf(stderr, "seed %llu, thread %u, step %u, line %d: ",                \
				(unsigned long long)seed, self ? self->id : 0,                     \
				self ? self->step : 0, __LINE__);                                  \
			fprintf(stderr, __VA_ARGS__);                                              \
			fputc('\n', stderr);                                                       \
			_exit(EXIT_FAILURE);                                                       \
		}                                                                                  \
	} while (0)

static uint32_t under(struct worker *w, size_t n)
{
	return (uint32_t)(program_random(&w->random) % n);
}

/* Random bytes, fast: no two words of a buffer are equal for long. */
static void fill(struct worker *w, uint8_t *to, size_t bytes)
{
	uint64_t x = (uint64_t)program_random(&w->random) << 32 | program_random(&w->random) | 1;

	for (size_t i = 0; i < bytes; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(to + i, &x, bytes - i < 8 ? bytes - i : 8);
	}
}

static void compare(const char *what, unsigned number, size_t at, const uint8_t *expected,
		    const uint8_t *found, size_t n)
{
	size_t i = 0;

	if (memcmp(expected, found, n) == 0) {
		return;
	}
	while (expected[i] == found[i]) {
		i++;
	}
	CHECK(false, "%s of buffer %u: byte %zu is 0x%02x, not 0x%02x", what, number, at + i,
	      found[i], expected[i]);
}

/* ---- the model ---- */

static uint32_t word_at(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, 4);
	return word;
}

static void repeat_kernel(struct worker *w, const struct op *o)
{
	uint8_t *a = o->kind == COUNT ? NULL : w->buffer[o->to].model + o->at;
	const uint8_t *b = w->buffer[o->from].model + o->from_at;
	size_t gap = 4 * (size_t)o->stride;

	for (uint32_t i = 0; i < o->n; i++) {
		uint32_t word = a ? word_at(a + i * gap) : 0;

		switch (o->kind) {
		case MIX:
			word = word * 1664525u + i + o->seed;
			break;
		case ADD:
			word += word_at(b + (i * 7 + o->seed) % (uint32_t)o->n * gap);
			break;
		case THROUGH:
			word = (word ^ word_at(b + i * gap)) + o->seed;
			break;
		default:
			w->counted[i % COUNTERS] += o->seed;
			continue;
		}
		memcpy(a + i * gap, &word, 4);
	}
}

static void repeat(struct worker *w, const struct op *o)
{
	uint8_t *to = w->buffer[o->to].model + o->at;

	w->ops++;
	switch (o->kind) {
	case COPY:
		memcpy(to, w->buffer[o->from].model + o->from_at, o->n);
		break;
	case SET:
		memset(to, (int)(o->seed & 0xff), o->n);
		break;
	case SET32:
		for (size_t i = 0; i + 4 <= o->n; i += 4) {
			memcpy(to + i, &o->seed, 4);
		}
		break;
	default:
		repeat_kernel(w, o);
	}
}

/* ---- submission ---- */

static void submit_kernel(const struct worker *w, const struct op *o, CUstream s)
{
	CUdeviceptr a = w->buffer[o->to].at + o->at, b = w->buffer[o->from].at + o->from_at;
	uint32_t n = (uint32_t)o->n, value = o->seed, stride = o->stride;

	if (o->kind == THROUGH) {
		a = w->table.at + 16 * o->slot;
		b = 0;
	} else if (o->kind == COUNT) {
		a = counters;
		stride = COUNTER_STRIDE;
	}
	OK(cuLaunchKernel(function[o->kind], BLOCKS, 1, 1, BLOCK, 1, 1, 0, s,
			  (void *[]){ &a, &n, &value, &b, &stride }, NULL));
}

static void submit(const struct worker *w, const struct op *o, CUstream s)
{
	CUdeviceptr to = w->buffer[o->to].at + o->at;

	switch (o->kind) {
	case COPY:
		OK(cuMemcpyDtoDAsync(to, w->buffer[o->from].at + o->from_at, o->n, s));
		break;
	case SET:
		OK(cuMemsetD8Async(to, (uint8_t)o->seed, o->n, s));
		break;
	case SET32:
		OK(cuMemsetD32Async(to, o->seed, o->n / 4, s));
		break;
	default:
		submit_kernel(w, o, s);
	}
}

/* A call on the default stream follows: work of a stream that does not wait for it must be done. */
static void begin_default(const struct worker *w)
{
	if (!w->blocking) {
		OK(cuStreamSynchronize(w->stream));
	}
}

static void end_default(const struct worker *w)
{
	if (!w->blocking) {
		OK(cuStreamSynchronize(NULL));
	}
}

/* Submits a copy or a set by a synchronous call. */
static void submit_default(const struct worker *w, const struct op *o)
{
	CUdeviceptr to = w->buffer[o->to].at + o->at;

	begin_default(w);
	switch (o->kind) {
	case COPY:
		OK(cuMemcpyDtoD(to, w->buffer[o->from].at + o->from_at, o->n));
		break;
	case SET:
		OK(cuMemsetD8(to, (uint8_t)o->seed, o->n));
		break;
	default:
		OK(cuMemsetD32(to, o->seed, o->n / 4));
	}
	end_default(w);
}

/* ---- choice ---- */

/* Returns a live buffer, or BUFFERS. */
static unsigned any_buffer(struct worker *w)
{
	unsigned from = under(w, BUFFERS);

	for (unsigned i = 0; i < BUFFERS; i++) {
		if (w->buffer[(from + i) % BUFFERS].at) {
			return (from + i) % BUFFERS;
		}
	}
	return BUFFERS;
}

/* The same; often the oldest one, which leaves the device first. */
static unsigned any_operand(struct worker *w)
{
	unsigned oldest = any_buffer(w);
	bool is_any = under(w, 2);

	for (unsigned i = 0; i < BUFFERS && !is_any; i++) {
		if (w->buffer[i].at && w->buffer[i].number < w->buffer[oldest].number) {
			oldest = i;
		}
	}
	return oldest;
}

/* Chooses at most that many bytes of so many; often across a border of chunks. */
static void choose_range(struct worker *w, size_t bytes, size_t most, size_t *ret_at, size_t *ret_n)
{
	size_t n = 1 + under(w, bytes < most ? bytes : most), at = under(w, bytes - n + 1);
	size_t borders = (bytes - 1) / CHUNK;

	if (borders && under(w, 2)) {
		size_t border = CHUNK * (1 + under(w, borders)), before = 1 + under(w, n);

		at = border - before;
		n = n < bytes - at ? n : bytes - at;
	}
	*ret_at = at;
	*ret_n = n;
}

/* The words of a kernel: spread over the whole buffers, or close to each other. */
static void choose_words(struct worker *w, struct op *o)
{
	const struct buffer *a = &w->buffer[o->to], *b = &w->buffer[o->from];
	size_t words = (a->bytes < b->bytes ? a->bytes : b->bytes) / 4;

	o->n = 1 + under(w, words < WORDS_MAX ? words : WORDS_MAX);
	o->stride = (uint32_t)(under(w, 3) ? words / o->n : 1);
	o->at = 4 * (size_t)under(w, a->bytes / 4 - (o->n - 1) * o->stride);
	o->from_at = 4 * (size_t)under(w, b->bytes / 4 - (o->n - 1) * o->stride);
}

/* Chooses an operation on live buffers. Returns false if there is none of that kind. */
static bool choose(struct worker *w, struct op *ret, unsigned slot)
{
	struct op o = { .kind = (enum kind)under(w, NODE_KINDS), .slot = slot };
	size_t from_n;

	o.to = any_operand(w);
	o.from = any_buffer(w);
	o.seed = program_random(&w->random);
	if (o.to == BUFFERS) {
		return false;
	}
	if (o.kind < KERNELS) {
		o.seed %= 1u << 20; /* i * 7 + seed does not wrap around */
		choose_words(w, &o);
		*ret = o;
		return o.kind == MIX || o.kind == COUNT || o.to != o.from;
	}
	choose_range(w, w->buffer[o.to].bytes, 4 * MIB, &o.at, &o.n);
	if (o.kind == COPY) {
		choose_range(w, w->buffer[o.from].bytes, 4 * MIB, &o.from_at, &from_n);
		o.n = o.n < from_n ? o.n : from_n;
	} else if (o.kind == SET32) {
		o.at -= o.at % 4;
		o.n -= o.n % 4;
	}
	*ret = o;
	return o.n && (o.kind != COPY || o.to != o.from || o.at + o.n <= o.from_at ||
		       o.from_at + o.n <= o.at);
}

/* Stores the addresses that a kernel takes from the table, in the order of the stream. */
static void put_addresses(struct worker *w, const struct op *o)
{
	CUdeviceptr both[2] = { w->buffer[o->to].at + o->at, w->buffer[o->from].at + o->from_at };

	memcpy(w->table.model + 16 * o->slot, both, sizeof(both));
	OK(cuMemcpyHtoDAsync(w->table.at + 16 * o->slot, both, sizeof(both), w->stream));
}

static void operate(struct worker *w)
{
	struct op o;

	if (!choose(w, &o, under(w, 4))) {
		return;
	}
	if (o.kind == THROUGH) {
		put_addresses(w, &o);
	}
	if (o.kind >= KERNELS && under(w, 3) == 0) {
		submit_default(w, &o);
	} else {
		submit(w, &o, w->stream);
	}
	repeat(w, &o);
}

/* ---- graphs ---- */

static void drop_graph(struct graph *g)
{
	if (g->exec) {
		OK(cuGraphExecDestroy(g->exec));
	}
	g->exec = NULL;
}

static void capture(struct worker *w, struct graph *g)
{
	CUgraph captured;
	CUresult r;

	g->n = 0;
	for (unsigned i = 0; i < NODES; i++) {
		struct op *o = &g->node[g->n];

		if (choose(w, o, 16 + (unsigned)(g - w->graph) * NODES + i)) {
			if (o->kind == THROUGH) {
				put_addresses(w, o);
			}
			g->n++;
		}
	}
	if (!g->n) {
		return;
	}
	OK(cuStreamBeginCapture(w->capturing, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (unsigned i = 0; i < g->n; i++) {
		submit(w, &g->node[i], w->capturing);
	}
	OK(cuStreamEndCapture(w->capturing, &captured));
	r = cuGraphInstantiate(&g->exec, captured, 0);
	CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY, "cuGraphInstantiate: %d", (int)r);
	if (r != CUDA_SUCCESS) {
		g->exec = NULL;
		w->refused++;
	}
	OK(cuGraphDestroy(captured));
}

static void use_graph(struct worker *w)
{
	struct graph *g = &w->graph[under(w, GRAPHS)];

	if (!g->exec) {
		capture(w, g);
	}
	for (unsigned n = 1 + under(w, 2); g->exec && n; n--) {
		OK(cuGraphLaunch(g->exec, w->stream));
		for (unsigned i = 0; i < g->n; i++) {
			repeat(w, &g->node[i]);
		}
	}
	if (under(w, 6) == 0) {
		drop_graph(g);
	}
}

static void drop_graphs_of(struct worker *w, unsigned buffer)
{
	for (unsigned i = 0; i < GRAPHS; i++) {
		struct graph *g = &w->graph[i];

		for (unsigned k = 0; g->exec && k < g->n; k++) {
			if (g->node[k].to == buffer || g->node[k].from == buffer) {
				drop_graph(g);
			}
		}
	}
}

/* ---- copies from and to the host ---- */

/* Waits for the last copy of a piece, and compares what it has given. */
static void finish_piece(struct piece *p)
{
	OK(cuEventSynchronize(p->event));
	if (p->n) {
		compare("a copy", p->number, p->at, p->expected, p->host, p->n);
	}
	p->n = 0;
}

static void copy_pinned(struct worker *w)
{
	struct piece *p = &w->piece[under(w, PIECES)];
	unsigned i = any_buffer(w);
	struct buffer *b = &w->buffer[i];
	size_t at, n;

	if (i == BUFFERS) {
		return;
	}
	finish_piece(p);
	choose_range(w, b->bytes, PIECE, &at, &n);
	w->ops++;
	if (under(w, 2)) {
		fill(w, p->host, n);
		memcpy(b->model + at, p->host, n);
		OK(cuMemcpyHtoDAsync(b->at + at, p->host, n, w->stream));
	} else {
		memcpy(p->expected, b->model + at, n);
		p->n = n;
		p->at = at;
		p->number = b->number;
		OK(cuMemcpyDtoHAsync(p->host, b->at + at, n, w->stream));
	}
	OK(cuEventRecord(p->event, w->stream));
}

static void copy_pageable(struct worker *w)
{
	unsigned i = any_buffer(w);
	struct buffer *b = &w->buffer[i];
	size_t at, n;

	if (i == BUFFERS) {
		return;
	}
	choose_range(w, b->bytes, MIB, &at, &n);
	w->ops++;
	begin_default(w);
	if (under(w, 2)) {
		fill(w, b->model + at, n);
		OK(cuMemcpyHtoD(b->at + at, b->model + at, n));
	} else {
		OK(cuMemcpyDtoH(w->scratch, b->at + at, n));
		compare("a copy", b->number, at, b->model + at, w->scratch, n);
	}
	end_default(w);
}

static void compare_buffer(struct worker *w, const struct buffer *b)
{
	if (under(w, 2)) {
		OK(cuMemcpyDtoHAsync(w->scratch, b->at, b->bytes, w->stream));
		OK(cuStreamSynchronize(w->stream));
	} else {
		begin_default(w);
		OK(cuMemcpyDtoH(w->scratch, b->at, b->bytes));
	}
	compare("the whole", b->number, 0, b->model, w->scratch, b->bytes);
}

/* ---- allocations ---- */

static size_t random_size(struct worker *w)
{
	size_t left = w->share > w->live + SWAP_MIN ? w->share - w->live : SWAP_MIN;
	size_t bytes;

	switch (under(w, 4)) {
	case 0:
		bytes = 64 * KIB + under(w, 2 * MIB);
		break;
	case 1: /* close to a border of chunks */
		bytes = CHUNK * (1 + under(w, 2)) - 4 + under(w, 9);
		break;
	case 2:
		bytes = 64 * KIB + under(w, BUFFER_MAX - 64 * KIB);
		break;
	default:
		bytes = 2 * MIB + under(w, 10 * MIB);
	}
	return bytes < left ? bytes : left;
}

/* Maps the buffer at an address of its own. Returns the address; 0: it cannot be mapped once more
 * now. */
static CUdeviceptr map_buffer(const struct buffer *b)
{
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr at;
	CUresult r;

	OK(cuMemAddressReserve(&at, b->mapped, 0, 0, 0));
	r = cuMemMap(at, b->mapped, 0, b->handle, 0);
	if (r != CUDA_SUCCESS) {
		CHECK(b->at && (r == CUDA_ERROR_OUT_OF_MEMORY || r == CUDA_ERROR_NOT_READY),
		      "a handle of %zu bytes cannot be mapped: error %d", b->mapped, (int)r);
		OK(cuMemAddressFree(at, b->mapped));
		return 0;
	}
	OK(cuMemSetAccess(at, b->mapped, &access, 1));
	return at;
}

static CUresult create_buffer(struct buffer *b, size_t bytes)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUresult r;

	b->mapped = (bytes + SWAP_MIN - 1) / SWAP_MIN * SWAP_MIN;
	r = cuMemCreate(&b->handle, b->mapped, &prop, 0);
	if (r == CUDA_SUCCESS) {
		b->at = map_buffer(b);
	}
	return r;
}

/* Returns false if the memory is refused, which can happen to small buffers of a pool only: others
 * can lie on the host. */
static bool make_buffer(struct worker *w, struct buffer *b, size_t bytes)
{
	unsigned way = under(w, 3);
	CUresult r = way == 0 && bytes >= SWAP_MIN ? create_buffer(b, bytes)
		     : way == 1			   ? cuMemAllocAsync(&b->at, bytes, w->stream)
						   : cuMemAlloc(&b->at, bytes);

	CHECK(r == CUDA_SUCCESS || (r == CUDA_ERROR_OUT_OF_MEMORY && way == 1 && bytes < SWAP_MIN),
	      "an allocation of %zu bytes by way %u: error %d", bytes, way, (int)r);
	if (r != CUDA_SUCCESS) {
		b->at = 0;
		w->refused++;
		return false;
	}
	b->bytes = bytes;
	b->number = w->allocations++;
	b->model = program_room(bytes);
	fill(w, b->model, bytes);
	OK(cuMemcpyHtoDAsync(b->at, b->model, bytes, w->stream));
	w->live += bytes;
	return true;
}

/* Unmaps the buffer at its address, once all work that uses it is done. */
static void unmap_buffer(struct worker *w, const struct buffer *b)
{
	uint32_t word;

	begin_default(w);
	OK(cuMemcpyDtoH(&word, b->at, sizeof(word)));
	OK(cuStreamSynchronize(w->stream));
	OK(cuMemUnmap(b->at, b->mapped));
	OK(cuMemAddressFree(b->at, b->mapped));
}

/* Maps the buffer elsewhere, with or without a time in which it is mapped twice. */
static void move_buffer(struct worker *w, struct buffer *b)
{
	CUdeviceptr other = under(w, 2) ? map_buffer(b) : 0;

	unmap_buffer(w, b);
	b->at = 0;
	b->at = other ? other : map_buffer(b);
}

static void free_buffer(struct worker *w, struct buffer *b)
{
	if (b->handle) {
		if (under(w, 2)) {
			move_buffer(w, b);
			compare_buffer(w, b);
		}
		unmap_buffer(w, b);
		OK(cuMemRelease(b->handle));
	} else if (under(w, 2)) {
		OK(cuMemFree(b->at));
	} else {
		OK(cuMemFreeAsync(b->at, w->stream));
	}
	free(b->model);
	w->live -= b->bytes;
	*b = (struct buffer){ 0 };
}

/* Makes or frees a buffer, by the thread's goal at this step. */
static void balance(struct worker *w)
{
	unsigned at = (w->step + w->phase) % WAVE, up = at < WAVE / 2 ? at : WAVE - at;
	size_t goal = w->share / 8 + w->share / 8 * 7 / (WAVE / 2) * up;
	unsigned i;

	if (w->live < goal) {
		for (i = 0; i < BUFFERS && w->buffer[i].at; i++) {
		}
		if (i < BUFFERS) {
			(void)make_buffer(w, &w->buffer[i], random_size(w));
		}
		return;
	}
	i = any_buffer(w);
	if (i < BUFFERS) {
		drop_graphs_of(w, i);
		if (under(w, 2)) {
			compare_buffer(w, &w->buffer[i]);
		}
		free_buffer(w, &w->buffer[i]);
	}
}

/* ---- threads ---- */

static void step(struct worker *w)
{
	unsigned i;

	switch (under(w, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		balance(w);
		break;
	case 5:
	case 6:
		use_graph(w);
		break;
	case 7:
		copy_pinned(w);
		break;
	case 8:
		copy_pageable(w);
		break;
	case 9:
		i = any_buffer(w);
		if (i < BUFFERS) {
			compare_buffer(w, &w->buffer[i]);
		}
		break;
	default:
		for (i = 1 + under(w, 4); i; i--) {
			operate(w);
		}
	}
}

static void open_worker(struct worker *w)
{
	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&w->stream, w->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&w->capturing, CU_STREAM_NON_BLOCKING));
	w->scratch = program_room(BUFFER_MAX);
	w->counted = program_room(COUNTERS * sizeof(*w->counted));
	for (unsigned i = 0; i < PIECES; i++) {
		struct piece *p = &w->piece[i];

		OK(cuMemAllocHost((void **)&p->host, PIECE));
		OK(cuEventCreate(&p->event, CU_EVENT_DISABLE_TIMING));
		p->expected = program_room(PIECE);
	}
	CHECK(make_buffer(w, &w->table, SWAP_MIN), "no memory");
}

static void close_worker(struct worker *w)
{
	compare_buffer(w, &w->table);
	for (unsigned i = 0; i < BUFFERS; i++) {
		if (w->buffer[i].at) {
			compare_buffer(w, &w->buffer[i]);
			drop_graphs_of(w, i);
			free_buffer(w, &w->buffer[i]);
		}
	}
	free_buffer(w, &w->table);
	for (unsigned i = 0; i < PIECES; i++) {
		finish_piece(&w->piece[i]);
		OK(cuEventDestroy(w->piece[i].event));
		OK(cuMemFreeHost(w->piece[i].host));
		free(w->piece[i].expected);
	}
	OK(cuStreamSynchronize(w->stream));
	OK(cuStreamDestroy(w->stream));
	OK(cuStreamDestroy(w->capturing));
	free(w->scratch);
}

static void *work(void *arg)
{
	struct worker *w = self = arg;

	open_worker(w);
	for (w->step = 1; steps ? w->step <= steps : !LOAD(&all->stop); w->step++) {
		step(w);
		if (all) {
			ADD_TO(&all->steps[process], 1);
		}
	}
	close_worker(w);
	return NULL;
}

/* ---- a process ---- */

static void load(void)
{
	static char text[16384] = ".version 7.0\n.target sm_70\n.address_size 64\n";
	size_t n = strlen(text);
	CUmodule module;

	for (unsigned i = 0; i < KERNELS; i++) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, KERNEL_PTX, kernels[i].name,
				      kernels[i].begin, kernels[i].body);
		CHECK(n < sizeof(text), "no room for %s", kernels[i].name);
	}
	OK(cuModuleLoadData(&module, text));
	for (unsigned i = 0; i < KERNELS; i++) {
		OK(cuModuleGetFunction(&function[i], module, kernels[i].name));
	}
}

static void check_counters(const struct worker *workers)
{
	size_t bytes = (size_t)COUNTERS * COUNTER_STRIDE * 4;
	uint8_t *found = program_room(bytes);

	OK(cuMemcpyDtoH(found, counters, bytes));
	for (unsigned k = 0; k < COUNTERS; k++) {
		uint32_t is = word_at(found + (size_t)k * COUNTER_STRIDE * 4), sum = 0;

		for (unsigned t = 0; t < THREADS; t++) {
			sum += workers[t].counted[k];
		}
		CHECK(is == sum, "counter %u is %u, not %u", k, is, sum);
	}
	free(found);
}

/* Makes the primary context. Returns the memory that is free then. */
static size_t open_context(CUdevice device)
{
	size_t ret, total;

	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	OK(cuMemGetInfo(&ret, &total));
	return ret;
}

static void run_workers(size_t mib)
{
	static struct worker workers[THREADS];
	uint64_t threshold = seed % 2 ? UINT64_MAX : 0;
	CUmemoryPool pool;

	load();
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	OK(cuMemAlloc(&counters, (size_t)COUNTERS * COUNTER_STRIDE * 4));
	OK(cuMemsetD8(counters, 0, (size_t)COUNTERS * COUNTER_STRIDE * 4));
	OK(cuCtxSynchronize());
	for (unsigned i = 0; i < THREADS; i++) {
		struct worker *w = &workers[i];

		w->id = i;
		w->random = seed * THREADS + i + 1;
		w->blocking = i % 2;
		w->share = mib * MIB / THREADS;
		w->phase = under(w, WAVE);
		CHECK(pthread_create(&w->thread, NULL, work, w) == 0, "no thread");
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
	}
	check_counters(workers);
	OK(cuMemFree(counters));
	for (unsigned i = 0; i < THREADS; i++) {
		printf("seed %llu, thread %u: %u steps, %llu operations, %u allocations, %llu "
		       "refused\n",
		       (unsigned long long)seed, i, workers[i].step - 1,
		       (unsigned long long)workers[i].ops, workers[i].allocations,
		       (unsigned long long)workers[i].refused);
		free(workers[i].counted);
	}
}

static int run(size_t mib)
{
	size_t before, after;
	CUdevice device;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	before = open_context(device);
	run_workers(mib);
	OK(cuDevicePrimaryCtxRelease_v2(device)); /* with it the memory of the host that is kept for
						     chunks ends */
	after = open_context(device);
	CHECK(all || after == before, "%zu bytes are free at the end, not %zu", after, before);
	OK(cuDevicePrimaryCtxRelease_v2(device));
	return 0;
}

/* ---- two processes ---- */

static pid_t start(char **argv, int fd, unsigned number, uint64_t with_seed)
{
	char text[3][24];
	pid_t pid;

	snprintf(text[0], sizeof(text[0]), "%d", fd);
	snprintf(text[1], sizeof(text[1]), "%u", number);
	snprintf(text[2], sizeof(text[2]), "%llu", (unsigned long long)with_seed);
	STORE(&all->steps[number], 0);
	pid = fork();
	if (pid == 0) {
		execl(argv[0], argv[0], "work", text[0], text[1], text[2], argv[3], (char *)NULL);
		_exit(127);
	}
	CHECK(pid > 0, "fork");
	return pid;
}

/* Returns whether a process has come to that step; it must not have ended. */
static bool has_come(pid_t pid, unsigned number, uint32_t to)
{
	int status;

	CHECK(waitpid(pid, &status, WNOHANG) == 0, "process %u has ended: status %x", number,
	      (unsigned)status);
	return LOAD(&all->steps[number]) >= to;
}

static int lead(char **argv, unsigned kills)
{
	int fd = memfd_create("fuzz", 0), status[2];
	uint64_t random = seed;
	pid_t pid[2];

	CHECK(fd >= 0 && ftruncate(fd, sizeof(*all)) == 0, "memfd_create");
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(all != MAP_FAILED, "mmap");
	pid[0] = start(argv, fd, 0, seed);
	pid[1] = start(argv, fd, 1, seed + 1);
	for (unsigned i = 0; i < kills; i++) {
		uint32_t other = LOAD(&all->steps[0]);

		uint32_t to = program_random(&random) % 4 ? program_random(&random) % 100 : 0;

		eventually(has_come(pid[1], 1, to));
		(void)kill(pid[1], SIGKILL);
		CHECK(waitpid(pid[1], &status[1], 0) == pid[1], "waitpid");
		pid[1] = start(argv, fd, 1, seed + 2 + i);
		eventually(has_come(pid[0], 0, other + 1)); /* it goes on */
	}
	eventually(has_come(pid[1], 1, steps));
	STORE(&all->stop, 1u);
	for (unsigned i = 0; i < 2; i++) {
		CHECK(waitpid(pid[i], &status[i], 0) == pid[i] && status[i] == 0,
		      "process %u has ended: status %x", i, (unsigned)status[i]);
	}
	printf("seed %llu: %u kills\n", (unsigned long long)seed, kills);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "work") == 0) {
		all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED,
			   (int)strtol(argv[2], NULL, 0), 0);
		if (all == MAP_FAILED) {
			return 2;
		}
		process = (unsigned)strtoul(argv[3], NULL, 0);
		seed = strtoull(argv[4], NULL, 0);
		return run(strtoul(argv[5], NULL, 0));
	}
	if (argc < 4 || argc > 5) {
		fprintf(stderr, "usage: swap_fuzz SEED STEPS MIB [KILLS]\n");
		return 2;
	}
	seed = strtoull(argv[1], NULL, 0);
	steps = (unsigned)strtoul(argv[2], NULL, 0);
	return argc == 5 ? lead(argv, (unsigned)strtoul(argv[4], NULL, 0))
			 : run(strtoul(argv[3], NULL, 0));
}

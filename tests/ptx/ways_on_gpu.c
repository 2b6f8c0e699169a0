/* Measures the cost of the parts of a clone's prologue on the GPU of libcuda.so.1; used by hand.
 * The same body follows different prologues that are written out here: none, the barrier alone,
 * with the lease, with the ticket, ... and that of the pass. Bodies compute for some microseconds,
 * or stream memory as an elementwise kernel of a framework does. Also measures how long blocks take
 * to exit. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "cuabi/api.h"
#include "need.h"
#include "ptx/block.h"

#define ROUNDS 15u
#define STREAM_BYTES ((size_t)64 << 20)
#define LEAVING 100000u
#define PARAMS 16u /* bytes of parameters before the argument */

enum way { PLAIN, BARRIER, LEASE, TICKET, COUNTER, PASS, TOGETHER, WAYS };
static const char *const way_name[WAYS] = { "plain",   "barrier", "lease",   "ticket",
					    "counter", "pass",	  "together" };
static const char way_text[] =
	"barrier: one word through shared memory, the hardware's index; lease: that, behind the "
	"lease;\nticket: instead behind a drawn ticket, nothing is read; counter: lease and "
	"counter "
	"are read, then the\nticket is drawn; pass: what clones do, the same with a word that "
	"nobody "
	"adds to for the counter;\ntogether: lease and ticket at the same time, who sees a lease "
	"closes the counter\n";

/* ~x is a register or label of the prologue. Thread 0 stores x in shared memory. */
static const char head[] =
	"{\n.reg .pred %p, %q; .reg .b32 %a, %b, %c, %d, %v, %n, %t, %x, %at; .reg .b64 %l, %m;\n"
	"mov.u32 %at, room; mov.u32 %t, %dynamic_smem_size; add.u32 %at, %at, %t;\n"
	"mov.u32 %a, 0; mov.u32 %b, 0; mov.u32 %c, 0; mov.u32 %d, 0;\n"
	"mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra $wait;\n"
	"mov.u32 %x, 4294967295; ld.param.u64 %l, [arg+8]; ld.param.u64 %m, [arg];\n"
	"ld.param.u32 %t, [arg+24]; ld.param.u32 %n, [arg+36];\n"
	"setp.ne.u32 %q, %n, 0;\n";
static const char load_lease[] = "@%q ld.volatile.global.v4.u32 {%a, %b, %c, %d}, [%m];\n";
static const char load_word[] = "ld.volatile.global.u32 %v, [%l];\n";
static const char any_lease[] = "or.b32 %a, %a, %b; or.b32 %c, %c, %d; or.b32 %a, %a, %c;\n";
static const char wait_lease[] = "setp.ne.u32 %p, %a, 0; @%p bra $store;\n";
static const char wait_word[] = "sub.u32 %v, %v, %t; setp.lt.s32 %p, %v, 0; @%p bra $store;\n";
static const char draw[] = "atom.global.inc.u32 %v, [%l], 4294967295;\n";
static const char use_ticket[] =
	"sub.u32 %v, %v, %t; ld.param.u32 %n, [arg+28]; setp.ge.u32 %p, %v, %n; @%p bra $store;\n"
	"ld.param.u64 %m, [arg+16]; ld.param.u32 %t, [arg+32]; add.u32 %n, %n, 4294967295;\n"
	"setp.eq.u32 %p, %v, %n; @%p st.volatile.global.u32 [%m], %t; mov.u32 %x, %v;\n";
static const char use_index[] = "mov.u32 %x, %ctaid.x;\n";
static const char hand_over[] = "$store: st.shared.u32 [%at+-16], %x;\n$wait: bar.sync 0;\n"
				"ld.shared.u32 %r2, [%at+-16]; setp.eq.u32 %p, %r2, 4294967295;\n"
				"@%p ret;\n";
/* The first block to exit stores the value of the counter. */
static const char close_counter[] =
	"or.b32 %a, %a, %b; or.b32 %c, %c, %d; or.b32 %a, %a, %c; setp.eq.u32 %p, %a, 0;\n"
	"@%p bra $go;\n"
	"atom.global.or.b32 %v, [%l], 2147483648; setp.lt.s32 %p, %v, 0; @%p bra $go;\n"
	"st.volatile.global.u32 [%l+4], %v;\n$go:\n";

static const char compute[] =
	".reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<3>; .reg .b64 %d<3>;\n~"
	"ld.param.u64 %d1, [to]; ld.param.u32 %r1, [turns];\n"
	"mov.u32 %r3, %tid.x; cvt.rn.f32.u32 %f1, %r3; mov.f32 %f2, 0f3F7FFFF0;\n"
	"loop: fma.rn.f32 %f1, %f1, %f2, %f2; fma.rn.f32 %f1, %f1, %f2, %f2;\n"
	"fma.rn.f32 %f1, %f1, %f2, %f2; fma.rn.f32 %f1, %f1, %f2, %f2;\n"
	"sub.u32 %r1, %r1, 1; setp.ne.u32 %p, %r1, 0; @%p bra loop;\n"
	"setp.ne.f32 %p, %f1, 0f00000000; @%p bra out; mul.wide.u32 %d2, %r2, 4;\n"
	"add.u64 %d1, %d1, %d2; st.global.f32 [%d1], %f1;\nout: ret;\n";
/* 1024 numbers per block, eight per thread. */
static const char stream[] =
	".reg .b32 %r<5>; .reg .f32 %f<9>; .reg .b64 %d<5>;\n~"
	"ld.param.u64 %d1, [to]; ld.param.u32 %r1, [turns]; mov.u32 %r3, %tid.x;\n"
	"shl.b32 %r3, %r3, 4; mul.wide.u32 %d2, %r2, 4096; cvt.u64.u32 %d3, %r3;\n"
	"add.u64 %d2, %d2, %d3; add.u64 %d1, %d1, %d2;\n"
	"ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1];\n"
	"ld.global.v4.f32 {%f5, %f6, %f7, %f8}, [%d1+2048];\n"
	"ex2.approx.f32 %f1, %f1; ex2.approx.f32 %f2, %f2; ex2.approx.f32 %f3, %f3;\n"
	"ex2.approx.f32 %f4, %f4; ex2.approx.f32 %f5, %f5; ex2.approx.f32 %f6, %f6;\n"
	"ex2.approx.f32 %f7, %f7; ex2.approx.f32 %f8, %f8;\n"
	"cvt.u64.u32 %d4, %r1; add.u64 %d1, %d1, %d4;\n"
	"st.global.v4.f32 [%d1], {%f1, %f2, %f3, %f4};\n"
	"st.global.v4.f32 [%d1+2048], {%f5, %f6, %f7, %f8};\nret;\n";

struct testbed {
	CUdeviceptr memory, leases, counter, done;
	volatile uint32_t *word;
	int sms, room; /* number of SMs; maximum shared memory per block */
};

struct kernels {
	CUfunction f[WAYS];
};

static void put(struct buf *b, unsigned n, ...)
{
	va_list ap;

	va_start(ap, n);
	while (n--) {
		buf_puts(b, va_arg(ap, const char *));
	}
	va_end(ap);
}

static void beginning(struct buf *b, enum way way)
{
	switch (way) {
	case BARRIER:
		put(b, 3, head, use_index, hand_over);
		break;
	case LEASE:
		put(b, 6, head, load_lease, any_lease, wait_lease, use_index, hand_over);
		break;
	case TICKET:
		put(b, 4, head, draw, use_ticket, hand_over);
		break;
	case COUNTER:
		put(b, 9, head, load_word, load_lease, any_lease, wait_lease, wait_word, draw,
		    use_ticket, hand_over);
		break;
	case TOGETHER:
		put(b, 6, head, load_lease, draw, use_ticket, hand_over, close_counter);
		break;
	default:
		buf_puts(b, "mov.u32 %r2, %ctaid.x;\n");
		return;
	}
	buf_puts(b, "}\n");
}

/* Prints the body with all prologues: those written here, and that of the pass. */
static void print_module(struct buf *b, const char *body)
{
	size_t before = strcspn(body, "~");

	buf_puts(b, ".version 7.0\n.target sm_70\n.address_size 64\n"
		    ".extern .shared .align 16 .b8 room[];\n");
	for (unsigned way = 0; way < WAYS; way++) {
		if (way == PASS) {
			continue;
		}
		buf_printf(b, ".visible .entry %s(.param .u64 to, .param .u32 turns%s)\n{\n",
			   way_name[way], way ? ", .param .align 8 .b8 arg[56]" : "");
		buf_add(b, body, before);
		beginning(b, (enum way)way);
		buf_puts(b, body + before + 1);
		buf_puts(b, "}\n");
	}
}

static void load(const struct testbed *w, struct kernels *k, const char *body)
{
	const struct ptx_block_entry *e = NULL;
	struct ptx_module *parsed = NULL;
	struct buf text, with;
	struct report r;
	uint32_t n = 0;
	CUmodule m;

	buf_init(&text);
	buf_init(&with);
	report_init(&r);
	print_module(&text, body);
	if (ptx_module_parse(&parsed, text.data, text.len, "ways", &r) < 0 ||
	    ptx_block_run(parsed, &e, &n, &r) < 0 || ptx_module_print(parsed, &with) < 0 || !n ||
	    e[0].why != PROTO_BLOCK_OK || e[0].arg_offset != PARAMS) {
		printf("the pass does not take the text\n%s", buf_text(&text));
		exit(3);
	}
	if (getenv("WAYS_PRINT")) {
		puts(buf_text(&with));
	}
	need(cuModuleLoadData(&m, buf_text(&with)), "module");
	for (unsigned way = 0; way < WAYS; way++) {
		need(cuModuleGetFunction(&k->f[way], m,
					 way == PASS ? "plain" PTX_BLOCK_SUFFIX : way_name[way]),
		     way_name[way]);
		need(cuFuncSetAttribute(k->f[way], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					w->room),
		     "room");
	}
	ptx_module_free(parsed);
	buf_finish(&text);
	buf_finish(&with);
	report_finish(&r);
}

struct shape {
	unsigned blocks, threads, shared;
	uint32_t turns;
	bool leave;
};

static float time_of(struct testbed *w, CUfunction f, enum way way, const struct shape *s)
{
	static uint8_t params[PARAMS + sizeof(struct ptx_block_arg)];
	uint32_t words[2] = { 0 }, leases[4] = { 0 };
	struct ptx_block_arg a = { .leases = w->leases,
				   .tickets = w->counter,
				   .done = w->done,
				   .total = s->blocks,
				   .number = 1,
				   .groups = 1,
				   .grid_x = s->blocks,
				   .grid_y = 1,
				   .grid_z = 1 };
	size_t bytes = way == PLAIN ? 12 : sizeof(params);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	CUevent from, to;
	float ms;

	if (s->leave) { /* in force at any time: one of two opposite times is in the future */
		leases[0] = 0x20000000;
		leases[1] = 0xa0000000;
	}
	need(cuMemcpyHtoD_v2(w->counter, words, sizeof(words)), "copy");
	need(cuMemcpyHtoD_v2(w->counter + PTX_BLOCK_READY, words, sizeof(words)), "copy");
	need(cuMemcpyHtoD_v2(w->leases, leases, sizeof(leases)), "copy");
	memcpy(params, &w->memory, 8);
	memcpy(params + 8, &s->turns, 4);
	memcpy(params + PARAMS, &a, sizeof(a));
	*w->word = 0;
	need(cuEventCreate(&from, 0), "event");
	need(cuEventCreate(&to, 0), "event");
	need(cuEventRecord(from, NULL), "event");
	need(cuLaunchKernel(f, s->blocks, 1, 1, s->threads, 1, 1, PTX_BLOCK_SMEM(s->shared), NULL,
			    NULL, extra),
	     "launch");
	need(cuEventRecord(to, NULL), "event");
	need(cuCtxSynchronize(), way_name[way]);
	need(cuEventElapsedTime(&ms, from, to), "time");
	cuEventDestroy_v2(from);
	cuEventDestroy_v2(to);
	if (way >= TICKET && !s->leave && *w->word != 1) {
		printf("%s: the last ticket was not drawn\n", way_name[way]);
		exit(3);
	}
	return ms * 1000;
}

static int by_value(const void *a, const void *b)
{
	return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

/* Measures all prologues in turn; returns medians. */
static void times_of(struct testbed *w, const struct kernels *k, const struct shape *s,
		     float ret[WAYS])
{
	float t[WAYS][ROUNDS];

	for (unsigned i = 0; i < ROUNDS; i++) {
		for (unsigned way = 0; way < WAYS; way++) {
			t[way][i] = time_of(w, k->f[way], (enum way)way, s);
		}
	}
	for (unsigned way = 0; way < WAYS; way++) {
		qsort(t[way], ROUNDS, sizeof(t[0][0]), by_value);
		ret[way] = t[way][ROUNDS / 2];
	}
}

static uint32_t turns_for(struct testbed *w, const struct kernels *k, struct shape s, float us)
{
	float one;

	s.turns = 64;
	while ((one = time_of(w, k->f[PLAIN], PLAIN, &s)) < us && s.turns < 1u << 24) {
		s.turns = MAX(s.turns + 1, (uint32_t)((float)s.turns * MIN(2.0f, us / one)));
		if (one > us * 0.98f) {
			break;
		}
	}
	return s.turns;
}

static void header(const char *first)
{
	printf("\n%-22s %9s", first, "plain us");
	for (unsigned way = 1; way < WAYS; way++) {
		printf(" %9s", way_name[way]);
	}
	putchar('\n');
}

static void computing(struct testbed *w, const struct kernels *k)
{
	static const unsigned resident[] = { 1, 2, 4, 8 }, waves = 20;
	static const float us[] = { 10, 30 };
	float t[WAYS];

	header("compute: ns a wave");
	for (size_t i = 0; i < ARRAY_SIZE(us); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(resident); j++) {
			unsigned r = resident[j];
			struct shape s = { .blocks = (unsigned)w->sms * r * waves,
					   .threads = 256,
					   .shared = r >= 8 ? 0 : 200u * 1024 / r - 2048 };

			if ((int)PTX_BLOCK_SMEM(s.shared) > w->room) {
				continue;
			}
			s.turns = turns_for(w, k, s, us[i] * (float)waves);
			times_of(w, k, &s, t);
			printf("%3.0f us, %u resident %4s %9.1f", (double)us[i], r, "",
			       (double)t[PLAIN]);
			for (unsigned way = 1; way < WAYS; way++) {
				printf(" %9.0f",
				       (double)((t[way] - t[PLAIN]) * 1000 / (float)waves));
			}
			putchar('\n');
		}
	}
}

static void streaming(struct testbed *w, const struct kernels *k)
{
	struct shape s = { .blocks = (unsigned)(STREAM_BYTES / 4096), .threads = 128 };
	float t[WAYS];

	header("stream: us more");
	s.turns = STREAM_BYTES;
	times_of(w, k, &s, t);
	printf("%u blocks of 128 %4s %9.1f", s.blocks, "", (double)t[PLAIN]);
	for (unsigned way = 1; way < WAYS; way++) {
		printf(" %9.1f", (double)(t[way] - t[PLAIN]));
	}
	putchar('\n');
}

static void leaving(struct testbed *w, const struct kernels *k)
{
	struct shape s = { .blocks = LEAVING, .threads = 256, .turns = 64, .leave = true };
	enum way ways[] = { LEASE, PASS, TOGETHER };

	printf("\n%u blocks that leave, us:", LEAVING);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		float t[ROUNDS];

		for (unsigned r = 0; r < ROUNDS; r++) {
			t[r] = time_of(w, k->f[ways[i]], ways[i], &s);
		}
		qsort(t, ROUNDS, sizeof(*t), by_value);
		printf("  %s %.1f", way_name[ways[i]], (double)t[ROUNDS / 2]);
	}
	putchar('\n');
}

int main(void)
{
	struct kernels computes, streams;
	CUcontext context;
	struct testbed w;
	CUdevice device;
	void *p;

	need(cuInit(0), "cuInit");
	need(cuDeviceGet(&device, 0), "cuDeviceGet");
	need(cuCtxCreate_v2(&context, 0, device), "cuCtxCreate");
	need(cuDeviceGetAttribute(&w.sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "SMs");
	need(cuDeviceGetAttribute(&w.room, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
				  device),
	     "shared memory");
	need(cuMemAlloc_v2(&w.memory, 2 * STREAM_BYTES), "memory");
	need(cuMemsetD8_v2(w.memory, 0, 2 * STREAM_BYTES), "set");
	need(cuMemAlloc_v2(&w.leases, 4096), "memory");
	need(cuMemAlloc_v2(&w.counter, PTX_BLOCK_READY + 4096), "memory");
	need(cuMemsetD8_v2(w.counter, 0, PTX_BLOCK_READY + 4096), "set");
	need(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP), "pinned memory");
	need(cuMemHostGetDevicePointer_v2(&w.done, p, 0), "its address");
	w.word = p;
	load(&w, &computes, compute);
	load(&w, &streams, stream);
	printf("%d SMs, medians of %u\n%s", w.sms, ROUNDS, way_text);
	computing(&w, &computes);
	streaming(&w, &streams);
	leaving(&w, &computes);
	return fflush(stdout) ? 1 : 0;
}

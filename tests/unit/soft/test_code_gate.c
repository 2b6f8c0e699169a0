/* The gate (ptx/block_gate.h) in machine code of the soft GPU: the driver compiles the stub,
 * src/cubin inserts it, and blocks that meet leases leave. In each round a launch is interrupted at
 * places that a seed draws, until all of its blocks have run. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "cubin/cubin.h"
#include "ptx/block_gate.h"
#include "rig.h"

#define BLOCKS 160u /* the device holds 32 */
#define ROUNDS 24u
#define THREADS 48u
#define DONE 77u
#define LEASE_NS UINT64_C(60000000000)

/* The beginning of both kernels: the first thread of block `stop` puts a lease in force. */
#define BEGIN(name)                                                                                \
	".visible .entry " name "(.param .u64 counts, .param .u64 host, .param .u32 stop,\n"       \
	"	.param .u32 until)\n"                                                                    \
	".maxntid 64, 1, 1\n{\n	.reg .b32 %r<8>;\n	.reg .b64 %rd<6>;\n	.reg .pred "                \
	"%p<3>;\n"                                                                                 \
	"	mov.u32 %r1, %tid.x;\n	setp.ne.u32 %p1, %r1, 0;\n	@%p1 ret;\n"                           \
	"	ld.param.u64 %rd1, [counts];\n	ld.param.u64 %rd2, [host];\n"                             \
	"	mov.u32 %r2, %ctaid.x;\n	mul.wide.u32 %rd3, %r2, 4;\n"                                   \
	"	add.u64 %rd4, %rd1, %rd3;\n	ld.param.u32 %r5, [stop];\n"                                 \
	"	ld.param.u32 %r6, [until];\n	setp.eq.u32 %p2, %r2, %r5;\n"                               \
	"	@%p2 st.volatile.global.u32 [%rd2+8], %r6;\n"
/* counts[block]++, and as much in host memory. */
#define END                                                                                        \
	"	atom.global.add.u32 %r4, [%rd4], 1;\n	membar.sys;\n"                                     \
	"	atom.global.add.u32 %r4, [%rd2+20], 1;\n	ret;\n}\n"

/* chain waits until the block below has counted. */
static const char kernels[] = ".version 7.8\n.target sm_75\n.address_size 64\n" BEGIN("count")
	END BEGIN("chain") "	setp.eq.u32 %p2, %r2, 0;\n	@%p2 bra $join;\n"
			   "$wait:\n	ld.volatile.global.u32 %r3, [%rd4+-4];\n	"
			   "setp.eq.u32 %p2, %r3, 0;\n"
			   "	@%p2 bra $wait;\n"
			   "$join:\n" END;

struct gate_run {
	CUfunction f;
	CUdeviceptr counts, tickets;
	volatile uint32_t *host; /* pinned: 0-3 leases, 4 done, 5 blocks that ran */
	CUdeviceptr device;	 /* the same */
	uint64_t base, seed;
	unsigned interruptions;
};

static void check_report(int err, const struct report *r)
{
	struct buf why = { 0 };

	report_text(r, &why);
	rig_check(err == 0, buf_text(&why), __FILE__, __LINE__, err);
	buf_finish(&why);
}

static struct cubin_stub *make_stub(void)
{
	static const uint32_t pads[2] = { PTX_GATE_PAD_A, PTX_GATE_PAD_B };
	struct report r;
	struct cubin_stub *stub = NULL;
	CUlinkState s[2];
	void *image[2];
	size_t bytes[2];

	report_init(&r);
	for (unsigned i = 0; i < 2; i++) {
		struct buf text = { 0 };

		CHECK(ptx_gate_stub(&text, 86, pads[i]) == 0);
		CU(cuLinkCreate_v2(0, NULL, NULL, &s[i]));
		CU(cuLinkAddData_v2(s[i], CU_JIT_INPUT_PTX, text.data, text.len + 1, "gate", 0,
				    NULL, NULL));
		CU(cuLinkComplete(s[i], &image[i], &bytes[i]));
		buf_finish(&text);
	}
	check_report(cubin_stub_open(&stub, image[0], bytes[0], pads[0], image[1], bytes[1],
				     pads[1], PTX_GATE_ENTRY, sizeof(struct ptx_gate_arg), &r),
		     &r);
	CU(cuLinkDestroy(s[0]));
	CU(cuLinkDestroy(s[1]));
	report_finish(&r);
	return stub;
}

static CUmodule load_patched(void)
{
	struct cubin_stub *stub = make_stub();
	struct cubin_patched *p = NULL;
	struct report r;
	CUlinkState s;
	const void *patched;
	void *image;
	size_t bytes;
	CUmodule m;

	report_init(&r);
	CU(cuLinkCreate_v2(0, NULL, NULL, &s));
	CU(cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, unqual(kernels), sizeof(kernels), "kernels", 0,
			    NULL, NULL));
	CU(cuLinkComplete(s, &image, &bytes));
	check_report(cubin_patch(&p, image, bytes, stub, &r), &r);
	CHECK(cubin_patched_count(p) == 2);
	CHECK(cubin_patched_find(p, "count")->max_threads == 64);
	CHECK(cubin_patched_find(p, "chain")->arg_offset == 24);
	CU(cuLinkDestroy(s));
	patched = cubin_patched_image(p, &bytes);
	CU(cuModuleLoadData(&m, patched));
	cubin_patched_close(p);
	cubin_stub_close(stub);
	report_finish(&r);
	return m;
}

static uint32_t draw(struct gate_run *g, uint32_t below)
{
	g->seed = g->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(g->seed >> 33) % below;
}

static void set_lease(struct gate_run *g, uint64_t until_ns)
{
	__atomic_store_n(&g->host[2], (uint32_t)(until_ns >> PTX_LEASE_SHIFT), __ATOMIC_SEQ_CST);
}

/* stop: the block that puts a lease in force. */
static void launch(struct gate_run *g, uint32_t from, uint32_t wave, bool groups, uint32_t stop)
{
	uint32_t until = (uint32_t)((clock_wall_ns() + LEASE_NS) >> PTX_LEASE_SHIFT);
	struct ptx_gate_arg arg = { .leases = g->device,
				    .gate = g->tickets + PTX_GATE_WORD,
				    .done = g->device + 16,
				    .end = BLOCKS,
				    .number = DONE,
				    .groups = groups,
				    .base = g->base,
				    .from = from,
				    .wave = wave };
	void *params[] = { &g->counts, &g->device, &stop, &until, &arg };

	CU(cuLaunchKernel(g->f, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
}

/* Returns how many blocks have run: exactly those below. */
static uint32_t check_prefix(struct gate_run *g, uint32_t from)
{
	uint32_t counts[BLOCKS];
	uint64_t gate;
	uint32_t ran = BLOCKS;

	CU(cuMemcpyDtoH_v2(counts, g->counts, sizeof(counts)));
	CU(cuMemcpyDtoH_v2(&gate, g->tickets + PTX_GATE_WORD, sizeof(gate)));
	if (g->host[4] != DONE) {
		uint64_t value = gate & ~PTX_GATE_CLOSED;

		CHECK(gate & PTX_GATE_CLOSED);
		ran = value > g->base + from ? (uint32_t)(value - g->base) : from;
		CHECK(ran < BLOCKS);
	}
	for (uint32_t i = 0; i < BLOCKS; i++) {
		rig_check(counts[i] == (i < ran), "a prefix ran, once", __FILE__, (int)i,
			  (long)counts[i]);
	}
	CHECK(g->host[5] == ran);
	return ran;
}

static void reopen(struct gate_run *g)
{
	uint32_t half = (uint32_t)(g->base >> 32) + 1;

	g->base = (uint64_t)half << 32 | half;
	CU(cuMemsetD32_v2(g->tickets + PTX_GATE_WORD, half, 2));
}

/* One launch until all of its blocks have run. */
static void run_interrupted(struct gate_run *g)
{
	uint32_t from = 0;

	g->host[4] = g->host[5] = 0;
	CU(cuMemsetD8_v2(g->counts, 0, (size_t)4 * BLOCKS));
	CU(cuMemsetD8_v2(g->tickets, 0, PTX_GATE_WORD));
	reopen(g);
	while (from < BLOCKS) {
		launch(g, from, draw(g, 2) ? BLOCKS : draw(g, BLOCKS), true,
		       from + draw(g, BLOCKS - from + 8));
		CU(cuCtxSynchronize());
		from = check_prefix(g, from);
		g->interruptions += from < BLOCKS;
		set_lease(g, 0);
		reopen(g);
	}
}

static void run_rounds(struct gate_run *g, CUmodule m, const char *name)
{
	CU(cuModuleGetFunction(&g->f, m, name));
	g->interruptions = 0;
	for (unsigned i = 0; i < ROUNDS; i++) {
		run_interrupted(g);
	}
	CHECK(g->interruptions >= ROUNDS / 4);
}

static struct gate_run *make_run(void)
{
	static struct gate_run g = { .seed = 11 };
	void *host;

	CU(cuMemHostAlloc(&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(host, 0, 64);
	g.host = host;
	CU(cuMemHostGetDevicePointer_v2(&g.device, host, 0));
	CU(cuMemAlloc_v2(&g.counts, (size_t)4 * BLOCKS));
	CU(cuMemAlloc_v2(&g.tickets, PTX_GATE_WORD + 64));
	CU(cuMemsetD8_v2(g.tickets, 0, PTX_GATE_WORD + 64));
	return &g;
}

static void interrupt(void *arg)
{
	struct gate_run *g;
	CUcontext ctx;
	CUmodule m;

	(void)arg;
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	m = load_patched();
	g = make_run();
	run_rounds(g, m, "count");
	run_rounds(g, m, "chain");
}

static void interrupted_launches_run_a_prefix(void **state)
{
	(void)state;
	assert_int_equal(rig_run(interrupt, NULL), 0);
}

/* A lease that is in force from the beginning: no block runs, unless the lease is not asked for, or
 * the argument is zero. */
static void lease_first(void *arg)
{
	struct ptx_gate_arg zero = { .leases = 0 };
	uint32_t none = BLOCKS;
	void *params[] = { NULL, NULL, &none, &none, &zero };
	struct gate_run *g;
	CUcontext ctx;
	CUmodule m;

	(void)arg;
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	m = load_patched();
	g = make_run();
	params[0] = &g->counts;
	params[1] = &g->device;
	CU(cuModuleGetFunction(&g->f, m, "count"));
	CU(cuMemsetD8_v2(g->counts, 0, (size_t)4 * BLOCKS));
	set_lease(g, clock_wall_ns() + LEASE_NS);
	reopen(g);
	launch(g, 0, BLOCKS, true, BLOCKS);
	CU(cuCtxSynchronize());
	CHECK(g->host[5] == 0 && g->host[4] == 0 && check_prefix(g, 0) == 0);
	reopen(g);
	launch(g, 0, BLOCKS, false, BLOCKS);
	CU(cuCtxSynchronize());
	CHECK(g->host[5] == BLOCKS && g->host[4] == DONE);
	CU(cuLaunchKernel(g->f, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	CHECK(g->host[5] == 2 * BLOCKS);
}

static void no_block_runs_under_a_lease(void **state)
{
	(void)state;
	assert_int_equal(rig_run(lease_first, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_block_runs_under_a_lease),
		cmocka_unit_test(interrupted_launches_run_a_prefix),
	};

	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}

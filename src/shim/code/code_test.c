/* The self-test: a small patched kernel runs on the device before any image of the program is
 * patched. Its blocks count themselves. It runs as the original (argument zero), through an open
 * gate, through a gate that was closed in the middle, and as the continuation of that. */
#include "shim/code/shim_code_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"

#define BLOCKS 64u
#define THREADS 64u
#define BOUND 10u	/* blocks that run through the closed gate */
#define FIRST 7u	/* ticket */
#define NUMBER 5u	/* of the launch */
#define COUNTS_AT 4096u /* in the area; the tickets begin at TICKETS_AT */
#define TICKETS_AT 8192u
#define AREA_BYTES 81920u
#define WAIT_NS UINT64_C(2000000000)
#define POLL_NS 20000u

/* Each block adds 1 to its count. The area is a variable of the module, because an allocation may
 * wait for running kernels. */
static const char kernel_text[] = ".version 6.3\n.target sm_70\n.address_size 64\n"
				  ".visible .global .align 256 .b8 gbpf_area[81920];\n"
				  ".visible .entry gbpf_test(.param .u32 step)\n{\n"
				  ".reg .pred %p;\n.reg .b32 %t, %i, %n, %s;\n.reg .b64 %a, %o;\n"
				  "mov.u32 %t, %tid.x;\n"
				  "setp.ne.u32 %p, %t, 0;\n"
				  "@%p ret;\n"
				  "mov.u32 %i, %ctaid.x;\n"
				  "ld.param.u32 %s, [step];\n"
				  "mov.u64 %a, gbpf_area;\n"
				  "cvta.global.u64 %a, %a;\n"
				  "mul.wide.u32 %o, %i, 4;\n"
				  "add.u64 %a, %a, %o;\n"
				  "ld.u32 %n, [%a+4096];\n"
				  "add.u32 %n, %n, %s;\n"
				  "st.u32 [%a+4096], %n;\n"
				  "ret;\n}\n";

/* The modules stay loaded, because unloading may wait for kernels of the program. */
static CUmodule loaded[8];
static uint32_t n_loaded; /* [atomic] */

struct test {
	struct report *r;
	const char *step;
	CUmodule module;
	CUfunction f;
	CUstream stream;
	CUdeviceptr area;
	uint64_t until;
};

static int status(struct test *t, CUresult e)
{
	return e == CUDA_SUCCESS ? 0
				 : report_set(t->r, -ECANCELED, "test", "%s: driver error %d",
					      t->step, (int)e);
}

static int await(struct test *t)
{
	CUresult e;

	while ((e = shim_driver.cuStreamQuery(t->stream)) == CUDA_ERROR_NOT_READY) {
		if (clock_now_ns() > t->until) {
			return report_set(t->r, -ETIMEDOUT, "test",
					  "%s: no end within 2 s; the device is busy", t->step);
		}
		clock_sleep_ns(POLL_NS);
	}
	return status(t, e);
}

static int put(struct test *t, uint32_t at, const void *from, size_t bytes)
{
	return status(t, shim_driver.cuMemcpyHtoDAsync_v2(t->area + at, from, bytes, t->stream));
}

/* Copies from the area when the stream is idle, so the call does not wait for the kernel. */
static int get(struct test *t, uint32_t at, void *to, size_t bytes)
{
	int err = await(t);

	err = err ? err
		  : status(t, shim_driver.cuMemcpyDtoHAsync_v2(to, t->area + at, bytes, t->stream));
	return err ? err : await(t);
}

static int launch(struct test *t, struct ptx_gate_arg *arg)
{
	uint32_t step = 1;
	void *params[] = { &step, arg };

	return status(t, shim_driver.cuLaunchKernel(t->f, BLOCKS, 1, 1, THREADS, 1, 1, 0, t->stream,
						    params, NULL));
}

/* Each block below `bound` has run n times, the others m times. */
static int expect_counts(struct test *t, uint32_t bound, uint32_t n, uint32_t m)
{
	uint32_t counts[BLOCKS];
	int err = get(t, COUNTS_AT, counts, sizeof(counts));

	for (uint32_t i = 0; !err && i < BLOCKS; i++) {
		uint32_t wanted = i < bound ? n : m;

		if (counts[i] != wanted) {
			err = report_set(t->r, -EIO, "test",
					 "%s: block %u has run %u times, expected %u", t->step, i,
					 counts[i], wanted);
		}
	}
	return err;
}

/* The launch's end was published, or not. */
static int expect_end(struct test *t, bool wanted)
{
	uint32_t done = 0, ready = 0;
	int err = get(t, 0, &done, sizeof(done));

	err = err ? err : get(t, TICKETS_AT + PTX_BLOCK_READY, &ready, sizeof(ready));
	if (!err && (done != (wanted ? NUMBER : 0) || ready != (wanted ? FIRST + BLOCKS : FIRST))) {
		err = report_set(t->r, -EIO, "test", "%s: the end was %spublished", t->step,
				 wanted ? "not " : "");
	}
	return err;
}

/* Sets the state before a launch. */
static int set(struct test *t, uint64_t gate)
{
	static const uint32_t none, first = FIRST;
	int err = put(t, 0, &none, sizeof(none));

	err = err ? err : put(t, TICKETS_AT, &first, sizeof(first));
	err = err ? err : put(t, TICKETS_AT + PTX_BLOCK_READY, &first, sizeof(first));
	return err ? err : put(t, TICKETS_AT + PTX_GATE_WORD, &gate, sizeof(gate));
}

static int run(struct test *t)
{
	struct ptx_gate_arg zero = { .gate = 0 };
	struct ptx_gate_arg arg = { .leases = t->area + TICKETS_AT,
				    .gate = t->area + TICKETS_AT + PTX_GATE_WORD,
				    .done = t->area,
				    .first = FIRST,
				    .end = FIRST + BLOCKS,
				    .number = NUMBER };
	int err;

	t->step = "gate off";
	err = set(t, 0);
	err = err ? err : launch(t, &zero);
	POINT_HOLD("shim.test.launched");
	err = err ? err : expect_counts(t, BLOCKS, 1, 1);
	err = err ? err : expect_end(t, false);
	t->step = err ? t->step : "gate open";
	err = err ? err : launch(t, &arg);
	err = err ? err : expect_counts(t, BLOCKS, 2, 2);
	err = err ? err : expect_end(t, true);
	t->step = err ? t->step : "gate closed";
	arg.base = BLOCKS;
	err = err ? err : set(t, PTX_GATE_CLOSED | (arg.base + BOUND));
	err = err ? err : launch(t, &arg);
	err = err ? err : expect_counts(t, BOUND, 3, 2);
	err = err ? err : expect_end(t, false);
	t->step = err ? t->step : "continuation";
	arg.base += BLOCKS;
	arg.from = BOUND;
	err = err ? err : set(t, arg.base);
	err = err ? err : launch(t, &arg);
	err = err ? err : expect_counts(t, BLOCKS, 3, 3);
	return err ? err : expect_end(t, true);
}

static int load(struct test *t, const struct cubin_stub *s, unsigned arch)
{
	struct cubin_patched *p = NULL;
	void *original = NULL;
	size_t bytes = 0;
	int err;

	err = shim_code_compile(kernel_text, sizeof(kernel_text) - 1, arch, &original, &bytes,
				t->r);
	err = err ? err : cubin_patch(&p, original, bytes, s, t->r);
	if (err) { /* a message of its own comes first */
		(void)report_set(t->r, err, "test", "its kernel cannot be patched");
	}
	if (!err) {
		err = status(t, shim_driver.cuModuleLoadData(&t->module,
							     cubin_patched_image(p, &bytes)));
	}
	cubin_patched_close(p);
	free(original);
	if (t->module) {
		loaded[add_relaxed(&n_loaded, 1u) % ARRAY_SIZE(loaded)] = t->module;
	}
	return err;
}

/* After a timeout the kernel may still come to run, so the stream remains. */
int shim_code_test(const struct cubin_stub *s, unsigned arch, struct report *r)
{
	struct test t = { .r = r,
			  .step = "preparation",
			  .until = clock_now_ns() + clock_patience(WAIT_NS) };
	size_t bytes = 0;
	int err = load(&t, s, arch);

	err = err ? err : status(&t, shim_driver.cuModuleGetFunction(&t.f, t.module, "gbpf_test"));
	err = err ? err
		  : status(&t, shim_driver.cuModuleGetGlobal_v2(&t.area, &bytes, t.module,
								"gbpf_area"));
	if (!err && bytes != AREA_BYTES) {
		err = report_set(r, -EIO, "test", "its variable has %zu bytes", bytes);
	}
	err = err ? err : status(&t, shim_driver.cuStreamCreate(&t.stream, CU_STREAM_NON_BLOCKING));
	err = err ? err : run(&t);
	if (t.stream && err != -ETIMEDOUT) {
		shim_driver.cuStreamDestroy_v2(t.stream);
	}
	return err;
}

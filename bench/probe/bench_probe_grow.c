/* The kernel grow: x = FACTOR * x + TERM(i) for each i below INSTRUCTIONS. As machine code it is
 * one of many kernels in an image of 4 MB, of which no PTX exists. */
#include <stdlib.h>
#include <string.h>

#include "bench/probe/bench_probe_load.h"

#define INSTRUCTIONS 1000u
#define TERM(i) (1013904223u + 2654435761u * (i))
#define KERNELS 240u /* further ones in the image, of 17 KB each on sm_90 */
#define KERNELS_SOFT 4u

/* seed: other kernels than grow are not equal. */
static void write_kernel(struct buf *b, const char *name, unsigned number, unsigned seed)
{
	buf_printf(b, ".visible .entry %s", name);
	if (seed) {
		buf_printf(b, "%u", number);
	}
	buf_puts(b, "(.param .u64 at, .param .u32 factor)\n{\n"
		    ".reg .b32 %r<6>;\n.reg .b64 %rd<4>;\n"
		    "ld.param.u64 %rd1, [at];\nld.param.u32 %r1, [factor];\n"
		    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n"
		    "mad.lo.s32 %r4, %r2, %r3, %r4;\nmul.wide.u32 %rd2, %r4, 4;\n"
		    "add.s64 %rd3, %rd1, %rd2;\nld.global.u32 %r5, [%rd3];\n");
	for (unsigned i = 0; i < INSTRUCTIONS; i++) {
		buf_printf(b, "mad.lo.u32 %%r5, %%r5, %%r1, %u;\n", TERM(i) + seed);
	}
	buf_puts(b, "st.global.u32 [%rd3], %r5;\nret;\n}\n");
}

static void write_text(struct buf *b, unsigned more)
{
	buf_puts(b, ".version 6.0\n.target sm_70\n.address_size 64\n");
	write_kernel(b, "grow", 0, 0);
	for (unsigned i = 0; i < more; i++) {
		write_kernel(b, "more", i, i + 1);
	}
}

/* x = a * x + b */
struct affine {
	uint32_t a, b;
};

static struct affine then(struct affine first, struct affine second)
{
	return (struct affine){ second.a * first.a, second.a * first.b + second.b };
}

uint32_t bench_probe_grown(uint32_t x, uint64_t n)
{
	struct affine one = { 1, 0 }, all = { 1, 0 };

	for (unsigned i = 0; i < INSTRUCTIONS; i++) {
		one = then(one, (struct affine){ BENCH_PROBE_GROW_FACTOR, TERM(i) });
	}
	for (; n; n >>= 1) {
		all = n & 1 ? then(all, one) : all;
		one = then(one, one);
	}
	return all.a * x + all.b;
}

/* The driver compiles the text; what it returns is copied, so that it is an image of unknown
 * origin for the shim. */
static int compile(struct bench_probe *p, const struct buf *text, struct bench_probe_load *l)
{
	CUlinkState s = NULL;
	void *image = NULL;
	size_t bytes = 0;
	int err = BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, cuLinkCreate_v2(0, NULL, NULL, &s));

	err = err ||
	      BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER,
			     cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, text->data, text->len + 1,
					      "grow", 0, NULL, NULL)) ||
	      BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, cuLinkComplete(s, &image, &bytes));
	if (!err) {
		l->image = malloc(bytes);
		err = l->image ? 0 : bench_testbed_fail(&p->testbed, "out of memory");
	}
	if (!err) {
		memcpy(l->image, image, bytes);
		l->code_bytes = bytes;
	}
	if (s) {
		(void)BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, cuLinkDestroy(s));
	}
	return err ? -1 : 0;
}

int bench_probe_grow_load(struct bench_probe *p, struct bench_probe_load *l)
{
	unsigned more = !l->code ? 0 : p->testbed.soft ? KERNELS_SOFT : KERNELS;
	struct buf text;
	int err = 0;

	buf_init(&text);
	write_text(&text, more);
	if (!text.failed && l->code) {
		err = compile(p, &text, l);
	} else if (!text.failed) {
		l->image = strdup(buf_text(&text));
	}
	buf_finish(&text);
	if (!err && !l->image) {
		err = bench_testbed_fail(&p->testbed, "out of memory");
	}
	return err || BENCH_PROBE_GPU(p, cuModuleLoadData(&l->module, l->image)) ||
			       BENCH_PROBE_GPU(p, cuModuleGetFunction(&l->grow, l->module, "grow"))
		       ? -1
		       : 0;
}

int bench_probe_grow_copy(struct bench_probe *p, struct bench_probe_load *l)
{
	CUfunction f = NULL;
	int registers;

	if (BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, cuModuleLoadData(&l->copy, l->image)) ||
	    BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, cuModuleGetFunction(&f, l->copy, "grow")) ||
	    BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, /* loads it, as forms are */
			   cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f))) {
		return -1;
	}
	l->grow = f;
	l->past = true;
	return 0;
}

int bench_probe_grow_return(struct bench_probe *p, struct bench_probe_load *l)
{
	CUmodule copy = l->copy;

	l->copy = NULL;
	l->past = false;
	return BENCH_PROBE_GPU(p, cuModuleGetFunction(&l->grow, l->module, "grow")) ||
			       BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, cuModuleUnload(copy))
		       ? -1
		       : 0;
}

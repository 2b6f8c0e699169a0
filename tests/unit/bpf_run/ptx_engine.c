/* Programs as PTX, run in this process by the engine of the soft GPU, or on a GPU. */
#include "ptx_engine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../exec/engine.h"
#include "base/compiler.h"
#include "bpf/load/exec_ptx.h"
#include "bpf/load/jit/jit.h"
#include "bpf/load/jit/ptx/jit_ptx.h"
#include "gpu_engine.h"

#define MAX_TEXT ((size_t)4 << 20)
#define ACTIVE_OFFSET 96u	   /* of the field `active` of all contexts inside kernels */
#define LIMIT UINT64_C(2000000000) /* operations after which a launch counts as hanging */

const char *ptx_folder;

static void keep(const struct buf *text)
{
	static unsigned number;
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%u.ptx", ptx_folder, number++);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text->data, 1, text->len, f), text->len);
	assert_int_equal(fclose(f), 0);
}

static void *gpu_module; /* on a GPU: the module of the engine in use */

static void load(struct engine *e, struct buf *text)
{
	char message[1024];

	if (ptx_folder) {
		keep(text);
	}
	engine_init(e);
	if (gpu_engine()) {
		e->space.base = gpu_engine_base();
		gpu_module = gpu_engine_load(buf_text(text));
		return;
	}
	if (engine_load(e, text->data, text->len, "program", message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, text->len < 16384 ? buf_text(text) : "");
	}
}

static void unload(struct engine *e)
{
	if (gpu_engine()) {
		gpu_engine_unload(gpu_module);
	}
	engine_finish(e);
}

static void launch(struct engine *e, const char *kernel, unsigned threads, const void *params,
		   size_t param_bytes)
{
	unsigned block = MIN(threads, PTX_BLOCK);
	struct engine_launch l = { .kernel = kernel,
				   .grid = { (threads + block - 1) / block, 1, 1 },
				   .block = { block, 1, 1 },
				   .params = params,
				   .budget = 1u << 20,
				   .limit = LIMIT };
	enum exec_status s;

	if (gpu_engine()) {
		gpu_engine_launch(e, gpu_module, &l, param_bytes);
		return;
	}
	s = engine_run(e, &l);
	if (s != EXEC_DONE) {
		fail_msg("the launch of %s ends with status %d at address 0x%llx", kernel, s,
			 (unsigned long long)e->fault.address);
	}
}

void ptx_batch_begin(struct ptx_batch *b)
{
	*b = (struct ptx_batch){ 0 };
	buf_puts(&b->text, ".version 7.0\n.target sm_70\n.address_size 64\n");
}

void ptx_batch_finish(struct ptx_batch *b)
{
	buf_finish(&b->text);
	free(b->programs);
}

int ptx_batch_add(struct ptx_batch *b, const struct ebpf_insn *insns, uint32_t n,
		  const struct ebpf_env *env, struct report *r)
{
	return ptx_batch_add_device(b, insns, n, env, 0, 0, r);
}

int ptx_batch_add_device(struct ptx_batch *b, const struct ebpf_insn *insns, uint32_t n,
			 const struct ebpf_env *env, int hook, int lane, struct report *r)
{
	const struct ebpf_code prog = { insns, n, NULL, 0 };
	struct ptx_batch_program p = { .hook = hook, .lane = lane };
	struct ebpf_jit_options o = { .report = r,
				      .device_hook = hook,
				      .device_lane = lane,
				      .device_control = b->control != NULL,
				      .fields = &p.fields,
				      .maps = &p.maps,
				      .print_map_1 = b->print_map_1 };
	uint8_t *out = malloc(MAX_TEXT);
	char name[16];
	size_t len = 0;
	int err;

	snprintf(name, sizeof(name), "p%u", b->n);
	o.name = name;
	err = ebpf_jit_compile_with(&ebpf_target_ptx, &o, &prog, env->maps, env->n_maps, out,
				    MAX_TEXT, &len);
	if (err >= 0) {
		buf_add(&b->text, out, len);
		b->programs = realloc(b->programs, (b->n + 1) * sizeof(p));
		assert_non_null(b->programs);
		b->programs[b->n++] = p;
	}
	free(out);
	return err < 0 ? err : 0;
}

static void add_call(struct ptx_batch *b, unsigned k)
{
	buf_printf(&b->text,
		   "\t{\n\t.param .b64 x, y, z;\n\tst.param.b64 [x], %%a1;\n"
		   "\tst.param.b64 [y], %%a0;\n\tcall (z), p%u_f0, (x, y);\n"
		   "\tld.param.b64 %%a6, [z];\n\t}\n",
		   k);
}

#define CONTROL_ROW 37u /* others choose no block */

static void add_device_call(struct ptx_batch *b, unsigned k)
{
	const struct ptx_batch_program *p = &b->programs[k];
	struct buf names = { 0 };

	if (p->lane) {
		buf_printf(&b->text,
			   "\tld.u32 %%b6, [%%a1+%u];\n\tmov.u32 %%b7, %%laneid;\n"
			   "\tshr.u32 %%b6, %%b6, %%b7;\n\tand.b32 %%b6, %%b6, 1;\n"
			   "\tsetp.eq.u32 %%p, %%b6, 0;\n\t@%%p bra $SKIP%u;\n",
			   ACTIVE_OFFSET, k);
	}
	buf_puts(&b->text, "\t{\n\t.param .b64 x;\n\tst.param.b64 [x], %a0;\n");
	if (b->control) {
		buf_printf(&b->text,
			   "\t.param .b64 c;\n\tadd.u64 %%a6, %%a0, %u;\n"
			   "\tst.param.b64 [c], %%a6;\n",
			   EBPF_PTX_CONTROL_ROW(CONTROL_ROW));
		buf_puts(&names, ", c");
	}
	for (unsigned i = 0; i < 64; i++) {
		if (p->maps >> i & 1) {
			buf_printf(&b->text,
				   "\t.param .b64 m%u;\n\tld.u64 %%a6, [%%a0+%u];\n"
				   "\tst.param.b64 [m%u], %%a6;\n",
				   i, 8 * i, i);
			buf_printf(&names, ", m%u", i);
		}
	}
	for (unsigned i = 0; i < 64; i++) {
		const struct ebpf_ptx_field *f = ebpf_ptx_field(p->hook, i);
		char reg = f && f->bytes == 8 ? 'a' : 'b';

		if (p->fields >> i & 1) {
			buf_printf(&b->text,
				   "\t.param .b%u x%u;\n\tld.b%u %%%c6, [%%a1+%u];\n"
				   "\tst.param.b%u [x%u], %%%c6;\n",
				   8 * f->bytes, i, 8 * f->bytes, reg, f->offset, 8 * f->bytes, i,
				   reg);
			buf_printf(&names, ", x%u", i);
		}
	}
	buf_printf(&b->text, "\tcall p%u_f0, (x%s);\n\t}\n$SKIP%u:\n\tmov.b64 %%a6, 0;\n", k,
		   buf_text(&names), k);
	buf_finish(&names);
}

static void add_kernel(struct ptx_batch *b)
{
	buf_puts(&b->text, ".visible .entry k(.param .u64 env, .param .u64 mem, "
			   ".param .u64 stride, .param .u64 threads, .param .u64 out)\n{\n"
			   "\t.reg .b64 %a<8>;\n\t.reg .b32 %b<8>;\n\t.reg .pred %p;\n"
			   "\tld.param.u64 %a0, [env];\n\tld.param.u64 %a1, [mem];\n"
			   "\tld.param.u64 %a2, [stride];\n\tld.param.u64 %a3, [threads];\n"
			   "\tld.param.u64 %a4, [out];\n"
			   "\tmov.u32 %b0, %tid.x;\n\tmov.u32 %b1, %ctaid.x;\n"
			   "\tmov.u32 %b2, %ntid.x;\n\tmad.lo.u32 %b0, %b1, %b2, "
			   "%b0;\n\tcvt.u64.u32 %a5, %b0;\n"
			   "\tsetp.ge.u64 %p, %a5, %a3;\n\t@%p ret;\n"
			   "\tmad.lo.u64 %a1, %a5, %a2, %a1;\n");
	buf_printf(&b->text, "\tmad.lo.u64 %%a4, %%a5, %u, %%a4;\n", 8 * b->n);
	for (unsigned k = 0; k < b->n; k++) {
		(b->programs[k].hook ? add_device_call : add_call)(b, k);
		buf_printf(&b->text, "\tst.u64 [%%a4+%u], %%a6;\n", 8 * k);
	}
	buf_puts(&b->text, "\tret;\n}\n");
}

/* The regions of the maps on the device. */
struct regions {
	uint64_t address[EBPF_REGIONS];
	void *mem[EBPF_REGIONS];
};

static void place_maps(struct engine *e, const struct test_env *t, struct ebpf_ptx_env *env,
		       struct regions *d)
{
	*d = (struct regions){ 0 };
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (t->bytes[r]) {
			d->mem[r] = engine_take(e, t->bytes[r], &d->address[r]);
			memcpy(d->mem[r], t->mem[r], t->bytes[r]);
		}
	}
	for (unsigned i = 0; i < t->n; i++) {
		const struct ebpf_map *m = &t->env.maps[i];

		env->maps[i] = d->address[m->region] +
			       (uint64_t)(m->data - (const uint8_t *)t->mem[m->region]);
	}
	env->random_state = t->env.random_state;
}

/* Copies maps and counters back. */
static void take_maps(struct test_env *t, const struct ebpf_ptx_env *env, const struct regions *d)
{
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (t->bytes[r]) {
			memcpy(t->mem[r], d->mem[r], t->bytes[r]);
		}
	}
	memcpy(t->env.notes, env->notes, sizeof(t->env.notes));
	t->env.helper_errors = env->helper_errors;
	t->env.random_state = env->random_state;
}

void ptx_batch_run(struct ptx_batch *b, struct test_env *t, uint8_t *mem, size_t bytes,
		   size_t stride, unsigned threads, uint64_t *ret)
{
	uint64_t params[5] = { 0, 0, stride, threads, 0 };
	struct ebpf_ptx_env *env;
	struct regions regions;
	uint8_t *device;
	uint64_t *out;
	struct engine e;

	add_kernel(b);
	assert_int_equal(b->text.failed, 0);
	load(&e, &b->text);
	env = engine_take(&e, EBPF_PTX_CONTROL_AT + 2 * EBPF_PTX_CONTROL_BYTES, &params[0]);
	for (size_t i = 0; b->control && i < 4; i++) {
		memcpy((char *)env + EBPF_PTX_CONTROL_AT + EBPF_PTX_CONTROL_ROW(CONTROL_ROW) +
			       i * EBPF_PTX_CONTROL_STRIDE,
		       &b->control[i], sizeof(b->control[i]));
	}
	device = engine_take(&e, bytes + 1, &params[1]);
	out = engine_take(&e, sizeof(*ret) * threads * b->n, &params[4]);
	place_maps(&e, t, env, &regions);
	if (bytes) {
		memcpy(device, mem, bytes);
	} else {
		params[1] = 0;
	}
	launch(&e, "k", threads, params, sizeof(params));
	if (bytes) {
		memcpy(mem, device, bytes);
	}
	memcpy(ret, out, sizeof(*ret) * threads * b->n);
	take_maps(t, env, &regions);
	unload(&e);
	ptx_batch_finish(b);
}

/* Raw programs have their memory at the end of the window, where it does not depend on the module.
 */
#define RAW_OFFSET (ENGINE_BYTES - 2 * EXEC_PAGE_BYTES)

uint64_t ptx_raw_address(void)
{
	return (gpu_engine() ? gpu_engine_base() : ENGINE_BASE) + RAW_OFFSET;
}

int ptx_run_checked(const struct ebpf_insn *insns, uint32_t n, uint8_t *mem, size_t bytes,
		    uint64_t fuel, uint64_t *ret_r0)
{
	uint64_t param;
	struct ebpf_ptx_env *env;
	struct buf text = { 0 };
	struct report r;
	struct engine e;
	uint8_t *device;
	int err;

	report_init(&r);
	err = ebpf_exec_ptx_module(insns, n * sizeof(*insns), bytes, &text, &r);
	assert_int_equal(!err, !r.message.len);
	if (!err) {
		load(&e, &text);
		env = engine_take(&e, sizeof(*env), &param);
		assert_true(bytes <= EXEC_PAGE_BYTES && e.used < RAW_OFFSET);
		e.pages[RAW_OFFSET / EXEC_PAGE_BYTES] = 3;
		device = e.host + RAW_OFFSET;
		ebpf_exec_ptx_begin(env, ptx_raw_address(), bytes);
		env->fuel = fuel;
		if (bytes) {
			memcpy(device, mem, bytes);
		}
		launch(&e, EBPF_EXEC_PTX_ENTRY, 1, &param, sizeof(param));
		err = ebpf_exec_ptx_end(env, ret_r0, &r);
		if (bytes) {
			memcpy(mem, device, bytes);
		}
		unload(&e);
	}
	report_finish(&r);
	buf_finish(&text);
	return err;
}

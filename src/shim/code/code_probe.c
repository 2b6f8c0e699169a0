/* Makes probed copies of kernels: the stub is compiled by the driver, spliced into one kernel of a
 * copy of its image, and loaded. The last stubs are remembered by their text, because a program is
 * mostly attached to many kernels at once. */
#include "shim/code/shim_code_probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim/code/shim_code_int.h"
#include "shim/tool.h"

#define STUBS_MAX 8u

/* A compiled stub. Its text has the addresses of the environments and whatever else it depends on,
 * so it may serve every context. */
struct remembered {
	unsigned arch;
	char *text; /* owned */
	struct cubin_stub *stub;
};

static struct remembered stubs[STUBS_MAX]; /* guarded by the caller */
static unsigned next_stub;

struct request {
	unsigned arch;
	const struct ptx_stub_kernel *kernel;
	const struct ptx_probe *probes;
	const uint64_t *envs;
	uint32_t n;
	struct report *r;
};

/* ---- stubs ---- */

static int write_stub(const struct request *q, uint32_t pad, struct buf *text,
		      struct ptx_stub_form *ret)
{
	buf_init(text);
	return ptx_probe_stub(text, q->arch, pad, q->kernel, q->probes, q->envs, q->n, ret, q->r);
}

static int compile(const struct request *q, const struct buf *text, void **ret, size_t *ret_bytes)
{
	return shim_code_compile_once(buf_text(text), text->len, ret, ret_bytes, q->r);
}

static int make_stub(const struct request *q, const struct buf *a, uint32_t pad,
		     struct cubin_stub **ret)
{
	void *x = NULL, *y = NULL;
	size_t x_bytes = 0, y_bytes = 0;
	struct ptx_stub_form f;
	struct buf b;
	int err = write_stub(q, PTX_GATE_PAD_B, &b, &f);

	err = err ? err : compile(q, a, &x, &x_bytes);
	err = err ? err : compile(q, &b, &y, &y_bytes);
	err = err ? err
		  : cubin_stub_open(ret, x, x_bytes, pad, y, y_bytes, f.pad, PTX_GATE_ENTRY,
				    SHIM_CODE_ARG_BYTES, q->r);
	if (!err) {
		err = cubin_stub_check_programs(*ret, q->r);
		if (err) {
			cubin_stub_close(*ret);
		}
	}
	buf_finish(&b);
	free(x);
	free(y);
	return err;
}

/* Takes s, also if there is no memory. */
static int remember(unsigned arch, const struct buf *text, struct cubin_stub *s)
{
	struct remembered *m = &stubs[next_stub % STUBS_MAX];
	char *copy = strdup(buf_text(text));

	if (!copy) {
		cubin_stub_close(s);
		return -ENOMEM;
	}
	next_stub++;
	cubin_stub_close(m->stub);
	free(m->text);
	*m = (struct remembered){ arch, copy, s };
	return 0;
}

static const struct cubin_stub *find_stub(unsigned arch, const struct buf *text)
{
	for (unsigned i = 0; i < STUBS_MAX; i++) {
		if (stubs[i].stub && stubs[i].arch == arch &&
		    strcmp(stubs[i].text, buf_text(text)) == 0) {
			return stubs[i].stub;
		}
	}
	return NULL;
}

/* *ret is remembered: the caller does not close it. */
static int stub_of(const struct request *q, const struct cubin_stub **ret,
		   struct ptx_stub_form *ret_form)
{
	struct cubin_stub *made = NULL;
	struct buf text;
	int err = write_stub(q, PTX_GATE_PAD_A, &text, ret_form);

	*ret = err ? NULL : find_stub(q->arch, &text);
	if (!err && !*ret) {
		err = make_stub(q, &text, ret_form->pad, &made);
		err = err ? err : remember(q->arch, &text, made);
		*ret = err ? NULL : made;
	}
	buf_finish(&text);
	return err;
}

/* ---- copies ---- */

static int check_here(unsigned arch, const void *elf, size_t bytes, struct report *r)
{
	if (!arch) {
		return report_set(r, -ENOTSUP, "code", "no context is current");
	}
	if (shim_tool_attached()) {
		return report_set(r, -ENOTSUP, "code",
				  "a debugger or tool looks at the machine code");
	}
	return cubin_arch(elf, bytes) / 10 == arch / 10
		       ? 0
		       : report_set(r, -ENOTSUP, "code", "its machine code is not for this device");
}

static bool contains(const struct cubin_kernel *k, const struct ptx_stub_arg *a)
{
	for (uint32_t i = 0; i < k->n_params; i++) {
		const struct cubin_param *p = &k->params[i];

		if (a->offset >= p->offset &&
		    (uint64_t)a->offset + a->bytes <= (uint64_t)p->offset + p->bytes) {
			return true;
		}
	}
	return false;
}

/* Each argument that the programs read must lie in one of the kernel's parameters. */
static int check_args(const struct cubin_kernel *k, const struct ptx_stub_form *f, struct report *r)
{
	for (uint32_t i = 0; i < f->n_args; i++) {
		const struct ptx_stub_arg *a = &f->args[i];

		if (!contains(k, a)) {
			report_place(r, "%s", k->name);
			(void)report_set(r, -ENOTSUP, "probe",
					 "%s: no parameter of the kernel contains the %u bytes at "
					 "offset %u",
					 a->program, a->bytes, a->offset);
			report_hint(r, "name kernels that have this argument: gdev/HOOK/PATTERN, "
				       "or --kernel");
			return -ENOTSUP;
		}
	}
	return 0;
}

int shim_code_probe_make(struct cubin_patched **ret, const void *elf, size_t bytes,
			 const struct ptx_stub_kernel *kernel, const struct ptx_probe *probes,
			 const uint64_t *envs, uint32_t n, cubin_address_fn *address, void *arg,
			 struct report *r)
{
	const struct request q = { .arch = shim_code_arch_here(false),
				   .kernel = kernel,
				   .probes = probes,
				   .envs = envs,
				   .n = n,
				   .r = r };
	const struct cubin_stub *stub = NULL;
	struct cubin_patched *made = NULL;
	struct ptx_stub_form form;
	int err = check_here(q.arch, elf, bytes, r);

	err = err ? err : stub_of(&q, &stub, &form);
	err = err ? err : cubin_patch_copy(&made, elf, bytes, kernel->name, stub, address, arg, r);
	err = err ? err : check_args(cubin_patched_find(made, kernel->name), &form, r);
	if (err == -ENOMEM) {
		(void)report_set(r, err, "code", "out of memory");
	}
	if (err) {
		cubin_patched_close(made);
	} else {
		*ret = made;
	}
	return err;
}

static int load(struct shim_code_probed *ret, struct cubin_patched *p, const char *kernel,
		struct report *r)
{
	CUcontext ctx = NULL;
	size_t bytes;
	const void *image = cubin_patched_image(p, &bytes);
	CUmodule m = NULL;
	CUresult e = shim_driver.cuCtxGetCurrent(&ctx);

	e = e ? e : shim_driver.cuModuleLoadDataEx(&m, image, 0, NULL, NULL);
	if (!e) {
		e = shim_driver.cuModuleGetFunction(&ret->handle, m, kernel);
	}
	if (!e) { /* else its first launch would wait for work on the device */
		(void)shim_driver.cuFuncLoad(ret->handle);
	}
	if (!e && !shim_code_note(m, ctx, p, false)) {
		e = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (e) {
		if (m) {
			(void)shim_driver.cuModuleUnload(m);
		}
		return report_set(r, -ENOEXEC, "code",
				  "the driver does not load the probed copy: error %d", (int)e);
	}
	shim_code_learn(ret->handle, m, kernel);
	ret->module = m;
	return 0;
}

int shim_code_probe_load(struct shim_code_probed *ret, struct cubin_patched *p, const char *kernel,
			 struct report *r)
{
	enum proto_block_why why = PROTO_BLOCK_UNKNOWN;
	const struct cubin_kernel *k = cubin_patched_find(p, kernel);
	int err;

	ret->registers = k->patched_registers;
	ret->was_registers = k->registers;
	if (!shim_code_stub(shim_code_arch_here(false), &why)) {
		err = report_set(r, -ENOTSUP, "code", "no machine code is patched here: %s",
				 proto_block_why_text(why));
	} else {
		shim_code_lead();
		err = load(ret, p, kernel, r);
	}
	if (err) {
		cubin_patched_close(p);
	}
	return err;
}

void shim_code_probe_unload(CUmodule module)
{
	uint64_t until = shim_code_unloading(module);

	if (shim_driver.cuModuleUnload(module) == CUDA_SUCCESS) {
		shim_code_unloaded(module, until);
	}
}

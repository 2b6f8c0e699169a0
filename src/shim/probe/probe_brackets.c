/* Modules of brackets (ptx/probe_bracket.h). Kernels of a context with the same programs of begin
 * and end share one, so a tool for all kernels compiles and loads one for each context. */
#include "shim/probe/shim_probe_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/code/shim_code.h"

#define PAGE ((size_t)4096)

static struct shim_probe_bracket *brackets GUARDED_BY(shim_probe_build_mutex); /* owned */
static struct shim_probe_bracket *unused GUARDED_BY(shim_probe_build_mutex);   /* owned */

static struct shim_probe_bracket *create(CUcontext ctx, uint32_t n) REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_bracket *b = unused;

	if (b) {
		uint64_t *done = b->done;

		unused = b->next;
		memset(b, 0, sizeof(*b));
		b->done = done;
	} else {
		b = calloc(1, sizeof(*b));
	}
	if (b) {
		buf_init(&b->text);
		b->ctx = ctx;
		b->n = n;
	}
	return b;
}

static void destroy(struct shim_probe_bracket *b) REQUIRES(shim_probe_build_mutex)
{
	buf_finish(&b->text);
	free(b->image);
	b->image = NULL;
	b->next = unused;
	unused = b;
}

/* Returns brackets of the same text whose programs have the same environments. */
static struct shim_probe_bracket *find(const struct shim_probe_bracket *like)
	REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_bracket *b = brackets;

	while (b && (b->ctx != like->ctx || b->n != like->n ||
		     memcmp(b->envs, like->envs, b->n * sizeof(b->envs[0])) != 0 ||
		     strcmp(buf_text(&b->text), buf_text(&like->text)) != 0)) {
		b = b->next;
	}
	return b;
}

static int fill(struct shim_probe_bracket *b, unsigned arch, const struct ptx_probe *probes,
		struct shim_probe_tool *const *tools, struct report *r)
	REQUIRES(shim_probe_build_mutex)
{
	int err = ptx_probe_bracket(&b->text, arch, probes, b->n, &b->parts, r);

	for (uint32_t i = 0; i < b->n && !err; i++) {
		b->envs[i] = shim_probe_memory_env(tools[i], b->ctx, r);
		err = b->envs[i] ? 0 : -ENOMEM;
	}
	return err == -ENOMEM ? report_set(r, err, "memory", "no memory for brackets") : err;
}

int shim_probe_bracket_make(struct shim_probe_bracket **ret, CUcontext ctx, unsigned arch,
			    const struct ptx_probe *probes, struct shim_probe_tool *const *tools,
			    uint32_t n, struct report *r)
{
	struct shim_probe_bracket *b = create(ctx, n), *known = NULL;
	int err;

	if (!b) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	err = fill(b, arch, probes, tools, r);
	known = err ? NULL : find(b);
	if (!err && !known) {
		err = shim_code_compile(buf_text(&b->text), b->text.len, arch, &b->image,
					&b->image_bytes, r);
	}
	if (err || known) {
		destroy(b);
		b = known;
	} else {
		b->next = brackets;
		brackets = b;
	}
	if (!err) {
		b->refs++;
		*ret = b;
	}
	return err;
}

static CUresult get_entry(const struct shim_probe_bracket *b, bool has, const char *name,
			  CUfunction *ret)
{
	CUresult r = has ? shim_driver.cuModuleGetFunction(ret, b->module, name) : CUDA_SUCCESS;

	if (has && r == CUDA_SUCCESS) { /* else its first launch would wait for work */
		(void)shim_driver.cuFuncLoad(*ret);
	}
	return r;
}

/* Lets the brackets count in host memory; without that, launches do not wait for room. */
static void register_done(struct shim_probe_bracket *b)
{
	void *page = b->done ? b->done
			     : mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				    -1, 0);

	b->done_at = 0;
	if (page == MAP_FAILED) {
		return;
	}
	b->done = page;
	store_relaxed(b->done, (uint64_t)0);
	if (shim_driver.cuMemHostRegister_v2(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP) !=
	    CUDA_SUCCESS) {
		return;
	}
	if (shim_driver.cuMemHostGetDevicePointer_v2(&b->done_at, page, 0) != CUDA_SUCCESS) {
		(void)shim_driver.cuMemHostUnregister(page);
		b->done_at = 0;
	}
}

static void unload(struct shim_probe_bracket *b)
{
	CUcontext popped;

	if (b->module && shim_driver.cuCtxPushCurrent_v2(b->ctx) == CUDA_SUCCESS) {
		(void)shim_driver.cuModuleUnload(b->module);
		if (b->done_at) {
			(void)shim_driver.cuMemHostUnregister(b->done);
		}
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
	b->module = NULL;
	b->done_at = 0;
}

int shim_probe_bracket_load(struct shim_probe_bracket *b, struct report *r)
{
	size_t bytes = 0, wanted = b->n * sizeof(b->envs[0]);
	CUdeviceptr table = 0;
	CUresult e;

	if (b->module) {
		return 0;
	}
	e = shim_driver.cuModuleLoadDataEx(&b->module, b->image, 0, NULL, NULL);
	if (e != CUDA_SUCCESS) {
		b->module = NULL;
		return report_set(r, -ENOEXEC, "load",
				  "the driver does not load its brackets: error %d", (int)e);
	}
	register_done(b);
	e = get_entry(b, b->parts.begin, PTX_BRACKET_BEGIN, &b->begin);
	e = e ? e : get_entry(b, b->parts.late, PTX_BRACKET_LATE, &b->late);
	e = e ? e : get_entry(b, b->parts.end, PTX_BRACKET_END, &b->end);
	e = e ? e : shim_driver.cuModuleGetGlobal_v2(&table, &bytes, b->module, PTX_PROBE_TABLE);
	if (e != CUDA_SUCCESS || bytes < wanted ||
	    shim_probe_memory_write(table, b->envs, wanted) < 0) {
		unload(b);
		return report_set(r, -ENOEXEC, "load",
				  "the table of its brackets cannot be filled: error %d", (int)e);
	}
	return 0;
}

void shim_probe_bracket_put(struct shim_probe_bracket *b)
{
	if (b) {
		b->refs--;
	}
}

void shim_probe_brackets_sweep(CUcontext ctx, bool context_ends)
{
	for (struct shim_probe_bracket **link = &brackets; *link;) {
		struct shim_probe_bracket *b = *link;

		if (b->ctx != ctx || b->refs) {
			link = &b->next;
			continue;
		}
		*link = b->next;
		if (!context_ends) {
			unload(b);
		}
		destroy(b);
	}
}

/* PTX of gBPF's own to machine code, by the driver's linker, or as an earlier run has compiled it:
 * the first use loads the driver's compiler, which takes longer than all the rest. */
#include "shim/code/shim_code_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The linker, and what it writes until it is destroyed: its log, and in values the log's length. */
struct linker {
	CUlinkState state;
	CUjit_option options[2];
	void *values[2];
	char log[256];
};

static CUresult open_linker(struct linker *l)
{
	*l = (struct linker){ .options = { CU_JIT_ERROR_LOG_BUFFER,
					   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES } };
	l->values[0] = l->log;
	l->values[1] = (void *)(uintptr_t)(sizeof(l->log) - 1);
	return shim_driver.cuLinkCreate_v2(ARRAY_SIZE(l->options), l->options, l->values,
					   &l->state);
}

static int refused(struct linker *l, CUresult e, struct report *r)
{
	l->log[strcspn(l->log, "\r\n")] = 0;
	return report_set(r, -ENOEXEC, "stub", "the driver does not compile it: error %d%s%s",
			  (int)e, l->log[0] ? ": " : "", l->log);
}

int shim_code_compile_once(const char *ptx, size_t bytes, void **ret, size_t *ret_bytes,
			   struct report *r)
{
	void *image = NULL;
	struct linker l;
	size_t n = 0;
	int err = 0;
	CUresult e = open_linker(&l);

	if (e) {
		return refused(&l, e, r);
	}
	e = shim_driver.cuLinkAddData_v2(l.state, CU_JIT_INPUT_PTX, unqual(ptx), bytes + 1, "gbpf",
					 0, NULL, NULL);
	e = e ? e : shim_driver.cuLinkComplete(l.state, &image, &n);
	if (e || !image || !n) {
		err = refused(&l, e, r);
	} else {
		*ret = malloc(n);
		err = *ret ? 0 : report_set(r, -ENOMEM, "stub", "out of memory");
	}
	if (!err) {
		memcpy(*ret, image, n);
		*ret_bytes = n;
	}
	shim_driver.cuLinkDestroy(l.state);
	return err;
}

int shim_code_compile(const char *ptx, size_t bytes, unsigned arch, void **ret, size_t *ret_bytes,
		      struct report *r)
{
	int err;

	if (shim_code_cached_ptx(ptx, bytes, arch, ret, ret_bytes) == 0) {
		return 0;
	}
	err = shim_code_compile_once(ptx, bytes, ret, ret_bytes, r);
	if (!err) {
		shim_code_cache_ptx(ptx, bytes, arch, *ret, *ret_bytes);
	}
	return err;
}

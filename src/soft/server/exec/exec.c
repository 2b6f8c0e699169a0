/* The soft GPU's execution engine: not there yet, every module is refused. */
#include "soft/server/exec.h"

#include <errno.h>

int exec_module_load(struct exec_module **ret, const char *ptx, size_t bytes, const char *name,
		     struct report *r)
{
	return report_set(r, -ENOSYS, "ptx", "%s: this build executes no PTX", name);
}

void exec_module_unref(struct exec_module *m)
{
}

struct exec_module *exec_module_ref(struct exec_module *m)
{
	return m;
}

size_t exec_module_global_bytes(const struct exec_module *m)
{
	return 0;
}

void exec_module_bind(struct exec_module *m, uint64_t device_address, void *host)
{
}

int exec_module_global(const struct exec_module *m, const char *name, uint64_t *ret_address,
		       uint64_t *ret_bytes)
{
	return -ENOENT;
}

const struct exec_function *exec_module_function(const struct exec_module *m, const char *name)
{
	return NULL;
}

unsigned exec_module_functions(const struct exec_module *m)
{
	return 0;
}

const struct exec_function *exec_module_function_at(const struct exec_module *m, unsigned i)
{
	return NULL;
}

const struct exec_function_info *exec_function_info(const struct exec_function *f)
{
	return NULL;
}

struct exec_block *exec_block_create(const struct exec_launch *l)
{
	return NULL;
}

void exec_block_destroy(struct exec_block *b)
{
}

void exec_block_reset(struct exec_block *b, uint64_t block_index, uint32_t smid)
{
}

enum exec_status exec_block_run(struct exec_block *b, uint64_t budget, uint64_t *ret_used,
				struct exec_fault *ret_fault)
{
	return EXEC_NO_MEMORY;
}

/* The soft GPU is recognized by its private table. Options of a load mean the same to both drivers.
 */
#include "gpu/ptx_rule.h"

#include "gpu/flag_int.h"

enum ptx_rule gpu_ptx_rule(const struct cuabi_table *real)
{
	return gpu_soft_table(real) ? PTX_RULE_SOFT : PTX_RULE_DRIVER;
}

unsigned gpu_ptx_target(unsigned n, const CUjit_option *options, void *const *values)
{
	unsigned target = 0;

	for (unsigned i = 0; options && values && i < n; i++) {
		if (options[i] == CU_JIT_TARGET) {
			target = (unsigned)(uintptr_t)values[i] & 0xffffu;
		}
	}
	return target;
}

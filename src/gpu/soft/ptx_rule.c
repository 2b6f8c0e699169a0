/* The soft GPU is recognized by its private table. */
#include "gpu/ptx_rule.h"

#include "gpu/flag_int.h"

enum ptx_rule gpu_ptx_rule(const struct cuabi_table *real)
{
	return gpu_soft_table(real) ? PTX_RULE_SOFT : PTX_RULE_DRIVER;
}

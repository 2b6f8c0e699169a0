/* Which set of handlers this machine runs. */
#include "soft/server/exec/handlers.h"

const struct handlers *exec_handlers(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
		return &exec_handlers_avx2;
	}
#endif
	return &exec_handlers_base;
}

/* Which set of handlers this machine runs. */
#include "soft/server/exec/handlers.h"

static const struct handlers *forced;

void exec_handlers_force(const struct handlers *h)
{
	forced = h;
}

const struct handlers *exec_handlers(void)
{
	if (forced) {
		return forced;
	}
#if defined(__x86_64__) && !defined(EXEC_ONLY_BASE)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	    __builtin_cpu_supports("bmi2")) {
		return &exec_handlers_avx2;
	}
#endif
	return &exec_handlers_base;
}

/* Which set of handlers this machine runs. */
#include "soft/server/exec/handlers.h"

static const struct handlers *forced;

void exec_handlers_force(const struct handlers *h)
{
	forced = h;
}

unsigned exec_handlers_sets(const struct handlers *ret[EXEC_HANDLER_SETS])
{
	unsigned n = 0;

#if defined(__x86_64__) && !defined(EXEC_ONLY_BASE)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
	    __builtin_cpu_supports("popcnt")) {
		if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		    __builtin_cpu_supports("avx512cd")) {
			ret[n++] = &exec_handlers_avx512;
		}
		ret[n++] = &exec_handlers_avx2;
	}
#endif
	ret[n++] = &exec_handlers_base;
	return n;
}

const struct handlers *exec_handlers(void)
{
	const struct handlers *sets[EXEC_HANDLER_SETS];

	if (!forced) {
		exec_handlers_sets(sets);
	}
	return forced ? forced : sets[0];
}

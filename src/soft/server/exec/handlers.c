/* Selection of the handler set for this processor. */
#include "soft/server/exec/handlers.h"
#include "soft/server/exec/warp_run.h"

static const struct exec_handlers *forced;

void exec_handlers_force(const struct exec_handlers *h)
{
	forced = h;
}

unsigned exec_handlers_sets(const struct exec_handlers *ret[EXEC_HANDLER_SETS])
{
	unsigned n = 0;

#ifndef EXEC_ONLY_BASE
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

const struct exec_handlers *exec_handlers(void)
{
	const struct exec_handlers *sets[EXEC_HANDLER_SETS];

	if (!forced) {
		exec_handlers_sets(sets);
	}
	return forced ? forced : sets[0];
}

/* Bounds of the section that holds all handlers of lane_alu.c. */
extern const char __start_exec_run[], __stop_exec_run[];

static bool can_go_on(const struct exec_op *o)
{
	uintptr_t fn = (uintptr_t)o->fn;

	return o->guard == EXEC_NO_PRED && fn >= (uintptr_t)__start_exec_run &&
	       fn < (uintptr_t)__stop_exec_run;
}

void exec_runs_mark(struct exec_op *code, uint32_t n)
{
	uint32_t length = 0;

	for (uint32_t i = 0; i + 1 < n; i++) {
		code[i].tail_calls =
			can_go_on(&code[i]) && can_go_on(&code[i + 1]) && ++length % EXEC_RUN_MAX;
		length = code[i].tail_calls ? length : 0;
	}
}

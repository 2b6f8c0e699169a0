/* Runs a function instruction by instruction in the calling thread and calls back in between, with
 * the processor's trap flag: a thousand times faster than single_step.h, but the callback stands in
 * a signal handler. So it may look at memory and change it, and call nothing else. x86-64 only. */
#ifndef GBPF_TESTS_TRAP_STEP_H
#define GBPF_TESTS_TRAP_STEP_H

#include <signal.h>
#include <stdint.h>
#include <string.h>

static void (*trap_look)(void *);
static void *trap_arg;
static uint64_t trap_steps;

static inline void trap_handler(int number)
{
	(void)number;
	trap_steps++;
	trap_look(trap_arg);
}

/* Returns the count of instructions. */
static inline uint64_t trap_step(void (*run)(void *), void (*look)(void *), void *arg)
{
	struct sigaction act, old;

	memset(&act, 0, sizeof(act));
	act.sa_handler = trap_handler;
	sigaction(SIGTRAP, &act, &old);
	trap_look = look;
	trap_arg = arg;
	trap_steps = 0;
	/* The red zone below the stack pointer stays as it is. */
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\t"
			 "lea 128(%%rsp), %%rsp" ::
				 : "memory", "cc");
	run(arg);
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\t"
			 "lea 128(%%rsp), %%rsp" ::
				 : "memory", "cc");
	sigaction(SIGTRAP, &old, NULL);
	return trap_steps;
}

#endif

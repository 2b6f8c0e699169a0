/* Runs a piece of a child process instruction by instruction and lets the test look at the memory
 * that both share in between. So an order of stores is tested as it happens on the processor that
 * executes it, at each point at which another processor could look. x86-64 only. */
#ifndef GBPF_TESTS_SINGLE_STEP_H
#define GBPF_TESTS_SINGLE_STEP_H

#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS_MAX 200000u /* of one piece; reached only by a test that fails */

/* In the child: marks the begin and the end of a piece. */
static inline void step_mark(void)
{
	raise(SIGSTOP);
}

static inline pid_t step_fork(void (*child)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid == 0) {
		/* a test that fails leaves no stopped process */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
		    ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0) {
			_exit(99);
		}
		child(arg);
		_exit(0);
	}
	return pid;
}

/* Lets the child run to its next mark. Returns false if it has exited instead. */
static inline bool step_to_mark(pid_t pid, bool first)
{
	int status;

	if (!first) {
		ptrace(PTRACE_CONT, pid, NULL, NULL);
	}
	waitpid(pid, &status, 0);
	if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP) {
		return true;
	}
	if (WIFSTOPPED(status)) { /* a crash */
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	return false;
}

/* Executes one instruction of the child. Returns false at its next mark. *ret_wakes: the
 * instruction was a system call that wakes waiters of a futex. */
static inline bool step_one(pid_t pid, bool *ret_wakes)
{
	struct user_regs_struct regs;
	int status;
	long code;

	ptrace(PTRACE_GETREGS, pid, NULL, &regs);
	code = ptrace(PTRACE_PEEKTEXT, pid, (void *)(uintptr_t)regs.rip, NULL);
	*ret_wakes = (code & 0xffff) == 0x050f && regs.rax == SYS_futex &&
		     (regs.rsi & FUTEX_CMD_MASK) == FUTEX_WAKE;
	ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
	waitpid(pid, &status, 0);
	return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

static inline void step_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Memory that the child shares with the test; zeroed. */
static inline void *step_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

#endif

/* Runs unverified programs. The interpreter checks each access. Compiled code does not, so it runs
 * in a child process that has only the memory of the program between guard pages, a limit on CPU
 * time, a parent that enforces a timeout, and a system call filter that allows only write, exit and
 * reading the clock. Programs have no maps and one helper, which needs neither: bpf_ktime_get_ns.
 */
#include "bpf/load/exec_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "bpf/load/jit/jit.h"
#include "bpf/run/decode.h"
#include "bpf/run/exec_mem.h"
#include "bpf/run/policy_image.h"
#include "bpf/run/interp/interp.h"

#define RAW_CPU_SECONDS 1
#define RAW_TIMEOUT_NS UINT64_C(3000000000)
#define RAW_MAX_CODE (8u << 20)
#define PAGE 4096u
#define PREFIX_INSNS 9u

int ebpf_exec_raw_failed(struct report *r, int err, const struct ebpf_insn *insns, size_t n,
			 uint32_t pc)
{
	const char *what = err == -EINVAL && pc < n ? ebpf_insn_unsupported(&insns[pc]) : NULL;

	report_place(r, "insn %u", pc);
	if (what) {
		return report_set(r, err, "insn", "%s is not supported", what);
	}
	switch (err) {
	case -EFAULT:
		report_hint(r, "r1 points to the memory, r2 holds its size; the frame ends at r10");
		return report_set(r, err, "fault",
				  "the access is outside of the memory and the stack");
	case -ETIME:
		return report_set(r, err, "time", "the program does not end within %u instructions",
				  EBPF_RAW_FUEL);
	case -ELOOP:
		return report_set(r, err, "frames", "more than %u frames", EBPF_MAX_FRAMES);
	default:
		report_hint(r, "raw programs have no maps, and no helper but bpf_ktime_get_ns (5)");
		return report_set(r, err, "insn", "no valid instruction, jump target or call");
	}
}

/* Returns an environment without maps, and with the helper that raw programs may call, or NULL. */
static struct ebpf_env *new_env(void)
{
	struct ebpf_env *env = calloc(1, sizeof(*env));

	if (!env) {
		return NULL;
	}
	ebpf_env_init(env);
	for (unsigned i = 0; i < EBPF_HELPER_SLOTS; i++) {
		env->helpers[i] = i == EBPF_SLOT_bpf_ktime_get_ns ? env->helpers[i] : NULL;
	}
	return env;
}

static int interpret(const struct ebpf_insn *insns, uint32_t n, void *mem, size_t mem_bytes,
		     uint64_t *ret_r0, struct report *r)
{
	struct ebpf_memory region = { (uintptr_t)mem, mem_bytes, 1 };
	struct ebpf_checked_run run = { .regions = &region,
					.n_regions = 1,
					.r1 = mem_bytes ? (uintptr_t)mem : 0,
					.r2 = mem_bytes,
					.fuel = EBPF_RAW_FUEL };
	uint32_t pc = 0;
	int err;

	run.env = new_env();
	if (!run.env) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	err = ebpf_interp_checked(insns, n, &run, ret_r0, &pc);
	free(run.env);
	return err ? ebpf_exec_raw_failed(r, err, insns, n, pc) : 0;
}

/* ---- compiled ---- */

/* Resources of the child. The parent creates them, so that nothing is allocated after fork(). */
struct raw {
	ebpf_entry entry;
	struct ebpf_env *env; /* owned */
	void *code;	      /* owned mapping */
	size_t code_bytes;
	uint8_t *guarded; /* owned mapping: a guard page, memory, a guard page; shared with the
			     child */
	size_t guarded_bytes;
	uint8_t *mem; /* into guarded; ends, except for alignment, at the guard page */
};

/* Adds instructions that set the initial values of the interpreter: compiled code gets only r1. */
static uint32_t add_prefix(struct ebpf_insn *out, size_t mem_bytes)
{
	uint32_t n = 0;

	for (unsigned reg = 0; reg < 10; reg++) {
		if (reg != 1) {
			out[n++] = (struct ebpf_insn){ .code = EBPF_ALU64 | EBPF_MOV,
						       .dst = reg & 15,
						       .imm = reg == 2 ? (int32_t)mem_bytes : 0 };
		}
	}
	return n;
}

static int map_compiled(struct raw *x, const uint8_t *code, size_t len)
{
	struct ebpf_exec_part part = { code, 0, len };
	int fd, err;

	x->code_bytes = ROUND_UP(len, PAGE);
	fd = ebpf_exec_create("gbpf-raw", x->code_bytes, &part, 1);
	if (fd < 0) {
		return fd;
	}
	err = ebpf_exec_map(fd, 0, x->code_bytes, &x->code);
	close(fd);
	return err;
}

static int compile(struct raw *x, const struct ebpf_insn *insns, uint32_t n, size_t mem_bytes)
{
	struct ebpf_insn *all = calloc(n + PREFIX_INSNS, sizeof(*all));
	uint8_t *code = malloc(RAW_MAX_CODE);
	size_t len = 0;
	int err = -ENOMEM;

	if (all && code) {
		uint32_t k = add_prefix(all, mem_bytes);

		memcpy(all + k, insns, n * sizeof(*all));
		err = ebpf_jit_x86(all, n + k, NULL, 0, code, RAW_MAX_CODE, &len);
		if (err >= 0) {
			err = map_compiled(x, code, len);
		}
		if (!err) {
			x->entry = (ebpf_entry)(uintptr_t)x->code;
		}
	}
	free(all);
	free(code);
	return err;
}

static int make_memory(struct raw *x, const void *mem, size_t bytes)
{
	size_t room = ROUND_UP(bytes, PAGE);

	x->guarded_bytes = room + 2 * PAGE;
	x->guarded = mmap(NULL, x->guarded_bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (x->guarded == MAP_FAILED) {
		x->guarded = NULL;
		return -ENOMEM;
	}
	if (room && mprotect(x->guarded + PAGE, room, PROT_READ | PROT_WRITE) < 0) {
		return -errno;
	}
	x->mem = x->guarded + PAGE + room - ROUND_UP(bytes, 8u);
	if (bytes) {
		memcpy(x->mem, mem, bytes);
	}
	return 0;
}

/* Allows only write, exit and reading the clock; any other system call kills the child. */
static int confine(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
#if defined(__x86_64__)
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
#else
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
#endif
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { ARRAY_SIZE(rules), rules };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		return -errno;
	}
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0 ? -errno : 0;
}

static NORETURN void child(const struct raw *x, int out, int has_mem)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGXCPU };
	struct rlimit none = { 0, 0 }, cpu = { RAW_CPU_SECONDS, RAW_CPU_SECONDS };
	uint64_t r0;
	int failed;

	for (unsigned i = 0; i < ARRAY_SIZE(faults); i++) {
		signal(faults[i], SIG_DFL);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Close all descriptors except the one for the result, so that a write by the program can
	 * reach nothing else. */
	if (dup2(out, 3) < 0 || syscall(SYS_close_range, 4, ~0u, 0) < 0 ||
	    setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_CPU, &cpu) < 0) {
		_exit(99);
	}
	for (int fd = 0; fd < 3; fd++) {
		close(fd);
	}
	if (confine() < 0) {
		_exit(99);
	}
	r0 = x->entry(has_mem ? x->mem : NULL, x->env);
	/* Raw system calls: the filter forbids the calls that the C library or a sanitizer would
	 * add. */
	failed = syscall(SYS_write, 3, &r0, sizeof(r0)) != sizeof(r0);
	for (;;) {
		syscall(SYS_exit_group, failed);
	}
}

/* Waits for the result or the exit of the child, at most RAW_TIMEOUT_NS. Returns the number of
 * bytes read. */
static size_t read_result(int fd, uint64_t *ret_r0)
{
	uint64_t end = clock_now_ns() + clock_patience(RAW_TIMEOUT_NS);
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		uint64_t now = clock_now_ns();
		int n = now < end ? poll(&p, 1, (int)((end - now) / 1000000 + 1)) : 0;
		ssize_t got;

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return 0;
		}
		got = read(fd, ret_r0, sizeof(*ret_r0));
		return got > 0 ? (size_t)got : 0;
	}
}

static int judge(int status, size_t got, struct report *r)
{
	int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && got == sizeof(uint64_t)) {
		return 0;
	}
	if (sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE || sig == SIGTRAP) {
		report_hint(r, "run it without --jit: the interpreter names the instruction");
		return report_set(r, -EFAULT, "fault",
				  "the compiled program accessed memory that is not its own");
	}
	if (sig == SIGKILL || sig == SIGXCPU) {
		return report_set(r, -ETIME, "time", "the compiled program did not end within %d s",
				  RAW_CPU_SECONDS);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 99) {
		report_hint(r, "run it without --jit");
		return report_set(r, -ENOTSUP, "confine", "system call filters are refused here");
	}
	return report_set(r, -EFAULT, "fault", "the compiled program left its rules (signal %d)",
			  sig);
}

static int run_child(const struct raw *x, int has_mem, uint64_t *ret_r0, struct report *r)
{
	int fds[2], status = 0;
	uint64_t r0 = 0;
	size_t got;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0) {
		return report_set(r, -errno, "system", "no pipe: %s", strerror(errno));
	}
	pid = fork();
	if (pid == 0) {
		child(x, fds[1], has_mem);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return report_set(r, -EAGAIN, "system", "no child process");
	}
	got = read_result(fds[0], &r0);
	if (!got) {
		kill(pid, SIGKILL); /* has exited or timed out */
	}
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	*ret_r0 = r0;
	return judge(status, got, r);
}

static int run_compiled(const struct ebpf_insn *insns, uint32_t n, void *mem, size_t mem_bytes,
			uint64_t *ret_r0, struct report *r)
{
	struct raw x = { .env = new_env() };
	uint64_t r0 = 0;
	int err = x.env ? compile(&x, insns, n, mem_bytes) : -ENOMEM;

	if (err) {
		report_set(r, err, "jit", "the program cannot be compiled: %s", strerror(-err));
	} else {
		err = make_memory(&x, mem, mem_bytes);
	}
	if (!err) {
		err = run_child(&x, mem_bytes != 0, &r0, r);
	}
	if (!err) {
		if (mem_bytes) {
			memcpy(mem, x.mem, mem_bytes);
		}
		*ret_r0 = r0;
	}
	if (x.code) {
		munmap(x.code, x.code_bytes);
	}
	if (x.guarded) {
		munmap(x.guarded, x.guarded_bytes);
	}
	free(x.env);
	return err < 0 ? report_set(r, err, "system", "%s", strerror(-err)) : 0;
}

static int check_size(size_t insn_bytes, size_t mem_bytes, struct report *r)
{
	size_t n = insn_bytes / sizeof(struct ebpf_insn);

	if (!n || insn_bytes % sizeof(struct ebpf_insn)) {
		report_hint(r, "give 16 hexadecimal digits an instruction");
		return report_set(r, -EINVAL, "insn",
				  "%zu bytes are not a whole number of instructions", insn_bytes);
	}
	if (n > EBPF_MAX_INSNS - PREFIX_INSNS || mem_bytes > EBPF_RAW_MAX_MEM) {
		return report_set(r, -E2BIG, "insn",
				  "at most %u instructions and %u bytes of memory",
				  EBPF_MAX_INSNS - PREFIX_INSNS, EBPF_RAW_MAX_MEM);
	}
	return 0;
}

int ebpf_exec_raw_check(const struct ebpf_insn *insns, size_t insn_bytes, size_t mem_bytes,
			struct report *r)
{
	uint32_t n = (uint32_t)(insn_bytes / sizeof(*insns)), pc = 0;
	int err = check_size(insn_bytes, mem_bytes, r);

	if (err) {
		return err;
	}
	if (ebpf_program_check(insns, n, 0, &pc)) {
		return ebpf_exec_raw_failed(r, -EINVAL, insns, n, pc);
	}
	for (pc = 0; pc < n; pc++) {
		if (insns[pc].code == (EBPF_JMP | EBPF_CALL) && insns[pc].src == EBPF_CALL_HELPER &&
		    ebpf_helper_slot(insns[pc].imm) != EBPF_SLOT_bpf_ktime_get_ns) {
			return ebpf_exec_raw_failed(r, -EINVAL, insns, n, pc);
		}
	}
	return 0;
}

int ebpf_exec_raw(const void *insns, size_t insn_bytes, void *mem, size_t mem_bytes, int use_jit,
		  uint64_t *ret_r0, struct report *r)
{
	uint32_t n = (uint32_t)(insn_bytes / sizeof(struct ebpf_insn));
	int err = check_size(insn_bytes, mem_bytes, r);
	struct ebpf_insn *copy;

	if (err) {
		return err;
	}
	copy = malloc(insn_bytes);
	if (!copy) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	memcpy(copy, insns, insn_bytes);
	err = use_jit ? ebpf_exec_raw_check(copy, insn_bytes, mem_bytes, r) : 0;
	if (!err) {
		err = use_jit ? run_compiled(copy, n, mem, mem_bytes, ret_r0, r)
			      : interpret(copy, n, mem, mem_bytes, ret_r0, r);
	}
	free(copy);
	return err;
}

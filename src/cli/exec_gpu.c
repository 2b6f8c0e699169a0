/* Runs a raw program's PTX on a GPU. A child process makes the driver's calls, so that a driver
 * that hangs or crashes costs no more than a message, and the GPU is left as it was. */
#include "cli/exec_gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "bpf/load/exec_ptx.h"
#include "bpf/load/exec_raw.h"
#include "bpf/run/insn.h"
#include "cli/interrupt.h"

#define WALL_SECONDS 120 /* includes the start of the soft GPU and the compiler of the driver */
/* Stack of a thread for a program with functions, whose depth the driver cannot compute: frames,
 * and calls in each other. The driver takes as much memory for each thread that the GPU can hold.
 */
#define STACK_BYTES ((size_t)8 << 10)

/* CUDA's numbers that are used here. */
#define CUDA_LIMIT_STACK_SIZE 0
#define CUDA_JIT_ERROR_LOG 5
#define CUDA_JIT_ERROR_LOG_BYTES 6

/* The driver calls used; results are CUresult. */
struct calls {
	int (*init)(unsigned flags);
	int (*device)(int *ret, int n);
	int (*context)(void **ret, unsigned flags, int device);
	int (*limit)(int limit, size_t value);
	int (*load)(void **ret, const void *image, unsigned n, const int *options, void **values);
	int (*function)(void **ret, void *module, const char *name);
	int (*alloc)(uint64_t *ret, size_t bytes);
	int (*to_device)(uint64_t to, const void *from, size_t bytes);
	int (*from_device)(void *to, uint64_t from, size_t bytes);
	int (*launch)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
		      unsigned bz, unsigned shared, void *stream, void **params, void **extra);
	int (*synchronize)(void);
	int (*error_name)(int error, const char **ret);
};

static const struct {
	const char *name;
	size_t offset;
} symbols[] = {
	{ "cuInit", offsetof(struct calls, init) },
	{ "cuDeviceGet", offsetof(struct calls, device) },
	{ "cuCtxCreate_v2", offsetof(struct calls, context) },
	{ "cuCtxSetLimit", offsetof(struct calls, limit) },
	{ "cuModuleLoadDataEx", offsetof(struct calls, load) },
	{ "cuModuleGetFunction", offsetof(struct calls, function) },
	{ "cuMemAlloc_v2", offsetof(struct calls, alloc) },
	{ "cuMemcpyHtoD_v2", offsetof(struct calls, to_device) },
	{ "cuMemcpyDtoH_v2", offsetof(struct calls, from_device) },
	{ "cuLaunchKernel", offsetof(struct calls, launch) },
	{ "cuCtxSynchronize", offsetof(struct calls, synchronize) },
	{ "cuGetErrorName", offsetof(struct calls, error_name) },
};

/* Shared with the child. */
struct shared {
	struct ebpf_ptx_env env;
	size_t mem_bytes;
	int has_functions; /* the program calls functions of its own */
	int finished;	   /* 1: all calls succeeded */
	char call[40];	   /* the last call that was made; empty: the library was not loaded */
	char error[1024];  /* name of the error of the call, or the message of the loader */
	char log[2048];	   /* of the driver's compiler */
	uint8_t mem[EBPF_RAW_MAX_MEM];
};

/* ---- in the child ---- */

static void find_symbols(struct shared *s, void *lib, struct calls *f)
{
	for (unsigned i = 0; i < ARRAY_SIZE(symbols); i++) {
		void *at = dlsym(lib, symbols[i].name);

		if (!at) {
			snprintf(s->error, sizeof(s->error), "it has no %s", symbols[i].name);
			_exit(1);
		}
		memcpy((char *)f + symbols[i].offset, &at, sizeof(at));
	}
}

/* Ends the child if the call failed. */
static void made(struct shared *s, const struct calls *f, const char *call, int result)
{
	const char *name = "?";

	snprintf(s->call, sizeof(s->call), "%s", call);
	if (result) {
		f->error_name(result, &name);
		snprintf(s->error, sizeof(s->error), "%s", name ? name : "?");
		_exit(1);
	}
}

static void *load(struct shared *s, const struct calls *f, const char *ptx)
{
	const int options[] = { CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES };
	void *values[] = { s->log, (void *)(uintptr_t)(sizeof(s->log) - 1) };
	void *module, *function;

	made(s, f, "cuModuleLoadDataEx", f->load(&module, ptx, 2, options, values));
	made(s, f, "cuModuleGetFunction", f->function(&function, module, EBPF_EXEC_PTX_ENTRY));
	return function;
}

static void run(struct shared *s, const struct calls *f, const char *ptx)
{
	uint64_t env = 0, mem = 0;
	void *params[] = { &env };
	void *context, *function;
	int device;

	made(s, f, "cuInit", f->init(0));
	made(s, f, "cuDeviceGet", f->device(&device, 0));
	made(s, f, "cuCtxCreate", f->context(&context, 0, device));
	if (s->has_functions) {
		made(s, f, "cuCtxSetLimit", f->limit(CUDA_LIMIT_STACK_SIZE, STACK_BYTES));
	}
	function = load(s, f, ptx);
	made(s, f, "cuMemAlloc", f->alloc(&env, sizeof(s->env)));
	made(s, f, "cuMemAlloc", f->alloc(&mem, s->mem_bytes ? s->mem_bytes : 1));
	ebpf_exec_ptx_begin(&s->env, mem, s->mem_bytes);
	made(s, f, "cuMemcpyHtoD", f->to_device(env, &s->env, sizeof(s->env)));
	if (s->mem_bytes) {
		made(s, f, "cuMemcpyHtoD", f->to_device(mem, s->mem, s->mem_bytes));
	}
	made(s, f, "cuLaunchKernel", f->launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	made(s, f, "cuCtxSynchronize", f->synchronize());
	made(s, f, "cuMemcpyDtoH", f->from_device(&s->env, env, sizeof(s->env)));
	if (s->mem_bytes) {
		made(s, f, "cuMemcpyDtoH", f->from_device(s->mem, mem, s->mem_bytes));
	}
	s->finished = 1;
}

static NORETURN void child(struct shared *s, const char *libcuda, const char *ptx)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct calls f = { 0 };
	void *lib;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int fd = 0; fd < 3 && null >= 0; fd++) {
		dup2(null, fd);
	}
	lib = dlopen(libcuda, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *e = dlerror();

		snprintf(s->error, sizeof(s->error), "%s", e ? e : "dlopen failed");
		_exit(1);
	}
	find_symbols(s, lib, &f);
	run(s, &f, ptx);
	_exit(0);
}

/* ---- in the parent ---- */

/* Waits until the child has closed its end, at most WALL_SECONDS. Returns false on a timeout or an
 * interrupt. */
static bool wait_end(int fd)
{
	uint64_t end = clock_now_ns() + WALL_SECONDS * UINT64_C(1000000000), now;

	while ((now = clock_now_ns()) < end && !cli_interrupted()) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (poll(&p, 1, (int)((end - now) / 1000000 + 1)) > 0) {
			return true;
		}
	}
	return false;
}

static int judge(const struct shared *s, bool ended, int status, struct report *r)
{
	if (!ended) {
		return report_set(r, -ETIME, "time", "the GPU did not answer within %d s",
				  WALL_SECONDS);
	}
	if (WIFSIGNALED(status)) {
		return report_set(r, -EFAULT, "driver",
				  "the driver crashed in or after %s (signal %d)",
				  s->call[0] ? s->call : "its start", WTERMSIG(status));
	}
	if (s->finished) {
		return 0;
	}
	if (!s->call[0]) {
		return report_set(r, -ENODEV, "driver", "the driver's library cannot be used: %s",
				  s->error);
	}
	if (s->log[0]) {
		return report_set(r, -EIO, "ptx", "%s: %s: %s", s->call, s->error, s->log);
	}
	return report_set(r, -ENODEV, "driver", "%s: %s", s->call, s->error);
}

static int run_child(const char *libcuda, const char *ptx, struct shared *s, struct report *r)
{
	int fd[2], status = 0;
	bool ended;
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC) < 0) {
		return report_set(r, -errno, "system", "no pipe: %s", strerror(errno));
	}
	pid = fork();
	if (pid == 0) {
		child(s, libcuda, ptx);
	}
	fd_close(fd[1]);
	if (pid < 0) {
		fd_close(fd[0]);
		return report_set(r, -EAGAIN, "system", "no child process");
	}
	ended = wait_end(fd[0]);
	fd_close(fd[0]);
	if (!ended) {
		kill(pid, SIGKILL);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	s->call[sizeof(s->call) - 1] = 0;
	s->error[sizeof(s->error) - 1] = 0;
	s->log[sizeof(s->log) - 1] = 0;
	return judge(s, ended, status, r);
}

static bool has_functions(const struct buf *insns)
{
	struct ebpf_insn i;

	for (size_t at = 0; at + sizeof(i) <= insns->len; at += sizeof(i)) {
		memcpy(&i, insns->data + at, sizeof(i));
		if (i.code == (EBPF_JMP | EBPF_CALL)) {
			return true;
		}
	}
	return false;
}

int cli_exec_gpu(const char *libcuda, const struct buf *insns, struct buf *mem, uint64_t *ret_r0,
		 struct report *r)
{
	struct buf ptx = { 0 };
	struct shared *s;
	int err = ebpf_exec_ptx_module(insns->data, insns->len, mem->len, &ptx, r);

	if (err) {
		buf_finish(&ptx);
		return err;
	}
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED) {
		buf_finish(&ptx);
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	s->mem_bytes = mem->len;
	s->has_functions = has_functions(insns);
	if (mem->len) {
		memcpy(s->mem, mem->data, mem->len);
	}
	err = run_child(libcuda, buf_text(&ptx), s, r);
	if (!err) {
		err = ebpf_exec_ptx_end(&s->env, ret_r0, r);
	}
	if (!err && mem->len) {
		memcpy(mem->data, s->mem, mem->len);
	}
	munmap(s, sizeof(*s));
	buf_finish(&ptx);
	return err;
}

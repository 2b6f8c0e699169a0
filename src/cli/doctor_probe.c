/* The probe: a child that loads a libcuda, queries its devices, and reports through a pipe. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cli/doctor.h"
#include "cli/interrupt.h"

/* The driver calls used; results are CUresult. */
struct calls {
	int (*init)(unsigned flags);
	int (*count)(int *n);
	int (*version)(int *v);
	int (*name)(char *out, int cap, int device);
	int (*mem)(size_t *bytes, int device); /* NULL: not there */
};

static void *symbol(void *lib, const char *name)
{
	return dlsym(lib, name);
}

static void ask(const char *libcuda, struct cli_doctor_probe *p)
{
	void *lib = dlopen(libcuda, RTLD_NOW | RTLD_LOCAL);
	struct calls f;

	if (!lib) {
		const char *e = dlerror();

		snprintf(p->error, sizeof(p->error), "%s", e ? e : "dlopen failed");
		return;
	}
	p->stage = CLI_PROBE_LOADED;
	*(void **)&f.init = symbol(lib, "cuInit");
	*(void **)&f.count = symbol(lib, "cuDeviceGetCount");
	*(void **)&f.version = symbol(lib, "cuDriverGetVersion");
	*(void **)&f.name = symbol(lib, "cuDeviceGetName");
	*(void **)&f.mem = symbol(lib, "cuDeviceTotalMem_v2");
	if (!f.init || !f.count || !f.version || !f.name) {
		return;
	}
	p->stage = CLI_PROBE_SYMBOLS;
	p->result = f.init(0);
	if (p->result) {
		return;
	}
	p->stage = CLI_PROBE_INIT;
	p->result = f.count(&p->devices);
	if (p->result) {
		return;
	}
	p->stage = CLI_PROBE_COUNT;
	if (f.version(&p->version) == 0 &&
	    (p->devices == 0 || f.name(p->name, sizeof(p->name), 0) == 0)) {
		p->stage = CLI_PROBE_DONE;
	}
	for (int i = 0; i < p->devices && f.mem; i++) {
		size_t bytes = 0;

		if (f.mem(&bytes, i) == 0 && (!p->least_mem || bytes < p->least_mem)) {
			p->least_mem = bytes;
		}
	}
}

/* The NVML's answers: stage as of a libcuda, result of nvmlInit. */
static void ask_nvml(const char *path, bool start, struct cli_doctor_probe *p)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*init)(void);

	if (!lib) {
		return;
	}
	p->stage = CLI_PROBE_LOADED;
	*(void **)&init = symbol(lib, "nvmlInit_v2");
	if (!init || !symbol(lib, "nvmlDeviceGetHandleByUUID") ||
	    !symbol(lib, "nvmlDeviceGetComputeRunningProcesses_v3")) {
		return;
	}
	p->stage = CLI_PROBE_SYMBOLS;
	p->result = start ? init() : 0;
	p->stage = p->result ? CLI_PROBE_SYMBOLS : CLI_PROBE_DONE;
}

/* What a child asks a library. */
struct question {
	const char *path;
	bool is_nvml, start;
};

static void NORETURN child(const struct question *q, int out)
{
	struct cli_doctor_probe p = { 0 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
	}
	if (q->is_nvml) {
		ask_nvml(q->path, q->start, &p);
	} else {
		ask(q->path, &p);
	}
	_exit(write(out, &p, sizeof(p)) == (ssize_t)sizeof(p) ? 0 : 1);
}

/* The answer is shorter than PIPE_BUF, so it arrives in one read. Returns false if the child has
 * ended without one; true with CLI_PROBE_TIMEOUT if none came in time. */
static bool read_answer(int fd, uint64_t timeout_ns, struct cli_doctor_probe *ret)
{
	uint64_t end = clock_now_ns() + timeout_ns, now;

	while ((now = clock_now_ns()) < end && !cli_interrupted()) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (poll(&p, 1, (int)MIN((end - now) / 1000000 + 1, (uint64_t)60000)) > 0) {
			return read(fd, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret);
		}
	}
	ret->stage = CLI_PROBE_TIMEOUT;
	return true;
}

static void probe(const struct question *q, uint64_t timeout_ns, struct cli_doctor_probe *ret)
{
	int fd[2], status = 0;
	pid_t pid;

	memset(ret, 0, sizeof(*ret));
	if (pipe2(fd, O_CLOEXEC) < 0) {
		snprintf(ret->error, sizeof(ret->error), "pipe: %s", strerror(errno));
		return;
	}
	pid = fork();
	if (pid == 0) {
		child(q, fd[1]);
	}
	fd_close(fd[1]);
	if (pid < 0) {
		snprintf(ret->error, sizeof(ret->error), "fork: %s", strerror(errno));
	} else {
		if (!read_answer(fd[0], timeout_ns, ret)) {
			memset(ret, 0, sizeof(*ret));
		}
		if (ret->stage == CLI_PROBE_TIMEOUT) {
			kill(pid, SIGKILL);
		}
		waitpid(pid, &status, 0);
		if (WIFSIGNALED(status) && ret->stage != CLI_PROBE_TIMEOUT) {
			ret->signal = WTERMSIG(status);
		}
	}
	ret->name[sizeof(ret->name) - 1] = 0;
	ret->error[sizeof(ret->error) - 1] = 0;
	fd_close(fd[0]);
}

void cli_doctor_probe(const char *libcuda, uint64_t timeout_ns, struct cli_doctor_probe *ret)
{
	probe(&(struct question){ .path = libcuda }, timeout_ns, ret);
}

int cli_doctor_probe_nvml(const char *path, bool start, uint64_t timeout_ns, int *ret_code)
{
	struct cli_doctor_probe p;

	probe(&(struct question){ path, true, start }, timeout_ns, &p);
	*ret_code = p.result;
	if (p.signal || p.stage == CLI_PROBE_TIMEOUT) {
		return -EFAULT;
	}
	return p.stage == CLI_PROBE_DONE      ? 0
	       : p.stage == CLI_PROBE_SYMBOLS ? -EIO
	       : p.stage == CLI_PROBE_LOADED  ? -ENOSYS
					      : -ENOENT;
}

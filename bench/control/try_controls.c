/* bench-control [LIBCUDA]: results and costs of a GPU's controls, for remote diagnosis of a machine
 * where they fail. At most 60 lines; ends within two minutes, whatever the driver does. It switches
 * only its own work off and on and kills only its own processes. */
#include "bench/control/try_controls.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "gpu/rm.h"

#define SECONDS 110
#define CHILD_SECONDS 60

static struct bench_shared *shared;
static const char *library = "libcuda.so.1";

/* ---- the machine ---- */

static void first_line(const char *what, const char *path)
{
	char text[200] = "?";
	FILE *f = fopen(path, "re");

	if (f) {
		if (fgets(text, sizeof(text), f)) {
			text[strcspn(text, "\n")] = 0;
		}
		fclose(f);
	}
	bench_say("%-22s %s", what, text);
}

static void machine(void)
{
	struct dirent *e;
	char nodes[300] = "";
	DIR *d = opendir("/dev");

	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, "nvidia", 6) == 0) {
			size_t n = strlen(nodes);

			snprintf(nodes + n, sizeof(nodes) - n, " %s%s", e->d_name,
				 access("/dev", R_OK) ? "?" : "");
		}
	}
	if (d) {
		closedir(d);
	}
	first_line("driver", "/proc/driver/nvidia/version");
	first_line("kernel", "/proc/sys/kernel/osrelease");
	first_line("ptrace_scope", "/proc/sys/kernel/yama/ptrace_scope");
	bench_say("%-22s uid %d, nodes%s, MPS pipes %s", "process", (int)getuid(),
		  nodes[0] ? nodes : " none",
		  getenv("CUDA_MPS_PIPE_DIRECTORY") ? getenv("CUDA_MPS_PIPE_DIRECTORY") : "-");
}

/* ---- children ---- */

static pid_t spawn(void (*run)(int sock, int how), int how, int *ret_sock)
{
	int pair[2];
	pid_t pid;

	*ret_sock = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		return -1;
	}
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(CHILD_SECONDS);
		close(pair[0]);
		run(pair[1], how);
		_exit(0);
	}
	close(pair[1]);
	*ret_sock = pair[0];
	return pid;
}

static void as_tenant(int sock, int how)
{
	(void)how;
	bench_tenant_run(library, sock);
}

static void as_victim(int sock, int how)
{
	bench_victim_run(library, sock, (enum bench_victim)how, shared);
}

static void as_observer(int sock, int how)
{
	(void)sock, (void)how;
	bench_observer_run(library, shared);
}

/* ---- from outside ---- */

struct told {
	struct gpu_handles h;
	int control, page;
};

/* Receives a message; returns false if the child ended without sending it. */
static bool hear(int sock, struct told *t)
{
	int fds[FD_PASS_MAX];
	unsigned n = 0;

	t->control = t->page = -1;
	if (msg_recv(sock, &t->h, sizeof(t->h), fds, &n) != sizeof(t->h)) {
		return false;
	}
	t->control = n > 0 ? fds[0] : -1;
	t->page = n > 1 ? fds[1] : -1;
	return true;
}

static void outside_control(const struct told *t, enum gpu_control what, uint64_t value)
{
	uint64_t ret = 0, start = clock_now_ns();
	int err = gpu_control(&t->h, t->control, what, value, &ret);

	bench_say("outside %-14.14s %d  value %llu got %llu  status 0x%x  %.0f us",
		  gpu_control_name(what), err, (unsigned long long)value, (unsigned long long)ret,
		  gpu_rm_last_status(), bench_us_since(start));
}

static void outside(const struct told *t)
{
	struct gpu_lease_page p;
	uint64_t start;
	int err;

	outside_control(t, GPU_CONTROL_SLICE_GET, 0);
	outside_control(t, GPU_CONTROL_SLICE_SET, 500);
	outside_control(t, GPU_CONTROL_SLICE_SET, 0);
	outside_control(t, GPU_CONTROL_PREEMPT, 1);
	outside_control(t, GPU_CONTROL_SCHEDULE, 0);
	outside_control(t, GPU_CONTROL_SCHEDULE, 1);
	err = t->page >= 0 ? gpu_lease_map(&p, t->page) : -EBADF;
	if (err) {
		bench_say("outside flag page      cannot be mapped: %d", err);
		return;
	}
	start = clock_now_ns();
	for (uint32_t i = 0; i < 1000; i++) {
		gpu_lease_store(&p, 62, i);
		gpu_lease_fence();
	}
	bench_say("outside flag page      mapped; store and fence %.0f ns", bench_us_since(start));
	gpu_lease_store(&p, 62, 4242); /* the tenant checks it */
	gpu_lease_fence();
	gpu_lease_unmap(&p);
}

static void tenant(void)
{
	struct told t;
	int sock, status;
	pid_t pid = spawn(as_tenant, 0, &sock);

	if (pid > 0 && hear(sock, &t)) {
		outside(&t);
		(void)msg_send(sock, "x", 1, NULL, 0);
		fd_close(t.control);
		fd_close(t.page);
	}
	(void)waitpid(pid, &status, 0);
	bench_say("%-22s %s %d", "tenant", WIFSIGNALED(status) ? "killed by signal" : "ended with",
		  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	close(sock);
}

/* ---- what a dead tenant leaves ---- */

/* Returns the milliseconds until bytes are free again, -1: not within the time. */
static double until_free(uint64_t start, uint64_t bytes, uint64_t timeout_ns)
{
	while (clock_now_ns() - start < timeout_ns) {
		if (shared->seen_ns > start && shared->free_bytes >= bytes) {
			return (double)(shared->seen_ns - start) / 1e6;
		}
		clock_sleep_ns(1000000);
	}
	return -1;
}

static void victim(enum bench_victim how)
{
	static const char *const names[VICTIMS] = {
		[VICTIM_ALONE] = "nothing kept",
		[VICTIM_PAGE] = "page kept",
		[VICTIM_PAGE_SHARED] = "page of CUDA's client",
		[VICTIM_CONTROL] = "control kept",
	};
	struct gpu_lease_page p = { 0 };
	double died, after, reaped;
	uint64_t back, start;
	struct told t;
	int sock, status;
	pid_t pid = spawn(as_victim, (int)how, &sock);

	if (pid < 0 || !hear(sock, &t)) {
		bench_say("killed, %-21s the tenant did not start", names[how]);
		(void)waitpid(pid, &status, 0);
		close(sock);
		return;
	}
	(void)gpu_lease_map(&p, t.page);
	clock_sleep_ns(30000000);
	back = shared->free_bytes + shared->allocated_bytes / 10 * 9;
	start = clock_now_ns();
	kill(pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	reaped = bench_us_since(start) / 1e3;
	died = until_free(start, back, UINT64_C(1500000000));
	gpu_lease_unmap(&p);
	fd_close(t.page);
	fd_close(t.control);
	start = clock_now_ns();
	after = died < 0 ? until_free(start, back, UINT64_C(3000000000)) : 0;
	bench_say("killed, %-21s reaped in %.0f ms, %llu MiB back after %.0f ms (-1: not in 1500), "
		  "after "
		  "letting go %.0f ms",
		  names[how], reaped, (unsigned long long)(shared->allocated_bytes >> 20), died,
		  after);
	close(sock);
}

static void victims(void)
{
	int sock, status;
	pid_t pid = spawn(as_observer, 0, &sock);

	for (int i = 0; i < 1000 && !shared->ready; i++) {
		clock_sleep_ns(10000000);
	}
	for (int how = 0; shared->ready && how < VICTIMS; how++) {
		victim((enum bench_victim)how);
	}
	shared->stop = 1;
	kill(pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	close(sock);
}

int main(int argc, char **argv)
{
	library = argc > 1 ? argv[1] : library;
	alarm(SECONDS);
	signal(SIGPIPE, SIG_IGN);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		return 1;
	}
	gpu_control_soft_library(library);
	machine();
	tenant();
	victims();
	return 0;
}

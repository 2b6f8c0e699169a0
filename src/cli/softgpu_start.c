/* Runs the soft GPU's server as a child. */
#include "cli/softgpu_start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/paths.h"
#include "cli/interrupt.h"

#define START_MS 15000
#define ARGS_MAX 16

static void NORETURN serve(const char *path, const char *sock, const char *const *more, int ready,
			   const sigset_t *mask)
{
	const char *argv[ARGS_MAX] = { path, "--foreground", "--socket", sock, "--ready-fd" };
	char number[16];
	int n = 5;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setpgid(0, 0); /* ^C in the terminal ends the program first; the server is stopped
			  afterwards */
	fcntl(ready, F_SETFD, 0);
	snprintf(number, sizeof(number), "%d", ready);
	argv[n++] = number;
	while (*more && n < ARGS_MAX - 1) {
		argv[n++] = *more++;
	}
	unsetenv("LD_PRELOAD");
	cli_interrupt_default(mask);
	execv(path, (char *const *)(uintptr_t)argv);
	_exit(127);
}

static bool is_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte;

	return poll(&p, 1, (int)clock_patience(START_MS)) == 1 && read(fd, &byte, 1) == 1;
}

int cli_softgpu_start(const char *dir, const char *const *more, pid_t *ret)
{
	char path[PATH_MAX], sock[128];
	int ready[2], err = path_program(path, sizeof(path), "gbpf-softgpu");
	sigset_t mask;
	pid_t pid;

	if (err || pipe2(ready, O_CLOEXEC) < 0) {
		return err ? err : -errno;
	}
	snprintf(sock, sizeof(sock), "%s/softgpu.sock", dir);
	cli_interrupt_hold(&mask);
	pid = fork();
	if (pid == 0) {
		serve(path, sock, more, ready[1], &mask);
	}
	err = pid < 0 ? -errno : 0;
	sigprocmask(SIG_SETMASK, &mask, NULL);
	fd_close(ready[1]);
	if (!err && !is_ready(ready[0])) {
		cli_softgpu_stop(pid);
		err = -ENOEXEC;
	}
	fd_close(ready[0]);
	*ret = err ? 0 : pid;
	return err;
}

int cli_softgpu_stop(pid_t pid)
{
	int status = 0;

	if (pid > 0) {
		kill(pid, SIGTERM);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
		}
	}
	return status;
}

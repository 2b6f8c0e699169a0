/* The checking soft GPU behind `gbpf run --check`. It lives as long as the program, writes what it
 * finds to our standard error, and its exit code says whether it found something. */
#include "cli/run_check.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/paths.h"

#define START_MS 5000

/* The child: nothing of the program's signals reaches it, and it does not outlive us. */
static void NORETURN serve(const char *path, const char *sock, int ready)
{
	char number[16];

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setpgid(0, 0);
	snprintf(number, sizeof(number), "%d", ready);
	unsetenv("LD_PRELOAD");
	execl(path, path, "--check", "--socket", sock, "--ready-fd", number, (char *)NULL);
	_exit(127);
}

static bool is_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte;

	return poll(&p, 1, START_MS) == 1 && read(fd, &byte, 1) == 1;
}

static int start(struct run_check *k, const char *path, const char *sock)
{
	int ready[2];
	bool ok;

	if (pipe(ready) < 0) {
		return -errno;
	}
	k->pid = fork();
	if (k->pid == 0) {
		close(ready[0]);
		serve(path, sock, ready[1]);
	}
	close(ready[1]);
	ok = k->pid > 0 && is_ready(ready[0]);
	close(ready[0]);
	return ok ? 0 : -EIO;
}

int run_check_start(struct cli *c, struct run_check *k)
{
	char path[PATH_MAX], sock[96];
	int err;

	snprintf(k->dir, sizeof(k->dir), "/tmp/gbpf-check-XXXXXX");
	if (!mkdtemp(k->dir)) {
		return cli_fail(c, CLI_RUN_FAILED, "check", NULL, "run: no folder in /tmp: %s",
				strerror(errno));
	}
	snprintf(sock, sizeof(sock), "%s/softgpu.sock", k->dir);
	err = path_program(path, sizeof(path), "gbpf-softgpu");
	err = err ? err : start(k, path, sock);
	if (err || setenv("GBPF_SOFTGPU_SOCKET", sock, 1) < 0) {
		run_check_end(k, 0);
		return cli_fail(
			c, CLI_RUN_FAILED, "check",
			"Is gBPF installed whole? GBPF_BINDIR can say where its programs are",
			"run: gbpf-softgpu cannot be started");
	}
	return CLI_OK;
}

static void remove_folder(const char *dir)
{
	static const char *const leaves[] = { "softgpu.sock", "softgpu.sock.lock",
					      "softgpu.sock.start", "softgpu.log" };
	char path[96];

	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, leaves[i]);
		unlink(path);
	}
	rmdir(dir);
}

int run_check_end(struct run_check *k, int code)
{
	int status = 0;

	if (k->pid > 0) {
		kill(k->pid, SIGTERM);
		while (waitpid(k->pid, &status, 0) < 0 && errno == EINTR) {
		}
	}
	k->pid = 0;
	remove_folder(k->dir);
	return code == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ? CLI_FAILED : code;
}

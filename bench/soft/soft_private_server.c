/* The server that `gbpf bench soft` measures: one of its own in a folder of its own, or the running
 * one; and queries of its statistics. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "bench/soft/bench_soft.h"
#include "soft/socket.h"

#define SETTLE_NS 5000000000ull

/* Creates the folder. It contains sockets, whose paths are limited in length. */
static int make_place(struct bench_soft *b)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(b->dir, sizeof(b->dir), "%s/gbpf-bench-XXXXXX",
		 tmp && tmp[0] == '/' && strlen(tmp) < 64 ? tmp : "/tmp");
	if (!mkdtemp(b->dir)) {
		b->dir[0] = '\0';
		return -errno;
	}
	snprintf(b->socket, sizeof(b->socket), "%s/softgpu.sock", b->dir);
	return setenv("GBPF_RUNTIME_DIR", b->dir, 1) == 0 &&
			       setenv("GBPF_STATE_DIR", b->dir, 1) == 0
		       ? 0
		       : -ENOMEM;
}

static int start_own(struct bench_soft *b)
{
	char number[16], byte;
	int fd[2], err = make_place(b);
	pid_t pid;

	if (err || pipe2(fd, O_CLOEXEC) < 0) {
		return err ? err : -errno;
	}
	snprintf(number, sizeof(number), "%d", fd[1]);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0); /* the terminal's ^C ends the measuring process, then the supervisor
				  ends the server */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		fcntl(fd[1], F_SETFD, 0);
		execl(b->server, b->server, "--foreground", "--socket", b->socket, "--ready-fd",
		      number, "--idle-exit", "60", (char *)NULL);
		_exit(127);
	}
	err = pid < 0 ? -errno : 0;
	fd_close(fd[1]);
	if (!err && read(fd[0], &byte, 1) != 1) {
		waitpid(pid, NULL, 0);
		pid = 0;
		err = -ENOEXEC;
	}
	fd_close(fd[0]);
	b->server_pid = pid;
	return err;
}

static int ask(struct bench_soft *b, uint32_t op, struct soft_reply *ret, struct peer *ret_peer)
{
	struct soft_request q = { .op = op, .object = SOFT_VERSION }; /* required by hello */
	int fds[FD_PASS_MAX], sock = unix_connect(b->socket, SOCK_SEQPACKET);
	unsigned nfds = 0;
	ssize_t n;

	if (sock < 0) {
		return sock;
	}
	memset(ret, 0, sizeof(*ret));
	n = msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0);
	n = n < 0 ? n : msg_recv(sock, ret, sizeof(*ret), fds, &nfds);
	for (unsigned i = 0; i < nfds; i++) {
		fd_close(fds[i]);
	}
	if (n >= 0 && ret_peer) {
		int err = fd_peer(sock, ret_peer);

		n = err < 0 ? err : n;
	}
	fd_close(sock);
	return n < 0 ? (int)n : n < (ssize_t)SOFT_REPLY_MIN || ret->result ? -EPROTO : 0;
}

int bench_soft_server_start(struct bench_soft *b)
{
	static struct soft_reply r;
	struct peer peer;
	int err;

	unsetenv("LD_PRELOAD");
	unsetenv("GBPF_OFF");
	if (b->running) {
		err = soft_socket_path(b->socket, sizeof(b->socket), false);
	} else {
		err = start_own(b);
	}
	err = err ? err : setenv("GBPF_SOFTGPU_SOCKET", b->socket, 1) ? -ENOMEM : 0;
	err = err ? err : ask(b, SOFT_REQ_STATS, &r, &peer);
	if (err) {
		return err;
	}
	b->server_pid = peer.pid;
	err = ask(b, SOFT_REQ_HELLO, &r, NULL); /* returns the server's settings */
	b->hello = r.hello;
	return err;
}

void bench_soft_server_stop(struct bench_soft *b)
{
	static const char *const leaves[] = { "", ".lock", ".start" };
	char path[160];

	if (b->running) {
		return;
	}
	if (b->server_pid > 0) {
		kill(b->server_pid, SIGTERM);
		waitpid(b->server_pid, NULL, 0);
	}
	for (size_t i = 0; b->dir[0] && i < ARRAY_SIZE(leaves); i++) {
		snprintf(path, sizeof(path), "%s%s", b->socket, leaves[i]);
		unlink(path);
	}
	if (b->dir[0]) {
		rmdir(b->dir);
	}
}

int bench_soft_server_stats(struct bench_soft *b, struct soft_stats *ret)
{
	static struct soft_reply r;
	int err = ask(b, SOFT_REQ_STATS, &r, NULL);

	*ret = r.stats;
	return err;
}

int bench_soft_server_settled(struct bench_soft *b, struct soft_stats *ret)
{
	uint64_t end = clock_now_ns() + clock_patience(SETTLE_NS);
	int err;

	do {
		err = bench_soft_server_stats(b, ret);
		if (err || (ret->clients <= 1 && ret->contexts == 0)) {
			return err;
		}
		clock_sleep_ns(1000000);
	} while (clock_now_ns() < end);
	return b->running ? 0 : -ETIMEDOUT;
}

uint64_t bench_soft_server_cpu_ns(struct bench_soft *b)
{
	char path[96];
	uint64_t sum = 0;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)b->server_pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		unsigned long long ns = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", (int)b->server_pid,
			 e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (f) {
			sum += fscanf(f, "%llu", &ns) == 1 ? ns : 0;
			fclose(f);
		}
	}
	if (d) {
		closedir(d);
	}
	return sum;
}

uint64_t bench_soft_server_memory(struct bench_soft *b)
{
	char path[64];
	unsigned long long size, resident, shared;
	uint64_t bytes = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)b->server_pid);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%llu %llu %llu", &size, &resident, &shared) == 3) {
			bytes = resident * (uint64_t)sysconf(_SC_PAGESIZE);
		}
		fclose(f);
	}
	return bytes;
}

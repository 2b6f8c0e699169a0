/* The link to the server: connecting, starting it when there is none, requests, and the agent
 * thread that runs host functions and notices at once when the server has gone. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/paths.h"
#include "base/shm.h"
#include "soft/client/client.h"
#include "soft/client/host.h"

#define START_TIMEOUT_MS 5000
#define SOCKET_PATH_MAX 108

static int socket_path(char *out, size_t cap)
{
	const char *given = getenv("GBPF_SOFTGPU_SOCKET");
	char dir[SOCKET_PATH_MAX];
	int err;

	if (given && given[0] == '/') {
		return (size_t)snprintf(out, cap, "%s", given) < cap ? 0 : -ENAMETOOLONG;
	}
	err = path_runtime(dir, sizeof(dir), NULL);
	err = err ? err : path_make_private(dir, path_runtime_mode());
	return err ? err : path_runtime(out, cap, "softgpu.sock");
}

/* The server's program: $GBPF_SOFTGPU, or found from where this library lies (installed, or in a
 * build folder). */
static int server_path(char *out, size_t cap)
{
	static const char *const places[] = { "../../../bin/gbpf-softgpu",
					      "../../../../bin/gbpf-softgpu", "gbpf-softgpu" };
	const char *given = getenv("GBPF_SOFTGPU");
	char own[PATH_MAX], *slash;
	Dl_info info;

	if (given && given[0]) {
		return (size_t)snprintf(out, cap, "%s", given) < cap ? 0 : -ENAMETOOLONG;
	}
	if (!dladdr((const void *)&soft, &info) || !info.dli_fname ||
	    !realpath(info.dli_fname, own)) {
		return -ENOENT;
	}
	slash = strrchr(own, '/');
	*slash = 0;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if ((size_t)snprintf(out, cap, "%s/%s", own, places[i]) < cap &&
		    access(out, X_OK) == 0) {
			return 0;
		}
	}
	return -ENOENT;
}

/* The environment without what would load a driver library into the server. */
static char **server_environment(void)
{
	size_t n = 0, kept = 0;
	char **env;

	while (environ[n]) {
		n++;
	}
	env = calloc(n + 1, sizeof(*env));
	for (size_t i = 0; env && i < n; i++) {
		if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0 &&
		    strncmp(environ[i], "LD_LIBRARY_PATH=", 16) != 0 &&
		    strncmp(environ[i], "LD_AUDIT=", 9) != 0) {
			env[kept++] = environ[i];
		}
	}
	return env;
}

/* In the child: only calls that are safe after fork in a program with threads. */
static void exec_server(const char *path, const char *sock, char **env, int ready, int null)
{
	char *argv[] = { (char *)(uintptr_t)path,
			 (char *)"--socket",
			 (char *)(uintptr_t)sock,
			 (char *)"--idle-exit",
			 (char *)"10",
			 (char *)"--ready-fd",
			 (char *)"3",
			 NULL };
	sigset_t none;

	setsid();
	if (syscall(SYS_clone, 0ul, NULL, NULL, NULL, NULL) != 0) {
		_exit(0); /* the server's parent is init */
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(ready, 3) < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0) {
		_exit(127);
	}
	syscall(SYS_close_range, 4u, ~0u, 0u);
	if (chdir("/") < 0) {
		_exit(127);
	}
	execve(path, argv, env);
	_exit(127);
}

/* Starts a server and waits until it listens. */
static int start_server(const char *sock)
{
	char path[PATH_MAX], byte, **env;
	int err = server_path(path, sizeof(path)), null, ready[2], up[2];
	struct pollfd p;
	pid_t child;

	if (err) {
		return err;
	}
	env = server_environment();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (!env || null < 0 || pipe2(ready, O_CLOEXEC) < 0) {
		free(env);
		fd_close(null);
		return -ENOMEM;
	}
	up[0] = fcntl(ready[1], F_DUPFD, 10); /* not 3 and not closed by exec */
	up[1] = fcntl(null, F_DUPFD, 10);
	child = (pid_t)syscall(SYS_clone, 0ul, NULL, NULL, NULL,
			       NULL); /* no SIGCHLD for the program */
	if (child == 0) {
		exec_server(path, sock, env, up[0], up[1]);
	}
	if (child > 0) {
		waitpid(child, NULL, __WCLONE);
	}
	fd_close(up[0]);
	fd_close(up[1]);
	close(ready[1]);
	close(null);
	p = (struct pollfd){ .fd = ready[0], .events = POLLIN };
	err = child > 0 && poll(&p, 1, START_TIMEOUT_MS) == 1 && read(ready[0], &byte, 1) == 1
		      ? 0
		      : -ETIMEDOUT;
	close(ready[0]);
	free(env);
	return err;
}

/* The runtime directory may lie in /tmp, where anybody may have made it: a program's data goes to a
 * server of its own user or of root alone. Root says itself where it connects. */
static int connect_trusted(const char *path)
{
	int fd = unix_connect(path, SOCK_SEQPACKET);
	uid_t own = geteuid();
	struct peer p;

	if (fd < 0 || own == 0) {
		return fd;
	}
	if (fd_peer(fd, &p) < 0 || (p.uid != own && p.uid != 0)) {
		fd_close(fd);
		return -EPERM;
	}
	return fd;
}

static int connect_or_start(void)
{
	char path[SOCKET_PATH_MAX], lock_path[SOCKET_PATH_MAX + 8];
	int fd, lock, err = socket_path(path, sizeof(path));

	if (err) {
		return err;
	}
	fd = connect_trusted(path);
	if (fd >= 0 || fd == -EPERM) {
		return fd;
	}
	snprintf(lock_path, sizeof(lock_path), "%s.start", path);
	lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0) {
		return -errno;
	}
	while (flock(lock, LOCK_EX) < 0 && errno == EINTR) {
	}
	fd = connect_trusted(path); /* another process may have started one meanwhile */
	if (fd < 0) {
		err = start_server(path);
		fd = err ? err : connect_trusted(path);
	}
	close(lock);
	return fd;
}

static CUresult say_hello(void)
{
	struct soft_request q = { .op = SOFT_REQ_HELLO, .object = SOFT_VERSION };
	struct soft_reply r;
	int fds[FD_PASS_MAX];
	unsigned n = 0;
	ssize_t len;

	if (msg_send(soft.control, &q, SOFT_REQUEST_MIN + 1, NULL, 0) < 0) {
		return SOFT_DEAD;
	}
	len = msg_recv(soft.control, &r, sizeof(r), fds, &n);
	if (len >= (ssize_t)SOFT_REPLY_MIN && r.result == CUDA_SUCCESS && n == 3) {
		soft.event = fds[1];
		soft.bell = fds[2];
		soft.shared = shm_check(fds[0], sizeof(*soft.shared))
				      ? NULL
				      : shm_map(fds[0], sizeof(*soft.shared), 1);
		soft.hello = r.hello;
		close(fds[0]);
		if (soft.shared && soft.shared->magic == SOFT_MAGIC) {
			madvise(soft.shared, sizeof(*soft.shared), MADV_DONTFORK);
			return CUDA_SUCCESS;
		}
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	while (n) {
		close(fds[--n]);
	}
	return len >= (ssize_t)SOFT_REPLY_MIN && r.result > 0 ? (CUresult)r.result : SOFT_DEAD;
}

CUresult link_open(void)
{
	int fd = connect_or_start();
	CUresult r;

	if (fd < 0) {
		return CUDA_ERROR_NO_DEVICE;
	}
	soft.control = fd;
	r = say_hello();
	if (r) {
		soft.control = fd_close(soft.control);
		soft.event = fd_close(soft.event);
		soft.bell = fd_close(soft.bell);
	}
	return r;
}

CUresult link_call(struct soft_request *q, int fd, struct soft_reply *r, size_t r_bytes,
		   int *ret_fd)
{
	size_t len = SOFT_REQUEST_MIN + strnlen(q->name, SOFT_NAME_MAX - 1) + 1;
	int fds[FD_PASS_MAX];
	unsigned n = 0;
	ssize_t got;

	pthread_mutex_lock(&soft.control_lock);
	got = load_relaxed(&soft.dead) ? -EPIPE : msg_send(soft.control, q, len, &fd, fd >= 0);
	if (got == 0) {
		got = msg_recv(soft.control, r, r_bytes, fds, &n);
	}
	pthread_mutex_unlock(&soft.control_lock);
	if (ret_fd && n == 1) {
		*ret_fd = fds[0];
		n = 0;
	}
	while (n) {
		close(fds[--n]);
	}
	if (got < (ssize_t)SOFT_REPLY_MIN) {
		link_died();
		return SOFT_DEAD;
	}
	if ((size_t)got < r_bytes) {
		memset((char *)r + got, 0, MIN(r_bytes - (size_t)got, 1u)); /* texts end */
	}
	return (CUresult)r->result;
}

/* Everybody who waits looks again and sees soft.dead. */
void link_died(void)
{
	struct soft_shared *s = soft.shared;

	store_seqcst(&soft.dead, 1);
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		if (load_relaxed(&s->streams[i].waiters)) {
			futex_wake_shared(&s->streams[i].done, INT_MAX);
		}
	}
	futex_wake_shared(&s->tail, INT_MAX);
}

static void log_fault(const char *text)
{
	const char *path = getenv("GBPF_SOFT_LOG");
	char line[512];
	int fd, n;

	if (!path || !path[0]) {
		return;
	}
	n = snprintf(line, sizeof(line), "gbpf soft GPU: %.255s\n", text);
	fd = strcmp(path, "-") == 0 ? dup(2)
				    : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0) {
		(void)!write(fd, line, (size_t)n);
		close(fd);
	}
}

static void *agent(void *unused)
{
	struct soft_notice n;
	int fds[FD_PASS_MAX];
	unsigned nfds;
	ssize_t len;

	(void)unused;
	prctl(PR_SET_NAME, "gbpf-soft");
	for (;;) {
		len = msg_recv(soft.event, &n, sizeof(n), fds, &nfds);
		while (nfds) {
			close(fds[--nfds]);
		}
		if (len < (ssize_t)offsetof(struct soft_notice, text)) {
			break;
		}
		if (n.op == SOFT_NOTICE_HOST) {
			host_run(n.cookie, (CUresult)n.result);
			n.op = SOFT_NOTICE_HOST_DONE;
			msg_send(soft.event, &n, offsetof(struct soft_notice, text), NULL, 0);
		} else if (n.op == SOFT_NOTICE_FAULT) {
			n.text[sizeof(n.text) - 1] = 0;
			log_fault(n.text);
		}
	}
	link_died();
	return NULL;
}

int link_agent_start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t t;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all,
			&old); /* the program's signals are for its own threads */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&t, &attr, agent, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

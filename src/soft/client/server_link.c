/* The link to the server: connects, starts a server if none runs, sends requests, and runs the
 * agent thread, which calls host functions and notices when the server exits. */
#include "soft/client/server_link.h"

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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/private_file.h"
#include "base/shm.h"
#include "base/thread.h"
#include "soft/client/host_call.h"
#include "soft/client/process.h"
#include "soft/socket.h"

#define START_TIMEOUT_MS 15000
#define HELLO_TIMEOUT_NS 2000000000u
#define HELLO_AGAIN_NS 2000000u
#define OPTIONS_MAX 32u /* maximum number of words in GBPF_SOFTGPU_OPTIONS */
#define LOG_BYTES "1M"

/* Finds the server program: $GBPF_SOFTGPU, or relative to this library (installed or in a build
 * folder). */
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

/* Returns a copy of the environment without the variables that would load a driver library into the
 * server. Caller frees. */
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

/* Arguments of the server: the library's own, then those of GBPF_SOFTGPU_OPTIONS. */
struct server_start {
	char path[PATH_MAX], log[SOFT_SOCKET_PATH_MAX + 16], words[4096];
	char *argv[16 + OPTIONS_MAX];
};

static void split_words(char *words, char **argv, unsigned n, unsigned max)
{
	char *p = words;

	while (*p && n + 1 < max) {
		p += strspn(p, " \t\n");
		if (!*p) {
			break;
		}
		argv[n++] = p;
		p += strcspn(p, " \t\n");
		if (*p) {
			*p++ = 0;
		}
	}
	argv[n] = NULL;
}

static int fill_start(struct server_start *t, const char *sock)
{
	static const char *const own[] = { "--idle-exit", "10",		 "--ready-fd",
					   "3",		  "--log-limit", LOG_BYTES };
	const char *words = getenv("GBPF_SOFTGPU_OPTIONS"), *dot = strrchr(sock, '.');
	int err = server_path(t->path, sizeof(t->path));
	unsigned n = 0;

	if (err) {
		return err;
	}
	if ((size_t)snprintf(t->words, sizeof(t->words), "%s", words ? words : "") >=
	    sizeof(t->words)) {
		return -E2BIG;
	}
	/* softgpu.log next to softgpu.sock */
	snprintf(t->log, sizeof(t->log), "%.*s.log",
		 (int)(dot && strcmp(dot, ".sock") == 0 ? dot - sock : (long)strlen(sock)), sock);
	t->argv[n++] = t->path;
	t->argv[n++] = (char *)(uintptr_t) "--socket";
	t->argv[n++] = (char *)(uintptr_t)sock;
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		t->argv[n++] = (char *)(uintptr_t)own[i];
	}
	split_words(t->words, t->argv, n, ARRAY_SIZE(t->argv));
	return 0;
}

/* Runs in the child: makes only calls that are async-signal-safe, since the program may have
 * threads. */
static void exec_server(struct server_start *t, char **env, int ready, int null, int log)
{
	sigset_t none;

	setsid();
	if (syscall(SYS_clone, 0ul, NULL, NULL, NULL, NULL) != 0) {
		_exit(0); /* a second fork makes init the server's parent */
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(ready, 3) < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0) {
		_exit(127);
	}
	syscall(SYS_close_range, 4u, ~0u, 0u);
	if (chdir("/") < 0) {
		_exit(127);
	}
	execve(t->path, t->argv, env);
	_exit(127);
}

/* Logs why cuInit finds no device: the last line that the server wrote. */
static void log_failure(const struct server_start *t, int log, off_t from)
{
	char text[512], line[768];
	ssize_t n = pread(log, text, sizeof(text) - 1, from);
	int len;

	text[MAX(n, 0)] = 0;
	text[strcspn(text, "\n")] = 0;
	len = snprintf(line, sizeof(line), "gbpf soft GPU: the server did not start: %s (%s)\n",
		       text[0] ? text : t->path, t->log);
	(void)!write(2, line, (size_t)MIN(len, (int)sizeof(line) - 1));
}

/* Opens the server's log file, or /dev/null unless that is a regular file of this user. */
static int open_log(const struct server_start *t)
{
	int fd = open(t->log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
		      0600);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())) {
		fd = fd_close(fd);
	}
	return fd >= 0 ? fd : open("/dev/null", O_RDWR | O_CLOEXEC);
}

static bool spawn_server(struct server_start *t, char **env, int ready, int null, int log)
{
	/* Duplicates above 9: dup2 onto 0 to 3 in the child neither overwrites them nor leaves
	 * close-on-exec set. */
	int up[3] = { fcntl(ready, F_DUPFD, 10), fcntl(null, F_DUPFD, 10),
		      fcntl(log, F_DUPFD, 10) };
	/* clone with no exit signal, so that the program receives no SIGCHLD. */
	pid_t child = (pid_t)syscall(SYS_clone, 0ul, NULL, NULL, NULL, NULL);

	if (child == 0) {
		exec_server(t, env, up[0], up[1], up[2]);
	}
	if (child > 0) {
		waitpid(child, NULL, __WCLONE);
	}
	for (int i = 0; i < 3; i++) {
		fd_close(up[i]);
	}
	return child > 0;
}

static int wait_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte;

	return poll(&p, 1, (int)clock_patience(START_TIMEOUT_MS)) == 1 && read(fd, &byte, 1) == 1
		       ? 0
		       : -ETIMEDOUT;
}

/* Starts a server and waits until it listens. */
static int start_server(const char *sock)
{
	struct server_start *t = calloc(1, sizeof(*t));
	char **env = server_environment();
	int ready[2] = { -1, -1 }, null = -1, log = -1, err;
	off_t end;

	err = t && env ? fill_start(t, sock) : -ENOMEM;
	if (err) {
		goto out;
	}
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	log = open_log(t);
	if (null < 0 || log < 0 || pipe2(ready, O_CLOEXEC) < 0) {
		err = -ENOMEM;
		goto out;
	}
	end = lseek(log, 0, SEEK_END);
	err = spawn_server(t, env, ready[1], null, log) ? 0 : -EAGAIN;
	ready[1] = fd_close(ready[1]);
	err = err ? err : wait_ready(ready[0]);
	if (err) {
		log_failure(t, log, MAX(end, 0));
	}
out:
	fd_close(ready[0]);
	fd_close(ready[1]);
	fd_close(null);
	fd_close(log);
	free(env);
	free(t);
	return err;
}

/* Connects to a server of this user or of root. The runtime directory may lie in /tmp, where any
 * user may have created it, and the server sees the program's data. A process of root connects to
 * any server: its administrator chose the path. */
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

/* Prints why there is no path of the server's socket. */
static int no_path(int err)
{
	char text[512], line[640];
	int len;

	path_explain(err, text, sizeof(text));
	len = snprintf(line, sizeof(line), "gbpf soft GPU: cannot find the server: %s\n", text);
	(void)!write(2, line, (size_t)len);
	return err;
}

static int connect_or_start(void)
{
	char path[SOFT_SOCKET_PATH_MAX], lock_path[SOFT_SOCKET_PATH_MAX + 8];
	int fd, lock, err = soft_socket_path(path, sizeof(path), true);

	if (err) {
		return no_path(err);
	}
	fd = connect_trusted(path);
	if (fd >= 0 || fd == -EPERM) {
		return fd;
	}
	snprintf(lock_path, sizeof(lock_path), "%s.start", path);
	lock = private_file_open(lock_path, O_RDWR | O_CREAT);
	if (lock < 0) {
		return lock;
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

static uint64_t number_in(const char *name, uint64_t most)
{
	const char *text = getenv(name);
	unsigned long v = text ? strtoul(text, NULL, 10) : 0;

	return MIN((uint64_t)v, most);
}

/* Asks for the shared lane if the folder $CUDA_MPS_PIPE_DIRECTORY exists, as NVIDIA's driver looks
 * for an MPS server. Otherwise the process runs in a lane of its own. */
static void request_shared_lane(struct soft_request *q)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	struct stat st;

	if (!folder || stat(folder, &st) < 0 || !S_ISDIR(st.st_mode)) {
		return;
	}
	q->value = ((uint64_t)st.st_dev << 40 ^ (uint64_t)st.st_ino) | UINT64_C(1) << 63;
	q->more[0] = number_in("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100);
	q->more[1] = number_in("CUDA_MPS_CLIENT_PRIORITY", 1);
}

void soft_link_explain(const struct soft_reply *r)
{
	char line[SOFT_TEXT_MAX + 32];
	int n;

	if (r->result == CUDA_ERROR_OUT_OF_MEMORY && r->text[0]) {
		n = snprintf(line, sizeof(line), "gbpf soft GPU: %.*s\n", (int)SOFT_TEXT_MAX,
			     r->text);
		(void)!write(2, line, (size_t)MIN(n, (int)sizeof(line) - 1));
	}
}

static CUresult say_hello(void)
{
	struct soft_request q = { .op = SOFT_REQ_HELLO, .object = SOFT_VERSION };
	struct soft_reply r;
	int fds[FD_PASS_MAX];
	unsigned n = 0;
	ssize_t len;

	request_shared_lane(&q);
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
		soft.shared_lane = q.value != 0;
		close(fds[0]);
		if (soft.shared && soft.shared->magic == SOFT_MAGIC) {
			soft.shared->names = CUABI_COUNT;
			madvise(soft.shared, sizeof(*soft.shared), MADV_DONTFORK);
			return CUDA_SUCCESS;
		}
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	while (n) {
		close(fds[--n]);
	}
	if (len >= (ssize_t)SOFT_REPLY_MIN) {
		memset((char *)&r + len, 0, (size_t)((size_t)len < sizeof(r)));
		soft_link_explain(&r);
	}
	return len >= (ssize_t)SOFT_REPLY_MIN && r.result > 0 ? (CUresult)r.result : SOFT_DEAD;
}

static CUresult open_once(void)
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

/* Retries while the server closes the connection: it has too many connections at present, or is
 * exiting. */
CUresult soft_link_open(void)
{
	uint64_t end = clock_now_ns() + clock_patience(HELLO_TIMEOUT_NS);
	CUresult r = open_once();

	while (r == SOFT_DEAD && clock_now_ns() < end) {
		clock_sleep_ns(HELLO_AGAIN_NS);
		r = open_once();
	}
	if (r == SOFT_DEAD) {
		static const char line[] =
			"gbpf soft GPU: the server closes connections: it has too many, or is "
			"exiting; softgpu.log next to its socket says which\n";

		(void)!write(2, line, sizeof(line) - 1);
	}
	return r;
}

/* Marks the server as dead and wakes every waiting thread, which then sees soft.dead. */
static void link_lost(void)
{
	struct soft_shared *s = soft.shared;

	store_seqcst(&soft.dead, 1); /* pairs with the fence in soft_word_wait_mode */
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		if (load_relaxed(&s->streams[i].waiters)) {
			futex_wake_shared(&s->streams[i].done, INT_MAX);
		}
	}
	futex_wake_shared(&s->tail, INT_MAX);
}

/* Returns the error of a request that could not be sent, SOFT_DEAD if the connection is lost. */
static CUresult send_error(int err, int fd)
{
	switch (err) {
	case -EBADF: /* the program's descriptor, or the connection's? */
		return fd >= 0 && fcntl(fd, F_GETFD) < 0 ? CUDA_ERROR_INVALID_VALUE : SOFT_DEAD;
	case -ENOBUFS:
	case -ENOMEM:
	case -ETOOMANYREFS:
		return CUDA_ERROR_OPERATING_SYSTEM;
	default:
		return SOFT_DEAD;
	}
}

/* Sends a request and receives the reply. Returns CUDA_SUCCESS if there is one, of *ret_got bytes;
 * SOFT_DEAD if the connection is lost; else the error of a request that had no effect here. */
static CUresult exchange(struct soft_request *q, int fd, struct soft_reply *r, size_t r_bytes,
			 ssize_t *ret_got, int fds[FD_PASS_MAX], unsigned *n)
{
	size_t len = SOFT_REQUEST_MIN + strnlen(q->name, SOFT_NAME_MAX - 1) + 1;
	ssize_t got =
		load_relaxed(&soft.dead) ? -EPIPE : msg_send(soft.control, q, len, &fd, fd >= 0);

	if (got < 0) {
		return send_error((int)got, fd);
	}
	got = msg_recv(soft.control, r, r_bytes, fds, n);
	*ret_got = got;
	if (got == -EMSGSIZE) { /* the reply's descriptor: this process has as many as it may */
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return got < (ssize_t)SOFT_REPLY_MIN ? SOFT_DEAD : CUDA_SUCCESS;
}

CUresult soft_link_call(struct soft_request *q, int fd, struct soft_reply *r, size_t r_bytes,
			int *ret_fd)
{
	int fds[FD_PASS_MAX];
	unsigned n = 0;
	ssize_t got = 0;
	CUresult e;

	lock_take(&soft.control_lock);
	e = exchange(q, fd, r, r_bytes, &got, fds, &n);
	lock_release(&soft.control_lock);
	if (ret_fd && n == 1) {
		*ret_fd = fds[0];
		n = 0;
	}
	while (n) {
		close(fds[--n]);
	}
	if (e == SOFT_DEAD) {
		link_lost();
	}
	if (e) {
		memset(r, 0, r_bytes); /* callers read its text */
		return e;
	}
	if ((size_t)got < r_bytes) {
		memset((char *)r + got, 0,
		       MIN(r_bytes - (size_t)got, 1u)); /* terminates a truncated text */
	}
	return (CUresult)r->result;
}

/* Sends one request over a connection of its own, for a process that is not a client. Returns
 * SOFT_DEAD if the server cannot be reached or does not reply, which says nothing about the object
 * that the request names. */
static CUresult request_once(const struct soft_request *q, int fd, struct soft_reply *r,
			     size_t r_bytes)
{
	char path[SOFT_SOCKET_PATH_MAX];
	int fds[FD_PASS_MAX], sock;
	unsigned n = 0;
	ssize_t got = -1;

	if (soft_socket_path(path, sizeof(path), false) < 0) {
		return SOFT_DEAD;
	}
	sock = connect_trusted(path);
	if (sock < 0) {
		return SOFT_DEAD;
	}
	if (msg_send(sock, q, SOFT_REQUEST_MIN + 1, &fd, fd >= 0) == 0) {
		got = msg_recv(sock, r, r_bytes, fds, &n);
	}
	while (n) {
		close(fds[--n]);
	}
	fd_close(sock);
	return got < (ssize_t)SOFT_REPLY_MIN ? SOFT_DEAD : (CUresult)r->result;
}

CUresult soft_link_query(struct soft_request *q, int fd, struct soft_reply *r, size_t r_bytes)
{
	return soft_check() == CUDA_SUCCESS ? soft_link_call(q, fd, r, r_bytes, NULL)
					    : request_once(q, fd, r, r_bytes);
}

static int
	fault_written; /* [atomic] the description of a fault has been written to GBPF_SOFT_LOG */

void soft_log(const char *text)
{
	const char *path = getenv("GBPF_SOFT_LOG");
	char line[SOFT_TEXT_MAX + 64];
	int fd, n;

	if (!path || !path[0]) {
		return;
	}
	n = snprintf(line, sizeof(line), "gbpf soft GPU: %.*s\n", (int)SOFT_TEXT_MAX, text);
	fd = strcmp(path, "-") == 0 ? dup(2)
				    : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0) {
		(void)!write(fd, line, (size_t)n);
		close(fd);
	}
}

void soft_log_wait(void)
{
	const char *path = getenv("GBPF_SOFT_LOG");

	for (unsigned i = 0; path && path[0] && i < 500 && !load_acquire(&fault_written); i++) {
		clock_sleep_ns(200000);
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
			soft_host_run(n.cookie, (CUresult)n.result);
			n.op = SOFT_NOTICE_HOST_DONE;
			msg_send(soft.event, &n, offsetof(struct soft_notice, text), NULL, 0);
		} else if (n.op == SOFT_NOTICE_FAULT) {
			n.text[sizeof(n.text) - 1] = 0;
			soft_log(n.text);
			store_release(&fault_written, 1);
		}
	}
	soft_log("the server exited or dropped this program; see softgpu.log next to its socket");
	link_lost();
	return NULL;
}

int soft_link_agent_start(void)
{
	return thread_start_detached(agent, NULL, 0);
}

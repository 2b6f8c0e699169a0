/* Links objects with the static linker of libbpf. It is complete, but trusts its input and needs
 * file names. So it runs in a child process with limits, on memfds, and its output is read like any
 * other object. */
#include "bpf/load/elf/link.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpf/load/elf/object_int.h"

#define CHILD_CPU_S 5
#define CHILD_TIMEOUT_MS 10000
#define CHILD_MEMORY (256ull << 20)
#define LOG_BYTES 2048

/* State shared by parent and child: a page, and descriptors. */
struct job {
	const struct ebpf_link_input *in;
	unsigned n;
	int fds[EBPF_MAX_LINKED + 1]; /* the inputs, then the result */
	struct shared {
		int done; /* 1: linked; otherwise the log has the reason */
		uint32_t log_bytes;
		char log[LOG_BYTES];
	} * shared; /* owned mapping */
};

static struct shared *child_log; /* set only in the child, which has one thread */

static int collect(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	struct shared *s = child_log;
	int n;

	if (level != LIBBPF_WARN || s->log_bytes >= LOG_BYTES - 1) {
		return 0;
	}
	n = vsnprintf(s->log + s->log_bytes, LOG_BYTES - s->log_bytes, fmt, ap);
	s->log_bytes = MIN(s->log_bytes + (uint32_t)MAX(n, 0), LOG_BYTES - 1u);
	return 0;
}

static void limit(int what, rlim_t value)
{
	struct rlimit l = { value, value };

	setrlimit(what, &l);
}

/* Limits the data segment to its current size and a fixed amount. Sanitizers reserve more than any
 * limit, so it does nothing under them. */
static void limit_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	unsigned long long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f) {
		if (fscanf(f, "%*u %*u %*u %*u %*u %llu", &pages) != 1) {
			pages = 0;
		}
		fclose(f);
	}
	limit(RLIMIT_DATA, pages * 4096 + CHILD_MEMORY);
#endif
}

static int fd_order(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Closes inherited descriptors: another process that waits for end-of-file on them must not wait
 * for this child. */
static void close_others(const struct job *j)
{
	int mine[ARRAY_SIZE(j->fds)];
	unsigned from = 3;

	memcpy(mine, j->fds, (j->n + 1) * sizeof(mine[0]));
	qsort(mine, j->n + 1, sizeof(mine[0]), fd_order);
	for (unsigned i = 0; i <= j->n; i++) {
		if ((unsigned)mine[i] > from) {
			syscall(SYS_close_range, from, (unsigned)mine[i] - 1, 0);
		}
		from = (unsigned)mine[i] + 1;
	}
	syscall(SYS_close_range, from, ~0u, 0);
}

static int link_files(const struct job *j)
{
	LIBBPF_OPTS(bpf_linker_opts, opts);
	LIBBPF_OPTS(bpf_linker_file_opts, file_opts);
	struct bpf_linker *linker;
	char path[64];
	int err = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", j->fds[j->n]);
	linker = bpf_linker__new(path, &opts);
	if (!linker) {
		return -errno;
	}
	for (unsigned i = 0; i < j->n && err == 0; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", j->fds[i]);
		err = bpf_linker__add_file(linker, path, &file_opts);
	}
	return err ? err : bpf_linker__finalize(linker);
}

NORETURN static void child(const struct job *j)
{
	static const int deadly[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGXFSZ };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < ARRAY_SIZE(deadly); i++) {
		signal(deadly[i], SIG_DFL);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_CPU, CHILD_CPU_S);
	limit(RLIMIT_FSIZE, 2 * OBJ_MAX_BYTES);
	limit_memory();
	close_others(j);
	child_log = j->shared;
	libbpf_set_print(collect);
	j->shared->done = link_files(j) == 0;
	_exit(0);
}

/* Waits until the child has exited and kills it at the timeout. Returns 0 or -ETIME. */
static int wait_for(pid_t pid)
{
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	int n = 0, err;

	if (p.fd >= 0) {
		do {
			n = poll(&p, 1, (int)clock_patience(CHILD_TIMEOUT_MS));
		} while (n < 0 && errno == EINTR);
		close(p.fd);
	}
	err = n == 1 ? 0 : -ETIME;
	if (err) {
		kill(pid, SIGKILL);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
	}
	return err;
}

/* Appends the messages of the linker without its prefixes and without the paths of the descriptors.
 */
static void explain(const struct job *j, struct buf *out)
{
	char log[LOG_BYTES], *line, *rest = log;

	memcpy(log, j->shared->log, LOG_BYTES); /* take a copy that the child cannot change */
	log[LOG_BYTES - 1] = 0;
	while ((line = strsep(&rest, "\n")) != NULL) {
		const char *path = strstr(line, "/proc/self/fd/");
		const char *text = strncmp(line, "libbpf: ", 8) == 0 ? line + 8 : line;

		if (!*text) {
			continue;
		}
		if (out->len) {
			buf_puts(out, "; ");
		}
		for (unsigned i = 0; path && i < j->n; i++) {
			char *end = NULL;

			if (strtol(path + strlen("/proc/self/fd/"), &end, 10) == j->fds[i]) {
				buf_printf(out, "%.*s%s%s", (int)(path - text), text, j->in[i].name,
					   end);
				text = "";
			}
		}
		buf_puts(out, text);
	}
}

static int run(struct job *j, struct buf *out, struct report *r)
{
	struct buf why;
	pid_t pid = fork();
	int err;

	if (pid < 0) {
		return report_set(r, -errno, "link", "no child process for the linker: %s",
				  strerror(errno));
	}
	if (pid == 0) {
		child(j);
	}
	err = wait_for(pid);
	if (err == 0 && j->shared->done == 1) {
		if (lseek(j->fds[j->n], 0, SEEK_SET) < 0) {
			return -errno;
		}
		return buf_read_fd(out, j->fds[j->n], OBJ_MAX_BYTES);
	}
	buf_init(&why);
	explain(j, &why);
	for (size_t i = 0; i < why.len; i++) {
		why.data[i] = why.data[i] < ' ' || why.data[i] > '~' ? ' ' : why.data[i];
	}
	if (err) {
		report_set(r, err, "link", "linking took too long and was ended");
	} else {
		report_hint(r, "%s",
			    strstr(buf_text(&why), "license") || strstr(buf_text(&why), "version")
				    ? "all objects say the same licence and version"
				    : "what is extern in one has to be defined in one other, with "
				      "the same type");
		err = report_set(r, -EINVAL, "link", "the objects cannot be linked: %s",
				 why.len ? buf_text(&why) : "the linker has ended abnormally");
	}
	buf_finish(&why);
	return err;
}

/* Makes the first checks of every object here, because their messages are better than those of the
 * linker. */
static int check_input(const struct ebpf_link_input *in, struct report *r)
{
	struct ebpf_object *o = calloc(1, sizeof(*o));
	struct ebpf_obj_parse p = { .o = o, .r = r };
	int err;

	if (!o) {
		return -ENOMEM;
	}
	snprintf(o->name, sizeof(o->name), "%s", in->name);
	err = ebpf_obj_read_elf(&p, in->data, in->bytes);
	ebpf_obj_finish_parse(&p);
	free(o);
	return err;
}

static int open_input(struct job *j, unsigned i, struct report *r)
{
	const struct ebpf_link_input *in = &j->in[i];
	size_t at = 0;
	int err = check_input(in, r);

	j->fds[i] = err ? -1 : memfd_create("gbpf-object", MFD_CLOEXEC);
	if (j->fds[i] < 0) {
		return err ? err : -errno;
	}
	while (at < in->bytes) {
		ssize_t n = write(j->fds[i], (const char *)in->data + at, in->bytes - at);

		if (n < 0) {
			return -errno;
		}
		at += (size_t)n;
	}
	return 0;
}

int ebpf_link_objects(const struct ebpf_link_input *in, unsigned n, struct buf *out,
		      struct report *r)
{
	struct job j = { .in = in, .n = n };
	int err = 0;

	if (n == 0 || n > EBPF_MAX_LINKED) {
		return report_set(r, n ? -E2BIG : -EINVAL, "link", "%u objects (1 to %u)", n,
				  EBPF_MAX_LINKED);
	}
	if (n == 1) {
		return buf_add(out, in[0].data, in[0].bytes);
	}
	for (unsigned i = 0; i <= n; i++) {
		j.fds[i] = -1;
	}
	for (unsigned i = 0; i < n && err == 0; i++) {
		err = open_input(&j, i, r);
	}
	if (err == 0) {
		j.fds[n] = memfd_create("gbpf-linked", MFD_CLOEXEC);
		j.shared = mmap(NULL, sizeof(*j.shared), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		err = j.fds[n] < 0 || j.shared == MAP_FAILED ? -errno : run(&j, out, r);
	}
	if (j.shared && j.shared != MAP_FAILED) {
		munmap(j.shared, sizeof(*j.shared));
	}
	for (unsigned i = 0; i <= n; i++) {
		if (j.fds[i] >= 0) {
			close(j.fds[i]);
		}
	}
	return err ? report_set(r, err, "link", "linking: %s", strerror(-err)) : 0;
}

/* virtual-time PAGE [COMMAND...]: the clock of the programs of a test. Time passes only while all
 * of them wait, and then at once up to the next deadline, so durations do not depend on the
 * machine's load. PAGE is created. With COMMAND, runs it and its children by this clock and exits
 * as it does; else advances the clock until it is killed or its parent ends, for programs that are
 * started with GBPF_CLOCK=PAGE and LD_PRELOAD=interpose.so.
 *
 * The clock is advanced if, after the lines of schedstat (time on a processor, time of waiting for
 * one, number of runs) of all threads of these processes were read, each of them shows state S, and
 * then the same line. Then at the moment after the first reading
 * - none ran: it would have left the processor since, which changes its line;
 * - none was runnable: it would have run before it showed S;
 * - no other thread existed: its creator would have counted it before it slept, and the list is
 *   read at this moment if the count has changed since it was.
 * A thread that another one wakes is runnable before the waker sleeps, and deadlines that have come
 * are of stopped threads only. A thread that reads the clock again and again counts as asleep: see
 * spins(). Work outside of these processes, as that of a test's shell, is not seen: without
 * COMMAND, RATE_MAX bounds how fast time passes meanwhile. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"

#include "page.h"

#define RATE_MAX 20u /* seconds of virtual time in one of real time */
#define NAP_MIN_NS 10000
#define NAP_MAX_NS 1000000
#define SIGNAL_NS 200000 /* until a signal is repeated */
#define SIGNALS_MAX 500u
#define THREADS_MAX 4096u
#define SPIN_PART 16u
#define SPIN_MIN_NS UINT64_C(2000)
#define SPIN_MAX_NS UINT64_C(100000)

struct thread {
	int tid;		 /* 0: free */
	int state_fd, sched_fd;	 /* owned */
	char line[80];		 /* of schedstat at the last look */
	struct clock_wait *wait; /* NULL: has not waited or read the clock yet */
	uint32_t reads;		 /* of the clock, when it last advanced */
	unsigned signals;	 /* that have not ended its wait */
	bool slept;		 /* at this look */
};

static struct thread threads[THREADS_MAX];
static unsigned thread_count; /* highest used + 1 */
/* A process was entered, a thread has ended, or the list was not complete. */
static bool must_list = true;
static struct clock_page *page;

static uint64_t read_clock(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t real_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

static void nap(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* Ends what waits for this clock, which would wait for ever. */
NORETURN static void end_processes(int number)
{
	for (unsigned i = 0; i < CLOCK_PROCESSES_MAX; i++) {
		int32_t pid = load_acquire(&page->pids[i]);

		if (pid > 0) {
			(void)kill(pid, SIGKILL);
		}
	}
	_exit(number ? 128 + number : 1);
}

NORETURN static void fail(const char *what)
{
	fprintf(stderr, "virtual-time: %s: %s\n", what, strerror(errno));
	end_processes(0);
}

static int open_file(int pid, int tid, const char *leaf)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, tid, leaf);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static void forget(struct thread *t)
{
	close(t->state_fd);
	close(t->sched_fd);
	t->tid = 0;
}

/* Returns the entry of a thread, or a free one for 0. NULL: none. */
static struct thread *thread_of(int tid)
{
	for (unsigned i = 0; i < thread_count; i++) {
		if (threads[i].tid == tid) {
			return &threads[i];
		}
	}
	return NULL;
}

/* Returns the thread's state as in proc(5), or 0 if it has ended. */
static char state_of(const struct thread *t)
{
	char text[512];
	ssize_t n = pread(t->state_fd, text, sizeof(text) - 1, 0);
	const char *p;

	text[MAX(n, 0)] = 0;
	p = strrchr(text, ')');
	return p && p[1] == ' ' && p[2] != 'Z' && p[2] != 'X' ? p[2] : 0;
}

/* Returns false if it is in the table, or has ended. */
static bool add_thread(int pid, int tid)
{
	struct thread *t;

	if (thread_of(tid)) {
		return false;
	}
	t = thread_of(0);
	if (!t && thread_count == THREADS_MAX) {
		errno = EMFILE;
		fail("threads");
	}
	t = t ? t : &threads[thread_count++];
	*t = (struct thread){ .tid = tid };
	t->state_fd = open_file(pid, tid, "stat");
	t->sched_fd = open_file(pid, tid, "schedstat");
	if ((t->state_fd < 0 || t->sched_fd < 0) && errno != ENOENT && errno != ESRCH) {
		fail("schedstat");
	}
	if (t->state_fd < 0 || t->sched_fd < 0 || !state_of(t)) {
		forget(t);
		return false;
	}
	return true;
}

/* Frees the entries of threads that have ended. */
static void free_waits(void)
{
	for (unsigned i = 0; i < CLOCK_WAITS_MAX; i++) {
		struct clock_wait *w = &page->waits[i];
		int32_t tid = load_acquire(&w->tid);

		if (tid > 0 && syscall(SYS_tgkill, w->pid, tid, 0) < 0 && errno == ESRCH) {
			store_relaxed(&w->deadline, CLOCK_NEVER);
			store_release(&w->tid, 0);
		}
	}
}

/* Adds the process's threads to the table. Returns true if one was added, or the list is not
 * complete, as when a thread ends while it is read. */
static bool list_process(int pid)
{
	unsigned long count = 0;
	char path[64];
	struct dirent *e;
	struct stat st;
	bool changed = false;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	if (!d && errno != ENOENT) {
		fail(path);
	}
	if (!d) {
		return true;
	}
	while ((e = readdir(d))) {
		if (isdigit((unsigned char)e->d_name[0])) {
			changed |= add_thread(pid, (int)strtol(e->d_name, NULL, 10));
			count++;
		}
	}
	/* Links of the folder: itself, its parent, and one of each thread. */
	changed |= fstat(dirfd(d), &st) < 0 || st.st_nlink != count + 2;
	closedir(d);
	return changed;
}

/* Updates the table of threads. Returns true if one was added, or it may not be complete. */
static bool list_threads(void)
{
	bool changed = false;

	for (unsigned i = 0; i < CLOCK_PROCESSES_MAX; i++) {
		int32_t pid = load_acquire(&page->pids[i]);

		if (pid && list_process(pid)) {
			changed = true;
			if (kill(pid, 0) < 0 && errno == ESRCH) {
				store_release(&page->pids[i], 0);
			}
		}
	}
	return changed;
}

/* Returns true if the line has changed since the last look. */
static bool has_run(struct thread *t)
{
	char line[sizeof(t->line)] = "";
	bool changed;

	(void)!pread(t->sched_fd, line, sizeof(line) - 1, 0);
	changed = memcmp(line, t->line, sizeof(line)) != 0;
	memcpy(t->line, line, sizeof(line));
	return changed;
}

static bool is_stopped(char state)
{
	return state == 'T' || state == 't';
}

static const struct clock_wait *wait_of(struct thread *t)
{
	for (unsigned i = 0; !t->wait && i < CLOCK_WAITS_MAX; i++) {
		t->wait = load_acquire(&page->waits[i].tid) == t->tid ? &page->waits[i] : NULL;
	}
	return t->wait;
}

/* Returns true if the thread spins and has read the clock since that advanced, so that nothing is
 * left that it does at the present time. */
static bool spins(struct thread *t)
{
	uint32_t reads = wait_of(t) ? load_seqcst(&t->wait->reads) : 0;

	return reads > CLOCK_SPIN_READS && reads != t->reads;
}

/* Returns true if a thread that does not spin, or one that slept at the last look, has run since,
 * or a process was entered. */
static bool any_has_run(void)
{
	static int32_t pids[CLOCK_PROCESSES_MAX];
	bool any = memcmp(pids, page->pids, sizeof(pids)) != 0;

	memcpy(pids, page->pids, sizeof(pids));
	must_list |= any;
	for (unsigned i = 0; i < thread_count; i++) {
		if (threads[i].tid && has_run(&threads[i])) {
			any |= threads[i].slept || !spins(&threads[i]);
			threads[i].slept = false;
		}
	}
	return any;
}

/* Returns true if a thread in this state sleeps; sets its reads of the clock to 0 then. One that
 * waits in a read of the clock does not, nor one that has done so since its state was read. */
static bool sleeps(struct thread *t, char state)
{
	if (state != 'S' && !is_stopped(state)) {
		return false;
	}
	if (wait_of(t) && load_seqcst(&t->wait->reads)) {
		if (load_seqcst(&t->wait->naps) || has_run(t)) {
			return false;
		}
		store_relaxed(&t->wait->reads, 0u); /* it waits without a timeout */
	}
	return true;
}

/* Lists the threads if that is necessary. Returns true if there may be others. */
static bool list_has_changed(void)
{
	static uint32_t listed;
	uint32_t created = load_acquire(&page->created);

	if (created != listed || must_list) {
		listed = created;
		must_list = list_threads();
	}
	return must_list;
}

/* Returns true if at a moment of this call all threads slept, except those that spin. Sets
 * *ret_step to the time by which the clock may advance because of these: a part of the time for
 * which they have spun, which is the error of their durations. */
static bool all_sleep(uint64_t *ret_step)
{
	uint64_t now = load_acquire(&page->now), since;

	*ret_step = CLOCK_NEVER;
	if (any_has_run() || list_has_changed()) {
		return false;
	}
	for (unsigned i = 0; i < thread_count; i++) {
		struct thread *t = &threads[i];
		char state = t->tid ? state_of(t) : 0;

		if (t->tid && !state) {
			forget(t);
			free_waits();
			must_list = true; /* another may have its number */
		}
		t->slept = state && sleeps(t, state);
		if (!state || t->slept) {
			continue;
		}
		if (!spins(t)) {
			return false;
		}
		since = now - MIN(now, load_relaxed(&t->wait->spins_from));
		*ret_step = MIN(*ret_step, MIN(MAX(since / SPIN_PART, SPIN_MIN_NS), SPIN_MAX_NS));
	}
	/* A thread shows S a moment before it leaves the processor, which changes its line. */
	return !any_has_run();
}

static bool is_due(const struct clock_wait *w)
{
	return load_acquire(&w->tid) > 0 && load_acquire(&w->deadline) <= load_acquire(&page->now);
}

/* Waits until the thread has ended its wait, at most SIGNAL_NS. */
static void await_end(const struct clock_wait *w)
{
	uint64_t until = real_ns() + SIGNAL_NS;

	while (is_due(w) && real_ns() < until) {
		nap(NAP_MIN_NS);
	}
}

/* Wakes the threads whose deadline has come. Returns false if there is none. */
static bool wake_due(void)
{
	bool any = false;

	for (unsigned i = 0; i < CLOCK_WAITS_MAX; i++) {
		struct clock_wait *w = &page->waits[i];
		struct thread *t;
		char state;

		if (!is_due(w)) {
			continue;
		}
		t = thread_of(w->tid);
		state = t ? state_of(t) : 0;
		if (!state) { /* ended, or not listed yet */
			list_threads();
			t = thread_of(w->tid);
			state = t ? state_of(t) : 0;
		}
		if (!state) {
			free_waits();
		} else if (!is_stopped(state)) {
			(void)syscall(SYS_tgkill, w->pid, w->tid, CLOCK_SIGNAL);
			await_end(w);
			t->signals = is_due(w) ? t->signals + 1 : 0;
			/* One that sleeps after many needs what another thread has, as a mutex. */
			any |= state != 'S' || t->signals < SIGNALS_MAX;
		}
	}
	return any;
}

/* Those that have come are of stopped threads. */
static uint64_t next_deadline(void)
{
	uint64_t next = CLOCK_NEVER, now = load_acquire(&page->now);

	for (unsigned i = 0; i < CLOCK_WAITS_MAX; i++) {
		int32_t tid = load_acquire(&page->waits[i].tid);
		uint64_t deadline = load_acquire(&page->waits[i].deadline);

		next = tid > 0 && deadline > now ? MIN(next, deadline) : next;
	}
	return next;
}

static void advance(uint64_t to)
{
	uint64_t now = load_acquire(&page->now);

	for (unsigned i = 0; i < thread_count; i++) {
		threads[i].reads = threads[i].wait ? load_acquire(&threads[i].wait->reads) : 0;
	}
	while (now < to && !cas_acqrel(&page->now, &now, to)) {
	}
	add_acqrel(&page->advances, 1u);
	(void)syscall(SYS_futex, &page->advances, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Takes one step: wakes what is due, or advances the clock if no thread runs. Returns false if
 * neither was possible. */
static bool step(bool bounded)
{
	static uint64_t last; /* real time of the last advance */
	uint64_t next, spin, now;

	last = last ? last : real_ns();
	if (wake_due()) {
		return true;
	}
	if (!all_sleep(&spin)) {
		return false;
	}
	now = load_acquire(&page->now);
	next = next_deadline();
	next = spin == CLOCK_NEVER ? next : MIN(next, now + spin);
	if (next == CLOCK_NEVER ||
	    (bounded && next - MIN(next, now) > (real_ns() - last) * RATE_MAX)) {
		return false;
	}
	advance(next);
	last = real_ns();
	return true;
}

/* Creates the page under another name first, so that no program maps a part of it. */
static int make_page(const char *path)
{
	char part[4096];
	int n = snprintf(part, sizeof(part), "%s.new", path), fd = -1;
	void *p = MAP_FAILED;

	if (n < (int)sizeof(part)) {
		fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	}
	if (fd >= 0 && ftruncate(fd, sizeof(*page)) == 0) {
		p = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	if (p != MAP_FAILED) {
		page = p;
		page->now = real_ns();
		page->to_wall = read_clock(CLOCK_REALTIME) - page->now;
	}
	if (p == MAP_FAILED || rename(part, path) < 0) {
		fprintf(stderr, "virtual-time: cannot create %s: %s\n", path, strerror(errno));
		return -1;
	}
	close(fd);
	return 0;
}

static int run_command(const char *path, char **argv)
{
	char library[4096];
	ssize_t n = readlink("/proc/self/exe", library, sizeof(library) - 32);
	char *slash;

	library[MAX(n, 0)] = 0;
	slash = strrchr(library, '/');
	if (!slash) {
		return -1;
	}
	snprintf(slash + 1, 24, "interpose.so");
	setenv("LD_PRELOAD", library, 1);
	setenv("GBPF_CLOCK", path, 1);
	execvp(argv[0], argv);
	fprintf(stderr, "virtual-time: cannot run %s: %s\n", argv[0], strerror(errno));
	return -1;
}

static void allow_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &l);
	}
}

int main(int argc, char **argv)
{
	long pause_ns = NAP_MIN_NS;
	pid_t child = -1;
	int status;

	if (argc < 2) {
		fprintf(stderr, "usage: virtual-time PAGE [COMMAND...]\n");
		return 2;
	}
	prctl(PR_SET_TIMERSLACK, 1ul);
	if (make_page(argv[1]) < 0) {
		return 1;
	}
	signal(SIGTERM, end_processes);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (argc > 2) {
		child = fork();
		if (child == 0) {
			signal(SIGTERM, SIG_DFL);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			return run_command(argv[1], argv + 2) < 0 ? 127 : 0;
		}
	}
	allow_files();
	while (child < 0 || waitpid(child, &status, WNOHANG) == 0) {
		if (step(child < 0)) {
			pause_ns = NAP_MIN_NS;
		} else {
			nap(pause_ns);
			pause_ns = MIN(pause_ns + pause_ns / 4, NAP_MAX_NS);
		}
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Replaces the clocks of a program of the tests, and every wait with a timeout, by the clock of the
 * page that GBPF_CLOCK names. For LD_PRELOAD; virtual_time.c advances the clock.
 *
 * A wait publishes its deadline and then waits without a timeout. When the deadline has come,
 * virtual_time interrupts the thread by a signal and repeats it every 0.2 ms until the wait has
 * ended, so a signal that arrives just before the system call is not a lost wake-up. A wait whose
 * deadline has come keeps its entry until the call returns, and the clock stands until then.
 *
 * Threads that pthread_create() makes are counted, so that virtual_time lists them.
 *
 * Condition variables cannot be interrupted: they wake up spuriously every 5 ms instead.
 * Not replaced: processor time, timeouts of sockets, select(), POSIX timers, time(),
 * sigtimedwait(), epoll_pwait2(), timed waits for semaphores and mutexes. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

#include "page.h"

#define NS_PER_SECOND 1000000000u
#define TIMERS_MAX 64
#define COND_SLICE_NS 5000000
#define SPIN_POLL_NS 40000
/* Bit of pthread_cond_t.__data.__wrefs in glibc: the condition variable counts in CLOCK_MONOTONIC.
 */
#define COND_MONOTONIC 2u

enum next {
	next_fork,
	next_sched_yield,
	next_clock_gettime,
	next_clock_nanosleep,
	next_nanosleep,
	next_ppoll,
	next_poll,
	next_epoll_pwait,
	next_epoll_wait,
	next_timerfd_create,
	next_timerfd_settime,
	next_syscall,
	next_pthread_cond_clockwait,
	next_pthread_cond_timedwait,
	next_pthread_create,
	NEXT_COUNT
};

/* libc's definition of a function that this file replaces. */
#define NEXT(function) ((__typeof__(&(function)))(uintptr_t)next_of(next_##function, #function))

static void *next_of(enum next i, const char *name)
{
	static void *found[NEXT_COUNT]; /* [atomic] */
	void *f = load_relaxed(&found[i]);

	if (!f) {
		f = dlsym(RTLD_NEXT, name);
		store_relaxed(&found[i], f);
	}
	return f;
}

struct timer {
	uint64_t deadline; /* [atomic] CLOCK_NEVER: not armed */
	int fd;		   /* [atomic] + 1; 0: free */
};

static struct clock_page *page; /* NULL: real time */
static struct timer timers[TIMERS_MAX];
static TLS_FAST struct clock_wait *own;
static TLS_FAST volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = 1;
}

/* Enters a process, unless it has been entered before fork() returned or before execve(). */
static void enter_process(int32_t pid)
{
	int32_t none;

	for (unsigned i = 0; i < CLOCK_PROCESSES_MAX; i++) {
		none = 0;
		if (load_acquire(&page->pids[i]) == pid || cas_acqrel(&page->pids[i], &none, pid)) {
			return;
		}
	}
	abort();
}

static void after_fork(void)
{
	own = NULL;
	enter_process((int32_t)getpid());
}

__attribute__((constructor)) static void enter(void)
{
	const char *path = getenv("GBPF_CLOCK");
	struct sigaction act = { .sa_handler = on_signal };
	void *p = MAP_FAILED;
	sigset_t blocked;
	int fd;

	if (!path) {
		return;
	}
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		p = mmap(NULL, sizeof(struct clock_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			 0);
		close(fd);
	}
	if (p == MAP_FAILED || sigaction(CLOCK_SIGNAL, &act, NULL) < 0) {
		abort();
	}
	/* The signal may come when the wait has ended: it must not interrupt the next call. */
	sigemptyset(&blocked);
	sigaddset(&blocked, CLOCK_SIGNAL);
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	page = p;
	enter_process((int32_t)getpid());
	pthread_atfork(NULL, NULL, after_fork);
}

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * NS_PER_SECOND + (uint64_t)t->tv_nsec;
}

/* Entries are freed by virtual_time, when their threads have ended. */
static struct clock_wait *own_wait(void)
{
	int32_t tid, none;

	if (own) {
		return own;
	}
	tid = (int32_t)NEXT(syscall)(SYS_gettid);
	for (unsigned i = 0; i < CLOCK_WAITS_MAX; i++) {
		struct clock_wait *w = &page->waits[i];

		none = 0;
		if (load_acquire(&w->tid) == tid) { /* before execve() */
			w->pid = (int32_t)getpid();
			store_relaxed(&w->deadline, CLOCK_NEVER);
			store_relaxed(&w->reads, 0u);
			store_relaxed(&w->naps, 0u);
			return own = w;
		}
		if (cas_acqrel(&w->tid, &none, -1)) { /* taken, and not complete */
			w->pid = (int32_t)getpid();
			store_relaxed(&w->deadline, CLOCK_NEVER);
			store_relaxed(&w->reads, 0u);
			store_relaxed(&w->naps, 0u);
			store_release(&w->tid, tid);
			return own = w;
		}
	}
	abort();
}

/* Counts a read of the clock. Returns true if the thread spins, when the clock has advanced, or
 * after SPIN_POLL_NS of real time: it may wait for another thread instead. Longer naps are cheaper,
 * but more virtual time passes until it sees what that thread has done. */
static bool spins(void)
{
	static const struct timespec poll_time = { .tv_nsec = SPIN_POLL_NS };
	uint32_t advances = load_seqcst(&page->advances); /* before the read counts */
	struct clock_wait *w = own_wait();
	uint32_t reads = load_relaxed(&w->reads) + 1;

	if (reads <= CLOCK_SPIN_READS) {
		store_relaxed(&w->spins_from, load_relaxed(&page->now));
	}
	store_release(&w->reads, MAX(reads, 1u));
	if (reads <= CLOCK_SPIN_READS) {
		return false;
	}
	store_seqcst(&w->naps, 1u);
	(void)NEXT(syscall)(SYS_futex, &page->advances, FUTEX_WAIT, advances, &poll_time, NULL, 0);
	store_seqcst(&w->naps, 0u);
	return true;
}

static uint64_t now_ns(void)
{
	return spins() ? load_acquire(&page->now)
		       : add_relaxed(&page->now, (uint64_t)CLOCK_READ_NS) + CLOCK_READ_NS;
}

static uint64_t after(uint64_t ns)
{
	uint64_t at;

	return checked_add(now_ns(), ns, &at) || at > CLOCK_NEVER - CLOCK_SLACK_NS
		       ? CLOCK_NEVER
		       : ROUND_UP(at, CLOCK_SLACK_NS);
}

static uint64_t after_ms(int ms)
{
	return ms < 0 ? CLOCK_NEVER : after((uint64_t)ms * 1000000u);
}

struct waiting {
	struct clock_wait *wait;
	sigset_t mask; /* of the thread before */
};

static void begin(struct waiting *w, uint64_t deadline)
{
	sigset_t unblock;

	w->wait = own_wait();
	sigemptyset(&unblock);
	sigaddset(&unblock, CLOCK_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &unblock, &w->mask);
	interrupted = 0;
	store_relaxed(&w->wait->reads, 0u);
	store_release(&w->wait->deadline, deadline);
}

/* Keeps errno. */
static void end(struct waiting *w)
{
	int saved = errno;

	store_release(&w->wait->deadline, CLOCK_NEVER);
	sigaddset(&w->mask, CLOCK_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &w->mask, NULL);
	errno = saved;
}

/* Returns true if a call that failed with EINTR must be repeated. */
static bool was_ours(void)
{
	bool ours = errno == EINTR && interrupted;

	interrupted = 0;
	return ours;
}

static bool is_due(uint64_t deadline)
{
	return deadline != CLOCK_NEVER && load_acquire(&page->now) >= deadline;
}

static bool is_wall(clockid_t id)
{
	return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
}

static bool is_virtual(clockid_t id)
{
	return page && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW ||
			id == CLOCK_MONOTONIC_COARSE || id == CLOCK_BOOTTIME || is_wall(id));
}

/* Returns the time of the page's clock at an absolute time of a clock. */
static uint64_t deadline_of(clockid_t id, const struct timespec *t)
{
	uint64_t ns = ns_of(t), to_wall = is_wall(id) ? page->to_wall : 0;

	return ns - MIN(ns, to_wall);
}

/* The parent enters the child too: if it waits for the child before that has entered itself, no
 * time passes. */
EXPORT pid_t fork(void)
{
	pid_t pid = NEXT(fork)();

	if (page && pid > 0) {
		enter_process((int32_t)pid);
	}
	return pid;
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	int err = NEXT(pthread_create)(thread, attr, run, arg);

	if (page && !err) {
		add_acqrel(&page->created, 1u);
	}
	return err;
}

EXPORT int sched_yield(void)
{
	if (page) {
		(void)spins();
	}
	return NEXT(sched_yield)();
}

EXPORT int clock_gettime(clockid_t id, struct timespec *t)
{
	if (!is_virtual(id)) {
		return NEXT(clock_gettime)(id, t);
	}
	*t = clock_timespec(now_ns() + (is_wall(id) ? page->to_wall : 0));
	return 0;
}

/* Sleeps; returns 0 or EINTR. */
static int sleep_until(uint64_t deadline)
{
	struct waiting w;
	int err = 0;

	begin(&w, deadline);
	while (!is_due(deadline)) {
		if (NEXT(ppoll)(NULL, 0, NULL, NULL) < 0 && !was_ours()) {
			err = errno;
			break;
		}
	}
	end(&w);
	return err;
}

EXPORT int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	uint64_t deadline, now;
	int err;

	if (!is_virtual(id) || t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec >= NS_PER_SECOND) {
		return NEXT(clock_nanosleep)(id, flags, t, left);
	}
	deadline = flags & TIMER_ABSTIME ? deadline_of(id, t) : after(ns_of(t));
	err = sleep_until(deadline);
	if (err && left && !(flags & TIMER_ABSTIME)) {
		now = now_ns();
		*left = clock_timespec(deadline > now ? deadline - now : 0);
	}
	return err;
}

EXPORT int nanosleep(const struct timespec *t, struct timespec *left)
{
	int err;

	if (!page) {
		return NEXT(nanosleep)(t, left);
	}
	err = clock_nanosleep(CLOCK_MONOTONIC, 0, t, left);
	errno = err ? err : errno;
	return err ? -1 : 0;
}

EXPORT int usleep(useconds_t us)
{
	struct timespec t = clock_timespec((uint64_t)us * 1000u);

	return nanosleep(&t, NULL);
}

EXPORT unsigned sleep(unsigned seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds }, left = { 0 };

	return nanosleep(&t, &left) < 0 ? (unsigned)left.tv_sec + 1 : 0;
}

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	static const struct timespec none;
	struct waiting w;
	uint64_t deadline;
	sigset_t open;
	bool due;
	int r;

	if (!page || !timeout || ns_of(timeout) == 0) {
		return NEXT(ppoll)(fds, n, timeout, mask);
	}
	deadline = after(ns_of(timeout));
	if (mask) {
		open = *mask;
		sigdelset(&open, CLOCK_SIGNAL);
	}
	begin(&w, deadline);
	do {
		due = is_due(deadline);
		r = NEXT(ppoll)(fds, n, due ? &none : NULL, mask ? &open : NULL);
	} while (r < 0 && !due && was_ours());
	end(&w);
	return r;
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec t;

	if (!page || ms <= 0) {
		return NEXT(poll)(fds, n, ms);
	}
	t = clock_timespec((uint64_t)ms * 1000000u);
	return ppoll(fds, n, &t, NULL);
}

/* Makes the timers expire whose time has come, and sets *any if there is one. Returns the next
 * deadline, of these too. */
static uint64_t expire_timers(bool *any)
{
	static const struct itimerspec at_once = { .it_value = { .tv_nsec = 1 } };
	uint64_t next = CLOCK_NEVER;

	for (unsigned i = 0; i < TIMERS_MAX; i++) {
		int fd = load_acquire(&timers[i].fd) - 1;
		uint64_t deadline = load_acquire(&timers[i].deadline);

		if (fd < 0) {
			break;
		}
		next = MIN(next, deadline);
		if (is_due(deadline) && cas_acqrel(&timers[i].deadline, &deadline, CLOCK_NEVER)) {
			(void)NEXT(timerfd_settime)(fd, 0, &at_once, NULL);
			*any = true;
		}
	}
	return next;
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int ms, const sigset_t *mask)
{
	bool expired = false, due;
	uint64_t deadline, next;
	struct waiting w;
	sigset_t open;
	int r;

	if (!page || ms == 0) {
		return NEXT(epoll_pwait)(fd, events, n, ms, mask);
	}
	deadline = after_ms(ms);
	if (mask) {
		open = *mask;
		sigdelset(&open, CLOCK_SIGNAL);
	}
	begin(&w, CLOCK_NEVER);
	do {
		next = expire_timers(&expired);
		/* Due until this call returns, which it does as soon as the timer has expired. */
		store_release(&w.wait->deadline, expired ? 0 : MIN(deadline, next));
		due = is_due(deadline);
		r = NEXT(epoll_pwait)(fd, events, n, due ? 0 : -1, mask ? &open : NULL);
	} while (r < 0 && !due && was_ours());
	end(&w);
	return r;
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int n, int ms)
{
	return page ? epoll_pwait(fd, events, n, ms, NULL) : NEXT(epoll_wait)(fd, events, n, ms);
}

EXPORT int timerfd_create(int id, int flags)
{
	int fd = NEXT(timerfd_create)(id, flags);

	if (fd < 0 || !is_virtual(id)) {
		return fd;
	}
	for (unsigned i = 0; i < TIMERS_MAX; i++) {
		int none = load_relaxed(&timers[i].fd);

		/* One with this number has been closed. */
		if ((none == 0 || none == fd + 1) && cas_acqrel(&timers[i].fd, &none, fd + 1)) {
			store_release(&timers[i].deadline, CLOCK_NEVER);
			return fd;
		}
	}
	abort();
}

EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *t, struct itimerspec *old)
{
	static const struct itimerspec off;
	uint64_t ns = ns_of(&t->it_value);
	struct timer *timer = NULL;

	for (unsigned i = 0; page && i < TIMERS_MAX && !timer; i++) {
		timer = load_acquire(&timers[i].fd) == fd + 1 ? &timers[i] : NULL;
	}
	if (!timer) {
		return NEXT(timerfd_settime)(fd, flags, t, old);
	}
	if (ns_of(&t->it_interval) || old) {
		abort(); /* no program needs it */
	}
	store_release(&timer->deadline, ns == 0			    ? CLOCK_NEVER
					: flags & TFD_TIMER_ABSTIME ? ns
								    : after(ns));
	return NEXT(timerfd_settime)(fd, 0, &off, NULL); /* not expired, until expire_timers() */
}

static long wait_on_word(long op, const long *a, uint64_t deadline)
{
	struct waiting w;
	long r;

	begin(&w, deadline);
	do {
		if (is_due(deadline)) {
			r = -1;
			errno = ETIMEDOUT;
			break;
		}
		r = NEXT(syscall)(SYS_futex, a[0], op, a[2], NULL, a[4], a[5]);
	} while (r < 0 && was_ours());
	end(&w);
	return r;
}

EXPORT long syscall(long number, ...)
{
	const struct timespec *timeout;
	long a[6], r;
	va_list l;

	va_start(l, number);
	for (unsigned i = 0; i < 6; i++) {
		a[i] = va_arg(l, long);
	}
	va_end(l);
	timeout = (const struct timespec *)a[3];
	if (page && number == SYS_futex && timeout) {
		switch (a[1] & FUTEX_CMD_MASK) {
		case FUTEX_WAIT:
			return wait_on_word(a[1], a, after(ns_of(timeout)));
		case FUTEX_WAIT_BITSET:
			if (!(a[1] & FUTEX_CLOCK_REALTIME)) {
				return wait_on_word(a[1], a, ns_of(timeout));
			}
			break;
		}
	}
	r = NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (page && number == SYS_clone && !(a[0] & CLONE_VM)) {
		if (r > 0) {
			enter_process((int32_t)r); /* as fork() */
		} else if (r == 0) {
			after_fork();
		}
	}
	return r;
}

/* Returns ETIMEDOUT at the deadline, and 0 earlier than a real one would. */
static int wait_on_cond(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline)
{
	struct timespec slice;
	struct waiting w;
	bool due;
	int err;

	NEXT(clock_gettime)(CLOCK_MONOTONIC, &slice);
	due = is_due(deadline);
	slice = clock_timespec(ns_of(&slice) + (due ? 0 : COND_SLICE_NS));
	begin(&w, deadline);
	err = NEXT(pthread_cond_clockwait)(cond, mutex, CLOCK_MONOTONIC, &slice);
	end(&w);
	return err == ETIMEDOUT && !due ? 0 : err;
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t id,
				  const struct timespec *until)
{
	return is_virtual(id) ? wait_on_cond(cond, mutex, deadline_of(id, until))
			      : NEXT(pthread_cond_clockwait)(cond, mutex, id, until);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				  const struct timespec *until)
{
	clockid_t id = load_relaxed(&cond->__data.__wrefs) & COND_MONOTONIC ? CLOCK_MONOTONIC
									    : CLOCK_REALTIME;

	return page ? wait_on_cond(cond, mutex, deadline_of(id, until))
		    : NEXT(pthread_cond_timedwait)(cond, mutex, until);
}

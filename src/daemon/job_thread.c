/* Threads that run jobs; their results return to the loop through an eventfd. */
#include "daemon/job_thread.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/fd.h"

static void push(struct daemon_job **list, struct daemon_job *j)
{
	j->next = NULL;
	while (*list) {
		list = &(*list)->next;
	}
	*list = j;
}

static void *run(void *arg)
{
	struct daemon_job_thread *w = arg;

	lock_take(&w->lock);
	for (;;) {
		struct daemon_job *j = w->waiting;

		if (w->stop) {
			break;
		}
		if (!j) {
			lock_wait(&w->lock, &w->wake);
			continue;
		}
		w->waiting = j->next;
		lock_release(&w->lock);
		j->work(j);
		lock_take(&w->lock);
		push(&w->finished, j);
		if (write(w->event_fd, &(uint64_t){ 1 }, sizeof(uint64_t)) < 0) {
			continue; /* the counter is full, so the loop will wake anyway */
		}
	}
	lock_release(&w->lock);
	return NULL;
}

static int on_finished(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
	struct daemon_job_thread *w = arg;
	uint64_t n;

	(void)s;
	(void)revents;
	if (read(fd, &n, sizeof(n)) < 0 && errno != EAGAIN) {
		return 0;
	}
	for (;;) {
		struct daemon_job *j;

		lock_take(&w->lock);
		j = w->finished;
		w->finished = j ? j->next : NULL;
		lock_release(&w->lock);
		if (!j) {
			return 0;
		}
		j->done(j);
	}
}

int daemon_job_thread_start(struct daemon_job_thread *w, sd_event *loop, unsigned n)
{
	sigset_t all, old;
	int err = 0;

	memset(w, 0, sizeof(*w));
	lock_init(&w->lock, LOCK_JOBS);
	pthread_cond_init(&w->wake, NULL);
	w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->event_fd < 0) {
		return -errno;
	}
	err = sd_event_add_io(loop, &w->source, w->event_fd, EPOLLIN, on_finished, w);
	if (err < 0) {
		w->event_fd = fd_close(w->event_fd);
		return err;
	}
	sigfillset(&all); /* signals are handled by the loop */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!err && w->n < MIN(n, (unsigned)DAEMON_JOB_THREADS)) {
		err = pthread_create(&w->thread[w->n], NULL, run, w);
		w->n += err == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	w->running = w->n > 0;
	return w->running ? 0 : -err; /* one is enough */
}

void daemon_job_thread_submit(struct daemon_job_thread *w, struct daemon_job *j)
{
	lock_take(&w->lock);
	push(&w->waiting, j);
	pthread_cond_signal(&w->wake);
	lock_release(&w->lock);
}

static void drop_all(struct daemon_job *j)
{
	while (j) {
		struct daemon_job *next = j->next;

		j->drop(j);
		j = next;
	}
}

void daemon_job_thread_stop(struct daemon_job_thread *w)
{
	if (!w->running) {
		return;
	}
	lock_take(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->wake);
	lock_release(&w->lock);
	while (w->n) {
		pthread_join(w->thread[--w->n], NULL);
	}
	w->running = false;
	drop_all(w->waiting);
	drop_all(w->finished);
	w->waiting = w->finished = NULL;
	w->source = sd_event_source_disable_unref(w->source);
	w->event_fd = fd_close(w->event_fd);
}

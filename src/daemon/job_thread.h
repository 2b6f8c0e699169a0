/* One thread for what would block the loop: building policies and writing to disk. Jobs run in
 * order. */
#ifndef GBPF_DAEMON_JOB_THREAD_H
#define GBPF_DAEMON_JOB_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <systemd/sd-event.h>

struct job {
	struct job *next;
	void (*work)(struct job *j); /* on the worker; touches nothing but the job */
	void (*done)(struct job *j); /* on the loop; takes the job */
	void (*drop)(struct job *j); /* instead of done, when the daemon ends */
};

struct worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job *waiting, *finished; /* lock */
	bool stop;			/* lock */
	bool running;
	int event_fd;
	sd_event_source *source;
};

int worker_start(struct worker *w, sd_event *loop);
void worker_submit(struct worker *w, struct job *j);
/* Waits for the job that runs; drops the others. */
void worker_stop(struct worker *w);

#endif

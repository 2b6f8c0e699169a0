/* Threads for work that would block the loop. The worker makes the memory of versions and writes to
 * disk, verifiers verify objects, the control thread calls the driver. Jobs start in order, and so
 * end in order where there is one thread. */
#ifndef GBPF_DAEMON_JOB_THREAD_H
#define GBPF_DAEMON_JOB_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <systemd/sd-event.h>

#include "base/lock.h"

struct daemon_job {
	struct daemon_job *next;
	void (*work)(struct daemon_job *j); /* on the thread; must touch nothing but the job */
	void (*done)(struct daemon_job *j); /* on the loop; takes the job */
	void (*drop)(struct daemon_job *j); /* instead of done, if the daemon exits first */
};

#define DAEMON_JOB_THREADS 4u /* of one list */

struct daemon_job_thread {
	pthread_t thread[DAEMON_JOB_THREADS];
	unsigned n; /* threads that run */
	struct lock lock;
	pthread_cond_t wake;
	struct daemon_job *waiting, *finished; /* guarded by lock */
	bool stop;			       /* guarded by lock */
	bool running;			       /* has threads */
	int event_fd;
	sd_event_source *source;
};

/* Starts n threads, at most DAEMON_JOB_THREADS, that share one list of jobs. 0 or -errno. */
int daemon_job_thread_start(struct daemon_job_thread *w, sd_event *loop, unsigned n);
void daemon_job_thread_submit(struct daemon_job_thread *w, struct daemon_job *j);
/* Waits for the running jobs and drops the others. */
void daemon_job_thread_stop(struct daemon_job_thread *w);

#endif

/* Detached threads. */
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

int thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int err = pthread_attr_init(&attr);

	if (err) {
		return -err;
	}
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack_bytes) {
		pthread_attr_setstacksize(&attr, stack_bytes);
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

/* Threads that the rooms create inside a host program. */
#ifndef GBPF_BASE_THREAD_H
#define GBPF_BASE_THREAD_H

#include <stddef.h>

/* Starts a detached thread with all signals blocked, because signals belong to the program's own
 * threads. stack_bytes 0: the program's default. 0 or -errno. */
int thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes);

#endif

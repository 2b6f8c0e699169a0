/* Threads of our own inside a program. */
#ifndef GBPF_BASE_THREAD_H
#define GBPF_BASE_THREAD_H

#include <stddef.h>

/* A thread that nobody joins and that takes no signals: those are for the program's own threads.
 * stack_bytes 0: as large as the program's. 0 or -errno. */
int thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes);

#endif

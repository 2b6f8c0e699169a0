/* A private gbpf-softgpu as a child process, for measurements and checks apart from the user's. */
#ifndef GBPF_CLI_SOFTGPU_START_H
#define GBPF_CLI_SOFTGPU_START_H

#include <sys/types.h>

/* Starts it with its socket dir/softgpu.sock and further arguments (NULL-terminated). Returns 0
 * with *ret when clients may connect, or -errno. Signals of the terminal do not reach it; it ends
 * with this process. */
int cli_softgpu_start(const char *dir, const char *const *more, pid_t *ret);
/* Ends it and waits; returns its status as in waitpid(2), 0 if pid is 0. */
int cli_softgpu_stop(pid_t pid);

#endif

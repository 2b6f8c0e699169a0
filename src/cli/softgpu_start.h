/* A gbpf-softgpu of our own, as a child: for what is measured or checked apart from the user's. */
#ifndef GBPF_CLI_SOFTGPU_START_H
#define GBPF_CLI_SOFTGPU_START_H

#include <sys/types.h>

/* Starts it with its socket in dir, named softgpu.sock, and further arguments (ends with NULL).
 * Returns when clients may connect: 0 with *ret, or -errno. The terminal's signals do not reach it;
 * it ends when we do. */
int cli_softgpu_start(const char *dir, const char *const *more, pid_t *ret);
/* Ends it and waits; its status as waitpid(2) has it, 0 where pid is 0. */
int cli_softgpu_stop(pid_t pid);

#endif

/* Test rig of the soft GPU: a private server, and CUDA programs as child processes of the test. */
#ifndef GBPF_TESTS_SOFT_RIG_H
#define GBPF_TESTS_SOFT_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuabi/api.h"
#include "soft/protocol.h"

extern char rig_dir[64];
extern pid_t rig_server;

/* A runtime directory of its own under /tmp, and the environment for clients. SOFTGPU must name the
 * server's program. */
void rig_open(void);
void rig_close(void);
/* Starts a server there with these extra arguments (NULL-terminated) and waits until it listens. */
void rig_start(const char *const *args);
void rig_stop(int signal);
/* Tear-down of a group of tests: no server, no directory. */
int rig_end(void **state);
/* The set-up of most groups: a soft GPU of 256 MiB with two SMs and two workers. */
int rig_begin_small(void **state);
/* That of groups which fill its memory: 64 MiB. */
int rig_begin_tight(void **state);
/* Runs fn in a child; its exit code (128 + signal when killed). */
int rig_run(void (*fn)(void *), void *arg);
pid_t rig_spawn(void (*fn)(void *), void *arg);
int rig_wait(pid_t pid);
/* A bare connection to the server. */
int rig_connect(void);
struct soft_stats rig_stats(void);
/* Statistics once the server has no client but the one that asks. */
struct soft_stats rig_stats_idle(void);
/* The same, once no shared memory and no device memory is left: its user's descriptors are noticed
 * a moment after the user has gone. Fails the test when some stays. */
struct soft_stats rig_stats_unshared(void);
/* Fails unless the server soon has no more descriptors than before: what clients sent is closed by
 * threads of its own, a moment later. */
void rig_check_descriptors(const struct soft_stats *before);

/* In children: ends the process with a message when something is not as it should be. */
#define CHECK(cond) rig_check(cond, #cond, __FILE__, __LINE__, 0)
#define CU(call) rig_check_cu(call, CUDA_SUCCESS, #call, __FILE__, __LINE__)
#define CU_IS(expected, call) rig_check_cu(call, expected, #call, __FILE__, __LINE__)
void rig_check(bool ok, const char *what, const char *file, int line, long value);
void rig_check_cu(CUresult r, CUresult expected, const char *what, const char *file, int line);

/* A context and the module below, in a child. */
CUcontext rig_context(void);
CUfunction rig_function(const char *name);
void rig_launch(CUfunction f, unsigned grid, unsigned block, CUstream s, void **params);

/* Kernels: add(a, b, c, n); empty(); spin(out, n): n rounds, then out[block] = n; wild(): stores to
 * address 16; odd(p): stores 4 bytes to p + 2; until(flag): runs until *flag is not 0;
 * copy_first(to, from): one word;
 * stamp(counter, out): draws a number. */
extern const char rig_ptx[];

#endif

/* Test rig of the soft GPU: a private server, and CUDA programs as child processes of the test. */
#ifndef GBPF_TESTS_SOFT_RIG_H
#define GBPF_TESTS_SOFT_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuabi/api.h"
#include "cuabi/private.h"
#include "soft/protocol.h"

extern char rig_dir[64];
extern pid_t rig_server;

/* Creates a runtime directory under /tmp and sets the environment for clients. SOFTGPU must name
 * the server program. */
void rig_open(void);
void rig_close(void);
/* Starts a server in the runtime directory with these extra arguments (NULL-terminated) and waits
 * until it listens. */
void rig_start(const char *const *args);
void rig_stop(int signal);
/* Ends the server, if there is one, and starts one with these arguments. */
void rig_restart(const char *const *args);
/* Tears down a group of tests: stops the server and removes the directory. */
int rig_end(void **state);
/* Sets up most groups: a soft GPU of 256 MiB with two SMs and two workers. */
int rig_begin_small(void **state);
/* Sets up groups that exhaust its memory: 64 MiB. */
int rig_begin_tight(void **state);
/* Runs fn in a child process. Returns its exit code, or 128 + the signal that killed it. */
int rig_run(void (*fn)(void *), void *arg);
pid_t rig_spawn(void (*fn)(void *), void *arg);
int rig_wait(pid_t pid);
/* Opens a bare connection to the server. */
int rig_connect(void);
struct soft_stats rig_stats(void);
/* Returns statistics once the server has no client except the one that queries them. */
struct soft_stats rig_stats_idle(void);
/* The same, once no shared memory and no device memory is left: the server notices closed
 * descriptors a moment after their owner has exited. Fails the test if some remains. */
struct soft_stats rig_stats_unshared(void);
/* Fails unless the number of descriptors returns to that in *before: the server closes
 * received descriptors in separate threads, a moment later. */
void rig_check_descriptors(const struct soft_stats *before);

/* In child processes: exit with a message if the condition does not hold. */
#define CHECK(cond) rig_check(cond, #cond, __FILE__, __LINE__, 0)
#define CU(call) rig_check_cu(call, CUDA_SUCCESS, #call, __FILE__, __LINE__)
#define CU_IS(expected, call) rig_check_cu(call, expected, #call, __FILE__, __LINE__)
void rig_check(bool ok, const char *what, const char *file, int line, long value);
void rig_check_cu(CUresult r, CUresult expected, const char *what, const char *file, int line);

/* In a child: creates a context and loads the module below. */
CUcontext rig_context(void);
/* Returns what the soft GPU offers beyond CUDA. */
const struct cuabi_soft_table *rig_table(void);
CUfunction rig_function(const char *name);
void rig_launch(CUfunction f, unsigned grid, unsigned block, CUstream s, void **params);
/* Returns a page of zeroed pinned words, which the device and this process access. */
volatile uint32_t *rig_words(void);
/* Launches tick() in any context, with w[0] as the counter and w[16] as the word that ends it. */
void rig_tick(volatile uint32_t *w, unsigned blocks, CUstream s);

/* Kernels: add(a, b, c, n); empty(); spin(out, n): n rounds, then out[block] = n; wild(): stores to
 * address 16; odd(p): stores 4 bytes to p + 2; until(flag): runs until *flag is not 0;
 * copy_first(to, from): copies one word; stamp(counter, out): draws a number; tick(counter, stop):
 * adds 1 repeatedly until *stop. */
extern const char rig_ptx[];

#endif

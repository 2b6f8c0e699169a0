/* The environment of a bench: a folder of its own with, as needed, a soft GPU, MPS control daemons
 * and gbpfds, and the processes in it. Every wait has a timeout, and every started process is ended
 * by its id, also after a failure or a signal. One testbed per process; one thread. */
#ifndef GBPF_BENCH_COMMON_TESTBED_H
#define GBPF_BENCH_COMMON_TESTBED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "bench/common/shared_page.h"

#define TESTBED_DAEMONS 32u
#define TESTBED_CHILDREN 256u
#define TESTBED_ARGS 64
#define TESTBED_IMAGE 160 /* bytes of the path of an image */

struct gbpf;
struct json_t;

/* A gbpfd in a folder of its own. */
struct bench_testbed_daemon {
	char dir[128];
	struct gbpf *g; /* owned */
};

struct bench_testbed {
	const char *libcuda, *gbpf, *gbpfd, *server,
		*client; /* paths of programs and the driver library */
	const char *policy,
		*policy_name; /* of gBPF, where the bench has one: its object, its name */
	bool soft, progress;
	const char *link_bandwidth; /* of the soft GPU, bytes per second; NULL: not modelled */
	char dir[96];
	char soft_socket[128];
	pid_t server_pid, mps_pid;
	char mps_dir[128]; /* pipes of the MPS control daemon; empty: none */
	struct bench_testbed_daemon daemon[TESTBED_DAEMONS];
	unsigned daemons;
	pid_t children[TESTBED_CHILDREN]; /* leaders of live process groups */
	char error[512];
	char last_progress[160];
};

/* Sets up folder, signals, and the soft GPU. Returns 0, or -errno with error. */
int bench_testbed_init(struct bench_testbed *w);
void bench_testbed_finish(struct bench_testbed *w);
bool bench_testbed_interrupted(void);
/* Sets error; returns -1. */
int bench_testbed_fail(struct bench_testbed *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Reports progress on standard error, on a terminal or if it was requested. */
void bench_testbed_progress(struct bench_testbed *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Writes a record (program.h), after erasing the progress on a terminal. Returns 0; -1 with error.
 */
int bench_testbed_record(struct bench_testbed *w, const char *name, struct json_t *body);
/* Ends the run and the records; err: error is set. Returns the exit code. */
int bench_testbed_exit(struct bench_testbed *w, int err, bool failed);

/* Starts a gbpfd; returns it, or NULL with error. policy: path of an object, NULL: none. */
struct bench_testbed_daemon *bench_testbed_gbpfd(struct bench_testbed *w, const char *policy);
/* The same with one of gBPF's policies in `folder`; "none": one that only observes. */
struct bench_testbed_daemon *bench_testbed_gbpfd_with(struct bench_testbed *w, const char *folder,
						      const char *policy);
/* Kills a gbpfd, and waits until it has exited. Returns 0; -1 with error. */
int bench_testbed_kill_gbpfd(struct bench_testbed *w, struct bench_testbed_daemon *d);
/* Starts it again, on the same folder. Returns 0; -1 with error. */
int bench_testbed_restart_gbpfd(struct bench_testbed *w, struct bench_testbed_daemon *d);
/* Returns gbpfd's list of tenants (json_t of jansson; caller releases), or NULL if it does not
 * answer. */
struct json_t *bench_testbed_tenants(const struct bench_testbed_daemon *d);
/* The same of this process alone: its entry in the list, or NULL. */
struct json_t *bench_testbed_own_tenant(const struct bench_testbed_daemon *d);
/* Sets the variables of `gbpf run` for the shim that this process opens; d may be NULL, for a shim
 * that is off. Returns 0; -1 with error. */
int bench_testbed_enter(struct bench_testbed *w, const struct bench_testbed_daemon *d,
			const char *class_name);
/* Returns the kernels of the processes of that name and how they can be probed, as "tenants" of
 * probe.coverage; NULL: gbpfd answers an error. */
struct json_t *bench_testbed_coverage(const struct bench_testbed_daemon *d, const char *name);
/* Stores that counter of each of n processes, out of `stats` of gbpfd's list. Returns 0; -1 with
 * error if it does not list all of them. */
int bench_testbed_counters(struct bench_testbed *w, const struct bench_testbed_daemon *d,
			   const uint32_t *pid, unsigned n, const char *name, uint64_t *v);
/* Returns gbpfd's events with a sequence number above since (json_t of jansson; caller releases);
 * fewer or none if it does not answer. NULL: out of memory. */
struct json_t *bench_testbed_events(const struct bench_testbed_daemon *d, uint64_t since);
/* Makes a virtual GPU with that name, or changes it. Sizes are bytes; 0: none. Returns 0; -1 with
 * error. */
int bench_testbed_vgpu(struct bench_testbed *w, const struct bench_testbed_daemon *d,
		       const char *name, uint64_t mem, uint64_t swap, uint64_t reserve,
		       unsigned prio);
/* Starts MPS, once. Returns 0, or -1 with the reason in error. */
int bench_testbed_mps(struct bench_testbed *w);

/* The options by which `gbpf bench` passes the paths. */
#define BENCH_TESTBED_OPTIONS(w)                                                                   \
	{ "--libcuda", .text = &(w)->libcuda }, { "--gbpf", .text = &(w)->gbpf },                  \
		{ "--gbpfd", .text = &(w)->gbpfd }, { "--server", .text = &(w)->server },          \
		{ "--client", .text = &(w)->client }, { "--policy", .text = &(w)->policy },        \
		{ "--policy-name", .text = &(w)->policy_name }, { "--soft", .flag = &(w)->soft },  \
	{                                                                                          \
		"--progress", .flag = &(w)->progress                                               \
	}

/* Returns whether `gbpf run` has an option. */
bool bench_testbed_run_offers(struct bench_testbed *w, const char *option);

/* An argument vector under construction. */
struct bench_testbed_command {
	char *argv[TESTBED_ARGS]; /* owned */
	char *env[16];		  /* owned; "NAME=VALUE", or "NAME" to remove it */
	unsigned n, n_env;
	int failed;
};
void bench_command_init(struct bench_testbed_command *k);
void bench_command_finish(struct bench_testbed_command *k);
void bench_command_add(struct bench_testbed_command *k, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Appends an option and its value. */
void bench_command_option(struct bench_testbed_command *k, const char *name, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
void bench_command_env(struct bench_testbed_command *k, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Starts the command in a process group of its own; its output goes to log, or into the pipe behind
 * *ret_out. keep: a descriptor that it inherits, -1: none. */
pid_t bench_testbed_spawn(struct bench_testbed *w, const struct bench_testbed_command *k,
			  const char *log, int keep, int *ret_out);
/* Returns whether the process is alive. */
bool bench_testbed_lives(struct bench_testbed *w, pid_t pid);
/* Asks the process to end, and kills its group after grace_ms. */
void bench_testbed_end(struct bench_testbed *w, pid_t pid, unsigned grace_ms);

/* Runs a measurement of this program itself in a process of its own, which a signal kills, so that
 * the testbed is removed even if a driver call never returns. It writes its records itself. Returns
 * what run returns, 0 to 254; -1 with error, that of run or that the process was ended. */
int bench_testbed_apart(struct bench_testbed *w, int (*run)(void *arg), void *arg);

/* Sharing mode of a bench-client. */
enum bench_testbed_lane {
	LANE_OWN,
	LANE_MPS,
	LANE_GBPF,	  /* process lane */
	LANE_GBPF_SHARED, /* shared lane */
	LANE_GBPF_AUTO,	  /* the policy chooses */
};
struct bench_testbed_client {
	struct bench_testbed *w;
	struct bench_page *page; /* owned */
	pid_t pid;		 /* 0: not started */
	char name[48], log[160];
	uint32_t commands;
};
struct bench_testbed_place {
	enum bench_testbed_lane lane;
	struct bench_testbed_daemon *daemon; /* of LANE_GBPF* */
	const char *class_name;		     /* of LANE_GBPF*: latency, normal, batch */
	int mps_priority;		     /* of LANE_MPS: 0 high, 1 low, -1: not set */
	uint64_t mem;			     /* of LANE_GBPF*: memory limit, bytes; 0: none */
	uint64_t swap;			     /* with mem: the same of swap, for one device */
	unsigned compute;		     /* of LANE_GBPF*: share, %; 0: none */
	unsigned copy;			     /* the same of copy bandwidth */
	bool burst;			     /* it may use more of what is left over */
	const char *vgpu; /* of LANE_GBPF*: virtual GPU with a name, NULL: none */
};
/* Prefixes a command with the environment and `gbpf run` of its place. */
void bench_testbed_put_in_place(struct bench_testbed *w, struct bench_testbed_command *k,
				const struct bench_testbed_place *p, const char *name);
/* Starts the client; k has its role and options. Returns before it is ready. */
int bench_client_start(struct bench_testbed *w, struct bench_testbed_client *c, const char *name,
		       const struct bench_testbed_place *where, const char *role,
		       const struct bench_testbed_command *k);
/* Waits until the client is ready, or has carried out the newest command. Returns 0; -1 with error:
 * it failed, timed out, or the bench was interrupted. */
int bench_client_await(struct bench_testbed_client *c, uint64_t timeout_ns);
/* Starts a client in a lane of its own and waits until it has measured the duration of blocks of
 * block_us (in its page); bench_client_stop ends it, also after a failure. */
int bench_client_calibrate(struct bench_testbed *w, struct bench_testbed_client *c,
			   unsigned threads, double block_us, uint64_t timeout_ns);
/* Lets the driver's linker compile the clients' kernels to machine code, in a process without gBPF,
 * and stores the path of the result, a file in the testbed's folder. Returns 0; -1 with error. */
int bench_client_compile(struct bench_testbed *w, char image[TESTBED_IMAGE]);
void bench_client_send(struct bench_testbed_client *c, enum bench_page_op op);
/* Ends the client. */
void bench_client_stop(struct bench_testbed_client *c);
/* Returns the processor time of the process's first thread, and of all others, in nanoseconds. */
void bench_testbed_cpu(pid_t pid, double *ret_first, double *ret_others);

#endif

/* Where a bench measures: a folder of its own with, as needed, a soft GPU, MPS control daemons and
 * gbpfds, and the processes in it. Every wait has an end, and whatever was started is ended by its
 * number, also after a failure or a signal. One world a process; one thread. */
#ifndef GBPF_BENCH_COMMON_TESTBED_H
#define GBPF_BENCH_COMMON_TESTBED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "bench/common/shared_page.h"

#define WORLD_DAEMONS 4u
#define WORLD_CHILDREN 256u
#define WORLD_ARGS 64

struct gbpf;

/* A gbpfd in a folder of its own. */
struct world_daemon {
	char dir[128];
	struct gbpf *g; /* owned */
};

struct world {
	const char *bench;				      /* "lcbe": for messages */
	const char *libcuda, *gbpf, *gbpfd, *server, *client; /* programs and the driver library */
	bool soft, progress, json;
	char dir[96];
	char soft_socket[128];
	pid_t server_pid, mps_pid;
	char mps_dir[128]; /* pipes of the MPS control daemon; empty: none */
	struct world_daemon daemon[WORLD_DAEMONS];
	unsigned daemons;
	pid_t children[WORLD_CHILDREN]; /* leaders of process groups that live */
	char error[512];
	char last_progress[160];
};

/* Folder, signals, and the soft GPU. 0, or -errno with error. */
int world_init(struct world *w);
void world_finish(struct world *w);
bool world_interrupted(void);
/* Sets error; returns -1. */
int world_fail(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Prints error, as a document with --json. */
void world_complain(const struct world *w);
/* What happens now, on standard error. */
void world_progress(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Its number, or NULL with error. policy: path of an object. */
struct world_daemon *world_gbpfd(struct world *w, const char *policy);
/* Its list of tenants (json_t of jansson), the caller's; NULL: it does not answer. */
struct json_t *world_tenants(const struct world_daemon *d);
/* 0; -1 with error: why it cannot be had here. Started once. */
int world_mps(struct world *w);

/* Takes one of the options by which `gbpf bench` says where everything is and how to print; *i
 * moves on when it has a value. False: it is another. */
bool world_option(struct world *w, const char *name, const char *value, int *i);
/* An option of one bench: a text (borrowed), or a count. */
struct world_value {
	const char *name;
	const char **text;
	unsigned *number; /* instead of text */
};
/* Sets the one of that name. False: there is none. */
bool world_value(const struct world_value *table, size_t n, const char *name, const char *value);
/* Says on standard error what to use instead; the exit code. */
int world_usage(const struct world *w);
/* Prints a document (json_t of jansson) with --json, and writes it to save, unless that is NULL. 0;
 * -1 with error. */
int world_document(struct world *w, const struct json_t *doc, const char *save);
/* True when a list with commas has that name. */
bool world_names(const char *list, const char *name);
/* True when `gbpf run` knows an option. */
bool world_run_offers(struct world *w, const char *option);

/* An argument vector under construction. */
struct world_command {
	char *argv[WORLD_ARGS]; /* owned */
	char *env[16];		/* owned; "NAME=VALUE", or "NAME": is taken away */
	unsigned n, n_env;
	int failed;
};
void command_init(struct world_command *k);
void command_finish(struct world_command *k);
void command_add(struct world_command *k, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* An option and its value. */
void command_option(struct world_command *k, const char *name, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
void command_env(struct world_command *k, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Starts it in a process group of its own; what it prints goes to log, or into the pipe behind
 * *ret_out. keep: a descriptor that it inherits, -1: none. */
pid_t world_spawn(struct world *w, const struct world_command *k, const char *log, int keep,
		  int *ret_out);
/* True while it lives. */
bool world_lives(struct world *w, pid_t pid);
/* Asks it to end, and kills its group after that time. */
void world_end(struct world *w, pid_t pid, unsigned grace_ms);

/* A bench-client with its page. */
enum world_lane {
	LANE_OWN,
	LANE_MPS,
	LANE_GBPF,	  /* process lane */
	LANE_GBPF_SHARED, /* shared lane */
	LANE_GBPF_AUTO,	  /* the policy chooses */
};
struct world_client {
	struct world *w;
	struct bench_page *page; /* owned */
	pid_t pid;		 /* 0: not started */
	char name[48], log[160];
	uint32_t commands;
};
struct world_place {
	enum world_lane lane;
	struct world_daemon *daemon; /* of LANE_GBPF* */
	const char *class_name;	     /* of LANE_GBPF*: latency, normal, batch */
	int mps_priority;	     /* of LANE_MPS: 0 high, 1 low, -1: not set */
};
/* Around a command: the environment, and `gbpf run`. */
void world_put_in_place(struct world *w, struct world_command *k, const struct world_place *p,
			const char *name);
/* Starts it; k has its role and options. Returns before it is ready. */
int client_start(struct world *w, struct world_client *c, const char *name,
		 const struct world_place *where, const char *role, const struct world_command *k);
/* 0 when it is ready, or has carried out the newest command; -1 with error: it has failed, or takes
 * longer, or we were interrupted. */
int client_await(struct world_client *c, uint64_t timeout_ns);
/* One of its own lane that has measured how long blocks of block_us take (its page); client_stop
 * ends it, also after a failure. */
int client_calibrate(struct world *w, struct world_client *c, unsigned threads, double block_us,
		     uint64_t timeout_ns);
void client_send(struct world_client *c, enum page_op op);
/* Ends it. */
void client_stop(struct world_client *c);
/* Processor time of the process's first thread, and of all others, in nanoseconds. */
void world_cpu(pid_t pid, double *ret_first, double *ret_others);

#endif

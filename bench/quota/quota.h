/* `gbpf bench memory`: the coordinator's state, and what its parts share. */
#ifndef GBPF_BENCH_QUOTA_QUOTA_H
#define GBPF_BENCH_QUOTA_QUOTA_H

#include "bench/common/testbed.h"
#include "bench/quota/quota_page.h"

#define QUOTA_READY_NS 120000000000ull
#define QUOTA_QUIET_NS 60000000000ull
#define QUOTA_POLL_NS 200000u
#define QUOTA_TASKS_MAX 8u

struct bench_quota {
	struct bench_testbed testbed;
	const char *mem, *paths, *parts;
	const char *keep; /* object of the policy of part pair */
	unsigned processes, threads, kills, gbpfd_kills, rounds, pairs, tasks;
	unsigned seed;
	double seconds;
	struct bench_quota_page *page;
	int fd; /* of the page */
	struct bench_testbed_daemon *daemon;
	pid_t probe;
	uint64_t device_bytes;
	uint32_t phases; /* number of the newest phase */
};

/* What gbpfd says of the vGPU's processes, bytes. */
struct bench_quota_ledger {
	uint64_t whole;	 /* of the vGPU */
	uint64_t used;	 /* the same without overhead, which the workers do not ask for */
	uint64_t of_all; /* sum over the processes that it lists, without overhead */
	uint64_t overhead;
	uint64_t limit;	  /* 0: it lists none */
	unsigned tenants; /* processes that it lists */
	bool has_pid;	  /* one of them has the given id */
};

/* quota_group.c: start the workers with the process that starts them again, or another client.
 * Return 0 and the process's id, or -1 with the testbed's error. */
int bench_quota_start_group(struct bench_quota *b, const struct bench_testbed_place *where,
			    const char *paths, bool check, pid_t *ret_pid);
int bench_quota_start_client(struct bench_quota *b, const struct bench_testbed_place *where,
			     const char *role, const char *name, unsigned slot, pid_t *ret_pid);
/* Waits until a client is ready, and a worker's threads are quiet. */
int bench_quota_await_ready(struct bench_quota *b, pid_t leader, unsigned slot, bool is_worker);
/* Starts the worker of a slot again. */
int bench_quota_restart(struct bench_quota *b, pid_t leader, unsigned slot);
/* Gives a client that times calls or movements the command in its slot, and waits until it is
 * carried out. */
int bench_quota_command(struct bench_quota *b, pid_t pid, unsigned slot);
/* The two halves of it. */
void bench_quota_send(struct bench_quota *b, unsigned slot);
int bench_quota_await_done(struct bench_quota *b, pid_t pid, unsigned slot);
/* Waits for at most 20 ms. Returns whether the client has carried out its command. */
bool bench_quota_wait_done(struct bench_quota *b, unsigned slot);
/* Fails with the last line of output of a client that has exited. Returns -1. */
int bench_quota_exited(struct bench_quota *b, unsigned slot);
/* Begins a phase. */
void bench_quota_begin(struct bench_quota *b, enum bench_quota_activity what);
/* Waits until the workers have done what the phase asks for; but: one that was killed. */
int bench_quota_await_quiet(struct bench_quota *b, pid_t leader, unsigned but);
/* Returns the driver's figure from after this call, free bytes of the device. */
int bench_quota_free_bytes(struct bench_quota *b, uint64_t *ret);
/* Returns false if gbpfd does not answer. */
bool bench_quota_read_ledger(const struct bench_quota *b, pid_t pid,
			     struct bench_quota_ledger *ret);
/* Returns the sum of a figure of `gbpf ps` over the processes of a virtual GPU with that name; 0 if
 * gbpfd lists none. */
uint64_t bench_quota_vgpu(const struct bench_testbed_daemon *d, const char *vgpu,
			  const char *figure);
/* Starts a client with a load, in the slot QUOTA_LOADS + i and in a virtual GPU with that name,
 * which has as much memory as the device until bench_quota_limit sets its limit. */
int bench_quota_start_load(struct bench_quota *b, const struct bench_testbed_daemon *d,
			   const char *vgpu, unsigned i, pid_t *ret_pid);
/* Sets its limit to what its processes hold now, such as contexts, and bytes. */
int bench_quota_limit(struct bench_quota *b, const struct bench_testbed_daemon *d, const char *vgpu,
		      uint64_t bytes, uint64_t swap, unsigned prio);
/* Writes what has moved of a virtual GPU's memory, as gbpfd says. */
struct bench_quota_moved {
	uint64_t out_bytes, back_bytes, in_place;
};
struct bench_quota_moved bench_quota_moved(const struct bench_testbed_daemon *d, const char *vgpu,
					   const struct bench_quota_moved *before);
/* Returns the sum of what the workers hold by their own count. */
uint64_t bench_quota_held(const struct bench_quota *b);
/* Fails if a client has, with its message; or if the bench was interrupted. */
int bench_quota_check_clients(struct bench_quota *b, pid_t leader);

/* The parts. */
int bench_quota_race(struct bench_quota *b); /* race and kills */
int bench_quota_control(
	struct bench_quota *b); /* workers without gBPF that check before they allocate */
int bench_quota_latency(struct bench_quota *b);
int bench_quota_movement(struct bench_quota *b);
int bench_quota_tasks(struct bench_quota *b);
int bench_quota_cycle(struct bench_quota *b);
int bench_quota_pair(struct bench_quota *b);

#endif

/* The machine: its GPUs, and the state that all clients and groups share. Everything is guarded by
 * softd_machine.lock unless a comment says otherwise; blocks and copies run without the lock. */
#ifndef GBPF_SOFT_SERVER_MACHINE_H
#define GBPF_SOFT_SERVER_MACHINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "cuabi/names.h"
#include "soft/server/exec/exec.h"
#include "soft/server/list.h"
#include "soft/server/machine_lock.h"
#include "soft/server/run/host_link.h"
#include "soft/protocol.h"

#define SOFTD_DEVICE_THREADS_PER_SM 1536u
#define SOFTD_DEVICE_BLOCKS_PER_SM 16u
#define SOFTD_DEVICE_SHARED_PER_SM (100u << 10)
#define SOFTD_DEVICE_SHARED_RESERVED 1024u /* per block, as the device attribute reports */
#define SOFTD_DEVICE_SHARED_PER_BLOCK (99u << 10)
#define SOFTD_DEVICE_MAX_WORKERS 64u
#define SOFTD_DEVICE_MAX_SMS 1024u
#define SOFTD_DEVICE_SM_WORDS (SOFTD_DEVICE_MAX_SMS / 64u)
#define SOFTD_DEVICE_MAX_COPY_ENGINES 8u
#define SOFTD_DEVICE_PRIORITIES 6u /* stream priorities */
/* Levels of launches: 0 is the most urgent, the second half is for below-normal clients. */
#define SOFTD_DEVICE_LEVELS (2 * SOFTD_DEVICE_PRIORITIES)
#define SOFTD_DEVICE_FIRST_BLOCK_BYTES                                                             \
	(16u << 20) /* a client may always have one block of this size */

struct softd_group;
struct softd_lane;
struct softd_machine;

struct softd_machine_options {
	unsigned gpus;
	unsigned sms;	  /* per GPU, like everything below */
	unsigned workers; /* threads that run blocks */
	unsigned copy_engines;
	uint64_t memory_bytes;
	uint64_t context_bytes; /* taken by each context */
	uint64_t copy_bytes_s;	/* bandwidth of all copy engines together; 0: unlimited */
	uint64_t link_bytes_s;	/* of host memory, in each direction; 0: no link is modelled */
	uint64_t slice_ns;
	uint64_t slice_max_us; /* longest slice that a client may request */
	uint64_t switch_ns;    /* duration of a switch to another lane; nothing runs meanwhile */
	unsigned clock_khz;    /* reported by attributes; rate of %clock */
	unsigned idle_exit_s;  /* 0: never */
	int cpu;	       /* -1: any */
};

/* One soft GPU. */
struct softd_gpu {
	struct softd_machine *machine;
	unsigned index;
	struct softd_list groups;   /* of struct softd_group */
	struct softd_list copiers;  /* those of them that have copies */
	struct softd_list lanes;    /* all, in no order */
	struct softd_list runlist;  /* lanes with launches, next lane first: by position */
	uint64_t positions;	    /* the last one given out */
	struct softd_lane *current; /* has the slice; NULL: none */
	struct softd_lane *loaded;  /* had it last: switching back to it costs nothing */
	uint64_t slice_end_ns;
	uint64_t since_ns;	 /* the current lane's time is accounted up to here */
	uint64_t ready_ns;	 /* end of the switch to the current lane */
	bool switching;		 /* a worker waits for ready_ns */
	bool departing;		 /* the current lane leaves when its last running block stops */
	unsigned running_blocks; /* held by workers */
	uint64_t busy_from_ns;	 /* time when running_blocks last became nonzero */
	uint64_t busy_ns;	 /* total time with a running block, up to busy_from_ns */
	uint64_t switches, bytes_copied;
	uint64_t copy_stamp;   /* counts copy parts; see softd_group.copy_stamp */
	unsigned copying;      /* copies held by engines */
	uint64_t no_yield_ns;  /* [atomic] for soft_yield() */
	uint64_t copy_free_ns; /* time when the engines have moved everything so far */
	struct softd_link link[EXEC_LINK_WAYS]; /* to the host; idle unless it is modelled */
	uint64_t memory_used;
	pthread_cond_t work;			   /* idle workers except the poller */
	pthread_cond_t copy_work;		   /* idle copy engines */
	unsigned waiting_workers, waiting_engines; /* threads in these */
	uint64_t ns_per_kinsn;			   /* estimate for launches not measured yet */
};

/* The machine: its clients, and what its GPUs share. */
struct softd_machine {
	struct softd_machine_options opt; /* constant */
	struct softd_gpu gpus[SOFT_MAX_GPUS];
	struct lock lock;
	pthread_cond_t quiescent; /* a group has no running work any more, or a client exited */
	int epoll, kick, bells,
		exits;		  /* epoll holds kick and bells, exits the clients' processes */
	struct softd_gpu *poller; /* its worker waits in epoll, clients ring bells; NULL: none */
	bool stop;
	struct softd_list clients; /* that have said hello */
	unsigned n_clients;	   /* connections */
	struct softd_list active;  /* clients whose rings are read without a doorbell; doorbell.h */
	unsigned n_active;
	uint32_t asked; /* their `asleep`: a worker sleeps, or is about to, so that they ring */
	uint64_t bells_taken_ns;
	uint64_t client_serial;
	struct softd_client *by_number[SOFT_MAX_CLIENTS];
	struct softd_list groups;	   /* of all GPUs */
	struct softd_list dirty;	   /* groups that are dirty or poll memory */
	int steps;			   /* stream operations left in this turn */
	uint64_t block_bytes, block_limit; /* host memory of blocks */
	uint64_t code_bytes;		   /* of loaded modules */
	unsigned value_polls;		   /* operations that poll memory */
	uint64_t pinned_used, pinned_limit;
	uint32_t pinned; /* mappings of pinned and imported memory */
	uint64_t window_bytes, device_window_bytes;
	uint64_t next_grid_id;
	uint64_t operations, launches, refused, contexts, streams, modules;
	uint64_t warp_instructions, lane_instructions, run_ns;
	uint64_t last_busy_ns; /* time when the last client exited */
	int pid;
	unsigned n_attached;		   /* clients that have said hello */
	uint64_t unsupported[CUABI_COUNT]; /* calls to unsupported functions by exited clients */
};

/* Take and release the lock, and wait for a condition without it. Not analysed: to the analysis,
 * the machine's lock is softd_lock. */
static inline void softd_machine_lock(struct softd_machine *machine) ACQUIRES(softd_lock) UNCHECKED
{
	lock_take(&machine->lock);
}
static inline void softd_machine_unlock(struct softd_machine *machine)
	RELEASES(softd_lock) UNCHECKED
{
	lock_release(&machine->lock);
}
static inline void softd_machine_wait(struct softd_machine *machine, pthread_cond_t *c)
	REQUIRES(softd_lock) UNCHECKED
{
	lock_wait(&machine->lock, c);
}
static inline int softd_machine_wait_until(struct softd_machine *machine, pthread_cond_t *c,
					   const struct timespec *at) REQUIRES(softd_lock) UNCHECKED
{
	return lock_wait_until(&machine->lock, c, at);
}

/* Returns 0 or -Exxx. */
int softd_machine_init(struct softd_machine *machine, const struct softd_machine_options *opt);
/* Makes the poller run a turn, because a stream may be able to continue. Lock held or not. */
void softd_machine_kick(struct softd_machine *machine);
/* Runs one turn over rings and streams. Sets *any if there may be more to do. */
void softd_machine_progress(struct softd_machine *machine, bool *any) REQUIRES(softd_lock);
/* Wakes the engines of all GPUs, and the workers of GPUs other than own (NULL: of all), that have
 * work. */
void softd_machine_wake(struct softd_machine *machine, const struct softd_gpu *own)
	REQUIRES(softd_lock);
/* Fills in statistics. Takes the lock. */
void softd_machine_stats(struct softd_machine *machine, struct soft_stats *ret);

/* Wakes one more worker. */
void softd_gpu_wake(struct softd_gpu *gpu) REQUIRES(softd_lock);
/* Returns true if a block could run. */
bool softd_gpu_has_blocks(const struct softd_gpu *gpu) REQUIRES(softd_lock);
/* Returns true if an engine could work on a copy. */
bool softd_gpu_has_copies(const struct softd_gpu *gpu) REQUIRES(softd_lock);

#endif

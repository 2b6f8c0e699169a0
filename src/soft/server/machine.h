/* The machine: its GPUs, and the state that all clients and groups share. Everything is guarded by
 * softd_machine.lock unless a comment says otherwise; blocks and copies run without the lock. */
#ifndef GBPF_SOFT_SERVER_MACHINE_H
#define GBPF_SOFT_SERVER_MACHINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuabi/names.h"
#include "cuabi/types.h"
#include "soft/server/exec/exec.h"
#include "soft/server/memory/heap.h"
#include "soft/server/list.h"
#include "soft/server/memory/device_memory.h"
#include "soft/protocol.h"

#define DEVICE_THREADS_PER_SM 1536u
#define DEVICE_BLOCKS_PER_SM 16u
#define DEVICE_SHARED_PER_SM (100u << 10)
#define DEVICE_SHARED_RESERVED 1024u /* per block, as the device attribute reports */
#define DEVICE_SHARED_PER_BLOCK (99u << 10)
#define DEVICE_MAX_WORKERS 64u
#define DEVICE_MAX_SMS 1024u
#define DEVICE_SM_WORDS (DEVICE_MAX_SMS / 64u)
#define DEVICE_MAX_COPY_ENGINES 8u
#define DEVICE_PRIORITIES 6u /* stream priorities */
/* Levels of launches: 0 is the most urgent, the second half is for below-normal clients. */
#define DEVICE_LEVELS (2 * DEVICE_PRIORITIES)
#define DEVICE_FIRST_BLOCK_BYTES (16u << 20) /* a client may always have one block of this size */

struct softd_machine_options {
	unsigned gpus;
	unsigned sms;	  /* per GPU, like everything below */
	unsigned workers; /* threads that run blocks */
	unsigned copy_engines;
	uint64_t memory_bytes;
	uint64_t copy_bytes_s; /* bandwidth of all copy engines together; 0: unlimited */
	uint64_t slice_ns;
	uint64_t slice_max_us; /* longest slice that a client may request */
	uint64_t switch_ns;    /* duration of a switch to another lane; nothing runs meanwhile */
	unsigned clock_khz;    /* reported by attributes; rate of %clock */
	unsigned idle_exit_s;  /* 0: never */
	int cpu;	       /* -1: any */
};

/* One soft GPU. */
struct softd_sm_set {
	bool gone;     /* kept for launches that are in the ring: */
	uint32_t head; /* they end there */
	uint32_t n;
	uint64_t sms[DEVICE_SM_WORDS];
};

struct softd_client;
struct softd_gpu;
struct softd_group;
struct softd_stream;
struct softd_launch;

/* One operation, taken from the ring. */
struct exec_op {
	struct softd_list in_stream;
	struct softd_list in_copies; /* while a copy waits for the copy engine */
	struct softd_stream *stream;
	uint64_t order; /* of issue in the group, for the legacy default stream's rules */
	uint16_t kind;	/* enum soft_op */
	bool started;
	bool running; /* a worker copies a part of it now */
	union {
		struct softd_launch *launch;
		struct {
			uint32_t dst_context, src_context;
			struct softd_group *dst_group,
				*src_group; /* held while it is in the copy engine; NULL: none */
			uint64_t dst, src, dst_pitch, src_pitch, width, height;
			uint64_t row, column; /* progress */
			bool bulk;	      /* written past the caches */
			uint32_t value, unit; /* of a set; width is in bytes here too */
		} copy;
		struct {
			uint32_t index, count;
		} event;
		struct {
			uint32_t slot, target;
		} wait;
		struct {
			uint64_t cookie;
		} host;
		struct {
			uint64_t address, value;
			uint32_t unit, mode;
		} value;
		struct {
			uint64_t key;
			uint32_t index, ticket;
		} shared;
	};
};

struct softd_stream {
	struct softd_list in_group;
	struct softd_group *group;
	struct softd_list ops; /* of struct op, in order */
	uint32_t slot;
	int priority;
	uint32_t flags;
	uint64_t part; /* blocking streams of one part and its default stream wait for each other */
};

struct softd_resident_block {
	struct softd_list in_group; /* group.resident while it waits for a worker, launch.spare
				 while it is unused */
	struct softd_launch *launch;
	struct exec_block *block;
	uint32_t sm;
	unsigned turns; /* budgets used since it was started */
};

struct softd_launch {
	struct softd_list in_group; /* group.launches while blocks are not started */
	struct exec_op *op;
	struct exec_module *module; /* a reference */
	struct exec_launch exec;
	uint64_t total, next, ended;
	unsigned resident;	 /* blocks started and not ended, running ones included */
	unsigned running;	 /* held by workers */
	struct softd_list spare; /* of struct resident */
	uint32_t shared_bytes;	 /* static and dynamic */
	uint32_t threads;
	uint64_t host_bytes; /* that one block takes, about */
	uint64_t charged;    /* host bytes of its blocks, spare ones included */
	struct softd_sm_set part;
	bool aborted;
	bool cooperative;
	int priority;
	bool own_priority; /* instead of the stream's */
	unsigned level;
	uint32_t *gang;	    /* owned; the SM of each block once a cooperative launch has its room */
	uint64_t workspace; /* of a cooperative launch */
	uint64_t ns_per_kinsn; /* 0: not measured yet */
	uint8_t *params;       /* owned */
	struct softd_client *client;
	uint64_t queued_bytes; /* that it takes itself */
};

/* What has the GPU in turn: one context, or, in the shared lane, those of all processes that named
 * the same folder in CUDA_MPS_PIPE_DIRECTORY. Its contexts run beside each other, by priority. */
struct softd_lane {
	struct softd_list in_gpu; /* gpu.lanes, the run list */
	struct softd_gpu *gpu;
	struct softd_list members; /* of struct group; who was asked last is last */
	unsigned n_members;
	uint64_t key;	      /* of a shared one; 0: one context's own */
	struct softd_sm *sms; /* owned; what its blocks take while it has the GPU */
	uint32_t next_sm;
	uint64_t turns;		 /* of blocks; every so many ignore priority */
	unsigned running_blocks; /* in workers' hands */
	uint64_t departures;	 /* times that it has left the GPU */
	uint64_t slice_ns;
	uint64_t debt_ns; /* what it has used beyond its slices */
};

struct softd_group {
	struct softd_list in_gpu;  /* gpu.groups */
	struct softd_list in_lane; /* lane.members */
	struct softd_lane *lane;
	struct softd_list in_machine; /* device.groups */
	struct softd_gpu *gpu;
	struct softd_client *client;
	uint32_t slot;
	struct softd_memory memory;
	struct softd_list streams;
	struct softd_stream *legacy;
	uint64_t next_order;
	struct softd_list launches[DEVICE_LEVELS]; /* with blocks to start, by age */
	struct softd_list resident[DEVICE_LEVELS]; /* started blocks that no worker runs, first to
						be resumed first */
	struct softd_list copies;		   /* of struct op, begun or not */
	uint64_t copy_stamp;  /* when an engine took one last: who waits longest is next */
	unsigned value_polls; /* operations that poll memory */
	uint32_t resident_blocks;
	unsigned running; /* blocks in workers' hands and copies in the engine: nothing may be
			     unmapped */
	unsigned running_blocks;
	CUresult error; /* sticky */
	bool found;	/* --check has told something of it */
	bool dead;
	bool enabled;
	bool dirty;  /* a stream's head may be able to start */
	int control; /* owned; what its owner hands to who may control it, -1: nothing */
	dev_t control_disk;
	ino_t control_file;
	unsigned flags;	   /* flag pages made, ever */
	unsigned watchers; /* requests that wait until nothing of it runs */
	struct soft_counters counters;
	struct exec_host host;	/* what its kernels may ask for */
	struct softd_heap heap; /* with a lock of its own */
};

struct softd_module {
	struct exec_module *exec; /* a reference */
	struct softd_group *group;
	uint64_t globals; /* device address, 0: none */
	uint64_t code_bytes;
	uint32_t functions; /* the first of them in client.functions */
};

#define NO_FUNCTION UINT32_MAX
struct softd_function {
	const struct exec_function *exec;
	uint32_t module; /* index in client.modules; the entry is NULL when the module is gone */
	uint32_t next;	 /* of the same module */
};

struct softd_client {
	struct softd_list in_machine; /* once it has said hello */
	bool attached;
	struct softd_machine *machine;
	int control, event, bell, pidfd;
	int pid;
	uint64_t lane;		    /* key of the shared lane that it asked for; 0: none */
	bool below_normal;	    /* its streams come after those of others in the lane */
	uint32_t sms;		    /* of a GPU that its blocks may be on */
	struct soft_shared *shared; /* NULL before hello */
	pthread_mutex_t print_lock; /* guards the next three; the last lock that is taken */
	uint32_t print_head, print_lost;
	uint32_t print_woken; /* head when readers were woken last */
	uint32_t tail;	      /* of the ring; private */
	unsigned queued;
	bool stalled;	     /* queued reached its limit and has not halved since */
	unsigned host_calls; /* notices that wait for their HOST_DONE */
	bool dead;	     /* refuse everything; its thread cleans up. Written under the lock */
	struct softd_group *groups[SOFT_MAX_CONTEXTS];
	struct softd_stream *streams[SOFT_MAX_STREAMS];
	uint32_t done[SOFT_MAX_STREAMS];  /* operations that have ended, by slot */
	uint32_t events[SOFT_MAX_EVENTS]; /* records that were reached */
	unsigned event_uses;		  /* events of several processes */
	struct softd_module **modules;	  /* owned */
	uint32_t n_modules;
	uint64_t code_bytes;		  /* of PTX that is loaded */
	uint64_t block_bytes;		  /* of host memory that its blocks take */
	uint64_t queued_bytes;		  /* of launches */
	struct softd_function *functions; /* owned */
	uint32_t n_functions, functions_cap;
	struct softd_sm_set *sm_sets[SOFT_MAX_PARTS]; /* owned */
	struct softd_extent **handles;		      /* owned; each a reference or NULL */
	uint32_t n_handles;
};

/* What the blocks of one group take of one SM. */
struct softd_sm {
	uint32_t threads, shared, blocks;
};

/* One soft GPU of the machine. */
struct softd_gpu {
	struct softd_machine *machine;
	unsigned index;
	struct softd_list groups;   /* of struct softd_group */
	struct softd_list lanes;    /* the run list, next lane first */
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
	pthread_mutex_t lock;
	pthread_cond_t quiescent; /* a group has no running work any more, or a client exited */
	int epoll, kick;
	struct softd_gpu *poller; /* its worker waits in epoll, clients ring bells; NULL: none */
	bool stop;
	struct softd_list clients;
	unsigned n_clients;
	struct softd_list groups;	   /* of all GPUs */
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

/* Returns 0 or -Exxx. */
int softd_machine_init(struct softd_machine *dev, const struct softd_machine_options *opt);
/* Makes the poller run a turn, because a stream may be able to continue. Lock held or not. */
void softd_machine_kick(struct softd_machine *dev);
/* Runs one turn over rings and streams. Sets *any if there may be more to do. Caller holds the
 * lock, as for all functions below unless stated otherwise. */
void softd_machine_progress(struct softd_machine *dev, bool *any);
/* Wakes threads of GPUs other than own (NULL: of all GPUs) that have work. */
void softd_machine_wake(struct softd_machine *dev, const struct softd_gpu *own);
/* Fills in statistics. Takes the lock. */
void softd_gpu_wake(struct softd_gpu *gpu);		/* lock held: one more worker */
bool softd_gpu_has_blocks(const struct softd_gpu *gpu); /* lock held: that could run */
struct exec_op *
softd_group_next_copy(const struct softd_group *g); /* that an engine could go on with */
bool softd_gpu_has_copies(
	const struct softd_gpu *gpu); /* lock held: that an engine could go on with */
void softd_machine_stats(struct softd_machine *dev, struct soft_stats *ret); /* takes the lock */

/* drain.c: lock held. Takes records from the client's ring; -EPROTO when one is malformed. *any:
 * something came. */
int softd_ring_read(struct softd_client *c, bool *any);

/* stream.c: lock held. */
struct softd_stream *softd_stream_create(struct softd_client *c, struct softd_group *g,
					 const struct soft_record_stream *r);
/* The default stream of a part of the group, or NULL. */
struct softd_stream *softd_stream_legacy(const struct softd_group *g, uint64_t part);
void softd_stream_append(struct softd_stream *s, struct exec_op *op); /* takes op */
void softd_stream_destroy(struct softd_stream *s);		      /* drops its operations */
void softd_group_progress(struct softd_group *g); /* starts what can start at the streams' heads */
void softd_op_retire(struct exec_op *op);	  /* the head of its stream has ended; frees it */
void softd_stream_publish(struct softd_client *c, uint32_t slot); /* one more operation has ended */
void softd_stream_host_done(struct softd_client *c, uint32_t slot);

/* launch.c: lock held. */
struct softd_launch *softd_launch_create(struct softd_client *c, struct softd_group *g,
					 const struct soft_record_launch *r);
void softd_launch_free(struct softd_launch *l);
void softd_launch_submit(struct softd_launch *l, int priority);
void softd_launch_try_retire(struct softd_launch *l);

/* group.c: lock held. */
struct softd_group *softd_group_create(struct softd_client *c, struct softd_gpu *gpu,
				       uint32_t slot);
/* The group is dead: drops everything, waits until no worker holds a part of it, frees it. */
void softd_group_destroy(struct softd_group *g);
/* The sticky error; started work is dropped. text goes to the logs of server and client; NULL: to
 * none. */
void softd_group_fail(struct softd_group *g, CUresult error, const char *text);
/* Returns true if a block could run. */
bool softd_group_runnable(const struct softd_group *g); /* a block of it could run now */

/* copy.c */
bool softd_copy_check(
	struct exec_op *op); /* lock held: finds the groups; true when both ranges are valid */
void softd_copy_submit(struct exec_op *op);  /* lock held: holds the groups until copy_release */
void softd_copy_release(struct exec_op *op); /* lock held */
/* Copies at most about limit bytes; without the lock, one worker at a time. True when it was the
 * last part. */
bool softd_copy_step(struct exec_op *op, uint64_t limit, uint64_t *ret_bytes);

/* runlist.c: lock held. */
/* Whose blocks may run now; NULL: nobody's here. */
struct softd_lane *softd_runlist_choose(struct softd_gpu *gpu, uint64_t now);
void softd_runlist_enter(struct softd_group *g, uint64_t now); /* a worker takes a block of it */
void softd_runlist_leave(struct softd_group *g, uint64_t now); /* and has put it down again */
void softd_runlist_preempt(struct softd_lane *lane);
void softd_runlist_remove(struct softd_lane *lane);
void softd_runlist_account(struct softd_lane *lane, uint64_t now); /* brings held_ns up to date */

/* lane.c: lock held. */
/* The group gets its place in the run list: the shared lane that its client asked for, made when
 * it is the first there, or one of its own. -ENOMEM. */
int softd_lane_join(struct softd_group *g);
void softd_lane_leave(struct softd_group *g);
/* Returns true if an engine could work on a copy. */
bool softd_lane_runnable(const struct softd_lane *lane); /* a block of it could run now */

/* place.c: blocks on SMs; lock held. */
struct softd_work {
	struct softd_group *group;
	struct softd_launch *launch;
	struct softd_resident_block *block;
	struct exec_op *copy;
	uint64_t index; /* of a block that starts now */
	uint64_t budget;
	uint64_t begin_ns;
	bool fresh;
};
bool softd_place_ready(const struct softd_group *g);
bool softd_place_choose(struct softd_lane *lane,
			struct softd_work *w); /* a block of the lane, if it has one */
/* The block is off its SM; keep: its memory may serve another block of the launch. */
void softd_place_remove(struct softd_resident_block *b, bool keep);
void softd_place_remove_all(struct softd_launch *l); /* all its blocks that no worker holds */
/* How many blocks of the launch can be resident at once on what its client may use of a GPU. */
uint64_t softd_place_capacity(const struct softd_launch *l);

/* worker.c */
void *softd_worker_main(void *gpu);
void *softd_engine_main(void *gpu); /* copies */

/* client.c */
bool softd_client_attach(struct softd_client *c); /* said hello: its ring is served from now on */
int softd_client_start(struct softd_machine *dev, int control, int pid); /* takes control */
void softd_client_drop(struct softd_client *c,
		       const char *why); /* lock held; its thread does the rest */
void softd_client_notice(struct softd_client *c, const struct soft_notice *n, size_t bytes);

/* request_module.c: forgets a module, its functions and globals; launches keep what they use. Lock
 * held. */
void softd_module_drop(struct softd_client *c, uint32_t slot);

/* An answer: len bytes of reply, descriptors that are closed after sending when own_fds is set. */
struct softd_answer {
	struct soft_reply reply;
	size_t len;
	int fds[3];
	unsigned n_fds;
	bool close_fds;
};

/* request.c: on the client's thread, without the lock. Answers one checked message; fd is what it
 * carried, or -1. */
void softd_request_answer(struct softd_client *c, const struct soft_request *q, int fd,
			  struct softd_answer *a);

#endif

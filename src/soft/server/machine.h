/* The device: clients, groups (one per context), streams, operations, launches. Everything here is
 * guarded by device.lock unless its comment says otherwise; blocks and copies run without the lock.
 */
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
#define DEVICE_SHARED_RESERVED 1024u /* of each block, as the attribute says */
#define DEVICE_SHARED_PER_BLOCK (99u << 10)
#define DEVICE_MAX_WORKERS 64u
#define DEVICE_MAX_SMS 1024u
#define DEVICE_SM_WORDS (DEVICE_MAX_SMS / 64u)
#define DEVICE_MAX_COPY_ENGINES 8u
#define DEVICE_PRIORITIES 6u /* of streams */
#define DEVICE_LEVELS                                                                              \
	(2 * DEVICE_PRIORITIES) /* 0 is the most urgent; the second half is for clients            \
				   below normal */
#define DEVICE_FIRST_BLOCK_BYTES (16u << 20) /* a client may always hold one block of that size */

struct device_options {
	unsigned gpus;
	unsigned sms;	  /* of each GPU, like everything here */
	unsigned workers; /* threads that run blocks */
	unsigned copy_engines;
	uint64_t memory_bytes;
	uint64_t copy_bytes_s; /* of all its engines together; 0: as fast as memory */
	uint64_t slice_ns;
	uint64_t slice_max_us; /* that a client may ask for */
	uint64_t switch_ns;    /* nothing runs for so long when another group gets the GPU */
	unsigned clock_khz;    /* what attributes and %clock tell */
	unsigned idle_exit_s;  /* 0: never */
	int cpu;	       /* -1: any */
};

/* A set of SMs; n 0: all that the client may use. */
struct part {
	bool gone;     /* kept for launches that are in the ring: */
	uint32_t head; /* they end there */
	uint32_t n;
	uint64_t sms[DEVICE_SM_WORDS];
};

struct client;
struct gpu;
struct group;
struct stream;
struct launch;

/* One operation, taken from the ring. */
struct op {
	struct list in_stream;
	struct list in_copies; /* while a copy waits for the copy engine */
	struct stream *stream;
	uint64_t order; /* of issue in the group, for the legacy default stream's rules */
	uint16_t kind;	/* enum soft_op */
	bool started;
	bool running; /* a worker copies a part of it now */
	union {
		struct launch *launch;
		struct {
			uint32_t dst_context, src_context;
			struct group *dst_group,
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

struct stream {
	struct list in_group;
	struct group *group;
	struct list ops; /* of struct op, in order */
	uint32_t slot;
	int priority;
	uint32_t flags;
	uint64_t part; /* blocking streams of one part and its default stream wait for each other */
};

struct resident {
	struct list in_group; /* group.resident while it waits for a worker, launch.spare while it
				 is unused */
	struct launch *launch;
	struct exec_block *block;
	uint32_t sm;
	unsigned turns; /* budgets used since it was started */
};

struct launch {
	struct list in_group; /* group.launches while blocks are not started */
	struct op *op;
	struct exec_module *module; /* a reference */
	struct exec_launch exec;
	uint64_t total, next, ended;
	unsigned resident;     /* blocks started and not ended, running ones included */
	unsigned running;      /* held by workers */
	struct list spare;     /* of struct resident */
	uint32_t shared_bytes; /* static and dynamic */
	uint32_t threads;
	uint64_t host_bytes; /* that one block takes, about */
	uint64_t charged;    /* host bytes of its blocks, spare ones included */
	struct part part;
	bool aborted;
	bool cooperative;
	int priority;
	bool own_priority; /* instead of the stream's */
	unsigned level;
	uint32_t *gang;	    /* owned; the SM of each block once a cooperative launch has its room */
	uint64_t workspace; /* of a cooperative launch */
	uint64_t ns_per_kinsn; /* 0: not measured yet */
	uint8_t *params;       /* owned */
	struct client *client;
	uint64_t queued_bytes; /* that it takes itself */
};

/* What has the GPU in turn: one context, or, in the shared lane, those of all processes that named
 * the same folder in CUDA_MPS_PIPE_DIRECTORY. Its contexts run beside each other, by priority. */
struct lane {
	struct list in_gpu; /* gpu.lanes, the run list */
	struct gpu *gpu;
	struct list members; /* of struct group; who was asked last is last */
	unsigned n_members;
	uint64_t key;	/* of a shared one; 0: one context's own */
	struct sm *sms; /* owned; what its blocks take while it has the GPU */
	uint32_t next_sm;
	uint64_t turns;		 /* of blocks; every so many ignore priority */
	unsigned running_blocks; /* in workers' hands */
	uint64_t departures;	 /* times that it has left the GPU */
	uint64_t slice_ns;
	uint64_t debt_ns; /* what it has used beyond its slices */
};

struct group {
	struct list in_gpu;  /* gpu.groups */
	struct list in_lane; /* lane.members */
	struct lane *lane;
	struct list in_device; /* device.groups */
	struct gpu *gpu;
	struct client *client;
	uint32_t slot;
	struct memory memory;
	struct list streams;
	struct stream *legacy;
	uint64_t next_order;
	struct list launches[DEVICE_LEVELS]; /* with blocks to start, by age */
	struct list resident[DEVICE_LEVELS]; /* started blocks that no worker runs, first to be
						resumed first */
	struct list copies;		     /* of struct op, begun or not */
	uint64_t copy_stamp; /* when an engine took one last: who waits longest is next */
	unsigned values;     /* operations that poll memory */
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
	struct exec_host host; /* what its kernels may ask for */
	struct heap heap;      /* with a lock of its own */
};

struct module {
	struct exec_module *exec; /* a reference */
	struct group *group;
	uint64_t globals; /* device address, 0: none */
	uint64_t code_bytes;
	uint32_t functions; /* the first of them in client.functions */
};

#define NO_FUNCTION UINT32_MAX
struct function {
	const struct exec_function *exec;
	uint32_t module; /* index in client.modules; the entry is NULL when the module is gone */
	uint32_t next;	 /* of the same module */
};

struct client {
	struct list in_device; /* once it has said hello */
	bool attached;
	struct device *dev;
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
	struct group *groups[SOFT_MAX_CONTEXTS];
	struct stream *streams[SOFT_MAX_STREAMS];
	uint32_t done[SOFT_MAX_STREAMS];  /* operations that have ended, by slot */
	uint32_t events[SOFT_MAX_EVENTS]; /* records that were reached */
	unsigned event_uses;		  /* events of several processes */
	struct module **modules;	  /* owned */
	uint32_t n_modules;
	uint64_t code_bytes;	    /* of PTX that is loaded */
	uint64_t block_bytes;	    /* of host memory that its blocks take */
	uint64_t queued_bytes;	    /* of launches */
	struct function *functions; /* owned */
	uint32_t n_functions, functions_cap;
	struct part *parts[SOFT_MAX_PARTS]; /* owned */
	struct extent **handles;	    /* owned; each a reference or NULL */
	uint32_t n_handles;
};

/* What the blocks of one group take of one SM. */
struct sm {
	uint32_t threads, shared, blocks;
};

/* One soft GPU of the machine. */
struct gpu {
	struct device *dev;
	unsigned index;
	struct list groups;   /* contexts */
	struct list lanes;    /* the run list: whose turn is next comes first */
	struct lane *current; /* has the slice; NULL: nobody */
	struct lane *loaded;  /* had it last: coming back to it costs nothing */
	uint64_t slice_end_ns;
	uint64_t since_ns;	 /* the current lane's time is counted up to here */
	uint64_t ready_ns;	 /* the switch to the current lane is over */
	bool switching;		 /* a worker waits for that */
	bool leaving;		 /* the current lane goes as soon as nothing of it runs */
	unsigned running_blocks; /* in workers' hands */
	uint64_t busy_from_ns;	 /* since when running_blocks is not 0 */
	uint64_t busy_ns;	 /* that at least one block ran */
	uint64_t switches, bytes_copied;
	uint64_t copy_stamp;
	unsigned copying;      /* copies that are in an engine's hands */
	uint64_t no_yield_ns;  /* [atomic] yield.h */
	uint64_t copy_free_ns; /* the engines have moved everything so far, at their bandwidth */
	uint64_t memory_used;
	pthread_cond_t work;			   /* idle workers other than the poller */
	pthread_cond_t copy_work;		   /* idle copy engines */
	unsigned waiting_workers, waiting_engines; /* at these */
	uint64_t ns_per_kinsn;			   /* of new launches, until they are measured */
};

/* The machine: clients, and what its GPUs share. */
struct device {
	struct device_options opt;
	struct gpu gpus[SOFT_MAX_GPUS];
	pthread_mutex_t lock;
	pthread_cond_t settled; /* a dead group's running count fell to 0; a client left */
	int epoll, kick;
	struct gpu *poller; /* whose worker waits in epoll; clients ring their bells. NULL: none */
	bool stop;
	struct list clients;
	unsigned n_clients;
	struct list groups;		   /* of all GPUs */
	int steps;			   /* of streams that may be gone in this turn */
	uint64_t block_bytes, block_limit; /* host memory of blocks */
	uint64_t code_bytes;		   /* of PTX that is loaded */
	unsigned values;		   /* operations that poll memory */
	uint64_t pinned_used, pinned_limit;
	uint32_t pinned; /* allocations */
	uint64_t window_bytes, device_window_bytes;
	uint64_t next_grid_id;
	uint64_t operations, launches, refused, contexts, streams, modules;
	uint64_t warp_instructions, lane_instructions, run_ns;
	uint64_t last_busy_ns; /* when the last client left */
	int pid;
	unsigned n_attached;		   /* clients that have said hello */
	uint64_t unsupported[CUABI_COUNT]; /* calls in vain of clients that have gone */
};

/* device.c */
int device_init(struct device *dev, const struct device_options *opt);
void device_kick(struct device *dev); /* a stream may be able to go on; lock held or not */
void device_progress(struct device *dev, bool *any); /* lock held: rings and streams */
/* Lock held: wakes whoever is needed on GPUs other than own (NULL: on all). */
void device_wake(struct device *dev, const struct gpu *own);
void gpu_wake(struct gpu *gpu);		      /* lock held: one more worker */
bool gpu_has_blocks(const struct gpu *gpu);   /* lock held: that could run */
struct op *group_copy(const struct group *g); /* that an engine could go on with */
bool gpu_has_copies(const struct gpu *gpu);   /* lock held: that an engine could go on with */
void device_stats(struct device *dev, struct soft_stats *ret); /* takes the lock */

/* drain.c: lock held. Takes records from the client's ring; -EPROTO when one is malformed. *any:
 * something came. */
int drain_client(struct client *c, bool *any);

/* stream.c: lock held. */
struct stream *stream_create(struct client *c, struct group *g, const struct soft_record_stream *r);
/* The default stream of a part of the group, or NULL. */
struct stream *stream_legacy(const struct group *g, uint64_t part);
void stream_put(struct stream *s, struct op *op); /* takes op */
void stream_destroy(struct stream *s);		  /* drops its operations */
void group_progress(struct group *g);		  /* starts what can start at the streams' heads */
void op_retire(struct op *op);			  /* the head of its stream has ended; frees it */
void stream_publish(struct client *c, uint32_t slot); /* one more operation has ended */
void stream_host_done(struct client *c, uint32_t slot);

/* launch.c: lock held. */
struct launch *launch_create(struct client *c, struct group *g, const struct soft_record_launch *r);
void launch_free(struct launch *l);
void launch_submit(struct launch *l, int priority);
void launch_try_retire(struct launch *l);

/* group.c: lock held. */
struct group *group_create(struct client *c, struct gpu *gpu, uint32_t slot);
/* The group is dead: drops everything, waits until no worker holds a part of it, frees it. */
void group_destroy(struct group *g);
/* The sticky error; started work is dropped. text goes to the logs of server and client; NULL: to
 * none. */
void group_fail(struct group *g, CUresult error, const char *text);
bool group_runnable(const struct group *g); /* a block of it could run now */

/* copy.c */
bool copy_check(struct op *op);	  /* lock held: finds the groups; true when both ranges are valid */
void copy_submit(struct op *op);  /* lock held: holds the groups until copy_release */
void copy_release(struct op *op); /* lock held */
/* Copies at most about limit bytes; without the lock, one worker at a time. True when it was the
 * last part. */
bool copy_part(struct op *op, uint64_t limit, uint64_t *ret_bytes);

/* runlist.c: lock held. */
/* Whose blocks may run now; NULL: nobody's here. */
struct lane *runlist_choose(struct gpu *gpu, uint64_t now);
void runlist_enter(struct group *g, uint64_t now); /* a worker takes a block of it */
void runlist_leave(struct group *g, uint64_t now); /* and has put it down again */
void runlist_preempt(struct lane *lane);
void runlist_forget(struct lane *lane);
void runlist_count(struct lane *lane, uint64_t now); /* brings held_ns up to date */

/* lane.c: lock held. */
/* The group gets its place in the run list: the shared lane that its client asked for, made when
 * it is the first there, or one of its own. -ENOMEM. */
int lane_join(struct group *g);
void lane_leave(struct group *g);	     /* the last one takes it along */
bool lane_runnable(const struct lane *lane); /* a block of it could run now */

/* place.c: blocks on SMs; lock held. */
struct work {
	struct group *group;
	struct launch *launch;
	struct resident *block;
	struct op *copy;
	uint64_t index; /* of a block that starts now */
	uint64_t budget;
	uint64_t begin_ns;
	bool fresh;
};
bool place_ready(const struct group *g);
bool place_choose(struct lane *lane, struct work *w); /* a block of the lane, if it has one */
/* The block is off its SM; keep: its memory may serve another block of the launch. */
void place_leave(struct resident *b, bool keep);
void place_drop(struct launch *l); /* all its blocks that no worker holds */
/* How many blocks of the launch can be resident at once on what its client may use of a GPU. */
uint64_t place_capacity(const struct launch *l);

/* worker.c */
void *worker_main(void *gpu);
void *engine_main(void *gpu); /* copies */

/* client.c */
bool client_attach(struct client *c); /* said hello: its ring is served from now on */
int client_start(struct device *dev, int control, int pid); /* takes control */
void client_drop(struct client *c, const char *why); /* lock held; its thread does the rest */
void client_notice(struct client *c, const struct soft_notice *n, size_t bytes);

/* request_module.c: forgets a module, its functions and globals; launches keep what they use. Lock
 * held. */
void module_drop(struct client *c, uint32_t slot);

/* An answer: len bytes of reply, descriptors that are closed after sending when own_fds is set. */
struct answer {
	struct soft_reply reply;
	size_t len;
	int fds[3];
	unsigned n_fds;
	bool close_fds;
};

/* request.c: on the client's thread, without the lock. Answers one checked message; fd is what it
 * carried, or -1. */
void request_answer(struct client *c, const struct soft_request *q, int fd, struct answer *a);

#endif

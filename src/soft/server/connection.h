/* Clients: the state of one connected process, guarded by the machine's lock unless a comment says
 * otherwise. */
#ifndef GBPF_SOFT_SERVER_CONNECTION_H
#define GBPF_SOFT_SERVER_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/server/list.h"
#include "soft/server/machine_lock.h"
#include "base/lock.h"
#include "soft/protocol.h"

struct exec_function;
struct exec_module;
struct softd_extent;
struct softd_gpu;
struct softd_group;
struct softd_machine;
struct softd_memory;
struct softd_sm_set;
struct softd_stream;

struct softd_module {
	struct exec_module *exec; /* a reference */
	struct softd_group *group;
	uint64_t globals; /* device address, 0: none */
	uint64_t code_bytes;
	uint32_t functions; /* head of the list in client.functions, or SOFTD_NO_FUNCTION */
};

#define SOFTD_NO_FUNCTION UINT32_MAX
struct softd_function {
	const struct exec_function *exec; /* NULL: the module has been unloaded */
	uint32_t module;		  /* index in client.modules */
	uint32_t next;			  /* function of the same module */
};

struct softd_client {
	struct softd_list in_machine; /* after HELLO */
	struct softd_list in_active;  /* machine.active */
	uint64_t number;	      /* of its doorbell */
	uint64_t quiet_since_ns;      /* its ring has been empty since; 0: it has not */
	bool attached;
	struct softd_machine *machine;
	int control, event, bell, pidfd;
	int pid;
	uint64_t lane;		    /* key of the shared lane that it requested; 0: none */
	bool below_normal;	    /* its streams come after those of other lane members */
	uint32_t sms;		    /* SMs of a GPU that its blocks may use */
	struct soft_shared *shared; /* NULL before HELLO */
	struct {
		struct lock lock; /* guards this struct; innermost of all locks */
		uint32_t head, lost;
		uint32_t woken; /* head when readers were last woken */
	} print;
	uint32_t tail;	/* of the ring; the copy in the shared page is not trusted */
	uint64_t taken; /* bytes ever taken from the ring: tail without wrapping around */
	unsigned queued;
	bool stalled;	     /* queued reached its limit and has not halved since */
	unsigned host_calls; /* notices without HOST_DONE */
	uint32_t host_lost[SOFT_MAX_STREAMS]; /* those of destroyed streams, by slot */
	bool dead;    /* dropped: its thread cleans up. Written under the lock, read without */
	bool leaving; /* its thread frees everything at once */
	struct softd_memory *windows[SOFT_MAX_GPUS]; /* owned; NULL: not used yet */
	struct softd_group *groups[SOFT_MAX_CONTEXTS];
	uint64_t begins[SOFT_MAX_CONTEXTS]; /* position in the ring (as taken) where the records of
					       the slot's newest context begin; those before it
					       belong to contexts that have been destroyed */
	struct softd_stream *streams[SOFT_MAX_STREAMS];
	uint32_t done[SOFT_MAX_STREAMS];  /* ended operations, by stream slot */
	uint32_t events[SOFT_MAX_EVENTS]; /* newest record reached */
	unsigned event_uses;		  /* uses of events shared by processes */
	uint64_t event_close_at;	  /* position in the ring (as taken) from which on a closed
					     use may be dropped; 0: none waits */
	struct softd_module **modules;	  /* owned */
	uint32_t n_modules;
	uint64_t code_bytes;		  /* of its loaded modules */
	uint64_t block_bytes;		  /* host memory of its blocks */
	uint64_t queued_bytes;		  /* memory of its queued launches */
	struct softd_function *functions; /* owned */
	uint32_t n_functions, functions_cap;
	struct softd_sm_set *sm_sets[SOFT_MAX_PARTS]; /* owned */
	struct softd_extent **handles;		      /* owned; each a reference or NULL */
	uint32_t n_handles;
};

/* Starts the thread of a new connection. Takes control. Returns 0 or -Exxx. */
int softd_client_start(struct softd_machine *machine, int control, int pid);
/* Makes workers serve the client's ring. Returns 0, or -ENOSPC if there are too many clients. */
int softd_client_attach(struct softd_client *c);
/* Returns the client's window of device addresses on a GPU, made on demand; NULL: out of memory.
 * Called by the client's thread. Releases the lock meanwhile if it returns NULL. */
struct softd_memory *softd_client_window(struct softd_client *c, struct softd_gpu *gpu)
	REQUIRES(softd_lock);
/* Drops the client; its thread frees everything. */
void softd_client_drop(struct softd_client *c, const char *why) REQUIRES(softd_lock);
/* Sends a notice; drops a client that does not read host function notices. */
void softd_client_notice(struct softd_client *c, const struct soft_notice *n, size_t bytes)
	REQUIRES(softd_lock);

#endif

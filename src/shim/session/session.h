/* The session with gbpfd: the connection, the shared pages and the effects of messages. Used by one
 * thread at a time: the thread in cuInit, then the agent. docs/STATES.md, Session, has the states.
 */
#ifndef GBPF_SHIM_SESSION_SESSION_H
#define GBPF_SHIM_SESSION_SESSION_H

#include "cuabi/types.h"
#include "policy/versions.h"
#include "proto/account.h"
#include "proto/wire.h"
#include "sched/sched.h"

#define SHIM_SESSION_REGIONS POLICY_MAX_PREPARED

struct shim_session {
	int sock; /* owned; -1: not connected; written under sock_mutex, since any thread sends
		     notes */
	int wake; /* owned; eventfd that wakes the agent */
	struct sched *sched; /* owned; NULL before the first welcome */
	uint32_t tenant, class_id, gpus;
	int32_t pid;	       /* as gbpfd sees it */
	uint32_t weight_asked; /* before admit changed it; 0: the default */
	uint32_t lane, lanes;  /* the driver's, GBPF_LANE_*; bits of the acceptable ones, 0: any */
	uint8_t uuid[PROTO_MAX_GPUS][16];
	uint64_t mem_bytes[PROTO_MAX_GPUS]; /* as the driver reports them */
	uint32_t gpu_index[PROTO_MAX_GPUS];
	int board_fd, stats_fd; /* owned */
	struct proto_board *board;
	struct proto_stats *stats;
	const struct proto_directory *dir; /* NULL while gbpfd is absent */
	struct {
		uint64_t version;
		uint32_t gpus; /* bits of device ordinals whose instance it belongs to */
		int fd;	       /* owned; the tenant's region, handed back when reattaching */
	} regions[SHIM_SESSION_REGIONS];
	uint32_t next_region;
	bool stale_versions_dropped; /* versions known only to an earlier gbpfd have been dropped */
	bool tools_named;	     /* gbpfd has sent all tools of the process's start */
	bool report_requests;	     /* gbpfd wants a message when a request opens or ends */
	uint64_t reported_requests;  /* the state last reported, a sum of open requests' times */
	/* Of other tenants, by kind and slot. */
	const struct proto_board *boards[SCHED_BOARD_KINDS][PROTO_MAX_LC];
	bool communication_reported; /* to the gbpfd that it is connected to */
	struct {
		struct proto_vgpu is;	    /* of GBPF_VGPU */
		struct proto_account *page; /* NULL before the first welcome */
		int fd;			    /* owned; handed back when reattaching */
		uint32_t line;
	} vgpu;
	bool refused_here;	  /* the reason is the shim's own */
	char refusal[PROTO_TEXT]; /* gbpfd's reason for refusing, "" if it did not */
	struct {
		int sock; /* owned; -1: no early hello, or continued */
		struct proto_welcome welcome;
		int fds[8]; /* owned */
		unsigned nfds;
	} early;
};

/* Initializes a session that is not connected. Returns 0 or -errno. */
int shim_session_init(struct shim_session *s);
/* Connects before the driver starts, and waits for the welcome; while the tenant is queued, for as
 * long as gbpfd takes. If gbpfd dies meanwhile, waits a limited time for the next one.
 * s->early.welcome contains the sharing mode in which to start the driver. Returns 0; -ENOENT,
 * -ECONNREFUSED (no gbpfd); -EPERM (refused: s->refusal; or it runs as a user that is not trusted);
 * -errno. */
int shim_session_hello(struct shim_session *s);
/* Once the driver runs: enumerates the devices, reports them to gbpfd and creates the scheduler.
 * Same errors. */
int shim_session_begin(struct shim_session *s);
/* Connects again, with devices and pages in the hello, which a restarted gbpfd needs. Same errors.
 */
int shim_session_connect(struct shim_session *s);
/* Handles messages until the policy in force is prepared and gbpfd has sent all tools that there
 * are, the connection is lost, or timeout_ns has passed. */
void shim_session_await_start(struct shim_session *s, uint64_t timeout_ns);
/* Handles the messages that have arrived. Returns 0; -EPIPE: gbpfd has closed the connection or
 * sent an invalid message, so the session must be closed. */
int shim_session_receive(struct shim_session *s);
/* Closes the connection after gbpfd has disappeared. The last policy stays in force. */
void shim_session_lost(struct shim_session *s);
/* Closes the copies of the descriptors in a child after fork. */
void shim_session_abandon(struct shim_session *s);
/* Sends gbpfd a message if a request has opened or ended, provided that it wants them. Called by
 * the agent. */
void shim_session_report_requests(struct shim_session *s);
/* Reports to gbpfd, once, that the process has kernels that communicate. Called by the agent. */
void shim_session_report_communication(struct shim_session *s);
/* Learns the hardware control handles of this process and sends them to gbpfd, when contexts have
 * been created or destroyed. Returns ns until the next call. Called by the agent. */
uint64_t shim_session_control_maintain(struct shim_session *s);

/* ---- any thread ---- */

/* Offers gbpfd a flag page that kernels of this process read on that GPU (device ordinal), so that
 * it passes the page to latency tenants. fd is borrowed. -1: withdraws the page, required before
 * its memory is freed. Repeated to a gbpfd that reconnects. Returns 0, -EINVAL or -errno. */
int shim_session_offer_flag(uint32_t gpu, int fd);
/* Returns the number of lease words in use: one more than the highest slot of a board. */
uint32_t shim_session_lease_slots(void);
/* Called on the agent thread when that number changes; NULL: not called. Set once, before cuInit
 * returns. */
extern void (*shim_session_slots_changed)(uint32_t slots);

/* Effects of gbpfd's messages about tools, on the session's thread. Set before cuInit connects;
 * NULL: such messages are ignored. Descriptors are borrowed. */
struct shim_session_probes {
	void (*attach)(struct shim_session *s, const struct proto_probe *m, const int *fds);
	void (*end)(struct shim_session *s, const struct proto_probe_order *m);
	void (*drain)(struct shim_session *s, const struct proto_probe_order *m);
	void (*cover)(struct shim_session *s, const struct proto_probe_order *m);
	void (*set)(struct shim_session *s, const struct proto_probe_set *m);
	void (*lost)(void); /* gbpfd has disappeared */
};
extern const struct shim_session_probes *shim_session_probes;
/* Sends gbpfd a message about a tool. Returns 0, or -errno: there is no gbpfd at present. */
int shim_session_answer_probe(struct shim_session *s, union proto_message *m, enum proto_type type);

/* Moves memory of the device to the host, as an order says. Returns the bytes that were released.
 * Called on the session's thread; set before it runs, NULL: none can be. */
extern uint64_t (*shim_session_release)(const struct proto_mem_release *m);
/* Answers PROTO_IPC_WANTED in place, with m->n descriptors. Likewise. */
extern void (*shim_session_give)(struct proto_ipc *m, int fds[PROTO_IPC_CHUNKS]);
/* Sends PROTO_MEM_ASK. Returns 0, or -errno: there is no gbpfd at present. */
int shim_session_ask_memory(struct shim_session *s, const struct proto_mem_ask *ask);
void shim_session_note(struct shim_session *s, const char *what, const char *text);

#endif

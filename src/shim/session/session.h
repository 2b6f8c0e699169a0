/* The session with gbpfd: connecting, the pages, and what its messages ask for. Used by one thread
 * at a time: the one in cuInit, then the agent. */
#ifndef GBPF_SHIM_SESSION_SESSION_H
#define GBPF_SHIM_SESSION_SESSION_H

#include "cuabi/types.h"
#include "proto/wire.h"
#include "sched/sched.h"

#define SHIM_SESSION_REGIONS 8u

struct shim_session {
	int sock; /* owned; -1: not connected; written under a lock, since any thread sends notes */
	int wake; /* owned: eventfd of the agent */
	struct sched *sched; /* owned; NULL before the first welcome */
	uint32_t tenant, class_id, weight, gpus;
	uint32_t lane, lanes; /* GBPF_LANE_*; bits of those that it can take, 0 any */
	uint8_t uuid[PROTO_MAX_GPUS][16];
	uint32_t gpu_index[PROTO_MAX_GPUS];
	int board_fd, stats_fd; /* owned */
	struct proto_board *board;
	struct proto_stats *stats;
	const struct proto_directory *dir; /* NULL while gbpfd is away */
	struct {
		uint64_t version;
		int fd; /* owned: the tenant's region, handed back when reattaching */
	} regions[SHIM_SESSION_REGIONS];
	uint32_t next_region;
	uint64_t last_prepared;
	bool stale_versions_dropped; /* versions that only the gbpfd before knew are gone */
	bool report_requests;	     /* gbpfd wants to hear when one opens or ends; */
	uint64_t reported_requests;  /* what it has heard: tells states apart */
	const struct proto_board *boards[PROTO_MAX_LC]; /* of others */
	char refusal[PROTO_TEXT];			/* why gbpfd refused */
	struct {
		int sock; /* owned; -1: there was no early hello */
		struct proto_welcome welcome;
		int fds[8]; /* owned */
		unsigned nfds;
	} early;
};

/* Nothing is connected. 0 or -errno. */
int shim_session_init(struct shim_session *s);
/* Before the driver starts: connects, and waits for the welcome, while queued as long as gbpfd
 * takes; a gbpfd that dies in the middle is waited for a little. s->early.welcome says in which
 * lane to start the driver. 0; -ENOENT, -ECONNREFUSED (no gbpfd); -EPERM (refused: s->refusal; or
 * it runs as a user we do not trust); -errno. */
int shim_session_hello(struct shim_session *s);
/* Once the driver runs: finds the devices, tells gbpfd, makes the scheduler. The same errors. */
int shim_session_begin(struct shim_session *s);
/* Connects anew and says hello with devices and pages, which a gbpfd that was restarted needs. The
 * same errors. */
int shim_session_connect(struct shim_session *s);
/* Handles messages until the policy that is in force is prepared, or timeout_ns is over. */
void shim_session_await_policy(struct shim_session *s, uint64_t timeout_ns);
/* Handles the messages that have arrived. 0; -EPIPE: gbpfd is gone or talks garbage: close. */
int shim_session_receive(struct shim_session *s);
/* gbpfd is gone: the last policy stays in force. */
void shim_session_lost(struct shim_session *s);
/* For the child after a fork: closes the copies of the descriptors. */
void shim_session_abandon(struct shim_session *s);
/* Tells gbpfd, where it wants to hear that, when a request has opened or ended. The agent. */
void shim_session_report_requests(struct shim_session *s);
/* Learns what commands this process's work, and tells gbpfd, when contexts have come or gone.
 * Nanoseconds until it wants to be called again. The agent. */
uint64_t shim_session_control_maintain(struct shim_session *s);
/* As sched_device_ops.slice. The agent. */
int shim_session_control_slice(uint32_t gpu, uint32_t slice_us);

/* ---- any thread ---- */

/* A context on that GPU (device ordinal); one that is about to end. */
void shim_session_control_context(uint32_t gpu, CUcontext ctx);
void shim_session_control_context_end(CUcontext ctx);

/* A flag page that kernels of this process read on that GPU (device ordinal): for gbpfd, which
 * gives it to latency tenants. fd is borrowed; -1: the page is taken back, which must be said
 * before its memory goes. Said again to a gbpfd that comes back. 0, -EINVAL, -errno. */
int shim_session_offer_flag(uint32_t gpu, int fd);
/* How many lease words are in use: one more than the highest slot of a board. */
uint32_t shim_session_lease_slots(void);
/* Called on the agent thread when that changes; NULL: by nobody. Set once, before cuInit returns.
 */
extern void (*shim_session_slots_changed)(uint32_t slots);

void shim_session_note(struct shim_session *s, const char *what, const char *text);

#endif

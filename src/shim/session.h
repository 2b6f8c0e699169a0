/* The session with gbpfd: connecting, the pages, and what its messages ask for. Used by one thread
 * at a time: the one in cuInit, then the agent. */
#ifndef GBPF_SHIM_SESSION_H
#define GBPF_SHIM_SESSION_H

#include "lib/wire.h"
#include "sched/sched.h"

#define SESSION_REGIONS 8u

struct session {
	int sock; /* owned; -1: not connected; written under a lock, since any thread sends notes */
	int wake; /* owned: eventfd of the agent */
	struct sched *sched; /* owned; NULL before the first welcome */
	uint32_t tenant, class_id, weight, gpus;
	uint8_t uuid[WIRE_GPUS][16];
	uint32_t gpu_index[SCHED_MAX_GPUS];
	int board_fd, stats_fd; /* owned */
	struct sched_board *board;
	struct sched_stats *stats;
	const struct sched_directory *dir; /* NULL while gbpfd is away */
	struct {
		uint64_t version;
		int fd; /* owned: the tenant's region, handed back when reattaching */
	} regions[SESSION_REGIONS];
	uint32_t next_region;
	uint64_t last_prepared;
	bool swept; /* versions that only the gbpfd before knew are gone */
	const struct sched_board *boards[SCHED_MAX_LC]; /* of others */
	char refusal[WIRE_TEXT];			/* why gbpfd refused */
};

/* Fills in the devices; nothing is connected. 0 or -errno. */
int session_init(struct session *s);
/* Connects, and waits for the welcome, while queued as long as gbpfd takes. The first time makes
 * the scheduler. 0; -ENOENT, -ECONNREFUSED (no gbpfd); -EPERM (refused: s->refusal; or it runs as a
 * user we do not trust); -errno. */
int session_connect(struct session *s);
/* The same for cuInit: a gbpfd that dies in the middle is waited for a little. */
int session_begin(struct session *s);
/* Handles messages until the policy that is in force is prepared, or timeout_ns is over. */
void session_settle(struct session *s, uint64_t timeout_ns);
/* Handles the messages that have arrived. 0; -EPIPE: gbpfd is gone or talks garbage: close. */
int session_receive(struct session *s);
/* gbpfd is gone: the last policy stays in force. */
void session_lose(struct session *s);
/* For the child after a fork: closes the copies of the descriptors. */
void session_abandon(struct session *s);
/* Any thread. */
void session_note(struct session *s, const char *what, const char *text);

#endif

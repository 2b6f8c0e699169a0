/* The history: events with reasons, in a bounded ring in memory and a bounded pair of files. */
#ifndef GBPF_DAEMON_HISTORY_H
#define GBPF_DAEMON_HISTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

#define DAEMON_HISTORY_EVENTS 4096u
#define DAEMON_HISTORY_FILE_BYTES                                                                  \
	(1u << 20) /* at this size events.jsonl is renamed to events.jsonl.1 */

#define DAEMON_HISTORY_CARRIED_BYTES (128u << 10) /* of gbpfd's own events, in front of it */

#define DAEMON_HISTORY_OWN 1024u /* events of gbpfd itself that are never removed for users' */

/* What a process has used, in the event of its end. */
struct daemon_history_use {
	uint64_t gpu_ns; /* time of its launches on GPUs, as it has reported it */
	/* The most memory that it was charged for at a time, on the GPU where that was most; 0: for
	 * none, or it was in no vGPU. */
	uint64_t mem_peak;
};

struct daemon_history_event {
	uint64_t seq, wall_ns;
	uint64_t hash;	     /* of the policy's object that it is about; 0: none */
	int32_t tenant, pid; /* -1: concerns no particular one */
	int64_t uid;	     /* of that process; -1: none, or not recorded */
	bool has_use;	     /* it is the end of a process */
	struct daemon_history_use use;
	char kind[24];
	char text[400];
};

#define DAEMON_HISTORY_REPEATS 128u

/* A repeated event, which is written at growing intervals with the number of its repetitions. */
struct daemon_history_repeat {
	char kind[24]; /* "": unused */
	int32_t tenant, pid;
	uint32_t more; /* repetitions not written since told_ns */
	uint64_t told_ns, last_ns, wait_ns;
};

struct daemon_history {
	struct daemon_history_event *ring; /* owned */
	uint16_t *order; /* owned; the places of the n events in the ring, oldest first */
	unsigned n;
	uint64_t next; /* sequence number of the next event, from 1 */
	int fd;	       /* events.jsonl; negative: memory only */
	size_t bytes;
	bool torn;	       /* its last line is not complete: the disk was full */
	uint64_t file_seq;     /* number of the first event in it */
	char *path, *old_path; /* owned */
	uint64_t write_errors;
	struct daemon_history_repeat repeats[DAEMON_HISTORY_REPEATS];
	void (*listener)(void *arg,
			 const struct daemon_history_event *e); /* called for each new event */
	void *arg;
};

/* Reads the events of earlier runs from <state_dir>/<name>.jsonl and its predecessor. If the file
 * cannot be written, the history stays in memory and write_errors counts that. 0 or -ENOMEM. */
int daemon_history_open(struct daemon_history *h, const char *state_dir, const char *name);
void daemon_history_close(struct daemon_history *h);
/* Adds an event of gbpfd itself, which all users may read. */
void daemon_history_add(struct daemon_history *h, const char *kind, int pid, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
/* Adds an event of a user's process, which that user and administrators may read. */
void daemon_history_add_of(struct daemon_history *h, uid_t uid, const char *kind, int tenant,
			   int pid, const char *fmt, ...) PRINTF_LIKE(6, 7);
/* The same for the end of the process. */
void daemon_history_add_end(struct daemon_history *h, uid_t uid, const char *kind, int tenant,
			    int pid, const struct daemon_history_use *use, const char *fmt, ...)
	PRINTF_LIKE(7, 8);
/* Adds an entry of the audit log. The result is valid until the next. */
const struct daemon_history_event *daemon_history_add_audit(struct daemon_history *h, uid_t uid,
							    int pid, const char *kind,
							    uint64_t hash, const char *fmt, ...)
	PRINTF_LIKE(6, 7);
/* Returns true if a user who is no administrator may read the event. */
bool daemon_history_may_read(const struct daemon_history_event *e, uid_t uid);
/* Like daemon_history_add_of, for a state that may last: writes the first event at once, and
 * further ones of that kind and process 10 s, a minute, 10 minutes and then each hour after the
 * last, with
 * "(and N more ...)". After a minute without repetition the next event is a first one again.
 * Repetitions that no later event reports are lost from the history, but not from the counters. */
void daemon_history_repeat(struct daemon_history *h, uint64_t now_ns, uid_t uid, const char *kind,
			   int tenant, int pid, const char *fmt, ...) PRINTF_LIKE(7, 8);

/* history_ring.c */
int daemon_history_ring_open(struct daemon_history *h); /* 0 or -ENOMEM */
void daemon_history_ring_close(struct daemon_history *h);
/* Returns a cleared event with this number, which must be above all others. */
struct daemon_history_event *daemon_history_append(struct daemon_history *h, uint64_t seq);
/* Returns the i-th event that is left, oldest first, or NULL. */
const struct daemon_history_event *daemon_history_at(const struct daemon_history *h, unsigned i);
/* Returns the place of the first event with a number above seq. */
unsigned daemon_history_after(const struct daemon_history *h, uint64_t seq);
/* Returns NULL if the event has been removed or does not exist yet. */
const struct daemon_history_event *daemon_history_get(const struct daemon_history *h, uint64_t seq);
json_t *daemon_history_json(const struct daemon_history_event *e);

#endif

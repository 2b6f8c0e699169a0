/* The history: what happened, with reasons. A bounded ring in memory and a bounded pair of files.
 */
#ifndef GBPF_DAEMON_HISTORY_H
#define GBPF_DAEMON_HISTORY_H

#include <jansson.h>
#include <stdint.h>

#include "base/compiler.h"

#define HISTORY_EVENTS 4096u
#define HISTORY_FILE_BYTES (1u << 20) /* then events.jsonl becomes events.jsonl.1 */

struct daemon_history_event {
	uint64_t seq, wall_ns;
	int32_t tenant, pid; /* -1: does not concern one */
	char kind[24];
	char text[400];
};

#define HISTORY_REPEATS 128u

/* What happens again and again is told once, then how often it was, ever less often. */
struct daemon_history_repeat {
	char kind[24]; /* "": free */
	int32_t tenant, pid;
	uint32_t more; /* not told since told_ns */
	uint64_t told_ns, last_ns, wait_ns;
};

struct daemon_history {
	struct daemon_history_event *ring; /* owned; seq s lies at s % HISTORY_EVENTS */
	uint64_t next;			   /* sequence of the next event; from 1 */
	uint64_t oldest;
	int fd; /* of events.jsonl, or -1: memory only */
	size_t bytes;
	char *path, *old_path; /* owned */
	uint64_t write_errors;
	struct daemon_history_repeat repeats[HISTORY_REPEATS];
	void (*listener)(void *arg,
			 const struct daemon_history_event *e); /* called for each new event */
	void *arg;
};

/* Reads what earlier runs wrote. A file that cannot be written leaves the history in memory
 * (write_errors says so). 0 or -ENOMEM. */
int daemon_history_open(struct daemon_history *h, const char *state_dir);
void daemon_history_close(struct daemon_history *h);
void daemon_history_add(struct daemon_history *h, const char *kind, int tenant, int pid,
			const char *fmt, ...) PRINTF_LIKE(5, 6);
/* As history_add, of a state that may last: the first is told at once, and further ones of that
 * kind and process after 10 s, a minute, 10 minutes, then each hour, with "(and N more ...)". After
 * a minute without one, or when the waiting time has passed without one, the next is a first again.
 * What is not told is lost when none comes later; counters have it. */
void daemon_history_repeat(struct daemon_history *h, uint64_t now_ns, const char *kind, int tenant,
			   int pid, const char *fmt, ...) PRINTF_LIKE(6, 7);
/* NULL when it is no longer, or not yet, there. */
const struct daemon_history_event *daemon_history_get(const struct daemon_history *h, uint64_t seq);
json_t *daemon_history_json(const struct daemon_history_event *e);

#endif

/* Inside of vGPUs: shared by the files of this folder. */
#ifndef GBPF_DAEMON_VGPU_VGPU_INT_H
#define GBPF_DAEMON_VGPU_VGPU_INT_H

#include <jansson.h>
#include <string.h>

#include "daemon/vgpu/vgpu.h"
#include "proto/account.h"

#define DAEMON_VGPU_USERS 32u /* that a named vGPU may be open to */

/* A line of the account, which a process has. */
struct daemon_vgpu_line {
	struct daemon_vgpu *v;
	sd_event_source *death; /* owned; its process's pidfd. NULL: the line is free */
	int pid;
	uint64_t start;
	bool left;     /* its session has ended */
	bool gone;     /* the process has exited */
	uint64_t peak; /* gone: the most device memory that it has held on one device, bytes */
};

#define DAEMON_VGPU_ACTUAL_LOOKS 7u /* vgpu_actual.c: a second apart, for more than its window */

/* GPU time that processes in a vGPU had, as their pages show it: vgpu_actual.c. */
struct daemon_vgpu_actual {
	unsigned n_gpus, n_looks;
	uint8_t uuid[PROTO_MAX_GPUS][16];
	uint64_t total_ns[PROTO_MAX_GPUS]; /* by place of the UUID, modulo 2^64 */
	struct daemon_vgpu_actual_look {
		uint64_t at_ns, total_ns[PROTO_MAX_GPUS];
	} look[DAEMON_VGPU_ACTUAL_LOOKS]; /* n_looks of them, oldest first */
};

/* A row of the account as gbpfd keeps it, since processes can write the page. */
struct daemon_vgpu_row {
	uint8_t uuid[16];
	uint32_t ordinal; /* that the device had in the last process that named it */
	uint64_t limit;	  /* bytes, 0: none */
	uint64_t most;	  /* highest limit since it had no process; UINT64_MAX: none */
	uint64_t granted; /* vgpu_reserve.c: bytes beyond its reservation */
	bool restricted;  /* vgpu_reserve.c: `allowed` of the page counts, not the limit alone */
	uint64_t first;	  /* vgpu_reserve.c: the waiter that is answered next, 0: none */
	/* vgpu_reclaim.c: what may be taken still in the round of that number */
	uint64_t quota, quota_round;
};

struct daemon_vgpu {
	struct daemon_vgpu *next;
	struct daemon *d;
	struct proto_vgpu is;
	uid_t uid;	/* its owner */
	uint32_t place; /* below PROTO_VGPUS; of no other vGPU */

	/* of one with a name */
	uid_t users[DAEMON_VGPU_USERS]; /* other users whose processes may join */
	unsigned n_users;
	bool draining; /* takes no new processes, and ends with the last one */
	bool awaited;  /* processes had joined it before gbpfd was restarted: they bring its page */

	struct daemon_vgpu_actual actual;
	struct {
		int64_t credit_ns;    /* time that it may take of others, */
		uint64_t credited_ns; /* as of this moment; 0: all */
	} reclaim;		      /* vgpu_reclaim.c */

	struct daemon_page page; /* struct proto_account; not there before the first process */
	struct daemon_vgpu_row row[PROTO_ACCOUNT_ROWS];
	unsigned n_rows, n_lines; /* n_rows: of devices */
	uint64_t
		garbled_ns; /* when it was last recorded that a process has written over the page */
	struct daemon_vgpu_line line[PROTO_ACCOUNT_LINES];
};

static inline struct proto_account *daemon_vgpu_page(const struct daemon_vgpu *v)
{
	return v->page.map;
}

/* Returns one more than the highest line that a process has. */
uint32_t daemon_vgpu_lines(const struct daemon_vgpu *v);

/* Returns true for the rows of its devices, that of pinned host memory, and that of swap while the
 * vGPU has some. */
static inline bool daemon_vgpu_has_row(const struct daemon_vgpu *v, uint32_t row)
{
	return v->page.map && (row < v->n_rows || row == PROTO_ACCOUNT_HOST ||
			       (row == PROTO_ACCOUNT_SWAP && v->row[row].limit));
}

/* Returns true for the UUID by which accounts name pinned memory. A device that had it would be
 * taken for that where grants are summed. */
static inline bool daemon_vgpu_is_host(const uint8_t uuid[16])
{
	return memcmp(uuid, PROTO_ACCOUNT_HOST_UUID, 16) == 0;
}

/* Returns true for the UUIDs by which accounts name host memory: pinned, and swap. */
static inline bool daemon_vgpu_is_no_device(const uint8_t uuid[16])
{
	return daemon_vgpu_is_host(uuid) || memcmp(uuid, PROTO_ACCOUNT_SWAP_UUID, 16) == 0;
}

/* vgpu.c */
/* Returns the row of a device; PROTO_ACCOUNT_ROWS: it has none. */
uint32_t daemon_vgpu_row_of(const struct daemon_vgpu *v, const uint8_t uuid[16]);
/* Returns the device of a row; NULL: no process that runs sees it, or the row is of no device. */
struct daemon_gpu *daemon_vgpu_device_of(const struct daemon_vgpu *v, uint32_t row);
/* Adds a vGPU, to the owner's account, with a free place. Returns NULL without memory. */
struct daemon_vgpu *daemon_vgpu_add(struct daemon *d, uid_t uid, const struct proto_vgpu *is);
void daemon_vgpu_destroy(struct daemon_vgpu *v);
enum daemon_vgpu_entering {
	DAEMON_VGPU_JOINS,   /* one that exists */
	DAEMON_VGPU_NEW,     /* makes one */
	DAEMON_VGPU_RETURNS, /* brings one from before gbpfd was restarted */
};
/* Returns 0, or -EUSERS with the report, which may be NULL, if the user may have no further vGPU or
 * process in one. */
int daemon_vgpu_check_user(const struct daemon *d, uid_t uid, enum daemon_vgpu_entering how,
			   struct report *r);
/* Stores what v->is.config says into the page. */
void daemon_vgpu_update_page(struct daemon_vgpu *v);
/* Returns true while the processes that it had before gbpfd was restarted may still come. */
bool daemon_vgpu_is_awaited(const struct daemon_vgpu *v);
/* Returns true while processes that had joined any vGPU before gbpfd was restarted may come. */
bool daemon_vgpus_are_awaited(const struct daemon *d);
/* Ends that time for all vGPUs, once it is over. */
void daemon_vgpus_await(struct daemon *d);

/* named.c */
/* Returns the named vGPU of that owner; NULL: it has none of this name. */
struct daemon_vgpu *daemon_vgpu_of_owner(const struct daemon *d, uid_t owner, const char *name);
/* Finds the vGPU that a user means by a name. If `is` states an owner: that owner's, if the user
 * may join it, or, all, in any case. Else the user's own, else the only one that was opened to the
 * user. Returns 0; -ENOENT: there is none, or the user must not know of it; -ENOTUNIQ: several were
 * opened to the user. */
int daemon_vgpu_find_name(const struct daemon *d, uid_t uid, bool all, const struct proto_vgpu *is,
			  struct daemon_vgpu **ret);
/* The same for the process of a hello. brought: the account that it brings, or NULL. One that names
 * no owner returns to the vGPU of the owner that the account states, if it may join that, else to
 * the one that it means. */
int daemon_vgpu_find_meant(const struct daemon_session *s, const struct proto_hello *h,
			   const int *brought, struct daemon_vgpu **ret);
/* Returns true for its owner and for those to whom it was opened. */
bool daemon_vgpu_is_for(const struct daemon_vgpu *v, uid_t uid);
/* Returns true if processes of that user may join: also root's. */
bool daemon_vgpu_is_open_to(const struct daemon_vgpu *v, uid_t uid);
/* Marks a vGPU as one that has processes, or has none, for a gbpfd that is restarted. */
void daemon_vgpu_mark(const struct daemon_vgpu *v, bool has_processes);
bool daemon_vgpu_is_marked(const struct daemon_vgpu *v);
/* Its last process has exited: ends it if it is draining. */
void daemon_vgpu_emptied(struct daemon_vgpu *v);

/* vgpu_reserve.c: where memory is reserved, vGPUs may hold their own reservation and what they are
 * granted of the rest. */
/* Returns the sum of all reservations. */
uint64_t daemon_vgpu_reserved(const struct daemon *d);
/* Returns true if there is room for the reservations of all vGPUs, with `bytes` more. *ret_left is
 * what is left of the smallest device, whose size is *ret_size: that of those that processes have
 * reported, unless it is given; 0 if none is known, which leaves room for all. */
bool daemon_vgpu_may_reserve(const struct daemon *d, uint64_t bytes, uint64_t *ret_left,
			     uint64_t *ret_size);
/* A reservation, a limit or a row has changed: stores what each vGPU may hold. */
void daemon_vgpu_reserve_update(struct daemon *d);
/* Handles the question of a session that waits for memory. */
bool daemon_vgpu_take_ask(struct daemon_session *s, struct daemon_received *r);
/* Such a session has ended. */
void daemon_vgpu_stop_waiting(struct daemon_session *s);
/* Answers a question: PROTO_ACCOUNT_*. With RETRY the bytes count as its own for promise_ns. */
void daemon_vgpu_answer(struct daemon_session *s, uint32_t what, uint64_t promise_ns);
/* Returns true if the process was told to try again and has not done so yet. */
bool daemon_vgpu_is_promised(const struct daemon_session *s, uint64_t now);
/* Returns true if the process, which is the first to be answered, may try again. */
bool daemon_vgpu_has_room(struct daemon_session *s);
/* Returns true if there can be no room ever; the limit may have been lowered while it waits. */
bool daemon_vgpu_is_hopeless(const struct daemon_session *s);
/* Returns true if the process has room, and none that came before waits for its vGPU's limit. */
bool daemon_vgpu_may_try(struct daemon_session *s);
/* Returns what the process needs beyond what its vGPU may hold and what could be granted; 0 if its
 * limit has no room. */
uint64_t daemon_vgpu_missing(const struct daemon_session *s);
/* Takes back what a vGPU was granted and does not use, where memory is reserved. */
void daemon_vgpu_take_back(struct daemon_vgpu *v, uint32_t row);
/* The round of a question about the limit has ended: answers it, or lets it wait. */
void daemon_vgpu_limit_reclaimed(struct daemon_session *s);

/* Returns true if the line is one of these, a bit each. */
static inline bool daemon_vgpu_is_in(const uint64_t lines[PROTO_ACCOUNT_LINES / 64], uint32_t line)
{
	return lines[line / 64] >> line % 64 & 1;
}

/* vgpu_share.c: which process is charged for shared memory */
/* The processes of these lines, a bit each, have exited, and the lines are about to be cleared:
 * what they are charged for and others have imported is charged to these. */
void daemon_vgpu_pass_on(struct daemon_vgpu *v, const uint64_t lines[PROTO_ACCOUNT_LINES / 64]);
/* Clears what these lines have of shared memory. */
void daemon_vgpu_drop_shares(struct daemon_vgpu *v, const uint64_t lines[PROTO_ACCOUNT_LINES / 64]);
/* Charges all imports that no process is charged for; or does so soon. */
void daemon_vgpu_look_at_shares(struct daemon *d);
void daemon_vgpu_shares_changed(struct daemon *d);

/* vgpu_full.c: processes that wait while a device itself is full. */
/* A question with PROTO_MEM_FULL; again: it has tried since the last answer. at_once: decide it now
 * if no other process waits, else at the next look. */
void daemon_vgpu_full_ask(struct daemon_session *s, uint64_t wait_ns, bool again, bool at_once);
/* Answers those that can be answered. Returns true if some still wait. */
bool daemon_vgpu_full_look(struct daemon *d);
/* The round of a question has ended; freed: memory was released. Answers it, or lets it wait. */
void daemon_vgpu_full_reclaimed(struct daemon_session *s, bool freed);

/* vgpu_reclaim.c: other vGPUs release memory */
/* Has other vGPUs release memory for a question that has no room. Returns true if the question has
 * been answered, or will be when its round has ended; false: no vGPU can release anything. */
bool daemon_vgpu_reclaim_begin(struct daemon_session *s);
/* Goes on with rounds. Returns true if questions wait for theirs to end. */
bool daemon_vgpu_reclaim_look(struct daemon *d);
/* Ends the round of a session's question, which is not answered. */
void daemon_vgpu_reclaim_stop(struct daemon_session *s);
/* Such a session, or one that has an order, ends. */
void daemon_vgpu_reclaim_left(struct daemon_session *s);
/* On each device has the process that would get the first order make memory of the host ahead,
 * while vGPUs may take more than is free: by an order of no bytes. Called once a second. */
void daemon_vgpu_reclaim_foresee(struct daemon *d);
/* Handles the answer to an order. */
bool daemon_vgpu_released(struct daemon_session *s, struct daemon_received *r);

/* vgpu_reserve.c: stores what may be charged now on the page again. */
void daemon_vgpu_restore_allowed(struct daemon_vgpu *v, uint32_t row);

/* vgpu_actual.c */
/* A process has joined: looks at GPU times once a second from now on. */
void daemon_vgpu_actual_begin(struct daemon_vgpu *v);
/* Adds the GPU time that a session's process had since the last call to that of its vGPU. */
void daemon_vgpu_actual_count(struct daemon_session *s);
/* Notes the GPU time of all vGPUs so far. Returns false if none has had any lately, or could have.
 */
bool daemon_vgpu_actual_look(struct daemon *d, uint64_t now);
/* Returns [{uuid, gpu_ns, window_ns}]: for each GPU on which its processes had time in the last
 * seconds, that time, at most window_ns, and the length of the window. Caller decrefs. */
json_t *daemon_vgpu_actual_json(const struct daemon_vgpu *v);

/* page_check.c */
/* Stores into the page whether programs see swap. */
void daemon_vgpu_store_shown(struct daemon_vgpu *v);
/* If a process has written words that it may not, writes gbpfd's own words again and adds an event,
 * at most one a minute for each vGPU. pid: the process that has ended or asks, which need not be
 * the one that wrote; 0: one that joins. */
void daemon_vgpu_check_page(struct daemon_vgpu *v, int pid);
/* Returns a pidfd of a process that has started then, and its effective user; negative: there is
 * none. It may have exited. */
int daemon_vgpu_open_process(int pid, uint64_t start, uid_t *ret_user);
/* Returns true if the file is the page of the vGPU. */
bool daemon_vgpu_has_page(const struct daemon_vgpu *v, int fd);
/* Returns true if another vGPU has the page that v was given, or the page states another owner than
 * that of v and a process of it runs whose user v is not for. */
bool daemon_vgpu_page_is_of_others(const struct daemon_vgpu *v);

/* vgpu_json.c */
/* What a vGPU is given, as parameters of methods and the file of vGPUs have it. */
json_t *daemon_vgpu_config_json(const struct proto_vgpu_config *c);
/* Appends the members that differ, with their old and new values: "compute 10 -> 20, prio 0 -> 5".
 */
void daemon_vgpu_config_changes(const struct proto_vgpu_config *was,
				const struct proto_vgpu_config *is, struct buf *out);
/* Changes *c as the object says; members that are absent stay. Returns NULL, or what is wrong with
 * it, in *text if it is not constant. */
const char *daemon_vgpu_config_take(struct proto_vgpu_config *c, const json_t *j);
/* All that is known of it. */
json_t *daemon_vgpu_json(const struct daemon_vgpu *v);

/* vgpu_store.c: the file of named vGPUs, <state>/vgpus.json. */
/* Writes it, then answers the call with the result, which is taken, and "stored"; conn 0: no caller
 * waits. Returns 0 or -ENOMEM: nothing is answered. */
int daemon_vgpu_save(struct daemon *d, json_t *result, uint64_t conn, json_int_t id);
/* Returns false if too many changes of callers wait to be written. */
bool daemon_vgpu_may_save(const struct daemon *d, bool administers);

#endif

/* The policy store: objects and their descriptions, on disk across restarts. Numbers rise from 1
 * and are not reused. The main thread reads at start; the worker writes, with copies of what it
 * needs. */
#ifndef GBPF_DAEMON_POLICY_POLICY_STORE_H
#define GBPF_DAEMON_POLICY_POLICY_STORE_H

#include "daemon/policy/verified.h"
#include "daemon/store_file.h"
#include "proto/pages.h"

#define DAEMON_STORE_VERSIONS 64u
#define DAEMON_STORE_WATCHES                                                                       \
	(PROTO_MAX_GPUS + 1u)	/* one a GPU, and the one of a swap under way                      \
				 */
#define DAEMON_STORE_HISTORY 4u /* versions of a GPU's history */
#define DAEMON_STORE_STATE "state.json"

#define DAEMON_WATCH_MAX_NS (INT64_C(24) * 3600 * 1000000000) /* a day */
#define DAEMON_WATCH_MIN_NS INT64_C(100000000)
#define DAEMON_WATCH_TEXT 512u

struct daemon_stored_version {
	uint64_t version;
	char name[32];
	bool by_default;		  /* chosen by gbpfd */
	uint64_t hash;			  /* of the object */
	json_t *meta;			  /* owned; as policy.show prints it */
	json_t *counters;		  /* owned; its counters when it ended; NULL: not known */
	struct daemon_verified *verified; /* one use is owned; NULL: not in use, or not verified yet
					   */
	bool is_volatile;		  /* its object is not on disk but here */
	struct buf object;		  /* owned; empty unless volatile */
	char ended[12];	  /* why it ended: "swap" ...; empty: active, or never was */
	bool is_rejected; /* a watch has rolled it back: in no GPU's history */
};

/* A running watch, as state.json has it. */
struct daemon_stored_watch {
	uint64_t version, ns;
	uint64_t end_wall_ns; /* end on the wall clock */
	uint32_t gpu_mask;
	bool keep_maps;
	uint64_t old[PROTO_MAX_GPUS]; /* active before it; 0: none */
	char name[32], condition[DAEMON_WATCH_TEXT];
};

struct daemon_store {
	char dir[4096];					       /* <state>/policies */
	struct daemon_stored_version v[DAEMON_STORE_VERSIONS]; /* sorted by number */
	unsigned n;
	uint64_t next;
	uint64_t active[PROTO_MAX_GPUS]; /* as of the last flip; 0: none */
	uint64_t kept[PROTO_MAX_GPUS];	 /* active after a restart: the last that is not volatile */
	/* Versions for a rollback: those that were active before, the last one first, without the
	 * active one and those that a watch has rejected; 0 ends. See store_history.c. */
	uint64_t history[PROTO_MAX_GPUS][DAEMON_STORE_HISTORY];
	bool off, has_state;
	bool bad_state; /* state.json exists and cannot be read */
	struct daemon_stored_watch watch[DAEMON_STORE_WATCHES];
	unsigned n_watches, bad_watches; /* bad_watches: entries of state.json that are invalid */
};

/* 0, or -errno if the directory cannot be created. Skips unreadable entries. */
int daemon_store_open(struct daemon_store *s, const char *state_dir);
void daemon_store_close(struct daemon_store *s);
struct daemon_stored_version *daemon_store_find(struct daemon_store *s, uint64_t version);
/* Adds a version; meta is taken. If the store is full it removes the oldest one not in use:
 * *ret_removed is its number, or 0. -ENOSPC: all are in use. */
int daemon_store_add(struct daemon_store *s, uint64_t version, json_t *meta, uint64_t *ret_removed);
/* Returns true if the version is active, will be after a restart, or is what a rollback returns to,
 * also one of a watch. */
bool daemon_store_in_use(const struct daemon_store *s, uint64_t version);
/* Keeps the object of a version that is not on disk; takes object. */
void daemon_store_set_volatile(struct daemon_store *s, uint64_t version, struct buf *object);
void daemon_store_remove(struct daemon_store *s, uint64_t version);
void daemon_store_ended(struct daemon_store *s, uint64_t version, const char *why);
char *daemon_store_state_text(const struct daemon_store *s); /* caller frees */

/* store_history.c */
/* Makes a version (0: none) the active one of a GPU, and puts the one before it into the history
 * unless it is rejected. */
void daemon_store_activate(struct daemon_store *s, unsigned gpu, uint64_t version);
/* Marks a version that a watch has rolled back, for good, and removes it from all histories. */
void daemon_store_reject(struct daemon_store *s, uint64_t version);
/* Removes a version from all histories. */
void daemon_store_forget(struct daemon_store *s, uint64_t version);
/* Returns the newest rejected version, or NULL. */
const struct daemon_stored_version *daemon_store_last_rejected(const struct daemon_store *s);
/* Adds members to the state; reads them, before and after the versions were read. */
void daemon_store_history_write(const struct daemon_store *s, json_t *state);
void daemon_store_history_read(struct daemon_store *s, const json_t *state);
void daemon_store_history_check(struct daemon_store *s, const json_t *state);

/* store_watches.c */
struct daemon_stored_watch *daemon_store_watch_find(struct daemon_store *s, uint64_t version);
/* Adds a watch, or replaces that of the same version. Returns false if there is no room. */
bool daemon_store_watch_set(struct daemon_store *s, const struct daemon_stored_watch *w);
bool daemon_store_watch_remove(struct daemon_store *s, uint64_t version); /* false: none */
/* Returns true if a watch may roll back to this version. */
bool daemon_store_watch_needs(const struct daemon_store *s, uint64_t version);
json_t *daemon_store_watches_json(const struct daemon_store *s); /* caller decrefs */
/* Adds the valid watches of state.json; counts the others in bad_watches. */
void daemon_store_watches_read(struct daemon_store *s, const json_t *state);

#endif

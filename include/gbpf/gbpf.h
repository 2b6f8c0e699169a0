/* libgbpf: the interface of programs to gbpfd. One handle is one connection to the control socket.
 * A handle may move between threads but must be used by one thread at a time. Results are JSON
 * texts; docs/PROTOCOL.md describes them.
 *
 *	struct gbpf *g;
 *	char *json;
 *	if (gbpf_open(&g, NULL, GBPF_OPEN_START) < 0 || gbpf_ps(g, &json) < 0) {
 *		const struct gbpf_error *e = gbpf_last_error(g);
 *		fprintf(stderr, "%s. %s\n", e->message, e->hint);
 *	}
 *	...
 *	free(json);
 *	gbpf_close(g);
 *
 * Every call returns 0 (or a count) or -Exxx. Input texts are borrowed for the call. Texts returned
 * through a char ** are freed by the caller, and unchanged on failure; a NULL char ** discards the
 * result. */
#ifndef GBPF_GBPF_H
#define GBPF_GBPF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GBPF_PROTOCOL 1 /* version of the control socket's protocol */
#define GBPF_OBJECT_MAX_BYTES (16u << 20)

struct gbpf;

/* Exit codes of programs for a failed call: gbpf_error.exit. */
enum gbpf_code {
	GBPF_CODE_OK = 0,
	GBPF_CODE_FAILED = 1,
	GBPF_CODE_USAGE = 2,
	GBPF_CODE_UNREACHABLE = 3, /* no daemon */
	GBPF_CODE_REFUSED = 4,	   /* refused by the verifier */
	GBPF_CODE_NOT_FOUND = 5,
	GBPF_CODE_PERMISSION = 6,
	GBPF_CODE_LIMIT = 7,
	GBPF_CODE_TIMEOUT = 8,
	/* Not stored on disk: a load was refused for that reason (gbpf_error), or what was done is
	 * lost when gbpfd exits (programs return it if an answer has "stored": false). */
	GBPF_CODE_UNSTORED = 10,
};

/* Error of the last call. No text is NULL; hint and detail may be empty. Valid until the next call
 * on the handle. */
struct gbpf_error {
	int err;  /* -Exxx that the call returned, 0 after a success */
	int exit; /* enum gbpf_code */
	/* Short stable word: "verify", "unreachable", "permission", "timeout" ... */
	const char *code;
	const char *message; /* one sentence without a full stop: failure and reason */
	const char *hint;    /* remedy */
	const char *detail;  /* more lines, for example the verifier's state and the source line */
};

/* ---- the connection ---- */

enum {
	/* Start gbpfd if none listens, as gbpf_start_daemon does with its defaults. */
	GBPF_OPEN_START = 1,
	/* Only create the handle; the first call connects. */
	GBPF_OPEN_NO_CONNECT = 2,
	/* Fail at once while gbpfd starts or stops. Without it connections wait until it has, at
	 * most the timeout. */
	GBPF_OPEN_NO_WAIT = 4,
};

/* Connects to the gbpfd of a runtime directory and says hello. runtime_dir NULL: $GBPF_RUNTIME_DIR,
 * /run/gbpf for root and where root's gbpfd serves, $XDG_RUNTIME_DIR/gbpf, else /tmp/gbpf-<uid>; a
 * path that ends in /control.sock denotes its directory. *ret is set even on failure, so that the
 * error can be read, and must be closed in any case (NULL only with -ENOMEM). Returns 0,
 * -ECONNREFUSED (no listener), -EACCES, -EPROTONOSUPPORT (another protocol version), -ETIMEDOUT,
 * -errno. */
int gbpf_open(struct gbpf **ret, const char *runtime_dir, unsigned flags);
void gbpf_close(struct gbpf *g); /* accepts NULL */

/* Never returns NULL; for g NULL the error is "out of memory". */
const struct gbpf_error *gbpf_last_error(const struct gbpf *g);

/* Sets the timeout of a call, connecting included, in milliseconds; 0: no limit. Default 10000. */
void gbpf_set_timeout(struct gbpf *g, unsigned timeout_ms);

/* gbpfd's hello. Texts are valid until the next call. NULL while not connected. */
struct gbpf_hello {
	size_t size; /* of this struct in this library */
	int protocol, pid, uid;
	uint32_t generation;	      /* changes with every start of gbpfd */
	int off;		      /* 1: shims pass everything through */
	const char *version, *device; /* device: "soft", "nvidia" or "none" */
};
const struct gbpf_hello *gbpf_hello(const struct gbpf *g);

const char *gbpf_version(void); /* of this library */
/* Valid until gbpf_close(). gbpf_start_daemon() may write another path into the same text. */
const char *gbpf_socket_path(const struct gbpf *g);

/* Calls any method. params: a JSON object, or NULL for {}. fd: descriptor sent with the request
 * (borrowed), or -1. *ret_json: the result object. An error of gbpfd returns its negative errno if
 * one matches (-EACCES refused by the verifier, -EPERM permission, -ENOENT not found, -E2BIG or
 * -ENOSPC limit, -EINVAL usage, -ETIMEDOUT), else -EIO; gbpf_last_error has the details. After a
 * broken connection the next call reconnects. */
int gbpf_call(struct gbpf *g, const char *method, const char *params, int fd, char **ret_json);

/* ---- policies ---- */

enum {
	/* Replace the active policy. Without it, loading fails if a policy that the operator chose
	 * is active. */
	GBPF_LOAD_SWAP = 1,
	/* Keep the contents of maps whose name, definition and types match. */
	GBPF_LOAD_KEEP_MAPS = 2,
	/* Do not store the policy: it lasts until gbpfd exits, which then starts with the policy
	 * that is stored. Without it a policy that cannot be stored is refused. */
	GBPF_LOAD_VOLATILE = 4,
};

/* Operations on policies through this handle (load, rollback, activate, unload) are about this GPU
 * alone from here on, a number that `gbpf device` shows; -1, as at first: about all. */
void gbpf_on_gpu(struct gbpf *g, int gpu);
/* Reads the object (at most GBPF_OBJECT_MAX_BYTES) and sends it to gbpfd. name NULL: the file's
 * name without .bpf.o. -EACCES: refused by the verifier; -EINVAL: not a usable object; -EEXIST:
 * another policy is active and GBPF_LOAD_SWAP was not given. */
int gbpf_policy_load(struct gbpf *g, const char *path, const char *name, unsigned flags,
		     char **ret_json);
/* Same as gbpf_policy_load, from memory. */
int gbpf_policy_load_bytes(struct gbpf *g, const void *elf, size_t bytes, const char *name,
			   unsigned flags, char **ret_json);
/* Same as gbpf_policy_load_bytes; for watch_ns after the swap gbpfd returns to the previous version
 * as soon as rollback_if holds, a condition such as "p99[class=latency]>6ms" (gbpf-policy(1)).
 * NULL: no watch. */
int gbpf_policy_load_watched(struct gbpf *g, const void *elf, size_t bytes, const char *name,
			     unsigned flags, uint64_t watch_ns, const char *rollback_if,
			     char **ret_json);
/* Returns the state or result of a watch; version 0: the newest one that runs, or else the newest.
 * -ENOENT: that version is not watched. */
int gbpf_policy_watch(struct gbpf *g, uint64_t version, char **ret_json);
/* Ends the running watch of a version (0: the newest one); the version stays active. -ENOENT: no
 * watch runs. */
int gbpf_policy_watch_cancel(struct gbpf *g, uint64_t version, char **ret_json);
/* Returns to a kept version; 0: the one before the active one. -ENOENT: no such version. */
int gbpf_policy_rollback(struct gbpf *g, uint64_t version, char **ret_json);
/* Same as gbpf_policy_rollback; flags: GBPF_LOAD_KEEP_MAPS. */
int gbpf_policy_activate(struct gbpf *g, uint64_t version, unsigned flags, char **ret_json);
/* Deactivates the policy: no launch is held afterwards. */
int gbpf_policy_unload(struct gbpf *g, char **ret_json);
int gbpf_policy_list(struct gbpf *g, char **ret_json);
int gbpf_policy_show(struct gbpf *g, uint64_t version, char **ret_json); /* 0: the active one */

/* ---- maps of an active version; docs/PROTOCOL.md describes the texts of keys and values ---- */

#define GBPF_ALL_TENANTS UINT32_MAX

struct gbpf_map {
	size_t size;	  /* sizeof(struct gbpf_map) */
	const char *name; /* of the map */
	uint64_t version; /* 0: the active one, or the only tool that has the map */
	uint32_t tenant;  /* of a per-tenant map; GBPF_ALL_TENANTS: all, where supported */
	uint64_t probe;	  /* number of a tool; 0: see version */
	/* A version has its own maps on each GPU. 1 + the number of the GPU, as `gbpf device` shows
	 * it; 0: the lowest one on which it is active, and for set and delete each of these. */
	uint32_t gpu;
};

int gbpf_map_list(struct gbpf *g, uint64_t version, char **ret_json);
/* Lists the maps of m's version or tool; its name and tenant are ignored. */
int gbpf_map_list_of(struct gbpf *g, const struct gbpf_map *m, char **ret_json);
/* Has processes copy the maps of a tool that are in memory of the GPU (scope "device"), so that the
 * next calls read their present contents. name NULL: m's version or tool as a whole. */
int gbpf_map_drain(struct gbpf *g, const struct gbpf_map *m, char **ret_json);
/* Returns one page: at most limit entries (0: 1000) after the text `next` of the previous page
 * (NULL: the first). nonzero: omit values that are all zero. */
int gbpf_map_dump(struct gbpf *g, const struct gbpf_map *m, const char *after, unsigned limit,
		  int nonzero, char **ret_json);
int gbpf_map_get(struct gbpf *g, const struct gbpf_map *m, const char *key, char **ret_json);
/* key NULL: pushes to a queue or stack. */
int gbpf_map_set(struct gbpf *g, const struct gbpf_map *m, const char *key, const char *value,
		 char **ret_json);
/* key NULL: pops from a queue or stack. */
int gbpf_map_delete(struct gbpf *g, const struct gbpf_map *m, const char *key, char **ret_json);

/* ---- tools: programs inside kernels; gbpf-probe(1) describes them ---- */

enum {
	/* Detach it when the handle is closed, or the process exits. Programs that exit wait, a
	 * second at most, until this process has called gbpf_map_drain() twice. */
	GBPF_PROBE_HOLD = 1,
	GBPF_PROBE_PARTIAL = 2, /* kernels that lack places of some programs run the others */
	GBPF_PROBE_VERIFY = 4,	/* compare the first launches with the kernels themselves */
	GBPF_PROBE_LATER = 8	/* `to` may be a name that no program has yet */
};

#define GBPF_PROBE_NO_BUDGET UINT32_MAX

struct gbpf_probe {
	size_t size;	    /* sizeof(struct gbpf_probe) */
	const char *name;   /* 1 to 31 characters without blanks and slashes */
	const char *to;	    /* process or tenant number, or name of a tenant; NULL: all */
	const char *kernel; /* pattern of kernels' names; NULL: all */
	uint32_t replace;   /* number of the tool that it replaces; 0: none */
	unsigned flags;	    /* GBPF_PROBE_* */
	/* Of the time of the kernels' launches, in millionths, that it may add: if it costs more,
	 * it runs in some of the launches only; gbpf_probe_set_budget() changes it. 0: that of the
	 * tool that it replaces, else none. GBPF_PROBE_NO_BUDGET: it runs in all of them. */
	uint32_t budget_ppm;
	/* One of N blocks runs it, N from 1 to 1000000; gbpf_probe_set() changes that, also for
	 * kernels that run. 0: all do, which cannot be changed and costs less. */
	uint32_t every;
};

/* Verifies an object with programs inside kernels and attaches it. Waits at least 30 s for the
 * answer. With `replace`, a NULL of p means as the replaced tool has it. */
int gbpf_probe_attach(struct gbpf *g, const void *elf, size_t bytes, const struct gbpf_probe *p,
		      char **ret_json);
int gbpf_probe_list(struct gbpf *g, char **ret_json);
/* every 0: as before; off: 1 no block runs it, 0 they do again. For all kernels: overrides what was
 * set for some. */
int gbpf_probe_set(struct gbpf *g, uint32_t id, uint32_t every, int off, char **ret_json);
/* For the kernels whose names match a pattern, also later ones; at most 16 patterns. off -1: as
 * before. */
int gbpf_probe_set_kernel(struct gbpf *g, uint32_t id, const char *kernel, uint32_t every, int off,
			  char **ret_json);
/* budget_ppm: as in struct gbpf_probe, at most 1000000; 0 removes the budget. */
int gbpf_probe_set_budget(struct gbpf *g, uint32_t id, uint32_t budget_ppm, char **ret_json);
int gbpf_probe_detach(struct gbpf *g, uint32_t id, char **ret_json);

/* ---- tenants, devices, state ---- */

int gbpf_ps(struct gbpf *g, char **ret_json);
/* class_name: "latency", "normal", "batch" or NULL (unchanged); weight 1-10000, 0: unchanged. */
int gbpf_set(struct gbpf *g, uint32_t tenant, const char *class_name, uint32_t weight,
	     char **ret_json);
int gbpf_device_list(struct gbpf *g, char **ret_json);
int gbpf_status(struct gbpf *g, char **ret_json);
/* off 1: shims pass everything through; 0: they schedule again. */
int gbpf_off(struct gbpf *g, int off, char **ret_json);
/* Stops gbpfd, also one that is stopping already, and waits until it has exited; programs continue
 * with the last policy. -ETIMEDOUT: it is still stopping. */
int gbpf_shutdown(struct gbpf *g);

/* ---- virtual GPUs: gbpf-vgpu(1) describes what they are given ---- */

/* Members of struct gbpf_vgpu that are given; others keep their value, or the default. */
enum {
	GBPF_GIVEN_MEM = 1,
	GBPF_GIVEN_RESERVE = 2,
	GBPF_GIVEN_PINNED = 4,
	GBPF_GIVEN_WAIT = 8,
	GBPF_GIVEN_COMPUTE = 16,
	GBPF_GIVEN_COPY = 32,
	GBPF_GIVEN_PRIO = 64,
	GBPF_GIVEN_BURST = 128,
	GBPF_GIVEN_USERS = 256,
	GBPF_GIVEN_SWAP = 512,
	GBPF_GIVEN_SHOW = 1024,
};

/* The memory that programs see in a virtual GPU with swap. */
enum {
	GBPF_SHOW_ALL = 0, /* mem and swap */
	GBPF_SHOW_MEM = 1, /* mem alone; they may use swap all the same */
};

/*	struct gbpf_vgpu v = { .size = sizeof(v), .given = GBPF_GIVEN_MEM | GBPF_GIVEN_COMPUTE };
 *
 *	v.mem = 16ull << 30;
 *	v.compute = 25;
 *	err = gbpf_vgpu_create(g, "train", &v, NULL);
 */
struct gbpf_vgpu {
	size_t size;	/* sizeof(struct gbpf_vgpu) */
	unsigned given; /* GBPF_GIVEN_* */
	int burst;	/* 1: it may use time and bandwidth that others leave over */
	/* bytes: on each GPU, but pinned of the host; 0 takes a value back */
	uint64_t mem, reserve, pinned;
	uint64_t wait_ns;	/* at most an hour; 0: calls do not wait for memory */
	uint32_t compute, copy; /* percent, 1 to 100; 0 takes a share back */
	uint32_t prio;		/* 0 to 100 */
	const uint32_t *users;	/* ids of other users whose programs may join; borrowed */
	size_t n_users;		/* at most 32 */
	/* Bytes of the smallest GPU, against which reservations are checked; 0: as gbpfd knows it.
	 */
	uint64_t device_mem;
	/* Bytes of host memory for memory that leaves the GPUs beyond mem, of the virtual GPU as a
	 * whole: at least 2 MiB, and mem must be set; 0: none leaves. */
	uint64_t swap;
	uint32_t show; /* GBPF_SHOW_*; without swap both are the same */
};

/* Names are those of their owners: "train" is the caller's own, or else the only one of that name
 * that was opened to the caller (-ENOTUNIQ: several were); "1000/train" is that of user 1000, also
 * for root and administrators, who change only their own by a name alone.
 *
 * Lists the virtual GPUs that the caller may see. */
int gbpf_vgpu_list(struct gbpf *g, char **ret_json);
/* Returns one by its name, or by its number if it has no name. -ENOENT: there is none. */
int gbpf_vgpu_show(struct gbpf *g, const char *name, char **ret_json);
/* Makes one. v NULL: without limits and shares. -EEXIST: the caller has one of that name already;
 * -EINVAL: an invalid name or value; -EPERM: the caller may not reserve memory or name users;
 * -E2BIG: there are too many, or the reservation does not fit. */
int gbpf_vgpu_create(struct gbpf *g, const char *name, const struct gbpf_vgpu *v, char **ret_json);
/* Changes one while its programs run. Errors as gbpf_vgpu_create; -ENOENT: there is none. */
int gbpf_vgpu_set(struct gbpf *g, const char *name, const struct gbpf_vgpu *v, char **ret_json);
/* Same as gbpf_vgpu_set, for the one that a tenant is in. */
int gbpf_vgpu_set_of(struct gbpf *g, uint32_t tenant, const struct gbpf_vgpu *v, char **ret_json);

enum {
	GBPF_VGPU_DRAIN = 1, /* with programs in it: take no new ones, remove it with the last */
};
/* Removes one. -EBUSY: programs are in it and GBPF_VGPU_DRAIN is not given; -ENOENT. */
int gbpf_vgpu_remove(struct gbpf *g, const char *name, unsigned flags, char **ret_json);

/* ---- hints ---- */

/* Announces the next request of this process, which has class latency under gbpf run, in in_us
 * microseconds (at most 10 s; 0: now), with a deadline deadline_us microseconds after that (0: not
 * known; at most an hour). The work of other programs makes way shortly before. Wrong hints harm
 * only this process: after three in a row its hints are ignored for a second. device: CUDA device
 * ordinal, or -1: that of the calling thread's context. Needs no handle, performs no communication,
 * and may be called from any thread, also without gBPF. Returns 0; -ENOENT: no gBPF in this
 * process; -EPERM: it is not of class latency; -EAGAIN: hints are currently ignored; -EINVAL. */
int gbpf_hint(uint64_t in_us, uint64_t deadline_us, int device);

/* ---- events ---- */

/* Receives one event as a JSON object (borrowed). A non-zero result ends the iteration and is
 * returned by gbpf_events. */
typedef int (*gbpf_event_fn)(void *arg, const char *event_json);

enum {
	GBPF_EVENTS_FOLLOW = 1,
	GBPF_EVENTS_AUDIT = 2, /* the audit log, for administrators: who changed what */
};

/* Calls fn for each event of the history with a sequence number above since, then, with
 * GBPF_EVENTS_FOLLOW, for each new one as it happens, until fn returns non-zero or gbpfd exits
 * (-ECONNRESET). idle_ms: maximum wait for the next event while following (-ETIMEDOUT), 0: no
 * limit. After following the connection is closed; the next call reconnects. -EINTR: a signal
 * arrived while waiting; call again with the last sequence number seen, or stop. */
int gbpf_events(struct gbpf *g, uint64_t since, unsigned flags, unsigned idle_ms, gbpf_event_fn fn,
		void *arg);

/* Follows a map: calls fn with each watch line (docs/PROTOCOL.md), until it returns non-zero or the
 * version ends (the last line is {"end":...}; returns 0 then). interval_ms 0: 1000. idle_ms, -EINTR
 * and the connection as in gbpf_events. */
int gbpf_map_watch(struct gbpf *g, const struct gbpf_map *m, unsigned interval_ms, unsigned idle_ms,
		   gbpf_event_fn fn, void *arg);

/* ---- starting gbpfd ---- */

struct gbpf_start_options {
	size_t size;	       /* sizeof(struct gbpf_start_options) */
	const char *program;   /* NULL: gbpfd in the folder of the running program, or from
				  $GBPF_BINDIR */
	const char *device;    /* "soft", "nvidia", "auto"; NULL: gbpfd's default */
	const char *policy;    /* initial policy; NULL: the stored one, or fair */
	const char *state_dir; /* NULL: gbpfd's default */
	unsigned idle_exit_s;  /* gbpfd exits after this time without a session; 0: never */
	unsigned timeout_ms;   /* until it is ready; 0: 15000 */
};

/* Starts a detached gbpfd for the handle's runtime directory unless one listens, waits until it is
 * ready, and connects. Concurrent callers start only one. Its log goes to gbpfd.log in the runtime
 * directory. A gbpfd that is killed meanwhile is restarted, twice. In /run/gbpf users other than
 * root start none, but wait for root's. If root's has ended for good, and gbpf_open() chose the
 * directory (runtime_dir NULL, no $GBPF_RUNTIME_DIR), the handle changes to the user's own, where
 * gbpfd is started unless it listens: gbpf_socket_path() then returns the new path. That wait can
 * exceed timeout_ms by 1 s, and timeout_ms begins again in the new directory. Returns 0 (also if
 * one was running), -ENOENT (program missing), -ETIMEDOUT, -ECONNRESET (killed each time), -errno;
 * the error's message has gbpfd's output. o may be NULL. */
int gbpf_start_daemon(struct gbpf *g, const struct gbpf_start_options *o);

#ifdef __cplusplus
}
#endif

#endif

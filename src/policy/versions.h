/* The versions of a policy that this process has prepared, and which of them is in force on each
 * GPU. A version has an instance for each GPU, with maps of its own. gbpfd activates a version by
 * one word of its directory page for each GPU; the instance prepared here is found by that word.
 * Knows nothing of what the hooks decide. */
#ifndef GBPF_POLICY_VERSIONS_H
#define GBPF_POLICY_VERSIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "bpf/run/policy_image.h"
#include "policy/read.h"
#include "proto/pages.h"

/* On each GPU: the version in force, the next one, and one that is being dropped. */
#define POLICY_MAX_PREPARED (3u * PROTO_MAX_GPUS)
#define POLICY_NONE POLICY_MAX_PREPARED /* index of an entry that is always empty */

/* Marks: [atomic] any thread, through base/atomic.h; [agent] the agent thread only; [section] read
 * inside a read-side section, replaced by publishing and policy_synchronize. */
struct policy_version {
	uint64_t version; /* [section] 0: empty */
	uint32_t gpus;	  /* [section] bits of the device ordinals whose instance it is */
	uint32_t life;	  /* [agent] value of struct policy's life when it was prepared */
	struct ebpf_policy policy;
	uint64_t failures[PROTO_HOOKS][PROTO_FAILURES]; /* [atomic] */
};

/* The fields that a hook call reads come first: they fit in one cache line for the first GPUs. */
struct policy {
	const struct proto_directory *dir; /* [section] never NULL */
	struct proto_stats *stats;	   /* [section] never NULL */
	uint32_t off;			   /* [atomic] this process runs no hooks */
	uint32_t life;			   /* [agent] how many gbpfds were lost */
	struct policy_gpu {
		uint32_t index; /* [atomic] gbpfd's number; PROTO_MAX_GPUS: unknown to it */
		uint32_t hint;	/* [atomic] entry of prepared[] that was found last */
	} gpu[PROTO_MAX_GPUS];	/* by device ordinal */
	uint32_t entries;	/* [atomic] of prepared[] that have been used: mostly one or two */
	uint64_t latest; /* [agent] version of the last PREPARE, whether it succeeded or not */
	/* [atomic] By device ordinal: the version that was in force last, as far as the agent
	 * knows; 0: none. It is used while the one that the directory names is not prepared here.
	 */
	uint64_t before[PROTO_MAX_GPUS];
	struct policy_version prepared[POLICY_MAX_PREPARED + 1];
} ALIGNED(64);

/* Returns how many entries of prepared[], from the first, may have a version. */
static inline uint32_t policy_entries(const struct policy *p)
{
	return load_acquire(&p->entries);
}

/* p is zeroed. dir and stats are borrowed. */
void policy_init(struct policy *p, const struct proto_directory *dir, struct proto_stats *stats);
void policy_finish(struct policy *p);
/* Agent thread: maps the instance of a version for these GPUs (bits of device ordinals) and makes
 * it findable; one that is there already is replaced. 0, -ENOSPC while all entries are taken, or
 * -errno. */
int policy_prepare(struct policy *p, uint64_t version, uint32_t gpus, int image_fd,
		   const int region_fds[EBPF_REGIONS]);
/* Agent thread: makes the instances of a version for these GPUs unfindable. They are unmapped once
 * no call can be inside any more. */
void policy_drop(struct policy *p, uint64_t version, uint32_t gpus);
/* Agent thread: the versions that are prepared are a lost gbpfd's, and the last one may never have
 * been in force. */
void policy_gbpfd_lost(struct policy *p);
/* Returns whether an instance for one of these GPUs is there. */
bool policy_is_prepared(const struct policy *p, uint64_t version, uint32_t gpus);
bool policy_any_prepared(const struct policy *p);
/* Agent thread: returns whether a prepared version has a program for that hook (POLICY_HOOK_*). */
bool policy_any_fills(const struct policy *p, unsigned hook);
/* Agent thread, after a new gbpfd took over: drops the versions that only the lost one knew of.
 * Returns false if a version in force has not been prepared by the new one yet. */
bool policy_sweep(struct policy *p);
/* Agent thread: takes a line that a program has printed, within the limit of ebpf_prints. text has
 * EBPF_PRINT_TEXT bytes. Returns false if none may be passed on now; *ret_waits is set then if
 * lines wait for the next second. */
bool policy_take_print(struct policy *p, uint64_t now_ns, char *text, uint64_t *ret_version,
		       uint64_t *ret_dropped, bool *ret_waits);
/* Agent thread: copies notes and failures of the version in use, summed over its instances, to the
 * statistics page. */
void policy_publish_notes(struct policy *p, struct proto_stats *st);

#endif

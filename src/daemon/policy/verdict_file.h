/* Verdicts of the verifier on disk, in the folder of base/disk_cache.h, so that a gbpfd does not
 * verify again what an earlier one has accepted. A file has the whole object, which is compared,
 * and the identity of the program that wrote it, hence of its verifier and its hooks. It has no
 * code: the object is compiled again. Reading trusts nothing; a file that is not exactly as
 * expected is ignored. As for all files of that folder, only the user that gbpfd runs as can write
 * one. */
#ifndef GBPF_DAEMON_POLICY_VERDICT_FILE_H
#define GBPF_DAEMON_POLICY_VERDICT_FILE_H

#include "base/buf.h"
#include "bpf/load/policy.h"

struct daemon_verdict {
	uint32_t n; /* programs */
	struct ebpf_verify_stats stats[EBPF_MAX_PROGS];
	uint64_t verify_ns; /* how long the verification took */
};

/* Returns 0 if the object was accepted under that name; -ENOENT, -EBADMSG or another -errno if that
 * is not known. For a verifier's thread: it reads files. */
int daemon_verdict_read(const char *name, const struct buf *object, struct daemon_verdict *ret);
/* Stores that the object was accepted, or does nothing if it cannot. */
void daemon_verdict_write(const char *name, const struct buf *object,
			  const struct daemon_verdict *v);

#endif

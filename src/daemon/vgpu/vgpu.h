/* vGPUs: groups of processes that share a memory limit (proto/account.h). gbpfd makes the account
 * page, gives each process a line of it, and clears the line once the process has exited; the
 * processes charge it themselves. A vGPU exists while a process is in it. */
#ifndef GBPF_DAEMON_VGPU_VGPU_H
#define GBPF_DAEMON_VGPU_VGPU_H

#include "base/report.h"
#include "daemon/session/tenant_session.h"

/* What `gbpf ps` shows of a session's memory, bytes, sums over its devices. */
struct daemon_vgpu_figures {
	const struct proto_vgpu *vgpu; /* borrowed; NULL: it is in none */
	uid_t uid;		       /* its owner */
	uint32_t place;		       /* number of the vGPU, below PROTO_VGPUS */
	uint64_t limit, used, own;     /* limit 0: the device's size */
	uint64_t overhead;	       /* part of `own` */
	uint64_t pinned_limit, pinned; /* host memory, of the vGPU and of the process */
	uint64_t swap_limit, swap;     /* likewise; limit 0: it has no swap */
	uint64_t shared, gbpf;	       /* imported, and taken by gBPF: not part of it */
	uint64_t pinned_gbpf;	       /* host memory that gBPF has pinned: likewise */
};

/* Memory of a GPU that can be taken from a vGPU for another one, bytes. */
struct daemon_vgpu_claim {
	const struct proto_vgpu_config *of, *by; /* borrowed; from, and for which it is taken */
	uint32_t place, for_place, gpu;
	uint64_t need;	    /* what the other one still needs */
	uint64_t used;	    /* what the vGPU holds; */
	uint64_t above;	    /* of that beyond its reservation */
	uint64_t swap_left; /* of its swap that is not in use */
	bool full;	    /* the device itself is full */
	uint32_t attempts;  /* orders for the same question so far */
};

/* Puts a session into the vGPU that its hello names, and creates that if it is new. fds: the
 * descriptors of the hello; the account's becomes -1 if it is taken over. Returns 0; -EUSERS: the
 * user has too many vGPUs or processes in them, with the report, -ENOSPC: too many processes in
 * this one, -ENOENT: none has this name, -ENOTUNIQ: several users' have it, -EINVAL: the account
 * that was brought does not fit, -ESRCH: the process is not visible to gbpfd, -EAGAIN: gbpfd was
 * restarted, and the account is still to be brought by a process that has it; or another -errno. */
int daemon_vgpu_join(struct daemon_session *s, const struct proto_hello *h, int *fds,
		     struct report *r);
/* Finds the vGPU that the hello of a process outside of it names and that is
 * open to its user. Returns the descriptor of its account (borrowed), -ENOENT: no process is in it,
 * -EPERM: there is none of this name for this user, or -EAGAIN as above; *ret becomes what it is
 * given, or what the hello says of that. */
int daemon_vgpu_look(const struct daemon_session *s, const struct proto_hello *h,
		     const struct proto_vgpu_config **ret);
/* Gives each device of the session a row. Returns 0, -ENOSPC, -EINVAL for a UUID that no device can
 * have, or -EDQUOT: the vGPU has no name, and the device has no room for what it reserves. */
int daemon_vgpu_add_devices(struct daemon_session *s, const uint8_t uuid[PROTO_MAX_GPUS][16]);
/* Returns what the reservations of other vGPUs leave of the smallest device, and its size. */
void daemon_vgpu_reserve_left(const struct daemon_session *s, uint64_t *ret_left,
			      uint64_t *ret_size);
/* Returns the descriptor of the account to be sent, -1: the session is in none. */
int daemon_vgpu_fd(const struct daemon_session *s);
/* Notes the sizes of the devices that a session has reported. Where its user is not trusted, NVML
 * is asked. */
void daemon_vgpu_note_sizes(struct daemon_session *s, const uint64_t bytes[PROTO_MAX_GPUS]);
extern const struct daemon_feature daemon_ipc_feature; /* vgpu_ipc.c */
extern const struct daemon_feature daemon_vgpus_feature;
/* Has gbpfd look for memory as long as processes in vGPUs wait for it, or are queued: admit is then
 * asked again when memory is freed, too. */
void daemon_vgpu_await_memory(struct daemon *d);
/* The session ends. Its line is cleared once its process is gone. */
void daemon_vgpu_leave(struct daemon_session *s);
void daemon_vgpu_figures(const struct daemon_session *s, struct daemon_vgpu_figures *ret);
/* Makes the vGPUs that have names and were there before. */
void daemon_vgpus_open(struct daemon *d);
void daemon_vgpus_close(struct daemon *d);

#endif

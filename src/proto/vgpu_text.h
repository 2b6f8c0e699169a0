/* What a virtual GPU (vGPU) is given, and the text by which a process knows its vGPU: the value of
 * GBPF_VGPU. */
#ifndef GBPF_PROTO_VGPU_TEXT_H
#define GBPF_PROTO_VGPU_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/pages.h"

#define PROTO_VGPU_NAME 32u
#define PROTO_VGPUS 64u /* vGPUs at a time; the number of a place for one is below it */
#define PROTO_VGPU_TEXT 640u
#define PROTO_VGPU_MEM_MIN                                                                         \
	(16u << 20) /* smallest memory limit: a program cannot start with less                     \
		     */
#define PROTO_VGPU_MEM_MAX (UINT64_C(1) << 50)
#define PROTO_VGPU_SWAP_MIN (2u << 20) /* smallest limit of swap: device memory leaves in units */
#define PROTO_VGPU_WAIT_MAX_NS UINT64_C(3600000000000)
#define PROTO_VGPU_PRIO_MAX 100

enum {
	PROTO_VGPU_BURST = 1, /* it may use what others leave over; else its shares are its most */
	PROTO_VGPU_SHOW_MEM = 2, /* programs see the limits of devices; else swap as well */
};

/* Bytes are for each device, but those of pinned and swap. */
struct proto_vgpu_config {
	uint64_t mem[PROTO_MAX_GPUS]; /* limit by the process's device ordinal, 0: the device's size
				       */
	uint64_t reserve;	      /* bytes that no other vGPU can take; at most mem */
	uint64_t pinned;  /* limit of pinned host memory; 0: a share of what all vGPUs may pin */
	uint64_t swap;	  /* bytes of host memory for device memory that leaves the device, of the
			     vGPU as a whole; 0: none leaves. Needs mem of some device */
	uint64_t wait_ns; /* how long an allocation waits for memory before it fails */
	uint32_t compute, copy; /* shares of the GPU's time and of copy bandwidth, %; 0: not set */
	int32_t prio;		/* 0..PROTO_VGPU_PRIO_MAX; the highest goes first */
	uint32_t flags;		/* PROTO_VGPU_* */
};

struct proto_vgpu {
	char name[PROTO_VGPU_NAME]; /* "": it has none */
	/* Without a name: a number that its user has made up, when (monotonic), and what it is
	 * given, which counts if this process is the first one in it. 0: the process is in none.
	 * With a name: 1 + the user id of its owner; 0: not stated, as its user's own is meant. */
	uint64_t number, made_ns;
	struct proto_vgpu_config config;
};

/* Returns true if the process is in a vGPU. */
static inline bool proto_vgpu_is_set(const struct proto_vgpu *v)
{
	return v->number || v->name[0];
}

/* Returns true for 1 to 31 letters, digits and characters of "._-", a letter first. */
bool proto_vgpu_name_is_valid(const char *name);
/* Reads "NAME" or "UID/NAME" into name and number of *v. Returns 0, or -EINVAL: *v is zero. */
int proto_vgpu_parse_name(const char *text, struct proto_vgpu *v);
/* Returns true if a device has a limit. */
bool proto_vgpu_limits_mem(const struct proto_vgpu_config *c);
/* Returns the bytes by which devices with a limit seem larger. */
static inline uint64_t proto_vgpu_shown_swap(const struct proto_vgpu_config *c)
{
	return c->flags & PROTO_VGPU_SHOW_MEM ? 0 : c->swap;
}
/* Returns NULL, or what of it is out of range, as a text that names option and allowed values. */
const char *proto_vgpu_config_fault(const struct proto_vgpu_config *c);
/* Writes the value of GBPF_VGPU: NAME or UID/NAME, or NUMBER:TIME and what the vGPU is given.
 * Returns 0 or -ENOSPC. */
int proto_vgpu_print(const struct proto_vgpu *v, char *text, size_t bytes);
/* Reads it. Returns 0, or -EINVAL: *v is zero. */
int proto_vgpu_parse(const char *text, struct proto_vgpu *v);

#endif

/* Streams and their operations. Guarded by the machine's lock, except as softd_copy_step says. */
#ifndef GBPF_SOFT_SERVER_RUN_OP_STREAM_H
#define GBPF_SOFT_SERVER_RUN_OP_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/server/exec/exec.h"
#include "soft/server/list.h"
#include "soft/server/machine_lock.h"
#include "soft/protocol.h"

struct softd_client;
struct softd_group;
struct softd_launch;
struct softd_machine;
struct softd_stream;

/* One operation, taken from the ring. */
struct softd_op {
	struct softd_list in_stream;
	struct softd_list in_copies; /* group.copies, while a copy is queued */
	struct softd_stream *stream;
	uint64_t order; /* of issue in the group, for the rules of the legacy default stream */
	uint16_t kind;	/* enum soft_op */
	bool started;
	bool running; /* an engine or worker copies a part of it */
	union {
		struct softd_launch *launch;
		struct {
			struct softd_memory *dst_memory, *src_memory;
			struct softd_group *dst_group, *src_group; /* held while queued, or NULL */
			uint64_t dst_serial, src_serial;	   /* of the allocations */
			uint64_t dst, src, dst_pitch, src_pitch, width, height;
			uint64_t row, column; /* progress */
			bool bulk;	      /* written past the caches */
			uint32_t value, unit; /* of a memset, whose width is in bytes as well */
		} copy;
		struct {
			uint32_t index, count;
		} event;
		struct {
			uint32_t slot, target;
		} wait;
		struct {
			uint64_t cookie;
		} host;
		struct {
			uint64_t address, value;
			uint32_t unit, mode;
		} value;
		struct {
			uint64_t key;
			uint32_t index, ticket;
			bool held; /* the client used the event when the record was taken */
		} shared;
	};
};

struct softd_stream {
	struct softd_list in_group;
	struct softd_group *group;
	struct softd_list ops; /* of struct softd_op, in order */
	uint32_t slot;
	int priority;
	uint32_t flags;
	uint64_t part; /* blocking streams synchronize with the default stream of the same part */
};

/* Returns NULL without memory. */
struct softd_stream *softd_stream_create(struct softd_client *c, struct softd_group *g,
					 const struct soft_record_stream *r) REQUIRES(softd_lock);
/* Returns the default stream of a part of the group, or NULL. */
struct softd_stream *softd_stream_legacy(const struct softd_group *g, uint64_t part)
	REQUIRES(softd_lock);
/* Takes op. */
void softd_stream_append(struct softd_stream *s, struct softd_op *op) REQUIRES(softd_lock);
/* Drops its operations. */
void softd_stream_destroy(struct softd_stream *s) REQUIRES(softd_lock);
/* Retires and frees the operation at the head of its stream, which has ended. */
void softd_op_retire(struct softd_op *op) REQUIRES(softd_lock);
/* Reports one more ended operation to the client. */
void softd_stream_publish(struct softd_client *c, uint32_t slot) REQUIRES(softd_lock);
/* The client has run the host function at the head of the stream. */
void softd_stream_host_done(struct softd_client *c, uint32_t slot) REQUIRES(softd_lock);

/* Looks up the groups of a copy. Returns true if both ranges are valid. */
bool softd_copy_check(struct softd_op *op) REQUIRES(softd_lock);
/* Returns true if the ranges of a queued copy are still those that softd_copy_check found. */
bool softd_copy_still_valid(const struct softd_op *op) REQUIRES(softd_lock);
/* Queues a copy; holds its groups until softd_copy_release. */
void softd_copy_submit(struct softd_op *op) REQUIRES(softd_lock);
void softd_copy_release(struct softd_op *op) REQUIRES(softd_lock);
/* Copies about limit bytes at most. Called without the lock, by one thread at a time. Returns true
 * if it was the last part. */
bool softd_copy_step(struct softd_op *op, uint64_t limit, uint64_t *ret_bytes);
/* Returns, by direction, how many of the bytes of a part pass the link to the host. */
void softd_copy_link_bytes(const struct softd_op *op, uint64_t bytes, uint64_t ret[EXEC_LINK_WAYS])
	REQUIRES(softd_lock);
/* Returns true if a bandwidth of copies is modelled: then engines alone execute them. */
bool softd_copies_paced(const struct softd_machine *machine);

/* Takes records from the client's ring; sets *any if there were some. Returns 0, -EPROTO for a
 * malformed record, or -ENOMEM (ring_reader.c). */
int softd_ring_read(struct softd_client *c, bool *any) REQUIRES(softd_lock);

#endif

/* What a copy and its helpers share. */
#ifndef GBPF_MEM_COPY_INT_H
#define GBPF_MEM_COPY_INT_H

#include "base/compiler.h"
#include "mem/copy_plan.h"

/* A unit is the bytes of a piece that one thread moves at a time. Units are numbered from the
 * beginning of the copy and started in that order. */
struct mem_copy_job {
	const struct mem_copy *c;
	unsigned units_per_piece;
	uint64_t n_units;
	bool plain;    /* the program's memory is anonymous, mapped as a whole, and may be read */
	uint64_t open; /* [atomic] units below this number may be started; raised by the caller */
	uint64_t next; /* [atomic] the first one that has not been started */
	uint32_t moved[MEM_COPY_PIECES_MAX]; /* [atomic] units of the slot's piece that are through
					      */
	uint32_t stop;	/* [atomic] a page cannot be accessed, or the copy has failed: units are
			   passed over */
	uint32_t users; /* [atomic], written under the pool's lock; helpers */
	struct mem_copy_job *later; /* pool's lock */
};

/* Moves the next unit. Returns false if none may be started now. */
bool mem_copy_unit(struct mem_copy_job *j);
/* Lists the job, so that helpers take part in it; starts helpers if there are fewer than allowed.
 */
void mem_copy_pool_add(struct mem_copy_pool *pool, struct mem_copy_job *j);
/* Wakes helpers if any sleep: more units are open. */
void mem_copy_pool_wake(struct mem_copy_pool *pool);
/* Removes the job; returns when no helper uses it. */
void mem_copy_pool_remove(struct mem_copy_pool *pool, struct mem_copy_job *j);

/* Returns true if the whole range is anonymous memory that may be read, or written, now. False:
 * not, or the system does not say (Linux 6.11 does). */
bool mem_copy_is_plain(const void *program, size_t bytes, bool write);
/* Moves bytes of the program's memory, both ways. Returns 0, or -EFAULT if a page of it cannot be
 * accessed: nothing or a part was moved. plain: as mem_copy_is_plain(), so that pages need not be
 * populated one by one, which costs an eighth of the time of copying them. */
int mem_copy_from_program(void *piece, const void *program, size_t bytes, bool plain);
int mem_copy_to_program(void *program, const void *piece, size_t bytes, bool plain);

#endif

/* malloc() and free() of kernels: one heap per context. */
#ifndef GBPF_SOFT_SERVER_MEMORY_HEAP_H
#define GBPF_SOFT_SERVER_MEMORY_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

#define SOFTD_HEAP_DEFAULT_BYTES (8u << 20) /* default of CU_LIMIT_MALLOC_HEAP_SIZE */
#define SOFTD_HEAP_CLASSES 104u		    /* the last one is larger than any heap */

struct softd_group;

struct softd_heap {
	struct lock lock; /* guards the rest */
	struct softd_group *group;
	uint64_t base, bytes; /* device address, 0: not allocated yet */
	bool failed;	      /* allocating it failed */
	uint8_t *class_at; /* owned; per step: class of the piece that begins there, and a used bit
			    */
	uint32_t *next;	   /* owned; links of the free lists */
	uint32_t free[SOFTD_HEAP_CLASSES]; /* heads of the free lists: step + 1 */
	uint32_t top;			   /* first step that has never been used */
};

void softd_heap_init(struct softd_heap *h, struct softd_group *g);
/* Changes the size. Returns -EBUSY once a kernel has used the heap. Caller must not hold the
 * machine's lock. */
int softd_heap_resize(struct softd_heap *h, uint64_t bytes);
void softd_heap_finish(struct softd_heap *h); /* the memory itself is freed with the context's */
/* exec_host.allocate and exec_host.release; group: struct softd_group. */
uint64_t softd_heap_allocate(void *group, uint64_t bytes);
int softd_heap_release(void *group, uint64_t address);

#endif

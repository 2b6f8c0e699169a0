/* malloc and free of kernels: one heap for each context. */
#ifndef GBPF_SOFT_SERVER_MEMORY_HEAP_H
#define GBPF_SOFT_SERVER_MEMORY_HEAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define HEAP_DEFAULT_BYTES (8u << 20) /* as CU_LIMIT_MALLOC_HEAP_SIZE is by default */
#define HEAP_CLASSES 104u	      /* the last one is larger than any heap */

struct softd_group;

struct softd_heap {
	pthread_mutex_t lock; /* guards the rest */
	struct softd_group *group;
	uint64_t base, bytes; /* device address, 0: not taken yet */
	bool failed;	      /* there was no memory for it */
	uint8_t *class_at; /* owned; of the piece that begins at a step, and whether it is used */
	uint32_t *next;	   /* owned; lists of free pieces */
	uint32_t free[HEAP_CLASSES]; /* step + 1 */
	uint32_t top;		     /* steps that have never been used begin here */
};

void softd_heap_init(struct softd_heap *h, struct softd_group *g);
/* Another size than the default; -EBUSY once a kernel has used it. Without the device's lock. */
int softd_heap_resize(struct softd_heap *h, uint64_t bytes);
void softd_heap_finish(struct softd_heap *h); /* the piece itself goes with the context's memory */
/* exec_host's allocate and release; group is a struct group. */
uint64_t softd_heap_allocate(void *group, uint64_t bytes);
int softd_heap_release(void *group, uint64_t address);

#endif

/* The device interface of mem: pieces of pinned memory, and copies between them and device memory.
 * gpu/ implements it on a driver table, tests implement it in memory. Results: 0, -Exxx, or the
 * device's own error code (> 0), which is passed through to the program. Every member is mandatory
 * and called by the thread that makes the copy, without locks of mem. */
#ifndef GBPF_MEM_MEM_DEVICE_H
#define GBPF_MEM_MEM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mem_copy_way {
	MEM_COPY_UP,   /* to the device */
	MEM_COPY_DOWN, /* from the device */
};

/* Pinned memory of one context, and the event behind its latest use. */
struct mem_piece {
	unsigned char *host; /* owned by the device */
	void *event;	     /* owned by the device */
	bool lost;	     /* a copy may use it that the event is not behind: never used again */
	struct mem_piece *next;
};

struct mem_device_ops {
	/* Allocates a piece in the current context. May block. */
	int (*piece_create)(void *dev, size_t bytes, struct mem_piece *ret);
	void (*piece_destroy)(void *dev, struct mem_piece *p);
	/* Puts a copy between the first bytes of the piece and device memory at the end of the
	 * queue, and the piece's event behind it. Sets `lost` if the copy is there without the
	 * event. */
	int (*issue)(void *dev, void *queue, enum mem_copy_way way, struct mem_piece *p,
		     uint64_t device, size_t bytes);
	/* Returns 0 if the piece's latest copy has finished or there was none, -EAGAIN if not, or
	 * an error. Must not block. */
	int (*piece_done)(void *dev, const struct mem_piece *p);
};

#endif

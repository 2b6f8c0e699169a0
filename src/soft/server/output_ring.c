/* Text that kernels print, passed to the client as records in the shared page. The client writes
 * only print_tail there, which is checked before use: a wrong value loses the client's own text and
 * nothing else. */
#include "soft/server/output_ring.h"

#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "soft/server/connection.h"
#include "soft/server/run/context_group.h"

static void copy_in(struct soft_shared *s, uint32_t at, const void *from, size_t n)
{
	size_t first;

	at %= SOFT_PRINT_BYTES;
	first = MIN(n, (size_t)(SOFT_PRINT_BYTES - at));
	memcpy(s->print + at, from, first);
	memcpy(s->print, (const uint8_t *)from + first, n - first);
}

/* Wakes the threads that wait for streams, so that they empty the print ring. Called when the ring
 * becomes half full; otherwise they read it when their wait ends. */
static void wake_readers(struct soft_shared *s)
{
	for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
		if (load_relaxed(&s->streams[i].waiters)) {
			futex_wake_shared(&s->streams[i].done, INT32_MAX);
		}
	}
}

static void put(struct softd_group *g, uint32_t flags, const char *text, size_t n)
{
	struct softd_client *c = g->client;
	struct soft_shared *s = c->shared;
	uint32_t head, used, before, word = (uint32_t)n | flags;
	bool wake;

	lock_take(&c->print.lock);
	head = c->print.head;
	before = head - load_acquire(&s->print_tail);
	used = before + (uint32_t)sizeof(word) + (uint32_t)n;
	if (n > SOFT_PRINT_RECORD_MAX || before > SOFT_PRINT_BYTES || used > SOFT_PRINT_BYTES) {
		store_release(&s->print_lost, ++c->print.lost);
		lock_release(&c->print.lock);
		return;
	}
	copy_in(s, head, &word, sizeof(word));
	copy_in(s, head + (uint32_t)sizeof(word), text, n);
	c->print.head = head + (uint32_t)sizeof(word) + (uint32_t)n;
	store_release(&s->print_head, c->print.head);
	/* The client's tail decides when the half is crossed. At least a quarter of the ring lies
	 * between two wake-ups, so that a client which moves its tail back and forth cannot make
	 * workers spend their time in futex calls. */
	wake = before < SOFT_PRINT_BYTES / 2 && used >= SOFT_PRINT_BYTES / 2 &&
	       c->print.head - c->print.woken >= SOFT_PRINT_BYTES / 4;
	c->print.woken = wake ? c->print.head : c->print.woken;
	lock_release(&c->print.lock);
	if (wake) {
		wake_readers(s);
	}
}

void softd_output_text(void *group, const char *text, size_t n)
{
	put(group, 0, text, n);
}

void softd_output_complaint(void *group, const char *text, size_t n)
{
	put(group, SOFT_PRINT_ERROR, text, n);
}

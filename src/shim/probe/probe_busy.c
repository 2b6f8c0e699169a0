/* Contexts that are not idle although a form waits to be loaded. A program that always has several
 * long launches queued never has the short backlog for which launches are paused as a rule. After
 * LONG_AFTER_NS of failed tries one pause may last until all that is queued is done, LONG_NS at
 * most: meanwhile the GPU works on, and no launch is held longer. The next such pause comes after
 * AGAIN_NS, then twice as long after each, so a program with more work queued is not held again
 * and again. A pause holds the launches of all contexts, so after each the others wait for
 * APART times its duration. */
#include "shim/probe/shim_probe_int.h"

#include <stdio.h>

#include "base/clock.h"

#define LONG_AFTER_NS 250000000u
#define LONG_NS 200000000u
#define AGAIN_NS 8000000000u
#define AGAIN_MAX_NS 64000000000u
#define SHOWN_AFTER_NS 1000000000u
#define APART 10u

static struct busy {
	CUcontext ctx;	     /* NULL: unused */
	uint64_t generation; /* of the tools, since_ns and next_ns are of */
	uint64_t since_ns;   /* first of the tries that failed */
	uint64_t next_ns;    /* earliest time of a long pause */
	uint64_t again_ns;   /* delay of the one after it */
	uint32_t failed;     /* long pauses */
} contexts[SHIM_PROBE_CONTEXTS_MAX];

static uint64_t next_any_ns; /* earliest time of a long pause in any context */

static struct busy *find(CUcontext ctx)
{
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		if (contexts[i].ctx == ctx) {
			return &contexts[i];
		}
	}
	return NULL;
}

uint64_t shim_probe_busy_pause(CUcontext ctx)
{
	const struct busy *b = find(ctx);

	return b && b->generation == load_acquire(&shim_probe_generation) &&
			       clock_now_ns() >= MAX(b->next_ns, next_any_ns)
		       ? LONG_NS
		       : 0;
}

void shim_probe_busy_paused(uint64_t ns)
{
	next_any_ns = clock_now_ns() + APART * ns;
}

void shim_probe_busy_failed(CUcontext ctx, uint64_t paused_ns)
{
	uint64_t generation = load_acquire(&shim_probe_generation), now = clock_now_ns();
	struct busy *b = find(ctx);

	b = b ? b : find(NULL);
	if (!b) {
		return; /* no long pauses for this one */
	}
	if (b->ctx != ctx || b->generation != generation) {
		*b = (struct busy){ .ctx = ctx,
				    .generation = generation,
				    .since_ns = now,
				    .next_ns = now + LONG_AFTER_NS,
				    .again_ns = AGAIN_NS };
	}
	if (paused_ns >= LONG_NS) { /* not while a stream captures, say */
		b->failed++;
		b->next_ns = now + b->again_ns;
		b->again_ns = MIN(2 * b->again_ns, (uint64_t)AGAIN_MAX_NS);
	} else if (paused_ns) {
		b->next_ns = now + LONG_AFTER_NS; /* short ones in between */
	}
}

void shim_probe_busy_forget(CUcontext ctx)
{
	struct busy *b = find(ctx);

	if (b) {
		*b = (struct busy){ 0 };
	}
}

void shim_probe_busy_text(char *to, size_t bytes)
{
	uint64_t now = clock_now_ns();

	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		const struct busy *b = &contexts[i];

		if (b->ctx && b->failed && b->generation == load_acquire(&shim_probe_generation) &&
		    now - b->since_ns >= SHOWN_AFTER_NS) {
			snprintf(to, bytes,
				 "waiting for an idle context: more than %u ms of work is queued "
				 "at all times",
				 LONG_NS / 1000000u);
		}
	}
}

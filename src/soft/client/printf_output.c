/* Output of kernels: printf goes to this process's standard output when the program synchronizes,
 * failed assertions go to standard error. */
#include "soft/client/printf_output.h"

#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/client/process.h"

static struct lock lock = LOCK_INITIALIZER(SOFT_PRINTF); /* guards reading of the page */
static uint32_t tail GUARDED_BY(lock), lost GUARDED_BY(lock);

static void copy_out(uint32_t at, void *to, size_t n)
{
	const uint8_t *ring = soft.shared->print;
	size_t first;

	at %= SOFT_PRINT_BYTES;
	first = MIN(n, (size_t)(SOFT_PRINT_BYTES - at));
	memcpy(to, ring + at, first);
	memcpy((uint8_t *)to + first, ring, n - first);
}

/* Reports lost output once for each increase of the server's counter. */
static bool report_lost(void) REQUIRES(lock)
{
	uint32_t now = load_acquire(&soft.shared->print_lost);

	if (now == lost) {
		return false;
	}
	fprintf(stderr,
		"gbpf soft GPU: %u texts that kernels printed did not fit into the buffer and are "
		"lost\n",
		now - lost);
	lost = now;
	return true;
}

void soft_output_drain(void)
{
	struct soft_shared *s = soft.shared;
	static char text[SOFT_PRINT_RECORD_MAX];
	bool out = false, told = false;
	uint32_t head;

	if (!s || (load_relaxed(&s->print_head) == load_relaxed(&s->print_tail) &&
		   load_relaxed(&s->print_lost) == load_relaxed(&lost))) {
		return;
	}
	lock_take(&lock);
	head = load_acquire(&s->print_head);
	tail = load_relaxed(&s->print_tail);
	while (head - tail > sizeof(uint32_t)) {
		uint32_t word, n;

		copy_out(tail, &word, sizeof(word));
		n = word & ~SOFT_PRINT_ERROR;
		if (n > sizeof(text) || n > head - tail - sizeof(word)) {
			tail = head; /* impossible unless another process has overwritten the page
				      */
			break;
		}
		copy_out(tail + (uint32_t)sizeof(word), text, n);
		fwrite(text, 1, n, word & SOFT_PRINT_ERROR ? stderr : stdout);
		out = out || !(word & SOFT_PRINT_ERROR);
		told = told || word & SOFT_PRINT_ERROR;
		tail += (uint32_t)sizeof(word) + n;
	}
	store_release(&s->print_tail, tail);
	told = report_lost() || told;
	lock_release(&lock);
	if (out) {
		fflush(stdout);
	}
	if (told) {
		fflush(stderr);
	}
}

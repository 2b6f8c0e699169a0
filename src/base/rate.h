/* Rate limit: a maximum number of events in each second. */
#ifndef GBPF_BASE_RATE_H
#define GBPF_BASE_RATE_H

#include <stdbool.h>
#include <stdint.h>

/* Counts events in windows of one second that begin at whole seconds of the caller's clock, so up
 * to twice the limit may pass within one second around a boundary. Zero-initialised; not locked. */
struct rate_limit {
	uint64_t second; /* the window that n belongs to */
	uint32_t n;	 /* events that passed in it */
};

/* Returns true if an event at now_ns is among the first max_per_second of its second, and counts it
 * then. now_ns need not rise: another second, also an earlier one, begins a new window. */
static inline bool rate_allow(struct rate_limit *r, uint32_t max_per_second, uint64_t now_ns)
{
	uint64_t second = now_ns / 1000000000u;

	if (second != r->second) {
		r->second = second;
		r->n = 0;
	}
	if (r->n >= max_per_second) {
		return false;
	}
	r->n++;
	return true;
}

#endif

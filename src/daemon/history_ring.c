/* The ring in memory: the newest events, shared out among the users. When it is full, the user with
 * the most events loses the oldest of them, so that no user can push out the events of others. */
#include "daemon/history.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define GBPFD (-1) /* the owner of events of no user */
#define BUCKETS (2u * DAEMON_HISTORY_EVENTS)

int daemon_history_ring_open(struct daemon_history *h)
{
	h->ring = calloc(DAEMON_HISTORY_EVENTS, sizeof(*h->ring));
	h->order = calloc(DAEMON_HISTORY_EVENTS, sizeof(*h->order));
	if (!h->ring || !h->order) {
		daemon_history_ring_close(h);
		return -ENOMEM;
	}
	return 0;
}

void daemon_history_ring_close(struct daemon_history *h)
{
	free(h->ring);
	free(h->order);
	h->ring = NULL;
	h->order = NULL;
	h->n = 0;
}

const struct daemon_history_event *daemon_history_at(const struct daemon_history *h, unsigned i)
{
	return i < h->n ? &h->ring[h->order[i]] : NULL;
}

unsigned daemon_history_after(const struct daemon_history *h, uint64_t seq)
{
	unsigned low = 0, high = h->n;

	while (low < high) {
		unsigned mid = low + (high - low) / 2;

		if (h->ring[h->order[mid]].seq <= seq) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

const struct daemon_history_event *daemon_history_get(const struct daemon_history *h, uint64_t seq)
{
	const struct daemon_history_event *e =
		seq ? daemon_history_at(h, daemon_history_after(h, seq - 1)) : NULL;

	return e && e->seq == seq ? e : NULL;
}

struct owner_count {
	int64_t owner;
	unsigned n; /* 0: unused */
};

/* Adds an event to the count of its owner; returns that count. */
static const struct owner_count *count(struct owner_count *table, int64_t owner)
{
	unsigned i = ((uint32_t)owner * 2654435761u) % BUCKETS;

	while (table[i].n && table[i].owner != owner) {
		i = (i + 1) % BUCKETS;
	}
	table[i].owner = owner;
	table[i].n++;
	return &table[i];
}

/* Returns the owner that has the most events. gbpfd's own are not touched while they are fewer than
 * DAEMON_HISTORY_OWN, unless there are no others. */
static int64_t largest_owner(const struct daemon_history *h)
{
	struct owner_count *table = calloc(BUCKETS, sizeof(*table));
	int64_t owner = GBPFD;
	unsigned max = 0;

	for (unsigned i = 0; table && i < h->n; i++) {
		const struct owner_count *c = count(table, h->ring[h->order[i]].uid);
		bool spared = c->owner == GBPFD && c->n <= DAEMON_HISTORY_OWN;

		if (!spared && c->n > max) {
			max = c->n;
			owner = c->owner;
		}
	}
	free(table);
	return owner;
}

/* Removes the oldest event of the largest owner, or the oldest of all; returns its place. */
static unsigned evict(struct daemon_history *h)
{
	int64_t owner = largest_owner(h);
	unsigned i = 0;
	uint16_t slot;

	while (i < h->n && h->ring[h->order[i]].uid != owner) {
		i++;
	}
	i = i < h->n ? i : 0;
	slot = h->order[i];
	memmove(h->order + i, h->order + i + 1, (h->n - i - 1) * sizeof(*h->order));
	h->n--;
	return slot;
}

struct daemon_history_event *daemon_history_append(struct daemon_history *h, uint64_t seq)
{
	unsigned slot = h->n < DAEMON_HISTORY_EVENTS ? h->n : evict(h);
	struct daemon_history_event *e = &h->ring[slot];

	h->order[h->n++] = (uint16_t)slot;
	h->next = seq + 1;
	memset(e, 0, sizeof(*e));
	e->seq = seq;
	return e;
}

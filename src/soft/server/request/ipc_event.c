/* Events shared by several processes. An event counts its records as they are issued and as they
 * are reached. A process draws a ticket before it writes the record to its ring, so every later
 * query sees the record as pending; the records of an exited process count as reached. Handles
 * contain a random key. An event is freed with the last process that uses it. A process that closes
 * an event uses it until its records and waits from before have been taken from the ring and have
 * ended. */
#include "soft/server/request/ipc_event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/atomic.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"

#define EVENTS_MAX 4096u
#define USES_OF_CLIENT 1024u

struct softd_event_use {
	struct softd_event_use *next;
	struct softd_client *client;
	unsigned opens;	    /* 0: closed */
	unsigned holds;	    /* operations of its streams that name the event */
	uint64_t closed_at; /* position in the client's ring when it was closed */
	uint32_t issued;    /* its newest ticket; 0: none */
};

struct softd_ipc_event {
	uint64_t key;
	uint32_t issued, reached;     /* tickets, modulo 2^32; equal: no record is pending */
	struct softd_event_use *uses; /* owned */
};

static struct softd_ipc_event *events[EVENTS_MAX] GUARDED_BY(softd_lock);

static struct softd_ipc_event *find(uint64_t index, uint64_t key) REQUIRES(softd_lock)
{
	struct softd_ipc_event *e = index < EVENTS_MAX ? events[index] : NULL;

	return e && e->key == key ? e : NULL;
}

static struct softd_event_use *use_of(const struct softd_ipc_event *e, const struct softd_client *c)
{
	struct softd_event_use *u = e->uses;

	while (u && u->client != c) {
		u = u->next;
	}
	return u;
}

/* Makes the waits of all processes that use the event be evaluated again. */
static void wake_waits(const struct softd_ipc_event *e) REQUIRES(softd_lock)
{
	for (const struct softd_event_use *u = e->uses; u; u = u->next) {
		for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++) {
			if (u->client->groups[i]) {
				softd_group_touch(u->client->groups[i]);
			}
		}
	}
	if (e->uses) {
		softd_machine_kick(e->uses->client->machine);
	}
}

static void advance(struct softd_ipc_event *e, uint32_t ticket) REQUIRES(softd_lock)
{
	if ((int32_t)(ticket - e->reached) > 0 && (int32_t)(e->issued - ticket) >= 0) {
		e->reached = ticket;
		wake_waits(e);
	}
}

void softd_ipc_event_reached(struct softd_client *c, uint32_t index, uint64_t key, uint32_t ticket)
{
	struct softd_ipc_event *e = find(index, key);

	if (e && use_of(e, c)) {
		advance(e, ticket);
	}
}

bool softd_ipc_event_passed(struct softd_client *c, uint32_t index, uint64_t key, uint32_t ticket)
{
	const struct softd_ipc_event *e = find(index, key);

	return !e || !use_of(e, c) || (int32_t)(e->reached - ticket) >= 0;
}

bool softd_ipc_event_hold(struct softd_client *c, uint32_t index, uint64_t key)
{
	const struct softd_ipc_event *e = find(index, key);
	struct softd_event_use *u = e ? use_of(e, c) : NULL;

	if (u) {
		u->holds++;
	}
	return u;
}

static void drop(uint32_t index, struct softd_client *c) REQUIRES(softd_lock)
{
	struct softd_ipc_event *e = events[index];
	struct softd_event_use **at = &e->uses, *u;

	while (*at && (*at)->client != c) {
		at = &(*at)->next;
	}
	u = *at;
	if (!u) {
		return;
	}
	*at = u->next;
	c->event_uses--;
	if (u->issued) {
		advance(e, u->issued);
	}
	free(u);
	if (!e->uses) {
		free(e);
		events[index] = NULL;
	}
}

/* Drops a closed use that nothing in the ring or in streams needs any more. */
static void settle(uint32_t index, struct softd_client *c, const struct softd_event_use *u)
	REQUIRES(softd_lock)
{
	if (u->opens) {
		return;
	}
	if (c->taken < u->closed_at) {
		c->event_close_at =
			c->event_close_at ? MIN(c->event_close_at, u->closed_at) : u->closed_at;
	} else if (!u->holds) {
		drop(index, c);
	}
}

void softd_ipc_event_unhold(struct softd_client *c, uint32_t index, uint64_t key)
{
	const struct softd_ipc_event *e = find(index, key);
	struct softd_event_use *u = e ? use_of(e, c) : NULL;

	if (u) {
		u->holds--;
		settle(index, c, u);
	}
}

void softd_ipc_event_ring_read(struct softd_client *c)
{
	if (!c->event_close_at || c->taken < c->event_close_at) {
		return;
	}
	c->event_close_at = 0;
	for (uint32_t i = 0; i < EVENTS_MAX; i++) {
		const struct softd_event_use *u = events[i] ? use_of(events[i], c) : NULL;

		if (u) {
			settle(i, c, u);
		}
	}
}

void softd_ipc_event_client_exit(struct softd_client *c)
{
	for (uint32_t i = 0; i < EVENTS_MAX; i++) {
		if (events[i]) {
			drop(i, c);
		}
	}
}

static CUresult add_use(struct softd_ipc_event *e, struct softd_client *c)
{
	struct softd_event_use *u = use_of(e, c);

	if (!u) {
		u = c->event_uses < USES_OF_CLIENT ? calloc(1, sizeof(*u)) : NULL;
		if (!u) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		c->event_uses++;
		u->client = c;
		u->next = e->uses;
		e->uses = u;
	}
	u->opens++;
	return CUDA_SUCCESS;
}

static CUresult create(struct softd_client *c, struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_ipc_event *e;
	uint32_t i = 0;

	while (i < EVENTS_MAX && events[i]) {
		i++;
	}
	e = i < EVENTS_MAX ? calloc(1, sizeof(*e)) : NULL;
	if (!e || getrandom(&e->key, sizeof(e->key), 0) != sizeof(e->key) || add_use(e, c)) {
		free(e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	events[i] = e;
	a->reply.value32 = i;
	a->reply.value = e->key;
	return CUDA_SUCCESS;
}

static CUresult close_event(struct softd_client *c, uint32_t index) REQUIRES(softd_lock)
{
	struct softd_event_use *u = use_of(events[index], c);

	u->opens--;
	u->closed_at = c->taken + (uint32_t)(load_acquire(&c->shared->head) - c->tail);
	settle(index, c, u);
	return CUDA_SUCCESS;
}

CUresult softd_ipc_event_request(struct softd_client *c, const struct soft_request *q,
				 struct softd_answer *a)
{
	struct softd_ipc_event *e = find(q->index, q->value);
	struct softd_event_use *u = e ? use_of(e, c) : NULL;

	if (q->object == SOFT_EVENT_CREATE) {
		return create(c, a);
	}
	if (q->object == SOFT_EVENT_OPEN) {
		return e ? add_use(e, c) : CUDA_ERROR_INVALID_HANDLE;
	}
	if (!u || !u->opens) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	switch (q->object) {
	case SOFT_EVENT_CLOSE:
		return close_event(c, q->index);
	case SOFT_EVENT_ISSUE:
		u->issued = ++e->issued;
		a->reply.value32 = e->issued;
		return CUDA_SUCCESS;
	case SOFT_EVENT_QUERY:
		a->reply.value32 = e->issued;
		a->reply.value = e->reached;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

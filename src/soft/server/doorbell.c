/* Doorbells. In a turn, the workers read the rings of recently active clients only; the others have
 * `asleep` set and ring when they submit. So a turn costs the same beside a thousand idle programs.
 *
 * While a worker sleeps in epoll_wait (the poller), `asleep` is set for all clients. Otherwise it
 * is clear for those that are read. A client that rings clears it for itself; since an awake worker
 * may take that ring in place of the poller, whoever takes it restores the value.
 */
#include <stdbool.h>

#include "soft/server/doorbell.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"

#define READ_ALWAYS 16u /* so many rings are read in every turn, however long they are empty */
#define QUIET_NS 2000000u
#define TAKE_AT_ONCE 64

int softd_doorbells_init(struct softd_machine *machine)
{
	struct epoll_event e = { .events = EPOLLIN };

	softd_list_init(&machine->active);
	machine->bells = epoll_create1(EPOLL_CLOEXEC);
	if (machine->bells < 0 ||
	    epoll_ctl(machine->epoll, EPOLL_CTL_ADD, machine->bells, &e) < 0) {
		return -errno;
	}
	return 0;
}

int softd_doorbell_open(struct softd_client *c)
{
	struct softd_machine *machine = c->machine;
	struct epoll_event e = { .events = EPOLLIN | EPOLLET }; /* the bell is never read */
	uint32_t i = 0;

	while (i < SOFT_MAX_CLIENTS && machine->by_number[i]) {
		i++;
	}
	if (i == SOFT_MAX_CLIENTS) {
		return -ENOSPC;
	}
	/* A ring may be taken after the client has gone: the number must not come again soon. */
	c->number = ++machine->client_serial * SOFT_MAX_CLIENTS + i;
	e.data.u64 = c->number;
	if (epoll_ctl(machine->bells, EPOLL_CTL_ADD, c->bell, &e) < 0) {
		return -errno;
	}
	machine->by_number[i] = c;
	return 0;
}

static void stop_reading(struct softd_client *c)
{
	if (!softd_list_empty(&c->in_active)) {
		softd_list_remove(&c->in_active);
		c->machine->n_active--;
	}
}

void softd_doorbell_close(struct softd_client *c)
{
	struct softd_client **at = &c->machine->by_number[c->number % SOFT_MAX_CLIENTS];

	if (*at == c) {
		*at = NULL;
		epoll_ctl(c->machine->bells, EPOLL_CTL_DEL, c->bell, NULL);
	}
	stop_reading(c);
}

static void take(struct softd_machine *machine, uint64_t number)
{
	struct softd_client *c = machine->by_number[number % SOFT_MAX_CLIENTS];

	if (!c || c->number != number || c->dead) {
		return;
	}
	/* Before its ring is read in this turn. Pairs with ring_bell() in the client. A worker that
	 * is about to sleep takes doorbells, too, after it has asked all others to ring. */
	store_seqcst(&c->shared->asleep, machine->asked);
	fence_seqcst();
	c->quiet_since_ns = 0;
	if (softd_list_empty(&c->in_active)) {
		softd_list_append(&machine->active, &c->in_active);
		machine->n_active++;
	}
}

void softd_doorbells_take(struct softd_machine *machine, uint64_t poll_ns)
{
	struct epoll_event e[TAKE_AT_ONCE];
	uint64_t now = poll_ns ? clock_fast_ns() : 0;
	int n;

	if (poll_ns && now - machine->bells_taken_ns < poll_ns) {
		return;
	}
	machine->bells_taken_ns = now;
	do {
		n = epoll_wait(machine->bells, e, TAKE_AT_ONCE, 0);
		for (int i = 0; i < n; i++) {
			take(machine, e[i].data.u64);
		}
	} while (n == TAKE_AT_ONCE);
}

void softd_doorbell_rest(struct softd_client *c, bool had_records, uint64_t now)
{
	if (had_records || c->stalled) {
		c->quiet_since_ns = 0;
		return;
	}
	if (!c->quiet_since_ns) {
		c->quiet_since_ns = now;
	}
	if (c->machine->n_active <= READ_ALWAYS || now - c->quiet_since_ns < QUIET_NS) {
		return;
	}
	/* Asleep before the last look at the ring. Pairs with ring_bell() in the client, which
	 * reads asleep after storing head: either it rings, or this reads its records. */
	store_seqcst(&c->shared->asleep, 1u);
	fence_seqcst();
	if (load_acquire(&c->shared->head) == c->tail) {
		stop_reading(c);
	} else {
		store_seqcst(&c->shared->asleep, c->machine->asked);
	}
}

void softd_doorbells_ask(struct softd_machine *machine, uint32_t asleep)
{
	machine->asked = asleep;
	softd_list_each (&machine->active, c, struct softd_client, in_active) {
		store_seqcst(&c->shared->asleep, asleep);
	}
	fence_seqcst();
}

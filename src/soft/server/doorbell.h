/* Doorbells: which clients' rings the workers read in each turn, and which clients have to ring
 * first. */
#ifndef GBPF_SOFT_SERVER_DOORBELL_H
#define GBPF_SOFT_SERVER_DOORBELL_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/server/machine_lock.h"

struct softd_client;
struct softd_machine;

/* Returns 0 or -Exxx. */
int softd_doorbells_init(struct softd_machine *machine);
/* Begins and stops to listen for the client's doorbell. Returns 0 or -Exxx. */
int softd_doorbell_open(struct softd_client *c) REQUIRES(softd_lock);
void softd_doorbell_close(struct softd_client *c) REQUIRES(softd_lock);
/* Moves clients that have rung to those whose rings are read. poll_ns: returns at once if the last
 * call was less than this time ago. */
void softd_doorbells_take(struct softd_machine *machine, uint64_t poll_ns) REQUIRES(softd_lock);
/* Called for a client whose ring was read: makes it ring first if it has been empty for a while and
 * many others are read, too. */
void softd_doorbell_rest(struct softd_client *c, bool had_records, uint64_t now)
	REQUIRES(softd_lock);
/* Tells the clients whose rings are read whether to ring: a worker is about to sleep, or awake. */
void softd_doorbells_ask(struct softd_machine *machine, uint32_t asleep) REQUIRES(softd_lock);

#endif

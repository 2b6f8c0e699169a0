/* The link between a GPU and the host (host_link.h). */
#include "soft/server/run/host_link.h"

#include "base/clock.h"
#include "soft/server/machine.h"

#define LATE_NS 1000000u

uint64_t softd_link_queue(struct softd_gpu *gpu, const uint64_t bytes[EXEC_LINK_WAYS])
{
	double rate = (double)gpu->machine->opt.link_bytes_s;
	uint64_t now = clock_now_ns(), until = 0;

	for (unsigned way = 0; way < EXEC_LINK_WAYS; way++) {
		struct softd_link *l = &gpu->link[way];

		if (bytes[way]) {
			l->free_ns = MAX(l->free_ns, now - MIN(now, LATE_NS)) +
				     (uint64_t)((double)bytes[way] * 1e9 / rate);
			l->bytes += bytes[way];
			until = MAX(until, l->free_ns);
		}
	}
	return until;
}

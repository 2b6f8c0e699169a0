/* Announcements of requests by the program and by the environment. */
#ifndef GBPF_SHIM_SESSION_SHIM_HINT_H
#define GBPF_SHIM_SESSION_SHIM_HINT_H

#include <stdbool.h>
#include <stdint.h>

struct sched;

/* Called by gbpf_hint() of libgbpf, which finds it in the process. Documented in gbpf/gbpf.h. */
int gbpf_shim_hint(uint64_t in_us, uint64_t deadline_us, int device);
/* Applies the policy's choice in admit (whether to learn the rhythm; the lead in us, 0: as the
 * sharing mode needs), unless GBPF_HINT overrides the former. An invalid value is reported once. */
void shim_hint_setup(struct sched *s, bool learn, uint32_t lead_us);

#endif

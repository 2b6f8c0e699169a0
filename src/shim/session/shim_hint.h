/* Announcements from outside the scheduler. */
#ifndef GBPF_SHIM_SESSION_SHIM_HINT_H
#define GBPF_SHIM_SESSION_SHIM_HINT_H

#include <stdbool.h>
#include <stdint.h>

struct sched;

/* What gbpf_hint() of libgbpf finds in the process and calls: gbpf/gbpf.h has the words. */
int gbpf_shim_hint(uint64_t in_us, uint64_t deadline_us, int device);
/* What the policy's admit said (learn the rhythm; the lead in microseconds, 0: as the lane needs),
 * but for what GBPF_HINT, GBPF_HINT_LEAD_US and GBPF_HINT_WARM_US say. What is wrong there is told
 * once. */
void shim_hint_setup(struct sched *s, bool learn, uint32_t lead_us);

#endif

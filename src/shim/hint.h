/* Announcements from outside the scheduler. */
#ifndef GBPF_SHIM_HINT_H
#define GBPF_SHIM_HINT_H

#include <stdint.h>

struct sched;

/* What gbpf_hint() of libgbpf finds in the process and calls: gbpf/gbpf.h has the words. */
int gbpf_shim_hint(uint64_t in_us, uint64_t deadline_us, int device);
/* Reads GBPF_HINT, GBPF_HINT_LEAD_US and GBPF_HINT_WARM_US; what is wrong there is said once. */
void hint_setup(struct sched *s);

#endif

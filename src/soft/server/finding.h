/* Output of --check's findings: to standard error of the server, and to the log of the client. */
#ifndef GBPF_SOFT_SERVER_FINDING_H
#define GBPF_SOFT_SERVER_FINDING_H

#include "soft/server/exec/exec.h"
#include "soft/server/machine_lock.h"

/* Prints a finding and sends it to the client; group: struct softd_group. Called from any worker
 * without the machine's lock. */
void softd_finding_report(void *group, const struct exec_finding *f);
/* Counts a fault of the group that has already been reported, unless a finding has been reported
 * for the group. */
struct softd_group;
void softd_finding_count_fault(struct softd_group *g) REQUIRES(softd_lock);
/* Prints the summary when the server exits; returns the number of findings. */
unsigned softd_finding_summary(void);

#endif

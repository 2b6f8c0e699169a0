/* What --check has found, told to the person who runs the server, and to the client's log. */
#ifndef GBPF_SOFT_SERVER_FINDING_H
#define GBPF_SOFT_SERVER_FINDING_H

#include "soft/server/exec/exec.h"

/* A line on standard error and a notice to the client; group is a struct group. From any worker,
 * without the device's lock. */
void softd_finding_report(void *group, const struct exec_finding *f);
/* A fault of the group, which is told already: it counts where nothing was found before that told
 * of it. The device's lock is held. */
struct softd_group;
void softd_finding_count_fault(struct softd_group *g);
/* The last line, when the server leaves; returns how many findings there were. */
unsigned softd_finding_summary(void);

#endif

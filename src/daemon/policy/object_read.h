/* Objects that callers pass as descriptors: reading them, and the exit codes of their faults. */
#ifndef GBPF_DAEMON_POLICY_OBJECT_READ_H
#define GBPF_DAEMON_POLICY_OBJECT_READ_H

#include "base/buf.h"
#include "base/report.h"

/* Reads a private copy of a memfd sealed in size, because its sender may still write to it. Returns
 * 0 or -errno with the report; the caller finishes object in either case. */
int daemon_object_read(int fd, struct buf *object, struct report *r);

/* Returns the exit code for an object that cannot be loaded: refused (4), too large (7), or failed
 * (1). */
int daemon_object_exit(int err, const struct report *r);

#endif

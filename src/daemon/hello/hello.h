/* From hello to tenant: asks vGPUs, policies and lanes whether and how a process is admitted. */
#ifndef GBPF_DAEMON_HELLO_HELLO_H
#define GBPF_DAEMON_HELLO_HELLO_H

#include "daemon/feature.h"

extern const struct daemon_feature daemon_hello_feature;

#endif

/* gbpfd's command line. */
#ifndef GBPF_DAEMON_OPTIONS_H
#define GBPF_DAEMON_OPTIONS_H

#include "daemon/daemon.h"

/* 1: go on; 0: help or version was printed; -EINVAL: said on standard error what is wrong. */
int daemon_options_parse(struct daemon_options *o, int argc, char **argv);

#endif

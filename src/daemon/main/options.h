/* gbpfd's command line. */
#ifndef GBPF_DAEMON_MAIN_OPTIONS_H
#define GBPF_DAEMON_MAIN_OPTIONS_H

#include "daemon/daemon.h"

/* Returns 1: continue; 0: help or version was printed; -EINVAL: an error was printed on standard
 * error. */
int daemon_options_parse(struct daemon_options *o, int argc, char **argv);

#endif

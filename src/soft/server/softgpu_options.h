/* The options of gbpf-softgpu. */
#ifndef GBPF_SOFT_SERVER_SOFTGPU_OPTIONS_H
#define GBPF_SOFT_SERVER_SOFTGPU_OPTIONS_H

#include "soft/server/machine.h"

struct softd_options {
	struct softd_machine_options device;
	const char *socket; /* borrowed from the arguments; NULL: not given */
	uint64_t log_limit; /* of standard error, when that is a file; 0: none */
	int ready;	    /* descriptor that is told when clients may connect; -1 */
};

/* 0: go on; otherwise the exit code plus one: everything has been said. */
int softd_options_parse(struct softd_options *o, int argc, char **argv);

#endif

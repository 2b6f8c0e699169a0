/* The options of gbpf-softgpu. */
#ifndef GBPF_SOFT_SERVER_SOFTGPU_OPTIONS_H
#define GBPF_SOFT_SERVER_SOFTGPU_OPTIONS_H

#include "soft/server/machine.h"

struct softd_options {
	struct softd_machine_options device;
	const char *socket; /* borrowed from the arguments; NULL: not given */
	uint64_t log_limit; /* limit of standard error if that is a file; 0: none */
	int ready;	    /* descriptor to write to when clients may connect; -1: none */
};

/* Returns 0 to continue, otherwise the exit code plus one; messages have been printed. */
int softd_options_parse(struct softd_options *o, int argc, char **argv);

#endif

/* The parts of the program that stands in for ptxas. */
#ifndef GBPF_PTXAS_PTXAS_H
#define GBPF_PTXAS_PTXAS_H

#include <stdbool.h>

#include "base/buf.h"

#define PTXAS_PATH 4096

/* What a command line asks for. */
struct ptxas_command {
	bool version;  /* nothing but the version */
	int input;     /* the only input's index in argv; 0: nothing that could be rewritten */
	unsigned arch; /* 90 of sm_90a */
};

/* What is not known here is for the real ptxas alone. */
struct ptxas_command ptxas_command(int argc, char **argv);

/* The real one: $GBPF_PTXAS, else what the program that started us would have used, else the next
 * on the PATH. name: "ptxas", or another of its names. False: there is none. */
bool ptxas_find(char out[PTXAS_PATH], const char *name);

#endif

/* The parts of the ptxas replacement. */
#ifndef GBPF_PTXAS_PTXAS_H
#define GBPF_PTXAS_PTXAS_H

#include <stdbool.h>

#include "base/buf.h"

#define PTXAS_PATH 4096

/* The parsed command line. */
struct ptxas_command {
	bool version;  /* only the version is requested */
	int input;     /* index in argv of the only input; 0: nothing to rewrite */
	unsigned arch; /* 90 of sm_90a */
};

/* Commands that are not understood are passed to the real ptxas unchanged. */
struct ptxas_command ptxas_command(int argc, char **argv);

/* Finds the real ptxas: $GBPF_PTXAS, else the one that the parent program would have used, else the
 * next on the PATH. name: "ptxas", or another of its names. Returns false if there is none. */
bool ptxas_find(char out[PTXAS_PATH], const char *name);

#endif

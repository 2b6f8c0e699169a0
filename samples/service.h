/* Shared parts of lcserve and batch: the checkable kernel, its calibration, a clean end on a
 * signal, number options. */
#ifndef SAMPLES_SERVICE_H
#define SAMPLES_SERVICE_H

#include <signal.h>

#include "sample.h"

extern volatile sig_atomic_t service_stop; /* set by SIGTERM and SIGINT */
void service_catch_signals(void);

struct service_kernel {
	CUfunction function;
	CUstream stream;
	CUdeviceptr data;
	float *host; /* pinned, n floats */
	int n, blocks, threads;
};

void service_begin(struct service_kernel *k, int blocks, int threads);
void service_end(struct service_kernel *k);
void service_launch(struct service_kernel *k, float a, float b, int iterations);
void service_fill(struct service_kernel *k,
		  float value); /* stream-ordered upload of the same value everywhere */
void service_fetch(struct service_kernel *k); /* download and wait */

/* Returns the iterations for which one launch takes about that time on an otherwise idle device. */
int service_calibrate(struct service_kernel *k, double seconds);

/* Parses a decimal number of an option in [min, max]; ends the program with a message and status 2
 * otherwise. */
double service_number(const char *option, const char *text, double min, double max);

#endif

/* Runs a policy against a text scenario, without a GPU and without gbpfd: events in, decisions out,
 * expectations checked. The language is described in gbpf-policy(7), "TESTING". One run at a time
 * in a process, because the scenario's time replaces the process's clock. */
#ifndef GBPF_SIM_SIM_H
#define GBPF_SIM_SIM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/report.h"

#define SIM_MAX_FAILURES 20 /* that are described; more are counted */

struct sim_failure {
	uint32_t line;
	uint32_t column;	      /* from 0, of what was expected */
	uint64_t times;		      /* in loops; what is told is the first time */
	char *text;		      /* owned: the line */
	char *expected, *got, *after; /* owned; after: the event that it is about */
};

struct sim_result {
	uint64_t events, expectations, failures;
	uint64_t span_ns; /* of the scenario's time */
	struct sim_failure failure[SIM_MAX_FAILURES];
	unsigned n_failures;
};

struct sim_options {
	const char *policy; /* name for messages and of the policy */
	const void *elf;
	size_t elf_bytes;
	const char *scenario; /* name for messages */
	const char *text;     /* its text */
	FILE *trace;	      /* prints each decision; NULL: none */
	unsigned flags;	      /* SIM_* */
};

enum { SIM_JIT = 1 /* run compiled code, not the interpreter */ };

/* 0: ran to the end, result->failures counts expectations that did not hold. -EINVAL: the scenario
 * or the object is not usable; -EACCES, -E2BIG: the verifier refused the policy; -ENOMEM; r says
 * why. The result is to be finished in any case. */
int sim_run(const struct sim_options *o, struct sim_result *result, struct report *r);
void sim_result_finish(struct sim_result *result);

#endif

/* Runs a policy against a text scenario, without a GPU and without gbpfd: events in, decisions out,
 * expectations checked. The language is described in gbpf-policy(7), "TESTING". One run at a time
 * in a process, because the scenario's time replaces the process's clock. */
#ifndef GBPF_SIM_SIM_H
#define GBPF_SIM_SIM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/report.h"

#define SIM_MAX_FAILURES 20 /* failures with a description; more are only counted */

struct sim_failure {
	uint32_t line;
	uint32_t column; /* column of the expectation, from 0 */
	uint64_t times;	 /* number of failures at this place; the texts describe the first */
	char *text;	 /* owned: the line */
	char *expected, *got, *after; /* owned; after: the last event before it */
};

#define SIM_MAX_PRINTS 1000u /* printed lines that are stored; more are only counted */

/* A line that a program printed with bpf_printk. */
struct sim_print {
	uint32_t line; /* of the scenario */
	uint64_t now_ns;
	char where[32]; /* name of the tenant, or gbpfd; with several GPUs "gbpfd on N" */
	const char *hook;
	char *text; /* owned */
};

struct sim_result {
	uint64_t events, expectations, failures;
	uint64_t span_ns; /* span of scenario time */
	struct sim_failure failure[SIM_MAX_FAILURES];
	unsigned n_failures;
	struct sim_print *prints; /* owned */
	unsigned n_prints;
	uint64_t prints_left_out;
};

struct sim_options {
	const char *policy; /* name of the policy, also for messages */
	const void *elf;
	size_t elf_bytes;
	const char *scenario; /* name for messages */
	const char *text;     /* text of the scenario */
	FILE *trace;	      /* prints each decision; NULL: none */
	unsigned flags;	      /* SIM_* */
};

enum { SIM_JIT = 1 /* run compiled code instead of the interpreter */ };

/* Runs a scenario. Returns 0 if it ran to the end; result->failures is the number of failed
 * expectations. Returns -EINVAL (unusable scenario or object), -EACCES or -E2BIG (the verifier
 * refused the policy) or -ENOMEM, with the reason in r. The caller finishes the result in any case.
 */
int sim_run(const struct sim_options *o, struct sim_result *result, struct report *r);
void sim_result_finish(struct sim_result *result);

#endif

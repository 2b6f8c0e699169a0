/* Conditions of `--rollback-if`: comparisons of named metrics with limits, joined by and, or and
 * parentheses. Must not depend on the source of the values. */
#ifndef GBPF_DAEMON_WATCH_WATCH_EXPR_H
#define GBPF_DAEMON_WATCH_WATCH_EXPR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/report.h"

#define DAEMON_WATCH_TERMS 8u
#define DAEMON_WATCH_NAME 64u
#define DAEMON_WATCH_STEPS (2u * DAEMON_WATCH_TERMS)
#define DAEMON_WATCH_ANY UINT32_MAX

/* Name, and kind of limit: TIME: a time; PART: a time or a percentage of the window; COUNT: a
 * number, or a number per second. */
#define DAEMON_WATCH_METRICS(X)                                                                    \
	X(max, TIME)                                                                               \
	X(held, PART)                                                                              \
	X(busy, PART)                                                                              \
	X(requests, COUNT)                                                                         \
	X(launches, COUNT)                                                                         \
	X(copies, COUNT)                                                                           \
	X(holds, COUNT)                                                                            \
	X(deferred, COUNT)                                                                         \
	X(limit_hits, COUNT)                                                                       \
	X(helper_errors, COUNT)                                                                    \
	X(verdict_errors, COUNT)                                                                   \
	X(tick_overruns, COUNT)                                                                    \
	X(late, COUNT)                                                                             \
	X(failed_prepares, COUNT)

enum daemon_watch_metric {
	DAEMON_WATCH_quantile, /* p50, p99.9 ... of request times */
	DAEMON_WATCH_note,     /* notes[3] */
#define X(name, unit) DAEMON_WATCH_##name,
	DAEMON_WATCH_METRICS(X)
#undef X
};

enum daemon_watch_unit { DAEMON_WATCH_TIME, DAEMON_WATCH_PART, DAEMON_WATCH_COUNT };
enum daemon_watch_op { DAEMON_WATCH_GT, DAEMON_WATCH_GE, DAEMON_WATCH_LT, DAEMON_WATCH_LE };

struct daemon_watch_term {
	enum daemon_watch_metric metric;
	enum daemon_watch_op op;
	bool per_second, percent;
	double quantile; /* 0 to 1 */
	uint32_t note;
	uint32_t class_id;		/* GBPF_CLASS_*, or DAEMON_WATCH_ANY */
	char tenant[DAEMON_WATCH_NAME]; /* name or number; "": all */
	double limit;			/* ns, a number, or 0 to 1 if percent */
	char metric_text[DAEMON_WATCH_NAME], text[2 * DAEMON_WATCH_NAME]; /* as written */
};

struct daemon_watch_expr {
	unsigned n_terms, n_steps;
	struct daemon_watch_term term[DAEMON_WATCH_TERMS];
	/* Postfix: the index of a term, or DAEMON_WATCH_AND, DAEMON_WATCH_OR. */
	uint8_t step[DAEMON_WATCH_STEPS];
};
#define DAEMON_WATCH_AND 0xfeu
#define DAEMON_WATCH_OR 0xffu

/* Parses a condition. 0, or -EINVAL with a report whose place is the column and whose detail has a
 * caret. */
int daemon_watch_parse(struct daemon_watch_expr *e, const char *text, struct report *r);

/* Evaluates a condition; value[i] of each term. NAN (not known yet) makes a comparison false. */
bool daemon_watch_holds(const struct daemon_watch_expr *e, const double *value);
bool daemon_watch_term_holds(const struct daemon_watch_term *t, double value);

/* Formats a value in the term's unit: "7.2 ms", "3.1 %", "412". */
void daemon_watch_value_text(const struct daemon_watch_term *t, double value, char *out,
			     unsigned cap);

#endif

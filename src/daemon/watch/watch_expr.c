/* A parser by recursive descent:
 * 	either := both { "or" both }
 * 	both := one { "and" one }
 * 	one := "(" either ")" | metric [ "[" selector { "," selector } "]" ] [ "/s" ] op limit
 * A refusal names the column and what is allowed there. */
#include "daemon/watch/watch_expr.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/compiler.h"
#include "daemon/policy/policy_store.h"
#include "gbpf/gbpf.h"
#include "proto/pages.h"
#include "policy/ctx.h"

#define MAX_DEPTH 16u
#define METRICS_HINT                                                                               \
	"Metrics: p50 p90 p99 p99.9 max (request times), requests launches copies holds deferred " \
	"limit_hits helper_errors verdict_errors tick_overruns late failed_prepares (numbers; /s " \
	"for rates), held busy (times or %), notes[0] to notes[15]"

struct expr_parser {
	const char *text, *at;
	struct daemon_watch_expr *e;
	struct report *r;
	unsigned depth;
};

static const struct {
	const char *name;
	enum daemon_watch_metric metric;
	enum daemon_watch_unit unit;
} metrics[] = {
#define X(name, unit) { #name, DAEMON_WATCH_##name, DAEMON_WATCH_##unit },
	DAEMON_WATCH_METRICS(X)
#undef X
};

static enum daemon_watch_unit unit_of(enum daemon_watch_metric m)
{
	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
		if (metrics[i].metric == m) {
			return metrics[i].unit;
		}
	}
	return m == DAEMON_WATCH_quantile ? DAEMON_WATCH_TIME : DAEMON_WATCH_COUNT;
}

static int refuse(struct expr_parser *p, const char *at, const char *hint, const char *message)
{
	int column = (int)(at - p->text);

	if (!p->r->code[0]) {
		report_place(p->r, "column %d", column + 1);
		buf_printf(&p->r->detail, "  %s\n  %*s^\n", p->text, column, "");
		report_hint(p->r, "%s", hint);
	}
	return report_set(p->r, -EINVAL, "usage", "%s", message);
}

static void blanks(struct expr_parser *p)
{
	while (*p->at == ' ' || *p->at == '\t') {
		p->at++;
	}
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

/* Consumes the next characters if they are `what`; a word matches only as a whole. */
static bool take(struct expr_parser *p, const char *what)
{
	size_t n = strlen(what);

	blanks(p);
	if (strncmp(p->at, what, n) != 0 ||
	    (isalpha((unsigned char)what[0]) && is_word(p->at[n]))) {
		return false;
	}
	p->at += n;
	return true;
}

static size_t word(struct expr_parser *p, char out[DAEMON_WATCH_NAME])
{
	size_t n = 0;

	blanks(p);
	while (is_word(p->at[n]) && n < DAEMON_WATCH_NAME - 1) {
		out[n] = p->at[n];
		n++;
	}
	out[n] = 0;
	p->at += n;
	return n;
}

/* ---- a metric ---- */

static int quantile(struct expr_parser *p, struct daemon_watch_term *t, const char *name,
		    const char *begin)
{
	char *end;
	double q = strtod(name + 1, &end);

	if (*end || end == name + 1 || !(q > 0 && q < 100)) {
		return refuse(p, begin, "Write p50, p99 or p99.9", "unknown percentile");
	}
	t->metric = DAEMON_WATCH_quantile;
	t->quantile = q / 100;
	return 0;
}

static int metric(struct expr_parser *p, struct daemon_watch_term *t)
{
	const char *begin;
	char name[DAEMON_WATCH_NAME];

	blanks(p);
	begin = p->at;
	if (!word(p, name)) {
		return refuse(p, begin, METRICS_HINT,
			      *begin ? "expected a metric" : "missing metric at the end");
	}
	if (name[0] == 'p' && isdigit((unsigned char)name[1])) {
		return quantile(p, t, name, begin);
	}
	if (strcmp(name, "notes") == 0) {
		t->metric = DAEMON_WATCH_note;
		t->note = PROTO_NOTES;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
		if (strcmp(metrics[i].name, name) == 0) {
			t->metric = metrics[i].metric;
			return 0;
		}
	}
	return refuse(p, begin, METRICS_HINT, "unknown metric");
}

static int chosen_class(struct expr_parser *p, struct daemon_watch_term *t)
{
	static const char *const names[] = { "latency", "normal", "batch" };
	const char *begin = p->at;
	char name[DAEMON_WATCH_NAME];

	word(p, name);
	for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i]) == 0) {
			t->class_id = i;
			return 0;
		}
	}
	return refuse(p, begin, "Classes are latency, normal and batch", "unknown class");
}

static int selector(struct expr_parser *p, struct daemon_watch_term *t)
{
	const char *begin;
	char *end;

	blanks(p);
	begin = p->at;
	if (t->metric == DAEMON_WATCH_note && isdigit((unsigned char)*p->at)) {
		unsigned long n = strtoul(p->at, &end, 10);

		if (n >= PROTO_NOTES) {
			return refuse(p, begin, "Notes are 0 to 15, as gbpf_note() has them",
				      "unknown note");
		}
		t->note = (uint32_t)n;
		p->at = end;
		return 0;
	}
	if (take(p, "class") && take(p, "=")) {
		return chosen_class(p, t);
	}
	p->at = begin;
	if (take(p, "tenant") && take(p, "=")) {
		return word(p, t->tenant) ? 0
					  : refuse(p, p->at, "`gbpf ps` shows names and numbers",
						   "missing tenant name or number");
	}
	return refuse(p, begin, "Write [class=latency], [tenant=NAME] or, for notes, [3]",
		      "unknown selector");
}

static int selectors(struct expr_parser *p, struct daemon_watch_term *t)
{
	if (take(p, "[")) {
		do {
			int err = selector(p, t);

			if (err) {
				return err;
			}
		} while (take(p, ","));
		if (!take(p, "]")) {
			return refuse(p, p->at, "A selector ends with ]", "] is missing");
		}
	}
	return t->metric == DAEMON_WATCH_note && t->note == PROTO_NOTES
		       ? refuse(p, p->at, "Write notes[3] for gbpf_note(3, ...)",
				"note index missing")
		       : 0;
}

/* ---- a limit ---- */

static int operator(struct expr_parser *p, struct daemon_watch_term *t)
{
	static const struct {
		const char *text;
		enum daemon_watch_op op;
	} ops[] = { { ">=", DAEMON_WATCH_GE },
		    { "<=", DAEMON_WATCH_LE },
		    { ">", DAEMON_WATCH_GT },
		    { "<", DAEMON_WATCH_LT } };

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (take(p, ops[i].text)) {
			t->op = ops[i].op;
			return 0;
		}
	}
	return refuse(p, p->at, "Write one of > >= < <=", "expected a comparison");
}

static bool scale_of(struct expr_parser *p, bool time, double *ret)
{
	static const struct {
		const char *name;
		bool time;
		double ns;
	} units[] = { { "ns", true, 1 },   { "us", true, 1e3 }, { "\302\265s", true, 1e3 },
		      { "ms", true, 1e6 }, { "s", true, 1e9 },	{ "min", true, 60e9 },
		      { "k", false, 1e3 }, { "M", false, 1e6 } };

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		size_t n = strlen(units[i].name);

		if (units[i].time == time && strncmp(p->at, units[i].name, n) == 0 &&
		    !is_word(p->at[n])) {
			p->at += n;
			*ret = units[i].ns;
			return true;
		}
	}
	return false;
}

static int limit(struct expr_parser *p, struct daemon_watch_term *t)
{
	enum daemon_watch_unit unit = unit_of(t->metric);
	const char *begin;
	double scale = 1;
	char *end;

	blanks(p);
	begin = p->at;
	if (!isdigit((unsigned char)*begin) && *begin != '.') {
		return refuse(p, begin,
			      unit == DAEMON_WATCH_TIME ? "Write a time such as 6ms"
							: "Write a number",
			      "expected a limit");
	}
	t->limit = strtod(begin, &end);
	p->at = end;
	if (!isfinite(t->limit) || (begin[0] == '0' && (begin[1] | 0x20) == 'x')) {
		return refuse(p, begin, "Use a decimal number", "invalid limit");
	}
	blanks(p);
	if (unit == DAEMON_WATCH_PART && take(p, "%")) {
		t->percent = true;
		scale = 0.01;
	} else if (unit == DAEMON_WATCH_COUNT) {
		p->at = end; /* the next word follows the blank */
		scale_of(p, false, &scale);
	} else if (!scale_of(p, true, &scale)) {
		return refuse(p, p->at,
			      unit == DAEMON_WATCH_PART
				      ? "Write ns, us, ms or s, or % of the time that has passed"
				      : "Write ns, us, ms or s behind the number",
			      "missing unit of a time limit");
	}
	if (is_word(*p->at) || *p->at == '%') {
		return refuse(p, p->at,
			      unit == DAEMON_WATCH_COUNT ? "Numbers may have k or M behind them"
							 : "Units are ns, us, ms and s",
			      "unit does not fit this metric");
	}
	t->limit *= scale;
	return 0;
}

static void keep_text(char *out, size_t cap, const char *begin, const char *end)
{
	snprintf(out, cap, "%.*s", (int)(end - begin), begin);
}

static int term(struct expr_parser *p)
{
	struct daemon_watch_term *t;
	const char *begin;
	int err;

	blanks(p);
	begin = p->at;
	if (p->e->n_terms == DAEMON_WATCH_TERMS) {
		return refuse(p, begin, "Remove a comparison", "at most 8 comparisons");
	}
	t = &p->e->term[p->e->n_terms];
	*t = (struct daemon_watch_term){ .class_id = DAEMON_WATCH_ANY };
	err = metric(p, t);
	err = err ? err : selectors(p, t);
	if (!err && take(p, "/s")) {
		t->per_second = true;
		if (unit_of(t->metric) != DAEMON_WATCH_COUNT) {
			return refuse(p, begin, "Only numbers have a rate",
				      "this metric has no rate");
		}
	}
	keep_text(t->metric_text, sizeof(t->metric_text), begin, p->at);
	err = err ? err : operator(p, t);
	err = err ? err : limit(p, t);
	if (!err) {
		keep_text(t->text, sizeof(t->text), begin, p->at);
		p->e->step[p->e->n_steps++] = (uint8_t)p->e->n_terms++;
	}
	return err;
}

/* ---- and, or ---- */

static int either(struct expr_parser *p);

static int one(struct expr_parser *p)
{
	int err;

	if (!take(p, "(")) {
		return term(p);
	}
	if (++p->depth > MAX_DEPTH) {
		return refuse(p, p->at, "Remove parentheses",
			      "parentheses nested too deeply (max 16)");
	}
	err = either(p);
	if (!err && !take(p, ")")) {
		err = refuse(p, p->at, "Close it", ") is missing");
	}
	p->depth--;
	return err;
}

static int both(struct expr_parser *p)
{
	int err = one(p);

	while (!err && (take(p, "and") || take(p, "&&"))) {
		err = one(p);
		if (!err) {
			p->e->step[p->e->n_steps++] = DAEMON_WATCH_AND;
		}
	}
	return err;
}

static int either(struct expr_parser *p)
{
	int err = both(p);

	while (!err && (take(p, "or") || take(p, "||"))) {
		err = both(p);
		if (!err) {
			p->e->step[p->e->n_steps++] = DAEMON_WATCH_OR;
		}
	}
	return err;
}

int daemon_watch_parse(struct daemon_watch_expr *e, const char *text, struct report *r)
{
	struct expr_parser p = { .text = text, .at = text, .e = e, .r = r };
	int err;

	memset(e, 0, sizeof(*e));
	if (strlen(text) >= DAEMON_WATCH_TEXT) {
		report_hint(r, "Remove a comparison");
		return report_set(r, -EINVAL, "usage", "the condition has more than %u characters",
				  DAEMON_WATCH_TEXT - 1);
	}
	for (const char *c = text; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f) {
			report_hint(r, "Write it on one line");
			return report_set(r, -EINVAL, "usage",
					  "the condition has a control character");
		}
	}
	err = either(&p);
	blanks(&p);
	return err || !*p.at
		       ? err
		       : refuse(&p, p.at, "Join conditions with `and` or `or`", "unexpected text");
}

/* ---- evaluation ---- */

bool daemon_watch_term_holds(const struct daemon_watch_term *t, double value)
{
	if (isnan(value)) {
		return false;
	}
	switch (t->op) {
	case DAEMON_WATCH_GT:
		return value > t->limit;
	case DAEMON_WATCH_GE:
		return value >= t->limit;
	case DAEMON_WATCH_LT:
		return value < t->limit;
	default:
		return value <= t->limit;
	}
}

bool daemon_watch_holds(const struct daemon_watch_expr *e, const double *value)
{
	bool stack[DAEMON_WATCH_STEPS] = { false };
	unsigned n = 0;

	for (unsigned i = 0; i < e->n_steps; i++) {
		uint8_t s = e->step[i];

		if (s < DAEMON_WATCH_TERMS) {
			stack[n++] = daemon_watch_term_holds(&e->term[s], value[s]);
			continue;
		}
		n--;
		stack[n - 1] =
			s == DAEMON_WATCH_AND ? stack[n - 1] && stack[n] : stack[n - 1] || stack[n];
	}
	return n == 1 && stack[0];
}

void daemon_watch_value_text(const struct daemon_watch_term *t, double v, char *out, unsigned cap)
{
	enum daemon_watch_unit unit = unit_of(t->metric);

	if (isnan(v)) {
		snprintf(out, cap, "unknown");
	} else if (t->percent) {
		snprintf(out, cap, "%.3g %%", v * 100);
	} else if (unit == DAEMON_WATCH_COUNT) {
		snprintf(out, cap, t->per_second ? "%.1f/s" : "%.0f", v);
	} else {
		snprintf(out, cap,
			 v >= 1e9   ? "%.3g s"
			 : v >= 1e6 ? "%.3g ms"
			 : v >= 1e3 ? "%.3g us"
				    : "%.0f ns",
			 v >= 1e9   ? v / 1e9
			 : v >= 1e6 ? v / 1e6
			 : v >= 1e3 ? v / 1e3
				    : v);
	}
}

/* `expect ...`: checks the last event, the maps, the notes and the ring buffers. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/nearest.h"
#include "sim/sim_int.h"

#define MAX_FIELDS 8

static void trim(const char **from, const char **to)
{
	while (*from < *to && isspace((unsigned char)**from)) {
		++*from;
	}
	while (*to > *from && isspace((unsigned char)(*to)[-1])) {
		--*to;
	}
}

static char *copy_of(const char *from, const char *to)
{
	trim(&from, &to);
	return strndup(from, (size_t)(to - from));
}

static char *last_event(const struct sim *s)
{
	const struct sim_line *l = &s->lines[s->last.line];
	struct buf out = { 0 };

	if (s->last.hook) {
		const char *from = l->text, *to = l->text + l->len;

		trim(&from, &to);
		buf_printf(&out, "line %u: %.*s", s->last.line + 1, (int)(to - from), from);
	}
	return buf_steal(&out);
}

void sim_fail(struct sim *s, const char *at, const char *expected, const char *got)
{
	struct sim_result *res = s->result;
	struct sim_failure *f;
	const char *first = s->current;

	res->failures++;
	for (unsigned i = 0; i < res->n_failures; i++) {
		if (res->failure[i].line == s->line + 1) {
			res->failure[i].times++;
			return;
		}
	}
	if (res->n_failures == SIM_MAX_FAILURES) {
		return;
	}
	while (isspace((unsigned char)*first)) {
		first++;
	}
	f = &res->failure[res->n_failures++];
	f->line = s->line + 1;
	f->times = 1;
	f->column = (uint32_t)(MAX(at, first) - first);
	f->text = strdup(first);
	f->expected = strdup(expected);
	f->got = strdup(got);
	f->after = last_event(s);
}

/* Appends a number; nanoseconds get the largest unit without a fraction. */
static void put_number(struct buf *out, const char *name, struct sim_value v)
{
	size_t len = strlen(name);
	bool time = len > 3 && strcmp(name + len - 3, "_ns") == 0;

	if (v.is_signed) {
		buf_printf(out, "%" PRId64, (int64_t)v.v);
	} else if (v.v == UINT64_MAX) {
		buf_puts(out, "-1");
	} else if (time && v.v && v.v % 1000000000 == 0) {
		buf_printf(out, "%" PRIu64 "s", v.v / 1000000000);
	} else if (time && v.v && v.v % 1000000 == 0) {
		buf_printf(out, "%" PRIu64 "ms", v.v / 1000000);
	} else if (time && v.v && v.v % 1000 == 0) {
		buf_printf(out, "%" PRIu64 "us", v.v / 1000);
	} else {
		buf_printf(out, "%" PRIu64, v.v);
	}
}

void sim_print_number(FILE *to, const char *name, struct sim_value v)
{
	struct buf out = { 0 };

	put_number(&out, name, v);
	fputs(buf_text(&out), to);
	buf_finish(&out);
}

static void put_verdict(struct sim *s, struct buf *out)
{
	const char *name = sim_verdict_name(s->last.hook->id, s->last.verdict);

	if (s->last.no_fault) {
		buf_puts(out, "no fault");
	} else if (name) {
		buf_puts(out, name);
	} else {
		buf_printf(out, "%" PRId64, s->last.verdict);
	}
}

int sim_need_decision(struct sim *s, const char *at)
{
	if (!s->last.hook) {
		return sim_wrong(s, at, "Write an event first, for example: submit TENANT",
				 "nothing has happened yet");
	}
	if (!s->last.filled) {
		return sim_wrong(s, at, NULL,
				 "the policy has no program for %s, so nothing is decided (line "
				 "%u)",
				 s->last.hook->name, s->last.line + 1);
	}
	return 0;
}

struct field_check {
	const struct sim_field *field[MAX_FIELDS];
	unsigned n;
};

/* Checks " hold_ns=1ms level<1": fields of the decision. */
static int check_field(struct sim *s, struct field_check *c, bool *holds)
{
	struct sim_value have, want;
	const struct sim_field *f;
	enum sim_compare cmp;
	size_t len;
	int err;

	sim_blanks(s);
	len = sim_word(s);
	f = len ? sim_field_named(s->last.hook->id, s->at, len) : NULL;
	if (!f && len) {
		char name[SIM_NAME_BYTES];

		snprintf(name, sizeof(name), "%.*s", (int)len, s->at);
		return sim_unknown_field(s, s->last.hook, s->at, name);
	}
	if (!f || c->n == MAX_FIELDS) {
		return sim_wrong(s, s->at, "After a verdict come fields: expect HOLD hold_ns=1ms",
				 "the context of %s has no field '%.*s'", s->last.hook->name,
				 (int)MIN(len, 40u), s->at);
	}
	s->at += len;
	cmp = sim_comparison(s);
	if (cmp == SIM_NONE) {
		return sim_wrong(s, s->at, NULL,
				 "here a comparison is needed: =, !=, <, <=, >, >=");
	}
	err = sim_expression(s, f->name, &want);
	if (err) {
		return err;
	}
	have = (struct sim_value){ sim_field_get(f, s->last.ctx), f->is_signed };
	*holds = *holds && sim_holds(cmp, have, want);
	c->field[c->n++] = f;
	return 0;
}

static int expect_verdict(struct sim *s, const char *at, int64_t verdict, bool negated)
{
	bool holds = (s->last.verdict == verdict) != negated;
	struct field_check c = { .n = 0 };
	struct buf got = { 0 };
	char *expected;
	int err = 0;

	while (!err && (sim_blanks(s), *s->at)) {
		err = check_field(s, &c, &holds);
	}
	if (err || s->dry) {
		return err;
	}
	s->result->expectations++;
	if (holds) {
		return 0;
	}
	put_verdict(s, &got);
	for (unsigned i = 0; i < c.n; i++) {
		const struct sim_field *f = c.field[i];

		buf_printf(&got, " %s=", f->name);
		put_number(&got, f->name,
			   (struct sim_value){ sim_field_get(f, s->last.ctx), f->is_signed });
	}
	expected = copy_of(at, s->at);
	sim_fail(s, at, expected ? expected : "?", buf_text(&got));
	free(expected);
	buf_finish(&got);
	return 0;
}

static void judge_map(struct sim *s, const char *at, const struct sim_place *p, bool holds)
{
	struct buf got = { 0 };
	char *expected;

	s->result->expectations++;
	if (holds) {
		return;
	}
	sim_place_print(s, p, &got);
	expected = copy_of(at, s->at);
	sim_fail(s, at, expected ? expected : "?", buf_text(&got));
	free(expected);
	buf_finish(&got);
}

/* Parses absent, present or {..} after `map PLACE`. Returns -ENOENT if none of them follows; then a
 * number is expected. */
static int expect_place(struct sim *s, const char *at, const struct sim_place *p)
{
	bool holds = true;

	if (p->whole_map) {
		return sim_wrong(s, at, "Which element? expect map NAME[KEY] == 1",
				 "this is a whole map");
	}
	if (sim_take_word(s, "absent")) {
		holds = !p->base;
	} else if (sim_take_word(s, "present")) {
		holds = p->base;
	} else if (sim_blanks(s), *s->at == '{') {
		int err = sim_match(s, p->part.type, p->base ? p->base + p->part.offset : NULL,
				    p->part.bytes, &holds);

		if (err) {
			return err;
		}
		holds = holds && p->base;
	} else {
		return -ENOENT;
	}
	if (!s->dry) {
		judge_map(s, at, p, holds);
	}
	return 0;
}

static int expect_map(struct sim *s, const char *at)
{
	struct sim_value have = { 0 }, want;
	struct sim_place p;
	enum sim_compare c;
	int err = sim_place_parse(s, &p);

	if (err) {
		return err;
	}
	err = expect_place(s, at, &p);
	if (err != -ENOENT) {
		return err;
	}
	err = 0;
	c = sim_comparison(s);
	if (c == SIM_NONE) {
		return sim_wrong(s, s->at,
				 "For example: expect map NAME[KEY] == 1, or absent, or {member=1}",
				 "here a comparison is needed");
	}
	if (p.base || s->dry) {
		err = sim_place_number(s, at, &p, &have);
	}
	err = err ? err : sim_expression(s, NULL, &want);
	if (!err && !s->dry) {
		judge_map(s, at, &p, p.base && sim_holds(c, have, want));
	}
	return err;
}

/* Returns the length of the name of a value without blanks behind it and its owner, by which
 * put_number() finds its unit. */
static size_t name_bytes(const char *from, const char *to)
{
	const char *of = strstr(from, " of ");

	to = of && of < to ? of : to;
	trim(&from, &to);
	return (size_t)(to - from);
}

static int expect_comparison(struct sim *s, const char *at)
{
	struct sim_value have, want;
	struct buf got = { 0 };
	enum sim_compare c;
	char name[64], *expected;
	int err = sim_expression(s, NULL, &have);

	if (err) {
		return err;
	}
	snprintf(name, sizeof(name), "%.*s", (int)MIN(name_bytes(at, s->at), sizeof(name) - 1), at);
	c = sim_comparison(s);
	if (c == SIM_NONE) {
		return sim_wrong(s, s->at, NULL,
				 "here a comparison is needed: ==, !=, <, <=, >, >=");
	}
	err = sim_expression(s, NULL, &want);
	if (err || s->dry) {
		return err;
	}
	s->result->expectations++;
	if (!sim_holds(c, have, want)) {
		put_number(&got, name, have);
		expected = copy_of(at, s->at);
		sim_fail(s, at, expected ? expected : "?", buf_text(&got));
		free(expected);
		buf_finish(&got);
	}
	return 0;
}

/* Compares what the policy says of a tenant with "text". */
static int expect_explained(struct sim *s, const char *at, const struct sim_tenant *t)
{
	enum sim_compare c = sim_comparison(s);
	const char *from;
	char *expected;
	size_t n;

	sim_blanks(s);
	from = s->at + 1;
	n = *s->at == '"' ? strcspn(from, "\"") : 0;
	if (*s->at != '"' || from[n] != '"' || (c != SIM_EQ && c != SIM_NE)) {
		return sim_wrong(s, s->at, "For example: expect explained of NAME == \"held\"",
				 "here a text is compared with == or !=");
	}
	s->at = from + n + 1;
	if (s->dry) {
		return 0;
	}
	s->result->expectations++;
	if ((strlen(t->explained) == n && memcmp(t->explained, from, n) == 0) != (c == SIM_EQ)) {
		expected = copy_of(at, s->at);
		sim_fail(s, at, expected ? expected : "?", t->explained);
		free(expected);
	}
	return 0;
}

static void offer(void *arg, const char *name)
{
	nearest_offer(arg, name);
}

static void list(void *arg, const char *name)
{
	buf_printf(arg, "%s%s", ((struct buf *)arg)->len ? ", " : "", name);
}

/* Reports a word in capitals that is similar to a verdict of the hook, or a verdict of another
 * hook. */
static int misspelt_verdict(struct sim *s, const char *at, size_t len)
{
	struct buf names = { 0 };
	char word[32], hint[160];
	struct nearest n;
	int64_t other;

	snprintf(word, sizeof(word), "%.*s", (int)MIN(len, sizeof(word) - 1), at);
	nearest_init(&n, word);
	sim_verdict_each(s->last.hook->id, offer, &n);
	if (!nearest_best(&n) && !sim_verdict_named(-1, at, len, &other)) {
		return 0;
	}
	if (nearest_best(&n)) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", nearest_best(&n));
	} else {
		sim_verdict_each(s->last.hook->id, list, &names);
		snprintf(hint, sizeof(hint), "It has %s",
			 names.len ? buf_text(&names) : "none with a name: expect verdict == 0");
	}
	buf_finish(&names);
	return sim_wrong(s, at, hint, "%s has no verdict '%s'", s->last.hook->name, word);
}

/* Takes the name of a verdict, or returns -ENOENT without moving the position. */
static int take_verdict(struct sim *s, int64_t *ret)
{
	size_t len;
	uint64_t v;
	int err;

	sim_blanks(s);
	len = sim_word(s);
	if (!len || !isupper((unsigned char)*s->at) ||
	    (sim_constant(NULL, s->at, len, &v) && !sim_verdict_named(-1, s->at, len, ret))) {
		return -ENOENT;
	}
	err = sim_need_decision(s, s->at);
	if (err) {
		return err;
	}
	if (!sim_verdict_named(s->last.hook->id, s->at, len, ret)) {
		err = misspelt_verdict(s, s->at, len);
		return err ? err : -ENOENT;
	}
	s->at += len;
	return 0;
}

int sim_condition(struct sim *s, bool *ret)
{
	bool negated = sim_take_word(s, "not");
	struct sim_value have, want;
	enum sim_compare c;
	int64_t verdict;
	int err = take_verdict(s, &verdict);

	if (err != -ENOENT) {
		*ret = !err && (s->last.verdict == verdict) != negated;
		return err;
	}
	if (negated) {
		return sim_wrong(s, s->at, NULL, "after 'not' comes a verdict");
	}
	err = sim_expression(s, NULL, &have);
	if (err) {
		return err;
	}
	c = sim_comparison(s);
	if (c == SIM_NONE) {
		return sim_wrong(s, s->at, NULL,
				 "here a comparison is needed: ==, !=, <, <=, >, >=");
	}
	err = sim_expression(s, NULL, &want);
	*ret = !err && sim_holds(c, have, want);
	return err;
}

int sim_expect(struct sim *s)
{
	const struct sim_tenant *t;
	const char *at;
	int64_t verdict;
	bool negated;
	int err;

	sim_blanks(s);
	at = s->at;
	if (sim_take_word(s, "map")) {
		return expect_map(s, at);
	}
	if (sim_take_word(s, "ring")) {
		return sim_expect_ring(s, at);
	}
	if (sim_explained(s, &t, &err)) {
		return err ? err : expect_explained(s, at, t);
	}
	negated = sim_take_word(s, "not");
	err = take_verdict(s, &verdict);
	if (err != -ENOENT) {
		return err ? err : expect_verdict(s, at, verdict, negated);
	}
	if (negated) {
		return sim_wrong(s, s->at, NULL, "after 'not' comes a verdict");
	}
	return expect_comparison(s, at);
}

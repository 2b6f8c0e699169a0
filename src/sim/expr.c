/* Numeric expressions of a scenario: units, constants, variables, map values, and 64-bit
 * arithmetic. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/nearest.h"
#include "sim/sim_int.h"

#define MAX_PARENTHESES 32

const char *const sim_compare_text[] = { "==", "!=", "<", "<=", ">", ">=" };

uint64_t sim_random(struct sim *s)
{
	uint64_t x = s->random_state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	s->random_state = x;
	return x * UINT64_C(0x2545f4914f6cdd1d);
}

static int sum(struct sim *s, const char *field, struct sim_value *ret, int depth);
static int primary(struct sim *s, const char *field, struct sim_value *ret, int depth);

static int random_between(struct sim *s, struct sim_value *ret, int depth)
{
	const char *at = s->at;
	struct sim_value low, high;
	int err;

	if (!sim_take(s, "(") || (err = sum(s, NULL, &low, depth + 1)) < 0 || !sim_take(s, ",") ||
	    (err = sum(s, NULL, &high, depth + 1)) < 0 || !sim_take(s, ")")) {
		return sim_wrong(s, s->at, NULL, "it is written random(LOW, HIGH)");
	}
	if (!s->dry && high.v < low.v) {
		return sim_wrong(s, at, NULL, "the upper bound is below the lower one");
	}
	ret->v = low.v;
	if (!s->dry) {
		uint64_t n = high.v - low.v + 1;

		ret->v = n ? low.v + sim_random(s) % n : sim_random(s);
	}
	return 0;
}

static uint64_t all_notes(struct sim *s, uint64_t counter)
{
	struct sim_testbed *w = &s->testbed;
	uint64_t n = 0;

	for (unsigned i = 0; i < w->n_gpus && !s->dry; i++) {
		n += load_relaxed(&w->gpu[i].daemon.policy->env.notes[counter]);
	}
	for (unsigned i = 0; i < w->n_tenants && !s->dry; i++) {
		n += load_relaxed(&w->tenant[i].in.policy->env.notes[counter]);
	}
	return n;
}

static int note_value(struct sim *s, struct sim_value *ret, int depth)
{
	const char *at;
	struct sim_value counter;
	int err;

	sim_blanks(s);
	at = s->at;
	err = primary(s, NULL, &counter, depth + 1);
	if (err) {
		return err;
	}
	if (counter.v >= EBPF_NOTES) {
		return sim_wrong(s, at, NULL, "notes have the numbers 0 to %u", EBPF_NOTES - 1);
	}
	ret->v = all_notes(s, counter.v);
	return 0;
}

static void all_errors(struct sim *s, struct sim_value *ret)
{
	struct sim_testbed *w = &s->testbed;

	ret->v = 0;
	for (unsigned i = 0; i < w->n_gpus && !s->dry; i++) {
		ret->v += load_relaxed(&w->gpu[i].daemon.policy->env.helper_errors);
	}
	for (unsigned i = 0; i < w->n_tenants && !s->dry; i++) {
		ret->v += load_relaxed(&w->tenant[i].in.policy->env.helper_errors);
	}
}

static int map_value(struct sim *s, struct sim_value *ret, int depth)
{
	const char *at;
	struct sim_place p;
	int err;

	sim_blanks(s);
	at = s->at;
	err = sim_place_parse(s, &p);
	return err ? err : sim_place_number(s, at, &p, ret);
}

/* Evaluates `count MAP`: the number of elements. */
static int count_value(struct sim *s, struct sim_value *ret, int depth)
{
	struct sim_place p;
	const char *at;
	int err;

	sim_blanks(s);
	at = s->at;
	err = sim_place_parse(s, &p);
	if (!err && !p.whole_map) {
		err = sim_wrong(s, at, NULL, "what is counted is a whole map");
	}
	if (!err && p.live) {
		ret->v = ebpf_map_count(p.live);
	}
	return err;
}

/* A field of the last event's context. */
static bool decided_field(struct sim *s, size_t len, struct sim_value *ret)
{
	const struct sim_field *f =
		s->last.hook ? sim_field_named(s->last.hook->id, s->at, len) : NULL;

	if (!f) {
		return false;
	}
	ret->v = sim_field_get(f, s->last.ctx);
	ret->is_signed = f->is_signed;
	return true;
}

static void collect(void *arg, const char *name)
{
	struct buf *all = arg;

	buf_puts(all, all->len ? ", " : "");
	for (; *name; name++) {
		char c = (char)tolower((unsigned char)*name);

		buf_add(all, &c, 1);
	}
}

static int unknown_word(struct sim *s, const char *field, size_t len)
{
	struct buf all = { 0 };
	char word[64], hint[200];
	struct nearest n;

	snprintf(word, sizeof(word), "%.*s", (int)MIN(len, sizeof(word) - 1), s->at);
	nearest_init(&n, word);
	for (unsigned i = 0; i < s->n_vars; i++) {
		nearest_offer(&n, s->vars[i].name);
	}
	nearest_offer(&n, "random");
	nearest_offer(&n, "note");
	nearest_offer(&n, "errors");
	nearest_offer(&n, "verdict");
	nearest_offer(&n, "map");
	nearest_offer(&n, "count");
	nearest_offer(&n, "now");
#define GBPF_CONST(name, value, doc) nearest_offer(&n, #name);
#include "gbpf/hooks.def"
	sim_constant_each(field, collect, &all);
	if (all.len) {
		snprintf(hint, sizeof(hint), "It is a number, or one of %.140s", buf_text(&all));
	} else if (nearest_best(&n)) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", nearest_best(&n));
	} else {
		snprintf(hint, sizeof(hint), "For a map or a global variable: map %s", word);
	}
	buf_finish(&all);
	return sim_wrong(s, s->at, hint, "'%s' is neither a number nor a name known here", word);
}

static int errors_value(struct sim *s, struct sim_value *ret, int depth)
{
	all_errors(s, ret);
	return 0;
}

static int now_value(struct sim *s, struct sim_value *ret, int depth)
{
	ret->v = sim_now();
	return 0;
}

static int verdict_value(struct sim *s, struct sim_value *ret, int depth)
{
	int err = sim_need_decision(s, s->at - strlen("verdict"));

	*ret = (struct sim_value){ (uint64_t)s->last.verdict, true };
	return err;
}

/* Words whose values are computed. */
static const struct {
	const char *word;
	int (*value)(struct sim *s, struct sim_value *ret, int depth);
} words[] = { { "random", random_between }, { "note", note_value },	{ "map", map_value },
	      { "count", count_value },	    { "errors", errors_value }, { "now", now_value },
	      { "verdict", verdict_value } };

static bool variable(const struct sim *s, size_t len, struct sim_value *ret)
{
	for (unsigned i = s->n_vars; i--;) {
		if (strlen(s->vars[i].name) == len && memcmp(s->vars[i].name, s->at, len) == 0) {
			ret->v = s->vars[i].value;
			return true;
		}
	}
	return false;
}

/* Looks up an enumerator of the policy's own types. */
static bool enumerator(const struct sim *s, size_t len, struct sim_value *ret)
{
	const struct btf *btf = ebpf_object_btf(&s->testbed.built.object);
	char word[64];
	int64_t named;

	if (!len || len >= sizeof(word)) {
		return false;
	}
	memcpy(word, s->at, len);
	word[len] = 0;
	if (ebpf_typed_enum(btf, word, &named) < 0) {
		return false;
	}
	*ret = (struct sim_value){ (uint64_t)named, true };
	return true;
}

static int named_value(struct sim *s, const char *field, struct sim_value *ret, int depth)
{
	size_t len = sim_word(s);
	int err = 0;

	if (sim_of_tenant(s, ret, &err) || sim_of_memory(s, ret, &err) ||
	    sim_tenant_number(s, field, ret) || sim_vgpu_place(s, field, ret)) {
		return err;
	}
	if (variable(s, len, ret) || sim_constant(field, s->at, len, &ret->v)) {
		s->at += len;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (sim_take_word(s, words[i].word)) {
			return words[i].value(s, ret, depth);
		}
	}
	if (decided_field(s, len, ret) || enumerator(s, len, ret)) {
		s->at += len;
		return 0;
	}
	return unknown_word(s, field, len);
}

/* Refuses `3 ms`: a unit that is separated from its number. Another field may have the name of a
 * unit. */
static int check_unit(struct sim *s, const char *number)
{
	static const char *const units[] = { "ns", "us", "ms", "s", "KiB", "MiB", "GiB" };
	const char *end = s->at;
	char hint[80];

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (isspace((unsigned char)*end) && sim_take_word(s, units[i])) {
			const char *unit = s->at - strlen(units[i]);

			if (sim_blanks(s), *s->at != '=') {
				snprintf(hint, sizeof(hint), "Write %.*s%s",
					 (int)MIN(end - number, 40), number, units[i]);
				return sim_wrong(s, unit, hint,
						 "a unit must follow its number without a blank");
			}
		}
		s->at = end;
	}
	return 0;
}

static int primary(struct sim *s, const char *field, struct sim_value *ret, int depth)
{
	const char *number, *end;
	int err;

	sim_blanks(s);
	*ret = (struct sim_value){ 0, false };
	if (depth > MAX_PARENTHESES) {
		return sim_wrong(s, s->at, NULL, "too many parentheses");
	}
	if (sim_take(s, "(")) {
		err = sum(s, field, ret, depth + 1);
		return err		  ? err
		       : sim_take(s, ")") ? 0
					  : sim_wrong(s, s->at, NULL, "here ')' is needed");
	}
	if (*s->at == '-' && !isdigit((unsigned char)s->at[1])) {
		s->at++;
		err = primary(s, field, ret, depth + 1);
		*ret = (struct sim_value){ 0 - ret->v, true };
		return err;
	}
	if (isdigit((unsigned char)*s->at) || *s->at == '-') {
		ret->is_signed = *s->at == '-';
		if (ebpf_typed_number(s->at, &end, &ret->v) < 0) {
			return sim_wrong(s, s->at, "Units are ns, us, ms, s, KiB, MiB and GiB",
					 "this is not a number");
		}
		number = s->at;
		s->at = end;
		return check_unit(s, number);
	}
	if (!sim_word(s)) {
		return sim_wrong(s, s->at, "For example 5, 3ms, 4KiB or a constant",
				 "here a number is needed");
	}
	return named_value(s, field, ret, depth);
}

static int product(struct sim *s, const char *field, struct sim_value *ret, int depth)
{
	int err = primary(s, field, ret, depth);

	while (!err) {
		struct sim_value b;
		char op;

		sim_blanks(s);
		op = *s->at;
		if (op != '*' && op != '/' && op != '%') {
			return 0;
		}
		s->at++;
		err = primary(s, field, &b, depth);
		if (err) {
			return err;
		}
		if (op == '*') {
			ret->v *= b.v;
		} else if (b.v) {
			ret->v = op == '/' ? ret->v / b.v : ret->v % b.v;
		} else if (!s->dry) {
			return sim_wrong(s, s->at, NULL, "division by 0");
		}
		ret->is_signed |= b.is_signed;
	}
	return err;
}

static int sum(struct sim *s, const char *field, struct sim_value *ret, int depth)
{
	int err = product(s, field, ret, depth);

	while (!err) {
		struct sim_value b;
		char op;

		sim_blanks(s);
		op = *s->at;
		if (op != '+' && op != '-' && op != '|') {
			return 0;
		}
		s->at++;
		err = product(s, field, &b, depth);
		ret->v = op == '+' ? ret->v + b.v : op == '-' ? ret->v - b.v : ret->v | b.v;
		ret->is_signed |= b.is_signed;
	}
	return err;
}

int sim_expression(struct sim *s, const char *field, struct sim_value *ret)
{
	return sum(s, field, ret, 0);
}

int sim_operand(struct sim *s, struct sim_value *ret)
{
	return primary(s, NULL, ret, 0);
}

enum sim_compare sim_comparison(struct sim *s)
{
	if (sim_take(s, "==") || (!sim_take(s, "=>") && sim_take(s, "="))) {
		return SIM_EQ;
	}
	return sim_take(s, "!=")   ? SIM_NE
	       : sim_take(s, "<=") ? SIM_LE
	       : sim_take(s, ">=") ? SIM_GE
	       : sim_take(s, "<")  ? SIM_LT
	       : sim_take(s, ">")  ? SIM_GT
				   : SIM_NONE;
}

bool sim_holds(enum sim_compare c, struct sim_value a, struct sim_value b)
{
	bool less = a.is_signed || b.is_signed ? (int64_t)a.v < (int64_t)b.v : a.v < b.v;

	switch (c) {
	case SIM_EQ:
		return a.v == b.v;
	case SIM_NE:
		return a.v != b.v;
	case SIM_LT:
		return less;
	case SIM_LE:
		return less || a.v == b.v;
	case SIM_GT:
		return !less && a.v != b.v;
	case SIM_GE:
		return !less;
	default:
		return false;
	}
}

/* Parses argv into a verb, its options and its arguments. Words must match exactly; an error names
 * the nearest word. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct found {
	const struct cli_option *option;
	const char **value;
};

static bool is_list(const char *name)
{
	return strcmp(name, "ls") == 0 || strcmp(name, "list") == 0;
}

const struct cli_verb *cli_verb_find(const struct cli_verb *const *verbs, const char *name)
{
	for (; *verbs; verbs++) {
		if (strcmp((*verbs)->name, name) == 0 ||
		    (is_list((*verbs)->name) && is_list(name))) {
			return *verbs;
		}
	}
	return NULL;
}

const char *cli_verb_name(const struct cli *c, char *out, size_t cap)
{
	snprintf(out, cap, "%s%s%s", c->group ? c->group->name : "", c->group ? " " : "",
		 c->verb ? c->verb->name : "");
	return out;
}

static const char *verb_prefix(const struct cli *c, char *out, size_t cap)
{
	char name[64];

	if (!c->verb) {
		return "";
	}
	snprintf(out, cap, "%s: ", cli_verb_name(c, name, sizeof(name)));
	return out;
}

static int PRINTF_LIKE(3, 4) usage_error(struct cli *c, const char *nearest, const char *fmt, ...)
{
	char hint[200], text[300], name[64], prefix[72];
	const char *of = cli_verb_name(c, name, sizeof(name));
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (nearest) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", nearest);
	} else if (c->verb) {
		snprintf(hint, sizeof(hint), "See: gbpf help %s", of);
	} else {
		snprintf(hint, sizeof(hint), "See: gbpf help");
	}
	return cli_fail(c, CLI_USAGE, "usage", hint, "%s%s", verb_prefix(c, prefix, sizeof(prefix)),
			text);
}

static bool scan(const struct cli_option *options, const char **values, const char *name,
		 size_t len, char letter, struct found *ret)
{
	for (int i = 0; options && options[i].name; i++) {
		bool hit = name ? strlen(options[i].name) == len &&
					   strncmp(options[i].name, name, len) == 0
				: options[i].letter == letter;

		if (hit) {
			ret->option = &options[i];
			ret->value = &values[i];
			return true;
		}
	}
	return false;
}

static bool find_option(struct cli *c, const char *name, size_t len, char letter, struct found *ret)
{
	return scan(c->verb ? c->verb->options : NULL, c->opt, name, len, letter, ret) ||
	       scan(cli_globals, c->global, name, len, letter, ret);
}

static int unknown_option(struct cli *c, const char *name, size_t len)
{
	const struct cli_option *sets[2] = { c->verb ? c->verb->options : NULL, cli_globals };
	char word[64], nearest[72];
	struct nearest n;
	const char *best;

	snprintf(word, sizeof(word), "%.*s", (int)MIN(len, (size_t)60), name);
	nearest_init(&n, word);
	for (int s = 0; s < 2; s++) {
		for (const struct cli_option *o = sets[s]; o && o->name; o++) {
			nearest_offer(&n, o->name);
		}
	}
	best = nearest_best(&n);
	snprintf(nearest, sizeof(nearest), "--%s", best ? best : "");
	return usage_error(c, best ? nearest : NULL, "unknown option '--%s'", word);
}

bool cli_is_choice(const struct cli_option *o)
{
	return o->arg && o->arg[0] >= 'a' && o->arg[0] <= 'z' && strchr(o->arg, '|');
}

/* Checks that value is one of the words of arg "a|b|c". An arg in capitals ("NAME|FILE") is only a
 * placeholder. */
static int check_choice(struct cli *c, const struct cli_option *o, const char *value)
{
	char words[128];
	struct nearest n;
	char *save, *w;

	if (!cli_is_choice(o)) {
		return 0;
	}
	snprintf(words, sizeof(words), "%s", o->arg);
	nearest_init(&n, value);
	for (w = strtok_r(words, "|", &save); w; w = strtok_r(NULL, "|", &save)) {
		if (strcmp(w, value) == 0) {
			return 0;
		}
		nearest_offer(&n, w);
	}
	return usage_error(c, nearest_best(&n), "--%s: '%s' is not one of %s", o->name, value,
			   o->arg);
}

static bool is_repeated(const struct cli_option *o)
{
	size_t n = strlen(o->arg);

	return n > 3 && strcmp(o->arg + n - 3, "...") == 0;
}

/* Takes the option's value from after '=' or from the next word. *i: index of the word in use. */
static int take_value(struct cli *c, const struct found *f, const char *inline_value, int argc,
		      char **argv, int *i)
{
	const char *value = inline_value;

	if (!f->option->arg) {
		if (inline_value) {
			return usage_error(c, NULL, "option '--%s' takes no value",
					   f->option->name);
		}
		*f->value = "";
		return 0;
	}
	if (!value) {
		if (*i + 1 >= argc) {
			return usage_error(c, NULL, "option '--%s' needs a value", f->option->name);
		}
		value = argv[++*i];
	}
	*f->value = value;
	if (is_repeated(f->option)) {
		if (c->n_repeated == CLI_MAX_REPEATED) {
			return usage_error(c, NULL, "more than %d options '--%s'", CLI_MAX_REPEATED,
					   f->option->name);
		}
		c->repeated[c->n_repeated++] = value;
	}
	return check_choice(c, f->option, value);
}

static int parse_long(struct cli *c, int argc, char **argv, int *i)
{
	const char *name = argv[*i] + 2;
	const char *eq = strchr(name, '=');
	size_t len = eq ? (size_t)(eq - name) : strlen(name);
	struct found f;

	if (!find_option(c, name, len, 0, &f)) {
		return unknown_option(c, name, len);
	}
	return take_value(c, &f, eq ? eq + 1 : NULL, argc, argv, i);
}

static int parse_short(struct cli *c, int argc, char **argv, int *i)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		char word[8];
		struct found f;
		int err;

		if (!find_option(c, NULL, 0, *p, &f)) {
			snprintf(word, sizeof(word), "-%c", *p);
			return usage_error(c, NULL, "unknown option '%s'", word);
		}
		if (f.option->arg) {
			return take_value(c, &f, p[1] ? p + 1 : NULL, argc, argv, i);
		}
		err = take_value(c, &f, NULL, argc, argv, i);
		if (err) {
			return err;
		}
	}
	return 0;
}

static int parse_verb(struct cli *c, const char *word)
{
	const struct cli_verb *const *verbs = c->verb ? c->verb->subs : cli_verbs;
	const struct cli_verb *v = cli_verb_find(verbs, word);
	struct nearest n;

	if (v) {
		c->group = c->verb;
		c->verb = v;
		return 0;
	}
	nearest_init(&n, word);
	for (; *verbs; verbs++) {
		nearest_offer(&n, (*verbs)->name);
	}
	return usage_error(c, nearest_best(&n), "unknown verb '%s'", word);
}

static int check_arguments(struct cli *c)
{
	int n = c->verb && c->verb->program ? c->n_before : c->n_args;

	if (c->global[CLI_HELP] || c->global[CLI_VERSION] || !c->verb || c->verb->subs) {
		return 0;
	}
	if (c->n_args < c->verb->min_args) {
		return usage_error(c, NULL, "needs an argument: %s", c->verb->args);
	}
	if (c->verb->max_args >= 0 && n > c->verb->max_args) {
		return usage_error(c, NULL, "unexpected argument '%s'", c->arg[c->verb->max_args]);
	}
	return 0;
}

static int apply_globals(struct cli *c)
{
	c->quiet = c->global[CLI_QUIET] != NULL;
	c->timeout_ns = UINT64_C(10) * 1000000000;
	if (c->global[CLI_TIMEOUT_OPT] &&
	    cli_parse_duration(c->global[CLI_TIMEOUT_OPT], UINT64_C(1000000000), &c->timeout_ns) <
		    0) {
		return usage_error(c, NULL, "--timeout: '%s' is not a time, e.g. 5 or 200ms",
				   c->global[CLI_TIMEOUT_OPT]);
	}
	return 0;
}

int cli_parse(struct cli *c, int argc, char **argv)
{
	int i, out = 0, err = 0, dashes_at = -1;
	bool rest = false;

	/* Look for --json first, so that an error in an earlier word is reported as JSON. */
	for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		c->json = c->json || strcmp(argv[i], "--json") == 0;
	}
	c->arg = argv;
	c->verb = c->group = NULL;
	for (i = 1; i < argc && !err; i++) {
		char *a = argv[i];

		if (!rest && strcmp(a, "--") == 0) {
			rest = true;
			dashes_at = out;
		} else if (!rest && a[0] == '-' && a[1] == '-') {
			err = parse_long(c, argc, argv, &i);
		} else if (!rest && a[0] == '-' && a[1]) {
			err = parse_short(c, argc, argv, &i);
		} else if (!c->verb || c->verb->subs) {
			err = parse_verb(c, a);
			rest = !err && c->verb->unparsed;
		} else {
			c->arg[out++] = a;
			rest = rest || c->verb->command;
		}
	}
	if (err) {
		return err;
	}
	c->arg[out] = NULL;
	c->n_args = out;
	c->n_before = dashes_at < 0 ? out : dashes_at;
	c->json = c->global[CLI_JSON] != NULL;
	err = apply_globals(c);
	return err ? err : check_arguments(c);
}

int cli_number(struct cli *c, const char *what, const char *text, uint64_t min, uint64_t max,
	       uint64_t *ret)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || v < min || v > max) {
		return usage_error(c, NULL, "%s: '%s' is not a number from %llu to %llu", what,
				   text, (unsigned long long)min, (unsigned long long)max);
	}
	*ret = v;
	return 0;
}

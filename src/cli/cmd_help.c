/* `gbpf help` and `gbpf version`. */
#include <string.h>

#include "cli/verbs.h"
#include "gbpf/gbpf.h"

static json_t *option_json(const struct cli_option *o)
{
	char letter[2] = { o->letter, 0 };

	return json_pack("{s:s, s:s, s:s?, s:s}", "name", o->name, "letter", letter, "argument",
			 o->arg, "doc", o->doc);
}

static json_t *options_json(const struct cli_option *o)
{
	json_t *all = json_array();

	for (; o && o->name; o++) {
		json_array_append_new(all, option_json(o));
	}
	return all;
}

static void add_verbs(json_t *all, const struct cli_verb *group,
		      const struct cli_verb *const *verbs)
{
	for (; *verbs; verbs++) {
		const struct cli_verb *v = *verbs;
		char name[64];

		snprintf(name, sizeof(name), "%s%s%s", group ? group->name : "", group ? " " : "",
			 v->name);
		json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s, s:b, s:o}", "name", name,
						     "arguments", v->args, "doc", v->doc, "page",
						     v->page, "group", v->subs != NULL, "options",
						     options_json(v->options)));
		if (v->subs) {
			add_verbs(all, v, v->subs);
		}
	}
}

/* Prints the whole table; the tests compare the manual pages with it. */
static int help_json(struct cli *c)
{
	json_t *all = json_array();

	add_verbs(all, NULL, cli_verbs);
	return cli_json(
		c, "help",
		json_pack("{s:o, s:o}", "verbs", all, "options", options_json(cli_globals)));
}

static int unknown_topic(struct cli *c, const struct cli_verb *const *verbs, const char *word)
{
	struct nearest n;
	const char *best;
	char hint[80] = "See: gbpf help";

	nearest_init(&n, word);
	for (; *verbs; verbs++) {
		nearest_offer(&n, (*verbs)->name);
	}
	best = nearest_best(&n);
	if (best) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", best);
	}
	return cli_fail(c, CLI_USAGE, "usage", hint, "help: unknown verb '%s'", word);
}

static int cmd_help(struct cli *c)
{
	const struct cli_verb *const *verbs = cli_verbs;
	const struct cli_verb *group = NULL, *verb = NULL;

	for (int i = 0; i < c->n_args; i++) {
		group = verb;
		verb = verbs ? cli_verb_find(verbs, c->arg[i]) : NULL;
		if (!verb && !verbs) {
			char hint[80];

			snprintf(hint, sizeof(hint), "See: gbpf help %s", group->name);
			return cli_fail(c, CLI_USAGE, "usage", hint,
					"help: gbpf %s has no verb '%s'", group->name, c->arg[i]);
		}
		if (!verb) {
			return unknown_topic(c, verbs, c->arg[i]);
		}
		verbs = verb->subs;
	}
	if (c->json) {
		return help_json(c);
	}
	if (verb && verb->unparsed) {
		static char word[] = "--help", *words[] = { word, NULL };

		c->verb = verb;
		c->arg = words;
		c->n_args = 1;
		return verb->run(c);
	}
	if (verb) {
		cli_usage_verb(group, verb, stdout);
	} else {
		c->verb = c->group = NULL;
		cli_usage(c, stdout);
	}
	return CLI_OK;
}

static int cmd_version(struct cli *c)
{
	if (c->json) {
		return cli_json(c, "version",
				json_pack("{s:s, s:s, s:i}", "version", GBPF_VERSION_TEXT,
					  "library", gbpf_version(), "protocol", GBPF_PROTOCOL));
	}
	printf("gbpf %s\n", GBPF_VERSION_TEXT);
	return CLI_OK;
}

const struct cli_verb verb_help = {
	.name = "help",
	.args = "[VERB [VERB]]",
	.doc = "print the verbs, or the usage of one",
	.page = "gbpf.1",
	.max_args = 2,
	.run = cmd_help,
};

const struct cli_verb verb_version = {
	.name = "version",
	.args = "",
	.doc = "print the version",
	.page = "gbpf.1",
	.run = cmd_version,
};

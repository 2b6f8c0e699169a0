/* Usage texts, generated from the table of verbs. */
#include "cli/cli.h"

#include <string.h>

static void print_option(const struct cli_option *o, FILE *to)
{
	char text[80];
	char letter[5] = "   ";

	if (o->letter) {
		snprintf(letter, sizeof(letter), "-%c,", o->letter);
	}
	snprintf(text, sizeof(text), "%s --%s%s%s", letter, o->name, o->arg ? " " : "",
		 o->arg ? o->arg : "");
	fprintf(to, "  %-33s %s\n", text, o->doc);
}

static void print_options(const char *title, const struct cli_option *o, FILE *to)
{
	if (!o || !o->name) {
		return;
	}
	fprintf(to, "\n%s\n", title);
	for (; o->name; o++) {
		print_option(o, to);
	}
}

static void print_verbs(const struct cli_verb *group, const struct cli_verb *const *verbs, FILE *to)
{
	for (; *verbs; verbs++) {
		char name[64];

		snprintf(name, sizeof(name), "%s%s%s", group ? group->name : "", group ? " " : "",
			 (*verbs)->name);
		fprintf(to, "  %-17s %s\n", name, (*verbs)->doc);
	}
}

static void usage_program(FILE *to)
{
	fputs("Usage: gbpf [OPTIONS] VERB ...\n\n"
	      "Run programs under a GPU policy, and manage policies.\n\nVerbs:\n",
	      to);
	print_verbs(NULL, cli_verbs, to);
	print_options("Options of every verb:", cli_globals, to);
	fputs("\nMore: gbpf help VERB, man gbpf\n", to);
}

void cli_usage_verb(const struct cli_verb *group, const struct cli_verb *verb, FILE *to)
{
	const char *page = verb->page;
	const char *dot = strrchr(page, '.');

	fprintf(to, "Usage: gbpf %s%s%s%s%s%s\n\n%s\n", group ? group->name : "", group ? " " : "",
		verb->name,
		verb->subs			       ? " VERB"
		: verb->options && verb->options->name ? " [OPTIONS]"
						       : "",
		verb->args[0] ? " " : "", verb->args, verb->doc);
	if (verb->subs) {
		fputs("\nVerbs:\n", to);
		print_verbs(verb, verb->subs, to);
	}
	print_options("Options:", verb->options, to);
	print_options("Options of every verb:", cli_globals, to);
	fprintf(to, "\nMore: man %.*s\n", dot ? (int)(dot - page) : (int)strlen(page), page);
}

void cli_usage(const struct cli *c, FILE *to)
{
	if (c->verb) {
		cli_usage_verb(c->group, c->verb, to);
	} else {
		usage_program(to);
	}
}

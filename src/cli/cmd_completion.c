/* `gbpf completion bash`: shell completion generated from the table of verbs. The build runs it
 * once and installs the output. */
#include <string.h>

#include "cli/verbs.h"

static void print_words(const struct cli_option *o)
{
	for (; o && o->name; o++) {
		printf("--%s ", o->name);
	}
}

/* case "run --class") values */
static void print_choices(const char *verb, const struct cli_option *o)
{
	for (; o && o->name; o++) {
		if (!o->arg) {
			continue;
		}
		printf("\t'%s --%s'", verb, o->name);
		if (o->letter) {
			printf("|'%s -%c'", verb, o->letter);
		}
		printf(") echo '");
		if (cli_is_choice(o)) {
			for (const char *p = o->arg; *p; p++) {
				putchar(*p == '|' ? ' ' : *p);
			}
		} else {
			putchar('-'); /* takes a value that cannot be listed */
		}
		printf("' ;;\n");
	}
}

static void each_verb(void (*fn)(const char *name, const struct cli_verb *v))
{
	for (const struct cli_verb *const *v = cli_verbs; *v; v++) {
		fn((*v)->name, *v);
		for (const struct cli_verb *const *s = (*v)->subs; s && *s; s++) {
			char name[64];

			snprintf(name, sizeof(name), "%s %s", (*v)->name, (*s)->name);
			fn(name, *s);
		}
	}
}

static void verb_words(const char *name, const struct cli_verb *v)
{
	printf("\t'%s') echo '", name);
	for (const struct cli_verb *const *s = v->subs; s && *s; s++) {
		printf("%s ", (*s)->name);
	}
	print_words(v->options);
	printf("' ;;\n");
}

static void verb_choices(const char *name, const struct cli_verb *v)
{
	print_choices(name, v->options);
}

static void verb_group(const char *name, const struct cli_verb *v)
{
	if (v->subs) {
		printf("'%s'|", name);
	}
}

static const char head[] =
	"# bash completion for gbpf. Made by `gbpf completion bash` from the table of verbs.\n"
	"_gbpf_words()\n{\n\tcase $1 in\n";
static const char middle[] = "\tesac\n}\n\n"
			     "_gbpf_values()\n{\n\tcase \"$1 $2\" in\n";
static const char tail[] =
	"_gbpf()\n{\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb='' i w "
	"values\n"
	"\tlocal globals=$(_gbpf_words globals)\n"
	"\tCOMPREPLY=()\n"
	"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	"\t\tw=${COMP_WORDS[i]}\n"
	"\t\tif [ \"$verb\" = run ] && { [ \"$w\" = -- ] || [ \"${w#-}\" = \"$w\" ]; }; then\n"
	"\t\t\t[ \"$w\" = -- ] && ((i++))\n"
	"\t\t\tif ((i >= COMP_CWORD)); then\n"
	"\t\t\t\tCOMPREPLY=($(compgen -c -- \"$cur\"))\n"
	"\t\t\telse\n"
	"\t\t\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n"
	"\t\t\tfi\n"
	"\t\t\treturn\n"
	"\t\tfi\n"
	"\t\tif [ -n \"$(_gbpf_values \"$verb\" \"$w\")\" ]; then\n"
	"\t\t\t((i++))\n"
	"\t\telif [ \"${w#-}\" = \"$w\" ]; then\n"
	"\t\t\tif [ -z \"$verb\" ]; then verb=$w; elif _gbpf_group \"$verb\"; then verb=\"$verb "
	"$w\"; fi\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tvalues=$(_gbpf_values \"$verb\" \"$prev\")\n"
	"\tif [ \"$values\" = - ]; then\n"
	"\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n"
	"\telif [ -n \"$values\" ]; then\n"
	"\t\tCOMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
	"\telif [ \"${cur#-}\" != \"$cur\" ]; then\n"
	"\t\tCOMPREPLY=($(compgen -W \"$(_gbpf_words \"$verb\") $globals\" -- \"$cur\"))\n"
	"\telif [ -z \"$verb\" ]; then\n"
	"\t\tCOMPREPLY=($(compgen -W \"$(_gbpf_words verbs)\" -- \"$cur\"))\n"
	"\telif _gbpf_group \"$verb\"; then\n"
	"\t\tCOMPREPLY=($(compgen -W \"$(_gbpf_words \"$verb\")\" -- \"$cur\"))\n"
	"\telif [[ $verb =~ ^policy' '(load|swap|test)$ ]]; then\n"
	"\t\tw=$(command -v gbpf) && w=${w%/*}/../lib/gbpf/policies\n"
	"\t\tvalues=$(cd \"$w\" 2>/dev/null && for i in *.bpf.o; do echo \"${i%.bpf.o}\"; done)\n"
	"\t\tCOMPREPLY=($(compgen -W \"$values\" -- \"$cur\") $(compgen -f -X '!*.o' -- "
	"\"$cur\"))\n"
	"\t\t[ \"$verb\" != 'policy test' ] || COMPREPLY+=($(compgen -f -X '!*.scenario' -- "
	"\"$cur\"))\n"
	"\telif [ \"$verb\" = 'policy check' ]; then\n"
	"\t\tCOMPREPLY=($(compgen -f -X '!*.o' -- \"$cur\") $(compgen -d -- \"$cur\"))\n"
	"\telif [ \"$verb\" = 'policy build' ]; then\n"
	"\t\tCOMPREPLY=($(compgen -f -X '!*.bpf.c' -- \"$cur\") $(compgen -d -- \"$cur\"))\n"
	"\telif [[ $verb == 'map '* ]]; then\n"
	"\t\tvalues=$(gbpf -q --timeout 1 map list 2>/dev/null | tail -n +2 | cut -d' ' -f1)\n"
	"\t\tCOMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
	"\telif [ \"$verb\" = run ]; then\n"
	"\t\tCOMPREPLY=($(compgen -c -- \"$cur\"))\n"
	"\telse\n"
	"\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n"
	"\tfi\n"
	"}\n\n"
	"complete -o filenames -F _gbpf gbpf\n";

static int cmd_completion(struct cli *c)
{
	if (strcmp(c->arg[0], "bash") != 0) {
		return cli_fail(c, CLI_USAGE, "usage", "Use: gbpf completion bash",
				"completion: unsupported shell '%s'", c->arg[0]);
	}
	fputs(head, stdout);
	printf("\tglobals) echo '");
	print_words(cli_globals);
	printf("' ;;\n\tverbs) echo '");
	for (const struct cli_verb *const *v = cli_verbs; *v; v++) {
		printf("%s ", (*v)->name);
	}
	printf("' ;;\n");
	each_verb(verb_words);
	fputs(middle, stdout);
	each_verb(verb_choices);
	for (const struct cli_option *o = cli_globals; o->name; o++) {
		if (cli_is_choice(o)) {
			printf("\t*' --%s') echo 'auto always never' ;;\n", o->name);
		} else if (o->arg) {
			printf("\t*' --%s') echo '-' ;;\n", o->name);
		}
	}
	printf("\tesac\n}\n\n_gbpf_group()\n{\n\tcase $1 in\n\t");
	each_verb(verb_group);
	printf("'?') return 0 ;;\n\tesac\n\treturn 1\n}\n\n");
	fputs(tail, stdout);
	return CLI_OK;
}

const struct cli_verb verb_completion = {
	.name = "completion",
	.args = "bash",
	.doc = "print the completion code of a shell",
	.page = "gbpf.1",
	.min_args = 1,
	.max_args = 1,
	.run = cmd_completion,
};

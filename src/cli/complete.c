/* Completion by the table of verbs: an argument's placeholder in the usage line says what it is. */
#include "cli/complete.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/paths.h"
#include "cli/connect.h"
#include "cli/trace.h"
#include "cli/verbs.h"
#include "cli/vgpu_options.h"

#define ANSWER_TIMEOUT_MS 1000u /* of gbpfd: a person waits */

struct line {
	const char *socket;
	const struct cli_verb *group, *verb;
	const struct cli_option *pending; /* an option that takes the next word */
	int args;			  /* arguments before the last word */
	bool rest;			  /* behind "--" */
};

static void offer(const char *begin, const char *word, const char *doc)
{
	if (strncmp(word, begin, strlen(begin)) == 0) {
		printf("%s\t%s\n", word, doc);
	}
}

static void offer_verbs(const struct cli_verb *const *verbs, const char *begin)
{
	for (; verbs && *verbs; verbs++) {
		offer(begin, (*verbs)->name, (*verbs)->doc);
	}
}

static void offer_options(const struct cli_option *o, const char *begin)
{
	for (; o && o->name; o++) {
		char word[64];

		snprintf(word, sizeof(word), "--%s", o->name);
		offer(begin, word, o->doc);
	}
}

/* prefix: of the words by which the policies of the folder are found */
static void offer_policies_of(const char *folder, const char *prefix, const char *doc,
			      const char *begin)
{
	static const char suffix[] = ".bpf.o";
	char dir[PATH_MAX], word[NAME_MAX + 16];
	struct dirent *e;
	DIR *d;

	if (path_lib(dir, sizeof(dir), folder) < 0 || !(d = opendir(dir))) {
		return;
	}
	while ((e = readdir(d))) {
		size_t n = strlen(e->d_name);

		if (n > strlen(suffix) && strcmp(e->d_name + n - strlen(suffix), suffix) == 0) {
			snprintf(word, sizeof(word), "%s%.*s", prefix, (int)(n - strlen(suffix)),
				 e->d_name);
			offer(begin, word, doc);
		}
	}
	closedir(d);
}

static void offer_policies(const char *begin)
{
	offer_policies_of("policies", "", "policy that comes with gBPF", begin);
	offer_policies_of("policies/examples", "examples/", "example of a policy", begin);
}

/* Things that gbpfd lists. */
static const struct listing {
	const char *placeholder, *method, *list, *word, *doc;
} listings[] = {
	{ "PID", "ps", "tenants", "pid", "name" },
	{ "VERSION", "policy.list", "versions", "version", "name" },
	{ "MAP", "map.list", "maps", "map", "type" },
	{ "ID|NAME", "probe.list", "probes", "id", "name" },
};

/* Returns gbpfd's answer, or NULL if there is none in time. */
static json_t *ask(const struct line *l, const char *method)
{
	json_t *result = NULL;
	struct gbpf *g = NULL;
	char *json = NULL;

	if (gbpf_open(&g, l->socket, GBPF_OPEN_NO_CONNECT | GBPF_OPEN_NO_WAIT) == 0) {
		gbpf_set_timeout(g, (unsigned)clock_patience(ANSWER_TIMEOUT_MS));
		if (gbpf_call(g, method, NULL, -1, &json) == 0) {
			result = json_loads(json, 0, NULL);
		}
	}
	free(json);
	gbpf_close(g);
	return result;
}

static void offer_listing(const struct line *l, const struct listing *k, const char *begin)
{
	json_t *result = ask(l, k->method);
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(result, k->list), i, item)
	{
		const json_t *word = json_object_get(item, k->word);
		struct buf text = { 0 }, doc = { 0 };

		if (json_is_integer(word)) {
			buf_printf(&text, "%lld", (long long)json_integer_value(word));
		} else if (json_is_string(word)) {
			cli_safe_text(&text, json_string_value(word));
		}
		cli_safe_text(&doc, cli_text(item, k->doc));
		offer(begin, buf_text(&text), buf_text(&doc));
		buf_finish(&text);
		buf_finish(&doc);
	}
	json_decref(result);
}

/* Offers the names of vGPUs, with the owners of those of other users. */
static void offer_vgpus(const struct line *l, const char *begin)
{
	json_t *result = ask(l, "vgpu.list");
	const json_t *v;
	size_t i;

	json_array_foreach(json_object_get(result, "vgpus"), i, v)
	{
		uint32_t uid = (uint32_t)cli_u64(v, "uid");
		struct buf text = { 0 }, doc = { 0 };
		char owner[64];

		if (uid != getuid()) {
			buf_printf(&text, "%s/", cli_user(owner, uid));
		}
		cli_safe_text(&text, cli_text(v, "name"));
		cli_safe_text(&doc, cli_text(v, "state"));
		if (cli_text(v, "name")[0]) {
			offer(begin, buf_text(&text), buf_text(&doc));
		}
		buf_finish(&text);
		buf_finish(&doc);
	}
	json_decref(result);
}

static void offer_tools(const char *begin)
{
	for (const struct cli_trace_tool *const *t = cli_trace_tools; *t; t++) {
		offer(begin, (*t)->name, (*t)->doc);
	}
}

/* Offers what one word of a usage line stands for. */
static void offer_kind(const struct line *l, const char *kind, const char *begin)
{
	static const struct {
		const char *kind, *directive;
	} files[] = {
		{ "FILE", ":files" },	       { "PATH", ":files" },
		{ "ARGUMENT", ":files" },      { "OBJECT", ":files .o" },
		{ "SOURCE", ":files .bpf.c" }, { "SCENARIO", ":files .scenario" },
		{ "FOLDER", ":folders" },      { "DIR", ":folders" },
		{ "COMMAND", ":commands" },    { "PROGRAM", ":commands" },
	};

	if (kind[0] >= 'a' && kind[0] <= 'z') {
		offer(begin, kind, "");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (strcmp(kind, files[i].kind) == 0) {
			puts(files[i].directive);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(listings); i++) {
		if (strcmp(kind, listings[i].placeholder) == 0) {
			offer_listing(l, &listings[i], begin);
		}
	}
	if (strcmp(kind, CLI_VGPU_ARG) == 0) {
		offer_vgpus(l, begin);
	}
	if (strcmp(kind, "TOOL") == 0) {
		offer_tools(begin);
	}
	if (strcmp(kind, "VERB") == 0) {
		offer_verbs(cli_verbs, begin);
	}
}

/* Offers what "NAME|OBJECT" stands for. A NAME beside a file is a policy's. */
static void offer_placeholder(const struct line *l, const char *words, const char *begin)
{
	char kinds[128], *save, *k;

	if (strncmp(words, "NAME|", 5) == 0) {
		offer_policies(begin);
	}
	snprintf(kinds, sizeof(kinds), "%s", words);
	for (k = strtok_r(kinds, "|", &save); k; k = strtok_r(NULL, "|", &save)) {
		offer_kind(l, k, begin);
	}
}

/* Offers the argument at l->args. After a word that may be repeated ("OBJECT...") all later ones
 * may follow, too. */
static void offer_argument(const struct line *l, const char *begin)
{
	char args[128], *save, *word;
	bool repeated = false;
	int i = 0;

	snprintf(args, sizeof(args), "%s", l->verb->args);
	for (word = strtok_r(args, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *dots = strstr(word, "...");

		if (strcmp(word, CLI_VGPU_ARG) != 0) {
			word += strspn(word, "[");
			word[strcspn(word, "].")] = 0;
		}
		if (word[0] == '-') {
			if (l->verb->program && !l->rest) {
				return;
			}
			continue;
		}
		repeated |= dots && i <= l->args;
		if (i == l->args || (i < l->args && dots) || (i > l->args && repeated)) {
			offer_placeholder(l, word, begin);
		}
		i++;
	}
}

static const struct cli_option *find(const struct cli_option *o, const char *word)
{
	for (; o && o->name; o++) {
		if (word[1] == '-' ? strcmp(word + 2, o->name) == 0
				   : o->letter && word[1] == o->letter && !word[2]) {
			return o;
		}
	}
	return NULL;
}

/* Takes a word before the last one, as cli_parse does. */
static void take(struct line *l, const char *word)
{
	const struct cli_option *o;

	if (l->pending) {
		l->pending = NULL;
	} else if (!l->rest && strcmp(word, "--") == 0) {
		l->rest = true;
	} else if (!l->rest && word[0] == '-') {
		o = find(l->verb ? l->verb->options : NULL, word);
		o = o ? o : find(cli_globals, word);
		l->pending = o && o->arg ? o : NULL;
	} else if (!l->verb || l->verb->subs) {
		const struct cli_verb *v = cli_verb_find(l->verb ? l->verb->subs : cli_verbs, word);

		l->group = v ? l->verb : l->group;
		l->verb = v ? v : l->verb;
		l->rest = v && v->unparsed;
	} else {
		l->args++;
		l->rest |= l->verb->command;
	}
}

void cli_complete(char *const *words, int n, const char *socket)
{
	struct line l = { .socket = socket };
	const char *last = n > 0 ? words[n - 1] : "";

	for (int i = 0; i + 1 < n; i++) {
		take(&l, words[i]);
	}
	if (l.pending) {
		offer_placeholder(&l, l.pending->arg, last);
	} else if (!l.rest && last[0] == '-') {
		offer_options(l.verb ? l.verb->options : NULL, last);
		offer_options(cli_globals, last);
	} else if (!l.verb || l.verb->subs) {
		offer_verbs(l.verb ? l.verb->subs : cli_verbs, last);
	} else {
		offer_argument(&l, last);
	}
}

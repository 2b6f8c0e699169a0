/* `gbpf policy build`: runs clang with the options for policies, then the check. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/paths.h"
#include "cli/policy_file.h"
#include "cli/verbs.h"

#define SOURCE ".bpf.c"
#define MAX_SOURCES 64

extern char **environ;

enum { O_OUTPUT, O_INCLUDE, O_DEFINE, O_MCPU, O_EXPLAIN, O_LINK };

static const struct cli_option options[] = {
	[O_OUTPUT] = { "output", 'o', "OBJECT",
		       "where to write the object (default: next to its source)" },
	[O_INCLUDE] = { "include", 'I', "FOLDER", "look for headers there, too" },
	[O_DEFINE] = { "define", 'D', "NAME[=VALUE]...", "define a macro; may be repeated" },
	[O_MCPU] = { "mcpu", 0, "v1|v2|v3|v4",
		     "instruction set (default: v4 from clang 18 on, else v3)" },
	[O_EXPLAIN] = { "explain", 'e', NULL, "print the verifier's states along a refused path" },
	[O_LINK] = { "link", 'l', NULL, "the sources are one policy" },
	{ NULL, 0, NULL, NULL },
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n > k && strcmp(s + n - k, end) == 0;
}

static bool on_path(const char *program)
{
	const char *path = getenv("PATH");
	char file[PATH_MAX];

	if (strchr(program, '/')) {
		return access(program, X_OK) == 0;
	}
	for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
		int n = snprintf(file, sizeof(file), "%.*s/%s", (int)strcspn(path, ":"), path,
				 program);

		if (n > 0 && (size_t)n < sizeof(file) && access(file, X_OK) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns true if the program's name says that it is clang 18 or newer, which knows the instruction
 * set v4. */
static bool knows_v4(const char *clang)
{
	const char *dash = strrchr(clang, '-');

	return dash && strtol(dash + 1, NULL, 10) >= 18;
}

/* Finds clang. Returns CLI_OK with *ret, or an exit code after a message. Prefers clang 19, whose
 * instruction set v4 has signed division, sign extension and 32-bit jumps. */
static int find_clang(struct cli *c, const char **ret)
{
	static const char *const names[] = { "clang-19", "clang-18", "clang-14",
					     "clang",	 "clang-16", "clang-15" };
	bool v4 = c->opt[O_MCPU] && strcmp(c->opt[O_MCPU], "v4") == 0;
	const char *own = getenv("CLANG");

	if (own && own[0]) {
		*ret = own;
		return on_path(own)
			       ? CLI_OK
			       : cli_fail(c, CLI_FAILED, "clang", "Correct it, or unset CLANG",
					  "policy build: $CLANG: '%s' cannot be executed", own);
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if ((!v4 || knows_v4(names[i]) || strcmp(names[i], "clang") == 0) &&
		    on_path(names[i])) {
			*ret = names[i];
			return CLI_OK;
		}
	}
	return cli_fail(c, CLI_FAILED, "clang", "Install the package clang-19, or set CLANG",
			"policy build: clang not found");
}

static int find_headers(struct cli *c, char *dir, size_t cap)
{
	char header[PATH_MAX];
	int err = path_program(dir, cap, "../include");

	snprintf(header, sizeof(header), "%.*s/gbpf/gbpf.bpf.h", (int)MIN(cap - 1, (size_t)3000),
		 err ? "" : dir);
	if ((err || access(header, R_OK) < 0) && !c->opt[O_INCLUDE]) {
		return cli_fail(c, CLI_FAILED, "headers",
				"Is gbpf installed? Else name the folder: -I FOLDER",
				"policy build: %s not found", header);
	}
	return CLI_OK;
}

static int compile(struct cli *c, const char *clang, const char *include, const char *source,
		   const char *object)
{
	char mcpu[16], installed[PATH_MAX + 2], own[PATH_MAX + 2], parts[PATH_MAX + 2] = "-I";
	char examples[PATH_MAX + 2] = "-I";
	const char *argv[17 + 2 * CLI_MAX_REPEATED];
	int n = 0, status, err;
	pid_t pid;

	snprintf(mcpu, sizeof(mcpu), "-mcpu=%s",
		 c->opt[O_MCPU]	   ? c->opt[O_MCPU]
		 : knows_v4(clang) ? "v4"
				   : "v3");
	snprintf(installed, sizeof(installed), "-I%s", include);
	argv[n++] = clang;
	argv[n++] = "-target";
	argv[n++] = "bpf";
	argv[n++] = mcpu;
	argv[n++] = "-g";
	argv[n++] = "-O2";
	argv[n++] = "-Wall";
	if (c->opt[O_INCLUDE]) {
		snprintf(own, sizeof(own), "-I%s", c->opt[O_INCLUDE]);
		argv[n++] = own;
	}
	for (int i = 0; i < c->n_repeated; i++) {
		argv[n++] = "-D";
		argv[n++] = c->repeated[i];
	}
	argv[n++] = installed;
	if (path_lib(parts + 2, sizeof(parts) - 2, "policies") == 0) {
		argv[n++] = parts; /* a copy of a shipped policy may be without its parts */
	}
	if (path_lib(examples + 2, sizeof(examples) - 2, "policies/examples") == 0) {
		argv[n++] = examples;
	}
	argv[n++] = "-c";
	argv[n++] = source;
	argv[n++] = "-o";
	argv[n++] = object;
	argv[n] = NULL;
	err = posix_spawnp(&pid, clang, NULL, NULL, unqual(argv), environ);
	while (!err && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	if (err) {
		return cli_fail(c, CLI_FAILED, "clang", NULL, "policy build: %s: %s", clang,
				strerror(err));
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		return cli_fail(c, CLI_FAILED, "compile", NULL,
				"policy build: %s does not compile; %s said why", source, clang);
	}
	return CLI_OK;
}

static int take(char *sources[], int *n, const char *dir, const char *leaf)
{
	if (*n == MAX_SOURCES ||
	    asprintf(&sources[*n], "%s%s%s", dir, dir[0] ? "/" : "", leaf) < 0) {
		return -1;
	}
	++*n;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the policy sources of a folder. "." is omitted from the names. */
static int list_folder(struct cli *c, const char *dir, char *sources[], int *n)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (ends_with(e->d_name, SOURCE)) {
			take(sources, n, strcmp(dir, ".") == 0 ? "" : dir, e->d_name);
		}
	}
	if (d) {
		closedir(d);
	}
	qsort(sources, (size_t)*n, sizeof(*sources), by_name);
	return *n ? CLI_OK
		  : cli_fail(c, CLI_NOT_FOUND, "not-found", "Begin one with: gbpf policy new NAME",
			     "policy build: no *" SOURCE " in %s",
			     strcmp(dir, ".") == 0 ? "this folder" : dir);
}

static int list_sources(struct cli *c, char *sources[], int *n)
{
	struct stat st;

	if (!c->n_args) {
		return list_folder(c, ".", sources, n);
	}
	for (int i = 0; i < c->n_args; i++) {
		const char *word = c->arg[i];
		int code = CLI_OK;

		if (stat(word, &st) < 0) {
			return cli_fail(c, CLI_NOT_FOUND, "not-found", NULL, "policy build: %s: %s",
					word, strerror(errno));
		}
		if (S_ISDIR(st.st_mode)) {
			code = list_folder(c, word, sources, n);
		} else if (!ends_with(word, ".c")) {
			code = cli_fail(c, CLI_USAGE, "usage",
					ends_with(word, ".o")
						? "To check an object: gbpf policy check"
						: NULL,
					"policy build: %s is not a C file", word);
		} else if (take(sources, n, "", word) < 0) {
			code = cli_fail(c, CLI_LIMIT, "limit", NULL,
					"policy build: more than %d files", MAX_SOURCES);
		}
		if (code != CLI_OK) {
			return code;
		}
	}
	return CLI_OK;
}

/* Returns "x.bpf.o" for "x.bpf.c"; caller frees. A path given with --output that does not end with
 * .o, and may be the name of an installed policy, begins with "./". */
static char *object_of(struct cli *c, const char *source)
{
	const char *given = c->opt[O_OUTPUT], *path = given ? given : source;
	bool may_name = given && given[0] != '/' && !ends_with(given, ".o");
	char *object = NULL;

	if (asprintf(&object, "%s%s", may_name ? "./" : "", path) < 0) {
		return NULL;
	}
	if (!given) {
		object[strlen(object) - 1] = 'o';
	}
	return object;
}

static int build_all(struct cli *c, char *sources[], int n)
{
	char *objects[MAX_SOURCES] = { NULL };
	char include[PATH_MAX];
	const char *clang = NULL;
	int code = find_clang(c, &clang);

	code = code == CLI_OK ? find_headers(c, include, sizeof(include)) : code;
	for (int i = 0; i < n && code == CLI_OK; i++) {
		objects[i] = object_of(c, sources[i]);
		code = objects[i] ? compile(c, clang, include, sources[i], objects[i]) : CLI_FAILED;
	}
	if (code == CLI_OK) {
		code = cli_policy_check(c, "policy.build", objects, n, c->opt[O_EXPLAIN] != NULL,
					c->opt[O_LINK] != NULL);
	}
	for (int i = 0; i < n; i++) {
		free(objects[i]);
	}
	return code;
}

static int cmd_policy_build(struct cli *c)
{
	char *sources[MAX_SOURCES];
	int n = 0, code = list_sources(c, sources, &n);

	if (code == CLI_OK && n > 1 && c->opt[O_OUTPUT]) {
		code = cli_fail(c, CLI_USAGE, "usage", NULL,
				"policy build: --output is for one source, and these are %d", n);
	}
	if (code == CLI_OK) {
		code = build_all(c, sources, n);
	}
	for (int i = 0; i < n; i++) {
		free(sources[i]);
	}
	return code;
}

const struct cli_verb verb_policy_build = {
	.name = "build",
	.args = "[SOURCE|FOLDER]...",
	.doc = "compile policies with clang, and check them",
	.page = "gbpf-policy.1",
	.options = options,
	.max_args = -1,
	.run = cmd_policy_build,
};

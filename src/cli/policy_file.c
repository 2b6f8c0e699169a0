/* Turns command-line words into the bytes of one policy or tool. */
#include "cli/policy_file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "bpf/load/elf/link.h"

#define MAX_OBJECTS 16

#define SUFFIX ".bpf.o"
#define EXAMPLES "examples/"

static const struct {
	const char *folder; /* of installed ones */
	const char *one;
} kinds[] = {
	[CLI_POLICY] = { "policies", "policy" },
	[CLI_TOOL] = { "tracers", "tool" },
};

static int is_object(const struct dirent *e)
{
	size_t len = strlen(e->d_name), suffix = strlen(SUFFIX);

	return len > suffix && strcmp(e->d_name + len - suffix, SUFFIX) == 0;
}

/* Installed objects, compared with a name. */
struct candidates {
	const char *name; /* without EXAMPLES */
	char best[80];	  /* empty: none is similar */
	unsigned distance;
	struct buf all;
};

/* prefix: of the words by which the objects of the folder are found */
static void compare_folder(struct candidates *k, const char *folder, const char *prefix)
{
	char dir[PATH_MAX];
	struct dirent **list = NULL;
	int n = path_lib(dir, sizeof(dir), folder) < 0 ? 0
						       : scandir(dir, &list, is_object, alphasort);

	for (int i = 0; i < n; i++) {
		struct nearest near;
		char word[64];

		snprintf(word, sizeof(word), "%.*s",
			 (int)(strlen(list[i]->d_name) - strlen(SUFFIX)), list[i]->d_name);
		nearest_init(&near, k->name);
		nearest_offer(&near, word);
		if (nearest_best(&near) && (!k->best[0] || near.distance < k->distance)) {
			snprintf(k->best, sizeof(k->best), "%s%s", prefix, word);
			k->distance = near.distance;
		}
		buf_printf(&k->all, "%s%s%s", k->all.len ? ", " : "", prefix, word);
		free(list[i]);
	}
	free(list);
}

/* Suggests the installed object with the most similar name, or lists all. */
static void hint_at_installed(enum cli_object kind, const char *name, char *hint, size_t cap)
{
	struct candidates k = { .name = name };

	if (kind == CLI_POLICY && path_policy_is_example(name)) {
		snprintf(hint, cap, "It is an example: " EXAMPLES "%s", name);
		return;
	}
	if (strncmp(name, EXAMPLES, strlen(EXAMPLES)) == 0) {
		k.name += strlen(EXAMPLES);
	}
	compare_folder(&k, kinds[kind].folder, "");
	if (kind == CLI_POLICY) {
		compare_folder(&k, "policies/examples", EXAMPLES);
	}
	if (k.best[0]) {
		snprintf(hint, cap, "Did you mean '%s'?", k.best);
	} else if (k.all.len) {
		snprintf(hint, cap, "There are %s; or give the path of a .bpf.o file",
			 buf_text(&k.all));
	}
	buf_finish(&k.all);
}

static bool installed(enum cli_object kind, const char *name, char *path, size_t cap)
{
	const char *folder = kinds[kind].folder;
	char leaf[128];

	if (kind == CLI_POLICY) {
		return path_policy(path, cap, name) == 0;
	}
	if (strchr(name, '/') ||
	    strlen(folder) + strlen(name) + sizeof("/" SUFFIX) > sizeof(leaf)) {
		return false;
	}
	snprintf(leaf, sizeof(leaf), "%s/%s" SUFFIX, folder, name);
	return path_lib(path, cap, leaf) == 0 && access(path, R_OK) == 0;
}

const char *cli_policy_path(const char *name, char *path, size_t cap)
{
	return installed(CLI_POLICY, name, path, cap) ? path : name;
}

/* A word like examples/mlfq that names neither an example nor a file may have been meant as either.
 */
static int no_file(struct cli *c, enum cli_object kind, const char *what, const char *name, int err)
{
	size_t len = strlen(name);
	char hint[768] = "", path[PATH_MAX];

	if (err == ENOENT && kind == CLI_POLICY && len > 2 && strcmp(name + len - 2, ".o") != 0 &&
	    path_policy(path, sizeof(path), name) != -EINVAL) {
		hint_at_installed(kind, name, hint, sizeof(hint));
	}
	return cli_fail(c, err == ENOENT ? CLI_NOT_FOUND : CLI_FAILED, "not-found",
			hint[0] ? hint : NULL, "%s: %s: %s", what, name, strerror(err));
}

int cli_object_find(struct cli *c, enum cli_object kind, const char *what, const char *name,
		    char *path, size_t cap)
{
	size_t len = strlen(name);
	bool source = len > 2 && strcmp(name + len - 2, ".c") == 0;
	bool is_file =
		!source && (strchr(name, '/') || (len > 2 && strcmp(name + len - 2, ".o") == 0));
	char leaf[128], hint[768];

	if (installed(kind, name, path, cap)) {
		return CLI_OK;
	}
	if (is_file) {
		snprintf(path, cap, "%s", name);
		if (len < cap && access(path, R_OK) == 0) {
			return CLI_OK;
		}
		return no_file(c, kind, what, name, errno);
	}
	snprintf(leaf, sizeof(leaf), "%.60s" SUFFIX, name);
	snprintf(hint, sizeof(hint), "Give the path of a .bpf.o file");
	if (source) {
		snprintf(hint, sizeof(hint), "Build it first: gbpf policy build %.80s", name);
	} else if (access(leaf, R_OK) == 0) {
		snprintf(hint, sizeof(hint), "Did you mean the file '%.70s'?", leaf);
	} else if (access(name, R_OK) == 0) {
		snprintf(hint, sizeof(hint), "Did you mean the file './%.80s'?", name);
	} else {
		hint_at_installed(kind, name, hint, sizeof(hint));
	}
	if (source) {
		bool there = access(name, R_OK) == 0;

		return cli_fail(c, there ? CLI_FAILED : CLI_NOT_FOUND, there ? "file" : "not-found",
				there ? hint : NULL, "%s: %s: %s", what, name,
				there ? "this is a source file, not an object" : strerror(errno));
	}
	return cli_fail(c, CLI_NOT_FOUND, "not-found", hint, "%s: no %s '%s' is installed", what,
			kinds[kind].one, name);
}

const char *cli_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int read_object(struct cli *c, enum cli_object kind, const char *what, const char *word,
		       struct buf *out)
{
	char path[PATH_MAX];
	int err, code = cli_object_find(c, kind, what, word, path, sizeof(path));

	if (code != CLI_OK) {
		return code;
	}
	err = buf_read_file(out, path, CLI_OBJECT_MAX_BYTES);
	return err ? cli_fail(c, CLI_FAILED, "file", NULL, "%s: %s: %s", what, path, strerror(-err))
		   : CLI_OK;
}

static int link_objects(struct cli *c, const char *what, char *const *words, int n,
			struct buf *parts, struct buf *elf)
{
	struct ebpf_link_input in[MAX_OBJECTS];
	struct report r;
	int err, code = CLI_OK;

	for (int i = 0; i < n; i++) {
		in[i] = (struct ebpf_link_input){ cli_base_name(words[i]), parts[i].data,
						  parts[i].len };
	}
	report_init(&r);
	err = ebpf_link_objects(in, (unsigned)n, elf, &r);
	if (err) {
		code = cli_fail_report(c, CLI_FAILED, what, &r);
	}
	report_finish(&r);
	return code;
}

static void policy_name(const char *word, char name[64])
{
	size_t len;

	snprintf(name, 64, "%s", cli_base_name(word));
	len = strlen(name);
	if (len > strlen(SUFFIX) && strcmp(name + len - strlen(SUFFIX), SUFFIX) == 0) {
		name[len - strlen(SUFFIX)] = 0;
	} else if (len > 2 && strcmp(name + len - 2, ".o") == 0) {
		name[len - 2] = 0;
	}
}

int cli_object_read(struct cli *c, enum cli_object kind, const char *what, char *const *words,
		    int n, struct buf *elf, char name[64])
{
	struct buf parts[MAX_OBJECTS] = { 0 };
	int code = CLI_OK;

	if (n > MAX_OBJECTS) {
		return cli_fail(c, CLI_LIMIT, "limit", NULL, "%s: more than %d objects", what,
				MAX_OBJECTS);
	}
	policy_name(words[0], name);
	if (n == 1) {
		return read_object(c, kind, what, words[0], elf);
	}
	for (int i = 0; i < n && code == CLI_OK; i++) {
		code = read_object(c, kind, what, words[i], &parts[i]);
	}
	if (code == CLI_OK) {
		code = link_objects(c, what, words, n, parts, elf);
	}
	for (int i = 0; i < n; i++) {
		buf_finish(&parts[i]);
	}
	return code;
}

/* From the words of a user to the bytes of one policy. */
#include "cli/policy_file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "bpf/load/link.h"

#define MAX_OBJECTS 16

#define SUFFIX ".bpf.o"

/* Installed policies that are spelt like name. best is written when there is one. */
static bool nearest_policy(const char *name, char *best, size_t cap)
{
	char dir[PATH_MAX], word[64];
	struct nearest n;
	struct dirent *e;
	bool any = false;
	DIR *d;

	if (path_lib(dir, sizeof(dir), "policies") < 0 || !(d = opendir(dir))) {
		return false;
	}
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);

		if (len <= strlen(SUFFIX) || len >= sizeof(word) ||
		    strcmp(e->d_name + len - strlen(SUFFIX), SUFFIX) != 0) {
			continue;
		}
		snprintf(word, sizeof(word), "%.*s", (int)(len - strlen(SUFFIX)), e->d_name);
		nearest_init(&n, name);
		nearest_offer(&n, word);
		if (nearest_best(&n)) {
			snprintf(best, cap, "%s", word);
			any = true;
		}
	}
	closedir(d);
	return any;
}

static bool installed(const char *name, char *path, size_t cap)
{
	char leaf[128];

	if (strchr(name, '/') || strlen(name) + sizeof("policies/" SUFFIX) > sizeof(leaf)) {
		return false;
	}
	snprintf(leaf, sizeof(leaf), "policies/%s" SUFFIX, name);
	return path_lib(path, cap, leaf) == 0 && access(path, R_OK) == 0;
}

const char *cli_policy_path(const char *name, char *path, size_t cap)
{
	return access(name, F_OK) < 0 && installed(name, path, cap) ? path : name;
}

int cli_policy_find(struct cli *c, const char *what, const char *name, char *path, size_t cap)
{
	size_t len = strlen(name);
	bool source = len > 2 && strcmp(name + len - 2, ".c") == 0;
	bool is_file =
		!source && (strchr(name, '/') || (len > 2 && strcmp(name + len - 2, ".o") == 0));
	char leaf[128], best[64], hint[128];

	if (is_file) {
		snprintf(path, cap, "%s", name);
		if (len < cap && access(path, R_OK) == 0) {
			return CLI_OK;
		}
		return cli_fail(c, errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED, "not-found", NULL,
				"%s: %s: %s", what, name, strerror(errno));
	}
	if (installed(name, path, cap)) {
		return CLI_OK;
	}
	snprintf(leaf, sizeof(leaf), "%.60s" SUFFIX, name);
	snprintf(hint, sizeof(hint),
		 "Give an installed policy's name or the path of a .bpf.o file");
	if (source) {
		snprintf(hint, sizeof(hint), "Build it first: gbpf policy build %.80s", name);
	} else if (access(leaf, R_OK) == 0) {
		snprintf(hint, sizeof(hint), "Did you mean the file '%.70s'?", leaf);
	} else if (access(name, R_OK) == 0) {
		snprintf(hint, sizeof(hint), "Did you mean the file './%.80s'?", name);
	} else if (nearest_policy(name, best, sizeof(best))) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", best);
	}
	if (source) {
		bool there = access(name, R_OK) == 0;

		return cli_fail(c, there ? CLI_FAILED : CLI_NOT_FOUND, there ? "file" : "not-found",
				there ? hint : NULL, "%s: %s: %s", what, name,
				there ? "this is source, no object" : strerror(errno));
	}
	return cli_fail(c, CLI_NOT_FOUND, "not-found", hint, "%s: no policy '%s' is installed",
			what, name);
}

const char *cli_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int read_object(struct cli *c, const char *what, const char *word, struct buf *out)
{
	char path[PATH_MAX];
	int err, code = cli_policy_find(c, what, word, path, sizeof(path));

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

int cli_policy_read(struct cli *c, const char *what, char *const *words, int n, struct buf *elf,
		    char name[64])
{
	struct buf parts[MAX_OBJECTS] = { 0 };
	int code = CLI_OK;

	if (n > MAX_OBJECTS) {
		return cli_fail(c, CLI_LIMIT, "limit", NULL, "%s: more than %d objects", what,
				MAX_OBJECTS);
	}
	policy_name(words[0], name);
	if (n == 1) {
		return read_object(c, what, words[0], elf);
	}
	for (int i = 0; i < n && code == CLI_OK; i++) {
		code = read_object(c, what, words[i], &parts[i]);
	}
	if (code == CLI_OK) {
		code = link_objects(c, what, words, n, parts, elf);
	}
	for (int i = 0; i < n; i++) {
		buf_finish(&parts[i]);
	}
	return code;
}

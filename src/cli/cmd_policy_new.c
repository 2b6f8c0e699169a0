/* `gbpf policy new`: makes a folder with a policy that builds and a scenario that passes, or with a
 * tool that builds, and prints the next steps. The templates are installed files in which the
 * policy is called "mypolicy". */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/verbs.h"

#define PLACEHOLDER "mypolicy"
#define PROBE "probe" /* the template of a tool, which has no scenario */
#define TEMPLATE_MAX_BYTES (1u << 20)
#define NAME_MAX_LEN                                                                               \
	27 /* 32 bytes with the terminating zero and the suffix that the struct form adds */

enum { O_TEMPLATE };

static const struct cli_option options[] = {
	[O_TEMPLATE] = { "template", 't', "sched|mem|observe|full|probe",
			 "template (default sched)" },
	{ NULL, 0, NULL, NULL },
};

static const struct {
	const char *name, *does;
} templates[] = {
	{ "sched", "GPU time by weight" },
	{ "mem", "copies by budget" },
	{ "observe", "looks on and holds nothing" },
	{ "full", "every hook, as a struct of programs" },
	{ PROBE, "looks inside kernels" },
};

/* The name must be a C identifier. */
static int check_name(struct cli *c, const char *name)
{
	char hint[256], better[NAME_MAX_LEN + 1];
	size_t n = strlen(name);
	bool good = n && n <= NAME_MAX_LEN && !isdigit((unsigned char)name[0]);

	for (size_t i = 0; i < n; i++) {
		bool ok = isalnum((unsigned char)name[i]) || name[i] == '_';

		good = good && ok;
		if (i < NAME_MAX_LEN) {
			better[i] = ok ? name[i] : '_';
		}
	}
	better[MIN(n, (size_t)NAME_MAX_LEN)] = 0;
	if (good) {
		return CLI_OK;
	}
	snprintf(hint, sizeof(hint), "Letters, digits and _, at most %d, the first a letter%s%s%s",
		 NAME_MAX_LEN, n && !isdigit((unsigned char)name[0]) ? ", for example '" : "",
		 n && !isdigit((unsigned char)name[0]) ? better : "",
		 n && !isdigit((unsigned char)name[0]) ? "'" : "");
	return cli_fail(c, CLI_USAGE, "usage", hint,
			"policy new: '%.60s' is not a name for a policy", name);
}

static void replace_name(struct buf *out, const char *text, const char *name)
{
	const char *hit;

	while ((hit = strstr(text, PLACEHOLDER))) {
		buf_add(out, text, (size_t)(hit - text));
		buf_puts(out, name);
		text = hit + strlen(PLACEHOLDER);
	}
	buf_puts(out, text);
}

/* Writes dir/name<suffix> from the template; an existing file is not overwritten. */
static int write_file(struct cli *c, const char *template, const char *dir, const char *name,
		      const char *suffix)
{
	struct buf text = { 0 }, out = { 0 };
	char from[PATH_MAX], leaf[96], to[PATH_MAX];
	int err, fd = -1, code = CLI_OK;

	snprintf(leaf, sizeof(leaf), "templates/%s%s", template, suffix);
	snprintf(to, sizeof(to), "%s/%s%s", dir, name, suffix);
	err = path_lib(from, sizeof(from), leaf);
	err = err ? err : buf_read_file(&text, from, TEMPLATE_MAX_BYTES);
	if (err) {
		code = cli_fail(c, CLI_FAILED, "file",
				"Is gbpf installed? The templates belong to it",
				"policy new: template %s: %s", from, strerror(-err));
		goto out;
	}
	replace_name(&out, buf_text(&text), name);
	fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0 || write(fd, buf_text(&out), out.len) != (ssize_t)out.len) {
		code = cli_fail(c, CLI_FAILED, "file", NULL, "policy new: %s: %s", to,
				strerror(errno));
	}
out:
	if (fd >= 0) {
		close(fd);
	}
	buf_finish(&text);
	buf_finish(&out);
	return code;
}

static void print_next(const char *dir, const char *name, const char *template)
{
	const char *does = "";

	for (size_t i = 0; i < ARRAY_SIZE(templates); i++) {
		does = strcmp(templates[i].name, template) == 0 ? templates[i].does : does;
	}
	printf("wrote %s/%s.bpf.c (template %s: %s)", dir, name, template, does);
	if (strcmp(template, PROBE) == 0) {
		printf("\n\nNext:\n  cd %s\n  gbpf policy build\n"
		       "  gbpf probe attach %s.bpf.o --to NAME    # a program under gbpf run\n"
		       "  gbpf map dump --probe %s blocks\n",
		       dir, name, name);
	} else {
		printf(" and %s/%s.scenario\n\nNext:\n  cd %s\n  gbpf policy build\n"
		       "  gbpf policy test %s.bpf.o\n  gbpf policy swap %s.bpf.o\n",
		       dir, name, dir, name, name);
	}
}

static int print_json(struct cli *c, const char *dir, const char *name, const char *template)
{
	json_t *files = json_pack("[s+, s+]", name, ".bpf.c", name, ".scenario");

	if (strcmp(template, PROBE) == 0) {
		(void)json_array_remove(files, 1);
	}
	return cli_json(c, "policy.new",
			json_pack("{s:s, s:s, s:s, s:o}", "name", name, "folder", dir, "template",
				  template, "files", files));
}

static int cmd_policy_new(struct cli *c)
{
	const char *template = c->opt[O_TEMPLATE] ? c->opt[O_TEMPLATE] : "sched";
	size_t n = strlen(c->arg[0]);
	char dir[PATH_MAX];
	const char *slash, *name;
	int code;

	while (n > 1 && c->arg[0][n - 1] == '/') {
		n--; /* as a shell completes it */
	}
	snprintf(dir, sizeof(dir), "%.*s", (int)MIN(n, sizeof(dir)), c->arg[0]);
	slash = strrchr(dir, '/');
	name = slash ? slash + 1 : dir;
	code = check_name(c, name);
	if (code != CLI_OK) {
		return code;
	}
	if (mkdir(dir, 0777) < 0) {
		return cli_fail(c, CLI_FAILED, "file",
				errno == EEXIST	  ? "Take another name; nothing was changed"
				: errno == ENOENT ? "Make the folder that it is to lie in first"
						  : NULL,
				"policy new: %s: %s", dir,
				errno == EEXIST ? "exists already" : strerror(errno));
	}
	code = write_file(c, template, dir, name, ".bpf.c");
	if (code == CLI_OK && strcmp(template, PROBE) != 0) {
		code = write_file(c, template, dir, name, ".scenario");
	}
	if (code != CLI_OK) {
		rmdir(dir); /* succeeds only if it is empty */
		return code;
	}
	if (c->json) {
		return print_json(c, dir, name, template);
	}
	if (!c->quiet) {
		print_next(dir, name, template);
	}
	return CLI_OK;
}

const struct cli_verb verb_policy_new = {
	.name = "new",
	.args = "NAME",
	.doc = "write a policy template and its test",
	.page = "gbpf-policy.1",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = cmd_policy_new,
};

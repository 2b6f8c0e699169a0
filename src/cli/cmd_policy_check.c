/* `gbpf policy check`: the loader and the verifier on files, without a daemon. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/paths.h"
#include "bpf/load/policy.h"
#include "cli/hook_names.h"
#include "cli/hot_words.h"
#include "cli/policy_file.h"
#include "cli/verbs.h"

#define ONE_LINE 3 /* programs */

enum { O_EXPLAIN, O_SECTION, O_LINK };

static const struct cli_option options[] = {
	[O_EXPLAIN] = { "explain", 'e', NULL, "print the verifier's states along a refused path" },
	[O_SECTION] = { "section", 's', "HOOK", "check the program of this hook only" },
	[O_LINK] = { "link", 'l', NULL, "the files are one policy" },
	{ NULL, 0, NULL, NULL },
};

static int exit_of(int err)
{
	return err == 0 ? CLI_OK : err == -EACCES || err == -E2BIG ? CLI_REFUSED : CLI_FAILED;
}

static bool is_device(const struct ebpf_prog *p)
{
	return p->hook >= (int)EBPF_FIRST_DEVICE_HOOK;
}

/* Programs that each lane runs have a quarter of the hook's budget, as the verifier gives them. */
static int budget_of(const struct ebpf_prog *p, const struct cli_hook_info *h)
{
	return h ? (int)(p->lane ? h->budget / 4 : h->budget) : 0;
}

static json_t *program_json(const struct ebpf_prog *p, const struct ebpf_verify_stats *s)
{
	const struct cli_hook_info *h = cli_hook_by_id(p->hook);
	json_t *out =
		json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "hook", h ? h->name : "?",
			  "program", p->name, "insns", (int)p->n_insns, "cost", (int)s->cost,
			  "budget", budget_of(p, h), "visited", (int)s->visited, "effort",
			  (int)s->effort, "stack_bytes", (int)s->stack_bytes);

	if (is_device(p)) {
		json_object_set_new(out, "lane", json_boolean(p->lane));
		json_object_set_new(out, "kernel", cli_json_text(p->kernel));
		json_object_set_new(out, "site", cli_json_text(p->site));
	}
	return out;
}

/* The hook, or the section that names a program inside kernels. */
static void print_hook(const json_t *p, bool many)
{
	const char *hook = json_string_value(json_object_get(p, "hook"));
	const char *kernel = json_string_value(json_object_get(p, "kernel"));
	const char *site = json_string_value(json_object_get(p, "site"));
	char text[640];

	snprintf(text, sizeof(text), "%s", hook);
	if (kernel) {
		snprintf(text, sizeof(text), "gdev%s/%s%s%s%s%s",
			 json_is_true(json_object_get(p, "lane")) ? ".lane" : "",
			 hook + strlen("gdev_"), *site || strcmp(kernel, "*") != 0 ? "/" : "",
			 *site || strcmp(kernel, "*") != 0 ? kernel : "", *site ? "/" : "", site);
	}
	printf(many ? "  %-13s" : "%s", text);
}

/* Prints the result on one line, or a line for each program if there are more than ONE_LINE. */
static void print_accepted(struct cli *c, const char *file, json_t *programs, unsigned n_maps)
{
	size_t n = json_array_size(programs), i;
	bool many = n > ONE_LINE;
	json_t *p;

	if (c->quiet) {
		return;
	}
	printf("%s%s%s %s: ", cli_style(c->color_out, CLI_GREEN), CLI_SIGN_OK,
	       cli_style(c->color_out, CLI_PLAIN), file);
	if (many) {
		printf("%zu program%s, %u map%s\n", n, PLURAL(n), n_maps, PLURAL(n_maps));
	}
	json_array_foreach(programs, i, p)
	{
		print_hook(p, many);
		printf(many ? " %4d insns, worst path %6d of %d\n"
			    : " %d insns, worst path %d of %d; ",
		       (int)json_integer_value(json_object_get(p, "insns")),
		       (int)json_integer_value(json_object_get(p, "cost")),
		       (int)json_integer_value(json_object_get(p, "budget")));
	}
	if (!many) {
		printf("%u map%s\n", n_maps, n_maps == 1 ? "" : "s");
	}
}

/* Verifies every program and collects its output. *words: to which every warp adds; caller decrefs.
 * Returns 0, or -errno with r. */
static int check_whole(const struct buf *elf, const char *name, unsigned flags, json_t *programs,
		       json_t **words, unsigned *n_maps, uint64_t *verify_ns, struct report *r)
{
	struct ebpf_built b;
	int err = ebpf_policy_build(&b, elf->data, elf->len, name, 1, flags | EBPF_BUILD_NO_JIT, r);

	if (err) {
		return err;
	}
	for (uint32_t i = 0; i < b.object.n_progs; i++) {
		const struct ebpf_prog *p = &b.object.progs[i];

		json_array_append_new(programs, program_json(p, &b.stats[i]));
	}
	*words = cli_hot_words_json(&b.object);
	*n_maps = b.object.n_maps;
	*verify_ns = b.verify_ns;
	ebpf_built_finish(&b);
	return 0;
}

static int check_section(const struct buf *elf, const char *name, unsigned flags,
			 const struct cli_hook_info *hook, json_t *programs, unsigned *n_maps,
			 struct report *r)
{
	struct ebpf_verify_stats stats;
	struct ebpf_object o;
	bool found = false;
	int err = ebpf_object_open(&o, elf->data, elf->len, name, r);

	if (err) {
		return err;
	}
	for (uint32_t i = 0; i < o.n_progs && !err; i++) {
		if (o.progs[i].hook == hook->id) {
			found = true;
			err = ebpf_verify(&o.progs[i], o.maps, o.n_maps, flags, &stats, r);
			if (!err) {
				json_array_append_new(programs, program_json(&o.progs[i], &stats));
			}
		}
	}
	if (!err && !found) {
		if (hook->id >= (int)EBPF_FIRST_DEVICE_HOOK) {
			report_hint(r, "Programs name their hook: SEC(\"gdev/%s\")",
				    hook->name + strlen("gdev_"));
		} else {
			report_hint(r, "Programs name their hook: SEC(\"gbpf/%s\")", hook->name);
		}
		err = report_set(r, -EINVAL, "section", "it has no program for the hook '%s'",
				 hook->name);
	}
	*n_maps = o.n_maps;
	ebpf_object_finish(&o);
	return err;
}

static bool is_source(const char *file)
{
	size_t len = strlen(file);

	return len > 2 && strcmp(file + len - 2, ".c") == 0;
}

static void file_hint(struct report *r, const char *file, int err)
{
	if (err == -EFBIG) {
		report_hint(r, "objects have at most %u MiB", CLI_OBJECT_MAX_BYTES >> 20);
	} else if (err == -ENOENT && path_policy_is_example(file)) {
		report_hint(r, "It is an example: examples/%.80s", file);
	} else if (err == -EISDIR) {
		report_hint(r, "what a folder has is built and checked by: gbpf policy build %.80s",
			    file);
	}
}

/* Checks one object that was read or linked already (err 0), as a line or as a member of files. */
static int check_object(struct cli *c, const char *file, const struct buf *elf, int err,
			unsigned flags, const struct cli_hook_info *hook, json_t *files)
{
	json_t *programs = json_array(), *words = NULL;
	uint64_t verify_ns = 0;
	unsigned n_maps = 0;
	struct report r;

	report_init(&r);
	if (err) {
		file_hint(&r, file, err);
		report_set(&r, err, "file", "cannot be read: %s", strerror(-err));
		err = -EIO; /* EACCES means that the file is unreadable, not that the policy is
			       unsafe */
	} else if (is_source(file)) {
		report_hint(&r, "Build it first: gbpf policy build %.80s", file);
		err = report_set(&r, -EINVAL, "file", "this is a source file, not an object");
	} else if (hook) {
		err = check_section(elf, cli_base_name(file), flags, hook, programs, &n_maps, &r);
	} else {
		err = check_whole(elf, cli_base_name(file), flags, programs, &words, &n_maps,
				  &verify_ns, &r);
	}
	if (err && !r.message.len) {
		report_set(&r, err, "failed", "%s", strerror(-err));
	}
	if (files) {
		json_array_append_new(
			files,
			err ? json_pack("{s:o, s:b, s:o}", "file", cli_json_text(file), "ok", 0,
					"error", cli_report_json(&r))
			    : json_pack("{s:o, s:b, s:O, s:i, s:I, s:o}", "file",
					cli_json_text(file), "ok", 1, "programs", programs, "maps",
					(int)n_maps, "verify_ns", (json_int_t)verify_ns,
					"hot_words", words ? json_incref(words) : json_array()));
	} else if (err) {
		cli_print_report(c, stdout, file, &r);
	} else {
		print_accepted(c, file, programs, n_maps);
		fflush(stdout); /* its warnings follow on a terminal */
		cli_hot_words_note(c, file, words);
	}
	json_decref(words);
	json_decref(programs);
	report_finish(&r);
	return exit_of(err);
}

static int worse(int a, int b)
{
	return a == CLI_FAILED || b == CLI_FAILED ? CLI_FAILED : MAX(a, b);
}

static int check_each(struct cli *c, char *const *names, int n, unsigned flags,
		      const struct cli_hook_info *hook, json_t *files)
{
	int worst = CLI_OK;

	for (int i = 0; i < n; i++) {
		struct buf elf = { 0 };
		char path[PATH_MAX];
		int err = buf_read_file(&elf, cli_policy_path(names[i], path, sizeof(path)),
					CLI_OBJECT_MAX_BYTES);

		worst = worse(worst, check_object(c, names[i], &elf, err, flags, hook, files));
		buf_finish(&elf);
	}
	return worst;
}

static int check_linked(struct cli *c, char *const *names, int n, unsigned flags,
			const struct cli_hook_info *hook, json_t *files, bool *told)
{
	struct buf elf = { 0 };
	char name[64];
	char verb[64];
	int code = cli_object_read(c, CLI_POLICY, cli_verb_name(c, verb, sizeof(verb)), names, n,
				   &elf, name);

	*told = code != CLI_OK; /* the message or document was printed */
	if (code == CLI_OK) {
		code = check_object(c, name, &elf, 0, flags, hook, files);
	}
	buf_finish(&elf);
	return code;
}

static int check(struct cli *c, const char *schema, char *const *names, int n, unsigned flags,
		 const struct cli_hook_info *hook, bool linked)
{
	json_t *list = c->json ? json_array() : NULL;
	bool told = false;
	int worst = linked ? check_linked(c, names, n, flags, hook, list, &told)
			   : check_each(c, names, n, flags, hook, list);

	if (list && !told) {
		cli_json(c, schema, json_pack("{s:o}", "files", list));
	} else {
		json_decref(list);
	}
	return worst;
}

int cli_policy_check(struct cli *c, const char *schema, char *const *files, int n, bool explain,
		     bool linked)
{
	return check(c, schema, files, n, explain ? EBPF_VERIFY_EXPLAIN : 0, NULL, linked);
}

static int unknown_hook(struct cli *c)
{
	struct buf hint = { 0 };
	struct nearest n;
	int code;

	nearest_init(&n, c->opt[O_SECTION]);
	buf_puts(&hint, "Hooks:");
	for (const struct cli_hook_info *h = hook_table; h->name; h++) {
		nearest_offer(&n, h->name);
		buf_printf(&hint, " %s", h->name);
	}
	if (nearest_best(&n)) {
		buf_clear(&hint);
		buf_printf(&hint, "Did you mean '%s'?", nearest_best(&n));
	}
	code = cli_fail(c, CLI_USAGE, "usage", buf_text(&hint),
			"policy check: --section: unknown hook '%s'", c->opt[O_SECTION]);
	buf_finish(&hint);
	return code;
}

static int cmd_policy_check(struct cli *c)
{
	const struct cli_hook_info *hook = NULL;

	if (c->opt[O_SECTION]) {
		hook = cli_hook_by_name(c->opt[O_SECTION]);
		if (!hook) {
			return unknown_hook(c);
		}
	}
	return check(c, "policy.check", c->arg, c->n_args,
		     c->opt[O_EXPLAIN] ? EBPF_VERIFY_EXPLAIN : 0, hook, c->opt[O_LINK] != NULL);
}

const struct cli_verb verb_policy_check = {
	.name = "check",
	.args = "OBJECT...",
	.doc = "verify policies without loading them: 0 accepted, 4 refused, 1 unusable",
	.page = "gbpf-policy.1",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.run = cmd_policy_check,
};

/* `gbpf probe rewrite`: the probed form of a kernel, from files, without gbpfd and without a GPU.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shm.h"
#include "base/pattern.h"
#include "bpf/load/policy.h"
#include "cli/policy_file.h"
#include "cli/verbs.h"
#include "ptx/prepare.h"
#include "ptx/probe_bracket.h"
#include "ptx/probe_shared.h"

#define WHAT "probe rewrite"
#define NAMES_MAX 6 /* kernels that a message names */

enum { O_KERNEL, O_PROBES, O_EXPLAIN };

static const struct cli_option options[] = {
	[O_KERNEL] = { "kernel", 'k', "NAME", "kernel to rewrite (default: the only one)" },
	[O_PROBES] = { "probes", 0, NULL, "take the file as 'gbpf run --probes' loads it" },
	[O_EXPLAIN] = { "explain", 'e', NULL, "programs, sites and variables instead of PTX" },
	{ NULL, 0, NULL, NULL },
};

struct work {
	struct cli *c;
	struct report r;
	struct buf text, elf;
	struct ptx_module *m;		  /* owned */
	const struct ebpf_policy *policy; /* borrowed */
	const char *kernel;
	struct ptx_probe probes[PTX_PROBES_MAX];
	const struct ebpf_image_device *device[PTX_PROBES_MAX]; /* of each */
	char *program[PTX_PROBES_MAX];				/* owned texts */
	uint32_t n;
	uint32_t scratch_bytes, scratch_at[EBPF_MAX_MAPS]; /* as of struct ptx_probe */
	struct ptx_probed form;
};

static int exit_of(int err)
{
	return err == -ENOTSUP || err == -EACCES || err == -E2BIG ? CLI_REFUSED
	       : err == -ENOENT					  ? CLI_NOT_FOUND
								  : CLI_FAILED;
}

/* ---- the kernel ---- */

static int read_module(struct work *w, const char *path)
{
	int err = buf_read_file(&w->text, path, PTX_TEXT_MAX);

	if (err < 0) {
		report_place(&w->r, "%s", path);
		return report_set(&w->r, err, "file", "cannot read it: %s", strerror(-err));
	}
	err = ptx_module_parse(&w->m, buf_text(&w->text), w->text.len, cli_base_name(path), &w->r);
	if (err == 0 && w->c->opt[O_PROBES] && ptx_prepare(w->m, 0) < 0) {
		err = report_set(&w->r, -ENOMEM, "memory", "out of memory");
	}
	return err;
}

static bool is_kernel(const struct ptx_item *it, const char *wanted)
{
	const struct ptx_function *f = (const struct ptx_function *)it;

	return it->kind == PTX_FUNCTION && f->is_entry && f->has_body &&
	       (!wanted || strcmp(wanted, f->name) == 0);
}

/* Sets the report's hint to the names of the first kernels. */
static void list_kernels(struct work *w)
{
	struct buf names;
	unsigned n = 0;

	buf_init(&names);
	ptx_each (&w->m->items, it) {
		if (is_kernel(it, NULL) && n++ < NAMES_MAX) {
			(void)buf_printf(&names, "%s%s", n > 1 ? ", " : "",
					 ((const struct ptx_function *)it)->name);
		}
	}
	if (n) {
		report_hint(&w->r, "choose one with --kernel: %s%s", buf_text(&names),
			    n > NAMES_MAX ? ", ..." : "");
	}
	buf_finish(&names);
}

static int choose_kernel(struct work *w)
{
	const char *wanted = w->c->opt[O_KERNEL];
	unsigned n = 0;

	ptx_each (&w->m->items, it) {
		if (is_kernel(it, wanted)) {
			w->kernel = ((const struct ptx_function *)it)->name;
			n++;
		}
	}
	if (n == 1) {
		return 0;
	}
	report_place(&w->r, "%s", w->m->name);
	list_kernels(w);
	if (n) {
		return report_set(&w->r, -EINVAL, "kernel", "the file has %u kernels", n);
	}
	return wanted ? report_set(&w->r, -ENOENT, "kernel", "no kernel is named %s", wanted)
		      : report_set(&w->r, -ENOENT, "kernel", "the file has no kernel");
}

/* ---- programs ---- */

static int add_program(struct work *w, const struct ebpf_image_device *d)
{
	char *text = strndup(w->policy->device_text + d->text_offset, d->text_bytes);

	if (!text) {
		return -ENOMEM;
	}
	w->program[w->n] = text;
	w->device[w->n] = d;
	w->probes[w->n++] = (struct ptx_probe){ .hook = d->hook,
						.lanes = d->lane,
						.fields = d->fields,
						.sites = d->site,
						.name = d->prefix,
						.text = text,
						.branches = PTX_PROBE_EITHER,
						.maps_in_table = true,
						.scratch_at = w->scratch_at,
						.scratch_bytes = w->scratch_bytes };
	return 0;
}

static bool is_for(const struct work *w, const struct ebpf_image_device *d)
{
	return pattern_matches(d->kernel, w->kernel);
}

/* Programs that run before or behind the launch are no part of the form. */
static int add_programs(struct work *w)
{
	bool around = false;
	int err = 0;

	for (uint32_t i = 0; i < w->policy->n_devices && w->n < PTX_PROBES_MAX && !err; i++) {
		const struct ebpf_image_device *d = &w->policy->devices[i];

		if (is_for(w, d) && ptx_probe_is_bracket(d->hook)) {
			around = true;
		} else if (is_for(w, d)) {
			err = add_program(w, d);
		}
	}
	if (!err && !w->n && around) {
		err = report_set(&w->r, -ENOENT, "program",
				 "the programs for %s run before and behind its launches, which "
				 "leave it as it is",
				 w->kernel);
	} else if (!err && !w->n) {
		report_hint(&w->r, "sections of programs inside kernels are "
				   "gdev/HOOK[/KERNEL[/SITE]]");
		err = report_set(&w->r, -ENOENT, "program", "no program of the object is for %s",
				 w->kernel);
	}
	return err;
}

/* ---- output ---- */

static json_t *programs_json(const struct work *w)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < w->n; i++) {
		const struct ebpf_image_device *d = w->device[i];

		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:b, s:i, s:i}", "program", d->name,
						"site", d->site, "lane", d->lane != 0, "sites",
						(int)w->form.sites[i], "cost", (int)d->cost));
	}
	return list;
}

static json_t *variables_json(const struct work *w)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < w->form.n_variables; i++) {
		json_array_append_new(list, json_string(w->form.variables[i]));
	}
	return list;
}

static int print_json(const struct work *w)
{
	return cli_json(w->c, "probe.rewrite",
			json_pack("{s:s, s:o, s:i, s:i, s:o, s:b, s:i, s:i, s:s}", "kernel",
				  w->kernel, "programs", programs_json(w), "unseen",
				  (int)w->form.unseen, "unknown", (int)w->form.unknown, "variables",
				  variables_json(w), "version_raised", w->form.version_raised,
				  "shared_bytes",
				  w->form.needs_shared ? (int)ptx_probe_smem(0, 0, 0) : 0,
				  "warp_shared_bytes", (int)w->form.warp_bytes, "ptx",
				  buf_text(&w->form.text)));
}

static void explain(const struct work *w)
{
	printf("kernel %s\n", w->kernel);
	for (uint32_t i = 0; i < w->n; i++) {
		const struct ebpf_image_device *d = w->device[i];

		printf("program %s%s: %u site%s, cost %u each, %llu in all\n", d->name,
		       d->lane ? " (each lane)" : "", w->form.sites[i], PLURAL(w->form.sites[i]),
		       d->cost, (unsigned long long)d->cost * w->form.sites[i]);
	}
	for (uint32_t i = 0; i < w->policy->n_devices; i++) {
		const struct ebpf_image_device *d = &w->policy->devices[i];

		if (is_for(w, d) && ptx_probe_is_bracket(d->hook)) {
			printf("program %s: before or behind each launch, cost %u\n", d->name,
			       d->cost);
		}
	}
	for (uint32_t i = 0; i < w->form.n_variables; i++) {
		printf("variable %s: by address, entry %u of the table\n", w->form.variables[i],
		       w->n + i);
	}
	if (w->form.needs_shared) {
		printf("shared memory: %u bytes more, to count the threads of a block\n",
		       ptx_probe_smem(0, 0, 0));
	}
	if (w->form.warp_bytes) {
		printf("shared memory: %u bytes more for each warp\n", w->form.warp_bytes);
	}
	if (w->form.number.passed) {
		printf("number of the launch: a parameter of 8 bytes at offset %u\n",
		       w->form.number.offset);
	}
	if (w->form.version_raised) {
		printf(".version is raised to 6.2\n");
	}
}

/* States what the programs of the form miss. */
static void note_gaps(const struct work *w)
{
	const struct ptx_probed *f = &w->form;

	for (uint32_t i = 0; i < w->n; i++) {
		if (!f->sites[i]) {
			cli_note(w->c, "%s: program %s has no site in it", w->kernel,
				 w->device[i]->name);
		}
	}
	if (f->unseen) {
		cli_note(w->c,
			 "%s:%u: unseen: %u instruction%s may access memory and are no sites of "
			 "access; this is the first",
			 w->m->name, f->unseen_line, f->unseen, PLURAL(f->unseen));
	}
	if (f->unknown) {
		cli_note(w->c,
			 "%s:%u: not known: %u instruction%s, at which no program runs; this is "
			 "the first",
			 w->m->name, f->unknown_line, f->unknown, PLURAL(f->unknown));
	}
}

static int print_form(const struct work *w)
{
	note_gaps(w);
	if (w->c->json) {
		return print_json(w);
	}
	if (w->c->opt[O_EXPLAIN]) {
		explain(w);
	} else {
		fwrite(w->form.text.data, 1, w->form.text.len, stdout);
	}
	return CLI_OK;
}

/* ---- the verb ---- */

static int rewrite(struct work *w, const char *path)
{
	int err = read_module(w, path);

	err = err ? err : choose_kernel(w);
	err = err ? err : add_programs(w);
	err = err ? err : ptx_shared_merge(w->m, w->kernel, NULL, &w->r);
	return err ? err : ptx_probe_rewrite(w->m, w->kernel, w->probes, w->n, &w->form, &w->r);
}

/* Opens what was built; its programs need maps to open, although nothing runs here. */
static int open_policy(const struct ebpf_built *b, struct ebpf_policy *ret)
{
	int fds[EBPF_REGIONS], err = 0;

	for (int r = 0; r < EBPF_REGIONS; r++) {
		bool made = r != EBPF_REGION_DAEMON && b->region_bytes[r];

		fds[r] = made ? shm_create("gbpf-rewrite", b->region_bytes[r], SHM_NOEXEC) : -1;
		err = made && fds[r] < 0 ? fds[r] : err;
	}
	err = err ? err : ebpf_policy_open(ret, b->image_fd, fds, EBPF_OPEN_NO_JIT);
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (fds[r] >= 0) {
			close(fds[r]);
		}
	}
	return err;
}

static int run_with(struct work *w, const char *path, const char *name)
{
	struct ebpf_policy policy;
	struct ebpf_built built;
	int err = ebpf_policy_build(&built, w->elf.data, w->elf.len, name, 1, EBPF_BUILD_NO_JIT,
				    &w->r);

	if (err) {
		return cli_fail_report(w->c, exit_of(err), WHAT, &w->r);
	}
	err = open_policy(&built, &policy);
	if (err == 0) {
		w->policy = &policy;
		w->scratch_bytes =
			ebpf_maps_scratch(policy.env.maps, policy.env.n_maps, w->scratch_at);
		err = rewrite(w, path);
		err = err ? cli_fail_report(w->c, exit_of(err), WHAT, &w->r) : print_form(w);
		ebpf_policy_close(&policy);
	} else {
		report_set(&w->r, err, "image", "cannot open what was built: %s", strerror(-err));
		err = cli_fail_report(w->c, CLI_FAILED, WHAT, &w->r);
	}
	ebpf_built_finish(&built);
	return err;
}

static int cmd_rewrite(struct cli *c)
{
	struct work *w = calloc(1, sizeof(*w));
	char name[64];
	int code;

	if (!w) {
		return cli_fail(c, CLI_FAILED, "memory", NULL, WHAT ": out of memory");
	}
	w->c = c;
	report_init(&w->r);
	buf_init(&w->text);
	buf_init(&w->elf);
	code = cli_object_read(c, CLI_TOOL, WHAT, c->arg + 1, c->n_args - 1, &w->elf, name);
	if (code == CLI_OK) {
		code = run_with(w, c->arg[0], name);
	}
	for (uint32_t i = 0; i < w->n; i++) {
		free(w->program[i]);
	}
	ptx_probed_finish(&w->form);
	ptx_module_free(w->m);
	buf_finish(&w->text);
	buf_finish(&w->elf);
	report_finish(&w->r);
	free(w);
	return code;
}

const struct cli_verb verb_probe_rewrite = {
	.name = "rewrite",
	.args = "FILE.ptx TOOL|OBJECT...",
	.doc = "print a kernel's PTX with the programs of a tool",
	.page = "gbpf-probe.1",
	.options = options,
	.min_args = 2,
	.max_args = -1,
	.run = cmd_rewrite
};

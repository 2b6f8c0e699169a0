/* `gbpf probe`: tools, programs inside kernels: attach, swap, detach and list them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/connect.h"
#include "cli/hot_words.h"
#include "cli/interrupt.h"
#include "cli/policy_file.h"
#include "cli/probe_options.h"
#include "cli/verbs.h"

#define POLL_NS 20000000	    /* --wait */
#define BUDGET_PPM 50000u	    /* of attach, unless another one is given */
#define ASK_NS UINT64_C(1000000000) /* between two looks for patterns that match nothing */

enum { O_TO, O_KERNEL, O_WAIT, O_BUDGET, O_SAMPLE, O_PARTIAL, O_VERIFY };

static const struct cli_option attach_options[] = {
	[O_TO] = { "to", 0, "PID|NAME",
		   "process or tenant number, or name of programs (default: all)" },
	[O_KERNEL] = { "kernel", 'k', "PATTERN",
		       "kernels by name, such as 'gemm*' (default: all)" },
	[O_WAIT] = { "wait", 'w', NULL, "until at least one kernel runs it" },
	[O_BUDGET] = { "budget", 'b', "PERCENT|none",
		       "of the kernels' time; if it costs more, only some launches run it "
		       "(attach: default 5 %)" },
	[O_SAMPLE] = { "sample", 's', "1/N", "one block in N runs it; `probe set` changes that" },
	[O_PARTIAL] = { "partial", 0, NULL,
			"also in kernels that can run only some of its programs" },
	[O_VERIFY] = { "verify", 0, NULL,
		       "compare first launches with the kernels themselves; waits for one" },
	{ NULL, 0, NULL, NULL },
};

enum { O_ALL };

static const struct cli_option detach_options[] = {
	[O_ALL] = { "all", 'a', NULL, "all tools that you may detach" },
	{ NULL, 0, NULL, NULL },
};

/* ---- attach, swap ---- */

/* Returns the number of programs that have not answered yet. */
static json_int_t count_late(const json_t *tool)
{
	const json_t *tenant;
	json_int_t n = 0;
	size_t i;

	json_array_foreach(json_object_get(tool, "tenants"), i, tenant)
	{
		n += !json_is_true(json_object_get(tenant, "answered"));
	}
	return n;
}

/* Takes how many kernels run it now, and how many programs are late, from the list into the result
 * of the attachment. Returns true if it is in the list. */
static bool take_state(json_t *result, const json_t *list)
{
	static const char *const members[] = { "kernels", "in_part", "waiting",	 "refused",
					       "why",	  "unseen",  "siteless", "verify" };
	const json_t *p = cli_tool_in(list, cli_u64(result, "id"));

	for (size_t i = 0; p && i < ARRAY_SIZE(members); i++) {
		json_object_set(result, members[i], json_object_get(p, members[i]));
	}
	if (p) {
		json_object_set_new(result, "late", json_integer(count_late(p)));
	}
	return p != NULL;
}

/* Returns how many kernels have been compared, or cannot be. */
static uint64_t count_compared(const json_t *result)
{
	const json_t *v = json_object_get(result, "verify");

	return cli_u64(v, "equal") + cli_u64(v, "differing") + cli_u64(v, "not_compared");
}

static bool is_ready(const struct cli *c, const json_t *result)
{
	return cli_u64(result, "kernels") && (!c->opt[O_VERIFY] || count_compared(result));
}

/* Looks at the tool as it is now. Returns whether the user knows of patterns that match nothing. */
static bool note_unmatched(struct cli *c, struct gbpf *g, const json_t *result)
{
	char *json = NULL;
	int rc = gbpf_probe_list(g, &json);
	json_t *list = cli_answer(rc, json);
	const json_t *tool = cli_tool_in(list, cli_u64(result, "id"));
	bool noted = tool && cli_probe_note_unmatched(c, g, tool);

	json_decref(list);
	return noted;
}

/* --timeout has passed. The tool stays: it may be wanted in a kernel that comes later. */
static int fail_late(struct cli *c, const char *what, const json_t *result)
{
	const char *why = cli_text(result, "why");
	char hint[64];

	snprintf(hint, sizeof(hint), "`gbpf probe detach %llu` detaches it",
		 (unsigned long long)cli_u64(result, "id"));
	return cli_fail(c, CLI_TIMEOUT, "timeout", hint,
			"%s: no kernel has run tool %llu within %.3g s%s%s%s; it stays attached",
			what, (unsigned long long)cli_u64(result, "id"),
			(double)c->timeout_ns / 1e9, why[0] ? " (" : "", why, why[0] ? ")" : "");
}

/* *ret_noted: as note_unmatched(). */
static int await_kernel(struct cli *c, struct gbpf *g, const char *what, json_t *result,
			bool *ret_noted)
{
	static const struct timespec pause = { .tv_nsec = POLL_NS };
	uint64_t begin = clock_now_ns(), asked = begin;
	bool told = false;
	int code = CLI_OK;

	cli_interrupt_catch(NULL);
	while (code == CLI_OK && !is_ready(c, result) && !cli_interrupted()) {
		json_t *list = NULL;
		char *json = NULL;
		int rc;

		bool late = c->global[CLI_TIMEOUT_OPT] && clock_now_ns() - begin >= c->timeout_ns;

		if (!*ret_noted && (late || clock_now_ns() - asked >= ASK_NS)) {
			*ret_noted = note_unmatched(c, g, result);
			asked = clock_now_ns();
		}
		if (late) {
			return fail_late(c, what, result);
		}
		nanosleep(&pause, NULL);
		rc = gbpf_probe_list(g, &json);
		code = cli_result(c, g, what, rc, json, &list);
		if (code == CLI_OK && !take_state(result, list)) {
			code = cli_fail(c, CLI_NOT_FOUND, "not-found", "`gbpf events` tells why",
					"%s: the tool was detached before a kernel ran it", what);
		}
		if (!told && cli_u64(result, "refused") && !cli_u64(result, "kernels")) {
			told = true;
			cli_note(c, "Refused so far: %s", cli_text(result, "why"));
		}
		json_decref(list);
	}
	return code;
}

static void print_compared(const json_t *v)
{
	if (!json_is_object(v)) {
		return;
	}
	printf("compared with the kernels themselves: %llu equal, %llu differing, %llu not "
	       "compared",
	       (unsigned long long)cli_u64(v, "equal"), (unsigned long long)cli_u64(v, "differing"),
	       (unsigned long long)cli_u64(v, "not_compared"));
	if (cli_text(v, "why")[0]) {
		fputs(": ", stdout);
		cli_put_safe(stdout, cli_text(v, "why"));
	}
	putchar('\n');
}

/* Its programs of access miss what these instructions access. */
static void note_unseen(struct cli *c, const json_t *p)
{
	uint64_t n = cli_u64(p, "unseen");

	if (n) {
		cli_note(c,
			 "tool %llu: %llu instruction%s of its kernels access memory unseen "
			 "(textures, surfaces, operands of wgmma and tcgen05)",
			 (unsigned long long)cli_u64(p, "id"), (unsigned long long)n, PLURAL(n));
	}
}

static void print_attached(struct cli *c, const char *verb, const json_t *r)
{
	uint64_t kernels = cli_u64(r, "kernels"), waiting = cli_u64(r, "waiting"),
		 refused = cli_u64(r, "refused"), late = cli_u64(r, "late");

	if (c->quiet) {
		return;
	}
	printf("%s ", verb);
	cli_put_safe(stdout, cli_text(r, "name"));
	printf(" as tool %llu: %llu kernel%s of %llu program%s",
	       (unsigned long long)cli_u64(r, "id"), (unsigned long long)kernels, PLURAL(kernels),
	       (unsigned long long)cli_u64(r, "sessions"), PLURAL(cli_u64(r, "sessions")));
	if (cli_u64(r, "in_part")) {
		printf(", %llu in part (", (unsigned long long)cli_u64(r, "in_part"));
		cli_put_safe(stdout, cli_text(r, "why"));
		putchar(')');
	}
	if (waiting) {
		printf(", %llu waiting", (unsigned long long)waiting);
	}
	if (refused) {
		printf(", %llu refused (", (unsigned long long)refused);
		cli_put_safe(stdout, cli_text(r, "why"));
		putchar(')');
	}
	if (late) {
		printf(", %llu program%s will follow", (unsigned long long)late, PLURAL(late));
	}
	putchar('\n');
	print_compared(json_object_get(r, "verify"));
	if (json_is_false(json_object_get(r, "stored"))) {
		cli_note(c, "It will not survive a restart of gbpfd: it could not be stored (`gbpf "
			    "events`).");
	}
	note_unseen(c, r);
	cli_probe_note_gaps(c, r);
}

/* Reads the objects that the words from `first` on name, and attaches them. p: without the name. */
static int attach(struct cli *c, const char *what, const char *verb, int first,
		  struct gbpf_probe *p)
{
	struct buf elf = { 0 };
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	char name[64], schema[24];
	bool noted = false;
	int code;

	code = cli_object_read(c, CLI_TOOL, what, c->arg + first, c->n_args - first, &elf, name);
	if (code == CLI_OK) {
		cli_hot_words_check(c, name, &elf);
		code = cli_open(c, &g);
	}
	if (code == CLI_OK) {
		int rc;

		p->size = sizeof(*p);
		p->name = name;
		rc = gbpf_probe_attach(g, elf.data, elf.len, p, &json);
		code = cli_result(c, g, what, rc, json, &result);
	}
	buf_finish(&elf);
	if (code == CLI_OK && (c->opt[O_WAIT] || c->opt[O_VERIFY])) {
		code = await_kernel(c, g, what, result, &noted);
	}
	if (code == CLI_OK && !noted) {
		(void)note_unmatched(c, g, result);
	}
	gbpf_close(g);
	if (code != CLI_OK) {
		json_decref(result);
		return code;
	}
	if (c->json) {
		snprintf(schema, sizeof(schema), "probe.%s", c->verb->name);
		return cli_json(c, schema, result);
	}
	print_attached(c, verb, result);
	json_decref(result);
	return CLI_OK;
}

static int take_limits(struct cli *c, struct gbpf_probe *p)
{
	int code = cli_probe_budget(c, c->opt[O_BUDGET], &p->budget_ppm);

	p->flags |= (c->opt[O_PARTIAL] ? GBPF_PROBE_PARTIAL : 0) |
		    (c->opt[O_VERIFY] ? GBPF_PROBE_VERIFY : 0);
	return code ? code : cli_probe_sample(c, c->opt[O_SAMPLE], &p->every);
}

static int cmd_attach(struct cli *c)
{
	struct gbpf_probe p = { .to = c->opt[O_TO], .kernel = c->opt[O_KERNEL] };

	if (take_limits(c, &p)) {
		return CLI_USAGE;
	}
	p.budget_ppm = p.budget_ppm ? p.budget_ppm : BUDGET_PPM;
	return attach(c, "probe attach", "attached", 0, &p);
}

static int cmd_swap(struct cli *c)
{
	struct gbpf_probe p = { .to = c->opt[O_TO], .kernel = c->opt[O_KERNEL] };
	uint64_t id = 0;
	int code = take_limits(c, &p);

	code = code ? code : cli_probe_id(c, "probe swap", c->arg[0], &id);
	if (code) {
		return code;
	}
	p.replace = (uint32_t)id;
	return attach(c, "probe swap", "swapped", 1, &p);
}

/* ---- detach ---- */

static int detach_one(struct cli *c, struct gbpf *g, uint64_t id, json_t *done)
{
	json_t *result = NULL;
	char *json = NULL;
	int rc = gbpf_probe_detach(g, (uint32_t)id, &json);
	int code = cli_result(c, g, "probe detach", rc, json, &result);

	if (code != CLI_OK) {
		return code;
	}
	if (!c->json && !c->quiet) {
		uint64_t late = cli_u64(result, "late");

		printf("detached tool %llu (", (unsigned long long)id);
		cli_put_safe(stdout, cli_text(result, "name"));
		putchar(')');
		if (late) {
			printf("; %llu program%s still run%s it", (unsigned long long)late,
			       PLURAL(late), late == 1 ? "s" : "");
		}
		putchar('\n');
	}
	json_array_append_new(done, result);
	return CLI_OK;
}

/* Detaches all tools of the list that the user may detach, or fails with the last error. */
static int detach_all(struct cli *c, struct gbpf *g, json_t *done)
{
	json_t *list = NULL, *p;
	char *json = NULL;
	size_t i;
	int rc = gbpf_probe_list(g, &json);
	int code = cli_result(c, g, "probe detach", rc, json, &list);

	json_array_foreach(json_object_get(list, "probes"), i, p)
	{
		if (json_is_true(json_object_get(p, "may_detach")) && code == CLI_OK) {
			code = detach_one(c, g, cli_u64(p, "id"), done);
			/* It may have ended since. */
			code = code == CLI_NOT_FOUND ? CLI_OK : code;
		}
	}
	json_decref(list);
	if (code == CLI_OK && !c->json && !json_array_size(done)) {
		cli_note(c, "There are no tools of yours.");
	}
	return code;
}

static int cmd_detach(struct cli *c)
{
	json_t *done = json_array();
	struct gbpf *g = NULL;
	uint64_t id = 0;
	int code = CLI_OK;

	if (!c->opt[O_ALL] == !c->n_args) {
		json_decref(done);
		return cli_fail(c, CLI_USAGE, "usage", "`gbpf probe ls` lists them",
				"probe detach: name one tool, or use --all");
	}
	if (c->n_args) {
		code = cli_probe_id(c, "probe detach", c->arg[0], &id);
	}
	code = code ? code : cli_open(c, &g);
	if (code == CLI_OK) {
		code = id ? detach_one(c, g, id, done) : detach_all(c, g, done);
	}
	gbpf_close(g);
	if (code == CLI_OK && c->json) {
		return cli_json(c, "probe.detach", json_pack("{s:o}", "detached", done));
	}
	json_decref(done);
	return code;
}

/* ---- ls ---- */

/* Of the time of its kernels' launches; the share of them that a budget leaves. */
static void add_figures(struct cli_table *t, const json_t *p)
{
	const json_t *cost = json_object_get(p, "cost_ppm");
	uint64_t budget = cli_u64(p, "budget_ppm");
	uint64_t launches = cli_u64(p, "launches"), before = cli_u64(p, "resident_before");

	if (json_is_integer(cost)) {
		cli_table_cell(t, "%.1f%%", (double)json_integer_value(cost) / 10000);
	} else {
		cli_table_cell(t, "-");
	}
	if (budget) {
		cli_table_cell(t, "%g%%", (double)budget / 10000);
	} else {
		cli_table_cell(t, "none");
	}
	if (launches && budget) {
		cli_table_cell(t, "%.1f%%",
			       100.0 * (double)cli_u64(p, "probed") / (double)launches);
	} else {
		cli_table_cell(t, budget ? "-" : "all");
	}
	if (before) {
		cli_table_cell(t, "%llu of %llu", (unsigned long long)cli_u64(p, "resident_after"),
			       (unsigned long long)before);
	} else {
		cli_table_cell(t, "-");
	}
}

static void add_state(struct cli_table *t, const json_t *p)
{
	const char *state = cli_text(p, "state");
	uint64_t every = cli_u64(p, "every");

	if (json_is_true(json_object_get(p, "off"))) {
		cli_table_cell(t, "%s, off", state);
	} else if (every > 1) {
		cli_table_cell(t, "%s, 1/%llu", state, (unsigned long long)every);
	} else {
		cli_table_cell(t, "%s", state);
	}
}

/* What runs in the kernels: "ptx 3, brackets 1"; "-" if none runs the tool. */
static void put_forms(struct cli_table *t, const json_t *p)
{
	static const char *const names[] = { "ptx", "stub", "brackets" };
	const json_t *forms = json_object_get(p, "forms");
	char text[96] = "";
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names) && len < sizeof(text); i++) {
		uint64_t n = cli_u64(forms, names[i]);

		if (n) {
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %llu",
						len ? ", " : "", names[i], (unsigned long long)n);
		}
	}
	if (cli_u64(p, "in_part") && len < sizeof(text)) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "; %llu in part",
					(unsigned long long)cli_u64(p, "in_part"));
	}
	cli_table_cell(t, "%s", len ? text : "-");
}

static void add_row(struct cli_table *t, const json_t *p)
{
	const char *to = cli_text(p, "to");
	char age[24];

	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(p, "id"));
	cli_table_cell(t, "%s", cli_text(p, "name"));
	add_state(t, p);
	cli_table_cell(t, "%s", to[0] ? to : "all");
	cli_table_cell(t, "%s", cli_text(p, "kernel"));
	cli_table_cell(t, "%s", cli_duration(age, cli_u64(p, "age_ns")));
	cli_table_cell(t, "%zu", json_array_size(json_object_get(p, "tenants")));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(p, "kernels"));
	put_forms(t, p);
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(p, "waiting"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(p, "refused"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(p, "falls_back"));
	add_figures(t, p);
	cli_table_cell(t, "%s", cli_text(p, "why"));
}

static void print_list(const struct cli *c, const json_t *list)
{
	static const struct {
		const char *name;
		bool right;
	} heads[] = { { "ID", true },	    { "NAME", false },	  { "STATE", false },
		      { "TO", false },	    { "KERNELS", false }, { "AGE", true },
		      { "PROGRAMS", true }, { "RUN", true },	  { "FORMS", false },
		      { "WAIT", true },	    { "REFUSED", true },  { "FALLBACK", true },
		      { "COST", true },	    { "BUDGET", true },	  { "SHARE", true },
		      { "RESIDENT", true }, { "WHY", false } };
	struct cli_table t;
	const json_t *p;
	size_t i;

	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i].name, heads[i].right);
	}
	json_array_foreach(list, i, p)
	{
		add_row(&t, p);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

static int cmd_ls(struct cli *c)
{
	json_t *result = NULL;
	int code = cli_call(c, "probe ls", "probe.list", NULL, &result);

	if (code) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "probe.ls", result);
	}
	if (json_array_size(json_object_get(result, "probes"))) {
		const json_t *p;
		size_t i;

		print_list(c, json_object_get(result, "probes"));
		json_array_foreach(json_object_get(result, "probes"), i, p)
		{
			cli_probe_print_scopes(p);
			note_unseen(c, p);
			cli_probe_note_gaps(c, p);
		}
	} else {
		cli_note(c, "There are no tools. `gbpf probe attach OBJECT` attaches one.");
	}
	json_decref(result);
	return CLI_OK;
}

static const struct cli_verb verb_attach = { .name = "attach",
					     .args = "TOOL|OBJECT...",
					     .doc = "verify a tool and attach it to programs",
					     .page = "gbpf-probe.1",
					     .options = attach_options,
					     .min_args = 1,
					     .max_args = -1,
					     .run = cmd_attach };
static const struct cli_verb verb_swap = { .name = "swap",
					   .args = "ID|NAME TOOL|OBJECT...",
					   .doc = "replace an attached tool while programs run",
					   .page = "gbpf-probe.1",
					   .options = attach_options,
					   .min_args = 2,
					   .max_args = -1,
					   .run = cmd_swap };
static const struct cli_verb verb_detach = { .name = "detach",
					     .args = "[ID|NAME]",
					     .doc = "end a tool",
					     .page = "gbpf-probe.1",
					     .options = detach_options,
					     .max_args = 1,
					     .run = cmd_detach };
static const struct cli_verb verb_ls = { .name = "ls",
					 .args = "",
					 .doc = "list attached tools and what runs them",
					 .page = "gbpf-probe.1",
					 .run = cmd_ls };
static const struct cli_verb *const subs[] = {
	&verb_attach,	      &verb_swap,	   &verb_detach,    &verb_ls, &verb_probe_set,
	&verb_probe_coverage, &verb_probe_rewrite, &verb_probe_log, NULL
};

const struct cli_verb verb_probe = {
	.name = "probe",
	.args = "...",
	.doc = "observe from inside kernels: attach, swap and list tools",
	.page = "gbpf-probe.1",
	.subs = subs
};

/* `gbpf vgpu`: virtual GPUs with names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/connect.h"
#include "base/clock.h"
#include "cli/doctor.h"
#include "cli/verbs.h"
#include "cli/vgpu_options.h"

#define USERS_MAX 32u
#define PROBE_NS 20000000000u /* the driver's start on a machine with many GPUs */

enum { O_USER = CLI_VGPU_OPTIONS };

static const struct cli_option options[] = {
	CLI_VGPU_TABLE(0),
	[O_USER] = { "user", 'u', "NAME,...",
		     "other users whose programs may join; '' for none (operators only)" },
	{ NULL, 0, NULL, NULL },
};

enum { O_DRAIN };

static const struct cli_option rm_options[] = {
	[O_DRAIN] = { "drain", 0, NULL,
		      "with programs in it: take no new ones, and remove it when they have ended" },
	{ NULL, 0, NULL, NULL },
};

/* ---- users ---- */

/* Reads a list of names and numbers. */
static int read_users(struct cli *c, const char *what, const char *list, uint32_t users[USERS_MAX],
		      struct gbpf_vgpu *given)
{
	char *copy = strdup(list), *state = NULL;
	int code = CLI_OK;

	for (char *name = strtok_r(copy, ",", &state); name && !code;
	     name = strtok_r(NULL, ",", &state)) {
		if (given->n_users == USERS_MAX) {
			code = cli_fail(c, CLI_USAGE, "usage", "Use fewer",
					"%s: more than %u users", what, USERS_MAX);
		} else if (!cli_parse_user(name, &users[given->n_users++])) {
			code = cli_fail(c, CLI_NOT_FOUND, "not-found",
					"Give user names or numbers, separated by commas",
					"%s: there is no user '%s'", what, name);
		}
	}
	free(copy);
	given->users = users;
	given->given |= GBPF_GIVEN_USERS;
	return code;
}

/* ---- create, set, rm ---- */

static int done(struct cli *c, const char *what, json_t *result, const char *text)
{
	int code = cli_check_stored(c, what, result);

	if (c->json) {
		int rc = cli_json(c, what, result);

		return rc ? rc : code;
	}
	if (!c->quiet) {
		cli_put_safe(stdout, text);
		putchar('\n');
	}
	json_decref(result);
	return code;
}

/* A reservation is checked against the size of the smallest device, which gbpfd knows only once a
 * program has used it. Returns it if the driver reports it, else 0. */
static uint64_t device_mem(void)
{
	struct cli_doctor_probe probe = { 0 };
	struct cli_run_device device;
	struct report r;

	report_init(&r);
	if (cli_run_choose_device(NULL, &device, &r) == 0 && !device.soft) {
		cli_doctor_probe(device.libcuda, clock_patience(PROBE_NS), &probe);
	}
	report_finish(&r);
	return probe.least_mem;
}

typedef int (*change_fn)(struct gbpf *g, const char *name, const struct gbpf_vgpu *v,
			 char **ret_json);

static int change(struct cli *c, const char *what, change_fn method, const char *name,
		  const char *text)
{
	struct proto_vgpu_config config = { 0 };
	uint32_t users[USERS_MAX];
	struct gbpf_vgpu given;
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	int code = cli_vgpu_read(c, what, c->opt, &config);

	cli_vgpu_given(c->opt, &config, &given);
	if (!code && c->opt[O_USER]) {
		code = read_users(c, what, c->opt[O_USER], users, &given);
	}
	if (!code && c->opt[CLI_VGPU_RESERVE]) {
		given.device_mem = device_mem();
	}
	code = code ? code : cli_open(c, &g);
	if (!code) {
		int rc = method(g, name, &given, &json);

		code = cli_result(c, g, what, rc, json, &result);
	}
	gbpf_close(g);
	if (code) {
		return code;
	}
	cli_vgpu_note_ignored(c, result);
	return done(c, what, result, text);
}

static int cmd_create(struct cli *c)
{
	char text[160];

	snprintf(text, sizeof(text),
		 "%.40s: made; start programs in it with: gbpf run --vgpu %.40s -- "
		 "PROGRAM",
		 c->arg[0], c->arg[0]);
	return change(c, "vgpu create", gbpf_vgpu_create, c->arg[0], text);
}

static int cmd_set(struct cli *c)
{
	char text[80], name[CLI_VGPU_NAME] = "";
	int code;

	if (!cli_vgpu_any(c->opt) && !c->opt[O_USER]) {
		return cli_fail(c, CLI_USAGE, "usage", "Give at least one option",
				"vgpu set: nothing to change");
	}
	snprintf(text, sizeof(text), "%.64s: changed", c->arg[0]);
	code = cli_vgpu_name(c, "vgpu set", c->arg[0], name);
	return code ? code : change(c, "vgpu set", gbpf_vgpu_set, name, text);
}

static int cmd_rm(struct cli *c)
{
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL, name[CLI_VGPU_NAME] = "";
	char text[140];
	uint64_t n;
	int code = cli_vgpu_name(c, "vgpu rm", c->arg[0], name);

	code = code ? code : cli_open(c, &g);
	if (!code) {
		int rc = gbpf_vgpu_remove(g, name, c->opt[O_DRAIN] ? GBPF_VGPU_DRAIN : 0, &json);

		code = cli_result(c, g, "vgpu rm", rc, json, &result);
	}
	gbpf_close(g);
	if (code) {
		return code;
	}
	n = cli_u64(result, "processes");
	if (!n && json_is_false(json_object_get(result, "removed"))) {
		snprintf(text, sizeof(text), "%.64s: removed when its programs have ended",
			 c->arg[0]);
	} else if (n) {
		snprintf(text, sizeof(text), "%.64s: removed when its %llu process%s ended",
			 c->arg[0], (unsigned long long)n, n == 1 ? " has" : "es have");
	} else {
		snprintf(text, sizeof(text), "%.64s: removed", c->arg[0]);
	}
	return done(c, "vgpu rm", result, text);
}

/* ---- ls, show ---- */

/* Returns the name, or the number in brackets. */
static const char *name_of(char out[64], const json_t *v)
{
	if (cli_text(v, "name")[0]) {
		return cli_text(v, "name");
	}
	snprintf(out, 64, "(%.40s)", cli_text(v, "number"));
	return out;
}

static const char *size_or(char out[24], uint64_t bytes, const char *none)
{
	return bytes ? cli_bytes(out, bytes) : none;
}

static const char *percent_or_dash(char out[24], uint64_t percent)
{
	if (!percent) {
		return "-";
	}
	snprintf(out, 24, "%llu %%", (unsigned long long)percent);
	return out;
}

/* Returns the part of a GPU's time that its programs really had. */
static const char *actual_on(char out[24], const json_t *on)
{
	double window = (double)cli_u64(on, "window_ns"), ns = (double)cli_u64(on, "gpu_ns");
	double percent = window > 0 ? 100 * MIN(ns / window, 1.0) : 0;

	snprintf(out, 24, percent > 0 && percent < 0.5 ? "<1 %%" : "%.0f %%", percent);
	return out;
}

/* Returns the same for the GPU on which it is most. */
static const char *actual_of(char out[24], const json_t *v)
{
	const json_t *on, *most = NULL;
	size_t i;

	json_array_foreach(json_object_get(v, "actual"), i, on)
	{
		if (!most ||
		    (double)cli_u64(on, "gpu_ns") * (double)cli_u64(most, "window_ns") >
			    (double)cli_u64(most, "gpu_ns") * (double)cli_u64(on, "window_ns")) {
			most = on;
		}
	}
	return most ? actual_on(out, most) : "-";
}

/* Returns the largest use of a device. */
static uint64_t most_used(const json_t *v)
{
	const json_t *d;
	uint64_t most = 0;
	size_t i;

	json_array_foreach(json_object_get(v, "devices"), i, d)
	{
		most = MAX(most, cli_u64(d, "mem_used"));
	}
	return most;
}

/* Returns true if it has swap, or had some that its programs still hold. */
static bool has_swap(const json_t *v)
{
	return cli_u64(v, "swap") || cli_u64(v, "swap_used");
}

/* Returns "1.2 GiB/4.0 GiB": what its programs hold of swap, and the limit, if there is one. */
static const char *swap_of(char out[64], const json_t *v)
{
	char used[24], limit[24];

	if (!has_swap(v)) {
		return "-";
	}
	snprintf(out, 64, "%s%s%s", cli_bytes(used, cli_u64(v, "swap_used")),
		 cli_u64(v, "swap") ? "/" : "", size_or(limit, cli_u64(v, "swap"), ""));
	return out;
}

/* Returns true if its programs see the memory without swap. */
static bool shows_mem(const json_t *v)
{
	return strcmp(cli_text(v, "show"), "mem") == 0;
}

/* The columns that are printed only if a vGPU needs them. */
struct shape {
	bool swap, shown;
};

static void add_row(struct cli_table *t, const json_t *v, const struct shape *with)
{
	char name[64], user[64], swap[64], used[24], mem[24], reserve[24], compute[24], actual[24],
		copy[24];

	cli_table_cell(t, "%s", name_of(name, v));
	cli_table_cell(t, "%s", cli_user(user, (uint32_t)cli_u64(v, "uid")));
	cli_table_cell(t, "%s", cli_text(v, "state"));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(v, "processes"));
	cli_table_cell(t, "%s", cli_bytes(used, most_used(v)));
	cli_table_cell(t, "%s", size_or(mem, cli_u64(v, "mem"), "-"));
	if (with->swap) {
		cli_table_cell(t, "%s", swap_of(swap, v));
	}
	if (with->shown) {
		cli_table_cell(t, "%s", !has_swap(v) ? "-" : shows_mem(v) ? "mem" : "all");
	}
	cli_table_cell(t, "%s", size_or(reserve, cli_u64(v, "reserve"), "-"));
	cli_table_cell(t, "%s", percent_or_dash(compute, cli_u64(v, "compute")));
	cli_table_cell(t, "%s", actual_of(actual, v));
	cli_table_cell(t, "%s", percent_or_dash(copy, cli_u64(v, "copy")));
	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(v, "prio"));
	cli_table_cell(t, "%s", json_is_true(json_object_get(v, "burst")) ? "yes" : "no");
}

/* Orders vGPUs by name, then by owner; those without a name follow. */
static int by_name(const void *a, const void *b)
{
	const json_t *v = *(json_t *const *)a, *w = *(json_t *const *)b;
	const char *x = cli_text(v, "name"), *y = cli_text(w, "name");
	int order = !x[0] != !y[0] ? !x[0] - !y[0] : strcmp(x, y);
	uint64_t u = cli_u64(v, "uid"), t = cli_u64(w, "uid");

	return order ? order : (u > t) - (u < t);
}

static void print_list(struct cli *c, const json_t *list)
{
	/* optional: the column of the highest number is left out first; 0: none. */
	static const struct {
		const char *head;
		bool right;
		unsigned optional;
	} columns[] = { { "NAME", false, 0 },	  { "USER", false, 2 },	 { "STATE", false, 1 },
			{ "PROCESSES", true, 0 }, { "USED", true, 0 },	 { "MEMORY", true, 0 },
			{ "SWAP", true, 0 },	  { "SHOWN", false, 7 }, { "RESERVED", true, 3 },
			{ "COMPUTE", true, 0 },	  { "ACTUAL", true, 0 }, { "COPY", true, 4 },
			{ "PRIORITY", true, 5 },  { "BURST", false, 6 } };
	const json_t *sorted[PROTO_VGPUS] = { NULL };
	struct cli_table t;
	struct shape with = { false, false };
	size_t i, n = MIN(json_array_size(list), PROTO_VGPUS);

	for (i = 0; i < n; i++) {
		sorted[i] = json_array_get(list, i);
		with.swap |= has_swap(sorted[i]);
		with.shown |= has_swap(sorted[i]) && shows_mem(sorted[i]);
	}
	qsort(sorted, n, sizeof(sorted[0]), by_name);
	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(columns); i++) {
		if ((!with.swap && strcmp(columns[i].head, "SWAP") == 0) ||
		    (!with.shown && strcmp(columns[i].head, "SHOWN") == 0)) {
			continue;
		}
		cli_table_column(&t, columns[i].head, columns[i].right);
		cli_table_optional(&t, columns[i].optional);
	}
	for (i = 0; i < n; i++) {
		add_row(&t, sorted[i], &with);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

static int cmd_ls(struct cli *c)
{
	json_t *result = NULL;
	int code = cli_call(c, "vgpu ls", "vgpu.list", NULL, &result);

	if (code) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "vgpu ls", result);
	}
	if (json_array_size(json_object_get(result, "vgpus"))) {
		print_list(c, json_object_get(result, "vgpus"));
	} else {
		cli_note(
			c,
			"There are no virtual GPUs. `gbpf vgpu create NAME --mem SIZE` makes one.");
	}
	json_decref(result);
	return CLI_OK;
}

static void print_users(const json_t *v)
{
	const json_t *u;
	char user[64];
	size_t i;

	if (!json_array_size(json_object_get(v, "users"))) {
		return;
	}
	printf("users       ");
	json_array_foreach(json_object_get(v, "users"), i, u)
	{
		printf("%s%s", i ? ", " : "", cli_user(user, (uint32_t)json_integer_value(u)));
	}
	putchar('\n');
}

static void print_actual(const json_t *v)
{
	const json_t *actual = json_object_get(v, "actual"), *on;
	char percent[24], window[24];
	size_t i;

	json_array_foreach(actual, i, on)
	{
		printf("actual      %s of %s in the last %s\n", actual_on(percent, on),
		       cli_text(on, "uuid"), cli_duration(window, cli_u64(on, "window_ns")));
	}
	if (!json_array_size(actual)) {
		printf("actual      -\n");
	}
}

static void print_one(const json_t *v)
{
	char name[64], user[64], a[24], b[24];
	const json_t *e;
	size_t i;

	printf("name        %s\n", name_of(name, v));
	printf("owner       %s\n", cli_user(user, (uint32_t)cli_u64(v, "uid")));
	print_users(v);
	printf("state       %s\n", cli_text(v, "state"));
	printf("memory      %s, reserved %s\n", size_or(a, cli_u64(v, "mem"), "as the GPU has"),
	       size_or(b, cli_u64(v, "reserve"), "none"));
	if (cli_u64(v, "wait_ns")) {
		printf("wait        %s\n", cli_duration(a, cli_u64(v, "wait_ns")));
	}
	if (cli_u64(v, "pinned")) {
		printf("pinned      %s\n", cli_bytes(a, cli_u64(v, "pinned")));
	}
	if (has_swap(v)) {
		printf("swap        %s, %s in use\n", size_or(a, cli_u64(v, "swap"), "none"),
		       cli_bytes(b, cli_u64(v, "swap_used")));
	}
	if (shows_mem(v)) {
		printf("shown       mem: programs see the memory without swap\n");
	}
	printf("compute     %s\n", percent_or_dash(a, cli_u64(v, "compute")));
	print_actual(v);
	printf("copy        %s\n", percent_or_dash(a, cli_u64(v, "copy")));
	printf("priority    %llu%s\n", (unsigned long long)cli_u64(v, "prio"),
	       json_is_true(json_object_get(v, "burst")) ? ", may use what others leave over" : "");
	json_array_foreach(json_object_get(v, "devices"), i, e)
	{
		printf("device      %s: %s in use\n", cli_text(e, "uuid"),
		       cli_bytes(a, cli_u64(e, "mem_used")));
	}
	json_array_foreach(json_object_get(v, "programs"), i, e)
	{
		printf("program     %llu ", (unsigned long long)cli_u64(e, "pid"));
		cli_put_safe(stdout, cli_text(e, "name"));
		putchar('\n');
	}
}

static int cmd_show(struct cli *c)
{
	json_t *found = NULL;
	struct gbpf *g = NULL;
	char *json = NULL, name[CLI_VGPU_NAME] = "";
	int code = cli_vgpu_name(c, "vgpu show", c->arg[0], name);

	code = code ? code : cli_open(c, &g);
	if (!code) {
		int rc = gbpf_vgpu_show(g, name, &json);

		code = cli_result(c, g, "vgpu show", rc, json, &found);
	}
	gbpf_close(g);
	if (code) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "vgpu show", found);
	}
	print_one(found);
	json_decref(found);
	return CLI_OK;
}

static const struct cli_verb verb_create = { .name = "create",
					     .args = "NAME",
					     .doc = "make a virtual GPU",
					     .page = "gbpf-vgpu.1",
					     .options = options,
					     .min_args = 1,
					     .max_args = 1,
					     .run = cmd_create };
static const struct cli_verb verb_vgpu_set = { .name = "set",
					       .args = CLI_VGPU_ARG,
					       .doc = "change what it is given, while programs run",
					       .page = "gbpf-vgpu.1",
					       .options = options,
					       .min_args = 1,
					       .max_args = 1,
					       .run = cmd_set };
static const struct cli_verb verb_rm = { .name = "rm",
					 .args = CLI_VGPU_ARG,
					 .doc = "remove a virtual GPU",
					 .page = "gbpf-vgpu.1",
					 .options = rm_options,
					 .min_args = 1,
					 .max_args = 1,
					 .run = cmd_rm };
static const struct cli_verb verb_ls = {
	.name = "ls", .args = "", .doc = "list virtual GPUs", .page = "gbpf-vgpu.1", .run = cmd_ls
};
static const struct cli_verb verb_show = { .name = "show",
					   .args = CLI_VGPU_ARG,
					   .doc = "show a virtual GPU and its programs",
					   .page = "gbpf-vgpu.1",
					   .min_args = 1,
					   .max_args = 1,
					   .run = cmd_show };
static const struct cli_verb *const subs[] = { &verb_create, &verb_vgpu_set, &verb_rm,
					       &verb_ls,     &verb_show,     NULL };

const struct cli_verb verb_vgpu = { .name = "vgpu",
				    .args = "",
				    .doc = "virtual GPUs: make, change, remove and list them",
				    .page = "gbpf-vgpu.1",
				    .subs = subs };

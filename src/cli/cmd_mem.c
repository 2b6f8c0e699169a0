/* `gbpf mem ls`: the device memory of programs in virtual GPUs: what can move to the host, and why
 * the rest cannot. */
#include <string.h>

#include "cli/connect.h"
#include "cli/verbs.h"

enum { O_WHY };

static const struct cli_option ls_options[] = {
	[O_WHY] = { "why", 'y', NULL, "show what cannot move, and why" },
	{ NULL, 0, NULL, NULL },
};

static bool is_hidden(const json_t *tenant)
{
	return json_is_true(json_object_get(tenant, "hidden"));
}

static bool has_account(const json_t *tenant)
{
	return json_object_get(tenant, "gpus") != NULL;
}

/* Returns "train", or "alice/train" if that is another user's. */
static const char *vgpu_of(char out[160], const json_t *tenant)
{
	char owner[64];

	if (cli_u64(tenant, "vgpu_uid") == cli_u64(tenant, "uid")) {
		return cli_text(tenant, "vgpu");
	}
	snprintf(out, 160, "%.64s/%.90s", cli_user(owner, (uint32_t)cli_u64(tenant, "vgpu_uid")),
		 cli_text(tenant, "vgpu"));
	return out;
}

static void add_row(void *table, const json_t *tenant, const json_t *on)
{
	struct cli_table *t = table;
	char vgpu[160], size[24];

	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(tenant, "pid"));
	cli_table_cell(t, "%s", cli_text(tenant, "name"));
	cli_table_cell(t, "%s", vgpu_of(vgpu, tenant));
	if (on) {
		cli_table_cell(t, "%llu", (unsigned long long)cli_u64(on, "gpu"));
	} else {
		cli_table_cell(t, "-");
	}
	cli_table_cell(t, "%s", cli_bytes(size, cli_u64(on, "mem_used")));
	cli_table_cell(t, "%s", cli_bytes(size, cli_u64(on, "movable")));
	cli_table_cell(t, "%s", cli_bytes(size, cli_u64(on, "swapped")));
	cli_table_cell(t, "%s", cli_text(tenant, "command"));
}

/* Returns true if a program that sees several GPUs has a line for this one: of those that it holds
 * nothing on, only the first one is shown, and only if it holds nothing at all. */
static bool is_shown(const json_t *gpus, size_t at)
{
	const json_t *on;
	bool any = false;
	size_t i;

	json_array_foreach(gpus, i, on)
	{
		if (cli_u64(on, "mem_used") || cli_u64(on, "swapped")) {
			any = true;
			if (i == at) {
				return true;
			}
		}
	}
	return !any && at == 0;
}

/* Calls show() for each line of the list. on: NULL if the program has not started CUDA yet. */
static void walk(const json_t *tenants,
		 void (*show)(void *to, const json_t *tenant, const json_t *on), void *to)
{
	const json_t *tenant, *on;
	size_t i, k;

	json_array_foreach(tenants, i, tenant)
	{
		const json_t *gpus = json_object_get(tenant, "gpus");

		if (gpus && !json_array_size(gpus)) {
			show(to, tenant, NULL);
		}
		json_array_foreach(gpus, k, on)
		{
			if (is_shown(gpus, k)) {
				show(to, tenant, on);
			}
		}
	}
}

static void print_list(struct cli *c, const json_t *tenants)
{
	static const struct {
		const char *head;
		bool right;
		unsigned optional;
	} columns[] = { { "PID", true, 0 },  { "NAME", false, 2 },   { "VGPU", false, 0 },
			{ "GPU", true, 3 },  { "DEVICE", true, 0 },  { "MOVABLE", true, 0 },
			{ "HOST", true, 0 }, { "COMMAND", false, 1 } };
	struct cli_table t;

	cli_table_init(&t);
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		cli_table_column(&t, columns[i].head, columns[i].right);
		cli_table_optional(&t, columns[i].optional);
	}
	walk(tenants, add_row, &t);
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

static void print_fixed(struct cli *c, const json_t *fixed)
{
	const json_t *part;
	struct cli_table t;
	char size[24];
	size_t i;

	if (!json_array_size(fixed)) {
		return;
	}
	cli_table_init(&t);
	cli_table_column(&t, "        SIZE", true);
	cli_table_column(&t, "KIND", false);
	cli_table_column(&t, "WHY", false);
	json_array_foreach(fixed, i, part)
	{
		cli_table_cell(&t, "%s", cli_bytes(size, cli_u64(part, "bytes")));
		cli_table_cell(&t, "%s", cli_text(part, "kind"));
		cli_table_cell(&t, "%s", cli_text(part, "why"));
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

static void print_why(void *c, const json_t *tenant, const json_t *on)
{
	uint64_t used = cli_u64(on, "mem_used"), movable = cli_u64(on, "movable");
	char a[24], b[24];

	if (!on) {
		return;
	}
	putchar('\n');
	cli_put_safe(stdout, cli_text(tenant, cli_text(tenant, "name")[0] ? "name" : "command"));
	printf(" (%llu), GPU %llu: %s of %s cannot move",
	       (unsigned long long)cli_u64(tenant, "pid"), (unsigned long long)cli_u64(on, "gpu"),
	       cli_bytes(a, used - MIN(used, movable)), cli_bytes(b, used));
	if (cli_text(on, "no_chunks")[0]) {
		printf("; nor can new memory: %s", cli_text(on, "no_chunks"));
	}
	putchar('\n');
	print_fixed(c, json_object_get(on, "fixed"));
	if (cli_u64(on, "mem_shared")) {
		printf("  and %s of other processes' memory, which these are charged for\n",
		       cli_bytes(a, cli_u64(on, "mem_shared")));
	}
}

/* How many programs the list has, are in no virtual GPU, or are hidden from this user. */
struct counts {
	unsigned listed, outside, hidden;
	struct buf outside_pids;
};

static void count(const json_t *tenants, struct counts *n)
{
	const json_t *tenant;
	size_t i;

	json_array_foreach(tenants, i, tenant)
	{
		if (is_hidden(tenant)) {
			n->hidden++;
		} else if (has_account(tenant)) {
			n->listed++;
		} else {
			buf_printf(&n->outside_pids, "%s%llu", n->outside++ ? ", " : "",
				   (unsigned long long)cli_u64(tenant, "pid"));
		}
	}
}

/* Notes programs that the list does not have. */
static void note_missing(struct cli *c, const struct counts *n)
{
	if (n->outside) {
		cli_note(c,
			 "%u program%s in no virtual GPU, where memory is not counted (%s). Start "
			 "%s with `gbpf run --mem SIZE` or `--vgpu NAME`.",
			 n->outside, n->outside == 1 ? " is" : "s are", buf_text(&n->outside_pids),
			 n->outside == 1 ? "it" : "them");
	}
	if (n->hidden) {
		cli_note(c, "%u program%s of other users %s not shown.", n->hidden,
			 PLURAL(n->hidden), n->hidden == 1 ? "is" : "are");
	}
	if (!n->listed && !n->outside && !n->hidden) {
		cli_note(c, "There are no programs. `gbpf run --mem SIZE -- PROGRAM` starts one in "
			    "a virtual GPU.");
	}
}

static int cmd_ls(struct cli *c)
{
	json_t *result = NULL;
	int code = cli_call(c, "mem ls", "mem.list", NULL, &result);
	struct counts n = { 0 };
	const json_t *tenants;

	if (code) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "mem ls", result);
	}
	tenants = json_object_get(result, "tenants");
	count(tenants, &n);
	note_missing(c, &n);
	if (n.listed) {
		print_list(c, tenants);
		if (c->opt[O_WHY]) {
			walk(tenants, print_why, c);
		}
	}
	buf_finish(&n.outside_pids);
	json_decref(result);
	return CLI_OK;
}

static const struct cli_verb verb_ls = { .name = "ls",
					 .args = "",
					 .doc = "list programs in virtual GPUs with what they hold",
					 .page = "gbpf-mem.1",
					 .options = ls_options,
					 .run = cmd_ls };
static const struct cli_verb *const subs[] = { &verb_ls, NULL };

const struct cli_verb verb_mem = { .name = "mem",
				   .args = "",
				   .doc = "device memory: what programs hold, and what can move",
				   .page = "gbpf-mem.1",
				   .subs = subs };

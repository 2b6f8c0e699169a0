/* `gbpf ps` and `gbpf set`: programs under gBPF; their class and weight. */
#include <stdlib.h>
#include <string.h>

#include "cli/connect.h"
#include "cli/verbs.h"
#include "cli/vgpu_options.h"
#include "proto/hold_why.h"

enum { O_WHY, O_GPU };

static const struct cli_option ps_options[] = {
	[O_WHY] = { "why", 'y', NULL, "show why work was last held or stopped, and its kernels" },
	[O_GPU] = { "gpu", 0, "NUMBER",
		    "only programs that have used this GPU, with their launches there" },
	{ NULL, 0, NULL, NULL },
};

static const char *duration_or_dash(char out[24], uint64_t ns, uint64_t samples)
{
	return samples ? cli_duration(out, ns) : "-";
}

/* Returns "fair@4", or the reason why the program has not started. */
static const char *policy_of(char out[80], const json_t *tenant, const json_t *versions)
{
	uint64_t version = cli_u64(tenant, "policy_version");
	const char *state = cli_text(tenant, "state");
	const json_t *v;
	size_t i;

	if (state[0] && strcmp(state, "running") != 0) {
		snprintf(out, 80, "(%.40s)", state);
		return out;
	}
	if (!version) {
		return "-";
	}
	snprintf(out, 80, "@%llu", (unsigned long long)version);
	json_array_foreach(versions, i, v)
	{
		if (cli_u64(v, "version") == version) {
			snprintf(out, 80, "%.40s@%llu", cli_text(v, "name"),
				 (unsigned long long)version);
		}
	}
	return out;
}

/* Returns the hardware control in effect, or the strongest level that its own launches have used.
 */
static const char *level_of(const json_t *tenant)
{
	const json_t *s = json_object_get(tenant, "stats");

	if (cli_text(tenant, "level")[0]) {
		return cli_text(tenant, "level");
	}
	return cli_u64(s, "block_launches") ? "block" : cli_u64(s, "holds") ? "hold" : "-";
}

/* Of another user's tenant gbpfd shows the user, the class and whether it runs. */
static bool is_hidden(const json_t *tenant)
{
	return json_is_true(json_object_get(tenant, "hidden"));
}

/* Returns the counters of a program on a GPU, or NULL if it has not used it. */
static const json_t *on_gpu(const json_t *tenant, uint64_t gpu)
{
	const json_t *on, *stats = json_object_get(tenant, "stats");
	size_t i;

	json_array_foreach(json_object_get(stats, "gpus"), i, on)
	{
		if (cli_u64(on, "gpu") == gpu) {
			return on;
		}
	}
	return NULL;
}

/* Adds "0, 2": the GPUs that it has used. */
static void add_gpus(struct cli_table *t, const json_t *tenant)
{
	const json_t *on, *stats = json_object_get(tenant, "stats");
	struct buf list = { 0 };
	size_t i;

	json_array_foreach(json_object_get(stats, "gpus"), i, on)
	{
		buf_printf(&list, "%s%llu", i ? ", " : "", (unsigned long long)cli_u64(on, "gpu"));
	}
	cli_table_cell(t, "%s", list.len ? buf_text(&list) : "-");
	buf_finish(&list);
}

/* Which columns a table has, and of which GPU it is. */
struct form {
	bool with_vgpu, with_gpus, with_group, with_swap, of_gpu;
	uint64_t gpu;
};

static void add_hidden_row(struct cli_table *t, const json_t *tenant, const struct form *f)
{
	char user[64];

	cli_table_cell(t, "-");
	cli_table_cell(t, "%s", cli_user(user, (uint32_t)cli_u64(tenant, "uid")));
	cli_table_cell(t, "%s", cli_text(tenant, "class"));
	for (unsigned i = 3; i < 13u + f->with_vgpu + f->with_gpus + f->with_group + f->with_swap;
	     i++) {
		cli_table_cell(t, "-");
	}
}

/* Returns "1.2 GiB/4.0 GiB": what the process holds, by that member, and the limit of its virtual
 * GPU, if it has one. */
static const char *memory_of(char out[64], const json_t *tenant, const char *held,
			     const char *limited)
{
	uint64_t limit = cli_u64(tenant, limited);
	char used[24], most[24];

	if (!json_object_get(tenant, held)) {
		return "-";
	}
	if (!limit) {
		snprintf(out, 64, "%s", cli_bytes(used, cli_u64(tenant, held)));
		return out;
	}
	snprintf(out, 64, "%s/%s", cli_bytes(used, cli_u64(tenant, held)), cli_bytes(most, limit));
	return out;
}

/* Returns true if its virtual GPU has swap, or had some that it still holds. */
static bool has_swap(const json_t *tenant)
{
	return cli_u64(tenant, "swap_limit") || cli_u64(tenant, "swap_used");
}

/* Adds "train", or "alice/train" if that is another user's; nothing if the program is in none. An
 * older gbpfd states no owner. */
static void add_vgpu(struct cli_table *t, const json_t *tenant)
{
	const char *name = cli_text(tenant, "vgpu");
	char owner[64];

	if (!json_object_get(tenant, "vgpu_uid") ||
	    cli_u64(tenant, "vgpu_uid") == cli_u64(tenant, "uid")) {
		cli_table_cell(t, "%s", name);
	} else {
		cli_table_cell(t, "%s/%s", cli_user(owner, (uint32_t)cli_u64(tenant, "vgpu_uid")),
			       name);
	}
}

static void add_row(struct cli_table *t, const json_t *tenant, const json_t *versions,
		    const struct form *f)
{
	const json_t *s = json_object_get(tenant, "stats");
	uint64_t requests = cli_u64(s, "requests");
	char held[24], p50[24], p99[24], launches[24], policy[80], user[64], memory[64];

	cli_table_cell(t, "%llu", (unsigned long long)cli_u64(tenant, "pid"));
	cli_table_cell(t, "%s", cli_user(user, (uint32_t)cli_u64(tenant, "uid")));
	cli_table_cell(t, "%s", cli_text(tenant, "class"));
	cli_table_cell(t, "%s", cli_text(tenant, "lane"));
	cli_table_cell(t, "%s", level_of(tenant));
	cli_table_cell(t, "%s", cli_text(tenant, "name"));
	if (f->with_gpus) {
		add_gpus(t, tenant);
	}
	cli_table_cell(
		t, "%s",
		cli_count(launches, cli_u64(f->of_gpu ? on_gpu(tenant, f->gpu) : s, "launches")));
	cli_table_cell(t, "%s",
		       duration_or_dash(held, cli_u64(s, "held_ns"), cli_u64(s, "held_ns")));
	cli_table_cell(t, "%s", duration_or_dash(p50, cli_u64(s, "request_p50_ns"), requests));
	cli_table_cell(t, "%s", duration_or_dash(p99, cli_u64(s, "request_p99_ns"), requests));
	if (f->with_group) {
		cli_table_cell(t, "%s", cli_text(tenant, "group"));
	}
	if (f->with_vgpu) {
		add_vgpu(t, tenant);
	}
	cli_table_cell(t, "%s", memory_of(memory, tenant, "mem_used", "mem_limit"));
	if (f->with_swap) {
		cli_table_cell(t, "%s",
			       has_swap(tenant)
				       ? memory_of(memory, tenant, "swap_used", "swap_limit")
				       : "-");
	}
	cli_table_cell(t, "%s", policy_of(policy, tenant, versions));
	cli_table_cell(t, "%s", cli_text(tenant, "command"));
}

static void print_tenants(struct cli *c, const json_t *tenants, const json_t *versions,
			  struct form f)
{
	static const struct {
		const char *head;
		unsigned optional;
	} left[] = { { "USER", 4 }, { "CLASS", 6 }, { "LANE", 9 }, { "LEVEL", 8 }, { "NAME", 0 } },
	  right[] = { { "LAUNCHES", 0 }, { "HELD", 3 }, { "P50", 7 }, { "P99", 5 } };
	struct cli_table t;
	json_t *tenant;
	size_t i;

	json_array_foreach(tenants, i, tenant)
	{
		const json_t *gpus = json_object_get(tenant, "gpus");

		f.with_vgpu |= json_object_get(tenant, "vgpu") != NULL;
		f.with_swap |= has_swap(tenant);
		f.with_group |= cli_text(tenant, "group")[0] != 0;
		f.with_gpus |= json_array_size(gpus) > 1 ||
			       json_integer_value(json_array_get(gpus, 0)) > 0;
	}

	cli_table_init(&t);
	cli_table_column(&t, "PID", true);
	for (i = 0; i < ARRAY_SIZE(left); i++) {
		cli_table_column(&t, left[i].head, false);
		cli_table_optional(&t, left[i].optional);
	}
	if (f.with_gpus) {
		cli_table_column(&t, "GPU", false);
	}
	for (i = 0; i < ARRAY_SIZE(right); i++) {
		cli_table_column(&t, right[i].head, true);
		cli_table_optional(&t, right[i].optional);
	}
	if (f.with_group) {
		cli_table_column(&t, "GROUP", false);
	}
	if (f.with_vgpu) {
		cli_table_column(&t, "VGPU", false);
	}
	cli_table_column(&t, "MEMORY", true);
	if (f.with_swap) {
		cli_table_column(&t, "SWAP", true);
	}
	cli_table_column(&t, "POLICY", false);
	cli_table_column(&t, "COMMAND", false);
	cli_table_optional(&t, 2);
	json_array_foreach(tenants, i, tenant)
	{
		if (is_hidden(tenant)) {
			add_hidden_row(&t, tenant, &f);
		} else {
			add_row(&t, tenant, versions, &f);
		}
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

/* Returns "clone, 12 us a block", "machine code, persistent" or "no: the reason". A persistent
 * kernel's blocks all start at once, so it does not stop inside. */
static const char *block_level_of(char out[80], const json_t *k)
{
	const char *stop = cli_text(k, "stop");
	uint64_t ns = cli_u64(k, "block_ns");
	char length[24];

	if (!json_is_true(json_object_get(k, "block"))) {
		snprintf(out, 80, "no: %.70s", cli_text(k, "block_why"));
		return out;
	}
	stop = stop[0] ? stop : "yes";
	if (2 * cli_u64(k, "persistent") > cli_u64(k, "stoppable")) {
		snprintf(out, 80, "%.20s, persistent", stop);
	} else if (ns) {
		snprintf(out, 80, "%.20s, %s a block", stop, cli_duration(length, ns));
	} else {
		snprintf(out, 80, "%.20s", stop);
	}
	return out;
}

static void print_kernels(struct cli *c, const json_t *kernels)
{
	struct cli_table t;
	const json_t *k;
	size_t i;
	char est[24], count[24], block[80];

	if (!json_array_size(kernels)) {
		return;
	}
	cli_table_init(&t);
	cli_table_column(&t, "     LEARNED", true);
	cli_table_column(&t, "LAUNCHES", true);
	cli_table_column(&t, "BLOCK LEVEL", false);
	cli_table_column(&t, "KERNEL", false);
	json_array_foreach(kernels, i, k)
	{
		cli_table_cell(&t, "%s",
			       duration_or_dash(est, cli_u64(k, "est_ns"), cli_u64(k, "est_ns")));
		cli_table_cell(&t, "%s", cli_count(count, cli_u64(k, "count")));
		cli_table_cell(&t, "%s", block_level_of(block, k));
		cli_table_cell(&t, "%s", cli_text(k, "name"));
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

/* Appends the reason of the last hold. A word without a text is a number that the policy has set,
 * or comes from a newer gbpfd. */
static void add_reason(struct buf *line, const char *why)
{
	bool by_policy;
	const char *text = proto_why_text(why, &by_policy);

	if (by_policy || !text) {
		buf_printf(line, "the policy said HOLD: %s", text ? text : why);
	} else {
		buf_puts(line, text);
	}
}

static const char *times(char out[32], uint64_t n)
{
	if (n == 1) {
		return "once";
	}
	snprintf(out, 32, "%llu times", (unsigned long long)n);
	return out;
}

/* Appends "held 3 times, 52.4 ms in all, longest 9.14 ms" and other events of its launches. */
static void add_holds(struct buf *line, const json_t *s)
{
	uint64_t holds = cli_u64(s, "holds"), deferred = cli_u64(s, "deferred"),
		 limits = cli_u64(s, "limit_hits");
	char n[32], held[24], longest[24];

	if (holds + deferred == 0) {
		buf_puts(line, "never held");
		return;
	}
	buf_printf(line, "held %s, %s in all, longest %s", times(n, holds),
		   cli_duration(held, cli_u64(s, "held_ns")),
		   cli_duration(longest, cli_u64(s, "max_held_ns")));
	if (deferred) {
		buf_printf(line, ", deferred %s", times(n, deferred));
	}
	if (limits) {
		buf_printf(line, ", hold limit reached %s", times(n, limits));
	}
}

/* Appends "requests open for 12.3 s, work on the GPU for 2.40 s": a request that is bound by the
 * host is open while the GPU has no work of it. */
static void add_requests(struct buf *line, const json_t *s)
{
	char opened[24], busy[24];

	if (cli_u64(s, "requests")) {
		buf_printf(line, "\n  requests open for %s, work on the GPU for %s",
			   cli_duration(opened, cli_u64(s, "request_ns")),
			   cli_duration(busy, cli_u64(s, "busy_ns")));
	}
}

/* Appends "stopped between blocks 41 times in 900 launches, let go at the hold limit once". */
static void add_interruptions(struct buf *line, const json_t *s)
{
	uint64_t launches = cli_u64(s, "block_launches"), forced = cli_u64(s, "forced");
	char n[32], k[24];

	if (!launches) {
		return;
	}
	buf_printf(line, "\n  stopped between blocks %s in %s launch%s",
		   cli_u64(s, "interruptions") ? times(n, cli_u64(s, "interruptions")) : "never",
		   cli_count(k, launches), launches == 1 ? "" : "es");
	if (forced) {
		buf_printf(line, ", let go at the hold limit %s", times(n, forced));
	}
}

static void add_outside(struct buf *line, const json_t *tenant)
{
	uint64_t slice = cli_u64(tenant, "slice_us");
	char length[24];

	if (slice) {
		buf_printf(line, "\n  time slice: %s", cli_duration(length, slice * 1000));
	}
	if (cli_text(tenant, "hurt")[0]) {
		buf_printf(line, "\n  may fail: %s", cli_text(tenant, "hurt"));
	}
	if (cli_text(tenant, "level")[0]) {
		buf_printf(line, "\n  from outside now: %s", cli_text(tenant, "level"));
	}
}

/* Appends "share of the multiprocessors: 40 %", and in the process lane ", kept by 3 streams, not
 * by 1 ordered with the default one". */
static void add_caps(struct buf *line, const json_t *tenant)
{
	static const struct {
		const char *key, *text;
	} whys[] = {
		{ "uncapped_blocking", "ordered with the default stream" },
		{ "uncapped_context", "outside the primary context" },
		{ "uncapped_driver", "because the driver has no green context of that size" },
	};
	const json_t *s = json_object_get(tenant, "stats");
	uint64_t whole = cli_u64(tenant, "sm_percent"), percent = cli_u64(s, "sm_percent");
	uint64_t n = cli_u64(s, "capped");

	if (!whole && !percent) {
		return;
	}
	buf_printf(line, "\n  share of the multiprocessors: %llu %%",
		   (unsigned long long)(whole ? whole : percent));
	if (whole) {
		return;
	}
	buf_printf(line, ", kept by %llu stream%s", (unsigned long long)n, PLURAL(n));
	for (size_t i = 0; i < ARRAY_SIZE(whys); i++) {
		if (cli_u64(s, whys[i].key)) {
			buf_printf(line, ", not by %llu %s",
				   (unsigned long long)cli_u64(s, whys[i].key), whys[i].text);
		}
	}
}

static void print_why(struct cli *c, const json_t *tenants)
{
	json_t *tenant;
	size_t i;

	json_array_foreach(tenants, i, tenant)
	{
		const char *why = cli_text(tenant, "why");
		const char *kernel = cli_text(tenant, "why_kernel");
		struct buf line = { 0 }, safe = { 0 };

		if (is_hidden(tenant)) {
			continue;
		}
		buf_printf(&line, "%s (%llu): ",
			   cli_text(tenant, "name")[0] ? cli_text(tenant, "name")
						       : cli_text(tenant, "command"),
			   (unsigned long long)cli_u64(tenant, "pid"));
		add_holds(&line, json_object_get(tenant, "stats"));
		if (why[0]) {
			buf_puts(&line, "\n  last: ");
			add_reason(&line, why);
			buf_printf(&line, "%s%s", kernel[0] ? ", kernel " : "", kernel);
		}
		if (cli_text(tenant, "explained")[0]) {
			buf_printf(&line, "\n  the policy: %s", cli_text(tenant, "explained"));
		}
		add_requests(&line, json_object_get(tenant, "stats"));
		add_interruptions(&line, json_object_get(tenant, "stats"));
		add_outside(&line, tenant);
		add_caps(&line, tenant);
		cli_safe_text(&safe, buf_text(&line));
		printf("\n%s\n", buf_text(&safe));
		buf_finish(&line);
		buf_finish(&safe);
		print_kernels(c, json_object_get(tenant, "kernels"));
	}
}

/* Queries tenants and policies. The latter only supply names: without them version numbers are
 * shown. */
static int ask(struct cli *c, json_t **ret_tenants, json_t **ret_policies, bool *ret_off)
{
	struct gbpf *g = NULL;
	char *json = NULL;
	int rc, code = cli_open(c, &g);

	if (code == CLI_OK) {
		rc = gbpf_ps(g, &json);
		code = cli_result(c, g, "ps", rc, json, ret_tenants);
	}
	*ret_off = code == CLI_OK && gbpf_hello(g) && gbpf_hello(g)->off;
	if (code == CLI_OK && !c->json && gbpf_policy_list(g, &json) == 0) {
		*ret_policies = json_loads(json, 0, NULL);
		free(json);
	}
	gbpf_close(g);
	return code;
}

/* Leaves the programs that have used a GPU; hidden ones do not say. */
static void leave_those_on(json_t *tenants, uint64_t gpu)
{
	for (size_t i = json_array_size(tenants); i-- > 0;) {
		if (!on_gpu(json_array_get(tenants, i), gpu)) {
			json_array_remove(tenants, i);
		}
	}
}

static int cmd_ps(struct cli *c)
{
	json_t *result = NULL, *policies = NULL, *tenants;
	struct form f = { .of_gpu = c->opt[O_GPU] != NULL };
	bool off = false;
	int code;

	if (f.of_gpu && cli_number(c, "--gpu", c->opt[O_GPU], 0, INT32_MAX, &f.gpu)) {
		return CLI_USAGE;
	}
	code = ask(c, &result, &policies, &off);
	if (code != CLI_OK) {
		return code;
	}
	if (f.of_gpu) {
		leave_those_on(json_object_get(result, "tenants"), f.gpu);
	}
	if (c->json) {
		return cli_json(c, "ps", result);
	}
	tenants = json_object_get(result, "tenants");
	if (!json_array_size(tenants)) {
		cli_note(c, f.of_gpu ? "No program has used this GPU."
				     : "No program runs under gBPF. Start one: gbpf run --class "
				       "latency -- COMMAND");
	} else {
		print_tenants(c, tenants, json_object_get(policies, "versions"), f);
		if (c->opt[O_WHY]) {
			print_why(c, tenants);
		}
	}
	if (off) {
		cli_note(c,
			 "gBPF is switched off: everything passes through. Switch it on: gbpf on");
	}
	json_decref(result);
	json_decref(policies);
	return CLI_OK;
}

enum { O_CLASS, O_WEIGHT, O_GIVEN };

static const struct cli_option set_options[] = {
	[O_CLASS] = { "class", 'c', "latency|normal|batch", "its class from now on" },
	[O_WEIGHT] = { "weight", 'w', "1-10000", "its weight from now on" },
	CLI_VGPU_TABLE(O_GIVEN),
	{ NULL, 0, NULL, NULL },
};

/* Finds the tenant of a process. Returns CLI_OK, or an exit code after the message was printed. */
static int tenant_of_pid(struct cli *c, uint64_t pid, uint64_t *ret_tenant, json_t **ret_was)
{
	json_t *result = NULL, *tenant;
	int code = cli_call(c, "set", "ps", NULL, &result);
	size_t i;

	if (code != CLI_OK) {
		return code;
	}
	json_array_foreach(json_object_get(result, "tenants"), i, tenant)
	{
		if (cli_u64(tenant, "pid") == pid) {
			*ret_tenant = cli_u64(tenant, "tenant");
			*ret_was = json_incref(tenant);
			json_decref(result);
			return CLI_OK;
		}
	}
	json_decref(result);
	return cli_fail(c, CLI_NOT_FOUND, "not-found", "See: gbpf ps",
			"set: no program with PID %llu runs under gBPF", (unsigned long long)pid);
}

/* Prints "12: class batch -> latency, weight 100". */
static void print_set(uint64_t pid, const json_t *was, const json_t *result)
{
	const char *to = CLI_SIGN_TO;

	printf("%llu: class %s", (unsigned long long)pid, cli_text(was, "class"));
	if (strcmp(cli_text(was, "class"), cli_text(result, "class")) != 0) {
		printf(" %s %s", to, cli_text(result, "class"));
	}
	printf(", weight %llu", (unsigned long long)cli_u64(was, "weight"));
	if (cli_u64(was, "weight") != cli_u64(result, "weight")) {
		printf(" %s %llu", to, (unsigned long long)cli_u64(result, "weight"));
	}
	putchar('\n');
}

static int change(struct cli *c, uint64_t pid, uint64_t tenant, const json_t *was, uint64_t weight)
{
	json_t *params =
		json_pack("{s:I, s:s*}", "tenant", (json_int_t)tenant, "class", c->opt[O_CLASS]);
	json_t *result = NULL;
	int code;

	if (params && weight) {
		json_object_set_new(params, "weight", json_integer((json_int_t)weight));
	}
	code = cli_call(c, "set", "set", params, &result);
	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		json_object_set_new(result, "pid", json_integer((json_int_t)pid));
		return cli_json(c, "set", result);
	}
	if (!c->quiet) {
		print_set(pid, was, result);
	}
	json_decref(result);
	return CLI_OK;
}

/* Changes what the virtual GPU of a tenant is given. */
static int change_vgpu(struct cli *c, uint64_t pid, uint64_t tenant,
		       const struct proto_vgpu_config *config)
{
	struct gbpf_vgpu given;
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	int code = cli_open(c, &g);

	if (!code) {
		int rc;

		cli_vgpu_given(c->opt + O_GIVEN, config, &given);
		rc = gbpf_vgpu_set_of(g, (uint32_t)tenant, &given, &json);
		code = cli_result(c, g, "set", rc, json, &result);
	}
	gbpf_close(g);
	if (code) {
		return code;
	}
	cli_vgpu_note_ignored(c, result);
	code = cli_check_stored(c, "set", result);
	if (c->json) {
		json_object_set_new(result, "pid", json_integer((json_int_t)pid));
		return cli_json(c, "set.vgpu", result) ? CLI_FAILED : code;
	}
	if (!c->quiet) {
		printf("%llu: its virtual GPU %s is changed, for %llu process%s\n",
		       (unsigned long long)pid,
		       cli_text(result, "name")[0] ? cli_text(result, "name")
						   : cli_text(result, "number"),
		       (unsigned long long)cli_u64(result, "processes"),
		       cli_u64(result, "processes") == 1 ? "" : "es");
	}
	json_decref(result);
	return code;
}

static int cmd_set(struct cli *c)
{
	bool own = c->opt[O_CLASS] || c->opt[O_WEIGHT], given = cli_vgpu_any(c->opt + O_GIVEN);
	struct proto_vgpu_config config = { 0 };
	uint64_t pid, tenant = 0, weight = 0;
	json_t *was = NULL;
	int code;

	if (!own && !given) {
		return cli_fail(c, CLI_USAGE, "usage", "Give at least one option",
				"set: nothing to change");
	}
	if (own && given) {
		return cli_fail(c, CLI_USAGE, "usage", "Use two calls",
				"set: class and weight are the program's, the other options its "
				"virtual GPU's");
	}
	if (cli_number(c, "PID", c->arg[0], 1, INT32_MAX, &pid) ||
	    (c->opt[O_WEIGHT] && cli_number(c, "--weight", c->opt[O_WEIGHT], 1, 10000, &weight)) ||
	    cli_vgpu_read(c, "set", c->opt + O_GIVEN, &config)) {
		return CLI_USAGE;
	}
	code = tenant_of_pid(c, pid, &tenant, &was);
	if (code == CLI_OK) {
		code = own ? change(c, pid, tenant, was, weight)
			   : change_vgpu(c, pid, tenant, &config);
	}
	json_decref(was);
	return code;
}

const struct cli_verb verb_ps = {
	.name = "ps",
	.args = "",
	.doc = "list the programs that run under gBPF",
	.page = "gbpf-ps.1",
	.options = ps_options,
	.run = cmd_ps,
};

const struct cli_verb verb_set = {
	.name = "set",
	.args = "PID",
	.doc = "change class or weight of a running program, or what its virtual GPU is given",
	.page = "gbpf-ps.1",
	.options = set_options,
	.min_args = 1,
	.max_args = 1,
	.run = cmd_set,
};

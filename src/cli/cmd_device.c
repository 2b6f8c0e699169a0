/* `gbpf device`: the GPUs that gbpfd knows; for a soft GPU, queried directly, also its activity and
 * the unsupported calls of programs. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "cli/capabilities.h"
#include "cli/connect.h"
#include "cli/verbs.h"
#include "soft/query.h"

#define SAMPLE_NS 100000000u /* between two samples, for utilization */
#define CONTEXTS_MAX 4096u   /* shown per GPU */

enum { O_SOFT, O_UNSUPPORTED, O_PID };

static const struct cli_option options[] = {
	[O_SOFT] = { "soft", 0, NULL, "the soft GPUs that run, their load and their contexts" },
	[O_UNSUPPORTED] = { "unsupported", 0, NULL,
			    "unsupported driver functions that programs called on the soft GPU" },
	[O_PID] = { "pid", 0, "PID", "with --unsupported: of this program alone" },
	{ NULL, 0, NULL, NULL },
};

/* Returns the number of tenants, which the reply gives as a number or as a list. */
static uint64_t how_many(const json_t *device)
{
	const json_t *v = json_object_get(device, "tenants");

	return json_is_array(v) ? json_array_size(v) : cli_u64(device, "tenants");
}

static void policy_cell(struct cli_table *t, const json_t *device)
{
	uint64_t version = cli_u64(device, "policy_version");

	if (version) {
		cli_table_cell(t, "%s@%llu", cli_text(device, "policy"),
			       (unsigned long long)version);
	} else {
		cli_table_cell(t, "%s", "");
	}
}

static void print_capabilities(const json_t *result)
{
	struct buf text = { 0 };
	const json_t *d;
	size_t i;

	json_array_foreach(json_object_get(result, "devices"), i, d)
	{
		cli_capabilities_of(&text, d);
		printf("%sGPU %llu: %s\n", i ? "" : "\n", (unsigned long long)cli_u64(d, "gpu"),
		       buf_text(&text));
		buf_clear(&text);
	}
	cli_capabilities_lanes(&text, result);
	printf("lanes: %s\n", buf_text(&text));
	buf_finish(&text);
}

static int list_known(struct cli *c)
{
	json_t *result = NULL, *d;
	struct cli_table t;
	size_t i;
	int code = cli_call(c, "device", "device.list", NULL, &result);

	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "device", result);
	}
	cli_table_init(&t);
	cli_table_column(&t, "GPU", true);
	cli_table_column(&t, "KIND", false);
	cli_table_column(&t, "NAME", false);
	cli_table_column(&t, "PROGRAMS", true);
	cli_table_column(&t, "POLICY", false);
	cli_table_column(&t, "UUID", false);
	json_array_foreach(json_object_get(result, "devices"), i, d)
	{
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(d, "gpu"));
		cli_table_cell(&t, "%s", cli_text(d, "kind"));
		cli_table_cell(&t, "%s", cli_text(d, "name"));
		cli_table_cell(&t, "%llu", (unsigned long long)how_many(d));
		policy_cell(&t, d);
		cli_table_cell(&t, "%s", cli_text(d, "uuid"));
	}
	if (t.n) {
		cli_table_print(&t, stdout, c->color_out);
		print_capabilities(result);
	} else {
		cli_note(c,
			 "gbpfd knows no device yet: it learns of devices from the programs that "
			 "use them.");
	}
	cli_table_finish(&t);
	json_decref(result);
	return CLI_OK;
}

static int cannot_ask(struct cli *c, int err)
{
	if (err == -ENOENT || err == -ECONNREFUSED) {
		return cli_fail(c, CLI_UNREACHABLE, "no-soft-gpu",
				"One starts with the first program: gbpf run --device soft",
				"device: no soft GPU is running");
	}
	if (err == -EPERM) {
		return cli_fail(c, CLI_PERMISSION, "not-yours", NULL,
				"device: the soft GPU is another user's");
	}
	return cli_fail(c, CLI_FAILED, "soft-gpu",
			err == -EPROTO ? "Is it of another version? It leaves when idle" : NULL,
			"device: the soft GPU does not answer: %s", strerror(-err));
}

/* Queries one GPU: current counters and contexts. */
static int gpu_object(struct soft_query *q, uint32_t gpu, json_t *contexts,
		      struct soft_gpu_info *ret)
{
	struct soft_gpu_info i;
	uint32_t first = 0;
	int err;

	do {
		err = soft_query_gpu(q, gpu, first, &i);
		if (err) {
			return err;
		}
		if (first == 0) {
			*ret = i;
		}
		for (uint32_t k = 0; k < i.n; k++) {
			const struct soft_group_info *g = &i.group[k];

			json_array_append_new(
				contexts,
				json_pack("{s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:b}",
					  "gpu", (int)gpu, "pid", g->pid, "context",
					  (int)g->context, "memory_bytes",
					  (json_int_t)g->memory_bytes, "slice_us",
					  (json_int_t)g->slice_us, "run_ns", (json_int_t)g->run_ns,
					  "switches", (json_int_t)g->switches_in, "launches",
					  (json_int_t)g->launches_done, "copied_bytes",
					  (json_int_t)g->bytes_copied, "error", g->error, "enabled",
					  (int)(g->enabled != 0)));
		}
		first += i.n;
	} while (i.n && first < i.groups && first < CONTEXTS_MAX);
	return 0;
}

static double busy_share(const struct soft_gpu_info *a, const struct soft_gpu_info *b)
{
	return b->now_ns > a->now_ns && b->busy_ns >= a->busy_ns
		       ? MIN((double)(b->busy_ns - a->busy_ns) / (double)(b->now_ns - a->now_ns),
			     1.0)
		       : 0;
}

/* Queries each GPU twice, SAMPLE_NS apart. */
static int ask_all(struct soft_query *q, json_t *gpus, json_t *contexts)
{
	struct soft_gpu_info before[SOFT_MAX_GPUS], now;
	uint32_t n = 1;
	int err = 0;

	for (uint32_t i = 0; i < n && err == 0; i++) {
		err = soft_query_gpu(q, i, 0, &before[i]);
		n = err ? n : MIN(before[0].gpus, SOFT_MAX_GPUS);
	}
	if (err == 0) {
		clock_sleep_ns(SAMPLE_NS);
	}
	for (uint32_t i = 0; i < n && err == 0; i++) {
		err = gpu_object(q, i, contexts, &now);
		if (err) {
			break;
		}
		json_array_append_new(
			gpus,
			json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:f, s:I, s:I, s:I, s:i}",
				  "gpu", (int)i, "pid", (int)now.pid, "sms", (int)now.sms,
				  "workers", (int)now.workers, "clock_khz", (int)now.clock_khz,
				  "memory_bytes", (json_int_t)now.memory_bytes, "memory_used_bytes",
				  (json_int_t)now.memory_used, "busy", busy_share(&before[i], &now),
				  "copied_bytes", (json_int_t)now.bytes_copied, "switches",
				  (json_int_t)now.switches, "slice_us", (json_int_t)now.slice_us,
				  "contexts", (int)now.groups));
	}
	return err;
}

static void print_gpus(struct cli *c, const json_t *gpus)
{
	static const char *const heads[] = { "GPU",  "SMS",	 "WORKERS", "MEMORY", "OF",
					     "BUSY", "CONTEXTS", "COPIED",  "SLICE" };
	struct cli_table t;
	char text[24];
	size_t i;
	json_t *g;

	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], true);
	}
	json_array_foreach(gpus, i, g)
	{
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "gpu"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "sms"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "workers"));
		cli_table_cell(&t, "%s", cli_bytes(text, cli_u64(g, "memory_used_bytes")));
		cli_table_cell(&t, "%s", cli_bytes(text, cli_u64(g, "memory_bytes")));
		cli_table_cell(&t, "%.0f %%", 100 * json_real_value(json_object_get(g, "busy")));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "contexts"));
		cli_table_cell(&t, "%s", cli_bytes(text, cli_u64(g, "copied_bytes")));
		cli_table_cell(&t, "%s", cli_duration(text, 1000 * cli_u64(g, "slice_us")));
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

static const char *state_of(const json_t *context)
{
	return cli_u64(context, "error")			   ? "failed"
	       : json_is_true(json_object_get(context, "enabled")) ? "enabled"
								   : "disabled";
}

static void print_contexts(struct cli *c, const json_t *contexts)
{
	static const char *const heads[] = { "GPU", "PID",	"CONTEXT",  "MEMORY", "SLICE",
					     "RAN", "SWITCHES", "LAUNCHES", "COPIED", "STATE" };
	struct cli_table t;
	char text[24];
	size_t i;
	json_t *g;

	if (json_array_size(contexts) == 0) {
		return;
	}
	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], i + 1 < ARRAY_SIZE(heads));
	}
	json_array_foreach(contexts, i, g)
	{
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "gpu"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "pid"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "context"));
		cli_table_cell(&t, "%s", cli_bytes(text, cli_u64(g, "memory_bytes")));
		cli_table_cell(&t, "%s", cli_duration(text, 1000 * cli_u64(g, "slice_us")));
		cli_table_cell(&t, "%s", cli_duration(text, cli_u64(g, "run_ns")));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "switches"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(g, "launches"));
		cli_table_cell(&t, "%s", cli_bytes(text, cli_u64(g, "copied_bytes")));
		cli_table_cell(&t, "%s", state_of(g));
	}
	puts("");
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

static int list_soft(struct cli *c, struct soft_query *q)
{
	json_t *gpus = json_array(), *contexts = json_array();
	int err = ask_all(q, gpus, contexts);

	if (err == 0 && c->json) {
		return cli_json(c, "device.soft",
				json_pack("{s:o, s:o}", "gpus", gpus, "contexts", contexts));
	}
	if (err == 0) {
		print_gpus(c, gpus);
		print_contexts(c, contexts);
	}
	json_decref(gpus);
	json_decref(contexts);
	return err ? cannot_ask(c, err) : CLI_OK;
}

static void print_unsupported(struct cli *c, const json_t *list, int pid)
{
	struct cli_table t;
	size_t i;
	json_t *f;

	if (json_array_size(list) == 0) {
		if (pid) {
			cli_note(c,
				 "Process %d has asked for none, or is not on the soft GPU; see "
				 "gbpf "
				 "device --soft",
				 pid);
		} else {
			cli_note(c, "No program has called an unsupported function.");
		}
		return;
	}
	cli_table_init(&t);
	cli_table_column(&t, "CALLS", true);
	cli_table_column(&t, "FUNCTION", false);
	json_array_foreach(list, i, f)
	{
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(f, "calls"));
		cli_table_cell(&t, "%s", cli_text(f, "function"));
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

static int list_unsupported(struct cli *c, struct soft_query *q, int pid)
{
	struct soft_unsupported_info u;
	json_t *list = json_array();
	uint32_t from = 0;
	int err;

	do {
		err = soft_query_unsupported(q, pid, &from, &u);
		for (uint32_t i = 0; err == 0 && i < u.n; i++) {
			json_array_append_new(list,
					      json_pack("{s:o, s:I}", "function",
							cli_json_text(u.entry[i].name), "calls",
							(json_int_t)u.entry[i].calls));
		}
	} while (err == 0 && from);
	if (err == 0 && c->json) {
		return cli_json(c, "device.unsupported", json_pack("{s:o}", "unsupported", list));
	}
	if (err == 0) {
		print_unsupported(c, list, pid);
	}
	json_decref(list);
	return err ? cannot_ask(c, err) : CLI_OK;
}

static int cmd_device(struct cli *c)
{
	struct soft_query q;
	uint64_t pid = 0;
	int err, code = CLI_OK;

	if (c->opt[O_PID] && !c->opt[O_UNSUPPORTED]) {
		return cli_fail(c, CLI_USAGE, "usage", NULL, "device: --pid needs --unsupported");
	}
	if (c->opt[O_PID]) {
		code = cli_number(c, "--pid", c->opt[O_PID], 1, INT32_MAX, &pid);
	}
	if (code != CLI_OK || (!c->opt[O_SOFT] && !c->opt[O_UNSUPPORTED])) {
		return code == CLI_OK ? list_known(c) : code;
	}
	err = soft_query_open(&q);
	if (err) {
		return cannot_ask(c, err);
	}
	code = c->opt[O_UNSUPPORTED] ? list_unsupported(c, &q, (int)pid) : list_soft(c, &q);
	soft_query_close(&q);
	return code;
}

const struct cli_verb verb_device = {
	.name = "device",
	.args = "",
	.doc = "list GPUs; show the activity of a soft GPU",
	.page = "gbpf.1",
	.options = options,
	.run = cmd_device,
};

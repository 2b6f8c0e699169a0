/* `gbpf policy test`: a policy against scenarios, without a GPU and without gbpfd. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/policy_file.h"
#include "cli/verbs.h"
#include "sim/sim.h"

#define SCENARIO_MAX_BYTES (4u << 20)

enum { O_VERBOSE, O_JIT };

static const struct cli_option options[] = {
	[O_VERBOSE] = { "verbose", 'v', NULL, "print each decision" },
	[O_JIT] = { "jit", 0, NULL, "run compiled code instead of the interpreter" },
	{ NULL, 0, NULL, NULL },
};

static int exit_of(int err)
{
	return err == 0 ? CLI_OK : err == -EACCES || err == -E2BIG ? CLI_REFUSED : CLI_FAILED;
}

static json_t *failure_json(const struct sim_failure *f)
{
	return json_pack("{s:i, s:i, s:I, s:s?, s:s?, s:s?, s:s?}", "line", (int)f->line, "column",
			 (int)f->column + 1, "times", (json_int_t)f->times, "text", f->text,
			 "expected", f->expected, "got", f->got, "after", f->after);
}

static json_t *prints_json(const struct sim_result *res)
{
	json_t *prints = json_array();

	for (unsigned i = 0; i < res->n_prints; i++) {
		const struct sim_print *p = &res->prints[i];

		json_array_append_new(prints,
				      json_pack("{s:i, s:I, s:s, s:s, s:s}", "line", (int)p->line,
						"now_ns", (json_int_t)p->now_ns, "where", p->where,
						"hook", p->hook, "text", p->text));
	}
	return prints;
}

/* With --verbose they are in the trace. */
static void print_prints(const struct cli *c, const struct sim_result *res)
{
	for (unsigned i = 0; i < res->n_prints && !c->opt[O_VERBOSE]; i++) {
		const struct sim_print *p = &res->prints[i];

		printf("%3u  %.6f s  %-8s %s: %s\n", p->line, (double)p->now_ns / 1e9, p->where,
		       p->hook, p->text);
	}
	if (res->prints_left_out) {
		printf("%" PRIu64 " printed lines left out\n", res->prints_left_out);
	}
}

static json_t *result_json(const char *file, int err, const struct sim_result *res,
			   const struct report *r)
{
	json_t *failures = json_array();
	json_t *d;

	for (unsigned i = 0; i < res->n_failures; i++) {
		json_array_append_new(failures, failure_json(&res->failure[i]));
	}
	d = json_pack("{s:o, s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:I}", "file", cli_json_text(file),
		      "ok", !err && !res->failures, "events", (json_int_t)res->events,
		      "expectations", (json_int_t)res->expectations, "failed",
		      (json_int_t)res->failures, "span_ns", (json_int_t)res->span_ns, "failures",
		      failures, "prints", prints_json(res), "prints_left_out",
		      (json_int_t)res->prints_left_out);
	if (err && d) {
		json_object_set_new(d, "error", cli_report_json(r));
	}
	return d;
}

static void print_failures(const struct sim_result *res)
{
	uint64_t told = 0;

	for (unsigned i = 0; i < res->n_failures; i++) {
		const struct sim_failure *f = &res->failure[i];

		printf("  line %u: %s\n", f->line, f->text ? f->text : "?");
		printf("    expected %s\n    got      %s\n", f->expected ? f->expected : "?",
		       f->got ? f->got : "?");
		if (f->after) {
			printf("    after    %s\n", f->after);
		}
		if (f->times > 1) {
			printf("    and %" PRIu64 " more times\n", f->times - 1);
		}
		told += f->times;
	}
	if (res->failures > told) {
		printf("  and %" PRIu64 " more\n", res->failures - told);
	}
}

static void print_mark(struct cli *c, bool ok, const char *file)
{
	printf("%s%s%s %s: ", cli_style(c->color_out, ok ? CLI_GREEN : CLI_RED),
	       ok ? CLI_SIGN_OK : CLI_SIGN_BAD, cli_style(c->color_out, CLI_PLAIN), file);
}

static void print_result(struct cli *c, const char *file, int err, const struct sim_result *res,
			 const struct report *r)
{
	char t[24];

	print_prints(c, res);
	if (err) {
		/* an error of the policy itself is not reported as the scenario's */
		bool own = strcmp(r->code, "scenario") == 0 || strcmp(r->code, "file") == 0;

		cli_print_report(c, stdout, own ? file : c->arg[0], r);
		return;
	}
	if (c->quiet && !res->failures) {
		return;
	}
	print_mark(c, !res->failures, file);
	if (res->failures) {
		printf("%" PRIu64 " of %" PRIu64 " expectations failed\n", res->failures,
		       res->expectations);
		print_failures(res);
		return;
	}
	printf("%" PRIu64 " event%s, %" PRIu64 " expectation%s, %s of time\n", res->events,
	       res->events == 1 ? "" : "s", res->expectations, res->expectations == 1 ? "" : "s",
	       cli_duration(t, res->span_ns));
}

static int test_one(struct cli *c, const char *name, const struct buf *elf, const char *file,
		    json_t *list)
{
	struct sim_options o = { .policy = name,
				 .elf = elf->data,
				 .elf_bytes = elf->len,
				 .scenario = cli_base_name(file),
				 .trace = c->opt[O_VERBOSE] && !c->json ? stdout : NULL,
				 .flags = c->opt[O_JIT] ? SIM_JIT : 0 };
	struct sim_result res = { 0 };
	struct buf text = { 0 };
	struct report r;
	int err;

	report_init(&r);
	err = buf_read_file(&text, file, SCENARIO_MAX_BYTES);
	if (err) {
		report_set(&r, err, "file", "cannot be read: %s", strerror(-err));
		err = -EINVAL;
	} else if (memchr(buf_text(&text), 0, text.len)) {
		err = report_set(&r, -EINVAL, "scenario", "this is no text");
	} else {
		o.text = buf_text(&text);
		err = sim_run(&o, &res, &r);
	}
	if (err && !r.message.len) {
		report_set(&r, err, "failed", "%s", strerror(-err));
	}
	if (c->json) {
		json_array_append_new(list, result_json(file, err, &res, &r));
	} else {
		print_result(c, file, err, &res, &r);
	}
	err = err ? exit_of(err) : res.failures ? CLI_FAILED : CLI_OK;
	sim_result_finish(&res);
	report_finish(&r);
	buf_finish(&text);
	return err;
}

/* Returns the number of words that name the policy: the first, and the object files that follow. */
static int count_objects(const struct cli *c)
{
	int n = 1;

	while (n < c->n_args) {
		size_t len = strlen(c->arg[n]);

		if (len < 3 || strcmp(c->arg[n] + len - 2, ".o") != 0) {
			break;
		}
		n++;
	}
	return n;
}

/* Finds "x.scenario" in the folder of "x.bpf.o". Returns CLI_OK, or an exit code after a message.
 */
static int own_scenario(struct cli *c, char *path, size_t cap)
{
	static const char *const ends[] = { ".bpf.o", ".o" };
	int code = cli_object_find(c, CLI_POLICY, "policy test", c->arg[0], path, cap);
	size_t len = strlen(path);

	if (code != CLI_OK) {
		return code;
	}
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		size_t n = strlen(ends[i]);

		if (len > n && strcmp(path + len - n, ends[i]) == 0) {
			snprintf(path + len - n, cap - (len - n), ".scenario");
			break;
		}
	}
	if (strlen(path) != len && access(path, R_OK) == 0) {
		return CLI_OK;
	}
	return cli_fail(c, CLI_USAGE, "usage", "See: gbpf help policy test",
			"policy test: name a scenario; there is no %s", path);
}

static int cmd_policy_test(struct cli *c)
{
	int n = count_objects(c), worst = CLI_OK, code = CLI_OK;
	char *files[1] = { NULL }, own[PATH_MAX], name[64];
	char **scenarios = c->arg + n;
	int n_scenarios = c->n_args - n;
	json_t *list = json_array();
	struct buf elf = { 0 };

	if (!n_scenarios) {
		code = own_scenario(c, own, sizeof(own));
		files[0] = own;
		scenarios = files;
		n_scenarios = 1;
	}
	code = code == CLI_OK ? cli_object_read(c, CLI_POLICY, "policy test", c->arg, n, &elf, name)
			      : code;
	for (int i = 0; i < n_scenarios && code == CLI_OK; i++) {
		int one = test_one(c, name, &elf, scenarios[i], list);

		worst = worst == CLI_FAILED || one == CLI_FAILED ? CLI_FAILED : MAX(worst, one);
	}
	buf_finish(&elf);
	if (code == CLI_OK && c->json) {
		cli_json(c, "policy.test",
			 json_pack("{s:o, s:o}", "policy", cli_json_text(name), "scenarios", list));
	} else {
		json_decref(list);
	}
	return code == CLI_OK ? worst : code;
}

const struct cli_verb verb_policy_test = {
	.name = "test",
	.args = "NAME|OBJECT... [SCENARIO...]",
	.doc = "run a policy against scenarios: 0 as expected, 1 not, 4 refused",
	.page = "gbpf-policy.1",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.run = cmd_policy_test,
};

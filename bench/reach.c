/* `gbpf bench reach`: the share of the frameworks' launches that gBPF can stop between blocks, from
 * gbpfd's statistics of the program: kernels whose PTX was available and has a preemptible clone. A
 * program of gBPF whose kernels are all PTX runs, too, to verify the counting. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "bench/common/testbed.h"

#define OWN_NS 2000000000ull
#define VERDICT 512u	    /* bytes of a workload's line */
#define STATS_NS 300000000u /* until the last launches are retired and counted */

struct reach {
	struct bench_testbed testbed;
	const char *policy, *policy_name, *python, *script, *parts, *save;
	double seconds; /* limit of one part */
	struct bench_testbed_daemon *daemon;
	json_t *results; /* owned */
};

static const char *const names[] = { "ptx",	"torch", "triton-own", "triton", "compile-own",
				     "compile", "cupy",	 "cupy-ptx",   "jax",	 "jax-ptxas" };
static const char *const docs[] = { "gBPF's own kernels, all PTX",
				    "PyTorch, eager",
				    "Triton with its own ptxas",
				    "Triton",
				    "torch.compile with Triton's own ptxas",
				    "torch.compile",
				    "CuPy",
				    "CuPy compiling to PTX",
				    "JAX",
				    "JAX compiling with gBPF's ptxas" };
_Static_assert(ARRAY_SIZE(names) == ARRAY_SIZE(docs), "names and docs");

/* ---- statistics of gbpfd ---- */

struct shares {
	double launches, shown, with_twin; /* launches: including kernels that are not shown */
	double shown_ns, with_twin_ns, block_launches; /* number times learned duration */
	json_t *why;	 /* owned: reasons of kernels without a clone, with launches */
	json_t *kernels; /* owned: each shown kernel */
};

static double number(const json_t *o, const char *name)
{
	return json_number_value(json_object_get(o, name));
}

static void shares_finish(struct shares *s)
{
	json_decref(s->why);
	json_decref(s->kernels);
}

static void add_kernel(struct shares *s, const json_t *k)
{
	double n = number(k, "count"), ns = n * number(k, "est_ns");
	const char *why = json_string_value(json_object_get(k, "block_why"));

	s->shown += n;
	s->shown_ns += ns;
	json_array_append_new(s->kernels,
			      json_pack("{s:O, s:f, s:f, s:b}", "name", json_object_get(k, "name"),
					"count", n, "est_us", number(k, "est_ns") * 1e-3, "twin",
					json_is_true(json_object_get(k, "block"))));
	if (json_is_true(json_object_get(k, "block"))) {
		s->with_twin += n;
		s->with_twin_ns += ns;
	} else if (why) {
		json_object_set_new(s->why, why, json_real(number(s->why, why) + n));
	}
}

/* Sums up the processes of that name: a framework may have several. Returns false if there is none.
 */
static bool ask(struct reach *b, const char *name, struct shares *s)
{
	json_t *tenants = bench_testbed_tenants(b->daemon), *t;
	bool seen = false;
	size_t i;

	*s = (struct shares){ .why = json_object(), .kernels = json_array() };
	json_array_foreach(tenants, i, t)
	{
		const char *is = json_string_value(json_object_get(t, "name"));
		const json_t *stats = json_object_get(t, "stats"), *k;
		size_t j;

		if (!is || strcmp(is, name) != 0) {
			continue;
		}
		seen = true;
		s->launches += number(stats, "launches");
		s->block_launches += number(stats, "block_launches");
		json_array_foreach(json_object_get(t, "kernels"), j, k)
		{
			add_kernel(s, k);
		}
	}
	json_decref(tenants);
	return seen;
}

/* Records a part's result. text: the reason why it was not run, or the settings that the workload
 * printed, or "". pass_ms: duration of a pass by the workload's own clock; 0: not reported. */
static void record(struct reach *b, unsigned part, const char *state, const char *text,
		   const struct shares *s, double pass_ms)
{
	char own[24] = "-";

	json_t *o =
		json_pack("{s:s, s:s, s:s}", "part", names[part], "is", docs[part], "state", state);

	if (text[0]) {
		json_object_set_new(o, s ? "settings" : "why", json_string(text));
	}
	if (s) {
		json_object_update_new(o, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:O, s:O}",
						    "launches", s->launches, "launches_shown",
						    s->shown, "launches_with_twin", s->with_twin,
						    "block_launches", s->block_launches,
						    "gpu_ms_shown", s->shown_ns * 1e-6,
						    "gpu_ms_with_twin", s->with_twin_ns * 1e-6,
						    "without_twin", s->why, "kernels", s->kernels));
	}
	if (pass_ms > 0) {
		json_object_set_new(o, "pass_ms", json_real(pass_ms));
		snprintf(own, sizeof(own), "%.2f", pass_ms);
	}
	json_array_append_new(b->results, o);
	if (b->testbed.json) {
		return;
	}
	if (!s) {
		printf("%-11s %s: %s\n", names[part], state, text);
	} else {
		printf("%-11s %9.0f %9.0f %8.1f %11.2f %8.1f %9s\n", names[part], s->launches,
		       s->shown, s->shown > 0 ? 100 * s->with_twin / s->shown : 0,
		       s->shown_ns * 1e-6,
		       s->shown_ns > 0 ? 100 * s->with_twin_ns / s->shown_ns : 0, own);
	}
	fflush(stdout);
}

/* ---- the parts ---- */

static int run_own(struct reach *b)
{
	struct bench_testbed_place place = {
		.lane = LANE_GBPF, .daemon = b->daemon, .class_name = "batch", .mps_priority = -1
	};
	struct bench_testbed_client c;
	struct bench_testbed_command k;
	struct shares s;
	int err;

	bench_command_init(&k);
	bench_command_option(&k, "--iterations", b->testbed.soft ? "2000" : "20000");
	if (b->testbed.soft) {
		bench_command_option(&k, "--threads", "64");
		bench_command_option(&k, "--grid", "8");
	}
	err = bench_client_start(&b->testbed, &c, "reach-ptx", &place, "batch", &k);
	bench_command_finish(&k);
	err = err ? err : bench_client_await(&c, 90000000000ull);
	if (!err) {
		bench_client_send(&c, PAGE_WORK);
		err = bench_client_await(&c, 60000000000ull);
		clock_sleep_ns(b->testbed.soft ? STATS_NS : OWN_NS);
		bench_client_send(&c, PAGE_PAUSE);
		err = err ? err : bench_client_await(&c, 60000000000ull);
	}
	if (!err) {
		clock_sleep_ns(STATS_NS);
		if (ask(b, "reach-ptx", &s)) {
			record(b, 0, "run", "", &s, 0);
		} else {
			err = bench_testbed_fail(&b->testbed, "gbpfd does not list the program");
		}
		shares_finish(&s);
	}
	bench_client_stop(&c);
	return err;
}

/* Reads the workload's result line; out: empty if none came in time. */
static void read_verdict(struct reach *b, pid_t pid, int fd, char out[VERDICT])
{
	uint64_t deadline = clock_now_ns() + (uint64_t)(b->seconds * 1e9);
	char text[8192];
	size_t n = 0;

	out[0] = 0;
	while (clock_now_ns() < deadline && !bench_testbed_interrupted()) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (poll(&p, 1, 100) <= 0) {
			continue;
		}
		got = read(fd, text + n, sizeof(text) - 1 - n);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
			break;
		}
		n += got > 0 ? (size_t)got : 0;
		text[n] = 0;
		for (char *line = text; line; line = strchr(line, '\n')) {
			line += *line == '\n';
			if ((strncmp(line, "done ", 5) == 0 || strncmp(line, "absent: ", 8) == 0) &&
			    strchr(line, '\n')) {
				snprintf(out, VERDICT, "%.*s", (int)strcspn(line, "\n"), line);
				return;
			}
		}
		if (n > sizeof(text) / 2) { /* only the newest matters */
			memmove(text, text + n / 2, n - n / 2);
			n -= n / 2;
		}
	}
	text[n] = 0; /* its last line of output, for the report */
	while (n && text[n - 1] == '\n') {
		text[--n] = 0;
	}
	snprintf(out, VERDICT, "failed: %.190s",
		 n ? (strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text)
		 : bench_testbed_lives(&b->testbed, pid) ? "it takes too long"
							 : "it ended without a word");
}

/* Returns the settings of "done SECONDS [ms=PASS] SETTINGS". */
static const char *settings_in(const char *verdict, double *pass_ms)
{
	verdict += strlen("done ");
	verdict += strcspn(verdict, " ");
	verdict += strspn(verdict, " ");
	*pass_ms = 0;
	if (strncmp(verdict, "ms=", 3) == 0) {
		*pass_ms = strtod(verdict + 3, NULL);
		verdict += strcspn(verdict, " ");
		verdict += strspn(verdict, " ");
	}
	return verdict;
}

static int run_framework(struct reach *b, unsigned part)
{
	struct bench_testbed_command k;
	char name[48], verdict[VERDICT];
	const char *settings;
	struct shares s;
	double pass_ms;
	int out = -1;
	pid_t pid;

	snprintf(name, sizeof(name), "reach-%s", names[part]);
	bench_command_init(&k);
	bench_command_env(&k, "GBPF_RUNTIME_DIR=%s", b->daemon->dir);
	bench_command_env(&k, "GBPF_STATE_DIR=%s/state", b->daemon->dir);
	/* Separate folders, since caches of other settings would be reused. */
	bench_command_env(&k, "TRITON_CACHE_DIR=%s/%s-triton", b->daemon->dir, names[part]);
	bench_command_env(&k, "TORCHINDUCTOR_CACHE_DIR=%s/%s-inductor", b->daemon->dir,
			  names[part]);
	bench_command_env(&k, "CUPY_CACHE_DIR=%s/%s-cupy", b->daemon->dir, names[part]);
	bench_command_add(&k, "%s", b->testbed.gbpf);
	bench_command_add(&k, "run");
	bench_command_option(&k, "--device", b->testbed.soft ? "soft" : "nvidia");
	bench_command_option(&k, "--class", "batch");
	bench_command_option(&k, "--name", "%s", name);
	bench_command_add(&k, "--");
	bench_command_add(&k, "%s", b->python);
	bench_command_add(&k, "%s", b->script);
	bench_command_add(&k, "%s", names[part]);
	pid = bench_testbed_spawn(&b->testbed, &k, NULL, -1, &out);
	bench_command_finish(&k);
	if (pid < 0) {
		return -1;
	}
	read_verdict(b, pid, out, verdict);
	if (strncmp(verdict, "done ", 5) == 0) {
		clock_sleep_ns(STATS_NS);
		settings = settings_in(verdict, &pass_ms);
		if (ask(b, name, &s)) {
			record(b, part, "run", settings, &s, pass_ms);
		} else {
			record(b, part, "failed", "gbpfd does not list the program", NULL, 0);
		}
		shares_finish(&s);
	} else if (strncmp(verdict, "absent: ", 8) == 0) {
		record(b, part, "not available", verdict + 8, NULL, 0);
	} else {
		record(b, part, "failed", verdict + 8, NULL, 0);
	}
	bench_testbed_end(&b->testbed, pid, 0);
	fd_close(out);
	return bench_testbed_interrupted() ? bench_testbed_fail(&b->testbed, "interrupted") : 0;
}

static int run(struct reach *b)
{
	int err = 0;

	if (bench_testbed_init(&b->testbed) < 0) {
		return -1;
	}
	b->daemon = bench_testbed_gbpfd(&b->testbed, b->policy);
	if (!b->daemon) {
		return -1;
	}
	if (!b->testbed.json) {
		printf("%-11s %9s %9s %8s %11s %8s %9s\n", "PART", "LAUNCHES", "COUNTED", "TWIN %",
		       "GPU ms", "TWIN %", "PASS ms");
	}
	for (unsigned i = 0; i < ARRAY_SIZE(names) && !err; i++) {
		if (!b->parts || bench_testbed_names(b->parts, names[i])) {
			bench_testbed_progress(&b->testbed, "reach: %s", docs[i]);
			err = i == 0 ? run_own(b) : run_framework(b, i);
		}
	}
	return err;
}

static int put(struct reach *b)
{
	json_t *doc = json_pack("{s:s, s:s, s:O}", "schema", "gbpf.bench.reach/1", "policy",
				b->policy_name, "parts", b->results);
	int err;

	if (!b->testbed.json) {
		puts("TWIN: kernels that can be stopped between blocks, of the launches counted "
		     "(those of the most frequent\n"
		     "kernels) and of their GPU time, as it was learned; "
		     "PASS: one pass of the workload, by its own clock");
	}
	err = bench_testbed_document(&b->testbed, doc, b->save);
	json_decref(doc);
	return err;
}

static bool parse_one(struct reach *b, const char *name, const char *text, int *i)
{
	const struct bench_testbed_value table[] = {
		{ "--policy", &b->policy, NULL }, { "--policy-name", &b->policy_name, NULL },
		{ "--save", &b->save, NULL },	  { "--python", &b->python, NULL },
		{ "--script", &b->script, NULL }, { "--parts", &b->parts, NULL },
	};

	if (bench_testbed_option(&b->testbed, name, text, i)) {
		return true;
	}
	++*i;
	if (bench_testbed_value(table, ARRAY_SIZE(table), name, text)) {
		return true;
	}
	if (strcmp(name, "--seconds") == 0) {
		b->seconds = strtod(text, NULL);
		return b->seconds > 0;
	}
	return false;
}

int main(int argc, char **argv)
{
	static struct reach b = { .seconds = 180, .python = "python3", .policy_name = "" };
	bool good = true;
	int err;

	b.testbed.bench = "reach";
	for (int i = 1; i < argc && good; i++) {
		good = parse_one(&b, argv[i], i + 1 < argc ? argv[i + 1] : "", &i);
	}
	if (!good || !b.policy || !b.script || !b.testbed.gbpf || !b.testbed.client) {
		return bench_testbed_usage(&b.testbed);
	}
	b.testbed.progress |= isatty(2) != 0;
	b.results = json_array();
	err = run(&b);
	err = err ? err : put(&b);
	if (err) {
		bench_testbed_complain(&b.testbed);
	}
	json_decref(b.results);
	bench_testbed_finish(&b.testbed);
	return err || fflush(stdout) ? 1 : 0;
}

/* `gbpf bench dev reach`: the share of the frameworks' launches that gBPF can stop between blocks,
 * from gbpfd's statistics of the program: launches of preemptible clones and of machine code with a
 * gate. Programs of gBPF whose kernels are all PTX, and all machine code, verify the counting. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "bench/common/program.h"
#include "bench/common/testbed.h"

#define OWN_NS 2000000000ull
#define VERDICT 512u	    /* bytes of a workload's line */
#define STATS_NS 300000000u /* until the last launches are retired and counted */

struct reach {
	struct bench_testbed testbed;
	const char *python, *script, *parts;
	double seconds; /* limit of one part */
	bool probes;	/* ask how kernels can be probed, too */
	struct bench_testbed_daemon *daemon;
	uint64_t seen; /* sequence number of the last event of an earlier part */
};

enum { OWN_PTX, OWN_CODE };
static const char *const names[] = { "ptx",	 "code",	"torch",     "triton-own",
				     "triton",	 "compile-own", "compile",   "cupy",
				     "cupy-ptx", "jax",		"jax-ptxas", "numba" };
static const char *const docs[] = { "gBPF's own kernels, all PTX",
				    "gBPF's own kernels, all machine code",
				    "PyTorch, eager",
				    "Triton with its own ptxas",
				    "Triton",
				    "torch.compile with Triton's own ptxas",
				    "torch.compile",
				    "CuPy",
				    "CuPy compiling to PTX",
				    "JAX",
				    "JAX compiling with gBPF's ptxas",
				    "Numba" };
_Static_assert(ARRAY_SIZE(names) == ARRAY_SIZE(docs), "names and docs");

#define NAME 48u

/* Returns the name under which the part's processes run. */
static const char *name_of(unsigned part, char name[NAME])
{
	snprintf(name, NAME, "reach-%s", names[part]);
	return name;
}

/* Returns gbpfd's events since the previous part. */
static json_t *take_events(struct reach *b)
{
	json_t *events = bench_testbed_events(b->daemon, b->seen), *e;
	size_t i;

	json_array_foreach(events, i, e)
	{
		uint64_t seq = (uint64_t)json_integer_value(json_object_get(e, "seq"));

		b->seen = MAX(b->seen, seq);
	}
	return events;
}

/* Writes a part's record. text: the reason why it was not run, or the settings that the workload
 * printed, or "". pass_ms: duration of a pass by the workload's own clock; 0: not reported.
 * tenants: gbpfd's entries of its processes, of that name, released; NULL: it was not run. */
static int record(struct reach *b, unsigned part, const char *state, const char *text,
		  double pass_ms, json_t *tenants)
{
	json_t *coverage = NULL;
	char name[NAME];

	if (b->probes && tenants) {
		coverage = bench_testbed_coverage(b->daemon, name_of(part, name));
	}
	return bench_testbed_record(&b->testbed, "part",
				    json_pack("{s:s, s:s, s:s, s:o, s:f, s:o*, s:o*, s:o*}", "part",
					      names[part], "is", docs[part], "state", state, "text",
					      bench_program_text(text), "pass_ms", pass_ms,
					      "tenants", tenants, "coverage", coverage, "events",
					      take_events(b)));
}

/* Returns gbpfd's entries of the processes of that name, of which a framework may have several;
 * NULL: there is none. */
static json_t *ask(struct reach *b, const char *name)
{
	json_t *tenants = bench_testbed_tenants(b->daemon), *found = json_array(), *t;
	size_t i;

	json_array_foreach(tenants, i, t)
	{
		const char *is = json_string_value(json_object_get(t, "name"));

		if (is && strcmp(is, name) == 0) {
			json_array_append(found, t);
		}
	}
	json_decref(tenants);
	if (json_array_size(found) == 0) {
		json_decref(found);
		return NULL;
	}
	return found;
}

/* ---- the parts ---- */

/* Runs the client that is ready for a while, and writes the part's record. */
static int observe_own(struct reach *b, struct bench_testbed_client *c, unsigned part)
{
	json_t *tenants;
	int err;

	bench_client_send(c, PAGE_WORK);
	err = bench_client_await(c, 60000000000ull);
	clock_sleep_ns(b->testbed.soft ? STATS_NS : OWN_NS);
	bench_client_send(c, PAGE_PAUSE);
	err = err ? err : bench_client_await(c, 60000000000ull);
	if (err) {
		return err;
	}
	clock_sleep_ns(STATS_NS);
	tenants = ask(b, c->name);
	return tenants ? record(b, part, "run", "", 0, tenants)
		       : bench_testbed_fail(&b->testbed, "gbpfd does not list the program");
}

static int run_own(struct reach *b, unsigned part)
{
	struct bench_testbed_place place = {
		.lane = LANE_GBPF, .daemon = b->daemon, .class_name = "batch", .mps_priority = -1
	};
	char image[TESTBED_IMAGE], name[NAME];
	struct bench_testbed_client c;
	struct bench_testbed_command k;
	int err;

	if (part == OWN_CODE && bench_client_compile(&b->testbed, image) < 0) {
		return record(b, part, "not available", b->testbed.error, 0, NULL);
	}
	(void)name_of(part, name);
	bench_command_init(&k);
	bench_command_option(&k, "--iterations", b->testbed.soft ? "2000" : "20000");
	if (part == OWN_CODE) {
		bench_command_option(&k, "--image", "%s", image);
	}
	bench_command_option(&k, "--grid", b->testbed.soft ? "128" : "8192"); /* several waves */
	if (b->testbed.soft) {
		bench_command_option(&k, "--threads", "64");
	}
	err = bench_client_start(&b->testbed, &c, name, &place, "batch", &k);
	bench_command_finish(&k);
	err = err ? err : bench_client_await(&c, 90000000000ull);
	err = err ? err : observe_own(b, &c, part);
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
	if (clock_now_ns() >= deadline && bench_testbed_lives(&b->testbed, pid)) {
		snprintf(out, VERDICT, "failed: no result after %g s; --seconds sets the limit",
			 b->seconds);
		return;
	}
	text[n] = 0; /* its last line of output, for the report */
	while (n && text[n - 1] == '\n') {
		text[--n] = 0;
	}
	snprintf(out, VERDICT, "failed: %.190s",
		 !n		       ? "it ended without output"
		 : strrchr(text, '\n') ? strrchr(text, '\n') + 1
				       : text);
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
	char name[NAME], verdict[VERDICT];
	const char *settings;
	json_t *tenants;
	double pass_ms;
	int out = -1, err;
	pid_t pid;

	(void)name_of(part, name);
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
		tenants = ask(b, name);
		err = tenants ? record(b, part, "run", settings, pass_ms, tenants)
			      : record(b, part, "failed", "gbpfd does not list the program", 0,
				       NULL);
	} else {
		bool absent = strncmp(verdict, "absent: ", 8) == 0;

		err = record(b, part, absent ? "not available" : "failed", verdict + 8, 0, NULL);
	}
	bench_testbed_end(&b->testbed, pid, 0);
	fd_close(out);
	return bench_testbed_interrupted() ? bench_testbed_fail(&b->testbed, "interrupted") : err;
}

static int run(struct reach *b)
{
	int err = 0;

	if (bench_testbed_init(&b->testbed) < 0) {
		return -1;
	}
	b->daemon = bench_testbed_gbpfd(&b->testbed, b->testbed.policy);
	if (!b->daemon ||
	    bench_testbed_record(&b->testbed, "set_up",
				 json_pack("{s:s}", "policy", b->testbed.policy_name)) < 0) {
		return -1;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(names) && !err; i++) {
		if (!b->parts || bench_program_lists(b->parts, names[i])) {
			bench_testbed_progress(&b->testbed, "reach: %s", docs[i]);
			err = i <= OWN_CODE ? run_own(b, i) : run_framework(b, i);
		}
	}
	return err;
}

int main(int argc, char **argv)
{
	static struct reach b = { .seconds = 180, .python = "python3" };
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--python", .text = &b.python },
		{ "--script", .text = &b.script },
		{ "--parts", .text = &b.parts },
		{ "--seconds", .real = &b.seconds },
		{ "--probes", .flag = &b.probes },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || b.seconds <= 0 || !b.testbed.policy ||
	    !b.script || !b.testbed.gbpf || !b.testbed.client) {
		return bench_program_usage();
	}
	err = run(&b);
	return bench_testbed_exit(&b.testbed, err, false);
}

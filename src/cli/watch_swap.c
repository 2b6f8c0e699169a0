/* `gbpf policy swap --watch`: waits for gbpfd's decision about the new version. gbpfd monitors and
 * rolls back by itself, whether this program runs or not. */
#include "cli/watch_swap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/connect.h"
#include "cli/interrupt.h"

#define ASK_EVERY_NS 200000000u

int cli_watch_options(struct cli *c, const char *time, const char *condition, bool detach,
		      uint64_t *ret_ns)
{
	if (!time && !condition) {
		return detach ? cli_fail(c, CLI_USAGE, "usage",
					 "It goes with --watch and --rollback-if",
					 "policy swap: there is nothing to detach from")
			      : CLI_OK;
	}
	if (!time || !condition) {
		return cli_fail(c, CLI_USAGE, "usage",
				"For example: --watch 60s --rollback-if 'p99>6ms'",
				"policy swap: --watch and --rollback-if go together");
	}
	if (cli_parse_duration(time, UINT64_C(1000000000), ret_ns) < 0 || !*ret_ns) {
		return cli_fail(c, CLI_USAGE, "usage", "Write for example 60s or 5m",
				"invalid duration '%s' for --watch", time);
	}
	return CLI_OK;
}

bool cli_watch_runs(const json_t *w)
{
	const char *state = cli_text(w, "state");

	return strcmp(state, "watching") == 0 || strcmp(state, "rolling-back") == 0;
}

/* Prints progress on one line that is overwritten. */
static void progress(const json_t *w)
{
	json_t *v;
	size_t i;

	fprintf(stderr, "\r\033[K%.0f s of %.0f s", (double)cli_u64(w, "passed_ns") / 1e9,
		(double)cli_u64(w, "watch_ns") / 1e9);
	json_array_foreach(json_object_get(w, "values"), i, v)
	{
		fprintf(stderr, "   %s %s", cli_text(v, "metric"), cli_text(v, "text"));
	}
	fflush(stderr);
}

/* A condition that never held proves nothing if one of its metrics was never known. */
static void print_kept(const json_t *w)
{
	const char *sep = "not known in that time: ";
	json_t *v;
	size_t i;

	printf("version %llu stays: %s did not happen in %.3g s\n",
	       (unsigned long long)cli_u64(w, "version"), cli_text(w, "condition"),
	       (double)cli_u64(w, "watch_ns") / 1e9);
	json_array_foreach(json_object_get(w, "values"), i, v)
	{
		if (!json_is_null(json_object_get(v, "value"))) {
			printf("  %s was %s\n", cli_text(v, "metric"), cli_text(v, "text"));
		}
	}
	json_array_foreach(json_object_get(w, "values"), i, v)
	{
		if (json_is_null(json_object_get(v, "value"))) {
			printf("%s%s", sep, cli_text(v, "metric"));
			sep = ", ";
		}
	}
	if (sep[0] == ',') {
		puts(". A percentile needs 10 requests; where hardly one ends, "
		     "held[class=latency]>50% works");
	}
}

static int verdict(struct cli *c, const json_t *w)
{
	const char *state = cli_text(w, "state");
	unsigned long long version = cli_u64(w, "version"), before = cli_u64(w, "before");
	char to[48] = "no policy";

	if (before) {
		snprintf(to, sizeof(to), "version %llu", before);
	}
	if (strcmp(state, "kept") == 0) {
		if (!c->json && !c->quiet) {
			print_kept(w);
		}
		return CLI_OK;
	}
	if (strcmp(state, "rolled-back") == 0) {
		if (!c->json) {
			char took[24];

			printf("version %llu was rolled back to %s in %s: %s\n", version, to,
			       cli_duration(took, cli_u64(w, "rollback_ns")),
			       cli_text(w, "reason"));
		}
		return CLI_ROLLED_BACK;
	}
	if (c->json) {
		return CLI_FAILED; /* the result contains it */
	}
	return cli_fail(c, CLI_FAILED, "ended", "`gbpf events` shows the cause",
			"policy swap: the watch of version %llu ended early: %s", version,
			cli_text(w, "reason"));
}

/* The user gave up waiting; gbpfd did not. */
static int interrupted(struct cli *c, const json_t *w)
{
	uint64_t watch_ns = cli_u64(w, "watch_ns"), passed_ns = cli_u64(w, "passed_ns");

	if (c->json) {
		return CLI_FAILED; /* the result contains it */
	}
	return cli_fail(
		c, 128 + cli_interrupted(), "interrupted",
		"`gbpf policy watch` shows it, `gbpf policy watch --cancel` ends it and keeps "
		"the version",
		"policy swap: interrupted; gbpfd continues to monitor version %llu for "
		"%.0f s",
		(unsigned long long)cli_u64(w, "version"),
		(double)(watch_ns - MIN(passed_ns, watch_ns)) / 1e9);
}

static bool is_lost(const struct gbpf *g)
{
	int exit = gbpf_last_error(g)->exit;

	return exit == GBPF_CODE_UNREACHABLE || exit == GBPF_CODE_TIMEOUT;
}

/* gbpfd has not answered. The next one continues the watch, with the error's exit code. */
static int lost(struct cli *c, struct gbpf *g, uint64_t version)
{
	const struct gbpf_error *e = gbpf_last_error(g);

	return cli_fail(
		c, e->exit == GBPF_CODE_TIMEOUT ? CLI_TIMEOUT : CLI_UNREACHABLE, e->code,
		"Once gbpfd runs again it continues the watch, unless the version is "
		"volatile: `gbpf policy watch` shows it",
		"policy swap: version %llu is active and was watched, and the result is not "
		"known: %s",
		(unsigned long long)version, e->message);
}

int cli_watch_await(struct cli *c, struct gbpf *g, uint64_t version, json_t **ret_watch)
{
	bool shown = isatty(STDERR_FILENO) && !c->quiet && !c->json;
	json_t *w = NULL;
	int code;

	cli_interrupt_catch(NULL);
	for (;;) {
		char *json = NULL;
		int rc = gbpf_policy_watch(g, version, &json);

		json_decref(w);
		w = NULL;
		code = rc < 0 && is_lost(g) ? lost(c, g, version)
					    : cli_result(c, g, "policy swap", rc, json, &w);
		if (code != CLI_OK || !cli_watch_runs(w)) {
			break;
		}
		if (shown) {
			progress(w);
		}
		if (cli_interrupted()) {
			break;
		}
		clock_sleep_ns(ASK_EVERY_NS);
	}
	if (shown) {
		fputs("\r\033[K", stderr);
	}
	if (code == CLI_OK) {
		code = cli_interrupted() ? interrupted(c, w) : verdict(c, w);
	}
	*ret_watch = w;
	return code;
}

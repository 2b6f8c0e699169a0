/* `gbpf events`: prints gbpfd's history and follows it. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "cli/connect.h"
#include "cli/verbs.h"

#define FOLLOW_BEGINS_WITH 10u /* events */

enum { O_FOLLOW, O_SINCE, O_UNTIL, O_USER, O_KIND, O_AUDIT };

static const struct cli_option options[] = {
	[O_FOLLOW] = { "follow", 'f', NULL, "follow new events; with --json one event per line" },
	[O_SINCE] = { "since", 's', "SEQUENCE|TIME",
		      "events after that number, or since 5m, 22:00, yesterday, 2026-11-27" },
	[O_UNTIL] = { "until", 'u', "TIME", "events up to that time" },
	[O_USER] = { "user", 0, "NAME|UID", "events of this user" },
	[O_KIND] = { "kind", 'k', "KIND[,KIND...]", "events of these kinds, such as exit,kill" },
	[O_AUDIT] = { "audit", 0, NULL,
		      "who loaded, swapped, set, ended: the log that no program can fill" },
	{ NULL, 0, NULL, NULL },
};

struct walk {
	struct cli *c;
	uint64_t last, not_before_ns, not_after_ns;
	int64_t user;	 /* negative: any */
	bool any;	 /* an event was shown */
	bool count_only; /* takes the numbers of the last events that fit */
	uint64_t newest[FOLLOW_BEGINS_WITH];
	unsigned n_newest; /* of those that fit; [n % FOLLOW_BEGINS_WITH] is the oldest */
	json_t *all;	   /* NULL: print each event as it arrives */
	bool broken;	   /* standard output was closed */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	interrupted = 1;
}

static void print_event(struct cli *c, const json_t *e)
{
	struct buf text = { 0 }, safe = { 0 };
	char when[40], pid[32];

	cli_when(when, cli_u64(e, "wall_ns"));
	buf_printf(&text, "%-12s ", cli_text(e, "kind"));
	snprintf(pid, sizeof(pid), "pid %llu", (unsigned long long)cli_u64(e, "pid"));
	if (cli_u64(e, "pid") && !strstr(cli_text(e, "text"), pid)) {
		buf_printf(&text, "%s: ", pid);
	}
	if (c->opt[O_AUDIT]) {
		buf_printf(&text, "user %llu: ", (unsigned long long)cli_u64(e, "uid"));
	}
	buf_puts(&text, cli_text(e, "text"));
	if (cli_text(e, "hash")[0]) {
		buf_printf(&text, " [object %s]", cli_text(e, "hash"));
	}
	cli_safe_text(&safe, buf_text(&text));
	printf("%5llu  %s%s%s  %s\n", (unsigned long long)cli_u64(e, "seq"),
	       cli_style(c->color_out, CLI_DIM), when, cli_style(c->color_out, CLI_PLAIN),
	       buf_text(&safe));
	buf_finish(&text);
	buf_finish(&safe);
}

/* Returns whether a list with commas has the word. */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list; *at;) {
		size_t len = strcspn(at, ",");

		if (len == n && memcmp(at, word, n) == 0) {
			return true;
		}
		at += len + (at[len] == ',');
	}
	return false;
}

static bool fits(const struct walk *w, const json_t *e)
{
	const char *kinds = w->c->opt[O_KIND];
	uint64_t wall_ns = cli_u64(e, "wall_ns");
	const json_t *uid = json_object_get(e, "uid");

	return wall_ns >= w->not_before_ns && wall_ns <= w->not_after_ns &&
	       (!kinds || has_word(kinds, cli_text(e, "kind"))) &&
	       (w->user < 0 || (uid && json_integer_value(uid) == w->user));
}

static int on_event(void *arg, const char *text)
{
	struct walk *w = arg;
	json_t *e = json_loads(text, 0, NULL);
	uint64_t seq = cli_u64(e, "seq");

	w->last = MAX(w->last, seq);
	if (e && w->count_only && fits(w, e)) {
		w->newest[w->n_newest++ % FOLLOW_BEGINS_WITH] = seq;
	} else if (e && !w->count_only && fits(w, e)) {
		w->any = true;
		if (w->all) {
			json_array_append(w->all, e);
		} else if (w->c->json) {
			json_object_set_new(e, "schema", json_string("gbpf.event/1"));
			json_dumpf(e, stdout, JSON_COMPACT);
			putchar('\n');
		} else {
			print_event(w->c, e);
		}
		w->broken = !w->all && fflush(stdout) != 0;
	}
	json_decref(e);
	return w->broken || interrupted;
}

static int parse_moment(struct cli *c, unsigned option, uint64_t *ret)
{
	const char *text = c->opt[option];

	return !text || cli_parse_moment(text, clock_wall_ns(), ret) == 0
		       ? CLI_OK
		       : cli_fail(c, CLI_USAGE, "usage",
				  "For example 90s or 3d (ago), 22:00, yesterday, 2026-11-27 or "
				  "'2026-11-27 22:00'",
				  "invalid value '%s' for --%s", text, options[option].name);
}

static int parse(struct cli *c, struct walk *w)
{
	const char *since = c->opt[O_SINCE], *user = c->opt[O_USER];
	uint32_t uid;
	int code;

	if (c->opt[O_FOLLOW] && c->opt[O_UNTIL]) {
		return cli_fail(c, CLI_USAGE, "usage", NULL,
				"events: --until cannot be combined with --follow");
	}
	if (user && !cli_parse_user(user, &uid)) {
		return cli_fail(c, CLI_NOT_FOUND, "not-found", NULL, "events: no user '%s'", user);
	}
	w->user = user ? (int64_t)uid : -1;
	code = parse_moment(c, O_UNTIL, &w->not_after_ns);
	if (code == CLI_OK && since && strspn(since, "0123456789") == strlen(since)) {
		return cli_number(c, "--since", since, 0, INT64_MAX, &w->last);
	}
	code = code ? code : parse_moment(c, O_SINCE, &w->not_before_ns);
	if (code == CLI_OK && w->not_after_ns < w->not_before_ns) {
		return cli_fail(c, CLI_USAGE, "usage", "A day and a time: '2026-11-27 22:00'",
				"events: --until %s is before --since %s", c->opt[O_UNTIL], since);
	}
	return code;
}

static int finish(struct cli *c, struct walk *w)
{
	if (c->json && w->all) {
		return cli_json(c, "events", json_pack("{s:O}", "events", w->all));
	}
	if (!c->json && !w->any) {
		cli_note(c, w->last ? "There is no such event." : "Nothing has happened yet.");
	}
	return CLI_OK;
}

/* -f starts with the last FOLLOW_BEGINS_WITH events that fit. */
static int skip_old(struct gbpf *g, struct walk *w, unsigned log)
{
	int rc;

	w->count_only = true;
	rc = gbpf_events(g, 0, log, 0, on_event, w);
	w->count_only = false;
	w->last = w->n_newest < FOLLOW_BEGINS_WITH
			  ? 0
			  : w->newest[w->n_newest % FOLLOW_BEGINS_WITH] - 1;
	return rc;
}

static int cmd_events(struct cli *c)
{
	struct sigaction sa = { .sa_handler = on_interrupt }; /* no SA_RESTART: the wait must end */
	unsigned log = c->opt[O_AUDIT] ? GBPF_EVENTS_AUDIT : 0;
	bool follow = c->opt[O_FOLLOW];
	struct walk w = { .c = c, .not_after_ns = UINT64_MAX };
	struct gbpf *g = NULL;
	int rc = 0, code = parse(c, &w);

	if (code != CLI_OK) {
		return code;
	}
	code = cli_open(c, &g);
	if (code == CLI_OK) {
		w.all = c->json && !follow ? json_array() : NULL;
		sigaction(SIGINT, &sa, NULL);
		sigaction(SIGTERM, &sa, NULL);
		rc = follow && !c->opt[O_SINCE] ? skip_old(g, &w, log) : 0;
		rc = rc < 0 ? rc
			    : gbpf_events(g, w.last, log | (follow ? GBPF_EVENTS_FOLLOW : 0), 0,
					  on_event, &w);
		if (rc < 0 && !interrupted) {
			code = cli_fail_daemon(c, g, "events");
		} else {
			code = finish(c, &w);
		}
	}
	json_decref(w.all);
	gbpf_close(g);
	return code;
}

const struct cli_verb verb_events = {
	.name = "events",
	.args = "",
	.doc = "history: loads, swaps, exits, refusals",
	.page = "gbpf.1",
	.options = options,
	.run = cmd_events,
};

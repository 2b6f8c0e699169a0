/* `gbpf map dump` and `watch`: all entries, and changes. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/map_print.h"
#include "cli/verbs.h"

#define DEFAULT_LIMIT 1000u

enum { O_LIMIT = CLI_MAP_OPTIONS, O_NONZERO };

static const struct cli_option dump_options[] = {
	CLI_MAP_TABLE,
	[O_LIMIT] = { "limit", 'l', "ENTRIES",
		      "maximum number of entries to print (default 1000; 0: all)" },
	[O_NONZERO] = { "nonzero", 'z', NULL, "leave out values that are all zero" },
	{ NULL, 0, NULL, NULL },
};

static int cmd_dump(struct cli *c)
{
	uint64_t limit = DEFAULT_LIMIT;
	json_t *result = NULL;
	struct cli_map m;
	int rc, code;

	if (c->opt[O_LIMIT] && cli_number(c, "--limit", c->opt[O_LIMIT], 0, 10000000, &limit)) {
		return CLI_USAGE;
	}
	code = cli_map_open(c, &m, c->arg[0]);
	if (code == CLI_OK) {
		code = cli_map_drain(c, &m, "map dump");
	}
	if (code == CLI_OK) {
		code = cli_map_find_variable(c, &m, "map dump");
	}
	if (code == CLI_OK) {
		rc = cli_map_dump(m.g, &m.map, limit, c->opt[O_NONZERO] != NULL, &result);
		code = result ? CLI_OK : cli_result(c, m.g, "map dump", rc, NULL, &result);
	}
	if (code == CLI_OK) {
		cli_map_keep_variable(&m, result);
	}
	if (code == CLI_OK && !c->json) {
		cli_map_print(c, &m, result);
		if (!json_array_size(json_object_get(result, "entries"))) {
			cli_note(c,
				 strcmp(cli_text(result, "type"), "ringbuf") == 0
					 ? "A ring buffer has no entries to dump. Follow it: gbpf "
					   "map watch %s"
					 : "%s has no entries.",
				 c->arg[0]);
		} else if (json_is_true(json_object_get(result, "more"))) {
			cli_note(c, "There are more; --limit 0 prints all.");
		}
		cli_map_note_gpu(c, result);
		if (cli_u64(result, "dropped")) {
			cli_note(c, "%llu insertions found no room: raise max_entries of %s.",
				 (unsigned long long)cli_u64(result, "dropped"), c->arg[0]);
		}
	}
	cli_map_finish(&m);
	if (code == CLI_OK && c->json) {
		return cli_json(c, "map.dump", result);
	}
	json_decref(result);
	return code;
}

const struct cli_verb verb_map_dump = {
	.name = "dump",
	.args = "MAP",
	.doc = "print all entries of a map",
	.page = "gbpf-map.1",
	.options = dump_options,
	.min_args = 1,
	.max_args = 1,
	.run = cmd_dump,
};

enum { W_INTERVAL = CLI_MAP_OPTIONS, W_COUNT };

static const struct cli_option cli_watch_options[] = {
	CLI_MAP_TABLE,
	[W_INTERVAL] = { "interval", 'i', "TIME", "how often to look (default 1s)" },
	[W_COUNT] = { "count", 'c', "LINES", "number of lines after which to end" },
	{ NULL, 0, NULL, NULL },
};

struct watch {
	struct cli *c;
	struct cli_map m;
	uint64_t lines, count; /* 0: no limit */
	json_t *before;	       /* owned: previous value of the watched variable */
	bool broken, ended;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	interrupted = 1;
}

static void print_prefix(const struct watch *w, const json_t *d)
{
	uint64_t pid;

	if (json_object_get(d, "tenant")) {
		pid = cli_map_pid(&w->m, cli_u64(d, "tenant"));
		printf(pid ? "%llu  " : "tenant %llu  ",
		       (unsigned long long)(pid ? pid : cli_u64(d, "tenant")));
	}
}

static void print_line(struct watch *w, const json_t *d)
{
	struct buf key = { 0 }, value = { 0 };
	const json_t *record = json_object_get(d, "record");

	if (json_object_get(d, "end")) {
		w->ended = true;
		cli_note(w->c, "%s", cli_text(d, "end"));
		return;
	}
	print_prefix(w, d);
	cli_map_text(&key, json_object_get(d, "key"), 200);
	cli_map_text(&value, record ? record : json_object_get(d, "value"), 1000);
	if (record) {
		puts(buf_text(&value));
	} else if (json_object_get(d, "lost")) {
		printf("(%llu record%s found no room)\n", (unsigned long long)cli_u64(d, "lost"),
		       PLURAL(cli_u64(d, "lost")));
	} else if (json_object_get(d, "gone")) {
		printf("%s  gone\n", buf_text(&key));
	} else if (json_object_get(d, "buckets")) {
		printf("%s  %llu value%s\n", buf_text(&key),
		       (unsigned long long)cli_u64(d, "count"), PLURAL(cli_u64(d, "count")));
	} else {
		printf("%s  %s\n", buf_text(&key), buf_text(&value));
	}
	buf_finish(&key);
	buf_finish(&value);
}

/* Of a changed section only the requested variable counts. */
static bool changed(struct watch *w, json_t *d)
{
	json_t *now;

	if (!w->m.variable || !json_object_get(d, "value")) {
		return true;
	}
	now = json_incref(json_object_get(json_object_get(d, "value"), w->m.variable));
	json_object_del(d, "was");
	json_object_set(d, "value", now);
	json_object_set_new(d, "key", json_string(w->m.variable));
	if (json_equal(now, w->before)) {
		json_decref(now);
		return false;
	}
	json_decref(w->before);
	w->before = now;
	return true;
}

static int on_line(void *arg, const char *text)
{
	struct watch *w = arg;
	json_t *line = json_loads(text, 0, NULL);
	json_t *d = json_object_get(line, "watch") ? json_object_get(line, "watch") : line;

	if (!changed(w, d)) {
		json_decref(line);
		return interrupted;
	}
	if (d && w->c->json) {
		json_object_set_new(d, "schema", json_string("gbpf.map.watch/1"));
		json_dumpf(d, stdout, JSON_COMPACT);
		putchar('\n');
	} else if (d) {
		print_line(w, d);
	}
	json_decref(line);
	w->lines++;
	w->broken = fflush(stdout) != 0;
	return w->broken || interrupted || (w->count && w->lines >= w->count);
}

static int cmd_watch(struct cli *c)
{
	struct sigaction sa = { .sa_handler = on_interrupt }; /* no SA_RESTART: the wait must end */
	struct watch w = { .c = c };
	uint64_t interval_ns = 1000000000;
	int rc, code;

	if (c->opt[W_INTERVAL] &&
	    (cli_parse_duration(c->opt[W_INTERVAL], 1000000000, &interval_ns) < 0 ||
	     interval_ns < 10000000 || interval_ns > UINT64_C(3600000000000))) {
		return cli_fail(c, CLI_USAGE, "usage", "For example 1s or 200ms",
				"map watch: --interval: '%s' is not a time from 10ms to 1h",
				c->opt[W_INTERVAL]);
	}
	if (c->opt[W_COUNT] && cli_number(c, "--count", c->opt[W_COUNT], 1, INT32_MAX, &w.count)) {
		return CLI_USAGE;
	}
	code = cli_map_open(c, &w.m, c->arg[0]);
	if (code == CLI_OK) {
		code = cli_map_drain(c, &w.m, "map watch");
	}
	if (code == CLI_OK) {
		code = cli_map_find_variable(c, &w.m, "map watch");
	}
	if (code == CLI_OK) {
		sigaction(SIGINT, &sa, NULL);
		sigaction(SIGTERM, &sa, NULL);
		rc = gbpf_map_watch(w.m.g, &w.m.map, (unsigned)(interval_ns / 1000000), 0, on_line,
				    &w);
		code = rc < 0 && !interrupted ? cli_fail_daemon(c, w.m.g, "map watch") : CLI_OK;
	}
	cli_map_finish(&w.m);
	json_decref(w.before);
	return code;
}

const struct cli_verb verb_map_watch = {
	.name = "watch",
	.args = "MAP",
	.doc = "print changes, or the records of a ring buffer",
	.page = "gbpf-map.1",
	.options = cli_watch_options,
	.min_args = 1,
	.max_args = 1,
	.run = cmd_watch,
};

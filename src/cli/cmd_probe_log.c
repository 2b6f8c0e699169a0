/* `gbpf probe log`: lines that a tool's programs print inside kernels. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/connect.h"
#include "cli/interrupt.h"
#include "cli/probe_options.h"
#include "cli/verbs.h"

#define POLL_NS 200000000L

enum { O_FOLLOW };

static const struct cli_option options[] = {
	[O_FOLLOW] = { "follow", 'f', NULL, "print further lines until interrupted" },
	{ NULL, 0, NULL, NULL },
};

static int by_time(const void *a, const void *b)
{
	uint64_t x = cli_u64(*(json_t *const *)a, "time_ns"),
		 y = cli_u64(*(json_t *const *)b, "time_ns");

	return x < y ? -1 : x > y;
}

void cli_probe_print_line(FILE *to, const json_t *line)
{
	uint64_t ns = cli_u64(line, "time_ns");
	const char *kernel = cli_text(line, "kernel_name");

	fprintf(to, "%llu.%09llu %llu ", (unsigned long long)(ns / 1000000000),
		(unsigned long long)(ns % 1000000000), (unsigned long long)cli_u64(line, "pid"));
	cli_put_safe(to, cli_text(line, "program"));
	fprintf(to, " kernel ");
	cli_put_safe(to, *kernel ? kernel : cli_text(line, "kernel"));
	fprintf(to, " block %llu warp %llu lane %llu: ", (unsigned long long)cli_u64(line, "block"),
		(unsigned long long)cli_u64(line, "warp"),
		(unsigned long long)cli_u64(line, "lane"));
	cli_put_safe(to, cli_text(line, "text"));
	putc('\n', to);
}

bool cli_probe_show_lines(const json_t *page, void (*show)(void *arg, json_t *line), void *arg)
{
	const json_t *lines = json_object_get(page, "lines");
	size_t n = json_array_size(lines);
	json_t **sorted = calloc(n + 1, sizeof(json_t *));

	if (!sorted) {
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		sorted[i] = json_array_get(lines, i);
	}
	qsort(sorted, n, sizeof(*sorted), by_time);
	for (size_t i = 0; i < n; i++) {
		show(arg, sorted[i]);
	}
	free(sorted);
	return true;
}

/* A log that is being read. */
struct reading {
	struct cli *c;
	json_int_t id;
	json_t *next; /* owned: positions, as gbpfd wants them */
	json_t *all;  /* owned: lines for one document; NULL: print each */
	uint64_t missed;
};

static void show_line(void *arg, json_t *line)
{
	struct reading *r = arg;

	if (r->all) {
		json_array_append(r->all, line);
	} else if (r->c->json) {
		json_object_set_new(line, "schema", json_string("gbpf.line/1"));
		json_dumpf(line, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		cli_probe_print_line(stdout, line);
	}
}

/* Shows the lines of an answer in the order of their times. */
static int show_page(struct cli *c, struct reading *r, const json_t *page)
{
	uint64_t missed = cli_u64(page, "missed");

	if (!cli_probe_show_lines(page, show_line, r)) {
		return cli_fail(c, CLI_FAILED, "memory", NULL, "out of memory");
	}
	r->missed += missed;
	if (missed && !r->all) {
		cli_note(c, "%llu line%s overwritten before %s read", (unsigned long long)missed,
			 missed == 1 ? " was" : "s were", missed == 1 ? "it was" : "they were");
	}
	fflush(stdout);
	return CLI_OK;
}

/* Has the lines copied from the GPU, and shows all that are new. */
static int show_new(struct cli *c, struct reading *r)
{
	bool more = true;
	json_t *result = NULL;
	int code =
		cli_call(c, "probe log", "map.drain", json_pack("{s:I}", "probe", r->id), &result);

	json_decref(result);
	while (code == CLI_OK && more) {
		result = NULL;
		code = cli_call(c, "probe log", "probe.log",
				json_pack("{s:I,s:O}", "id", r->id, "next", r->next), &result);
		if (code == CLI_OK) {
			code = show_page(c, r, result);
			more = json_is_true(json_object_get(result, "more"));
			json_decref(r->next);
			r->next = json_incref(json_object_get(result, "next"));
		}
		json_decref(result);
	}
	return code;
}

static int follow(struct cli *c, struct reading *r)
{
	static const struct timespec pause = { .tv_nsec = POLL_NS };
	int code = CLI_OK;

	cli_interrupt_catch(NULL);
	while (code == CLI_OK && !cli_interrupted()) {
		code = show_new(c, r);
		nanosleep(&pause, NULL);
	}
	return code;
}

static int cmd_log(struct cli *c)
{
	bool following = c->opt[O_FOLLOW] != NULL;
	struct reading r = { .c = c,
			     .next = json_array(),
			     .all = c->json && !following ? json_array() : NULL };
	uint64_t id = 0;
	int code = cli_probe_id(c, "probe log", c->arg[0], &id);

	r.id = (json_int_t)id;
	if (code == CLI_OK) {
		code = following ? follow(c, &r) : show_new(c, &r);
	}
	if (code == CLI_OK && r.all) {
		code = cli_json(
			c, "probe.log",
			json_pack("{s:O,s:I}", "lines", r.all, "missed", (json_int_t)r.missed));
	}
	json_decref(r.next);
	json_decref(r.all);
	return code;
}

const struct cli_verb verb_probe_log = { .name = "log",
					 .args = "ID|NAME",
					 .doc = "print what a tool prints inside kernels",
					 .page = "gbpf-probe.1",
					 .options = options,
					 .min_args = 1,
					 .max_args = 1,
					 .run = cmd_log };

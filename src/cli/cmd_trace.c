/* `gbpf trace`: attaches a tool that comes with gBPF to running programs, or to one that it starts,
 * prints what it finds, and detaches it. The tool is held by the connection, so it ends with this
 * process however that ends.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/probe_options.h"
#include "cli/trace.h"
#include "cli/trace_program.h"
#include "cli/verbs.h"

#define STOP_NS UINT64_C(3000000000)   /* for a program to end when --time is over */
#define START_NS UINT64_C(10000000000) /* with --time: for the first kernel to be compiled */
#define FIND_TIMEOUT_NS UINT64_C(3000000000)
#define LEFT_NS UINT64_C(3000000000)	/* without a program: the trace ends */
#define BACK_NS UINT64_C(10000000000)	/* programs come back to a gbpfd that was restarted */
#define ABSENT_NS UINT64_C(30000000000) /* for a gbpfd that is being restarted */
#define INTERVAL_MIN_NS 10000000u
#define TIME_MAX_NS UINT64_C(86400000000000)
#define REGION_BYTES (UINT64_C(2) << 20)
#define REGION_MIN_BYTES 512u
#define REGION_MAX_BYTES (UINT64_C(1) << 40)

enum { O_OF, O_KERNEL, O_TIME, O_INTERVAL, O_REGION };

static const struct cli_option options[] = {
	[O_OF] = { "of", 0, "PID|NAME", "process or tenant number, or name of programs" },
	[O_KERNEL] = { "kernel", 'k', "PATTERN",
		       "kernels by name, such as 'gemm*' (default: all)" },
	[O_TIME] = { "time", 't', "TIME", "end after this time (default: at Ctrl-C)" },
	[O_INTERVAL] = { "interval", 'i', "TIME", "also print what each interval of TIME brought" },
	[O_REGION] = { "region", 'r', "SIZE", "of regionheat: bytes of a region (default: 2M)" },
	{ NULL, 0, NULL, NULL },
};

struct run {
	struct cli *c;
	const char *of; /* for messages: what is traced */
	struct cli_trace_program_run program;
	uint64_t stop_ns;    /* when the program was asked to end, since --time was over; 0: not */
	uint64_t reading_ns; /* duration of the last reading */
	struct cli_trace t;
	struct cli_trace_values printed; /* up to the end of the interval before */
	uint64_t time_ns, interval_ns;	 /* 0: no limit, none */
	uint64_t attached_ns, begin_ns;	 /* begin: when the first kernel was seen to run it; or 0 */
	uint64_t interval_begin_ns;
	uint64_t absent_ns; /* since when gbpfd does not answer; 0: it does */
	bool told;	    /* that kernels are refused */
	struct cli_trace_rest rest;
	uint64_t left_ns; /* since when no program has the tool; 0: some have it, or none had */
	bool any_program; /* has had it */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* Ctrl-C is how a trace ends, not a failure. */
static void catch_interrupts(void)
{
	struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

/* ---- options ---- */

static int parse_time(struct cli *c, unsigned option, uint64_t min_ns, uint64_t *ret)
{
	const char *text = c->opt[option];

	if (text && (cli_parse_duration(text, 1000000000, ret) < 0 || *ret < min_ns ||
		     *ret > TIME_MAX_NS)) {
		return cli_fail(c, CLI_USAGE, "usage", "For example 5s or 200ms",
				"trace: invalid --%s: '%s': expected 10ms to 1d",
				options[option].name, text);
	}
	return CLI_OK;
}

static int parse_region(struct run *r, struct buf *elf)
{
	const char *text = r->c->opt[O_REGION], *constant = r->t.tool->region_shift;
	uint64_t bytes = REGION_BYTES;

	if (text && !constant) {
		return cli_fail(r->c, CLI_USAGE, "usage", "It is for regionheat",
				"trace: %s has no --region", r->t.tool->name);
	}
	if (text && (cli_parse_bytes(text, &bytes) < 0 || bytes < REGION_MIN_BYTES ||
		     bytes > REGION_MAX_BYTES || (bytes & (bytes - 1)))) {
		return cli_fail(r->c, CLI_USAGE, "usage", "For example 64K or 2M",
				"trace: invalid --region: '%s': expected a power of two from 512 "
				"to 1T",
				text);
	}
	r->t.region_bytes = bytes;
	if (constant && !cli_trace_constant(elf, constant, (uint32_t)__builtin_ctzll(bytes))) {
		return cli_fail(r->c, CLI_FAILED, "file", "Is gBPF installed completely?",
				"trace: the object of %s has no constant '%s'", r->t.tool->name,
				constant);
	}
	return CLI_OK;
}

/* Either --of or a program to start is given. */
static int parse_program(struct run *r)
{
	struct cli *c = r->c;

	if (c->n_args > 1 && c->opt[O_OF]) {
		return cli_fail(c, CLI_USAGE, "usage", "Leave --of away to trace the new program",
				"trace: --of names running programs, and '%s' would be started",
				c->arg[1]);
	}
	if (c->n_args <= 1 && !c->opt[O_OF]) {
		return cli_fail(c, CLI_USAGE, "usage",
				"`gbpf ps` lists programs; -- PROGRAM starts one",
				"trace: --of is missing: name the program to be traced");
	}
	r->program.command = c->n_args > 1 ? c->arg + 1 : NULL;
	r->of = r->program.command ? c->arg[1] : c->opt[O_OF];
	return CLI_OK;
}

static int parse(struct run *r)
{
	struct cli *c = r->c;
	int code = parse_time(c, O_TIME, INTERVAL_MIN_NS, &r->time_ns);

	if (code == CLI_OK) {
		code = parse_time(c, O_INTERVAL, INTERVAL_MIN_NS, &r->interval_ns);
	}
	return code == CLI_OK ? parse_program(r) : code;
}

/* ---- output ---- */

/* With intervals each document is a line. */
static int put_document(const struct run *r, json_t *d)
{
	if (!r->interval_ns) {
		return cli_json(r->c, "trace", d);
	}
	json_object_set_new(d, "schema", json_string("gbpf.trace/1"));
	json_dumpf(d, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(d);
	return cli_flush(r->c);
}

static void print_heading(const struct run *r, uint64_t ns, bool total)
{
	time_t now = time(NULL);
	char clock[16] = "?", span[24];
	struct tm tm;

	if (localtime_r(&now, &tm)) {
		strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	}
	if (r->interval_ns) {
		printf("%s  %s%s\n", clock, total ? "total, " : "", cli_duration(span, ns));
	}
}

/* Prints what came since the last call or, at the end, everything. */
static int put(struct run *r, bool total)
{
	uint64_t now = clock_now_ns(), ns = now - (total ? r->attached_ns : r->interval_begin_ns);
	const struct cli_trace_tool *tool = r->t.tool;
	struct cli_trace_values v;
	json_t *figures;
	int code;

	if (!cli_trace_sum(&r->t, total ? NULL : &r->printed, &v)) {
		return cli_fail(r->c, CLI_FAILED, "memory", NULL, "trace: out of memory");
	}
	figures = tool->figures(&v);
	cli_trace_rest_note(&r->rest, figures, total);
	cli_trace_values_finish(&v);
	if (r->c->json) {
		code = put_document(r, cli_trace_document(&r->t, r->of, r->c->opt[O_KERNEL], ns,
							  total, figures));
	} else {
		print_heading(r, ns, total);
		tool->print(r->c, figures);
		json_decref(figures);
		if (r->interval_ns && !total) {
			putchar('\n');
		}
		code = cli_flush(r->c);
	}
	cli_trace_values_finish(&r->printed);
	r->interval_begin_ns = now;
	if (code == CLI_OK && !cli_trace_sum(&r->t, NULL, &r->printed)) {
		code = cli_fail(r->c, CLI_FAILED, "memory", NULL, "trace: out of memory");
	}
	return code;
}

/* Tells once that kernels cannot run the tool while none runs it. */
static void tell_refused(struct run *r)
{
	const struct cli_trace *t = &r->t;

	if (!r->told && t->refused && !t->kernels_max && !t->waiting) {
		r->told = true;
		cli_note(r->c, "%llu kernel%s cannot run the tool: %s",
			 (unsigned long long)t->refused, PLURAL(t->refused), t->why);
	}
}

/* Tells what the figures lack, or mix. */
static void tell_limits(const struct run *r)
{
	if (r->t.unseen) {
		cli_note(r->c,
			 "%llu instruction%s of the kernels access memory where the tool does not "
			 "look: textures, surfaces, operands of wgmma and tcgen05",
			 (unsigned long long)r->t.unseen, PLURAL(r->t.unseen));
	}
	if (r->t.falls_back) {
		cli_note(r->c,
			 "Launches of %llu kernel%s ran without the tool, and are not in the "
			 "figures "
			 "(gbpf probe ls)",
			 (unsigned long long)r->t.falls_back, PLURAL(r->t.falls_back));
	}
	if (r->rest.others) {
		cli_note(r->c,
			 "The row of others has lines beyond the %u that a program has room "
			 "for: choose kernels with --kernel.",
			 cli_trace_places(r->t.tool) - 1);
	}
	if (r->rest.was_unknown && !r->rest.unknown) {
		cli_note(r->c, "An interval has values in the row unknown whose lines were listed "
			       "later: a later interval counts them again, the total does not.");
	}
	if (r->rest.unknown && !r->t.absent && !r->t.ended) {
		cli_note(r->c, "The row unknown has lines that a program did not list, or whose "
			       "list could not be read.");
	}
	if (r->t.tool->by_address && cli_trace_several(&r->t)) {
		cli_note(r->c, "Several programs ran the tool, and each has addresses of its own%s",
			 r->program.command ? "."
					    : ": choose one by its process number with --of.");
	}
}

/* ---- the run ---- */

static int attach(struct run *r, const struct buf *elf)
{
	struct cli *c = r->c;
	struct gbpf_probe p = { .size = sizeof(p),
				.name = r->t.tool->name,
				.to = c->opt[O_OF] ? c->opt[O_OF] : r->program.name,
				.kernel = c->opt[O_KERNEL],
				.flags = GBPF_PROBE_HOLD | (c->opt[O_OF] ? 0 : GBPF_PROBE_LATER) |
					 (r->t.tool->partial ? GBPF_PROBE_PARTIAL : 0) };
	json_t *result = NULL;
	char *json = NULL;
	int code = cli_open(c, &r->t.g), rc;

	if (code != CLI_OK) {
		return code;
	}
	rc = gbpf_probe_attach(r->t.g, elf->data, elf->len, &p, &json);
	if (rc < 0 && gbpf_last_error(r->t.g)->exit == CLI_NOT_FOUND) {
		return cli_fail(c, CLI_NOT_FOUND, "not-found",
				"`gbpf ps` shows those that there are", "trace: %s",
				gbpf_last_error(r->t.g)->message);
	}
	code = cli_result(c, r->t.g, "trace", rc, json, &result);
	if (code == CLI_OK) {
		r->t.id = cli_u64(result, "id");
		r->any_program = cli_u64(result, "sessions") > 0;
		r->attached_ns = r->interval_begin_ns = clock_now_ns();
	}
	if (code == CLI_OK && !r->program.command) {
		cli_note(c, "Tracing %llu program%s as tool %llu%s",
			 (unsigned long long)cli_u64(result, "sessions"),
			 PLURAL(cli_u64(result, "sessions")), (unsigned long long)r->t.id,
			 r->time_ns ? "." : "; Ctrl-C ends it.");
	}
	json_decref(result);
	return code;
}

/* Returns when --time is over: it counts from the first kernel that runs the tool. Programs that
 * run are given a moment to find their kernels; one that was started takes as long as it likes. */
static uint64_t deadline(const struct run *r)
{
	if (!r->time_ns || r->stop_ns) {
		return UINT64_MAX;
	}
	if (r->begin_ns) {
		return r->begin_ns + r->time_ns;
	}
	if (r->program.command) {
		return UINT64_MAX;
	}
	return r->attached_ns + clock_patience(r->t.waiting ? START_NS : FIND_TIMEOUT_NS) +
	       r->time_ns;
}

/* Of programs with one name the next one may be about to start, or on its way back to a gbpfd that
 * was restarted. */
static bool all_have_ended(const struct run *r)
{
	uint64_t now = clock_now_ns();

	return r->left_ns && now - r->left_ns >= LEFT_NS &&
	       (!r->t.back_ns || now - r->t.back_ns >= BACK_NS);
}

/* What was read shows whether programs have the tool. */
static void note_programs(struct run *r)
{
	r->any_program = r->any_program || r->t.programs;
	if (r->t.programs || r->t.absent || !r->any_program) {
		r->left_ns = 0;
	} else if (!r->left_ns) {
		r->left_ns = clock_now_ns();
	}
}

static bool is_over(const struct run *r, uint64_t now)
{
	if (r->program.command) {
		return r->t.ended || r->program.ended ||
		       (r->stop_ns && now - r->stop_ns >= clock_patience(STOP_NS));
	}
	return interrupted || r->t.ended || all_have_ended(r) || now >= deadline(r);
}

/* The program that was started is asked to end when --time is over; what it counted was read. */
static void look_at_program(struct run *r)
{
	if (!r->program.command) {
		return;
	}
	(void)cli_trace_program_ended(&r->program, false);
	if (!r->program.ended && clock_now_ns() >= deadline(r)) {
		r->stop_ns = clock_now_ns();
		cli_trace_program_stop(&r->program);
	}
}

/* Sleeps until the next reading, or a signal. */
static void pause_until_next(const struct run *r)
{
	uint64_t now = clock_now_ns();
	uint64_t poll = r->program.command ? cli_poll_ns(r->reading_ns) : CLI_POLL_MAX_NS;
	uint64_t next = MIN(now + poll, deadline(r));
	struct timespec left;

	if (r->interval_ns) {
		next = MIN(next, r->interval_begin_ns + r->interval_ns);
	}
	left = clock_timespec(next > now ? next - now : 0);
	nanosleep(&left, NULL);
}

/* Programs run the tool while gbpfd is restarted. Returns an exit code. */
static int wait_for_gbpfd(struct run *r)
{
	uint64_t now = clock_now_ns();

	if (!r->t.absent) {
		r->absent_ns = 0;
		return CLI_OK;
	}
	if (!r->absent_ns) {
		r->absent_ns = now;
		cli_note(r->c, "gbpfd does not answer; programs run the tool meanwhile.");
	}
	return now - r->absent_ns > ABSENT_NS ? cli_fail_daemon(r->c, r->t.g, "trace") : CLI_OK;
}

static int read_once(struct run *r)
{
	uint64_t begin = clock_now_ns();
	int code = cli_trace_read(r->c, &r->t);

	r->reading_ns = clock_now_ns() - begin;
	if (code == CLI_OK) {
		code = wait_for_gbpfd(r);
	}
	note_programs(r);
	if (r->t.kernels && !r->begin_ns) {
		r->begin_ns = clock_now_ns();
	}
	return code;
}

/* Reads until the end. */
static int follow(struct run *r)
{
	int code = CLI_OK;

	while (code == CLI_OK && !is_over(r, clock_now_ns())) {
		pause_until_next(r);
		code = read_once(r);
		look_at_program(r);
		tell_refused(r);
		if (code == CLI_OK && r->interval_ns && !is_over(r, clock_now_ns()) &&
		    clock_now_ns() - r->interval_begin_ns >= r->interval_ns) {
			code = put(r, false);
		}
	}
	return code;
}

/* No kernel matches. */
static int fail_unmatched(const struct run *r, const struct nearest *near)
{
	const char *best = nearest_best(near);
	char hint[160] = "`gbpf probe coverage` lists its kernels";

	if (best) {
		snprintf(hint, sizeof(hint), "Did you mean '%.120s'?", best);
	}
	return cli_fail(r->c, CLI_NOT_FOUND, "not-found", hint,
			"trace: %s launched no kernel that matches '%s'", r->of,
			r->c->opt[O_KERNEL]);
}

/* Returns the exit code of an error: that of a program that has failed itself counts. */
static int exit_code(const struct run *r, int code)
{
	bool stopped = r->stop_ns && r->program.code == 128 + SIGTERM;

	return r->program.code && !stopped ? r->program.code : code;
}

/* No kernel of the program that was started ran the tool. */
static int fail_program(const struct run *r)
{
	const char *kernel = r->c->opt[O_KERNEL];

	if (r->t.ended) {
		return cli_fail(r->c, exit_code(r, CLI_TIMEOUT), "timeout", NULL,
				"trace: the tool was detached before a kernel of %s ran it", r->of);
	}
	if (!r->any_program) {
		return cli_fail(r->c, exit_code(r, CLI_TIMEOUT), "timeout",
				"Those with a GBPF_NAME of their own are not traced",
				"trace: no process of %s was seen to use CUDA", r->of);
	}
	return cli_fail(r->c, exit_code(r, CLI_TIMEOUT), "timeout", NULL,
			"trace: %s ended before a kernel%s%s%s ran the tool", r->of,
			kernel ? " that matches '" : "", kernel ? kernel : "", kernel ? "'" : "");
}

/* No launch ran the tool, and none was refused it: states what is known of the program. */
static int fail_unseen(const struct run *r)
{
	const char *of = r->of, *kernel = r->c->opt[O_KERNEL];
	double seconds = (double)(clock_now_ns() - r->attached_ns) / 1e9;
	struct cli_probe_search s;
	json_t *coverage;
	int code;

	if (r->program.command) {
		return fail_program(r);
	}
	if (r->t.ended || all_have_ended(r)) {
		return cli_fail(r->c, CLI_TIMEOUT, "timeout", NULL,
				"trace: %s ended, or the tool was detached, before a kernel ran it",
				of);
	}
	coverage = cli_probe_coverage(r->t.g, of, true);
	cli_probe_search(&s, coverage, "*", kernel ? kernel : "*");
	if (s.complete && s.kernels && !s.matches) {
		code = fail_unmatched(r, &s.near);
	} else if (s.complete && !s.kernels) {
		code = cli_fail(r->c, CLI_TIMEOUT, "timeout", "Trace for a longer time",
				"trace: %s has launched no kernel so far", of);
	} else {
		code = cli_fail(r->c, CLI_TIMEOUT, "timeout", "Trace for a longer time",
				"trace: no launch of %s ran the tool within %.3g s", of, seconds);
	}
	json_decref(coverage);
	return code;
}

/* Fails if no kernel ran the tool. */
static int check_found(const struct run *r)
{
	const struct cli_trace *t = &r->t;
	struct cli_trace_values v;
	bool any;

	if (t->kernels || (r->program.command && t->kernels_max) || !cli_trace_sum(t, NULL, &v)) {
		return CLI_OK;
	}
	any = cli_trace_any(t->tool, &v);
	cli_trace_values_finish(&v);
	if (any) {
		return CLI_OK;
	}
	if (t->refused && !t->kernels_max) {
		return cli_fail(r->c, exit_code(r, CLI_REFUSED), "refused", NULL,
				"trace: no kernel could run the tool: %s", t->why);
	}
	if (t->waiting) {
		return cli_fail(
			r->c, exit_code(r, CLI_TIMEOUT), "timeout", "Trace for a longer time",
			"trace: %llu kernel%s still being compiled for the tool, or "
			"waited for an idle moment",
			(unsigned long long)t->waiting, t->waiting == 1 ? " was" : "s were");
	}
	return fail_unseen(r);
}

static void detach(struct run *r)
{
	char *json = NULL;

	if (!r->t.ended && r->t.id) {
		(void)gbpf_probe_detach(r->t.g, (uint32_t)r->t.id, &json);
		free(json);
	}
	r->t.id = 0;
}

/* Attaches the tool, and starts the program if there is one to start. */
static int begin(struct run *r, const struct buf *elf)
{
	int code;

	if (!r->program.command) { /* else they end this process until the program starts */
		catch_interrupts();
	}
	code = attach(r, elf);
	if (code == CLI_OK && !cli_trace_sum(&r->t, NULL, &r->printed)) {
		code = cli_fail(r->c, CLI_FAILED, "memory", NULL, "trace: out of memory");
	}
	return code == CLI_OK && r->program.command ? cli_trace_program_start(r->c, &r->program)
						    : code;
}

/* The program goes on if the trace has failed, or the tool was detached; its end is awaited unless
 * it was asked to end. */
static void await_program(struct run *r)
{
	if (!r->program.pid || r->program.ended) {
		return;
	}
	if (r->stop_ns) {
		cli_note(r->c, "%s has not ended at SIGTERM and goes on.", r->of);
		return;
	}
	if (r->t.ended) {
		cli_note(r->c, "The tool was detached; %s goes on.", r->of);
	}
	(void)cli_trace_program_ended(&r->program, true);
}

static void tell_end(const struct run *r)
{
	bool by_signal = r->program.code > 128 && r->program.code <= 128 + SIGRTMAX;

	if (by_signal && !r->stop_ns) {
		cli_note(r->c,
			 "%s ended with code %d. The last figures of a process that a signal ends "
			 "may be missing.",
			 r->of, r->program.code);
	}
	if (!r->program.command && (r->t.ended || all_have_ended(r)) && !interrupted) {
		cli_note(r->c, "The program has ended, or the tool was detached.");
	}
}

static int trace(struct run *r, const struct buf *elf)
{
	int code = begin(r, elf);

	if (code == CLI_OK) {
		code = follow(r);
	}
	if (code == CLI_OK && !r->t.ended) {
		code = cli_trace_read(r->c, &r->t);
		if (r->t.absent) {
			cli_note(r->c, "gbpfd does not answer: the figures are those of its last "
				       "answer.");
		}
	}
	if (code != CLI_OK) {
		detach(r); /* the program's exit waits for nothing then */
	}
	await_program(r);
	if (code == CLI_OK) {
		code = check_found(r);
	}
	if (code == CLI_OK) {
		code = put(r, true);
		tell_limits(r);
	}
	if (code == CLI_OK) {
		tell_end(r);
	}
	detach(r);
	return exit_code(r, code);
}

static int cmd_trace(struct cli *c)
{
	struct run r = { .c = c };
	struct buf elf = { 0 };
	int code;

	if (!c->n_before) {
		return c->opt[O_OF] || c->n_args
			       ? cli_fail(c, CLI_USAGE, "usage", "`gbpf trace` lists them",
					  "trace: the name of a tool is missing")
			       : cli_trace_list(c);
	}
	code = cli_trace_find(c, c->arg[0], &r.t.tool, &elf);
	if (code == CLI_OK) {
		code = parse(&r);
	}
	if (code == CLI_OK) {
		code = parse_region(&r, &elf);
	}
	if (code == CLI_OK && r.program.command) {
		code = cli_trace_program_prepare(c, &r.program);
	}
	if (code == CLI_OK) {
		code = trace(&r, &elf);
	}
	cli_trace_values_finish(&r.printed);
	cli_trace_finish(&r.t);
	buf_finish(&elf);
	return code;
}

const struct cli_verb verb_trace = {
	.name = "trace",
	.args = "[TOOL [-- PROGRAM [ARGUMENT]...]]",
	.doc = "see from inside kernels where warps, blocks and accesses cost time",
	.page = "gbpf-trace.1",
	.options = options,
	.max_args = 1,
	.program = true,
	.run = cmd_trace,
};

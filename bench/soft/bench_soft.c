/* `gbpf bench soft`: speed of the soft GPU. Each section measures in child processes that are
 * clients of one server; figures are printed with those of the machine without the soft GPU, and
 * with the limits that gBPF promises. */
#include "bench/soft/bench_soft.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"

static const struct {
	const char *name;
	void (*run)(struct bench_soft *b);
} sections[SOFT_BENCH_SECTIONS] = {
	{ "fma", bench_soft_fma },	 { "samples", bench_soft_samples },
	{ "empty", bench_soft_empty },	 { "copy", bench_soft_copy },
	{ "slices", bench_soft_slices }, { "many", bench_soft_many },
	{ "kills", bench_soft_kills },
};

static bool goal_met(const struct bench_soft_figure *f, double v)
{
	switch (f->goal) {
	case GOAL_AT_LEAST:
		return v >= f->target;
	case GOAL_AT_MOST:
		return v <= f->target;
	case GOAL_WITHIN:
		return fabs(v - f->target) <= f->tolerance;
	default:
		return true;
	}
}

static json_t *figure_json(const char *section, const struct bench_soft_figure *f, double ratio,
			   bool met)
{
	static const char *const goals[] = { NULL, "at_least", "at_most", "within" };
	json_t *j = json_pack("{s:s, s:s, s:s, s:f}", "section", section, "what", f->what, "unit",
			      f->unit, "value", f->value);

	if (j && f->control) {
		json_object_set_new(j, "control",
				    json_pack("{s:s, s:f, s:f}", "what", f->control, "value",
					      f->control_value, "ratio", ratio));
	}
	if (j && f->goal) {
		json_object_set_new(j, "target",
				    json_pack("{s:s, s:s, s:f, s:f, s:b}", "of",
					      f->ratio ? "ratio" : "value", "kind", goals[f->goal],
					      "limit", f->target, "tolerance", f->tolerance, "met",
					      met));
	}
	return j;
}

static void print_goal(const struct bench_soft_figure *f, bool met)
{
	static const char *const goals[] = { "", "at least", "at most", "within" };

	if (!f->goal) {
		return;
	}
	printf("  %s %.4g", goals[f->goal],
	       f->goal == GOAL_WITHIN ? f->target - f->tolerance : f->target);
	if (f->goal == GOAL_WITHIN) {
		printf(" to %.4g", f->target + f->tolerance);
	}
	printf("%s: %s", f->ratio ? " of control" : "", met ? "met" : "MISSED");
}

void bench_soft_report(struct bench_soft *b, const char *section, const struct bench_soft_figure *f)
{
	double ratio = f->control && f->control_value > 0 ? f->value / f->control_value : 0;
	bool met = goal_met(f, f->ratio ? ratio : f->value);

	b->missed += !met;
	if (b->json) {
		json_array_append_new(b->figures, figure_json(section, f, ratio, met));
		return;
	}
	printf("%-8s %-38s %10.3f %-6s", section, f->what, f->value, f->unit);
	if (f->control) {
		printf(" %s %.3f, ratio %.2f", f->control, f->control_value, ratio);
	}
	print_goal(f, met);
	putchar('\n');
	fflush(stdout);
}

void bench_soft_broken(struct bench_soft *b, const char *section, const char *why)
{
	b->failed++;
	fprintf(stderr, "gbpf: bench soft: %s: %s\n", section, why);
}

static int take_section(struct bench_soft *b, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		if (strcmp(sections[i].name, name) == 0) {
			b->only[i] = b->some = true;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse(struct bench_soft *b, int argc, char **argv)
{
	const struct {
		const char *flag;
		const char **text;
		unsigned *number;
	} options[] = {
		{ "--libcuda", &b->libcuda, NULL }, { "--server", &b->server, NULL },
		{ "--samples", &b->samples, NULL }, { "--rounds", NULL, &b->rounds },
		{ "--ms", NULL, &b->ms },	    { "--kills", NULL, &b->kills },
	};

	for (int i = 1; i < argc; i++) {
		size_t k;

		if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "--running") == 0) {
			*(argv[i][2] == 'j' ? &b->json : &b->running) = true;
			continue;
		}
		for (k = 0; k < ARRAY_SIZE(options) && strcmp(options[k].flag, argv[i]) != 0; k++) {
		}
		if (k == ARRAY_SIZE(options)) {
			if (take_section(b, argv[i]) < 0) {
				fprintf(stderr, "gbpf: bench soft: unknown section %s\n", argv[i]);
				return -EINVAL;
			}
		} else if (++i == argc) {
			return -EINVAL;
		} else if (options[k].text) {
			*options[k].text = argv[i];
		} else {
			*options[k].number = (unsigned)strtoul(argv[i], NULL, 10);
		}
	}
	return b->libcuda && b->server && b->samples && b->rounds >= 1 && b->rounds <= 1000 &&
			       b->ms >= 1 && b->ms <= 100000 && b->kills <= 1000000
		       ? 0
		       : -EINVAL;
}

static int measure(struct bench_soft *b)
{
	json_t *document = json_pack("{s:s, s:i, s:i, s:i, s:i}", "schema", "gbpf.bench.soft/1",
				     "rounds", (int)b->rounds, "ms", (int)b->ms, "workers",
				     (int)b->hello.workers, "sms", (int)b->hello.sms);

	b->figures = json_array();
	if (!document || !b->figures) {
		return 1;
	}
	if (!b->json) {
		printf("%-8s %-38s %10s %-6s %s\n", "SECTION", "WHAT", "VALUE", "UNIT",
		       "CONTROL, TARGET");
	}
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		if (!b->some || b->only[i]) {
			sections[i].run(b);
		}
	}
	json_object_set_new(document, "figures", b->figures);
	json_object_set_new(document, "missed", json_integer(b->missed));
	json_object_set_new(document, "failed", json_integer(b->failed));
	if (b->json) {
		json_dumpf(document, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(document);
	return b->failed || fflush(stdout) ? 1 : 0;
}

static volatile sig_atomic_t measuring;

static void pass_on(int sig)
{
	if (measuring > 0) {
		kill(measuring, sig);
	}
}

/* Runs the measurement in a child process, so that server and folder are removed however it ends.
 */
static int supervise(struct bench_soft *b)
{
	struct sigaction sa = { .sa_handler = pass_on };
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(measure(b));
	}
	measuring = pid;
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGINT, SIG_IGN);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	struct bench_soft b = { .rounds = 7, .ms = 1000, .kills = 100 };
	int err, code;

	if (parse(&b, argc, argv) < 0) {
		fputs("gbpf: bench soft: started with arguments that make no sense. Use: gbpf "
		      "bench soft\n",
		      stderr);
		return 2;
	}
	err = bench_soft_server_start(&b);
	if (err < 0) {
		fprintf(stderr, "gbpf: bench soft: the soft GPU's server %s: %s\n",
			b.running ? "cannot be reached" : "does not start", strerror(-err));
		bench_soft_server_stop(&b);
		return 1;
	}
	code = supervise(&b);
	bench_soft_server_stop(&b);
	return code;
}

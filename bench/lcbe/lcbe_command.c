/* Turns of `gbpf bench preempt` with the user's two commands instead of the bench's clients. They
 * print one number per line: the latency command the microseconds of a request, the batch command
 * the work since its previous line, in any unit; other lines are ignored. They are started for each
 * turn and ended after it. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "bench/lcbe/lcbe.h"

#define FIRST_NS 300000000000ull /* timeout of the first number: frameworks start slowly */
#define MAX_SAMPLES 1000000u

struct stream {
	pid_t pid;
	int fd;
	char line[512];
	size_t len;
	double sum; /* of the numbers since the last call of pump */
	double *us; /* owned; filled if keep is set */
	unsigned n, cap;
	bool keep;
};

struct turn {
	struct stream lc, be[LCBE_BATCH];
	unsigned batch;
};

static int take_number(struct bench_lcbe *b, struct stream *s)
{
	char *end;
	double v;

	s->line[s->len] = 0;
	v = strtod(s->line, &end);
	if (end == s->line || *(end + strspn(end, " \t\r")) || !(v >= 0 && v < 1e15)) {
		return 0;
	}
	s->sum += v;
	if (s->keep && s->n == s->cap) {
		unsigned cap = s->cap ? 2 * s->cap : 1024;
		double *grown = cap <= MAX_SAMPLES ? realloc(s->us, cap * sizeof(double)) : NULL;

		if (!grown) {
			return bench_testbed_fail(&b->testbed,
						  "too many numbers from the latency command");
		}
		s->us = grown;
		s->cap = cap;
	}
	if (s->keep) {
		s->us[s->n] = v;
	}
	s->n++;
	return 0;
}

static int take_bytes(struct bench_lcbe *b, struct stream *s, const char *text, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		if (text[i] == '\n') {
			err = take_number(b, s);
			s->len = 0;
		} else if (s->len < sizeof(s->line) - 1) {
			s->line[s->len++] = text[i];
		}
	}
	return err;
}

/* Reads the output that is available now. */
static int pump(struct bench_lcbe *b, struct stream *s, const char *what)
{
	char text[4096];
	ssize_t n;
	int err = 0;

	while (!err && (n = read(s->fd, text, sizeof(text))) > 0) {
		err = take_bytes(b, s, text, (size_t)n);
	}
	if (!err && (n == 0 || (errno != EAGAIN && errno != EINTR))) {
		err = bench_testbed_fail(&b->testbed,
					 "the %s command has exited; last output: %.200s", what,
					 s->line);
	}
	return err;
}

static int pump_all(struct bench_lcbe *b, struct turn *t)
{
	struct pollfd p[LCBE_BATCH + 1];
	unsigned n = 0;
	int err = 0;

	for (unsigned i = 0; i < t->batch; i++) {
		if (t->be[i].pid > 0) {
			p[n++] = (struct pollfd){ .fd = t->be[i].fd, .events = POLLIN };
		}
	}
	if (t->lc.pid > 0) {
		p[n++] = (struct pollfd){ .fd = t->lc.fd, .events = POLLIN };
	}
	poll(p, n, 20);
	for (unsigned i = 0; i < t->batch && !err; i++) {
		err = t->be[i].pid > 0 ? pump(b, &t->be[i], "batch") : 0;
	}
	if (!err && t->lc.pid > 0) {
		err = pump(b, &t->lc, "latency");
	}
	return !err && bench_testbed_interrupted() ? bench_testbed_fail(&b->testbed, "interrupted")
						   : err;
}

/* Waits until the command has printed a number. This time is none of the bench's limit. */
static int await_first(struct bench_lcbe *b, struct turn *t, const struct stream *s,
		       const char *what)
{
	uint64_t begin = clock_now_ns(), deadline = begin + FIRST_NS;
	int err = 0;

	while (!err && s->n == 0) {
		err = clock_now_ns() > deadline
			      ? bench_testbed_fail(&b->testbed, "the %s command prints no number",
						   what)
			      : pump_all(b, t);
	}
	b->begun_ns += clock_now_ns() - begin;
	return err;
}

static int start(struct bench_lcbe *b, struct bench_lcbe_condition *c, struct stream *s, bool batch,
		 unsigned i)
{
	struct bench_testbed_place place = bench_lcbe_place(c, batch);
	struct bench_testbed_command k;
	char name[48];

	snprintf(name, sizeof(name), "%s-%s%u", c->name, batch ? "be" : "lc", i);
	memset(s, 0, sizeof(*s));
	s->fd = -1;
	bench_command_init(&k);
	bench_testbed_put_in_place(&b->testbed, &k, &place, name);
	bench_command_add(&k, "sh");
	bench_command_add(&k, "-c");
	bench_command_add(&k, "%s", batch ? b->set.be_cmd : b->set.lc_cmd);
	s->pid = bench_testbed_spawn(&b->testbed, &k, NULL, -1, &s->fd);
	bench_command_finish(&k);
	return s->pid > 0 ? 0 : -1;
}

static double work_done(struct turn *t)
{
	double sum = 0;

	for (unsigned i = 0; i < t->batch; i++) {
		sum += t->be[i].sum;
		t->be[i].sum = 0;
	}
	return sum;
}

static int batch_alone(struct bench_lcbe *b, struct bench_lcbe_condition *c, struct turn *t,
		       unsigned round)
{
	uint64_t begin, end;
	int err = 0;

	for (unsigned i = 0; i < t->batch && !err; i++) {
		err = start(b, c, &t->be[i], true, i);
	}
	for (unsigned i = 0; i < t->batch && !err; i++) {
		err = await_first(b, t, &t->be[i], "batch");
	}
	work_done(t);
	begin = clock_now_ns();
	end = begin + bench_lcbe_window_ns(b) / 2;
	while (!err && clock_now_ns() < end) {
		err = pump_all(b, t);
	}
	return err ? err
		   : bench_lcbe_record_alone(
			     b, c, round, work_done(t) / ((double)(clock_now_ns() - begin) * 1e-9));
}

/* The programs of the latency command, as gbpfd lists them. */
struct use {
	json_int_t programs, pids; /* their number; the sum of their process ids */
	json_int_t busy_ns;	   /* GPU time of their launches that have ended */
};

static struct use latency_use(const struct bench_lcbe_condition *c)
{
	json_t *tenants = c->daemon ? bench_testbed_tenants(c->daemon) : NULL, *t;
	struct use u = { 0 };
	size_t i;

	json_array_foreach(tenants, i, t)
	{
		const json_t *stats = json_object_get(t, "stats");
		const char *class_name = json_string_value(json_object_get(t, "class"));

		if (class_name && strcmp(class_name, "latency") == 0) {
			u.programs++;
			u.pids += json_integer_value(json_object_get(t, "pid"));
			u.busy_ns += json_integer_value(json_object_get(stats, "busy_ns"));
		}
	}
	json_decref(tenants);
	return u;
}

/* Returns the GPU time between two looks, in nanoseconds; 0: it is unknown, because a program has
 * started or ended meanwhile, or gbpfd lists none. */
static uint64_t busy_between(const struct use *was, const struct use *is)
{
	bool same = was->programs == is->programs && was->pids == is->pids;

	return same && is->busy_ns > was->busy_ns ? (uint64_t)(is->busy_ns - was->busy_ns) : 0;
}

static int requests(struct bench_lcbe *b, struct bench_lcbe_condition *c, struct turn *t,
		    unsigned round)
{
	unsigned want = MAX(b->set.requests / b->set.rounds, 1);
	uint64_t begin, end;
	struct use was, is;
	double seconds;
	int err = start(b, c, &t->lc, false, 0);

	err = err ? err : await_first(b, t, &t->lc, "latency");
	t->lc.keep = true;
	t->lc.n = 0;
	was = latency_use(c);
	work_done(t);
	begin = clock_now_ns();
	end = begin + bench_lcbe_window_ns(b);
	while (!err && t->lc.n < want && clock_now_ns() < end) {
		err = pump_all(b, t);
	}
	seconds = (double)(clock_now_ns() - begin) * 1e-9;
	is = latency_use(c);
	if (!err && !t->lc.n) {
		err = bench_testbed_fail(&b->testbed,
					 "no request completed within %.1f s; raise --seconds",
					 (double)(end - begin) * 1e-9);
	}
	return err ? err
		   : bench_lcbe_record_window(b, c, "command", round, seconds, work_done(t),
					      busy_between(&was, &is),
					      bench_program_doubles(t->lc.us, t->lc.n));
}

static void stop(struct bench_lcbe *b, struct stream *s)
{
	if (s->pid > 0) {
		bench_testbed_end(&b->testbed, s->pid, 500);
		fd_close(s->fd);
	}
	free(s->us);
}

int bench_lcbe_command_turn(struct bench_lcbe *b, struct bench_lcbe_condition *c, unsigned round)
{
	static struct turn t;
	int err = 0;

	memset(&t, 0, sizeof(t));
	t.batch = c->def->batch ? b->set.batch_clients : 0;
	if (t.batch) {
		err = batch_alone(b, c, &t, round);
		b->windows_done++;
	}
	err = err ? err : requests(b, c, &t, round);
	b->windows_done++;
	for (unsigned i = 0; i < t.batch; i++) {
		stop(b, &t.be[i]);
	}
	stop(b, &t.lc);
	c->rounds += !err;
	return err;
}

/* bench-switch [LIBCUDA [GROUP...]]: measures what determines how long a request waits for its
 * context. A latency process and a batch process have contexts of their own; the batch process is
 * absent, idle, drained, switched off or busy; ahead of the request the latency process does
 * nothing, runs an empty kernel, or keeps a spinning kernel that is released when the request
 * arrives. The times are printed with the number of switches away from each process, by kind.
 * Groups: 1 ahead, 2 modes, 3 slices, 4 levels, 5 linger, 6 trace; all if none is named. Ends
 * within four minutes. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "bench/control/try_controls.h"
#include "bench/common/statistics.h"
#include "bench/control/switch_trace.h"
#include "gpu/learn.h"
#include "gpu/rm.h"

#define SECONDS 240
#define REQUESTS 120
#define PAUSE_US 4000
#define BATCH_NS UINT64_C(1000000)
#define REQUEST_NS UINT64_C(7000)
#define BLOCKS 132

enum batch {
	BATCH_IDLE,    /* has a context, but no work */
	BATCH_DRAINED, /* busy; notified early, and drained when the request is announced */
	BATCH_OFF,     /* busy; switched off when the request is announced */
	BATCH_BUSY,
	BATCHES
};
static const char *const batch_names[] = { "idle", "drained", "off", "busy" };

enum ahead { AHEAD_NOTHING, AHEAD_EMPTY, AHEAD_SPIN };
static const char *const ahead_names[] = { "-", "empty", "spin" };

struct pair {
	volatile uint32_t run, hold, held, stop;
	volatile uint64_t kernels;
};

struct side {
	struct gpu_handles h;
	int fd;
};

struct bench_testbed {
	struct bench_cuda c;
	struct pair *pair;
	struct side us, them;
	pid_t batch;
};

/* ---- the batch process ---- */

static void launch(struct bench_cuda *c, CUfunction f, unsigned grid, unsigned block, uint64_t ns)
{
	void *params[] = { &ns };

	bench_must(c->real.cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, c->stream, params, NULL),
		   "launch");
}

static void batch_run(const char *library, int sock, struct pair *p)
{
	struct bench_cuda c = { 0 };
	struct side s;
	CUevent done[2];

	bench_cuda_open(&c, library);
	launch(&c, c.work, 1, 32, 1000);
	bench_must(c.real.cuCtxSynchronize(), "synchronize");
	if (gpu_learn(&c.real, 0, c.ctx, &s.h, &s.fd) < 0 ||
	    msg_send(sock, &s.h, sizeof(s.h), &s.fd, 1) < 0) {
		_exit(2);
	}
	for (int i = 0; i < 2; i++) {
		bench_must(c.real.cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING), "event");
	}
	for (unsigned i = 0; !p->stop; i++) {
		if (!p->run || p->hold) {
			bench_must(c.real.cuCtxSynchronize(), "synchronize");
			p->held = 1;
			clock_sleep_ns(20000);
			continue;
		}
		p->held = 0;
		launch(&c, c.work, BLOCKS * 8, 256, BATCH_NS);
		bench_must(c.real.cuEventRecord(done[i % 2], c.stream), "record");
		if (i > 0) {
			bench_must(c.real.cuEventSynchronize(done[(i + 1) % 2]), "wait");
		}
		p->kernels++;
	}
}

/* ---- requests ---- */

static void wait_us(uint64_t start, double us)
{
	while (bench_us_since(start) < us) {
		cpu_relax();
	}
}

static void prepare(struct bench_testbed *w, enum batch batch)
{
	struct pair *p = w->pair;
	uint64_t start = clock_now_ns();

	if (batch == BATCH_DRAINED) {
		p->held = 0;
		p->hold = 1;
		while (!p->held && bench_us_since(start) < 1e5) {
			cpu_relax();
		}
	} else if (batch == BATCH_OFF) {
		(void)gpu_control(&w->them.h, w->them.fd, GPU_CONTROL_SCHEDULE, 0, NULL);
	}
}

static void let_go(struct bench_testbed *w, enum batch batch)
{
	w->pair->hold = 0;
	if (batch == BATCH_OFF) {
		(void)gpu_control(&w->them.h, w->them.fd, GPU_CONTROL_SCHEDULE, 1, NULL);
	}
}

/* Returns the microseconds of one request. after_us: delay of the request's second kernel, which is
 * then the measured one; 0: the first is measured. */
static double request(struct bench_testbed *w, enum batch batch, enum ahead ahead, double ahead_us,
		      double after_us)
{
	struct bench_cuda *c = &w->c;
	uint64_t start;
	double us;

	prepare(w, batch);
	start = clock_now_ns();
	if (ahead == AHEAD_EMPTY) {
		launch(c, c->empty, 1, 32, 0);
	} else if (ahead == AHEAD_SPIN) {
		CUdeviceptr word = c->word_device;
		uint64_t limit = UINT64_C(50000000);
		void *params[] = { &word, &limit };

		c->word[0] = c->word[1] = 0;
		bench_must(c->real.cuLaunchKernel(c->beat, 1, 1, 1, 1, 1, 1, 0, c->stream, params,
						  NULL),
			   "spin");
	}
	if (ahead != AHEAD_NOTHING) {
		wait_us(start, ahead_us);
	}
	if (after_us > 0) {
		launch(c, c->work, BLOCKS, 256, REQUEST_NS);
		bench_must(c->real.cuStreamSynchronize(c->stream), "synchronize");
		wait_us(clock_now_ns(), after_us);
	}
	start = clock_now_ns();
	launch(c, c->work, BLOCKS, 256, REQUEST_NS);
	c->word[1] = 1;
	bench_must(c->real.cuStreamSynchronize(c->stream), "synchronize");
	us = bench_us_since(start);
	let_go(w, batch);
	return us;
}

static void switches(const struct side *s, struct gpu_switches *ret)
{
	(void)gpu_control_switches(&s->h, s->fd, ret);
}

static double each(uint64_t after, uint64_t before)
{
	return (double)(after - before) / REQUESTS;
}

static void measure(struct bench_testbed *w, const char *what, enum batch batch, enum ahead ahead,
		    double ahead_us, double after_us)
{
	struct gpu_switches us[2], them[2];
	double v[REQUESTS];
	uint64_t kernels = w->pair->kernels, start;

	w->pair->run = batch != BATCH_IDLE;
	w->pair->hold = 0;
	clock_sleep_ns(30000000);
	switches(&w->us, &us[0]);
	switches(&w->them, &them[0]);
	start = clock_now_ns();
	for (int i = 0; i < REQUESTS; i++) {
		clock_sleep_ns(PAUSE_US * UINT64_C(1000));
		v[i] = request(w, batch, ahead, ahead_us, after_us);
	}
	kernels = w->pair->kernels - kernels;
	switches(&w->us, &us[1]);
	switches(&w->them, &them[1]);
	bench_stats_sort(v, REQUESTS);
	bench_say("%-18s batch %-8s ahead %-5s %5.0f us after %5.0f | p50 %6.1f p90 %6.1f p99 "
		  "%7.1f us | "
		  "saves a request: ours idle %.2f block %.2f instr %.2f, theirs %.2f %.2f %.2f | "
		  "batch "
		  "%.0f/s",
		  what, batch_names[batch], ahead_names[ahead], ahead_us, after_us,
		  bench_stats_quantile(v, REQUESTS, 0.5), bench_stats_quantile(v, REQUESTS, 0.9),
		  bench_stats_quantile(v, REQUESTS, 0.99), each(us[1].idle, us[0].idle),
		  each(us[1].block, us[0].block), each(us[1].instruction, us[0].instruction),
		  each(them[1].idle, them[0].idle), each(them[1].block, them[0].block),
		  each(them[1].instruction, them[0].instruction),
		  (double)kernels / bench_us_since(start) * 1e6);
}

/* ---- groups of measurements ---- */

static void ahead_group(struct bench_testbed *w)
{
	static const double times[] = { 150, 400, 1500 };

	for (int b = 0; b < BATCHES; b++) {
		measure(w, "ahead", (enum batch)b, AHEAD_NOTHING, 0, 0);
		for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
			measure(w, "ahead", (enum batch)b, AHEAD_EMPTY, times[i], 0);
			measure(w, "ahead", (enum batch)b, AHEAD_SPIN, times[i], 0);
		}
	}
}

static int set(const struct side *s, enum gpu_control what, uint64_t value)
{
	return gpu_control(&s->h, s->fd, what, value, NULL);
}

/* Counts the kinds of switches of each process: at the end of its work, at the end of a block, in
 * the middle. */
static void mode_group(struct bench_testbed *w)
{
	char what[32];

	for (uint64_t ours = 0; ours < 3; ours++) {
		for (uint64_t theirs = 1; theirs < 3; theirs++) {
			int a = set(&w->us, GPU_CONTROL_PREEMPTION_MODE, ours);
			int b = set(&w->them, GPU_CONTROL_PREEMPTION_MODE, theirs);

			snprintf(what, sizeof(what), "modes %d/%d (%d %d)", (int)ours, (int)theirs,
				 a, b);
			measure(w, what, BATCH_BUSY, AHEAD_NOTHING, 0, 0);
			measure(w, what, BATCH_BUSY, AHEAD_SPIN, 400, 0);
		}
	}
	(void)set(&w->us, GPU_CONTROL_PREEMPTION_MODE, 2);
	(void)set(&w->them, GPU_CONTROL_PREEMPTION_MODE, 2);
}

static void slice_group(struct bench_testbed *w)
{
	static const uint64_t slices[][2] = { { 0, 0 }, { 0, 1 }, { 20000, 1 }, { 1000000, 1 } };
	char what[32];

	for (size_t i = 0; i < ARRAY_SIZE(slices); i++) {
		int a = set(&w->us, GPU_CONTROL_SLICE_SET, slices[i][0]);
		int b = set(&w->them, GPU_CONTROL_SLICE_SET, slices[i][1]);

		snprintf(what, sizeof(what), "us %d/%d (%d %d)", (int)slices[i][0],
			 (int)slices[i][1], a, b);
		measure(w, what, BATCH_BUSY, AHEAD_NOTHING, 0, 0);
		measure(w, what, BATCH_BUSY, AHEAD_EMPTY, 400, 0);
		measure(w, what, BATCH_BUSY, AHEAD_SPIN, 400, 0);
	}
	(void)set(&w->us, GPU_CONTROL_SLICE_SET, 0);
	(void)set(&w->them, GPU_CONTROL_SLICE_SET, 0);
}

static void level_group(struct bench_testbed *w)
{
	int a = set(&w->us, GPU_CONTROL_INTERLEAVE, 2),
	    b = set(&w->them, GPU_CONTROL_INTERLEAVE, 0);
	char what[32];

	(void)set(&w->them, GPU_CONTROL_SLICE_SET, 1);
	snprintf(what, sizeof(what), "levels 2/0 (%d %d)", a, b);
	measure(w, what, BATCH_BUSY, AHEAD_NOTHING, 0, 0);
	measure(w, what, BATCH_BUSY, AHEAD_SPIN, 400, 0);
	(void)set(&w->us, GPU_CONTROL_INTERLEAVE, 1);
	(void)set(&w->them, GPU_CONTROL_INTERLEAVE, 1);
	(void)set(&w->them, GPU_CONTROL_SLICE_SET, 0);
}

/* Measures how long the context stays after its work has ended, by the time of a second kernel. */
static void linger_group(struct bench_testbed *w)
{
	static const double gaps[] = { 5, 20, 50, 100, 500, 3000 };

	(void)set(&w->them, GPU_CONTROL_SLICE_SET, 1);
	for (int b = BATCH_DRAINED; b < BATCHES; b++) {
		for (size_t i = 0; i < ARRAY_SIZE(gaps); i++) {
			measure(w, "linger", (enum batch)b, AHEAD_NOTHING, 0, gaps[i]);
		}
	}
	(void)set(&w->them, GPU_CONTROL_SLICE_SET, 0);
}

/* ---- the driver's own log ---- */

static const char *tag_name(uint8_t tag)
{
	static const char *const names[] = {
		"?",	 "asked", "ack", "saved",    "restoring",    "in",	  "in",
		"saved", "?",	  "?",	 "ack idle", "ack graphics", "ack block", "ack instruction"
	};

	return tag < ARRAY_SIZE(names) ? names[tag] : "?";
}

/* In a container the driver may use different process ids. */
static const char *who(const struct bench_testbed *w, uint32_t pid)
{
	static char number[16];

	if (pid == (uint32_t)getpid() || pid == (uint32_t)w->batch) {
		return pid == (uint32_t)getpid() ? "we" : "they";
	}
	snprintf(number, sizeof(number), "%u", pid);
	return number;
}

/* Prints the events on the GPU from shortly before a request to its end; 0 is the launch. */
static void trace_one(struct bench_testbed *w, struct trace *t, enum batch batch, enum ahead ahead,
		      double ahead_us)
{
	static struct bench_trace_record r[256];
	char line[380] = "";
	size_t at = 0;
	uint64_t begun;
	int64_t offset = 0;
	uint32_t n;
	double us;

	w->pair->run = batch != BATCH_IDLE;
	clock_sleep_ns(50000000);
	(void)gpu_clock_offset(w->c.gpu, w->c.ctx, &offset);
	for (int i = 0; i < 5; i++) {
		clock_sleep_ns(PAUSE_US * UINT64_C(1000));
		us = request(w, batch, ahead, ahead_us, 0);
	}
	begun = clock_now_ns() - (uint64_t)(us * 1e3);
	clock_sleep_ns(2000000);
	n = bench_trace_read(t, r, ARRAY_SIZE(r));
	for (uint32_t i = 0; i < n && at < sizeof(line) - 48; i++) {
		double when = (double)(int64_t)(r[i].gpu_ns - (uint64_t)offset - begun) / 1e3;

		if (when > -ahead_us - 300 && when < us + 200) {
			at += (size_t)snprintf(line + at, sizeof(line) - at, " %s %s %.0f;",
					       who(w, r[i].pid), tag_name(r[i].tag), when);
		}
	}
	bench_say("trace: batch %s, ahead %s %.0f us, took %.0f us (%u records):%s",
		  batch_names[batch], ahead_names[ahead], ahead_us, us, n, line);
}

static void trace_group(struct bench_testbed *w)
{
	struct gpu_learn_object groups[64], d = { .id = GPU_LEARN_NO_ID };
	struct trace *t;
	int number;

	if (gpu_learn_find(GPU_RM_CLASS_GROUP, groups, ARRAY_SIZE(groups)) == 0 ||
	    !gpu_learn_device_of(&groups[0], &d) || d.id == GPU_LEARN_NO_ID) {
		bench_say("trace: no device is known");
		return;
	}
	number = gpu_learn_minor(&w->c.real, w->c.device, w->us.fd);
	t = number >= 0 ? bench_trace_open(d.id, number) : NULL;
	if (!t) {
		bench_say("trace: not to be had (device %u, number %d)", d.id, number);
		return;
	}
	(void)set(&w->them, GPU_CONTROL_SLICE_SET, 1);
	for (int i = 0; i < 2; i++) {
		trace_one(w, t, BATCH_BUSY, AHEAD_NOTHING, 0);
		trace_one(w, t, BATCH_BUSY, AHEAD_EMPTY, 400);
		trace_one(w, t, BATCH_BUSY, AHEAD_SPIN, 150);
		trace_one(w, t, BATCH_BUSY, AHEAD_SPIN, 400);
		trace_one(w, t, BATCH_DRAINED, AHEAD_NOTHING, 0);
		trace_one(w, t, BATCH_DRAINED, AHEAD_EMPTY, 400);
		trace_one(w, t, BATCH_DRAINED, AHEAD_SPIN, 400);
	}
	(void)set(&w->them, GPU_CONTROL_SLICE_SET, 0);
}

/* ---- main ---- */

static pid_t child;

static void end(int number)
{
	(void)number;
	if (child > 0) {
		kill(child, SIGKILL);
	}
	_exit(9);
}

static pid_t start_batch(const char *library, struct pair *p, struct side *them)
{
	int pair[2], fds[FD_PASS_MAX];
	unsigned n = 0;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		return -1;
	}
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		batch_run(library, pair[1], p);
		_exit(0);
	}
	close(pair[1]);
	if (msg_recv(pair[0], &them->h, sizeof(them->h), fds, &n) != sizeof(them->h) || n != 1) {
		return -1;
	}
	them->fd = fds[0];
	close(pair[0]);
	return pid;
}

static bool wanted(int argc, char **argv, const char *group)
{
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], group) == 0) {
			return true;
		}
	}
	return argc <= 2;
}

int main(int argc, char **argv)
{
	static void (*const groups[])(struct bench_testbed *) = { ahead_group,	mode_group,
								  slice_group,	level_group,
								  linger_group, trace_group };
	static struct bench_testbed w;
	const char *library = argc > 1 ? argv[1] : "libcuda.so.1";
	char number[2] = "1";

	signal(SIGALRM, end);
	alarm(SECONDS);
	w.pair = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (w.pair == MAP_FAILED) {
		return 1;
	}
	gpu_control_soft_library(library);
	child = start_batch(library, w.pair, &w.them);
	if (child < 0) {
		bench_say("the batch process did not start");
		return 1;
	}
	w.batch = child;
	bench_cuda_open(&w.c, library);
	launch(&w.c, w.c.work, 1, 32, 1000);
	bench_must(w.c.real.cuCtxSynchronize(), "synchronize");
	if (gpu_learn(&w.c.real, 0, w.c.ctx, &w.us.h, &w.us.fd) < 0) {
		bench_say("the handles are not known");
		end(0);
	}
	gpu_self_test(&w.us.h, w.us.fd);
	bench_say("capable 0x%x, groups %u and %u", w.us.h.capable, w.us.h.n_groups,
		  w.them.h.n_groups);
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++, number[0]++) {
		if (wanted(argc, argv, number)) {
			groups[i](&w);
		}
	}
	w.pair->stop = 1;
	kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	return 0;
}

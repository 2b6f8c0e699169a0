/* Cycles of attach, swap and detach under load: no launch may be lost or run twice, each tool must
 * count, and memory and descriptors must not grow. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/probe/bench_probe_load.h"
#include "gbpf/gbpf.h"

#define MARKS 3u /* moments: behind the first tenth, the half, and all of the cycles */

/* Resources at a moment without tools: in use, and free memory of the device. */
struct use {
	unsigned cycle;
	uint64_t free_bytes, descriptors, daemon_descriptors, resident_kb, daemon_resident_kb;
};

static uint64_t count_descriptors(pid_t pid)
{
	char path[64];
	uint64_t n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && readdir(d)) {
		n++;
	}
	if (d) {
		closedir(d);
	}
	return n;
}

static uint64_t resident_kb(pid_t pid)
{
	unsigned long pages = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%*u %lu", &pages) != 1) {
			pages = 0;
		}
		fclose(f);
	}
	return (uint64_t)pages * 4;
}

/* By the driver's own figure: the shim's would hide what is gBPF's. */
static int take_use(struct bench_probe *p, unsigned cycle, struct use *u)
{
	const struct gbpf_hello *h = gbpf_hello(p->daemon->g);
	pid_t daemon = h ? h->pid : 0, own = getpid();
	size_t free_bytes = 0, all = 0;

	if (BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, cuMemGetInfo_v2(&free_bytes, &all))) {
		return -1;
	}
	*u = (struct use){ .cycle = cycle,
			   .free_bytes = free_bytes,
			   .descriptors = count_descriptors(own),
			   .daemon_descriptors = count_descriptors(daemon),
			   .resident_kb = resident_kb(own),
			   .daemon_resident_kb = resident_kb(daemon) };
	return u->descriptors && u->daemon_descriptors
		       ? 0
		       : bench_testbed_fail(&p->testbed, "cannot count descriptors in /proc");
}

/* Waits until launches have run the tool, and checks that it has counted them. */
static int see_it_count(struct bench_probe_load *l, const struct bench_probe_tool *t)
{
	uint64_t counted = 0;

	if (bench_probe_load_await(l, t) || bench_probe_load_proceed(l, 2) ||
	    bench_probe_sum(l->p, t, &counted)) {
		return -1;
	}
	return counted ? 0
		       : bench_testbed_fail(&l->p->testbed,
					    "WRONG COUNT: tool %u has counted "
					    "nothing",
					    t->id);
}

static int cycle(struct bench_probe_load *l, const struct buf *first, const struct buf *second,
		 unsigned *late)
{
	struct bench_probe_tool a = { .map = "counts" }, b = { .map = "counts" };

	return bench_probe_attach(l->p, first, "grow", 0, &a) || see_it_count(l, &a) ||
			       bench_probe_attach(l->p, second, "grow", a.id, &b) ||
			       see_it_count(l, &b) || bench_probe_detach(l->p, &b, late) ||
			       bench_probe_load_await_none(l) || bench_probe_load_proceed(l, 1)
		       ? -1
		       : 0;
}

static json_t *uses_json(const struct use *u)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < MARKS; i++) {
		json_array_append_new(
			all, json_pack("{s:i, s:I, s:I, s:I, s:I, s:I}", "cycle", (int)u[i].cycle,
				       "free_bytes", (json_int_t)u[i].free_bytes, "descriptors",
				       (json_int_t)u[i].descriptors, "daemon_descriptors",
				       (json_int_t)u[i].daemon_descriptors, "resident_kb",
				       (json_int_t)u[i].resident_kb, "daemon_resident_kb",
				       (json_int_t)u[i].daemon_resident_kb));
	}
	return all;
}

static int run_cycles(struct bench_probe_load *l, const struct buf *first, const struct buf *second)
{
	struct bench_probe *p = l->p;
	const unsigned mark[MARKS] = { (p->cycles + 9) / 10, (p->cycles + 1) / 2, p->cycles };
	struct bench_probe_window w = { 0 };
	uint64_t begin = clock_now_ns();
	struct use use[MARKS];
	unsigned late = 0;
	int err = bench_probe_load_window(l, &w);

	for (unsigned i = 1; i <= p->cycles && !err; i++) {
		bench_testbed_progress(&p->testbed, "probe: cycle %u of %u", i, p->cycles);
		err = cycle(l, first, second, &late);
		for (unsigned k = 0; k < MARKS && !err; k++) {
			err = mark[k] == i ? take_use(p, i, &use[k]) : 0;
		}
	}
	err = err || bench_probe_load_window(l, NULL) || bench_probe_load_verify(l);
	return err || bench_testbed_record(
			      &p->testbed, "cycles",
			      json_pack("{s:i, s:f, s:I, s:f, s:I, s:i, s:o}", "cycles",
					(int)p->cycles, "seconds",
					(double)(clock_now_ns() - begin) / 1e9, "launches",
					(json_int_t)(l->grown + l->iterations), "longest_ms",
					(double)w.longest_ns / 1e6, "late", (json_int_t)w.late,
					"late_detaches", (int)late, "use", uses_json(use)))
		       ? -1
		       : 0;
}

int bench_probe_cycles(struct bench_probe *p)
{
	static struct bench_probe_load l;
	struct buf first, second;
	int err = bench_probe_object(p, "stamped_counter", &first);

	err = bench_probe_object(p, "warp_counter", &second) || err ||
	      bench_probe_load_start(p, &l, false) || run_cycles(&l, &first, &second);
	bench_probe_load_finish(&l);
	buf_finish(&first);
	buf_finish(&second);
	return err ? -1 : 0;
}

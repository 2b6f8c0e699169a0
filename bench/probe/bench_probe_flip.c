/* Time of the flip: of the launch that is the first one with a tool, or the first one without it
 * again. Nothing is launched while the form is made, so the launch waits for nothing else; of the
 * same launch after an equal pause without an attachment nothing has changed. The driver's first
 * launch of a kernel takes longer, and a form is a new kernel: that is measured apart, past the
 * shim, with a copy of the kernel that was loaded and not launched yet. */
#include <jansson.h>

#include "base/clock.h"
#include "bench/probe/bench_probe_load.h"

enum { WITH, WITHOUT, CONTROL, NEW, KNOWN, FLIPS };

/* Lets the load continue, and stores the times of the first launch. */
static int first_launch(struct bench_probe_load *l, struct bench_probe_launched *ret)
{
	const struct bench_probe_launched *launched;
	uint64_t first = l->grown; /* the thread that launches is parked */

	bench_probe_load_unpark(l);
	if (bench_probe_load_proceed(l, 4)) {
		return -1;
	}
	launched = bench_probe_load_launched(l, first);
	if (!launched) {
		return bench_testbed_fail(&l->p->testbed, "the first launch is not known any more");
	}
	*ret = *launched;
	return 0;
}

static int record(struct bench_probe_load *l, const struct bench_probe_launched *of)
{
	return bench_testbed_record(&l->p->testbed, "flip",
				    json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
					      "kind", l->code ? "code" : "ptx", "with_call_us",
					      (double)of[WITH].call_ns / 1e3, "without_call_us",
					      (double)of[WITHOUT].call_ns / 1e3, "control_call_us",
					      (double)of[CONTROL].call_ns / 1e3, "new_call_us",
					      (double)of[NEW].call_ns / 1e3, "known_call_us",
					      (double)of[KNOWN].call_ns / 1e3, "with_us",
					      (double)of[WITH].total_ns / 1e3, "without_us",
					      (double)of[WITHOUT].total_ns / 1e3, "control_us",
					      (double)of[CONTROL].total_ns / 1e3));
}

/* The driver's first launch of a kernel, and a later one after an equal pause. */
static int driver_launches(struct bench_probe_load *l, uint64_t pause_ns,
			   struct bench_probe_launched *of)
{
	int err = bench_probe_load_park(l) || bench_probe_grow_copy(l->p, l);

	clock_sleep_ns(err ? 0 : pause_ns);
	err = err || first_launch(l, &of[NEW]) || bench_probe_load_park(l);
	clock_sleep_ns(err ? 0 : pause_ns);
	return err || first_launch(l, &of[KNOWN]) || bench_probe_load_park(l) ||
	       bench_probe_grow_return(l->p, l);
}

static int flip(struct bench_probe_load *l, const struct buf *object)
{
	struct bench_probe_tool t = { .map = "counts" };
	struct bench_probe_launched of[FLIPS] = { { 0 } };
	uint64_t begin = clock_now_ns(), paused;
	uint64_t blocks = 0, launches;
	unsigned late = 0;
	int err = bench_probe_load_park(l);

	err = err || bench_probe_attach(l->p, object, "grow", 0, &t) ||
	      bench_probe_load_await(l, &t);
	launches = l->grown;
	paused = clock_now_ns() - begin;
	err = err || first_launch(l, &of[WITH]) || bench_probe_load_park(l) ||
	      bench_probe_sum(l->p, &t, &blocks);
	launches = l->grown - launches;
	if (!err && blocks != launches * BENCH_PROBE_GROW_BLOCKS) {
		err = bench_testbed_fail(&l->p->testbed,
					 "WRONG COUNT: %llu blocks of %llu launches with %u each",
					 (unsigned long long)blocks, (unsigned long long)launches,
					 BENCH_PROBE_GROW_BLOCKS);
	}
	err = err || bench_probe_detach(l->p, &t, &late) || first_launch(l, &of[WITHOUT]) ||
	      bench_probe_load_park(l);
	clock_sleep_ns(err ? 0 : paused);
	err = err || first_launch(l, &of[CONTROL]) || driver_launches(l, paused, of);
	bench_probe_load_unpark(l);
	return err || record(l, of) ? -1 : 0;
}

int bench_probe_flip(struct bench_probe_load *l, const struct buf *object)
{
	unsigned n = (l->p->attaches + 1) / 2;
	int err = 0;

	for (unsigned i = 0; i < n && !err; i++) {
		bench_testbed_progress(&l->p->testbed, "probe: flip %u of %u", i + 1, n);
		err = flip(l, object);
	}
	return err;
}

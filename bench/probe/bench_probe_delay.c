/* Delay of attachments to a running program: the time from the call until a launch has run the
 * tool, and how much longer launches of it and of another kernel take meanwhile. The number of the
 * first probed launch follows from what the tool has counted, since all launches behind it count,
 * too, which is checked. */
#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "bench/probe/bench_probe_load.h"

#define CONTROL_MIN 50u /* launches of a window without an attachment */

/* An attachment, and what it delayed. */
struct attachment {
	const char *kind;
	uint64_t call_ns, running_ns, first_ns, detach_ns; /* each from its own call */
	struct bench_probe_window attach, detach, control;
	unsigned late; /* 1: gbpfd did not await the end of the detachment */
};

/* Writes another number into the object, so that its code is not in the cache. */
static int put_stamp(struct bench_probe *p, struct buf *object, uint32_t number)
{
	static const uint32_t mark = 0x5eed0004u; /* the upper half, 8 bytes behind the lower */
	char *at = memmem(object->data, object->len, &mark, sizeof(mark));

	if (!at || at - object->data < 8) {
		return bench_testbed_fail(&p->testbed, "the object is not the bench's");
	}
	memcpy(at - 8, &number, sizeof(number));
	return 0;
}

/* Blocks that the tool had counted when that many launches of grow had ended. */
struct count {
	uint64_t blocks, launches;
};

static int take_count(struct bench_probe_load *l, const struct bench_probe_tool *t, struct count *c)
{
	int err = bench_probe_load_park(l);

	c->launches = l->grown;
	err = err || bench_probe_sum(l->p, t, &c->blocks);
	bench_probe_load_unpark(l);
	return err ? -1 : 0;
}

/* Finds when the first launch that the tool has counted had ended. Between the two counts the
 * kernel ran the tool. */
static int find_first(struct bench_probe_load *l, const struct count *c, uint64_t called_ns,
		      uint64_t *ret_ns)
{
	uint64_t blocks = c[1].blocks - c[0].blocks, launches = c[1].launches - c[0].launches;
	uint64_t first = c[0].launches - c[0].blocks / BENCH_PROBE_GROW_BLOCKS;
	const struct bench_probe_launched *launched = bench_probe_load_launched(l, first);
	uint64_t ended = launched ? launched->ended_ns : 0;

	if (!launches || blocks != launches * BENCH_PROBE_GROW_BLOCKS) {
		return bench_testbed_fail(&l->p->testbed,
					  "WRONG COUNT: %llu blocks of %llu launches with %u each",
					  (unsigned long long)blocks, (unsigned long long)launches,
					  BENCH_PROBE_GROW_BLOCKS);
	}
	if (c[0].blocks % BENCH_PROBE_GROW_BLOCKS || ended < called_ns) {
		return bench_testbed_fail(&l->p->testbed,
					  "WRONG COUNT: %llu blocks: a launch was counted in part, "
					  "or before the tool was attached",
					  (unsigned long long)c[0].blocks);
	}
	*ret_ns = ended - called_ns;
	return 0;
}

static int attach(struct bench_probe_load *l, const struct buf *object, struct attachment *a,
		  struct bench_probe_tool *t)
{
	uint64_t called_ns = clock_now_ns();
	struct count c[2];
	int err = bench_probe_load_window(l, &a->attach);

	err = err || bench_probe_attach(l->p, object, "grow", 0, t);
	a->call_ns = clock_now_ns() - called_ns;
	err = err || bench_probe_load_await(l, t);
	a->running_ns = clock_now_ns() - called_ns;
	return err || bench_probe_load_proceed(l, 2) || bench_probe_load_window(l, NULL) ||
			       take_count(l, t, &c[0]) || bench_probe_load_proceed(l, 2) ||
			       take_count(l, t, &c[1]) || find_first(l, c, called_ns, &a->first_ns)
		       ? -1
		       : 0;
}

static int detach(struct bench_probe_load *l, struct attachment *a,
		  const struct bench_probe_tool *t)
{
	uint64_t called_ns = clock_now_ns();
	int err = bench_probe_load_window(l, &a->detach) || bench_probe_detach(l->p, t, &a->late);

	a->detach_ns = clock_now_ns() - called_ns;
	return err || bench_probe_load_proceed(l, 1) || bench_probe_load_window(l, NULL) ? -1 : 0;
}

/* As many launches without an attachment. */
static int control(struct bench_probe_load *l, struct attachment *a)
{
	uint64_t n = MAX(a->attach.iterations, CONTROL_MIN);

	return bench_probe_load_window(l, &a->control) || bench_probe_load_proceed(l, n) ||
			       bench_probe_load_window(l, NULL)
		       ? -1
		       : 0;
}

static json_t *window_json(const struct bench_probe_window *w)
{
	return json_pack("{s:f, s:I, s:I}", "longest_ms", (double)w->longest_ns / 1e6, "launches",
			 (json_int_t)w->iterations * 2, "late", (json_int_t)w->late);
}

static int record(struct bench_probe *p, const struct attachment *a)
{
	return bench_testbed_record(
		&p->testbed, "attachment",
		json_pack("{s:s, s:f, s:f, s:f, s:f, s:i, s:o, s:o, s:o}", "kind", a->kind,
			  "call_ms", (double)a->call_ns / 1e6, "running_ms",
			  (double)a->running_ns / 1e6, "first_ms", (double)a->first_ns / 1e6,
			  "detach_ms", (double)a->detach_ns / 1e6, "late", (int)a->late, "attach",
			  window_json(&a->attach), "detach", window_json(&a->detach), "control",
			  window_json(&a->control)));
}

/* Every other attachment to PTX is of the code of the one before it. Stubs of machine code are
 * compiled each time. */
static int attach_in_turn(struct bench_probe *p, struct bench_probe_load *l, struct buf *object)
{
	int err = 0;

	for (unsigned i = 0; i < p->attaches && !err; i++) {
		struct attachment a = { .kind = l->code ? "code" : i % 2 ? "cached" : "compiled" };
		struct bench_probe_tool t = { .map = "counts" };

		bench_testbed_progress(&p->testbed, "probe: attachment %u of %u", i + 1,
				       p->attaches);
		err = put_stamp(p, object, i / 2) || attach(l, object, &a, &t) ||
		      detach(l, &a, &t) || control(l, &a) || record(p, &a);
	}
	return err;
}

static int delay_of(struct bench_probe *p, struct buf *object, bool code)
{
	static struct bench_probe_load l;
	int err;

	if (code) {
		bench_testbed_progress(&p->testbed, "probe: compiling machine code");
	}
	err = bench_probe_load_start(p, &l, code) ||
	      (code &&
	       bench_testbed_record(&p->testbed, "code",
				    json_pack("{s:I}", "bytes", (json_int_t)l.code_bytes))) ||
	      attach_in_turn(p, &l, object) || bench_probe_flip(&l, object) ||
	      bench_probe_load_verify(&l);
	bench_probe_load_finish(&l);
	return err;
}

int bench_probe_delay(struct bench_probe *p)
{
	struct buf object;
	int err = bench_probe_object(p, "stamped_counter", &object);

	err = err || delay_of(p, &object, false) || delay_of(p, &object, true);
	buf_finish(&object);
	return err ? -1 : 0;
}

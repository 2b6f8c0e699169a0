/* Reclaim between vGPUs, on a clock that the test moves: which process gets an order, of how much,
 * and how long gbpfd waits for it. */
#include "parts.h"

#include "base/atomic.h"
#include "daemon/vgpu/vgpu_int.h"
#include "mem/ledger.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define DEVICE MIB(1024)
#define SECOND (1000 * MS)
#define HOUR (3600 * SECOND)

static struct parts *p;

static int begin(void **state)
{
	p = parts_new();
	memset(p->d->devices.d[0].uuid, 7, 16);
	p->d->devices.d[0].used = true;
	p->d->devices.d[0].mem = DEVICE;
	return 0;
}

static int finish(void **state)
{
	p->d->ending = true;
	p->d->vgpus.timer = sd_event_source_disable_unref(p->d->vgpus.timer);
	daemon_vgpus_close(p->d);
	parts_free(p);
	return 0;
}

static struct daemon_vgpu *make(const char *name, int32_t prio, uint64_t reserve, uint64_t swap)
{
	struct proto_vgpu is = { .config = { .mem = { DEVICE },
					     .reserve = reserve,
					     .swap = swap,
					     .wait_ns = HOUR,
					     .prio = prio } };
	struct daemon_vgpu *v;

	snprintf(is.name, sizeof(is.name), "%s", name);
	v = daemon_vgpu_add(p->d, OWN_USER, &is);
	assert_non_null(v);
	assert_int_equal(daemon_page_create(&v->page, "account", PROTO_ACCOUNT_BYTES), 0);
	daemon_vgpu_page(v)->magic = PROTO_ACCOUNT_MAGIC;
	daemon_vgpu_page(v)->abi = PROTO_ABI;
	daemon_vgpu_page(v)->vgpu_owner = 1 + OWN_USER;
	daemon_vgpu_page(v)->lines = 4;
	return v;
}

static struct proto_account_line *line_of(const struct part *a)
{
	return &daemon_vgpu_page(a->s.vgpu.of)->line[0][a->s.vgpu.line];
}

static void set_used(const struct part *a, uint64_t bytes)
{
	store_seqcst(&line_of(a)->charged, load_seqcst(&line_of(a)->released) + bytes);
}

/* Adds a process that holds that much. */
static struct part *join(struct daemon_vgpu *v, uint64_t bytes)
{
	struct part *a = parts_add(p, OWN_USER, GBPF_CLASS_BATCH);
	uint8_t uuid[PROTO_MAX_GPUS][16];

	memset(uuid, 7, sizeof(uuid));
	snprintf(a->s.name, sizeof(a->s.name), "%s-%u", v->is.name, v->n_lines);
	a->s.gpus = 1;
	a->s.vgpu.of = v;
	a->s.vgpu.line = v->n_lines++;
	set_used(a, bytes);
	assert_int_equal(daemon_vgpu_add_devices(&a->s, (const uint8_t(*)[16])uuid), 0);
	return a;
}

static void leave(struct part *a)
{
	set_used(a, 0);
	a->s.vgpu.of->n_lines--;
	daemon_vgpu_leave(&a->s);
	a->s.dying = true;
}

/* ---- questions ---- */

static uint32_t last_seq;

static void ask_with(struct part *a, uint64_t bytes, uint64_t wait_ns, uint32_t flags)
{
	struct daemon_received r = { .m.mem_ask = { .bytes = bytes,
						    .seq = ++last_seq,
						    .wait_ns = wait_ns,
						    .flags = flags } };

	assert_true(daemon_vgpu_take_ask(&a->s, &r));
}

static void ask(struct part *a, uint64_t bytes)
{
	ask_with(a, bytes, 0, PROTO_MEM_RECLAIM);
}

static void ask_full(struct part *a, uint64_t bytes)
{
	ask_with(a, bytes, 0, PROTO_MEM_RECLAIM | PROTO_MEM_FULL);
}

/* Returns the answer to the last question, if it is the process's; 0: there is none yet. */
static uint32_t answer_of(const struct part *a)
{
	return load_acquire(&line_of(a)->answer_seq) == last_seq ? load_relaxed(&line_of(a)->answer)
								 : 0;
}

static void look_after(uint64_t ns)
{
	parts_now += ns;
	(void)daemon_vgpu_reclaim_look(p->d);
}

/* ---- orders ---- */

/* Expects an order of that many bytes, or none; returns its number. */
static uint64_t expect_order(struct part *a, uint64_t bytes)
{
	union proto_message m = { 0 };
	unsigned fds;

	assert_int_equal(parts_message(a, &m, &fds), bytes ? PROTO_MEM_RELEASE : 0);
	if (bytes) {
		assert_int_equal(m.mem_release.row, 0);
		assert_int_equal(m.mem_release.bytes, bytes);
		assert_int_equal(m.mem_release.reserve, a->s.vgpu.of->is.config.reserve);
		assert_true(m.mem_release.hold_ns > 0);
	}
	return m.mem_release.number;
}

static void answer(struct part *a, uint64_t number, uint64_t bytes)
{
	struct daemon_received r = { .m.mem_release = { .number = number, .bytes = bytes } };

	assert_true(daemon_vgpu_released(&a->s, &r));
}

/* The process carries out its order. */
static void release(struct part *a, uint64_t bytes)
{
	uint64_t number = expect_order(a, bytes);

	set_used(a, mem_line_used(line_of(a)) - bytes);
	answer(a, number, bytes);
}

/* ---- the limit, where memory is reserved ---- */

static void what_is_beyond_a_reservation_is_taken_for_a_question(void **state)
{
	struct part *a = join(make("a", 0, MIB(256), DEVICE), MIB(1024));
	struct part *b = join(make("b", 0, MIB(128), 0), 0);

	ask(b, MIB(512));
	assert_int_equal(answer_of(b), 0);
	release(a, MIB(512));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
	assert_int_equal(daemon_vgpu_page(a->s.vgpu.of)->allowed[0], MIB(512));
	assert_int_equal(daemon_vgpu_page(b->s.vgpu.of)->allowed[0], MIB(512));
	expect_order(a, 0);
}

static void no_reservation_is_broken(void **state)
{
	struct part *a = join(make("a", 0, MIB(768), DEVICE), MIB(1024));
	struct part *b = join(make("b", 0, MIB(128), 0), 0);

	ask(b, MIB(512));
	release(a, MIB(256));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
	expect_order(a, 0);
	ask(b, MIB(256));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
}

static void the_least_important_shrinks_first_then_the_largest(void **state)
{
	struct part *important = join(make("important", 5, 0, DEVICE), MIB(600));
	struct part *small = join(make("small", 1, MIB(16), DEVICE), MIB(116));
	struct part *large = join(make("large", 1, MIB(100), DEVICE), MIB(300));
	struct part *b = join(make("b", 0, 0, 0), 0);

	ask(b, MIB(512));
	release(large, MIB(200));
	expect_order(important, 0);
	release(small, MIB(100));
	expect_order(large, 0);
	release(important, MIB(208)); /* 8 MiB were free, and 16 are a unit */
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
}

static void the_largest_process_of_a_vgpu_gets_the_order_and_then_the_next_one(void **state)
{
	struct daemon_vgpu *v = make("a", 0, 0, DEVICE);
	struct part *first = join(v, MIB(300)), *second = join(v, MIB(700));
	struct part *b = join(make("b", 0, MIB(16), 0), MIB(16));

	ask(b, MIB(512));
	expect_order(first, 0);
	answer(second, expect_order(second, MIB(512)), 0); /* its work goes on */
	release(first, MIB(300));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
}

static void a_vgpu_without_swap_is_left_alone(void **state)
{
	struct part *a = join(make("a", 0, 0, 0), MIB(1024));
	struct part *b = join(make("b", 0, MIB(16), DEVICE), MIB(16));

	ask(b, MIB(16));
	expect_order(a, 0);
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
}

static void a_question_that_may_not_reclaim_is_answered_as_ever(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(1024));
	struct part *b = join(make("b", 0, MIB(16), 0), MIB(16));

	ask_with(b, MIB(16), 0, 0);
	expect_order(a, 0);
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
	ask(b, DEVICE + 1);
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
	expect_order(a, 0);
}

/* gbpfd believes the accounts. */
static void a_false_report_makes_no_room(void **state)
{
	struct part *a = join(make("a", 0, MIB(256), DEVICE), MIB(1024));
	struct part *b = join(make("b", 0, MIB(128), 0), 0);

	ask(b, MIB(256));
	answer(a, expect_order(a, MIB(256)), MIB(256));
	expect_order(a, 0); /* it is not asked again */
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
}

static void a_question_that_waits_stays_in_the_queue(void **state)
{
	struct part *a = join(make("a", 0, MIB(768), DEVICE), MIB(1024));
	struct part *b = join(make("b", 0, MIB(128), 0), 0);

	ask_with(b, MIB(512), HOUR, PROTO_MEM_RECLAIM);
	release(a, MIB(256));
	assert_int_equal(answer_of(b), 0);
	assert_true(b->s.vgpu.ask.since && !b->s.vgpu.ask.reclaims);
}

/* ---- timeouts, and ends ---- */

static void a_process_that_does_not_answer_is_named_and_the_next_one_gets_an_order(void **state)
{
	struct part *stopped = join(make("stopped", 0, 0, DEVICE), MIB(600));
	struct part *other = join(make("other", 1, 0, DEVICE), MIB(408));
	struct part *b = join(make("b", 0, MIB(16), 0), MIB(16));
	uint64_t late;

	ask(b, MIB(64));
	late = expect_order(stopped, MIB(64));
	look_after(999 * MS);
	assert_int_equal(parts_events(p, "has not answered"), 0);
	look_after(MS);
	assert_int_equal(parts_events(p, "stopped-0 (pid 10000) has not answered the order to "
					 "release 64 MiB"),
			 1);
	answer(stopped, late, MIB(64)); /* changes nothing */
	assert_int_equal(answer_of(b), 0);
	release(other, MIB(64));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
	set_used(b, MIB(80));
	ask(b, MIB(64)); /* it is not asked again at once */
	expect_order(stopped, 0);
	release(other, MIB(64));
	set_used(b, MIB(144));
	look_after(10 * SECOND);
	ask(b, MIB(64));
	release(stopped, MIB(64));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
}

static void the_memory_of_a_process_that_ends_is_waited_for(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(600));
	struct part *other = join(make("other", 1, 0, DEVICE), MIB(408));
	struct part *b = join(make("b", 0, MIB(16), 0), MIB(16));

	ask(b, MIB(64));
	(void)expect_order(a, MIB(64));
	leave(a);
	look_after(MS);
	assert_int_equal(answer_of(b), 0);
	look_after(200 * MS);
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
	expect_order(other, 0);
	assert_int_equal(parts_events(p, "has not answered"), 0);
}

static void a_process_that_has_left_is_not_answered(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(1008));
	struct part *b = join(make("b", 0, MIB(16), 0), MIB(16));
	struct part *c = join(make("c", 0, 0, 0), 0);
	uint64_t number;

	ask(b, MIB(64));
	number = expect_order(a, MIB(64));
	leave(b);
	ask(c, MIB(32)); /* it comes after the order */
	expect_order(a, 0);
	set_used(a, MIB(944));
	answer(a, number, MIB(64));
	assert_int_equal(answer_of(c), PROTO_ACCOUNT_RETRY);
}

/* The whole of a round has an end, although each process reports a little. */
static void a_round_ends(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(1008));
	struct part *b = join(make("b", 0, MIB(16), 0), MIB(16));

	uint64_t number;

	ask(b, MIB(512));
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(answer_of(b), 0);
		parts_now += SECOND - 1;
		number = expect_order(a, MIB(512));
		set_used(a, MIB(1006 - 2 * i));
		answer(a, number, MIB(2));
	}
	look_after(MS);
	assert_int_equal(answer_of(b), 0); /* an order is under way */
	answer(a, expect_order(a, MIB(512)), MIB(2));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
}

/* ---- the device itself is full ---- */

static void memory_of_a_full_device_is_taken_without_reservations(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(800));
	struct part *b = join(make("b", 0, 0, 0), MIB(200));

	ask_full(b, MIB(100));
	release(a, MIB(112));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
	assert_int_equal(daemon_vgpu_page(a->s.vgpu.of)->allowed[0], 0);
	ask_full(b, MIB(100));
	answer(a, expect_order(a, MIB(112)), 0);
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
}

static void processes_of_a_full_device_are_served_in_turn(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(800));
	struct part *b = join(make("b", 0, 0, 0), 0), *c = join(make("c", 0, 0, 0), 0);

	ask_full(b, MIB(16));
	ask_full(c, MIB(32));
	release(a, MIB(16));
	release(a, MIB(32));
	assert_int_equal(answer_of(c), PROTO_ACCOUNT_RETRY);
}

/* ---- the time that a vGPU takes of others ---- */

/* Answers the order of a question after that time. */
static void spend(struct part *a, struct part *b, uint64_t ns)
{
	uint64_t number;

	ask_full(b, MIB(16));
	number = expect_order(a, MIB(16));
	parts_now += ns;
	answer(a, number, MIB(16));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
}

static void a_vgpu_takes_a_tenth_of_the_time_of_others(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(800));
	struct part *b = join(make("b", 0, 0, 0), 0), *c = join(make("c", 0, 0, 0), 0);

	spend(a, b, 500 * MS);
	spend(a, b, 700 * MS); /* 50 and 70 ms have come meanwhile: it lacks 80 */
	ask_full(b, MIB(16));
	expect_order(a, 0);
	assert_int_equal(answer_of(b), 0); /* it waits for credit, of which 10 ms come in 100 */
	look_after(700 * MS);
	expect_order(a, 0);
	look_after(101 * MS);
	answer(a, expect_order(a, MIB(16)), MIB(16));
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_RETRY);
	spend(a, c, MS); /* another vGPU has its own */
	spend(a, b, 900 * MS);
	ask_full(b, MIB(16)); /* too long to wait for */
	expect_order(a, 0);
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
}

/* A question that replaces the one before does not lose the time of its order. */
static void questions_without_end_take_no_more_time(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(800));
	struct part *b = join(make("b", 0, 0, 0), 0);
	uint64_t number;

	ask_full(b, MIB(16));
	number = expect_order(a, MIB(16));
	ask_full(b, MIB(32));
	expect_order(a, 0);
	parts_now += 999 * MS;
	answer(a, number, MIB(16));
	number = expect_order(a, MIB(32));
	parts_now += 900 * MS;
	answer(a, number, MIB(32));
	ask_full(b, MIB(16));
	expect_order(a, 0);
	assert_int_equal(answer_of(b), PROTO_ACCOUNT_REFUSED);
}

/* ---- orders that may come ---- */

/* Expects an order of no bytes, or none. */
static void expect_foreseen(struct part *a, bool foreseen)
{
	union proto_message m = { 0 };
	unsigned fds;

	daemon_vgpu_reclaim_foresee(p->d);
	assert_int_equal(parts_message(a, &m, &fds), foreseen ? PROTO_MEM_RELEASE : 0);
	assert_int_equal(m.mem_release.bytes + m.mem_release.number + m.mem_release.hold_ns, 0);
}

/* Joins a vGPU with that limit. */
static struct part *join_with_limit(const char *name, uint64_t limit, uint64_t bytes)
{
	struct daemon_vgpu *v = make(name, 0, 0, 0);

	v->is.config.mem[0] = limit;
	return join(v, bytes);
}

static void an_order_is_foreseen_while_others_may_take_more_than_is_free(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(800)), *b;

	expect_foreseen(a, false); /* it is alone */
	b = join_with_limit("b", MIB(288), MIB(64));
	set_used(a, MIB(736));
	expect_foreseen(a, false); /* what it may take is free */
	set_used(a, MIB(738));
	expect_foreseen(a, true);
	answer(a, 0, 0);
	expect_foreseen(a, true);
	answer(a, 0, 0);
	leave(b);
	expect_foreseen(a, false);
}

static void what_is_foreseen_is_sent_once_until_it_is_answered(void **state)
{
	struct part *a = join(make("a", 0, 0, DEVICE), MIB(800));
	struct part *b = join(make("b", 0, 0, 0), 0);

	expect_foreseen(a, true);
	expect_foreseen(a, false);
	ask_full(b, MIB(16));
	release(a, MIB(16));
	expect_foreseen(a, false);
	answer(a, 0, 0);
	expect_foreseen(a, true);
}

static void only_the_process_that_gets_the_first_order_learns_of_it(void **state)
{
	struct part *reserved = join(make("reserved", 0, MIB(300), DEVICE), MIB(300));
	struct part *without = join(make("without", 0, 0, 0), MIB(300));
	struct part *important = join(make("important", 1, 0, DEVICE), MIB(200));
	struct daemon_vgpu *v = make("v", 0, 0, DEVICE);
	struct part *small = join(v, MIB(10)), *large = join(v, MIB(20));

	expect_foreseen(large, true);
	expect_foreseen(reserved, false);
	expect_foreseen(without, false);
	expect_foreseen(important, false);
	expect_foreseen(small, false);
	answer(large, 0, 0);
	set_used(small, 0);
	set_used(large, 0);
	expect_foreseen(important, true);
}

int main(void)
{
#define GIVEN(t) cmocka_unit_test_setup_teardown(t, begin, finish)
	const struct CMUnitTest tests[] = {
		GIVEN(what_is_beyond_a_reservation_is_taken_for_a_question),
		GIVEN(no_reservation_is_broken),
		GIVEN(the_least_important_shrinks_first_then_the_largest),
		GIVEN(the_largest_process_of_a_vgpu_gets_the_order_and_then_the_next_one),
		GIVEN(a_vgpu_without_swap_is_left_alone),
		GIVEN(a_question_that_may_not_reclaim_is_answered_as_ever),
		GIVEN(a_false_report_makes_no_room),
		GIVEN(a_question_that_waits_stays_in_the_queue),
		GIVEN(a_process_that_does_not_answer_is_named_and_the_next_one_gets_an_order),
		GIVEN(the_memory_of_a_process_that_ends_is_waited_for),
		GIVEN(a_process_that_has_left_is_not_answered),
		GIVEN(a_round_ends),
		GIVEN(memory_of_a_full_device_is_taken_without_reservations),
		GIVEN(processes_of_a_full_device_are_served_in_turn),
		GIVEN(a_vgpu_takes_a_tenth_of_the_time_of_others),
		GIVEN(questions_without_end_take_no_more_time),
		GIVEN(an_order_is_foreseen_while_others_may_take_more_than_is_free),
		GIVEN(what_is_foreseen_is_sent_once_until_it_is_answered),
		GIVEN(only_the_process_that_gets_the_first_order_learns_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

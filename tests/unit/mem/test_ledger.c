/* The ledger in one process: limits, rows, garbage in the page, and charges that a dead process has
 * left behind. Time passes with each look at the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "mem/account_figures.h"

#define ROW 3u
#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)
#define STEP_NS 1000000u

static struct proto_account page;
static uint64_t now_ns, looks,
	clears_at; /* clears_at: the look at which the dead line is cleared */
static uint32_t dead_line;

static uint64_t fake_clock(void)
{
	assert_true(looks < 10000);
	if (++looks == clears_at) {
		page.line[ROW][dead_line].wanted = 0;
	}
	now_ns += STEP_NS;
	return now_ns;
}

static int set_up(void **state)
{
	memset(&page, 0, sizeof(page));
	page.magic = 0x33636167;
	page.abi = PROTO_ABI;
	page.lines = 8;
	page.limit[ROW] = 10 * GIB;
	memset(page.uuid[ROW], 0xa5, 16);
	looks = clears_at = 0;
	clock_set_source(fake_clock);
	return 0;
}

static struct mem_ledger ledger_of(uint32_t line)
{
	struct mem_ledger l;

	assert_int_equal(mem_ledger_init(&l, &page, line), 0);
	return l;
}

static void pages_that_are_no_account_are_refused(void **state)
{
	struct mem_ledger l;

	assert_int_equal(mem_ledger_init(&l, &page, 0), 0);
	assert_int_equal(mem_ledger_init(&l, &page, 255), 0);
	assert_int_equal(mem_ledger_init(&l, &page, 256), -EPROTO);
	assert_int_equal(mem_ledger_init(&l, &page, UINT32_MAX), -EPROTO);
	page.magic++;
	assert_int_equal(mem_ledger_init(&l, &page, 0), -EPROTO);
	page.magic--;
	page.abi++;
	assert_int_equal(mem_ledger_init(&l, &page, 0), -EPROTO);
}

static void rows_are_found_by_uuid(void **state)
{
	struct mem_ledger l = ledger_of(0);
	uint8_t uuid[16];

	for (unsigned row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
		memset(page.uuid[row], (int)row + 1, 16);
	}
	for (unsigned row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
		memset(uuid, (int)row + 1, 16);
		assert_int_equal(mem_ledger_row(&l, uuid), row);
		uuid[15] ^= 0x80;
		assert_int_equal(mem_ledger_row(&l, uuid), -ENOENT);
	}
}

static void the_limit_is_exact(void **state)
{
	struct mem_ledger a = ledger_of(0), b = ledger_of(7);

	assert_int_equal(mem_ledger_limit(&a, ROW), 10 * GIB);
	assert_int_equal(mem_ledger_charge(&a, ROW, 10 * GIB + 1), -ENOMEM);
	assert_int_equal(mem_ledger_used(&a, ROW), 0);
	assert_int_equal(mem_ledger_charge(&a, ROW, 6 * GIB), 0);
	assert_int_equal(mem_ledger_charge(&b, ROW, 4 * GIB + 1), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&b, ROW, 4 * GIB), 0);
	assert_int_equal(mem_ledger_charge(&a, ROW, 1), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&b, ROW, UINT64_MAX), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&a, ROW, 0), 0); /* nothing always fits */
	assert_int_equal(mem_ledger_used(&a, ROW), 10 * GIB);
	assert_int_equal(mem_ledger_own(&a, ROW), 6 * GIB);
	assert_int_equal(mem_ledger_own(&b, ROW), 4 * GIB);
	assert_int_equal(mem_account_used(&page, ROW), 10 * GIB);
	assert_int_equal(page.line[ROW][0].wanted | page.line[ROW][7].wanted, 0);
	assert_int_equal(looks, 0); /* no refusal waited */
}

static void what_is_released_can_be_charged_again(void **state)
{
	struct mem_ledger a = ledger_of(0), b = ledger_of(1);

	assert_int_equal(mem_ledger_charge(&a, ROW, 10 * GIB), 0);
	mem_ledger_release(&a, ROW, 3 * GIB);
	assert_int_equal(mem_ledger_own(&a, ROW), 7 * GIB);
	assert_int_equal(mem_ledger_charge(&b, ROW, 3 * GIB + 1), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&b, ROW, 3 * GIB), 0);
	mem_ledger_release(&b, ROW, 0);
	mem_ledger_release(&b, ROW, 3 * GIB);
	mem_ledger_release(&a, ROW, 7 * GIB);
	assert_int_equal(mem_ledger_used(&a, ROW), 0);
	assert_int_equal(mem_ledger_charge(&a, ROW, 10 * GIB), 0);
}

/* Also memory that came and went in between. */
static void own_since_counts_all_of_a_time(void **state)
{
	struct mem_ledger a = ledger_of(2);
	uint64_t released;

	assert_int_equal(mem_ledger_charge(&a, ROW, 3 * GIB), 0);
	mem_ledger_release(&a, ROW, GIB);
	released = mem_ledger_released(&a, ROW);
	assert_int_equal(mem_ledger_own_since(&a, ROW, released), 2 * GIB);
	assert_int_equal(mem_ledger_charge(&a, ROW, 4 * GIB), 0);
	mem_ledger_release(&a, ROW, 5 * GIB);
	assert_int_equal(mem_ledger_own_since(&a, ROW, released), 6 * GIB);
	assert_int_equal(mem_ledger_own(&a, ROW), GIB);
}

static void rows_are_counted_apart(void **state)
{
	struct mem_ledger a = ledger_of(2);

	for (uint32_t row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
		page.limit[row] = row + 1;
	}
	for (uint32_t row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
		assert_int_equal(mem_ledger_charge(&a, row, row + 2), -ENOMEM);
		assert_int_equal(mem_ledger_charge(&a, row, row + 1), 0);
		assert_int_equal(mem_ledger_used(&a, row), row + 1);
	}
	mem_ledger_release(&a, 0, 1);
	assert_int_equal(mem_ledger_charge(&a, 1, 1), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&a, 0, 1), 0);
}

static void forced_bytes_count_like_charged_ones(void **state)
{
	struct mem_ledger a = ledger_of(0), b = ledger_of(7);

	assert_int_equal(mem_ledger_charge(&b, ROW, 9 * GIB), 0);
	mem_ledger_force(&a, ROW, 2 * GIB); /* one more than the limit */
	assert_int_equal(mem_ledger_used(&b, ROW), 11 * GIB);
	assert_int_equal(mem_ledger_own(&a, ROW), 2 * GIB);
	assert_int_equal(mem_ledger_charge(&b, ROW, 1), -ENOMEM);
	mem_ledger_release(&b, ROW, GIB);
	assert_int_equal(mem_ledger_charge(&b, ROW, 1), -ENOMEM);
	mem_ledger_release(&a, ROW, 1);
	assert_int_equal(mem_ledger_charge(&b, ROW, 1), 0);
	assert_int_equal(mem_ledger_charge(&b, ROW, 1), -ENOMEM);
}

static void the_most_that_was_held_is_kept(void **state)
{
	struct mem_ledger l = ledger_of(2);

	assert_int_equal(mem_account_peak(&page, ROW, 2), 0);
	assert_int_equal(mem_ledger_charge(&l, ROW, 3 * GIB), 0);
	mem_account_note_peak(&page, ROW, 2, NULL);
	mem_ledger_release(&l, ROW, 2 * GIB);
	assert_int_equal(mem_ledger_charge(&l, ROW, GIB), 0);
	mem_account_note_peak(&page, ROW, 2, NULL);
	assert_int_equal(mem_account_peak(&page, ROW, 2), 3 * GIB);
	assert_int_equal(mem_ledger_charge(&l, ROW, 9 * GIB), -ENOMEM); /* was never held */
	assert_int_equal(mem_account_peak(&page, ROW, 2), 3 * GIB);
	mem_ledger_force(&l, ROW, 2 * GIB);
	mem_account_note_peak(&page, ROW, 2, NULL);
	assert_int_equal(mem_account_peak(&page, ROW, 2), 4 * GIB);
	assert_int_equal(mem_account_peak(&page, ROW, 1), 0);
	assert_int_equal(mem_account_peak(&page, ROW + 1, 2), 0);
	page.line[ROW][2].charged += GIB; /* killed before the note */
	assert_int_equal(mem_account_peak(&page, ROW, 2), 5 * GIB);
}

/* The driver had no memory, so that the charge was taken back. */
static void a_charge_that_the_driver_refuses_was_not_held(void **state)
{
	struct mem_ledger l = ledger_of(2);

	assert_int_equal(mem_ledger_charge(&l, ROW, GIB), 0);
	mem_account_note_peak(&page, ROW, 2, NULL);
	assert_int_equal(mem_ledger_charge(&l, ROW, 5 * GIB), 0);
	mem_ledger_release(&l, ROW, 5 * GIB);
	mem_account_note_peak(&page, ROW, 2, NULL);
	assert_int_equal(mem_account_peak(&page, ROW, 2), GIB);
}

static void *hold_in_turns(void *arg)
{
	struct mem_ledger *l = arg;

	for (unsigned i = 0; i < 200000; i++) {
		if (mem_ledger_charge(l, ROW, 3 * GIB) == 0) {
			mem_account_note_peak(&page, ROW, 2, NULL);
			mem_ledger_release(l, ROW, 3 * GIB);
		}
	}
	return NULL;
}

/* The limit has room for three at a time, and more is never charged. */
static void threads_that_release_and_charge_at_once_do_not_overstate_the_peak(void **state)
{
	struct mem_ledger l = ledger_of(2);
	pthread_t t[4];

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		assert_int_equal(pthread_create(&t[i], NULL, hold_in_turns, &l), 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
	}
	assert_in_range(mem_account_peak(&page, ROW, 2), 3 * GIB, 9 * GIB);
}

static uint32_t n_refused; /* [atomic] threads that are done */

static void *be_refused(void *arg)
{
	struct mem_ledger *l = arg;

	for (unsigned i = 0; i < 100000; i++) {
		if (mem_ledger_charge(l, ROW, 2 * GIB) == 0) {
			mem_ledger_release(l, ROW, 2 * GIB);
			mem_ledger_answered(l, ROW, 2 * GIB);
		}
	}
	(void)add_acqrel(&n_refused, 1);
	return NULL;
}

static void what_the_driver_refuses_other_threads_is_no_peak(void **state)
{
	struct mem_ledger l = ledger_of(2);
	pthread_t t[2];

	assert_int_equal(mem_ledger_charge(&l, ROW, GIB), 0);
	mem_ledger_answered(&l, ROW, GIB);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		assert_int_equal(pthread_create(&t[i], NULL, be_refused, &l), 0);
	}
	while (load_acquire(&n_refused) < ARRAY_SIZE(t)) {
		mem_account_note_peak(&page, ROW, 2, &l.asked[ROW]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
	}
	assert_int_equal(mem_account_peak(&page, ROW, 2), GIB);
	assert_int_equal(l.asked[ROW], 0);
	assert_int_equal(mem_ledger_charge(&l, ROW, UINT64_MAX - GIB), -ENOMEM);
	assert_int_equal(l.asked[ROW], 0);
}

static void a_peak_of_garbage_is_none(void **state)
{
	page.line[ROW][0].charged = GIB;
	page.line[ROW][0].released = 4 * GIB;
	mem_account_note_peak(&page, ROW, 0, NULL);
	assert_int_equal(page.orphans[ROW][0].peak, 0);
}

static void inherited_memory_counts_for_the_peak(void **state)
{
	struct mem_ledger l = ledger_of(0);

	page.orphans[ROW][0].inherited = GIB / PROTO_SHARE_UNIT;
	assert_int_equal(mem_ledger_charge(&l, ROW, 2 * GIB), 0);
	mem_account_note_peak(&page, ROW, 0, NULL);
	page.orphans[ROW][0].disowned = GIB;
	assert_int_equal(mem_account_peak(&page, ROW, 0), 3 * GIB);
}

static void words_that_are_shown_decide_nothing(void **state)
{
	struct mem_ledger a = ledger_of(0), b = ledger_of(7);

	mem_ledger_set_overhead(&a, ROW, 20 * GIB);
	mem_ledger_set_gbpf(&a, ROW, 30 * GIB);
	mem_ledger_add_shared(&a, ROW, 50 * GIB);
	mem_ledger_sub_shared(&a, ROW, 10 * GIB);
	assert_int_equal(mem_ledger_overhead(&a, ROW), 20 * GIB);
	assert_int_equal(mem_ledger_overhead(&b, ROW), 0);
	assert_int_equal(page.line[ROW][0].gbpf, 30 * GIB);
	assert_int_equal(page.line[ROW][0].shared, 40 * GIB);
	assert_int_equal(mem_ledger_used(&b, ROW), 0);
	assert_int_equal(mem_ledger_charge(&b, ROW, 10 * GIB), 0);
}

static void a_row_without_a_limit_only_counts(void **state)
{
	struct mem_ledger a = ledger_of(0), b = ledger_of(1);

	assert_int_equal(mem_ledger_limit(&a, 0), UINT64_MAX);
	assert_int_equal(mem_ledger_charge(&a, 0, UINT64_MAX - 1), 0);
	assert_int_equal(mem_ledger_charge(&b, 0, GIB), 0);
	assert_int_equal(mem_ledger_own(&b, 0), GIB);
	assert_int_equal(mem_ledger_used(&b, 0), UINT64_MAX);
}

/* Lines from page.lines on belong to no process. */
/* Swap may have been taken back since the row was found. */
static void swap_without_a_limit_takes_nothing(void **state)
{
	struct mem_ledger a = ledger_of(0);

	page.limit[PROTO_ACCOUNT_SWAP] = 5;
	assert_int_equal(mem_ledger_charge(&a, PROTO_ACCOUNT_SWAP, 6), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&a, PROTO_ACCOUNT_SWAP, 5), 0);
	page.limit[PROTO_ACCOUNT_SWAP] = 0;
	assert_int_equal(mem_ledger_limit(&a, PROTO_ACCOUNT_SWAP), 0);
	assert_int_equal(mem_account_limit(&page, PROTO_ACCOUNT_SWAP), 0);
	assert_int_equal(mem_account_left(&page, PROTO_ACCOUNT_SWAP), 0);
	assert_int_equal(mem_ledger_charge(&a, PROTO_ACCOUNT_SWAP, 1), -ENOMEM);
	assert_int_equal(mem_ledger_charge_whole(&a, PROTO_ACCOUNT_SWAP, 1), -ENOMEM);
	mem_ledger_release(&a, PROTO_ACCOUNT_SWAP, 5);
	assert_int_equal(mem_ledger_used(&a, PROTO_ACCOUNT_SWAP), 0);
	assert_int_equal(mem_ledger_charge(&a, PROTO_ACCOUNT_SWAP, 1), -ENOMEM);
}

static void only_lines_in_use_count(void **state)
{
	struct mem_ledger a = ledger_of(0);

	page.line[ROW][8].charged = 10 * GIB;
	assert_int_equal(mem_ledger_charge(&a, ROW, GIB), 0);
	page.lines = 9;
	assert_int_equal(mem_ledger_used(&a, ROW), 11 * GIB);
	assert_int_equal(mem_ledger_charge(&a, ROW, 1), -ENOMEM);
}

/* A row larger than the page would be read if the number of lines were trusted: the last row is
 * used, with bytes behind the page that would count. */
static void the_number_of_lines_is_not_trusted(void **state)
{
	static struct {
		struct proto_account page;
		struct proto_account_line behind[64];
	} big;
	const uint32_t last = PROTO_ACCOUNT_ROWS - 1;
	struct mem_ledger l;

	big.page = page;
	memset(big.behind, 0xff, sizeof(big.behind));
	big.page.limit[last] = 100;
	big.page.line[last][255].charged = 40;
	assert_int_equal(mem_ledger_init(&l, &big.page, 0), 0);
	for (uint32_t lines = UINT32_MAX; lines >= 256; lines /= 2) {
		big.page.lines = lines;
		assert_int_equal(mem_account_used(&big.page, last), 40);
		assert_int_equal(mem_ledger_charge(&l, last, 61), -ENOMEM);
		assert_int_equal(mem_ledger_charge(&l, last, 60), 0);
		mem_ledger_release(&l, last, 60);
	}
}

static void sums_of_garbage_saturate(void **state)
{
	struct mem_ledger a = ledger_of(0);

	page.line[ROW][4].charged = UINT64_MAX;
	page.line[ROW][6].charged = 5;
	assert_int_equal(mem_ledger_used(&a, ROW), UINT64_MAX);
	assert_int_equal(mem_ledger_charge(&a, ROW, 1), -ENOMEM);
	page.line[ROW][4].charged = UINT64_MAX - 4; /* with the other one, 0 if it wrapped */
	assert_int_equal(mem_ledger_used(&a, ROW), UINT64_MAX);
	assert_int_equal(mem_ledger_charge(&a, ROW, 1), -ENOMEM);
	page.line[ROW][4].charged = 0;
	page.line[ROW][5].wanted = UINT64_MAX;
	page.line[ROW][6].wanted = UINT64_MAX - 4; /* with `used` of the line, 0 if it wrapped */
	assert_int_equal(mem_ledger_charge(&a, ROW, 1), -ENOMEM);
	page.line[ROW][5].wanted = page.line[ROW][6].wanted = 0;
	assert_int_equal(mem_ledger_charge(&a, ROW, UINT64_MAX - 4), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&a, ROW, UINT64_MAX), -ENOMEM);
	assert_int_equal(mem_ledger_charge(&a, ROW, 10 * GIB - 5), 0);
	assert_int_equal(mem_ledger_own(&a, ROW), 10 * GIB - 5);
}

/* A process died with 8 GiB in `wanted`, in a lower line or in a higher one. */
static void a_dead_charge_delays_but_does_not_block(void **state)
{
	for (dead_line = 0; dead_line < 4; dead_line += 3) {
		struct mem_ledger l = ledger_of(1);
		uint64_t begun_ns, waited_ns;

		page.line[ROW][dead_line].wanted = 8 * GIB;
		looks = 0;
		assert_int_equal(mem_ledger_charge(&l, ROW, 2 * GIB), 0); /* fits next to it */
		assert_int_equal(looks, 0);
		begun_ns = now_ns;
		assert_int_equal(mem_ledger_charge(&l, ROW, 1), -ENOMEM);
		waited_ns = now_ns - begun_ns;
		assert_in_range(waited_ns, 1000000000, 1000000000 + 4 * STEP_NS);
		assert_int_equal(page.line[ROW][1].wanted, 0);
		assert_int_equal(mem_ledger_own(&l, ROW), 2 * GIB);
		looks = 0;
		assert_int_equal(mem_ledger_charge(&l, ROW, 9 * GIB), -ENOMEM); /* in any case */
		assert_int_equal(looks, 0);
		mem_ledger_release(&l, ROW, 2 * GIB);
		page.line[ROW][dead_line].wanted = 0;
	}
}

/* gbpfd clears the line while a charge waits for it. */
static void a_charge_goes_on_once_a_dead_one_is_cleared(void **state)
{
	for (dead_line = 0; dead_line < 4; dead_line += 3) {
		struct mem_ledger l = ledger_of(1);

		page.line[ROW][dead_line].wanted = 8 * GIB;
		looks = 0;
		clears_at = 500;
		assert_int_equal(mem_ledger_charge(&l, ROW, 3 * GIB), 0);
		assert_in_range(looks, 500, 504);
		assert_int_equal(mem_ledger_own(&l, ROW), 3 * GIB);
		assert_int_equal(page.line[ROW][1].wanted, 0);
		mem_ledger_release(&l, ROW, 3 * GIB);
	}
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

/* A process died in its turn, or waiting for it, and wants nothing. */
static void a_dead_turn_delays_but_does_not_block(void **state)
{
	struct mem_ledger l = ledger_of(1);

	for (uint32_t line = 0; line < 4; line += 3) {
		uint64_t begun_ns = now_ns;

		looks = 0;
		page.line[ROW][line].turn = UINT32_MAX - 1;
		assert_int_equal(mem_ledger_charge(&l, ROW, GIB), 0);
		assert_in_range(now_ns - begun_ns, 10000000, 10000000 + 4 * STEP_NS);
		looks = 0;
		assert_int_equal(mem_ledger_charge(&l, ROW, 10 * GIB), -ENOMEM);
		assert_int_equal(looks, 0); /* it does not fit: its turn does not matter */
		page.line[ROW][line].turn = 0;
		assert_int_equal(page.line[ROW][1].turn | page.line[ROW][1].wanted, 0);
	}
	assert_int_equal(mem_ledger_own(&l, ROW), 2 * GIB);
}

/* The parts add up to what the line holds, in an account that is being written as in one that is
 * garbage. */
static void what_a_line_holds_is_divided_by_kind(void **state)
{
	struct mem_ledger l = ledger_of(2);
	struct mem_account_kinds k;

	assert_int_equal(mem_ledger_charge(&l, ROW, 20 * MIB), 0);
	mem_ledger_add_kind(&l, ROW, PROTO_KIND_CHUNK, 10 * MIB);
	mem_ledger_add_kind(&l, ROW, PROTO_KIND_POOL, 4 * MIB);
	mem_ledger_sub_kind(&l, ROW, PROTO_KIND_CHUNK, 4 * MIB);
	mem_ledger_set_overhead(&l, ROW, 2 * MIB);
	mem_ledger_set_away(&l, ROW, 30 * MIB);
	mem_ledger_set_chunks(&l, ROW, true);
	mem_account_kinds(&page, ROW, 2, &k);
	assert_int_equal(k.held, 20 * MIB);
	assert_int_equal(k.kind[PROTO_KIND_CHUNK], 6 * MIB);
	assert_int_equal(k.kind[PROTO_KIND_POOL], 4 * MIB);
	assert_int_equal(k.kind[PROTO_KIND_LINEAR], 0);
	assert_int_equal(k.overhead, 2 * MIB);
	assert_int_equal(k.inherited, 0);
	assert_int_equal(k.other, 8 * MIB);
	assert_int_equal(k.away, 30 * MIB);
	assert_true(k.chunks);
	mem_account_kinds(&page, ROW, 3, &k);
	assert_int_equal(k.held + k.other + k.away + k.chunks, 0);
}

static void chunks_on_the_host_are_summed_over_the_lines_in_use(void **state)
{
	struct mem_ledger a = ledger_of(2), b = ledger_of(3);

	(void)state;
	assert_int_equal(mem_account_away(&page, ROW), 0);
	mem_ledger_set_away(&a, ROW, 30 * MIB);
	mem_ledger_set_away(&b, ROW, 12 * MIB);
	mem_ledger_set_away(&b, ROW + 1, 7 * MIB);
	assert_int_equal(mem_account_away(&page, ROW), 42 * MIB);
	page.lines = 3;
	assert_int_equal(mem_account_away(&page, ROW), 30 * MIB);
	page.lines = UINT32_MAX;
	page.kinds[ROW][PROTO_ACCOUNT_LINES - 1].away = UINT64_MAX;
	page.kinds[ROW][PROTO_ACCOUNT_LINES - 2].away = UINT64_MAX;
	assert_int_equal(mem_account_away(&page, ROW), INT64_MAX);
}

static void garbage_in_kinds_is_bounded_by_what_is_held(void **state)
{
	struct mem_ledger l = ledger_of(2);
	struct mem_account_kinds k;
	uint64_t sum;

	assert_int_equal(mem_ledger_charge(&l, ROW, 20 * MIB), 0);
	memset(&page.kinds[ROW][2], 0xff, sizeof(page.kinds[ROW][2]));
	page.line[ROW][2].overhead = UINT64_MAX;
	mem_account_kinds(&page, ROW, 2, &k);
	sum = k.overhead + k.inherited + k.other;
	for (unsigned i = 0; i < PROTO_KINDS; i++) {
		sum += k.kind[i];
	}
	assert_int_equal(k.held, 20 * MIB);
	assert_int_equal(sum, 20 * MIB);
	assert_true(k.away <= INT64_MAX);
	assert_false(k.chunks);
	page.line[ROW][2].released = 21 * MIB; /* more than it was charged */
	mem_account_kinds(&page, ROW, 2, &k);
	assert_int_equal(k.held + k.kind[PROTO_KIND_CHUNK] + k.other, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pages_that_are_no_account_are_refused),
		TEST(rows_are_found_by_uuid),
		TEST(the_limit_is_exact),
		TEST(what_is_released_can_be_charged_again),
		TEST(own_since_counts_all_of_a_time),
		TEST(rows_are_counted_apart),
		TEST(forced_bytes_count_like_charged_ones),
		TEST(the_most_that_was_held_is_kept),
		TEST(a_charge_that_the_driver_refuses_was_not_held),
		TEST(threads_that_release_and_charge_at_once_do_not_overstate_the_peak),
		TEST(what_the_driver_refuses_other_threads_is_no_peak),
		TEST(a_peak_of_garbage_is_none),
		TEST(inherited_memory_counts_for_the_peak),
		TEST(words_that_are_shown_decide_nothing),
		TEST(what_a_line_holds_is_divided_by_kind),
		TEST(chunks_on_the_host_are_summed_over_the_lines_in_use),
		TEST(garbage_in_kinds_is_bounded_by_what_is_held),
		TEST(a_row_without_a_limit_only_counts),
		TEST(swap_without_a_limit_takes_nothing),
		TEST(only_lines_in_use_count),
		TEST(the_number_of_lines_is_not_trusted),
		TEST(sums_of_garbage_saturate),
		TEST(a_dead_charge_delays_but_does_not_block),
		TEST(a_dead_turn_delays_but_does_not_block),
		TEST(a_charge_goes_on_once_a_dead_one_is_cleared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The direct plan: what copies move, also while windows are closed and opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "direct_rig.h"
#include "../eventually.h"

#define BESIDE ((size_t)256) /* bytes around a copy that must not change */

static unsigned char host[MEM_DIRECT_UP_MAX + 4 * BESIDE], model[MEM_DIRECT_UP_MAX + 4 * BESIDE];

/* ---- up ---- */

static void up(uint64_t address, size_t bytes, size_t alignment, uint64_t seed)
{
	unsigned char *device = rig_at(address) - BESIDE;

	memcpy(model, device, bytes + 2 * BESIDE);
	rig_fill(host + alignment, bytes, seed);
	memcpy(model + BESIDE, host + alignment, bytes);
	assert_int_equal(mem_direct_find(&rig.d, address, bytes, false), MEM_DIRECT_YES);
	assert_true(mem_direct_up(&rig.d, address, host + alignment, bytes));
	assert_memory_equal(device, model, bytes + 2 * BESIDE);
}

static void stores_of_all_sizes_and_alignments_are_right(void **state)
{
	uint64_t seed = 0;

	(void)state;
	rig_open(1);
	for (size_t bytes = 1; bytes <= 200; bytes++) {
		for (size_t offset = 0; offset < MEM_DIRECT_LINE; offset++) {
			seed++;
			up(AT(1, BESIDE + offset), bytes, seed % 67, seed);
		}
	}
}

static void stores_of_many_lines_are_right(void **state)
{
	static const size_t sizes[] = { 4096, 16384, 65536, 262144, MEM_DIRECT_UP_MAX };
	uint64_t seed = 7;

	(void)state;
	rig_open(1);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (size_t bytes = sizes[i] - 2; bytes <= MIN(sizes[i] + 2, MEM_DIRECT_UP_MAX);
		     bytes++) {
			uint64_t r = rig_random(&seed);

			up(AT(1, BESIDE + r % 4096), bytes, r >> 32 & 63, r);
			up(AT(1, UNIT / 2 - BESIDE), bytes, 1, r);
		}
	}
}

/* The end of the unit is in the copy. The neighbours of a copy are seen by the test only. */
static void stores_across_the_end_of_a_unit_are_right(void **state)
{
	uint64_t seed = 11;

	(void)state;
	rig_open(1);
	rig_open(2);
	for (size_t bytes = 2; bytes <= 100; bytes++) {
		for (size_t before = 1; before < bytes; before++) {
			up(AT(2, 0) - before, bytes, before % 31, bytes * before);
		}
	}
	for (int i = 0; i < 40; i++) {
		size_t bytes = 2 + rig_random(&seed) % (MEM_DIRECT_UP_MAX - 1);

		up(AT(2, 0) - 1 - rig_random(&seed) % (bytes - 1), bytes, 5, seed);
	}
	up(AT(2, 0) - MEM_DIRECT_UP_MAX, MEM_DIRECT_UP_MAX, 0, 3);
	up(AT(2, 0), MEM_DIRECT_UP_MAX, 0, 4);
}

/* ---- down ---- */

static void down(uint64_t address, size_t bytes, size_t alignment)
{
	static uint64_t changes;
	unsigned char *to = host + BESIDE + alignment;

	*rig_at(address) = (unsigned char)(changes++ % 255); /* what was loaded before is old */
	memset(to - BESIDE, 0x5a, bytes + 2 * BESIDE);
	memcpy(model, to - BESIDE, bytes + 2 * BESIDE);
	memcpy(model + BESIDE, rig_at(address), bytes);
	assert_int_equal(mem_direct_find(&rig.d, address, bytes, false), MEM_DIRECT_YES);
	assert_true(mem_direct_down(&rig.d, to, address, bytes));
	assert_memory_equal(to - BESIDE, model, bytes + 2 * BESIDE);
}

static void loads_of_all_sizes_and_alignments_are_right(void **state)
{
	(void)state;
	rig_open(1);
	rig_fill(rig_at(AT(1, 0)), UNIT, 99);
	for (size_t bytes = 1; bytes <= MEM_DIRECT_DOWN_MAX;
	     bytes += bytes < 200 || bytes > MEM_DIRECT_DOWN_MAX - 70 ? 1 : 61) {
		for (size_t offset = 0; offset < MEM_DIRECT_LINE; offset++) {
			down(AT(1, offset), bytes, (bytes + offset) % 67);
			down(AT(2, 0) - bytes - offset, bytes, 1);
		}
	}
}

static void loads_across_the_end_of_a_unit_are_right(void **state)
{
	(void)state;
	rig_open(1);
	rig_open(2);
	rig_fill(rig_at(AT(1, 0)), 2 * UNIT, 5);
	for (size_t bytes = 2; bytes <= 200; bytes++) {
		for (size_t before = 1; before < bytes; before++) {
			down(AT(2, 0) - before, bytes, before % 31);
		}
	}
	for (size_t before = 1; before < MEM_DIRECT_DOWN_MAX; before += 37) {
		down(AT(2, 0) - before, MEM_DIRECT_DOWN_MAX, 3);
	}
}

/* Whose windows do not begin with their units. */
static void copies_in_a_part_of_a_unit_are_right(void **state)
{
	const uint64_t first = AT(1, UNIT / 2), end = AT(2, UNIT / 2);

	(void)state;
	rig.first = first;
	rig.end = end;
	for (unsigned i = 0; i < MEM_WINDOW_HITS; i++) {
		(void)mem_direct_find(&rig.d, first, 1, false);
	}
	mem_direct_open(&rig.d, first, true);
	rig_open(2);
	for (size_t bytes = 1; bytes <= MEM_DIRECT_DOWN_MAX; bytes += bytes < 80 ? 1 : 111) {
		up(first, bytes, 3, bytes);
		down(first, bytes, 3);
		up(AT(2, 0) - bytes / 2, bytes, 0, bytes);
		down(AT(2, 0) - bytes / 2, bytes, 0);
		up(end - bytes, bytes, 0, bytes);
		down(end - bytes, bytes, 0);
	}
}

/* All the vectors that this processor has. */
static void loads_by_all_vectors_are_right(void **state)
{
	static ALIGNED(MEM_DIRECT_LINE) unsigned char lines[64 * MEM_DIRECT_LINE];
	unsigned tried = 0;

	(void)state;
	for (unsigned by = 16; by <= 64; by *= 2) {
		mem_direct_load_fn *load = mem_direct_loads_by(by);

		if (!load) {
			print_message("skipped: this processor has no loads of %u bytes\n", by);
			continue;
		}
		for (unsigned n = 1; n <= 62; n++) {
			size_t bytes = n * MEM_DIRECT_LINE;

			rig_fill(rig_at(AT(0, 0)), sizeof(lines), n + by);
			memset(lines, 0x5a, sizeof(lines));
			memset(model, 0x5a, sizeof(lines));
			memcpy(model, rig_at(AT(0, 4096 - bytes)), bytes);
			load(lines, rig_at(AT(0, 4096 - bytes)), bytes);
			assert_memory_equal(lines, model, sizeof(lines));
		}
		tried++;
	}
	assert_true(tried);
}

/* ---- what the plan leaves to the driver ---- */

static void a_window_that_is_missing_moves_nothing_down(void **state)
{
	unsigned char to[64];

	(void)state;
	rig_fill(rig_at(AT(1, 0)), 2 * UNIT, 1);
	memset(to, 0x5a, sizeof(to));
	memset(model, 0x5a, sizeof(to));
	for (unsigned unit = 1; unit <= 2; unit++) { /* the one that is there */
		rig_open(unit);
		assert_false(mem_direct_down(&rig.d, to, AT(2, 0) - 32, 64));
		assert_memory_equal(to, model, 64);
		mem_direct_gone(&rig.d, AT(unit, 0), 1);
	}
}

/* The driver copies all of it then. */
static void a_window_that_is_missing_ends_a_copy_up(void **state)
{
	unsigned char from[64];

	(void)state;
	memset(from, 0x11, sizeof(from));
	rig_open(2);
	assert_false(mem_direct_up(&rig.d, AT(2, 0) - 32, from, 64));
	assert_int_equal(*rig_at(AT(2, 0)), 0);
	mem_direct_gone(&rig.d, AT(2, 0), 1);
	rig_open(1);
	assert_false(mem_direct_up(&rig.d, AT(2, 0) - 32, from, 64));
	assert_int_equal(*rig_at(AT(2, 0)), 0);
}

/* Some copies after one that read ones are left alone. */
static bool down_again(uint64_t address, size_t bytes)
{
	for (unsigned i = 0; i < 65; i++) {
		if (mem_direct_down(&rig.d, host, address, bytes)) {
			return true;
		}
	}
	return false;
}

static void all_ones(uint64_t address, size_t bytes)
{
	unsigned char *device = rig_at(address);

	memset(device, 0xff, bytes);
	memset(host, 0x5a, bytes);
	assert_false(mem_direct_down(&rig.d, host, address, bytes));
	for (size_t i = 0; i < bytes; i++) {
		assert_int_equal(host[i], 0x5a);
	}
	device[0] = 0xfe; /* not tried */
	assert_false(mem_direct_down(&rig.d, host, address, bytes));
	device[0] = 0xff;
	for (size_t i = 0; i < bytes; i = i < bytes - 1 ? MIN(2 * i + 1, bytes - 1) : bytes) {
		device[i] = 0xfe;
		assert_true(down_again(address, bytes));
		assert_memory_equal(host, device, bytes);
		device[i] = 0xff;
	}
	memset(device, 0x77, bytes); /* all the same is not all ones */
	assert_true(mem_direct_down(&rig.d, host, address, bytes));
	assert_memory_equal(host, device, bytes);
	assert_true(mem_direct_up(&rig.d, address, memset(model, 0xff, bytes), bytes));
	assert_memory_equal(device, model, bytes);
}

/* A device that does not answer reads as ones. */
static void all_ones_go_to_the_driver(void **state)
{
	static const size_t sizes[] = { 1, 2, 4, 8, 63, 64, 65, 1000, MEM_DIRECT_DOWN_MAX };

	(void)state;
	rig_open(1);
	rig_open(2);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		all_ones(AT(1, 0), sizes[i]);
		all_ones(AT(1, 77), sizes[i]);
		all_ones(AT(2, 0) - sizes[i] / 2, sizes[i]);
	}
}

/* ---- copies while memory goes ---- */

static struct {
	bool in_copy;	/* [atomic] the copy has touched the device */
	pid_t tid;	/* [atomic] of the thread that frees the memory */
	bool is_freed;	/* [atomic] */
	bool was_early; /* it was before the copy's end */
} stall;

/* Holds the copy up at its first access to the window, until the other thread waits for it, or has
 * not. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
	unsigned char *page = rig.seen + UNIT;

	(void)context;
	if ((unsigned char *)info->si_addr < page ||
	    (unsigned char *)info->si_addr >= page + 4096) {
		signal(signal_number, SIG_DFL);
		return;
	}
	store_release(&stall.in_copy, true);
	eventually(load_acquire(&stall.is_freed) ||
		   (load_acquire(&stall.tid) && thread_is_blocked(stall.tid)));
	stall.was_early = load_acquire(&stall.is_freed);
	if (mprotect(page, 4096, PROT_READ | PROT_WRITE) < 0) {
		abort();
	}
}

static void *free_unit(void *arg)
{
	(void)arg;
	eventually(load_acquire(&stall.in_copy));
	store_release(&stall.tid, gettid());
	mem_direct_gone(&rig.d, AT(1, 0), UNIT);
	store_release(&stall.is_freed, true);
	return NULL;
}

static void freeing_waits_for_copies(void **state)
{
	struct sigaction ours = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, before;
	unsigned char bytes[100] = { 1 };
	pthread_t t;

	(void)state;
	assert_int_equal(sigaction(SIGSEGV, &ours, &before), 0);
	for (unsigned up = 0; up < 2; up++) {
		memset(&stall, 0, sizeof(stall));
		rig_open(1);
		assert_int_equal(mprotect(rig.seen + UNIT, 4096, PROT_NONE), 0);
		assert_int_equal(pthread_create(&t, NULL, free_unit, NULL), 0);
		assert_true(up ? mem_direct_up(&rig.d, AT(1, 0), bytes, 100)
			       : mem_direct_down(&rig.d, bytes, AT(1, 0), 100));
		pthread_join(t, NULL);
		assert_true(stall.in_copy);
		assert_false(stall.was_early);
		assert_false(rig_is_open(1));
	}
	assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
}

#define COPIERS 3u
#define COPIES 20000u
#define FREES 3000u

static struct {
	unsigned running;    /* [atomic] copiers */
	unsigned up, down;   /* [atomic] copies by the plan */
	unsigned wrong;	     /* [atomic] */
	unsigned freed;	     /* with a window */
	unsigned still_open; /* after their memory was freed */
} race;

static bool by_plan(uint64_t address, size_t bytes)
{
	switch (mem_direct_find(&rig.d, address, bytes, false)) {
	case MEM_DIRECT_OPEN:
		mem_direct_open(&rig.d, address, true);
		return false;
	case MEM_DIRECT_OPEN_NEXT:
		mem_direct_open(&rig.d, address + (bytes - 1), true);
		return false;
	case MEM_DIRECT_NO:
		return false;
	case MEM_DIRECT_YES:
		break;
	}
	return true;
}

/* Copies up and down again in a part of the memory that no other thread uses, by the plan or else
 * by what is the driver here. */
static void *copier(void *arg)
{
	uint64_t n = (uintptr_t)arg, seed = n + 1;
	unsigned char from[2048], to[2048];

	for (unsigned i = 0; i < COPIES; i++) {
		size_t bytes = 1 + rig_random(&seed) % sizeof(from);
		/* The middle one has both sides of the units' border. */
		uint64_t address = AT(2, 0) - 7000 + n * 6000 + rig_random(&seed) % 1900;

		rig_fill(from, bytes, seed);
		if (by_plan(address, bytes) && mem_direct_up(&rig.d, address, from, bytes)) {
			(void)add_relaxed(&race.up, 1u);
		} else {
			memcpy(rig_at(address), from, bytes);
		}
		if (by_plan(address, bytes) && mem_direct_down(&rig.d, to, address, bytes)) {
			(void)add_relaxed(&race.down, 1u);
		} else {
			memcpy(to, rig_at(address), bytes);
		}
		if (memcmp(from, to, bytes) || memcmp(from, rig_at(address), bytes)) {
			(void)add_relaxed(&race.wrong, 1u);
		}
	}
	(void)sub_acqrel(&race.running, 1u);
	return NULL;
}

static void set_refused(bool refuse)
{
	store_release(&rig.refuse[1], refuse);
	store_release(&rig.refuse[2], refuse);
}

/* Frees the memory as often as a unit has a window, and allocates it again. */
static void free_and_allocate(void)
{
	while (load_acquire(&race.running)) {
		bool was_open = rig_is_open(1) || rig_is_open(2);

		if (!was_open || race.freed >= FREES) {
			sched_yield();
			continue;
		}
		set_refused(true);
		mem_direct_gone(&rig.d, AT(1, 0), 2 * UNIT);
		race.still_open += rig_is_open(1) || rig_is_open(2);
		race.freed++;
		set_refused(false);
		mem_direct_gone(&rig.d, AT(1, 0), 2 * UNIT); /* refused in between */
	}
}

static void no_copy_uses_memory_that_has_gone(void **state)
{
	pthread_t t[COPIERS];

	(void)state;
	memset(&race, 0, sizeof(race));
	race.running = COPIERS;
	for (uintptr_t i = 0; i < COPIERS; i++) {
		assert_int_equal(pthread_create(&t[i], NULL, copier, (void *)i), 0);
	}
	free_and_allocate();
	for (unsigned i = 0; i < COPIERS; i++) {
		pthread_join(t[i], NULL);
	}
	assert_int_equal(race.wrong, 0);
	assert_int_equal(race.still_open, 0);
	assert_true(race.freed > 0 && race.up > 0 && race.down > 0);
	print_message("%u copies up, %u down by the plan, %u times freed\n", race.up, race.down,
		      race.freed);
}

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_begin, rig_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_RIG(stores_of_all_sizes_and_alignments_are_right),
		WITH_RIG(stores_of_many_lines_are_right),
		WITH_RIG(stores_across_the_end_of_a_unit_are_right),
		WITH_RIG(loads_of_all_sizes_and_alignments_are_right),
		WITH_RIG(loads_across_the_end_of_a_unit_are_right),
		WITH_RIG(copies_in_a_part_of_a_unit_are_right),
		WITH_RIG(loads_by_all_vectors_are_right),
		WITH_RIG(a_window_that_is_missing_moves_nothing_down),
		WITH_RIG(a_window_that_is_missing_ends_a_copy_up),
		WITH_RIG(all_ones_go_to_the_driver),
		WITH_RIG(freeing_waits_for_copies),
		WITH_RIG(no_copy_uses_memory_that_has_gone),
	};

	if (!mem_direct_is_possible()) {
		puts("skipped: no copies through windows on this processor");
		return 77;
	}
	alarm(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Time to verify the largest programs, in shapes that cost much: many branches whose ways meet with
 * different registers, stack slots or linked numbers. Prints the processor time of each shape and
 * the worst; bounds the work, which does not depend on the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "bpf/load/verify/verify.h"
#include "gen_lanes.h"

#define INSNS 4096u
#define SUBMIT 3u /* hook; its budget is INSNS */
#define TAIL 2u	  /* r0 = 0; exit */

static struct ebpf_insn insns[INSNS];
static uint32_t n;

static void put(unsigned code, unsigned dst, unsigned src, int off, int imm)
{
	insns[n++] = (struct ebpf_insn){ .code = (uint8_t)code,
					 .dst = (uint8_t)(dst & 15),
					 .src = (uint8_t)(src & 15),
					 .off = (int16_t)off,
					 .imm = imm };
}

static void load_field(unsigned reg)
{
	put(EBPF_LDX | EBPF_MEM | EBPF_DW, reg, 1, 0, 0);
}

static void store(unsigned slot, unsigned reg)
{
	put(EBPF_STX | EBPF_MEM | EBPF_DW, 10, reg, -8 * (int)(slot + 1), 0);
}

static bool room(uint32_t more)
{
	return n + more + TAIL <= INSNS;
}

static void begin(unsigned slots, bool linked)
{
	n = 0;
	load_field(6);
	put(EBPF_ALU64 | EBPF_MOV, 7, 0, 0, 0);
	put(EBPF_ALU64 | EBPF_MOV, 8, 0, 0, 0);
	for (unsigned s = 0; s < slots; s++) {
		put(EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 6, 0, 0);
		put(EBPF_ALU64 | (linked ? EBPF_ADD : EBPF_AND), 2, 0, 0, linked ? (int)s : 0xffff);
		store(s, 2);
	}
}

static void end(void)
{
	while (n + TAIL < INSNS) {
		put(EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0);
	}
	put(EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0);
	put(EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

/* Ways that meet at once, with sums that differ. */
static void diamonds(unsigned slots, bool linked)
{
	begin(slots, linked);
	for (int i = 0; room(3); i++) {
		load_field(3);
		put(EBPF_JMP | EBPF_JGT, 3, 0, 1, 7 * i + 1);
		put(EBPF_ALU64 | EBPF_ADD, i % 2 ? 7 : 8, 0, 0, 1 + i % 2);
	}
}

/* The same, with one of many slots that differs. */
static void slots_differ(unsigned slots, bool linked)
{
	begin(slots, linked);
	for (int i = 0; room(3); i++) {
		load_field(3);
		put(EBPF_JMP | EBPF_JGT, 3, 0, 1, 7 * i + 1);
		store((unsigned)i % slots, 3);
	}
}

/* Many ways to one place, with another sum on each: the walks of the place do not join, so it is
 * the shape that costs most. */
static void ways(unsigned slots, bool linked)
{
	uint32_t to = 3600;

	begin(slots, linked);
	for (int i = 0; n + 3 <= to; i++) {
		load_field(3);
		put(EBPF_ALU64 | EBPF_ADD, 7, 0, 0, 3);
		put(EBPF_JMP | EBPF_JEQ, 3, 0, (int)to - (int)n - 1, i);
	}
	while (n < to) {
		put(EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0);
	}
	for (int i = 0; room(2); i++) {
		store((unsigned)i % 60, 7);
		put(EBPF_ALU64 | EBPF_ADD, 7, 0, 0, 1);
	}
}

/* Jumps to places in the reverse order. */
static void reversed(unsigned slots, bool linked)
{
	enum { PLACES = 1200 };
	int first;

	begin(slots, linked);
	first = (int)n + 2 * PLACES;
	for (int i = 0; i < PLACES; i++) {
		load_field(3);
		put(EBPF_JMP | EBPF_JEQ, 3, 0, first + (PLACES - 1 - i) - (int)n - 1, i);
	}
	for (int i = 0; i < PLACES; i++) {
		put(EBPF_ALU64 | EBPF_ADD, 8, 0, 0, 1);
	}
}

static const struct {
	const char *name;
	void (*make)(unsigned slots, bool linked);
	unsigned slots;
	bool linked;
	uint32_t visited_max;
} shapes[] = {
	{ "branches, registers differ", diamonds, 0, false, INSNS },
	{ "branches, 8 slots", diamonds, 8, false, INSNS },
	{ "branches, 60 slots", diamonds, 60, false, INSNS },
	{ "branches, 60 linked slots", diamonds, 60, true, INSNS },
	{ "slots differ, of 8", slots_differ, 8, false, INSNS },
	{ "slots differ, of 60", slots_differ, 60, false, INSNS },
	{ "slots differ, of 60 linked", slots_differ, 60, true, INSNS },
	{ "ways to one place", ways, 0, false, 200 * INSNS },
	{ "ways to one place, 60 slots", ways, 60, false, 200 * INSNS },
	{ "jumps in reverse", reversed, 0, false, INSNS },
	{ "jumps in reverse, 60 linked slots", reversed, 60, true, INSNS },
};

static uint64_t processor_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t measure(struct ebpf_prog *prog, const char *name, uint32_t visited_max)
{
	struct ebpf_verify_stats stats = { 0 };
	uint64_t best = UINT64_MAX;
	int err = 0;

	for (unsigned i = 0; i < 3; i++) {
		uint64_t start = processor_ns();

		err = ebpf_verify(prog, NULL, 0, 0, &stats, NULL);
		best = MIN(best, processor_ns() - start);
	}
	print_message("%-36s hook %2u: %6llu us, visited %6u\n", name, prog->hook,
		      (unsigned long long)best / 1000, stats.visited);
	assert_int_equal(err, 0);
	assert_true(stats.visited <= visited_max);
	return best;
}

static void large_programs_take_little_work(void **state)
{
	struct ebpf_prog prog;
	uint64_t worst = 0, ns;

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		shapes[i].make(shapes[i].slots, shapes[i].linked);
		end();
		prog = (struct ebpf_prog){
			.hook = SUBMIT, .n_subprogs = 1, .insns = insns, .n_insns = n
		};
		ns = measure(&prog, shapes[i].name, shapes[i].visited_max);
		worst = MAX(worst, ns);
	}
	gen_lanes_wide(insns, &prog);
	ns = measure(&prog, "20 ways, of each lane", 4 * INSNS);
	worst = MAX(worst, ns);
	print_message("worst: %llu us\n", (unsigned long long)worst / 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(large_programs_take_little_work) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

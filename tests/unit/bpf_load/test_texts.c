/* Formats on the stack in random programs: the walk that prunes and the one that merges accept no
 * program that the walk of every path refuses, and find the same texts as that one. A loop over an
 * iterator, whose states are joined in any walk, is compared with a plain loop of some of its
 * rounds, which is walked round by round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bpf_run/asm.h"
#include "base/compiler.h"
#include "bpf/load/verify/verify.h"
#include "bpf/run/printk.h"
#include "random.h"

enum {
#define GBPF_HOOK(id, hook, side, budget, vmin, vmax, doc) HOOK_##hook = id,
#include "gbpf/hooks.def"
};

enum { PROGRAMS = 4000, MAX_BRANCHES = 6 };

struct program {
	struct asm_unit unit;
	struct rng rng;
	unsigned branches, labels;
	int stores, prints; /* uses the function of that name */
	int iterates;	    /* has a loop over an iterator */
	int plain;	    /* which is to be a plain one */
};

static void line(struct program *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void line(struct program *p, const char *fmt, ...)
{
	char text[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (asm_line(&p->unit, text)) {
		fail_msg("%s: %s", text, p->unit.error);
	}
}

static unsigned below(struct program *p, unsigned n)
{
	return rng_below(&p->rng, n);
}

/* The format has bytes fp-8 to fp-5, and a terminator at fp-4. */
static unsigned place(struct program *p)
{
	return 5 + below(p, 4);
}

static unsigned character(struct program *p)
{
	return below(p, 4) ? 'a' : 'b';
}

static void print(struct program *p)
{
	line(p, "mov r1, r10");
	line(p, "add r1, -8");
	if (below(p, 3)) {
		line(p, "mov r2, 5");
		line(p, "call 6");
	} else {
		line(p, "callf print");
		p->prints = 1;
	}
}

static void store(struct program *p)
{
	switch (below(p, 8)) {
	case 0:
		line(p, "stxb [r10-%u], r7", place(p));
		break;
	case 1:
		line(p, "call 7");
		line(p, "and r0, 1");
		line(p, "add r0, r10");
		line(p, "stb [r0-%u], %u", 6 + below(p, 3), character(p));
		break;
	case 2:
		line(p, "mov r1, r10");
		line(p, "add r1, -%u", place(p));
		line(p, "mov r2, %u", character(p));
		line(p, "callf store");
		p->stores = 1;
		break;
	case 3:
		line(p, "stb [r10-%u], 0", place(p));
		break;
	default:
		line(p, "stb [r10-%u], %u", place(p), character(p));
		break;
	}
}

static void items(struct program *p, unsigned n);

static void branch(struct program *p)
{
	unsigned label = p->labels++;

	if (p->branches++ >= MAX_BRANCHES) {
		return;
	}
	line(p, "call 7");
	line(p, "jset r0, 1, over%u", label);
	items(p, 1 + below(p, 2));
	line(p, "over%u:", label);
}

static void items(struct program *p, unsigned n)
{
	while (n--) {
		switch (below(p, 10)) {
		case 0:
		case 1:
			branch(p);
			break;
		case 2:
		case 3:
			print(p);
			break;
		case 4:
			line(p, "mov r7, %u", character(p));
			break;
		case 5:
			line(p, "stw [r10-8], 0x61616161");
			break;
		case 6:
			if (!below(p, 4)) {
				line(p, "call 7");
				line(p, "mov r7, r0");
			}
			break;
		default:
			store(p);
			break;
		}
	}
}

static void rounds(struct program *p)
{
	line(p, "mov r6, %u", 2 + below(p, 2));
	line(p, "round:");
	items(p, 4);
	line(p, "sub r6, 1");
	line(p, "jne r6, 0, round");
}

/* At most three rounds of the same loop. */
static void plain_iterator(struct program *p)
{
	line(p, "mov r6, 4");
	line(p, "next:");
	line(p, "sub r6, 1");
	line(p, "jeq r6, 0, end");
	line(p, "call 7");
	line(p, "jset r0, 1, end");
	items(p, 4);
	line(p, "ja next");
	line(p, "end:");
}

static void iterator(struct program *p)
{
	p->iterates = 1;
	if (p->plain) {
		plain_iterator(p);
		return;
	}
	line(p, "mov r1, r10");
	line(p, "add r1, -16");
	line(p, "mov r2, 0");
	line(p, "mov r3, 9");
	line(p, "call 1010");
	line(p, "next:");
	line(p, "mov r1, r10");
	line(p, "add r1, -16");
	line(p, "call 1011");
	line(p, "jeq r0, 0, end");
	items(p, 4);
	line(p, "ja next");
	line(p, "end:");
	line(p, "mov r1, r10");
	line(p, "add r1, -16");
	line(p, "call 1012");
}

static void function(struct program *p, const char *name, const char *first, const char *second,
		     struct ebpf_prog *prog)
{
	prog->subprog[prog->n_subprogs++] = p->unit.n;
	line(p, "%s:", name);
	line(p, "%s", first);
	line(p, "%s", second);
	line(p, "exit");
}

static void generate(struct program *p, uint64_t seed, int plain, struct ebpf_prog *prog)
{
	memset(p, 0, sizeof(*p));
	p->plain = plain;
	p->rng = (struct rng){ seed * 0x9e3779b97f4a7c15ull + 1 };
	asm_begin(&p->unit);
	line(p, "stdw [r10-8], 0x61616161");
	line(p, "mov r7, 97");
	items(p, 3);
	switch (below(p, 3)) {
	case 0:
		rounds(p);
		break;
	case 1:
		iterator(p);
		break;
	default:
		break;
	}
	items(p, 3);
	print(p);
	line(p, "mov r0, 0");
	line(p, "exit");
	*prog = (struct ebpf_prog){ .hook = HOOK_tick, .n_subprogs = 1 };
	if (p->stores) {
		function(p, "store", "stxb [r1+0], r2", "mov r0, 0", prog);
	}
	if (p->prints) {
		function(p, "print", "mov r2, 5", "call 6", prog);
	}
	if (asm_end(&p->unit)) {
		fail_msg("%s", p->unit.error);
	}
	prog->insns = p->unit.insns;
	prog->n_insns = p->unit.n;
}

static int by_insn(const void *a, const void *b)
{
	const struct ebpf_stack_text *x = a, *y = b;

	return (x->insn > y->insn) - (x->insn < y->insn);
}

/* Verifies the program in one way, and sorts its texts. */
static int verify(struct ebpf_prog *prog, uint64_t seed, unsigned way, struct ebpf_stack_texts *t)
{
	struct report r;
	int err;

	report_init(&r);
	memset(t, 0, sizeof(*t));
	prog->texts = t;
	err = ebpf_verify(prog, NULL, 0, way, NULL, &r);
	if (err && err != -E2BIG && !strstr(buf_text(&r.message), "the format on the stack")) {
		fail_msg("program %llu: %s", (unsigned long long)seed, buf_text(&r.message));
	}
	report_finish(&r);
	qsort(t->at, t->n, sizeof(t->at[0]), by_insn);
	return err;
}

/* Returns whether the calls of a and b, which may have other numbers, print the same. */
static int same_texts(const struct ebpf_stack_texts *a, const struct ebpf_stack_texts *b)
{
	for (uint32_t i = 0; i < a->n && i < b->n; i++) {
		if (strcmp(a->at[i].text, b->at[i].text) != 0) {
			return 0;
		}
	}
	return a->n == b->n;
}

static void walks_agree_on_formats(void **state)
{
	static const unsigned ways[] = { 0, EBPF_VERIFY_MERGE };
	static struct ebpf_stack_texts all, some;
	static struct program p;
	unsigned accepted[ARRAY_SIZE(ways)] = { 0 }, refused = 0;
	struct ebpf_prog prog;

	(void)state;
	for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
		int whole;

		generate(&p, seed, 1, &prog);
		whole = verify(&prog, seed, EBPF_VERIFY_NO_PRUNE, &all);
		refused += whole == -EACCES;
		for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
			int err;

			generate(&p, seed, 0, &prog);
			err = verify(&prog, seed, ways[i], &some);
			if (!err && (whole || !same_texts(&all, &some))) {
				fail_msg("program %llu: walk %zu accepts %s",
					 (unsigned long long)seed, i, whole ? "it" : "other texts");
			}
			if (err && !whole && !ways[i] && !p.iterates) {
				fail_msg("program %llu is refused if it is pruned",
					 (unsigned long long)seed);
			}
			accepted[i] += !err;
		}
	}
	print_message("%u accepted, %u by the merging walk; %u refused\n", accepted[0], accepted[1],
		      refused);
	assert_true(accepted[0] > PROGRAMS / 10);
	assert_true(accepted[1] > PROGRAMS / 20);
	assert_true(refused > PROGRAMS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(walks_agree_on_formats) };

	return cmocka_run_group_tests_name("formats on the stack", tests, NULL, NULL);
}

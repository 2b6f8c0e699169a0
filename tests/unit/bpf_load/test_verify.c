/* The verifier's text cases (tests/data/verify, *.vt). Each must be accepted, or refused with the
 * given rule at the marked instruction, with the same result with and without pruning.
 *
 * - test NAME: begins a case
 * - .hook NAME: the hook of the program
 * - .lane: a program that each lane runs
 * - .uncompiled: what is accepted is beyond the compiler for kernels
 * - .nolines: no line information
 * - .constants 1 2 3 4: four numbers of 4 bytes, the contents of .rodata; default: not known
 * - .merged: the next instruction has line 0, as those that were made from several lines
 * - .functions 0 7: where functions begin, or none, many or too many; default: targets of calls
 * - instructions in the assembler of bpf_run; "!" marks the refused one
 * - .accept, or .refuse RULE [TEXT that the message or the hint contains]: the expected result
 * - .cost N: the proved cost
 * - .prunes: walked with pruning only
 * - .merges: too many paths for any walk but the merging one, which decides the case
 * - .visits N: the walk with pruning visits at most N instructions
 * - .tail MAP INDEX LABEL: the target of a tail call through that entry
 *
 * A pair is a refused case and its nearest accepted neighbour: lines with "-" belong to the refused
 * one, lines with "+" to the accepted one. ".property N" names the safety property of
 * docs/VERIFIER.md that the following pairs test; each property has at least ten pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bpf_run/asm.h"
#include "base/compiler.h"
#include "bpf/load/jit/jit.h"
#include "bpf/run/printk.h"
#include "bpf/load/verify/verify.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

static const struct ebpf_map_def maps[] = {
	{ "global", 2, 4, 16, 4, 0, 0 },
	{ "tenant", 2, 4, 24, 8, GBPF_F_TENANT, 0 },
	{ ".rodata", 2, 4, 16, 1, GBPF_F_RDONLY, 1 },
	{ ".bss.tenant", 2, 4, 16, 1, GBPF_F_TENANT, 1 },
	{ "daemon", 2, 4, 8, 2, GBPF_F_DAEMON, 0 },
	{ ".bss", 2, 4, 16, 1, 0, 1 },
	{ "ring", 27, 0, 0, 4096, GBPF_F_TENANT, 0 },
	{ "hash", 1, 8, 16, 16, GBPF_F_TENANT, 0 },
	{ "progs", 3, 4, 4, 4, 0, 0 },
	{ "queue", 22, 0, 16, 8, GBPF_F_TENANT, 0 },
	{ "locked", 2, 4, 16, 2, GBPF_F_DAEMON, 0, .lock_1 = 1 },
	{ "many", 12, 4, 4, 4, 0, 0, .inner_1 = 13 },
	{ "inner", 2, 4, 8, 4, 0, 0 },
	{ "threads", 6, 4, 16, 2, GBPF_F_TENANT, 0 },
	{ "hist", 1000, 4, 512, 2, GBPF_F_TENANT, 0 },
	{ "prefixes", 11, 8, 8, 16, GBPF_F_TENANT, 0 },
	{ "other", 2, 4, 16, 2, GBPF_F_DAEMON, 0, .lock_1 = 9 },
	{ "published", 2, 4, 16, 4, GBPF_F_EPOCH, 0 },
	{ "counters", 2, 4, 16, 64, GBPF_F_DEVICE, 0 },
	{ ".bss.device", 2, 4, 256, 1, GBPF_F_DEVICE, 1 },
	{ "rows", 1000, 4, 512, 4, GBPF_F_DEVICE, 0 },
	{ "dmany", 12, 4, 4, 4, 0, 0, .inner_1 = 19 },
	{ "pushed", 1003, 0, 16, 64, GBPF_F_DEVICE, 0 },
	{ "wide", 2, 4, 32, 4, GBPF_F_DEVICE, 0 },
	{ "devhash", 1, 8, 16, 64, GBPF_F_DEVICE, 0 },
	{ "devlru", 9, 4, 8, 64, GBPF_F_DEVICE, 0 },
	{ "blocks", 1006, 4, 16, 64, GBPF_F_DEVICE, 0 },
	{ "lanes", 1007, 4, 16, 64, GBPF_F_DEVICE, 0 },
	{ "scratch", 1008, 4, 16, 4, GBPF_F_DEVICE, 0 },
	{ ".printk", 1003, 0, sizeof(struct ebpf_print_record), 64, GBPF_F_DEVICE, 0 },
};

#define CONSTANTS 2 /* .rodata */
#define PROPERTIES 19
#define PAIRS_EACH 10

struct vt_case {
	char file[64], name[128];
	int hook;
	bool lane, uncompiled;
	struct asm_unit unit, twin; /* twin: the accepted one of a pair */
	struct ebpf_line lines[2][ASM_MAX_INSNS];
	int pair, no_lines, merged, known;
	uint32_t constants[4]; /* if known */
	unsigned property;
	int64_t marked; /* instruction, or -1 */
	unsigned marked_line;
	int accept, open, prunes, merges;
	char rule[32], text[128], functions[64];
	uint32_t cost, visits;
	struct {
		uint32_t map, index;
		char label[32];
	} tails[8];
	unsigned n_tails;
	unsigned line, last_line; /* last_line: of the last instruction that was not merged */
};

static unsigned n_cases, pairs[PROPERTIES + 1];

static void bad_case(const struct vt_case *c, const char *what, const struct report *r)
{
	struct buf text;

	buf_init(&text);
	if (r) {
		report_text(r, &text);
	}
	fail_msg("%s:%u: test %s: %s\n%s", c->file, c->line, c->name, what, buf_text(&text));
}

/* Functions begin at 0 and wherever a call or a function's address leads. */
static int is_tail(const struct vt_case *c, const struct asm_unit *u, uint32_t at)
{
	for (unsigned i = 0; i < c->n_tails; i++) {
		for (unsigned k = 0; k < u->n_labels; k++) {
			if (u->labels[k].at == at &&
			    strcmp(u->labels[k].name, c->tails[i].label) == 0) {
				return 1;
			}
		}
	}
	return 0;
}

static void find_functions(const struct vt_case *c, const struct asm_unit *u, struct ebpf_prog *p)
{
	p->n_subprogs = 1;
	for (uint32_t to = 1; to < u->n; to++) {
		if (is_tail(c, u, to)) {
			snprintf(p->subprog_name[p->n_subprogs], 64, "f%u", p->n_subprogs);
			p->subprog[p->n_subprogs++] = to;
			continue;
		}
		for (uint32_t pc = 0; pc < u->n; pc++) {
			const struct ebpf_insn *in = &u->insns[pc];

			int function = in->code == EBPF_LD_IMM64 && in->src == EBPF_PSEUDO_FUNC;

			if ((function || (in->code == (EBPF_JMP | EBPF_CALL) && in->src == 1)) &&
			    (int64_t)pc + 1 + in->imm == to) {
				snprintf(p->subprog_name[p->n_subprogs], 64, "f%u", p->n_subprogs);
				p->subprog[p->n_subprogs++] = to;
				break;
			}
		}
	}
}

static void given_functions(const char *text, struct ebpf_prog *p)
{
	if (strcmp(text, "none") == 0) {
		return;
	}
	if (strcmp(text, "many") == 0) {
		p->n_subprogs = ARRAY_SIZE(p->subprog) + 1;
		return;
	}
	for (char *end; *text; text = end) {
		p->subprog[p->n_subprogs++] = (uint32_t)strtoul(text, &end, 10);
		if (end == text) {
			fail_msg("no number of a function: %s", text);
		}
	}
}

static void check_refusal(const struct vt_case *c, int err, const struct report *r, unsigned flags)
{
	const char *message = buf_text(&r->message);
	size_t len = strlen(c->rule);
	char place[160];

	if (err != -EACCES && err != -E2BIG) {
		bad_case(c, flags ? "accepted without pruning" : "accepted", r);
	}
	if (strncmp(message, c->rule, len) != 0 || message[len] != ':') {
		bad_case(c, "refused by another rule", r);
	}
	if (!strstr(message, c->text) && !strstr(buf_text(&r->hint), c->text)) {
		bad_case(c, "the message lacks the text", r);
	}
	if (c->no_lines) {
		snprintf(place, sizeof(place), "insn %lld", (long long)c->marked);
	} else {
		snprintf(place, sizeof(place), "insn %lld (%s:%u)", (long long)c->marked, c->file,
			 c->marked_line);
	}
	if (c->marked >= 0 && (!strstr(buf_text(&r->place), place) ||
			       strlen(strstr(buf_text(&r->place), place)) != strlen(place))) {
		bad_case(c, "another instruction or line was refused", r);
	}
	if (!r->detail.len) {
		bad_case(c, "no detail", r);
	}
}

static void run_way(const struct vt_case *c, const struct ebpf_prog *p, int accept, unsigned flags)
{
	struct ebpf_verify_stats stats;
	struct report r;
	int err;

	report_init(&r);
	err = ebpf_verify(p, maps, ARRAY_SIZE(maps), flags, &stats, &r);
	if (stats.effort > 140000000) {
		bad_case(c, "too much effort", &r);
	}
	if (accept && err) {
		bad_case(c, "refused", &r);
	}
	if (accept && c->cost && stats.cost != c->cost) {
		char text[64];

		snprintf(text, sizeof(text), "costs %u, not %u", stats.cost, c->cost);
		bad_case(c, text, NULL);
	}
	if (accept && c->visits && !(flags & EBPF_VERIFY_NO_PRUNE) && stats.visited > c->visits) {
		char text[64];

		snprintf(text, sizeof(text), "visits %u, not %u", stats.visited, c->visits);
		bad_case(c, text, NULL);
	}
	if (!accept) {
		check_refusal(c, err, &r, flags);
	}
	report_finish(&r);
}

/* What is accepted inside kernels can be compiled for them. */
static void run_compiler(const struct vt_case *c, const struct ebpf_prog *p)
{
	static struct ebpf_map laid[ARRAY_SIZE(maps)];
	static uint8_t text[1 << 18];
	const struct ebpf_code code = { .insns = p->insns, .n = p->n_insns };
	struct ebpf_jit_options o = { .device_hook = p->hook,
				      .device_lane = p->lane,
				      .print_map_1 = ARRAY_SIZE(maps),
				      .texts = p->texts };
	size_t bytes[EBPF_REGIONS], len = 0;
	uint64_t used = 0;
	struct report r;

	report_init(&r);
	o.report = &r;
	o.maps = &used;
	assert_int_equal(ebpf_maps_layout(maps, ARRAY_SIZE(maps), laid, bytes), 0);
	if (ebpf_jit_compile_with(&ebpf_target_ptx, &o, &code, laid, ARRAY_SIZE(maps), text,
				  sizeof(text), &len) < 0) {
		bad_case(c, "accepted, but not compiled", &r);
	}
	report_finish(&r);
}

/* The merging walk may refuse what is accepted otherwise, but never the reverse. */
static void run_merged(const struct vt_case *c, const struct ebpf_prog *p, int accept)
{
	struct ebpf_verify_stats stats;

	if (c->merges) {
		run_way(c, p, accept, EBPF_VERIFY_MERGE);
	}
	if (c->merges && accept) {
		run_way(c, p, accept, 0);
		if (ebpf_verify(p, maps, ARRAY_SIZE(maps), 0, &stats, NULL) || !stats.joins) {
			bad_case(c, "accepted without the merging walk", NULL);
		}
	}
	if (!accept && ebpf_verify(p, maps, ARRAY_SIZE(maps), EBPF_VERIFY_MERGE, NULL, NULL) == 0) {
		bad_case(c, "accepted by the merging walk", NULL);
	}
}

static uint32_t label_at(const struct vt_case *c, const struct asm_unit *u, const char *name)
{
	for (unsigned i = 0; i < u->n_labels; i++) {
		if (strcmp(u->labels[i].name, name) == 0) {
			return u->labels[i].at;
		}
	}
	bad_case(c, name, NULL);
	return 0;
}

static void add_tails(const struct vt_case *c, const struct asm_unit *u, struct ebpf_prog *p,
		      struct ebpf_tail *tails)
{
	for (unsigned i = 0; i < c->n_tails; i++) {
		uint32_t at = label_at(c, u, c->tails[i].label), k = 0;

		while (k < p->n_subprogs && p->subprog[k] != at) {
			k++;
		}
		tails[i] = (struct ebpf_tail){ c->tails[i].map, c->tails[i].index, k };
	}
	p->tails = tails;
	p->n_tails = c->n_tails;
}

/* Seeds for fuzz_verify: a byte of hook and flags as it reads them, then the instructions. */
static void keep_seed(const struct vt_case *c, const struct asm_unit *u)
{
	const char *folder = getenv("GBPF_VERIFY_SEEDS");
	unsigned device = (unsigned)c->hook - EBPF_FIRST_DEVICE_HOOK;
	char path[512];
	FILE *f;
	int first = 0;

	if (!folder) {
		return;
	}
	if (c->hook >= (int)EBPF_FIRST_DEVICE_HOOK) {
		first = (int)(0x40 | (c->lane ? 0x80u : 0) | (device & 7) << 3 | device >> 3);
	}
	snprintf(path, sizeof(path), "%s/%u.%u", folder, n_cases, u == &c->twin);
	f = fopen(path, "w");
	if (f) {
		fputc(first, f);
		fwrite(u->insns, sizeof(u->insns[0]), u->n, f);
		fclose(f);
	}
}

static void run_unit(struct vt_case *c, struct asm_unit *u, struct ebpf_line *lines, int accept)
{
	static const unsigned ways[] = { 0, EBPF_VERIFY_NO_PRUNE, EBPF_VERIFY_EXPLAIN };
	static const void *init[ARRAY_SIZE(maps)];
	static struct ebpf_stack_texts texts;
	static struct ebpf_prog p;
	struct ebpf_tail tails[ARRAY_SIZE(c->tails)];

	if (asm_end(u)) {
		bad_case(c, u->error, NULL);
	}
	keep_seed(c, u);
	memset(&p, 0, sizeof(p));
	p.hook = c->hook;
	p.lane = c->lane;
	p.insns = u->insns;
	p.n_insns = u->n;
	p.lines = lines;
	p.n_lines = c->no_lines ? 0 : u->n;
	init[CONSTANTS] = c->constants;
	p.init = c->known ? init : NULL;
	p.texts = &texts;
	if (c->functions[0]) {
		given_functions(c->functions, &p);
	} else {
		find_functions(c, u, &p);
	}
	add_tails(c, u, &p, tails);
	run_merged(c, &p, accept);
	for (size_t i = 0; i < ARRAY_SIZE(ways) && !c->merges; i++) {
		if (!c->prunes || ways[i] == 0) {
			run_way(c, &p, accept, ways[i]);
		}
	}
	if (accept && c->hook >= (int)EBPF_FIRST_DEVICE_HOOK && !c->uncompiled) {
		run_compiler(c, &p);
	}
}

static void run_case(struct vt_case *c)
{
	n_cases++;
	if (c->accept < 0) {
		bad_case(c, "neither .accept nor .refuse", NULL);
	}
	if (c->pair) {
		if (c->accept || c->marked < 0 || !c->property) {
			bad_case(c, "a pair needs .refuse, a mark and a property", NULL);
		}
		pairs[c->property]++;
		run_unit(c, &c->twin, c->lines[1], 1);
	}
	run_unit(c, &c->unit, c->lines[0], c->accept);
}

static int hook_by_name(const char *name)
{
#define GBPF_HOOK(id, hook, side, budget, vmin, vmax, doc)                                         \
	if (strcmp(name, #hook) == 0) {                                                            \
		return id;                                                                         \
	}
#define GBPF_DEVICE_HOOK(id, hook, budget, doc) GBPF_HOOK(id, hook, DEVICE, budget, 0, 0, doc)
#include "gbpf/hooks.def"
	return -1;
}

static void begin_case(struct vt_case *c, const char *name)
{
	if (c->open) {
		run_case(c);
	}
	c->open = 1;
	snprintf(c->name, sizeof(c->name), "%s", name);
	c->hook = 3;
	c->lane = c->uncompiled = false;
	c->marked = -1;
	c->pair = 0;
	c->no_lines = c->merged = c->known = 0;
	c->last_line = 0;
	c->accept = -1;
	c->cost = c->visits = c->n_tails = 0;
	c->prunes = c->merges = 0;
	c->rule[0] = c->text[0] = c->functions[0] = 0;
	asm_begin(&c->unit);
	asm_begin(&c->twin);
}

/* An instruction or label, for the halves of the case that have it. */
static void code_line(struct vt_case *c, char *line)
{
	char which = *line;

	if (which == '-' || which == '+') {
		c->pair = 1;
		*line++ = ' ';
	}
	if (*line == '!') {
		c->marked = c->unit.n;
		c->marked_line = c->merged ? c->last_line : c->line;
		*line = ' ';
	}
	for (int twin = 0; twin < 2; twin++) {
		struct asm_unit *u = twin ? &c->twin : &c->unit;
		uint32_t n = u->n;

		if (which == (twin ? '-' : '+')) {
			continue;
		}
		if (asm_line(u, line)) {
			bad_case(c, u->error, NULL);
		}
		for (; n < u->n; n++) {
			c->lines[twin][n] = (struct ebpf_line){ .insn = n,
								.line = c->merged ? 0 : c->line,
								.file = c->file,
								.text = "source" };
		}
	}
	c->last_line = c->merged ? c->last_line : c->line;
	c->merged = 0;
}

static void case_line(struct vt_case *c, char *line)
{
	char word[64] = "", rest[128] = "";

	line[strcspn(line, "\n")] = 0;
	sscanf(line, "%63s %127[^\n]", word, rest);
	if (word[0] == '#' || !word[0]) {
		return;
	}
	if (strcmp(word, "test") == 0) {
		begin_case(c, rest);
	} else if (strcmp(word, ".hook") == 0) {
		c->hook = hook_by_name(rest);
	} else if (strcmp(word, ".lane") == 0) {
		c->lane = true;
	} else if (strcmp(word, ".uncompiled") == 0) {
		c->uncompiled = true;
	} else if (strcmp(word, ".accept") == 0) {
		c->accept = 1;
	} else if (strcmp(word, ".cost") == 0) {
		c->cost = (uint32_t)strtoul(rest, NULL, 10);
	} else if (strcmp(word, ".visits") == 0) {
		c->visits = (uint32_t)strtoul(rest, NULL, 10);
	} else if (strcmp(word, ".tail") == 0) {
		assert_in_range(c->n_tails, 0, ARRAY_SIZE(c->tails) - 1);
		sscanf(rest, "%u %u %31s", &c->tails[c->n_tails].map, &c->tails[c->n_tails].index,
		       c->tails[c->n_tails].label);
		c->n_tails++;
	} else if (strcmp(word, ".prunes") == 0) {
		c->prunes = 1;
	} else if (strcmp(word, ".merges") == 0) {
		c->merges = 1;
	} else if (strcmp(word, ".nolines") == 0) {
		c->no_lines = 1;
	} else if (strcmp(word, ".constants") == 0) {
		c->known = sscanf(rest, "%u %u %u %u", &c->constants[0], &c->constants[1],
				  &c->constants[2], &c->constants[3]) == 4;
		assert_true(c->known);
	} else if (strcmp(word, ".merged") == 0) {
		c->merged = 1;
	} else if (strcmp(word, ".functions") == 0) {
		snprintf(c->functions, sizeof(c->functions), "%.63s", rest);
	} else if (strcmp(word, ".refuse") == 0) {
		c->accept = 0;
		sscanf(rest, "%31s %127[^\n]", c->rule, c->text);
	} else if (strcmp(word, ".property") == 0) {
		if (c->open) {
			run_case(c);
			c->open = 0;
		}
		c->property = (unsigned)strtoul(rest, NULL, 10);
		assert_in_range(c->property, 1, PROPERTIES);
	} else {
		code_line(c, line);
	}
}

static const char *const *files;
static int n_files;

static void every_case_is_decided_as_written(void **state)
{
	static struct vt_case c;

	for (int i = 0; i < n_files; i++) {
		const char *slash = strrchr(files[i], '/');
		FILE *f = fopen(files[i], "r");
		char line[256];

		if (!f) {
			fail_msg("cannot open %s", files[i]);
		}
		memset(&c, 0, sizeof(c));
		snprintf(c.file, sizeof(c.file), "%.40s", slash ? slash + 1 : files[i]);
		while (fgets(line, sizeof(line), f)) {
			c.line++;
			case_line(&c, line);
		}
		fclose(f);
		if (c.open) {
			run_case(&c);
		}
	}
	assert_true(n_cases >= 200);
}

/* Each property of docs/VERIFIER.md has its refusals, with their nearest accepted neighbours. */
static void every_property_has_its_pairs(void **state)
{
	if (n_files < (int)PROPERTIES) {
		skip(); /* not given the properties' files */
	}
	for (unsigned i = 1; i <= PROPERTIES; i++) {
		if (pairs[i] < PAIRS_EACH) {
			fail_msg("property %u has %u pairs, not %u", i, pairs[i], PAIRS_EACH);
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_case_is_decided_as_written),
		cmocka_unit_test(every_property_has_its_pairs),
	};

	files = (const char *const *)argv + 1;
	n_files = argc - 1;
	return cmocka_run_group_tests_name("verifier cases", tests, NULL, NULL);
}

/* The verifier's cases in text (tests/data/verify, *.vt): each is accepted, or refused with this
 *rule at this instruction. Both ways of walking, with and without pruning, must agree.
 *
 *	test NAME / .hook NAME / instructions (bpf_run's assembler; "!" marks the refused one)
 *	.accept / .cost N / .prunes (walked with pruning only)        or        .refuse RULE [text
 *that the message or hint contains] */
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
#include "bpf/load/verify.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

static const struct ebpf_map_def maps[] = {
	{ "global", 2, 4, 16, 4, 0, 0 },
	{ "tenant", 2, 4, 24, 8, GBPF_F_TENANT, 0 },
	{ ".rodata", 2, 4, 16, 1, GBPF_F_RDONLY, 1 },
	{ ".bss.tenant", 2, 4, 16, 1, GBPF_F_TENANT, 1 },
	{ "daemon", 2, 4, 8, 2, GBPF_F_DAEMON, 0 },
	{ ".bss", 2, 4, 16, 1, 0, 1 },
};

struct vt_case {
	char file[64], name[128];
	int hook;
	struct asm_unit unit;
	int64_t marked; /* instruction, or -1 */
	int accept, open, prunes;
	char rule[32], text[128];
	uint32_t cost;
	unsigned line;
};

static unsigned n_cases;

static void bad_case(const struct vt_case *c, const char *what, const struct report *r)
{
	struct buf text;

	buf_init(&text);
	if (r) {
		report_text(r, &text);
	}
	fail_msg("%s:%u: test %s: %s\n%s", c->file, c->line, c->name, what, buf_text(&text));
}

/* Functions begin at 0 and wherever a call leads. */
static void find_functions(const struct asm_unit *u, struct ebpf_prog *p)
{
	p->n_subprogs = 1;
	for (uint32_t to = 1; to < u->n; to++) {
		for (uint32_t pc = 0; pc < u->n; pc++) {
			const struct ebpf_insn *in = &u->insns[pc];

			if (in->code == (EBPF_JMP | EBPF_CALL) && in->src == 1 &&
			    (int64_t)pc + 1 + in->imm == to) {
				snprintf(p->subprog_name[p->n_subprogs], 64, "f%u", p->n_subprogs);
				p->subprog[p->n_subprogs++] = to;
				break;
			}
		}
	}
}

static void check_refusal(const struct vt_case *c, int err, const struct report *r, unsigned flags)
{
	const char *message = buf_text(&r->message);
	size_t len = strlen(c->rule);
	char place[64];

	if (err != -EACCES && err != -E2BIG) {
		bad_case(c, flags ? "accepted without pruning" : "accepted", r);
	}
	if (strncmp(message, c->rule, len) != 0 || message[len] != ':') {
		bad_case(c, "refused by another rule", r);
	}
	if (!strstr(message, c->text) && !strstr(buf_text(&r->hint), c->text)) {
		bad_case(c, "the message lacks the text", r);
	}
	snprintf(place, sizeof(place), "insn %lld", (long long)c->marked);
	if (c->marked >= 0 && (!strstr(buf_text(&r->place), place) ||
			       strlen(strstr(buf_text(&r->place), place)) != strlen(place))) {
		bad_case(c, "another instruction was refused", r);
	}
	if (!r->detail.len) {
		bad_case(c, "no detail", r);
	}
}

static void run_case(struct vt_case *c)
{
	static const unsigned ways[] = { 0, EBPF_VERIFY_NO_PRUNE, EBPF_VERIFY_EXPLAIN };
	static struct ebpf_prog p;

	n_cases++;
	if (asm_end(&c->unit)) {
		bad_case(c, c->unit.error, NULL);
	}
	memset(&p, 0, sizeof(p));
	p.hook = c->hook;
	p.insns = c->unit.insns;
	p.n_insns = c->unit.n;
	find_functions(&c->unit, &p);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		struct ebpf_verify_stats stats;
		struct report r;
		int err;

		if (c->prunes && ways[i] != 0) {
			continue;
		}
		report_init(&r);
		err = ebpf_verify(&p, maps, ARRAY_SIZE(maps), ways[i], &stats, &r);
		if (c->accept && err) {
			bad_case(c, "refused", &r);
		}
		if (c->accept && c->cost && stats.cost != c->cost) {
			char text[64];

			snprintf(text, sizeof(text), "costs %u, not %u", stats.cost, c->cost);
			bad_case(c, text, NULL);
		}
		if (!c->accept) {
			check_refusal(c, err, &r, ways[i]);
		}
		report_finish(&r);
	}
}

static int hook_by_name(const char *name)
{
#define GBPF_HOOK(id, hook, side, budget, vmin, vmax, doc)                                         \
	if (strcmp(name, #hook) == 0) {                                                            \
		return id;                                                                         \
	}
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
	c->marked = -1;
	c->accept = -1;
	c->cost = 0;
	c->prunes = 0;
	c->rule[0] = c->text[0] = 0;
	asm_begin(&c->unit);
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
	} else if (strcmp(word, ".accept") == 0) {
		c->accept = 1;
	} else if (strcmp(word, ".cost") == 0) {
		c->cost = (uint32_t)strtoul(rest, NULL, 10);
	} else if (strcmp(word, ".prunes") == 0) {
		c->prunes = 1;
	} else if (strcmp(word, ".refuse") == 0) {
		c->accept = 0;
		sscanf(rest, "%31s %127[^\n]", c->rule, c->text);
	} else {
		if (line[0] == '!') {
			c->marked = c->unit.n;
			line[0] = ' ';
		}
		if (asm_line(&c->unit, line)) {
			bad_case(c, c->unit.error, NULL);
		}
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
		snprintf(c.file, sizeof(c.file), "%s", slash ? slash + 1 : files[i]);
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_case_is_decided_as_written) };

	files = (const char *const *)argv + 1;
	n_files = argc - 1;
	return cmocka_run_group_tests_name("verifier cases", tests, NULL, NULL);
}

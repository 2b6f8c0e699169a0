/* The report of a refusal: instruction, rule, known values, source line and, on demand, the path.
 * Nothing here affects whether a program is accepted. */
#include "bpf/load/elf/source_line.h"
#include "bpf/load/verify/insn_text.h"
#include "bpf/load/verify/verify_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LOG (256u << 10) /* bytes of the path log; the oldest lines are dropped first */

static char *next_text(size_t *bytes)
{
	static __thread char texts[8][160];
	static __thread unsigned turn;

	*bytes = sizeof(texts[0]);
	return texts[turn++ % ARRAY_SIZE(texts)];
}

const char *ebpf_verify_range_text(const struct ebpf_scalar *s)
{
	size_t n;
	char *t = next_text(&n);

	if (ebpf_scalar_is_const(s)) {
		snprintf(t, n, "%lld", (long long)s->t.value);
	} else if (s->smin >= 0 && s->smin <= s->smax && s->umax < UINT64_MAX) {
		snprintf(t, n, "%llu to %llu", (unsigned long long)s->umin,
			 (unsigned long long)s->umax);
	} else if (s->smin > INT64_MIN || s->smax < INT64_MAX) {
		snprintf(t, n, "%lld to %lld", (long long)s->smin, (long long)s->smax);
	} else if (s->umin > 0 || s->umax < UINT64_MAX) {
		snprintf(t, n, "%llu to %llu", (unsigned long long)s->umin,
			 (unsigned long long)s->umax);
	} else if (s->u32min > 0 || s->u32max < UINT32_MAX) {
		snprintf(t, n, "anything with low half %u to %u", s->u32min, s->u32max);
	} else if (~s->t.mask) {
		snprintf(t, n, "anything with known bits 0x%llx/0x%llx",
			 (unsigned long long)s->t.value, (unsigned long long)~s->t.mask);
	} else {
		snprintf(t, n, "anything");
	}
	return t;
}

const char *ebpf_verify_reg_text(const struct ebpf_verifier *v, const struct ebpf_reg *r)
{
	size_t n;
	char *t = next_text(&n);

	switch (r->type) {
	case REG_NONE:
		snprintf(t, n, "not initialized");
		break;
	case REG_SCALAR:
		snprintf(t, n, "a number (%s)", ebpf_verify_range_text(&r->v));
		break;
	case REG_CTX:
		if (ebpf_scalar_is_const(&r->v) && r->v.t.value == 0) {
			snprintf(t, n, "the context");
		} else {
			snprintf(t, n, "a pointer into the context at %s",
				 ebpf_verify_range_text(&r->v));
		}
		break;
	case REG_STACK:
		snprintf(t, n, "a pointer to the stack%s at %s",
			 r->frame == v->depth ? "" : " of a caller", ebpf_verify_range_text(&r->v));
		break;
	case REG_VALUE:
		snprintf(t, n, "a pointer into %s at %s", v->maps[r->map].name,
			 ebpf_verify_range_text(&r->v));
		break;
	case REG_VALUE_OR_NULL:
		snprintf(t, n, "a value of map %s or NULL", v->maps[r->map].name);
		break;
	case REG_MAP_OR_NULL:
		snprintf(t, n, "a map like %s or NULL", v->maps[r->map].name);
		break;
	case REG_RECORD:
	case REG_RECORD_OR_NULL:
		snprintf(t, n, "a record of %s%s", v->maps[r->map].name,
			 r->type == REG_RECORD ? "" : " or NULL");
		break;
	case REG_GONE:
		snprintf(t, n, "gone");
		break;
	case REG_FUNC:
		snprintf(t, n, "the function %s", v->prog->subprog_name[r->map]);
		break;
	case REG_NUMBER:
		snprintf(t, n, "a pointer to the iterator's number (%s)",
			 ebpf_verify_range_text(&r->v));
		break;
	case REG_KEY:
		snprintf(t, n, "a pointer to a key of %s", v->maps[r->map].name);
		break;
	case REG_ITER:
	case REG_ROUNDS:
		snprintf(t, n, "up to %llu rounds more", (unsigned long long)r->v.umax);
		break;
	default:
		snprintf(t, n, "%s%s", r->id ? "a map like " : "map ", v->maps[r->map].name);
	}
	return t;
}

/* Returns the line of an instruction, or NULL. Instructions that the compiler has made from several
 * lines have line 0; the preceding line of the function counts for them. */
static const struct ebpf_line *line_of(const struct ebpf_prog *p, uint32_t pc)
{
	uint32_t start = 0, n_funcs = MIN(p->n_subprogs, (uint32_t)ARRAY_SIZE(p->subprog));
	const struct ebpf_line *best = NULL;

	for (uint32_t k = 0; k < n_funcs; k++) {
		start = p->subprog[k] <= pc ? MAX(start, p->subprog[k]) : start;
	}
	for (uint32_t i = 0; i < p->n_lines; i++) {
		const struct ebpf_line *l = &p->lines[i];

		if (l->line && l->insn >= start && l->insn <= pc &&
		    (!best || l->insn >= best->insn)) {
			best = l;
		}
	}
	return best;
}

const char *ebpf_verify_place_text(const struct ebpf_verifier *v, uint32_t pc)
{
	const struct ebpf_line *l = line_of(v->prog, pc);
	size_t n;
	char *t = next_text(&n);

	snprintf(t, n, "%s %u", l ? "line" : "insn", l ? l->line : pc);
	return t;
}

/* Appends the path of a source file without its "dir/.." and "./" components. */
static void add_path(struct buf *out, const char *path)
{
	size_t start = out->len;

	while (*path && out->len - start < 240) {
		size_t n = strcspn(path, "/");
		int up = n == 2 && path[0] == '.' && path[1] == '.';
		size_t last = out->len;

		while (last > start && out->data[last - 1] != '/') {
			last--;
		}
		/* last: offset of the previous component, without the slash after it */
		if (up && out->len > last && strcmp(out->data + last, "..") != 0) {
			out->len = last > start + 1 ? last - 1 : last;
			out->data[out->len] = 0;
		} else if (!(n == 1 && path[0] == '.') && (n > 0 || out->len == start)) {
			if (out->len > start && out->data[out->len - 1] != '/') {
				buf_puts(out, "/");
			}
			ebpf_source_line_clean(path, n, out);
			if (n == 0) {
				buf_puts(out, "/");
			}
		}
		path += n + (path[n] == '/');
	}
}

static void place(struct ebpf_verifier *v, uint32_t pc)
{
	const struct ebpf_line *l = line_of(v->prog, pc);
	struct buf file;

	if (!l || !l->file || !l->file[0]) {
		report_place(v->r, "%s insn %u", v->hook->name, pc);
		return;
	}
	buf_init(&file);
	add_path(&file, l->file);
	report_place(v->r, "%s insn %u (%s:%u)", v->hook->name, pc, buf_text(&file), l->line);
	buf_finish(&file);
}

/* Fills the detail of the report: the instruction, the source line, and a caret below its column.
 */
static void detail(struct ebpf_verifier *v, uint32_t pc)
{
	const struct ebpf_line *l = line_of(v->prog, pc);
	struct buf *out = &v->r->detail;

	if (l && l->text && l->text[strspn(l->text, " \t")]) {
		struct ebpf_source_line line = { .text = l->text,
						 .line = l->line,
						 .column = l->column };

		ebpf_source_line_show(&line, out);
		buf_puts(out, "\n");
	}
	if (v->subprog_of[pc]) {
		buf_printf(out, "  insn %u (in %s): ", pc,
			   v->prog->subprog_name[v->subprog_of[pc]]);
	} else {
		buf_printf(out, "  insn %u: ", pc);
	}
	ebpf_insn_text(v->prog->insns, v->prog->n_insns, pc, out);
	if (v->log.len) {
		buf_printf(out, "\nthe path that leads there:\n%.*s", (int)v->log.len - 1,
			   buf_text(&v->log));
	}
}

static int refuse(struct ebpf_verifier *v, int err, uint32_t pc, const char *rule, const char *fmt,
		  va_list ap)
{
	struct buf text;

	if (!v->r || v->r->message.len) {
		return err;
	}
	buf_init(&text);
	buf_vprintf(&text, fmt, ap);
	place(v, pc);
	report_set(v->r, err, "verify", "%s: %s", rule, buf_text(&text));
	detail(v, pc);
	buf_finish(&text);
	return err;
}

int ebpf_verify_refuse(struct ebpf_verifier *v, uint32_t pc, const char *rule, const char *fmt, ...)
{
	va_list ap;
	int err;

	va_start(ap, fmt);
	err = refuse(v, -EACCES, pc, rule, fmt, ap);
	va_end(ap);
	return err;
}

int ebpf_verify_refuse_err(struct ebpf_verifier *v, int err, uint32_t pc, const char *rule,
			   const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	refuse(v, err, pc, rule, fmt, ap);
	va_end(ap);
	return err;
}

uint32_t ebpf_verify_hottest_loop(struct ebpf_verifier *v, uint32_t *ret_rounds)
{
	uint32_t *rounds = calloc(v->prog->n_insns, sizeof(*rounds)), best = UINT32_MAX;

	*ret_rounds = 1;
	for (const struct ebpf_state_node *n = v->at; rounds && n; n = n->parent) {
		if ((v->info[n->pc] & INSN_LOOP) && ++rounds[n->pc] > *ret_rounds) {
			*ret_rounds = rounds[n->pc];
			best = n->pc;
		}
	}
	free(rounds);
	return best;
}

uint32_t ebpf_verify_loop_end(const struct ebpf_verifier *v, uint32_t head)
{
	uint32_t end = head;

	for (uint32_t pc = head; pc < v->prog->n_insns; pc++) {
		const struct ebpf_insn *in = &v->prog->insns[pc];

		if ((v->info[pc] & INSN_START) && EBPF_CLASS(in->code) == EBPF_JMP &&
		    EBPF_OP(in->code) != EBPF_CALL && EBPF_OP(in->code) != EBPF_EXIT &&
		    ebpf_verify_target(in, pc) == head) {
			end = pc;
		}
	}
	return end;
}

int ebpf_verify_over_budget(struct ebpf_verifier *v)
{
	uint32_t rounds, head = ebpf_verify_hottest_loop(v, &rounds);

	if (head == UINT32_MAX) {
		report_hint(v->r, "shorten the longest path; helper calls count for more than one");
		return ebpf_verify_refuse(
			v, v->pc, "budget",
			"a path of this program costs %llu instructions or more; %s may "
			"cost %u",
			(unsigned long long)v->path_cost, v->hook->name, v->budget);
	}
	report_hint(v->r, "bound the loop's rounds, or make its body cheaper");
	return ebpf_verify_refuse(
		v, head, "budget",
		"the loop at %s may go round until the program costs more than the %u "
		"instructions that %s may",
		ebpf_verify_place_text(v, line_of(v->prog, head) ? ebpf_verify_loop_end(v, head)
								 : head),
		v->budget, v->hook->name);
}

int ebpf_verify_loop_over_budget(struct ebpf_verifier *v, const struct ebpf_loop *l, int64_t total)
{
	report_hint(v->r,
		    "bound its rounds more tightly (the last number), or make its body cheaper");
	return ebpf_verify_refuse(
		v, l->pc, "budget",
		"the loop at %s costs up to %lld in each of up to %lld rounds; with it "
		"the program costs up to %lld, and %s may cost %u",
		ebpf_verify_place_text(v, l->pc), (long long)l->round,
		(long long)l->rounds + l->began, (long long)total, v->hook->name, v->budget);
}

int ebpf_verify_log_start(struct ebpf_verifier *v)
{
	char *room = calloc(1, MAX_LOG + 4096);
	int err = room ? buf_add(&v->log, room, MAX_LOG + 4096) : -ENOMEM;

	free(room);
	buf_clear(&v->log); /* keep the memory: a million steps must not reallocate */
	return err;
}

static void log_reg(struct ebpf_verifier *v, const char *name, unsigned i)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[i];

	if (r->type != REG_NONE && i < 10) {
		buf_printf(&v->log, "  %s%u=%s", name, i, ebpf_verify_reg_text(v, r));
	}
}

/* "   17 | *n += 1;" before the first instruction of a source line. */
static void log_line(struct ebpf_verifier *v)
{
	const struct ebpf_line *l = line_of(v->prog, v->pc);
	const char *text = l && l->text ? l->text : "";
	size_t lead = strspn(text, " \t");

	if (text[lead] && l->insn == v->pc) {
		buf_printf(&v->log, "%5u | ", l->line);
		ebpf_source_line_clean(text + lead, EBPF_SOURCE_LINE_TEXT, &v->log);
		buf_puts(&v->log, "\n");
	}
}

void ebpf_verify_log_join(struct ebpf_verifier *v)
{
	buf_printf(&v->log, "  %*swhat all rounds begin with:", (int)v->depth * 2, "");
	for (unsigned i = 0; i < 10; i++) {
		log_reg(v, "r", i);
	}
	buf_puts(&v->log, "\n");
}

void ebpf_verify_log_state(struct ebpf_verifier *v)
{
	const struct ebpf_insn *in = &v->prog->insns[v->pc];

	if (v->log.len > MAX_LOG) {
		buf_clear(&v->log); /* keep the memory */
		buf_puts(&v->log, "(earlier steps left out)\n");
	}
	log_line(v);
	buf_printf(&v->log, "  %*s%u: ", (int)v->depth * 2, "", v->pc);
	ebpf_insn_text(v->prog->insns, v->prog->n_insns, v->pc, &v->log);
	buf_puts(&v->log, " ;");
	if (in->code == (EBPF_JMP | EBPF_EXIT)) {
		log_reg(v, "r", 0);
	} else if (in->code == (EBPF_JMP | EBPF_CALL)) {
		for (unsigned i = 1; i <= 5; i++) {
			log_reg(v, "r", i);
		}
	} else {
		log_reg(v, "r", in->dst);
		if (in->src != in->dst) {
			log_reg(v, "r", in->src);
		}
	}
	buf_puts(&v->log, "\n");
}

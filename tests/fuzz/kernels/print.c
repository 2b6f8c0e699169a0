/* Writes a random kernel as PTX. */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "tree.h"

struct printer {
	const struct kernel *k;
	FILE *to;
	unsigned labels;
	unsigned ends[DEPTH_MAX + 2]; /* labels after the open loops */
	unsigned n_ends;
};

static const char *const spaces[SPACES] = { "global", "shared", "local" };
static const char bases[SPACES][4] = { "gb", "sb", "lb" },
		  generics[SPACES][4] = { "gb", "sg", "lg" };

static void guard(const struct printer *p, const struct stmt *s)
{
	if (s->guard >= 0) {
		fprintf(p->to, "@%s%%p%d ", s->guard_not ? "!" : "", s->guard);
	}
}

static void operand(const struct printer *p, const struct stmt *s, unsigned i)
{
	char class = s->form->operands[i];

	if (class == 'k' || class == 'i') {
		fprintf(p->to, "%u", s->reg[i]);
	} else {
		fprintf(p->to, "%%%c%u",
			class == 'g'   ? 'f'
			: class == 'e' ? 'd'
				       : class,
			s->reg[i]);
	}
}

static void print_insn(const struct printer *p, const struct stmt *s)
{
	const char *text = s->form->text, class = s->form->operands[0];

	guard(p, s);
	if (!strchr(text, '%')) {
		fprintf(p->to, "%s ", text);
		for (unsigned i = 0; s->form->operands[i]; i++) {
			fputs(i ? ", " : "", p->to);
			operand(p, s, i);
		}
	} else {
		for (const char *c = text; *c; c++) {
			if (*c == '%' && isdigit((unsigned char)c[1])) {
				operand(p, s, (unsigned)(*++c - '0'));
			} else {
				fputc(*c, p->to);
			}
		}
	}
	fputs(*text == '{' ? "\n" : ";\n", p->to);
	if (class == 'g') {
		fprintf(p->to,
			"testp.notanumber.f32 %%pt, %%f%u; @%%pt mov.f32 %%f%u, 0f7FFFFFFF;\n",
			s->reg[0], s->reg[0]);
	} else if (class == 'e') {
		fprintf(p->to,
			"testp.notanumber.f64 %%pt, %%d%u; @%%pt mov.f64 %%d%u, "
			"0d7FF8000000000000;\n",
			s->reg[0], s->reg[0]);
	}
}

static void print_memory(const struct printer *p, const struct stmt *s)
{
	static const char types[2][17][4] = {
		{ [1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64", [16] = "u64" },
		{ [1] = "s8", [2] = "s16", [4] = "b32", [8] = "b64", [16] = "b64" },
	};
	bool load = s->kind == LOAD, narrow = s->space == SHARED && !s->generic;
	const char *base = s->generic ? generics[s->space] : bases[s->space];
	char address[32], value[32];

	if (s->mode) {
		fprintf(p->to, "and.b32 %%t0, %%r%u, %u; mul.lo.u32 %%t0, %%t0, %u; ", s->reg[1],
			PRIVATE_BYTES / s->width - 1, s->width);
		fprintf(p->to,
			narrow ? "add.u32 %%t0, %%t0, %%%s;\n"
			       : "cvt.u64.u32 %%u0, %%t0; add.u64 %%u0, %%u0, %%%s;\n",
			base);
		snprintf(address, sizeof(address), "[%s]", narrow ? "%t0" : "%u0");
	} else {
		snprintf(address, sizeof(address), "[%%%s+%u]", base, s->number);
	}
	if (s->width == 16) {
		snprintf(value, sizeof(value), "{%%w%u, %%w%u}", s->reg[2], (s->reg[2] + 1u) % N_W);
	} else {
		snprintf(value, sizeof(value), s->width == 8 ? "%%w%u" : "%%r%u",
			 s->width == 8 ? s->reg[2] : s->reg[0]);
	}
	guard(p, s);
	fprintf(p->to, "%s%s%s%s.%s %s, %s;\n", load ? "ld" : "st", s->generic ? "" : ".",
		s->generic ? "" : spaces[s->space], s->width == 16 ? ".v2" : "",
		types[s->is_signed][s->width], load ? value : address, load ? address : value);
}

static void print_sum(const struct printer *p, const struct stmt *s)
{
	const struct sum_kind *k = &sum_kinds[s->number];
	const char *base = s->is_signed ? (s->mode ? "bsg" : "bs") : "sums";
	char value[8];

	snprintf(value, sizeof(value), k->bytes == 8 ? "%%w%u" : "%%r%u",
		 k->bytes == 8 ? s->reg[2] : s->reg[0]);
	guard(p, s);
	fprintf(p->to, "%s%s.%s %s[%%%s+%u], %s;\n", s->generic ? "atom" : "red",
		s->mode	       ? ""
		: s->is_signed ? ".shared"
			       : ".global",
		k->op,
		!s->generic	? ""
		: k->bytes == 8 ? "%u1, "
				: "%t1, ",
		base, k->at, value);
}

static void print_call(const struct printer *p, const struct stmt *s)
{
	fprintf(p->to,
		"{ .param .align 8 .b8 ret[16]; .param .b32 a; .param .b64 b; .param .b32 c;\n"
		"st.param.b32 [a], %%r%u; st.param.b64 [b], %%w%u; st.param.f32 [c], %%f%u;\n"
		"call (ret), f%u, (a, b, c);\n"
		"ld.param.b64 %%w%u, [ret]; ld.param.b32 %%r%u, [ret+8]; }\n",
		s->reg[1], s->reg[2], s->reg[3], s->number, s->reg[2], s->reg[0]);
}

static void print_shuffle(const struct printer *p, const struct stmt *s)
{
	static const char *const modes[] = { "up", "down", "bfly", "idx" };
	unsigned c = s->generic ? 16 << 8 | 31 : s->mask | (s->mode == 0 ? 0 : 31);

	if (s->generic && s->mode == 0) {
		c = 16 << 8;
	}
	fprintf(p->to, "%sshfl.sync.%s.b32 %%r%u|%%p%u, %%r%u, %%r%u, %u, 0x%x;\n",
		s->generic ? "@%low " : "", modes[s->mode], s->reg[0], s->reg[3], s->reg[1],
		s->reg[2], c, s->generic ? 0xffff : 0xffffffff);
}

static void print_together(const struct printer *p, const struct stmt *s)
{
	static const char *const votes[] = { "all", "any", "uni" }, *const reds[] = { "popc", "and",
										      "or" };
	static const char *const ops[] = { "add", "min", "max", "and", "or", "xor" };

	switch (s->kind) {
	case SHUFFLE:
		print_shuffle(p, s);
		break;
	case VOTE:
		if (s->mode == 3) {
			fprintf(p->to, "vote.sync.ballot.b32 %%r%u, %%p%u, 0xffffffff;\n",
				s->reg[0], s->reg[3]);
		} else {
			fprintf(p->to, "vote.sync.%s.pred %%p%u, %%p%u, 0xffffffff;\n",
				votes[s->mode], s->reg[4], s->reg[3]);
		}
		break;
	case MATCH:
		fprintf(p->to, "and.b32 %%t0, %%r%u, 3;\n", s->reg[1]);
		fprintf(p->to,
			s->mode == 0 ? "match.any.sync.b32 %%r%u, %%t0, 0xffffffff;\n"
				     : "match.all.sync.b32 %%r%u|%%p%u, %%t0, 0xffffffff;\n",
			s->reg[0], s->reg[3]);
		break;
	case REDUX:
		fprintf(p->to, "redux.sync.%s.%s32 %%r%u, %%r%u, 0xffffffff;\n", ops[s->mode],
			s->mode > 2    ? "b"
			: s->is_signed ? "s"
				       : "u",
			s->reg[0], s->reg[1]);
		break;
	case EXCHANGE:
		fprintf(p->to,
			"mad.lo.u32 %%t0, %%tx, 4, %%swap; st.shared.u32 [%%t0], %%r%u; bar.sync "
			"0;\n"
			"add.u32 %%t0, %%tx, %u; rem.u32 %%t0, %%t0, %u; mad.lo.u32 %%t0, %%t0, 4, "
			"%%swap;\n"
			"ld.shared.u32 %%r%u, [%%t0]; bar.sync 0;\n",
			s->reg[1], s->number, p->k->threads, s->reg[0]);
		break;
	default:
		if (s->mode == 0) {
			fprintf(p->to, "bar.red.popc.u32 %%r%u, 1, %%p%u;\n", s->reg[0], s->reg[3]);
		} else {
			fprintf(p->to, "bar.red.%s.pred %%p%u, 2, %%p%u;\n", reds[s->mode],
				s->reg[4], s->reg[3]);
		}
	}
}

static void print_list(struct printer *p, const struct stmt *s);

static void print_if(struct printer *p, const struct stmt *s)
{
	unsigned other = p->labels++, end = p->labels++;

	fprintf(p->to, "@%s%%p%d bra L%u;\n", s->guard_not ? "" : "!", s->guard, other);
	print_list(p, s->body[0]);
	if (s->body[1]) {
		fprintf(p->to, "bra L%u;\n", end);
	}
	fprintf(p->to, "L%u:\n", other);
	print_list(p, s->body[1]);
	fprintf(p->to, "L%u:\n", end);
}

static void print_loop(struct printer *p, const struct stmt *s)
{
	unsigned top = p->labels++, end = p->labels++;

	fprintf(p->to, "and.b32 %%c%u, %%r%u, %u;\nL%u:\n", s->number, s->reg[0], s->mask, top);
	if (s->kind == LOOP) {
		fprintf(p->to,
			"setp.eq.u32 %%pt, %%c%u, 0;\n@%%pt bra L%u;\nsub.u32 %%c%u, %%c%u, 1;\n",
			s->number, end, s->number, s->number);
	}
	p->ends[p->n_ends++] = end;
	print_list(p, s->body[0]);
	p->n_ends--;
	if (s->kind == LOOP) {
		fprintf(p->to, "bra L%u;\n", top);
	} else {
		fprintf(p->to,
			"setp.eq.u32 %%pt, %%c%u, 0;\n@%%pt bra L%u;\nsub.u32 %%c%u, %%c%u, 1;\n",
			s->number, end, s->number, s->number);
		fprintf(p->to, "@%s%%p%d bra L%u;\n", s->guard_not ? "!" : "", s->guard, top);
	}
	fprintf(p->to, "L%u:\n", end);
}

static void print_switch(struct printer *p, const struct stmt *s)
{
	unsigned first = p->labels, end = p->labels + 4;

	p->labels += 5;
	fprintf(p->to,
		"and.b32 %%t0, %%r%u, 3;\nT%u: .branchtargets L%u, L%u, L%u, L%u;\nbrx.idx %%t0, "
		"T%u;\n",
		s->reg[0], first, first, first + 1, first + 2, first + 3, first);
	for (unsigned i = 0; i < 4; i++) {
		fprintf(p->to, "L%u:\n", first + i);
		print_list(p, s->body[i]);
		fprintf(p->to, "bra L%u;\n", end);
	}
	fprintf(p->to, "L%u:\n", end);
}

static void print_list(struct printer *p, const struct stmt *s)
{
	for (; s; s = s->next) {
		switch (s->kind) {
		case INSN:
			print_insn(p, s);
			break;
		case IF:
			print_if(p, s);
			break;
		case LOOP:
		case REPEAT:
			print_loop(p, s);
			break;
		case SWITCH:
			print_switch(p, s);
			break;
		case LEAVE:
			fprintf(p->to, "@%s%%p%d bra L%u;\n", s->guard_not ? "!" : "", s->guard,
				p->ends[p->n_ends - s->number]);
			break;
		case CALL:
			print_call(p, s);
			break;
		case LOAD:
		case STORE:
			print_memory(p, s);
			break;
		case SUM:
			print_sum(p, s);
			break;
		default:
			print_together(p, s);
		}
	}
}

static void registers(const struct printer *p)
{
	fprintf(p->to,
		".reg .b32 %%r<%d>, %%t<4>, %%c<%u>, %%tx, %%sb, %%bs, %%swap; .reg .b64 %%w<%d>, "
		"%%u<4>, %%gb, %%sg, "
		"%%lb, %%lg, %%sums, %%bsg, %%ib;\n.reg .b16 %%h<%d>; .reg .f32 %%f<%d>; .reg .f64 "
		"%%d<%d>; "
		".reg .pred %%p<%d>, %%pt, %%low;\n",
		N_R, p->k->loops + 1, N_W, N_H, N_F, N_D, N_P);
}

static void print_function(struct printer *p, unsigned n)
{
	fprintf(p->to,
		".func (.param .align 8 .b8 ret[16]) f%u(.param .b32 a, .param .b64 b, .param .b32 "
		"c)\n{\n",
		n);
	registers(p);
	for (unsigned i = 0; i < N_R; i++) {
		fprintf(p->to, "ld.param.b32 %%r%u, [a];%s", i, i % 2 ? "" : "\n");
		if (i % 2) {
			fprintf(p->to, " not.b32 %%r%u, %%r%u;\n", i, i);
		}
	}
	for (unsigned i = 0; i < N_W; i++) {
		fprintf(p->to, "ld.param.b64 %%w%u, [b];\n", i);
	}
	for (unsigned i = 0; i < N_F; i++) {
		fprintf(p->to, "ld.param.f32 %%f%u, [c];\n", i);
	}
	for (unsigned i = 0; i < N_D; i++) {
		fprintf(p->to,
			"mov.f64 %%d%u, 0d0000000000000000; mov.b16 %%h%u, 0; setp.ne.u32 %%p%u, "
			"0, 0;\n",
			i, i, i);
	}
	print_list(p, p->k->functions[n]);
	fputs("xor.b32 %r0, %r0, %r1;\nst.param.b64 [ret], %w0; st.param.b32 [ret+8], "
	      "%r0;\nret;\n}\n",
	      p->to);
}

static void print_start(const struct printer *p)
{
	fprintf(p->to,
		"mov.u32 %%tx, %%tid.x; mov.u32 %%t0, %%ctaid.x; mov.u32 %%t1, %%ntid.x; "
		"mad.lo.u32 %%t0, %%t0, %%t1, %%tx;\n"
		"ld.param.u64 %%ib, [in]; ld.param.u64 %%gb, [out]; ld.param.u64 %%sums, "
		"[totals];\n"
		"cvta.to.global.u64 %%ib, %%ib; mad.wide.u32 %%ib, %%t0, %u, %%ib; mad.wide.u32 "
		"%%gb, %%t0, %u, %%gb;\n"
		"mov.u32 %%sb, own; mad.lo.u32 %%sb, %%tx, %u, %%sb; cvt.u64.u32 %%sg, %%sb; "
		"cvta.shared.u64 %%sg, %%sg;\n"
		"mov.u64 %%lb, stack; cvta.local.u64 %%lg, %%lb; mov.u32 %%bs, block; cvt.u64.u32 "
		"%%bsg, %%bs; "
		"cvta.shared.u64 %%bsg, %%bsg; mov.u32 %%swap, slots;\n"
		"and.b32 %%t0, %%tx, 16; setp.eq.u32 %%low, %%t0, 0;\n",
		IN_BYTES, OUT_BYTES, PRIVATE_BYTES);
	for (unsigned i = 0; i < PRIVATE_BYTES; i += 8) {
		fprintf(p->to, "st.shared.u64 [%%sb+%u], 0; st.local.u64 [%%lb+%u], 0;\n", i, i);
	}
	fputs("setp.eq.u32 %pt, %tx, 0;\n", p->to);
	for (unsigned i = 0; i < PRIVATE_BYTES; i += 8) {
		fprintf(p->to, "@%%pt st.shared.u64 [%%bs+%u], 0;\n", i);
	}
	fputs("bar.sync 0;\n", p->to);
	for (unsigned i = 0; i < N_R; i++) {
		fprintf(p->to, "ld.global.u32 %%r%u, [%%ib+%u];\n", i, 4 * i);
	}
	for (unsigned i = 0; i < N_W; i++) {
		fprintf(p->to, "ld.global.u64 %%w%u, [%%ib+%u];\n", i, 32 + 8 * (i % 4));
	}
	fputs("not.b64 %w4, %w4; not.b64 %w5, %w5;\n", p->to);
	for (unsigned i = 0; i < N_F; i++) {
		fprintf(p->to, "ld.global.f32 %%f%u, [%%ib+%u];\n", i, 64 + 4 * i);
	}
	for (unsigned i = 0; i < N_D; i++) {
		fprintf(p->to, "ld.global.f64 %%d%u, [%%ib+%u]; ld.global.u16 %%h%u, [%%ib+%u];\n",
			i, 88 + 8 * i, i, 120 + 2 * i);
		fprintf(p->to, "and.b32 %%t0, %%r%u, %u; setp.ne.u32 %%p%u, %%t0, 0;\n", i, 1u << i,
			i);
	}
}

static void print_end(const struct printer *p)
{
	fputs("bar.sync 0;\n", p->to);
	for (unsigned i = 0; i < PRIVATE_BYTES; i += 8) {
		fprintf(p->to,
			"ld.shared.u64 %%u0, [%%sb+%u]; st.global.u64 [%%gb+%u], %%u0; "
			"ld.local.u64 %%u0, [%%lb+%u]; "
			"st.global.u64 [%%gb+%u], %%u0; ld.shared.u64 %%u0, [%%bs+%u]; "
			"st.global.u64 [%%gb+%u], %%u0;\n",
			i, 64 + i, i, 128 + i, i, 192 + i);
	}
	for (unsigned i = 0; i < N_R; i++) {
		fprintf(p->to, "st.global.u32 [%%gb+%u], %%r%u;\n", 256 + 4 * i, i);
	}
	for (unsigned i = 0; i < N_W; i++) {
		fprintf(p->to, "st.global.u64 [%%gb+%u], %%w%u; st.global.f32 [%%gb+%u], %%f%u;\n",
			288 + 8 * i, i, 336 + 4 * i, i);
	}
	for (unsigned i = 0; i < N_D; i++) {
		fprintf(p->to, "st.global.f64 [%%gb+%u], %%d%u; st.global.u16 [%%gb+%u], %%h%u; ",
			360 + 8 * i, i, 392 + 2 * i, i);
		fprintf(p->to, "selp.u32 %%t0, 1, 0, %%p%u; st.global.u32 [%%gb+%u], %%t0;\n", i,
			400 + 4 * i);
	}
	fputs("ret;\n}\n", p->to);
}

void kernel_print(const struct kernel *k, FILE *to)
{
	struct printer p = { .k = k, .to = to };

	fprintf(to,
		".version 7.1\n.target sm_80\n.address_size 64\n"
		".shared .align 16 .b8 own[%u];\n.shared .align 16 .b8 block[%u];\n.shared .align "
		"16 .b8 slots[%u];\n",
		THREADS_MAX * PRIVATE_BYTES, PRIVATE_BYTES, THREADS_MAX * 4);
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		print_function(&p, i);
	}
	fputs(".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 totals)\n{\n"
	      ".local .align 16 .b8 stack[64];\n",
	      to);
	registers(&p);
	print_start(&p);
	print_list(&p, k->body);
	print_end(&p);
}

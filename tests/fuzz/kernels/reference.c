/* Runs a random kernel one lane after the other. Collective statements occur only in the outermost
 * list; each lane runs the statements between them by itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tree.h"

struct run {
	const struct kernel *k;
	struct lane *lanes; /* lanes of one block */
	uint8_t *sums;
	uint8_t block_sums[SUMS_BYTES];
};

static uint64_t class_mask(char class)
{
	return class == 'p'	      ? 1
	       : class == 'h'	      ? 0xffff
	       : strchr("wde", class) ? UINT64_MAX
				      : UINT32_MAX;
}

static uint64_t *lane_register(struct lane *l, char class, unsigned number)
{
	switch (class) {
	case 'r':
		return &l->r[number];
	case 'w':
		return &l->w[number];
	case 'h':
		return &l->h[number];
	case 'f':
	case 'g':
		return &l->f[number];
	case 'p':
		return &l->p[number];
	default:
		return &l->d[number];
	}
}

static bool allowed(const struct stmt *s, const struct lane *l)
{
	return s->guard < 0 || (l->p[s->guard] != 0) != s->guard_not;
}

static void run_insn(const struct stmt *s, struct lane *l)
{
	const char *classes = s->form->operands;
	uint64_t x[4] = { 0 };

	for (int i = 1; classes[i]; i++) {
		x[i - 1] = strchr("ki", classes[i]) ? s->reg[i]
						    : *lane_register(l, classes[i], s->reg[i]);
	}
	*lane_register(l, classes[0], s->reg[0]) = form_value(s->form, x) & class_mask(classes[0]);
}

static unsigned offset(const struct stmt *s, const struct lane *l)
{
	return s->mode ? (unsigned)(l->r[s->reg[1]] % (PRIVATE_BYTES / s->width)) * s->width
		       : s->number;
}

/* Loads or stores memory. 16 bytes are two 64-bit registers: the given one and the next. */
static void run_memory(const struct stmt *s, struct lane *l)
{
	uint8_t *at = l->memory[s->space] + offset(s, l);
	uint64_t *wide[2] = { &l->w[s->reg[2]], &l->w[(s->reg[2] + 1) % N_W] }, v = 0;

	if (s->width >= 8) {
		for (unsigned i = 0; i < s->width / 8; i++) {
			s->kind == LOAD ? memcpy(wide[i], at + 8 * i, 8)
					: memcpy(at + 8 * i, wide[i], 8);
		}
		return;
	}
	if (s->kind == STORE) {
		memcpy(at, &l->r[s->reg[0]], s->width);
		return;
	}
	memcpy(&v, at, s->width);
	if (s->is_signed && s->width < 4 && v >> (8 * s->width - 1) & 1) {
		v |= ~UINT64_C(0) << 8 * s->width;
	}
	l->r[s->reg[0]] = v & UINT32_MAX;
}

#define SUM_OP(name, value)                                                                        \
	static uint64_t name(uint64_t a, uint64_t b)                                               \
	{                                                                                          \
		return value;                                                                      \
	}
SUM_OP(sum_add, a + b)
SUM_OP(sum_and, a &b)
SUM_OP(sum_or, a | b)
SUM_OP(sum_xor, a ^ b)
SUM_OP(sum_min_u, a < b ? a : b)
SUM_OP(sum_max_u, a > b ? a : b)
SUM_OP(sum_min_s32, (int32_t)a < (int32_t)b ? a : b)
SUM_OP(sum_max_s32, (int32_t)a > (int32_t)b ? a : b)
SUM_OP(sum_min_s64, (int64_t)a < (int64_t)b ? a : b)
SUM_OP(sum_max_s64, (int64_t)a > (int64_t)b ? a : b)

const struct sum_kind sum_kinds[SUM_KINDS] = {
	{ "add.u32", 4, 0, sum_add },	   { "and.b32", 4, 4, sum_and },
	{ "or.b32", 4, 8, sum_or },	   { "xor.b32", 4, 12, sum_xor },
	{ "min.u32", 4, 16, sum_min_u },   { "max.u32", 4, 20, sum_max_u },
	{ "min.s32", 4, 24, sum_min_s32 }, { "max.s32", 4, 28, sum_max_s32 },
	{ "add.u64", 8, 32, sum_add },	   { "min.s64", 8, 40, sum_min_s64 },
	{ "max.s64", 8, 48, sum_max_s64 }, { "xor.b64", 8, 56, sum_xor },
};

static void run_sum(struct run *r, const struct stmt *s, struct lane *l)
{
	const struct sum_kind *k = &sum_kinds[s->number];
	uint8_t *at = (s->is_signed ? r->block_sums : r->sums) + k->at;
	uint64_t old = 0;

	memcpy(&old, at, k->bytes);
	old = k->apply(old, k->bytes == 8 ? l->w[s->reg[2]] : l->r[s->reg[0]]);
	memcpy(at, &old, k->bytes);
}

static int run_list(struct run *r, const struct stmt *s, struct lane *l);

static void run_call(struct run *r, const struct stmt *s, struct lane *l)
{
	struct lane own = { 0 };

	for (unsigned i = 0; i < N_R; i++) {
		own.r[i] = i % 2 ? ~l->r[s->reg[1]] & UINT32_MAX : l->r[s->reg[1]];
	}
	for (unsigned i = 0; i < N_W; i++) {
		own.w[i] = l->w[s->reg[2]];
	}
	for (unsigned i = 0; i < N_F; i++) {
		own.f[i] = l->f[s->reg[3]];
	}
	run_list(r, r->k->functions[s->number], &own);
	l->r[s->reg[0]] = own.r[0] ^ own.r[1];
	l->w[s->reg[2]] = own.w[0];
}

/* Runs one statement. Returns the number of loops to leave. */
static int run_one(struct run *r, const struct stmt *s, struct lane *l)
{
	unsigned counter = (unsigned)l->r[s->reg[0]] & s->mask;
	int out = 0;

	switch (s->kind) {
	case IF:
		return run_list(r, s->body[allowed(s, l) ? 0 : 1], l);
	case LOOP:
		while (out == 0 && counter-- > 0) {
			out = run_list(r, s->body[0], l);
		}
		return out > 0 ? out - 1 : 0;
	case REPEAT:
		do {
			out = run_list(r, s->body[0], l);
		} while (out == 0 && counter-- > 0 && allowed(s, l));
		return out > 0 ? out - 1 : 0;
	case SWITCH:
		return run_list(r, s->body[l->r[s->reg[0]] & 3], l);
	case LEAVE:
		return allowed(s, l) ? (int)s->number : 0;
	case CALL:
		run_call(r, s, l);
		return 0;
	case INSN:
		allowed(s, l) ? run_insn(s, l) : (void)0;
		return 0;
	case SUM:
		allowed(s, l) ? run_sum(r, s, l) : (void)0;
		return 0;
	default:
		allowed(s, l) ? run_memory(s, l) : (void)0;
		return 0;
	}
}

static int run_list(struct run *r, const struct stmt *s, struct lane *l)
{
	int out = 0;

	for (; s && out == 0; s = s->next) {
		out = run_one(r, s, l);
	}
	return out;
}

/* Computes a shuffle. was: the lanes of one warp before the statement; results go to l. */
static void shuffle(const struct stmt *s, const struct lane *was, struct lane *l, unsigned lane)
{
	unsigned c = s->generic ? 16 << 8 | 31 : s->mask | (s->mode == 0 ? 0 : 31);
	unsigned b = (unsigned)was[lane].r[s->reg[2]] & 31, segments = c >> 8 & 31, clamp = c & 31,
		 from, end;
	bool in;

	if (s->generic && lane >= 16) {
		return;
	}
	if (s->generic && s->mode == 0) {
		clamp = 0;
	}
	end = (lane & segments) | (clamp & ~segments);
	from = s->mode == 0   ? lane - b
	       : s->mode == 1 ? lane + b
	       : s->mode == 2 ? lane ^ b
			      : (lane & segments) | (b & ~segments);
	in = s->mode == 0 ? (int)from >= (int)end : from <= end;
	from = in ? from : lane;
	l->r[s->reg[0]] = was[from].r[s->reg[1]];
	l->p[s->reg[3]] = in;
}

static void vote(const struct stmt *s, const struct lane *was, struct lane *l)
{
	uint32_t ballot = 0;

	for (int i = 0; i < 32; i++) {
		ballot |= (uint32_t)(was[i].p[s->reg[3]] & 1) << i;
	}
	if (s->mode == 3) {
		l->r[s->reg[0]] = ballot;
	} else {
		l->p[s->reg[4]] = s->mode == 0	 ? ballot == UINT32_MAX
				  : s->mode == 1 ? ballot != 0
						 : ballot == 0 || ballot == UINT32_MAX;
	}
}

/* Computes match. Uses values of few bits, so that some are equal. */
static void match(const struct stmt *s, const struct lane *was, struct lane *l, unsigned lane)
{
	uint32_t mask = 0;

	for (int i = 0; i < 32; i++) {
		mask |= (uint32_t)(((was[i].r[s->reg[1]] ^ was[lane].r[s->reg[1]]) & 3) == 0) << i;
	}
	l->r[s->reg[0]] = s->mode == 0 || mask == UINT32_MAX ? mask : 0;
	if (s->mode == 1) {
		l->p[s->reg[3]] = mask == UINT32_MAX;
	}
}

static void redux(const struct stmt *s, const struct lane *was, struct lane *l)
{
	uint32_t v = (uint32_t)was[0].r[s->reg[1]];

	for (int i = 1; i < 32; i++) {
		uint32_t w = (uint32_t)was[i].r[s->reg[1]];
		bool less = s->is_signed ? (int32_t)w < (int32_t)v : w < v;

		v = s->mode == 0   ? v + w
		    : s->mode == 1 ? (less ? w : v)
		    : s->mode == 2 ? (less ? v : w)
		    : s->mode == 3 ? (v & w)
		    : s->mode == 4 ? (v | w)
				   : (v ^ w);
	}
	l->r[s->reg[0]] = v;
}

static void of_block(const struct run *r, const struct stmt *s, const struct lane *was,
		     struct lane *l, unsigned thread)
{
	unsigned trues = 0;

	if (s->kind == EXCHANGE) {
		l->r[s->reg[0]] = was[(thread + s->number) % r->k->threads].r[s->reg[1]];
		return;
	}
	for (unsigned i = 0; i < r->k->threads; i++) {
		trues += was[i].p[s->reg[3]] & 1;
	}
	if (s->mode == 0) {
		l->r[s->reg[0]] = trues;
	} else {
		l->p[s->reg[4]] = s->mode == 1 ? trues == r->k->threads : trues > 0;
	}
}

static void run_together(struct run *r, const struct stmt *s)
{
	static struct lane before[THREADS_MAX];

	memcpy(before, r->lanes, sizeof(before));
	for (unsigned t = 0; t < r->k->threads; t++) {
		const struct lane *warp = before + t / 32 * 32;
		struct lane *l = &r->lanes[t];

		switch (s->kind) {
		case SHUFFLE:
			shuffle(s, warp, l, t % 32);
			break;
		case VOTE:
			vote(s, warp, l);
			break;
		case MATCH:
			match(s, warp, l, t % 32);
			break;
		case REDUX:
			redux(s, warp, l);
			break;
		default:
			of_block(r, s, before, l, t);
		}
	}
}

static void take(struct lane *l, const uint8_t *in)
{
	memset(l, 0, sizeof(*l));
	for (unsigned i = 0; i < N_R; i++) {
		memcpy(&l->r[i], in + 4 * i, 4);
	}
	for (unsigned i = 0; i < N_W; i++) {
		memcpy(&l->w[i], in + 32 + 8 * (i % 4), 8);
		l->w[i] ^= i < 4 ? 0 : UINT64_MAX;
	}
	for (unsigned i = 0; i < N_F; i++) {
		memcpy(&l->f[i], in + 64 + 4 * i, 4);
	}
	for (unsigned i = 0; i < N_D; i++) {
		memcpy(&l->d[i], in + 88 + 8 * i, 8);
	}
	for (unsigned i = 0; i < N_H; i++) {
		memcpy(&l->h[i], in + 120 + 2 * i, 2);
	}
	for (unsigned i = 0; i < N_P; i++) {
		l->p[i] = l->r[i] >> i & 1;
	}
}

/* Stores the outputs in the same order as the end of the kernel text. */
static void give(const struct run *r, const struct lane *l, uint8_t *out)
{
	memset(out, 0, OUT_BYTES);
	memcpy(out, l->memory[GLOBAL], PRIVATE_BYTES);
	memcpy(out + 64, l->memory[SHARED], PRIVATE_BYTES);
	memcpy(out + 128, l->memory[LOCAL], PRIVATE_BYTES);
	memcpy(out + 192, r->block_sums, PRIVATE_BYTES);
	for (unsigned i = 0; i < N_R; i++) {
		memcpy(out + 256 + 4 * i, &l->r[i], 4);
	}
	for (unsigned i = 0; i < N_W; i++) {
		memcpy(out + 288 + 8 * i, &l->w[i], 8);
	}
	for (unsigned i = 0; i < N_F; i++) {
		memcpy(out + 336 + 4 * i, &l->f[i], 4);
	}
	for (unsigned i = 0; i < N_D; i++) {
		memcpy(out + 360 + 8 * i, &l->d[i], 8);
	}
	for (unsigned i = 0; i < N_H; i++) {
		memcpy(out + 392 + 2 * i, &l->h[i], 2);
	}
	for (unsigned i = 0; i < N_P; i++) {
		out[400 + 4 * i] = (uint8_t)l->p[i];
	}
}

void kernel_reference(const struct kernel *k, const uint8_t *in, uint8_t *out, uint8_t *sums)
{
	static struct lane lanes[THREADS_MAX];
	struct run r = { .k = k, .lanes = lanes, .sums = sums };

	memset(sums, 0, SUMS_BYTES);
	for (unsigned b = 0; b < BLOCKS; b++) {
		memset(r.block_sums, 0, sizeof(r.block_sums));
		for (unsigned t = 0; t < k->threads; t++) {
			take(&lanes[t], in + (b * k->threads + t) * IN_BYTES);
		}
		for (const struct stmt *s = k->body; s; s = s->next) {
			if (s->kind > LAST_LOCAL) {
				run_together(&r, s);
				continue;
			}
			for (unsigned t = 0; t < k->threads; t++) {
				run_one(&r, s, &lanes[t]);
			}
		}
		for (unsigned t = 0; t < k->threads; t++) {
			give(&r, &lanes[t], out + (b * k->threads + t) * OUT_BYTES);
		}
	}
}

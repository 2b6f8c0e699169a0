/* Decoding of video instructions: vadd and related ones on one, two or four parts of registers. */
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/op/video.h"

#include <errno.h>
#include <string.h>

/* A register may have a selector as suffix: %r1.b0, %r2.h32. Cuts it off. */
struct exec_selected {
	struct ptx_operand operand;
	char name[256];
	const char *selector; /* points into name; "" if there is none */
	bool negated;
};

static int cut(struct exec_decoder *d, const struct ptx_operand *o, struct exec_selected *ret)
{
	char *dot;

	ret->negated = o->kind == PTX_MINUS;
	o = ret->negated ? &o->args[0] : o;
	ret->operand = *o;
	ret->selector = "";
	if (o->kind != PTX_NAME) {
		return 0;
	}
	if (strlen(o->name) >= sizeof(ret->name)) {
		return exec_dec_fail(d, "a name is too long");
	}
	memcpy(ret->name, o->name, strlen(o->name) + 1);
	dot = strrchr(ret->name, '.');
	if (dot && dot != ret->name) {
		*dot = '\0';
		ret->operand.name = ret->name;
		ret->selector = dot + 1;
	}
	return 0;
}

static int bad_selector(struct exec_decoder *d, const char *s)
{
	return exec_dec_fail(d, ".%s selects no parts here", s);
}

/* Returns the part that a scalar instruction's selector names. */
static int scalar_part(struct exec_decoder *d, const char *s, uint32_t *ret)
{
	static const char *const words[PART_COUNT] = { "", "b0", "b1", "b2", "b3", "h0", "h1" };

	for (uint32_t i = 0; i < PART_COUNT; i++) {
		if (strcmp(s, words[i]) == 0) {
			*ret = i;
			return 0;
		}
	}
	return bad_selector(d, s);
}

/* "h32", "b7654": for each part, from the highest down, its source. */
static int vector_parts(struct exec_decoder *d, const char *s, unsigned n, uint32_t none,
			uint32_t *ret)
{
	uint32_t v = 0;

	if (!*s) {
		*ret = none;
		return 0;
	}
	if (s[0] != (n == 2 ? 'h' : 'b') || strlen(s) != n + 1) {
		return bad_selector(d, s);
	}
	for (unsigned i = 1; i <= n; i++) {
		if (s[i] < '0' || s[i] >= (char)('0' + 2 * n)) {
			return bad_selector(d, s);
		}
		v = v << 4 | (uint32_t)(s[i] - '0');
	}
	*ret = v;
	return 0;
}

/* "h1", "b310": the parts of the result that are written. */
static int vector_mask(struct exec_decoder *d, const char *s, unsigned n, uint32_t *ret)
{
	char above = (char)('0' + n);
	uint32_t v = 0;

	if (*s && (s[0] != (n == 2 ? 'h' : 'b') || !s[1])) {
		return bad_selector(d, s);
	}
	for (const char *p = s + (*s != '\0'); *p; p++) {
		if (*p < '0' || *p >= above) {
			return bad_selector(d, s);
		}
		v |= 1u << (*p - '0');
		above = *p;
	}
	*ret = *s ? v : (1u << n) - 1;
	return 0;
}

static int take_sign(struct exec_decoder *d, struct exec_op *op, uint8_t flag)
{
	static const char *const words[] = { ".u32", ".s32" };
	int first = -1;

	/* in order: of the destination, of a, of b */
	for (unsigned i = 0; i < d->insn->n_modifiers && first < 0; i++) {
		if (!(d->used_modifiers >> i & 1)) {
			for (int k = 0; k < 2; k++) {
				if (strcmp(d->insn->modifiers[i], words[k]) == 0) {
					d->used_modifiers |= 1u << i;
					first = k;
				}
			}
		}
	}
	if (first == 1) {
		op->flags |= flag;
	}
	return first < 0 ? exec_dec_fail(d, ".u32 or .s32 is expected") : 0;
}

static int take_words(struct exec_decoder *d, struct exec_op *op)
{
	static const char *const cmps[] = { ".eq", ".ne", ".lt", ".le", ".gt", ".ge" };
	static const char *const seconds[] = { NULL, ".add", ".min", ".max" };
	static const char *const modes[] = { ".clamp", ".wrap" };
	bool shift = op->sub == VIDEO_SHL || op->sub == VIDEO_SHR;
	int cmp = op->sub == VIDEO_SET ? exec_dec_pick(d, cmps, 6, -1) : CMP_EQ;
	int mode = shift ? exec_dec_pick(d, modes, 2, -1) : 1, err = 0;

	if (op->sub != VIDEO_MAD) {
		op->type2 = (uint8_t)exec_dec_pick(d, seconds, op->n == 1 ? 4 : 2, SECOND_NONE);
	}
	op->flags |= mode == 0 ? VIDEO_CLAMP : 0;
	if (op->sub != VIDEO_SET) {
		op->flags |= exec_dec_has(d, ".sat") ? VIDEO_SAT : 0;
		err = take_sign(d, op, VIDEO_D_SIGNED);
	}
	if (op->sub == VIDEO_MAD) {
		op->flags |= exec_dec_has(d, ".po") ? VIDEO_PLUS_ONE : 0;
		op->flags |= exec_dec_has(d, ".shr7") ? VIDEO_SHR7 : 0;
		op->flags |= exec_dec_has(d, ".shr15") ? VIDEO_SHR15 : 0;
	}
	op->type = (uint8_t)cmp;
	if (cmp < 0 || mode < 0) {
		return exec_dec_fail(d, "a comparison, or .clamp or .wrap, is expected");
	}
	if (err == 0) {
		err = take_sign(d, op, VIDEO_A_SIGNED);
	}
	if (err == 0) {
		err = take_sign(d, op, VIDEO_B_SIGNED);
	}
	return err == 0 && shift && op->flags & VIDEO_B_SIGNED
		       ? exec_dec_fail(d, "a shift is by .u32")
		       : err;
}

static int take_parts(struct exec_decoder *d, struct exec_op *op, const struct exec_selected *in)
{
	uint32_t a = 0, b = 0, dest = 0;
	int err;

	if (op->n == 1) {
		err = scalar_part(d, in[0].selector, &dest);
		if (err == 0) {
			err = scalar_part(d, in[1].selector, &a);
		}
		if (err == 0) {
			err = scalar_part(d, in[2].selector, &b);
		}
		if (err == 0 && dest != PART_ALL) {
			if (op->type2 != SECOND_NONE || op->sub == VIDEO_MAD) {
				return bad_selector(d, in[0].selector);
			}
			op->type2 = SECOND_MERGE;
		}
	} else {
		err = vector_mask(d, in[0].selector, op->n, &dest);
		if (err == 0) {
			err = vector_parts(d, in[1].selector, op->n, op->n == 2 ? 0x10 : 0x3210,
					   &a);
		}
		if (err == 0) {
			err = vector_parts(d, in[2].selector, op->n, op->n == 2 ? 0x32 : 0x7654,
					   &b);
		}
		op->type2 = op->type2 == SECOND_ADD ? SECOND_ADD : SECOND_MERGE;
	}
	if (op->sub == VIDEO_MAD) {
		op->type2 = SECOND_ADD; /* c is always present */
	}
	op->size = (uint8_t)dest;
	op->imm = (int64_t)((uint64_t)b << 32 | a);
	return err;
}

/* A negative factor negates the product; c or the product may be negated, not both. */
static int take_negations(struct exec_decoder *d, struct exec_op *op,
			  const struct exec_selected in[4])
{
	bool product = in[1].negated != in[2].negated, any = false;

	for (unsigned i = 0; i < 4; i++) {
		any = any || in[i].negated;
	}
	if (!any) {
		return 0;
	}
	if (op->sub != VIDEO_MAD || in[0].negated || (product && in[3].negated) ||
	    op->flags & VIDEO_PLUS_ONE) {
		return exec_dec_fail(
			d, "a minus is allowed for the product or c of vmad, without .po");
	}
	op->type = product ? NEGATED_PRODUCT : in[3].negated ? NEGATED_C : NEGATED_NONE;
	return 0;
}

int exec_dec_video(struct exec_decoder *d, int which, int n)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_video);
	struct exec_selected parts[4] = { 0 };
	int err;

	op.sub = (uint8_t)which;
	op.n = (uint8_t)n;
	err = take_words(d, &op);
	if (err == 0 && d->insn->n_operands < 3) {
		err = exec_dec_operands(d, 3);
	}
	for (unsigned i = 0; err == 0 && i < MIN(d->insn->n_operands, 4u); i++) {
		err = cut(d, &in[i], &parts[i]);
	}
	if (err == 0) {
		err = take_negations(d, &op, parts);
	}
	if (err == 0) {
		err = take_parts(d, &op, parts);
	}
	if (err == 0) {
		err = exec_dec_operands(d, op.type2 == SECOND_NONE ? 3 : 4);
	}
	if (err == 0) {
		err = exec_dec_source(d, &parts[1].operand, TY_U32, &op.a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &parts[2].operand, TY_U32, &op.b);
	}
	if (err == 0 && op.type2 != SECOND_NONE) {
		err = *parts[3].selector ? bad_selector(d, parts[3].selector)
					 : exec_dec_source(d, &parts[3].operand, TY_U32, &op.c);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &parts[0].operand, TY_U32, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

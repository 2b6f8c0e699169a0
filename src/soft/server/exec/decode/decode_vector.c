/* Vector registers (".reg .v2 .u32 %v"): declaration, components, and whole vectors as operands.
 * An operand that names a whole vector is replaced by {%v.x, %v.y} before its instruction is
 * decoded, so no decoder of an instruction knows of vector registers. */
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define VECTOR_BYTES_MAX 16u

int exec_dec_vector_check(struct exec_decoder *d, const struct ptx_variable *v, enum exec_type type)
{
	if (type == TY_PRED) {
		return exec_dec_fail(d, "there are no vectors of predicates");
	}
	if (exec_dec_type_bytes(type) * v->vector > VECTOR_BYTES_MAX || type == TY_B128) {
		return exec_dec_fail(d, "a vector register has at most 128 bits");
	}
	d->has_vectors = true;
	return 0;
}

int exec_dec_component(const char *name, size_t *ret_len)
{
	static const char letters[] = "xyzwrgba";
	const char *dot = strrchr(name, '.'), *at;

	if (!dot || !dot[1] || dot[2]) {
		return -1;
	}
	at = strchr(letters, dot[1]);
	*ret_len = (size_t)(dot - name);
	return at ? (int)((size_t)(at - letters) % 4) : -1;
}

/* Returns the operands name.x to name.w; they live as long as the decoder. */
static struct ptx_operand *components_of(struct exec_decoder *d, const char *name)
{
	static const char letters[] = "xyzw";
	struct ptx_operand *args = strmap_get(&d->components, name);
	size_t len = strlen(name);

	if (args) {
		return args;
	}
	args = ptx_arena_array(&d->arena, 4, sizeof(*args));
	for (int i = 0; args && i < 4; i++) {
		char *text = ptx_arena_alloc(&d->arena, len + 3);

		if (!text) {
			return NULL;
		}
		snprintf(text, len + 3, "%s.%c", name, letters[i]);
		args[i] = (struct ptx_operand){ .kind = PTX_NAME, .name = text };
	}
	return args && strmap_add(&d->components, name, args) == 0 ? args : NULL;
}

/* Returns the count of components of the vector that an operand names; 0: it names none. A move of
 * vectors may also read a special register such as %tid. */
static uint32_t vector_size(struct exec_decoder *d, const struct ptx_operand *o, uint32_t moved)
{
	uint32_t n;

	if (o->kind != PTX_NAME || o->offset) {
		return 0;
	}
	n = exec_dec_vector_find(d, o->name);
	return n ? n : o->name[0] == '%' ? moved : 0;
}

static uint32_t moved_vector(const struct ptx_insn *insn)
{
	if (insn->n_modifiers == 0 || insn->n_operands != 2 || strcmp(insn->opcode, "mov") != 0) {
		return 0;
	}
	return strcmp(insn->modifiers[0], ".v2") == 0	? 2
	       : strcmp(insn->modifiers[0], ".v4") == 0 ? 4
							: 0;
}

int exec_dec_expand(struct exec_decoder *d, const struct ptx_insn *insn, struct ptx_insn *copy)
{
	uint32_t moved = moved_vector(insn);
	struct ptx_operand *operands;

	*copy = *insn;
	if (!d->has_vectors && !moved) {
		return 0;
	}
	buf_clear(&d->operands);
	if (buf_add(&d->operands, insn->operands, insn->n_operands * sizeof(*operands)) < 0) {
		return exec_dec_no_memory(d);
	}
	operands = (struct ptx_operand *)d->operands.data;
	for (unsigned i = 0; i < insn->n_operands; i++) {
		uint32_t n = vector_size(d, &operands[i], moved);
		struct ptx_operand *args = n ? components_of(d, operands[i].name) : NULL;

		if (n && !args) {
			return exec_dec_no_memory(d);
		}
		if (n) {
			operands[i] = (struct ptx_operand){ .kind = PTX_VECTOR,
							    .n_args = n,
							    .args = args };
		}
	}
	copy->operands = operands;
	return 0;
}

static int move_component(struct exec_decoder *d, uint32_t to, uint32_t from, bool wide)
{
	struct exec_op op = exec_dec_op(d, d->h->alu[ALU_MOV][wide ? TY_U64 : TY_U32]);

	op.d = to;
	op.a = from;
	return exec_dec_emit(d, &op);
}

/* All components are read before the first is written. */
static int move_all(struct exec_decoder *d, const uint32_t *to, uint32_t *from, uint32_t n,
		    bool wide)
{
	int err = 0;

	for (uint32_t i = 1; err == 0 && i < n; i++) {
		for (uint32_t k = 0; k < i; k++) {
			uint32_t copy;

			if (from[i] != to[k]) {
				continue;
			}
			err = exec_dec_new_register(d, wide ? TY_U64 : TY_U32, &copy);
			if (err == 0) {
				err = move_component(d, copy, from[i], wide);
			}
			from[i] = copy;
			break;
		}
	}
	for (uint32_t i = 0; err == 0 && i < n; i++) {
		err = move_component(d, to[i], from[i], wide);
	}
	return err;
}

int exec_dec_mov_vector(struct exec_decoder *d, uint32_t n)
{
	const struct ptx_operand *in = d->insn->operands;
	enum exec_type t = exec_dec_take_type(d);
	uint32_t to[4] = { 0 }, from[4] = { 0 };
	int err = exec_dec_operands(d, 2);

	if (err == 0 && (t == TY_COUNT || t == TY_PRED)) {
		err = exec_dec_fail(d, "a type is expected");
	}
	for (int side = 0; err == 0 && side < 2; side++) {
		if (in[side].kind != PTX_VECTOR || in[side].n_args != n) {
			err = exec_dec_fail(d, "two vectors of %u are expected", n);
		}
	}
	for (uint32_t i = 0; err == 0 && i < n; i++) {
		err = exec_dec_source(d, &in[1].args[i], t, &from[i]);
		if (err == 0) {
			err = exec_dec_dest(d, &in[0].args[i], t, &to[i]);
		}
	}
	return err < 0 ? err : move_all(d, to, from, n, exec_dec_is_wide(t));
}

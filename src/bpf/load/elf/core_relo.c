/* CO-RE relocations: computes the requested value from the types of the object and those of gBPF,
 * and patches the instruction. A record that cannot be resolved poisons its instruction, so that
 * only programs that reach it are refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/btf/core.h"
#include "bpf/load/elf/object_int.h"

extern const unsigned char gbpf_types_btf[];
extern const unsigned gbpf_types_btf_bytes;

/* The result of a relocation. */
struct answer {
	uint64_t value;
	uint32_t bytes; /* size of the field; 0: not a field that is accessed whole */
	uint32_t type;	/* its type */
	int unchecked;	/* bitfield offsets: the value in the instruction depends on the compiler */
};

/* Finds the smallest aligned word that contains a bitfield. */
static int bitfield_word(uint64_t bit, uint32_t bits, uint32_t bytes, uint64_t *ret_at,
			 uint32_t *ret_bytes)
{
	uint64_t at;

	if (bytes == 0 || bytes > 8 || (bytes & (bytes - 1))) {
		return -EINVAL;
	}
	at = bit / 8 / bytes * bytes;
	while (bit + bits - at * 8 > (uint64_t)bytes * 8) {
		if (bytes >= 8) {
			return -E2BIG;
		}
		bytes *= 2;
		at = bit / 8 / bytes * bytes;
	}
	*ret_at = at;
	*ret_bytes = bytes;
	return 0;
}

static int is_signed(const struct btf_type *t)
{
	return (btf_is_enum(t) && btf_kflag(t)) || (btf_is_enum64(t) && btf_kflag(t)) ||
	       (btf_is_int(t) && (btf_int_encoding(t) & BTF_INT_SIGNED));
}

/* Resolves an offset or size of an array element or of the root type. */
static int element_answer(const struct ebpf_core_path *p, uint32_t kind, struct answer *a)
{
	int64_t bytes = btf__resolve_size(p->btf, p->steps[p->n - 1].type);

	if (bytes < 0 || bytes > UINT32_MAX ||
	    (kind != CORE_FIELD_OFFSET && kind != CORE_FIELD_SIZE)) {
		return -EINVAL;
	}
	a->value = kind == CORE_FIELD_OFFSET ? p->bits / 8 : (uint64_t)bytes;
	if (kind == CORE_FIELD_OFFSET) {
		a->bytes = (uint32_t)bytes;
		a->type = p->steps[p->n - 1].type;
	}
	return 0;
}

static int field_answer(const struct ebpf_core_path *p, uint32_t kind, struct answer *a)
{
	const struct ebpf_core_step *last = &p->steps[p->n - 1];
	const struct btf_type *in = btf__type_by_id(p->btf, last->type), *t;
	uint32_t bits, id = 0, bytes;
	uint64_t at = p->bits / 8;
	int64_t size;

	if (!last->name) {
		return element_answer(p, kind, a);
	}
	if (!in || !btf_is_composite(in) || last->idx >= btf_vlen(in)) {
		return -EINVAL;
	}
	t = ebpf_core_resolve(p->btf, btf_members(in)[last->idx].type, &id);
	bits = btf_member_bitfield_size(in, last->idx);
	size = t ? btf__resolve_size(p->btf, id) : -1;
	if (size < 0 || size > UINT32_MAX || (!bits && p->bits % 8)) {
		return -EINVAL;
	}
	bytes = (uint32_t)size;
	if (bits && bitfield_word(p->bits, bits, t->size, &at, &bytes) < 0) {
		return -EINVAL;
	}
	a->unchecked = bits != 0;
	switch (kind) {
	case CORE_FIELD_OFFSET:
		a->value = at;
		a->bytes = bits ? 0 : bytes;
		a->type = id;
		return 0;
	case CORE_FIELD_SIZE:
		a->value = bytes;
		return 0;
	case CORE_FIELD_SIGNED:
		a->value = (uint64_t)is_signed(t);
		a->unchecked = 0;
		return 0;
	case CORE_FIELD_LSHIFT:
		a->value = 64 - (p->bits + (bits ? bits : bytes * 8ull) - at * 8);
		return 0;
	default:
		a->value = 64 - (bits ? bits : bytes * 8ull);
		a->unchecked = 0;
		return bits || bytes <= 8 ? 0 : -EINVAL;
	}
}

static int enum_answer(const struct ebpf_core_path *p, struct answer *a)
{
	const struct btf_type *t = btf__type_by_id(p->btf, p->steps[0].type);
	uint32_t i = p->steps[0].idx;

	if (btf_is_enum64(t)) {
		a->value = btf_enum64_value(&btf_enum64(t)[i]);
	} else {
		/* clang 14 does not record the signedness of enums; see patch_wide() */
		a->value = (uint64_t)(int64_t)btf_enum(t)[i].val;
	}
	return 0;
}

/* Computes the result for a path that exists. */
static int answer_for(const struct ebpf_core_path *p, uint32_t kind, struct answer *a)
{
	int64_t size;

	*a = (struct answer){ 0 };
	switch (kind) {
	case CORE_FIELD_EXISTS:
	case CORE_TYPE_EXISTS:
	case CORE_ENUMVAL_EXISTS:
		a->value = 1;
		return 0;
	case CORE_TYPE_ID_LOCAL:
	case CORE_TYPE_ID_TARGET:
		a->value = p->root;
		a->unchecked = 1; /* clang 12 and older store another value here */
		return 0;
	case CORE_TYPE_SIZE:
		size = btf__resolve_size(p->btf, p->root);
		a->value = (uint64_t)size;
		return size < 0 ? -EINVAL : 0;
	case CORE_ENUMVAL_VALUE:
		return enum_answer(p, a);
	default:
		return field_answer(p, kind, a);
	}
}

static int same_name(const char *local, const char *here)
{
	size_t n = ebpf_core_essential(local);

	return strlen(here) == n && memcmp(local, here, n) == 0;
}

/* Finds the gBPF type with the same kind and name. There is at most one, because one file declares
 * them. */
static uint32_t find_type(const struct btf *here, const struct btf *btf, uint32_t type)
{
	const struct btf_type *want = btf__type_by_id(btf, type);
	const char *name = want ? ebpf_core_name(btf, want->name_off) : "";
	uint32_t n = btf__type_cnt(here);

	for (uint32_t id = 1; *name && id < n; id++) {
		const struct btf_type *t = btf__type_by_id(here, id);
		int same_kind = btf_kind(t) == btf_kind(want) ||
				(btf_is_composite(t) && btf_is_composite(want));

		if (same_kind && same_name(name, ebpf_core_name(here, t->name_off))) {
			return id;
		}
	}
	return 0;
}

int ebpf_obj_core_types(struct ebpf_obj_parse *p)
{
	if (p->here) {
		return 0;
	}
	p->here = btf__new(gbpf_types_btf, gbpf_types_btf_bytes);
	return p->here ? 0 : -ENOMEM;
}

static int is_question(uint32_t kind)
{
	return kind == CORE_FIELD_EXISTS || kind == CORE_TYPE_EXISTS || kind == CORE_ENUMVAL_EXISTS;
}

static int unsigned_int(const struct btf_type *t)
{
	return t && btf_is_int(t) && !(btf_int_encoding(t) & BTF_INT_SIGNED);
}

/* Sets the widths of an access. The width may change only if the bits keep their meaning: unsigned
 * numbers and pointers. */
static void set_widths(struct ebpf_obj_core *c, const struct ebpf_core_path *local,
		       const struct answer *l, const struct ebpf_core_path *here,
		       const struct answer *h)
{
	uint32_t id;
	const struct btf_type *lt = ebpf_core_resolve(local->btf, l->type, &id);
	const struct btf_type *ht = ebpf_core_resolve(here->btf, h->type, &id);

	if (!l->bytes || !h->bytes || l->bytes == h->bytes) {
		return;
	}
	c->size_from_1 = (uint8_t)MIN(l->bytes + 1, 255u);
	if (((unsigned_int(lt) && unsigned_int(ht)) ||
	     (lt && ht && btf_is_ptr(lt) && btf_is_ptr(ht))) &&
	    h->bytes <= 8 && !(h->bytes & (h->bytes - 1))) {
		c->size_to = (uint8_t)h->bytes;
	}
}

static int set_poison(struct ebpf_obj_parse *p, struct ebpf_obj_core *c,
		      const struct ebpf_core_path *local, const char *what)
{
	struct buf path;

	buf_init(&path);
	ebpf_core_describe(local, &path);
	c->poisoned = 1;
	c->why = ebpf_obj_keep_text(p, "%s %s (CO-RE)", buf_text(&path), what);
	buf_finish(&path);
	return 0;
}

/* Like set_poison(), for callers without the paths. */
static int poison_later(struct ebpf_obj_parse *p, struct ebpf_obj_core *c, const char *what)
{
	struct ebpf_core_path *path = malloc(sizeof(*path));

	if (!path) {
		return -ENOMEM;
	}
	ebpf_core_parse(path, p->btf, c->type, btf__name_by_offset(p->btf, c->access), c->kind);
	set_poison(p, c, path, what);
	free(path);
	return 0;
}

/* Returns whether a bitfield has the same position in its word. Required for in-place reads, whose
 * shifts the compiler chose. */
static int same_bits(const struct ebpf_core_path *local, const struct ebpf_core_path *here)
{
	static const uint32_t kinds[] = { CORE_FIELD_SIZE, CORE_FIELD_LSHIFT, CORE_FIELD_RSHIFT };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct answer l, h;

		if (answer_for(local, kinds[i], &l) < 0 || answer_for(here, kinds[i], &h) < 0 ||
		    l.value != h.value) {
			return 0;
		}
	}
	return 1;
}

static int solve(struct ebpf_obj_parse *p, struct ebpf_obj_core *c, struct ebpf_core_path *local,
		 struct ebpf_core_path *here)
{
	struct answer l, h = { 0 };
	uint32_t id;
	int found;

	if (answer_for(local, c->kind, &l) < 0) {
		return -EINVAL;
	}
	c->from = l.value;
	if (c->kind == CORE_TYPE_ID_LOCAL) {
		c->to = l.value;
		return 0;
	}
	id = find_type(p->here, p->btf, c->type);
	found = id ? ebpf_core_match(local, p->here, id, c->kind, here) : 0;
	if (found <= 0 && is_question(c->kind)) {
		c->checked = 1;
		c->to = 0;
		return 0;
	}
	if (found <= 0) {
		return set_poison(p, c, local, "is not known to this gBPF");
	}
	if (answer_for(here, c->kind, &h) < 0) {
		return set_poison(p, c, local, "cannot be accessed in this gBPF");
	}
	c->to = h.value;
	c->checked = !(l.unchecked || h.unchecked);
	if (c->kind == CORE_FIELD_OFFSET && (l.unchecked || h.unchecked)) {
		c->moved = !same_bits(local, here);
	} else if (c->kind == CORE_FIELD_OFFSET) {
		set_widths(c, local, &l, here, &h);
	}
	return 0;
}

static int solve_once(struct ebpf_obj_parse *p, struct ebpf_obj_core *c, const char *section)
{
	struct ebpf_core_path *paths = malloc(2 * sizeof(*paths));
	const char *access = btf__name_by_offset(p->btf, c->access);
	int err = paths ? ebpf_obj_core_types(p) : -ENOMEM;

	if (err == 0 && c->kind > CORE_ENUMVAL_VALUE) {
		err = ebpf_obj_refuse(p, -EINVAL, section, c->off,
				      "CO-RE relocations of kind %u are not supported%s", c->kind,
				      c->kind == 12 ? " (bpf_core_type_matches)" : "");
	}
	if (err == 0 &&
	    (!access || ebpf_core_parse(&paths[0], p->btf, c->type, access, c->kind) < 0 ||
	     solve(p, c, &paths[0], &paths[1]) < 0)) {
		err = ebpf_obj_refuse(p, -EINVAL, section, c->off,
				      "a CO-RE relocation that its types do not bear out");
	}
	c->solved = err == 0;
	free(paths);
	return err;
}

static const uint8_t width_codes[9] = { [1] = EBPF_B, [2] = EBPF_H, [4] = EBPF_W, [8] = EBPF_DW };

static uint32_t width_of(const struct ebpf_insn *in)
{
	for (uint32_t bytes = 1; bytes <= 8; bytes *= 2) {
		if (width_codes[bytes] == EBPF_SIZE(in->code)) {
			return bytes;
		}
	}
	return 0;
}

/* Result of a patch: done; the object contradicts itself; the field of gBPF does not fit. */
enum fit { FITS, WRONG, UNFIT };

static enum fit patch_access(const struct ebpf_obj_core *c, struct ebpf_insn *in,
			     const char **ret_what)
{
	if (c->checked && (uint64_t)(int64_t)in->off != c->from) {
		*ret_what = "the access is not where its relocation says";
		return WRONG;
	}
	if (c->size_from_1 && width_of(in) + 1 != c->size_from_1) {
		*ret_what = "the access is not as wide as its field";
		return WRONG;
	}
	if (c->to > INT16_MAX) {
		*ret_what = "lies too far from the struct's beginning here";
		return UNFIT;
	}
	if (!c->checked && (uint64_t)(int64_t)in->off != c->from) {
		*ret_what = "is a bitfield that is read from another word than it lies in";
		return UNFIT;
	}
	if (c->moved || (c->size_from_1 && !c->size_to)) {
		*ret_what = "has another size or place in its word here";
		return UNFIT;
	}
	if (c->size_from_1) {
		in->code = (uint8_t)((in->code & ~EBPF_DW) | width_codes[c->size_to]);
	}
	in->off = (int16_t)c->to;
	return FITS;
}

static enum fit patch_number(const struct ebpf_obj_core *c, struct ebpf_insn *in,
			     const char **ret_what)
{
	if (EBPF_SRC(in->code) != EBPF_K) {
		*ret_what = "the relocated instruction has no number";
		return WRONG;
	}
	if (c->checked && (uint32_t)in->imm != (uint32_t)c->from) {
		*ret_what = "the number is not what its relocation says";
		return WRONG;
	}
	if (c->to > UINT32_MAX && (int64_t)c->to != (int32_t)c->to) {
		*ret_what = "has a value here that does not fit the instruction";
		return UNFIT;
	}
	in->imm = (int32_t)(uint32_t)c->to;
	return FITS;
}

static enum fit patch_wide(const struct ebpf_obj_core *c, struct ebpf_insn *in, uint32_t left,
			   const char **ret_what)
{
	uint64_t have, to = c->to;

	if (left < 2 || in->code != EBPF_LD_IMM64 || in->src != 0) {
		*ret_what = "the relocated instruction is no 64-bit number";
		return WRONG;
	}
	have = (uint32_t)in[0].imm | (uint64_t)(uint32_t)in[1].imm << 32;
	if (c->kind == CORE_ENUMVAL_VALUE && have != c->from && have == (uint32_t)c->from) {
		to = (uint32_t)to; /* an unsigned enum */
	} else if (c->checked && have != c->from) {
		*ret_what = "the number is not what its relocation says";
		return WRONG;
	}
	in[0].imm = (int32_t)(uint32_t)to;
	in[1].imm = (int32_t)(uint32_t)(to >> 32);
	return FITS;
}

static enum fit patch(const struct ebpf_obj_core *c, struct ebpf_insn *in, uint32_t left,
		      const char **ret_what)
{
	switch (EBPF_CLASS(in->code)) {
	case EBPF_LDX:
	case EBPF_ST:
	case EBPF_STX:
		return patch_access(c, in, ret_what);
	case EBPF_ALU:
	case EBPF_ALU64:
		return patch_number(c, in, ret_what);
	case EBPF_LD:
		return patch_wide(c, in, left, ret_what);
	default:
		*ret_what = "a relocation of an instruction that has neither field nor number";
		return WRONG;
	}
}

int ebpf_obj_core_apply(struct ebpf_obj_parse *p, struct ebpf_obj_core *c, const char *section,
			struct ebpf_insn *in, uint32_t left, const char **ret_why)
{
	const char *what = "";
	enum fit fit;
	int err = c->solved ? 0 : solve_once(p, c, section);

	if (err == 0 && !c->poisoned) {
		fit = patch(c, in, left, &what);
		if (fit == WRONG) {
			return ebpf_obj_refuse(p, -EINVAL, section, c->off, "CO-RE: %s", what);
		}
		err = fit == UNFIT ? poison_later(p, c, what) : 0;
	}
	*ret_why = c->why;
	return err;
}

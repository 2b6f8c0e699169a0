/* Joins two states into one that contains both; the next rounds of a loop begin with it. Ranges
 * widen in steps, so that a few rounds suffice: first to the union, then to round bounds, then to
 * no bound for those that still grow. Facts on which the states differ are dropped. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_int.h"

/* Maps pairs of ids, one from each state, to one id in the joined state. */
struct pairs {
	uint32_t old[96], now[96], name[96];
	uint32_t n;
};

/* Returns the joined id of a pair, or 0 if the table is full. */
static uint32_t pair_id(struct ebpf_verifier *v, struct pairs *p, uint32_t old, uint32_t now)
{
	v->work += 1 + p->n / 16;
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->old[i] == old && p->now[i] == now) {
			return p->name[i];
		}
	}
	if (p->n == ARRAY_SIZE(p->old)) {
		return 0;
	}
	p->old[p->n] = old;
	p->now[p->n] = now;
	p->name[p->n] = old == now ? old : ++v->next_id;
	return p->name[p->n++];
}

/* How far the range of a number widens. STEP_BOTH: to the union, at the first change of a constant.
 * STEP_NEXT: to the next of a few bounds. STEP_END: to the limit of the type, for the bound that
 * moved. STEP_ANY: the number becomes unknown. */
enum { STEPS_UNTIL = 6, ENDS_UNTIL = 12 };
enum step { STEP_BOTH, STEP_NEXT, STEP_END, STEP_ANY };

static enum step step_of(const struct ebpf_scalar *old, unsigned level)
{
	if (level > ENDS_UNTIL) {
		return STEP_ANY;
	}
	return level == 0 || ebpf_scalar_is_const(old) ? STEP_BOTH
	       : level > STEPS_UNTIL		       ? STEP_END
						       : STEP_NEXT;
}

static uint64_t above(uint64_t x, enum step step)
{
	static const uint64_t steps[] = { UINT8_MAX, UINT16_MAX, INT32_MAX, UINT32_MAX, INT64_MAX };

	for (size_t i = 0; step == STEP_NEXT && i < ARRAY_SIZE(steps); i++) {
		if (x <= steps[i]) {
			return steps[i];
		}
	}
	return UINT64_MAX;
}

static int64_t sabove(int64_t x, int64_t most, enum step step)
{
	static const int64_t steps[] = { 0, INT8_MAX, INT16_MAX, INT32_MAX };

	for (size_t i = 0; step == STEP_NEXT && i < ARRAY_SIZE(steps); i++) {
		if (x <= steps[i]) {
			return steps[i];
		}
	}
	return most;
}

static int64_t sbelow(int64_t x, int64_t least, enum step step)
{
	static const int64_t steps[] = { 0, -1, INT8_MIN, INT16_MIN, INT32_MIN };

	for (size_t i = 0; step == STEP_NEXT && i < ARRAY_SIZE(steps); i++) {
		if (x >= steps[i]) {
			return steps[i];
		}
	}
	return least;
}

static void join_numbers(const struct ebpf_scalar *old, const struct ebpf_scalar *now,
			 enum step step, struct ebpf_scalar *out)
{
	*out = *old;
	if (ebpf_scalar_within(old, now)) {
		return;
	}
	if (step == STEP_ANY) {
		ebpf_scalar_unknown(out);
		return;
	}
	ebpf_scalar_unite(out, now);
	if (step == STEP_BOTH) {
		return;
	}
	if (out->t.mask != old->t.mask) { /* keep the common alignment */
		out->t.mask |= -(out->t.mask & -out->t.mask);
		out->t.value &= ~out->t.mask;
	}
	out->umin = out->umin < old->umin ? 0 : out->umin;
	out->u32min = out->u32min < old->u32min ? 0 : out->u32min;
	out->umax = out->umax > old->umax ? above(out->umax, step) : out->umax;
	out->u32max = out->u32max > old->u32max
			      ? (uint32_t)MIN(above(out->u32max, step), UINT32_MAX)
			      : out->u32max;
	out->smin = out->smin < old->smin ? sbelow(out->smin, INT64_MIN, step) : out->smin;
	out->smax = out->smax > old->smax ? sabove(out->smax, INT64_MAX, step) : out->smax;
	out->s32min = out->s32min < old->s32min ? (int32_t)sbelow(out->s32min, INT32_MIN, step)
						: out->s32min;
	out->s32max = out->s32max > old->s32max ? (int32_t)sabove(out->s32max, INT32_MAX, step)
						: out->s32max;
}

/* Joins the offsets of two pointers. Returns 0 if the result is not worth keeping. */
static int join_offsets(const struct ebpf_scalar *old, struct ebpf_scalar *now, unsigned level)
{
	struct ebpf_scalar out;

	if (step_of(old, level) != STEP_BOTH && !ebpf_scalar_within(old, now)) {
		return 0;
	}
	join_numbers(old, now, STEP_BOTH, &out);
	*now = out;
	return 1;
}

static int nullable_of(unsigned a, unsigned b)
{
	static const uint8_t kinds[][2] = { { REG_VALUE, REG_VALUE_OR_NULL },
					    { REG_MAP, REG_MAP_OR_NULL },
					    { REG_RECORD, REG_RECORD_OR_NULL } };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if ((a == kinds[i][0] && b == kinds[i][1]) ||
		    (a == kinds[i][1] && b == kinds[i][0])) {
			return kinds[i][1];
		}
	}
	return 0;
}

static int is_record(const struct ebpf_reg *r)
{
	return r->type == REG_RECORD || r->type == REG_RECORD_OR_NULL;
}

static int join_object(struct ebpf_verifier *v, const struct ebpf_reg *old, struct ebpf_reg *now,
		       struct pairs *pairs, unsigned level)
{
	if (old->map != now->map || (old->id == 0) != (now->id == 0)) {
		return 0;
	}
	if (now->id) {
		now->id = pair_id(v, pairs, old->id, now->id);
		if (!now->id || (is_record(now) && !ebpf_verify_ref(v, now->id))) {
			return 0;
		}
	}
	return join_offsets(&old->v, &now->v, level);
}

static int is_null(const struct ebpf_reg *r)
{
	return r->type == REG_SCALAR && ebpf_scalar_is_const(&r->v) && r->v.t.value == 0;
}

/* Joins NULL with a pointer that a round sets: the result is like the return value of a lookup.
 * Returns 0 if the two do not fit. */
static int join_null(struct ebpf_verifier *v, const struct ebpf_reg *old, struct ebpf_reg *now,
		     struct pairs *pairs)
{
	const struct ebpf_reg *ptr = is_null(old) ? now : old;
	uint32_t id;

	if (!(is_null(old) || is_null(now)) ||
	    (ptr->type != REG_VALUE && ptr->type != REG_VALUE_OR_NULL) || ptr->id == 0 ||
	    !ebpf_scalar_is_const(&ptr->v) || ptr->v.t.value != 0) {
		return 0;
	}
	id = pair_id(v, pairs, is_null(old) ? VERIFY_NULL_ID : old->id,
		     is_null(now) ? VERIFY_NULL_ID : now->id);
	*now = *ptr;
	now->type = REG_VALUE_OR_NULL;
	now->id = id;
	return id != 0;
}

/* Numbers stay linked if they are linked in both states, in the same way: then each state has its
 * own number X, and the pair of both names it. Loops by convergence drop all links. */
static void join_links(struct ebpf_verifier *v, const struct ebpf_reg *old, struct ebpf_reg *now,
		       struct pairs *pairs, unsigned level)
{
	uint32_t id = 0;

	if (level == 0 && old->id && now->id && old->link == now->link && old->add == now->add) {
		id = pair_id(v, pairs, old->id, now->id);
	}
	if (id) {
		now->id = id;
	} else {
		ebpf_link_drop(now);
	}
}

/* Joins two registers. Returns 0 if nothing is known of the result. */
static int join_kinds(struct ebpf_verifier *v, const struct ebpf_reg *old, struct ebpf_reg *now,
		      struct pairs *pairs, unsigned level)
{
	struct ebpf_scalar out;

	if (old->type != now->type) {
		int kind = nullable_of(old->type, now->type);

		if (join_null(v, old, now, pairs)) {
			return 1;
		}
		now->type = (uint8_t)kind;
		return kind && join_object(v, old, now, pairs, level);
	}
	switch (now->type) {
	case REG_SCALAR:
		join_numbers(&old->v, &now->v, step_of(&old->v, level), &out);
		now->v = out;
		join_links(v, old, now, pairs, level);
		return 1;
	case REG_NUMBER:
		join_numbers(&old->v, &now->v, step_of(&old->v, level), &out);
		now->v = out;
		return old->id == now->id;
	case REG_ITER: /* the bound of the first head holds for all later ones */
		now->v.umax = MAX(old->v.umax, now->v.umax);
		now->v.s32min = MIN(old->v.s32min, now->v.s32min);
		now->v.s32max = MAX(old->v.s32max, now->v.s32max);
		return old->id == now->id && old->map == now->map;
	case REG_ROUNDS:
		now->v.umax = MAX(old->v.umax, now->v.umax);
		return old->id == now->id;
	case REG_STACK:
	case REG_KEY:
		return old->frame == now->frame && old->map == now->map &&
		       join_offsets(&old->v, &now->v, level);
	case REG_FUNC:
		return old->map == now->map;
	case REG_CTX:
		return join_offsets(&old->v, &now->v, level);
	case REG_GONE:
	case REG_NONE:
		return 1;
	default:
		return join_object(v, old, now, pairs, level);
	}
}

static void join_reg(struct ebpf_verifier *v, const struct ebpf_reg *old, struct ebpf_reg *now,
		     struct pairs *pairs, unsigned level)
{
	if (!join_kinds(v, old, now, pairs, level)) {
		ebpf_reg_none(now);
	}
}

static unsigned join_byte(const struct ebpf_stack_slot *old, const struct ebpf_stack_slot *now,
			  unsigned i)
{
	unsigned a = ebpf_stack_kind(old->kind[i]), b = ebpf_stack_kind(now->kind[i]);
	int a_number =
		a == BYTE_MISC || a == BYTE_ZERO || (a == BYTE_SPILL && old->r.type == REG_SCALAR);
	int b_number =
		b == BYTE_MISC || b == BYTE_ZERO || (b == BYTE_SPILL && now->r.type == REG_SCALAR);

	if (a == BYTE_ZERO && b == BYTE_ZERO) {
		return BYTE_ZERO;
	}
	if (a == BYTE_MISC && old->kind[i] == now->kind[i]) {
		return old->kind[i]; /* the same character */
	}
	return a_number && b_number ? BYTE_MISC : BYTE_NONE;
}

static int same_extent(const struct ebpf_stack_slot *a, const struct ebpf_stack_slot *b,
		       unsigned kind)
{
	int any = 0;

	for (unsigned i = 0; i < 8; i++) {
		if ((a->kind[i] == kind) != (b->kind[i] == kind)) {
			return 0;
		}
		any |= a->kind[i] == kind;
	}
	return any;
}

static int join_slot(struct ebpf_verifier *v, const struct ebpf_stack_slot *old,
		     struct ebpf_stack_slot *now, struct pairs *pairs, unsigned level)
{
	struct ebpf_reg r = now->r;
	uint8_t kind[8];
	int keep = 0;

	if (same_extent(old, now, BYTE_SPILL) || same_extent(old, now, BYTE_ITER)) {
		join_reg(v, &old->r, &r, pairs, level);
		keep = r.type != REG_NONE;
	}
	if (now->kind[0] == BYTE_ITER && !keep) {
		return ebpf_verify_refuse(v, v->pc, "iter",
					  "another iterator is not as it was when the round before "
					  "began");
	}
	for (unsigned i = 0; i < 8; i++) {
		int held = now->kind[i] == BYTE_SPILL || now->kind[i] == BYTE_ITER;

		kind[i] = keep && held ? now->kind[i] : (uint8_t)join_byte(old, now, i);
	}
	memcpy(now->kind, kind, sizeof(kind));
	now->r = r;
	return 0;
}

/* Returns the first of n references without a match among the others, or NULL. */
static const struct ebpf_ref *unmatched(const struct ebpf_ref *refs, unsigned n,
					const struct ebpf_ref *others, unsigned n_others)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned k = 0;

		while (k < n_others &&
		       (others[k].id != refs[i].id || others[k].kind != refs[i].kind)) {
			k++;
		}
		if (k == n_others) {
			return &refs[i];
		}
	}
	return NULL;
}

static int join_refs(struct ebpf_verifier *v, const struct ebpf_ref *old, unsigned n,
		     struct pairs *pairs)
{
	const struct ebpf_ref *gone = unmatched(old, n, v->refs, v->n_refs);
	const struct ebpf_ref *more = unmatched(v->refs, v->n_refs, old, n);

	if (v->n_refs < n && gone) {
		return ebpf_verify_refuse(
			v, v->pc, "ref",
			"what was acquired at %s before the loop is given back inside "
			"it, which works in one round only",
			ebpf_verify_place_text(v, gone->pc));
	}
	if (v->n_refs > n && more) {
		return ebpf_verify_held(v, more, "when the next round begins");
	}
	if (v->n_refs != n) {
		return ebpf_verify_refuse(v, v->pc, "ref",
					  "not the same is held as when the round "
					  "before began");
	}
	for (unsigned i = 0; i < v->n_refs; i++) {
		if (old[i].kind != v->refs[i].kind || old[i].bytes != v->refs[i].bytes ||
		    old[i].map != v->refs[i].map || (old[i].id == 0) != (v->refs[i].id == 0)) {
			return ebpf_verify_held(v, more ? more : &v->refs[i],
						"when the next round begins, unlike before");
		}
		if (v->refs[i].id) {
			v->refs[i].id = pair_id(v, pairs, old[i].id, v->refs[i].id);
		}
	}
	return 0;
}

int ebpf_verify_unpack_other(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
			     struct ebpf_ref *refs, unsigned *n_refs)
{
	struct ebpf_call_state *kept[EBPF_MAX_FRAMES];
	struct ebpf_ref kept_refs[VERIFY_MAX_REFS];
	unsigned n = v->n_refs, depth = v->depth;

	if (!v->other) {
		v->other = calloc(EBPF_MAX_FRAMES, sizeof(*v->other));
		if (!v->other) {
			return -ENOMEM;
		}
	}
	memcpy(kept, v->frames, sizeof(kept));
	memcpy(kept_refs, v->refs, sizeof(kept_refs));
	for (unsigned i = 0; i < EBPF_MAX_FRAMES; i++) {
		v->frames[i] = &v->other[i];
	}
	ebpf_verify_unpack(v, p);
	v->work += ebpf_verify_packed_work(p);
	*n_refs = v->n_refs;
	memcpy(refs, v->refs, sizeof(v->refs));
	memcpy(v->frames, kept, sizeof(kept));
	memcpy(v->refs, kept_refs, sizeof(kept_refs));
	v->n_refs = n;
	v->depth = depth;
	return 0;
}

int ebpf_verify_join(struct ebpf_verifier *v, const struct ebpf_packed_state *p, unsigned level)
{
	struct pairs pairs = { .n = 0 };
	struct ebpf_ref refs[VERIFY_MAX_REFS];
	unsigned n_refs;
	int err = ebpf_verify_unpack_other(v, p, refs, &n_refs);

	err = err ? err : join_refs(v, refs, n_refs, &pairs);
	for (unsigned f = 0; err == 0 && f <= v->depth; f++) {
		const struct ebpf_call_state *old = &v->other[f];
		struct ebpf_call_state *now = v->frames[f];

		now->depth = MAX(now->depth, old->depth);
		for (unsigned i = 0; i < 10; i++) {
			join_reg(v, &old->regs[i], &now->regs[i], &pairs, level);
		}
		v->work += (unsigned)__builtin_popcountll(now->used);
		for (uint64_t left = now->used; err == 0 && left; left &= left - 1) {
			unsigned i = (unsigned)__builtin_ctzll(left);

			err = join_slot(v, &old->slots[i], &now->slots[i], &pairs, level);
		}
	}
	v->work += 10 * (v->depth + 1) + 16;
	return err;
}

static void mark_reg(const struct ebpf_reg *r, unsigned i, struct ebpf_marks *m, unsigned f)
{
	struct ebpf_scalar any;

	if (r->type == REG_NONE || r->type == REG_GONE) {
		return;
	}
	m->regs[f] |= (uint16_t)(1u << i);
	ebpf_scalar_unknown(&any);
	if (r->type == REG_SCALAR && (r->id || !ebpf_scalar_same(&r->v, &any))) {
		m->matter[f] |= (uint16_t)(1u << i);
	}
}

void ebpf_verify_all_marks(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
			   struct ebpf_marks *ret)
{
	struct ebpf_ref refs[VERIFY_MAX_REFS];
	unsigned n_refs;

	memset(ret, 0, sizeof(*ret));
	if (ebpf_verify_unpack_other(v, p, refs, &n_refs)) {
		for (unsigned f = 0; f <= v->depth;
		     f++) { /* out of memory: assume that everything is read */
			ret->regs[f] = ret->matter[f] = 0x3ff;
			ret->slots[f] = ret->texts[f] = UINT64_MAX;
		}
		return;
	}
	for (unsigned f = 0; f <= v->depth; f++) {
		for (unsigned i = 0; i < 10; i++) {
			mark_reg(&v->other[f].regs[i], i, ret, f);
		}
		ret->texts[f] = ret->slots[f] = v->other[f].used;
	}
}

/* Packed states hold only initialized registers and used stack slots, so that thousands fit into
 * memory. This file also answers the question on which pruning depends: does the running state lie
 * within a packed one? */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/verify/verify_int.h"

struct packed_frame {
	uint64_t slots;	 /* slots with a kind other than BYTE_NONE */
	uint64_t spills; /* slots with a spilled register */
	uint32_t ret, depth;
	uint32_t regs;	/* bits 0..9 */
	uint32_t first; /* index of the frame's first register in regs[]; kinds lie in kinds[] */
	uint32_t first_kind;
};

struct ebpf_packed_state {
	uint32_t bytes;
	uint32_t n_frames;
	uint32_t n_regs;
	uint32_t n_kinds;
	uint32_t n_refs;
	struct packed_frame frames[];
	/* struct ebpf_reg regs[n_regs], then uint64_t kinds[], then struct ebpf_ref refs[n_refs] */
};

static struct ebpf_reg *regs_of(const struct ebpf_packed_state *p)
{
	return unqual((const char *)p +
		      ROUND_UP(sizeof(*p) + p->n_frames * sizeof(p->frames[0]), 8));
}

static uint64_t *kinds_of(const struct ebpf_packed_state *p)
{
	return (uint64_t *)(regs_of(p) + p->n_regs);
}

static struct ebpf_ref *refs_of(const struct ebpf_packed_state *p)
{
	return (struct ebpf_ref *)(kinds_of(p) + p->n_kinds);
}

size_t ebpf_verify_packed_bytes(const struct ebpf_packed_state *p)
{
	return p->bytes;
}

uint32_t ebpf_verify_packed_work(const struct ebpf_packed_state *p)
{
	return p->bytes / (uint32_t)sizeof(struct ebpf_reg) + 1;
}

static uint64_t kinds_word(const struct ebpf_stack_slot *s)
{
	uint64_t w;

	memcpy(&w, s->kind, sizeof(w));
	return w;
}

static int is_spill(const struct ebpf_stack_slot *s)
{
	for (int i = 0; i < 8; i++) {
		if (s->kind[i] == BYTE_SPILL || s->kind[i] == BYTE_ITER) {
			return 1;
		}
	}
	return 0;
}

static void measure(const struct ebpf_call_state *f, struct packed_frame *p)
{
	*p = (struct packed_frame){ .ret = f->ret, .depth = f->depth };
	for (unsigned i = 0; i < 10; i++) {
		p->regs |= (uint32_t)(f->regs[i].type != REG_NONE) << i;
	}
	for (uint64_t left = f->used; left; left &= left - 1) {
		const struct ebpf_stack_slot *s = &f->slots[__builtin_ctzll(left)];

		if (kinds_word(s)) {
			p->slots |= left & -left;
			p->spills |= is_spill(s) ? left & -left : 0;
		}
	}
}

struct ebpf_packed_state *ebpf_verify_pack(struct ebpf_verifier *v)
{
	struct packed_frame pf[EBPF_MAX_FRAMES];
	uint32_t n = v->depth + 1, n_regs = 0, n_kinds = 0;
	struct ebpf_packed_state *p;
	struct ebpf_reg *reg;
	uint64_t *kind;
	size_t bytes;

	for (uint32_t f = 0; f < n; f++) {
		measure(v->frames[f], &pf[f]);
		pf[f].first = n_regs;
		pf[f].first_kind = n_kinds;
		n_regs += (uint32_t)(__builtin_popcount(pf[f].regs) +
				     __builtin_popcountll(pf[f].spills));
		n_kinds += (uint32_t)__builtin_popcountll(pf[f].slots);
	}
	bytes = ROUND_UP(sizeof(*p) + n * sizeof(pf[0]), 8) + n_regs * sizeof(*reg) +
		n_kinds * sizeof(*kind) + v->n_refs * sizeof(v->refs[0]);
	p = malloc(bytes);
	if (!p) {
		return NULL;
	}
	p->bytes = (uint32_t)bytes;
	p->n_frames = n;
	p->n_regs = n_regs;
	p->n_kinds = n_kinds;
	p->n_refs = v->n_refs;
	memcpy(refs_of(p), v->refs, v->n_refs * sizeof(v->refs[0]));
	memcpy(p->frames, pf, n * sizeof(pf[0]));
	reg = regs_of(p);
	kind = kinds_of(p);
	for (uint32_t f = 0; f < n; f++) {
		const struct ebpf_call_state *from = v->frames[f];

		for (uint32_t left = pf[f].regs; left; left &= left - 1) {
			*reg++ = from->regs[__builtin_ctz(left)];
		}
		for (uint64_t left = pf[f].spills; left; left &= left - 1) {
			*reg++ = from->slots[__builtin_ctzll(left)].r;
		}
		for (uint64_t left = pf[f].slots; left; left &= left - 1) {
			*kind++ = kinds_word(&from->slots[__builtin_ctzll(left)]);
		}
	}
	v->bytes += bytes;
	return p;
}

void ebpf_verify_unpack(struct ebpf_verifier *v, const struct ebpf_packed_state *p)
{
	const struct ebpf_reg *reg = regs_of(p);
	const uint64_t *kind = kinds_of(p);

	v->depth = p->n_frames - 1;
	v->n_refs = p->n_refs;
	memcpy(v->refs, refs_of(p), p->n_refs * sizeof(v->refs[0]));
	for (uint32_t f = 0; f < p->n_frames; f++) {
		const struct packed_frame *pf = &p->frames[f];
		struct ebpf_call_state *to = v->frames[f];

		to->ret = pf->ret;
		to->depth = pf->depth;
		for (unsigned i = 0; i < 10; i++) {
			if (pf->regs >> i & 1) {
				to->regs[i] = *reg++;
			} else {
				to->regs[i].type = REG_NONE;
			}
		}
		for (uint64_t left = to->used & ~pf->slots; left; left &= left - 1) {
			memset(to->slots[__builtin_ctzll(left)].kind, BYTE_NONE, 8);
		}
		for (uint64_t left = pf->spills; left; left &= left - 1) {
			to->slots[__builtin_ctzll(left)].r = *reg++;
		}
		for (uint64_t left = pf->slots; left; left &= left - 1) {
			memcpy(to->slots[__builtin_ctzll(left)].kind, kind++, 8);
		}
		to->used = pf->slots;
	}
}

/* Maps ids of the old state to ids of the running state. Numbers that were linked in the old state
 * must be linked in the same way now: the old X is the X of an id of the running state, plus a
 * constant, or (now 0) it is a constant. Where only its low half is compared, only the low half of
 * the constant counts. */
struct idmap {
	struct {
		uint32_t old, now;
		int whole;
		uint64_t plus;
	} to[96];
	uint32_t n;
	uint32_t fresh;
	uint32_t work; /* registers and slots compared */
};

static int map_key(struct idmap *m, uint32_t old, uint32_t now, uint64_t plus, int whole)
{
	m->work += m->n / 16;
	for (uint32_t i = 0; i < m->n; i++) {
		if (m->to[i].old != old) {
			continue;
		}
		if (m->to[i].now != now || (uint32_t)m->to[i].plus != (uint32_t)plus ||
		    (whole && m->to[i].whole && m->to[i].plus != plus)) {
			return 0;
		}
		if (whole) {
			m->to[i].plus = plus;
			m->to[i].whole = 1;
		}
		return 1;
	}
	if (m->n == ARRAY_SIZE(m->to)) {
		return 0;
	}
	m->to[m->n].old = old;
	m->to[m->n].now = now;
	m->to[m->n].whole = whole;
	m->to[m->n++].plus = plus;
	return 1;
}

static int map_id(struct idmap *m, uint32_t old, uint32_t now)
{
	/* without an id, it is known to equal nothing else */
	return old == 0 || map_key(m, old, now ? now : --m->fresh, 0, 1);
}

/* Maps the id of a number whose values lie within those of the old one. A constant fits any link.
 */
static int map_number(struct idmap *m, const struct ebpf_reg *old, const struct ebpf_reg *now)
{
	int whole = old->link == LINK_WHOLE;
	uint64_t x;

	if (old->id == 0) {
		return 1;
	}
	if (ebpf_scalar_is_const(&now->v)) {
		return ebpf_link_origin(old, now->v.t.value, &x) &&
		       map_key(m, old->id, 0, x, whole);
	}
	if (now->id == 0 || now->link != old->link) {
		return map_id(m, old->id, 0);
	}
	return map_key(m, old->id, now->id, now->add - old->add, whole);
}

/* Returns whether now is the checked, non-NULL kind of the nullable kind old. */
static int is_checked_kind(unsigned old, unsigned now)
{
	return (old == REG_VALUE_OR_NULL && now == REG_VALUE) ||
	       (old == REG_MAP_OR_NULL && now == REG_MAP) ||
	       (old == REG_RECORD_OR_NULL && now == REG_RECORD);
}

static int reg_within(const struct ebpf_reg *old, const struct ebpf_reg *now, struct idmap *m,
		      int same)
{
	if (old->type == REG_NONE) {
		return !same || now->type == REG_NONE; /* no path behind the node read it */
	}
	if (old->type == REG_GONE && !same) {
		return 1; /* no path behind the node could use it either */
	}
	if (!same && old->type == REG_VALUE_OR_NULL && now->type == REG_SCALAR) {
		return ebpf_scalar_is_const(&now->v) && now->v.t.value == 0 &&
		       map_id(m, old->id, VERIFY_NULL_ID);
	}
	if (old->type != now->type && (same || !is_checked_kind(old->type, now->type))) {
		return 0;
	}
	if (same ? !ebpf_scalar_same(&old->v, &now->v) : !ebpf_scalar_within(&old->v, &now->v)) {
		return 0;
	}
	switch (old->type) {
	case REG_STACK:
		return old->frame == now->frame;
	case REG_KEY:
		return old->frame == now->frame && old->map == now->map;
	case REG_VALUE:
		/* id 0 stands for value 0 of the map, not for the result of a lookup */
		return old->map == now->map && (old->id == 0) == (now->id == 0) &&
		       map_id(m, old->id, now->id);
	case REG_FUNC:
		return old->map == now->map;
	case REG_MAP: /* id 0 stands for the map itself */
		return old->map == now->map && (old->id == 0) == (now->id == 0) &&
		       map_id(m, old->id, now->id);
	case REG_VALUE_OR_NULL:
	case REG_MAP_OR_NULL:
	case REG_RECORD:
	case REG_RECORD_OR_NULL:
	case REG_ITER:
	case REG_ROUNDS:
		return old->map == now->map && map_id(m, old->id, now->id);
	case REG_SCALAR:
		return map_number(m, old, now);
	default:
		return map_id(m, old->id, now->id);
	}
}

/* text: the characters of texts are compared. */
static int byte_within(unsigned old, unsigned now, const struct ebpf_stack_slot *s, int text)
{
	int zero = now == BYTE_ZERO || (now == BYTE_SPILL && s->r.type == REG_SCALAR &&
					ebpf_scalar_is_const(&s->r.v) && !s->r.v.t.value);

	if (text && old >= BYTE_TEXT) {
		return now == old;
	}
	now = ebpf_stack_kind(now);
	switch (ebpf_stack_kind(old)) {
	case BYTE_NONE:
		return 1;
	case BYTE_ZERO:
		return zero;
	case BYTE_ITER:
		return now == BYTE_ITER;
	default: /* BYTE_MISC: any number */
		return now == BYTE_MISC || zero || (now == BYTE_SPILL && s->r.type == REG_SCALAR);
	}
}

static int slot_within(uint64_t kinds, const struct ebpf_reg *reg,
		       const struct ebpf_stack_slot *now, int text, struct idmap *m, int same)
{
	uint8_t old[8];

	if (same && kinds != kinds_word(now)) {
		return 0;
	}
	memcpy(old, &kinds, sizeof(old));
	if (reg) {
		for (int i = 0; i < 8; i++) {
			if ((old[i] == BYTE_SPILL) != (now->kind[i] == BYTE_SPILL) ||
			    (old[i] == BYTE_ITER) != (now->kind[i] == BYTE_ITER)) {
				return 0;
			}
		}
		if (!reg_within(reg, &now->r, m, same)) {
			return 0;
		}
	}
	for (int i = 0; i < 8; i++) {
		if (old[i] != BYTE_SPILL && !byte_within(old[i], now->kind[i], now, text)) {
			return 0;
		}
	}
	return 1;
}

static unsigned rank64(uint64_t set, unsigned bit)
{
	return (unsigned)__builtin_popcountll(set & ((1ull << bit) - 1));
}

/* Returns whether frame f of the running state lies within the packed one. read selects what is
 * compared. */
static int frame_within(const struct ebpf_call_state *now, const struct ebpf_packed_state *p,
			uint32_t f, const struct ebpf_marks *read, struct idmap *m, int same)
{
	static const struct ebpf_reg none;
	const struct packed_frame *pf = &p->frames[f];
	const struct ebpf_reg *old = regs_of(p) + pf->first;
	const struct ebpf_reg *spills = old + __builtin_popcount(pf->regs);
	const uint64_t *kinds = kinds_of(p) + pf->first_kind;

	for (uint32_t left = same ? 0x3ff : read->regs[f] & pf->regs; left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctz(left);
		const struct ebpf_reg *r = pf->regs >> i & 1 ? old + rank64(pf->regs, i) : &none;

		m->work++;
		if (!(read->matter[f] >> i & 1) && r->type == REG_SCALAR &&
		    now->regs[i].type == REG_SCALAR) {
			continue;
		}
		if (!reg_within(r, &now->regs[i], m, same)) {
			return 0;
		}
	}
	for (uint64_t left = read->slots[f] & (same ? pf->slots | now->used : pf->slots); left;
	     left &= left - 1) {
		unsigned s = (unsigned)__builtin_ctzll(left);
		uint64_t kind = pf->slots >> s & 1 ? kinds[rank64(pf->slots, s)] : 0;
		const struct ebpf_reg *r =
			pf->spills >> s & 1 ? spills + rank64(pf->spills, s) : NULL;

		m->work++;
		if (!slot_within(kind, r, &now->slots[s], read->texts[f] >> s & 1, m, same)) {
			return 0;
		}
	}
	return 1;
}

const struct ebpf_reg *ebpf_verify_packed_reg(const struct ebpf_packed_state *p, unsigned frame,
					      unsigned i)
{
	const struct packed_frame *pf = &p->frames[frame];

	return pf->regs >> i & 1 ? regs_of(p) + pf->first + rank64(pf->regs, i) : NULL;
}

int ebpf_verify_same_calls(const struct ebpf_verifier *v, const struct ebpf_packed_state *p)
{
	if (p->n_frames != v->depth + 1) {
		return 0;
	}
	for (uint32_t f = 1; f < p->n_frames; f++) {
		if (p->frames[f].ret != v->frames[f]->ret) {
			return 0;
		}
	}
	return 1;
}

/* Returns whether both states hold the same references. They are matched in pairs, so that distinct
 * references stay distinct. */
static int refs_match(const struct ebpf_verifier *v, const struct ebpf_packed_state *p,
		      struct idmap *m)
{
	const struct ebpf_ref *old = refs_of(p);

	if (p->n_refs != v->n_refs) {
		return 0;
	}
	for (uint32_t i = 0; i < p->n_refs; i++) {
		const struct ebpf_ref *now = &v->refs[i];

		if (old[i].kind != now->kind || old[i].bytes != now->bytes ||
		    old[i].map != now->map || (old[i].id == 0) != (now->id == 0) ||
		    !map_id(m, old[i].id, now->id)) {
			return 0;
		}
	}
	return 1;
}

static int loops_match(const struct ebpf_costs *costs, struct idmap *m)
{
	for (uint32_t i = 0; costs && i < costs->n; i++) {
		if (!map_id(m, costs->to[i].loop->id, costs->to[i].loop->id)) {
			return 0;
		}
	}
	return 1;
}

static int compare(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
		   const struct ebpf_marks *read, const struct ebpf_costs *costs)
{
	struct ebpf_marks all;
	struct idmap m;
	int fits, same = !read;

	if (same) {
		memset(&all, 0xff, sizeof(all));
		read = &all;
	}
	m.n = m.work = 0;
	m.fresh = UINT32_MAX;
	fits = ebpf_verify_same_calls(v, p) && loops_match(costs, &m) && refs_match(v, p, &m);
	for (uint32_t f = p->n_frames; fits && f-- > 0;) {
		fits = frame_within(v->frames[f], p, f, read, &m, same);
	}
	v->work += m.work + 1;
	return fits;
}

int ebpf_verify_within(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
		       const struct ebpf_marks *read, const struct ebpf_costs *costs)
{
	return compare(v, p, read, costs);
}

int ebpf_verify_same(struct ebpf_verifier *v, const struct ebpf_packed_state *p)
{
	return compare(v, p, NULL, NULL);
}

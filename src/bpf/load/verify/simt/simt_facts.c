/* Collects what the verifier's walk knows of pointers and branches, for the analysis of uniformity.
 * Each state of a run was walked, or is covered by one that was walked (pointers are always
 * compared), so the union over all walked states holds for every run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/verify/simt/simt_int.h"
#include "bpf/run/map/map_type.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

static int is_memory(const struct ebpf_insn *in)
{
	unsigned class = EBPF_CLASS(in->code);

	return class == EBPF_LDX || class == EBPF_ST || class == EBPF_STX;
}

static int is_helper(const struct ebpf_insn *in)
{
	return in->code == (EBPF_JMP | EBPF_CALL) && in->src == EBPF_CALL_HELPER;
}

static uint32_t operands(const struct ebpf_insn *in)
{
	return is_memory(in) ? 1 : is_helper(in) ? 5 : 0;
}

int ebpf_simt_start(struct ebpf_verifier *v)
{
	struct ebpf_simt *s = calloc(1, sizeof(*s));
	uint32_t n = v->prog->n_insns, places = 0;

	v->simt = s;
	if (!s) {
		return -ENOMEM;
	}
	s->v = v;
	s->n = n;
	s->n_funcs = v->prog->n_subprogs;
	s->at = calloc(n, sizeof(*s->at));
	s->notes = calloc(n, 1);
	if (!s->at || !s->notes) {
		return -ENOMEM;
	}
	for (uint32_t pc = 0; pc < n; pc++) {
		s->at[pc] = places;
		places += v->info[pc] & INSN_START ? operands(&v->prog->insns[pc]) : 0;
	}
	s->places = calloc(places + 1u, sizeof(*s->places));
	return s->places ? 0 : -ENOMEM;
}

void ebpf_simt_free(struct ebpf_simt *s)
{
	if (s) {
		free(s->at);
		free(s->notes);
		free(s->places);
		free(s->blocks);
		free(s->block_of);
		free(s->order);
		free(s->label);
		free(s->inside);
		free(s->mark);
		free(s->funcs);
		free(s->foreign);
		free(s);
	}
}

/* Returns the function whose frame has this index on the path. */
static unsigned owner(const struct ebpf_verifier *v, unsigned frame)
{
	uint32_t pc = frame < v->depth ? v->frames[frame + 1]->ret - 1 : v->pc;

	return v->subprog_of[pc];
}

static void add_stack(const struct ebpf_verifier *v, struct ebpf_simt_place *p,
		      const struct ebpf_reg *r, int64_t off)
{
	int64_t end = -(int64_t)EBPF_STACK_BYTES;
	int16_t low = (int16_t)MAX(end, MIN(0, r->v.smin + off));
	int16_t high = (int16_t)MAX(end, MIN(0, r->v.smax + off));

	p->low = p->kinds & SIMT_STACK ? MIN(p->low, low) : low;
	p->high = p->kinds & SIMT_STACK ? MAX(p->high, high) : high;
	p->funcs |= 1ull << owner(v, r->frame);
	p->kinds |= SIMT_STACK;
}

/* Returns whether each lane has a value of its own in the map. */
static bool is_own(const struct ebpf_map_def *m)
{
	return m->type == GBPF_MAP_GPU_THREAD_ARRAY;
}

/* A map with an instance for each warp, or place of one, has elements at other addresses for each.
 */
static void add_map(const struct ebpf_verifier *v, struct ebpf_simt_place *p, uint8_t map)
{
	if (!(p->kinds & SIMT_MAP) || v->maps[map].value_bytes > v->maps[p->map].value_bytes) {
		p->map = map;
	}
	if (ebpf_map_type_has(v->maps[map].type, EBPF_MAP_PER_THREAD) ||
	    ebpf_map_type_has(v->maps[map].type, EBPF_MAP_IN_BLOCK)) {
		p->level = MAX(p->level, LEVEL_WARP);
	}
	p->varies |= ebpf_map_type_has(v->maps[map].type, EBPF_MAP_HASHED) || is_own(&v->maps[map]);
	p->key_bytes = (uint16_t)MAX(p->key_bytes, v->maps[map].key_bytes);
	p->kinds |= SIMT_MAP;
}

/* The level of a load from one of several fields is the highest of theirs. */
static void add_fields(const struct ebpf_verifier *v, struct ebpf_simt_place *p,
		       const struct ebpf_reg *r, int64_t off)
{
	int64_t at[VERIFY_MAX_PLACES];
	unsigned n = ebpf_scalar_values(&r->v, at, VERIFY_MAX_PLACES);

	p->kinds |= SIMT_CTX;
	for (unsigned i = 0; i < n; i++) {
		const struct ebpf_verify_field *f = ebpf_verify_field_at(v->hook, at[i] + off);
		uint8_t level = f ? ebpf_verify_field_level(f) : LEVEL_LANE;

		if (!p->field || level > p->level) {
			p->field = f;
		}
		p->level = MAX(p->level, level);
	}
}

static void add(const struct ebpf_verifier *v, struct ebpf_simt_place *p, const struct ebpf_reg *r,
		int64_t off, unsigned bytes)
{
	switch (r->type) {
	case REG_NONE: /* of a call with fewer arguments */
	case REG_SCALAR:
		break;
	case REG_MAP:
		add_map(v, p, r->map);
		break;
	case REG_CTX:
		add_fields(v, p, r, off);
		break;
	case REG_STACK:
		add_stack(v, p, r, off);
		break;
	case REG_VALUE:
		p->map = r->map;
		p->kinds |= v->maps[r->map].flags & GBPF_F_RDONLY ? SIMT_CONSTANT
			    : is_own(&v->maps[r->map])		  ? SIMT_OTHER
								  : SIMT_SHARED;
		break;
	case REG_NUMBER:
		p->kinds |= SIMT_NUMBER;
		break;
	case REG_FUNC:
		p->funcs |= 1ull << r->map;
		p->kinds |= SIMT_FUNC;
		break;
	default:
		p->kinds |= SIMT_OTHER;
	}
}

void ebpf_simt_note(struct ebpf_verifier *v)
{
	const struct ebpf_insn *in = &v->prog->insns[v->pc];
	const struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;
	struct ebpf_simt_place *p = &v->simt->places[v->simt->at[v->pc]];

	v->simt->notes[v->pc] |= SIMT_SEEN;
	if (is_memory(in)) {
		unsigned base = EBPF_CLASS(in->code) == EBPF_LDX ? in->src : in->dst;

		add(v, p, &regs[base], in->off, ebpf_access_bytes(in));
	}
	for (unsigned i = 0; is_helper(in) && i < 5; i++) {
		add(v, &p[i], &regs[i + 1], 0, 0);
	}
}

void ebpf_simt_side(struct ebpf_verifier *v, int outcome)
{
	v->simt->notes[v->pc] |= outcome ? SIMT_TAKEN : SIMT_NOT_TAKEN;
}

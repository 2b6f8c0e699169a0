/* References: what a program has acquired (a record of a ring buffer, an iterator, a lock, a call
 * that calls back) and must give back exactly once, on every path. */
#include <errno.h>
#include <string.h>

#include "bpf/load/verify/verify_int.h"

const struct ref *verify_ref(const struct verifier *v, uint32_t id)
{
	for (unsigned i = 0; i < v->n_refs; i++) {
		if (v->refs[i].id == id) {
			return &v->refs[i];
		}
	}
	return NULL;
}

/* Each may be around a place, and a place's costs have room for so many. */
static unsigned loops_held(const struct verifier *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < v->n_refs; i++) {
		n += v->refs[i].kind == REF_ITER || v->refs[i].kind == REF_CALL;
	}
	return n;
}

int verify_acquire(struct verifier *v, enum ref_kind kind, uint32_t id, struct ref **ret)
{
	if (v->n_refs == VERIFY_MAX_REFS) {
		return verify_refuse(v, v->pc, "ref",
				     "more than %u records, iterators, locks and calls at once",
				     VERIFY_MAX_REFS);
	}
	if ((kind == REF_ITER || kind == REF_CALL) && loops_held(v) == VERIFY_MAX_LOOPS) {
		return verify_refuse(v, v->pc, kind == REF_ITER ? "iter" : "callback",
				     "more than %u iterators and calls that call back at once",
				     VERIFY_MAX_LOOPS);
	}
	*ret = &v->refs[v->n_refs++];
	**ret = (struct ref){ .id = id, .pc = v->pc, .kind = (uint8_t)kind };
	return 0;
}

void verify_release(struct verifier *v, uint32_t id)
{
	unsigned to = 0;

	for (unsigned i = 0; i < v->n_refs; i++) {
		if (v->refs[i].id != id) {
			v->refs[to++] = v->refs[i];
		}
	}
	v->n_refs = to;
}

static const char *kind_text(const struct ref *r)
{
	switch (r->kind) {
	case REF_RECORD:
		return "the record reserved";
	case REF_ITER:
		return "the iterator made";
	case REF_LOCK:
		return "the lock taken";
	default:
		return "the call begun";
	}
}

static const char *kind_hint(const struct ref *r)
{
	switch (r->kind) {
	case REF_RECORD:
		return "submit or discard it on every path";
	case REF_ITER:
		return "destroy it on every path (bpf_for does)";
	case REF_LOCK:
		return "unlock on every path";
	default:
		return "let the function return";
	}
}

int verify_held(struct verifier *v, const struct ref *r, const char *where)
{
	report_hint(v->r, "%s", kind_hint(r));
	return verify_refuse(v, v->pc,
			     r->kind == REF_ITER   ? "iter"
			     : r->kind == REF_LOCK ? "lock"
						   : "ref",
			     "%s at %s is still held %s", kind_text(r), verify_place_text(v, r->pc),
			     where);
}

int verify_no_refs(struct verifier *v, const char *where)
{
	return v->n_refs ? verify_held(v, &v->refs[v->n_refs - 1], where) : 0;
}

int verify_own(struct verifier *v, const struct call *c, uint32_t id)
{
	int own = 0;

	for (unsigned i = 0; i < v->n_refs; i++) {
		own = v->refs[i].id == id || (own && v->refs[i].kind != REF_CALL);
	}
	return own ? 0
		   : verify_refuse(v, v->pc, "callback",
				   "%s: what the caller holds is not a called back function's to "
				   "use up or give back",
				   c->what);
}

static const struct ref *held_lock(const struct verifier *v)
{
	const struct ref *found = NULL;

	for (unsigned i = 0; i < v->n_refs; i++) {
		found = v->refs[i].kind == REF_LOCK ? &v->refs[i] : found;
	}
	return found;
}

int verify_no_lock(struct verifier *v, const char *what)
{
	const struct ref *l = v->n_refs ? held_lock(v) : NULL;

	if (!l) {
		return 0;
	}
	report_hint(v->r, "unlock first; look everything up before you lock");
	return verify_refuse(v, v->pc, "lock", "%s while the lock taken at %s is held", what,
			     verify_place_text(v, l->pc));
}

static int check_lock_arg(struct verifier *v, const struct call *c, const struct reg *r)
{
	const struct ebpf_map_def *m;

	if (r->type != REG_VALUE) {
		if (reg_is_nullable(r)) {
			report_hint(v->r, "compare it with NULL first");
		}
		return verify_refuse(v, v->pc, reg_is_nullable(r) ? "null" : "lock",
				     "%s: r1 must point to a struct bpf_spin_lock in a map's "
				     "value, but is %s",
				     c->what, verify_reg_text(v, r));
	}
	m = &v->maps[r->map];
	if (!m->lock_1) {
		report_hint(v->r, "give the value a struct bpf_spin_lock, and the map "
				  "GBPF_F_DAEMON");
		return verify_refuse(v, v->pc, "lock", "%s: values of %s have no lock", c->what,
				     m->name);
	}
	if (!scalar_is_const(&r->v) || r->v.t.value != m->lock_1 - 1) {
		return verify_refuse(v, v->pc, "lock",
				     "%s: the lock of %s is at offset %u, and r1 is %s", c->what,
				     m->name, m->lock_1 - 1, verify_reg_text(v, r));
	}
	return 0;
}

int verify_lock(struct verifier *v, const struct call *c)
{
	const struct reg *r = &verify_frame(v)->regs[1];
	struct ref *ref;
	int err = check_lock_arg(v, c, r);

	err = err ? err : verify_acquire(v, REF_LOCK, r->id, &ref);
	if (err == 0) {
		ref->map = r->map;
	}
	return err;
}

int verify_unlock(struct verifier *v, const struct call *c)
{
	const struct reg *r = &verify_frame(v)->regs[1];
	const struct ref *l = held_lock(v);
	int err = check_lock_arg(v, c, r);

	if (err) {
		return err;
	}
	if (!l) {
		return verify_refuse(v, v->pc, "lock", "%s: no lock is held", c->what);
	}
	if (l->id != r->id || l->map != r->map) {
		report_hint(v->r, "use the pointer that you locked with");
		return verify_refuse(v, v->pc, "lock",
				     "%s: r1 is %s, but another value's lock was taken at %s",
				     c->what, verify_reg_text(v, r), verify_place_text(v, l->pc));
	}
	verify_release(v, l->id);
	return 0;
}

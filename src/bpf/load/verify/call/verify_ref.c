/* References: objects that a program acquires (a ring buffer record, an iterator, a lock, a helper
 * call with a callback) and must release exactly once on every path. */
#include <errno.h>
#include <string.h>

#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_int.h"

const struct ebpf_ref *ebpf_verify_ref(const struct ebpf_verifier *v, uint32_t id)
{
	for (unsigned i = 0; i < v->n_refs; i++) {
		if (v->refs[i].id == id) {
			return &v->refs[i];
		}
	}
	return NULL;
}

/* Counts the held iterators and running callbacks. Each is a loop that may enclose the current
 * instruction, and struct ebpf_costs has room for a fixed number of loops. */
static unsigned loops_held(const struct ebpf_verifier *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < v->n_refs; i++) {
		n += v->refs[i].kind == REF_ITER || v->refs[i].kind == REF_CALL;
	}
	return n;
}

int ebpf_verify_acquire(struct ebpf_verifier *v, enum ebpf_ref_kind kind, uint32_t id,
			struct ebpf_ref **ret)
{
	if (v->n_refs == VERIFY_MAX_REFS) {
		return ebpf_verify_refuse(
			v, v->pc, "ref", "more than %u records, iterators, locks and calls at once",
			VERIFY_MAX_REFS);
	}
	if ((kind == REF_ITER || kind == REF_CALL) && loops_held(v) == VERIFY_MAX_LOOPS) {
		return ebpf_verify_refuse(v, v->pc, kind == REF_ITER ? "iter" : "callback",
					  "more than %u iterators and calls that call back at once",
					  VERIFY_MAX_LOOPS);
	}
	*ret = &v->refs[v->n_refs++];
	**ret = (struct ebpf_ref){ .id = id, .pc = v->pc, .kind = (uint8_t)kind };
	return 0;
}

void ebpf_verify_release(struct ebpf_verifier *v, uint32_t id)
{
	unsigned to = 0;

	for (unsigned i = 0; i < v->n_refs; i++) {
		if (v->refs[i].id != id) {
			v->refs[to++] = v->refs[i];
		}
	}
	v->n_refs = to;
}

static const char *kind_text(const struct ebpf_ref *r)
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

static const char *kind_hint(const struct ebpf_ref *r)
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

int ebpf_verify_held(struct ebpf_verifier *v, const struct ebpf_ref *r, const char *where)
{
	report_hint(v->r, "%s", kind_hint(r));
	return ebpf_verify_refuse(v, v->pc,
				  r->kind == REF_ITER	? "iter"
				  : r->kind == REF_LOCK ? "lock"
							: "ref",
				  "%s at %s is still held %s", kind_text(r),
				  ebpf_verify_place_text(v, r->pc), where);
}

int ebpf_verify_no_refs(struct ebpf_verifier *v, const char *where)
{
	return v->n_refs ? ebpf_verify_held(v, &v->refs[v->n_refs - 1], where) : 0;
}

int ebpf_verify_no_record(struct ebpf_verifier *v, const char *where)
{
	for (unsigned i = 0; i < v->n_refs && ebpf_verify_on(v, SIDE_DEVICE); i++) {
		if (v->refs[i].kind == REF_RECORD && v->refs[i].map == v->depth) {
			return ebpf_verify_held(v, &v->refs[i], where);
		}
	}
	return 0;
}

int ebpf_verify_own(struct ebpf_verifier *v, const struct ebpf_helper_call *c, uint32_t id)
{
	int own = 0;

	for (unsigned i = 0; i < v->n_refs; i++) {
		own = v->refs[i].id == id || (own && v->refs[i].kind != REF_CALL);
	}
	return own ? 0
		   : ebpf_verify_refuse(
			     v, v->pc, "callback",
			     "%s: what the caller holds is not a called back function's to "
			     "use up or give back",
			     c->what);
}

static const struct ebpf_ref *held_lock(const struct ebpf_verifier *v)
{
	const struct ebpf_ref *found = NULL;

	for (unsigned i = 0; i < v->n_refs; i++) {
		found = v->refs[i].kind == REF_LOCK ? &v->refs[i] : found;
	}
	return found;
}

int ebpf_verify_no_lock(struct ebpf_verifier *v, const char *what)
{
	const struct ebpf_ref *l = v->n_refs ? held_lock(v) : NULL;

	if (!l) {
		return 0;
	}
	report_hint(v->r, "unlock first; look everything up before you lock");
	return ebpf_verify_refuse(v, v->pc, "lock", "%s while the lock taken at %s is held", what,
				  ebpf_verify_place_text(v, l->pc));
}

static int check_lock_arg(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			  const struct ebpf_reg *r)
{
	const struct ebpf_map_def *m;

	if (r->type != REG_VALUE) {
		if (ebpf_reg_is_nullable(r)) {
			report_hint(v->r, "compare it with NULL first");
		}
		return ebpf_verify_refuse(v, v->pc, ebpf_reg_is_nullable(r) ? "null" : "lock",
					  "%s: r1 must point to a struct bpf_spin_lock in a map's "
					  "value, but is %s",
					  c->what, ebpf_verify_reg_text(v, r));
	}
	m = &v->maps[r->map];
	if (!m->lock_1) {
		report_hint(v->r, "give the value a struct bpf_spin_lock, and the map "
				  "GBPF_F_DAEMON");
		return ebpf_verify_refuse(v, v->pc, "lock", "%s: values of %s have no lock",
					  c->what, m->name);
	}
	if (!ebpf_scalar_is_const(&r->v) || r->v.t.value != m->lock_1 - 1) {
		return ebpf_verify_refuse(
			v, v->pc, "lock", "%s: the lock of %s is at offset %u, and r1 is %s",
			c->what, m->name, m->lock_1 - 1, ebpf_verify_reg_text(v, r));
	}
	return 0;
}

int ebpf_verify_lock(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[1];
	struct ebpf_ref *ref;
	int err = check_lock_arg(v, c, r);

	err = err ? err : ebpf_verify_acquire(v, REF_LOCK, r->id, &ref);
	if (err == 0) {
		ref->map = r->map;
	}
	return err;
}

int ebpf_verify_unlock(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[1];
	const struct ebpf_ref *l = held_lock(v);
	int err = check_lock_arg(v, c, r);

	if (err) {
		return err;
	}
	if (!l) {
		return ebpf_verify_refuse(v, v->pc, "lock", "%s: no lock is held", c->what);
	}
	if (l->id != r->id || l->map != r->map) {
		report_hint(v->r, "use the pointer that you locked with");
		return ebpf_verify_refuse(
			v, v->pc, "lock", "%s: r1 is %s, but another value's lock was taken at %s",
			c->what, ebpf_verify_reg_text(v, r), ebpf_verify_place_text(v, l->pc));
	}
	ebpf_verify_release(v, l->id);
	return 0;
}

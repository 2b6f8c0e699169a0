/* References: what a program has acquired (a record of a ring buffer, an iterator, a lock, a call
 * that calls back) and must give back exactly once, on every path. */
#include <errno.h>
#include <string.h>

#include "bpf/load/verify_int.h"

const struct ref *verify_ref(const struct verifier *v, uint32_t id)
{
	for (unsigned i = 0; i < v->n_refs; i++) {
		if (v->refs[i].id == id) {
			return &v->refs[i];
		}
	}
	return NULL;
}

int verify_acquire(struct verifier *v, enum ref_kind kind, uint32_t id, struct ref **ret)
{
	if (v->n_refs == VERIFY_MAX_REFS) {
		return verify_refuse(v, v->pc, "ref",
				     "more than %u records, iterators, locks and calls at once",
				     VERIFY_MAX_REFS);
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
			     "%s at insn %u is still held %s", kind_text(r), r->pc, where);
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

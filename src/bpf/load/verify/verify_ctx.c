/* Accesses to the context: which fields an access covers, and what is known of a field. */
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"
#include "bpf/run/ctx_bound.h"

/* Returns whether an access beyond field f covers whole fields exactly. Compilers merge accesses to
 * adjacent fields. */
static int covers_fields(const struct ebpf_verifier *v, const struct ebpf_verify_field *f,
			 int64_t off, int64_t end)
{
	while (f && f->offset == off) {
		off += f->bytes;
		if (off >= end) {
			return off == end;
		}
		f = ebpf_verify_field_at(v->hook, off);
	}
	return 0;
}

/* Adds a hint that lists the writable fields. */
static void hint_writable(struct ebpf_verifier *v)
{
	const char *sep = "";
	const struct ebpf_verify_field *f;
	struct buf names;
	uint32_t n;

	buf_init(&names);
	f = ebpf_verify_fields(&n);
	for (uint32_t i = 0; i < n; i++) {
		if (f[i].hook == v->hook->id && f[i].writable) {
			buf_printf(&names, "%sctx->%s", sep, f[i].name);
			sep = ", ";
		}
	}
	report_hint(v->r, "the fields that %s may write: %s", v->hook->name,
		    names.len ? buf_text(&names) : "none");
	buf_finish(&names);
}

static int check_field_write(struct ebpf_verifier *v, const struct ebpf_verify_field *f,
			     unsigned bytes, int merged, const char *what)
{
	if (!f->writable) {
		if (merged) {
			report_hint(v->r,
				    "drop the store to %s: the compiler has merged it with "
				    "the one to the field beside it",
				    f->name);
		}
		hint_writable(v);
		return ebpf_verify_refuse(v, v->pc, "readonly", "%s: ctx->%s may only be read",
					  what, f->name);
	}
	if (bytes < f->bytes) {
		return ebpf_verify_refuse(v, v->pc, "ctx",
					  "%s: ctx->%s is written whole, in %u bytes", what,
					  f->name, f->bytes);
	}
	return 0;
}

static int check_place(struct ebpf_verifier *v, int64_t off, unsigned bytes, int access,
		       const char *what)
{
	const struct ebpf_verify_field *f = ebpf_verify_field_at(v->hook, off);
	int64_t end = off + bytes;
	int merged = f && end > (int64_t)f->offset + f->bytes, err = 0;

	if (!f) {
		return ebpf_verify_refuse(
			v, v->pc, "ctx",
			"%s: %s has no field at offset %lld (its context has %u bytes)", what,
			v->hook->name, (long long)off, v->hook->ctx_bytes);
	}
	if (merged && ebpf_verify_on(v, SIDE_DEVICE)) {
		report_hint(v->r, "read the fields one by one; declare a copy volatile if the "
				  "compiler merges the loads");
		return ebpf_verify_refuse(v, v->pc, "ctx",
					  "%s: %u bytes at offset %lld are ctx->%s and its "
					  "neighbour, but inside a kernel the context is not in "
					  "memory",
					  what, bytes, (long long)off, f->name);
	}
	if (merged && !covers_fields(v, f, off, end)) {
		return ebpf_verify_refuse(v, v->pc, "ctx",
					  "%s: %u bytes at offset %lld reach beyond ctx->%s", what,
					  bytes, (long long)off, f->name);
	}
	if (access & ACCESS_WRITE) {
		for (; err == 0 && f && f->offset < end;
		     f = ebpf_verify_field_at(v->hook, f->offset + f->bytes)) {
			err = check_field_write(v, f, bytes, merged, what);
		}
	}
	if (err == 0 && off % bytes) {
		return ebpf_verify_refuse(v, v->pc, "align",
					  "%s: %u bytes at offset %lld of the context", what, bytes,
					  (long long)off);
	}
	return err;
}

/* Sets *out to what a load at offset off gives. A program can change the fields that it may write,
 * so their maxima do not count. */
static void read_place(const struct ebpf_verifier *v, int64_t off, unsigned bytes, int sign_extend,
		       struct ebpf_scalar *out)
{
	const struct ebpf_verify_field *f = ebpf_verify_field_at(v->hook, off);
	uint32_t max = bytes == 4 ? ebpf_ctx_max((unsigned)v->hook->id, (uint32_t)off) : UINT32_MAX;

	ebpf_scalar_loaded(out, bytes, sign_extend);
	if (f && !f->writable && max <= INT32_MAX) {
		ebpf_scalar_urange(out, 0, max);
	}
}

/* Stores the places to which a pointer into the context may point. Returns their number, or an
 * error. */
static int places(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t *ret,
		  const char *what)
{
	unsigned n = ebpf_scalar_values(&ptr->v, ret, VERIFY_MAX_PLACES);

	v->work += n;
	if (n) {
		return (int)n;
	}
	report_hint(v->r, "name the field on each path (ctx->field), and keep its value instead of "
			  "its address");
	return ebpf_verify_refuse(v, v->pc, "ctx",
				  "%s: the context at offset %s, where a pointer may have %u known "
				  "offsets at most",
				  what, ebpf_verify_range_text(&ptr->v), VERIFY_MAX_PLACES);
}

int ebpf_verify_ctx_load(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			 unsigned bytes, int sign_extend, struct ebpf_scalar *out)
{
	int64_t at[VERIFY_MAX_PLACES];
	struct ebpf_scalar one;
	int n = places(v, ptr, at, "load"), err = MIN(n, 0);

	for (int i = 0; err == 0 && i < n; i++) {
		err = check_place(v, at[i] + off, bytes, ACCESS_READ, "load");
		if (err == 0) {
			read_place(v, at[i] + off, bytes, sign_extend, i ? &one : out);
		}
		if (err == 0 && i) {
			ebpf_scalar_unite(out, &one);
		}
	}
	return err;
}

int ebpf_verify_ctx_store(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			  unsigned bytes)
{
	int64_t at[VERIFY_MAX_PLACES];
	int n = places(v, ptr, at, "store"), err = MIN(n, 0);

	for (int i = 0; err == 0 && i < n; i++) {
		err = check_place(v, at[i] + off, bytes, ACCESS_WRITE, "store");
	}
	return err;
}

int ebpf_verify_one_source(struct ebpf_verifier *v, const struct ebpf_reg *ptr)
{
	v->loads[v->pc] |= ptr->type == REG_CTX ? CTX_READ : CTX_NOT_READ;
	if (!ebpf_verify_on(v, SIDE_DEVICE) || v->loads[v->pc] != (CTX_READ | CTX_NOT_READ)) {
		return 0;
	}
	report_hint(v->r, "load the field on each path before they meet, or call a function of its "
			  "own for the context");
	return ebpf_verify_refuse(v, v->pc, "ctx",
				  "the load reads the context on one path and other memory on "
				  "another; inside a kernel the context is not in memory");
}

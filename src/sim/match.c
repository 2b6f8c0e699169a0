/* Compares a struct with `{member=value, member>=value ...}`. */
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/btf/typed_btf.h"
#include "sim/sim_int.h"

static int find_member(struct sim *s, uint32_t type, size_t bytes, struct ebpf_typed_part *part)
{
	size_t len = strcspn(s->at, " \t=<>!{},");
	char path[128];
	struct report r;
	int err = 0;

	if (!len || len >= sizeof(path)) {
		return sim_wrong(s, s->at, NULL, "here a member's name is needed");
	}
	memcpy(path, s->at, len);
	path[len] = 0;
	report_init(&r);
	if (ebpf_typed_find(ebpf_object_btf(&s->testbed.built.object), type, bytes, path, part,
			    &r) < 0) {
		err = sim_wrong(s, s->at, buf_text(&r.hint), "%s", buf_text(&r.message));
	}
	report_finish(&r);
	s->at += err ? 0 : len;
	return err;
}

/* Compares "text" with a char array. */
static int match_text(struct sim *s, const struct ebpf_typed_part *part, const uint8_t *base,
		      enum sim_compare c, bool *holds)
{
	const char *from = ++s->at;
	size_t n = strcspn(from, "\"");

	if (from[n] != '"' || (c != SIM_EQ && c != SIM_NE)) {
		return sim_wrong(s, from, NULL, "a text is compared with = or != and ends with \"");
	}
	s->at = from + n + 1;
	if (base) {
		const char *have = (const char *)base + part->offset;
		bool same = strnlen(have, part->bytes) == n && memcmp(have, from, n) == 0;

		*holds = *holds && (c == SIM_EQ ? same : !same);
	}
	return 0;
}

static int match_member(struct sim *s, uint32_t type, const uint8_t *base, size_t bytes,
			bool *holds)
{
	const struct btf *btf = ebpf_object_btf(&s->testbed.built.object);
	struct sim_value have = { 0 }, want;
	struct ebpf_typed_part part;
	const struct btf_type *t;
	const char *at = s->at;
	enum sim_compare c;
	int64_t named;
	int err = find_member(s, type, bytes, &part);

	if (err) {
		return err;
	}
	c = sim_comparison(s);
	sim_blanks(s);
	if (c == SIM_NONE) {
		return sim_wrong(s, s->at, NULL,
				 "here a comparison is needed: =, !=, <, <=, >, >=");
	}
	t = ebpf_typed_resolve(btf, part.type);
	if (*s->at == '"' && !ebpf_typed_is_scalar(t)) {
		return match_text(s, &part, base, c, holds);
	}
	if (!ebpf_typed_is_scalar(t)) {
		return sim_wrong(s, at, "Name one of its members, as in a.b=1 or a[2]=1",
				 "this is not a number");
	}
	if (ebpf_typed_enum_value(btf, t, s->at, sim_word(s), &named) == 0) {
		want = (struct sim_value){ (uint64_t)named, true };
		s->at += sim_word(s);
	} else {
		err = sim_expression(s, NULL, &want);
	}
	if (!err && base) {
		ebpf_typed_read(btf, &part, base, &have.v, &have.is_signed);
		*holds = *holds && sim_holds(c, have, want);
	}
	return err;
}

int sim_match(struct sim *s, uint32_t type, const void *base, size_t bytes, bool *ret_holds)
{
	*ret_holds = true;
	if (!sim_take(s, "{")) {
		return sim_wrong(s, s->at, NULL, "here '{' is needed");
	}
	while (!sim_take(s, "}")) {
		int err = match_member(s, type, base, bytes, ret_holds);

		if (err) {
			return err;
		}
		sim_take(s, ",");
		sim_blanks(s);
		if (!*s->at) {
			return sim_wrong(s, s->at, NULL, "here '}' is needed");
		}
	}
	return 0;
}

/* `set NAME[KEY].member of TENANT = VALUE`: writes to a map as an operator does, before or while
 * the policy runs. */
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "sim/sim_int.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

/* Parses {..}, [..] or "..", which extend to the end of the line. */
static int set_typed(struct sim *s, const struct sim_place *p, uint8_t *value)
{
	struct report r;
	int err = 0;

	report_init(&r);
	if (ebpf_typed_parse(ebpf_object_btf(&s->testbed.built.object), p->part.type, s->at,
			     value + p->part.offset, p->part.bytes, &r) < 0) {
		err = sim_wrong(s, s->at, buf_text(&r.hint), "%s", buf_text(&r.message));
	}
	report_finish(&r);
	s->at += err ? 0 : strlen(s->at);
	return err;
}

static int set_number(struct sim *s, const struct sim_place *p, uint8_t *value)
{
	const char *at = s->at;
	struct sim_value v;
	int err = sim_expression(s, NULL, &v);

	if (err) {
		return err;
	}
	err = ebpf_typed_write(ebpf_object_btf(&s->testbed.built.object), &p->part, value, v.v);
	if (err == -EINVAL && !p->type && p->part.bytes <= 8) {
		memcpy(value + p->part.offset, &v.v, p->part.bytes);
		err = 0;
	}
	return err ? sim_wrong(s, at, NULL,
			       err == -ERANGE ? "the number does not fit"
					      : "this place does not hold a number")
		   : 0;
}

int sim_set(struct sim *s)
{
	static uint8_t value[EBPF_MAX_VALUE_BYTES];
	const struct ebpf_map_def *d;
	struct sim_place p;
	const char *at;
	int err;

	sim_take_word(s, "map");
	sim_blanks(s);
	at = s->at;
	err = sim_place_parse(s, &p);
	if (err) {
		return err;
	}
	d = &s->testbed.built.object.maps[p.map];
	if (d->flags & GBPF_F_RDONLY) {
		return sim_wrong(s, at, "Change it in the source: the verifier counts on it",
				 "this is a constant");
	}
	if (p.whole_map || p.bytes > sizeof(value)) {
		return sim_wrong(s, at, "Which element? set NAME[KEY] = VALUE",
				 "this is a whole map");
	}
	if (!sim_take(s, "=")) {
		return sim_wrong(s, s->at, NULL, "here '=' is needed");
	}
	sim_blanks(s);
	memset(value, 0, p.bytes);
	if (p.base) {
		memcpy(value, p.base, p.bytes);
	}
	err = strchr("{[\"", *s->at) && *s->at ? set_typed(s, &p, value) : set_number(s, &p, value);
	if (err || s->dry) {
		return err;
	}
	err = ebpf_map_update(p.live, p.key, value, 0);
	return err ? sim_wrong(s, at, NULL, "this cannot be set: %s", strerror(-err)) : 0;
}

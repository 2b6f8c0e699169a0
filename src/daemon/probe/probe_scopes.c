/* What a tool is set to, for all kernels and for patterns of their names. For each kernel the last
 * set counts that names it, separately for the interval of blocks and for on and off; a set without
 * a pattern names all kernels. So it ends what it overrides in the scopes. */
#include "daemon/probe/probes_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_empty(const struct proto_probe_scope *s)
{
	return !s->every && s->on_off == PROTO_PROBE_AS_OTHERS;
}

/* Removes from the scopes of a pattern, NULL: of all, what a later set overrides. */
static void override(struct proto_probe_control *c, const char *kernel, uint32_t every,
		     uint32_t on_off)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n; i++) {
		struct proto_probe_scope s = c->scopes[i];

		if (!kernel || strcmp(s.kernel, kernel) == 0) {
			s.every = every ? 0 : s.every;
			s.on_off = on_off ? PROTO_PROBE_AS_OTHERS : s.on_off;
		}
		if (!is_empty(&s)) {
			c->scopes[n++] = s;
		}
	}
	memset(&c->scopes[n], 0, (c->n - n) * sizeof(c->scopes[0]));
	c->n = n;
}

void daemon_probe_set_all(struct proto_probe_control *c, uint32_t every, uint32_t on_off)
{
	override(c, NULL, every, on_off);
	c->every = every ? every : c->every;
	c->off = on_off ? on_off == PROTO_PROBE_OFF : c->off;
}

int daemon_probe_set_scope(struct proto_probe_control *c, const char *kernel, uint32_t every,
			   uint32_t on_off)
{
	struct proto_probe_control changed = *c;
	struct proto_probe_scope *s;

	override(&changed, kernel, every, on_off);
	s = changed.n ? &changed.scopes[changed.n - 1] : NULL;
	if (!s || strcmp(s->kernel, kernel) != 0) {
		if (changed.n == PROTO_PROBE_SCOPES) {
			return -E2BIG;
		}
		s = &changed.scopes[changed.n++];
		snprintf(s->kernel, sizeof(s->kernel), "%s", kernel);
	}
	s->every = every ? every : s->every;
	s->on_off = on_off ? on_off : s->on_off;
	*c = changed;
	return 0;
}

uint32_t daemon_probe_on_off(const json_t *j)
{
	const json_t *off = json_object_get(j, "off");

	return !json_is_boolean(off) ? PROTO_PROBE_AS_OTHERS
	       : json_is_true(off)   ? PROTO_PROBE_OFF
				     : PROTO_PROBE_ON;
}

json_t *daemon_probe_scopes_json(const struct proto_probe_control *c)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < c->n; i++) {
		const struct proto_probe_scope *s = &c->scopes[i];
		json_t *j = json_pack("{s:s}", "kernel", s->kernel);

		if (j && s->every) {
			json_object_set_new(j, "every", json_integer(s->every));
		}
		if (j && s->on_off) {
			json_object_set_new(j, "off", json_boolean(s->on_off == PROTO_PROBE_OFF));
		}
		json_array_append_new(all, j);
	}
	return all;
}

bool daemon_probe_scopes_take(struct proto_probe_control *c, const json_t *all)
{
	const json_t *j;
	size_t i;

	json_array_foreach(all, i, j)
	{
		const char *kernel = json_string_value(json_object_get(j, "kernel"));
		json_int_t every = json_integer_value(json_object_get(j, "every"));
		struct proto_probe_scope *s = &c->scopes[MIN(c->n, PROTO_PROBE_SCOPES - 1)];

		if (c->n == PROTO_PROBE_SCOPES || !kernel || !daemon_probe_good_kernel(kernel) ||
		    every < 0 || every > DAEMON_PROBE_EVERY_MAX) {
			return false;
		}
		snprintf(s->kernel, sizeof(s->kernel), "%s", kernel);
		s->every = (uint32_t)every;
		s->on_off = daemon_probe_on_off(j);
		c->n += !is_empty(s);
	}
	return true;
}

/* Properties that a statement of a scenario sets: the rest of its line is NAME=VALUE ... */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/nearest.h"
#include "sim/sim_int.h"

static int unknown(struct sim *s, const struct sim_property *all, size_t n, const char *what,
		   const struct sim_pair *p)
{
	struct buf names = { 0 };
	struct nearest near;

	nearest_init(&near, p->name);
	for (size_t i = 0; i < n; i++) {
		nearest_offer(&near, all[i].name);
		buf_printf(&names, "%s%s", i ? ", " : "", all[i].name);
	}
	sim_unknown(s, p->at, &near, &names, "a %s has no '%s'", what, p->name);
	buf_finish(&names);
	return -EINVAL;
}

static int set(struct sim *s, const struct sim_property *all, size_t n, const char *what,
	       const struct sim_pair *p)
{
	size_t i = 0;

	while (i < n && strcmp(all[i].name, p->name) != 0) {
		i++;
	}
	if (i == n) {
		return unknown(s, all, n, what, p);
	}
	if (p->value.v < all[i].min || p->value.v > all[i].max) {
		return sim_wrong(s, p->value_at, NULL, "not from %" PRIu64 " to %" PRIu64,
				 all[i].min, all[i].max);
	}
	if (all[i].wide) {
		*all[i].wide = p->value.v;
	} else {
		*all[i].field = (uint32_t)p->value.v;
	}
	return 0;
}

int sim_set_properties(struct sim *s, const struct sim_property *all, size_t n, const char *what)
{
	int err = 0;

	while (!err && (sim_blanks(s), *s->at)) {
		struct sim_pair p;

		err = sim_next_pair(s, &p);
		err = err ? err : set(s, all, n, what, &p);
	}
	return err;
}

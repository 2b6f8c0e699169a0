/* Calls about tools. */
#include "lib/lib_int.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define HAS(p, member) ((p)->size >= offsetof(struct gbpf_probe, member) + sizeof((p)->member))
#define FIRST_BYTES (offsetof(struct gbpf_probe, flags) + sizeof(unsigned)) /* the least size */

/* Returns a number as such: names of tenants that are numbers cannot be told from these. */
static json_t *target(const char *to)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(to, &end, 10);
	return to[0] >= '0' && to[0] <= '9' && !*end && !errno && n <= INT64_MAX
		       ? json_integer((json_int_t)n)
		       : json_string(to);
}

static bool add(json_t *p, const char *name, json_t *value)
{
	return value && json_object_set_new(p, name, value) == 0;
}

/* Returns the parameters, or NULL if a text is not UTF-8. */
static json_t *params(const struct gbpf_probe *a)
{
	json_t *p = json_object();
	bool good = add(p, "name", json_string(a->name ? a->name : ""));

	if (a->to) {
		good &= add(p, "to", target(a->to));
	}
	if (a->kernel) {
		good &= add(p, "kernel", json_string(a->kernel));
	}
	if (a->replace) {
		good &= add(p, "replace", json_integer(a->replace));
	}
	if (HAS(a, budget_ppm) && a->budget_ppm) {
		good &= add(
			p, "budget_ppm",
			json_integer(a->budget_ppm == GBPF_PROBE_NO_BUDGET ? 0 : a->budget_ppm));
	}
	if (HAS(a, every) && a->every) {
		good &= add(p, "every", json_integer(a->every));
	}
	if (a->flags & GBPF_PROBE_HOLD) {
		good &= add(p, "hold", json_true());
	}
	if (a->flags & GBPF_PROBE_PARTIAL) {
		good &= add(p, "partial", json_true());
	}
	if (a->flags & GBPF_PROBE_VERIFY) {
		good &= add(p, "verify", json_true());
	}
	if (a->flags & GBPF_PROBE_LATER) {
		good &= add(p, "later", json_true());
	}
	if (!good) {
		json_decref(p);
		return NULL;
	}
	return p;
}

EXPORT int gbpf_probe_attach(struct gbpf *g, const void *elf, size_t bytes,
			     const struct gbpf_probe *p, char **ret_json)
{
	if (p->size < FIRST_BYTES) {
		return lib_fail(g, -EINVAL, GBPF_CODE_USAGE, "usage",
				"Set it to sizeof(struct gbpf_probe)",
				"the size of struct gbpf_probe is %zu", p->size);
	}
	return lib_send_object(g, "probe.attach", p->name ? p->name : "", elf, bytes, params(p),
			       ret_json);
}

EXPORT int gbpf_probe_list(struct gbpf *g, char **ret_json)
{
	return lib_text(g, "probe.list", json_object(), -1, ret_json);
}

EXPORT int gbpf_probe_set(struct gbpf *g, uint32_t id, uint32_t every, int off, char **ret_json)
{
	json_t *p = json_pack("{s:I,s:b}", "id", (json_int_t)id, "off", off != 0);

	if (p && every) {
		json_object_set_new(p, "every", json_integer(every));
	}
	return lib_text(g, "probe.set", p, -1, ret_json);
}

EXPORT int gbpf_probe_set_kernel(struct gbpf *g, uint32_t id, const char *kernel, uint32_t every,
				 int off, char **ret_json)
{
	json_t *p = json_pack("{s:I,s:s}", "id", (json_int_t)id, "kernel", kernel);

	if (p && every) {
		json_object_set_new(p, "every", json_integer(every));
	}
	if (p && off >= 0) {
		json_object_set_new(p, "off", json_boolean(off != 0));
	}
	return lib_text(g, "probe.set", p, -1, ret_json);
}

EXPORT int gbpf_probe_set_budget(struct gbpf *g, uint32_t id, uint32_t budget_ppm, char **ret_json)
{
	return lib_text(
		g, "probe.set",
		json_pack("{s:I,s:I}", "id", (json_int_t)id, "budget_ppm", (json_int_t)budget_ppm),
		-1, ret_json);
}

EXPORT int gbpf_probe_detach(struct gbpf *g, uint32_t id, char **ret_json)
{
	return lib_text(g, "probe.detach", json_pack("{s:I}", "id", (json_int_t)id), -1, ret_json);
}

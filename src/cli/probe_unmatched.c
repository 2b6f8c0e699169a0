/* Notes about patterns of kernels' names that match no kernel: most likely the name is wrong. */
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"
#include "cli/connect.h"
#include "cli/hook_names.h"
#include "cli/probe_options.h"
#include "proto/pages.h"
#include "ptx/probe.h"

static const char *pattern_of(const json_t *program)
{
	const char *pattern = cli_text(program, "kernel");

	return pattern[0] ? pattern : "*";
}

/* Returns whether a name that may be cut certainly matches. */
static bool matches(const char *pattern, const char *name, bool cut)
{
	size_t n = strlen(pattern);

	return pattern_matches(pattern, name) && (!cut || (n && pattern[n - 1] == '*'));
}

/* A name that is cut proves that a pattern does not match, and, if the pattern ends with *, that it
 * does. */
static void add_kernel(struct cli_probe_search *s, const char *name, const char *within,
		       const char *pattern)
{
	bool cut = strlen(name) >= PROTO_KERNEL_NAME - 1;

	if (cut ? !pattern_may_match(within, name) : !pattern_matches(within, name)) {
		return;
	}
	s->kernels++;
	if (matches(within, name, cut) && matches(pattern, name, cut)) {
		s->matches++;
	} else if (cut && pattern_may_match(pattern, name)) {
		s->complete = false;
	}
	if (!cut) {
		nearest_offer(&s->near, name);
	}
}

void cli_probe_search(struct cli_probe_search *s, const json_t *coverage, const char *within,
		      const char *pattern)
{
	const json_t *tenant, *kernel;
	size_t i, k;

	*s = (struct cli_probe_search){ .complete = coverage };
	nearest_init(&s->near, pattern);
	json_array_foreach(json_object_get(coverage, "tenants"), i, tenant)
	{
		const json_t *kernels = json_object_get(tenant, "kernels");

		s->complete = s->complete && json_array_size(kernels) < PROTO_KERNELS;
		json_array_foreach(kernels, k, kernel)
		{
			add_kernel(s, cli_text(kernel, "name"), within, pattern);
		}
	}
}

/* Returns whether the pattern is a word of its hook's sites, as in gdev/access/load. */
static bool is_site(const json_t *program)
{
	const struct cli_hook_info *hook = cli_hook_by_name(cli_text(program, "hook"));

	return hook && strcmp(hook->side, "DEVICE") == 0 && !strstr(hook->name, "probe") &&
	       !ptx_probe_site_wrong((uint32_t)hook->id, pattern_of(program));
}

/* program: whose pattern it is, NULL for that of --kernel. */
static void note(struct cli *c, const json_t *tool, const char *pattern, const json_t *program,
		 const struct cli_probe_search *s)
{
	const char *best = nearest_best(&s->near), *site = cli_text(program, "site");
	struct buf hint;

	buf_init(&hint);
	if (program && is_site(program)) {
		buf_printf(&hint,
			   "; places are chosen behind the kernel: SEC(\"gdev%s/%s/*/%s%s%s\")",
			   json_is_true(json_object_get(program, "lane")) ? ".lane" : "",
			   cli_text(program, "hook") + strlen("gdev_"), pattern, site[0] ? "." : "",
			   site);
	} else if (best) {
		buf_printf(&hint, "; did you mean '%s'?", best);
	}
	cli_note(c,
		 "warning: tool %llu: '%s' matches none of the %zu kernel%s that `gbpf probe "
		 "coverage` lists%s",
		 (unsigned long long)cli_u64(tool, "id"), pattern, s->kernels, PLURAL(s->kernels),
		 buf_text(&hint));
	buf_finish(&hint);
}

/* Returns whether an earlier program has the same pattern. */
static bool is_repeated(const json_t *programs, size_t at)
{
	for (size_t i = 0; i < at; i++) {
		if (strcmp(pattern_of(json_array_get(programs, i)),
			   pattern_of(json_array_get(programs, at))) == 0) {
			return true;
		}
	}
	return false;
}

/* say: prints the warnings. Returns whether there are any. */
static bool note_all(struct cli *c, const json_t *tool, const json_t *coverage, bool say)
{
	const json_t *programs = json_object_get(tool, "programs"), *program;
	const char *kernel = pattern_of(tool);
	struct cli_probe_search s;
	bool any = false;
	size_t i;

	cli_probe_search(&s, coverage, "*", kernel);
	if (!s.complete && !s.matches) {
		return false;
	}
	if (s.kernels && !s.matches) {
		if (say) {
			note(c, tool, kernel, NULL, &s);
		}
		return true;
	}
	json_array_foreach(programs, i, program)
	{
		cli_probe_search(&s, coverage, kernel, pattern_of(program));
		if (s.complete && s.kernels && !s.matches && !is_repeated(programs, i)) {
			if (say) {
				note(c, tool, pattern_of(program), program, &s);
			}
			any = true;
		}
	}
	return any;
}

/* If some kernel has the tool, and all its programs are for the same kernels, all patterns match.
 */
static bool may_be_unmatched(const json_t *tool)
{
	const json_t *programs = json_object_get(tool, "programs");

	if (!cli_u64(tool, "kernels") && !cli_u64(tool, "waiting") && !cli_u64(tool, "refused")) {
		return true;
	}
	for (size_t i = 1; i < json_array_size(programs); i++) {
		if (!is_repeated(programs, i)) {
			return true;
		}
	}
	return false;
}

json_t *cli_probe_coverage(struct gbpf *g, const char *to, bool look)
{
	json_t *params = cli_probe_target(to && to[0] ? to : NULL), *result = NULL;
	char *text, *json = NULL;

	if (params) {
		json_object_set_new(params, "look", json_boolean(look));
	}
	text = params ? json_dumps(params, JSON_COMPACT) : NULL;
	if (text && gbpf_call(g, "probe.coverage", text, -1, &json) >= 0 && json) {
		result = json_loads(json, 0, NULL);
	}
	free(json);
	free(text);
	json_decref(params);
	return result;
}

/* Programs look at their kernels only if there seems to be something to warn of. */
bool cli_probe_note_unmatched(struct cli *c, struct gbpf *g, const json_t *tool)
{
	bool any = !c->quiet && may_be_unmatched(tool);

	for (int look = 0; any && look < 2; look++) {
		json_t *coverage = cli_probe_coverage(g, cli_text(tool, "to"), look);

		any = note_all(c, tool, coverage, look);
		json_decref(coverage);
	}
	return any;
}

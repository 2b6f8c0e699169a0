/* Tools as JSON, for probe.attach and probe.list. */
#include "daemon/probe/probes_int.h"

#include <string.h>

#include "base/clock.h"
#include "daemon/clean_text.h"

static const char *const hook_names[EBPF_MAX_HOOKS] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) [id] = #name,
#include "gbpf/hooks.def"
};

/* Sums over sessions. */
struct sums {
	unsigned sessions, late;
	uint64_t kernels, waiting, refused, falls_back, stubs, brackets, parts, unseen, launches,
		probed;
	uint64_t equal, differing, not_compared;
	const char *compared; /* borrowed from a part; NULL: "" */
	uint32_t cost_ppm;    /* the highest; PROTO_PROBE_COST_UNKNOWN: none is known */
	uint32_t resident_before, resident_after; /* where they differ most; 0: nowhere */
};

static bool loses_more(const struct daemon_probe_part *part, const struct sums *sums)
{
	return part->resident_after < part->resident_before &&
	       (!sums->resident_before ||
		(uint64_t)part->resident_after * sums->resident_before <
			(uint64_t)sums->resident_after * part->resident_before);
}

static void add_figures(struct sums *sums, const struct daemon_probe_part *part)
{
	sums->launches += part->launches;
	sums->probed += part->probed;
	if (part->cost_ppm != PROTO_PROBE_COST_UNKNOWN &&
	    (sums->cost_ppm == PROTO_PROBE_COST_UNKNOWN || part->cost_ppm > sums->cost_ppm)) {
		sums->cost_ppm = part->cost_ppm;
	}
	if (loses_more(part, sums)) {
		sums->resident_before = part->resident_before;
		sums->resident_after = part->resident_after;
	}
}

/* What differs counts more than what cannot be compared. */
static void add_compared(struct sums *sums, const struct daemon_probe_part *part)
{
	if (part->compared[0] && (part->differing || !sums->differing)) {
		sums->compared = part->compared;
	}
	sums->equal += part->equal;
	sums->differing += part->differing;
	sums->not_compared += part->not_compared;
}

static void add(struct sums *sums, const struct daemon_probe_part *part)
{
	sums->sessions++;
	sums->late += !part->answered;
	sums->kernels += part->gone ? 0 : part->kernels;
	sums->waiting += part->gone ? 0 : part->waiting;
	sums->refused += part->refused;
	sums->falls_back += part->gone ? 0 : part->falls_back;
	add_figures(sums, part);
	sums->unseen += part->gone ? 0 : part->unseen;
	sums->stubs += part->gone ? 0 : part->stubs;
	sums->brackets += part->gone ? 0 : part->brackets;
	sums->parts += part->gone ? 0 : part->parts;
	add_compared(sums, part);
}

const char *daemon_probe_why(const struct daemon_probe *p)
{
	const char *why = "";

	daemon_session_each(p->d, s)
	{
		const struct daemon_probe_part *part = daemon_probe_part(p, s);

		why = part && part->why[0] ? part->why : why;
	}
	return why;
}

static json_t *text_json(const char *text, size_t cap)
{
	char clean[EBPF_PATTERN_BYTES];

	daemon_text_copy(clean, sizeof(clean), text, strnlen(text, cap));
	return json_string(clean);
}

static json_t *programs_json(const struct daemon_probe *p)
{
	const struct ebpf_built *b = p->live->built;
	json_t *all = json_array();

	for (uint32_t i = 0; i < b->object.n_progs; i++) {
		const struct ebpf_prog *prog = &b->object.progs[i];

		json_array_append_new(
			all, json_pack("{s:o,s:s,s:b,s:o,s:o,s:i}", "program",
				       text_json(prog->name, sizeof(prog->name)), "hook",
				       hook_names[prog->hook] ? hook_names[prog->hook] : "?",
				       "lane", (int)prog->lane, "kernel",
				       text_json(prog->kernel, sizeof(prog->kernel)), "site",
				       text_json(prog->site, sizeof(prog->site)), "cost",
				       (int)b->stats[i].cost));
	}
	return all;
}

/* Kernels by what runs in them. */
static json_t *forms_json(uint64_t kernels, uint64_t stubs, uint64_t brackets)
{
	return json_pack("{s:I,s:I,s:I}", "ptx", (json_int_t)(kernels - stubs - brackets), "stub",
			 (json_int_t)stubs, "brackets", (json_int_t)brackets);
}

json_t *daemon_probe_attach_json(const struct daemon_probe *p)
{
	struct daemon_probe_gaps gaps = { 0 };
	struct sums sums = { 0 };

	daemon_session_each(p->d, s)
	{
		if (daemon_probe_part(p, s)) {
			add(&sums, daemon_probe_part(p, s));
			daemon_probe_gaps_add(&gaps, p, daemon_probe_part(p, s));
		}
	}
	return json_pack("{s:I,s:I,s:s,s:o,s:i,s:i,s:I,s:I,s:I,s:I,s:s,s:I,s:o}", "id",
			 (json_int_t)p->id, "version", (json_int_t)p->live->version, "name",
			 p->name, "programs", programs_json(p), "sessions", (int)sums.sessions,
			 "late", (int)sums.late, "kernels", (json_int_t)sums.kernels, "in_part",
			 (json_int_t)sums.parts, "waiting", (json_int_t)sums.waiting, "refused",
			 (json_int_t)sums.refused, "why", daemon_probe_why(p), "unseen",
			 (json_int_t)sums.unseen, "siteless", daemon_probe_gaps_json(&gaps, p));
}

/* Adds what it costs and what a budget leaves of it. */
static json_t *with_figures(json_t *to, const struct sums *sums)
{
	bool known = sums->cost_ppm != PROTO_PROBE_COST_UNKNOWN;

	json_object_set_new(to, "cost_ppm",
			    known ? json_integer((json_int_t)sums->cost_ppm) : json_null());
	json_object_set_new(to, "launches", json_integer((json_int_t)sums->launches));
	json_object_set_new(to, "probed", json_integer((json_int_t)sums->probed));
	json_object_set_new(to, "resident_before", json_integer(sums->resident_before));
	json_object_set_new(to, "resident_after", json_integer(sums->resident_after));
	return to;
}

/* Of a tool that was attached with `verify`; else null. */
static json_t *verify_json(const struct daemon_probe *p, const struct sums *sums)
{
	return p->verify ? json_pack("{s:I,s:I,s:I,s:s}", "equal", (json_int_t)sums->equal,
				     "differing", (json_int_t)sums->differing, "not_compared",
				     (json_int_t)sums->not_compared, "why",
				     sums->compared ? sums->compared : "")
			 : json_null();
}

static json_t *tenant_json(const struct daemon_session *s, const struct daemon_probe_part *part)
{
	struct sums figures = { .cost_ppm = PROTO_PROBE_COST_UNKNOWN };
	json_t *j;

	add_figures(&figures, part);
	j = json_pack(
		"{s:i,s:i,s:s,s:b,s:b,s:i,s:I,s:o,s:I,s:I,s:I,s:s,s:I}", "tenant", s->tenant, "pid",
		(int)s->peer.pid, "name", s->name, "answered", (int)part->answered, "ended",
		(int)part->gone, "status", (int)part->status, "kernels", (json_int_t)part->kernels,
		"forms", forms_json(part->kernels, part->stubs, part->brackets), "waiting",
		(json_int_t)part->waiting, "refused", (json_int_t)part->refused, "falls_back",
		(json_int_t)part->falls_back, "why", part->why, "unseen", (json_int_t)part->unseen);
	if (j) {
		json_object_set_new(j, "in_part", json_integer(part->parts));
		json_object_set_new(j, "connected_ns", json_integer((json_int_t)s->connected_ns));
		json_object_set_new(j, "reattached", json_boolean(s->hello.reattached));
	}
	return j ? with_figures(j, &figures) : NULL;
}

static const char *state_name(const struct daemon_probe *p)
{
	return p->ending ? "ending" : p->replaced ? "replaced" : "attached";
}

/* With the sessions that the caller may see. */
static json_t *probe_json(const struct daemon_call *c, const struct daemon_probe *p, bool all)
{
	json_t *tenants = json_array(), *j;
	struct daemon_probe_gaps gaps = { 0 };
	struct sums sums = { .cost_ppm = PROTO_PROBE_COST_UNKNOWN };
	const char *why = "";

	daemon_session_each(c->d, s)
	{
		const struct daemon_probe_part *part = daemon_probe_part(p, s);

		if (!part || !(all || s->peer.uid == c->peer.uid)) {
			continue;
		}
		add(&sums, part);
		daemon_probe_gaps_add(&gaps, p, part);
		why = part->why[0] ? part->why : why;
		json_array_append_new(tenants, tenant_json(s, part));
	}
	j = json_pack("{s:I,s:I,s:s,s:i,s:s,s:s,s:s,s:I,s:b,s:I,s:I,s:b,s:o,s:I,s:o,s:I,s:I,s:I,"
		      "s:s,s:o,s:b,s:I,s:o}",
		      "id", (json_int_t)p->id, "version", (json_int_t)p->live->version, "name",
		      p->name, "uid", (int)p->owner.uid, "kernel", p->kernel, "to", p->target.text,
		      "state", state_name(p), "age_ns",
		      (json_int_t)(clock_now_ns() - p->attached_ns), "hold", (int)p->held,
		      "budget_ppm", (json_int_t)p->budget_ppm, "every",
		      (json_int_t)p->control.every, "off", (int)p->control.off, "programs",
		      programs_json(p), "kernels", (json_int_t)sums.kernels, "forms",
		      forms_json(sums.kernels, sums.stubs, sums.brackets), "waiting",
		      (json_int_t)sums.waiting, "refused", (json_int_t)sums.refused, "falls_back",
		      (json_int_t)sums.falls_back, "why", why, "tenants", tenants, "may_detach",
		      (int)daemon_probe_may_change(c, p), "unseen", (json_int_t)sums.unseen,
		      "siteless", daemon_probe_gaps_json(&gaps, p));
	if (j) {
		json_object_set_new(j, "scopes", daemon_probe_scopes_json(&p->control));
		json_object_set_new(j, "partial", json_boolean(p->partial));
		json_object_set_new(j, "in_part", json_integer((json_int_t)sums.parts));
		json_object_set_new(j, "verify", verify_json(p, &sums));
	}
	return j ? with_figures(j, &sums) : NULL;
}

void daemon_method_probe_list(struct daemon_call *c)
{
	bool all = daemon_may_administer(c->d, c->sock);
	json_t *list = json_array();

	for (unsigned i = 0; i < DAEMON_PROBE_SLOTS; i++) {
		const struct daemon_probe *p = c->d->probes->at[i];

		if (p && daemon_probe_visible(c, p)) {
			json_array_append_new(list, probe_json(c, p, all));
		}
	}
	daemon_control_result(c, json_pack("{s:o}", "probes", list));
}

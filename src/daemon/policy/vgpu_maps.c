/* Fills the standard maps about vGPUs of policy versions from the vGPUs and their sessions. */
#include "daemon/policy/vgpu_maps.h"

#include <string.h>

#include "bpf/run/standard_maps.h"
#include "daemon/consts.h"
#include "daemon/policy/policies.h"
#include "daemon/vgpu/vgpu_list.h"

_Static_assert(GBPF_VGPUS == PROTO_VGPUS && EBPF_VGPUS == PROTO_VGPUS, "places of vGPUs");

static void fill_rows(struct daemon_version *l, struct ebpf_vgpu_row row[EBPF_VGPUS])
{
	struct daemon_vgpu_entry v;

	memset(row, 0, sizeof(row[0]) * EBPF_VGPUS);
	for (uint32_t place = 0; place < EBPF_VGPUS; place++) {
		if (daemon_vgpu_at(l->d, place, l->gpu, &v)) {
			row[place] =
				(struct ebpf_vgpu_row){ .present = true,
							.burst = v.config->flags & PROTO_VGPU_BURST,
							.compute = v.config->compute,
							.copy = v.config->copy,
							.prio = v.config->prio,
							.tenants = v.tenants,
							.gpus = v.gpus,
							.lanes = v.lanes,
							.limit = v.limit,
							.reserve = v.config->reserve,
							.used = v.used,
							.overhead = v.overhead };
		}
	}
}

void daemon_vgpu_maps_write(struct daemon_version *l)
{
	const struct ebpf_object *o = &l->built->object;
	struct ebpf_vgpu_row row[EBPF_VGPUS];

	/* While the worker copies its memory: daemon_vgpu_maps_write_all() follows. */
	if (l->copying || !ebpf_vgpu_maps_any(o->maps, o->n_maps)) {
		return;
	}
	fill_rows(l, row);
	ebpf_vgpu_maps_write(l->run.env.maps, o->maps, o->n_maps, row);
	daemon_version_publish(l);
}

void daemon_vgpu_maps_refresh(struct daemon_version *l)
{
	if (l->d->vgpus.n &&
	    ebpf_vgpu_maps_figures(l->built->object.maps, l->built->object.n_maps)) {
		daemon_vgpu_maps_write(l);
	}
}

/* Reports a share that the policy in force on the GPU does not learn of. what: "share", or "copy
 * share"; noted: the program has a line of another GPU. */
static void report_ignored(struct daemon_session *s, const char *what, uint32_t percent,
			   uint32_t gpu, bool *noted)
{
	const char *name = daemon_policy_active_name(s->d, gpu);

	daemon_session_event(s, "vgpu",
			     "%s has a %s of %u %% of GPU %u, which %s%s does not keep: "
			     "gbpf policy swap vgpu_auto",
			     s->name, what, percent, gpu,
			     name[0] ? "policy " : "gBPF without a policy", name);
	if (!s->hello.reattached && !*noted) {
		daemon_session_note(s, "vgpu",
				    "warning: the %s of %u %% of GPU %u is not kept by %s%s; 'gbpf "
				    "policy swap vgpu_auto' loads one that does",
				    what, percent, gpu,
				    name[0] ? "policy " : "gBPF without a policy", name);
		*noted = true;
	}
}

static bool keeps(const struct daemon_version *l, bool copy)
{
	const struct ebpf_object *o = l ? &l->built->object : NULL;

	return o && (copy ? ebpf_vgpu_maps_copies(o->maps, o->n_maps)
			  : ebpf_vgpu_maps_shares(o->maps, o->n_maps));
}

/* Adds the name of the first active policy that does not keep shares, "" for none, of the GPUs that
 * programs have used, or else of the first. */
static void add_ignoring(json_t *to, struct daemon *d, const char *member, bool copy)
{
	bool any = false;

	for (uint32_t gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
		any = any || d->devices.d[gpu].used;
	}
	for (uint32_t gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
		if ((any ? d->devices.d[gpu].used : !gpu) &&
		    !keeps(daemon_policy_active_on(d, gpu), copy)) {
			json_object_set_new(to, member,
					    json_string(daemon_policy_active_name(d, gpu)));
			return;
		}
	}
}

/* Adds an object "ignored" that names, for each share ("compute", "copy"), an active policy that
 * does not keep it, "" for gBPF without a policy. Shares may bring another default policy. Empty
 * while operations on policies are under way: the policy of the next moment is not known. */
static void shares_given(struct daemon *d, const struct proto_vgpu_config *given, json_t *answer)
{
	bool known = !daemon_policy_follow_shares(d) && !daemon_policies_busy(d);
	json_t *j = json_object();

	if (known && given->compute) {
		add_ignoring(j, d, "compute", false);
	}
	if (known && given->copy) {
		add_ignoring(j, d, "copy", true);
	}
	json_object_set_new(answer, "ignored", j);
}

static void check_shares(struct daemon_session *s)
{
	bool noted = false, copy_noted = false;
	struct daemon_vgpu_entry v;

	for (uint32_t gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
		struct daemon_version *l = daemon_policy_active_on(s->d, gpu);

		if (!(s->gpu_mask & 1u << gpu) ||
		    !daemon_vgpu_at(s->d, daemon_vgpu_place(s), gpu, &v)) {
			continue;
		}
		if (v.config->compute && !keeps(l, false)) {
			report_ignored(s, "share", v.config->compute, gpu, &noted);
		}
		if (v.config->copy && !keeps(l, true)) {
			report_ignored(s, "copy share", v.config->copy, gpu, &copy_noted);
		}
	}
}

static void session_ready(struct daemon_session *s)
{
	s->vgpu.unchecked = daemon_policy_follow_shares(s->d) || daemon_policies_busy(s->d);
	if (!s->vgpu.unchecked) {
		check_shares(s);
	}
}

void daemon_vgpu_maps_check_rest(struct daemon *d)
{
	daemon_session_each(d, s)
	{
		if (s->vgpu.unchecked && s->state == DAEMON_SESSION_READY && !s->dying) {
			check_shares(s);
		}
		s->vgpu.unchecked = false;
	}
}

void daemon_vgpu_maps_write_all(struct daemon *d)
{
	for (struct daemon_version *l = daemon_policy_next_live(d, NULL); l;
	     l = daemon_policy_next_live(d, l)) {
		daemon_vgpu_maps_write(l);
	}
}

const struct daemon_feature daemon_vgpu_shares_feature = {
	.session_ready = session_ready,
	.vgpus_changed = daemon_vgpu_maps_write_all,
	.shares_given = shares_given,
};

/* Methods of the control socket that report (processes, devices, events, status), and `set`, which
 * changes the class or weight of one process. */
#include "daemon/control_socket.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "daemon/audit.h"
#include "daemon/clean_text.h"
#include "daemon/consts.h"
#include "daemon/exits/exit_record.h"
#include "daemon/hw/hw_control.h"
#include "daemon/hw/mps.h"
#include "daemon/hw/mps_crash.h"
#include "daemon/hw/sharing_mode.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_prints.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/probe/probes.h"
#include "daemon/session/tenant_session.h"
#include "daemon/vgpu/vgpu.h"
#include "gpu/control.h"

static const char *state_name(const struct daemon_session *s)
{
	switch (s->state) {
	case DAEMON_SESSION_NEW:
		return "new";
	case DAEMON_SESSION_QUEUED:
		return "queued";
	case DAEMON_SESSION_LANE:
	case DAEMON_SESSION_WELCOMED:
		return "starting";
	case DAEMON_SESSION_READY:
		return s->class_id == 0 && s->lc.slot < 0 ? "unpublished" : "running";
	}
	return "?";
}

static const char *const level_names[] = {
	[GBPF_LEVEL_HOLD] = "hold",   [GBPF_LEVEL_DRAIN] = "drain", [GBPF_LEVEL_BLOCK] = "block",
	[GBPF_LEVEL_SLICE] = "slice", [GBPF_LEVEL_OFF] = "off",	    [GBPF_LEVEL_END] = "end",
};

static void add_lane(const struct daemon_session *s, json_t *j)
{
	json_t *levels = json_array();
	uint32_t now = daemon_hw_level(s), can = daemon_hw_levels(s);

	for (uint32_t i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (can & 1u << i) {
			json_array_append_new(levels, json_string(level_names[i]));
		}
	}
	json_object_set_new(j, "lane",
			    json_string(s->grant.lane == GBPF_LANE_SHARED ? "shared" : "process"));
	if (s->grant.lane == GBPF_LANE_SHARED && s->grant.sm_percent < 100) {
		json_object_set_new(j, "sm_percent", json_integer(s->grant.sm_percent));
	}
	json_object_set_new(j, "level",
			    json_string(now < ARRAY_SIZE(level_names) ? level_names[now] : ""));
	json_object_set_new(j, "levels", levels);
	json_object_set_new(j, "hurt", json_string(s->crash_reason));
	json_object_set_new(j, "slice_us", json_integer((json_int_t)daemon_hw_slice_us(s)));
}

/* Memory, if the process is in a vGPU. */
static void add_memory(const struct daemon_session *s, json_t *j)
{
	struct daemon_vgpu_figures f;

	daemon_vgpu_figures(s, &f);
	if (f.vgpu) {
		char number[24];

		snprintf(number, sizeof(number), "%llx", (unsigned long long)f.vgpu->number);
		json_object_set_new(j, "vgpu",
				    json_string(f.vgpu->name[0] ? f.vgpu->name : number));
		json_object_set_new(j, "vgpu_uid", json_integer((json_int_t)f.uid));
		json_object_set_new(j, "vgpu_place", json_integer(f.place));
		json_object_set_new(j, "compute", json_integer(f.vgpu->config.compute));
		json_object_set_new(j, "copy", json_integer(f.vgpu->config.copy));
		json_object_set_new(j, "mem_limit", json_integer((json_int_t)f.limit));
		json_object_set_new(j, "mem_used", json_integer((json_int_t)f.own));
		json_object_set_new(j, "mem_vgpu_used", json_integer((json_int_t)f.used));
		json_object_set_new(j, "mem_overhead", json_integer((json_int_t)f.overhead));
		json_object_set_new(j, "pinned_used", json_integer((json_int_t)f.pinned));
		json_object_set_new(j, "pinned_limit", json_integer((json_int_t)f.pinned_limit));
		json_object_set_new(j, "swap_used", json_integer((json_int_t)f.swap));
		json_object_set_new(j, "swap_limit", json_integer((json_int_t)f.swap_limit));
		json_object_set_new(j, "mem_shared", json_integer((json_int_t)f.shared));
		json_object_set_new(j, "mem_gbpf", json_integer((json_int_t)f.gbpf));
		json_object_set_new(j, "pinned_gbpf", json_integer((json_int_t)f.pinned_gbpf));
	}
}

static json_t *gpus_json(const struct daemon_session *s)
{
	json_t *gpus = json_array();

	for (uint32_t i = 0; i < s->gpus; i++) {
		json_array_append_new(gpus, json_integer(s->gpu_index[i]));
	}
	return gpus;
}

/* What every user may know of a tenant: that it is there, whose it is and what it may hold others
 * for. */
static json_t *hidden_json(const struct daemon_session *s)
{
	return json_pack("{s:i,s:i,s:i,s:s,s:s,s:s,s:o,s:s,s:b}", "tenant", s->tenant, "pid", 0,
			 "uid", (int)s->peer.uid, "name", "", "command", "", "class",
			 daemon_class_name(s->class_id), "gpus", gpus_json(s), "state",
			 state_name(s), "hidden", 1);
}

/* Returns what a policy that is in force on one of its GPUs says of it; "": nothing. */
static const char *explained(const struct daemon_session *s)
{
	for (unsigned i = 0; s->explained.version && i < PROTO_MAX_GPUS; i++) {
		if (s->gpu_mask & 1u << i &&
		    daemon_policy_active_version(s->d, i) == s->explained.version) {
			return s->explained.text;
		}
	}
	return "";
}

static json_t *tenant_json(const struct daemon_session *s)
{
	json_t *j =
		json_pack("{s:i,s:i,s:i,s:s,s:s,s:s,s:i,s:o,s:s,s:I}", "tenant", s->tenant, "pid",
			  (int)s->peer.pid, "uid", (int)s->peer.uid, "name", s->name, "command",
			  s->command, "class", daemon_class_name(s->class_id), "weight",
			  (int)s->weight, "gpus", gpus_json(s), "state", state_name(s), "age_ns",
			  (json_int_t)(clock_now_ns() - s->connected_ns));

	if (j) {
		add_lane(s, j);
		json_object_set_new(j, "explained", json_string(explained(s)));
		json_object_set_new(j, "group",
				    json_string(s->group.slot >= 0 ? s->group.name : ""));
		json_object_set_new(j, "group_number",
				    json_integer(s->group.slot >= 0 ? s->group.number : 0));
	}
	if (j && s->stats.map) {
		daemon_stats_json(s, j);
		add_memory(s, j);
	}
	return j;
}

void daemon_method_ps(struct daemon_call *c)
{
	bool all = daemon_may_administer(c->d, c->sock);
	json_t *tenants = json_array();

	for (unsigned i = 0; i < PROTO_MAX_TENANTS; i++) {
		const struct daemon_session *s = c->d->sessions.tenant[i];

		if (s && !s->dying) {
			json_array_append_new(tenants, all || s->peer.uid == c->peer.uid
							       ? tenant_json(s)
							       : hidden_json(s));
		}
	}
	daemon_control_result(c, json_pack("{s:o}", "tenants", tenants));
}

/* Returns true if the process has a session, or had one whose exit record is not written yet. */
static bool is_awaited(const struct daemon *d, int pid)
{
	daemon_session_each(d, s)
	{
		if (s->peer.pid == pid) {
			return true;
		}
	}
	return daemon_exit_record_is_pending(d, pid);
}

/* Answers how many times gbpf run may restart a process that has exited, and what broke it. */
void daemon_method_restart(struct daemon_call *c)
{
	json_int_t n = json_integer_value(json_object_get(c->params, "pid"));
	json_int_t age = json_integer_value(json_object_get(c->params, "age_ns"));
	int pid = n > 0 && n <= INT_MAX ? (int)n : -1;
	bool known = !is_awaited(c->d, pid);
	const struct daemon_mps_exit *f =
		known ? daemon_mps_exit_find(c->d, pid, age > 0 ? (uint64_t)age : UINT64_MAX)
		      : NULL;

	if (f && c->peer.uid != 0 && c->peer.uid != f->uid) {
		f = NULL;
	}
	daemon_control_result(c, json_pack("{s:b,s:i,s:s}", "known", known, "restarts",
					   f && f->why[0] ? (int)f->restart : 0, "why",
					   f ? f->why : ""));
}

static int wanted_class(const struct daemon_call *c, const struct daemon_session *s)
{
	const json_t *j = json_object_get(c->params, "class");

	return j ? daemon_class_from_name(json_string_value(j)) : (int)s->class_id;
}

/* Returns 0 if the call names no weight, -1 if it is invalid. */
static int wanted_weight(const struct daemon_call *c)
{
	const json_t *j = json_object_get(c->params, "weight");
	json_int_t w = json_integer_value(j);

	if (!j) {
		return 0;
	}
	return json_is_integer(j) && w >= 1 && w <= DAEMON_MAX_WEIGHT ? (int)w : -1;
}

static void audit_set(const struct daemon_call *c, const struct daemon_session *s)
{
	char text[200];

	snprintf(text, sizeof(text), "tenant %d, %s (pid %d, user %d): class %s, weight %u",
		 s->tenant, s->name, (int)s->peer.pid, (int)s->peer.uid,
		 daemon_class_name(s->class_id), s->weight);
	if (c->peer.uid == 0 || c->peer.uid == c->d->uid) {
		daemon_audit(c->d, &c->peer, "set", 0, "%s", text);
	} else {
		daemon_audit_user(c->d, &c->peer, "set", "%s", text);
	}
}

void daemon_method_set(struct daemon_call *c)
{
	const json_t *which = json_object_get(c->params, "tenant");
	json_int_t n = json_integer_value(which);
	struct daemon_session *s = json_is_integer(which) && n >= 0 && n < PROTO_MAX_TENANTS
					   ? c->d->sessions.tenant[n]
					   : NULL;
	int class_id, weight;

	if (!s || s->dying) {
		daemon_control_error(c, 5, "not-found", "`gbpf ps` lists the tenants",
				     "no such tenant");
		return;
	}
	if (c->peer.uid != 0 && c->peer.uid != s->peer.uid) {
		daemon_control_error(c, 6, "permission", "Only its owner and root may change it",
				     "tenant %d belongs to user %d", s->tenant, (int)s->peer.uid);
		return;
	}
	class_id = wanted_class(c, s);
	weight = wanted_weight(c);
	if (class_id < 0) {
		daemon_control_error(c, 2, "usage", "Use latency, normal or batch",
				     "unknown class");
		return;
	}
	if (weight < 0) {
		daemon_control_error(c, 2, "usage", NULL, "a weight is a number from 1 to %u",
				     DAEMON_MAX_WEIGHT);
		return;
	}
	if ((uint32_t)class_id != s->class_id && !daemon_session_may_change_class(s)) {
		daemon_control_error(c, 7, "busy", "Try again in a second",
				     "tenant %d has changed its class %u times in this second",
				     s->tenant, DAEMON_SESSION_CHANGES_PER_SECOND);
		return;
	}
	s->idle.demoted = false;
	daemon_session_set_class(s, (uint32_t)class_id, (uint32_t)weight);
	audit_set(c, s);
	if (daemon_session_event_allowed(c->d, c->peer.uid)) {
		daemon_history_add_of(&c->d->history, s->peer.uid, "set", s->tenant, s->peer.pid,
				      "%s is now class %s, weight %u", s->name,
				      daemon_class_name((uint32_t)class_id), s->weight);
	}
	daemon_control_result(c, json_pack("{s:i,s:s,s:i}", "tenant", s->tenant, "class",
					   daemon_class_name((uint32_t)class_id), "weight",
					   (int)s->weight));
}

/* Controls that work on a GPU. Only tenants' processes can test them, so the answer is empty until
 * one has. */
static json_t *controls_json(const struct daemon_gpu *dev)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < GPU_CONTROLS; i++) {
		bool can = dev->capable & 1u << i;
		const char *state = can ? "yes" : dev->tried ? "no" : "unknown";

		json_array_append_new(
			all,
			json_pack("{s:s,s:s,s:s}", "control", gpu_control_name((enum gpu_control)i),
				  "state", state, "why",
				  i == GPU_CONTROL_INTERLEAVE && !can && dev->tried ? "needs rights"
				  : i == GPU_CONTROL_FLAG && !can && dev->tried
					  ? "no program with PTX kernels has created one"
				  : i == GPU_CONTROL_GREEN && !can && dev->tried
					  ? "needs CUDA 12.5, and a GPU that can be split"
					  : ""));
	}
	return all;
}

static json_t *lanes_json(const struct daemon *d)
{
	const char *why = daemon_lane_unavailable_reason(d);

	return json_pack("[{s:s,s:b,s:s},{s:s,s:b,s:s}]", "lane", "process", "available", 1, "why",
			 "", "lane", "shared", "available", why == NULL, "why", why ? why : "");
}

void daemon_method_device_list(struct daemon_call *c)
{
	const struct daemon_gpus *t = &c->d->devices;
	json_t *devices = json_array();

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		const struct daemon_gpu *dev = &t->d[i];
		char uuid[48];

		if (dev->used) {
			daemon_gpu_uuid_text(dev->uuid, uuid);
			json_array_append_new(
				devices,
				json_pack("{s:o,s:i,s:s,s:s,s:s,s:i,s:I,s:s}", "controls",
					  controls_json(dev), "gpu", (int)i, "uuid", uuid, "name",
					  dev->name, "kind", t->kind, "tenants", (int)dev->tenants,
					  "policy_version",
					  (json_int_t)daemon_policy_active_version(c->d, i),
					  "policy", daemon_policy_active_name(c->d, i)));
		}
	}
	if (!json_array_size(devices) &&
	    strcmp(t->kind, "soft") ==
		    0) { /* its UUID becomes known with the first process that uses it */
		json_array_append_new(devices,
				      json_pack("{s:i,s:n,s:s,s:s,s:i,s:I,s:s}", "gpu", 0, "uuid",
						"name", "gBPF soft GPU", "kind", "soft", "tenants",
						0, "policy_version",
						(json_int_t)daemon_policy_active_version(c->d, 0),
						"policy", daemon_policy_active_name(c->d, 0)));
	}
	daemon_control_result(c, json_pack("{s:o,s:o,s:i}", "devices", devices, "lanes",
					   lanes_json(c->d), "mps_pid", daemon_mps_pid(c->d)));
}

/* Appends the printed lines up to a time. */
static void add_prints(struct daemon_call *c, json_t *events, uint64_t *cursor, json_int_t since,
		       uint64_t wall_ns, bool all)
{
	json_t *j;

	while ((j = daemon_prints_next(c->d, cursor, since > 0 ? (uint64_t)since : 0, wall_ns, all,
				       c->peer.uid))) {
		json_array_append_new(events, j);
	}
}

void daemon_method_events(struct daemon_call *c)
{
	bool audit = json_is_true(json_object_get(c->params, "audit"));
	const struct daemon_history *h = audit ? &c->d->audit : &c->d->history;
	json_int_t since = json_integer_value(json_object_get(c->params, "since"));
	bool all = daemon_may_administer(c->d, c->sock);
	uint64_t cursor = 0;
	json_t *events;

	if (audit && !all) {
		daemon_control_error(
			c, 6, "permission",
			"Only root, gbpfd's own user and members of the group gbpf may "
			"do that",
			"user %d may not read the audit log", (int)c->peer.uid);
		return;
	}
	events = json_array();
	for (unsigned i = daemon_history_after(h, since > 0 ? (uint64_t)since : 0); i < h->n; i++) {
		const struct daemon_history_event *e = daemon_history_at(h, i);

		if (all || daemon_history_may_read(e, c->peer.uid)) {
			if (!audit) {
				add_prints(c, events, &cursor, since, e->wall_ns, all);
			}
			json_array_append_new(events, daemon_history_json(e));
		}
	}
	if (!audit) {
		add_prints(c, events, &cursor, since, UINT64_MAX, all);
	}
	daemon_control_result(c, json_pack("{s:o}", "events", events));
	if (json_is_true(json_object_get(c->params, "follow"))) {
		daemon_control_follow(c, h);
	}
}

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = -3; /* discount ".", ".." and the descriptor of the directory itself */

	if (!dir) {
		return -1;
	}
	while (readdir(dir)) {
		n++;
	}
	closedir(dir);
	return n;
}

static json_int_t memory_bytes(void)
{
	long long total, resident = 0;
	struct buf b;

	buf_init(&b);
	if (buf_read_file(&b, "/proc/self/statm", 4096) == 0 &&
	    sscanf(buf_text(&b), "%lld %lld", &total, &resident) != 2) {
		resident = 0;
	}
	buf_finish(&b);
	return resident * sysconf(_SC_PAGESIZE);
}

/* Returns the number of calls that outlived three publications of an epoch map, over the active
 * versions. */
static uint64_t stale_epochs(struct daemon *d)
{
	uint64_t sum = 0;

	for (struct daemon_version *l = daemon_policy_next_active(d, NULL); l;
	     l = daemon_policy_next_active(d, l)) {
		struct daemon_tally t;

		if (l != daemon_version_find(d, l->version)) {
			continue; /* another instance of the same version */
		}
		daemon_failures_sum(d, l, &t);
		sum += daemon_failures_total(&t, PROTO_FAILED_EPOCH);
	}
	return MIN(sum, (uint64_t)INT64_MAX);
}

static json_t *counters_json(struct daemon *d)
{
	const struct daemon_counters *n = &d->counters;
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{ "sessions", n->sessions },
		{ "refused_sessions", n->refused_sessions },
		{ "dropped_sessions", n->dropped_sessions },
		{ "deaths", n->deaths },
		{ "garbage", n->garbage },
		{ "idle_demotions", n->idle_demotions },
		{ "loads", n->loads },
		{ "swaps", n->swaps },
		{ "refused", n->refused },
		{ "rollbacks", n->rollbacks },
		{ "late", n->late },
		{ "failed_prepares", n->failed_prepares },
		{ "ticks", n->ticks },
		{ "tick_overruns", n->tick_overruns },
		{ "tick_max_ns", n->tick_max_ns },
		{ "verdict_errors", n->verdict_errors },
		{ "stale_epochs", stale_epochs(d) },
		{ "events", d->history.next - 1 },
		{ "events_left_out", n->events_left_out },
		{ "user_pauses", n->user_pauses },
		{ "history_write_errors", d->history.write_errors },
		{ "audit_write_errors", d->audit.write_errors },
	};
	json_t *j = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		json_object_set_new(j, rows[i].name, json_integer((json_int_t)rows[i].value));
	}
	return j;
}

/* Returns the number of leaked objects: memory regions, boards and slots without a tenant. */
static int leaked(struct daemon *d)
{
	unsigned tenants = 0, boards = 0, published = 0, latency = 0, regions = 0;

	for (unsigned i = 0; i < PROTO_MAX_TENANTS; i++) {
		tenants += d->sessions.tenant[i] != NULL;
		boards += d->sessions.tenant[i] && d->sessions.tenant[i]->board.map;
		regions += (daemon_policy_regions_of(d, i) || daemon_probes_have_region(d, i)) &&
			   !d->sessions.tenant[i];
	}
	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		published += d->sessions.lc[i] != NULL;
		latency += d->sessions.lc[i] && d->sessions.lc[i]->lc.slot == (int)i;
	}
	return (int)(regions + (published - latency) + (boards > tenants ? boards - tenants : 0));
}

void daemon_method_status(struct daemon_call *c)
{
	struct daemon *d = c->d;
	unsigned tenants = 0, published = 0;

	for (unsigned i = 0; i < PROTO_MAX_TENANTS; i++) {
		tenants += d->sessions.tenant[i] && !d->sessions.tenant[i]->dying;
	}
	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		published += d->sessions.lc[i] != NULL;
	}
	daemon_control_result(
		c, json_pack("{s:i,s:s,s:I,s:I,s:i,s:i,s:i,s:i,s:i,s:{s:I,s:s},s:b,s:s,s:o,"
			     "s:i,s:i,s:I,s:s,s:s}",
			     "pid", (int)getpid(), "version", GBPF_VERSION_TEXT, "generation",
			     (json_int_t)d->generation, "uptime_ns",
			     (json_int_t)(clock_now_ns() - d->started_ns), "sessions",
			     (int)d->sessions.n, "tenants", (int)tenants, "boards", (int)published,
			     "ending", (int)d->exits.n, "connections",
			     (int)daemon_control_connections(d), "policy", "version",
			     (json_int_t)daemon_policy_first_active(d), "name",
			     daemon_policy_active_name(d, 0), "off", (int)daemon_policy_is_off(d),
			     "device", d->devices.kind, "counters", counters_json(d), "leaked",
			     leaked(d), "fds", count_fds(), "memory_bytes", memory_bytes(),
			     "runtime_dir", d->opt.runtime, "state_dir", d->opt.state));
}

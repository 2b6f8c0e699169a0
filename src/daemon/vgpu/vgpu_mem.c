/* mem.list: how the device memory of each process in a vGPU is divided: what of it can leave the
 * device, and why the rest cannot. All figures are the processes' own (proto/account.h). */
#include "daemon/control_socket.h"
#include "daemon/vgpu/vgpu_int.h"

#include <stdio.h>

#include "base/atomic.h"
#include "daemon/session/tenant_session.h"
#include "mem/account_figures.h"

/* A process on one of its devices. */
struct place {
	const struct daemon_session *s;
	const struct daemon_vgpu *v;
	uint32_t row;
	struct mem_account_kinds k;
};

/* Names of kinds, and why memory of a kind stays where it is; NULL: that depends on the process. */
static const struct {
	const char *name, *why;
} kinds[PROTO_KINDS] = {
	[PROTO_KIND_CHUNK] = { "chunks", "the virtual GPU has no swap any more" },
	[PROTO_KIND_SMALL] = { "small", NULL },
	[PROTO_KIND_LINEAR] = { "linear", NULL },
	[PROTO_KIND_PITCHED] = { "pitched", "allocations with a pitch" },
	[PROTO_KIND_MANAGED] = { "managed", NULL },
	[PROTO_KIND_CREATED] = { "created", NULL },
	[PROTO_KIND_ARRAY] = { "arrays", "arrays, whose layout is the driver's" },
	[PROTO_KIND_POOL] = { "pools", "memory pools and cuMemAllocAsync" },
	[PROTO_KIND_GRAPH] = { "graphs", "allocation nodes of graphs" },
	[PROTO_KIND_MODULE] = { "variables", "variables of modules and libraries" },
	[PROTO_KIND_SHARED] = { "shared", "cuIpcGetMemHandle: shared with other processes" },
	[PROTO_KIND_PEER] = { "peer", "cuCtxEnablePeerAccess: other GPUs use it" },
};

/* Returns why the process gets no chunks on that device, "" if it does. */
static const char *why_no_chunks(const struct place *p)
{
	if (!p->v->row[PROTO_ACCOUNT_SWAP].limit) {
		return "the virtual GPU has no swap";
	}
	if (!p->v->row[p->row].limit) {
		return "the GPU has no limit in the virtual GPU";
	}
	return p->k.chunks ? "" : "the program started before the virtual GPU had swap";
}

static void add_kind(json_t *all, const char *name, uint64_t bytes, const char *why)
{
	if (bytes) {
		json_array_append_new(all, json_pack("{s:s,s:I,s:s}", "kind", name, "bytes",
						     (json_int_t)bytes, "why", why));
	}
}

/* Returns why memory of a kind cannot move. */
static const char *why_fixed(const struct place *p, unsigned kind)
{
	const char *why = kinds[kind].why ? kinds[kind].why : why_no_chunks(p);

	if (why[0]) {
		return why;
	}
	if (kind == PROTO_KIND_MANAGED) {
		return "managed memory of less than 2 MiB, or that the GPU has to itself";
	}
	return kind == PROTO_KIND_CREATED
		       ? "cuMemCreate: not mapped, or in a way that chunks cannot be"
		       : "could not be made of chunks when it was allocated";
}

/* Returns what cannot move, by kind. */
static json_t *fixed_json(const struct place *p, uint64_t movable)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < PROTO_KINDS; i++) {
		add_kind(all, kinds[i].name, p->k.kind[i] - (i == PROTO_KIND_CHUNK ? movable : 0),
			 why_fixed(p, i));
	}
	add_kind(all, "overhead", p->k.overhead, "contexts, code and buffers of the driver");
	add_kind(all, "inherited", p->k.inherited, "shared: its maker has freed it or exited");
	add_kind(all, "other", p->k.other, "kind not recorded: just allocated, or being freed");
	return all;
}

static json_t *place_json(const struct place *p, uint32_t gpu)
{
	const struct proto_account_line *line =
		&daemon_vgpu_page(p->v)->line[p->row][p->s->vgpu.line];
	uint64_t movable = p->v->row[PROTO_ACCOUNT_SWAP].limit ? p->k.kind[PROTO_KIND_CHUNK] : 0;
	uint64_t shared = min_once(load_relaxed(&line->shared), INT64_MAX);

	shared -= MIN(shared, p->k.inherited);
	return json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:s,s:o}", "gpu", (int)gpu, "mem_limit",
			 (json_int_t)p->v->row[p->row].limit, "mem_used", (json_int_t)p->k.held,
			 "movable", (json_int_t)movable, "swapped", (json_int_t)p->k.away,
			 "mem_shared", (json_int_t)shared, "no_chunks", why_no_chunks(p), "fixed",
			 fixed_json(p, movable));
}

static json_t *gpus_json(const struct daemon_session *s)
{
	struct place p = { .s = s, .v = s->vgpu.of };
	json_t *all = json_array();

	for (uint32_t i = 0; i < s->gpus; i++) {
		const struct daemon_gpu *g =
			s->gpu_index[i] < PROTO_MAX_GPUS ? &s->d->devices.d[s->gpu_index[i]] : NULL;

		p.row = g && g->used ? daemon_vgpu_row_of(p.v, g->uuid) : PROTO_ACCOUNT_ROWS;
		if (p.row < PROTO_MAX_GPUS) {
			mem_account_kinds(daemon_vgpu_page(p.v), p.row, s->vgpu.line, &p.k);
			json_array_append_new(all, place_json(&p, s->gpu_index[i]));
		}
	}
	return all;
}

static json_t *tenant_json(const struct daemon_session *s)
{
	const struct daemon_vgpu *v = s->vgpu.of;
	char number[24] = "";
	json_t *j = json_pack("{s:i,s:i,s:i,s:s,s:s}", "tenant", s->tenant, "pid", (int)s->peer.pid,
			      "uid", (int)s->peer.uid, "name", s->name, "command", s->command);

	if (v) {
		snprintf(number, sizeof(number), "%llx", (unsigned long long)v->is.number);
	}
	json_object_set_new(j, "vgpu", json_string(v && v->is.name[0] ? v->is.name : number));
	if (v && v->page.map) {
		json_object_set_new(j, "vgpu_uid", json_integer((json_int_t)v->uid));
		json_object_set_new(j, "gpus", gpus_json(s));
	}
	return j;
}

void daemon_method_mem_list(struct daemon_call *c)
{
	bool all = daemon_may_administer(c->d, c->sock);
	json_t *tenants = json_array();

	for (unsigned i = 0; i < PROTO_MAX_TENANTS; i++) {
		const struct daemon_session *s = c->d->sessions.tenant[i];

		if (s && !s->dying && (all || s->peer.uid == c->peer.uid)) {
			json_array_append_new(tenants, tenant_json(s));
		} else if (s && !s->dying) {
			json_array_append_new(tenants, json_pack("{s:i,s:i,s:i,s:b}", "tenant",
								 s->tenant, "pid", 0, "uid",
								 (int)s->peer.uid, "hidden", 1));
		}
	}
	daemon_control_result(c, json_pack("{s:o}", "tenants", tenants));
}

/* The worker's part of an operation whose object is verified: making the version's memory, and
 * storing the object. Must use the operation alone. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "base/strmap.h"
#include "daemon/clean_text.h"
#include "daemon/consts.h"
#include "daemon/policy/map_view.h"
#include "daemon/policy/object_read.h"

static const char *const hook_names[EBPF_MAX_HOOKS] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) [id] = #name,
#include "gbpf/hooks.def"
};

static json_t *hooks_json(const struct ebpf_built *b)
{
	json_t *hooks = json_array();

	for (uint32_t i = 0; i < b->object.n_progs; i++) {
		const struct ebpf_prog *p = &b->object.progs[i];
		const struct ebpf_verify_stats *v = &b->stats[i];
		char name[sizeof(p->name)];

		daemon_text_copy(name, sizeof(name), p->name, sizeof(p->name));
		json_array_append_new(hooks,
				      json_pack("{s:s,s:s,s:i,s:i,s:i,s:i}", "hook",
						hook_names[p->hook] ? hook_names[p->hook] : "?",
						"program", name, "insns", (int)p->n_insns, "cost",
						(int)v->cost, "visited", (int)v->visited,
						"stack_bytes", (int)v->stack_bytes));
	}
	return hooks;
}

static json_t *maps_json(const struct ebpf_built *b)
{
	json_t *maps = json_array();

	for (uint32_t i = 0; i < b->object.n_maps; i++) {
		const struct ebpf_map_def *m = &b->object.maps[i];
		char name[sizeof(m->name)];

		daemon_text_copy(name, sizeof(name), m->name, sizeof(m->name));
		json_array_append_new(
			maps, json_pack("{s:s,s:s,s:i,s:i,s:i,s:s,s:b}", "name", name, "type",
					daemon_map_type_name(m->type), "key_bytes",
					(int)m->key_bytes, "value_bytes", (int)m->value_bytes,
					"max_entries", (int)m->max_entries, "scope",
					daemon_map_scope_name(m), "data", (int)!!m->is_data));
	}
	return maps;
}

static json_t *meta_json(const struct daemon_policy_op *q)
{
	const struct ebpf_built *b = &q->verified->built;
	const struct buf *object = &q->verified->object;
	char hash[24], license[64], author[sizeof(b->object.version)];

	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)q->verified->hash);
	daemon_text_copy(license, sizeof(license), b->object.license, sizeof(b->object.license));
	daemon_text_copy(author, sizeof(author), b->object.version, sizeof(b->object.version));
	return json_pack("{s:I,s:s,s:s,s:s,s:I,s:I,s:b,s:s,s:I,s:o,s:o,s:I,s:I,s:I,s:I,s:I}",
			 "version", (json_int_t)q->o.version, "name", q->name, "license", license,
			 "author_version", author, "loaded_wall_ns", (json_int_t)clock_wall_ns(),
			 "uid", (json_int_t)q->o.uid, "by_default", (int)q->o.by_default, "hash",
			 hash, "object_bytes", (json_int_t)object->len, "hooks", hooks_json(b),
			 "maps", maps_json(b), "code_bytes", (json_int_t)b->code_bytes, "verify_ns",
			 (json_int_t)b->verify_ns, "jit_ns", (json_int_t)b->jit_ns, "global_bytes",
			 (json_int_t)b->region_bytes[EBPF_REGION_GLOBAL], "tenant_bytes",
			 (json_int_t)b->region_bytes[EBPF_REGION_TENANT]);
}

static int store(struct daemon_policy_op *q)
{
	const struct buf *object = &q->verified->object;
	char *text = q->meta ? json_dumps(q->meta, JSON_COMPACT) : NULL;
	int err = text ? daemon_store_write_object(q->dir, q->o.version, object->data, object->len,
						   text)
		       : -ENOMEM;

	free(text);
	return err;
}

/* Stores the object of a load, or keeps it in memory if it is volatile. */
static void store_or_keep(struct daemon_policy_op *q)
{
	int err = q->o.is_volatile ? 0 : store(q);

	if (!q->meta) {
		q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
	} else if (err && q->o.must_store) {
		q->err = daemon_durable_fail(q, err);
	} else if (err || q->o.is_volatile) {
		q->store_err = err;
		q->o.is_volatile = true;
		buf_clear(&q->o.object);
		if (buf_add(&q->o.object, q->verified->object.data, q->verified->object.len) < 0) {
			q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
		}
	}
}

/* Creates the instances of the version on the GPUs that need one. */
static int instantiate(struct daemon_policy_op *q)
{
	for (uint32_t gpus = q->build_gpus; gpus; gpus &= gpus - 1) {
		struct daemon_version *l;
		int err = daemon_version_create(&l, q->d, q->program, q->o.version,
						(uint32_t)__builtin_ctz(gpus), &q->report);

		if (err) {
			return err;
		}
		l->next = q->live;
		q->live = l;
		POINT("daemon.swap.regions_made");
	}
	return 0;
}

/* Makes the program of a version whose object is verified, and describes it if it is loaded. */
static int make_program(struct daemon_policy_op *q)
{
	q->program = daemon_program_new(q->verified, q->o.version);
	if (!q->program) {
		return report_set(&q->report, -ENOMEM, "memory", "out of memory");
	}
	q->meta = q->o.op == DAEMON_POLICY_LOAD ? meta_json(q) : NULL;
	return 0;
}

void daemon_policy_op_build(struct daemon_job *j)
{
	struct daemon_policy_op *q = (struct daemon_policy_op *)j;

	q->err = q->program ? 0 : make_program(q);
	q->err = q->err ? q->err : instantiate(q);
	if (!q->err && q->o.op == DAEMON_POLICY_LOAD) {
		store_or_keep(q);
	}
}

void daemon_policy_op_save_state(struct daemon_job *j)
{
	struct daemon_policy_op *q = (struct daemon_policy_op *)j;

	int err = q->state_text ? daemon_store_write(q->dir, DAEMON_STORE_STATE, q->state_text)
				: -ENOMEM;

	POINT("daemon.state.written");
	q->store_err = q->store_err ? q->store_err : err;
	if (q->removed) {
		daemon_store_delete_files(q->dir, q->removed);
	}
}

/* vGPUs as JSON: what they are given, and what of it is used. */
#include "daemon/vgpu/vgpu_int.h"

#include <string.h>

#include "base/atomic.h"
#include "daemon/session/tenant_session.h"
#include "mem/ledger.h"

/* The members of an object, and their greatest values. mem is that of all devices. */
static const struct member {
	const char *name;
	uint64_t most;
	const char *allowed;
} members[] = {
	{ "mem", PROTO_VGPU_MEM_MAX, "mem: at least 16M, at most the GPU's memory" },
	{ "reserve", PROTO_VGPU_MEM_MAX, "reserve: at most mem" },
	{ "pinned", PROTO_VGPU_MEM_MAX, "pinned: at most the machine's memory" },
	{ "swap", PROTO_VGPU_MEM_MAX, "swap: at least 2M, at most the machine's memory" },
	{ "wait_ns", PROTO_VGPU_WAIT_MAX_NS, "wait: at most an hour" },
	{ "compute", 100, "compute: 1 to 100 percent" },
	{ "copy", 100, "copy: 1 to 100 percent" },
	{ "prio", PROTO_VGPU_PRIO_MAX, "prio: 0 to 100" },
};
enum { MEM, RESERVE, PINNED, SWAP, WAIT, COMPUTE, COPY, PRIO };

static uint64_t get(const struct proto_vgpu_config *c, unsigned what)
{
	switch (what) {
	case MEM:
		return c->mem[0];
	case RESERVE:
		return c->reserve;
	case PINNED:
		return c->pinned;
	case SWAP:
		return c->swap;
	case WAIT:
		return c->wait_ns;
	case COMPUTE:
		return c->compute;
	case COPY:
		return c->copy;
	default:
		return (uint64_t)c->prio;
	}
}

static void set(struct proto_vgpu_config *c, unsigned what, uint64_t value)
{
	switch (what) {
	case MEM:
		for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
			c->mem[i] = value;
		}
		break;
	case RESERVE:
		c->reserve = value;
		break;
	case PINNED:
		c->pinned = value;
		break;
	case SWAP:
		c->swap = value;
		break;
	case WAIT:
		c->wait_ns = value;
		break;
	case COMPUTE:
		c->compute = (uint32_t)value;
		break;
	case COPY:
		c->copy = (uint32_t)value;
		break;
	default:
		c->prio = (int32_t)value;
	}
}

static const char *show_of(const struct proto_vgpu_config *c)
{
	return c->flags & PROTO_VGPU_SHOW_MEM ? "mem" : "all";
}

static void set_flag(struct proto_vgpu_config *c, uint32_t flag, bool on)
{
	c->flags = on ? c->flags | flag : c->flags & ~flag;
}

json_t *daemon_vgpu_config_json(const struct proto_vgpu_config *c)
{
	json_t *j = json_object();

	for (unsigned i = 0; i < ARRAY_SIZE(members); i++) {
		json_object_set_new(j, members[i].name, json_integer((json_int_t)get(c, i)));
	}
	json_object_set_new(j, "show", json_string(show_of(c)));
	json_object_set_new(j, "burst", json_boolean(c->flags & PROTO_VGPU_BURST));
	return j;
}

static void put(struct buf *out, unsigned what, uint64_t value)
{
	bool bytes = what == MEM || what == RESERVE || what == PINNED || what == SWAP;
	bool mib = bytes && value % (1u << 20) == 0;

	buf_printf(out, "%llu%s", (unsigned long long)(mib ? value >> 20 : value),
		   mib	   ? " MiB"
		   : bytes ? " bytes"
			   : "");
}

void daemon_vgpu_config_changes(const struct proto_vgpu_config *was,
				const struct proto_vgpu_config *is, struct buf *out)
{
	for (unsigned i = 0; i < ARRAY_SIZE(members); i++) {
		if (get(was, i) != get(is, i)) {
			buf_printf(out, "%s%s ", out->len ? ", " : "", members[i].name);
			put(out, i, get(was, i));
			buf_puts(out, " -> ");
			put(out, i, get(is, i));
		}
	}
	if ((was->flags ^ is->flags) & PROTO_VGPU_SHOW_MEM) {
		buf_printf(out, "%sshow %s -> %s", out->len ? ", " : "", show_of(was), show_of(is));
	}
	if ((was->flags ^ is->flags) & PROTO_VGPU_BURST) {
		buf_printf(out, "%sburst %s", out->len ? ", " : "",
			   is->flags & PROTO_VGPU_BURST ? "off -> on" : "on -> off");
	}
}

static bool is_word(const json_t *j, const char *word)
{
	return json_is_string(j) && strcmp(json_string_value(j), word) == 0;
}

const char *daemon_vgpu_config_take(struct proto_vgpu_config *c, const json_t *j)
{
	const json_t *burst = json_object_get(j, "burst"), *show = json_object_get(j, "show");

	for (unsigned i = 0; i < ARRAY_SIZE(members); i++) {
		const json_t *v = json_object_get(j, members[i].name);
		json_int_t n = json_integer_value(v);

		if (!v) {
			continue;
		}
		if (!json_is_integer(v) || n < 0 || (uint64_t)n > members[i].most) {
			return members[i].allowed;
		}
		set(c, i, (uint64_t)n);
	}
	if (show && !is_word(show, "mem") && !is_word(show, "all")) {
		return "show: mem or all";
	}
	if (show) {
		set_flag(c, PROTO_VGPU_SHOW_MEM, is_word(show, "mem"));
	}
	if (burst && !json_is_boolean(burst)) {
		return "burst: true or false";
	}
	if (burst) {
		set_flag(c, PROTO_VGPU_BURST, json_is_true(burst));
	}
	return proto_vgpu_config_fault(c);
}

static json_t *devices_json(const struct daemon_vgpu *v)
{
	const struct proto_account *a = daemon_vgpu_page(v);
	json_t *all = json_array();

	for (unsigned row = 0; row < v->n_rows; row++) {
		char text[48];

		daemon_gpu_uuid_text(v->row[row].uuid, text);
		json_array_append_new(
			all, json_pack("{s:s,s:I,s:I}", "uuid", text, "mem_limit",
				       (json_int_t)v->row[row].limit, "mem_used",
				       (json_int_t)min_once(mem_account_used(a, row), INT64_MAX)));
	}
	return all;
}

/* Its processes that have a session. */
static json_t *programs_json(const struct daemon_vgpu *v)
{
	json_t *all = json_array();

	daemon_session_each(v->d, s)
	{
		if (s->vgpu.of == v && !s->dying) {
			json_array_append_new(all,
					      json_pack("{s:i,s:i,s:s}", "pid", (int)s->peer.pid,
							"tenant", s->tenant, "name", s->name));
		}
	}
	return all;
}

/* Returns how many of its processes wait for memory. */
static unsigned waiting(const struct daemon_vgpu *v)
{
	unsigned n = 0;

	daemon_session_each(v->d, s)
	{
		n += s->vgpu.of == v && s->vgpu.ask.since;
	}
	return n;
}

static json_t *users_json(const struct daemon_vgpu *v)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < v->n_users; i++) {
		json_array_append_new(all, json_integer((json_int_t)v->users[i]));
	}
	return all;
}

/* Returns what its processes hold of host memory for device memory that has left. */
static uint64_t swap_used(const struct daemon_vgpu *v)
{
	uint64_t used = v->page.map ? mem_account_used(daemon_vgpu_page(v), PROTO_ACCOUNT_SWAP) : 0;

	return min_once(used, INT64_MAX);
}

json_t *daemon_vgpu_json(const struct daemon_vgpu *v)
{
	json_t *j = daemon_vgpu_config_json(&v->is.config);
	char number[24];

	snprintf(number, sizeof(number), "%llx", (unsigned long long)v->is.number);
	json_object_set_new(j, "name", json_string(v->is.name));
	json_object_set_new(j, "number", json_string(v->is.name[0] ? "" : number));
	json_object_set_new(j, "place", json_integer(v->place));
	json_object_set_new(j, "uid", json_integer((json_int_t)v->uid));
	json_object_set_new(j, "users", users_json(v));
	json_object_set_new(j, "state",
			    json_string(v->draining  ? "draining"
					: v->n_lines ? "running"
						     : "idle"));
	json_object_set_new(j, "processes", json_integer(v->n_lines));
	json_object_set_new(j, "waiting", json_integer(waiting(v)));
	json_object_set_new(j, "programs", programs_json(v));
	json_object_set_new(j, "devices", devices_json(v));
	json_object_set_new(j, "swap_used", json_integer((json_int_t)swap_used(v)));
	json_object_set_new(j, "actual", daemon_vgpu_actual_json(v));
	return j;
}

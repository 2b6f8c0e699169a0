/* The table of methods, and those that change policies. The rights of a method are checked here,
 * against the peer's credentials. */
#include "daemon/control_socket.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/runtime_choice.h"
#include "daemon/audit.h"
#include "daemon/maps/maps_watch.h"
#include "daemon/maps/policy_maps.h"
#include "daemon/policy/policies.h"
#include "daemon/probe/probes.h"
#include "daemon/watch/watch.h"
#include "gbpf/gbpf.h"

enum method_right {
	ALL,
	ADMIN, /* daemon_may_administer() */
	OWNER, /* root and the daemon's own user */
};

static const char admin_hint[] =
	"Only root, gbpfd's own user and members of the group gbpf may do that";

static const char version_hint[] = "Use the gbpf that belongs to this gbpfd, or restart gbpfd";
static const char foreign_version_hint[] =
	"Use the gbpf that belongs to this gbpfd, ask its administrator to restart it, or set "
	"GBPF_RUNTIME_DIR to a directory of your own";

/* Returns true for root's gbpfd that all users find by default. */
static bool serves_machine(const struct daemon *d)
{
	return d->uid == 0 && strcmp(d->opt.runtime, RUNTIME_OF_ROOT) == 0;
}

static bool allowed(const struct daemon_call *c, enum method_right right)
{
	switch (right) {
	case ALL:
		return true;
	case ADMIN:
		return daemon_may_administer(c->d, c->sock);
	case OWNER:
		return c->peer.uid == 0 || c->peer.uid == c->d->uid;
	}
	return false;
}

static void method_hello(struct daemon_call *c)
{
	json_int_t protocol = json_integer_value(json_object_get(c->params, "protocol"));

	if (protocol != GBPF_PROTOCOL) {
		daemon_control_error(c, 1, "version",
				     allowed(c, OWNER) ? version_hint : foreign_version_hint,
				     "gbpfd speaks control protocol %d and the caller speaks %lld",
				     GBPF_PROTOCOL, (long long)protocol);
		return;
	}
	daemon_control_greeted(c);
	daemon_control_result(
		c, json_pack("{s:i,s:s,s:i,s:i,s:I,s:s,s:b}", "protocol", GBPF_PROTOCOL, "version",
			     GBPF_VERSION_TEXT, "pid", (int)getpid(), "uid", (int)c->d->uid,
			     "generation", (json_int_t)c->d->generation, "device",
			     c->d->devices.kind, "off", (int)daemon_policy_is_off(c->d)));
}

static void on_policy_done(struct daemon *d, uint64_t conn, json_int_t id, json_t *result,
			   const struct report *r, int exit_code)
{
	daemon_control_answer(d, conn, id, result, r, exit_code);
}

/* The same for a load with a watch. */
static void on_watch_begun(struct daemon *d, uint64_t conn, json_int_t id, json_t *result,
			   const struct report *r, int exit_code)
{
	json_int_t version = json_integer_value(json_object_get(result, "version"));

	if (result) {
		json_object_set_new(result, "watch", daemon_watch_json(d, (uint64_t)version));
	}
	on_policy_done(d, conn, id, result, r, exit_code);
}

/* Returns the bits of the GPUs that params name with "gpu" (default: all), or 0 after answering an
 * error because there is no such GPU. */
static uint32_t gpu_mask(struct daemon_call *c)
{
	const json_t *gpu = json_object_get(c->params, "gpu");
	json_int_t n = json_integer_value(gpu);

	if (!gpu || json_is_null(gpu)) {
		return DAEMON_POLICY_ALL_GPUS;
	}
	if (!json_is_integer(gpu) || n < 0 || n >= PROTO_MAX_GPUS) {
		daemon_control_error(c, 5, "not-found", "`gbpf device` lists them", "no such GPU");
		return 0;
	}
	return 1u << n;
}

static void order(struct daemon_call *c, struct daemon_policy_request *o)
{
	int err;

	o->uid = c->peer.uid;
	o->pid = c->peer.pid;
	o->reply = o->watch ? on_watch_begun : on_policy_done;
	o->conn = c->conn;
	o->id = c->id;
	err = daemon_policy_submit(c->d, o);
	if (err == -EBUSY) {
		daemon_control_error(c, 7, "busy", "Try again in a moment",
				     "%u policy operations are waiting already",
				     DAEMON_POLICY_MAX_WAITING);
	} else if (err) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
	}
}

bool daemon_control_good_name(const char *name)
{
	size_t n = name ? strlen(name) : 0;

	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)name[i] <= ' ' || name[i] == '/' || name[i] == 0x7f) {
			return false;
		}
	}
	return n > 0 && n < EBPF_NAME_BYTES;
}

/* Parses watch_ns and rollback_if, of which both or neither must be given. Returns false after
 * answering an error. */
static bool take_watch(struct daemon_call *c, struct daemon_policy_request *o)
{
	const json_t *ns = json_object_get(c->params, "watch_ns");
	const char *condition = json_string_value(json_object_get(c->params, "rollback_if"));
	struct daemon_watch_request *watch;
	struct report r;

	if (!ns && !condition) {
		return true;
	}
	report_init(&r);
	if (!json_is_integer(ns) || !condition) {
		report_hint(&r, "Use --watch 60s together with --rollback-if CONDITION");
		report_set(&r, -EINVAL, "usage", "a watch needs both a time and a condition");
	} else if (daemon_watch_request_new(&watch, (uint64_t)MAX(json_integer_value(ns), 0),
					    condition, &r) == 0) {
		watch->is.keep_maps = o->keep_maps;
		o->watch = &watch->is;
		report_finish(&r);
		return true;
	}
	daemon_control_answer(c->d, c->conn, c->id, NULL, &r, 2);
	report_finish(&r);
	return false;
}

static void method_watch(struct daemon_call *c)
{
	json_int_t version = json_integer_value(json_object_get(c->params, "version"));
	json_t *j = version >= 0 ? daemon_watch_json(c->d, (uint64_t)version) : NULL;

	if (j) {
		daemon_control_result(c, j);
	} else {
		daemon_control_error(
			c, 5, "not-found",
			"`gbpf policy swap NEW --watch 60s --rollback-if CONDITION` starts one",
			version ? "version %lld is not watched" : "no version is watched",
			(long long)version);
	}
}

static void method_watch_cancel(struct daemon_call *c)
{
	json_int_t version = json_integer_value(json_object_get(c->params, "version"));
	json_t *j = version >= 0 ? daemon_watch_cancel(c->d, (uint64_t)version, &c->peer) : NULL;

	if (!j) {
		daemon_control_error(c, 5, "not-found", "`gbpf policy watch` shows the last one",
				     version ? "no watch of version %lld is running"
					     : "no watch is running",
				     (long long)version);
	} else if (daemon_durable_save(c->d, "the end of a watch", j, c->conn, c->id) < 0) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
	}
}

static void method_load(struct daemon_call *c)
{
	struct daemon_policy_request o = {
		.op = DAEMON_POLICY_LOAD,
		.object_fd = -1,
		.swap = json_is_true(json_object_get(c->params, "swap")),
		.keep_maps = json_is_true(json_object_get(c->params, "keep_maps")),
		.is_volatile = json_is_true(json_object_get(c->params, "volatile")),
		.name = json_string_value(json_object_get(c->params, "name"))
	};

	if (!daemon_control_good_name(o.name)) {
		daemon_control_error(c, 2, "usage",
				     "Give one with 1 to 31 characters, without blanks and slashes",
				     "a policy needs a name");
		return;
	}
	if (*c->fd < 0) {
		daemon_control_error(
			c, 2, "usage", NULL,
			"policy.load needs the object as a descriptor sent with the line");
		return;
	}
	o.must_store = !o.is_volatile;
	o.gpu_mask = gpu_mask(c);
	if (o.gpu_mask && take_watch(c, &o)) {
		o.object_fd = *c->fd;
		*c->fd = -1;
		order(c, &o);
	}
}

static void method_rollback(struct daemon_call *c)
{
	json_int_t version = json_integer_value(json_object_get(c->params, "version"));
	struct daemon_policy_request o = { .op = DAEMON_POLICY_ACTIVATE,
					   .object_fd = -1,
					   .gpu_mask = gpu_mask(c),
					   .keep_maps = json_is_true(
						   json_object_get(c->params, "keep_maps")),
					   .version = version > 0 ? (uint64_t)version : 0 };

	if (version < 0 || (json_object_get(c->params, "version") && version == 0)) {
		daemon_control_error(c, 5, "not-found",
				     "`gbpf policy list` shows the versions that are kept",
				     "there is no version %lld", (long long)version);
	} else if (o.gpu_mask) {
		order(c, &o);
	}
}

static void method_unload(struct daemon_call *c)
{
	struct daemon_policy_request o = { .op = DAEMON_POLICY_UNLOAD,
					   .object_fd = -1,
					   .gpu_mask = gpu_mask(c) };

	if (o.gpu_mask) {
		order(c, &o);
	}
}

static void method_list(struct daemon_call *c)
{
	daemon_control_result(c, daemon_policy_list_json(c->d));
}

static void method_show(struct daemon_call *c)
{
	json_int_t version = json_integer_value(json_object_get(c->params, "version"));
	json_t *j = version >= 0 ? daemon_policy_show_json(c->d, (uint64_t)version) : NULL;

	if (j) {
		daemon_control_result(c, j);
	} else if (version) {
		daemon_control_error(c, 5, "not-found",
				     "`gbpf policy list` shows the versions that are kept",
				     "there is no version %lld", (long long)version);
	} else {
		daemon_control_error(c, 5, "not-found", "`gbpf policy load` makes one active",
				     "no policy is active");
	}
}

static void switch_off(struct daemon_call *c, bool off)
{
	if (daemon_policy_set_off(c->d, off, &c->peer, c->conn, c->id) < 0) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
	}
}

static void method_off(struct daemon_call *c)
{
	switch_off(c, true);
}

static void method_on(struct daemon_call *c)
{
	switch_off(c, false);
}

static void method_shutdown(struct daemon_call *c)
{
	daemon_audit(c->d, &c->peer, "shutdown", 0, "gbpfd exits");
	daemon_control_result(c, json_object());
	sd_event_exit(c->d->loop, 0);
}

static const struct {
	const char *name;
	enum method_right right;
	void (*call)(struct daemon_call *c);
} methods[] = {
	{ "device.list", ALL, daemon_method_device_list },
	{ "events", ALL, daemon_method_events },
	{ "map.delete", ADMIN, daemon_method_map_delete },
	{ "map.dump", ALL, daemon_method_map_dump },
	{ "map.drain", ALL, daemon_method_map_drain },
	{ "map.get", ALL, daemon_method_map_get },
	{ "map.list", ALL, daemon_method_map_list },
	{ "map.set", ADMIN, daemon_method_map_set },
	{ "map.watch", ALL, daemon_method_map_watch },
	{ "mem.list", ALL, daemon_method_mem_list },
	{ "off", ADMIN, method_off },
	{ "on", ADMIN, method_on },
	{ "policy.list", ALL, method_list },
	{ "policy.load", ADMIN, method_load },
	{ "policy.rollback", ADMIN, method_rollback },
	{ "policy.show", ALL, method_show },
	{ "policy.unload", ADMIN, method_unload },
	{ "policy.watch", ALL, method_watch },
	{ "policy.watch_cancel", ADMIN, method_watch_cancel },
	{ "probe.attach", ALL, daemon_method_probe_attach },
	{ "probe.coverage", ALL, daemon_method_probe_coverage },
	{ "probe.detach", ALL, daemon_method_probe_detach },
	{ "probe.list", ALL, daemon_method_probe_list },
	{ "probe.log", ALL, daemon_method_probe_log },
	{ "probe.set", ALL, daemon_method_probe_set },
	{ "ps", ALL, daemon_method_ps },
	{ "restart", ALL, daemon_method_restart },
	{ "set", ALL, daemon_method_set },
	{ "shutdown", OWNER, method_shutdown },
	{ "status", ALL, daemon_method_status },
	{ "vgpu.create", ALL, daemon_method_vgpu_create },
	{ "vgpu.list", ALL, daemon_method_vgpu_list },
	{ "vgpu.rm", ALL, daemon_method_vgpu_rm },
	{ "vgpu.set", ALL, daemon_method_vgpu_set },
};

const char *daemon_method_name(size_t i)
{
	return i < ARRAY_SIZE(methods) ? methods[i].name : NULL;
}

void daemon_method_call(struct daemon_call *c, const char *method, bool greeted)
{
	if (strcmp(method, "hello") == 0) {
		method_hello(c);
		return;
	}
	if (!greeted) {
		daemon_control_error(c, 2, "protocol", NULL,
				     "the first call of a connection is hello");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		if (strcmp(methods[i].name, method) != 0) {
			continue;
		}
		if (allowed(c, methods[i].right)) {
			methods[i].call(c);
		} else {
			daemon_control_error(
				c, 6, "permission",
				methods[i].right == OWNER
					? "Only root and gbpfd's own user may do that"
					: admin_hint,
				"user %d may not call %s%s", (int)c->peer.uid, method,
				serves_machine(c->d) ? ": root's gbpfd serves this machine" : "");
		}
		return;
	}
	daemon_control_error(c, 2, "method", "gbpf and gbpfd may be of different versions",
			     "there is no method '%.64s'", method);
}

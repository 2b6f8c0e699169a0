/* Policies at start: the one given on the command line; else those active when gbpfd exited; else,
 * with an empty store, the default policy. The default is another one once a virtual GPU has a
 * share of GPU time, since `fair` does not know shares. Also the off switch, which makes shims pass
 * everything through and survives a restart. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/strmap.h"
#include "daemon/audit.h"
#include "daemon/policy/daemon_hooks.h"
#include "daemon/vgpu/vgpu_list.h"

#define DEFAULT_POLICY "fair"
#define SHARES_POLICY "vgpu_auto" /* the default where a virtual GPU has a share */

static int read_policy_file(const char *name_or_path, struct buf *object, char *path, size_t cap)
{
	int err = path_policy(path, cap, name_or_path);

	if (err && strchr(name_or_path, '/')) {
		err = snprintf(path, cap, "%s", name_or_path) < (int)cap ? 0 : -ENAMETOOLONG;
	}
	return err ? err : buf_read_file(object, path, DAEMON_STORE_OBJECT_MAX);
}

static void order(struct daemon *d, struct daemon_policy_request *o)
{
	int err = daemon_policy_submit(d, o);

	if (err) {
		log_error("cannot load the policy: %s", strerror(-err));
	}
}

static void order_activate(struct daemon *d, uint64_t version, uint32_t mask)
{
	struct daemon_policy_request o = {
		.op = DAEMON_POLICY_ACTIVATE, .gpu_mask = mask, .object_fd = -1, .version = version
	};

	order(d, &o);
}

/* Returns the newest stored version of that name if it has these bytes. */
static const struct daemon_stored_version *same_in_store(struct daemon *d, const char *name,
							 const struct buf *object)
{
	struct daemon_store *st = &d->policies->store;
	const struct daemon_stored_version *found = NULL;

	for (unsigned i = 0; i < st->n; i++) {
		if (strcmp(st->v[i].name, name) == 0) {
			found = &st->v[i];
		}
	}
	return found && found->hash == hash_bytes(object->data, object->len) ? found : NULL;
}

/* The policy given on the command line must load: remembers a failure, which ends gbpfd. */
static void on_first(struct daemon *d, uint64_t conn, json_int_t id, json_t *result,
		     const struct report *r, int exit_code)
{
	struct buf text;

	if (!result && !d->policies->first_failed) {
		buf_init(&text);
		report_text(r, &text);
		d->policies->first_failed = buf_steal(&text);
	}
}

/* Loads from a file, unless the store has the same object. 0 or -errno from reading. */
static int load_file(struct daemon *d, const char *name_or_path, bool by_default)
{
	char path[DAEMON_PATH], name[EBPF_NAME_BYTES];
	const char *slash = strrchr(name_or_path, '/');
	const struct daemon_stored_version *same;
	struct buf object;
	int err;

	snprintf(name, sizeof(name), "%s", slash ? slash + 1 : name_or_path);
	name[strcspn(name, ".")] = 0;
	buf_init(&object);
	err = read_policy_file(name_or_path, &object, path, sizeof(path));
	if (!err && !object.len) {
		err = -ENODATA;
	}
	if (err) {
		buf_finish(&object);
		return err;
	}
	same = same_in_store(d, name, &object);
	if (same) {
		order_activate(d, same->version, DAEMON_POLICY_ALL_GPUS);
		buf_finish(&object);
	} else {
		struct daemon_policy_request o = { .op = DAEMON_POLICY_LOAD,
						   .gpu_mask = DAEMON_POLICY_ALL_GPUS,
						   .swap = true,
						   .by_default = by_default,
						   .name = name,
						   .object_fd = -1,
						   .object = object,
						   .uid = d->uid,
						   .reply = by_default ? NULL : on_first };
		order(d, &o);
	}
	return 0;
}

static const char *default_policy(const struct daemon *d)
{
	return daemon_vgpus_have_share(d) ? SHARES_POLICY : DEFAULT_POLICY;
}

static void load_default(struct daemon *d)
{
	const char *name = default_policy(d);
	int err = load_file(d, name, true);

	if (err) {
		daemon_history_add(&d->history, "policy", -1,
				   "no policy is active: the default '%s' cannot be read: %s", name,
				   strerror(-err));
	}
}

/* Returns whether the policy of every GPU is the default for machines without shares, as chosen by
 * gbpfd. */
static bool default_is_active(struct daemon_store *st)
{
	const struct daemon_stored_version *v = daemon_store_find(st, st->active[0]);

	for (unsigned i = 1; i < PROTO_MAX_GPUS; i++) {
		if (st->active[i] != st->active[0]) {
			return false;
		}
	}
	return v && v->by_default && strcmp(v->name, DEFAULT_POLICY) == 0;
}

bool daemon_policy_follow_shares(struct daemon *d)
{
	struct daemon_policies *p = d->policies;
	int err;

	if (p->followed_shares || d->ending || !daemon_vgpus_have_share(d)) {
		return false;
	}
	if (p->n) {
		return true; /* daemon_policy_ops_next() asks again */
	}
	if (!default_is_active(&p->store)) {
		return false;
	}
	/* Once: a rollback to the default is the operator's choice. */
	p->followed_shares = true;
	err = load_file(d, SHARES_POLICY, true);
	daemon_history_add(&d->history, "policy", -1,
			   err ? "a virtual GPU has a share, and '%s', which keeps shares, cannot "
				 "be read: %s"
			       : "a virtual GPU has a share: '%s' becomes the default policy%s",
			   SHARES_POLICY, err ? strerror(-err) : "");
	return !err;
}

/* Activates each version once, with all GPUs that it was active on. Returns false if the store is
 * new. */
static bool restore(struct daemon *d)
{
	struct daemon_store *st = &d->policies->store;
	uint64_t active[PROTO_MAX_GPUS];
	bool any_by_default = false;

	memcpy(active, st->active, sizeof(active));
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		const struct daemon_stored_version *v = daemon_store_find(st, active[i]);
		uint32_t mask = 0;

		for (unsigned k = i; k < PROTO_MAX_GPUS && v; k++) {
			if (active[k] == v->version) {
				mask |= 1u << k;
				active[k] = 0;
			}
		}
		if (mask == DAEMON_POLICY_ALL_GPUS && v->by_default) {
			any_by_default = true; /* a newer default may have been installed since */
		} else if (mask) {
			order_activate(d, v->version, mask);
		}
	}
	if (any_by_default && load_file(d, default_policy(d), true) < 0) {
		order_activate(d, st->active[0], DAEMON_POLICY_ALL_GPUS);
	}
	return st->has_state;
}

int daemon_policies_begin(struct daemon *d)
{
	if (d->opt.policy[0]) {
		return load_file(d, d->opt.policy, false);
	}
	if (!restore(d)) {
		load_default(d);
	}
	return 0;
}

/* ---- off ---- */

int daemon_policy_set_off(struct daemon *d, bool off, const struct peer *who, uint64_t conn,
			  json_int_t id)
{
	struct daemon_store *st = &d->policies->store;
	json_t *result = json_pack("{s:b}", "off", (int)off);

	if (!result) {
		return -ENOMEM;
	}
	store_seqcst(&daemon_directory(d)->off, (uint32_t)off);
	daemon_audit(d, who, off ? "off" : "on", 0, "%s",
		     off ? "every call passes through" : "policies decide");
	if (st->off != off) {
		st->off = off;
		daemon_ticker_wake(d);
		daemon_history_add(&d->history, off ? "off" : "on", -1, "%s",
				   off ? "switched off: every call passes through"
				       : "switched on again");
	}
	/* The answer waits for the disk. A full disk must not prevent the switch. */
	return daemon_durable_save(d, "off or on", result, conn, id);
}

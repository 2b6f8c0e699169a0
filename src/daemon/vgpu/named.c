/* vGPUs with names: made, changed and removed by operators, kept across restarts of gbpfd, joined
 * by processes that know the name and whose user may. */
#include "daemon/vgpu/vgpu_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/audit.h"
#include "daemon/control_socket.h"
#include "daemon/session/tenant_session.h"

static bool has_name(const struct daemon_vgpu *v, const char *name)
{
	return v->is.name[0] && strcmp(v->is.name, name) == 0;
}

struct daemon_vgpu *daemon_vgpu_of_owner(const struct daemon *d, uid_t owner, const char *name)
{
	struct daemon_vgpu *v = d->vgpus.first;

	while (v && (v->uid != owner || !has_name(v, name))) {
		v = v->next;
	}
	return v;
}

/* Returns true if the user is one of those to whom a vGPU was opened. */
static bool is_listed(const struct daemon_vgpu *v, uid_t uid)
{
	for (unsigned i = 0; i < v->n_users; i++) {
		if (v->users[i] == uid) {
			return true;
		}
	}
	return false;
}

/* The rights of root and operators do not count for a name alone: any user can make a vGPU of any
 * name, and scripts of root would find that one as soon as their own is removed. */
int daemon_vgpu_find_name(const struct daemon *d, uid_t uid, bool all, const struct proto_vgpu *is,
			  struct daemon_vgpu **ret)
{
	uid_t owner = is->number ? (uid_t)(is->number - 1) : uid;
	struct daemon_vgpu *found = daemon_vgpu_of_owner(d, owner, is->name);

	if (found && !all && !daemon_vgpu_is_open_to(found, uid)) {
		return -ENOENT; /* names of others are private */
	}
	if (!found && !is->number) {
		for (struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
			if (!has_name(v, is->name) || !is_listed(v, uid)) {
				continue;
			}
			if (found) {
				return -ENOTUNIQ;
			}
			found = v;
		}
	}
	if (!found) {
		return -ENOENT;
	}
	*ret = found;
	return 0;
}

/* Returns the owner that an account states, as struct proto_vgpu has it; 0: none. gbpfd restores
 * that word with the others of the page (page_check.c). The descriptor can be of any file: only
 * files in memory are read, which cannot make gbpfd wait. */
static uint64_t owner_of(int account)
{
	uint64_t owner;

	if (fcntl(account, F_GET_SEALS) < 0 ||
	    pread(account, &owner, sizeof(owner), offsetof(struct proto_account, vgpu_owner)) !=
		    sizeof(owner)) {
		return 0;
	}
	return owner <= UINT32_MAX ? owner : 0;
}

int daemon_vgpu_find_meant(const struct daemon_session *s, const struct proto_hello *h,
			   const int *brought, struct daemon_vgpu **ret)
{
	struct proto_vgpu is = h->vgpu;

	/* The name may mean another vGPU than it did when the process joined. */
	is.number = brought && !is.number ? owner_of(*brought) : is.number;
	if (daemon_vgpu_find_name(s->d, s->peer.uid, false, &is, ret) == 0) {
		return 0;
	}
	/* A program may have written any owner into the page. If another user's processes have it,
	 * it is not adopted (page_check.c). */
	return daemon_vgpu_find_name(s->d, s->peer.uid, false, &h->vgpu, ret);
}

bool daemon_vgpu_is_for(const struct daemon_vgpu *v, uid_t uid)
{
	return v->uid == uid || is_listed(v, uid);
}

bool daemon_vgpu_is_open_to(const struct daemon_vgpu *v, uid_t uid)
{
	return uid == 0 || daemon_vgpu_is_for(v, uid);
}

/* ---- whether it has processes, for the next gbpfd ---- */

/* A file in the runtime folder, which does not outlive the machine's processes. */
static void mark_path(const struct daemon_vgpu *v, char out[DAEMON_PATH + 64])
{
	snprintf(out, DAEMON_PATH + 64, "%s/vgpu-%u-%s.used", v->d->opt.runtime, (unsigned)v->uid,
		 v->is.name);
}

void daemon_vgpu_mark(const struct daemon_vgpu *v, bool has_processes)
{
	char path[DAEMON_PATH + 64];

	mark_path(v, path);
	if (has_processes) {
		fd_close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
	} else {
		unlink(path);
	}
}

bool daemon_vgpu_is_marked(const struct daemon_vgpu *v)
{
	char path[DAEMON_PATH + 64], old[DAEMON_PATH + 64];

	mark_path(v, path);
	/* The mark of an older gbpfd, where a name was that of one vGPU only. */
	snprintf(old, sizeof(old), "%s/vgpu-%s.used", v->d->opt.runtime, v->is.name);
	return access(path, F_OK) == 0 || rename(old, path) == 0;
}

void daemon_vgpu_emptied(struct daemon_vgpu *v)
{
	struct daemon *d = v->d;

	daemon_vgpu_mark(v, false);
	v->awaited = false;
	if (v->draining && !d->ending) {
		daemon_history_add_of(&d->history, v->uid, "vgpu", -1, 0,
				      "virtual GPU %s is removed: its last program has ended",
				      v->is.name);
		daemon_vgpu_destroy(v);
		(void)daemon_vgpu_save(d, NULL, 0, 0);
	}
}

/* ---- methods ---- */

static bool may_change(const struct daemon_call *c, const struct daemon_vgpu *v)
{
	return c->peer.uid == v->uid || c->peer.uid == 0 || daemon_may_administer(c->d, c->sock);
}

static bool may_see(const struct daemon_call *c, const struct daemon_vgpu *v)
{
	return daemon_vgpu_is_open_to(v, c->peer.uid) || may_change(c, v);
}

/* Answers the call once the file is written, and records the action. */
static void finish(struct daemon_call *c, const char *action, const char *text, json_t *result)
{
	if (daemon_may_administer(c->d, c->sock)) {
		daemon_audit(c->d, &c->peer, action, 0, "%s", text);
	} else {
		daemon_audit_user(c->d, &c->peer, action, "%s", text);
	}
	if (daemon_session_event_allowed(c->d, c->peer.uid)) {
		daemon_history_add_of(&c->d->history, c->peer.uid, "vgpu", -1, 0, "%s", text);
	}
	if (daemon_vgpu_save(c->d, result, c->conn, c->id) < 0) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
	}
}

/* Reads "users": an array of user ids, which only root and operators may name. Returns false after
 * answering an error; users and *n are undefined then. */
static bool take_users(struct daemon_call *c, uid_t users[DAEMON_VGPU_USERS], unsigned *n)
{
	const json_t *list = json_object_get(c->params, "users"), *u;
	bool good = !list || (json_is_array(list) && json_array_size(list) <= DAEMON_VGPU_USERS);
	size_t i;

	if (!list) {
		return true;
	}
	*n = 0;
	json_array_foreach(list, i, u)
	{
		json_int_t uid = json_integer_value(u);

		good &= json_is_integer(u) && uid >= 0 && uid < (json_int_t)UINT32_MAX;
		if (good) {
			users[(*n)++] = (uid_t)uid;
		}
	}
	if (!good) {
		daemon_control_error(c, 2, "usage", NULL, "users: at most %u user ids",
				     DAEMON_VGPU_USERS);
	} else if (*n && !daemon_may_administer(c->d, c->sock)) {
		daemon_control_error(
			c, 6, "permission",
			"Only root, gbpfd's own user and members of the group gbpf may "
			"open a virtual GPU to others",
			"user %d may not name users", (int)c->peer.uid);
		good = false;
	}
	return good;
}

/* Returns true if a change may be written; false after answering an error. */
static bool may_save(struct daemon_call *c)
{
	if (!daemon_vgpu_may_save(c->d, daemon_may_administer(c->d, c->sock))) {
		daemon_control_error(c, 7, "busy", "Try again once they are answered",
				     "too many changes of virtual GPUs are being written");
		return false;
	}
	return true;
}

/* Reads what a vGPU shall be given. Returns false after answering an error. */
static bool take_config(struct daemon_call *c, struct proto_vgpu_config *config)
{
	const char *fault = daemon_vgpu_config_take(config, c->params);

	if (fault) {
		daemon_control_error(c, 2, "usage", "See gbpf-vgpu(1) for the allowed values",
				     "a virtual GPU cannot be given that: %s", fault);
	}
	return !fault;
}

/* Returns true if a reservation may change from `had` to `wants` bytes; false after answering an
 * error. "device_mem": the size of the smallest device, as the caller has found it. */
static bool may_reserve(struct daemon_call *c, uint64_t had, uint64_t wants)
{
	json_int_t n = json_integer_value(json_object_get(c->params, "device_mem"));
	uint64_t left, size = n > 0 ? (uint64_t)n : 0;

	if (wants <= had) {
		return true;
	}
	if (!daemon_may_administer(c->d, c->sock)) {
		daemon_control_error(
			c, 6, "permission",
			"Only root, gbpfd's own user and members of the group gbpf may "
			"take memory away from others",
			"user %d may not reserve memory", (int)c->peer.uid);
		return false;
	}
	if (!daemon_vgpu_may_reserve(c->d, wants - had, &left, &size)) {
		daemon_control_error(c, 7, "limit", "`gbpf vgpu ls` shows all reservations",
				     "%llu MiB cannot be reserved: others leave %llu of %llu MiB",
				     (unsigned long long)(wants >> 20),
				     (unsigned long long)((left + had) >> 20),
				     (unsigned long long)(size >> 20));
		return false;
	}
	return true;
}

static const char *name_of(const struct daemon_call *c)
{
	const char *name = json_string_value(json_object_get(c->params, "name"));

	return name ? name : "";
}

static struct daemon_vgpu *of_tenant(const struct daemon *d, json_int_t n)
{
	const struct daemon_session *s =
		n >= 0 && n < PROTO_MAX_TENANTS ? d->sessions.tenant[n] : NULL;

	return s && !s->dying ? s->vgpu.of : NULL;
}

/* Finds the vGPU of "name", as daemon_vgpu_find_name(); all: those that the caller administers.
 * -ENOTUNIQ has been answered. */
static int of_name(struct daemon_call *c, bool all, struct daemon_vgpu **ret)
{
	struct proto_vgpu is;
	int err = proto_vgpu_parse_name(name_of(c), &is) < 0
			  ? -ENOENT
			  : daemon_vgpu_find_name(c->d, c->peer.uid,
						  all && daemon_may_administer(c->d, c->sock), &is,
						  ret);

	if (err == -ENOTUNIQ) {
		daemon_control_error(c, 2, "ambiguous",
				     "Name its owner, too: USER/NAME; `gbpf vgpu ls` lists them",
				     "several users have a virtual GPU '%.40s'", name_of(c));
	}
	return err;
}

/* Returns true if the caller may change another user's vGPU but has not named that user. Scripts of
 * root would otherwise change one that was opened to root once root's own is removed. */
static bool lacks_owner(const struct daemon_call *c, const struct daemon_vgpu *v)
{
	return v->uid != c->peer.uid && !strchr(name_of(c), '/') && may_change(c, v);
}

/* Returns the vGPU that the call is to change, by "name" or by a "tenant" in it; NULL after
 * answering an error. */
static struct daemon_vgpu *named(struct daemon_call *c)
{
	const json_t *tenant = json_object_get(c->params, "tenant");
	bool by_name = !json_is_integer(tenant);
	struct daemon_vgpu *v = NULL;

	if (!by_name) {
		v = of_tenant(c->d, json_integer_value(tenant));
	} else if (of_name(c, true, &v) == -ENOTUNIQ) {
		return NULL;
	}
	if (!v || !may_see(c, v) || (by_name && lacks_owner(c, v))) {
		daemon_control_error(c, 5, "not-found", "`gbpf vgpu ls` lists them",
				     "there is no virtual GPU %.40s",
				     by_name ? name_of(c) : "of this program");
		return NULL;
	}
	if (!may_change(c, v)) {
		daemon_control_error(c, 6, "permission", "Only its owner and operators may",
				     "virtual GPU '%s' belongs to user %d", v->is.name,
				     (int)v->uid);
		return NULL;
	}
	return v;
}

/* Returns the answer, which names policies that do not keep those shares that the call gives. */
static json_t *changed_json(struct daemon_call *c, const struct daemon_vgpu *v)
{
	json_t *j = daemon_vgpu_json(v);
	struct proto_vgpu_config given = { 0 };

	given.compute = json_object_get(c->params, "compute") ? v->is.config.compute : 0;
	given.copy = json_object_get(c->params, "copy") ? v->is.config.copy : 0;
	daemon_features_call(shares_given, c->d, &given, j);
	return j;
}

/* Returns true if the caller may have a further vGPU; false after answering an error. */
static bool has_place(struct daemon_call *c)
{
	struct report r;
	int err;

	report_init(&r);
	err = daemon_vgpu_check_user(c->d, c->peer.uid, DAEMON_VGPU_NEW, &r);
	if (err) {
		daemon_control_answer(c->d, c->conn, c->id, NULL, &r, 7);
	}
	report_finish(&r);
	return !err;
}

void daemon_method_vgpu_create(struct daemon_call *c)
{
	struct proto_vgpu is = { 0 };
	uid_t users[DAEMON_VGPU_USERS];
	unsigned n_users = 0;
	struct daemon_vgpu *v;
	char text[128];

	if (!may_save(c)) {
		return;
	}
	if (!proto_vgpu_name_is_valid(name_of(c))) {
		daemon_control_error(c, 2, "usage",
				     "Use 1 to 31 letters, digits and characters of ._- that begin "
				     "with a letter",
				     "'%.40s' cannot be the name of a virtual GPU", name_of(c));
		return;
	}
	if (daemon_vgpu_of_owner(c->d, c->peer.uid, name_of(c))) {
		daemon_control_error(c, 1, "exists",
				     "Choose another name, or change it with "
				     "`gbpf vgpu set`",
				     "there is a virtual GPU '%s' already", name_of(c));
		return;
	}
	if (!take_config(c, &is.config) || !may_reserve(c, 0, is.config.reserve) ||
	    !take_users(c, users, &n_users)) {
		return;
	}
	snprintf(is.name, sizeof(is.name), "%s", name_of(c));
	if (!has_place(c)) {
		return;
	}
	v = daemon_vgpu_add(c->d, c->peer.uid, &is);
	if (!v) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
		return;
	}
	memcpy(v->users, users, n_users * sizeof(users[0]));
	v->n_users = n_users;
	daemon_vgpu_reserve_update(c->d);
	daemon_features_call(vgpus_changed, c->d);
	snprintf(text, sizeof(text), "virtual GPU %s is made", is.name);
	finish(c, "vgpu.create", text, changed_json(c, v));
}

#define USERS_SHOWN 8u /* an entry of the audit log has 400 characters */

static void put_users(struct buf *out, const uid_t *users, unsigned n)
{
	for (unsigned i = 0; i < MIN(n, USERS_SHOWN); i++) {
		buf_printf(out, "%s%d", i ? "," : "", (int)users[i]);
	}
	if (n > USERS_SHOWN) {
		buf_printf(out, " and %u more", n - USERS_SHOWN);
	}
	buf_puts(out, n ? "" : "none");
}

/* Appends the name or number of a vGPU, and its owner if that is not the caller. */
static void put_name(struct buf *out, const struct daemon_call *c, const struct daemon_vgpu *v)
{
	if (v->is.name[0]) {
		buf_puts(out, v->is.name);
	} else {
		buf_printf(out, "%llx", (unsigned long long)v->is.number);
	}
	if (c->peer.uid != v->uid) {
		buf_printf(out, " of user %u", (unsigned)v->uid);
	}
}

/* Appends what a call changes, with the old and new values. */
static void put_changes(struct buf *out, const struct daemon_vgpu *v,
			const struct proto_vgpu_config *config, const uid_t *users,
			unsigned n_users)
{
	struct buf text;

	buf_init(&text);
	daemon_vgpu_config_changes(&v->is.config, config, &text);
	if (n_users != v->n_users || memcmp(users, v->users, n_users * sizeof(users[0])) != 0) {
		buf_puts(&text, text.len ? ", users " : "users ");
		put_users(&text, v->users, v->n_users);
		buf_puts(&text, " -> ");
		put_users(&text, users, n_users);
	}
	buf_printf(out, ": %s", text.len ? buf_text(&text) : "no value differs");
	buf_finish(&text);
}

void daemon_method_vgpu_set(struct daemon_call *c)
{
	struct daemon_vgpu *v = named(c);
	uid_t users[DAEMON_VGPU_USERS];
	struct proto_vgpu_config config;
	struct buf text;
	unsigned n_users;

	if (!v || !may_save(c)) {
		return;
	}
	config = v->is.config;
	n_users = v->n_users;
	memcpy(users, v->users, sizeof(users));
	if (!take_config(c, &config) || !may_reserve(c, v->is.config.reserve, config.reserve) ||
	    !take_users(c, users, &n_users)) {
		return;
	}
	buf_init(&text);
	buf_printf(&text, "virtual GPU ");
	put_name(&text, c, v);
	buf_puts(&text, " is changed");
	put_changes(&text, v, &config, users, n_users);
	v->is.config = config;
	v->n_users = n_users;
	memcpy(v->users, users, sizeof(users));
	daemon_vgpu_update_page(v);
	finish(c, "vgpu.set", buf_text(&text), changed_json(c, v));
	buf_finish(&text);
}

void daemon_method_vgpu_rm(struct daemon_call *c)
{
	bool drain = json_is_true(json_object_get(c->params, "drain")), later;
	struct daemon_vgpu *v = named(c);
	struct buf text;
	json_t *j;

	if (!v || !may_save(c)) {
		return;
	}
	if (!v->is.name[0]) {
		daemon_control_error(c, 2, "usage", "It ends with its last program",
				     "a virtual GPU without a name cannot be removed");
		return;
	}
	later = v->n_lines || daemon_vgpu_is_awaited(v);
	if (later && !drain) {
		daemon_control_error(c, 7, "busy",
				     "End them first, or use --drain: it is then removed when they "
				     "have ended",
				     v->n_lines ? "virtual GPU '%s' has programs in it (%u)"
						: "virtual GPU '%s' had programs in it when gbpfd "
						  "was restarted, which may come back",
				     v->is.name, v->n_lines);
		return;
	}
	buf_init(&text);
	buf_puts(&text, "virtual GPU ");
	put_name(&text, c, v);
	buf_puts(&text, later ? " is removed when its programs have ended" : " is removed");
	j = json_pack("{s:s,s:i,s:b}", "name", v->is.name, "processes", (int)v->n_lines, "removed",
		      !later);
	v->draining = true;
	if (!later) {
		daemon_vgpu_mark(v, false);
		daemon_vgpu_destroy(v);
	}
	finish(c, "vgpu.rm", buf_text(&text), j);
	buf_finish(&text);
}

/* Returns true if a vGPU without a name has the number that the call names. */
static bool is_numbered(const struct daemon_call *c, const struct daemon_vgpu *v)
{
	char number[24];

	snprintf(number, sizeof(number), "%llx", (unsigned long long)v->is.number);
	return !v->is.name[0] && strcmp(number, name_of(c)) == 0;
}

/* With "name": the one that it means, or, "join", that a program of the caller can join by it. */
void daemon_method_vgpu_list(struct daemon_call *c)
{
	bool any = !json_object_get(c->params, "name");
	bool join = json_is_true(json_object_get(c->params, "join"));
	struct daemon_vgpu *only = NULL;
	json_t *all;

	if (!any && of_name(c, !join, &only) == -ENOTUNIQ) {
		return;
	}
	all = json_array();
	for (const struct daemon_vgpu *v = c->d->vgpus.first; v; v = v->next) {
		if (only ? v == only : may_see(c, v) && (any || is_numbered(c, v))) {
			json_array_append_new(all, daemon_vgpu_json(v));
		}
	}
	daemon_control_result(c, json_pack("{s:o}", "vgpus", all));
}

/* probe.attach, probe.detach and the drain of a tool: parameters and rights. */
#include "daemon/probe/probes_int.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/clean_text.h"

#define BUILDS_PER_SECOND                                                                          \
	4u /* of one user that may not administer: they take the worker's time                     \
	    */

/* ---- limits ---- */

static bool has_place(struct daemon_call *c, bool admin, bool swap)
{
	uint64_t now = clock_now_ns();
	struct report r;
	int err;

	report_init(&r);
	err = daemon_probe_check_place(c->d, c->peer.uid, admin, swap, &r);
	if (err) {
		daemon_control_answer(c->d, c->conn, c->id, NULL, &r, 7);
	}
	report_finish(&r);
	if (err) {
		return false;
	}
	if (daemon_probe_wait_is_full(c->d, admin) ||
	    (!admin && !rate_allow(&daemon_user_of(&c->d->users, c->peer.uid, now)->builds,
				   BUILDS_PER_SECOND, now))) {
		daemon_control_error(c, 7, "busy", "Try again in a moment",
				     "too many tools are being attached");
		return false;
	}
	return true;
}

/* ---- target ---- */

static const struct daemon_session *numbered(const struct daemon_call *c, json_int_t n, bool admin)
{
	const struct daemon_session *found = NULL;

	daemon_session_each(c->d, s)
	{
		if (s->state != DAEMON_SESSION_READY || s->dying ||
		    !(admin || s->peer.uid == c->peer.uid)) {
			continue;
		}
		if (s->peer.pid == n) {
			return s;
		}
		found = s->tenant == n ? s : found;
	}
	return found;
}

static bool is_named(const struct daemon_call *c, const char *name, bool admin)
{
	daemon_session_each(c->d, s)
	{
		if (s->tenant >= 0 && !s->dying && strcmp(s->name, name) == 0 &&
		    (admin || s->peer.uid == c->peer.uid)) {
			return true;
		}
	}
	return false;
}

static bool take_number(struct daemon_call *c, json_int_t n, bool admin,
			struct daemon_probe_target *t)
{
	const struct daemon_session *s = numbered(c, n, admin);

	if (!s) {
		daemon_control_error(c, 5, "not-found", "`gbpf ps` shows those that there are",
				     "no program %lld runs under gBPF", (long long)n);
		return false;
	}
	t->tenant = s->tenant;
	t->connected_ns = s->connected_ns;
	t->process = daemon_process_of(s->peer.pid);
	snprintf(t->text, sizeof(t->text), "%d", (int)s->peer.pid);
	return true;
}

/* Returns whether the programs with that name may all start later. Names of tenants are clean and
 * of limited length (hello.c), so none can have another name. */
static bool may_come(const struct daemon_call *c, const char *name)
{
	char clean[PROTO_NAME];

	daemon_text_copy(clean, sizeof(clean), name, strlen(name));
	return json_is_true(json_object_get(c->params, "later")) && strcmp(clean, name) == 0;
}

bool daemon_probe_take_target(struct daemon_call *c, bool admin, struct daemon_probe_target *t)
{
	const json_t *to = json_object_get(c->params, "to");
	const char *name = json_string_value(to);

	*t = (struct daemon_probe_target){ .uid = admin ? -1 : (int64_t)c->peer.uid, .tenant = -1 };
	if (!to || json_is_null(to)) {
		return true;
	}
	if (json_is_integer(to)) {
		return take_number(c, json_integer_value(to), admin, t);
	}
	if (!name || !name[0] || (!may_come(c, name) && !is_named(c, name, admin))) {
		daemon_control_error(c, 5, "not-found",
				     json_object_get(c->params, "name")
					     ? "`gbpf ps` shows those that there are; without "
					       "--to, programs that start later get the tool, too"
					     : "`gbpf ps` shows those that there are",
				     "no program '%.63s' runs under gBPF", name ? name : "");
		return false;
	}
	snprintf(t->name, sizeof(t->name), "%s", name);
	snprintf(t->text, sizeof(t->text), "%s", name);
	return true;
}

bool daemon_probe_good_kernel(const char *text)
{
	size_t n = strlen(text);
	bool good = n > 0 && n < PROTO_PATTERN;

	for (size_t i = 0; i < n && good; i++) {
		good = isgraph((unsigned char)text[i]) || text[i] == ' ';
	}
	return good;
}

static bool take_kernel(struct daemon_call *c, char kernel[PROTO_PATTERN])
{
	const json_t *j = json_object_get(c->params, "kernel");
	const char *text = j && !json_is_null(j) ? json_string_value(j) : "*";

	if (!text || !daemon_probe_good_kernel(text)) {
		daemon_control_error(c, 2, "usage", "For example gemm* or *",
				     "invalid pattern of kernels' names: expected 1 to %u "
				     "printable characters",
				     PROTO_PATTERN - 1);
		return false;
	}
	memcpy(kernel, text, strlen(text) + 1);
	return true;
}

/* Reads the budget, 0: none. */
static bool take_budget(struct daemon_call *c, uint32_t *ret_ppm)
{
	const json_t *j = json_object_get(c->params, "budget_ppm");
	json_int_t ppm = json_integer_value(j);

	*ret_ppm = 0;
	if (!j || json_is_null(j)) {
		return true;
	}
	if (!json_is_integer(j) || ppm < 0 || ppm > DAEMON_PROBE_BUDGET_MAX) {
		daemon_control_error(c, 2, "usage", "30000 is 3 percent, 0 removes the budget",
				     "invalid budget_ppm: expected 0 to 1000000");
		return false;
	}
	*ret_ppm = (uint32_t)ppm;
	return true;
}

/* Reads "every", of a tool that can be set. */
static bool take_every(struct daemon_call *c, uint32_t *ret)
{
	const json_t *j = json_object_get(c->params, "every");
	json_int_t every = json_integer_value(j);

	if (!j || json_is_null(j)) {
		return true;
	}
	if (!json_is_integer(j) || every < 1 || every > DAEMON_PROBE_EVERY_MAX) {
		daemon_control_error(c, 2, "usage", "8 is one block in 8",
				     "invalid interval of blocks: expected 1 to %u",
				     DAEMON_PROBE_EVERY_MAX);
		return false;
	}
	*ret = (uint32_t)every;
	return true;
}

/* ---- attach ---- */

/* Returns the tool that params name with `member`, if the caller may change it; NULL after
 * answering an error. */
static struct daemon_probe *named(struct daemon_call *c, const char *member)
{
	json_int_t id = json_integer_value(json_object_get(c->params, member));
	struct daemon_probe *p = daemon_probe_find(c->d, id);

	if (!p || !daemon_probe_visible(c, p)) {
		daemon_control_error(c, 5, "not-found", "`gbpf probe ls` lists them",
				     "there is no tool %lld", (long long)id);
		return NULL;
	}
	if (!daemon_probe_may_change(c, p)) {
		daemon_control_error(c, 6, "permission", "Only its owner and operators may",
				     "tool %u belongs to user %d", p->id, (int)p->owner.uid);
		return NULL;
	}
	return p;
}

/* A tool that replaces another has its target, kernels, budget and connection, unless it has its
 * own. */
static bool take_settings(struct daemon_call *c, struct daemon_probe *p,
			  const struct daemon_probe *old)
{
	bool admin = p->by_admin;
	uint32_t every = 0;

	if (old && !json_object_get(c->params, "to")) {
		p->target = old->target;
		p->target.uid = admin ? p->target.uid : (int64_t)c->peer.uid;
	} else if (!daemon_probe_take_target(c, admin, &p->target)) {
		return false;
	}
	if (old && !json_object_get(c->params, "kernel")) {
		memcpy(p->kernel, old->kernel, sizeof(p->kernel));
	} else if (!take_kernel(c, p->kernel)) {
		return false;
	}
	if (old) {
		p->control = old->control;
	}
	p->partial = old && old->partial;
	if (json_object_get(c->params, "partial")) {
		p->partial = json_is_true(json_object_get(c->params, "partial"));
	}
	if (!take_every(c, &every)) {
		return false;
	}
	daemon_probe_set_all(&p->control, every, PROTO_PROBE_AS_OTHERS);
	if (old && !json_object_get(c->params, "budget_ppm")) {
		p->budget_ppm = old->budget_ppm;
	} else if (!take_budget(c, &p->budget_ppm)) {
		return false;
	}
	p->verify = json_is_true(json_object_get(c->params, "verify"));
	if (json_is_true(json_object_get(c->params, "hold"))) {
		p->held = true;
		p->hold = c->conn;
		p->holder = daemon_process_of(c->peer.pid);
	} else if (old) {
		p->held = old->held;
		p->hold = old->hold;
		p->holder = old->holder;
	}
	return true;
}

static void attach(struct daemon_call *c, const char *name, const struct daemon_probe *old)
{
	struct daemon_probe *p = calloc(1, sizeof(*p));
	struct daemon_probe_request o;

	if (!p) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
		return;
	}
	p->by_admin = daemon_may_administer(c->d, c->sock);
	p->owner = c->peer;
	daemon_text_copy(p->name, sizeof(p->name), name, strlen(name));
	if (!has_place(c, p->by_admin, old != NULL) || !take_settings(c, p, old)) {
		free(p);
		return;
	}
	o = (struct daemon_probe_request){ .p = p,
					   .replaces = old ? (json_int_t)old->id : 0,
					   .object_fd = *c->fd,
					   .conn = c->conn,
					   .call = c->id };
	*c->fd = -1;
	if (daemon_probe_attach(c->d, &o) < 0) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
	}
}

void daemon_method_probe_attach(struct daemon_call *c)
{
	const char *name = json_string_value(json_object_get(c->params, "name"));
	const struct daemon_probe *old = NULL;

	if (!daemon_control_good_name(name)) {
		daemon_control_error(c, 2, "usage",
				     "Give one with 1 to 31 characters, without blanks and slashes",
				     "a tool needs a name");
		return;
	}
	if (*c->fd < 0) {
		daemon_control_error(
			c, 2, "usage", NULL,
			"probe.attach needs the object as a descriptor sent with the line");
		return;
	}
	if (json_object_get(c->params, "replace")) {
		old = named(c, "replace");
		if (!old) {
			return;
		}
	}
	attach(c, name, old);
}

/* Returns false after answering that too many callers wait. */
static bool may_wait(struct daemon_call *c)
{
	if (daemon_probe_wait_is_full(c->d, daemon_may_administer(c->d, c->sock))) {
		daemon_control_error(c, 7, "busy", "Try again in a moment",
				     "too many callers wait for tools");
		return false;
	}
	return true;
}

void daemon_method_probe_detach(struct daemon_call *c)
{
	struct daemon_probe *p = named(c, "id");

	if (!p) {
		return;
	}
	if (!may_wait(c)) {
		return;
	}
	if (!p->ending) {
		daemon_probe_record(p, &c->peer, daemon_may_administer(c->d, c->sock), "detach",
				    "by user %d", (int)c->peer.uid);
	}
	daemon_probe_end(p, c->conn, c->id);
}

/* ---- set ---- */

static bool change_budget(struct daemon_call *c, uint32_t *ppm)
{
	const json_t *j = json_object_get(c->params, "budget_ppm");

	return !j || json_is_null(j) || take_budget(c, ppm);
}

/* Whether the call changes which blocks run the tool. */
static bool sets_blocks(const struct daemon_call *c)
{
	return json_is_boolean(json_object_get(c->params, "off")) ||
	       json_object_get(c->params, "every");
}

static bool names_kernels(const struct daemon_call *c)
{
	const json_t *kernel = json_object_get(c->params, "kernel");

	return kernel && !json_is_null(kernel);
}

/* Returns whether all that the call sets may differ between kernels; false: after answering an
 * error. */
static bool may_name_kernels(struct daemon_call *c)
{
	bool budget = json_object_get(c->params, "budget_ppm");

	if (budget || !sets_blocks(c)) {
		daemon_control_error(c, 2, "usage", NULL,
				     budget ? "a budget is of the whole tool: set it without kernel"
					    : "kernel needs every or off");
		return false;
	}
	return true;
}

static void send_settings(const struct daemon_probe *p)
{
	daemon_session_each(p->d, s)
	{
		const struct daemon_probe_part *part = daemon_probe_part(p, s);
		union proto_message m = { 0 };

		if (part && !part->gone && !part->end && !s->dying) {
			m.probe_set.version = p->live->version;
			m.probe_set.control = p->control;
			m.probe_set.budget_ppm = p->budget_ppm;
			daemon_session_send(s, &m, PROTO_PROBE_SET, NULL, 0);
		}
	}
}

/* Changes which blocks run the tool as the call says: in all kernels, or in those that it names.
 * Returns false after answering an error. */
static bool change_blocks(struct daemon_call *c, const struct daemon_probe *p,
			  struct proto_probe_control *control)
{
	uint32_t on_off = daemon_probe_on_off(c->params);
	char kernel[PROTO_PATTERN];
	uint32_t every = 0;

	if (!p->control.every && sets_blocks(c)) {
		daemon_control_error(c, 2, "not-possible",
				     "`gbpf probe swap ID OBJECT --sample 1/1` replaces it by one "
				     "that can be set",
				     "tool %u was attached without --sample", p->id);
		return false;
	}
	if (!take_every(c, &every)) {
		return false;
	}
	if (!names_kernels(c)) {
		daemon_probe_set_all(control, every, on_off);
		return true;
	}
	if (!may_name_kernels(c) || !take_kernel(c, kernel)) {
		return false;
	}
	if (daemon_probe_set_scope(control, kernel, every, on_off) < 0) {
		daemon_control_error(c, 7, "limit",
				     "`gbpf probe set` without --kernel ends those that it "
				     "overrides",
				     "tool %u is set for %u patterns of kernels already", p->id,
				     PROTO_PROBE_SCOPES);
		return false;
	}
	return true;
}

static json_t *settings_json(const struct daemon_probe *p)
{
	return json_pack("{s:I,s:s,s:I,s:b,s:I,s:o}", "id", (json_int_t)p->id, "name", p->name,
			 "every", (json_int_t)p->control.every, "off", (int)p->control.off,
			 "budget_ppm", (json_int_t)p->budget_ppm, "scopes",
			 daemon_probe_scopes_json(&p->control));
}

void daemon_method_probe_set(struct daemon_call *c)
{
	struct daemon_probe *p = named(c, "id");
	struct proto_probe_control control;
	uint32_t budget;

	if (!p) {
		return;
	}
	control = p->control;
	budget = p->budget_ppm;
	if (!change_blocks(c, p, &control) || !change_budget(c, &budget)) {
		return;
	}
	p->control = control;
	p->budget_ppm = budget;
	if (p->live && !p->ending) {
		send_settings(p);
		daemon_probe_store_change(p);
	}
	daemon_control_result(c, settings_json(p));
}

/* ---- drain ---- */

/* Returns whether the caller holds the tool, also over a new connection after a restart. */
static bool is_holder(const struct daemon_call *c, const struct daemon_probe *p)
{
	return (p->hold && p->hold == c->conn) ||
	       (p->held && p->holder.pid && p->holder.pid == c->peer.pid);
}

void daemon_probe_drain_call(struct daemon_call *c, struct daemon_version *l, int tenant)
{
	bool admin = daemon_may_administer(c->d, c->sock);
	struct daemon_probe_wait what = { .p = daemon_probe_of(l),
					  .kind = DAEMON_PROBE_WAIT_DRAIN,
					  .conn = c->conn,
					  .call = c->id,
					  .tenant = tenant,
					  .uid = admin ? -1 : (int64_t)c->peer.uid };

	if (may_wait(c)) {
		what.holder = is_holder(c, what.p);
		what.number = ++c->d->probes->orders;
		daemon_probe_drain(what.p, &what);
		daemon_probe_wait(&what);
	}
}

/* What users see of each other through the control socket. Every method has a case here: a new
 * method without one fails the test. The secrets of user A's tenant must not be in any answer to
 * user B; its own user and root see them. */
#include "probe_rig.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/runtime_state.h"
#include "daemon/control_socket.h"

#define LAUNCHES 918273645u
#define MAP_VALUE "1122334455"
#define TOOL_VALUE "5544332211"

static const char *const secrets[] = { "alice", "918273645", MAP_VALUE, TOOL_VALUE };

enum right { EVERYBODY, ADMINISTRATORS };

/* All methods of the control socket. shows: the owner's answer has this, and nobody else's. */
static const struct {
	const char *method, *params;
	enum right right;
	const char *shows;
} cases[] = {
	{ "device.list", "{}", EVERYBODY, NULL },
	{ "events", "{}", EVERYBODY, "alice-note" },
	{ "events", "{}", EVERYBODY, "alice-print" }, /* bpf_printk */
	{ "map.delete", "{\"map\":\"seen\",\"key\":\"0\",\"tenant\":0}", ADMINISTRATORS, NULL },
	{ "map.dump", "{\"map\":\"seen\"}", EVERYBODY, MAP_VALUE },
	{ "map.dump", "{\"map\":\"seen\",\"tenant\":0}", EVERYBODY, MAP_VALUE },
	{ "map.dump", "{\"map\":\"own\"}", ADMINISTRATORS, NULL }, /* gbpfd's alone */
	{ "map.drain", "{\"map\":\"seen\"}", EVERYBODY, NULL },
	{ "map.drain", "{\"map\":\"seen\",\"tenant\":0}", EVERYBODY, NULL },
	{ "map.drain", "{\"probe\":1}", EVERYBODY, "drained" },
	{ "map.dump", "{\"map\":\"notes\"}", EVERYBODY, TOOL_VALUE },
	{ "map.list", "{\"probe\":1}", EVERYBODY, "alices_tool" },
	{ "map.get", "{\"map\":\"seen\",\"key\":\"0\"}", EVERYBODY, MAP_VALUE },
	{ "map.get", "{\"map\":\"seen\",\"key\":\"0\",\"tenant\":0}", EVERYBODY, MAP_VALUE },
	{ "map.get", "{\"map\":\"own\",\"key\":\"0\"}", ADMINISTRATORS, NULL },
	{ "map.list", "{}", EVERYBODY, NULL },
	{ "map.set", "{\"map\":\"seen\",\"key\":\"0\",\"value\":\"1\",\"tenant\":0}",
	  ADMINISTRATORS, NULL },
	{ "map.watch", "{\"map\":\"seen\"}", ADMINISTRATORS, NULL },
	{ "map.watch", "{\"map\":\"notes\"}", EVERYBODY, "\"map\"" }, /* of one's own tool */
	{ "mem.list", "{}", EVERYBODY, "alice" },
	{ "off", "{}", ADMINISTRATORS, NULL },
	{ "on", "{}", ADMINISTRATORS, NULL },
	{ "policy.list", "{}", EVERYBODY, NULL },
	{ "policy.load", "{\"name\":\"x\"}", ADMINISTRATORS, NULL },
	{ "policy.rollback", "{}", ADMINISTRATORS, NULL },
	{ "policy.show", "{}", EVERYBODY, NULL },
	{ "policy.unload", "{}", ADMINISTRATORS, NULL },
	{ "policy.watch", "{}", EVERYBODY, NULL },
	{ "policy.watch_cancel", "{}", ADMINISTRATORS, NULL },
	{ "probe.attach", "{\"name\":\"x\",\"to\":\"alice\"}", EVERYBODY, NULL },
	{ "probe.coverage", "{}", EVERYBODY, "alice_kernel" },
	{ "probe.detach", "{\"id\":7}", EVERYBODY, NULL },
	{ "probe.list", "{}", EVERYBODY, "alices_tool" },
	{ "probe.log", "{\"id\":7}", EVERYBODY, NULL },
	{ "probe.set", "{\"id\":7,\"off\":true}", EVERYBODY, NULL },
	{ "ps", "{}", EVERYBODY, "alice_kernel" },
	{ "restart", "{\"pid\":1}", EVERYBODY, NULL },
	{ "set", "{\"tenant\":0,\"class\":\"batch\"}", EVERYBODY, NULL },
	{ "shutdown", "{}", ADMINISTRATORS, NULL },
	{ "status", "{}", EVERYBODY, NULL },
	{ "vgpu.create", "{\"name\":\"mine\",\"compute\":10}", EVERYBODY, NULL },
	{ "vgpu.list", "{}", EVERYBODY, "alices_gpu" },
	{ "vgpu.rm", "{\"name\":\"mine\"}", EVERYBODY, NULL },
	{ "vgpu.set", "{\"tenant\":0,\"compute\":10}", EVERYBODY, NULL },
};

/* Returns the answer or error of a call as that user. The caller frees it. */
static char *call_as(struct gd *d, uid_t uid, const char *method, const char *params, int *ret_code)
{
	struct gbpf *g;
	char *text = NULL;

	AS_USER(uid, assert_int_equal(gbpf_open(&g, d->runtime, 0), 0));
	gbpf_set_timeout(g, PATIENCE_MS);
	*ret_code = 0;
	if (gbpf_call(g, method, params, -1, &text) < 0) {
		const struct gbpf_error *e = gbpf_last_error(g);

		*ret_code = e->exit;
		assert_true(asprintf(&text, "%s %s", e->message, e->hint) >= 0);
	}
	gbpf_close(g);
	return text;
}

/* A tool of her own, with a value in her map. */
static void alice_attaches(struct fake *f, struct gd *d)
{
	struct caller c = { .object = "probing", .probe = { .name = "alices_tool" } };

	AS_USER(USER_A, c.g = gd_open(d));
	caller_start(&c, d);
	send_state(f, expect_probe(f, NULL).version, 0, 1, 0, "alice_kernel: no PTX");
	assert_int_equal(number(caller_result(&c), "id"), 1);
	caller_finish(&c);
	json_decref(gd_call(d, "map.set",
			    "{\"map\":\"notes\",\"key\":\"0\",\"value\":\"" TOOL_VALUE
			    "\",\"tenant\":0}"));
}

static void alice_enters(struct fake *f, struct gd *d)
{
	struct gbpf *g = gd_open(d);
	union proto_message m = { 0 };
	int code;

	assert_int_equal(chmod(d->dir, 0755), 0);
	assert_int_equal(gbpf_policy_load(g, gd_object("keeping"), NULL, GBPF_LOAD_SWAP, NULL), 0);
	gbpf_close(g);
	AS_USER(USER_A, fake_connect(f, d));
	fake_say_hello(f, 2, 100, "alice");
	fake_welcomed(f);
	assert_int_equal(f->tenant, 0);
	fake_prepare(f, 0);
	store_seqcst(&f->stats->launches, (uint64_t)LAUNCHES);
	f->stats->kernel[0] = (struct proto_stats_kernel){ .hash = 7, .count = 5 };
	snprintf(f->stats->kernel[0].name, PROTO_KERNEL_NAME, "alice_kernel");
	f->stats->kernel_cover[0].launches = 5;
	snprintf(m.note.what, sizeof(m.note.what), "print");
	snprintf(m.note.text, sizeof(m.note.text), "alice-print");
	fake_send(f, &m, PROTO_NOTE); /* handled before the next one */
	snprintf(m.note.what, sizeof(m.note.what), "note");
	snprintf(m.note.text, sizeof(m.note.text), "alice-note");
	fake_send(f, &m, PROTO_NOTE);
	gd_await_event(d, 0, "note", "alice-note");
	free(call_as(d, USER_A, "vgpu.create", "{\"name\":\"alices_gpu\"}", &code));
	assert_int_equal(code, 0);
	json_decref(gd_call(d, "map.set",
			    "{\"map\":\"seen\",\"key\":\"0\",\"value\":\"" MAP_VALUE
			    "\",\"tenant\":0}"));
	alice_attaches(f, d);
}

static void every_method_has_a_case(void **state)
{
	const char *name;

	(void)state;
	for (size_t i = 0; (name = daemon_method_name(i)); i++) {
		bool found = false;

		for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
			found |= strcmp(cases[k].method, name) == 0;
		}
		if (!found) {
			fail_msg("method %s needs a case: what may other users see?", name);
		}
	}
}

static void no_answer_shows_another_users_secrets(void **state)
{
	struct gd *d = *state;
	struct fake alice;

	NEED_TWO_USERS();
	alice_enters(&alice, d);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int code;
		char *text = call_as(d, USER_B, cases[i].method, cases[i].params, &code);

		if (cases[i].right == ADMINISTRATORS && code != GBPF_CODE_PERMISSION) {
			fail_msg("%s %s is for administrators: %d %s", cases[i].method,
				 cases[i].params, code, text);
		}
		for (size_t k = 0; k < sizeof(secrets) / sizeof(secrets[0]); k++) {
			if (strstr(text, secrets[k])) {
				fail_msg("%s %s shows %s: %s", cases[i].method, cases[i].params,
					 secrets[k], text);
			}
		}
		free(text);
	}
	fake_leave(&alice);
}

static void owner_and_root_see_them(void **state)
{
	static const uid_t users[] = { USER_A, 0 };
	struct gd *d = *state;
	struct fake alice;

	NEED_TWO_USERS();
	alice_enters(&alice, d);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (unsigned u = 0; cases[i].shows && u < 2; u++) {
			int code;
			char *text = call_as(d, users[u], cases[i].method, cases[i].params, &code);

			if (code || !strstr(text, cases[i].shows)) {
				fail_msg("%s %s as user %u lacks %s: %s", cases[i].method,
					 cases[i].params, (unsigned)users[u], cases[i].shows, text);
			}
			free(text);
		}
	}
	fake_leave(&alice);
}

/* Others see that the tenant is there, whose it is and its class, and no more. */
static void hidden_tenant_has_a_user_and_a_class(void **state)
{
	static const char *const members[] = { "tenant", "pid",	 "uid",	  "name",  "command",
					       "class",	 "gpus", "state", "hidden" };
	struct gd *d = *state;
	json_t *j, *t;
	struct fake alice;
	int code;
	char *text;

	NEED_TWO_USERS();
	alice_enters(&alice, d);
	text = call_as(d, USER_B, "ps", NULL, &code);
	j = json_loads(text, 0, NULL);
	t = json_array_get(json_object_get(j, "tenants"), 0);
	assert_int_equal(json_object_size(t), sizeof(members) / sizeof(members[0]));
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		assert_non_null(json_object_get(t, members[i]));
	}
	assert_int_equal(json_integer_value(json_object_get(t, "uid")), USER_A);
	assert_int_equal(json_integer_value(json_object_get(t, "pid")), 0);
	assert_string_equal(json_string_value(json_object_get(t, "name")), "");
	assert_string_equal(json_string_value(json_object_get(t, "class")), "batch");
	assert_true(json_is_true(json_object_get(t, "hidden")));
	json_decref(j);
	free(text);
	fake_leave(&alice);
}

struct follower {
	int tell;
	int saw; /* 1: an event of Alice's, 2: a line that a policy has printed in her process */
};

static int until_on(void *arg, const char *text)
{
	struct follower *f = arg;

	f->saw |= strstr(text, "alice again") ? 1 : 0;
	f->saw |= strstr(text, "alice-print again") ? 2 : 0;
	if (strstr(text, "\"kind\":\"off\"")) {
		return write(f->tell, "", 1) == 1 ? 0 : -1; /* what follows arrives as it happens */
	}
	return strstr(text, "\"kind\":\"on\"") != NULL;
}

/* In a child: follows as that user. Exits with f.saw, or 4. */
static pid_t follow_as(struct gd *d, uid_t uid, uint64_t since, int tell)
{
	struct follower f = { .tell = tell };
	struct gbpf *g;
	pid_t pid = fork();

	if (pid) {
		return pid;
	}
	if (seteuid(uid) < 0 || gbpf_open(&g, d->runtime, 0) < 0 ||
	    gbpf_events(g, since, GBPF_EVENTS_FOLLOW, PATIENCE_MS, until_on, &f) != 1) {
		_exit(4);
	}
	_exit(f.saw);
}

/* Events as they happen, too: gbpfd's own reach everybody, those of a tenant its user. */
static void followers_receive_their_own_events(void **state)
{
	static const uid_t users[] = { USER_B, USER_A, 0 };
	struct gd *d = *state;
	union proto_message m = { 0 };
	struct fake alice;
	pid_t pid[3];
	uint64_t since;
	int p[2], status;
	char byte;

	NEED_TWO_USERS();
	alice_enters(&alice, d);
	assert_int_equal(pipe(p), 0);
	since = gd_last_event(d);
	for (unsigned i = 0; i < 3; i++) {
		pid[i] = follow_as(d, users[i], since, p[1]);
	}
	json_decref(gd_call(d, "off", NULL));
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(read(p[0], &byte, 1), 1);
	}
	snprintf(m.note.what, sizeof(m.note.what), "print");
	snprintf(m.note.text, sizeof(m.note.text), "alice-print again");
	fake_send(&alice, &m, PROTO_NOTE);
	snprintf(m.note.what, sizeof(m.note.what), "other");
	snprintf(m.note.text, sizeof(m.note.text), "alice again");
	fake_send(&alice, &m, PROTO_NOTE);
	gd_await_event(d, since, "other", "alice again");
	json_decref(gd_call(d, "on", NULL));
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), users[i] == USER_B ? 0 : 3);
	}
	close(p[0]);
	close(p[1]);
	fake_leave(&alice);
}

/* They stay hidden after a restart, which reads them from the disk. */
static void restart_does_not_open_the_history(void **state)
{
	struct gd *d = *state;
	struct fake alice;
	char *text;
	int code;

	NEED_TWO_USERS();
	alice_enters(&alice, d);
	assert_int_equal(gd_stop(d), 0);
	assert_int_equal(gd_start(d, NULL), 0);
	text = call_as(d, USER_B, "events", NULL, &code);
	assert_null(strstr(text, "alice"));
	assert_non_null(strstr(text, "\"serve\""));
	free(text);
	text = call_as(d, USER_A, "events", NULL, &code);
	assert_non_null(strstr(text, "alice-note"));
	free(text);
	fake_leave(&alice);
}

static unsigned files;

static int is_private(const char *path, const struct stat *st, int type, struct FTW *where)
{
	const char *leaf = path + where->base;
	/* clients of every user read whether gbpfd starts or stops */
	mode_t open_to = strcmp(leaf, RUNTIME_STATE_FILE) == 0 ? 044 : 0;

	files += type == FTW_F && S_ISREG(st->st_mode);
	if (type == FTW_F && S_ISREG(st->st_mode) && (st->st_mode & 077 & ~open_to)) {
		fprintf(stderr, "%s has mode %o\n", path, st->st_mode & 07777);
		return 1;
	}
	return 0;
}

/* The history, stored policies, locks and logs are no way around the control socket. */
static void files_are_private(void **state)
{
	struct gd *d = *state;
	struct fake alice;

	NEED_TWO_USERS();
	alice_enters(&alice, d);
	files = 0;
	assert_int_equal(nftw(d->dir, is_private, 16, FTW_PHYS), 0);
	assert_true(files >= 4); /* two locks, the history, a policy */
	fake_leave(&alice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_method_has_a_case),
#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)
		WITH_GBPFD(no_answer_shows_another_users_secrets),
		WITH_GBPFD(owner_and_root_see_them),
		WITH_GBPFD(hidden_tenant_has_a_user_and_a_class),
		WITH_GBPFD(followers_receive_their_own_events),
		WITH_GBPFD(restart_does_not_open_the_history),
		WITH_GBPFD(files_are_private),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

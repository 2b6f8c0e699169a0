/* Names of vGPUs are those of their owners: two users can have the same, each means its own, and
 * others are named with their owner. */
#include "vgpu_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "../eventually.h"

#define BIG UINT64_C(67108864)
#define MIDDLE UINT64_C(50331648)
#define SMALL UINT64_C(33554432)

/* Returns 0 or the exit code of a failed call. ret_mem, which may be NULL: the member "mem" of the
 * answer. */
static int call_as(uid_t uid, struct gd *d, const char *method, const char *params,
		   uint64_t *ret_mem)
{
	struct gbpf *g;
	char *text = NULL;
	json_t *j;
	int code;

	AS_USER(uid, g = gd_open(d));
	code = gbpf_call(g, method, params, -1, &text) < 0 ? gbpf_last_error(g)->exit : 0;
	j = code ? NULL : json_loads(text, 0, NULL);
	if (ret_mem) {
		*ret_mem = (uint64_t)json_integer_value(json_object_get(j, "mem"));
	}
	json_decref(j);
	free(text);
	gbpf_close(g);
	return code;
}

/* Returns how many vGPUs a user sees. */
static size_t count_as(uid_t uid, struct gd *d, const char *params)
{
	struct gbpf *g;
	char *text = NULL;
	json_t *j;
	size_t n;

	AS_USER(uid, g = gd_open(d));
	assert_int_equal(gbpf_call(g, "vgpu.list", params, -1, &text), 0);
	j = json_loads(text, 0, NULL);
	n = json_array_size(json_object_get(j, "vgpus"));
	json_decref(j);
	free(text);
	gbpf_close(g);
	return n;
}

static void both_have_web(struct gd *d)
{
	assert_int_equal(
		call_as(USER_A, d, "vgpu.create", "{\"name\":\"web\",\"mem\":67108864}", NULL), 0);
	assert_int_equal(
		call_as(USER_B, d, "vgpu.create", "{\"name\":\"web\",\"mem\":33554432}", NULL), 0);
}

/* Has a process of that user join; owner 0: it states none. Returns the error. */
static int join_web(uid_t uid, struct member *p, const struct gd *d, uid_t owner)
{
	struct proto_hello h = hello_named("web", DEVICE);

	h.vgpu.number = owner ? owner + 1 : 0;
	AS_USER(uid, enter(p, d, &h));
	return p->error;
}

static void two_users_can_have_the_same_name(void **state)
{
	struct gd *d = *state;
	struct member a, b;
	uint64_t mem;

	NEED_TWO_USERS();
	open_to_all(d);
	both_have_web(d);
	assert_int_equal(call_as(USER_A, d, "vgpu.create", "{\"name\":\"web\"}", NULL), 1);
	assert_int_equal(call_as(USER_A, d, "vgpu.set", "{\"name\":\"web\",\"prio\":1}", &mem), 0);
	assert_int_equal(mem, BIG);
	assert_int_equal(call_as(USER_B, d, "vgpu.set", "{\"name\":\"web\",\"prio\":2}", &mem), 0);
	assert_int_equal(mem, SMALL);
	assert_int_equal(count_as(USER_A, d, NULL), 1);
	assert_int_equal(count_as(USER_B, d, "{\"name\":\"web\"}"), 1);
	assert_int_equal(join_web(USER_A, &a, d, 0), 0);
	assert_int_equal(join_web(USER_B, &b, d, 0), 0);
	assert_int_equal(a.account->limit[0], BIG);
	assert_int_equal(b.account->limit[0], SMALL);
	assert_false(is_same_page(&a, &b));
	assert_int_equal(call_as(USER_A, d, "vgpu.rm", "{\"name\":\"web\"}", NULL), 7);
	part(&a);
	part(&b);
}

static void a_user_cannot_name_what_is_of_others(void **state)
{
	struct gd *d = *state;
	struct member p;

	NEED_TWO_USERS();
	open_to_all(d);
	both_have_web(d);
	assert_int_equal(call_as(USER_B, d, "vgpu.set", "{\"name\":\"65533/web\"}", NULL), 5);
	assert_int_equal(call_as(USER_B, d, "vgpu.rm", "{\"name\":\"65533/web\"}", NULL), 5);
	assert_int_equal(count_as(USER_B, d, "{\"name\":\"65533/web\"}"), 0);
	assert_int_equal(join_web(USER_B, &p, d, USER_A), ENOENT);
	part(&p);
	assert_int_equal(call_as(USER_B, d, "vgpu.create", "{\"name\":\"65533/x\"}", NULL), 2);
	assert_int_equal(join_web(USER_B, &p, d, USER_B), 0);
	part(&p);
}

/* A name alone is root's own: it could have been taken by any user. */
static void root_names_the_owner_of_others(void **state)
{
	struct gd *d = *state;
	struct member p;
	uint64_t mem;

	NEED_TWO_USERS();
	open_to_all(d);
	both_have_web(d);
	assert_int_equal(call_as(0, d, "vgpu.set", "{\"name\":\"web\",\"prio\":4}", NULL), 5);
	assert_int_equal(call_as(0, d, "vgpu.rm", "{\"name\":\"web\"}", NULL), 5);
	assert_int_equal(count_as(0, d, "{\"name\":\"web\"}"), 0);
	assert_int_equal(count_as(0, d, "{\"name\":\"65534/web\"}"), 1);
	assert_int_equal(count_as(0, d, "{\"name\":\"65534/web\",\"join\":true}"), 1);
	assert_int_equal(join_web(0, &p, d, 0), ENOENT);
	part(&p);
	assert_int_equal(call_as(0, d, "vgpu.set", "{\"name\":\"65534/web\",\"prio\":4}", &mem), 0);
	assert_int_equal(mem, SMALL);
	gd_await_event(d, 0, "vgpu", "virtual GPU web of user 65534 is changed: prio 0 -> 4");
	assert_int_equal(join_web(0, &p, d, USER_B), 0);
	assert_int_equal(p.account->limit[0], SMALL);
	part(&p);
	assert_int_equal(call_as(0, d, "vgpu.create", "{\"name\":\"web\"}", NULL), 0);
	assert_int_equal(call_as(0, d, "vgpu.rm", "{\"name\":\"web\"}", NULL), 0); /* its own */
	assert_int_equal(call_as(0, d, "vgpu.rm", "{\"name\":\"web\"}", NULL), 5);
	assert_int_equal(call_as(0, d, "vgpu.rm", "{\"name\":\"65533/web\"}", NULL), 0);
	assert_int_equal(count_as(USER_A, d, NULL), 0);
	assert_int_equal(count_as(USER_B, d, NULL), 1);
}

/* One that was opened to root is what root's programs join by its name, but root does not change it
 * by that. */
static void root_changes_only_its_own_by_a_name_alone(void **state)
{
	struct gd *d = *state;
	struct member p;

	NEED_TWO_USERS();
	open_to_all(d);
	both_have_web(d);
	assert_int_equal(call_as(0, d, "vgpu.set", "{\"name\":\"65534/web\",\"users\":[0]}", NULL),
			 0);
	assert_int_equal(join_web(0, &p, d, 0), 0);
	assert_int_equal(p.account->limit[0], SMALL);
	part(&p);
	assert_int_equal(count_as(0, d, "{\"name\":\"web\"}"), 1);
	assert_int_equal(call_as(0, d, "vgpu.set", "{\"name\":\"web\",\"prio\":4}", NULL), 5);
	assert_int_equal(call_as(0, d, "vgpu.rm", "{\"name\":\"web\",\"drain\":true}", NULL), 5);
	assert_int_equal(call_as(0, d, "vgpu.set", "{\"name\":\"65534/web\",\"prio\":4}", NULL), 0);
	assert_int_equal(count_as(USER_B, d, NULL), 1);
}

/* Several were opened to the user, and a further one of that name was not. */
static void a_name_that_several_have_is_refused(void **state)
{
	struct gd *d = *state;
	struct member p;

	NEED_TWO_USERS();
	open_to_all(d);
	both_have_web(d);
	call_as(0, d, "vgpu.set", "{\"name\":\"65533/web\",\"users\":[7]}", NULL);
	assert_int_equal(join_web(7, &p, d, 0), 0);
	assert_int_equal(p.account->limit[0], BIG);
	part(&p);
	call_as(0, d, "vgpu.set", "{\"name\":\"65534/web\",\"users\":[7]}", NULL);
	assert_int_equal(join_web(7, &p, d, 0), ENOTUNIQ);
	part(&p);
	assert_int_equal(call_as(7, d, "vgpu.set", "{\"name\":\"web\"}", NULL), 2);
	assert_int_equal(call_as(7, d, "vgpu.list", "{\"name\":\"web\"}", NULL), 2);
	assert_int_equal(call_as(7, d, "vgpu.list", "{\"name\":\"web\",\"join\":true}", NULL), 2);
	assert_int_equal(call_as(7, d, "vgpu.set", "{\"name\":\"65534/web\"}", NULL), 6);
	assert_int_equal(join_web(7, &p, d, USER_B), 0);
	assert_int_equal(p.account->limit[0], SMALL);
	part(&p);
}

/* One that an operator has opened to the user is meant while the user has none of that name. */
static void the_own_one_is_meant_first(void **state)
{
	struct gd *d = *state;
	struct proto_hello h = hello_named("web", DEVICE);
	struct member before, after, pinned;

	NEED_TWO_USERS();
	open_to_all(d);
	assert_int_equal(call_as(0, d, "vgpu.create",
				 "{\"name\":\"web\",\"mem\":67108864,\"users\":[65533]}", NULL),
			 0);
	assert_int_equal(join_web(USER_A, &before, d, 0), 0);
	assert_int_equal(before.account->limit[0], BIG);
	assert_int_equal(
		call_as(USER_A, d, "vgpu.create", "{\"name\":\"web\",\"mem\":33554432}", NULL), 0);
	assert_int_equal(join_web(USER_A, &after, d, 0), 0);
	assert_int_equal(after.account->limit[0], SMALL);
	h.vgpu.number = 1; /* root's */
	AS_USER(USER_A, enter(&pinned, d, &h));
	assert_int_equal(pinned.error, 0);
	assert_true(is_same_page(&before, &pinned));
	part(&before);
	part(&after);
	part(&pinned);
}

/* Says hello again with what `of` has. owner, as the hello has it; 0: it states none. Returns the
 * error. */
static int say_again(struct member *back, const struct gd *d, const struct member *of,
		     uint64_t owner)
{
	struct proto_hello h = hello_named("web", DEVICE);
	const int fds[3] = { of->f.board_fd, of->f.stats_fd, of->account_fd };

	h.flags = PROTO_REATTACH;
	h.accounts = 1;
	h.account_line = of->line;
	h.vgpu.number = owner;
	say(back, d, &h, fds, 3);
	return back->error;
}

/* Returns the limit of the vGPU that it is in. */
static uint64_t come_back_to_web(uid_t uid, const struct gd *d, const struct member *of,
				 uint64_t owner)
{
	struct member back;
	uint64_t limit;

	AS_USER(uid, say_again(&back, d, of, owner));
	assert_int_equal(back.error, 0);
	assert_true(is_same_page(&back, of));
	limit = back.account->limit[0];
	part(&back);
	return limit;
}

/* Makes root's "web" for USER_A, then those of both users. */
static void three_have_web(struct gd *d, struct member *shared)
{
	assert_int_equal(call_as(0, d, "vgpu.create",
				 "{\"name\":\"web\",\"mem\":50331648,\"users\":[65533]}", NULL),
			 0);
	assert_int_equal(join_web(USER_A, shared, d, 0), 0);
	both_have_web(d);
}

/* Not to its user's own one, which the name has come to mean. */
static void a_process_returns_to_the_vgpu_that_it_was_in(void **state)
{
	struct gd *d = *state;
	struct member a, b, shared;

	NEED_TWO_USERS();
	open_to_all(d);
	three_have_web(d, &shared);
	assert_int_equal(join_web(USER_A, &a, d, 0), 0);
	assert_int_equal(join_web(USER_B, &b, d, 0), 0);
	restart_after_kill(d);
	open_to_all(d);
	assert_int_equal(count_as(0, d, NULL), 3);
	assert_int_equal(come_back_to_web(USER_A, d, &shared, 0), MIDDLE);
	assert_int_equal(come_back_to_web(USER_B, d, &b, 0), SMALL);
	assert_int_equal(come_back_to_web(USER_A, d, &a, 0), BIG);
	part(&shared);
	part(&a);
	part(&b);
}

/* The page of an account is writable by its programs. */
static void an_owner_that_a_program_has_written_misleads_no_other(void **state)
{
	struct gd *d = *state;
	struct member b, shared;

	NEED_TWO_USERS();
	open_to_all(d);
	three_have_web(d, &shared);
	assert_int_equal(join_web(USER_B, &b, d, 0), 0);
	restart_after_kill(d);
	open_to_all(d);
	store_relaxed(&b.account->vgpu_owner,
		      1 + (uint64_t)USER_A); /* whose own one B may not join */
	assert_int_equal(come_back_to_web(USER_B, d, &b, 0), SMALL);
	assert_int_equal(b.account->vgpu_owner, 1 + (uint64_t)USER_B);
	store_relaxed(&shared.account->vgpu_owner, 1 + (uint64_t)USER_A);
	assert_int_equal(come_back_to_web(USER_A, d, &shared, 1),
			 MIDDLE); /* root's, as it states */
	assert_int_equal(shared.account->vgpu_owner, 1);
	part(&shared);
	part(&b);
}

struct child {
	pid_t pid;
	int to, from;
};

/* Runs in a process of the user: joins "web", returns to it on request, and remains until it is
 * killed. Writes the error of each. */
static void live(const struct gd *d, uid_t uid, int in, int out)
{
	struct member p, back;
	char c;

	if (setgid(uid) < 0 || setuid(uid) < 0) {
		_exit(1);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	join_named(&p, d, "web");
	if (write(out, &p.error, sizeof(p.error)) < 0 || read(in, &c, 1) != 1) {
		_exit(1);
	}
	say_again(&back, d, &p, 0);
	if (write(out, &back.error, sizeof(back.error)) < 0) {
		_exit(1);
	}
	for (;;) {
		pause();
	}
}

static int error_of(const struct child *c)
{
	int err = -1;

	assert_int_equal(read(c->from, &err, sizeof(err)), sizeof(err));
	return err;
}

static struct child start_child(const struct gd *d, uid_t uid)
{
	struct child c = { 0 };
	int in[2], out[2];

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		close(in[1]);
		close(out[0]);
		live(d, uid, in[0], out[1]);
	}
	close(in[0]);
	close(out[1]);
	c.to = in[1];
	c.from = out[0];
	assert_int_equal(error_of(&c), 0);
	return c;
}

static void end_child(const struct child *c)
{
	kill(c->pid, SIGKILL);
	assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
	close(c->to);
	close(c->from);
}

/* Opens "web" of that owner to the users of a JSON array, and no others. */
static void open_web(struct gd *d, uid_t owner, const char *users)
{
	char params[96];

	snprintf(params, sizeof(params), "{\"name\":\"%u/web\",\"users\":%s}", (unsigned)owner,
		 users);
	assert_int_equal(call_as(0, d, "vgpu.set", params, NULL), 0);
}

/* A process of the owner and one of USER_B are in the owner's "web", which USER_B then may not join
 * any more, and has made one of the same name. gbpfd is restarted. */
static struct child leave_to(struct gd *d, uid_t owner, struct member *b)
{
	struct child a;

	open_to_all(d);
	assert_int_equal(
		call_as(owner, d, "vgpu.create", "{\"name\":\"web\",\"mem\":67108864}", NULL), 0);
	open_web(d, owner, "[65534]");
	a = start_child(d, owner);
	assert_int_equal(join_web(USER_B, b, d, 0), 0);
	assert_int_equal(b->account->limit[0], BIG);
	open_web(d, owner, "[]");
	assert_int_equal(
		call_as(USER_B, d, "vgpu.create", "{\"name\":\"web\",\"mem\":33554432}", NULL), 0);
	restart_after_kill(d);
	open_to_all(d);
	return a;
}

/* The process of USER_B comes first. */
static void assert_not_taken_over(struct gd *d, uid_t owner)
{
	struct member b, back;
	struct child a = leave_to(d, owner, &b);

	AS_USER(USER_B, say_again(&back, d, &b, 0));
	assert_int_equal(back.error, EACCES);
	assert_non_null(strstr(back.text, "its account is that of another virtual GPU"));
	assert_int_equal(b.account->vgpu_owner, 1 + (uint64_t)owner);
	assert_int_equal(b.account->limit[0], BIG);
	assert_int_equal(write(a.to, "", 1), 1);
	assert_int_equal(error_of(&a), 0);
	assert_int_equal(b.account->vgpu_owner, 1 + (uint64_t)owner);
	assert_int_equal(b.account->limit[0], BIG);
	end_child(&a);
	part(&back);
	part(&b);
}

static void a_page_of_another_user_is_not_taken_over(void **state)
{
	NEED_TWO_USERS();
	assert_not_taken_over(*state, USER_A);
}

/* Root's processes may join any vGPU, and would be moved to it. */
static void a_page_of_root_is_not_taken_over(void **state)
{
	NEED_TWO_USERS();
	assert_not_taken_over(*state, 0);
}

/* Also if a program of USER_B has written that user into it. */
static void a_page_has_one_vgpu(void **state)
{
	struct gd *d = *state;
	struct member b, back;
	struct child a;

	NEED_TWO_USERS();
	a = leave_to(d, USER_A, &b);
	assert_int_equal(write(a.to, "", 1), 1);
	assert_int_equal(error_of(&a), 0);
	store_relaxed(&b.account->vgpu_owner, 1 + (uint64_t)USER_B);
	AS_USER(USER_B, say_again(&back, d, &b, 0));
	assert_int_equal(back.error, EACCES);
	assert_int_equal(b.account->limit[0], BIG);
	end_child(&a);
	part(&back);
	part(&b);
}

/* Its parent need not have asked for its exit status. */
static void a_page_whose_processes_have_exited_is_taken_over(void **state)
{
	struct gd *d = *state;
	struct member b;
	struct child a;
	siginfo_t info;

	NEED_TWO_USERS();
	a = leave_to(d, USER_A, &b);
	kill(a.pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)a.pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(come_back_to_web(USER_B, d, &b, 0), SMALL);
	end_child(&a);
	part(&b);
}

/* Writes the file of vGPUs and has a new gbpfd read it. */
static void restart_with_file(struct gd *d, const char *text)
{
	char path[160];
	int fd;

	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	snprintf(path, sizeof(path), "%s/vgpus.json", d->state);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	assert_int_equal(gd_start(d, NULL), 0);
	open_to_all(d);
}

static bool has_mark(const struct gd *d, const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/vgpu-%s.used", d->runtime, name);
	return access(path, F_OK) == 0;
}

/* Without an owner, it is root's; the mark of a running program is that of an older gbpfd, which is
 * renamed, so that it does not count for another user's vGPU of the name. */
static void files_of_an_older_gbpfd_are_read(void **state)
{
	struct gd *d = *state;
	char mark[160];

	NEED_TWO_USERS();
	snprintf(mark, sizeof(mark), "%s/vgpu-run.used", d->runtime);
	close(open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	restart_with_file(d, "{\"vgpus\":[{\"name\":\"web\",\"uid\":65533},{\"name\":\"web\"},"
			     "{\"name\":\"run\",\"uid\":65534,\"draining\":true},"
			     "{\"name\":\"web\",\"uid\":0},{\"name\":\"ends\",\"draining\":true},"
			     "{\"name\":\"run\",\"uid\":65533,\"draining\":true}]}");
	gd_await_event(d, 0, "store", "virtual GPU 3 of");
	assert_int_equal(count_as(0, d, NULL), 3);
	assert_int_equal(count_as(USER_A, d, NULL), 1);
	assert_int_equal(count_as(USER_B, d, NULL), 1); /* it is awaited */
	assert_false(has_mark(d, "run"));
	assert_true(has_mark(d, "65534-run"));
	assert_int_equal(call_as(0, d, "vgpu.rm", "{\"name\":\"web\"}", NULL), 0);
	assert_int_equal(count_as(USER_A, d, "{\"name\":\"web\"}"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(two_users_can_have_the_same_name),
		TEST(a_user_cannot_name_what_is_of_others),
		TEST(root_names_the_owner_of_others),
		TEST(root_changes_only_its_own_by_a_name_alone),
		TEST(a_name_that_several_have_is_refused),
		TEST(the_own_one_is_meant_first),
		TEST(a_process_returns_to_the_vgpu_that_it_was_in),
		TEST(an_owner_that_a_program_has_written_misleads_no_other),
		TEST(a_page_of_another_user_is_not_taken_over),
		TEST(a_page_of_root_is_not_taken_over),
		TEST(a_page_has_one_vgpu),
		TEST(a_page_whose_processes_have_exited_is_taken_over),
		TEST(files_of_an_older_gbpfd_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What one user can take from another: sessions of root's gbpfd have a limit per user, and a user's
 * gbpfd serves that user and root only. */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "daemon/users.h"

#include "../users.h"

#define SESSIONS_MAX 256u /* of one ordinary user: docs/DAEMON.md */

/* Lets other users reach the sockets, as /run/gbpf does. */
static void open_to_all(const struct gd *d)
{
	char path[160];

	assert_int_equal(chmod(d->dir, 0755), 0);
	assert_int_equal(chmod(d->runtime, 0755), 0);
	snprintf(path, sizeof(path), "%s/session.sock", d->runtime);
	assert_int_equal(chmod(path, 0666), 0);
	snprintf(path, sizeof(path), "%s/control.sock", d->runtime);
	assert_int_equal(chmod(path, 0666), 0);
}

/* Says hello as that user; returns the type of the answer. */
static enum proto_type hello_as(uid_t uid, struct fake *f, const struct gd *d, int *ret_error)
{
	union proto_message m;
	unsigned n;
	int fds[8];

	AS_USER(uid, fake_connect(f, d));
	/* a peer that was turned away has already closed the socket */
	memset(&m, 0, sizeof(m));
	m.hello.class_id = 2;
	m.hello.weight = 100;
	(void)proto_send(f->sock, &m, PROTO_HELLO, NULL, 0);
	assert_int_equal(fake_receive(f, &m, fds, &n), 1);
	while (n) {
		close(fds[--n]);
	}
	*ret_error = m.head.type == PROTO_REFUSED ? m.refused.error : 0;
	return m.head.type;
}

/* What users get that take all they can, one after the other. */
static void users_leave_half_to_further_users(void **state)
{
	static const struct {
		unsigned all, most, gets[8];
	} cases[] = { { 48, 16, { 16, 16, 8, 4, 2, 1, 1, 0 } }, { 12, 4, { 4, 4, 2, 1, 1, 0 } } };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		unsigned taken = 0;

		for (unsigned u = 0; u < 8; u++) {
			unsigned n = daemon_user_quota(cases[i].all, taken, cases[i].most);

			assert_int_equal(n, cases[i].gets[u]);
			taken += n;
		}
		assert_int_equal(taken, cases[i].all);
		assert_int_equal(daemon_user_quota(cases[i].all, taken + 1, cases[i].most), 0);
	}
}

static void one_user_has_at_most_256_sessions(void **state)
{
	static struct fake many[SESSIONS_MAX], more, other, root;
	struct gd *d = *state;
	int error;

	NEED_TWO_USERS();
	open_to_all(d);
	for (unsigned i = 0; i < SESSIONS_MAX; i++) {
		assert_int_equal(hello_as(USER_A, &many[i], d, &error), PROTO_WELCOME);
	}
	assert_int_equal(hello_as(USER_A, &more, d, &error), PROTO_REFUSED);
	assert_int_equal(error, EUSERS);
	assert_int_equal(gd_number(d, "status", "counters.refused_sessions"), 1);
	assert_int_equal(hello_as(USER_B, &other, d, &error), PROTO_WELCOME);
	assert_int_equal(hello_as(0, &root, d, &error), PROTO_WELCOME);
	close(more.sock);
	close(many[0].sock);
	while (gd_number(d, "status", "sessions") > SESSIONS_MAX + 1) {
	}
	assert_int_equal(hello_as(USER_A, &more, d, &error), PROTO_WELCOME);
	for (unsigned i = 1; i < SESSIONS_MAX; i++) {
		close(many[i].sock);
	}
	close(more.sock);
	close(other.sock);
	close(root.sock);
}

static int users_setup(void **state)
{
	struct gd *d = calloc(1, sizeof(*d));

	*state = d;
	snprintf(d->dir, sizeof(d->dir), "/tmp/gbpfd-test-XXXXXX");
	if (!mkdtemp(d->dir)) {
		return -1;
	}
	snprintf(d->runtime, sizeof(d->runtime), "%s/run", d->dir);
	snprintf(d->state, sizeof(d->state), "%s/state", d->dir);
	return 0; /* the test starts gbpfd, as a user */
}

/* The modes of a user's sockets keep others out; so does gbpfd itself, if somebody changes them. */
static void users_gbpfd_serves_its_user_and_root_only(void **state)
{
	struct gd *d = *state;
	struct fake own, other, root;
	struct stat st;
	char path[160];
	int error;

	NEED_TWO_USERS();
	assert_int_equal(chown(d->dir, USER_A, USER_A), 0);
	d->uid = USER_A;
	assert_int_equal(gd_start(d, NULL), 0);
	snprintf(path, sizeof(path), "%s/session.sock", d->runtime);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, USER_A);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(d->runtime, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	open_to_all(d);
	assert_int_equal(hello_as(USER_A, &own, d, &error), PROTO_WELCOME);
	assert_int_equal(hello_as(USER_B, &other, d, &error), PROTO_REFUSED);
	assert_int_equal(error, EPERM);
	assert_int_equal(hello_as(0, &root, d, &error), PROTO_WELCOME);
	close(own.sock);
	close(other.sock);
	close(root.sock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(users_leave_half_to_further_users),
		cmocka_unit_test_setup_teardown(one_user_has_at_most_256_sessions, gd_setup,
						gd_teardown),
		cmocka_unit_test_setup_teardown(users_gbpfd_serves_its_user_and_root_only,
						users_setup, gd_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

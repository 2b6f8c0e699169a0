/* Hellos that look at a virtual GPU (PROTO_LOOK): they get its account and nothing else, only its
 * user's processes do, and nothing of them remains. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "proto/account.h"
#include "../users.h"

#define LIMIT (UINT64_C(64) << 20)
#define LOOKS 2000u
#define OWN_FDS 20 /* that gbpfd may open for itself meanwhile */

static union proto_message hello_of(uint64_t number, uint64_t limit, uint32_t flags)
{
	union proto_message m = { 0 };

	m.hello.class_id = 2;
	m.hello.weight = 100;
	m.hello.flags = flags;
	m.hello.vgpu.number = number;
	m.hello.vgpu.made_ns = clock_now_ns();
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		m.hello.vgpu.config.mem[i] = limit;
	}
	return m;
}

/* A process of a vGPU. */
struct member {
	struct fake f;
	int fd; /* its account */
	struct proto_account *account;
};

static void join(struct member *p, const struct gd *d, uint64_t number)
{
	union proto_message m = hello_of(number, LIMIT, 0);
	int fds[8];
	unsigned n;

	memset(p, 0, sizeof(*p));
	fake_connect(&p->f, d);
	m.hello.gpus = 1;
	memset(m.hello.uuid[0], 7, sizeof(m.hello.uuid[0]));
	fake_send(&p->f, &m, PROTO_HELLO);
	assert_int_equal(fake_receive(&p->f, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_WELCOME);
	assert_int_equal(m.welcome.accounts, 1);
	p->fd = fds[--n];
	p->account = shm_map(p->fd, PROTO_ACCOUNT_BYTES, 1);
	assert_non_null(p->account);
	while (n) {
		close(fds[--n]);
	}
}

static void part(struct member *p)
{
	fd_close(p->f.sock);
	fd_close(p->fd);
	shm_unmap(p->account, PROTO_ACCOUNT_BYTES);
}

/* Sends a hello with descriptors. Returns the account's descriptor, or -1, with the answer, after
 * which gbpfd must have ended the session. */
static int look(const struct gd *d, union proto_message *m, const int *sent, unsigned n_sent)
{
	struct fake f = { 0 };
	union proto_message end;
	int fds[8], fd;
	unsigned n;

	fake_connect(&f, d);
	assert_int_equal(proto_send(f.sock, m, PROTO_HELLO, sent, n_sent), 0);
	assert_int_equal(fake_receive(&f, m, fds, &n), 1);
	assert_true(n <= 1);
	fd = n ? fds[0] : -1;
	assert_int_equal(fake_receive(&f, &end, fds, &n), 0);
	close(f.sock);
	return fd;
}

static bool is_same_file(int a, int b)
{
	struct stat x, y;

	assert_int_equal(fstat(a, &x) | fstat(b, &y), 0);
	return x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static void a_look_gets_the_account_and_no_line(void **state)
{
	union proto_message m = hello_of(5, 2 * LIMIT, PROTO_LOOK);
	struct gd *d = *state;
	struct member p;
	int fd;

	join(&p, d, 5);
	fd = look(d, &m, NULL, 0);
	assert_int_equal(m.head.type, PROTO_ACCOUNT);
	assert_int_equal(m.account.error, 0);
	assert_int_equal(m.account.accounts, 1);
	assert_int_equal(m.account.limit[0], LIMIT); /* of the vGPU, not of the hello */
	assert_int_equal(m.account.limit[PROTO_MAX_GPUS - 1], LIMIT);
	assert_true(is_same_file(fd, p.fd));
	close(fd);
	assert_int_equal(load_seqcst(&p.account->lines), 1);
	assert_int_equal(gd_number(d, "status", "counters.sessions"), 1); /* tenants ever */
	part(&p);
}

static void a_vgpu_without_processes_has_no_account(void **state)
{
	union proto_message m = hello_of(5, LIMIT, PROTO_LOOK);
	struct gd *d = *state;
	struct member p;

	m.hello.vgpu.config.swap = 2 * LIMIT;
	join(&p, d, 6);
	assert_int_equal(look(d, &m, NULL, 0), -1);
	assert_int_equal(m.account.swap, 2 * LIMIT);
	assert_int_equal(m.head.type, PROTO_ACCOUNT);
	assert_int_equal(m.account.error, 0);
	assert_int_equal(m.account.accounts, 0);
	assert_int_equal(m.account.limit[0], LIMIT);
	part(&p);
}

/* A vGPU that does not show swap: a look is for what programs see. */
static void a_look_gets_no_swap_that_is_not_shown(void **state)
{
	union proto_message m = hello_of(5, LIMIT, PROTO_LOOK);
	struct gd *d = *state;

	m.hello.vgpu.config.swap = 2 * LIMIT;
	m.hello.vgpu.config.flags = PROTO_VGPU_SHOW_MEM;
	assert_int_equal(look(d, &m, NULL, 0), -1);
	assert_int_equal(m.head.type, PROTO_ACCOUNT);
	assert_int_equal(m.account.error, 0);
	assert_int_equal(m.account.swap, 0);
	assert_int_equal(m.account.limit[0], LIMIT);
}

static void a_look_makes_no_vgpu(void **state)
{
	struct gd *d = *state;
	struct member p;

	for (uint64_t i = 1; i <= 100; i++) {
		union proto_message m = hello_of(i, LIMIT, PROTO_LOOK);

		assert_int_equal(look(d, &m, NULL, 0), -1);
	}
	join(&p, d, 1000); /* at most 64 exist */
	part(&p);
}

static void only_the_same_user_gets_an_account(void **state)
{
	union proto_message m = hello_of(5, LIMIT, PROTO_LOOK);
	struct gd *d = *state;
	char path[160];
	struct member p;

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755) | chmod(d->runtime, 0755), 0);
	snprintf(path, sizeof(path), "%s/session.sock", d->runtime);
	assert_int_equal(chmod(path, 0666), 0);
	join(&p, d, 5);
	AS_USER(USER_A, assert_int_equal(look(d, &m, NULL, 0), -1));
	assert_int_equal(m.head.type, PROTO_ACCOUNT);
	assert_int_equal(m.account.accounts, 0);
	part(&p);
}

static void a_restarted_gbpfd_says_that_it_waits(void **state)
{
	union proto_message m = hello_of(5, LIMIT, PROTO_LOOK);
	struct gd *d = *state;

	m.hello.vgpu.made_ns = 1; /* before gbpfd started */
	assert_int_equal(look(d, &m, NULL, 0), -1);
	assert_int_equal(m.head.type, PROTO_ACCOUNT);
	assert_int_equal(m.account.error, EAGAIN);
	assert_int_equal(m.account.accounts, 0);
}

static void expect_refused(const struct gd *d, union proto_message *m)
{
	assert_int_equal(look(d, m, NULL, 0), -1);
	assert_int_equal(m->head.type, PROTO_REFUSED);
	assert_int_equal(m->refused.error, EINVAL);
}

static void looks_that_ask_for_more_are_refused(void **state)
{
	struct gd *d = *state;
	union proto_message m;

	m = hello_of(5, LIMIT, PROTO_LOOK | PROTO_EARLY);
	expect_refused(d, &m);
	m = hello_of(5, LIMIT, PROTO_LOOK | PROTO_STRICT);
	expect_refused(d, &m);
	m = hello_of(5, LIMIT, PROTO_LOOK);
	m.hello.gpus = 1;
	expect_refused(d, &m);
	m = hello_of(0, 0, PROTO_LOOK);
	expect_refused(d, &m);
	m = hello_of(5, 1, PROTO_LOOK); /* a limit that none may have */
	expect_refused(d, &m);
	m = hello_of(5, LIMIT, PROTO_LOOK | 1u << 31);
	expect_refused(d, &m);
	m = hello_of(5, LIMIT, PROTO_LOOK);
	memset(m.hello.vgpu.name, 'x', sizeof(m.hello.vgpu.name));
	expect_refused(d, &m);
}

/* Also with descriptors, which gbpfd closes. It may open some of its own meanwhile, once: a leak
 * would be one for each look. */
static void looks_leave_nothing_behind(void **state)
{
	const int fd = memfd_create("look", 0), sent[8] = { fd, fd, fd, fd, fd, fd, fd, fd };
	struct gd *d = *state;
	struct member p;
	json_int_t before;

	join(&p, d, 5);
	before = gd_number(d, "status", "fds");
	for (unsigned i = 0; i < LOOKS; i++) {
		union proto_message m = hello_of(5, LIMIT, PROTO_LOOK);
		int got = look(d, &m, sent, i % 9);

		assert_int_equal(m.head.type, PROTO_ACCOUNT);
		assert_true(got >= 0);
		close(got);
	}
	assert_int_equal(gd_number(d, "status", "sessions"), 1);
	eventually(gd_number(d, "status", "fds") <= before + OWN_FDS);
	assert_int_equal(load_seqcst(&p.account->lines), 1);
	part(&p);
	close(fd);
}

/* A peer that has closed, or sends more, before it is answered. */
static void impatient_looks_are_harmless(void **state)
{
	struct gd *d = *state;
	struct member p;

	join(&p, d, 5);
	for (unsigned i = 0; i < 200; i++) {
		union proto_message m = hello_of(5, LIMIT, PROTO_LOOK);
		struct fake f = { 0 };

		fake_connect(&f, d);
		for (unsigned k = 0; k <= i % 3; k++) {
			(void)proto_send(f.sock, &m, PROTO_HELLO, NULL, 0);
		}
		close(f.sock);
	}
	eventually(gd_number(d, "status", "sessions") == 1);
	assert_int_equal(load_seqcst(&p.account->lines), 1);
	part(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(a_look_gets_the_account_and_no_line),
		TEST(a_vgpu_without_processes_has_no_account),
		TEST(a_look_gets_no_swap_that_is_not_shown),
		TEST(a_look_makes_no_vgpu),
		TEST(only_the_same_user_gets_an_account),
		TEST(a_restarted_gbpfd_says_that_it_waits),
		TEST(looks_that_ask_for_more_are_refused),
		TEST(looks_leave_nothing_behind),
		TEST(impatient_looks_are_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

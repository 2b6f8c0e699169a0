/* A program takes policies, which are code, from a gbpfd of root or of its own user only, and sends
 * nothing to another user's. */
#include "gbpfd.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"

#include "../users.h"

static struct {
	uid_t gbpfd, program;
	bool trusted;
} it;

/* Runs the program under one user and listens, in gbpfd's place, as another. */
static void program_meets_gbpfd(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	struct pollfd p = { .events = POLLIN };
	union proto_message m;
	int sock, fds[8];
	unsigned n;
	pthread_t t;

	close(d.listener);
	CHECK(unlink(socket_path) == 0);
	CHECK(seteuid(it.gbpfd) == 0);
	d.listener = unix_listen(socket_path, SOCK_SEQPACKET, 0666);
	CHECK(d.listener >= 0);
	CHECK(seteuid(0) == 0);
	CHECK(seteuid(it.program) == 0);
	t = start_init(&r);
	p.fd = d.listener;
	CHECK(poll(&p, 1, WAIT_MS) == 1);
	sock = accept(d.listener, NULL, NULL);
	CHECK(sock >= 0);
	p.fd = sock;
	CHECK(poll(&p, 1, WAIT_MS) == 1);
	if (it.trusted) {
		CHECK(proto_recv(sock, &m, fds, &n) == 1);
		CHECK(m.head.type == PROTO_HELLO);
		_exit(0);
	}
	CHECK(recv(sock, &m, sizeof(m), 0) == 0); /* it has closed the connection */
	pthread_join(t, NULL);
	CHECK(r == CUDA_SUCCESS); /* and runs without a policy */
	CHECK(launch_one() == CUDA_SUCCESS && launches() == 1);
	_exit(0);
}

static void code_is_taken_from_root_and_the_own_user_only(void **state)
{
	static const struct {
		uid_t gbpfd, program;
		bool trusted;
	} cases[] = {
		{ USER_A, USER_B, false }, { USER_A, 0, false }, { USER_A, USER_A, true },
		{ 0, USER_A, true },	   { 0, 0, true },
	};
	char folder[96];

	(void)state;
	NEED_TWO_USERS();
	snprintf(folder, sizeof(folder), "%s", socket_path);
	*strrchr(folder, '/') = 0;
	assert_int_equal(chmod(folder, 0777), 0);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		it.gbpfd = cases[i].gbpfd;
		it.program = cases[i].program;
		it.trusted = cases[i].trusted;
		in_a_process(program_meets_gbpfd);
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_is_taken_from_root_and_the_own_user_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_cases(run);
}

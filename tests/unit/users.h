/* Tests of what one user can do to another, with both users in one test. They need root, to become
 * the users. Under CI (environment variable CI) a test without root fails; elsewhere it is
 * reported as skipped, with the reason. */
#ifndef GBPF_TESTS_USERS_H
#define GBPF_TESTS_USERS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define USER_A 65533u
#define USER_B 65534u

#define NEED_TWO_USERS()                                                                           \
	do {                                                                                       \
		if (geteuid() != 0 && getenv("CI")) {                                              \
			fail_msg("%s needs root to act as two users", __func__);                   \
		}                                                                                  \
		if (geteuid() != 0) {                                                              \
			fprintf(stderr, "%s: skipped: needs root to act as two users\n",           \
				__func__);                                                         \
			skip();                                                                    \
		}                                                                                  \
	} while (0)

/* Runs the statements with the effective user of this process (which is root's) changed. */
#define AS_USER(uid, ...)                                                                          \
	do {                                                                                       \
		assert_int_equal(seteuid(uid), 0);                                                 \
		__VA_ARGS__;                                                                       \
		assert_int_equal(seteuid(0), 0);                                                   \
	} while (0)

#endif

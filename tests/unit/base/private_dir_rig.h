/* A folder of the test's own, and directories of any owner and mode in it. */
#ifndef GBPF_TESTS_BASE_PRIVATE_DIR_RIG_H
#define GBPF_TESTS_BASE_PRIVATE_DIR_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/private_dir.h"

static char root[64], why[PRIVATE_DIR_WHY], text[2 * PATH_MAX];

static inline int set_up(void **state)
{
	umask(022);
	snprintf(root, sizeof(root), "/tmp/gbpf-private-XXXXXX");
	return mkdtemp(root) && chmod(root, 0755) == 0 ? 0 : -1;
}

static inline int tear_down(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

/* Returns the path of a name in the test's folder; valid until the next call. */
static inline const char *in(const char *name)
{
	static char path[4][PATH_MAX];
	static unsigned next;
	char *p = path[next++ % 4];

	assert_true(snprintf(p, PATH_MAX, "%s/%s", root, name) < PATH_MAX);
	return p;
}

static inline void make(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
	assert_int_equal(mkdir(in(name), 0700), 0);
	assert_int_equal(chown(in(name), uid, gid), 0);
	assert_int_equal(chmod(in(name), mode), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif

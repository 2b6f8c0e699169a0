/* A history in a folder of the test's own. */
#ifndef GBPF_TESTS_DAEMON_HISTORY_RIG_H
#define GBPF_TESTS_DAEMON_HISTORY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "daemon/history.h"

static char dir[64];
static struct daemon_history h;

static inline int setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/gbpfd-history-XXXXXX");
	return mkdtemp(dir) && daemon_history_open(&h, dir, "events") == 0 ? 0 : -1;
}

static inline int teardown(void **state)
{
	char command[96];

	daemon_history_close(&h);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

#endif

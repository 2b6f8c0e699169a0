/* The sessions of a gbpfd in the test's process, to which the test connects. */
#ifndef GBPF_TESTS_DAEMON_ACCEPT_RIG_H
#define GBPF_TESTS_DAEMON_ACCEPT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/policy/policies_int.h"
#include "daemon/session/tenant_session.h"

static char dir[64], path[96];
static struct daemon *d;

static inline int begin_with(unsigned idle_exit_s)
{
	snprintf(dir, sizeof(dir), "/tmp/gbpfd-accept-XXXXXX");
	if (!mkdtemp(dir) || chmod(dir, 0755) < 0) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/socket", dir);
	d = calloc(1, sizeof(*d));
	d->policies = calloc(1, sizeof(*d->policies));
	d->uid = geteuid();
	d->opt.idle_exit_s = idle_exit_s;
	d->access.group = (gid_t)-1;
	d->access.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return sd_event_new(&d->loop) < 0 ||
			       daemon_history_open(&d->history, "/proc/nowhere", "events") < 0
		       ? -1
		       : daemon_sessions_open(d, path);
}

static inline int begin(void **state)
{
	return begin_with(0);
}

static inline int finish(void **state)
{
	char command[96];

	daemon_sessions_close(d);
	daemon_history_close(&d->history);
	sd_event_unref(d->loop);
	close(d->access.spare_fd);
	free(d->policies);
	free(d);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static inline int connect_to(void)
{
	int fd = unix_connect(path, SOCK_SEQPACKET);

	assert_true(fd >= 0);
	return fd;
}

/* Runs the loop until there are n sessions and nothing is pending. */
static inline void settle(unsigned n)
{
	int r;

	do {
		r = sd_event_run(d->loop, d->sessions.n == n ? 0 : UINT64_MAX);
		assert_true(r >= 0);
	} while (r > 0 || d->sessions.n != n);
}

static inline int polled(sd_event_source *src)
{
	int on = -1;

	assert_true(sd_event_source_get_enabled(src, &on) >= 0);
	return on;
}

#endif

/* `gbpf doctor` on a machine with root's gbpfd: which programs escape it, because a user has a
 * gbpfd of its own. Sockets of users are only connected to; their names and what they would send
 * are not trusted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/paths.h"
#include "base/procfs.h"
#include "base/runtime_choice.h"
#include "cli/doctor.h"

#define LEAF "/session.sock"
#define LISTED 8u
#define FIX_BYTES 160

enum listener { NOT_A_GBPFD, USERS_GBPFD, NO_ANSWER };

/* Fills in the process that listens in a directory. USERS_GBPFD: it is a gbpfd that is not root's.
 * NO_ANSWER: its queue is full, so it is not known. A process of another namespace has no ID here.
 */
static enum listener find_listener(const char *path, struct peer *ret)
{
	int sock = unix_connect(path, SOCK_SEQPACKET | SOCK_NONBLOCK);
	uid_t owner;
	bool yes = sock >= 0 && fd_peer(sock, ret) == 0 && ret->uid != 0 &&
		   (ret->pid <= 0 || (procfs_runs(ret->pid, "gbpfd", &owner) && owner == ret->uid));

	fd_close(sock);
	return sock == -EAGAIN ? NO_ANSWER : yes ? USERS_GBPFD : NOT_A_GBPFD;
}

/* Writes how to end a gbpfd. pid: 0 in another process namespace. */
static void way_to_end(char out[FIX_BYTES], pid_t pid)
{
	static const char then[] = "its programs continue, and the next ones use root's";

	if (pid > 0) {
		snprintf(out, FIX_BYTES, "End it with `kill %d`: %s", (int)pid, then);
	} else {
		snprintf(out, FIX_BYTES, "End it in its container: %s", then);
	}
}

/* Reports a gbpfd; path: of its socket. */
static void report(struct cli_doctor *d, const char *path, const struct peer *p)
{
	struct buf safe = { 0 };
	char name[64], fix[FIX_BYTES], dir[CLI_DOCTOR_SOCKET_PATH];

	snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen(LEAF)), path);
	cli_safe_text(&safe, dir);
	way_to_end(fix, p->pid);
	cli_doctor_find(d, CLI_DOCTOR_BAD, "users' daemons", fix,
			"gbpfd (pid %d) of user %s in %s: its programs escape root's gbpfd",
			(int)p->pid, cli_user(name, p->uid), buf_text(&safe));
	buf_finish(&safe);
}

/* Reports a listener that accepts no connection. */
static void report_silent(struct cli_doctor *d, const char *path)
{
	struct buf safe = { 0 };

	cli_safe_text(&safe, path);
	cli_doctor_find(d, CLI_DOCTOR_NOTE, "users' daemons", "`ss -xlp` shows the process",
			"the listener on %s does not answer: it may be a gbpfd of a user",
			buf_text(&safe));
	buf_finish(&safe);
}

/* Returns the path of a line of /proc/net/unix if it names a session socket, else NULL. */
static const char *socket_path(char *line)
{
	char *path = strchr(line, '/');
	size_t n = path ? strlen(path) : 0;

	return n > strlen(LEAF) && n < CLI_DOCTOR_SOCKET_PATH &&
			       strcmp(path + n - strlen(LEAF), LEAF) == 0
		       ? path
		       : NULL;
}

/* Looks at all sockets of the network namespace: a user may choose any directory. */
static void find_users_daemons(struct cli_doctor *d)
{
	FILE *f = fopen("/proc/net/unix", "re");
	unsigned found = 0, silent = 0;
	char *line = NULL;
	size_t cap = 0;

	while (f && getline(&line, &cap, f) > 0) {
		enum listener is;
		const char *path;
		struct peer p;

		line[strcspn(line, "\n")] = 0;
		path = strstr(line, " 00010000 ") ? socket_path(line) : NULL; /* it listens */
		is = path ? find_listener(path, &p) : NOT_A_GBPFD;
		if (is == USERS_GBPFD && found++ < LISTED) {
			report(d, path, &p);
		} else if (is == NO_ANSWER && strcmp(path, RUNTIME_OF_ROOT LEAF) != 0 &&
			   silent++ < LISTED) {
			report_silent(d, path);
		}
	}
	free(line);
	if (f) {
		fclose(f);
	}
	if (found > LISTED) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "users' daemons", "See ps -C gbpfd", "%u more",
				found - LISTED);
	} else if (!found && !silent) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "users' daemons", NULL, "none found");
	}
}

/* Reports what keeps programs of this user from root's gbpfd. */
static void find_own_daemon(struct cli_doctor *d)
{
	const char *named = getenv("GBPF_RUNTIME_DIR");
	char path[CLI_DOCTOR_SOCKET_PATH], fix[FIX_BYTES];
	struct peer p;

	if (named && named[0] && strcmp(named, RUNTIME_OF_ROOT) != 0) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "root's daemon",
				"Unset GBPF_RUNTIME_DIR to use it",
				"root's gbpfd serves this machine in " RUNTIME_OF_ROOT
				", but GBPF_RUNTIME_DIR names another directory");
		return;
	}
	if (path_users_runtime(path, sizeof(path), &LEAF[1]) == 0 &&
	    find_listener(path, &p) == USERS_GBPFD && p.uid == geteuid()) {
		way_to_end(fix, p.pid);
		cli_doctor_find(
			d, CLI_DOCTOR_NOTE, "own daemon", fix,
			"a gbpfd of this user (pid %d) runs in %.*s although root's serves this "
			"machine: its programs escape root's policy",
			(int)p.pid, (int)(strlen(path) - strlen(LEAF)), path);
	}
}

void cli_doctor_check_users(struct cli_doctor *d)
{
	if (!runtime_root_serves()) {
		return;
	}
	if (geteuid() == 0) {
		find_users_daemons(d);
	} else {
		find_own_daemon(d);
	}
}

/* Fake processes in vGPUs, for tests of gbpfd. */
#ifndef GBPF_TESTS_DAEMON_VGPU_RIG_H
#define GBPF_TESTS_DAEMON_VGPU_RIG_H

#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "mem/ledger.h"
#include "proto/account.h"

#include "../users.h"

#define LIMIT (UINT64_C(64) << 20)
#define NONE (-1)
#define DEVICE (UINT64_C(1024) << 20)

/* A process of a vGPU: its session and its account. */
struct member {
	struct fake f;
	uint64_t number;
	int account_fd;
	struct proto_account *account;
	uint32_t line;
	int error;	       /* 0: it was welcomed */
	char text[PROTO_TEXT]; /* if it was refused */
};

static inline struct proto_hello hello_of(uint64_t number, uint64_t limit)
{
	struct proto_hello h = { .class_id = 2, .weight = 100, .gpus = 1 };

	memset(h.uuid[0], 7, sizeof(h.uuid[0]));
	snprintf(h.name, sizeof(h.name), "member");
	h.vgpu.number = number;
	h.vgpu.made_ns = clock_now_ns();
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		h.vgpu.config.mem[i] = limit;
	}
	return h;
}

/* Takes the answer to a hello: WELCOME, or REFUSED. */
static inline void take_answer(struct member *p)
{
	union proto_message m;
	int fds[8];
	unsigned n;

	assert_int_equal(fake_receive(&p->f, &m, fds, &n), 1);
	p->error = m.head.type == PROTO_REFUSED ? m.refused.error : 0;
	if (m.head.type == PROTO_REFUSED) {
		memcpy(p->text, m.refused.text, sizeof(p->text));
	} else {
		assert_int_equal(m.head.type, PROTO_WELCOME);
		if (m.welcome.accounts) {
			p->account_fd = fds[--n];
			p->line = m.welcome.account_line;
			p->account = shm_map(p->account_fd, PROTO_ACCOUNT_BYTES, 1);
			assert_non_null(p->account);
		}
		if (n == 3) {
			p->f.board_fd = fds[1];
			p->f.stats_fd = fds[2];
			p->f.stats = shm_map(fds[2], PROTO_STATS_BYTES, 1);
			assert_non_null(p->f.stats);
			n = 1;
		}
	}
	while (n) {
		close(fds[--n]);
	}
}

/* Sends a hello with descriptors, and takes the answer. */
static inline void say(struct member *p, const struct gd *d, const struct proto_hello *h,
		       const int *fds, unsigned n)
{
	union proto_message m = { 0 };

	memset(p, 0, sizeof(*p));
	p->account_fd = NONE;
	p->number = h->vgpu.number;
	fake_connect(&p->f, d);
	m.hello = *h;
	/* A peer that is turned away at once may have closed the socket. */
	(void)proto_send(p->f.sock, &m, PROTO_HELLO, fds, n);
	take_answer(p);
}

static inline void join(struct member *p, const struct gd *d, uint64_t number)
{
	struct proto_hello h = hello_of(number, LIMIT);

	say(p, d, &h, NULL, 0);
	assert_int_equal(p->error, 0);
	assert_non_null(p->account);
}

static inline void part(struct member *p)
{
	fd_close(p->f.sock);
	fd_close(p->f.board_fd);
	fd_close(p->f.stats_fd);
	fd_close(p->account_fd);
	shm_unmap(p->account, PROTO_ACCOUNT_BYTES);
	shm_unmap(p->f.stats, PROTO_STATS_BYTES);
}

/* Says hello again with board and statistics of `of` and that account. */
static inline void come_back(struct member *p, const struct gd *d, const struct member *of,
			     uint64_t number, int account_fd, uint32_t line)
{
	struct proto_hello h = hello_of(number, LIMIT);
	const int fds[3] = { of->f.board_fd, of->f.stats_fd, account_fd };

	h.flags = PROTO_REATTACH;
	h.accounts = 1;
	h.account_line = line;
	say(p, d, &h, fds, 3);
}

static inline void restart_after_kill(struct gd *d)
{
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	assert_int_equal(gd_start(d, NULL), 0);
}

static inline bool is_same_page(const struct member *a, const struct member *b)
{
	struct stat x, y;

	assert_int_equal(fstat(a->account_fd, &x), 0);
	assert_int_equal(fstat(b->account_fd, &y), 0);
	return x.st_ino == y.st_ino;
}

static inline uint64_t used_of(const struct member *p, uint32_t line)
{
	return mem_line_used(&p->account->line[0][line]);
}

static inline void set_used(const struct member *p, uint32_t line, uint64_t bytes)
{
	struct proto_account_line *l = &p->account->line[0][line];

	store_seqcst(&l->charged, load_seqcst(&l->released) + bytes);
}

static inline void open_to_all(const struct gd *d)
{
	char path[160];

	assert_int_equal(chmod(d->dir, 0755), 0);
	assert_int_equal(chmod(d->runtime, 0755), 0);
	snprintf(path, sizeof(path), "%s/session.sock", d->runtime);
	assert_int_equal(chmod(path, 0666), 0);
	snprintf(path, sizeof(path), "%s/control.sock", d->runtime);
	assert_int_equal(chmod(path, 0666), 0);
}

static inline void join_as(uid_t uid, struct member *p, const struct gd *d, uint64_t number)
{
	struct proto_hello h = hello_of(number, LIMIT);

	AS_USER(uid, say(p, d, &h, NULL, 0));
}

/* When this process has started: field 22 of /proc/self/stat. */
static inline uint64_t own_start(void)
{
	char text[1024] = "";
	uint64_t start = 0;
	FILE *f = fopen("/proc/self/stat", "re");
	const char *at;

	assert_non_null(f);
	assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
	fclose(f);
	at = strrchr(text, ')');
	for (unsigned field = 2; field < 22; field++) {
		at = strchr(at + 1, ' ');
		assert_non_null(at);
	}
	start = strtoull(at, NULL, 10);
	assert_true(start > 0);
	return start;
}

/* ---- vGPUs with names ---- */

static inline struct proto_hello hello_named(const char *name, uint64_t device)
{
	struct proto_hello h = hello_of(0, 0);

	memset(&h.vgpu, 0, sizeof(h.vgpu));
	snprintf(h.vgpu.name, sizeof(h.vgpu.name), "%s", name);
	h.mem_bytes[0] = device;
	return h;
}

/* Says hello, and completes it if it is welcomed. */
static inline void enter(struct member *p, const struct gd *d, const struct proto_hello *h)
{
	say(p, d, h, NULL, 0);
	if (!p->error) {
		fake_send(&p->f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	}
}

static inline void join_named(struct member *p, const struct gd *d, const char *name)
{
	struct proto_hello h = hello_named(name, DEVICE);

	enter(p, d, &h);
	assert_int_equal(p->error, 0);
	assert_non_null(p->account);
}

/* Starts a process that joins and does something, if it is given, to its account. */
static inline pid_t start_acting(const struct gd *d, const char *name, void (*act)(struct member *))
{
	struct member p;
	int out[2];
	pid_t pid;
	char c = 0;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		join_named(&p, d, name);
		if (act) {
			act(&p);
		}
		if (write(out[1], &c, 1) != 1) {
			_exit(1);
		}
		for (;;) {
			pause();
		}
	}
	close(out[1]);
	assert_int_equal(read(out[0], &c, 1), 1);
	close(out[0]);
	return pid;
}

/* An account as a process that means harm makes it. */
static inline struct proto_account *forge(int *ret_fd, size_t bytes)
{
	struct proto_account *a;

	*ret_fd = shm_create("forged", bytes, SHM_NOEXEC);
	assert_true(*ret_fd >= 0);
	a = shm_map(*ret_fd, bytes, 1);
	assert_non_null(a);
	a->magic = PROTO_ACCOUNT_MAGIC;
	a->abi = PROTO_ABI;
	a->lines = 1;
	a->owner[0].pid = getpid();
	a->owner[0].start = own_start();
	return a;
}

#endif

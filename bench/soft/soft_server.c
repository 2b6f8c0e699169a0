/* The server that `gbpf bench dev soft` measures: its statistics, and those of its process. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "bench/soft/bench_soft.h"
#include "soft/socket.h"

#define SETTLE_NS 5000000000ull

static int ask(struct bench_soft *b, uint32_t op, struct soft_reply *ret, struct peer *ret_peer)
{
	struct soft_request q = { .op = op, .object = SOFT_VERSION }; /* required by hello */
	int fds[FD_PASS_MAX], sock = unix_connect(b->socket, SOCK_SEQPACKET);
	unsigned nfds = 0;
	ssize_t n;

	if (sock < 0) {
		return sock;
	}
	memset(ret, 0, sizeof(*ret));
	n = msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0);
	n = n < 0 ? n : msg_recv(sock, ret, sizeof(*ret), fds, &nfds);
	for (unsigned i = 0; i < nfds; i++) {
		fd_close(fds[i]);
	}
	if (n >= 0 && ret_peer) {
		int err = fd_peer(sock, ret_peer);

		n = err < 0 ? err : n;
	}
	fd_close(sock);
	return n < 0 ? (int)n : n < (ssize_t)SOFT_REPLY_MIN || ret->result ? -EPROTO : 0;
}

int bench_soft_server_find(struct bench_soft *b)
{
	static struct soft_reply r;
	struct peer peer;
	int err = soft_socket_path(b->socket, sizeof(b->socket), false);

	err = err ? err : ask(b, SOFT_REQ_STATS, &r, &peer);
	if (err) {
		return err;
	}
	b->server_pid = peer.pid;
	err = ask(b, SOFT_REQ_HELLO, &r, NULL); /* returns the server's settings */
	b->hello = r.hello;
	return err;
}

int bench_soft_server_stats(struct bench_soft *b, struct soft_stats *ret)
{
	static struct soft_reply r;
	int err = ask(b, SOFT_REQ_STATS, &r, NULL);

	*ret = r.stats;
	return err;
}

int bench_soft_server_settled(struct bench_soft *b, struct soft_stats *ret)
{
	uint64_t end = clock_now_ns() + clock_patience(SETTLE_NS);
	int err;

	do {
		err = bench_soft_server_stats(b, ret);
		if (err || (ret->clients <= 1 && ret->contexts == 0)) {
			return err;
		}
		clock_sleep_ns(1000000);
	} while (clock_now_ns() < end);
	return b->running ? 0 : -ETIMEDOUT;
}

uint64_t bench_soft_server_cpu_ns(struct bench_soft *b)
{
	char path[96];
	uint64_t sum = 0;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)b->server_pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		unsigned long long ns = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", (int)b->server_pid,
			 e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (f) {
			sum += fscanf(f, "%llu", &ns) == 1 ? ns : 0;
			fclose(f);
		}
	}
	if (d) {
		closedir(d);
	}
	return sum;
}

uint64_t bench_soft_server_memory(struct bench_soft *b)
{
	char path[64];
	unsigned long long size, resident, shared;
	uint64_t bytes = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)b->server_pid);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%llu %llu %llu", &size, &resident, &shared) == 3) {
			bytes = resident * (uint64_t)sysconf(_SC_PAGESIZE);
		}
		fclose(f);
	}
	return bytes;
}

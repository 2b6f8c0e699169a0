/* `gbpf bench copy`: the coordinator's state. */
#ifndef GBPF_BENCH_COPY_COPY_BENCH_H
#define GBPF_BENCH_COPY_COPY_BENCH_H

#include "bench/common/testbed.h"
#include "bench/copy/copy_page.h"

#define COPY_CLIENTS_MAX 16u

struct bench_copy_client {
	struct bench_copy_page *page; /* owned */
	pid_t pid;		      /* 0: not started */
	unsigned threads;	      /* 0: gBPF's default */
	char name[24];
};

struct bench_copy {
	struct bench_testbed testbed;
	const char *policy, *policy_name, *threads, *ways, *max_text;
	const char *shares, *policy_dir;
	unsigned rounds, seconds;
	uint64_t max;
	struct bench_testbed_daemon *daemon;
	struct bench_copy_client client[COPY_CLIENTS_MAX];
	unsigned n;
};

/* Starts a client, which is named before. Returns 0; -1 with error. */
int bench_copy_start(struct bench_copy *b, struct bench_copy_client *c,
		     const struct bench_testbed_place *place);
/* Waits until the client is ready. Returns 0; -1 with error. */
int bench_copy_await_ready(struct bench_copy *b, const struct bench_copy_client *c);
/* Fails if the client has failed, has exited or is late, or if the bench was interrupted. */
int bench_copy_check(struct bench_copy *b, const struct bench_copy_client *c, uint64_t deadline);
/* Gives the client the command of its page; then waits until it is carried out. */
void bench_copy_order(struct bench_copy_client *c);
int bench_copy_await_done(struct bench_copy *b, const struct bench_copy_client *c);
/* Ends the client and frees its page. */
void bench_copy_end(struct bench_copy *b, struct bench_copy_client *c);

/* share_bench.c: copy shares, and latency next to copies. Returns 0; -1 with error. */
int bench_copy_shares(struct bench_copy *b);

#endif

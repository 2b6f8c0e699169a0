/* `gbpf bench dev copy`: the coordinator's state. */
#ifndef GBPF_BENCH_COPY_COPY_BENCH_H
#define GBPF_BENCH_COPY_COPY_BENCH_H

#include "bench/common/testbed.h"
#include "bench/copy/copy_page.h"

#define COPY_CLIENTS_MAX 16u
#define COPY_KINDS 2u
#define COPY_WINDOW_NS 1000000000ull

struct bench_copy_client {
	struct bench_copy_page *page; /* owned */
	pid_t pid;		      /* 0: not started */
	unsigned threads;	      /* 0: gBPF's default */
	char name[24];
};

struct bench_copy {
	struct bench_testbed testbed;
	const char *policies, *threads, *ways, *max_text;
	const char *shares, *policy_dir;
	bool overlap;
	unsigned rounds, seconds;
	uint64_t max;
	struct bench_testbed_daemon *daemon;
	struct bench_copy_client client[COPY_CLIENTS_MAX];
	unsigned n;
	double left_s; /* expected time of the parts that are not finished */
	unsigned part, parts;
};

extern const char *const bench_copy_kinds[COPY_KINDS]; /* of memory: index 1 is page-locked */

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

/* copy_loops.c: clients that work until they are stopped. Those that return int return 0, or
 * -1 with error. */
/* Starts client i, with that name and a number, and waits until it is ready. */
int bench_copy_start_as(struct bench_copy *b, unsigned i, const char *name,
			const struct bench_testbed_place *place);
void bench_copy_end_all(struct bench_copy *b);
/* Begins the loop that the client's page describes. Does not wait: the client makes its memory
 * ready first. */
void bench_copy_loop(struct bench_copy_client *c);
/* Waits until n clients from `first` on work, and COPY_SETTLE_NS longer. */
#define COPY_SETTLE_NS 500000000ull
int bench_copy_settle(struct bench_copy *b, unsigned first, unsigned n);
/* Waits until a time of clock_now_ns() while the first n clients work. */
int bench_copy_wait(struct bench_copy *b, unsigned n, uint64_t until_ns);
/* Stops the clients' loops. Each checks what it has computed and copied. */
int bench_copy_stop(struct bench_copy *b, unsigned first, unsigned n);
/* Stores a counter of `gbpf ps` for each of the first n clients. */
int bench_copy_counters(struct bench_copy *b, unsigned n, const char *name,
			uint64_t v[COPY_CLIENTS_MAX]);
/* Reports the part that begins, and about how long it and the rest take. seconds: of this part. */
void bench_copy_tell(struct bench_copy *b, double seconds, const char *what);

/* share_bench.c: copy shares, and latency next to copies. Returns 0; -1 with error. */
int bench_copy_shares(struct bench_copy *b);
/* overlap_bench.c: images that are uploaded, processed and downloaded. Returns 0; -1 with error. */
int bench_copy_overlap(struct bench_copy *b);

#endif

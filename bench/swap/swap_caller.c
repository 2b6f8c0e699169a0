/* A caller: a session like a program's, whose main thread calls `submit` in a loop and times each
 * call. The policy returns its number, which is stored in its code, in a constant, in global memory
 * and in the tenant's; if they differ it returns no number. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bench/swap/swap.h"
#include "bpf/run/map/map.h"
#include "proto/wire.h"
#include "policy/ctx.h"
#include "sched/sched.h"

struct session {
	struct bench_swap_shared *sh;
	unsigned index;
	int sock;
	struct sched *sched;
	const struct proto_directory *dir;
};

unsigned bench_swap_bucket(uint64_t ns)
{
	unsigned log, bucket;

	if (ns < SWAP_SUB) {
		return (unsigned)ns;
	}
	log = 63u - (unsigned)__builtin_clzll(ns);
	bucket = (log - 4) * SWAP_SUB + (unsigned)((ns >> (log - 5)) & (SWAP_SUB - 1));
	return MIN(bucket, SWAP_BUCKETS - 1);
}

uint64_t bench_swap_floor(unsigned bucket)
{
	unsigned log = bucket / SWAP_SUB + 4;

	return bucket < SWAP_SUB ? bucket : ((uint64_t)SWAP_SUB + bucket % SWAP_SUB) << (log - 5);
}

void bench_swap_use_cpu(const struct bench_swap_shared *sh, unsigned index)
{
	cpu_set_t chosen;
	unsigned n = 0;

	CPU_ZERO(&chosen);
	for (unsigned cpu = 0; sh->pinned && cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &sh->all)) {
			if (index == SWAP_REST ? n >= sh->callers : n == index) {
				CPU_SET(cpu, &chosen);
			}
			n++;
		}
	}
	if (sh->pinned) {
		sched_setaffinity(0, sizeof(chosen), &chosen);
	}
}

/* ---- a device that does nothing ---- */

static int no_mark(void *dev, void *queue, bool timed, struct sched_marker *m)
{
	return -EAGAIN;
}

static int is_done(void *dev, const struct sched_marker *m)
{
	return 1;
}

static int64_t no_span(void *dev, const struct sched_marker *from, const struct sched_marker *to)
{
	return -EIO;
}

static void no_release(void *dev, struct sched_marker *m)
{
}

static int is_idle(void *dev, void *queue)
{
	return 1;
}

static const struct sched_device_ops device = { no_mark, is_done, no_span, no_release, is_idle };

/* ---- the session ---- */

static void prepare(struct session *s, union proto_message *m, int fds[8])
{
	int regions[EBPF_REGIONS] = EBPF_NO_REGIONS;
	unsigned n = 1;

	if (m->version.regions & PROTO_REGION_GLOBAL) {
		regions[EBPF_REGION_GLOBAL] = fds[n++];
	}
	if (m->version.regions & PROTO_REGION_TENANT) {
		regions[EBPF_REGION_TENANT] = fds[n];
	}
	m->version.status =
		sched_policy_prepare(s->sched, m->version.version, UINT32_MAX, fds[0], regions);
	m->version.regions = 0;
	proto_send(s->sock, m, PROTO_PREPARED, NULL, 0);
}

/* The agent: as in the shim, without the parts that need a GPU. */
static void *agent(void *arg)
{
	struct session *s = arg;
	union proto_message m;
	unsigned n;
	int fds[8];

	bench_swap_use_cpu(s->sh, SWAP_REST);
	for (;;) {
		struct pollfd p = { .fd = s->sock, .events = POLLIN };
		int r;

		poll(&p, 1, 20);
		sched_agent_step(s->sched);
		while ((r = proto_recv(s->sock, &m, fds, &n)) == 1) {
			if (m.head.type == PROTO_PREPARE) {
				prepare(s, &m, fds);
			} else if (m.head.type == PROTO_DROP) {
				sched_policy_drop(s->sched, m.version.version, UINT32_MAX);
			}
			while (n) {
				fd_close(fds[--n]);
			}
		}
		if (r != -EAGAIN) {
			return NULL; /* gbpfd has exited */
		}
	}
}

static int receive(int sock, union proto_message *m, int fds[8], unsigned *n)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	int r;

	do {
		if (poll(&p, 1, (int)clock_patience(10000)) <= 0) {
			return -ETIMEDOUT;
		}
		r = proto_recv(sock, m, fds, n);
	} while (r == -EAGAIN);
	return r == 1 ? 0 : r ? r : -EPIPE;
}

static int enter(struct session *s, const union proto_message *m, const int *fds)
{
	struct sched_config cfg = { .tenant = m->welcome.tenant,
				    .class_id = GBPF_CLASS_BATCH,
				    .weight = 100,
				    .device = &device };
	uint32_t gpu[PROTO_MAX_GPUS];
	void *board = shm_map(fds[1], PROTO_PAGE_BYTES, 1),
	     *stats = shm_map(fds[2], PROTO_STATS_BYTES, 1);
	int err;

	s->dir = shm_map(fds[0], PROTO_PAGE_BYTES, 0);
	if (!s->dir || !board || !stats) {
		return -ENOMEM;
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		gpu[i] = i ? PROTO_MAX_GPUS : m->welcome.gpu_index[0];
	}
	err = sched_create(&s->sched, &cfg);
	if (!err) {
		sched_set_pages(s->sched, s->dir, board, stats, gpu);
	}
	return err;
}

static int connect_session(struct session *s)
{
	union proto_message m = { 0 };
	char path[160];
	unsigned n;
	int fds[8], err;

	snprintf(path, sizeof(path), "%s/session.sock", s->sh->dir);
	s->sock = unix_connect(path, SOCK_SEQPACKET);
	if (s->sock < 0) {
		return s->sock;
	}
	m.hello.class_id = GBPF_CLASS_BATCH;
	m.hello.gpus = 1;
	memcpy(m.hello.uuid[0], "gbpf bench swap", 16);
	snprintf(m.hello.name, sizeof(m.hello.name), "caller%u", s->index);
	err = proto_send(s->sock, &m, PROTO_HELLO, NULL, 0);
	err = err ? err : receive(s->sock, &m, fds, &n);
	if (err || m.head.type != PROTO_WELCOME || n != 3) {
		return err ? err : -EPROTO;
	}
	err = enter(s, &m, fds);
	while (n) {
		fd_close(fds[--n]);
	}
	return err ? err : proto_send(s->sock, &m, PROTO_BOARD_MAPPED, NULL, 0);
}

/* ---- calling ---- */

#define RUN_AT 1000u /* distance from the window's beginning */

struct loop {
	struct bench_swap_caller *c;
	uint32_t window;
	uint32_t longest;
	uint64_t version;
	uint32_t calls; /* in this window */
	uint64_t run;	/* ns of the calls RUN_AT to RUN_AT + SWAP_RUN */
};

static void next_window(struct loop *l, uint32_t window)
{
	if (l->window) {
		l->c->longest[(l->window - 1) & 1][(l->window - 1) / 2] = l->longest;
	}
	l->window = window;
	l->longest = 0;
	l->calls = 0;
	l->run = 0;
}

static inline void account(struct loop *l, const struct sched_verdict *v, uint64_t took)
{
	struct bench_swap_caller *c = l->c;
	uint32_t kind = (l->window - 1) & 1, ns = (uint32_t)MIN(took, UINT32_MAX);

	c->calls[kind]++;
	c->hist[kind][bench_swap_bucket(took)]++;
	l->longest = MAX(l->longest, ns);
	l->calls++;
	if (l->calls > RUN_AT && l->calls <= RUN_AT + SWAP_RUN) {
		l->run += took;
		if (l->calls == RUN_AT + SWAP_RUN && kind == SWAP_CONTROL) {
			c->run[(l->window - 1) / 2] = (uint32_t)MIN(l->run, UINT32_MAX);
		}
	}
	c->lost += v->version == 0 || v->failed;
	c->mixed += v->version && !v->failed && v->hold_ns != v->version;
	if (unlikely(v->version != l->version)) {
		if (l->version && kind == SWAP_SWAPS) {
			c->first[(l->window - 1) / 2] = MAX(ns, 1u);
			c->changes++;
		}
		l->version = v->version;
	}
}

static void call(struct session *s, struct sched_queue *q)
{
	struct loop l = { .c = &s->sh->caller[s->index] };
	struct sched_launch launch = { .kind = GBPF_KIND_KERNEL, .blocks = 132, .threads = 256 };
	struct sched_verdict v;

	while (!load_relaxed(&s->sh->stop)) {
		uint32_t window = load_relaxed(&s->sh->window);
		uint64_t begin, took;

		if (unlikely(window != l.window)) {
			next_window(&l, window);
		}
		begin = clock_fast_ns();
		sched_ask(q, &launch, begin, &v);
		took = clock_fast_ns() - begin;
		if (l.window) {
			account(&l, &v, took);
		} else {
			l.version = v.version;
		}
	}
	next_window(&l, 0);
}

int bench_swap_call(struct bench_swap_shared *sh, unsigned index)
{
	struct session s = { .sh = sh, .index = index, .sock = -1 };
	struct bench_swap_caller *c = &sh->caller[index];
	struct sched_queue *q = NULL;
	pthread_t thread;

	bench_swap_use_cpu(sh, index);
	c->error = connect_session(&s);
	if (!c->error) {
		c->error = -pthread_create(&thread, NULL, agent, &s);
	}
	for (unsigned i = 0; !c->error && !load_acquire(&s.dir->version[0]); i++) {
		clock_sleep_ns(1000000); /* the first policy */
		c->error = i > 10000 ? -ETIMEDOUT : 0;
	}
	q = c->error ? NULL : sched_queue_open(s.sched, NULL, 0, 0);
	if (!q) {
		c->error = c->error ? c->error : -ENOMEM;
		store_release(&c->state, (uint32_t)SWAP_FAILED);
		return 1;
	}
	store_release(&c->state, (uint32_t)SWAP_CALLING);
	call(&s, q);
	store_release(&c->state, (uint32_t)SWAP_DONE);
	return 0;
}

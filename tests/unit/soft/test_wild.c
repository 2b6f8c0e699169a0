/* Clients that send random data, with their seeds, while others work. Whatever arrives by ring,
 * request, descriptor or shared page, and whenever its sender is killed, the others continue with
 * correct results and the server keeps nothing. GBPF_WILD_S: duration in seconds; GBPF_WILD_SEED:
 * first seed. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "rig.h"
#include "wild.h"

#include "../eventually.h"

#define ATTACKERS 3u
#define HONEST 2u
#define STREAMS 12u
#define ROUNDS 1000u /* of each honest client during the attack, however busy the machine is */

/* ---- the ring ---- */

/* Distributes streams over contexts in turn. */
static struct soft_record header(struct wild *w, uint16_t op)
{
	uint32_t stream = rarely(w, 300) ? (uint32_t)edge(w) : below(w, STREAMS);
	uint32_t context = rarely(w, 300) ? (uint32_t)edge(w) : stream % w->contexts;

	return (struct soft_record){ .op = rarely(w, 1000) ? (uint16_t)edge(w) : op,
				     .context = (uint16_t)context,
				     .stream = stream,
				     .reserved = (uint32_t)draw(w) };
}

static void put_stream(struct wild *w, uint16_t op)
{
	struct soft_record_stream s = { .r = header(w, op),
					.priority = (int32_t)edge(w),
					.flags = below(w, 3) };

	put(w, &s.r, sizeof(s));
}

static void put_launch(struct wild *w)
{
	struct {
		struct soft_record_launch l;
		uint64_t params[64];
	} x = { 0 };
	uint32_t n = one_in(w, 10) ? below(w, 64) : 1;

	x.l.r = header(w, SOFT_OP_LAUNCH);
	x.l.function = rarely(w, 30) ? (uint32_t)edge(w) : w->function[below(w, w->n_functions)];
	for (unsigned i = 0; i < 3; i++) {
		x.l.grid[i] =
			rarely(w, 60) ? (uint32_t)(edge(w) % (1u << 30)) | 1 : 1 + below(w, 4);
		x.l.block[i] = 1 + below(w, i == 0 ? 128 : 2);
	}
	x.l.shared_bytes = (uint32_t)number(w, 2000);
	x.l.param_bytes = n * 8;
	x.l.flags = below(w, 4);
	x.l.priority = (int32_t)edge(w);
	for (uint32_t i = 0; i < n; i++) {
		x.params[i] = one_in(w, 2) ? address(w) : edge(w);
	}
	put(w, &x.l.r, (uint32_t)sizeof(x.l) + n * 8);
}

static void put_copy(struct wild *w)
{
	struct soft_record_copy c = { .r = header(w, SOFT_OP_COPY),
				      .dst = address(w),
				      .src = address(w),
				      .dst_pitch = number(w, 8192),
				      .src_pitch = number(w, 8192),
				      .width = 1 + number(w, 70000),
				      .height = one_in(w, 4) ? 1 + number(w, 16) : 1,
				      .bulk = below(w, 2) };

	if (!rarely(w, 100)) { /* valid, as the protocol requires */
		c.width += c.width == 0;
		c.height = MIN(c.height + (c.height == 0), UINT64_MAX / MAX(c.width, 1ull << 14));
		c.dst_pitch = MAX(c.dst_pitch % (1u << 14), c.width);
		c.src_pitch = MAX(c.src_pitch % (1u << 14), c.width);
	}
	put(w, &c.r, sizeof(c));
}

static void put_set(struct wild *w)
{
	static const uint32_t units[] = { 1, 2, 4, 4, 2, 1, 4, 8 };
	struct soft_record_set s = { .r = header(w, SOFT_OP_SET),
				     .dst = address(w),
				     .pitch = number(w, 8192) & ~3ull,
				     .width = 1 + number(w, 70000),
				     .height = one_in(w, 4) ? 1 + number(w, 16) : 1,
				     .value = (uint32_t)draw(w),
				     .unit = units[below(w, rarely(w, 300) ? 8 : 7)] };

	if (!rarely(w, 100)) {
		s.dst &= ~3ull;
		s.width = s.width % (UINT64_MAX / 4) + 1;
		s.pitch = MAX(s.pitch % (1u << 14) & ~3ull, s.width * s.unit);
		s.height = MIN(s.height + (s.height == 0), UINT64_MAX / s.pitch);
	}
	put(w, &s.r, sizeof(s));
}

static void put_words(struct wild *w, uint16_t op)
{
	struct soft_record_value v = { .r = header(w, op),
				       .address = address(w),
				       .value = edge(w),
				       .unit = one_in(w, 2) ? 4 : 8,
				       .mode = rarely(w, 200) ? (uint32_t)edge(w) : below(w, 5) };

	switch (op) {
	case SOFT_OP_VALUE:
		v.address &= ~7ull;
		break;
	case SOFT_OP_RECORD:
		v.address = below(w, SOFT_MAX_EVENTS) | draw(w) << 32;
		break;
	case SOFT_OP_WAIT:
		v.address = below(w, STREAMS) | (uint64_t)below(w, 100) << 32;
		break;
	case SOFT_OP_SHARED_RECORD:
	case SOFT_OP_SHARED_WAIT:
		v.address = one_in(w, 3) ? edge(w) : w->key;
		v.value = (one_in(w, 3) ? edge(w) : w->key_index) | (uint64_t)below(w, 9) << 32;
		break;
	default:
		break;
	}
	put(w, &v.r, op == SOFT_OP_VALUE ? sizeof(v) : 32);
}

static void a_record(struct wild *w)
{
	uint16_t op = (uint16_t)below(w, SOFT_OP_COUNT);

	switch (op) {
	case SOFT_OP_PAD: {
		struct soft_record pad = header(w, SOFT_OP_PAD);

		pad.context = (uint16_t)edge(w);
		pad.stream = (uint32_t)edge(w);
		put(w, &pad, sizeof(pad));
		break;
	}
	case SOFT_OP_STREAM_CREATE:
	case SOFT_OP_STREAM_DESTROY:
		if (one_in(w, 200)) {
			put_stream(w, op);
		}
		break;
	case SOFT_OP_LAUNCH:
		put_launch(w);
		break;
	case SOFT_OP_COPY:
		put_copy(w);
		break;
	case SOFT_OP_SET:
		put_set(w);
		break;
	default:
		put_words(w, op);
	}
}

/* ---- what attackers offer each other ---- */

#define OFFERS 8u

/* Events, allocations and descriptors of attackers, which others use while their owner ends them or
 * is killed. Written without a lock: torn values are values, too. */
struct market {
	struct {
		uint64_t key;
		uint32_t index;
	} event[OFFERS];
	struct soft_ipc_handle memory[OFFERS];
	int fds[2]; /* a datagram is a descriptor: 't' a token, 'c' that of a context */
};
static struct market *market; /* shared by all attackers */

static void open_market(void)
{
	market = mmap(NULL, sizeof(*market), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_true(market != MAP_FAILED);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, market->fds), 0);
}

static void close_market(void)
{
	close(market->fds[0]);
	close(market->fds[1]);
	munmap(market, sizeof(*market));
}

static void offer_fd(char kind, int fd)
{
	msg_send(market->fds[0], &kind, 1, &fd, 1); /* the queue may be full */
}

static void take_fd(struct wild *w)
{
	int fds[FD_PASS_MAX], *at;
	unsigned n;
	char kind;

	if (msg_recv(market->fds[1], &kind, 1, fds, &n) == 1 && n == 1) {
		at = kind == 't' ? &w->token : &w->control;
		fd_close(*at);
		*at = fds[0];
	}
}

static void take_event(struct wild *w)
{
	unsigned i = below(w, OFFERS);

	w->key = market->event[i].key;
	w->key_index = market->event[i].index;
}

static void offer_reply(struct wild *w, const struct soft_request *q)
{
	unsigned i = below(w, OFFERS);

	switch (q->op) {
	case SOFT_REQ_EVENT:
		if (q->object == SOFT_EVENT_CREATE) {
			market->event[i].key = w->key;
			market->event[i].index = w->key_index;
		}
		break;
	case SOFT_REQ_IPC_EXPORT:
		market->memory[i] = w->r.ipc;
		break;
	case SOFT_REQ_HANDLE_EXPORT:
	case SOFT_REQ_POOL_EXPORT:
		offer_fd('t', w->token);
		break;
	case SOFT_REQ_CONTROL_OPEN:
		offer_fd('c', w->control);
		break;
	default:
		break;
	}
}

/* ---- requests ---- */

static void keep_address(struct wild *w)
{
	w->address[w->n_addresses < ADDRESSES ? w->n_addresses++ : below(w, ADDRESSES)] =
		w->r.value;
}

static int some_fd(struct wild *w, uint32_t op)
{
	if (one_in(w, 3)) {
		switch (op) {
		case SOFT_REQ_CONTROL:
			return w->control;
		case SOFT_REQ_HANDLE_IMPORT:
		case SOFT_REQ_POOL_IMPORT:
			return w->token;
		case SOFT_REQ_MODULE_LOAD:
			return w->odd[3];
		case SOFT_REQ_FLAG_MAP:
			return w->odd[4];
		default:
			break;
		}
	}
	return one_in(w, 2) ? -1 : w->odd[below(w, 8)];
}

static struct soft_request some_request(struct wild *w)
{
	struct soft_request q = { .op = 1 + below(w, SOFT_REQ_COUNT - 1),
				  .context = (uint32_t)number(w, w->contexts),
				  .object = (uint32_t)number(w, 6),
				  .index = (uint32_t)number(w, 3),
				  .value = one_in(w, 2) ? address(w) : edge(w) };

	for (unsigned i = 0; i < 6; i++) {
		q.more[i] = one_in(w, 2) ? edge(w) : below(w, 4);
	}
	if (one_in(w, 2)) {
		snprintf(q.name, sizeof(q.name), "%s", kernels[below(w, ARRAY_SIZE(kernels))]);
	}
	switch (q.op) {
	case SOFT_REQ_ALLOC:
	case SOFT_REQ_RESERVE:
		q.value = one_in(w, 3) ? edge(w) % (48u << 20) : 4096ull << below(w, 11);
		q.value = q.op == SOFT_REQ_RESERVE ? ROUND_UP(q.value, SOFT_GRANULARITY) : q.value;
		q.object = below(w, 2);
		break;
	case SOFT_REQ_HANDLE_CREATE:
		q.value = SOFT_GRANULARITY * (1 + below(w, 4));
		q.index = 0;
		break;
	case SOFT_REQ_MAP:
	case SOFT_REQ_UNMAP:
	case SOFT_REQ_ACCESS:
	case SOFT_REQ_UNRESERVE:
		q.value &= ~(SOFT_GRANULARITY - 1);
		q.more[0] = SOFT_GRANULARITY * (1 + below(w, 2));
		q.more[1] = one_in(w, 3) ? SOFT_GRANULARITY : 0;
		q.more[2] = 1 + below(w, 6);
		break;
	case SOFT_REQ_IPC_OPEN:
		if (one_in(w, 2)) {
			memcpy(q.more, &market->memory[below(w, OFFERS)],
			       sizeof(market->memory[0]));
			q.object = below(w, 2);
		}
		break;
	case SOFT_REQ_HANDLE_RELEASE:
	case SOFT_REQ_HANDLE_EXPORT:
		q.value = number(w, 8);
		break;
	case SOFT_REQ_FLAG_NEW:
		q.value = number(w, 9000);
		break;
	case SOFT_REQ_GROUP:
	case SOFT_REQ_CONTROL:
		q.value = number(w, 3000);
		break;
	case SOFT_REQ_EVENT:
		if (one_in(w, 4)) {
			take_event(w);
		}
		if (one_in(w, 2)) {
			q.object = below(w, 5);
			q.index = w->key_index;
			q.value = w->key;
		}
		break;
	default:
		break;
	}
	return q;
}

static void keep_reply(struct wild *w, const struct soft_request *q)
{
	switch (q->op) {
	case SOFT_REQ_ALLOC:
	case SOFT_REQ_RESERVE:
	case SOFT_REQ_IPC_OPEN:
	case SOFT_REQ_FLAG_NEW:
	case SOFT_REQ_FLAG_MAP:
		keep_address(w);
		break;
	case SOFT_REQ_EVENT:
		if (q->object == SOFT_EVENT_CREATE) {
			w->key_index = w->r.value32;
			w->key = w->r.value;
		}
		break;
	default:
		break;
	}
	offer_reply(w, q);
}

/* Sends a request, and some records while it is answered. */
static bool ask_amid_records(struct wild *w, const struct soft_request *q, int fd)
{
	if (!send_request(w, q, fd)) {
		return false;
	}
	for (uint32_t n = below(w, 24); n; n--) {
		a_record(w);
	}
	return receive_reply(w, q);
}

static bool a_request(struct wild *w)
{
	struct soft_request q = some_request(w);
	int fd;

	if (q.op == SOFT_REQ_CONTEXT_DESTROY && !one_in(w, 4)) {
		return true;
	}
	if (one_in(w, 16)) {
		take_fd(w);
	}
	fd = some_fd(w, q.op);
	if (one_in(w, 2) ? !ask_amid_records(w, &q, fd) : !ask(w, &q, fd)) {
		return false;
	}
	if (w->r.result == 0) {
		keep_reply(w, &q);
	}
	return true;
}

/* ---- contexts that end, with large allocations, whose release takes time ---- */

static bool allocate_large(struct wild *w, uint32_t context)
{
	struct soft_request q = { .op = SOFT_REQ_ALLOC,
				  .context = context,
				  .object = one_in(w, 4) ? SOFT_MEMORY_PINNED : SOFT_MEMORY_DEVICE,
				  .value = (4u << 20) + below(w, 2) * below(w, 8u << 20) };
	struct soft_record_set set = {
		.r = { .op = SOFT_OP_SET, .context = (uint16_t)context, .stream = context },
		.width = 4u << 20,
		.height = 1,
		.value = 1,
		.unit = 1
	};

	if (!ask(w, &q, -1)) {
		return false;
	}
	if (w->r.result == 0) {
		keep_address(w);
		set.dst = w->r.value;
		if (one_in(w, 2)) {
			put(w, &set.r, sizeof(set)); /* gives it pages */
		}
		if (one_in(w, 3)) {
			q = (struct soft_request){ .op = SOFT_REQ_IPC_EXPORT,
						   .context = context,
						   .value = w->r.value };
			if (!ask(w, &q, -1)) {
				return false;
			}
			offer_reply(w, &q);
		}
	}
	return true;
}

static void put_fresh_stream(struct wild *w, uint32_t context)
{
	uint32_t slot = STREAMS + w->fresh++ % (SOFT_MAX_STREAMS - STREAMS);
	struct soft_record_stream s = {
		.r = { .op = SOFT_OP_STREAM_CREATE, .context = (uint16_t)context, .stream = slot },
		.flags = below(w, 2)
	};

	put(w, &s.r, sizeof(s));
	if (one_in(w, 2)) {
		s.r.op = SOFT_OP_STREAM_DESTROY;
		put(w, &s.r, sizeof(s));
	}
}

static void put_streams(struct wild *w, uint32_t context)
{
	for (uint32_t i = context; i < STREAMS; i += w->contexts) {
		struct soft_record_stream s = { .r = { .op = SOFT_OP_STREAM_CREATE,
						       .context = (uint16_t)context,
						       .stream = i },
						.flags = i % 2 };

		put(w, &s.r, sizeof(s));
	}
}

/* Destroys a context while records for it arrive, and creates another in its slot. */
static bool an_end(struct wild *w)
{
	uint32_t context = below(w, w->contexts);
	struct soft_request q = { .op = SOFT_REQ_CONTEXT_DESTROY, .context = context };

	for (uint32_t n = below(w, 4); n; n--) {
		if (!allocate_large(w, context)) {
			return false;
		}
	}
	if (!send_request(w, &q, -1)) {
		return false;
	}
	for (uint32_t n = below(w, 40); n; n--) {
		one_in(w, 2) ? put_fresh_stream(w, context) : a_record(w);
	}
	if (!receive_reply(w, &q)) {
		return false;
	}
	q = (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE };
	if (w->r.result || !ask_amid_records(w, &q, -1)) {
		return w->r.result; /* some other request has destroyed it */
	}
	put_streams(w, context);
	return !one_in(w, 2) || load_module(w, context);
}

/* Sends without reading replies. */

static void not_read(struct wild *w)
{
	for (unsigned i = 0; i < 200; i++) {
		struct soft_request q = some_request(w);
		struct pollfd p = { .fd = w->sock, .events = POLLOUT };
		int fd = some_fd(w, q.op);

		if (poll(&p, 1, 0) != 1 ||
		    msg_send(w->sock, &q, SOFT_REQUEST_MIN + 1, &fd, fd >= 0) < 0) {
			return;
		}
	}
}

static void half_message(struct wild *w)
{
	uint8_t junk[sizeof(struct soft_request) + 64];
	int fds[FD_PASS_MAX];

	for (size_t i = 0; i < sizeof(junk); i++) {
		junk[i] = (uint8_t)draw(w);
	}
	junk[0] = (uint8_t)below(w, SOFT_REQ_COUNT + 2);
	junk[1] = junk[2] = junk[3] = 0;
	for (unsigned i = 0; i < FD_PASS_MAX; i++) {
		fds[i] = w->odd[i];
	}
	msg_send(w->sock, junk, below(w, sizeof(junk)), fds, below(w, FD_PASS_MAX));
}

static void a_notice(struct wild *w)
{
	struct soft_notice n = { .op = rarely(w, 50) ? (uint32_t)edge(w) : SOFT_NOTICE_HOST_DONE,
				 .stream = (uint32_t)number(w, STREAMS) };
	struct pollfd p = { .fd = w->event, .events = POLLOUT };

	if (poll(&p, 1, 0) == 1) {
		msg_send(w->event, &n, offsetof(struct soft_notice, text), w->odd, 1);
	}
}

static void *scribble(void *arg)
{
	struct wild *w = arg;

	w->seed ^= 0x9e3779b97f4a7c15ull;
	for (;;) {
		uint32_t at = below(w, 64) * 16;

		switch (below(w, 6)) {
		case 0:
			store_relaxed(&w->shared->print_tail, (uint32_t)edge(w));
			break;
		case 1:
			store_relaxed(&w->shared->asleep, (uint32_t)edge(w));
			break;
		case 2:
			store_relaxed(&w->shared->room_waiters, (uint32_t)edge(w));
			break;
		case 3:
			store_relaxed(&w->shared->names, (uint32_t)number(w, 2000));
			break;
		case 4:
			store_relaxed(&w->shared->streams[below(w, 64)].waiters, 1u);
			break;
		default: /* lengths and kinds of records that are being read */
			at = (load_relaxed(&w->shared->tail) + at) % SOFT_RING_BYTES;
			store_relaxed((uint32_t *)(void *)(w->shared->ring + at),
				      (uint32_t)edge(w));
			break;
		}
	}
	return NULL;
}

/* Whether everything it sends has become ineffective: all its contexts have errors. */
static bool spent(const struct wild *w)
{
	for (unsigned i = 0; i < w->contexts; i++) {
		if (!load_relaxed(&w->shared->context_error[i])) {
			return false;
		}
	}
	return true;
}

static void attack(void *arg)
{
	static struct wild w, scribbler;
	pthread_t t;

	w.seed = (*(uint64_t *)arg + 1) * 0x9e3779b97f4a7c15ull;
	draw(&w);
	w.tame = (const unsigned[]){ 1, 8, 60, 400 }[below(&w, 4)];
	if (!begin(&w)) {
		return;
	}
	for (uint32_t i = 0; i < w.contexts; i++) {
		put_streams(&w, i);
	}
	if (one_in(&w, 4)) {
		scribbler = w;
		pthread_create(&t, NULL, scribble, &scribbler);
	}
	for (unsigned i = 0; i < 20000 && (i % 64 || !spent(&w)); i++) {
		if (one_in(&w, 4) ? !a_request(&w) : (a_record(&w), false)) {
			return;
		}
		if (one_in(&w, 40)) {
			a_notice(&w);
		}
		if (one_in(&w, 150) && !an_end(&w)) {
			return;
		}
		if (rarely(&w, 900)) {
			not_read(&w);
			return;
		}
		if (rarely(&w, 2000)) {
			half_message(&w);
		}
	}
}

/* ---- honest clients ---- */

struct record {
	uint64_t rounds, worst_ns;
	uint32_t stop;
};

static void honest(void *arg)
{
	struct record *rec = arg;
	uint32_t a[256], c[256], n = 256;
	CUdeviceptr da, dc;
	CUfunction f;

	rig_context();
	f = rig_function("add");
	CU(cuMemAlloc_v2(&da, sizeof(a)));
	CU(cuMemAlloc_v2(&dc, sizeof(c)));
	for (uint32_t round = 0; !load_relaxed(&rec->stop); round++) {
		uint64_t begun = clock_now_ns();

		for (uint32_t i = 0; i < n; i++) {
			a[i] = i * 3 + round;
		}
		CU(cuMemcpyHtoD_v2(da, a, sizeof(a)));
		rig_launch(f, 4, 64, NULL, (void *[]){ &da, &da, &dc, &n });
		CU(cuMemcpyDtoH_v2(c, dc, sizeof(c)));
		for (uint32_t i = 0; i < n; i++) {
			CHECK(c[i] == 2 * a[i]);
		}
		begun = clock_now_ns() - begun;
		rec->worst_ns = MAX(rec->worst_ns, begun);
		store_relaxed(&rec->rounds, rec->rounds + 1);
		clock_sleep_ns(200000); /* the rate of a client that is mostly idle */
	}
}

static uint64_t setting(const char *name, uint64_t usual)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : usual;
}

static bool all_served(const struct record *rec)
{
	bool all = true;

	for (unsigned i = 0; i < HONEST; i++) {
		all &= load_relaxed(&rec[i].rounds) >= ROUNDS;
	}
	return all;
}

/* Starts attackers repeatedly, for the time given and until the honest clients have been served;
 * kills most of them in the middle of something. */
static uint64_t besiege(uint64_t seed, uint64_t end, const struct record *rec)
{
	struct wild w = { .seed = seed + 77 };
	uint64_t until[ATTACKERS] = { 0 };
	pid_t pid[ATTACKERS] = { 0 };

	while (clock_now_ns() < end || !all_served(rec)) {
		for (unsigned i = 0; i < ATTACKERS; i++) {
			bool gone = pid[i] && waitpid(pid[i], NULL, WNOHANG) == pid[i];

			if (pid[i] && !gone && clock_now_ns() > until[i]) {
				kill(pid[i], one_in(&w, 3) ? SIGSTOP : SIGKILL);
				kill(pid[i], SIGKILL);
				rig_wait(pid[i]);
				gone = true;
			}
			if (!pid[i] || gone) {
				until[i] = clock_now_ns() + 1000000ull * (1 + below(&w, 300));
				pid[i] = rig_spawn(attack, &seed);
				seed++;
			}
		}
		clock_sleep_ns(1000000); /* the attackers' times have this resolution */
	}
	for (unsigned i = 0; i < ATTACKERS; i++) {
		kill(pid[i], SIGKILL);
		rig_wait(pid[i]);
	}
	return seed;
}

static void random_messages_from_any_client(void **state)
{
	struct soft_stats before = rig_stats_idle(), after;
	uint64_t seed = setting("GBPF_WILD_SEED", 1), last;
	uint64_t end = clock_now_ns() + setting("GBPF_WILD_S", 6) * 1000000000u;
	struct record *rec = mmap(NULL, sizeof(*rec) * HONEST, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[HONEST];

	(void)state;
	assert_true(rec != MAP_FAILED);
	open_market();
	for (unsigned i = 0; i < HONEST; i++) {
		pid[i] = rig_spawn(honest, &rec[i]);
	}
	last = besiege(seed, end, rec);
	close_market();
	for (unsigned i = 0; i < HONEST; i++) {
		store_relaxed(&rec[i].stop, 1u);
		assert_int_equal(rig_wait(pid[i]), 0);
		print_message("honest: %llu rounds, the longest %llu us\n",
			      (unsigned long long)rec[i].rounds,
			      (unsigned long long)rec[i].worst_ns / 1000);
	}
	/* Some descriptors, and what they refer to, are released a moment after their last holder
	 * exits. */
	eventually((after = rig_stats_idle(),
		    after.shares == 0 && after.descriptors <= before.descriptors + 1));
	print_message("seeds %llu to %llu; %llu dropped for what they sent\n",
		      (unsigned long long)seed, (unsigned long long)last,
		      (unsigned long long)(after.refused - before.refused));
	assert_int_equal(after.contexts, 0);
	assert_int_equal(after.streams, 0);
	assert_int_equal(after.modules, 0);
	assert_int_equal(after.functions, 0);
	assert_int_equal(after.memory_used, before.memory_used);
	assert_int_equal(after.pinned_used, before.pinned_used);
	assert_int_equal(after.blocks_resident, 0);
	assert_int_equal(after.shares, 0);
	assert_in_range(after.descriptors, 1, before.descriptors + 1); /* the janitor thread's */
	munmap(rec, sizeof(*rec) * HONEST);
}

static int start(void **state)
{
	const char *const args[] = { "--mem", "256M", NULL };

	(void)state;
	rig_open();
	rig_start(args);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_messages_from_any_client),
	};

	return cmocka_run_group_tests_name("soft wild", tests, start, rig_end);
}

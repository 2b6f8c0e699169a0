/* Contexts, streams and events that end while records, notices and other clients still name them:
 * the server releases its lock in the middle of such an end, and reads the ring later than
 * requests. Clients that respect the protocol are served as if everything happened in order. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"
#include "raw.h"

#define COPY_BYTES_S "8K" /* a part of a copy takes half a second */

static uint32_t done(const struct raw *c, uint32_t slot)
{
	return load_acquire(&c->shared->streams[slot].done);
}

static void await_taken(const struct raw *c)
{
	eventually(load_acquire(&c->shared->tail) == c->head);
}

static void send_request(const struct raw *c, struct soft_request q)
{
	assert_int_equal(msg_send(c->sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
}

static CUresult reply(struct raw *c)
{
	struct pollfd p = { .fd = c->sock, .events = POLLIN };
	int fds[FD_PASS_MAX];
	unsigned n;

	assert_int_equal(poll(&p, 1, EVENTUALLY_MS), 1);
	assert_true(msg_recv(c->sock, &c->r, sizeof(c->r), fds, &n) >= (ssize_t)SOFT_REPLY_MIN);
	return (CUresult)c->r.result;
}

static const struct soft_gpu_info *gpu(struct raw *c)
{
	raw_must(c, (struct soft_request){ .op = SOFT_REQ_GPUS });
	return &c->r.gpu;
}

static void put_value(struct raw *c, const struct soft_record *at, uint64_t address, uint32_t mode)
{
	struct soft_record_value v = {
		.r = { .op = SOFT_OP_VALUE, .context = at->context, .stream = at->stream },
		.address = address,
		.value = 1,
		.unit = 4,
		.mode = mode
	};

	raw_put(c, &v, sizeof(v));
}

static void put_shared(struct raw *c, uint32_t stream, uint16_t op, const struct raw *event)
{
	struct soft_record_shared s = { .r = { .op = op, .stream = stream },
					.key = event->r.value,
					.index = event->r.value32,
					.ticket = 1 };

	raw_put(c, &s, sizeof(s));
}

static void put_host(struct raw *c, uint32_t stream, uint64_t cookie)
{
	struct soft_record_host h = { .r = { .op = SOFT_OP_HOST, .stream = stream },
				      .cookie = cookie };

	raw_put(c, &h, sizeof(h));
}

/* Passes an operation through another stream of context 0, so that its streams are looked at. */
static void look_again(struct raw *c, uint32_t stream)
{
	struct soft_record_wait w = { .r = { .op = SOFT_OP_WAIT, .stream = stream },
				      .stream = stream };
	uint32_t before = done(c, stream);

	raw_put(c, &w, sizeof(w));
	raw_await_word(&c->shared->streams[stream].done, before + 1);
}

/* While a context's destruction waits for a part of a copy, another of its streams is destroyed. It
 * ends with the context, so the slot can be used in another context at once; and the count of the
 * stream with the copy does not run ahead. */
static void a_stream_ends_in_a_context_that_ends(void **state)
{
	enum { BYTES = 1 << 20 };
	struct soft_record_set set = {
		.r = { .op = SOFT_OP_SET, .stream = 1 }, .width = BYTES, .height = 1, .unit = 1
	};
	struct soft_record_stream end = { .r = { .op = SOFT_OP_STREAM_DESTROY, .stream = 2 } };
	struct raw c, other;
	uint64_t before;
	uint32_t ahead;

	(void)state;
	raw_open(&other, 0);
	raw_open(&c, 2);
	set.dst = raw_must(&c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = BYTES });
	raw_make_stream(&c, 0, 1);
	raw_make_stream(&c, 0, 2);
	raw_put(&c, &set, sizeof(set));
	before = gpu(&other)->bytes_copied;
	eventually(gpu(&other)->bytes_copied > before); /* the next part has begun */
	send_request(&c, (struct soft_request){ .op = SOFT_REQ_CONTEXT_DESTROY });
	eventually(gpu(&other)->groups == 1); /* the destruction has begun */
	put_value(&c, &set.r, set.dst, SOFT_VALUE_WRITE);
	raw_put(&c, &end, sizeof(end));
	await_taken(&c);
	ahead = done(&c, 1);
	assert_true(ahead == 1 || rig_stats().contexts == 1);
	raw_await_word(&c.shared->streams[2].done, 2);
	raw_make_stream(&c, 1, 2);
	raw_await_word(&c.shared->streams[2].done, 3);
	assert_int_equal(reply(&c), 0);
	assert_int_equal(done(&c, 1), 3);
	raw_close(&c);
	raw_close(&other);
	assert_int_equal(rig_stats_idle().streams, 0);
	assert_int_equal(rig_stats().refused, 0);
}

/* Memory is freed during a memset, which does not continue in the next allocation there. */
static void a_memset_ends_with_its_memory(void **state)
{
	enum { BYTES = 1 << 20 };
	struct soft_request alloc = { .op = SOFT_REQ_ALLOC, .value = BYTES };
	struct soft_record_set set = {
		.r = { .op = SOFT_OP_SET, .stream = 1 }, .width = BYTES, .height = 1, .unit = 1
	};
	struct raw c, other;
	uint64_t before;

	(void)state;
	raw_open(&other, 0);
	raw_open(&c, 1);
	set.dst = raw_must(&c, alloc);
	raw_make_stream(&c, 0, 1);
	before = gpu(&other)->bytes_copied;
	raw_put(&c, &set, sizeof(set));
	eventually(gpu(&other)->bytes_copied > before);
	raw_must(&c, (struct soft_request){ .op = SOFT_REQ_FREE, .value = set.dst });
	assert_int_equal(raw_must(&c, alloc), set.dst);
	before = gpu(&other)->bytes_copied;
	eventually(gpu(&other)->bytes_copied > before || load_acquire(&c.shared->context_error[0]));
	(void)gpu(&other); /* the lock has been released since */
	assert_int_equal(load_acquire(&c.shared->context_error[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
	raw_await_word(&c.shared->streams[1].done, 2);
	raw_close(&c);
	raw_close(&other);
	assert_int_equal(rig_stats_idle().refused, 0);
}

/* Fills the queue of the client with stream 1 of the context, which waits until the returned word
 * is 1, and then half of the ring. The server reads no more of it until the stream continues. */
static uint32_t *fill_ring(struct raw *c, uint16_t context)
{
	struct soft_request q = { .op = SOFT_REQ_ALLOC,
				  .context = context,
				  .object = SOFT_MEMORY_PINNED,
				  .value = 4096 };
	struct soft_record_event r = {
		.r = { .op = SOFT_OP_RECORD, .context = context, .stream = 1 }
	};
	int fds[FD_PASS_MAX];
	uint32_t *flag;

	assert_true(raw_ask(c, &q, fds));
	assert_int_equal(c->r.result, 0);
	flag = shm_map(fds[0], 4096, 1);
	assert_non_null(flag);
	close(fds[0]);
	raw_make_stream(c, context, 1);
	put_value(c, &r.r, c->r.value, SOFT_VALUE_EQ);
	for (unsigned i = 0; i < SOFT_MAX_QUEUED; i++) {
		r.count++;
		raw_put(c, &r, sizeof(r));
	}
	eventually(c->head - load_acquire(&c->shared->tail) <= 4 * sizeof(r));
	while (c->head - load_acquire(&c->shared->tail) < SOFT_RING_BYTES / 2) {
		r.count++;
		raw_put(c, &r, sizeof(r));
	}
	return flag;
}

/* Records that the server has not read when their context ends are not taken for those of the next
 * context in its slot. */
static void a_context_begins_where_another_ended(void **state)
{
	uint32_t *flag;
	struct raw c;

	(void)state;
	raw_open(&c, 2);
	raw_make_stream(&c, 0, 2);
	flag = fill_ring(&c, 1);
	raw_make_stream(&c, 0, 3);
	put_host(&c, 2, 1);
	raw_must(&c, (struct soft_request){ .op = SOFT_REQ_CONTEXT_DESTROY });
	raw_must(&c, (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE });
	assert_int_equal(c.r.context.slot, 0);
	assert_int_not_equal(load_acquire(&c.shared->tail), c.head);
	store_release(flag, 1u);
	raw_await_word(&c.shared->streams[2].done, 2);
	raw_await_word(&c.shared->streams[3].done, 1);
	raw_make_stream(&c, 0, 3);
	raw_await_word(&c.shared->streams[3].done, 2);
	assert_int_equal(rig_stats().streams, 2);
	shm_unmap(flag, 4096);
	raw_close(&c);
	assert_int_equal(rig_stats_idle().refused, 0);
}

static void open_event(struct raw *owner, struct raw *user)
{
	struct soft_request q = { .op = SOFT_REQ_EVENT, .object = SOFT_EVENT_CREATE };
	struct soft_reply event;

	raw_must(owner, q);
	event = owner->r;
	q = (struct soft_request){ .op = SOFT_REQ_EVENT,
				   .object = SOFT_EVENT_OPEN,
				   .index = event.value32,
				   .value = event.value };
	raw_must(user, q);
	owner->r = user->r = event;
}

static void event_request(struct raw *c, enum soft_event_verb verb)
{
	struct soft_reply event = c->r;

	raw_must(c, (struct soft_request){ .op = SOFT_REQ_EVENT,
					   .object = verb,
					   .index = event.value32,
					   .value = event.value });
	c->r = event;
}

/* A stream waits for an event of which its process has closed its handle. */
static void a_wait_outlives_the_handle_of_its_event(void **state)
{
	struct raw a, b;

	(void)state;
	raw_open(&a, 1);
	raw_open(&b, 1);
	open_event(&a, &b);
	raw_make_stream(&a, 0, 1);
	raw_make_stream(&a, 0, 2);
	raw_make_stream(&b, 0, 1);
	event_request(&b, SOFT_EVENT_ISSUE);
	put_shared(&a, 1, SOFT_OP_SHARED_WAIT, &a);
	await_taken(&a);
	event_request(&a, SOFT_EVENT_CLOSE);
	look_again(&a, 2);
	assert_int_equal(done(&a, 1), 1);
	put_shared(&b, 1, SOFT_OP_SHARED_RECORD, &b);
	raw_await_word(&a.shared->streams[1].done, 2);
	raw_close(&a);
	raw_close(&b);
	assert_int_equal(rig_stats_idle().refused, 0);
}

/* The same for a wait that the server has not read yet. */
static void an_unread_wait_outlives_the_handle_of_its_event(void **state)
{
	uint32_t *flag;
	struct raw a, b;

	(void)state;
	raw_open(&a, 1);
	raw_open(&b, 1);
	raw_make_stream(&a, 0, 2);
	raw_make_stream(&b, 0, 1);
	flag = fill_ring(&a, 0);
	open_event(&a, &b);
	event_request(&b, SOFT_EVENT_ISSUE);
	put_shared(&a, 2, SOFT_OP_SHARED_WAIT, &a);
	raw_make_stream(&a, 0, 3);
	event_request(&a, SOFT_EVENT_CLOSE);
	assert_int_not_equal(load_acquire(&a.shared->tail), a.head);
	store_release(flag, 1u);
	await_taken(&a);
	look_again(&a, 3);
	assert_int_equal(done(&a, 2), 1);
	put_shared(&b, 1, SOFT_OP_SHARED_RECORD, &b);
	raw_await_word(&a.shared->streams[2].done, 2);
	shm_unmap(flag, 4096);
	raw_close(&a);
	raw_close(&b);
	assert_int_equal(rig_stats_idle().refused, 0);
}

/* A record is reached when its stream reaches it, even if the process has closed the event. */
static void a_record_outlives_the_handle_of_its_event(void **state)
{
	struct raw a, b;
	uint64_t flag;

	(void)state;
	raw_open(&a, 1);
	raw_open(&b, 1);
	flag = raw_must(&a, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = 4096 });
	open_event(&a, &b);
	raw_make_stream(&a, 0, 1);
	raw_make_stream(&a, 0, 2);
	raw_make_stream(&b, 0, 1);
	raw_make_stream(&b, 0, 2);
	event_request(&a, SOFT_EVENT_ISSUE);
	put_value(&a, &(struct soft_record){ .stream = 1 }, flag, SOFT_VALUE_EQ);
	put_shared(&a, 1, SOFT_OP_SHARED_RECORD, &a);
	await_taken(&a);
	put_shared(&b, 1, SOFT_OP_SHARED_WAIT, &b);
	await_taken(&b);
	event_request(&a, SOFT_EVENT_CLOSE);
	look_again(&b, 2);
	assert_int_equal(done(&b, 1), 1);
	put_value(&a, &(struct soft_record){ .stream = 2 }, flag, SOFT_VALUE_WRITE);
	raw_await_word(&b.shared->streams[1].done, 2);
	raw_close(&a);
	raw_close(&b);
	assert_int_equal(rig_stats_idle().refused, 0);
}

static void await_notice(const struct raw *c, uint64_t cookie)
{
	struct pollfd p = { .fd = c->event, .events = POLLIN };
	int fds[FD_PASS_MAX];
	struct soft_notice n;
	unsigned n_fds;

	assert_int_equal(poll(&p, 1, EVENTUALLY_MS), 1);
	assert_true(msg_recv(c->event, &n, sizeof(n), fds, &n_fds) > 0);
	assert_int_equal(n.op, SOFT_NOTICE_HOST);
	assert_int_equal(n.cookie, cookie);
}

static void send_done(const struct raw *c, uint32_t stream)
{
	struct soft_notice n = { .op = SOFT_NOTICE_HOST_DONE, .stream = stream };

	assert_int_equal(msg_send(c->event, &n, offsetof(struct soft_notice, text), NULL, 0), 0);
}

/* A host function ends after its context: this does not end that of the next stream in its slot. */
static void a_host_function_outlives_its_stream(void **state)
{
	struct raw c;

	(void)state;
	raw_open(&c, 1);
	raw_make_stream(&c, 0, 1);
	put_host(&c, 1, 11);
	await_notice(&c, 11);
	raw_must(&c, (struct soft_request){ .op = SOFT_REQ_CONTEXT_DESTROY });
	raw_must(&c, (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE });
	raw_make_stream(&c, 0, 1);
	raw_make_stream(&c, 0, 2);
	put_host(&c, 1, 12);
	await_notice(&c, 12);
	assert_int_equal(done(&c, 1), 3);
	send_done(&c, 1);
	/* The client's thread takes the notice before the next request. */
	raw_must(&c, (struct soft_request){ .op = SOFT_REQ_MEMORY });
	look_again(&c, 2);
	assert_int_equal(done(&c, 1), 3);
	send_done(&c, 1);
	raw_await_word(&c.shared->streams[1].done, 4);
	raw_close(&c);
	assert_int_equal(rig_stats_idle().refused, 0);
}

/* Loads the module of the test rig into context 0. Returns the number of its kernel that faults. */
static uint32_t load_fault(struct raw *c)
{
	struct soft_request q = { .op = SOFT_REQ_FUNCTION };
	size_t n = strlen(rig_ptx) + 1;
	int fd = shm_create("image", n, SHM_NOEXEC);

	assert_true(fd >= 0 && pwrite(fd, rig_ptx, n, 0) == (ssize_t)n);
	assert_int_equal(msg_send(c->sock, &(struct soft_request){ .op = SOFT_REQ_MODULE_LOAD },
				  SOFT_REQUEST_MIN + 1, &fd, 1),
			 0);
	assert_int_equal(reply(c), 0);
	close(fd);
	q.object = c->r.value32;
	snprintf(q.name, sizeof(q.name), "wild");
	assert_int_equal(msg_send(c->sock, &q, SOFT_REQUEST_MIN + strlen(q.name) + 1, NULL, 0), 0);
	assert_int_equal(reply(c), 0);
	return c->r.function.id;
}

/* Lets the server open no further file, or as many as before. */
static void refuse_files(bool on)
{
	struct rlimit l;

	assert_int_equal(prlimit((__pid_t)rig_server, RLIMIT_NOFILE, NULL, &l), 0);
	l.rlim_cur = on ? 3 : l.rlim_max;
	assert_int_equal(prlimit((__pid_t)rig_server, RLIMIT_NOFILE, &l, NULL), 0);
}

/* The server lacks memory or files for contexts of a client, and gives back what they have got,
 * while a fault fails all contexts of its lane. */
static void a_context_is_refused_while_its_lane_fails(void **state)
{
	enum { ROUNDS = 40, REFUSED = 100, LANE = 7 };
	struct soft_record_launch l = { .r = { .op = SOFT_OP_LAUNCH, .stream = 1 },
					.grid = { 1, 1, 1 },
					.block = { 1, 1, 1 } };
	struct raw a, b;

	(void)state;
	raw_open_in(&a, LANE, 0);
	raw_open_in(&b, LANE, 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		raw_must(&a, (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE });
		l.function = load_fault(&a);
		raw_make_stream(&a, 0, 1);
		await_taken(&a);
		refuse_files(true);
		for (unsigned i = 0; i < REFUSED; i++) {
			send_request(&b, (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE });
			if (i == REFUSED / 2) {
				raw_put(&a, &l, sizeof(l));
			}
		}
		for (unsigned i = 0; i < REFUSED; i++) {
			assert_int_equal(reply(&b), CUDA_ERROR_OUT_OF_MEMORY);
		}
		raw_await_word(&a.shared->context_error[0], 1);
		assert_int_equal(load_acquire(&b.shared->context_error[0]), 0);
		refuse_files(false);
		raw_must(&a, (struct soft_request){ .op = SOFT_REQ_CONTEXT_DESTROY });
	}
	raw_close(&a);
	raw_close(&b);
	assert_int_equal(rig_stats_idle().refused, 0);
}

static int begin_slow(void **state)
{
	(void)state;
	rig_open();
	rig_start((const char *const[]){ "--mem", "64M", "--copy-bandwidth", COPY_BYTES_S, NULL });
	return 0;
}

int main(void)
{
	const struct CMUnitTest slow[] = {
		cmocka_unit_test(a_stream_ends_in_a_context_that_ends),
		cmocka_unit_test(a_memset_ends_with_its_memory),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_context_begins_where_another_ended),
		cmocka_unit_test(a_wait_outlives_the_handle_of_its_event),
		cmocka_unit_test(an_unread_wait_outlives_the_handle_of_its_event),
		cmocka_unit_test(a_record_outlives_the_handle_of_its_event),
		cmocka_unit_test(a_host_function_outlives_its_stream),
		cmocka_unit_test(a_context_is_refused_while_its_lane_fails),
	};

	return cmocka_run_group_tests_name("soft endings, slow copies", slow, begin_slow, rig_end) +
	       cmocka_run_group_tests_name("soft endings", tests, rig_begin_small, rig_end);
}

/* A client of the soft GPU's server that writes its own records and requests, past the checks of
 * the client library. */
#ifndef GBPF_TESTS_SOFT_RAW_H
#define GBPF_TESTS_SOFT_RAW_H

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"
#include "rig.h"

#include "../eventually.h"

struct raw {
	struct soft_shared *shared;
	int sock, bell, event;
	uint32_t head;
	struct soft_reply r;
};

/* Sends a request. Returns false if no reply arrives. */
static inline bool raw_ask(struct raw *c, struct soft_request *q, int fds[FD_PASS_MAX])
{
	struct pollfd p = { .fd = c->sock, .events = POLLIN };
	unsigned n;

	assert_int_equal(msg_send(c->sock, q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
	if (poll(&p, 1, EVENTUALLY_MS) != 1) {
		return false;
	}
	assert_true(msg_recv(c->sock, &c->r, sizeof(c->r), fds, &n) >= (ssize_t)SOFT_REPLY_MIN);
	return true;
}

static inline uint64_t raw_must(struct raw *c, struct soft_request q)
{
	int fds[FD_PASS_MAX];

	assert_true(raw_ask(c, &q, fds));
	assert_int_equal(c->r.result, 0);
	return c->r.value;
}

/* lane: key of a shared lane, 0 for lanes of its own. */
static inline void raw_open_in(struct raw *c, uint64_t lane, unsigned contexts)
{
	struct soft_request q = { .op = SOFT_REQ_HELLO, .object = SOFT_VERSION, .value = lane };
	int fds[FD_PASS_MAX];

	memset(c, 0, sizeof(*c));
	c->sock = rig_connect();
	assert_true(raw_ask(c, &q, fds));
	c->shared = shm_map(fds[0], sizeof(*c->shared), 1);
	assert_non_null(c->shared);
	close(fds[0]);
	c->event = fds[1];
	c->bell = fds[2];
	for (unsigned i = 0; i < contexts; i++) {
		raw_must(c, (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE });
	}
}

static inline void raw_open(struct raw *c, unsigned contexts)
{
	raw_open_in(c, 0, contexts);
}

static inline void raw_close(struct raw *c)
{
	close(c->sock);
	close(c->bell);
	close(c->event);
	shm_unmap(c->shared, sizeof(*c->shared));
}

static inline void raw_put(struct raw *c, void *record, uint32_t bytes)
{
	struct soft_record *r = record;
	uint64_t one = 1;

	r->bytes = bytes;
	memcpy(c->shared->ring + c->head % SOFT_RING_BYTES, record, bytes);
	c->head += bytes;
	store_seqcst(&c->shared->head, c->head);
	assert_int_equal(write(c->bell, &one, sizeof(one)), sizeof(one));
}

static inline void raw_make_stream(struct raw *c, uint16_t context, uint32_t slot)
{
	struct soft_record_stream s = {
		.r = { .op = SOFT_OP_STREAM_CREATE, .context = context, .stream = slot },
		.flags = SOFT_STREAM_NON_BLOCKING
	};

	raw_put(c, &s, sizeof(s));
}

static inline void raw_await_word(const uint32_t *word, uint32_t from)
{
	eventually(load_acquire(word) >= from);
}

#endif

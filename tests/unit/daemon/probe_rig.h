/* Callers of probe.attach and others that wait in threads of their own while the test plays the
 * sessions, and the sessions' part of the messages. */
#ifndef GBPF_TESTS_DAEMON_PROBE_RIG_H
#define GBPF_TESTS_DAEMON_PROBE_RIG_H

#include "harness.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/shm.h"

#include "../eventually.h"
#include "../users.h"

#define FIRST_VERSION (UINT64_C(1) << 48)

/* A call in a thread: an attach if object is set, else method with params. */
struct caller {
	pthread_t thread;
	struct gbpf *g;
	const char *object, *method, *params;
	struct gbpf_probe probe;
	int err;
	json_t *result; /* owned */
};

static inline void *caller_run(void *arg)
{
	struct caller *c = arg;
	struct buf elf = { 0 };
	char *text = NULL;

	if (c->object) {
		c->err = buf_read_file(&elf, gd_object(c->object), 16u << 20);
		c->err = c->err ? c->err
				: gbpf_probe_attach(c->g, elf.data, elf.len, &c->probe, &text);
	} else {
		c->err = gbpf_call(c->g, c->method, c->params, -1, &text);
	}
	c->result = c->err ? NULL : json_loads(text, 0, NULL);
	buf_finish(&elf);
	free(text);
	return NULL;
}

static inline void caller_start(struct caller *c, struct gd *d)
{
	c->g = c->g ? c->g : gd_open(d);
	c->probe.size = sizeof(c->probe);
	c->probe.name = c->probe.name ? c->probe.name : "blocks";
	assert_int_equal(pthread_create(&c->thread, NULL, caller_run, c), 0);
}

/* Waits for the answer, which must be a result. */
static inline json_t *caller_result(struct caller *c)
{
	pthread_join(c->thread, NULL);
	if (c->err) {
		fail_msg("%s", gbpf_last_error(c->g)->message);
	}
	return c->result;
}

/* Waits for the answer, which must be an error with this code, and whose text has `what`. */
static inline void caller_fails(struct caller *c, int exit_code, const char *what)
{
	const struct gbpf_error *e;

	pthread_join(c->thread, NULL);
	assert_true(c->err < 0);
	e = gbpf_last_error(c->g);
	if (e->exit != exit_code || !(strstr(e->message, what) || strstr(e->hint, what))) {
		fail_msg("%d %s (%s)", e->exit, e->message, e->hint);
	}
}

static inline void caller_finish(struct caller *c)
{
	gbpf_close(c->g);
	json_decref(c->result);
	c->g = NULL;
	c->result = NULL;
}

static inline json_int_t number(const json_t *j, const char *name)
{
	assert_true(json_is_integer(json_object_get(j, name)));
	return json_integer_value(json_object_get(j, name));
}

static inline const char *text_of(const json_t *j, const char *name)
{
	assert_true(json_is_string(json_object_get(j, name)));
	return json_string_value(json_object_get(j, name));
}

/* ---- the session's part ---- */

/* Receives PROBE. *ret_region: the tenant's memory, mapped; NULL: not wanted. */
static inline struct proto_probe expect_probe(struct fake *f, uint64_t **ret_region)
{
	union proto_message m;
	int fds[8];
	unsigned n;

	assert_int_equal(fake_receive(f, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_PROBE);
	assert_true(m.probe.regions & PROTO_REGION_TENANT); /* the last descriptor */
	assert_int_equal(n, m.probe.regions & PROTO_REGION_GLOBAL ? 3 : 2);
	if (ret_region) {
		*ret_region = shm_map(fds[n - 1], 4096, 1);
		assert_non_null(*ret_region);
	}
	for (unsigned i = 0; i < n; i++) {
		close(fds[i]);
	}
	return m.probe;
}

static inline void send_state(struct fake *f, uint64_t version, int status, uint32_t kernels,
			      uint32_t waiting, const char *why)
{
	union proto_message m = { 0 };

	m.probe_state.version = version;
	m.probe_state.status = status;
	m.probe_state.kernels = kernels;
	m.probe_state.waiting = waiting;
	m.probe_state.refused = why != NULL;
	snprintf(m.probe_state.why, sizeof(m.probe_state.why), "%s", why ? why : "");
	fake_send(f, &m, PROTO_PROBE_STATE);
}

/* Receives an order about a tool; returns its number. */
static inline uint64_t expect_order(struct fake *f, enum proto_type type, uint64_t version)
{
	union proto_message m;

	assert_int_equal(fake_expect(f, &m, type), -1);
	assert_int_equal(m.probe_order.version, version);
	return m.probe_order.number;
}

static inline void send_order(struct fake *f, enum proto_type type, uint64_t version,
			      uint64_t order)
{
	union proto_message m = { 0 };

	m.probe_order.version = version;
	m.probe_order.number = order;
	fake_send(f, &m, type);
}

/* Attaches an object while this session, if any, runs one kernel with it. Returns the version. */
static inline uint64_t attach(struct gd *d, const char *object, struct fake *f, uint64_t **region)
{
	struct caller c = { .object = object };
	uint64_t version;

	caller_start(&c, d);
	if (f) {
		send_state(f, expect_probe(f, region).version, 0, 1, 0, NULL);
	}
	version = (uint64_t)number(caller_result(&c), "version");
	caller_finish(&c);
	return version;
}

/* Waits until gbpfd has handled what the session has sent so far: its sockets are read in order. */
static inline void handled(struct gd *d, struct fake *f)
{
	static unsigned n;
	union proto_message m = { 0 };

	snprintf(m.note.what, sizeof(m.note.what), "mark");
	snprintf(m.note.text, sizeof(m.note.text), "handled %u.", ++n);
	fake_send(f, &m, PROTO_NOTE);
	gd_await_event(d, 0, "mark", m.note.text);
}

/* Returns the tool of that number as probe.list shows it, or NULL; the caller frees *ret_list. */
static inline json_t *listed(struct gd *d, json_int_t id, json_t **ret_list)
{
	json_t *list = gd_call(d, "probe.list", NULL), *p;
	size_t i;

	*ret_list = list;
	json_array_foreach(json_object_get(list, "probes"), i, p)
	{
		if (number(p, "id") == id) {
			return p;
		}
	}
	return NULL;
}

static inline bool is_listed(struct gd *d, json_int_t id)
{
	json_t *list;
	bool found = listed(d, id, &list) != NULL;

	json_decref(list);
	return found;
}

static inline void await_gone(struct gd *d, json_int_t id)
{
	eventually(!is_listed(d, id));
}

#endif

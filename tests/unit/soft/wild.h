/* A client of test_wild.c: its state, its random numbers, requests and the ring. */
#ifndef GBPF_TESTS_SOFT_WILD_H
#define GBPF_TESTS_SOFT_WILD_H

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "../eventually.h"
#include "rig.h"

#define ADDRESSES 32u

struct wild {
	uint64_t seed;
	struct soft_shared *shared;
	int sock, bell, event;
	uint32_t head;
	unsigned contexts;
	unsigned tame; /* the larger, the longer it follows the protocol */
	uint32_t function[8], n_functions;
	uint64_t address[ADDRESSES];
	unsigned n_addresses;
	uint64_t key;
	uint32_t key_index;
	int token, control;
	int odd[8];
	struct soft_reply r;
	uint32_t fresh; /* stream slots used for contexts that end */
};

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
	".extern .func (.param .b64 r) malloc(.param .b64 a);\n"
	".extern .func free(.param .b64 a);\n"
	".global .align 1 .b8 f[] = {37,51,49,117,10,0};\n"
	".visible .entry say(.param .u64 n)\n{\n"
	"	.local .align 8 .b8 v[8];\n	.reg .b64 %q<6>; .reg .b32 %r<4>;\n"
	"	mov.u64 %q0, v; cvta.local.u64 %q1, %q0; mov.u32 %r1, 7; st.local.u32 [%q0], %r1;\n"
	"	mov.u64 %q2, f;\n"
	"	{ .param .b64 a; .param .b64 b; .param .b32 c;\n"
	"	st.param.b64 [a], %q2; st.param.b64 [b], %q1;\n"
	"	call.uni (c), vprintf, (a, b); }\n	ret;\n}\n"
	".visible .entry take(.param .u64 n)\n{\n"
	"	.reg .b64 %q<6>;\n	ld.param.u64 %q1, [n];\n"
	"	{ .param .b64 a; .param .b64 b; st.param.b64 [a], %q1;\n"
	"	call.uni (b), malloc, (a); ld.param.b64 %q2, [b]; }\n"
	"	{ .param .b64 a; st.param.b64 [a], %q1; call.uni free, (a); }\n	ret;\n}\n"
	".visible .entry poke(.param .u64 n)\n{\n"
	"	.reg .b64 %q<6>;\n	ld.param.u64 %q1, [n]; st.global.u64 [%q1], %q1;\n"
	"	ld.global.u64 %q2, [%q1]; st.global.u64 [%q1], %q2; ret;\n}\n"
	".visible .entry turn(.param .u64 n)\n{\n"
	"	.reg .b32 %r<4>; .reg .pred %p;\n	ld.param.u32 %r1, [n];\n"
	"AGAIN:\n	bar.sync 0; sub.u32 %r1, %r1, 1; setp.ne.u32 %p, %r1, 0;\n"
	"	@%p bra AGAIN;\n	ret;\n}\n"
	".visible .entry until(.param .u64 n)\n{\n"
	"	.reg .b64 %q<6>; .reg .pred %p;\n	ld.param.u64 %q1, [n];\n"
	"AGAIN:\n	ld.volatile.global.u64 %q2, [%q1]; setp.eq.u64 %p, %q2, 0;\n"
	"	@%p bra AGAIN;\n	ret;\n}\n";
static const char *const kernels[] = { "say", "take", "poke", "turn", "until" };

static inline uint64_t draw(struct wild *w)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return w->seed;
}

static inline uint32_t below(struct wild *w, uint32_t n)
{
	return (uint32_t)((draw(w) >> 20) % n);
}

static inline bool one_in(struct wild *w, uint32_t n)
{
	return below(w, n) == 0;
}

static inline bool rarely(struct wild *w, uint32_t n)
{
	return one_in(w, n * w->tame);
}

/* Returns a boundary value. */
static inline uint64_t edge(struct wild *w)
{
	static const uint64_t some[] = { 0, INT32_MAX, UINT32_MAX, UINT64_MAX, SOFT_WINDOW_FIRST };

	switch (below(w, 8)) {
	case 0:
		return draw(w);
	case 1:
	case 2:
		return some[below(w, ARRAY_SIZE(some))];
	default: /* near a power of two */
		return (1ull << below(w, 64)) + below(w, 3) - 1;
	}
}

static inline uint64_t number(struct wild *w, uint32_t usual)
{
	return rarely(w, 12) ? edge(w) : below(w, usual);
}

static inline uint64_t address(struct wild *w)
{
	uint64_t a = w->n_addresses ? w->address[below(w, w->n_addresses)] : SOFT_WINDOW_FIRST;

	return rarely(w, 10) ? edge(w) : a + (one_in(w, 3) ? below(w, 8192) & ~7u : 0);
}

static inline bool send_request(struct wild *w, const struct soft_request *q, int fd)
{
	w->r.result = -1;
	return msg_send(w->sock, q, SOFT_REQUEST_MIN + strlen(q->name) + 1, &fd, fd >= 0) >= 0;
}

/* Returns false if the server has dropped this client. */
static inline bool receive_reply(struct wild *w, const struct soft_request *q)
{
	int fds[FD_PASS_MAX];
	struct pollfd p = { .fd = w->sock, .events = POLLIN };
	unsigned n;

	if (poll(&p, 1, EVENTUALLY_MS) != 1 ||
	    msg_recv(w->sock, &w->r, sizeof(w->r), fds, &n) <= 0) {
		return false;
	}
	for (unsigned i = 0; i < n; i++) {
		if (q->op == SOFT_REQ_HELLO && n == 3) {
			*(i == 0 ? &w->odd[7] : i == 1 ? &w->event : &w->bell) = fds[i];
		} else if (q->op == SOFT_REQ_CONTROL_OPEN && w->control < 0) {
			w->control = fds[i];
		} else if ((q->op == SOFT_REQ_HANDLE_EXPORT || q->op == SOFT_REQ_POOL_EXPORT) &&
			   w->token < 0) {
			w->token = fds[i];
		} else {
			close(fds[i]);
		}
	}
	return true;
}

static inline bool ask(struct wild *w, const struct soft_request *q, int fd)
{
	return send_request(w, q, fd) && receive_reply(w, q);
}

static inline int image(const char *text, size_t n)
{
	int fd = shm_create("image", n, SHM_NOEXEC);

	return fd >= 0 && pwrite(fd, text, n, 0) == (ssize_t)n ? fd : -1;
}

static inline void make_odd(struct wild *w)
{
	int pair[2];

	w->odd[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	w->odd[1] = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	w->odd[2] = memfd_create("loose", MFD_CLOEXEC);
	CHECK(ftruncate(w->odd[2], 65536) == 0);
	w->odd[3] = image(ptx, sizeof(ptx));
	w->odd[4] = shm_create("page", SOFT_PAGE, SHM_NOEXEC);
	CHECK(pipe(pair) == 0);
	w->odd[5] = pair[1];
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	w->odd[6] = pair[0];
	w->odd[7] = -1; /* place of the shared page */
	w->token = w->control = -1;
}

/* Loads the kernels into a context. */
static inline bool load_module(struct wild *w, uint32_t context)
{
	struct soft_request q = { .op = SOFT_REQ_MODULE_LOAD, .context = context };

	if (!ask(w, &q, w->odd[3])) {
		return false;
	}
	q = (struct soft_request){ .op = SOFT_REQ_FUNCTION, .object = w->r.value32 };
	for (unsigned i = 0; i < ARRAY_SIZE(kernels) && !w->r.result; i++) {
		snprintf(q.name, sizeof(q.name), "%s", kernels[i]);
		if (!ask(w, &q, -1)) {
			return false;
		}
		w->function[i] = w->r.function.id;
		w->n_functions = ARRAY_SIZE(kernels);
	}
	return true;
}

static inline bool begin(struct wild *w)
{
	struct soft_request q = { .op = SOFT_REQ_HELLO, .object = SOFT_VERSION };
	char path[96];

	snprintf(path, sizeof(path), "%s/softgpu.sock", rig_dir);
	make_odd(w);
	w->sock = unix_connect(path, SOCK_SEQPACKET);
	if (w->sock < 0 || !ask(w, &q, -1) || w->r.result) {
		return false;
	}
	w->shared = shm_map(w->odd[7], sizeof(*w->shared), 1);
	CHECK(w->shared != NULL);
	w->contexts = 1 + below(w, 4);
	for (unsigned i = 0; i < w->contexts; i++) {
		q = (struct soft_request){ .op = SOFT_REQ_CONTEXT_CREATE };
		if (!ask(w, &q, -1)) {
			return false;
		}
	}
	if (!load_module(w, 0)) {
		return false;
	}
	CHECK(w->r.result == 0);
	return true;
}

static inline void put(struct wild *w, struct soft_record *r, uint32_t bytes)
{
	uint64_t end = clock_now_ns() + 20000000u, one = 1;
	uint32_t at;

	bytes = ROUND_UP(bytes, 16u);
	r->bytes = rarely(w, 400) ? (uint32_t)edge(w) : bytes;
	while (w->head - load_acquire(&w->shared->tail) > SOFT_RING_BYTES - 2 * SOFT_RECORD_MAX) {
		if (clock_now_ns() > end) {
			return; /* its streams wait for values that never arrive */
		}
	}
	at = w->head % SOFT_RING_BYTES & ~15u; /* records are multiples of 16 bytes */
	if (SOFT_RING_BYTES - at < bytes) {
		struct soft_record pad = { .bytes = SOFT_RING_BYTES - at };

		memcpy(w->shared->ring + at, &pad, sizeof(pad));
		w->head += pad.bytes;
		at = 0;
	}
	memcpy(w->shared->ring + at, r, bytes);
	w->head += bytes;
	store_seqcst(&w->shared->head, rarely(w, 2000) ? (uint32_t)edge(w) : w->head);
	if (one_in(w, 3)) {
		(void)!write(w->bell, &one, sizeof(one));
	}
}

#endif

/* Effects of gbpfd's messages once there is a session, and the end of a session. */
#include "shim/session/session_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/point.h"
#include "base/shm.h"
#include "bpf/run/map/map.h"
#include "gpu/flag_lease.h"
#include "shim/fork_lock.h"
#include "shim/object/driver_device.h"

/* Serializes sending and replacing the socket: a note must not be sent to a descriptor that another
 * thread has opened meanwhile. */
static struct lock sock_mutex = LOCK_INITIALIZER(SOCK);

void shim_session_set_sock(struct shim_session *s, int sock)
{
	lock_take(&sock_mutex);
	fd_close(s->sock);
	s->sock = sock;
	lock_release(&sock_mutex);
}

int shim_session_send(struct shim_session *s, union proto_message *m, enum proto_type type,
		      const int *fds, unsigned nfds)
{
	int err = -ENOTCONN;

	lock_take(&sock_mutex);
	if (s->sock >= 0) {
		err = proto_send(s->sock, m, type, fds, nfds);
	}
	lock_release(&sock_mutex);
	return err;
}

const struct shim_session_probes *shim_session_probes;
uint64_t (*shim_session_release)(const struct proto_mem_release *m);
void (*shim_session_give)(struct proto_ipc *m, int fds[PROTO_IPC_CHUNKS]);

/* Returns the bits of the device ordinals that have this number. */
static uint32_t ordinals_of(const struct shim_session *s, uint32_t gpu)
{
	uint32_t bits = gpu == PROTO_EVERY_GPU ? UINT32_MAX : 0;

	for (uint32_t i = 0; i < s->gpus; i++) {
		bits |= s->gpu_index[i] == gpu ? 1u << i : 0;
	}
	return bits;
}

static void keep_region(struct shim_session *s, uint64_t version, uint32_t gpus, int fd)
{
	unsigned i = 0;

	while (i < SHIM_SESSION_REGIONS &&
	       (s->regions[i].version != version || !(s->regions[i].gpus & gpus))) {
		i++;
	}
	if (i == SHIM_SESSION_REGIONS) {
		i = s->next_region++ % SHIM_SESSION_REGIONS;
	}
	fd_close(s->regions[i].fd);
	s->regions[i].version = version;
	s->regions[i].gpus = gpus;
	s->regions[i].fd = fd;
}

static int prepare(struct shim_session *s, union proto_message *m, int fds[8])
{
	uint32_t regions = m->version.regions, gpus = ordinals_of(s, m->version.gpu);
	int region_fds[EBPF_REGIONS] = EBPF_NO_REGIONS;
	unsigned n = 1;

	if (regions & PROTO_REGION_GLOBAL) {
		region_fds[EBPF_REGION_GLOBAL] = fds[n++];
	}
	if (regions & PROTO_REGION_TENANT) {
		region_fds[EBPF_REGION_TENANT] = fds[n];
	}
	POINT("shim.prepare.received");
	m->version.status =
		sched_policy_prepare(s->sched, m->version.version, gpus, fds[0], region_fds);
	if (m->version.status == 0 && regions & PROTO_REGION_TENANT) {
		keep_region(s, m->version.version, gpus, fds[n]);
		fds[n] = -1;
	}
	m->version.regions = 0;
	POINT("shim.prepare.kept");
	return proto_send(s->sock, m, PROTO_PREPARED, NULL, 0) < 0 ? -EPIPE : 0;
}

static void drop(struct shim_session *s, uint64_t version, uint32_t gpus)
{
	POINT("shim.drop.received");
	sched_policy_drop(s->sched, version, gpus);
	POINT("shim.drop.dropped");
	for (unsigned i = 0; i < SHIM_SESSION_REGIONS; i++) {
		if (s->regions[i].version == version && s->regions[i].gpus & gpus) {
			s->regions[i].fd = fd_close(s->regions[i].fd);
			s->regions[i].version = 0;
		}
	}
}

void shim_session_sweep(struct shim_session *s)
{
	if (!s->stale_versions_dropped && sched_policy_sweep(s->sched)) {
		s->stale_versions_dropped = true;
	}
	for (unsigned i = 0; s->stale_versions_dropped && i < SHIM_SESSION_REGIONS; i++) {
		if (s->regions[i].fd >= 0 &&
		    !sched_policy_is_prepared(s->sched, s->regions[i].version,
					      s->regions[i].gpus)) {
			s->regions[i].fd = fd_close(s->regions[i].fd);
			s->regions[i].version = 0;
		}
	}
}

static void remove_board(struct shim_session *s, enum sched_board_kind kind, uint32_t slot)
{
	if (slot < PROTO_MAX_LC && s->boards[kind][slot]) {
		bool unused = sched_board_remove(s->sched, kind, slot);

		POINT("shim.board.removed");
		if (unused) {
			shm_unmap((void *)(uintptr_t)s->boards[kind][slot], PROTO_PAGE_BYTES);
		}
		s->boards[kind][slot] = NULL;
		shim_session_count_slots(s);
	}
}

static void add_board(struct shim_session *s, enum sched_board_kind kind,
		      const struct proto_board_message *b, int fd)
{
	const struct proto_board *page =
		b->slot < PROTO_MAX_LC ? shim_session_map_page(fd, PROTO_PAGE_BYTES, 0) : NULL;

	if (!page) {
		return;
	}
	remove_board(s, kind, b->slot);
	if (sched_board_add(s->sched, kind, b->slot, b->tenant, page) == 0) {
		s->boards[kind][b->slot] = page;
		shim_session_count_slots(s);
		POINT("shim.board.added");
	} else {
		shm_unmap((void *)(uintptr_t)page, PROTO_PAGE_BYTES);
	}
}

/* gbpfd waits for the answer, also to an order that had no effect. */
static int release_memory(struct shim_session *s, union proto_message *m)
{
	m->mem_release.bytes = shim_session_release ? shim_session_release(&m->mem_release) : 0;
	return shim_session_send(s, m, PROTO_MEM_RELEASED, NULL, 0) < 0 ? -EPIPE : 0;
}

/* The same for an order to give chunks. */
static int give_chunks(struct shim_session *s, union proto_message *m)
{
	int fds[PROTO_IPC_CHUNKS], err;
	unsigned n;

	m->ipc.error = ENOENT;
	m->ipc.n = 0;
	if (shim_session_give) {
		shim_session_give(&m->ipc, fds);
	}
	n = m->ipc.n;
	err = shim_session_send(s, m, PROTO_IPC_GIVEN, fds, n);
	shim_session_close_fds(fds, n);
	return err < 0 ? -EPIPE : 0;
}

static int handle(struct shim_session *s, union proto_message *m, int fds[8])
{
	switch (m->head.type) {
	case PROTO_PREPARE:
		return prepare(s, m, fds);
	case PROTO_DROP:
		drop(s, m->version.version, ordinals_of(s, m->version.gpu));
		return 0;
	case PROTO_BOARD_ADD:
		add_board(s, SCHED_BOARD_LATENCY, &m->board, fds[0]);
		return 0;
	case PROTO_BOARD_REMOVE:
		remove_board(s, SCHED_BOARD_LATENCY, m->board.slot);
		gpu_leases_rewrite(shim_device_gpu());
		return 0;
	case PROTO_PEER_ADD:
		sched_set_group(s->sched, m->board.group);
		add_board(s, SCHED_BOARD_PEER, &m->board, fds[0]);
		return 0;
	case PROTO_PEER_REMOVE:
		remove_board(s, SCHED_BOARD_PEER, m->board.slot);
		return 0;
	case PROTO_FLAG_ADD:
		shim_session_flag_add(s, &m->flag, fds[0]);
		return 0;
	case PROTO_FLAG_REMOVE:
		shim_session_flag_remove(s, m->flag.number);
		return 0;
	case PROTO_PROBE:
		if (shim_session_probes) {
			shim_session_probes->attach(s, &m->probe, fds);
		}
		return 0;
	case PROTO_PROBE_END:
		if (shim_session_probes) {
			shim_session_probes->end(s, &m->probe_order);
		}
		s->tools_named = s->tools_named || !m->probe_order.version;
		return 0;
	case PROTO_PROBE_DRAIN:
		if (shim_session_probes) {
			shim_session_probes->drain(s, &m->probe_order);
		}
		return 0;
	case PROTO_COVERAGE:
		if (shim_session_probes) {
			shim_session_probes->cover(s, &m->probe_order);
		}
		return 0;
	case PROTO_PROBE_SET:
		if (shim_session_probes) {
			shim_session_probes->set(s, &m->probe_set);
		}
		return 0;
	case PROTO_MEM_RELEASE:
		return release_memory(s, m);
	case PROTO_IPC_WANTED:
		return give_chunks(s, m);
	case PROTO_NOTE:
		fprintf(stderr, "gbpf: %s\n", m->note.text);
		return 0;
	case PROTO_SET:
		s->class_id = m->set.class_id;
		s->weight_asked = m->set.weight_asked;
		s->report_requests = m->set.tell_requests == 1;
		sched_set_class(s->sched, m->set.class_id, m->set.weight);
		sched_set_limits(s->sched, m->set.hold_limit_ns, m->set.min_share_ppm);
		return 0;
	default:
		return -EPIPE;
	}
}

int shim_session_receive(struct shim_session *s)
{
	union proto_message m;
	int fds[8], err;
	unsigned nfds;

	for (;;) {
		err = proto_recv(s->sock, &m, fds, &nfds);
		if (err == -EAGAIN) {
			if (!s->stale_versions_dropped) {
				shim_session_sweep(s);
			}
			return 0;
		}
		if (err != 1) {
			return -EPIPE;
		}
		err = handle(s, &m, fds);
		shim_session_close_fds(fds, nfds);
		if (err) {
			return err;
		}
	}
}

/* Returns true if the version in force on a GPU is not prepared yet. While a swap is under way
 * gbpfd sends two, in any order. */
static bool policy_is_awaited(const struct shim_session *s)
{
	for (uint32_t i = 0; i < s->gpus; i++) {
		uint32_t g = s->gpu_index[i];
		uint64_t version = g < PROTO_MAX_GPUS ? load_acquire(&s->dir->version[g]) : 0;

		if (version && !sched_policy_is_prepared(s->sched, version, 1u << i)) {
			return true;
		}
	}
	return false;
}

void shim_session_await_start(struct shim_session *s, uint64_t timeout_ns)
{
	uint64_t deadline = clock_now_ns() + timeout_ns;

	while ((!s->tools_named || policy_is_awaited(s)) &&
	       shim_session_wait(s, s->sock, deadline) == 0) {
		if (shim_session_receive(s) < 0) {
			return;
		}
	}
}

/* A request that opens and ends between two calls is not reported; it was short. */
void shim_session_report_requests(struct shim_session *s)
{
	union proto_message m = { 0 };
	uint64_t state = 0;

	if (likely(!s->report_requests)) {
		return;
	}
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		const struct proto_board_gpu *b = &s->board->gpu[g];

		state += load_relaxed(&b->open) ? load_relaxed(&b->opened_ns) : 0;
	}
	if (state != s->reported_requests) {
		s->reported_requests = state;
		(void)shim_session_send(s, &m, PROTO_REQUEST, NULL, 0);
	}
}

void shim_session_report_communication(struct shim_session *s)
{
	union proto_message m = { 0 };

	if (unlikely(sched_may_communicate(s->sched)) && !s->communication_reported) {
		s->communication_reported =
			shim_session_send(s, &m, PROTO_COMMUNICATES, NULL, 0) == 0;
	}
}

void shim_session_lost(struct shim_session *s)
{
	s->report_requests = false;
	s->tools_named = false;
	shim_session_set_sock(s, -1);
	POINT("shim.lose.closed");
	shim_session_control_lost();
	shim_session_flags_lost(s);
	if (shim_session_probes) {
		shim_session_probes->lost();
	}
	for (uint32_t i = 0; i < PROTO_MAX_LC; i++) {
		remove_board(s, SCHED_BOARD_LATENCY, i);
		remove_board(s, SCHED_BOARD_PEER, i);
	}
	s->communication_reported = false;
	if (sched_set_pages(s->sched, NULL, s->board, s->stats, s->gpu_index) && s->dir) {
		shm_unmap((void *)(uintptr_t)s->dir, PROTO_PAGE_BYTES);
	}
	s->dir = NULL;
	s->stale_versions_dropped = false;
}

void shim_session_abandon(struct shim_session *s)
{
	shim_lock_after_fork(&sock_mutex, LOCK_SOCK);
	s->sock = fd_close(s->sock);
	s->early.sock = fd_close(s->early.sock);
	shim_session_close_fds(s->early.fds, s->early.nfds);
	s->early.nfds = 0;
	shim_session_flags_abandon();
	shim_session_control_abandon();
	s->wake = fd_close(s->wake);
	s->board_fd = fd_close(s->board_fd);
	s->stats_fd = fd_close(s->stats_fd);
	s->vgpu.fd = fd_close(s->vgpu.fd);
	for (unsigned i = 0; i < SHIM_SESSION_REGIONS; i++) {
		s->regions[i].fd = fd_close(s->regions[i].fd);
	}
}

int shim_session_answer_probe(struct shim_session *s, union proto_message *m, enum proto_type type)
{
	return shim_session_send(s, m, type, NULL, 0);
}

int shim_session_ask_memory(struct shim_session *s, const struct proto_mem_ask *ask)
{
	union proto_message m = { .mem_ask = *ask };

	return shim_session_send(s, &m, PROTO_MEM_ASK, NULL, 0);
}

void shim_session_note(struct shim_session *s, const char *what, const char *text)
{
	union proto_message m = { 0 };

	snprintf(m.note.what, sizeof(m.note.what), "%s", what);
	snprintf(m.note.text, sizeof(m.note.text), "%s", text);
	(void)shim_session_send(s, &m, PROTO_NOTE, NULL, 0);
}

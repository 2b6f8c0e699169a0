/* Connecting: the socket, the hello and the welcome. gbpfd is trusted only if it runs as root or as
 * this process's user. Its descriptors are still checked before they are mapped. */
#include "shim/session/session_int.h"
#include "shim/session/shim_hint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/paths.h"
#include "base/point.h"
#include "base/runtime_choice.h"
#include "base/shm.h"
#include "policy/ctx.h"
#include "shim/object/driver_device.h"
#include "shim/object/green_context.h"
#include "shim/session/guard.h"
#include "shim/shim.h"

#define WELCOME_TIMEOUT_NS 10000000000u /* a running gbpfd answers at once; it may be stopped */
#define QUEUED_TIMEOUT_NS 120000000000u /* gbpfd itself gives up after 30 s */
#define STEP_NS 500000u
#define RESTART_NS 3000000000u /* time for a gbpfd that died during the hello to be restarted */
#define DEAD_NS 1000000000u    /* the same if its socket is left but refuses connections */
#define AGAIN_TIMEOUT_NS 20000000000u /* longer than gbpfd asks to wait */
#define RETRY_NS 10000000u
#define BROKEN_MAX 8u
#define MAX_WEIGHT 10000

static const char *text_of(const char *name, const char *otherwise)
{
	const char *v = getenv(name);

	return v && *v ? v : otherwise;
}

static uint32_t class_asked(void)
{
	const char *v = text_of("GBPF_CLASS", "normal");

	return strcmp(v, "latency") == 0 ? GBPF_CLASS_LATENCY
	       : strcmp(v, "batch") == 0 ? GBPF_CLASS_BATCH
					 : GBPF_CLASS_NORMAL;
}

static uint32_t weight_asked(void)
{
	long v = strtol(text_of("GBPF_WEIGHT", "0"), NULL, 10);

	return v > 0 && v <= MAX_WEIGHT ? (uint32_t)v : 0;
}

/* With "auto", or without the variable, the policy chooses. gbpfd enforces the other values,
 * whatever the policy says; it falls back to the process mode if the shared mode is unavailable. */
static void ask_for_lane(struct shim_session *s)
{
	const char *v = text_of("GBPF_LANE", "auto");

	s->lane = strcmp(v, "shared") == 0 ? GBPF_LANE_SHARED : GBPF_LANE_PROCESS;
	s->lanes = strcmp(v, "process") == 0  ? 1u << GBPF_LANE_PROCESS
		   : strcmp(v, "shared") == 0 ? 1u << GBPF_LANE_SHARED
					      : 0;
}

int shim_session_find_vgpu(struct proto_vgpu *ret)
{
	const char *v = text_of("GBPF_VGPU", "");

	memset(ret, 0, sizeof(*ret));
	return *v ? proto_vgpu_parse(v, ret) : 0;
}

/* Enumerates the devices as the real driver numbers them. */
static void find_devices(struct shim_session *s)
{
	int n = 0;

	if (shim_real.cuDeviceGetCount(&n) != CUDA_SUCCESS || n < 0) {
		n = 0;
	}
	s->gpus = MIN((uint32_t)n, PROTO_MAX_GPUS);
	for (uint32_t i = 0; i < s->gpus; i++) {
		CUuuid uuid = { { 0 } };
		size_t bytes = 0;

		if (shim_real.cuDeviceGetUuid_v2(&uuid, (CUdevice)i) != CUDA_SUCCESS) {
			(void)shim_real.cuDeviceGetUuid(&uuid, (CUdevice)i);
		}
		memcpy(s->uuid[i], uuid.bytes, sizeof(s->uuid[i]));
		(void)shim_real.cuDeviceTotalMem_v2(&bytes, (CUdevice)i);
		s->mem_bytes[i] = bytes;
	}
}

int shim_session_init(struct shim_session *s)
{
	memset(s, 0, sizeof(*s));
	s->sock = s->board_fd = s->stats_fd = s->early.sock = s->vgpu.fd = -1;
	for (unsigned i = 0; i < SHIM_SESSION_REGIONS; i++) {
		s->regions[i].fd = -1;
	}
	s->class_id = class_asked();
	s->weight_asked = weight_asked();
	ask_for_lane(s);
	s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (shim_session_find_vgpu(&s->vgpu.is) < 0) {
		s->refused_here = true;
		snprintf(s->refusal, sizeof(s->refusal),
			 "invalid GBPF_VGPU '%.40s': it is neither a name nor what 'gbpf run' sets",
			 getenv("GBPF_VGPU"));
		return -EPERM;
	}
	return s->wake < 0 ? -errno : 0;
}

/* ---- connecting ---- */

enum found { FOUND_NONE, FOUND_OWN, FOUND_ROOTS };

/* The first gbpfd that welcomed the process. It reattaches to no other one, which would not know
 * its tenant, while that one is restarted. */
static uint32_t kept; /* [atomic] enum found */

static enum found find_daemon(void)
{
	enum found found = (enum found)load_relaxed(&kept);
	const char *named = getenv("GBPF_RUNTIME_DIR");

	if (found) {
		return found;
	}
	if (geteuid() == 0 && !(named && *named)) {
		return FOUND_ROOTS; /* also once the process has become another user */
	}
	return runtime_is_roots() ? FOUND_ROOTS : FOUND_OWN;
}

/* Sets *ret_found to the gbpfd, or to FOUND_NONE if a variable names its socket. */
static int open_socket(uint64_t timeout_ns, enum found *ret_found)
{
	const char *path = secure_getenv("GBPF_SESSION_SOCKET");
	char standard[256];
	struct peer peer;
	int sock, err;

	*ret_found = FOUND_NONE;
	if (!path || !*path) {
		*ret_found = find_daemon();
		err = runtime_path_of(*ret_found == FOUND_ROOTS, standard, sizeof(standard),
				      "session.sock");
		if (err) {
			return err;
		}
		path = standard;
	}
	sock = unix_connect_within(path, SOCK_SEQPACKET, timeout_ns);
	if (sock < 0) {
		return sock;
	}
	err = fd_peer(sock, &peer);
	if (!err && peer.uid != 0 && peer.uid != geteuid()) {
		err = -EPERM;
	}
	if (!err && fcntl(sock, F_SETFL, O_NONBLOCK) < 0) {
		err = -errno;
	}
	if (err) {
		fd_close(sock);
		return err;
	}
	return sock;
}

int shim_session_open_socket(uint64_t timeout_ns)
{
	enum found found;

	return open_socket(timeout_ns, &found);
}

static void command_line(char *out, size_t cap)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, out, cap - 1);

	fd_close(fd);
	n = n < 0 ? 0 : n;
	for (ssize_t i = 0; i + 1 < n; i++) {
		out[i] = out[i] ? out[i] : ' ';
	}
	out[n] = 0;
}

/* Returns the index of the held tenant region of a version on a device, or SHIM_SESSION_REGIONS. */
static unsigned region_of(const struct shim_session *s, uint64_t version, uint32_t gpu)
{
	unsigned i = 0;

	while (i < SHIM_SESSION_REGIONS &&
	       (s->regions[i].version != version || s->regions[i].fd < 0 ||
		!(s->regions[i].gpus & 1u << gpu))) {
		i++;
	}
	return i;
}

/* Collects the held tenant regions of a version, in the order of the device ordinals. Returns the
 * bits of these. */
static uint32_t regions_of(const struct shim_session *s, uint64_t version, int *fds, unsigned *nfds)
{
	uint32_t bits = 0;
	unsigned n = 0;

	for (uint32_t gpu = 0; version && gpu < s->gpus && n < PROTO_REGIONS; gpu++) {
		unsigned i = region_of(s, version, gpu);

		if (i < SHIM_SESSION_REGIONS && !(bits & s->regions[i].gpus)) {
			bits |= 1u << gpu;
			fds[n++] = s->regions[i].fd;
		}
	}
	*nfds += n;
	return bits;
}

/* Sends the hello. early: the driver has not started, so the devices are unknown. */
static int send_hello(struct shim_session *s, int sock, bool early)
{
	int fds[3 + PROTO_REGIONS] = { s->board_fd, s->stats_fd };
	union proto_message m = { 0 };
	unsigned nfds = 0;

	m.hello.class_id = s->class_id;
	m.hello.weight = s->weight_asked;
	m.hello.lane = s->lane;
	m.hello.lanes = early ? s->lanes : 1u << s->lane;
	m.hello.gpus = s->gpus;
	memcpy(m.hello.uuid, s->uuid, sizeof(m.hello.uuid));
	memcpy(m.hello.mem_bytes, s->mem_bytes, sizeof(m.hello.mem_bytes));
	snprintf(m.hello.name, sizeof(m.hello.name), "%s",
		 text_of("GBPF_NAME", program_invocation_short_name));
	command_line(m.hello.command, sizeof(m.hello.command));
	snprintf(m.hello.group, sizeof(m.hello.group), "%s", text_of("GBPF_GROUP", ""));
	if (strcmp(text_of("GBPF_STRICT", "0"), "1") == 0) {
		m.hello.flags |= PROTO_STRICT;
	}
	if (early) {
		m.hello.flags |= PROTO_EARLY;
	}
	m.hello.vgpu = s->vgpu.is;
	if (s->sched) {
		m.hello.flags |= PROTO_REATTACH;
		m.hello.tenant = s->tenant;
		m.hello.policy_version = load_relaxed(&s->stats->version_in_use);
		nfds = 2;
		m.hello.regions = regions_of(s, m.hello.policy_version, fds + nfds, &nfds);
		if (s->vgpu.page) {
			m.hello.accounts = 1;
			m.hello.account_line = s->vgpu.line;
			fds[nfds++] = s->vgpu.fd;
		}
		POINT("shim.reattach.hello");
	}
	return proto_send(sock, &m, PROTO_HELLO, fds, nfds);
}

/* The scheduler's timed work continues while the agent waits here. */
int shim_session_wait(struct shim_session *s, int sock, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = { .fd = sock, .events = POLLIN };
		uint64_t now = clock_now_ns(), wait = deadline_ns - now, step;
		struct timespec t;
		int n;

		if (now >= deadline_ns) {
			return -ETIMEDOUT;
		}
		if (s->sched) {
			step = sched_agent_step(s->sched);
			wait = MIN(wait, MIN(step, STEP_NS));
		}
		t = clock_timespec(wait);
		n = ppoll(&p, 1, &t, NULL);
		if (n > 0) {
			return 0;
		}
		if (n < 0 && errno != EINTR) {
			return -errno;
		}
	}
}

void shim_session_close_fds(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		fds[i] = fd_close(fds[i]);
	}
}

/* Waits for the answer to a hello (WELCOME) or to devices (DEVICES_ARE). Returns 0 or the reason of
 * the failure. */
static int await(struct shim_session *s, int sock, enum proto_type type, union proto_message *m,
		 int fds[8], unsigned *nfds)
{
	uint64_t deadline = clock_now_ns() + clock_patience(WELCOME_TIMEOUT_NS);

	for (;;) {
		int err = shim_session_wait(s, sock, deadline);

		if (err) {
			return err;
		}
		err = proto_recv(sock, m, fds, nfds);
		if (err == -EAGAIN) {
			continue;
		}
		if (err <= 0) {
			return err ? err : -EPIPE;
		}
		if (m->head.type == type) {
			return 0;
		}
		switch (m->head.type) {
		case PROTO_QUEUED:
			if (s->sched) {
				return -EAGAIN; /* the program runs already: try again later */
			}
			deadline = clock_now_ns() + clock_patience(QUEUED_TIMEOUT_NS);
			break;
		case PROTO_REFUSED:
			if (m->refused.error == EAGAIN) {
				return -EAGAIN; /* a restarted gbpfd awaits the vGPU's account */
			}
			memcpy(s->refusal, m->refused.text, sizeof(s->refusal));
			return -EPERM;
		default:
			shim_session_close_fds(fds, *nfds);
			return -EPROTO;
		}
	}
}

/* ---- the welcome ---- */

void *shim_session_map_page(int fd, size_t bytes, int writable)
{
	return shm_check(fd, bytes) == 0 ? shm_map(fd, bytes, writable) : NULL;
}

/* Takes the vGPU's account, the last descriptor. Reattached: gbpfd has taken over this process's.
 */
static int take_account(struct shim_session *s, const struct proto_welcome *w, int *fd)
{
	bool is_in = proto_vgpu_is_set(&s->vgpu.is);

	if (!is_in || s->vgpu.page) {
		return w->accounts == is_in && (!s->vgpu.page || w->account_line == s->vgpu.line)
			       ? 0
			       : -EPROTO;
	}
	s->vgpu.page = w->accounts ? shim_session_map_page(*fd, PROTO_ACCOUNT_BYTES, 1) : NULL;
	if (!s->vgpu.page) {
		return -EPROTO;
	}
	s->vgpu.line = w->account_line;
	s->vgpu.fd = *fd;
	*fd = -1;
	return 0;
}

static int take_pages(struct shim_session *s, int fds[8], unsigned nfds)
{
	const struct proto_directory *dir = shim_session_map_page(fds[0], PROTO_PAGE_BYTES, 0);

	if (!dir || dir->magic != PROTO_DIRECTORY_MAGIC || dir->abi != PROTO_ABI) {
		return -EPROTO;
	}
	if (!s->sched) {
		s->board = nfds == 3 ? shim_session_map_page(fds[1], PROTO_PAGE_BYTES, 1) : NULL;
		s->stats = nfds == 3 ? shim_session_map_page(fds[2], PROTO_STATS_BYTES, 1) : NULL;
		if (!s->board || !s->stats) {
			return -EPROTO;
		}
		s->board_fd = fds[1];
		s->stats_fd = fds[2];
		fds[1] = fds[2] = -1;
		shim_guard_hold(&s->board->owner);
	}
	s->dir = dir;
	return 0;
}

static void wake_agent(void *arg)
{
	struct shim_session *s = arg;
	uint64_t one = 1;

	(void)!write(s->wake, &one, sizeof(one));
}

static void note_from_sched(void *arg, const char *what, const char *text)
{
	shim_session_note(arg, what, text);
}

static int make_scheduler(struct shim_session *s, const struct proto_welcome *w)
{
	struct sched_config cfg = {
		.tenant = w->tenant,
		.class_id = w->class_id,
		.weight = w->weight,
		.uid = w->uid,
		.vgpu = w->vgpu_place,
		.hold_limit_ns = w->hold_limit_ns,
		.min_share_ppm = w->min_share_ppm,
		.sm_percent = w->lane == GBPF_LANE_PROCESS ? w->sm_percent : 100,
		.wake_agent = wake_agent,
		.note = note_from_sched,
		.arg = s,
	};
	int err = shim_device_setup(&cfg, &shim_session_control);

	shim_green_set_percent(cfg.sm_percent);
	return err ? err : sched_create(&s->sched, &cfg);
}

static int enter(struct shim_session *s, const struct proto_welcome *w, int fds[8], unsigned nfds)
{
	int err = nfds > w->accounts ? take_pages(s, fds, nfds - w->accounts) : -EPROTO;

	if (!err) {
		err = take_account(s, w, &fds[nfds - 1]);
	}
	if (err) {
		return err;
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		s->gpu_index[i] = i < s->gpus && w->gpu_index[i] < PROTO_MAX_GPUS ? w->gpu_index[i]
										  : UINT32_MAX;
	}
	if (w->lane != s->lane) {
		return -EPROTO; /* the driver runs in the other mode */
	}
	s->tenant = w->tenant;
	store_relaxed(&s->pid, w->pid);
	s->class_id = w->class_id;
	if (!s->sched) {
		err = make_scheduler(s, w);
		if (err) {
			return err;
		}
	} else {
		sched_set_class(s->sched, w->class_id, w->weight);
		sched_set_uid(s->sched, w->uid);
		sched_set_vgpu(s->sched, w->vgpu_place);
		sched_set_limits(s->sched, w->hold_limit_ns, w->min_share_ppm);
		POINT("shim.reattach.entered");
	}
	sched_set_pages(s->sched, s->dir, s->board, s->stats, s->gpu_index);
	sched_set_lane(s->sched, s->lane);
	shim_hint_setup(s->sched, w->rhythm != 0, w->lead_us);
	return 0;
}

/* Completes the connection: maps the pages, creates or updates the scheduler, and confirms, upon
 * which gbpfd may seal the pages and continues. */
static int finish(struct shim_session *s, int sock, const struct proto_welcome *w, int fds[8],
		  unsigned nfds)
{
	union proto_message m = { 0 };
	int err = enter(s, w, fds, nfds);

	POINT("shim.connect.mapped");
	if (!err) {
		err = proto_send(sock, &m, PROTO_BOARD_MAPPED, NULL, 0);
	}
	POINT("shim.connect.mapped_sent");
	if (err) {
		fd_close(sock);
		if (s->sched && s->dir) {
			shim_session_lost(s);
		}
		return err;
	}
	shim_session_set_sock(s, sock);
	shim_session_sweep(s);
	shim_session_flags_offer(s);
	shim_session_control_offer(s);
	return 0;
}

/* Connects and says hello. Returns the socket once gbpfd has welcomed this process, or -errno;
 * -ETIMEDOUT if gbpfd accepts no connection: the program starts without it. */
static int welcomed(struct shim_session *s, bool early, union proto_message *m, int fds[8],
		    unsigned *nfds)
{
	/* the agent, which tries again later, has timed work to do */
	uint64_t timeout_ns = s->sched ? RETRY_NS : clock_patience(WELCOME_TIMEOUT_NS);
	enum found found;
	int err, sock = open_socket(timeout_ns, &found);

	if (sock < 0) {
		return sock == -EAGAIN ? -ETIMEDOUT : sock; /* gbpfd's queue remained full */
	}
	POINT("shim.connect.connected");
	err = send_hello(s, sock, early);
	POINT("shim.connect.hello_sent");
	if (!err) {
		err = await(s, sock, PROTO_WELCOME, m, fds, nfds);
	}
	POINT("shim.connect.welcomed");
	if (err) {
		fd_close(sock);
		return err;
	}
	if (found) {
		store_relaxed(&kept, found);
	}
	return sock;
}

int shim_session_connect(struct shim_session *s)
{
	union proto_message m = { 0 };
	unsigned nfds = 0;
	int fds[8], err, sock = welcomed(s, false, &m, fds, &nfds);

	if (sock < 0) {
		return sock;
	}
	err = finish(s, sock, &m.welcome, fds, nfds);
	shim_session_close_fds(fds, nfds);
	return err;
}

static int connect_early(struct shim_session *s)
{
	union proto_message m = { 0 };
	int sock = welcomed(s, true, &m, s->early.fds, &s->early.nfds);

	if (sock < 0) {
		s->early.nfds = 0;
		return sock;
	}
	s->early.sock = sock;
	s->early.welcome = m.welcome;
	return 0;
}

/* Repeats `once` while gbpfd may be restarting. The time counts from the first failure, not from
 * the call: this process may have been stopped in between. */
static int persist(struct shim_session *s, int (*once)(struct shim_session *s))
{
	uint64_t until = 0;
	unsigned broken = 0;

	for (;;) {
		int err = once(s);
		uint64_t now = clock_now_ns();

		if (err == -EAGAIN) {
			until = until ? until : now + clock_patience(AGAIN_TIMEOUT_NS);
		} else if ((err == -EPIPE || err == -ECONNRESET) && broken++ < BROKEN_MAX) {
			until = now + clock_patience(RESTART_NS);
		} else if (err == -ECONNREFUSED && !until) {
			until = now + clock_patience(DEAD_NS);
		} else if (err != -ECONNREFUSED && err != -ENOENT) {
			return err;
		}
		if (now >= until) { /* ENOENT occurs briefly while the socket is being replaced */
			return err;
		}
		clock_sleep_ns(RETRY_NS);
	}
}

int shim_session_hello(struct shim_session *s)
{
	int err = persist(s, connect_early);

	if (!err) {
		s->lane = s->early.welcome.lane;
	}
	return err;
}

/* Continues the connection of the early hello. */
static int connect_late(struct shim_session *s)
{
	union proto_message m = { 0 };
	int sock = s->early.sock, fds[8], err;
	unsigned nfds = 0;

	m.devices.gpus = s->gpus;
	memcpy(m.devices.uuid, s->uuid, sizeof(m.devices.uuid));
	memcpy(m.devices.mem_bytes, s->mem_bytes, sizeof(m.devices.mem_bytes));
	err = proto_send(sock, &m, PROTO_DEVICES, NULL, 0);
	if (!err) {
		err = await(s, sock, PROTO_DEVICES_ARE, &m, fds, &nfds);
	}
	if (err) {
		fd_close(sock);
	} else {
		memcpy(s->early.welcome.gpu_index, m.devices.gpu_index,
		       sizeof(s->early.welcome.gpu_index));
		err = finish(s, sock, &s->early.welcome, s->early.fds, s->early.nfds);
	}
	s->early.sock = -1;
	shim_session_close_fds(s->early.fds, s->early.nfds);
	s->early.nfds = 0;
	return err;
}

int shim_session_begin(struct shim_session *s)
{
	int err;

	find_devices(s);
	err = s->early.sock >= 0 ? connect_late(s) : -EPIPE;
	if (err != -EPIPE && err != -ECONNRESET) {
		return err;
	}
	return persist(s, shim_session_connect); /* gbpfd died while the driver started */
}

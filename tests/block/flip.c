/* flip [OPTION]... COMMAND...: runs a command and its children under the shim with a gbpfd of the
 * test's own, whose policy launches at block level whatever can run there, in random gate modes,
 * and with a latency tenant that takes the GPU away at random times. The command is run again while
 * an expected count is not reached; the exit code is the command's, or 90 if that lasts.
 *   --rate N    leases per second, on average (1000)
 *   --up PPM    share of the time that they are up (200000)
 *   --seed N
 *   --expect N  minimum number of interruptions, in all processes (0)
 *   --launches N  minimum number of launches at block level (0)
 *   --hold      the policy also holds what is submitted while a request is open
 *   --pieces N  large grids in pieces of N blocks
 *   --sms N     percentage of the multiprocessors for the program's streams
 *   --clock     measures the device's clock, as is needed on a real GPU; the default is the wall
 * clock, which is that of the soft GPU GBPF_REAL_CUDA and the library path are the caller's. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bpf/run/policy_image.h"
#include "cuabi/lookup.h"
#include "gpu/flag.h"
#include "proto/wire.h"

#include "../unit/eventually.h"
#include "policy/ctx.h"
#include "proto/pages.h"

#define RUNS_NS UINT64_C(60000000000) /* no run begins later, after the first */
#define VERSION 7u
#define SLOT 5u
#define MAX_PAGES 64u
#define ALL UINT32_MAX
#define MAX_NS 60000000u
#define HELPER_RANDOM 7 /* bpf_get_prandom_u32 */

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "flip: %s:%d: %s\n", __func__, __LINE__, #x);              \
			_exit(90);                                                                 \
		}                                                                                  \
	} while (0)

static struct {
	uint64_t rate, up_ppm, seed, expect, launches, pieces, sms;
	bool hold, clock;
} option = { .rate = 1000, .up_ppm = 200000, .seed = 1, .sms = 100 };

static int listener;
static struct proto_directory *dir;
static struct proto_board *other;
static int dir_fd, other_fd;

static pthread_mutex_t pages_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct gpu_lease_page page;
	int owner; /* its socket; -1: free */
	uint32_t gpu;
} pages[MAX_PAGES]; /* pages_mutex */

static uint32_t sessions;						  /* [atomic] open */
static uint64_t block_launches, interruptions, forced, flips, limit_hits; /* atomic */

/* ---- the policy ---- */

static int image_fd(void)
{
	struct ebpf_image_header h = { .version = VERSION };
	struct ebpf_insn code[] = {
		/* while a request is open: HOLD, with --hold */
		{ EBPF_LDX | EBPF_W | EBPF_MEM, 0, 1, offsetof(struct gbpf_submit_ctx, lc_open),
		  0 },
		{ EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 2, 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, GBPF_HOLD },
		{ EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0 },
		/* block level where possible, with any mode of a gate */
		{ EBPF_LDX | EBPF_W | EBPF_MEM, 0, 1, offsetof(struct gbpf_submit_ctx, block_ok),
		  0 },
		{ EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 10, 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_X, 6, 1, 0, 0 },
		{ EBPF_JMP | EBPF_CALL, 0, 0, 0, HELPER_RANDOM },
		{ EBPF_ALU64 | EBPF_AND | EBPF_K, 0, 0, 0, 3 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, 6, 0, 0 },
		{ EBPF_STX | EBPF_W | EBPF_MEM, 1, 0, offsetof(struct gbpf_submit_ctx, gate), 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_K, 2, 0, 0, GBPF_LEVEL_BLOCK },
		{ EBPF_STX | EBPF_W | EBPF_MEM, 1, 2, offsetof(struct gbpf_submit_ctx, level), 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_K, 2, 0, 0, (int32_t)option.pieces },
		{ EBPF_STX | EBPF_W | EBPF_MEM, 1, 2,
		  offsetof(struct gbpf_submit_ctx, split_blocks), 0 },
		{ EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, option.pieces ? GBPF_SPLIT : GBPF_GO },
		{ EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0 },
	};
	unsigned skip = option.hold ? 0 : 4;

	for (unsigned i = 0; i < EBPF_MAX_HOOKS; i++) {
		h.progs[i].code_offset = UINT32_MAX;
	}
	h.n_insns = ARRAY_SIZE(code) - skip;
	h.progs[POLICY_HOOK_submit].n_insns = h.n_insns;
	return ebpf_image_build(&h, NULL, code + skip, NULL, 0);
}

/* ---- sessions ---- */

struct session {
	int sock;
	struct proto_stats *stats;
};

static void send_to(int sock, union proto_message *m, enum proto_type type, const int *fds,
		    unsigned n)
{
	(void)proto_send(sock, m, type, fds, n); /* a closed connection is detected when reading */
}

/* Returns false if the peer has closed the connection. */
static bool next(int sock, union proto_message *m, int fds[8], unsigned *n)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	int r;

	do {
		(void)poll(&p, 1, -1);
		r = proto_recv(sock, m, fds, n);
	} while (r == -EAGAIN || r == -EINTR);
	return r == 1;
}

/* Raises or lowers the lease of one GPU, or of all. */
static void drop_pages(int sock, uint32_t gpu)
{
	pthread_mutex_lock(&pages_mutex);
	for (unsigned i = 0; i < MAX_PAGES; i++) {
		if (pages[i].owner == sock && (gpu == ALL || pages[i].gpu == gpu)) {
			gpu_lease_unmap(&pages[i].page);
			pages[i].owner = -1;
		}
	}
	pthread_mutex_unlock(&pages_mutex);
}

static void take_page(int sock, uint32_t gpu, int fd)
{
	pthread_mutex_lock(&pages_mutex);
	for (unsigned i = 0; i < MAX_PAGES; i++) {
		if (pages[i].owner < 0) {
			CHECK(gpu_lease_map(&pages[i].page, fd) == 0);
			pages[i].owner = sock;
			pages[i].gpu = gpu;
			break;
		}
	}
	pthread_mutex_unlock(&pages_mutex);
}

static void welcome(struct session *s, const struct proto_hello *h)
{
	int fds[3] = { dir_fd, shm_create("board", PROTO_PAGE_BYTES, SHM_NOEXEC),
		       shm_create("stats", PROTO_STATS_BYTES, SHM_NOEXEC) };
	union proto_message m = { 0 };

	CHECK(fds[1] >= 0 && fds[2] >= 0);
	s->stats = shm_map(fds[2], PROTO_STATS_BYTES, 1);
	CHECK(s->stats);
	m.welcome.tenant = 5;
	m.welcome.class_id = h->class_id;
	m.welcome.weight = 100;
	m.welcome.min_share_ppm = 20000;
	m.welcome.hold_limit_ns = 100000000u;
	m.welcome.sm_percent = (uint32_t)option.sms;
	send_to(s->sock, &m, PROTO_WELCOME, fds, 3);
	close(fds[1]);
	close(fds[2]);
}

static void set_up(struct session *s)
{
	union proto_message m = { 0 };
	int fd = image_fd();

	CHECK(fd >= 0);
	m.board.slot = SLOT;
	m.board.tenant = 9;
	send_to(s->sock, &m, PROTO_BOARD_ADD, &other_fd, 1);
	m = (union proto_message){ 0 };
	m.version.version = VERSION;
	send_to(s->sock, &m, PROTO_PREPARE, &fd, 1);
	close(fd);
	m = (union proto_message){ 0 };
	send_to(s->sock, &m, PROTO_PROBE_END, NULL, 0); /* no tools: the program may start */
}

static void handle(struct session *s, union proto_message *m, int fds[8], unsigned n)
{
	switch (m->head.type) {
	case PROTO_HELLO:
		welcome(s, &m->hello);
		break;
	case PROTO_DEVICES:
		for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
			m->devices.gpu_index[i] = i;
		}
		send_to(s->sock, m, PROTO_DEVICES_ARE, NULL, 0);
		break;
	case PROTO_BOARD_MAPPED:
		set_up(s);
		break;
	case PROTO_PREPARED:
		CHECK(m->version.status == 0);
		break;
	case PROTO_FLAG:
		drop_pages(s->sock, m->flag.gpu);
		if (n) {
			take_page(s->sock, m->flag.gpu, fds[0]);
		}
		break;
	case PROTO_NOTE:
		fprintf(stderr, "flip: note %s: %s\n", m->note.what, m->note.text);
		break;
	default:
		break;
	}
}

static void *serve(void *arg)
{
	struct session s = { .sock = (int)(intptr_t)arg };
	union proto_message m;
	unsigned n;
	int fds[8];

	while (next(s.sock, &m, fds, &n)) {
		handle(&s, &m, fds, n);
		for (unsigned i = 0; i < n; i++) {
			close(fds[i]);
		}
	}
	drop_pages(s.sock, ALL);
	if (s.stats) {
		(void)add_relaxed(&block_launches, load_relaxed(&s.stats->block_launches));
		(void)add_relaxed(&interruptions, load_relaxed(&s.stats->interruptions));
		(void)add_relaxed(&forced, load_relaxed(&s.stats->forced));
		(void)add_relaxed(&limit_hits, load_relaxed(&s.stats->limit_hits));
		shm_unmap(s.stats, PROTO_STATS_BYTES);
	}
	close(s.sock);
	(void)sub_acqrel(&sessions, 1u);
	return NULL;
}

static void *accept_all(void *arg)
{
	(void)arg;
	for (;;) {
		struct pollfd p = { .fd = listener, .events = POLLIN };
		pthread_t t;
		int sock;

		(void)poll(&p, 1, -1); /* the listener does not block */
		sock = accept(listener, NULL, NULL);
		if (sock < 0) {
			continue;
		}
		(void)add_acqrel(&sessions, 1u);
		CHECK(pthread_create(&t, NULL, serve, (void *)(intptr_t)sock) == 0);
		pthread_detach(t);
	}
	return NULL;
}

/* ---- the latency tenant ---- */

static uint64_t draw(uint64_t below)
{
	static uint64_t x;

	x = x ? x : option.seed * 0x9e3779b97f4a7c15u + 1;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return below ? x % below : 0;
}

static void put_all(uint32_t word)
{
	pthread_mutex_lock(&pages_mutex);
	for (unsigned i = 0; i < MAX_PAGES; i++) {
		if (pages[i].owner >= 0) {
			gpu_lease_store(&pages[i].page, SLOT, word);
		}
	}
	gpu_lease_fence();
	pthread_mutex_unlock(&pages_mutex);
}

static void say_open(bool open)
{
	store_seqcst(&other->gpu[0].open, (uint32_t)open);
	if (open) {
		store_relaxed(&other->gpu[0].opened_ns, clock_now_ns());
	} else {
		store_relaxed(&other->gpu[0].last_end_ns, clock_now_ns());
		(void)add_acqrel(&other->gpu[0].seq, 1u);
		futex_wake_shared(&other->gpu[0].seq, 1 << 20);
	}
}

static int64_t clock_offset; /* ns: the device's clock minus the host's monotonic clock */

static void ask_clock(const char *path)
{
	static struct cuabi_table real;
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	struct gpu_device *d;
	CUcontext ctx;

	CHECK(h);
	cuabi_table_load(&real, h);
	CHECK(real.cuInit(0) == CUDA_SUCCESS);
	CHECK(real.cuDevicePrimaryCtxRetain(&ctx, 0) == CUDA_SUCCESS);
	CHECK(gpu_device_create(&d, &real) == 0);
	CHECK(gpu_clock_offset(d, ctx, &clock_offset) == 0);
}

/* Some requests are not shown on the board, as an announced one; some leases expire by themselves;
 * a few are long. */
static void *flip(void *arg)
{
	uint64_t period = 1000000000u / option.rate;

	(void)arg;
	prctl(PR_SET_TIMERSLACK, 1000);
	for (;;) {
		uint64_t up = 2 * draw(period) * option.up_ppm / 1000000u, down, most = MAX_NS;
		bool on_board = draw(4) > 0, expires = draw(8) == 0;

		up = draw(2000) == 0 ? draw(most) : up;
		down = draw(2 * (period - MIN(period, period * option.up_ppm / 1000000u)) + 1);
		if (on_board) {
			say_open(true);
		}
		put_all(gpu_lease_word(clock_offset,
				       clock_now_ns() + (expires ? up : up + 5000000u)));
		clock_sleep_ns(up); /* the load: how long leases are up and down */
		if (!expires) {
			put_all(0);
		}
		if (on_board) {
			say_open(false);
		}
		(void)add_relaxed(&flips, (uint64_t)1);
		clock_sleep_ns(down);
	}
	return NULL;
}

/* ---- the command ---- */

static void start(const char *path)
{
	pthread_t t;

	for (unsigned i = 0; i < MAX_PAGES; i++) {
		pages[i].owner = -1;
	}
	dir_fd = shm_create("dir", PROTO_PAGE_BYTES, SHM_NOEXEC);
	other_fd = shm_create("other", PROTO_PAGE_BYTES, SHM_NOEXEC);
	dir = shm_map(dir_fd, PROTO_PAGE_BYTES, 1);
	other = shm_map(other_fd, PROTO_PAGE_BYTES, 1);
	CHECK(dir && other);
	dir->magic = PROTO_DIRECTORY_MAGIC;
	dir->abi = PROTO_ABI;
	dir->generation = 1;
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		dir->version[i] = VERSION;
	}
	listener = unix_listen(path, SOCK_SEQPACKET, 0600);
	CHECK(listener >= 0);
	CHECK(pthread_create(&t, NULL, accept_all, NULL) == 0);
	if (option.rate) {
		CHECK(pthread_create(&t, NULL, flip, NULL) == 0);
	}
}

static int run(char **argv)
{
	int status = 0;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		execvp(argv[0], argv);
		fprintf(stderr, "flip: %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool enough(void)
{
	return load_relaxed(&interruptions) >= option.expect &&
	       load_relaxed(&block_launches) >= option.launches;
}

static int take_options(int argc, char **argv)
{
	int i = 1;

	for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		const char *name = argv[i] + 2;
		uint64_t *to = strcmp(name, "rate") == 0       ? &option.rate
			       : strcmp(name, "up") == 0       ? &option.up_ppm
			       : strcmp(name, "seed") == 0     ? &option.seed
			       : strcmp(name, "expect") == 0   ? &option.expect
			       : strcmp(name, "launches") == 0 ? &option.launches
			       : strcmp(name, "pieces") == 0   ? &option.pieces
			       : strcmp(name, "sms") == 0      ? &option.sms
							       : NULL;

		if (strcmp(name, "hold") == 0) {
			option.hold = true;
		} else if (strcmp(name, "clock") == 0) {
			option.clock = true;
		} else if (to) {
			*to = strtoull(argv[++i], NULL, 10);
		} else {
			break;
		}
	}
	return i;
}

int main(int argc, char **argv)
{
	char folder[] = "/tmp/gbpf-flip-XXXXXX", path[64];
	int first = take_options(argc, argv), rc;
	uint64_t begin = clock_now_ns();

	if (first >= argc) {
		fputs("usage: flip [OPTION]... COMMAND...\n", stderr);
		return 2;
	}
	if (option.clock) {
		ask_clock(getenv("GBPF_REAL_CUDA"));
	} else { /* the soft GPU's %globaltimer is the wall clock */
		clock_offset = (int64_t)(clock_wall_ns() - clock_now_ns());
	}
	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/session.sock", folder);
	setenv("GBPF_SESSION_SOCKET", path, 1);
	setenv("GBPF_CLASS", "batch", 0);
	setenv("GBPF_STATE_DIR", folder, 0);
	start(path);
	/* On a busy machine leases may miss all kernels of a run, and of several. */
	do {
		rc = run(argv + first);
		eventually(!load_acquire(&sessions));
	} while (rc == 0 && !enough() && clock_now_ns() - begin < RUNS_NS);
	unlink(path);
	snprintf(path, sizeof(path), "%s/waiting-kernels", folder);
	unlink(path);
	rmdir(folder);
	fprintf(stderr,
		"flip: %lu leases, %lu launches at block level, %lu interruptions, %lu forced, %lu "
		"limits\n",
		(unsigned long)load_relaxed(&flips), (unsigned long)load_relaxed(&block_launches),
		(unsigned long)load_relaxed(&interruptions), (unsigned long)load_relaxed(&forced),
		(unsigned long)load_relaxed(&limit_hits));
	return rc ? rc : enough() ? 0 : 90;
}

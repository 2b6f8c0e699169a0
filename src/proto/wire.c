/* Packs and checks the messages of the session socket. The peer is never trusted: a message must
 * have exactly the size of its type, and only the descriptors that its type allows reach the
 * caller. No allocation; libc only. */
#include "proto/wire.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "base/fd.h"

#define ERROR_MAX 4095 /* greatest errno that Linux returns */

static const uint16_t sizes[] = {
	[PROTO_HELLO] = sizeof(struct proto_hello),
	[PROTO_WELCOME] = sizeof(struct proto_welcome),
	[PROTO_REFUSED] = sizeof(struct proto_refused),
	[PROTO_BOARD_MAPPED] = sizeof(struct proto_plain),
	[PROTO_PREPARE] = sizeof(struct proto_version),
	[PROTO_PREPARED] = sizeof(struct proto_version),
	[PROTO_DROP] = sizeof(struct proto_version),
	[PROTO_BOARD_ADD] = sizeof(struct proto_board_message),
	[PROTO_BOARD_REMOVE] = sizeof(struct proto_board_message),
	[PROTO_PEER_ADD] = sizeof(struct proto_board_message),
	[PROTO_PEER_REMOVE] = sizeof(struct proto_board_message),
	[PROTO_COMMUNICATES] = sizeof(struct proto_plain),
	[PROTO_SET] = sizeof(struct proto_set),
	[PROTO_NOTE] = sizeof(struct proto_note),
	[PROTO_QUEUED] = sizeof(struct proto_plain),
	[PROTO_MEM_ASK] = sizeof(struct proto_mem_ask),
	[PROTO_MEM_RELEASE] = sizeof(struct proto_mem_release),
	[PROTO_MEM_RELEASED] = sizeof(struct proto_mem_release),
	[PROTO_IPC_OPEN] = sizeof(struct proto_ipc),
	[PROTO_IPC_WANTED] = sizeof(struct proto_ipc),
	[PROTO_IPC_GIVEN] = sizeof(struct proto_ipc),
	[PROTO_IPC_OPENED] = sizeof(struct proto_ipc),
	[PROTO_DEVICES] = sizeof(struct proto_devices),
	[PROTO_DEVICES_ARE] = sizeof(struct proto_devices),
	[PROTO_CONTROL] = sizeof(struct proto_control),
	[PROTO_FLAG] = sizeof(struct proto_flag),
	[PROTO_FLAG_ADD] = sizeof(struct proto_flag),
	[PROTO_FLAG_REMOVE] = sizeof(struct proto_flag),
	[PROTO_REQUEST] = sizeof(struct proto_plain),
	[PROTO_ACCOUNT] = sizeof(struct proto_account_message),
	[PROTO_PROBE] = sizeof(struct proto_probe),
	[PROTO_PROBE_STATE] = sizeof(struct proto_probe_state),
	[PROTO_PROBE_END] = sizeof(struct proto_probe_order),
	[PROTO_PROBE_ENDED] = sizeof(struct proto_probe_order),
	[PROTO_PROBE_DRAIN] = sizeof(struct proto_probe_order),
	[PROTO_PROBE_DRAINED] = sizeof(struct proto_probe_order),
	[PROTO_COVERAGE] = sizeof(struct proto_probe_order),
	[PROTO_COVERED] = sizeof(struct proto_probe_order),
	[PROTO_PROBE_SET] = sizeof(struct proto_probe_set),
};
_Static_assert(ARRAY_SIZE(sizes) == PROTO_TYPES, "each message type has a size in sizes[]");

static size_t size_of(uint32_t type)
{
	return type < ARRAY_SIZE(sizes) ? sizes[type] : 0;
}

int proto_send(int sock, union proto_message *m, enum proto_type type, const int *fds,
	       unsigned nfds)
{
	size_t bytes = size_of(type);
	uint32_t theirs = type == PROTO_REFUSED ? m->head.version : 0;

	if (!bytes || nfds > FD_PASS_MAX) {
		return -EINVAL;
	}
	m->head = (struct proto_head){ PROTO_MAGIC, theirs ? theirs : PROTO_VERSION, type,
				       (uint32_t)bytes };
	return msg_send(sock, m, bytes, fds, nfds);
}

static void close_from(int *fds, unsigned *nfds, unsigned keep)
{
	while (*nfds > keep) {
		fd_close_foreign(fds[--*nfds]);
		fds[*nfds] = -1;
	}
}

static void terminate_scopes(struct proto_probe_control *c)
{
	for (unsigned i = 0; i < PROTO_PROBE_SCOPES; i++) {
		c->scopes[i].kernel[PROTO_PATTERN - 1] = 0;
	}
}

static void terminate(union proto_message *m)
{
	switch (m->head.type) {
	case PROTO_HELLO:
		m->hello.name[sizeof(m->hello.name) - 1] = 0;
		m->hello.vgpu.name[sizeof(m->hello.vgpu.name) - 1] = 0;
		m->hello.command[sizeof(m->hello.command) - 1] = 0;
		m->hello.group[sizeof(m->hello.group) - 1] = 0;
		break;
	case PROTO_WELCOME:
		m->welcome.mps_pipe[sizeof(m->welcome.mps_pipe) - 1] = 0;
		break;
	case PROTO_REFUSED:
		m->refused.text[sizeof(m->refused.text) - 1] = 0;
		break;
	case PROTO_NOTE:
		m->note.what[sizeof(m->note.what) - 1] = 0;
		m->note.text[sizeof(m->note.text) - 1] = 0;
		break;
	case PROTO_PROBE:
		m->probe.kernel[sizeof(m->probe.kernel) - 1] = 0;
		terminate_scopes(&m->probe.control);
		break;
	case PROTO_PROBE_SET:
		terminate_scopes(&m->probe_set.control);
		break;
	case PROTO_PROBE_STATE:
		m->probe_state.why[sizeof(m->probe_state.why) - 1] = 0;
		m->probe_state.compared[sizeof(m->probe_state.compared) - 1] = 0;
		for (unsigned i = 0; i < PROTO_PROBE_GAPS; i++) {
			m->probe_state.gaps[i].kernel[PROTO_KERNEL_NAME - 1] = 0;
		}
		break;
	default:
		break;
	}
}

/* Those of an image and the regions that these bits name. */
static int image_descriptors(uint32_t regions)
{
	if (regions & ~(uint32_t)(PROTO_REGION_GLOBAL | PROTO_REGION_TENANT)) {
		return -1;
	}
	return 1 + __builtin_popcount(regions);
}

static bool is_control(const struct proto_probe_control *c)
{
	bool good = c->n <= PROTO_PROBE_SCOPES && c->off <= 1;

	for (uint32_t i = 0; good && i < c->n; i++) {
		good = c->scopes[i].on_off <= PROTO_PROBE_OFF;
	}
	return good;
}

static int hello_descriptors(const struct proto_hello *h)
{
	unsigned regions = (unsigned)__builtin_popcount(h->regions);

	if (h->gpus > PROTO_MAX_GPUS || h->accounts > 1) {
		return -1;
	}
	if (!(h->flags & PROTO_REATTACH)) {
		return h->accounts ? -1 : 0;
	}
	if (h->regions >> h->gpus || regions > PROTO_REGIONS) {
		return -1;
	}
	return 2 + (int)regions + (int)h->accounts;
}

/* Returns the number of descriptors of a message: exactly that many (WELCOME: at least), or -1 if
 * its words contradict each other. */
static int descriptors_of(const union proto_message *m, unsigned nfds)
{
	switch (m->head.type) {
	case PROTO_HELLO:
		return hello_descriptors(&m->hello);
	case PROTO_WELCOME:
		if (m->welcome.accounts > 1) {
			return -1;
		}
		return (nfds >= 3 ? 3 : 1) + (int)m->welcome.accounts; /* reattached: no pages */
	case PROTO_PREPARE:
		return image_descriptors(m->version.regions);
	case PROTO_PROBE:
		return is_control(&m->probe.control) ? image_descriptors(m->probe.regions) : -1;
	case PROTO_PROBE_SET:
		return is_control(&m->probe_set.control) ? 0 : -1;
	case PROTO_DEVICES:
	case PROTO_DEVICES_ARE:
		return m->devices.gpus <= PROTO_MAX_GPUS ? 0 : -1;
	case PROTO_CONTROL:
		if (m->control.bytes > PROTO_HANDLES) {
			return -1;
		}
		return m->control.bytes ? 1 : 0;
	case PROTO_FLAG_ADD:
	case PROTO_FLAG_REMOVE:
		if (m->flag.number >= PROTO_FLAGS) {
			return -1;
		}
		return m->head.type == PROTO_FLAG_ADD;
	case PROTO_FLAG:
		return m->flag.number > 1 ? -1 : !m->flag.number;
	case PROTO_BOARD_ADD:
	case PROTO_PEER_ADD:
		return 1;
	case PROTO_IPC_GIVEN:
	case PROTO_IPC_OPENED:
		if (m->ipc.error) {
			return m->ipc.n || m->ipc.error < 0 || m->ipc.error > ERROR_MAX ? -1 : 0;
		}
		return m->ipc.n && m->ipc.n <= PROTO_IPC_CHUNKS ? (int)m->ipc.n : -1;
	case PROTO_ACCOUNT:
		return m->account.accounts <= 1 ? (int)m->account.accounts : -1;
	default:
		return 0;
	}
}

static int check(union proto_message *m, size_t len, int truncated, int *fds, unsigned *nfds)
{
	int want;

	if (len < sizeof(m->head) || m->head.magic != PROTO_MAGIC) {
		return -EPROTO;
	}
	if (m->head.version != PROTO_VERSION && m->head.type != PROTO_REFUSED) {
		return -EPROTONOSUPPORT; /* the rest of the message cannot be interpreted */
	}
	if (truncated || len != size_of(m->head.type) || m->head.bytes != len) {
		return -EPROTO;
	}
	terminate(m);
	want = descriptors_of(m, *nfds);
	if (want < 0 || *nfds < (unsigned)want) {
		return -EPROTO;
	}
	close_from(fds, nfds, (unsigned)want);
	return 1;
}

int proto_recv(int sock, union proto_message *m, int fds[8], unsigned *nfds)
{
	ssize_t n;
	int err;

	memset(m, 0, sizeof(*m));
	*nfds = 0;
	n = msg_recv(sock, m, sizeof(*m), fds, nfds);
	if (n == -ECONNRESET || n == -EPIPE) {
		return 0;
	}
	if (n == -EMSGSIZE) { /* longer than any message of this version; the head of a later
				 version says so */
		return check(m, sizeof(m->head), 1, fds, nfds);
	}
	if (n <= 0) {
		close_from(fds, nfds, 0);
		return (int)n;
	}
	err = check(m, (size_t)n, 0, fds, nfds);
	if (err < 0) {
		close_from(fds, nfds, 0);
	}
	return err;
}

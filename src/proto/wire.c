/* Packs and checks the messages of the session socket. The peer is never trusted: a message has
 * exactly the size of its type, and only the descriptors that its type allows reach the caller. No
 * allocation, nothing but libc. */
#include "proto/wire.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "base/fd.h"

static const uint16_t sizes[] = {
	[WIRE_HELLO] = sizeof(struct wire_hello),
	[WIRE_WELCOME] = sizeof(struct wire_welcome),
	[WIRE_REFUSED] = sizeof(struct wire_refused),
	[WIRE_BOARD_MAPPED] = sizeof(struct wire_plain),
	[WIRE_PREPARE] = sizeof(struct wire_version),
	[WIRE_PREPARED] = sizeof(struct wire_version),
	[WIRE_DROP] = sizeof(struct wire_version),
	[WIRE_BOARD_ADD] = sizeof(struct wire_board),
	[WIRE_BOARD_REMOVE] = sizeof(struct wire_board),
	[WIRE_SET] = sizeof(struct wire_set),
	[WIRE_NOTE] = sizeof(struct wire_note),
	[WIRE_QUEUED] = sizeof(struct wire_plain),
	[WIRE_DEVICES] = sizeof(struct wire_devices),
	[WIRE_DEVICES_ARE] = sizeof(struct wire_devices),
	[WIRE_CONTROL] = sizeof(struct wire_control),
	[WIRE_FLAG] = sizeof(struct wire_flag),
	[WIRE_FLAG_ADD] = sizeof(struct wire_flag),
	[WIRE_FLAG_REMOVE] = sizeof(struct wire_flag),
	[WIRE_REQUEST] = sizeof(struct wire_plain),
};

static size_t size_of(uint32_t type)
{
	return type < ARRAY_SIZE(sizes) ? sizes[type] : 0;
}

int wire_send(int sock, union wire_message *m, enum wire_type type, const int *fds, unsigned nfds)
{
	size_t bytes = size_of(type);
	uint32_t theirs = type == WIRE_REFUSED ? m->head.version : 0;

	if (!bytes || nfds > FD_PASS_MAX) {
		return -EINVAL;
	}
	m->head = (struct wire_head){ WIRE_MAGIC, theirs ? theirs : WIRE_VERSION, type,
				      (uint32_t)bytes };
	return msg_send(sock, m, bytes, fds, nfds);
}

static void close_from(int *fds, unsigned *nfds, unsigned keep)
{
	while (*nfds > keep) {
		fd_close_foreign(fds[--*nfds]);
	}
}

static void terminate(union wire_message *m)
{
	switch (m->head.type) {
	case WIRE_HELLO:
		m->hello.name[sizeof(m->hello.name) - 1] = 0;
		m->hello.command[sizeof(m->hello.command) - 1] = 0;
		break;
	case WIRE_WELCOME:
		m->welcome.mps_pipe[sizeof(m->welcome.mps_pipe) - 1] = 0;
		break;
	case WIRE_REFUSED:
		m->refused.text[sizeof(m->refused.text) - 1] = 0;
		break;
	case WIRE_NOTE:
		m->note.what[sizeof(m->note.what) - 1] = 0;
		m->note.text[sizeof(m->note.text) - 1] = 0;
		break;
	default:
		break;
	}
}

/* How many descriptors come with this message: exactly (WELCOME: at least) that many; -1: its words
 * contradict each other. */
static int descriptors_of(const union wire_message *m, unsigned nfds)
{
	switch (m->head.type) {
	case WIRE_HELLO:
		if (m->hello.gpus > WIRE_GPUS || m->hello.regions > 1) {
			return -1;
		}
		return m->hello.flags & WIRE_REATTACH ? 2 + (int)m->hello.regions : 0;
	case WIRE_WELCOME:
		return nfds >= 3 ? 3 : 1; /* reattached: the directory alone */
	case WIRE_PREPARE:
		if (m->version.regions & ~(uint32_t)(WIRE_REGION_GLOBAL | WIRE_REGION_TENANT)) {
			return -1;
		}
		return 1 + __builtin_popcount(m->version.regions);
	case WIRE_DEVICES:
	case WIRE_DEVICES_ARE:
		return m->devices.gpus <= WIRE_GPUS ? 0 : -1;
	case WIRE_CONTROL:
		if (m->control.bytes > WIRE_HANDLES) {
			return -1;
		}
		return m->control.bytes ? 1 : 0;
	case WIRE_FLAG_ADD:
	case WIRE_FLAG_REMOVE:
		if (m->flag.number >= WIRE_FLAGS) {
			return -1;
		}
		return m->head.type == WIRE_FLAG_ADD;
	case WIRE_FLAG:
		return m->flag.number > 1 ? -1 : !m->flag.number;
	case WIRE_BOARD_ADD:
		return 1;
	default:
		return 0;
	}
}

static int check(union wire_message *m, size_t len, int truncated, int *fds, unsigned *nfds)
{
	int want;

	if (len < sizeof(m->head) || m->head.magic != WIRE_MAGIC) {
		return -EPROTO;
	}
	if (m->head.version != WIRE_VERSION && m->head.type != WIRE_REFUSED) {
		return -EPROTONOSUPPORT; /* nothing else of it can be judged */
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

int wire_recv(int sock, union wire_message *m, int fds[8], unsigned *nfds)
{
	ssize_t n;
	int err;

	memset(m, 0, sizeof(*m));
	*nfds = 0;
	n = msg_recv(sock, m, sizeof(*m), fds, nfds);
	if (n == -ECONNRESET || n == -EPIPE) {
		return 0;
	}
	if (n == -EMSGSIZE) { /* longer than any of ours: perhaps of a later version, whose head
				 says so */
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

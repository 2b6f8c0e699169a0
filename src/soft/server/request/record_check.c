/* Validation of ring records and requests as received from clients. */
#include "soft/server/request/record_check.h"

#include <errno.h>
#include <string.h>

/* Records begin at multiples of 16 in a ring whose positions count modulo 2^32. */
_Static_assert(SOFT_RING_BYTES % 16 == 0 && (SOFT_RING_BYTES & (SOFT_RING_BYTES - 1)) == 0, "ring");
_Static_assert((SOFT_PRINT_BYTES & (SOFT_PRINT_BYTES - 1)) == 0, "print ring");
_Static_assert(SOFT_RECORD_MAX % 16 == 0 && SOFT_RECORD_MAX < SOFT_RING_BYTES, "records fit");
_Static_assert(sizeof(struct soft_record_launch) + SOFT_MAX_PARAM_BYTES <= SOFT_RECORD_MAX,
	       "the largest launch is a record");
_Static_assert(sizeof(struct soft_record) == 16 && sizeof(struct soft_record_launch) == 64 &&
		       sizeof(struct soft_record_copy) == 80 &&
		       sizeof(struct soft_record_set) == 64,
	       "no padding that is sent");
_Static_assert(sizeof(struct soft_record_stream) == 32 && sizeof(struct soft_record_event) == 32 &&
		       sizeof(struct soft_record_wait) == 32 &&
		       sizeof(struct soft_record_host) == 32 &&
		       sizeof(struct soft_record_free) == 32 &&
		       sizeof(struct soft_record_shared) == 32 &&
		       sizeof(struct soft_record_value) == 48,
	       "no padding that is sent");
_Static_assert(SOFT_REQUEST_MIN == 72 && SOFT_REPLY_MIN == 24, "requests and replies");
_Static_assert(sizeof(struct soft_hello) == 48 && sizeof(struct soft_group_info) == 72 &&
		       sizeof(struct soft_ipc_handle) == 40,
	       "no padding that is sent");

static const uint32_t sizes[SOFT_OP_COUNT] = {
	[SOFT_OP_PAD] = sizeof(struct soft_record),
	[SOFT_OP_STREAM_CREATE] = sizeof(struct soft_record_stream),
	[SOFT_OP_STREAM_DESTROY] = sizeof(struct soft_record_stream),
	[SOFT_OP_LAUNCH] = sizeof(struct soft_record_launch),
	[SOFT_OP_COPY] = sizeof(struct soft_record_copy),
	[SOFT_OP_SET] = sizeof(struct soft_record_set),
	[SOFT_OP_RECORD] = sizeof(struct soft_record_event),
	[SOFT_OP_WAIT] = sizeof(struct soft_record_wait),
	[SOFT_OP_HOST] = sizeof(struct soft_record_host),
	[SOFT_OP_FREE] = sizeof(struct soft_record_free),
	[SOFT_OP_VALUE] = sizeof(struct soft_record_value),
	[SOFT_OP_SHARED_RECORD] = sizeof(struct soft_record_shared),
	[SOFT_OP_SHARED_WAIT] = sizeof(struct soft_record_shared),
};

int softd_record_header_check(const struct soft_record *r, uint32_t available, uint32_t to_end)
{
	uint32_t limit = r->op == SOFT_OP_PAD ? SOFT_RING_BYTES : SOFT_RECORD_MAX;

	if (r->op >= SOFT_OP_COUNT || r->bytes % 16 || r->bytes < sizes[r->op] ||
	    r->bytes > limit) {
		return -EPROTO;
	}
	return r->bytes > available || r->bytes > to_end ? -EPROTO : 0;
}

static int check_launch(const struct soft_record_launch *l)
{
	uint64_t blocks, threads;

	if (l->param_bytes > SOFT_MAX_PARAM_BYTES || l->param_bytes > l->r.bytes - sizeof(*l)) {
		return -EPROTO;
	}
	if (checked_mul((uint64_t)l->grid[0] * l->grid[1], (uint64_t)l->grid[2], &blocks) ||
	    blocks == 0) {
		return -EPROTO;
	}
	if (l->block[0] > 1024 || l->block[1] > 1024 || l->block[2] > 64) {
		return -EPROTO;
	}
	threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
	if (l->flags & ~(SOFT_LAUNCH_COOPERATIVE | SOFT_LAUNCH_PRIORITY)) {
		return -EPROTO;
	}
	return threads == 0 || threads > 1024 ? -EPROTO : 0;
}

/* Checks rows of width bytes at a pitch: their extent fits 64 bits and they do not overlap. */
static int check_rows(uint64_t width, uint64_t height, uint64_t pitch)
{
	uint64_t extent;

	if (width == 0 || height == 0) {
		return -EPROTO;
	}
	if (height == 1) {
		return 0;
	}
	return pitch < width || checked_mul(pitch, height, &extent) ? -EPROTO : 0;
}

static int check_set(const struct soft_record_set *s)
{
	uint64_t width;

	if ((s->unit != 1 && s->unit != 2 && s->unit != 4) || s->dst % s->unit ||
	    checked_mul(s->width, (uint64_t)s->unit, &width)) {
		return -EPROTO;
	}
	if (s->height > 1 && s->pitch % s->unit) {
		return -EPROTO;
	}
	return check_rows(width, s->height, s->pitch);
}

int softd_record_check(const union softd_record *r)
{
	if (r->r.op != SOFT_OP_PAD &&
	    (r->r.stream >= SOFT_MAX_STREAMS || r->r.context >= SOFT_MAX_CONTEXTS)) {
		return -EPROTO;
	}
	switch ((enum soft_op)r->r.op) { /* no default: the compiler reports a missing case */
	case SOFT_OP_LAUNCH:
		return check_launch(&r->launch);
	case SOFT_OP_COPY:
		if (check_rows(r->copy.width, r->copy.height, r->copy.dst_pitch) < 0) {
			return -EPROTO;
		}
		return check_rows(r->copy.width, r->copy.height, r->copy.src_pitch);
	case SOFT_OP_SET:
		return check_set(&r->set);
	case SOFT_OP_RECORD:
		return r->event.event >= SOFT_MAX_EVENTS ? -EPROTO : 0;
	case SOFT_OP_WAIT:
		return r->wait.stream >= SOFT_MAX_STREAMS ? -EPROTO : 0;
	case SOFT_OP_VALUE:
		if ((r->value.unit != 4 && r->value.unit != 8) ||
		    r->value.mode > SOFT_VALUE_WRITE) {
			return -EPROTO;
		}
		return r->value.address % r->value.unit ? -EPROTO : 0;
	case SOFT_OP_PAD:
	case SOFT_OP_STREAM_CREATE: /* flags are checked by the ring reader, which knows the streams
				     */
	case SOFT_OP_STREAM_DESTROY:
	case SOFT_OP_HOST:
	case SOFT_OP_FREE: /* addresses, keys and cookies are looked up when the operation starts */
	case SOFT_OP_SHARED_RECORD:
	case SOFT_OP_SHARED_WAIT:
		return 0;
	case SOFT_OP_COUNT:
		break;
	}
	return -EPROTO;
}

int softd_request_check(const struct soft_request *q, size_t len)
{
	if (len <= SOFT_REQUEST_MIN || len > sizeof(*q) || q->op == 0 || q->op >= SOFT_REQ_COUNT) {
		return -EPROTO;
	}
	return memchr(q->name, 0, len - SOFT_REQUEST_MIN) ? 0 : -EPROTO;
}

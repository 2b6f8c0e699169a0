/* Copies of page-locked memory in pieces. Each piece is a copy of the driver's, straight from or to
 * the program's memory and on its stream, so the order on the stream stays that of the program.
 * Pieces are issued ahead as the policy allows. While one is held the caller waits: the rest of the
 * copy must be on the stream before the program can put anything behind it. */
#include <errno.h>

#include "base/clock.h"
#include "gpu/copy_device.h"
#include "policy/ctx.h"
#include "shim/capture_state.h"
#include "shim/mem/copies.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

#define EVENTS 16u /* pieces whose ends are watched at the same time */

/* The watched pieces, oldest first. An event that is reached says that all before it have finished.
 */
struct watched {
	struct {
		CUevent event; /* owned */
		uint64_t end;  /* of its piece, bytes from the beginning */
	} entry[EVENTS];
	unsigned first, n, events;
	uint64_t finished; /* bytes */
};

struct copy {
	const struct shim_copy_request *r;
	struct shim_copy_context *context;
	struct sched_copy *turn;
	struct watched watched;
	uint64_t issued; /* bytes */
};

/* Returns true if all of it is one piece of page-locked memory. A copy of several mappings is not
 * cut: each may have other rights. */
static bool is_pinned(const void *host, size_t bytes)
{
	CUdeviceptr at = (uintptr_t)host;

	return !shim_swap_has(at) && gpu_copy_is_host(&shim_driver, at, bytes) &&
	       shim_copy_attribute_is(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, 0);
}

static bool make_events(struct watched *w)
{
	while (w->events < EVENTS &&
	       shim_driver.cuEventCreate(&w->entry[w->events].event, CU_EVENT_DISABLE_TIMING) ==
		       CUDA_SUCCESS) {
		w->events++;
	}
	return w->events == EVENTS;
}

static void destroy_events(struct watched *w)
{
	while (w->events) {
		(void)shim_driver.cuEventDestroy_v2(w->entry[--w->events].event);
	}
}

/* Returns 0 or the error of a copy. */
static CUresult look(struct watched *w)
{
	while (w->n) {
		CUresult r = shim_driver.cuEventQuery(w->entry[w->first].event);

		if (r != CUDA_SUCCESS) {
			return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
		}
		w->finished = w->entry[w->first].end;
		w->first = (w->first + 1) % EVENTS;
		w->n--;
	}
	return CUDA_SUCCESS;
}

/* Issues the next piece; the last one of a blocking copy by the program's call, which waits. */
static CUresult issue(struct copy *c, size_t bytes)
{
	const struct shim_copy_request *r = c->r;
	struct shim_copy_request piece = *r;
	struct gpu_copy_queue queue = r->queue;
	struct watched *w = &c->watched;
	unsigned last = (w->first + w->n) % EVENTS;
	CUresult err;

	piece.device += c->issued;
	piece.host = (unsigned char *)r->host + c->issued;
	piece.bytes = bytes;
	if (r->blocking && c->issued + bytes == r->bytes) {
		err = shim_copy_by_driver(&piece);
		if (err == CUDA_SUCCESS) {
			sched_copied(shim.sched, r->way == MEM_COPY_UP, bytes);
		}
	} else {
		/* All places taken: the newest event moves to this piece's end. */
		unsigned at = w->n < EVENTS ? last : (last + EVENTS - 1) % EVENTS;
		struct mem_piece as_piece = { .host = piece.host, .event = w->entry[at].event };

		err = (CUresult)shim_copy_issue(&shim_driver, &queue, r->way, &as_piece,
						piece.device, bytes);
		w->entry[at].end = c->issued + bytes;
		w->n += w->n < EVENTS;
	}
	c->issued += err == CUDA_SUCCESS ? bytes : 0;
	return err;
}

static CUresult transfer(struct copy *c)
{
	struct sched_copy *turn = c->turn;
	uint64_t since_ns = 0;
	CUresult err = CUDA_SUCCESS;

	while (err == CUDA_SUCCESS && c->issued < c->r->bytes) {
		err = look(&c->watched);
		if (err == CUDA_SUCCESS) {
			err = (CUresult)shim_copy_may_go_on(c->context, &c->r->queue);
		}
		if (err != CUDA_SUCCESS) {
			break;
		}
		turn->left = c->r->bytes - c->issued;
		turn->unfinished = c->issued - c->watched.finished;
		if (sched_copy_may_go(turn)) {
			err = issue(c, (size_t)MIN(turn->left, (uint64_t)turn->piece_bytes));
			since_ns = 0;
			continue;
		}
		since_ns = since_ns ? since_ns : clock_now_ns();
		shim_copy_pause(since_ns);
	}
	return err;
}

bool shim_copy_pinned(const struct shim_copy_request *r, struct sched_copy *turn, CUresult *ret)
{
	struct copy c = { .r = r, .turn = turn };
	CUstreamCaptureMode mode;

	if (r->bytes <= GBPF_PIECE_MIN || !shim_copies_planned() || !is_pinned(r->host, r->bytes)) {
		return false;
	}
	mode = shim_capture_exempt();
	c.context = shim_copy_admit(r);
	if (c.context && make_events(&c.watched)) {
		turn->pinned = turn->cut = true;
		*ret = transfer(&c);
		(void)look(&c.watched);
		turn->unfinished = r->blocking || *ret ? 0 : c.issued - c.watched.finished;
		sched_copy_end(turn);
	}
	if (c.context) {
		destroy_events(&c.watched);
		shim_copy_context_leave(c.context);
	}
	shim_capture_restore(mode);
	return turn->cut;
}

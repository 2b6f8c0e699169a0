/* Sets of SMs named by a client; its launches refer to them by number. A launch copies the set when
 * it is taken from the ring, so a set may be freed while launches wait. Its number is reused once
 * the ring holds no record from before the free. */
#include <stdlib.h>

#include "base/atomic.h"
#include "soft/server/connection.h"
#include "soft/server/request/client_request.h"
#include "soft/server/run/hw_lane.h"
#include "soft/server/run/kernel_launch.h"

static bool add_range(struct softd_sm_set *p, uint32_t range, uint32_t sms)
{
	uint32_t first = range & 0xffff, n = range >> 16;

	if (n == 0 || first + n > sms) {
		return false;
	}
	for (uint32_t i = first; i < first + n; i++) {
		if (p->sms[i / 64] >> i % 64 & 1) {
			return false;
		}
		p->sms[i / 64] |= 1ull << i % 64;
	}
	p->n += n;
	return true;
}

/* Finds an unused number. Returns OUT_OF_MEMORY if all are in use, NOT_READY if some become free
 * when the ring has been read further. */
static CUresult find_free(const struct softd_client *c, uint32_t *ret_at)
{
	CUresult e = CUDA_ERROR_OUT_OF_MEMORY;

	for (uint32_t i = 0; i < SOFT_MAX_PARTS; i++) {
		const struct softd_sm_set *p = c->sm_sets[i];

		if (!p || (p->gone && (int32_t)(c->tail - p->head) >= 0)) {
			*ret_at = i;
			return CUDA_SUCCESS;
		}
		e = p->gone ? CUDA_ERROR_NOT_READY : e;
	}
	return e;
}

static CUresult make(struct softd_client *c, const struct soft_request *q, struct softd_answer *a)
{
	struct softd_sm_set p = { 0 };
	uint32_t at = 0;
	CUresult e;

	if (q->value == 0 || q->value > SOFT_PART_RANGES) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; i < q->value; i++) {
		if (!add_range(&p, (uint32_t)(q->more[i / 2] >> i % 2 * 32), c->sms)) {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	e = find_free(c, &at);
	if (e) {
		return e;
	}
	if (!c->sm_sets[at]) {
		c->sm_sets[at] = malloc(sizeof(p));
	}
	if (!c->sm_sets[at]) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c->sm_sets[at] = p;
	a->reply.value32 = at;
	return CUDA_SUCCESS;
}

CUresult softd_request_sm_set(struct softd_client *c, const struct soft_request *q,
			      struct softd_answer *a)
{
	if (q->object == SOFT_PART_NEW) {
		return make(c, q, a);
	}
	if (q->object != SOFT_PART_FREE || q->index >= SOFT_MAX_PARTS || !c->sm_sets[q->index] ||
	    c->sm_sets[q->index]->gone) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	c->sm_sets[q->index]->gone = true;
	c->sm_sets[q->index]->head = load_acquire(&c->shared->head);
	return CUDA_SUCCESS;
}

void softd_sm_sets_free(struct softd_client *c)
{
	for (uint32_t i = 0; i < SOFT_MAX_PARTS; i++) {
		free(c->sm_sets[i]);
		c->sm_sets[i] = NULL;
	}
}

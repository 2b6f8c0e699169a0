/* Sets of SMs that a client has named: its launches say by number on which of them their blocks may
 * be. Launches copy the set, so it may go while they wait. */
#include <stdlib.h>

#include "soft/server/request.h"

static bool add_range(struct part *p, uint32_t range, uint32_t sms)
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

static CUresult make(struct client *c, const struct soft_request *q, struct answer *a)
{
	struct part p = { 0 };
	uint32_t at = 0;

	if (q->value == 0 || q->value > SOFT_PART_RANGES) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; i < q->value; i++) {
		if (!add_range(&p, (uint32_t)(q->more[i / 2] >> i % 2 * 32), c->sms)) {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	while (at < SOFT_MAX_PARTS && c->parts[at]) {
		at++;
	}
	if (at == SOFT_MAX_PARTS) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->parts[at] = malloc(sizeof(p));
	if (!c->parts[at]) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c->parts[at] = p;
	a->reply.value32 = at;
	return CUDA_SUCCESS;
}

CUresult request_part(struct client *c, const struct soft_request *q, struct answer *a)
{
	if (q->object == SOFT_PART_NEW) {
		return make(c, q, a);
	}
	if (q->object != SOFT_PART_FREE || q->index >= SOFT_MAX_PARTS || !c->parts[q->index]) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	free(c->parts[q->index]);
	c->parts[q->index] = NULL;
	return CUDA_SUCCESS;
}

void parts_free(struct client *c)
{
	for (uint32_t i = 0; i < SOFT_MAX_PARTS; i++) {
		free(c->parts[i]);
		c->parts[i] = NULL;
	}
}

/* Green contexts: the primary context with a set of SMs. A green context that was converted is a
 * context handle too: current for a thread it means the primary context, its own default stream,
 * and its SMs for streams and graph nodes that are made. */
#ifndef GBPF_SOFT_CLIENT_CONTEXT_GREEN_H
#define GBPF_SOFT_CLIENT_CONTEXT_GREEN_H

#include "soft/client/process.h"

#define GREEN_MIN_SMS 4u /* of a partition, as for compute capability 8.x */
#define GREEN_ALIGN_SMS 2u

struct soft_sm_ranges {
	uint32_t n;
	struct {
		uint16_t first, n;
	} range[SOFT_PART_RANGES];
};

struct CUgreenCtx_st {
	struct soft_object object;
	CUcontext primary; /* retained */
	uint64_t primary_id;
	uint64_t id;
	uint32_t part; /* the server's number + 1 */
	bool converted;
	CUstream legacy;
	struct soft_sm_ranges sms;
};

struct CUdevResourceDesc_st {
	struct soft_object object;
	CUdevResourceDesc next;
	CUdevice device;
	struct soft_sm_ranges sms;
};

/* green.c */
bool soft_green_is(const void *h); /* and its primary context lives */
/* The context behind a handle that may be a converted green one; *ret_green NULL: it is none. */
CUresult soft_green_resolve(CUcontext h, CUcontext *ret_ctx, CUgreenCtx *ret_green);
CUcontext
soft_green_context(CUcontext h); /* the same without questions: h when it is no green one */
static inline CUcontext soft_green_handle(CUgreenCtx g)
{
	return (CUcontext)(void *)g;
}
/* A stream whose green context is gone. */
bool soft_green_stream_orphaned(const CUstream s);

/* resource.c */
unsigned soft_sm_ranges_count(const struct soft_sm_ranges *r);
CUresult soft_sm_resource_fill(CUdevResource *ret, CUdevResourceType type, CUdevice dev,
			       const struct soft_sm_ranges *sms);
struct soft_sm_ranges
soft_sm_resource_all(void); /* of the device, as far as the program may use it */

#endif

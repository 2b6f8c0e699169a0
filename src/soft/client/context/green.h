/* Green contexts: the primary context restricted to a set of SMs. A converted green context is also
 * a context handle. While that handle is current, a thread uses the primary context, the green
 * context's default stream, and its SMs for new streams and graph nodes. */
#ifndef GBPF_SOFT_CLIENT_CONTEXT_GREEN_H
#define GBPF_SOFT_CLIENT_CONTEXT_GREEN_H

#include "soft/client/process.h"

#define SOFT_GREEN_MIN_SMS 4u /* smallest partition, as for compute capability 8.x */
#define SOFT_GREEN_ALIGN_SMS 2u

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
	uint32_t part; /* 1 + number at the server */
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
bool soft_green_is(const void *h); /* also checks that its primary context exists */
/* Finds the context behind a handle, which may be a converted green context. *ret_green: the green
 * context, or NULL. */
CUresult soft_green_resolve(CUcontext h, CUcontext *ret_ctx, CUgreenCtx *ret_green);
CUcontext soft_green_context(CUcontext h); /* unchecked; returns h unless it is a green context */
static inline CUcontext soft_green_handle(CUgreenCtx g)
{
	return (CUcontext)(void *)g;
}
/* Whether the stream's green context has been destroyed. */
bool soft_green_stream_orphaned(const CUstream s);

/* sm_resource.c */
unsigned soft_sm_ranges_count(const struct soft_sm_ranges *r);
CUresult soft_sm_resource_fill(CUdevResource *ret, CUdevResourceType type, CUdevice dev,
			       const struct soft_sm_ranges *sms);
struct soft_sm_ranges
soft_sm_resource_all(void); /* all SMs of the device that the program may use */

#endif

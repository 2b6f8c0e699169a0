/* Texture and surface objects: their table in memory that kernels read, and descriptions. */
#ifndef GBPF_SOFT_CLIENT_TEXTURE_TEXTURE_TABLE_H
#define GBPF_SOFT_CLIENT_TEXTURE_TEXTURE_TABLE_H

#include "soft/client/process.h"
#include "soft/texture.h"

#define SOFT_TEXTURE_LINEAR_MAX (1u << 28) /* texels of linear memory */

/* An object as the program described it. */
struct soft_texture_record {
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
	bool has_view;
};

/* texture_table.c */
/* Copies an object into the table of the context. t's members handle and dead_after are not used.
 */
CUresult soft_texture_add(CUcontext ctx, const struct soft_texture *t,
			  const struct soft_texture_record *record, uint64_t *ret_handle);
/* Removes it, if an object of this kind has the handle. Launches submitted before may still use it.
 */
void soft_texture_remove(uint64_t handle, enum soft_texture_kind kind);
CUresult soft_texture_find(uint64_t handle, enum soft_texture_kind kind,
			   struct soft_texture_record *ret);
void soft_texture_drop_context(CUcontext ctx);

/* texture_resource.c: translate descriptions that the program gives; *ret is zeroed first. */
CUresult soft_texture_resource(const CUDA_RESOURCE_DESC *d, CUcontext ctx,
			       struct soft_texture *ret);
CUresult soft_texture_view(const CUDA_RESOURCE_DESC *d, const CUDA_RESOURCE_VIEW_DESC *view,
			   struct soft_texture *t);
/* Adds addressing and filtering to a resource. */
CUresult soft_texture_sampling(const CUDA_TEXTURE_DESC *d, struct soft_texture *t);

#endif

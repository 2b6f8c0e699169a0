/* From a handle in a register to a copy of the object that can be used: every field that the
 * sampler relies on is checked in the copy. */
#include <math.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "soft/server/exec/texture/sampler.h"

#define SIZE_MAX_TEXELS (1u << 28)

static int no_object(struct exec_warp *w, const struct exec_op *o, unsigned lane, uint64_t handle)
{
	return exec_fault_set(w, o, EXEC_FAULT_ADDRESS, lane, handle,
			      "no texture or surface object has this handle");
}

static bool is_valid(const struct soft_texture *t)
{
	if (t->format >= SOFT_TEXEL_FORMATS ||
	    (t->channels != 1 && t->channels != 2 && t->channels != 4) || t->width == 0 ||
	    t->width > SIZE_MAX_TEXELS || t->height > SIZE_MAX_TEXELS ||
	    t->depth > SIZE_MAX_TEXELS || t->pitch > UINT32_MAX) {
		return false;
	}
	if (t->levels == 0 || t->levels > SOFT_TEXTURE_LEVELS_MAX || t->last_level >= t->levels ||
	    t->first_level > t->last_level) {
		return false;
	}
	if (t->flags & SOFT_TEXTURE_LAYERED &&
	    (t->layers == 0 || t->layers > t->depth || t->first_layer > t->depth - t->layers)) {
		return false;
	}
	for (unsigned i = 0; i < 3; i++) {
		if (t->address_mode[i] > SOFT_BORDER) {
			return false;
		}
	}
	return true;
}

/* Follows the address of a variable. Returns 0 if there is none. */
static uint64_t of_variable(struct exec_warp *w, const struct exec_op *o, unsigned lane,
			    uint64_t address)
{
	uint64_t handle;
	const void *p = exec_lane_pointer(w, o, SP_GLOBAL, lane, address, sizeof(handle), false);

	if (!p) {
		return 0;
	}
	memcpy(&handle, p, sizeof(handle));
	return handle;
}

int exec_texture_find(struct exec_warp *w, const struct exec_op *o, unsigned lane, uint64_t handle,
		      enum soft_texture_kind kind, struct soft_texture *ret)
{
	uint64_t mask = (UINT64_C(1) << SOFT_TEXTURE_USE_SHIFT) - 1, given = handle;
	const void *p;

	if (!(handle & ~mask)) {
		handle = of_variable(w, o, lane, handle);
	}
	p = handle & ~mask && handle % SOFT_TEXTURE_ALIGN == 0
		    ? exec_lane_pointer(w, o, SP_GLOBAL, lane, handle & mask, SOFT_TEXTURE_ALIGN,
					false)
		    : NULL;
	if (!p) {
		return no_object(w, o, lane, given);
	}
	memcpy(ret, p, sizeof(*ret));
	compiler_barrier(); /* other threads may write the original: only the copy is used */
	if (ret->handle != handle || ret->kind != kind || !is_valid(ret) ||
	    w->block->launch.ring_end > ret->dead_after) {
		return no_object(w, o, lane, given);
	}
	return 0;
}

void exec_texture_lane(struct exec_texture_lane *l, struct exec_warp *w, const struct exec_op *o,
		       unsigned lane, const struct soft_texture *t)
{
	*l = (struct exec_texture_lane){ .w = w, .o = o, .lane = lane, .t = t };
	l->channel_bytes = soft_texel_channel_bytes(t->format);
	l->texel_bytes = l->channel_bytes * t->channels;
}

static uint32_t shrunk(uint32_t size, uint32_t level)
{
	return MAX(size >> level, 1u);
}

/* The sizes are bounded, and all arithmetic is modulo 2^64: an address that makes no sense fails
 * its check. */
void exec_texture_level(const struct soft_texture *t, uint32_t level,
			struct exec_texture_level *ret)
{
	unsigned texel = soft_texel_channel_bytes(t->format) * t->channels;
	bool layered = t->flags & SOFT_TEXTURE_LAYERED;
	uint64_t at = t->address;

	for (uint32_t i = 0;; i++) {
		uint32_t width = shrunk(t->width, i), height = shrunk(t->height, i),
			 depth = layered ? t->depth : shrunk(t->depth, i);
		uint64_t pitch = t->pitch ? t->pitch : (uint64_t)width * texel;

		if (i == level) {
			*ret = (struct exec_texture_level){
				.address = at,
				.pitch = pitch,
				.slice = pitch * height,
				.size = { (int32_t)width, (int32_t)height, (int32_t)depth },
			};
			return;
		}
		at += pitch * height * depth;
	}
}
